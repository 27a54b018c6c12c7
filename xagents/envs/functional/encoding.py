"""Encoding of observations within compiled programs, equal to that of `ObservationEncoder`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.spaces import ObservationEncoder
from xagents.system.trees import leaf_at


def can_encode(encoder: ObservationEncoder) -> bool:
    """Return whether `encode` supports the observations of an encoder."""
    if encoder.identity or isinstance(encoder.raw_space, spaces.Discrete):
        return True
    if encoder.composite is None:
        return isinstance(encoder.raw_space, spaces.Box) and len(encoder.space.shape) == 1
    leaves = [leaf for _, leaf in encoder.composite.leaves]
    return not encoder.images and all(isinstance(x, spaces.Box | spaces.Discrete | spaces.MultiBinary) for x in leaves)


def encode(encoder: ObservationEncoder, observations: Any) -> tf.Tensor:
    """Return the encoded observations [N, *D] of a batch."""
    if encoder.identity:
        return observations
    if encoder.composite is None:
        flat = _flat(encoder.raw_space, observations, encoder.space.dtype != np.uint8)
        return tf.cast(flat, encoder.space.dtype)
    leaves = encoder.composite.leaves
    return tf.concat([_flat(leaf, leaf_at(observations, path)) for path, leaf in leaves], 1)


@functools.singledispatch
def _flat(space: Any, x: tf.Tensor, scale_bytes: bool = True) -> tf.Tensor:
    """Return [N, …] as vectors [N, n]; see `flatten_batch`."""
    scaled = x.dtype == tf.uint8 and scale_bytes
    flat = tf.reshape(x, (x.shape[0], -1))
    if not scale_bytes:
        return flat
    return tf.cast(flat, tf.float32) / (255.0 if scaled else 1.0)


@_flat.register
def _(space: spaces.Discrete, x: tf.Tensor, scale_bytes: bool = True) -> tf.Tensor:
    return tf.one_hot(tf.cast(x, tf.int32) - int(space.start), int(space.n))
