# ruff: noqa: RUF009 -- option() makes a dataclass field, which is what stands there
"""The process around an agent: when it ends, what it keeps and says."""

from __future__ import annotations

import dataclasses
import os

from xagents.options.declaration import Options, option, positive_int
from xagents.options.errors import OptionError

# of an agent, by its id, that learns from data sets only
NO_DATASET = 'got nothing: {} learns from a data set alone, xagents datasets lists them'


@dataclasses.dataclass
class RunControlOptions(Options):
    """When a run ends and what measures it on the way: what only `train` takes."""

    target_reward: float | None = option(
        None, 'stop when the mean reward reaches it; larger trains longer', metavar='REWARD'
    )
    max_steps: int | None = positive_int(
        None, 'stop after that many environment steps in total; more train longer', metavar='STEPS'
    )
    max_time: float | None = option(None, 'stop after that many seconds; more train longer', above=0, metavar='SECONDS')
    eval_frequency: int | None = positive_int(
        None,
        'steps between evaluations, which then decide target, best and plateau; more evaluate less often',
        metavar='STEPS',
    )
    eval_async: bool = option(
        False, 'evaluate in a separate process, and apply each result a fixed number of iterations later'
    )
    eval_delay: int | None = positive_int(
        None,
        'iterations after which a result of --eval-async is taken, when not given those until the next evaluation is '
        'due; more wait for it less, and know it later',
        metavar='ITERATIONS',
    )
    eval_episodes: int = positive_int(10, 'greedy episodes of an evaluation; more give a surer mean')
    final_episodes: int = option(
        10, 'greedy episodes of best and last at the end of a run, 0 for none; more choose more surely', at_least=0
    )
    run_dir: str | None = option(
        None, 'folder that keeps everything of the run: settings, history, metrics, checkpoints, events', metavar='DIR'
    )
    save_seconds: float = option(
        10.0, 'least seconds between writings of checkpoints; more write less often', at_least=0
    )
    checkpoint_frequency: int | None = positive_int(
        None,
        'steps between kept checkpoints of --run-dir, in addition to best and last; larger values keep fewer',
        metavar='STEPS',
    )
    keep: int | None = positive_int(
        None, 'how many of the checkpoints of --checkpoint-frequency stay, all when not given; more fill the disk'
    )
    on_nan: str = option(
        'stop', 'at numbers that are not finite: stop the run, or skip what they would teach', choices=('stop', 'skip')
    )
    overlap: bool = option(False, 'collect in a thread, one iteration ahead of learning: faster on two cores')
    log_format: str = option('text', 'what the console shows: text, or a JSON object a line', choices=('text', 'json'))
    video_frequency: int | None = positive_int(
        None, 'steps between videos of a greedy episode; more record less often', metavar='STEPS'
    )
    tensorboard: str | None = option(None, 'folder for TensorBoard events', metavar='DIR')
    record_dataset: str | None = option(None, 'data set that keeps every episode which is collected', metavar='DATASET')
    monitor_session: str | None = option(None, 'name of a Weights & Biases run that gets every metric', metavar='NAME')


@dataclasses.dataclass
class LoggingOptions(Options):
    """What every run keeps and says, a trial of `tune` too; 1.0 took these in every command."""

    checkpoints: list[str] | None = option(
        None, 'where the best weights are kept, one path a model: .tf, .weights.h5 or .keras', metavar='PATH'
    )
    history_checkpoint: str | None = option(None, 'one row an episode, a .parquet file', metavar='PATH')
    plateau_reduce_factor: float = option(
        0.9, 'factor on the learning rate on a plateau; larger reduces it less', above=0, below=1
    )
    plateau_reduce_patience: int = positive_int(10, 'checks without a new best before a reduction; more wait longer')
    early_stop_patience: int = positive_int(3, 'reductions before the run stops early; more go on longer')
    divergence_monitoring_steps: int | None = option(
        None,
        'steps before plateaus are looked for, off when not given; more wait longer',
        at_least=0,
        metavar='STEPS',
    )
    log_frequency: int | None = positive_int(
        None,
        'episodes between two checks of the mean, the number of environments when not given; more check less often',
    )
    display_precision: int = option(2, 'decimals in the console; more show smaller changes', at_least=0, at_most=12)
    quiet: bool = option(False, 'only the closing line')


@dataclasses.dataclass
class ExplorerOptions(Options):
    """Who steps the environments of a run, a trial of `tune` too."""

    explorers: int | None = positive_int(
        None, 'processes among which the environments are divided; more help while environments take the time'
    )
    max_lag: int | None = positive_int(
        None,
        'learn from what explorers bring as it comes, none of it ordered more than so many rollouts before: faster '
        'where some are slow, and no longer the same run twice; a larger one waits less for the slowest',
    )


@dataclasses.dataclass
class DatasetOptions(Options):
    """Experience that was recorded, for a run or a trial of `tune`."""

    dataset: str | None = option(
        None, 'learn from a data set alone: nothing is collected, and steps are updates', metavar='DATASET'
    )
    fill_from: str | None = option(
        None, 'data set that fills the replay buffer before the first step', metavar='DATASET'
    )
    download: bool = option(False, "ask Minari's server for a data set that is not here")


@dataclasses.dataclass
class ClusterOptions(Options):
    """Where the explorers of a run are, if not here."""

    cluster: str | None = option(
        None,
        'address HOST:PORT to listen at for explorers of other machines (xagents explore); ray, or ray://HOST:PORT, '
        'where Ray places them; here for this machine, as when not given',
        metavar='WHERE',
    )
    cluster_key: str | None = option(
        None, 'file with the key of --cluster, made in the run folder when not given', metavar='FILE'
    )


@dataclasses.dataclass
class RunOptions(LoggingOptions, DatasetOptions, ExplorerOptions, ClusterOptions, RunControlOptions):
    """The process around an agent: what `fit`, `train_iter` and `make` take, and 1.0's constructor took.

    A run folder has a place for everything; an own path that is given wins.
    """

    stages: list[str] | None = option(
        None, 'registered stages of your own, see docs/extending.md; they stand where they say', metavar='NAME'
    )

    def check(self) -> None:
        """Check the options against each other."""
        whose = dict.fromkeys(('checkpoint_frequency', 'keep'), 'whose checkpoints it is about')
        for name, why in {**whose, 'video_frequency': 'whose videos/ keeps them'}.items():
            if getattr(self, name) is not None and self.run_dir is None:
                raise OptionError(name, f'got {getattr(self, name)} without --run-dir, {why}')
        if self.keep is not None and self.checkpoint_frequency is None:
            raise OptionError('keep', f'got {self.keep} without --checkpoint-frequency, whose checkpoints it counts')
        if self.eval_async and self.eval_frequency is None and self.dataset is None:
            raise OptionError('eval_async', 'got it without --eval-frequency, whose evaluations it is about')
        if self.eval_delay is not None and not self.eval_async:
            raise OptionError('eval_delay', f'got {self.eval_delay} without --eval-async, whose results it is about')
        if self.download and self.dataset is None and self.fill_from is None:
            raise OptionError('download', 'got it without --dataset or --fill-from, which name what it asks for')
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
        """Return where something of the run is kept, a file or folder of the run folder; None without one."""
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
        None, "TensorFlow's threads, chosen by the network when not given; more help large networks"
    )
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class TrainOptions(Options):
    """What only `xagents train` takes, besides the run's own options."""

    weights: list[str] | None = option(None, 'checkpoints to start from, one path a model', metavar='PATH')
    from_study: str | None = option(
        None, 'take the settings of the best trial of a study that xagents tune made', metavar='NAME'
    )
    storage: str | None = option(None, 'where the study of --from-study is kept', metavar='URL')
    tuned: bool = option(
        False, 'settings that ship for the agent and the environment, see xagents presets; flags on the line win'
    )
    resume: str | None = option(
        None,
        'run folder (or group of them) to go on with, as if it had never stopped; flags on the line win',
        metavar='DIR',
    )
    config: str | None = option(
        None,
        'YAML file whose keys are flags; a list of values makes a grid of runs; flags on the line win',
        metavar='FILE',
    )
    print_config: bool = option(False, 'print the file for --config that this command stands for, and stop')
    seeds: list[int] | None = option(
        None,
        'one run for each seed, in folders of their own under --run-dir; more judge settings more surely',
        at_least=0,
        at_most=2**32 - 1,
    )
    grid_jobs: int = positive_int(1, 'runs of a grid at the same time; more need more cores')
