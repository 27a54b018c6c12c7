"""Statistics of a group of runs, and the settings in which its runs differ.

Scores of several seeds have outliers. So the interquartile mean and its bootstrap confidence interval are reported
in addition to the mean: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
arXiv:2108.13264.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xagents.system.pages import format_option_value

LEVEL = 0.95
RESAMPLES = 1000
# maximal number of resampled scores in memory
_CHUNK = 4_000_000
# options that also differ between runs of one setting: the seed, the paths and the output
PER_RUN_OPTIONS = frozenset(
    {'seed', 'run_dir', 'checkpoints', 'history_checkpoint', 'tensorboard', 'monitor_session', 'monitor'}
    | {'about', 'quiet'}
)


class Summary(NamedTuple):
    """Statistics of the scores of `n` runs. `low` and `high` bound the interquartile mean; NaN for a single run."""

    n: int
    mean: float
    iqm: float
    low: float
    high: float


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of the middle half of finite values along an axis.

    Of n sorted values, value i (from 0) represents the interval [i/n, (i + 1)/n]. Its weight is the part of the
    interval inside [1/4, 3/4]. If n is a multiple of 4, this is the mean trimmed by 25 % at either end.
    """
    ordered = np.sort(np.asarray(values, float), axis=axis)
    n = ordered.shape[axis]
    return np.tensordot(np.moveaxis(ordered, axis, -1), trimmed_weights(np.ones(n), n / 4), axes=1)


def trimmed_weights(weights: np.ndarray, cut: float) -> np.ndarray:
    """Return the weights of sorted values in a trimmed mean, which sum to 1.

    Args:
        weights: the weights of the values, from the lowest to the highest value, [..., n].
        cut: the weight to leave out at either end.
    """
    above = np.cumsum(weights, axis=-1)
    total = above[..., -1:]
    kept = np.minimum(above, total - cut) - np.maximum(above - weights, cut)
    return np.maximum(kept, 0) / (total - 2 * cut)


def compute_average(values: np.ndarray, statistic: str, axis: int = 0) -> np.ndarray:
    """Return the 'mean' or the interquartile mean, 'iqm', of the values along an axis."""
    return interquartile_mean(values, axis) if statistic == 'iqm' else np.mean(values, axis=axis)


def bootstrap_interval(
    values: np.ndarray, statistic: str = 'iqm', level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return a confidence interval of an average over runs, by the percentile bootstrap.

    Whole runs are drawn with replacement. All points of a curve use the same draws, and so do all calls with the same
    seed.

    Args:
        values: finite values, [M] or [M, G], one row per run.
        statistic: the average, 'mean' or 'iqm'.
        level: probability of the interval.
        resamples: number of draws.
        seed: seed of the draws.

    Returns:
        The lower and the upper bound, each with the shape of one row; NaN for a single run.
    """
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    drawn = np.random.default_rng(seed).integers(n, size=(resamples, n))
    by_point = values.T  # [M] or [G, M]: the runs last, where sorting them is fast
    size = max(1, _CHUNK // values.size)
    chunks = (drawn[start : start + size] for start in range(0, resamples, size))
    averages = [compute_average(by_point[..., chunk], statistic, axis=-1) for chunk in chunks]
    tails = (1 - level) / 2
    low, high = np.quantile(np.concatenate(averages, axis=-1), [tails, 1 - tails], axis=-1)
    return low, high


def summarise(scores: Sequence[float]) -> Summary:
    """Return the statistics of finite scores, one per run, of at least one run."""
    values = np.asarray(scores, float)
    low, high = bootstrap_interval(values)
    return Summary(len(values), float(values.mean()), float(interquartile_mean(values)), float(low), float(high))


def varying_options(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the options in which runs differ, without the seed and the paths."""
    names = dict.fromkeys(name for config in configs for name in config if name not in PER_RUN_OPTIONS)
    return [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]


def setting_label(config: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the values of options as a label, such as `ppo, lr=0.001`, without the names `agent` and `env`."""
    labels = {name: '' if name in ('agent', 'env') else f'{name.replace("_", "-")}=' for name in names}
    return ', '.join(f'{label}{format_option_value(config.get(name))}' for name, label in labels.items())
