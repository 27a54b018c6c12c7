"""Errors in the input of a user, each one line."""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


class OptionError(ValueError):
    """An option with a value that is not valid.

    Args:
        name: the option's Python name, or the name of another input.
        problem: the value and the expected values, without the name.
    """

    def __init__(self, name: str, problem: str):
        super().__init__(f'{name}: {problem}')
        self.name = name
        self.problem = problem


def requires(name: str, value: Any, flags: str) -> OptionError:
    """Return the error for an option that is given without another one that it requires.

    Args:
        name: the option's Python name.
        value: the given value; True for a switch.
        flags: the flags of the required options, as text.
    """
    got = '' if value is True else f'got {format_value(value)}, which '
    return OptionError(name, f'{got}requires {flags}')


def format_value(value: Any) -> str:
    """Return the text of a value for a message: one line of at most 120 characters."""
    if isinstance(value, str):
        text = value if value.isprintable() and value.strip() else repr(value)
    else:
        text = ' '.join(repr(value).split())
    return text if len(text) <= 120 else f'{text[:119]}…'


def error_line(error: BaseException) -> str:
    """Return the type and the text of an exception on one line of at most 300 characters."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:300]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the most similar of `names`, or an empty string."""
    found = nearest(name, names)
    return f' (did you mean {found}?)' if found is not None else ''


def but_of(owners: Sequence[str]) -> str:
    """Return the end of a message that names what has an option, or an empty string without owners."""
    *first, last = owners or ['']
    return f', but of {" and ".join(filter(None, [", ".join(first), last]))}' if last else ''


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar of `names`, or None if the similarity of all is below `cutoff`, from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), None)


def one_line(thing: object) -> str:
    """Return the text of an exception or another object on one line, or the name of its type if it has no text.

    Addresses, as in `<function f at 0x7f1c…>`, are left out.
    """
    return re.sub(r' at 0x[0-9a-f]+', '', ' '.join(str(thing).split())) or type(thing).__name__


GivenOptions = dict[str, Any]


class InputError(Exception):
    """Wrong input that belongs to no option; the user sees the message unchanged."""


@contextlib.contextmanager
def as_input_errors() -> Iterator[None]:
    """Convert exceptions about wrong values and paths into an `InputError`.

    Only the reading of inputs belongs into this block: a ValueError after it is a bug and keeps its traceback.
    """
    try:
        yield
    except OptionError:
        raise
    except (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(str(error)) from error
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        raise InputError(f'{format_value(str(error.filename))}: {error.strerror}') from error
