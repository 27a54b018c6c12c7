# ruff: noqa: RUF009 -- option() returns a dataclass field
"""The options of a run: when it ends, what it saves and what it logs."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

from xagents.options.curriculum import condition_problem, curriculum_of
from xagents.options.declaration import (
    Options,
    count,
    dataset_name,
    file,
    folder,
    named,
    option,
    path,
    seed_number,
    steps,
)
from xagents.options.rules import Rule, Rules, excluded, needs

# value of `run_dir` with which nothing is saved
NO_RUN_DIR = 'none'
# options of files that exist only in a run directory
IN_RUN_DIR = ('checkpoint_frequency', 'keep', 'video_frequency')
# value of `cluster` for this machine, the default
HERE = 'here'
# problem of an agent that learns only from data sets; the field is its id
NO_DATASET = 'got nothing: {} learns only from a data set, xagents datasets lists them'


@dataclasses.dataclass
class RunControlOptions(Options):
    """Options that end, evaluate and save a run; only `train` has them."""

    target_reward: float | None = option(
        None, 'mean reward at which the run stops; larger values train longer', metavar='REWARD'
    )
    max_steps: int | None = steps(
        'total number of environment steps, including those before a resume; larger values train longer'
    )
    max_time: float | None = option(
        None, 'seconds after which the run stops; larger values train longer', above=0, metavar='SECONDS'
    )
    eval_frequency: int | None = steps(
        'steps between evaluations, whose means are then used for the target, the best weights and plateaus; larger '
        'values evaluate less often'
    )
    eval_async: bool = option(
        False, 'evaluate in a separate process, and apply each result a fixed number of iterations later'
    )
    eval_delay: int | None = count(
        None,
        'iterations until a result of --eval-async is applied (default: until the next evaluation); larger '
        'values wait less often for a result and apply it later',
        metavar='ITERATIONS',
    )
    eval_episodes: int = count(10, 'episodes of an evaluation; larger values give a more precise mean')
    final_episodes: int = option(
        10,
        'greedy episodes that compare the best with the last weights at the end of a run, 0: none; larger '
        'values compare more precisely',
        at_least=0,
    )
    run_dir: str | None = folder('directory of all files of the run: settings, history, metrics, checkpoints, events')
    save_seconds: float = option(
        10.0, 'minimum number of seconds between two checkpoints; larger values save less often', at_least=0
    )
    checkpoint_frequency: int | None = steps(
        'steps between numbered checkpoints of --run-dir, in addition to best and last; larger values save fewer'
    )
    keep: int | None = count(None, 'numbered checkpoints to keep (default: all); larger values need more disk space')
    on_nan: str = option(
        'stop', 'what to do if a number is not finite: stop the run, or skip the update', choices=('stop', 'skip')
    )
    overlap: bool = option(False, 'collect in a thread, one iteration ahead of learning: faster on two cores')
    log_format: str = option(
        'text', 'format of the console output: text, or one JSON object per line', choices=('text', 'json')
    )
    video_frequency: int | None = steps('steps between videos of a greedy episode; larger values record fewer videos')
    tensorboard: str | None = folder('directory for TensorBoard events')
    log_info: list[str] | None = option(
        None,
        'numbers in the infos of the environment to log: the mean of their steps, and the mean of their sums over '
        'episodes',
        metavar='NAME',
    )
    curriculum: dict | None = option(
        None,
        'parameters of the environment that change from level to level, as NAME=A..B, NAME=A..B:N for N levels, or '
        'NAME=[A,B,…]',
        metavar='NAME=A..B',
    )
    curriculum_when: str | None = option(
        None,
        "condition of the next level, METRIC>X or METRIC<X, such as 'mean_reward>200' (default: levels follow the "
        'steps)',
        metavar='CONDITION',
    )
    record_dataset: str | None = dataset_name('data set to which every collected episode is written')
    monitor_session: str | None = named('name of the run in the tracker of --monitor that gets all metrics')
    monitor: str = option(
        'wandb',
        'tracker of --monitor-session: Weights & Biases, or trackio, which writes to this machine only',
        choices=('wandb', 'trackio'),
    )


@dataclasses.dataclass
class LoggingOptions(Options):
    """Options for saving and logging, also for a trial of `tune`. Every command of 1.0 had them."""

    checkpoints: list[str] | None = path(
        'files for the best weights, one path for each network: .tf, .weights.h5 or .keras'
    )
    history_checkpoint: str | None = path('.parquet file of the history, with one row per episode')
    plateau_reduce_factor: float = option(
        0.9,
        'factor that multiplies the learning rate on a plateau (see --divergence-monitoring-steps); larger '
        'values reduce it less',
        above=0,
        below=1,
    )
    plateau_reduce_patience: int = count(
        10, 'checks of the mean reward without a new best that make a plateau; larger values wait longer'
    )
    early_stop_patience: int = count(3, 'number of plateaus after which the run stops; larger values train longer')
    divergence_monitoring_steps: int | None = option(
        None,
        'steps after which plateaus are detected (default: never); larger values start later',
        at_least=0,
        metavar='STEPS',
    )
    log_frequency: int | None = count(
        None,
        'episodes between two checks of the mean reward against best and plateau (default: --n-envs); larger '
        'values check less often',
    )
    display_precision: int = option(
        2, 'decimals of rewards in the console; larger values show smaller changes', at_least=0, at_most=12
    )
    quiet: bool = option(False, 'print only the last line, which gives the reason of the end')


@dataclasses.dataclass
class ExplorerOptions(Options):
    """The processes that step the environments of a run, also of a trial of `tune`."""

    explorers: int | None = count(
        None, 'number of processes that step the environments; larger values help if environments are slow'
    )
    max_lag: int | None = count(
        None,
        'learn from the oldest fragments that have arrived, at most this many rollouts old (not '
        'reproducible); larger values wait less often for slow explorers',
    )


@dataclasses.dataclass
class DatasetOptions(Options):
    """Options for data sets, for a run or a trial of `tune`."""

    dataset: str | None = dataset_name('data set to learn from, without environment steps; steps then count updates')
    fill_from: str | None = dataset_name(
        'data set that fills the replay buffer before the first step (agents with a replay buffer)'
    )
    download: bool = option(False, "download a missing data set from Minari's server")


@dataclasses.dataclass
class ClusterOptions(Options):
    """Options for explorers on other machines."""

    cluster: str | None = option(
        None,
        'where explorers run, or without them the runs of a grid: here (on this machine, the default), ray or '
        'ray://HOST:PORT (placed by Ray); for explorers also HOST:PORT (listen for xagents explore on other machines)',
        metavar='WHERE',
    )
    cluster_key: str | None = file('file of the key of --cluster; by default, one is created in the run directory')


def is_elsewhere(options: ClusterOptions, name: str = 'cluster') -> bool:
    """Return whether explorers do not run on this machine."""
    return options.cluster not in (None, HERE)


def _colliding_info(options: RunControlOptions) -> str:
    """Return a name of `log_info` whose sum over episodes has the metric of another name; empty without one."""
    names = options.log_info or ()
    return next((name for name in names if f'{name}/episode' in names), '')


@dataclasses.dataclass
class SelfPlayOptions(Options):
    """Options of the opponents in games."""

    self_play: bool = option(False, 'games: opponents are frozen earlier policies instead of the present one')
    snapshot_frequency: int = count(
        50_000, 'games: steps between two snapshots for --self-play; larger values change opponents less often'
    )
    pool: int = count(10, 'games: number of snapshots that --self-play keeps; larger values keep older opponents')
    latest: float = option(
        0.5,
        'games: share of games against the newest snapshot; larger values play less against older ones',
        at_least=0,
        at_most=1,
    )


@dataclasses.dataclass
class RunOptions(SelfPlayOptions, LoggingOptions, DatasetOptions, ExplorerOptions, ClusterOptions, RunControlOptions):
    """All options of a run, for `fit`, `train_iter` and `make`, and for the constructors of 1.0.

    The run directory has a default path for each file; an option that gives a path overrides it.
    """

    stages: list[str] | None = option(
        None,
        'stages of your own: names or module:NAME, each with its parameters as KEY=VALUE behind it',
        metavar='NAME',
    )

    rules: ClassVar[Rules] = (
        *(needs(name, '--run-dir', lambda o: o.run_dir) for name in IN_RUN_DIR),
        needs('monitor', '--monitor-session', lambda o: o.monitor_session),
        needs('keep', '--checkpoint-frequency', lambda o: o.checkpoint_frequency),
        needs('eval_async', '--eval-frequency', lambda o: o.eval_frequency or o.dataset),
        needs('eval_delay', '--eval-async', lambda o: o.eval_async),
        needs('download', '--dataset or --fill-from', lambda o: o.dataset or o.fill_from),
        *excluded(
            ('fill_from', 'record_dataset', 'overlap', 'explorers', 'max_lag', 'cluster', 'log_info', 'curriculum'),
            'with --dataset, which replaces collecting',
            lambda o: o.dataset,
        ),
        needs('max_lag', '--explorers', lambda o: o.explorers),
        needs('curriculum_when', '--curriculum', lambda o: o.curriculum),
        Rule('curriculum_when', condition_problem, condition_problem),
        Rule(
            'curriculum',
            lambda o: o.curriculum and o.eval_async,
            'cannot be used with --eval-async, whose evaluations have no levels; expected --eval-frequency alone',
        ),
        Rule(
            'log_info',
            lambda o: len({*(o.log_info or ())}) < len(o.log_info or ()),
            lambda o: f'got {next(n for n in o.log_info if o.log_info.count(n) > 1)} twice, expected each name once',
        ),
        Rule(
            'log_info',
            _colliding_info,
            lambda o: (
                f'got {(n := _colliding_info(o))} with {n}/episode, which share the metric info/{n}/episode; '
                'expected one of the two'
            ),
        ),
        *(needs(name, '--self-play', lambda o: o.self_play) for name in ('snapshot_frequency', 'pool', 'latest')),
        Rule('max_lag', lambda o: o.max_lag and o.overlap, 'got {o.max_lag} with --overlap, expected one of the two'),
        needs('cluster_key', '--cluster', lambda o: o.cluster),
        needs('cluster', '--explorers, or several runs', lambda o: o.explorers, is_elsewhere),
        Rule(
            'record_dataset',
            lambda o: o.record_dataset and o.explorers,
            'got {o.record_dataset} with --explorers, expected environments in this process',
        ),
    )

    def complete(self) -> None:
        """Replace the word for no run directory, and check the levels of a curriculum."""
        if self.run_dir == NO_RUN_DIR:
            self.run_dir = None
        curriculum_of(self)  # raises OptionError

    def path_in_run_dir(self, name: str) -> str | None:
        """Return the path of a file or directory within the run directory, or None without a run directory."""
        return None if self.run_dir is None else os.path.join(self.run_dir, name)

    @property
    def history_path(self) -> str | None:
        """The path of the history."""
        return self.history_checkpoint or self.path_in_run_dir('history.parquet')

    @property
    def metrics_path(self) -> str | None:
        """The path of the metrics."""
        return self.path_in_run_dir('metrics.parquet')

    @property
    def events_folder(self) -> str | None:
        """The directory of TensorBoard's events."""
        return self.tensorboard or self.path_in_run_dir('tensorboard')

    @property
    def video_folder(self) -> str:
        """The directory of the videos of `video_frequency`, or an empty string without a run directory."""
        return self.path_in_run_dir('videos') or ''


@dataclasses.dataclass
class SessionOptions(Options):
    """Options of the process."""

    threads: int | None = count(
        None, 'number of TensorFlow threads (default: depends on the network); larger values help large networks'
    )
    debug: bool = option(False, 'show the traceback of an error')


# options that select a preset
PRESET_OPTIONS = ('tuned', 'published')


@dataclasses.dataclass
class TrainOptions(Options):
    """Options that only `xagents train` has, in addition to the options of the run."""

    weights: list[str] | None = path('weights to start from, one path for each network')
    from_study: str | None = named('use the settings of the best trial of this study of xagents tune')
    storage: str | None = option(None, 'URL of the storage of --from-study', metavar='URL')
    tuned: bool = option(
        False, 'use the preset for the agent and the environment (see xagents presets); other flags override it'
    )
    published: bool = option(False, 'with --tuned: use the published settings if the preset differs from them')
    resume: str | None = folder(
        'run directory, or directory of a group of runs, to resume; other flags override its settings'
    )
    config: str | None = file(
        'YAML file whose keys are flags; lists of values form a grid of runs; other flags override the file'
    )
    print_config: bool = option(False, 'print the options of this command as a file for --config, and stop')
    seeds: list[int] | None = seed_number(
        None,
        'seeds of a group of runs, each in its own directory of --run-dir; more seeds compare settings more precisely',
    )
    grid_jobs: int = count(1, 'number of runs of a grid that run in parallel; larger values need more cores')
