"""Curricula: levels of environment parameters, and the condition of the next level, read from text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from xagents.options.errors import OptionError, did_you_mean, format_value

NUMBER = r'[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?'
LEVELS = re.compile(rf'({NUMBER})\.\.({NUMBER})(?::(\d+))?')
CONDITION = re.compile(rf'\s*([^\s<>=]+)\s*([<>])\s*({NUMBER})\s*')
WHOLE = re.compile(r'[+-]?\d+')
# levels of an interval of fractions without a number of levels, and the largest number of levels
DEFAULT_LEVELS, MAX_LEVELS = 10, 10_000
# metrics that a run may log later than in its first iteration
EVALUATIONS = ('evaluate/mean', 'evaluate/std', 'evaluate/length', 'evaluate/success')
LATER = ('mean_reward', 'success_rate', 'episode_length', 'elo')


class Condition(NamedTuple):
    """A comparison of a metric with a number.

    Attributes:
        metric: the name of the metric.
        above: whether the metric must be above the number; otherwise below.
        bound: the number.
    """

    metric: str
    above: bool
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the condition holds for a value of the metric; never for NaN."""
        return value > self.bound if self.above else value < self.bound

    def check_known(self, names: Iterable[str]) -> None:
        """Raise OptionError if the metric is not among the names of metrics."""
        names = [*names]
        if self.metric not in names:
            got = f'got {self.metric}, which this run does not log{did_you_mean(self.metric, names)}'
            raise OptionError('curriculum_when', f'{got}, expected one of its metrics')


class Curriculum(NamedTuple):
    """Environment parameters that change from level to level.

    Attributes:
        values: the value of each level, by the name of the parameter; of each parameter equally many.
        condition: the condition of the next level; None if levels follow the steps.
    """

    values: Mapping[str, tuple[float, ...]]
    condition: Condition | None = None

    @classmethod
    def parse(cls, levels: Mapping[str, Any], condition: str | None) -> Self:
        """Return a curriculum from the values of `--curriculum` and `--curriculum-when`.

        Raises:
            OptionError: for a text of another form, or unequal numbers of levels.
        """
        values = {name: parse_levels(name, text) for name, text in levels.items()}
        counts = {name: len(own) for name, own in values.items()}
        if len({*counts.values()}) > 1:
            got = ', '.join(f'{count} of {name}' for name, count in counts.items())
            raise OptionError('curriculum', f'got unequal numbers of levels, {got}; expected equal ones, as A..B:N')
        return cls(values, None if condition is None else parse_condition(condition))

    @property
    def n_levels(self) -> int:
        """The number of levels."""
        return len(next(iter(self.values.values())))

    def params(self, level: int) -> dict[str, float]:
        """Return the parameters of a level by name; the last ones for larger levels."""
        return {name: own[min(level, self.n_levels - 1)] for name, own in self.values.items()}


def parse_levels(name: str, text: Any) -> tuple[float, ...]:
    """Return the values of a parameter, from `A..B`, `A..B:N` or a list of numbers."""
    expected = 'expected A..B, A..B:N, or a list of numbers such as [1,2,5]'
    if isinstance(text, list | tuple):
        if len(text) < 2 or not all(type(x) in (int, float) and abs(x) < float('inf') for x in text):
            raise OptionError('curriculum', f'{name}: got {format_value(text)}, expected at least two finite numbers')
        return tuple(text)
    found = LEVELS.fullmatch(text) if isinstance(text, str) else None
    if not name.isidentifier():
        raise OptionError('curriculum', f'got {format_value(name)}, expected the name of a parameter')
    if found is None:
        raise OptionError('curriculum', f'{name}: got {format_value(text)}, {expected}')
    first, last, number = found.groups()
    a, b = float(first), float(last)
    whole = bool(WHOLE.fullmatch(first) and WHOLE.fullmatch(last))
    n = int(number) if number else int(abs(b - a)) + 1 if whole else DEFAULT_LEVELS
    if a == b or not 2 <= n <= MAX_LEVELS or abs(b - a) == float('inf'):
        problem = f'at least two and at most {MAX_LEVELS} different levels'
        raise OptionError('curriculum', f'{name}: got {text}, expected {problem}')
    steps = [a + (b - a) * i / (n - 1) for i in range(n - 1)] + [b]
    return tuple(int(x) for x in steps) if whole and all(x == int(x) for x in steps) else tuple(steps)


def parse_condition(text: str) -> Condition:
    """Return a condition from `METRIC>X` or `METRIC<X`."""
    found = CONDITION.fullmatch(text)
    if found is None:
        expected = "expected METRIC>X or METRIC<X in quotes, such as 'mean_reward>200'"
        raise OptionError('curriculum_when', f'got {format_value(text)}, {expected}')
    metric, sign, bound = found.groups()
    return Condition(metric, sign == '>', float(bound))


def curriculum_of(options: Any) -> Curriculum | None:
    """Return the curriculum of the options of a run, or None."""
    return Curriculum.parse(options.curriculum, options.curriculum_when) if options.curriculum else None


def condition_problem(options: Any) -> str:
    """Return why a condition can never hold with the options of a run, or an empty text."""
    if not options.curriculum_when:
        return ''
    metric = parse_condition(options.curriculum_when).metric
    if metric.startswith('evaluate/') and not options.eval_frequency:
        return f'got {metric}, which requires --eval-frequency'
    if metric.startswith('evaluate/') and metric not in EVALUATIONS:
        return f'got {metric}{did_you_mean(metric, EVALUATIONS)}, expected one of {", ".join(EVALUATIONS)}'
    name = metric.removeprefix('info/').removesuffix('/episode')
    if metric.startswith('info/') and name not in (options.log_info or ()):
        known = [f'info/{own}{end}' for own in options.log_info or () for end in ('', '/episode')]
        return f'got {metric}, which requires --log-info {name}{did_you_mean(metric, known)}'
    return ''
