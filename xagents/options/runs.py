# ruff: noqa: RUF009 -- option() returns a dataclass field
"""The options of a run: when it ends, what it saves and what it logs."""

from __future__ import annotations

import dataclasses
import os

from xagents.options.declaration import Options, count, dataset_name, file, folder, named, option, path, steps
from xagents.options.errors import OptionError

# problem of an agent that learns only from data sets; the field is its id
NO_DATASET = 'got nothing: {} learns only from a data set, xagents datasets lists them'


@dataclasses.dataclass
class RunControlOptions(Options):
    """Options that end, evaluate and save a run; only `train` has them."""

    target_reward: float | None = option(
        None, 'stop when the mean reward reaches it; larger trains longer', metavar='REWARD'
    )
    max_steps: int | None = steps('stop after that many environment steps in total; more train longer')
    max_time: float | None = option(None, 'stop after that many seconds; more train longer', above=0, metavar='SECONDS')
    eval_frequency: int | None = steps(
        'steps between evaluations, which then decide target, best and plateau; larger values evaluate less often'
    )
    eval_async: bool = option(
        False, 'evaluate in a separate process, and apply each result a fixed number of iterations later'
    )
    eval_delay: int | None = count(
        None,
        'iterations until a result of --eval-async is applied, those until the next evaluation when not given; '
        'larger values wait less and apply the result later',
        metavar='ITERATIONS',
    )
    eval_episodes: int = count(10, 'greedy episodes of an evaluation; larger values give a more precise mean')
    final_episodes: int = option(
        10,
        'greedy episodes of best and last at the end of a run, 0 for none; larger values compare more precisely',
        at_least=0,
    )
    run_dir: str | None = folder('directory for all files of the run: settings, history, metrics, checkpoints, events')
    save_seconds: float = option(
        10.0, 'minimum seconds between two writes of checkpoints; larger values save less often', at_least=0
    )
    checkpoint_frequency: int | None = steps(
        'steps between numbered checkpoints of --run-dir, in addition to best and last; larger values save fewer'
    )
    keep: int | None = count(
        None, 'number of --checkpoint-frequency checkpoints to keep, all when not given; larger values take more disk'
    )
    on_nan: str = option(
        'stop', 'at numbers that are not finite: stop the run, or skip the update', choices=('stop', 'skip')
    )
    overlap: bool = option(False, 'collect in a thread, one iteration ahead of learning: faster on two cores')
    log_format: str = option('text', 'what the console shows: text, or a JSON object a line', choices=('text', 'json'))
    video_frequency: int | None = steps('steps between videos of a greedy episode; more record less often')
    tensorboard: str | None = folder('folder for TensorBoard events')
    record_dataset: str | None = dataset_name('data set to which every collected episode is written')
    monitor_session: str | None = named('name of a Weights & Biases run for all metrics')


@dataclasses.dataclass
class LoggingOptions(Options):
    """Options for saving and logging, also for a trial of `tune`. Every command of 1.0 had them."""

    checkpoints: list[str] | None = path('files for the best weights, one path a model: .tf, .weights.h5 or .keras')
    history_checkpoint: str | None = path('one row an episode, a .parquet file')
    plateau_reduce_factor: float = option(
        0.9, 'factor on the learning rate on a plateau; larger reduces it less', above=0, below=1
    )
    plateau_reduce_patience: int = count(10, 'checks without a new best before a reduction; more wait longer')
    early_stop_patience: int = count(3, 'reductions before the run stops early; larger values train longer')
    divergence_monitoring_steps: int | None = option(
        None,
        'steps before plateaus are detected, off when not given; larger values start later',
        at_least=0,
        metavar='STEPS',
    )
    log_frequency: int | None = count(
        None,
        'episodes between two checks of the mean, the number of environments when not given; more check less often',
    )
    display_precision: int = option(2, 'decimals in the console; more show smaller changes', at_least=0, at_most=12)
    quiet: bool = option(False, 'print only the last line')


@dataclasses.dataclass
class ExplorerOptions(Options):
    """The processes that step the environments of a run, also of a trial of `tune`."""

    explorers: int | None = count(
        None, 'number of processes that step the environments; larger values help when environments are slow'
    )
    max_lag: int | None = count(
        None,
        'learn from rollouts as they arrive, requested at most this many rollouts earlier: faster if some '
        'explorers are slow, but not reproducible; larger values wait less for the slowest explorer',
    )


@dataclasses.dataclass
class DatasetOptions(Options):
    """Options for data sets, for a run or a trial of `tune`."""

    dataset: str | None = dataset_name('learn only from a data set: no environment steps, and steps count updates')
    fill_from: str | None = dataset_name('data set that fills the replay buffer before the first step')
    download: bool = option(False, "download a missing data set from Minari's server")


@dataclasses.dataclass
class ClusterOptions(Options):
    """Options for explorers on other machines."""

    cluster: str | None = option(
        None,
        'address HOST:PORT to listen at for explorers of other machines (xagents explore); ray, or ray://HOST:PORT, '
        'where Ray places them; here for this machine, as when not given',
        metavar='WHERE',
    )
    cluster_key: str | None = file('file with the key of --cluster, made in the run directory when not given')


@dataclasses.dataclass
class RunOptions(LoggingOptions, DatasetOptions, ExplorerOptions, ClusterOptions, RunControlOptions):
    """All options of a run, for `fit`, `train_iter` and `make`, and for the constructors of 1.0.

    The run directory has a default path for each file; an option that gives a path overrides it.
    """

    stages: list[str] | None = named(
        'names of your registered stages; each defines its own position, see docs/extending.md'
    )

    def check(self) -> None:
        """Check the options against each other."""
        for name in ('checkpoint_frequency', 'keep', 'video_frequency'):
            if getattr(self, name) is not None and self.run_dir is None:
                raise OptionError(name, f'got {getattr(self, name)} without --run-dir, expected both')
        if self.keep is not None and self.checkpoint_frequency is None:
            raise OptionError('keep', f'got {self.keep} without --checkpoint-frequency, expected both')
        if self.eval_async and self.eval_frequency is None and self.dataset is None:
            raise OptionError('eval_async', 'got it without --eval-frequency, expected both')
        if self.eval_delay is not None and not self.eval_async:
            raise OptionError('eval_delay', f'got {self.eval_delay} without --eval-async, expected both')
        if self.download and self.dataset is None and self.fill_from is None:
            raise OptionError('download', 'got it without --dataset or --fill-from, expected one of them')
        if self.dataset is not None:
            self._check_nothing_collected()

    def _check_nothing_collected(self) -> None:
        """Check that no option of collecting is given with a data set, which replaces collecting."""
        for name in ('fill_from', 'record_dataset', 'overlap', 'explorers', 'max_lag', 'cluster'):
            if value := getattr(self, name):
                got = 'it' if value is True else f'{value}'
                raise OptionError(name, f'got {got} with --dataset, which replaces collecting')

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
        None, 'number of TensorFlow threads, chosen by the network when not given; larger values help large networks'
    )
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class TrainOptions(Options):
    """Options that only `xagents train` has, in addition to the options of the run."""

    weights: list[str] | None = path('checkpoints to start from, one path a model')
    from_study: str | None = named('take the settings of the best trial of a study that xagents tune made')
    storage: str | None = option(None, 'URL of the storage of --from-study', metavar='URL')
    tuned: bool = option(
        False, 'settings that ship for the agent and the environment, see xagents presets; flags on the line win'
    )
    resume: str | None = folder(
        'run directory (or group of them) to resume, as if it had never stopped; flags on the line win'
    )
    config: str | None = file(
        'YAML file whose keys are flags; a list of values makes a grid of runs; flags on the line win'
    )
    print_config: bool = option(False, 'print this command as a file for --config, and stop')
    seeds: list[int] | None = option(
        None,
        'one run for each seed, each in its own directory under --run-dir; more seeds compare settings more precisely',
        at_least=0,
        at_most=2**32 - 1,
    )
    grid_jobs: int = count(1, 'runs of a grid at the same time; more need more cores')
