"""What is wrong with what a user gave, in one line."""

from __future__ import annotations

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator
from typing import Any


class OptionError(ValueError):
    """A value that an option does not admit.

    Args:
        name: the option's Python name, or what else stands in its place.
        problem: the value and the expected values, without the name.
    """

    def __init__(self, name: str, problem: str):
        super().__init__(f'{name}: {problem}')
        self.name = name
        self.problem = problem


def format_value(value: Any) -> str:
    """Return a value as it stands in a message: on one line, and not longer than a line."""
    if isinstance(value, str):
        text = value if value.isprintable() and value.strip() else repr(value)
    else:
        text = ' '.join(repr(value).split())
    return text if len(text) <= 120 else f'{text[:119]}…'


def error_line(error: BaseException) -> str:
    """Return what somebody's code raised, on one line."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:300]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the most similar of `names`, or an empty string."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f' (did you mean {matches[0]}?)' if matches else ''


def one_line(thing: object) -> str:
    """Return the text of an exception or another object on one line, or the name of its type if it has no text."""
    return ' '.join(str(thing).split()) or type(thing).__name__


GivenOptions = dict[str, Any]


class InputError(Exception):
    """Wrong input that names no option; its message is for the user as it stands."""


@contextlib.contextmanager
def as_input_errors() -> Iterator[None]:
    """Turn what is raised over wrong values and paths into an `InputError`.

    Only what stands before the work itself belongs into this block: a ValueError later on is a crash.
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
