"""Groups of runs to compare: the scores of their runs by environment, and notes about runs that are left out."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xagents.logs.history import read_history
from xagents.logs.metrics import read_metrics
from xagents.options.errors import OptionError, format_value, one_line
from xagents.reports.curves import EVALUATED, HISTORY, METRICS
from xagents.reports.runs_page import RunSummary, read_run
from xagents.reports.search import find_runs
from xagents.reports.statistics import setting_label, varying_options
from xagents.system.pages import format_option_value

# episodes of `--score training`
TRAINING_EPISODES = 100
SCORE_NAMES = {
    'final': 'mean reward at the end of training',
    'best': 'best mean reward of training',
    'training': f'mean reward of the last {TRAINING_EPISODES} training episodes',
    'evaluation': 'mean reward of the last evaluation',
}


class ScoredRun(NamedTuple):
    """A run with its score.

    Attributes:
        folder: run directory.
        env: name of the environment, see `env_name`.
        score: the score.
        steps: environment steps of the run.
        evaluated: whether the score is the mean of an evaluation, and not of training episodes.
        seed: seed of the run; None if it is unknown.
    """

    folder: Path
    env: str
    score: float
    steps: int
    evaluated: bool
    seed: int | None


class ScoreGroup(NamedTuple):
    """The runs of one algorithm or setting.

    Attributes:
        label: name of the group.
        folder: folder of the runs, as it was given.
        runs: the runs by environment, at least one for each.
    """

    label: str
    folder: Path
    runs: dict[str, list[ScoredRun]]

    def scores(self, envs: Sequence[str]) -> list[np.ndarray]:
        """Return the scores of the runs, one array per environment."""
        return [np.array([run.score for run in self.runs[env]]) for env in envs]


def read_score_groups(
    folders: Sequence[str | os.PathLike[str]], labels: Sequence[str] | None = None, score: str = 'final'
) -> tuple[list[ScoreGroup], list[str]]:
    """Read the scores of the runs in some folders.

    The runs of a folder form one group. If their agents differ, or settings differ between runs of one environment (a
    grid), each agent and each setting is a group.

    Args:
        folders: run directories, groups of seeds, grids, or folders that contain them.
        labels: one label per folder; the names of the folders by default.
        score: score of a run, a key of `SCORE_NAMES`.

    Returns:
        The groups, and one line for each kind of run that is left out or that limits a comparison.

    Raises:
        ValueError: if a folder is missing or has no run with a score, or two groups have the same label or run.
    """
    if labels is not None and len(labels) != len(folders):
        raise OptionError('labels', f'got {len(labels)}, expected {len(folders)}, one for each group')
    names = [Path(folder).resolve().name for folder in folders] if labels is None else list(labels)
    groups: list[ScoreGroup] = []
    notes: list[str] = []
    owners: dict[Path, str] = {}
    for folder, name in zip(map(Path, folders), names, strict=True):
        runs = [read_run(run) for one in find_runs([folder]) for run in one.runs]
        for run in runs:
            if owners.setdefault(run.folder.resolve(), str(folder)) != str(folder):
                both = f'{owners[run.folder.resolve()]} and {folder}'
                raise ValueError(f'{both} contain the same run, {run.folder}, expected different runs in each group')
        before = len(groups)
        for setting, members in _settings(runs):
            label = ', '.join(filter(None, (name, setting)))
            scored, problems = _score_runs(members, score)
            notes += [f'{label}: {problem}' for problem in problems]
            if scored:
                groups.append(ScoreGroup(label, folder, scored))
        if len(groups) == before:
            why = f': {notes[-1].partition(": ")[2]}' if notes else ''
            raise ValueError(f'{format_value(str(folder))} has no run with a score{why}')
    _check_distinct([group.label for group in groups])
    return groups, notes


def env_name(config: Mapping[str, Any]) -> str:
    """Return the environment or the data set of a run, with the environment's arguments if there are any."""
    arguments = ' '.join(f'{name}={format_option_value(value)}' for name, value in config.get('env_kwargs', {}).items())
    return ' '.join(filter(None, [str(config.get('env') or config.get('dataset') or 'unknown'), arguments]))


def common_envs(groups: Sequence[ScoreGroup]) -> tuple[list[str], list[str]]:
    """Return the environments that all groups have, in alphabetical order, and one line for each other environment.

    Raises:
        ValueError: if there is none.
    """
    known = sorted({env for group in groups for env in group.runs}, key=str.lower)
    lacking = {env: [group.label for group in groups if env not in group.runs] for env in known}
    envs = [env for env in known if not lacking[env]]
    if not envs:
        has = '; '.join(f'{group.label} has {", ".join(sorted(group.runs))}' for group in groups)
        raise ValueError(f'the groups have no environment in common: {has}')
    return envs, [
        f'{env} is left out: {", ".join(labels)} has no run of it' for env, labels in lacking.items() if labels
    ]


def comparison_notes(groups: Sequence[ScoreGroup], envs: Sequence[str]) -> list[str]:
    """Return one line for each reason for which scores of groups are not comparable, or intervals too narrow."""
    notes = []
    kinds = {run.evaluated for group in groups for env in envs for run in group.runs[env]}
    if len(kinds) > 1:
        notes.append(
            'Some runs have evaluations and others do not: evaluations are greedy, training episodes are not. '
            '--score training compares training episodes.'
        )
    for env in envs:
        steps = {group.label: int(np.median([run.steps for run in group.runs[env]])) for group in groups}
        if max(steps.values()) > 1.1 * min(steps.values()):
            each = ', '.join(f'{label} {count}' for label, count in steps.items())
            notes.append(f'{env}: the groups trained for different numbers of steps: {each}')
    for group in groups:
        single = [env for env in envs if len(group.runs[env]) == 1]
        if single:
            place = 'per environment' if len(single) == len(envs) else f'of {", ".join(single)}'
            notes.append(f'{group.label} has 1 run {place}, so it has no confidence interval: train more seeds')
        for env in envs:
            seeds = Counter(run.seed for run in group.runs[env] if run.seed is not None)
            if repeated := [str(seed) for seed, count in seeds.items() if count > 1]:
                notes.append(f'{group.label}: several runs of {env} have the seed {", ".join(repeated)}')
    return notes


def _settings(runs: Sequence[RunSummary]) -> Iterator[tuple[str, list[RunSummary]]]:
    """Yield the runs of each agent and setting with a label, which is empty if there is only one."""
    agents: dict[str, list[RunSummary]] = {}
    for run in runs:
        agents.setdefault(str(run.config.get('agent', '')), []).append(run)
    # a run without a readable configuration belongs to the only agent, and is named as unreadable
    if len(agents) == 2 and '' in agents:
        unreadable = agents.pop('')
        next(iter(agents.values())).extend(unreadable)
    for agent, members in agents.items():
        by_env: dict[str, list[Mapping[str, Any]]] = {}
        for run in members:
            if run.config:
                by_env.setdefault(env_name(run.config), []).append(run.config)
        # tuned settings of different environments differ: only settings within an environment make a grid
        names = dict.fromkeys(name for configs in by_env.values() for name in varying_options(configs))
        settings: dict[str, list[RunSummary]] = {}
        for run in members:
            settings.setdefault(setting_label(run.config, list(names)), []).append(run)
        for setting, group in settings.items():
            yield ', '.join(filter(None, [agent if len(agents) > 1 else '', setting])), group


def _score_runs(runs: Sequence[RunSummary], score: str) -> tuple[dict[str, list[ScoredRun]], list[str]]:
    """Return the scored runs by environment, and one line for each reason why runs are left out."""
    scored: dict[str, list[ScoredRun]] = {}
    problems: dict[str, list[str]] = {}
    for run in runs:
        try:
            if run.problem or run.state != 'finished':
                raise ValueError(run.problem or run.state)
            one = _score_run(run, score)
        except (OSError, ValueError) as error:
            problems.setdefault(one_line(error), []).append(run.folder.name)
            continue
        scored.setdefault(one.env, []).append(one)
    return scored, [f'{", ".join(names)} left out ({why})' for why, names in problems.items()]


def _score_run(run: RunSummary, score: str) -> ScoredRun:
    """Return a run with its score; raise ValueError if the run has no such score."""
    evaluated = bool(run.config.get('eval_frequency')) and score != 'training'
    value: Any
    if score == 'evaluation':
        value, evaluated = _last_evaluation(run.folder), True
    elif score == 'training':
        value = _training_mean(run.folder)
    else:
        value = run.status.get('mean_reward' if score == 'final' else 'best_reward')
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError('has no mean reward')
    steps, seed = run.status.get('steps'), run.config.get('seed')
    known = steps if isinstance(steps, int) else 0
    return ScoredRun(
        run.folder, env_name(run.config), float(value), known, evaluated, seed if isinstance(seed, int) else None
    )


def _last_evaluation(folder: Path) -> float:
    if (folder / METRICS).exists():
        metrics = read_metrics(folder / METRICS)
        if EVALUATED in metrics.columns and len(means := metrics[EVALUATED].dropna()):
            return float(means.iloc[-1])
    raise ValueError('has no evaluation, which --eval-frequency makes')


def _training_mean(folder: Path) -> float:
    if (folder / HISTORY).exists():
        rewards = read_history(folder / HISTORY)['episode_reward'].dropna()
        if len(rewards):
            return float(rewards.iloc[-TRAINING_EPISODES:].mean())
    raise ValueError('has no training episode')


def _check_distinct(labels: Sequence[str]) -> None:
    if repeated := [label for label, count in Counter(labels).items() if count > 1]:
        problem = f'several groups have the label {format_value(repeated[0])}'
        raise OptionError('labels', f'{problem}, expected different labels, one for each group')
