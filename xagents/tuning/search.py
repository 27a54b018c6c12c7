"""The search ranges of `xagents tune`: several values of an option are a range, one value is fixed.

Optuna is imported only by functions that need it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from xagents.options.declaration import Option, Options, declared_options
from xagents.options.errors import OptionError, format_value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

# if the bounds differ by at least this factor, a whole number is searched on a logarithmic scale
LOG_SCALE_RATIO = 100


@dataclasses.dataclass(frozen=True)
class Bounds:
    """A range of numbers from `low` to `high`, both included. If `log` is true, the scale is logarithmic."""

    low: float
    high: float
    log: bool

    @property
    def values(self) -> tuple:
        """The two bounds."""
        return self.low, self.high

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna for this range."""
        from optuna.distributions import FloatDistribution, IntDistribution

        kind: Any = IntDistribution if isinstance(self.low, int) else FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def nearest(self, value: Any) -> Any:
        """Return the nearest number within the bounds; the upper bound if the value is None."""
        return self.high if value is None else min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f'{self.low:.12g} to {self.high:.12g}' + (', by orders of magnitude' if self.log else '')


@dataclasses.dataclass(frozen=True)
class Choices:
    """A range of discrete values."""

    values: tuple

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna for this range."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def nearest(self, value: Any) -> Any:
        """Return the choice that is nearest to `value`; the first choice if they cannot be compared."""
        if value in self.values:
            return value
        numbers = [v for v in (value, *self.values) if isinstance(v, (int, float)) and not isinstance(v, bool)]
        if len(numbers) <= len(self.values):
            return self.values[0]
        return min(self.values, key=lambda choice: abs(choice - value))

    def __str__(self) -> str:
        return 'one of ' + ', '.join(map(_short, self.values))


SearchRange = Bounds | Choices


def searchable(option: Option) -> Option:
    """Return an option for `tune`: it accepts several values if it has a search type."""
    return dataclasses.replace(option, is_list=True) if option.tune else option


def split_searched(
    given: Mapping[str, Any], known: Mapping[str, Option]
) -> tuple[dict[str, Any], dict[str, SearchRange]]:
    """Split given options into fixed options and search ranges, and check their values.

    Args:
        given: values by name; options with a search type have one or several values.
        known: all options by name.

    Returns:
        The fixed values and the ranges, by name.

    Raises:
        OptionError: if a value or a range is not valid.
    """
    fixed, ranges = dict[str, Any](), dict[str, SearchRange]()
    for name, value in given.items():
        option = known[name]
        several = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
        if not option.tune or not several:
            fixed[name] = option.check(value)
            continue
        values = [option.check(one) for one in value]
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            ranges[name] = _range(option, values)
    return fixed, ranges


def _range(option: Option, values: list[Any]) -> SearchRange:
    words = [option.none_word if value is None else str(value) for value in values]
    got = 'got ' + format_value(' '.join(words) or 'nothing')
    if None in values and not (option.optional and option.tune == 'categorical'):
        raise OptionError(option.name, f'{got}, expected values, each of them {option.expected}')
    if option.tune == 'categorical':
        if len(set(values)) < max(len(values), 2):
            raise OptionError(option.name, f'{got}, expected one value, or at least two different choices')
        return Choices(tuple(values))
    if len(values) != 2:
        raise OptionError(option.name, f'{got}, expected one value, or two bounds')
    low, high = values
    if low >= high:
        raise OptionError(option.name, f'{got}, expected the lower bound first and the higher one second')
    if low <= 0:
        raise OptionError(option.name, f'{got}, expected a lower bound above 0')
    if option.tune == 'int':
        return Bounds(low, high, log=high >= LOG_SCALE_RATIO * low)
    return Bounds(float(low), float(high), log=True)


def default_ranges(
    declaration: type[Options], known: Mapping[str, Option], given: Mapping[str, Any]
) -> dict[str, SearchRange]:
    """Return the default ranges of an agent that are valid with the given options.

    A range is left out if its option is given, if a given option replaces it, or if it replaces a given option.

    Args:
        declaration: the options of the agent.
        known: all options by name.
        given: given values and ranges by name.
    """
    ranges = {name: _range(known[name], list(values)) for name, values in declaration.ranges.items()}
    overruled = given.keys() | {known[name].replaces for name in given}
    own = declared_options(declaration)
    fixed = {n: v.values[0] if isinstance(v, SearchRange) else v for n, v in given.items() if n in own}
    return {
        name: r
        for name, r in ranges.items()
        if not {name, known[name].replaces} & overruled - {''}
        and (name not in own or _is_admitted(declaration, fixed, name, r))
    }


def _is_admitted(declaration: type[Options], fixed: Mapping[str, Any], name: str, r: SearchRange) -> bool:
    """Return whether all values of a range are valid with the fixed options, such as the size of a buffer."""
    try:
        for value in r.values:
            declaration.resolve({**fixed, name: value})
    except OptionError:
        return False
    return True


def describe_ranges(
    ranges: Mapping[str, SearchRange], known: Mapping[str, Option], first: Mapping[str, Any]
) -> list[str]:
    """Return a line for each range: the flag, the range, and the value of the first trial."""
    width = max((len(known[name].flag) for name in ranges), default=0)
    return [f'{known[name].flag:<{width}}  {r} (begins with {_short(first[name])})' for name, r in ranges.items()]


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'{value:.6g}' if isinstance(value, float) and math.isfinite(value) else str(value)
