# ruff: noqa: RUF009 -- option() makes a dataclass field, which is what stands there
"""The options of a run: when it ends, what it saves and what it logs."""

from __future__ import annotations

import dataclasses
import os

from xagents.options.declaration import Options, option, positive_int
from xagents.options.errors import OptionError

# of an agent, by its id, that learns from data sets only
NO_DATASET = 'got nothing: {} learns only from a data set, xagents datasets lists them'


@dataclasses.dataclass
class RunControlOptions(Options):
    """When a run ends and what measures it on the way: what only `train` takes."""

    target_reward: float | None = option(
        None, 'mean reward at which the run stops; larger values train longer', metavar='REWARD'
    )
    max_steps: int | None = positive_int(
        None,
        'total number of environment steps, including those before a resume; larger values train longer',
        metavar='STEPS',
    )
    max_time: float | None = option(
        None, 'seconds after which the run stops; larger values train longer', above=0, metavar='SECONDS'
    )
    eval_frequency: int | None = positive_int(
        None,
        'steps between evaluations, whose means then decide about target, best weights and plateaus; larger values '
        'evaluate less often',
        metavar='STEPS',
    )
    eval_async: bool = option(
        False, 'evaluate in a separate process, and apply each result a fixed number of iterations later'
    )
    eval_delay: int | None = positive_int(
        None,
        'iterations until a result of --eval-async is applied (default: until the next evaluation); larger values '
        'wait less often for a result and apply it later',
        metavar='ITERATIONS',
    )
    eval_episodes: int = positive_int(10, 'episodes of an evaluation; larger values give a more precise mean')
    final_episodes: int = option(
        10,
        'greedy episodes that compare the best with the last weights at the end of a run, 0: none; larger values '
        'compare more precisely',
        at_least=0,
    )
    run_dir: str | None = option(
        None, 'directory of all files of the run: settings, history, metrics, checkpoints, events', metavar='DIR'
    )
    save_seconds: float = option(
        10.0, 'minimum number of seconds between two checkpoints; larger values save less often', at_least=0
    )
    checkpoint_frequency: int | None = positive_int(
        None,
        'steps between numbered checkpoints of --run-dir, in addition to best and last; larger values save fewer',
        metavar='STEPS',
    )
    keep: int | None = positive_int(
        None, 'number of numbered checkpoints to keep (default: all); larger values need more disk space'
    )
    on_nan: str = option(
        'stop', 'what to do if a number is not finite: stop the run, or skip the update', choices=('stop', 'skip')
    )
    overlap: bool = option(False, 'collect in a thread, one iteration ahead of learning: faster on two cores')
    log_format: str = option(
        'text', 'format of the console output: text, or one JSON object per line', choices=('text', 'json')
    )
    video_frequency: int | None = positive_int(
        None, 'steps between videos of a greedy episode; larger values record fewer videos', metavar='STEPS'
    )
    tensorboard: str | None = option(None, 'folder for TensorBoard events', metavar='DIR')
    record_dataset: str | None = option(None, 'data set to which every collected episode is written', metavar='DATASET')
    monitor_session: str | None = option(None, 'name of a Weights & Biases run for all metrics', metavar='NAME')


@dataclasses.dataclass
class LoggingOptions(Options):
    """What every run saves and logs, also a trial of `tune`; every command of 1.0 had these."""

    checkpoints: list[str] | None = option(
        None, 'files for the best weights, one path for each network: .tf, .weights.h5 or .keras', metavar='PATH'
    )
    history_checkpoint: str | None = option(
        None, '.parquet file of the history, with one row per episode', metavar='PATH'
    )
    plateau_reduce_factor: float = option(
        0.9,
        'factor that multiplies the learning rate on a plateau (see --divergence-monitoring-steps); larger values '
        'reduce it less',
        above=0,
        below=1,
    )
    plateau_reduce_patience: int = positive_int(
        10, 'checks of the mean reward without a new best that make a plateau; larger values wait longer'
    )
    early_stop_patience: int = positive_int(
        3, 'number of plateaus after which the run stops; larger values train longer'
    )
    divergence_monitoring_steps: int | None = option(
        None,
        'steps after which plateaus are detected (default: never); larger values start later',
        at_least=0,
        metavar='STEPS',
    )
    log_frequency: int | None = positive_int(
        None,
        'episodes between two checks of the mean reward against best and plateau (default: --n-envs); larger values '
        'check less often',
    )
    display_precision: int = option(
        2, 'decimals of rewards in the console; larger values show smaller changes', at_least=0, at_most=12
    )
    quiet: bool = option(False, 'print only the last line, which gives the reason of the end')


@dataclasses.dataclass
class ExplorerOptions(Options):
    """The processes that step the environments of a run, also of a trial of `tune`."""

    explorers: int | None = positive_int(
        None, 'number of processes that step the environments; larger values help if environments are slow'
    )
    max_lag: int | None = positive_int(
        None,
        'learn from the oldest fragments that have arrived, at most this many rollouts old (not reproducible); larger '
        'values wait less often for slow explorers',
    )


@dataclasses.dataclass
class DatasetOptions(Options):
    """Experience that was recorded, for a run or a trial of `tune`."""

    dataset: str | None = option(
        None, 'data set to learn from, without environment steps; steps then count updates', metavar='DATASET'
    )
    fill_from: str | None = option(
        None,
        'data set that fills the replay buffer before the first step (agents with a replay buffer)',
        metavar='DATASET',
    )
    download: bool = option(False, "download a missing data set from Minari's server")


@dataclasses.dataclass
class ClusterOptions(Options):
    """Where the explorers of a run are, if not on this machine."""

    cluster: str | None = option(
        None,
        'where explorers run: here (on this machine, the default), HOST:PORT (listen at this address for xagents '
        'explore on other machines), ray or ray://HOST:PORT (placed by Ray)',
        metavar='WHERE',
    )
    cluster_key: str | None = option(
        None, 'file of the key of --cluster; by default, one is created in the run directory', metavar='FILE'
    )


@dataclasses.dataclass
class RunOptions(LoggingOptions, DatasetOptions, ExplorerOptions, ClusterOptions, RunControlOptions):
    """The process around an agent: what `fit`, `train_iter` and `make` take, and 1.0's constructor took.

    A run folder has a place for everything; an own path that is given wins.
    """

    stages: list[str] | None = option(
        None, 'names of your registered stages; each defines its own position, see docs/extending.md', metavar='NAME'
    )

    def check(self) -> None:
        """Check the options against each other."""
        whose = dict.fromkeys(('checkpoint_frequency', 'keep'), 'which contains the checkpoints')
        for name, why in {**whose, 'video_frequency': 'which contains the videos'}.items():
            if getattr(self, name) is not None and self.run_dir is None:
                raise OptionError(name, f'got {getattr(self, name)} without --run-dir, {why}')
        if self.keep is not None and self.checkpoint_frequency is None:
            raise OptionError('keep', f'got {self.keep} without --checkpoint-frequency, expected both')
        if self.eval_async and self.eval_frequency is None and self.dataset is None:
            raise OptionError('eval_async', 'got it without --eval-frequency, expected both')
        if self.eval_delay is not None and not self.eval_async:
            raise OptionError('eval_delay', f'got {self.eval_delay} without --eval-async, expected both')
        if self.download and self.dataset is None and self.fill_from is None:
            raise OptionError('download', 'got it without --dataset and --fill-from, expected one of them')
        if self.dataset is not None:
            self._check_nothing_collected()

    def _check_nothing_collected(self) -> None:
        """Check that nothing is asked of collecting where a data set stands in its place."""
        for name in ('fill_from', 'record_dataset', 'overlap', 'explorers', 'max_lag', 'cluster'):
            value = getattr(self, name)
            if value:
                got = 'it' if value is True else f'{value}'
                raise OptionError(name, f'got {got} with --dataset, which replaces collecting')

    def path_in_run_dir(self, name: str) -> str | None:
        """Return where something of the run is kept, a file or directory of the run directory; None without one."""
        return None if self.run_dir is None else os.path.join(self.run_dir, name)

    @property
    def history_path(self) -> str | None:
        """The history's file."""
        return self.history_checkpoint or self.path_in_run_dir('history.parquet')

    @property
    def metrics_path(self) -> str | None:
        """The file of the metrics."""
        return self.path_in_run_dir('metrics.parquet')

    @property
    def events_folder(self) -> str | None:
        """The folder of TensorBoard's events."""
        return self.tensorboard or self.path_in_run_dir('tensorboard')

    @property
    def video_folder(self) -> str:
        """The folder of the videos of `video_frequency`; empty without a run folder, where there are none."""
        return self.path_in_run_dir('videos') or ''


@dataclasses.dataclass
class SessionOptions(Options):
    """The machine and the console."""

    threads: int | None = positive_int(
        None, 'number of TensorFlow threads (default: depends on the network); larger values help large networks'
    )
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class TrainOptions(Options):
    """What only `xagents train` takes, besides the run's own options."""

    weights: list[str] | None = option(None, 'weights to start from, one path for each network', metavar='PATH')
    from_study: str | None = option(
        None, 'use the settings of the best trial of this study of xagents tune', metavar='NAME'
    )
    storage: str | None = option(None, 'URL of the storage of --from-study', metavar='URL')
    tuned: bool = option(
        False, 'use the preset for the agent and the environment (see xagents presets); other flags override it'
    )
    resume: str | None = option(
        None,
        'run directory, or directory of a group of runs, to resume; other flags override its settings',
        metavar='DIR',
    )
    config: str | None = option(
        None,
        'YAML file whose keys are flags; lists of values form a grid of runs; other flags override the file',
        metavar='FILE',
    )
    print_config: bool = option(False, 'print the options of this command as a file for --config, and stop')
    seeds: list[int] | None = option(
        None,
        'seeds of a group of runs, each in its own directory of --run-dir; more seeds compare settings more precisely',
        at_least=0,
        at_most=2**32 - 1,
    )
    grid_jobs: int = positive_int(1, 'number of runs of a grid that run in parallel; larger values need more cores')
