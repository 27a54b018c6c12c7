"""What a group of runs says together: which settings it compares, and the statistics of the runs under each.

Runs differ by seed and their scores have outliers, so beside the mean stands the interquartile mean with a bootstrap
confidence interval, as Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
arXiv:2108.13264, recommend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

AVERAGES = ('mean', 'iqm')
LEVEL = 0.95
RESAMPLES = 1000
_CHUNK = 4_000_000
"""Numbers of resampled runs that are held at once."""

# What differs between runs of one setting, too: chance, and where they are kept.
INDIVIDUAL = frozenset(
    {'seed', 'run_dir', 'checkpoints', 'history_checkpoint', 'tensorboard', 'monitor_session', 'about', 'quiet'}
)


class Summary(NamedTuple):
    """Statistics of the scores of `n` runs; the interval is that of the interquartile mean, NaN for a single run."""

    n: int
    mean: float
    iqm: float
    low: float
    high: float


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of the middle half of the values along an axis.

    A value that the quartile cuts through counts with the part of it that lies inside: of n sorted values, number i
    (from 0) stands for the interval [i/n, (i + 1)/n], and counts as much as of it lies in [1/4, 3/4]. So any number of
    values has one; where n is a multiple of 4 it is the mean trimmed by 25 % at either end.

    Args:
        values: Any shape, finite.
        axis: The axis of the runs.

    Returns:
        `values` without that axis.
    """
    ordered = np.sort(np.asarray(values, float), axis=axis)
    n = ordered.shape[axis]
    edges = np.arange(n + 1) / n
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    return np.tensordot(np.moveaxis(ordered, axis, -1), 2 * np.maximum(inside, 0), axes=1)


def average(values: np.ndarray, kind: str, axis: int = 0) -> np.ndarray:
    """Return the 'mean' or the interquartile mean, 'iqm', of the values along an axis."""
    return interquartile_mean(values, axis) if kind == 'iqm' else np.mean(values, axis=axis)


def bootstrap_interval(
    values: np.ndarray, kind: str = 'iqm', level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile bootstrap's confidence interval of an average over runs.

    Whole runs are drawn with replacement, for all points of a curve the same ones; the interval spans the middle
    `level` of the averages of such samples. The draws are the same each time.

    Args:
        values: One row a run, [M] or [M, G], finite.
        kind: 'mean' or 'iqm'.
        level: Share of the samples that the interval spans.
        resamples: Number of samples.
        seed: Seed of the draws.

    Returns:
        Lower and upper edge, of one row's shape; NaN where a single run tells nothing of the others.
    """
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    drawn = np.random.default_rng(seed).integers(n, size=(resamples, n))
    by_point = values.T  # [M] or [G, M]: the runs last, where sorting them is fast
    chunk = max(1, _CHUNK // values.size)
    averages = [
        average(by_point[..., drawn[start : start + chunk]], kind, axis=-1) for start in range(0, resamples, chunk)
    ]
    tails = (1 - level) / 2
    low, high = np.quantile(np.concatenate(averages, axis=-1), [tails, 1 - tails], axis=-1)
    return low, high


def summarise(scores: Sequence[float]) -> Summary:
    """Return the statistics of one score a run.

    Args:
        scores: At least one, finite.
    """
    values = np.asarray(scores, float)
    low, high = bootstrap_interval(values)
    return Summary(len(values), float(values.mean()), float(interquartile_mean(values)), float(low), float(high))


def varying(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the options in which runs differ, besides the seed and where a run is kept."""
    names = dict.fromkeys(name for config in configs for name in config if name not in INDIVIDUAL)
    return [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]


def setting(config: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the values of some options as a label, such as `ppo, lr=0.001`: agent and environment need no name."""
    return ', '.join(
        shown(config.get(name)) if name in ('agent', 'env') else f'{name.replace("_", "-")}={shown(config.get(name))}'
        for name in names
    )


def shown(value: Any) -> str:
    """Return an option's value for a label."""
    if isinstance(value, (list, tuple)):
        return ' '.join(map(shown, value))
    if isinstance(value, bool) or value is None:
        return {True: 'on', False: 'off', None: '-'}[value]
    return f'{value:.6g}' if isinstance(value, float) else str(value)
