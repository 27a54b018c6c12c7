"""Pictures of a study: its history, what its parameters mean to it, slices and parallel coordinates.

They are drawn on figures of their own, without pyplot: Optuna's change the style of every later figure, and with a
dozen parameters their axes and names run into each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.tuning.table import short

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

__all__ = ['PICTURES', 'PIXELS_PER_INCH', 'CannotDrawError', 'names_in', 'objective_name']

OBJECTIVES = {'reward': 'mean reward', 'evaluation': 'mean evaluation'}
BLUE, ORANGE, GREY = '#0072B2', '#D55E00', '0.6'
PIXELS_PER_INCH = 130
SLICES_IN_A_ROW = 4
MOST_CHOICES = 12
"""A parameter with more choices than this has every second, third… named."""
LONGEST_NAME = 32


class CannotDrawError(Exception):
    """Says why there is no picture."""


def names_in(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every name in `mappings` once, in the order of first appearance."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def objective_name(study: optuna.Study) -> str:
    """Return what the values of a study are."""
    return OBJECTIVES.get(study.user_attrs.get('objective', ''), 'value')


def _figure(width: float, height: float, study: optuna.Study, what: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # without pyplot no window system is asked for, and the figure is gone when nobody holds it
    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasAgg(figure)
    title = f'{what}: {study.user_attrs.get("agent")} on {study.user_attrs.get("env")}'
    figure.suptitle(_label(title, 60 if width < 10 else 120), fontsize='large', parse_math=False)
    return figure


def _draw_history(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    complete = _complete(trials)
    pruned = [trial for trial in trials if trial.state.name == 'PRUNED' and _finite(trial)]
    numbers, values = [trial.number for trial in complete], _values(complete)
    so_far = list(itertools.accumulate(values, max))
    # the best stays what it is until the last trial, also where later ones are not complete
    last = max(trial.number for trial in trials if trial.state.is_finished())
    figure = _figure(8, 4.5, study, 'History')
    axes = figure.subplots()
    axes.step([*numbers, last], [*so_far, so_far[-1]], where='post', color=ORANGE, label='best so far')
    if pruned:
        axes.scatter(
            [trial.number for trial in pruned], _values(pruned), s=20, marker='x', color=GREY, label='pruned'
        )  # fmt: skip
    axes.scatter(numbers, values, s=24, color=BLUE, label='complete', zorder=3)
    axes.set_xlabel('trial')
    axes.set_ylabel(objective_name(study))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _tidy(axes)
    figure.legend(loc='outside lower right', ncols=3, frameon=False)
    return figure


def _draw_importances(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    complete = _complete(trials)
    _parameters(complete)
    if len(complete) < 2:
        raise CannotDrawError('takes two complete trials')
    if len(set(_values(complete))) == 1:
        raise CannotDrawError('all values are equal')
    # this evaluator needs no scikit-learn, and draws no random numbers
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), normalize=False)
    total = sum(shares.values())
    if not total > 0:
        raise CannotDrawError('the values tell no parameter from another')
    ranked = sorted(shares.items(), key=lambda item: item[1])
    rows = max(len(ranked), 3)
    figure = _figure(8, 1.4 + 0.32 * rows, study, 'Importances')
    axes = figure.subplots()
    bars = axes.barh(range(len(ranked)), [100 * share / total for _, share in ranked], color=BLUE, height=0.7)
    axes.bar_label(bars, fmt='%.0f %%', padding=3)
    axes.set_yticks(range(len(ranked)), [_label(name) for name, _ in ranked], parse_math=False)
    axes.set_xlim(0, 108)
    middle = (len(ranked) - 1) / 2
    axes.set_ylim(middle - rows / 2, middle + rows / 2)
    axes.set_xlabel(f'importance for being among the best, % (of {len(complete)} complete trials)')
    _tidy(axes)
    axes.grid(False, axis='y')
    return figure


def _draw_slices(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    complete = _complete(trials)
    scales = _parameters(complete)
    columns = min(len(scales), SLICES_IN_A_ROW)
    rows = math.ceil(len(scales) / columns)
    figure = _figure(max(2.6 * columns + 1, 6), max(2.5 * rows + 0.6, 4), study, 'Slices')
    grid = list(figure.subplots(rows, columns, sharey=True, squeeze=False).ravel())
    for axes in grid[len(scales) :]:
        axes.remove()
    grid = grid[: len(scales)]
    first, last = complete[0].number, complete[-1].number
    for index, (axes, scale) in enumerate(zip(grid, scales, strict=True)):
        drawn = [trial for trial in complete if scale.name in trial.params]
        points = axes.scatter(
            [scale.place(trial.params[scale.name]) for trial in drawn],
            _values(drawn),
            c=[trial.number for trial in drawn],
            vmin=first,
            vmax=max(last, first + 1),
            cmap='viridis_r',
            s=20,
        )
        _tidy(axes)
        axes.set_xlabel(_label(scale.name, 26), parse_math=False)
        places, names = scale.ticks()
        axes.set_xticks(places, names, parse_math=False)
        axes.set_xlim(scale.low - 0.06 * scale.width, scale.high + 0.06 * scale.width)
        if sum(len(name) + 2 for name in names) > 26:  # they have no room beside each other
            _slant(axes)
        if index % columns == 0:
            axes.set_ylabel(objective_name(study))
    figure.colorbar(points, ax=grid, label='trial', aspect=30, ticks=MaxNLocator(integer=True))
    return figure


def _draw_parallel(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.collections import LineCollection

    complete = sorted(_complete(trials), key=lambda trial: trial.value or 0.0)  # the best ones on top
    scales = _parameters(complete)
    values = _values(complete)
    worth = _Axis(objective_name(study), min(values), max(values))
    figure = _figure(max(1.25 * len(scales) + 2.2, 6), 4.8, study, 'Parallel coordinates')
    axes = figure.subplots()
    heights = [
        # a trial without a parameter has a gap there
        [scale.height(trial.params[scale.name]) if scale.name in trial.params else math.nan for scale in scales]
        + [worth.height(value)]
        for trial, value in zip(complete, values, strict=True)
    ]
    lines = LineCollection([list(enumerate(row)) for row in heights], cmap='viridis_r', linewidths=1.4, alpha=0.8)
    lines.set_array(np.array([row[-1] for row in heights]))
    lines.set_clim(0, 1)
    axes.add_collection(lines)
    box = {'facecolor': 'white', 'alpha': 0.75, 'edgecolor': 'none', 'pad': 0.8}
    for i, scale in enumerate([*scales, worth]):
        axes.axvline(i, color='0.3', linewidth=0.8, zorder=3)
        for place, name in zip(*scale.ends(), strict=True):
            height = (place - scale.low) / scale.width
            axes.text(i + 0.04, height, name, fontsize='small', va='center', bbox=box, zorder=4, parse_math=False)
    axes.set_xlim(-0.1, len(scales) + 0.4)
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    names = [_label(scale.name) for scale in scales] + [worth.name]
    axes.set_xticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis='x', length=0)
    if max(map(len, names)) > 11:
        _slant(axes)
    return figure


PICTURES: dict[str, Callable[[optuna.Study, Sequence[FrozenTrial]], Figure]] = {
    'history.png': _draw_history,
    'importances.png': _draw_importances,
    'slices.png': _draw_slices,
    'parallel.png': _draw_parallel,
}


class _Axis:
    """The stretch of numbers, or of their logarithms, that one axis shows."""

    def __init__(self, name: str, low: float, high: float, log: bool = False, whole: bool = False):
        self.name, self.log, self.whole = name, log, whole
        low, high = self.place(low), self.place(high)
        self.single = not high > low
        room = max(abs(low) * 0.05, 1e-9) if self.single else 0.0
        self.low, self.high = low - room, high + room
        self.width = self.high - self.low

    def place(self, value: Any) -> float:
        """Return where a value stands."""
        return math.log10(value) if self.log else float(value)

    def height(self, value: Any) -> float:
        """Return where a value stands, from 0 to 1."""
        return (self.place(value) - self.low) / self.width

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return round places, at most five or so, and their names."""
        from matplotlib.ticker import MaxNLocator

        if self.single:
            return self.ends()
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        marks = list(map(float, MaxNLocator(4, integer=self.whole).tick_values(low, high)))
        if self.log:
            decades = range(math.floor(self.low), math.floor(self.high) + 1)
            every = max(math.ceil(self.width / 4), 1)
            powers = [10.0**decade for decade in decades if decade % every == 0]
            steps = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
            marks = next((some for some in (powers, steps) if sum(low <= mark <= high for mark in some) > 1), marks)
        marks = [mark for mark in marks if low <= mark <= high]
        return [self.place(mark) for mark in marks], [self._named(mark, 6) for mark in marks]

    def ends(self) -> tuple[list[float], list[str]]:
        """Return both ends and the middle, and their names."""
        middle = self.low + self.width / 2
        places = [middle] if self.single else [self.low, middle, self.high]
        return places, [self._named(10**place if self.log else place, 4) for place in places]

    def _named(self, value: float, digits: int) -> str:
        return str(round(value)) if self.whole else short(value, digits)


class _Choices(_Axis):
    """The places of choices, which may be of any kind."""

    def __init__(self, name: str, choices: Iterable[Any]):
        # True == 1, so that choices are told apart by how they are written
        self._choices = {repr(choice): choice for choice in choices}
        self._places = {text: float(place) for place, text in enumerate(self._choices)}
        super().__init__(name, next(iter(self._choices.values())), list(self._choices.values())[-1])
        if self.single:
            self.low, self.high, self.width = -0.5, 0.5, 1.0

    def place(self, value: Any) -> float:
        """Return where a choice stands."""
        return self._places[repr(value)]

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return places and names of the choices; not of all of them where they are many."""
        names = [short(choice, 6) for choice in self._choices.values()]
        if len(set(names)) < len(names):  # the number 3 and the text '3'
            names = list(self._choices)
        every = math.ceil(len(names) / MOST_CHOICES)
        return list(self._places.values())[::every], [_label(name, 16) for name in names[::every]]

    def ends(self) -> tuple[list[float], list[str]]:
        """Return the same as `ticks`."""
        return self.ticks()


def _axis(name: str, trials: Sequence[FrozenTrial]) -> _Axis:
    values = [trial.params[name] for trial in trials if name in trial.params]
    distribution = next(trial.distributions[name] for trial in reversed(trials) if name in trial.params)
    if hasattr(distribution, 'choices'):
        return _Choices(name, [*distribution.choices, *values])
    log = bool(getattr(distribution, 'log', False)) and min(values) > 0
    return _Axis(name, min(values), max(values), log, whole=all(isinstance(value, int) for value in values))


def _parameters(trials: Sequence[FrozenTrial]) -> list[_Axis]:
    names = names_in(trial.params for trial in trials)
    if not names:
        raise CannotDrawError('no parameter is searched')
    return [_axis(name, trials) for name in names]


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    complete = [trial for trial in trials if trial.state.name == 'COMPLETE' and _finite(trial)]
    if not complete:
        raise CannotDrawError('no trial is complete')
    return complete


def _finite(trial: FrozenTrial) -> bool:
    return trial.value is not None and math.isfinite(trial.value)


def _values(trials: Sequence[FrozenTrial]) -> list[float]:
    return [trial.value for trial in trials if trial.value is not None]


def _label(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name cut in its middle, where names of one family differ least."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f'{text[:half]}…{text[-half:]}'


def _tidy(axes: Axes) -> None:
    axes.spines[['top', 'right']].set_visible(False)
    axes.spines[['left', 'bottom']].set_color(GREY)
    axes.tick_params(color=GREY)
    axes.grid(True, color='0.9', linewidth=0.8)
    axes.set_axisbelow(True)


def _slant(axes: Axes) -> None:
    for tick in axes.get_xticklabels():
        tick.set(rotation=30, ha='right', rotation_mode='anchor')
