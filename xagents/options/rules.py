"""Rules about combinations of options: each is a condition under which an option is refused, and the message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from xagents.options.errors import OptionError, requires


class Rule(NamedTuple):
    """A combination of values that is refused.

    Attributes:
        name: the option that the error names.
        broken: a function of the object that has the options as attributes; true if the combination is refused.
        problem: the message without the option's name: a text with fields such as {o.n_step}, or a function that
            returns the text.
    """

    name: str
    broken: Callable[[Any], Any]
    problem: str | Callable[[Any], str]

    def check(self, options: Any) -> None:
        """Raise OptionError if options break the rule."""
        if self.broken(options):
            text = self.problem.format(o=options) if isinstance(self.problem, str) else self.problem(options)
            raise OptionError(self.name, text)


Rules = tuple[Rule, ...]


def is_changed(options: Any, name: str) -> bool:
    """Return whether an option of a dataclass of options has another value than its default."""
    return getattr(options, name) != type(options).__dataclass_fields__[name].default


def is_active(options: Any, name: str) -> bool:
    """Return whether a switch is on, or another option has another value than its default."""
    value = getattr(options, name)
    return value if isinstance(value, bool) else is_changed(options, name)


def is_given(options: Any, name: str) -> bool:
    """Return whether an option of a dataclass of options was given."""
    return name in options.given_names


def needs(
    name: str,
    flags: str,
    has: Callable[[Any], Any],
    is_used: Callable[[Any, str], bool] = is_changed,
) -> Rule:
    """Return the rule that an option requires other ones.

    Args:
        name: the option.
        flags: the flags of the required options, for the message.
        has: whether the required options are set.
        is_used: whether the option is used.
    """
    return Rule(
        name, lambda o: is_used(o, name) and not has(o), lambda o: requires(name, getattr(o, name), flags).problem
    )


def excluded(names: Iterable[str], reason: str, excludes: Callable[[Any], Any]) -> tuple[Rule, ...]:
    """Return the rules that options cannot be used in a certain case.

    Args:
        names: the options.
        reason: the end of the message, such as 'with --dataset'; may have fields as in `Rule.problem`.
        excludes: whether the options are excluded.
    """

    def rule(name: str) -> Rule:
        def problem(o: Any) -> str:
            value = getattr(o, name)
            shown = ' '.join(map(str, value)) if isinstance(value, list) else value
            # a switch that is on by default was not typed
            expected = '' if is_changed(o, name) else f', expected --no-{name.replace("_", "-")}'
            return f'{"cannot be used" if value is True else f"got {shown}"} {reason.format(o=o)}{expected}'

        return Rule(name, lambda o: is_active(o, name) and excludes(o), problem)

    return tuple(map(rule, names))
