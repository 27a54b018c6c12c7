# ruff: noqa: RUF009 -- option() returns a dataclass field
"""The options of commands other than `train`."""

from __future__ import annotations

import dataclasses

from xagents.options.declaration import Options, count, dataset_name, file, folder, fraction, named, option, path
from xagents.options.errors import OptionError

# options of `tune` that apply to trials and not to a population
TRIAL_ONLY_OPTIONS = (
    *('n_trials', 'timeout', 'study', 'storage', 'trial_seeds'),
    *('sampler', 'pruner', 'warmup_trials', 'weights'),
)


@dataclasses.dataclass
class TuneOptions(Options):
    """`xagents tune`."""

    search: bool = option(False, "search the agent's ready ranges, too")
    print_search: bool = option(False, 'print what would be searched, and stop')
    n_trials: int = count(
        1, 'trials that this call finishes, as many as --timeout allows where only that is given; more search longer'
    )
    trial_steps: int = count(500_000, 'environment steps of a trial; larger values rank settings more precisely')
    timeout: float | None = option(
        None, 'end the call after that many seconds; more search longer', above=0, metavar='SECONDS'
    )
    n_jobs: int = count(1, 'worker processes, each with a trial at a time; more need more cores')
    study: str | None = named('name of the study, continued if it exists; AGENT-ENV when not given')
    storage: str | None = option(
        None,
        'where the study is kept, in memory when not given: sqlite:///FILE, postgresql://…, mysql://…, journal:FILE',
        metavar='URL',
    )
    objective: str = option(
        'reward',
        'what a trial is worth: the mean of its last episodes, or of greedy ones on separate environments',
        choices=('reward', 'evaluation'),
    )
    eval_episodes: int = count(
        10, 'greedy episodes of an evaluation, for --objective evaluation; larger values give a more precise mean'
    )
    trial_seeds: int = count(
        1, 'runs of a trial with seeds of their own, whose mean is its value; larger values judge more precisely'
    )
    sampler: str = option('tpe', 'how settings are chosen', choices=('tpe', 'random', 'cmaes', 'gp'))
    pruner: str = option('median', 'how bad trials are stopped early', choices=('median', 'hyperband', 'none'))
    warmup_trials: int = option(
        5, 'trials that end before --pruner median stops any; more stop fewer good ones by mistake', at_least=0
    )
    out: str | None = folder('folder for best.yaml, trials.parquet and pictures')
    non_silent: bool = option(False, 'show the output of the trials')
    tuned: bool = option(False, "begin with the environment's tuned settings: xagents presets lists them")
    weights: list[str] | None = path('checkpoints that trials start from, one path a model')
    population: int | None = option(
        None,
        'train so many members side by side, of which the worst copy the best; more search more widely',
        at_least=2,
    )
    exploit_steps: int | None = count(
        None,
        'population: steps after which members are compared, a twentieth of --trial-steps when not given; '
        'larger values compare settings more precisely',
    )
    exploit: float = option(
        0.2,
        'population: the share of the worst that copy as many of the best; more copy faster',
        at_least=0,
        at_most=0.5,
    )
    perturb: list[float] | None = option(
        None,
        'population: factors of changed settings, 0.8 1.2 when not given; larger ones change them more',
        above=0,
        metavar='FACTOR',
    )
    resample: float = fraction(
        0.25, 'population: probability of sampling a new value of a setting; larger values explore more'
    )

    def check(self) -> None:
        """Check the options that require a population and the options that exclude it."""
        if self.population is None:
            for name in ('exploit_steps', 'exploit', 'perturb', 'resample'):
                if name in self.given_names:
                    raise OptionError(name, 'got a value without --population, expected both')
            return
        for name in TRIAL_ONLY_OPTIONS:
            if name in self.given_names:
                raise OptionError(name, 'is for trials, and cannot be used with --population')
        if self.out is None:
            raise OptionError('out', 'got nothing with --population, expected the directory of the population')
        self.exploit_steps = self.exploit_steps or max(self.trial_steps // 20, 1)
        if self.exploit_steps > self.trial_steps:
            got = f'got {self.exploit_steps}, expected at most --trial-steps, {self.trial_steps}'
            raise OptionError('exploit_steps', got)


@dataclasses.dataclass
class TrainedAgentOptions(Options):
    """Options that select a trained agent, for `play`, `evaluate` and `export`."""

    weights: list[str] | None = path('checkpoints of the trained agent, one path a model')
    run_dir: str | None = folder('run directory of the trained agent, instead of --weights')
    checkpoint: str = option(
        'best', 'which checkpoint of the run directory: best, last, or the name of one', metavar='NAME'
    )


@dataclasses.dataclass
class ActOptions(TrainedAgentOptions):
    """Options that `play`, `evaluate` and `record` share."""

    pretrained: str | None = option(
        None,
        'play the policy that ships for this environment, instead of --weights: xagents presets marks them',
        metavar='ENV',
    )
    stochastic: bool = option(False, 'sample actions instead of taking the best')


@dataclasses.dataclass
class PlayOptions(ActOptions):
    """`xagents play`."""

    video_dir: str | None = folder('folder for an .mp4 of the episode')
    render: bool = option(False, 'show the episode in a window')
    frame_dir: str | None = folder('folder for the frames as .jpg')
    frame_delay: float = option(0.0, 'seconds between frames; more play more slowly', at_least=0)
    frame_frequency: int = count(1, 'save every so many frames; more save fewer')
    action_idx: int = option(0, "index of the policy among the model's outputs", at_least=0)
    max_steps: int | None = count(None, 'end the episode after that many steps; more let it last longer')


@dataclasses.dataclass
class EvaluateOptions(ActOptions):
    """`xagents evaluate`."""

    episodes: int = count(20, 'episodes to play; larger values give a more precise mean')
    follow: str | None = folder('score each new checkpoint of this run, which may still be training, until it ends')
    out: str | None = path(
        '.parquet file to which --follow appends; evaluations.parquet in the directory when not given'
    )
    json: bool = option(False, 'print one JSON object')


@dataclasses.dataclass
class DatasetRecordingOptions(ActOptions):
    """`xagents record`."""

    dataset: str | None = dataset_name('name of the data set, with its version: pendulum/medium-v0')
    episodes: int = count(100, 'episodes to record; larger values give more data')
    random_actions: float = option(
        0.0, 'share of actions that are drawn at random; more make worse and more varied data', at_least=0, at_most=1
    )


@dataclasses.dataclass
class DatasetsOptions(Options):
    """`xagents datasets`."""

    json: bool = option(False, 'print one JSON object a data set, a line each')
    download: bool = option(False, "download missing data sets from Minari's server")
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class ExportOptions(TrainedAgentOptions):
    """`xagents export`."""

    format: str = option('savedmodel', 'what is written', choices=('savedmodel', 'litert', 'onnx', 'numpy'))
    out: str | None = folder('folder for the policy')
    policy: str | None = named('which policy is written, of a team of several')


@dataclasses.dataclass
class RunsOptions(Options):
    """`xagents runs`."""

    json: bool = option(False, 'print one JSON object a run, a line each')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class PlotOptions(Options):
    """`xagents plot`."""

    run_dir: list[str] | None = folder('run directories, or groups of them, to plot')
    labels: list[str] | None = option(None, 'a label for each history; histories under one label are averaged')
    by: str = option('step', 'the horizontal axis', choices=('step', 'time'))
    column: str = option(
        'mean_reward',
        'what is drawn: mean_reward, best_reward, episode_reward, and of --run-dir any metric, such as loss/policy',
    )
    time_unit: str = option(
        'auto', 'unit of --by time; auto suits the longest', choices=('auto', 'second', 'minute', 'hour', 'day')
    )
    average: str | None = option(
        None,
        'average of several: mean, interquartile mean or both; when not given, both of a group of --run-dir, else mean',
        choices=('mean', 'iqm', 'both'),
    )
    shade: str | None = option(
        None,
        'interval around it: standard error or deviation, 95 % confidence interval, range; when not given, se around '
        'a mean, else ci',
        choices=('se', 'std', 'ci', 'range', 'none'),
    )
    title: str | None = option(None, 'title of the picture; usually the environment')
    smooth: int = count(1, 'episodes that are averaged; larger draws a smoother curve')
    out: str = option('plot.png', 'the picture: .png, .svg or .pdf', metavar='PATH')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class PresetsOptions(Options):
    """`xagents presets`."""

    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class ExploreOptions(Options):
    """`xagents explore`."""

    explorers: int | None = count(
        None,
        'number of processes, one a processor when not given; larger values help while processors are free',
        at_most=1024,
    )
    cluster_key: str | None = file("the key's file, as printed by the training")
    wait: float = option(
        60.0,
        'seconds to wait for the learner, at the start and after each lost connection; larger values wait longer',
        above=0,
    )
    debug: bool = option(False, 'show the traceback of an error')
