"""Stacks of frames in observations, of which a ring stores each frame once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ByteImage(NamedTuple):
    """A stack of frames among the bytes of an observation.

    Attributes:
        start: the index of its first byte.
        n_pixels: height times width.
        pixel_bytes: number of bytes of one pixel of one frame.
    """

    start: int
    n_pixels: int
    pixel_bytes: int


class StackedFrames:
    """Stacks of S frames in images [H, W, S x C], oldest frame first; or in images among bytes [D].

    Args:
        shape: shape of an observation.
        size: S.
        images: the images among bytes, all of which are stacks; empty if the observation is an image.

    Attributes:
        stored_shape: shape of the part of an observation that is stored: an image without its older frames, [H, W] if
            C is 1; or the bytes of everything but older frames.

    Raises:
        ValueError: if the observations are not stacks of S frames.
    """

    def __init__(self, shape: tuple[int, ...], size: int, images: Sequence[ByteImage] = ()):
        self.size = size
        if not images and (len(shape) != 3 or shape[-1] % size):
            raise ValueError(f'observations: got the shape {shape}, expected [H, W, {size}]')
        n = int(np.prod(shape))
        if images:
            places = [
                image.start + np.arange(image.n_pixels * size * image.pixel_bytes).reshape(image.n_pixels, size, -1)
                for image in images
            ]
        else:
            places = [np.arange(n).reshape(-1, size, shape[-1] // size)]
        # the elements of each frame, [S, elements], oldest frame first
        self._frames = np.stack([np.concatenate([part[:, j].ravel() for part in places]) for j in range(size)])
        rest = np.setdiff1d(np.arange(n), self._frames)
        self._n_rest = len(rest)
        self._stored = np.concatenate([rest, self._frames[-1]])
        self._is_image, self._channels = not images, shape[-1] // size
        image_shape = shape[:-1] if self._channels == 1 else (*shape[:-1], self._channels)
        self.stored_shape = image_shape if self._is_image else (len(self._stored),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StackedFrames) and np.array_equal(self._frames, other._frames)

    def newest(self, observations: np.ndarray) -> np.ndarray:
        """Return the parts of observations [..., *D] that are stored."""
        if not self._is_image:
            return observations[..., self._stored]
        return observations[..., -1] if self._channels == 1 else observations[..., -self._channels :]

    def repeats_one(self, observation: np.ndarray) -> bool:
        """Return whether all frames of an observation are equal, as after a reset."""
        frames = observation.reshape(-1)[self._frames]
        return bool((frames == frames[-1]).all())

    def continues(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether the older frames of an observation are the newer ones of the observation before."""
        older, newer = after.reshape(-1)[self._frames[:-1]], before.reshape(-1)[self._frames[1:]]
        return np.array_equal(older, newer)

    def write(self, out: np.ndarray, j: int, stored: np.ndarray) -> None:
        """Write frame j of observations `out` [B, *D] from the parts that were stored with this frame, [B, …].

        The newest frame, j = S - 1, also brings everything that is no frame.
        """
        if not self._is_image:
            newest = j == self.size - 1
            out[:, self._stored if newest else self._frames[j]] = stored if newest else stored[:, self._n_rest :]
        elif self._channels == 1:
            out[..., j] = stored
        else:
            out[..., j * self._channels : (j + 1) * self._channels] = stored
