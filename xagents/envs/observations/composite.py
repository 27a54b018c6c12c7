"""Encoding of Dict and Tuple observations as one array: a vector, or the bytes of a vector and of images.

The vector contains the parts that are no images, in the order of `gymnasium.spaces.flatten`, then the parts that only
critics receive, then the action mask. Without images, the encoded observation is the vector, float32. With images, it
is int8: the bytes of the vector, followed by those of each image [H, W, C].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from xagents.envs.observations.action_masks import mask_size
from xagents.envs.observations.flat_spaces import (
    channels_last_order,
    check_parts,
    flat_bounds,
    flatten_batch,
    is_image_part,
)
from xagents.options.errors import OptionError, did_you_mean, one_line
from xagents.system.trees import leaf_at, leaf_spaces

# the name of the vector among the parts of an observation with images
VECTOR = 'vector'
# a row of bytes is a multiple of the size of a float32
ROW_BYTES = 4


class ImagePart(NamedTuple):
    """An image of a Dict or Tuple observation, as a part of the encoded bytes.

    Attributes:
        name: the keys and indices that lead to the image, joined by dots.
        path: these keys and indices.
        space: the space of the image in the environment.
        shape: height, width and channels.
        dtype: uint8 or float32.
        start: the index of the first byte.
        critic_only: whether only critics receive the image.
    """

    name: str
    path: tuple[Any, ...]
    space: spaces.Box
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    critic_only: bool

    @property
    def n_bytes(self) -> int:
        """The number of bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def encode(self, batch: np.ndarray) -> np.ndarray:
        """Return images [N, …] of the environment as [N, H, W, C]."""
        order = channels_last_order(self.space.shape)
        batch = batch if order is None else batch.transpose(0, *(axis + 1 for axis in order))
        return np.ascontiguousarray(batch, self.dtype).reshape(len(batch), *self.shape)


class CompositeObservation:
    """The parts of a Dict or Tuple observation, and their places in the encoded array.

    Args:
        space: the observation space.
        flatten: whether images are parts of the vector, scaled to [0, 1] if they consist of bytes.
        mask_key: the key of the action mask, if there is one.
        critic_only: the keys of the parts that only critics receive.

    Attributes:
        leaves: the path and the space of each part of the vector, in order; the mask is MultiBinary.
        images: the images.
        n_floats: the number of elements of the vector.
        n_critic_only: the number of elements of the vector that only critics receive.
        n_mask: the number of elements of the action mask; 0 without a mask.
        encoded_space: the space of the encoded array.
    """

    def __init__(self, space: spaces.Space, flatten: bool, mask_key: str | None, critic_only: tuple[str, ...]):
        self.space, self.critic_only = space, critic_only
        self._raw_leaves = leaf_spaces(space)
        has_mask = isinstance(space, spaces.Dict) and mask_key in space.spaces
        self.n_mask = mask_size(cast(spaces.Dict, space), str(mask_key)) if has_mask else 0
        self._check_critic_only([mask_key] if has_mask else [])
        keys = list(dict.fromkeys(path[0] for path, _ in leaf_spaces(space)))
        last = [*critic_only, *([mask_key] if has_mask else [])]
        order = [*(key for key in keys if key not in last), *last]
        leaves = sorted(leaf_spaces(space), key=lambda leaf: order.index(leaf[0][0]))  # a stable sort
        vector = [leaf for leaf in leaves if flatten or not is_image_part(leaf[1]) or leaf[0][:1] == (mask_key,)]
        pictures = [leaf for leaf in leaves if leaf not in vector]
        self.leaves = [
            (path, spaces.MultiBinary(self.n_mask) if path == (mask_key,) else leaf) for path, leaf in vector
        ]
        if not leaves:
            raise ValueError(f'the observation space {space} is empty')
        bounds = [flat_bounds(leaf, ''.join(f'[{key!r}]' for key in path)) for path, leaf in self.leaves]
        self._sizes = [len(low) for low, _ in bounds]
        self.n_floats = sum(self._sizes)
        pairs = zip(self.leaves, self._sizes, strict=True)
        self.n_critic_only = sum(size for (path, _), size in pairs if path[0] in critic_only)
        self.images = self._place_images(pictures)
        self.encoded_space: spaces.Box
        if self.images:
            end = self.images[-1].start + self.images[-1].n_bytes
            self.encoded_space = spaces.Box(-128, 127, (-(-end // ROW_BYTES) * ROW_BYTES,), np.int8)
        else:
            low, high = (np.concatenate(parts) for parts in zip(*bounds, strict=True))
            self.encoded_space = spaces.Box(low, high, dtype=np.float32)

    def _check_critic_only(self, others: list[Any]) -> None:
        space, wanted = self.space, self.critic_only
        keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
        known = [str(key) for key in keys if key not in others]
        if unknown := [key for key in wanted if key not in known]:
            expected = f'one or some of its keys {", ".join(known)}' if known else 'a Dict'
            got = f'got {unknown[0]}, but the observation space is {one_line(space)}'
            raise OptionError('critic_only', f'{got}, expected {expected}{did_you_mean(unknown[0], known)}')
        if wanted and len({*wanted}) == len(known):
            raise OptionError('critic_only', f'got all parts of the observation, {", ".join(wanted)}, expected some')

    def _place_images(self, pictures: list[tuple[tuple[Any, ...], Any]]) -> tuple[ImagePart, ...]:
        images: list[ImagePart] = []
        start = 4 * self.n_floats
        if any(path == (VECTOR,) for path, _ in pictures):
            raise ValueError(f'the observation has an image of the name {VECTOR}, which means all other parts')
        for path, space in pictures:
            order = channels_last_order(space.shape)
            shape = space.shape if order is None else tuple(space.shape[axis] for axis in order)
            shape = (*shape, 1) if len(shape) == 2 else shape
            dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
            name, hidden = '.'.join(map(str, path)), path[0] in self.critic_only
            images.append(ImagePart(name, path, space, shape, dtype, start, hidden))
            start += -(-images[-1].n_bytes // ROW_BYTES) * ROW_BYTES
        return tuple(images)

    def slices(self) -> dict[Any, slice]:
        """Return the slice of the vector for each key or index of the observation."""
        found: dict[Any, slice] = {}
        start = 0
        for (path, _), size in zip(self.leaves, self._sizes, strict=True):
            found[path[0]] = slice(found[path[0]].start if path[0] in found else start, start + size)
            start += size
        return found

    def present_space(self, observation: Any) -> spaces.Space:
        """Return the space without the parts for critics that an observation, or a batch, lacks."""
        if not (isinstance(observation, Mapping) and self.critic_only):
            return self.space
        lacking = [key for key in self.critic_only if key not in observation]
        kept = {key: part for key, part in cast(spaces.Dict, self.space).spaces.items() if key not in lacking}
        return spaces.Dict(kept) if lacking else self.space

    def encode(self, observations: Any) -> np.ndarray:
        """Return the encoded array [N, D] of N observations: a batch, or a list of them."""
        if not isinstance(observations, Mapping if isinstance(self.space, spaces.Dict) else tuple):
            space = self.present_space(next(iter(observations), None))
            for one in observations:
                check_parts(space, one)
            empty: Any = create_empty_array(space, n=len(observations))
            observations = concatenate(space, list(observations), empty)
        present = self.present_space(observations)
        check_parts(present, observations)
        is_whole = present is self.space
        leaves = self._raw_leaves if is_whole else leaf_spaces(present)
        given = [path for path, _ in leaves]
        n = len(leaf_at(observations, given[0]))
        for path, leaf in leaves:
            if (shape := np.shape(leaf_at(observations, path))[1:]) != (leaf.shape or ()):
                name = ''.join(f'[{key!r}]' for key in path)
                raise ValueError(f'observation{name} has the shape {list(shape)}, expected {list(leaf.shape or ())}')
        floats = [
            flatten_batch(leaf, leaf_at(observations, path))
            if is_whole or path in given
            else np.zeros((n, size), np.float32)
            for (path, leaf), size in zip(self.leaves, self._sizes, strict=True)
        ]
        if not self.images:
            return np.concatenate(floats, 1)
        encoded = np.zeros((n, *self.encoded_space.shape), np.int8)
        if floats:
            np.concatenate(floats, 1, out=encoded[:, : 4 * self.n_floats].view(np.float32))
        for image in self.images:
            if is_whole or image.path in given:
                pixels = image.encode(np.asarray(leaf_at(observations, image.path)))
                encoded[:, image.start : image.start + image.n_bytes] = pixels.reshape(n, -1).view(np.int8)
        return encoded


def vector_of(observations: np.ndarray, n_floats: int) -> np.ndarray:
    """Return the vectors [..., n_floats] of encoded observations [..., D], as a view."""
    if observations.dtype != np.int8:
        return observations
    return observations[..., : 4 * n_floats].view(np.float32)
