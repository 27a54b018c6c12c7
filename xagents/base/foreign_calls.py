"""Answers to calls of agents that other libraries have."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, TypeVar, cast

from xagents.options.foreign_names import attribute_hint, option_hint

M = TypeVar('M', bound=Callable[..., Any])


class ForeignAttribute:
    """A class attribute with the name of another library's method: reading it raises an error with its replacement.

    Raises:
        AttributeError: at every read, from the class or from an instance.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(f'{owner.__name__} has no attribute {self._name!r}{attribute_hint(self._name)}')


def check_batch(learn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method `learn` that refuses the arguments of `learn(total_timesteps)` of Stable-Baselines3.

    The check runs once in each iteration. The result raises a TypeError that names `fit`.
    """

    @functools.wraps(learn)
    def checked(self: Any, *batch: Any, **others: Any) -> Any:
        if 'total_timesteps' in others or isinstance(next(iter(batch), None), numbers.Number):
            called = f'{type(self).__name__}.learn'
            raise TypeError(f'{called} makes one update from a batch, expected agent.fit(max_steps=…) to train')
        return learn(self, *batch, **others)

    return checked


def answer_keywords(method: M) -> M:
    """Return a method whose error for an unknown keyword names the keyword here that replaces it."""
    known = inspect.signature(method).parameters

    @functools.wraps(method)
    def answering(self: Any, *positional: Any, **others: Any) -> Any:
        for name, value in zip(list(known)[1:], positional, strict=False):
            if name in others:
                called = f'{type(self).__name__}.{method.__name__}'
                problem = f'got a {type(value).__name__} and {others[name]!r} as {name}, expected names'
                raise TypeError(f'{called}: {problem}: {", ".join(list(known)[1:])}')
        for name in others.keys() - known.keys():
            called = f'{type(self).__name__}.{method.__name__}'
            raise TypeError(f'{called}: {name} is no argument{option_hint(name, known)}')
        return method(self, *positional, **others)

    return cast(M, answering)
