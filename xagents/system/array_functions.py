"""Functions with NumPy's names for arrays and for tensors, so that one piece of code acts in NumPy and compiles.

`functions_for(x)` returns NumPy for arrays. For tensors of TensorFlow, it returns a namespace with the functions of
NumPy that acting needs. Does not load TensorFlow.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np


def functions_for(x: Any) -> Any:
    """Return the functions for an array, a number, a list or a tensor."""
    # tensors have no common class that could be tested without loading TensorFlow
    return np if isinstance(x, np.ndarray) or not type(x).__module__.startswith('tensorflow') else _of_tensors()


@functools.cache
def _of_tensors() -> Any:
    import tensorflow as tf

    def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
        return tf.cast(x, np.dtype(dtype))

    def total(x: Any, axis: int) -> Any:
        return tf.reduce_sum(tf.cast(x, tf.int32) if x.dtype == tf.bool else x, axis)

    return SimpleNamespace(
        argmax=lambda x, axis: tf.argmax(tf.cast(x, tf.int32) if x.dtype == tf.bool else x, axis, tf.int32),
        array=lambda x, dtype: tf.cast(x, np.dtype(dtype)),
        astype=astype,
        asarray=astype,
        clip=lambda x, low, high: tf.clip_by_value(x, tf.cast(low, x.dtype), tf.cast(high, x.dtype)),
        concatenate=lambda parts, axis: tf.concat(list(parts), axis),
        cumsum=lambda x, axis: tf.cumsum(tf.cast(x, tf.int32), axis),
        exp=tf.exp,
        full_like=lambda x, value: tf.fill(x.shape, tf.cast(value, x.dtype)),
        log=tf.math.log,
        minimum=tf.minimum,
        multiply=lambda a, b, order=None: tf.multiply(a, b),
        reshape=tf.reshape,
        rint=tf.round,
        split=lambda x, ends, axis: tf.split(x, np.diff([0, *ends, x.shape[axis]]).tolist(), axis),
        sqrt=tf.sqrt,
        sum=total,
        take=lambda x, indices, axis: tf.gather(x, indices, axis=axis),
        tanh=tf.tanh,
        where=lambda condition, a, b: tf.where(condition, *_of_one_type(a, b)),
    )


def _of_one_type(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two operands of the dtype of the first that is a tensor, if any."""
    import tensorflow as tf

    dtype = next((x.dtype for x in (a, b) if tf.is_tensor(x)), None)
    return (a, b) if dtype is None else (tf.cast(a, dtype), tf.cast(b, dtype))
