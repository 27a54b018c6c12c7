"""Wrappers of environments with images: repeated actions, smaller and grey images, and stacks of frames."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.envs.observations.flat_spaces import channels_last_order, is_image, is_image_part, n_channels
from xagents.options.errors import OptionError
from xagents.system.trees import leaf_at, leaf_spaces, tree_of

# luma of red, green and blue (ITU-R BT.601)
GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
# numbers of channels of a coloured image, without and with opacity
COLOURED = (3, 4)
# the dtypes, and the channels at a time, that OpenCV resizes
RESIZED_DTYPES = ('uint8', 'uint16', 'int16', 'float32', 'float64')
RESIZED_CHANNELS = 4
STACK_HINT = 'gymnasium.wrappers:FrameStackObservation stack_size=4 stacks vectors, as a --wrapper'


class ImageOptions(NamedTuple):
    """What happens to the images of an environment.

    Attributes:
        frame_stack: number of frames in an image, oldest first.
        grey: whether colours become grey.
        resize: height and width; None to keep the size.
    """

    frame_stack: int = 1
    grey: bool = False
    resize: tuple[int, int] | None = None


class FrameSkip(gymnasium.Wrapper):
    """A wrapper that repeats each action for several steps, sums their rewards, and shows the last observation.

    Args:
        env: the environment.
        size: number of steps; fewer if the episode ends.
    """

    def __init__(self, env: gymnasium.Env, size: int) -> None:
        super().__init__(env)
        self._size = size

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat an action."""
        total = 0.0
        for _ in range(self._size):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class ProcessImages(gymnasium.Wrapper):
    """A wrapper that resizes images, makes them grey and stacks them: the observation, or all images among its parts.

    The channels of an image are its last axis, [H, W, C]. A stack has the shape [H, W, frames x C], oldest frame first;
    a reset fills it with the first frame.

    Args:
        env: the environment.
        options: what happens to images.
        name: name of the environment, for messages.

    Raises:
        OptionError: if the environment has no images, or a package is not installed.
    """

    def __init__(self, env: gymnasium.Env, options: ImageOptions, name: str) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        # plain values, which snapshots of environments contain
        self._n_frames, self._grey, self._size = options.frame_stack, options.grey, options.resize
        is_shown = is_image_part if isinstance(space, spaces.Dict | spaces.Tuple) else is_image
        leaves: Any = leaf_spaces(space)
        self._images = {name_of(path): leaf for path, leaf in leaves if is_shown(leaf)}
        option = next(name for name, value in options._asdict().items() if value != ImageOptions._field_defaults[name])
        if not self._images:
            hint = f'; {STACK_HINT}' if option == 'frame_stack' else ''
            raise OptionError(option, f'{name} has no images [H, W, C], expected an environment with images{hint}')
        if options.grey and not any(n_channels(leaf.shape) in COLOURED for leaf in self._images.values()):
            shapes = ', '.join(str(leaf.shape) for leaf in self._images.values())
            raise OptionError('grey', f'{name} has images of the shape {shapes}, expected 3 or 4 channels of colours')
        if options.resize is not None and importlib.util.find_spec('cv2') is None:
            raise OptionError('resize', "needs an extra: pip install '.[atari]'")
        self._stacks: dict[str, np.ndarray] = {}
        shown = (self._space(leaf) if name_of(path) in self._images else leaf for path, leaf in leaves)
        self.observation_space = as_space(tree_of(space, shown))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and fill the stacks."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._stacks = {}
        return self._process(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and shift the stacks by one frame."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._process(observation), reward, terminated, truncated, info

    def _process(self, observation: Any) -> Any:
        space = self.env.observation_space
        named = ((name_of(path), leaf_at(observation, path)) for path, _ in leaf_spaces(space))
        return tree_of(space, (self._shown(name, leaf) if name in self._images else leaf for name, leaf in named))

    def _shown(self, key: str, image: Any) -> np.ndarray:
        """Return the stack of frames whose newest one is `image`."""
        frame, size = self._frame(self._images[key], np.asarray(image)), self._n_frames
        if size == 1:
            return frame
        if key not in self._stacks:
            self._stacks[key] = np.concatenate([frame] * size, -1)
        else:  # a new array each time, so that earlier observations stay unchanged
            self._stacks[key] = np.concatenate([self._stacks[key][..., frame.shape[-1] :], frame], -1)
        return self._stacks[key]

    def _frame(self, space: spaces.Box, image: np.ndarray) -> np.ndarray:
        """Return one frame [H, W, C]."""
        order = channels_last_order(space.shape)
        frame = image.transpose(order) if order is not None else image
        frame = frame[..., None] if frame.ndim == 2 else frame
        if self._size is not None:
            frame = _resize(frame, *self._size)
        if self._grey and frame.shape[-1] in COLOURED:
            grey = frame[..., :3] @ GREY_WEIGHTS  # a fourth channel is the opacity
            grey = np.rint(grey) if frame.dtype.kind in 'iu' else grey
            frame = grey.astype(frame.dtype)[..., None]
        return frame

    def _space(self, space: spaces.Box) -> spaces.Box:
        shape = self._frame(space, np.zeros(space.shape, space.dtype)).shape
        shape = (*shape[:-1], shape[-1] * self._n_frames)
        bounds: Any = space.low.min(), space.high.max()
        box: Any = spaces.Box
        return box(*bounds, shape, dtype=space.dtype)


def name_of(path: tuple[Any, ...]) -> str:
    """Return the keys and indices of a path as one name; '' for the observation itself."""
    return '.'.join(map(str, path))


def as_space(tree: Any) -> Any:
    """Return nested dicts and tuples of spaces as one space."""
    if isinstance(tree, dict):
        return spaces.Dict({key: as_space(part) for key, part in tree.items()})
    return spaces.Tuple([as_space(part) for part in tree]) if isinstance(tree, tuple) else tree


def _resize(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return an image [H, W, C] in another size; pixels are means over areas."""
    import cv2

    exact = frame if frame.dtype.name in RESIZED_DTYPES else frame.astype(np.float64)
    parts = []
    for start in range(0, frame.shape[-1], RESIZED_CHANNELS):
        part = np.ascontiguousarray(exact[..., start : start + RESIZED_CHANNELS])
        resized = np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA))
        parts.append(resized.reshape(height, width, -1))
    whole = np.concatenate(parts, -1)
    if exact is not frame and frame.dtype.kind != 'f':
        whole = np.rint(whole)
    return whole.astype(frame.dtype, copy=False)
