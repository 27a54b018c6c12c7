"""Random numbers of functional environments, from a seed of TensorFlow's stateless operations, int32 [2].

The algorithm is fixed: with the one that TensorFlow selects itself, a compiled loop over steps takes several times as
long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

ALGORITHM = 'philox'


def uniform(rng: tf.Tensor, shape: Sequence[int], low: Any = 0.0, high: Any = 1.0) -> tf.Tensor:
    """Return float32 numbers from `low` to `high`, which only rounding reaches."""
    return low + (high - low) * tf.random.stateless_uniform(shape, rng, alg=ALGORITHM)


def normal(rng: tf.Tensor, shape: Sequence[int], mean: Any = 0.0, std: Any = 1.0) -> tf.Tensor:
    """Return float32 numbers of a normal distribution."""
    return mean + std * tf.random.stateless_normal(shape, rng, alg=ALGORITHM)


def integers(rng: tf.Tensor, shape: Sequence[int], n: Any) -> tf.Tensor:
    """Return int32 numbers from 0 to n − 1, each equally probable; n ≤ 2^23, the number of float32 fractions."""
    numbers = tf.cast(uniform(rng, shape) * tf.cast(n, tf.float32), tf.int32)
    return tf.minimum(numbers, tf.cast(n, tf.int32) - 1)  # a product may be rounded to n


def split(rng: tf.Tensor, n: int) -> list[tf.Tensor]:
    """Return n seeds of independent numbers."""
    return tf.unstack(tf.random.split(rng, n, alg=ALGORITHM))
