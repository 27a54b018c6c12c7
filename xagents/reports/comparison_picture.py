"""The picture of `xagents compare`: aggregates with intervals, performance profiles, probabilities, and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.reports.aggregates import Interval
from xagents.reports.comparison import Comparison
from xagents.reports.comparison_page import STATISTICS, score_line
from xagents.reports.plotting import COLOURS, check_picture, style_axes, write_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def save_comparison(comparison: Comparison, out: str | os.PathLike[str]) -> Path:
    """Draw a comparison to a picture file, atomically and without a display, and return its path.

    Args:
        comparison: the comparison.
        out: the picture. Its suffix (.png, .svg or .pdf) sets the format.

    Raises:
        ValueError: if the format is unknown or the folder does not exist.
    """
    target = check_picture(out)
    from matplotlib.figure import Figure

    statistics = [name for name in STATISTICS if name != 'gap' or comparison.bounds is not None]
    lower = ['profile', 'probability', *(['curve'] if comparison.curve_x is not None else [])]
    n_rows = max(len(comparison.groups), 3)
    n_lines = max(len(comparison.improvements), 1)
    heights = (0.9 + 0.34 * n_rows, max(3.1, 0.9 + 0.3 * n_lines))
    figure = Figure(figsize=(12, sum(heights) + 0.5), layout='constrained')
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    upper_part, lower_part = parts
    uppers = upper_part.subplots(1, len(statistics), sharey=True)
    lowers = dict(zip(lower, lower_part.subplots(1, len(lower)), strict=True))
    colours = {one.group.label: COLOURS[index % len(COLOURS)] for index, one in enumerate(comparison.groups)}

    for name, ax in zip(statistics, uppers, strict=True):
        intervals = [getattr(one, name) for one in comparison.groups]
        _draw_intervals(ax, list(colours), intervals, list(colours.values()))
        ax.set_title(STATISTICS[name], fontsize=10)
    _draw_profiles(lowers['profile'], comparison, colours)
    _draw_probabilities(lowers['probability'], comparison, colours)
    if comparison.curve_x is not None:
        _draw_curves(lowers['curve'], comparison, colours)
    names = ', '.join(comparison.envs[:6]) + (
        f' and {len(comparison.envs) - 6} more' if len(comparison.envs) > 6 else ''
    )
    figure.suptitle(f'{names}\n{score_line(comparison)}', fontsize=10)
    return write_picture(figure, target)


def _draw_intervals(ax: Axes, names: Sequence[str], intervals: Sequence[Interval], colours: Sequence[str]) -> None:
    """Draw one line per interval, from the top."""
    for row, (interval, colour) in enumerate(zip(intervals, colours, strict=True)):
        if np.isfinite(interval.low):
            ax.barh(row, interval.high - interval.low, 0.55, interval.low, color=colour, alpha=0.35, linewidth=0)
        ax.plot([interval.value] * 2, [row - 0.275, row + 0.275], color=colour, linewidth=2)
    ax.set_yticks(range(len(names)), names)
    # a single bar must not fill the panel
    padding = max(0.5, (3 - len(names)) / 2)
    ax.set_ylim(len(names) - 1 + padding, -padding)
    ax.use_sticky_edges = False
    ax.margins(x=0.12)
    style_axes(ax)
    ax.grid(False, axis='y')
    ax.tick_params(axis='y', length=0)
    ax.spines['left'].set_visible(False)


def _draw_profiles(ax: Axes, comparison: Comparison, colours: dict[str, str]) -> None:
    for one in comparison.groups:
        colour = colours[one.group.label]
        ax.plot(comparison.thresholds, one.profile.values, color=colour, linewidth=1.6, label=one.group.label)
        if np.isfinite(one.profile.low).all():
            limits = (one.profile.low, one.profile.high)
            ax.fill_between(comparison.thresholds, *limits, color=colour, alpha=0.2, linewidth=0)
    ax.set_title('Performance profile', fontsize=10)
    ax.set_xlabel('score τ')
    ax.set_ylabel('share of runs with a score above τ')
    ax.set_ylim(-0.03, 1.03)
    style_axes(ax)
    ax.margins(x=0)
    ax.legend(frameon=False, loc='best')


def _draw_probabilities(ax: Axes, comparison: Comparison, colours: dict[str, str]) -> None:
    pairs = comparison.improvements
    names = [f'{one.group} > {one.versus}' for one in pairs]
    _draw_intervals(ax, names, [one.probability for one in pairs], [colours[one.group] for one in pairs])
    ax.axvline(0.5, color='0.5', linewidth=1, linestyle='--', zorder=0)
    ax.set_xlim(-0.02, 1.02)
    ax.set_title('Probability of improvement', fontsize=10)
    ax.set_xlabel('P(A > B)')


def _draw_curves(ax: Axes, comparison: Comparison, colours: dict[str, str]) -> None:
    from matplotlib.ticker import EngFormatter, PercentFormatter

    assert comparison.curve_x is not None
    for one in comparison.groups:
        if one.curve is not None:
            colour = colours[one.group.label]
            ax.plot(comparison.curve_x, one.curve.values, color=colour, linewidth=1.6)
            if np.isfinite(one.curve.low).all():
                ax.fill_between(comparison.curve_x, one.curve.low, one.curve.high, color=colour, alpha=0.2, linewidth=0)
    ax.set_title('IQM over training', fontsize=10)
    ax.set_xlabel(comparison.curve_label)
    is_share = comparison.curve_label != 'step'
    ax.xaxis.set_major_formatter(PercentFormatter(1.0) if is_share else EngFormatter(sep=''))
    style_axes(ax)
    ax.margins(x=0)
