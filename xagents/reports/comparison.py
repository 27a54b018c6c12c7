"""Comparison of groups of runs over environments and seeds: statistics, intervals and verdicts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xagents.options.commands import CompareOptions
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.reports import aggregates
from xagents.reports.aggregates import Band, Interval, estimate, estimate_band
from xagents.reports.curves import EVALUATED, read_curve
from xagents.reports.reference_scores import ScoreBounds, find_bounds
from xagents.reports.score_groups import ScoredRun, ScoreGroup, common_envs, comparison_notes, read_score_groups
from xagents.reports.statistics import LEVEL

RESAMPLES = CompareOptions.resamples
CURVE_POINTS, PROFILE_POINTS = 101, 201
# environments share an axis of steps if the lengths of their runs differ by at most this factor
SAME_LENGTH = 1.1


class GroupSummary(NamedTuple):
    """Statistics of a group.

    Attributes:
        group: the runs.
        scores: scores of the runs, normalised unless raw scores are compared, one array per environment.
        iqm: interquartile mean of all scores.
        median: median of the means of environments.
        mean: mean of the means of environments.
        gap: optimality gap; None for raw scores.
        profile: share of runs above each threshold.
        curve: interquartile mean over training; None if a run has no curve.
    """

    group: ScoreGroup
    scores: list[np.ndarray]
    iqm: Interval
    median: Interval
    mean: Interval
    gap: Interval | None
    profile: Band
    curve: Band | None


class Improvement(NamedTuple):
    """The comparison of one group, `group`, with another one, `versus`.

    Attributes:
        group: label of a group.
        versus: label of the other group.
        probability: probability that a run of `group` has a higher score than a run of `versus`.
        difference: interquartile mean of `group` minus that of `versus`.
        p_value: p-value of a permutation test that the groups do not differ.
        least_p_value: the p-value if all runs of one group were better
    """

    group: str
    versus: str
    probability: Interval
    difference: Interval
    p_value: float
    least_p_value: float

    @property
    def verdict(self) -> str:
        """Whether `group` is 'better' or 'worse' than `versus`, or 'unknown'.

        A difference counts if its interval does not contain 0 and the permutation test finds it, too.
        """
        low, high = self.difference.low, self.difference.high
        if self.p_value <= 1 - LEVEL and (low > 0 or high < 0):
            return 'better' if low > 0 else 'worse'
        return 'unknown'


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        score: score of a run, a key of `SCORE_NAMES`.
        envs: names of the compared environments.
        bounds: scores of a random policy and reference scores by environment; None for raw scores.
        groups: statistics of the groups.
        improvements: comparisons of each group with `versus`, or of each group with those after it.
        thresholds: scores at which the profiles are evaluated, [G].
        curve_x: horizontal axis of the curves, [G]; None without curves.
        curve_label: name of the axis.
        notes: lines about left-out runs, and about limits of the comparison.
        versus: label of the group with which the others are compared; None for all pairs.
    """

    score: str
    envs: list[str]
    bounds: dict[str, ScoreBounds] | None
    groups: list[GroupSummary]
    improvements: list[Improvement]
    thresholds: np.ndarray
    curve_x: np.ndarray | None
    curve_label: str
    notes: list[str]
    versus: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, for JSON."""
        bounds = self.bounds or {}
        return {
            'score': self.score,
            'normalised': self.bounds is not None,
            'environments': {env: bounds[env]._asdict() if env in bounds else None for env in self.envs},
            'groups': {one.group.label: self._group_to_dict(one) for one in self.groups},
            'improvements': [
                {**one._asdict(), **{name: getattr(one, name)._asdict() for name in ('probability', 'difference')}}
                | {'verdict': one.verdict}
                for one in self.improvements
            ],
            'thresholds': self.thresholds.tolist(),
            'curve_axis': None if self.curve_x is None else {'name': self.curve_label, 'values': self.curve_x.tolist()},
            'notes': self.notes,
        }

    def _group_to_dict(self, one: GroupSummary) -> dict[str, Any]:
        statistics = {name: getattr(one, name) for name in ('iqm', 'median', 'mean', 'gap')}
        bands = {'profile': one.profile, 'curve': one.curve}
        return {
            'folder': str(one.group.folder),
            'runs': {env: [str(run.folder) for run in one.group.runs[env]] for env in self.envs},
            'raw_scores': {env: [run.score for run in one.group.runs[env]] for env in self.envs},
            **{name: None if value is None else value._asdict() for name, value in statistics.items()},
            **{
                name: None if band is None else {key: values.tolist() for key, values in band._asdict().items()}
                for name, band in bands.items()
            },
        }


class Selection(NamedTuple):
    """The groups and settings of a comparison.

    Attributes:
        score: score of a run, a key of `SCORE_NAMES`.
        groups: the groups, at least two.
        envs: names of the environments that all groups have.
        bounds: scores of a random policy and reference scores by environment; None for raw scores.
        baseline: index of the group with which the others are compared; None for all pairs.
        curves: raw curves, [M, G] per group and environment; empty lists without curves.
        curve_x: horizontal axis of the curves, [G]; None without curves.
        curve_label: name of the axis.
        notes: lines about left-out runs, and about limits of the comparison.
    """

    score: str
    groups: list[ScoreGroup]
    envs: list[str]
    bounds: dict[str, ScoreBounds] | None
    baseline: int | None
    curves: list[list[np.ndarray]]
    curve_x: np.ndarray | None
    curve_label: str
    notes: list[str]


def compare(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    labels: Sequence[str] | None = None,
    *,
    score: str = 'final',
    raw: bool = False,
    random: Sequence[str] | None = None,
    reference: Sequence[str] | None = None,
    versus: str | None = None,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare groups of runs over the environments that all of them have.

    Args:
        folders: groups of seeds, folders with groups of several environments, grids, or single runs; a path is a list
            of one.
        labels: one label per folder; the names of the folders by default.
        score: score of a run: 'final' (mean reward at the end), 'best', 'training' (last training episodes) or
            'evaluation' (last evaluation).
        raw: compare raw scores instead of normalised ones.
        random: scores of a random policy, as `ENV=NUMBER`, for environments that the package does not know.
        reference: reference scores, as `ENV=NUMBER`.
        versus: label or folder of the group with which the others are compared; all pairs by default.
        resamples: number of bootstrap resamples and of permutations.

    Raises:
        OptionError: if an option is not valid, as on the command line.
        ValueError: if a folder, a run or a score is missing.
    """
    own = {'labels': labels, 'score': score, 'raw': raw, 'random': random, 'reference': reference, 'versus': versus}
    options = CompareOptions.resolve({**own, 'resamples': resamples})
    paths = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    selection = select_runs(paths, **{name: getattr(options, name) for name in own})
    return compare_selection(selection, options.resamples)


def select_runs(
    folders: Sequence[str | os.PathLike[str]],
    labels: Sequence[str] | None = None,
    *,
    score: str = 'final',
    raw: bool = False,
    random: Sequence[str] | None = None,
    reference: Sequence[str] | None = None,
    versus: str | None = None,
) -> Selection:
    """Read what `compare` compares; the arguments and errors are those of `compare`."""
    if not folders:
        raise ValueError('got no group, expected directories of groups of runs')
    groups, notes = read_score_groups(folders, labels, score)
    if len(groups) < 2:
        raise ValueError(f'got one group, {groups[0].label}, expected at least two')
    baseline = None if versus is None else _find_group(versus, groups)
    envs, left_out = common_envs(groups)
    bounds = None if raw else find_bounds(envs, random, reference)
    notes += left_out
    if bounds is None and not raw:
        flags = f"--random '{envs[0]}=NUMBER' --reference '{envs[0]}=NUMBER'"
        notes.append(f'Scores are not normalised, because no reference score of {envs[0]} is known: {flags} set them')
    curves, x, label = _curves(groups, envs, score)
    if x is None:
        notes.append('No curves: some runs have no history, or their histories have no steps in common')
    notes += comparison_notes(groups, envs)
    return Selection(score, groups, envs, bounds, baseline, curves, x, label, notes)


def compare_selection(selection: Selection, resamples: int = RESAMPLES) -> Comparison:
    """Return the statistics of groups of runs.

    Args:
        selection: the groups.
        resamples: number of bootstrap resamples and of permutations.
    """
    score, groups, envs, bounds, baseline, curves, x, curve_label, notes = selection
    scores = [_normalise(group.scores(envs), envs, bounds) for group in groups]
    thresholds = _thresholds(scores, bounds is not None)
    summaries = [
        _summarise(group, own, None if x is None else _normalise(lines, envs, bounds), thresholds, bounds, resamples)
        for group, own, lines in zip(groups, scores, curves, strict=True)
    ]
    names = [group.label for group in groups]
    pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
    if baseline is not None:
        pairs = [(i, baseline) for i in range(len(groups)) if i != baseline]
    found = [_improvement(names[i], names[j], scores[i], scores[j], resamples) for i, j in pairs]
    versus = None if baseline is None else names[baseline]
    return Comparison(score, envs, bounds, summaries, found, thresholds, x, curve_label, notes, versus)


def _find_group(versus: str, groups: Sequence[ScoreGroup]) -> int:
    """Return the index of the group with a label or a folder."""
    for index, group in enumerate(groups):
        if versus == group.label:
            return index
    same = [index for index, group in enumerate(groups) if os.path.abspath(versus) == os.path.abspath(group.folder)]
    if len(same) == 1:
        return same[0]
    labels = [group.label for group in groups]
    expected = f'expected one of {", ".join(labels)}{did_you_mean(versus, labels)}'
    raise OptionError('versus', f'got {format_value(versus)}, {expected}')


def _normalise(
    values: Sequence[np.ndarray], envs: Sequence[str], bounds: dict[str, ScoreBounds] | None
) -> list[np.ndarray]:
    if bounds is None:
        return list(values)
    return [bounds[env].normalise(one) for env, one in zip(envs, values, strict=True)]


def _summarise(
    group: ScoreGroup,
    scores: list[np.ndarray],
    curves: list[np.ndarray] | None,
    thresholds: np.ndarray,
    bounds: dict[str, ScoreBounds] | None,
    resamples: int,
) -> GroupSummary:
    def profile(own: aggregates.Scores, weights: aggregates.Weights) -> np.ndarray:
        return aggregates.performance_profile(own, weights, thresholds)

    statistics = (aggregates.aggregate_iqm, aggregates.aggregate_median, aggregates.aggregate_mean)
    iqm, median, mean = (estimate(one, scores, resamples=resamples) for one in statistics)
    gap = None if bounds is None else estimate(aggregates.optimality_gap, scores, resamples=resamples)
    curve = None if curves is None else estimate_band(aggregates.curve_iqm, curves, resamples=resamples)
    return GroupSummary(
        group, scores, iqm, median, mean, gap, estimate_band(profile, scores, resamples=resamples), curve
    )


def _improvement(group: str, versus: str, x: list[np.ndarray], y: list[np.ndarray], resamples: int) -> Improvement:
    return Improvement(
        group,
        versus,
        estimate(aggregates.probability_of_improvement, x, y, resamples=resamples),
        estimate(aggregates.iqm_difference, x, y, resamples=resamples),
        aggregates.permutation_p_value(x, y, resamples),
        aggregates.least_p_value(x, y, resamples),
    )


def _thresholds(scores: Sequence[Sequence[np.ndarray]], normalised: bool) -> np.ndarray:
    """Return the thresholds of the profiles, which cover all scores and, for normalised scores, 0 to 1."""
    values = np.concatenate([task for own in scores for task in own])
    values = np.append(values, [0.0, 1.0]) if normalised else values
    low, high = float(values.min()), float(values.max())
    margin = 0.02 * (high - low or abs(high) or 1.0)
    return np.linspace(low - margin, high + margin, PROFILE_POINTS)


def _curves(
    groups: Sequence[ScoreGroup], envs: Sequence[str], score: str
) -> tuple[list[list[np.ndarray]], np.ndarray | None, str]:
    """Return raw curves [M, G] per group and environment on a common axis, the axis [G], and its name.

    Each environment is cut at the end of its shortest run. If these ends differ between environments, the axis is the
    share of the steps up to the end.
    """
    lines = {run.folder: _read_line(run, score) for group in groups for env in envs for run in group.runs[env]}
    nothing: list[list[np.ndarray]] = [[] for _ in groups]
    if any(line is None for line in lines.values()):
        return nothing, None, ''
    known = {folder: line for folder, line in lines.items() if line is not None}
    own = {env: [known[run.folder] for group in groups for run in group.runs[env]] for env in envs}
    ends = np.array([min(x[-1] for x, _ in own[env]) for env in envs])
    starts = np.array([max(x[0] for x, _ in own[env]) for env in envs])
    if (starts >= ends).any():
        return nothing, None, ''
    shares = np.linspace((starts / ends).max(), 1.0, CURVE_POINTS)
    curves = [
        [
            np.stack([np.interp(shares * end, *known[run.folder]) for run in group.runs[env]])
            for env, end in zip(envs, ends, strict=True)
        ]
        for group in groups
    ]
    if ends.max() <= SAME_LENGTH * ends.min():
        return curves, shares * ends.min(), 'step'
    return curves, shares, 'share of training'


def _read_line(run: ScoredRun, score: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return steps and mean rewards of a run, or None if the run has fewer than two."""
    frame = read_curve(run.folder, EVALUATED if run.evaluated else 'mean_reward').frame
    if frame is None:
        return None
    column = EVALUATED if run.evaluated else 'mean_reward'
    values = frame[['step', column]].dropna().drop_duplicates('step', keep='last').sort_values('step')
    x, y = values['step'].to_numpy(float), values[column].to_numpy(float)
    return (x, y) if len(x) > 1 else None
