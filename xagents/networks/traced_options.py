"""An agent's options as its compiled updates read them: numbers are not built into the programs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xagents.options.agents import AgentOptions

EXACT = 2**24  # whole numbers below it are whole in float32, too


def is_traced_number(value: Any) -> bool:
    """Return whether an option's value is a number that a program reads from a variable."""
    return type(value) is float or (type(value) is int and abs(value) < EXACT)


class TracedOptions:
    """Options by name; in a compiled program those that are numbers are read from a variable.

    So one program serves all values, and another value compiles nothing. What decides how a program is built, such as
    whether a term is left out where its weight is 0, is read from the options themselves.
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
