"""Learning curves from histories: `plot_history` for notebooks, `save_plot` for `xagents plot`."""

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
from xagents.reports.statistics import bootstrap_interval, compute_average
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
MEAN_SHADES = ('se', 'std')  # intervals that describe only a mean
AVERAGE_LABELS = {'mean': 'mean of {}', 'iqm': 'interquartile mean of {}', 'both': '{} runs'}
FORMATS = ('png', 'svg', 'pdf')
# the palette of Okabe and Ito, for colour-blind people, without the yellow, which is too light for lines
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
GRID_POINTS = 500
MAX_POINTS = 4000  # longer curves are reduced to the extremes of intervals


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

    Histories with equal labels give one curve: each is interpolated linearly onto a common grid over the range that
    all of them cover, and their average is drawn with a shaded interval.

    Args:
        paths: one or several histories: paths of parquet files, or DataFrames.
        agents: one label per history; the names of the files by default.
        env: title of the plot.
        plot: column on the y axis, e.g. 'mean_reward' or 'episode_reward'.
        benchmark: column on the x axis, 'step' or 'time'.
        history_interval: draw only every n-th row.
        time_unit: 'second', 'minute', 'hour', 'day', or 'auto' for a unit that fits the longest history.
        smooth: number of episodes of a moving mean; 1 draws the column itself.
        shade: interval around the average of several histories: 'se' (± one standard error of the mean), 'std' (± one
            standard deviation), 'ci' (95 % confidence interval of the average, by a percentile bootstrap over the
            histories with fixed random numbers), 'range' (from the minimum to the maximum) or 'none'. The default is
            'se' for a mean and 'ci' for an interquartile mean. 'se' and 'std' describe only a mean.
        average: 'mean', 'iqm' (interquartile mean, the mean of the middle half; Agarwal et al. 2021,
            arXiv:2108.13264), or 'both' (with the mean as a dashed line).
        ax: axes to draw on. The default is the current figure if it is empty, else a new figure.

    Returns:
        The axes. A notebook shows the figure by itself; a script must call `plt.show()`.

    Raises:
        ValueError: if a file is missing or has no rows to draw, a column does not exist, another value is not valid,
            or the number of labels differs from the number of histories.
    """
    # detect a DataFrame by its attribute, so that pandas is not imported
    single = isinstance(paths, (str, os.PathLike)) or hasattr(paths, 'columns')
    histories = [cast('History', paths)] if single else list(cast('Iterable[History]', paths))
    if not histories:
        raise ValueError('paths: got no history, expected at least one')
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
    """Draw histories to a picture file, atomically and without a display, and return its path.

    Args:
        paths: parquet files.
        labels: one label per file and per entry of `run_dirs`, in this order. The defaults are the names of the files
            and the agents of the runs.
        by: column on the x axis, 'step' or 'time'.
        out: the picture. Its suffix (.png, .svg or .pdf) sets the format.
        plot: column on the y axis; for runs also the name of a metric.
        env: title of the plot. The default is the environment of the runs, if all have the same one.
        smooth: number of episodes of a moving mean, see `plot_history`.
        time_unit: 'second', 'minute', 'hour', 'day' or 'auto'.
        shade: interval around the average of several histories, see `plot_history`.
        average: 'mean', 'iqm' or 'both'. The default is 'both' if a group of runs is drawn, else 'mean'.
        run_dirs: run directories and groups of runs. A group gives one curve per setting (see `run_curves`).

    Raises:
        ValueError: as for `plot_history`; also if the format is unknown or the folder does not exist.
    """
    target = check_picture(out)
    paths, run_dirs = list(paths), list(run_dirs or ())
    if labels is not None and len(labels) != len(paths) + len(run_dirs):
        expected = f'expected {len(paths) + len(run_dirs)}, one for each history'
        raise ValueError(f'--labels: got {len(labels)}, {expected}{" and runs" if run_dirs else ""}')
    histories: list[History] = [*paths]
    if run_dirs:
        from xagents.reports.curves import run_curves

        runs = run_curves(run_dirs, plot, None if labels is None else labels[len(paths) :])
        if labels is None:  # make the labels of files differ from those of runs, so that they are not averaged
            names = zip(_labels(histories, None), paths, strict=True)
            labels = [f'{name} ({path})' if name in runs.labels else name for name, path in names]
        labels = [*labels[: len(paths)], *runs.labels]
        histories += runs.frames
        env = env if env is not None or paths else runs.env
        if runs.has_group and shade not in MEAN_SHADES:
            average = average or 'both'

    from matplotlib.figure import Figure

    # without pyplot no window system is needed, and the figures of the user do not change
    figure = Figure(figsize=(8, 4.5), layout='constrained')
    drawn: dict[str, Any] = {'smooth': smooth, 'shade': shade, 'average': average or 'mean', 'ax': figure.subplots()}
    try:
        plot_history(histories, labels, env, plot, by, time_unit=time_unit, **drawn)
    except OptionError as error:  # the flag of `plot` is --column
        raise OptionError('column' if error.name == 'plot' else error.name, error.problem) from error
    return write_picture(figure, target)


def check_picture(out: str | os.PathLike[str]) -> Path:
    """Return the path of a picture; raise OptionError if the format is unknown or the folder cannot be used."""
    target = Path(out)
    file_format = target.suffix[1:].lower()
    if file_format not in FORMATS:
        admits = f'expected a path that ends in .png, .svg or .pdf{did_you_mean(file_format, FORMATS)}'
        raise OptionError('out', f'got {out}, {admits}')
    check_parent('out', target)
    return target


def write_picture(figure: Figure, target: Path) -> Path:
    """Write a figure, atomically, in the format of the suffix, and return the path."""
    picture = io.BytesIO()
    figure.savefig(picture, format=target.suffix[1:].lower(), dpi=160)
    with atomic_write(target) as temporary:
        temporary.write_bytes(picture.getvalue())
    return target


def _labels(histories: list[History], agents: str | Sequence[str] | None) -> list[str]:
    if agents is not None:
        labels = [agents] if isinstance(agents, str) else [str(agent) for agent in agents]
        if len(labels) != len(histories):
            raise ValueError(f'agents: got {len(labels)} labels, expected {len(histories)}, one for each history')
        return labels
    # make equal names unique by the folder, then by a number, so that these files are not averaged
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
    """Return the columns `benchmark` and `plot` of a history, sorted by `benchmark`, without non-finite rows."""
    frame: pd.DataFrame
    if hasattr(history, 'columns'):
        frame, name = cast('pd.DataFrame', history), 'the DataFrame'
    else:
        frame, name = read_history(history), f"the history '{os.fspath(history)}'"
    names = list(map(str, frame.columns))
    for argument, column in (('plot', plot), ('benchmark', benchmark)):
        if column not in frame.columns:
            columns = f'{", ".join(names)}{did_you_mean(column, names)}'
            raise OptionError(argument, f"got '{column}', expected a column of {name}: {columns}")
    if len(frame) == 0:
        raise ValueError(f'{name} has no rows yet')
    try:
        values = frame[plot].astype(float).replace([np.inf, -np.inf], np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"plot='{plot}': this column of {name} does not contain numbers") from error
    if smooth > 1:
        values = values.rolling(smooth, min_periods=1).mean()
    x = frame[benchmark].to_numpy(float)[::interval]
    y = values.to_numpy(float)[::interval]
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        raise ValueError(f"plot='{plot}': {name} has no number in this column yet")
    x, y = x[finite], y[finite]
    order = np.argsort(x, kind='stable')
    return x[order], y[order]


def _on_common_grid(label: str, members: list[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate M curves onto a common grid; return its points [G] and the values [M, G]. Do not change one curve."""
    if len(members) == 1:
        x, y = _downsample(*members[0])
        return x, y[np.newaxis]
    start, end = max(x[0] for x, _ in members), min(x[-1] for x, _ in members)
    if start >= end:
        raise ValueError(f"the histories with the label '{label}' have no common range, so they cannot be averaged")
    grid = np.linspace(start, end, GRID_POINTS)
    rows = []
    for x, y in members:
        last = np.append(np.diff(x) > 0, True)  # the last of several episodes at one step has the latest mean
        rows.append(np.interp(grid, x[last], y[last]))
    return grid, np.stack(rows)


def _draw(ax: Axes, label: str, x: np.ndarray, values: np.ndarray, shade: str, average: str, colour: str) -> None:
    """Draw one curve, or the average of M curves with its interval: `x` [G], `values` [M, G]."""
    centre = values[0]
    if len(values) > 1:
        statistic = 'mean' if average == 'mean' else 'iqm'
        centre = compute_average(values, statistic)
        shown_shade = '' if average == 'both' else SHADE_LABELS[shade]
        label = f'{label} ({AVERAGE_LABELS[average].format(len(values))}{shown_shade})'
        if shade != 'none':
            low, high = _interval(values, shade, statistic)
            ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        if average == 'both':
            ax.plot(x, values.mean(axis=0), color=colour, linewidth=1, linestyle='--')
    # the line of a history with one episode would be invisible
    ax.plot(x, centre, color=colour, linewidth=1.6, label=label, marker='o' if len(x) == 1 else None)


def _explain_lines(ax: Axes, shade: str) -> None:
    """Add the meaning of the line styles to the legend, in grey."""
    ax.plot([], [], color='0.4', linewidth=1.6, label='interquartile mean')
    ax.plot([], [], color='0.4', linewidth=1, linestyle='--', label='mean')
    if shade != 'none':
        ax.fill_between([], [], [], color='0.4', alpha=0.2, linewidth=0, label=SHADE_LABELS[shade].strip(', '))


def _interval(values: np.ndarray, shade: str, statistic: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bound, [G] each, of the interval around the average of `values` [M, G]."""
    if shade == 'range':
        return values.min(axis=0), values.max(axis=0)
    if shade == 'ci':
        return bootstrap_interval(values, statistic)
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) / (np.sqrt(len(values)) if shade == 'se' else 1)
    return mean - spread, mean + spread


def _downsample(x: np.ndarray, y: np.ndarray) -> Curve:
    """Keep the minimum and maximum of each of MAX_POINTS / 2 intervals: it looks the same and draws fast."""
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

    # use the figure of a `plt.figure(figsize=…)` before this call, but not a figure that has a plot
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
    """Set the style of axes: grey lines at the left and the bottom, and a light grid."""
    ax.spines[['top', 'right']].set_visible(False)
    ax.spines[['left', 'bottom']].set_color('0.6')
    ax.tick_params(color='0.6')
    ax.grid(True, color='0.9', linewidth=0.8)
    ax.set_axisbelow(True)


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        admits = f'{", ".join(choices[:-1])} or {choices[-1]}'
        raise ValueError(f"{name}: got '{value}', expected {admits}{did_you_mean(str(value), choices)}")


def _check_shade(shade: str | None, average: str) -> str:
    """Return the kind of interval around an average; raise OptionError if it does not fit the average."""
    _check_choice('average', average, tuple(AVERAGE_LABELS))
    if shade is None:
        return 'se' if average == 'mean' else 'ci'
    _check_choice('shade', shade, tuple(SHADE_LABELS))
    if average != 'mean' and shade in MEAN_SHADES:
        admits = f"expected ci, range or none with average '{average}'"
        raise OptionError('shade', f'got {shade}, which describes only a mean, {admits}')
    return shade


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f'{name}: got {value!r}, expected a whole number of at least 1')
