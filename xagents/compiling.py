"""Compiled programs: one call for a whole update, and acting by whichever way is fastest."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.mirror import DenseMirror, flat_parameters


class Program:
    """A function that is traced and compiled once for each shape of its arguments, and called with NumPy arrays.

    Calling the concrete function with tensors leaves out `tf.function`'s look at every argument, half of a small call.

    Args:
        function: takes and returns tensors.
        jit: whether XLA compiles it.
    """

    def __init__(self, function: Callable, jit: bool):
        # loops are written as tf.while_loop and tf.scan: translating Python's takes two seconds of every start
        self._function = tf.function(function, jit_compile=jit, autograph=False)
        self._compiled: dict[tuple, Any] = {}

    def __call__(self, *arrays: Any) -> Any:
        """Run it with arrays and float numbers, which become float32."""
        tensors = [tf.constant(a) for a in arrays]
        key = tuple((t.dtype, *t.shape) for t in tensors)
        if key not in self._compiled:
            specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
            self._compiled[key] = self._function.get_concrete_function(*specs)
            result = self._compiled[key](*tensors)  # XLA compiles in the first call
            _return_memory()
            return result
        return self._compiled[key](*tensors)

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return self._function.experimental_get_tracing_count()


def _return_memory() -> None:
    """Give back what the compiler freed: glibc would keep some 140 MB of it for ever."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def has_convolutions(model: keras.Model) -> bool:
    """Return whether a model convolves: then XLA is slower than oneDNN on a CPU, and threads help."""
    return any('Conv' in type(layer).__name__ for layer in model.layers)


def network_input(observations: Any) -> tf.Tensor:
    """Return observations as a network's input: float32; bytes become numbers from 0 to 1."""
    if observations.dtype == tf.uint8:
        return tf.cast(observations, tf.float32) / 255.0
    return observations


class Actor:
    """A network's outputs as NumPy arrays: a mirror in NumPy for dense networks, else a compiled graph.

    Nobody else decides which.

    Args:
        model: from observations [N, *D] to the policy's outputs.
        dtype: of the observations; bytes become numbers from 0 to 1.
    """

    def __init__(self, model: keras.Model, dtype: Any = np.float32):
        self.model = model
        self._dtype = np.dtype(dtype)
        self._mirror = DenseMirror(model) if DenseMirror.supports(model) else None
        self._flat = Program(self.published, jit=False)
        specification = tf.TensorSpec((None, *model.input_shape[1:]), self._dtype)
        self._graph = tf.function(self._outputs, input_signature=[specification], autograph=False)
        self.refresh()

    def refresh(self, vector: np.ndarray | None = None) -> None:
        """Take over new weights.

        Args:
            vector: the flat weights that an update returned; the model's present ones when not given.
        """
        if self._mirror is not None:
            self._mirror.refresh(self._flat().numpy() if vector is None else vector)

    def __call__(self, observations: np.ndarray) -> Sequence[np.ndarray]:
        """Return the outputs [N, units] for observations [N, *D]; the arrays are overwritten by the next call."""
        if self._mirror is not None:
            if self._dtype == np.uint8:
                observations = observations.astype(np.float32) / np.float32(255)
            return self._mirror(observations)
        return [output.numpy() for output in self._graph(observations)]

    def published(self) -> tf.Tensor:
        """Return what an update gives to `refresh`: flat weights, or nothing where a graph reads the model."""
        return flat_parameters(self.model) if self._mirror is not None else tf.zeros(0)

    @property
    def traces(self) -> int:
        """How often acting was traced: 0 in NumPy."""
        return self._graph.experimental_get_tracing_count()

    def _outputs(self, observations: tf.Tensor) -> list[tf.Tensor]:
        outputs = self.model(network_input(observations), training=False)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return [tf.cast(output, tf.float32) for output in outputs]
