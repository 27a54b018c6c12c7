"""Learning curves from histories: `plot_history` for notebooks, `save_plot` behind `xagents plot`."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from xagents.logs.history import read_history
from xagents.options.errors import OptionError, did_you_mean
from xagents.reports.statistics import bootstrap_interval
from xagents.reports.statistics import compute_average as average_of
from xagents.system.files import atomic_write
from xagents.system.paths import check_parent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History: TypeAlias = 'str | os.PathLike[str] | pd.DataFrame'
Curve: TypeAlias = tuple[np.ndarray, np.ndarray]

BENCHMARKS = ('step', 'time')
TIME_UNITS = {'second': 1.0, 'minute': 60.0, 'hour': 3600.0, 'day': 86400.0}
SHADE_LABELS = {
    **{'se': ' ± standard error', 'std': ' ± standard deviation', 'ci': ', 95 % confidence interval'},
    **{'range': ', range', 'none': ''},
}
MEAN_SHADES = ('se', 'std')  # what describes a mean alone
AVERAGE_LABELS = {'mean': 'mean of {}', 'iqm': 'interquartile mean of {}', 'both': '{} runs'}
FORMATS = ('png', 'svg', 'pdf')
# Okabe and Ito's colours, which most colour-blind people tell apart; the yellow is left out, it is too light for lines.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
GRID_POINTS = 500
MAX_POINTS = 4000  # a curve with more is drawn by the extremes of its stretches


def plot_history(
    paths: History | Iterable[History],
    agents: str | Sequence[str] | None = None,
    env: str | None = None,
    plot: str = 'mean_reward',
    benchmark: str = 'step',
    history_interval: int = 1,
    time_unit: str = 'hour',
    *,
    smooth: int = 1,
    shade: str | None = None,
    average: str = 'mean',
    ax: Axes | None = None,
) -> Axes:
    """Draw one column of one or more histories over steps or time.

    Histories under the same label are drawn as one: each is interpolated linearly onto a common grid over the range
    that all of them cover, and their average is drawn with a shaded interval around it.

    Args:
        paths: A history or several: paths of parquet files or DataFrames.
        agents: The label of each history; the names of the files when not given.
        env: The title.
        plot: The column that is drawn, e.g. 'mean_reward' or 'episode_reward'.
        benchmark: 'step' or 'time'.
        history_interval: Draw every so many rows.
        time_unit: 'second', 'minute', 'hour', 'day', or 'auto' for one that suits the longest history.
        smooth: Episodes that a moving mean is taken over before anything else; 1 draws the column itself.
        shade: The interval around an average of several: 'se' (± one standard error of the mean), 'std' (± one
            standard deviation), 'ci' (95 % confidence interval of the average, by a percentile bootstrap over the
            histories that draws the same each time), 'range' (from the least to the greatest) or 'none'. When not
            given, 'se' around a mean and 'ci' around an interquartile mean, which the first two do not describe.
        average: 'mean', 'iqm' (the interquartile mean: of the middle half; Agarwal et al. 2021, arXiv:2108.13264), or
            'both' (with the mean as a dashed line).
        ax: Where to draw. When not given, the current figure if nothing is in it yet, else a new one.

    Returns:
        The axes. The figure is not shown: a notebook does that by itself, a script calls `plt.show()`.

    Raises:
        ValueError: If a file is missing or has no rows to draw, a column or another value is not admitted, or the
            labels are not as many as the histories.
    """
    # A DataFrame has `columns`; asking for that spares the import of pandas for the type.
    single = isinstance(paths, (str, os.PathLike)) or hasattr(paths, 'columns')
    histories = [cast('History', paths)] if single else list(cast('Iterable[History]', paths))
    if not histories:
        raise ValueError('paths must name at least one history, got none')
    _check_choice('benchmark', benchmark, BENCHMARKS)
    _check_choice('time_unit', time_unit, (*TIME_UNITS, 'auto'))
    shade = _check_shade(shade, average)
    _check_positive('history_interval', history_interval)
    _check_positive('smooth', smooth)
    labels = _labels(histories, agents)

    curves = [_curve(history, plot, benchmark, smooth, history_interval) for history in histories]
    x_label = benchmark
    if benchmark == 'time':
        if time_unit == 'auto':
            longest = max(x[-1] for x, _ in curves)
            time_unit = next((unit for unit in ('day', 'hour', 'minute') if longest >= 2 * TIME_UNITS[unit]), 'second')
        curves = [(x / TIME_UNITS[time_unit], y) for x, y in curves]
        x_label = f'time in {time_unit}s'
    groups: dict[str, list[Curve]] = {}
    for label, curve in zip(labels, curves, strict=True):
        groups.setdefault(label, []).append(curve)
    drawings = [(label, *_on_common_grid(label, members)) for label, members in groups.items()]

    ax = ax or _new_axes()
    for index, (label, x, values) in enumerate(drawings):
        _draw(ax, label, x, values, shade, average, COLOURS[index % len(COLOURS)])
    if average == 'both' and any(len(values) > 1 for _, _, values in drawings):
        _explain_lines(ax, shade)
    _decorate(ax, x_label, plot.replace('_', ' '), env)
    return ax


def save_plot(
    paths: Sequence[str | os.PathLike[str]] = (),
    labels: Sequence[str] | None = None,
    by: str = 'step',
    out: str | os.PathLike[str] = 'plot.png',
    *,
    plot: str = 'mean_reward',
    env: str | None = None,
    smooth: int = 1,
    time_unit: str = 'auto',
    shade: str | None = None,
    average: str | None = None,
    run_dirs: Sequence[str | os.PathLike[str]] | None = None,
) -> Path:
    """Draw histories into a picture file, atomically and without a display.

    Args:
        paths: Parquet files.
        labels: One for each of them and of `run_dirs`, in this order; the names of the files and the agents of the
            runs when not given.
        by: 'step' or 'time'.
        out: The picture; its ending (.png, .svg or .pdf) says the format. Its path is returned.
        plot: The column that is drawn; of runs also one of their metrics.
        env: The title; the environment of the runs when not given, where it is one.
        smooth: As `plot_history` says, and so the next two.
        time_unit: 'second', 'minute', 'hour', 'day' or 'auto'.
        shade: The interval around an average of several.
        average: 'mean', 'iqm' or 'both'; when not given, both where a group of runs is drawn and the mean otherwise.
        run_dirs: Run folders, and groups of them, which are a curve for each setting (see `run_curves`).

    Raises:
        ValueError: As `plot_history`, and if the format is not known or the folder does not exist.
    """
    target = check_picture(out)
    paths, run_dirs = list(paths), list(run_dirs or ())
    if labels is not None and len(labels) != len(paths) + len(run_dirs):
        what = 'histories and runs' if run_dirs else 'histories'
        raise ValueError(f'--labels must be as many as the {what}: got {len(labels)} for {len(paths) + len(run_dirs)}')
    histories: list[History] = [*paths]
    if run_dirs:
        from xagents.reports.curves import run_curves

        runs = run_curves(run_dirs, plot, None if labels is None else labels[len(paths) :])
        if labels is None:  # files are distinguished from runs, so that they are not averaged together
            names = zip(_labels(histories, None), paths, strict=True)
            labels = [f'{name} ({path})' if name in runs.labels else name for name, path in names]
        labels = [*labels[: len(paths)], *runs.labels]
        histories += runs.frames
        env = env if env is not None or paths else runs.env
        if runs.has_group and shade not in MEAN_SHADES:
            average = average or 'both'

    from matplotlib.figure import Figure

    # Without pyplot: no window system is asked for and no figure of the user's session is touched.
    figure = Figure(figsize=(8, 4.5), layout='constrained')
    drawn: dict[str, Any] = {'smooth': smooth, 'shade': shade, 'average': average or 'mean', 'ax': figure.subplots()}
    try:
        plot_history(histories, labels, env, plot, by, time_unit=time_unit, **drawn)
    except OptionError as error:  # on the command line the column has a name of its own
        raise OptionError('column' if error.name == 'plot' else error.name, error.problem) from error
    return write_picture(figure, target)


def check_picture(out: str | os.PathLike[str]) -> Path:
    """Return the path of a picture that is to be written; raises OptionError where that cannot be."""
    target = Path(out)
    file_format = target.suffix[1:].lower()
    if file_format not in FORMATS:
        admits = f'expected a path that ends in .png, .svg or .pdf{did_you_mean(file_format, FORMATS)}'
        raise OptionError('out', f'got {out}, {admits}')
    check_parent('out', target)
    return target


def write_picture(figure: Figure, target: Path) -> Path:
    """Write a figure, atomically, in the format that the path's ending says; return the path."""
    picture = io.BytesIO()
    figure.savefig(picture, format=target.suffix[1:].lower(), dpi=160)
    with atomic_write(target) as temporary:
        temporary.write_bytes(picture.getvalue())
    return target


def _labels(histories: list[History], agents: str | Sequence[str] | None) -> list[str]:
    if agents is not None:
        labels = [agents] if isinstance(agents, str) else [str(agent) for agent in agents]
        if len(labels) != len(histories):
            raise ValueError(f'agents must be as many as the histories: got {len(labels)} for {len(histories)}')
        return labels
    # No groups were requested, so files of equal names are distinguished by their folder, then by a number.
    paths = [None if hasattr(history, 'columns') else Path(history) for history in histories]
    labels = [f'history {i + 1}' if path is None else path.stem for i, path in enumerate(paths)]
    labels = [
        f'{path.absolute().parent.name}/{label}' if path is not None and labels.count(label) > 1 else label
        for label, path in zip(labels, paths, strict=True)
    ]
    return [
        f'{label} ({labels[: i + 1].count(label)})' if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


def _curve(history: History, plot: str, benchmark: str, smooth: int, interval: int) -> Curve:
    """Return column `plot` of a history over `benchmark`, ascending, without what is not finite."""
    frame: pd.DataFrame
    if hasattr(history, 'columns'):
        frame, name = cast('pd.DataFrame', history), 'the DataFrame'
    else:
        frame, name = read_history(history), f"the history '{os.fspath(history)}'"
    for argument, column in (('plot', plot), ('benchmark', benchmark)):
        if column not in frame.columns:
            names = [str(known) for known in frame.columns]
            has = f'{name} has no such column, but {", ".join(names)}{did_you_mean(column, names)}'
            raise OptionError(argument, f"got '{column}', but {has}")
    if len(frame) == 0:
        raise ValueError(f'{name} has no rows yet')
    try:
        values = frame[plot].astype(float).replace([np.inf, -np.inf], np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"plot='{plot}': that column of {name} does not hold numbers") from error
    if smooth > 1:
        values = values.rolling(smooth, min_periods=1).mean()
    x = frame[benchmark].to_numpy(float)[::interval]
    y = values.to_numpy(float)[::interval]
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        raise ValueError(f"plot='{plot}': {name} has no number in that column yet")
    x, y = x[finite], y[finite]
    order = np.argsort(x, kind='stable')
    return x[order], y[order]


def _on_common_grid(label: str, members: list[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate M curves onto one grid: its [G] points, and the [M, G] values there; a single one stays as it is."""
    if len(members) == 1:
        x, y = _downsample(*members[0])
        return x, y[np.newaxis]
    start, end = max(x[0] for x, _ in members), min(x[-1] for x, _ in members)
    if start >= end:
        raise ValueError(f"the histories under the label '{label}' have no range in common, so they have no mean")
    grid = np.linspace(start, end, GRID_POINTS)
    rows = []
    for x, y in members:
        last = np.append(np.diff(x) > 0, True)  # of several episodes at one step the last one knows most
        rows.append(np.interp(grid, x[last], y[last]))
    return grid, np.stack(rows)


def _draw(ax: Axes, label: str, x: np.ndarray, values: np.ndarray, shade: str, average: str, colour: str) -> None:
    """Draw one curve, or the average of M with its interval: `x` [G], `values` [M, G]."""
    centre = values[0]
    if len(values) > 1:
        statistic = 'mean' if average == 'mean' else 'iqm'
        centre = average_of(values, statistic)
        label = (
            f'{label} ({AVERAGE_LABELS[average].format(len(values))}{SHADE_LABELS[shade] if average != "both" else ""})'
        )
        if shade != 'none':
            low, high = _interval(values, shade, statistic)
            ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        if average == 'both':
            ax.plot(x, values.mean(axis=0), color=colour, linewidth=1, linestyle='--')
    # A history of one episode would be an invisible line.
    ax.plot(x, centre, color=colour, linewidth=1.6, label=label, marker='o' if len(x) == 1 else None)


def _explain_lines(ax: Axes, shade: str) -> None:
    """Say in the legend, in grey, what is drawn of each label."""
    ax.plot([], [], color='0.4', linewidth=1.6, label='interquartile mean')
    ax.plot([], [], color='0.4', linewidth=1, linestyle='--', label='mean')
    if shade != 'none':
        ax.fill_between([], [], [], color='0.4', alpha=0.2, linewidth=0, label=SHADE_LABELS[shade].strip(', '))


def _interval(values: np.ndarray, shade: str, statistic: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper edge, [G] each, of the interval around the average of `values` [M, G]."""
    if shade == 'range':
        return values.min(axis=0), values.max(axis=0)
    if shade == 'ci':
        return bootstrap_interval(values, statistic)
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) / (np.sqrt(len(values)) if shade == 'se' else 1)
    return mean - spread, mean + spread


def _downsample(x: np.ndarray, y: np.ndarray) -> Curve:
    """Keep the least and greatest value of each of MAX_POINTS / 2 stretches: looks the same, draws in no time."""
    if len(x) <= MAX_POINTS:
        return x, y
    starts = np.linspace(0, len(x), MAX_POINTS // 2 + 1).astype(int)
    keep = {0, len(x) - 1}
    for start, end in itertools.pairwise(starts):
        stretch = y[start:end]
        keep.update((start + int(stretch.argmin()), start + int(stretch.argmax())))
    index = np.array(sorted(keep))
    return x[index], y[index]


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt

    # `plt.figure(figsize=…)` just before says where to draw; a figure with a plot in it is left alone.
    if plt.get_fignums() and not plt.gcf().axes:
        return plt.gcf().add_subplot()
    return plt.subplots(figsize=(8, 4.5), layout='constrained')[1]


def _decorate(ax: Axes, x_label: str, y_label: str, title: str | None) -> None:
    from matplotlib.ticker import EngFormatter

    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    if x_label == 'step':
        ax.xaxis.set_major_formatter(EngFormatter(sep=''))
    if title:
        ax.set_title(title)
    style_axes(ax)
    ax.margins(x=0.01)
    ax.legend(frameon=False, loc='best')


def style_axes(ax: Axes) -> None:
    """Draw the frame of axes in grey, with a light grid and without a top and a right side."""
    ax.spines[['top', 'right']].set_visible(False)
    ax.spines[['left', 'bottom']].set_color('0.6')
    ax.tick_params(color='0.6')
    ax.grid(True, color='0.9', linewidth=0.8)
    ax.set_axisbelow(True)


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        admits = f'{", ".join(choices[:-1])} or {choices[-1]}'
        raise ValueError(f"{name} must be {admits}, got '{value}'{did_you_mean(str(value), choices)}")


def _check_shade(shade: str | None, average: str) -> str:
    """Return the interval that is drawn around an average."""
    _check_choice('average', average, tuple(AVERAGE_LABELS))
    if shade is None:
        return 'se' if average == 'mean' else 'ci'
    _check_choice('shade', shade, tuple(SHADE_LABELS))
    if average != 'mean' and shade in MEAN_SHADES:
        admits = f"expected ci, range or none with average '{average}'"
        raise OptionError('shade', f'got {shade}, which is about a mean, {admits}')
    return shade


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f'{name} must be a whole number of at least 1, got {value!r}')
