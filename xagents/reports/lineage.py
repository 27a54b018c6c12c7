"""A plot of the lineage of a population: scores, parents and settings of its members."""

from __future__ import annotations

import numbers
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xagents.reports.plotting import check_picture, style_axes, write_picture
from xagents.reports.population_files import Member, Population, read_population

# maximal number of settings below the scores
MAX_SETTINGS = 3
ANCESTOR_STYLE: dict[str, Any] = {'color': '#1f6fb4', 'lw': 2.2, 'zorder': 3, 'ms': 4}
OTHER_STYLE: dict[str, Any] = {'color': '#b8bcc2', 'ms': 2.5}


def save_lineage(folder: str | os.PathLike[str], out: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write the plot of a population to a picture file, atomically, and return its path; see `draw_lineage`."""
    target = check_picture(out)
    return write_picture(draw_lineage(Path(folder), title), target)


def draw_lineage(folder: Path, title: str | None = None, figure: Figure | None = None) -> Figure:
    """Draw a population: a line from each member to its children. The ancestors of the best member are in colour.

    Args:
        folder: folder of the population.
        title: title of the plot; agent and environment by default.
        figure: empty figure to draw on; a new one by default.

    Raises:
        ValueError: if no round is complete, or the files are damaged.
    """
    population = read_population(folder)
    if not population.rounds:
        raise ValueError(f'{folder}: no round of the population is complete yet')
    steps, settings = population.steps(), _numeric_settings(population.rounds[-1])
    figure = figure or Figure(figsize=(8, 3.6 + 1.5 * len(settings)), layout='constrained')
    heights = [3, *[1.4] * len(settings)]
    axes = np.atleast_1d(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    _draw(axes[0], population, steps, lambda member: member.score)
    axes[0].set_ylabel('score')
    axes[0].set_title(title or f'{population.shared["agent"]}, {population.shared["env"]}')
    for ax, name in zip(axes[1:], settings, strict=True):
        _draw(ax, population, steps, lambda member, name=name: member.settings[name])
        ax.set_ylabel(name.replace('_', '-'))
        ax.set_yscale('log' if _spans_decades(population, name) else 'linear')
    axes[-1].set_xlabel('steps of each member')
    for ax in axes:
        style_axes(ax)
    return figure


def _draw(ax: Axes, population: Population, steps: list[int], value: Any) -> None:
    """Draw a line from each parent to its child. The ancestors of the best member are drawn on top."""
    best = population.ancestors()
    for number, members in enumerate(population.rounds):
        for i, member in enumerate(members):
            before = None if not number or member.parent is None else population.rounds[number - 1][member.parent]
            points = [(steps[number - 1], value(before))] if before is not None else []
            points.append((steps[number], value(member)))
            known = [point for point in points if point[1] is not None]
            if known:
                style = ANCESTOR_STYLE if best[number] == i else OTHER_STYLE
                ax.plot(*zip(*known, strict=True), marker='o', **style)


def _numeric_settings(members: list[Member]) -> list[str]:
    """Return the names of the first `MAX_SETTINGS` settings that are numbers."""
    names = [name for name, value in members[0].settings.items() if _is_number(value)]
    return names[:MAX_SETTINGS]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _spans_decades(population: Population, name: str) -> bool:
    """Return whether all values of a setting are positive and the largest is at least 10 times the smallest."""
    values = [member.settings[name] for members in population.rounds for member in members]
    return min(values) > 0 and max(values) >= 10 * min(values)
