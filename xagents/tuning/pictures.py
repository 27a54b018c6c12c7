"""Pictures of a study: its history, how much its parameters matter, slices, and parallel coordinates.

Optuna's own change the style of every later figure, and with a dozen parameters their axes and names overlap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.reports.plotting import tidy
from xagents.tuning.table import short

if TYPE_CHECKING:
    import optuna
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

Draw = Callable[['optuna.Study', Sequence['FrozenTrial']], 'Figure']

OBJECTIVES = {'reward': 'mean reward', 'evaluation': 'mean evaluation'}
BLUE, ORANGE = '#0072B2', '#D55E00'
SLICES_IN_A_ROW = 4
# of a parameter with more choices every second, third… has its name on the axis
MOST_CHOICES = 12
LONGEST_NAME = 32
SLANTED: dict[str, Any] = {'rotation': 30, 'ha': 'right', 'rotation_mode': 'anchor'}


class CannotDrawError(Exception):
    """Why there is no picture."""


class Parameter(NamedTuple):
    """A parameter's axis from 0 to 1: `place` returns where a value stands, `marks` are places and their labels."""

    name: str
    place: Callable[[Any], float]
    marks: list[tuple[float, str]]


def names_in(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every name in `mappings` once, in the order of first appearance."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def objective_name(study: optuna.Study) -> str:
    """Return what the values of a study are."""
    return OBJECTIVES.get(study.user_attrs.get('objective', ''), 'value')


def _draw_history(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    complete = _complete(trials)
    numbers, values = [trial.number for trial in complete], _values(complete)
    so_far = list(itertools.accumulate(values, max))
    # the best stays what it is until the last trial, also where later ones are not complete
    last = max(trial.number for trial in trials if trial.state.is_finished())
    figure = _figure(8, 4.5, study, 'History')
    axes = figure.subplots()
    axes.step([*numbers, last], [*so_far, so_far[-1]], where='post', color=ORANGE, label='best so far')
    if pruned := _valued(trials, 'PRUNED'):
        places = [trial.number for trial in pruned]
        axes.scatter(places, _values(pruned), s=20, marker='x', color='0.6', label='pruned')
    axes.scatter(numbers, values, s=24, color=BLUE, label='complete', zorder=3)
    axes.set_xlabel('trial')
    axes.set_ylabel(objective_name(study))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
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
    tidy(axes)
    axes.grid(False, axis='y')
    return figure


def _draw_slices(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    complete = _complete(trials)
    parameters = _parameters(complete)
    columns = min(len(parameters), SLICES_IN_A_ROW)
    rows = math.ceil(len(parameters) / columns)
    figure = _figure(max(2.6 * columns + 1, 6), max(2.5 * rows + 0.6, 4), study, 'Slices')
    grid = list(figure.subplots(rows, columns, sharey=True, squeeze=False).ravel())
    for axes in grid[len(parameters) :]:
        axes.remove()
    first, last = complete[0].number, complete[-1].number
    limits = {'vmin': first, 'vmax': max(last, first + 1)}
    for index, (axes, parameter) in enumerate(zip(grid, parameters, strict=False)):
        drawn = [trial for trial in complete if parameter.name in trial.params]
        places = [parameter.place(trial.params[parameter.name]) for trial in drawn]
        numbers = [trial.number for trial in drawn]
        points = axes.scatter(places, _values(drawn), s=20, c=numbers, cmap='viridis_r', **limits)
        tidy(axes)
        axes.set_xlabel(_label(parameter.name, 26), parse_math=False)
        marks, names = zip(*parameter.marks, strict=True)
        crowded = sum(len(name) + 2 for name in names) > 26  # they have no room beside each other
        axes.set_xticks(marks, names, parse_math=False, **(SLANTED if crowded else {}))
        axes.set_xlim(-0.06, 1.06)
        if index % columns == 0:
            axes.set_ylabel(objective_name(study))
    figure.colorbar(points, ax=grid[: len(parameters)], label='trial', aspect=30, ticks=MaxNLocator(integer=True))
    return figure


def _draw_parallel(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    from matplotlib.collections import LineCollection

    complete = sorted(_complete(trials), key=lambda trial: trial.value or 0.0)  # the best ones on top
    parameters = _parameters(complete)
    worth = _numeric(objective_name(study), _values(complete))
    figure = _figure(max(1.25 * len(parameters) + 2.2, 6), 4.8, study, 'Parallel coordinates')
    axes = figure.subplots()
    heights = [
        # a trial without a parameter has a gap there
        [p.place(trial.params[p.name]) if p.name in trial.params else math.nan for p in parameters]
        + [worth.place(trial.value)]
        for trial in complete
    ]
    lines = LineCollection([list(enumerate(row)) for row in heights], cmap='viridis_r', linewidths=1.4, alpha=0.8)
    lines.set_array(np.array([row[-1] for row in heights]))
    lines.set_clim(0, 1)
    axes.add_collection(lines)
    box = {'facecolor': 'white', 'alpha': 0.75, 'edgecolor': 'none', 'pad': 0.8}
    for i, parameter in enumerate([*parameters, worth]):
        axes.axvline(i, color='0.3', linewidth=0.8, zorder=3)
        for height, name in parameter.marks:
            axes.text(i + 0.04, height, name, fontsize='small', va='center', bbox=box, zorder=4, parse_math=False)
    axes.set_xlim(-0.1, len(parameters) + 0.4)
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    names = [_label(parameter.name) for parameter in parameters] + [worth.name]
    axes.set_xticks(range(len(names)), names, parse_math=False, **(SLANTED if max(map(len, names)) > 11 else {}))
    axes.tick_params(axis='x', length=0)
    return figure


PICTURES: dict[str, Draw] = {
    'history.png': _draw_history,
    'importances.png': _draw_importances,
    'slices.png': _draw_slices,
    'parallel.png': _draw_parallel,
}


def _parameters(trials: Sequence[FrozenTrial]) -> list[Parameter]:
    names = names_in(trial.params for trial in trials)
    if not names:
        raise CannotDrawError('no parameter is searched')
    axes = []
    for name in names:
        values = [trial.params[name] for trial in trials if name in trial.params]
        distribution: Any = next(trial.distributions[name] for trial in reversed(trials) if name in trial.params)
        if hasattr(distribution, 'choices'):
            axes.append(_of_choices(name, [*distribution.choices, *values]))
        else:
            axes.append(_numeric(name, values, distribution.log))
    return axes


def _numeric(name: str, values: Sequence[float], log: bool = False) -> Parameter:
    """Return an axis of numbers or their logarithms, with marks at the lowest, the middle and the highest."""
    scale, unscale = (math.log10, lambda place: 10.0**place) if log and min(values) > 0 else (float, float)
    low, width = scale(min(values)), scale(max(values)) - scale(min(values))
    whole = all(isinstance(value, int) for value in values)
    places = (0.0, 0.5, 1.0) if width else (0.5,)
    numbers = [unscale(low + place * width) for place in places]
    names = [str(round(number)) if whole else short(number) for number in numbers]
    return Parameter(name, lambda v: (scale(v) - low) / width if width else 0.5, list(zip(places, names, strict=True)))


def _of_choices(name: str, values: Sequence[Any]) -> Parameter:
    """Return an axis on which choices of any kind stand at equal distances."""
    choices = {repr(value): value for value in values}  # True == 1, but they are written differently
    last = len(choices) - 1
    places = {text: index / last if last else 0.5 for index, text in enumerate(choices)}
    names = [short(choice, 6) for choice in choices.values()]
    if len(set(names)) < len(names):  # the number 3 and the text '3'
        names = list(choices)
    marks = [(place, _label(text, 16)) for place, text in zip(places.values(), names, strict=True)]
    return Parameter(name, lambda value: places[repr(value)], marks[:: math.ceil(len(marks) / MOST_CHOICES)])


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    complete = _valued(trials, 'COMPLETE')
    if not complete:
        raise CannotDrawError('no trial is complete')
    return complete


def _valued(trials: Sequence[FrozenTrial], state: str) -> list[FrozenTrial]:
    return [t for t in trials if t.state.name == state and t.value is not None and math.isfinite(t.value)]


def _values(trials: Sequence[FrozenTrial]) -> list[float]:
    return [trial.value for trial in trials if trial.value is not None]


def _label(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name cut in its middle, where names of one family differ least."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f'{text[:half]}…{text[-half:]}'


def _figure(width: float, height: float, study: optuna.Study, what: str) -> Figure:
    from matplotlib.figure import Figure

    # without pyplot no window system is asked for, and the figure is gone when nobody holds it
    figure = Figure(figsize=(width, height), layout='constrained')
    title = f'{what}: {study.user_attrs.get("agent")} on {study.user_attrs.get("env")}'
    figure.suptitle(_label(title, 60 if width < 10 else 120), fontsize='large', parse_math=False)
    return figure
