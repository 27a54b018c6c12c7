"""Plots of a study: its history, and the importances of its parameters.

The plots of Optuna are not used: they change the style of all later figures, and the names of many parameters overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xagents.reports.plotting import style_axes
from xagents.reports.trials import BLUE, draw_trials

if TYPE_CHECKING:
    import optuna
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

DrawFunction = Callable[['optuna.Study', Sequence['FrozenTrial']], 'Figure']

OBJECTIVES = {'reward': 'mean reward', 'evaluation': 'mean evaluation'}
LONGEST_NAME = 32


class NoPlotError(Exception):
    """The reason why a plot cannot be drawn."""


def unique_names(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each name in `mappings` once, in the order of first appearance."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def objective_name(study: optuna.Study) -> str:
    """Return the name of the values of a study."""
    return OBJECTIVES.get(study.user_attrs.get('objective', ''), 'value')


def _draw_history(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    complete = _complete(trials)
    # extend the line of the best value to the last trial, complete or not
    last = max(trial.number for trial in trials if trial.state.is_finished())
    figure = _figure(4.5, study, 'History')
    values, pruned = _values(complete), _values(_valued(trials, 'PRUNED'))
    draw_trials(figure.subplots(), values, pruned, last, objective_name(study))
    figure.legend(loc='outside lower right', ncols=3, frameon=False)
    return figure


def importances(study: optuna.Study, trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Return the importance of each searched option in percent, the most important first.

    Raises:
        NoPlotError: if the trials do not suffice.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    complete = _complete(trials)
    if not unique_names(trial.params for trial in complete):
        raise NoPlotError('no parameter is searched')
    if len(complete) < 2:
        raise NoPlotError('needs at least two complete trials')
    if len(set(_values(complete).values())) == 1:
        raise NoPlotError('all values are equal')
    # this evaluator needs no scikit-learn and uses no random numbers
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), normalize=False)
    total = sum(shares.values())
    if not total > 0:
        raise NoPlotError('no parameter has an effect on the values')
    return {name: 100 * share / total for name, share in sorted(shares.items(), key=lambda item: -item[1])}


def _draw_importances(study: optuna.Study, trials: Sequence[FrozenTrial]) -> Figure:
    ranked = sorted(importances(study, trials).items(), key=lambda item: item[1])
    rows = max(len(ranked), 3)
    figure = _figure(1.4 + 0.32 * rows, study, 'Importances')
    axes = figure.subplots()
    bars = axes.barh(range(len(ranked)), [share for _, share in ranked], color=BLUE, height=0.7)
    axes.bar_label(bars, fmt='%.0f %%', padding=3)
    axes.set_yticks(range(len(ranked)), [_label(name) for name, _ in ranked], parse_math=False)
    axes.set_xlim(0, 108)
    middle = (len(ranked) - 1) / 2
    axes.set_ylim(middle - rows / 2, middle + rows / 2)
    axes.set_xlabel(f'importance for being among the best, % (of {len(_complete(trials))} complete trials)')
    style_axes(axes)
    axes.grid(False, axis='y')
    return figure


PLOTS: dict[str, DrawFunction] = {'history.png': _draw_history, 'importances.png': _draw_importances}


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    complete = _valued(trials, 'COMPLETE')
    if not complete:
        raise NoPlotError('no trial is complete')
    return complete


def _valued(trials: Sequence[FrozenTrial], state: str) -> list[FrozenTrial]:
    return [t for t in trials if t.state.name == state and t.value is not None and math.isfinite(t.value)]


def _values(trials: Sequence[FrozenTrial]) -> dict[int, float]:
    return {trial.number: trial.value for trial in trials if trial.value is not None}


def _label(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name, shortened in its middle if it is too long."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f'{text[:half]}…{text[-half:]}'


def _figure(height: float, study: optuna.Study, what: str) -> Figure:
    from matplotlib.figure import Figure

    # without pyplot no window system is needed, and the figure is freed when it is no longer used
    figure = Figure(figsize=(8, height), layout='constrained')
    title = f'{what}: {study.user_attrs.get("agent")} on {study.user_attrs.get("env")}'
    figure.suptitle(_label(title, 60), fontsize='large', parse_math=False)
    return figure
