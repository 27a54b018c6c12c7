"""Spaces as vectors and images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.envs.packages import package_of_module
from xagents.options.errors import one_line

# The possible numbers of an image's channels; they distinguish the channel axis from height and width.
CHANNELS = (1, 3, 4)


def flat_bounds(space: spaces.Space, name: str = '') -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds, float32 [d], of a flattened space, neither Dict nor Tuple.

    Args:
        space: the space.
        name: the keys that lead to the space, for messages.

    Raises:
        ValueError: for a space that cannot be flattened.
    """
    if isinstance(space, spaces.Box):
        low, high = (bound.astype(np.float32).reshape(-1) * byte_scale(space) for bound in (space.low, space.high))
        return low, high
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        size = spaces.flatdim(space)
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    expected = 'expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them'
    kind = type(space).__name__
    raise ValueError(f'the observation space{name} is a {kind}; {expected}: {_wrapper_hint(space)}')


def _wrapper_hint(space: spaces.Space) -> str:
    """Return which wrappers convert an unsupported space, as a clause for a message."""
    package = package_of_module(type(space).__module__)
    text = 'gymnasium.wrappers:FlattenObservation' if isinstance(space, spaces.Text) else ''
    known = (package.wrapper if package is not None else '') or text
    own = 'remove or convert it by a wrapper of your own, --wrapper module:Class'
    return f'use --wrapper {known}' if known else own


def byte_scale(space: spaces.Space) -> np.float32:
    """Return the factor of a part of a Dict or Tuple: 1/255 for uint8, otherwise 1.

    This is a factor and no divisor, because TensorFlow turns division into multiplication; the last bit may differ.
    """
    return np.float32(1 / 255 if isinstance(space, spaces.Box) and space.dtype == np.uint8 else 1)


def flatten_batch(space: spaces.Space, batch: Any) -> np.ndarray:
    """Return a batch of a space, neither Dict nor Tuple, as float32 vectors [N, d]."""
    values = np.asarray(batch)
    values = values.reshape(len(values), -1)
    if isinstance(space, spaces.Discrete):
        sizes, start = np.array([space.n]), np.array([space.start])
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, start = space.nvec.reshape(-1), space.start.reshape(-1)
    else:
        return values.astype(np.float32) * byte_scale(space)
    columns = values.astype(np.int64) - start.astype(np.int64)  # unsigned integers would become floats
    if columns.size and (columns.min() < 0 or (columns >= sizes).any()):
        raise ValueError(f'an observation is outside its space {one_line(space)}')
    ends = np.cumsum(sizes, dtype=np.int64)
    one_hot = np.zeros((len(values), ends[-1]), np.float32)
    one_hot[np.arange(len(values))[:, None], columns + ends - sizes] = 1
    return one_hot


def check_parts(space: spaces.Space, observation: Any) -> None:
    """Raise ValueError if a Dict or Tuple observation, or a batch of them, lacks a part."""
    if isinstance(space, spaces.Dict):
        keys = observation.keys() if isinstance(observation, Mapping) else ()
        if lacking := [key for key in space.spaces if key not in keys]:
            got = f'the parts {", ".join(map(str, keys))}' if keys else f'a {type(observation).__name__} without parts'
            raise ValueError(f'an observation lacks {", ".join(map(str, lacking))}: got {got}')
        for key, part in space.spaces.items():
            check_parts(part, observation[key])
    elif isinstance(space, spaces.Tuple):
        if len(observation) != len(space.spaces):
            raise ValueError(f'an observation has {len(observation)} parts, expected {len(space.spaces)}')
        for part, one in zip(space.spaces, observation, strict=True):
            check_parts(part, one)


def is_image(space: spaces.Space) -> bool:
    """Return whether a space is that of an image: [H, W, C], [C, H, W], or bytes [H, W]."""
    if not isinstance(space, spaces.Box):
        return False
    return len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)


def is_image_part(space: spaces.Space) -> bool:
    """Return whether a part of a Dict or Tuple is an image: bytes, or floats with 1, 3 or 4 channels.

    Small integers of three axes, such as the planes of a board, are no image.
    """
    if not (isinstance(space, spaces.Box) and is_image(space)):
        return False
    return space.dtype == np.uint8 or (space.dtype.kind == 'f' and n_channels(space.shape) in CHANNELS)


def n_channels(shape: tuple[int, ...]) -> int:
    """Return the number of channels of images of a shape: [H, W, C], [C, H, W] or [H, W]."""
    if len(shape) == 2:
        return 1
    return shape[-1] if channels_last_order(shape) is None else shape[0]


def channels_last_order(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of axes that moves channels to the end, or None if an image has them there."""
    is_first = len(shape) == 3 and shape[0] in CHANNELS and shape[-1] not in CHANNELS
    return (1, 2, 0) if is_first and min(shape[1:]) > max(CHANNELS) else None
