"""The options of an agent for compiled updates: numbers are variables instead of constants of the programs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xagents.options.agents import AgentOptions

EXACT = 2**24  # float32 represents whole numbers below it exactly


def is_traced_number(value: Any) -> bool:
    """Return whether a compiled program reads an option value from a variable."""
    return type(value) is float or (type(value) is int and abs(value) < EXACT)


class TracedOptions:
    """Options by name; a compiled program reads options that are numbers from a variable.

    One program therefore works for all values, and another value needs no compilation. If an option determines how a
    program is built, for example whether to omit a term whose weight is 0, read it from the options directly.
    """

    def __init__(self, options: AgentOptions):
        self._options = options
        found = {n: v for n, v in vars(options).items() if is_traced_number(v)}
        self._indices = {name: place for place, name in enumerate(found)}
        self._vector = tf.Variable(list(found.values()), dtype=tf.float32, trainable=False, name='numbers')

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._options, name)
        if name not in self._indices or not tf.inside_function():
            return value
        number = self._vector[self._indices[name]]
        return tf.cast(number, tf.int32) if isinstance(value, int) else number
