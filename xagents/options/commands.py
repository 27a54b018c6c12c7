# ruff: noqa: RUF009 -- option() returns a dataclass field
"""The options of commands other than `train`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from xagents.options.declaration import (
    Options,
    choice,
    count,
    dataset_name,
    file,
    folder,
    fraction,
    named,
    option,
    path,
    seed_number,
)
from xagents.options.rules import Rule, Rules, excluded, is_given, needs

# options of `tune` that apply to trials and not to a population
TRIAL_ONLY_OPTIONS = (
    *('n_trials', 'timeout', 'study', 'storage', 'trial_seeds'),
    *('sampler', 'pruner', 'warmup_trials', 'weights'),
)


def _only_of_trials(name: str) -> Rule:
    problem = 'applies to trials, and cannot be used with --population'
    return Rule(name, lambda o: o.population and is_given(o, name), problem)


@dataclasses.dataclass
class TuneOptions(Options):
    """`xagents tune`."""

    search: bool = option(False, 'also search the ranges that the agent declares (--print-search shows them)')
    print_search: bool = option(False, 'print the searched options, and stop')
    n_trials: int = count(
        1, 'trials that this call finishes; if only --timeout is given, as many as fit; larger values search longer'
    )
    trial_steps: int = count(500_000, 'environment steps of each run of a trial; larger values rank settings better')
    timeout: float | None = option(
        None, 'seconds after which the call ends; larger values search longer', above=0, metavar='SECONDS'
    )
    n_jobs: int = count(1, 'worker processes, each of which runs one trial at a time; larger values need more cores')
    cluster: str | None = option(
        None,
        'where worker processes run: here (on this machine, the default), ray or ray://HOST:PORT (placed by Ray, each '
        'with one processor)',
        metavar='WHERE',
    )
    study: str | None = named('name of the study, which is continued if it exists (default: AGENT-ENV)')
    storage: str | None = option(
        None,
        'storage of the study (default: in memory): sqlite:///FILE, postgresql://…, mysql://… or journal:FILE',
        metavar='URL',
    )
    objective: str = option(
        'reward',
        'value of a trial: the mean of its last training episodes, or of greedy episodes in separate environments',
        choices=('reward', 'evaluation'),
    )
    eval_episodes: int = count(
        10, 'episodes of an evaluation, for --objective evaluation; larger values give a more precise mean'
    )
    trial_seeds: int = count(
        1,
        'runs of each trial, with different seeds; their mean is its value; larger values rank settings more precisely',
    )
    sampler: str = option('tpe', 'method that chooses settings', choices=('tpe', 'random', 'cmaes', 'gp'))
    pruner: str = option('median', 'method that stops bad trials early', choices=('median', 'hyperband', 'none'))
    warmup_trials: int = option(
        5,
        'complete trials before --pruner median stops any; larger values stop fewer good trials by mistake',
        at_least=0,
    )
    out: str | None = folder('directory of best.yaml, trials.parquet and pictures, or of a population')
    non_silent: bool = option(False, 'also show the output of the trials, not only the progress of tune')
    tuned: bool = option(
        False, 'use the preset for the agent and the environment instead of the defaults (see xagents presets)'
    )
    published: bool = option(False, 'with --tuned: use the published settings if the preset differs from them')
    weights: list[str] | None = path('weights from which trials start, one path for each network')
    population: int | None = option(
        None,
        'number of members that train in rounds; after each round the worst copy the best; larger values '
        'search more widely',
        at_least=2,
    )
    exploit_steps: int | None = count(
        None,
        'population: steps of a round (default: a twentieth of --trial-steps); larger values compare settings '
        'more precisely',
    )
    exploit: float = option(
        0.2,
        'population: share of the members that copies of the best replace after each round; larger values replace more',
        at_least=0,
        at_most=0.5,
    )
    perturb: list[float] | None = option(
        None,
        'population: copied settings are multiplied by one of these factors (default: 0.8 1.2); factors '
        'further from 1 change them more',
        above=0,
        metavar='FACTOR',
    )
    resample: float = fraction(
        0.25, 'population: probability that a copied setting is sampled anew from its range; larger values explore more'
    )
    final_episodes: int = option(
        50,
        'population: greedy episodes of each member after the last round, whose mean selects the best member, 0: none, '
        'the score selects it; larger values select more precisely',
        at_least=0,
    )

    rules: ClassVar[Rules] = (
        *(
            needs(name, '--population', lambda o: o.population, is_given)
            for name in ('exploit_steps', 'exploit', 'perturb', 'resample', 'final_episodes')
        ),
        *map(_only_of_trials, TRIAL_ONLY_OPTIONS),
        Rule(
            'out',
            lambda o: o.population and o.out is None,
            'got nothing with --population, expected the directory of the population',
        ),
        Rule(
            'exploit_steps',
            lambda o: o.population and o.exploit_steps > o.trial_steps,
            'got {o.exploit_steps}, expected at most --trial-steps, {o.trial_steps}',
        ),
    )

    def complete(self) -> None:
        """Set the default length of the rounds of a population."""
        if self.population is not None:
            self.exploit_steps = self.exploit_steps or max(self.trial_steps // 20, 1)


@dataclasses.dataclass
class TrainedAgentOptions(Options):
    """Options that select a trained agent, for `play`, `evaluate` and `export`."""

    weights: list[str] | None = path('weights of the trained agent, one path for each network')
    run_dir: str | None = folder('run directory of the trained agent, instead of --weights')
    checkpoint: str = option('best', 'checkpoint of the run directory: best, last, or another name', metavar='NAME')


@dataclasses.dataclass
class ActOptions(TrainedAgentOptions):
    """Options that `play`, `evaluate` and `record` share."""

    pretrained: str | None = option(
        None,
        'use the trained policy that the package contains for this environment (marked in xagents presets)',
        metavar='ENV',
    )
    stochastic: bool = option(False, 'sample actions instead of choosing greedy ones')


@dataclasses.dataclass
class PlayOptions(ActOptions):
    """`xagents play`."""

    video_dir: str | None = folder('directory for an .mp4 of the episode')
    render: bool = option(False, 'show the episode in a window')
    frame_dir: str | None = folder('directory for the frames as .jpg')
    frame_delay: float = option(0.0, 'seconds between frames; larger values play more slowly', at_least=0)
    frame_frequency: int = count(1, 'number of frames of which one is saved; larger values save fewer')
    action_idx: int = option(0, "index of the policy among the model's outputs", at_least=0)
    max_steps: int | None = count(None, 'steps after which the episode ends; larger values allow longer episodes')
    opponent: str | None = choice(
        None,
        'games: who plays the other seats: random legal actions, the policy itself, or you, in the terminal',
        choices=('random', 'policy', 'human'),
    )


@dataclasses.dataclass
class EvaluateOptions(ActOptions):
    """`xagents evaluate`."""

    episodes: int = count(20, 'number of episodes; larger values give a more precise mean')
    follow: str | None = folder('run directory whose new checkpoints are evaluated until the run ends')
    out: str | None = path('.parquet file for --follow (default: evaluations.parquet in the run directory)')
    json: bool = option(False, 'print one JSON object')
    opponent: str | None = choice(
        None,
        'games: who plays the other seats: random legal actions, or the policy itself',
        choices=('random', 'policy'),
    )


@dataclasses.dataclass
class DatasetRecordingOptions(ActOptions):
    """`xagents record`."""

    dataset: str | None = dataset_name('name of the data set with its version, such as pendulum/medium-v0')
    episodes: int = count(100, 'number of episodes to record; larger values give more data')
    random_actions: float = option(
        0.0, 'share of random actions; larger values give worse and more varied data', at_least=0, at_most=1
    )


@dataclasses.dataclass
class DatasetsOptions(Options):
    """`xagents datasets`."""

    json: bool = option(False, 'print one JSON object per line, one for each data set')
    download: bool = option(False, "download missing data sets from Minari's server")
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class ExportOptions(TrainedAgentOptions):
    """`xagents export`."""

    format: str = option(
        'savedmodel',
        'format of the policy; c is one C99 header',
        choices=('savedmodel', 'litert', 'onnx', 'numpy', 'c'),
    )
    out: str | None = folder('directory for the policy')
    policy: str | None = named('name of the exported policy, for a team')


@dataclasses.dataclass
class RunsOptions(Options):
    """`xagents runs`."""

    json: bool = option(False, 'print one JSON object per line, one for each run')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class DoctorOptions(Options):
    """`xagents doctor`."""

    run_dir: list[str] | None = folder('run directories, or directories of groups of runs, to check')
    episodes: int = count(20, 'random episodes to play in an environment; larger values find rare rewards and ends')
    max_time: float = option(
        5.0, 'seconds of random episodes; larger values help slow environments', above=0, metavar='SECONDS'
    )
    seed: int = seed_number(0, 'seed of the environment and of the random actions')
    json: bool = option(False, 'print one JSON object per line, one for the environment or for each run')
    debug: bool = option(False, 'show the traceback of an error')

    rules: ClassVar[Rules] = excluded(
        ('episodes', 'max_time', 'seed'), 'with --run-dir, whose runs are only read', lambda o: o.run_dir
    )


@dataclasses.dataclass
class PlotOptions(Options):
    """`xagents plot`."""

    run_dir: list[str] | None = folder('run directories, or directories of groups of runs, to plot')
    labels: list[str] | None = option(None, 'a label for each history; histories under one label are averaged')
    by: str = option('step', 'horizontal axis', choices=('step', 'time'))
    column: str = option(
        'mean_reward',
        'column to plot: mean_reward, best_reward, episode_reward or, with --run-dir, any metric, such as loss/policy',
    )
    time_unit: str = option(
        'auto',
        'unit of --by time; auto chooses it from the longest run',
        choices=('auto', 'second', 'minute', 'hour', 'day'),
    )
    average: str | None = option(
        None,
        'average of several runs: mean, interquartile mean or both (default: both for a group in --run-dir, else mean)',
        choices=('mean', 'iqm', 'both'),
    )
    shade: str | None = option(
        None,
        'interval around the average: standard error, standard deviation, 95 % confidence interval or range '
        '(default: se for a mean, else ci)',
        choices=('se', 'std', 'ci', 'range', 'none'),
    )
    title: str | None = option(None, 'title of the picture; usually the environment')
    smooth: int = count(1, 'episodes in a moving average; larger values draw a smoother curve')
    out: str = option('plot.png', 'the picture: .png, .svg or .pdf', metavar='PATH')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class ReportOptions(Options):
    """`xagents report`."""

    out: str = option('report.html', 'the page, a path that ends in .html; replaces an existing file', metavar='PATH')
    video: bool = option(True, 'show the best policy: its newest video, or an episode that is played and recorded')
    storage: str | None = option(None, 'storage of a study of xagents tune, to report on the study', metavar='URL')
    study: str | None = named('name of the study in --storage (default: the only one)')
    debug: bool = option(False, 'show the traceback of an error')

    rules: ClassVar[Rules] = (needs('study', '--storage', lambda o: o.storage),)


@dataclasses.dataclass
class CompareOptions(Options):
    """`xagents compare`."""

    labels: list[str] | None = option(None, 'a label for each group; the names of the directories by default')
    score: str = option(
        'final',
        'score of a run: its mean reward at the end (of evaluations, if the run has them), its best mean reward, the '
        'mean of its last 100 training episodes, or its last evaluation',
        choices=('final', 'best', 'training', 'evaluation'),
    )
    versus: str | None = option(
        None,
        'group with which each other group is compared, by label or directory; prints whether the other group is '
        'better, and how sure that is',
        metavar='GROUP',
    )
    random: list[str] | None = option(
        None, 'score of a random policy in an environment, which is normalised to 0', metavar='ENV=NUMBER'
    )
    reference: list[str] | None = option(
        None, 'score in an environment, such as that of an expert, which is normalised to 1', metavar='ENV=NUMBER'
    )
    raw: bool = option(False, 'compare raw scores, without normalising them')
    resamples: int = count(
        10_000, 'bootstrap resamples and permutations; larger values give more precise intervals and take longer'
    )
    json: bool = option(False, 'print one JSON object')
    out: str | None = option(None, 'also draw a picture: .png, .svg or .pdf', metavar='PATH')
    debug: bool = option(False, 'show the traceback of an error')

    rules: ClassVar[Rules] = excluded(
        ('random', 'reference'), 'with --raw, which does not normalise scores', lambda o: o.raw
    )


@dataclasses.dataclass
class PresetsOptions(Options):
    """`xagents presets`."""

    json: bool = option(False, 'print one JSON object per line, one for each preset, with its settings and scores')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class CompletionOptions(Options):
    """`xagents completion`."""

    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class ExploreOptions(Options):
    """`xagents explore`."""

    explorers: int | None = count(
        None,
        'number of processes (default: one per processor); larger values help while processors are free',
        at_most=1024,
    )
    cluster_key: str | None = file('file of the key, which xagents train printed')
    wait: float = option(
        60.0,
        'seconds to wait for the learner, at the start and after each lost connection; larger values wait longer',
        above=0,
    )
    debug: bool = option(False, 'show the traceback of an error')
