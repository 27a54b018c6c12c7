"""Conversion of observations and actions between an environment's spaces and the arrays of networks.

`ObservationEncoder` turns each raw observation of a batch into a float32 or uint8 vector or image. `ActionDecoder`
turns the actions that a policy samples into actions of the environment.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.envs.observations.action_masks import MASK_KEY
from xagents.envs.observations.composite import CompositeObservation, ImagePart, vector_of
from xagents.envs.observations.flat_spaces import CHANNELS, channels_last_order, check_parts, flat_bounds, flatten_batch
from xagents.options.errors import OptionError, one_line
from xagents.system.array_functions import functions_for
from xagents.system.trees import leaf_at, leaf_spaces, tree_of


@dataclasses.dataclass(frozen=True)
class Encoding:
    """Options of `ObservationEncoder`.

    Attributes:
        flatten: whether images become vectors.
        mask_key: the key of a Dict observation whose part is an action mask; None if every part is an ordinary one.
        critic_only: the keys of a Dict observation whose parts only critics receive.
    """

    flatten: bool = False
    mask_key: str | None = MASK_KEY
    critic_only: tuple[str, ...] = ()


DEFAULT_ENCODING = Encoding()


class ObservationEncoder:
    """An encoder of batches of raw observations.

    Float32 and uint8 vectors, and images with channels last, stay unchanged.

    - Box: floats (and integers other than uint8) become float32, uint8 stays uint8. An array of three axes is an
      image [H, W, C]; a uint8 greyscale image [H, W] gets a channel axis; an image is transposed if it is clearly
      channel-first, that is, if its first axis is 1, 3 or 4, its last is not, and height and width are greater than 4.
      A uint8 stack [S, H, W, C] becomes [H, W, S x C], oldest frame first. All other arrays are flattened to a vector.
    - Discrete becomes a one-hot vector; MultiDiscrete a one-hot vector for each element; MultiBinary a vector of zeros
      and ones.
    - With `flatten`, images become vectors, too; uint8 vectors stay uint8.
    - Dict and Tuple become the concatenation of their parts, in the order of `gymnasium.spaces.flatten`; uint8
      parts are scaled to [0, 1], as a network scales uint8 observations. Parts for critics follow the other parts. An
      action mask is the last part. Observations may lack the parts for critics, which are then 0. With images and
      without `flatten`, they become bytes (see `xagents.envs.observations.composite`).

    Args:
        space: the observation space of one environment.
        encoding: options.

    Attributes:
        raw_space: the observation space of one environment.
        encoding: the options.
        space: the encoded space, of shape D: a vector, an image [H, W, C], or bytes.
        composite: the parts of a Dict or Tuple; None for other spaces.
        identity: whether encoding leaves observations unchanged.

    Raises:
        ValueError: for a space without a fixed size (Sequence, Graph, Text, OneOf, …), or a mask of another form than 0
            and 1; the message names the space.
    """

    def __init__(self, space: spaces.Space, encoding: Encoding = DEFAULT_ENCODING) -> None:
        self.raw_space, self.encoding = space, encoding
        self._order: tuple[int, ...] | None = None
        self.composite: CompositeObservation | None = None
        self.space: spaces.Box
        if isinstance(space, spaces.Dict | spaces.Tuple):
            self.composite = CompositeObservation(space, encoding.flatten, encoding.mask_key, encoding.critic_only)
            self.space = self.composite.encoded_space
        elif encoding.critic_only:
            got = f'got {encoding.critic_only[0]}, but the observation space is {one_line(space)}'
            raise OptionError('critic_only', f'{got}, expected a Dict')
        elif isinstance(space, spaces.Box):
            self.space = self._image_or_vector(space)
        else:
            self.space = spaces.Box(*flat_bounds(space), dtype=np.float32)
        self._shape, self._dtype = self.space.shape, self.space.dtype
        self._raw_shape = None if self.composite is not None else space.shape
        self.identity = isinstance(space, spaces.Box) and space.shape == self._shape and space.dtype == self._dtype

    @property
    def n_mask(self) -> int:
        """The number of elements of the action mask; 0 without a mask."""
        return 0 if self.composite is None else self.composite.n_mask

    @property
    def n_critic_only(self) -> int:
        """The number of elements of the vector that only critics receive."""
        return 0 if self.composite is None else self.composite.n_critic_only

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images among the parts of a Dict or Tuple; empty with `flatten`."""
        return () if self.composite is None else self.composite.images

    @property
    def n_floats(self) -> int:
        """The number of elements of an encoded vector, or of the vector among bytes."""
        return int(np.prod(self._shape)) if self.composite is None else self.composite.n_floats

    def masks(self, encoded: np.ndarray) -> np.ndarray:
        """Return the action masks [N, K] of encoded observations [N, *D] that have masks."""
        return vector_of(encoded, self.n_floats)[:, -self.n_mask :]

    def is_single(self, observations: Any) -> bool:
        """Return whether an observation belongs to one environment, without a batch axis."""
        return is_single(self._present_space(observations), observations)

    def as_batch(self, observation: Any) -> Any:
        """Return one observation as a batch of size 1. Raise ValueError if it lacks a part."""
        return as_batch(self._present_space(observation), observation)

    def _present_space(self, observation: Any) -> spaces.Space:
        return self.raw_space if self.composite is None else self.composite.present_space(observation)

    def _image_or_vector(self, space: spaces.Box) -> spaces.Box:
        """Return the encoded space of a Box, and store the order of its axes."""
        dtype: Any = np.uint8 if space.dtype == np.uint8 else np.float32
        shape = space.shape
        low, high = space.low.astype(dtype), space.high.astype(dtype)
        if self.encoding.flatten:
            low, high = low.reshape(-1), high.reshape(-1)
        elif len(shape) == 3:
            if (order := channels_last_order(shape)) is not None:
                self._order = (0, *(axis + 1 for axis in order))
                low, high = (bound.transpose(order) for bound in (low, high))
        elif len(shape) == 2 and dtype is np.uint8:
            low, high = low[..., None], high[..., None]
        elif len(shape) == 4 and dtype is np.uint8 and shape[-1] in CHANNELS:
            self._order = (0, 2, 3, 1, 4)
            low, high = (np.moveaxis(b, 0, 2).reshape(*shape[1:3], -1) for b in (low, high))
        else:
            low, high = low.reshape(-1), high.reshape(-1)
        return spaces.Box(low, high, dtype=dtype)

    def __call__(self, observations: Any) -> np.ndarray:
        """Encode a batch.

        Args:
            observations: raw observations [N, …] of any N, batched as in Gymnasium's vector environments or as a list
                of N; or encoded observations [N, *D], if D is not the raw shape.

        Returns:
            the encoded observations, float32 or uint8 [N, *D]; the same array if encoding changes nothing.

        Raises:
            ValueError: for a shape of neither raw nor encoded observations.
        """
        if self.identity and type(observations) is np.ndarray and observations.dtype == self._dtype:
            if observations.shape[1:] != self._shape or not observations.ndim:
                raise self._wrong_shape(observations.shape)
            return observations
        if self._raw_shape is None:
            return self._composite(observations)
        array = np.asarray(observations)
        shape = array.shape[1:] if array.ndim else None
        if shape == self._raw_shape:
            return self._encode(array)
        if shape == self._shape:
            return np.ascontiguousarray(array, self._dtype)
        raise self._wrong_shape(array.shape)

    def _encode(self, array: np.ndarray) -> np.ndarray:
        if isinstance(self.raw_space, spaces.Box):
            if self._order is not None:
                array = array.transpose(self._order)
            return np.ascontiguousarray(array, self._dtype).reshape(len(array), *self._shape)
        return flatten_batch(self.raw_space, array)

    def _composite(self, observations: Any) -> np.ndarray:
        """Encode a batch of Dict or Tuple observations; encoded observations stay unchanged."""
        assert self.composite is not None
        if isinstance(observations, np.ndarray) and observations.dtype != object:
            if observations.shape[1:] == self._shape and observations.ndim:
                return np.ascontiguousarray(observations, self._dtype)
            raise self._wrong_shape(observations.shape)
        return self.composite.encode(observations)

    def slices(self) -> dict[Any, slice]:
        """Return the slice of the encoded vector for each part of a Dict or Tuple, by the part's key."""
        return {} if self.composite is None else self.composite.slices()

    def _wrong_shape(self, shape: tuple[int, ...]) -> ValueError:
        shapes = [self._shape, *([] if self._raw_shape in (None, self._shape) else [self._raw_shape])]
        one = f'{_shape_text(*shapes[-1])} for one observation, ' if shapes[-1] else ''
        batches = ' or '.join(_shape_text('N', *(one or ())) for one in shapes)
        return ValueError(f'observations have the shape {_shape_text(*shape)}; expected {one}{batches} for N')


def _shape_text(*sizes: int | str) -> str:
    return f'[{", ".join(map(str, sizes))}]'


class ActionDecoder:
    """A decoder of a policy's actions to environment actions.

    - Discrete: the policy's index [N], plus the space's start.
    - MultiDiscrete: indices [N, k], reshaped, plus the starts. MultiBinary: zeros and ones [N, k], reshaped.
    - Box: elements with finite bounds are clipped to [-1, 1] and mapped affinely to [low, high]. Elements with an
      infinite bound are clipped to the finite bound, if there is one, and otherwise stay unchanged. Rounding never
      leaves the bounds.
    - Dict and Tuple: the concatenated policy actions of all leaves, float32 [N, k], become a dict or a tuple of arrays.

    Attributes:
        space: the action space of one environment.
        n_actions: the number of actions of a Discrete space; otherwise the length of the flattened action.
        action_spec: the shape and dtype of a policy's action for one environment.

    Raises:
        ValueError: for any other space; the message names the space.
    """

    def __init__(self, space: spaces.Space) -> None:
        self.space = space
        if isinstance(space, spaces.Discrete):
            self.n_actions, self._start = int(space.n), space.start
            self._decode = self._index
        elif isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
            self.n_actions = int(np.prod(space.shape))
            self._start = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(space.shape, space.dtype)
            self._decode = self._indices
        elif isinstance(space, spaces.Box):
            self.n_actions = int(np.prod(space.shape))
            self._decode = self._box
            self._prepare_box(space)
        elif isinstance(space, spaces.Dict | spaces.Tuple) and leaf_spaces(space):
            self._leaves = [(path, ActionDecoder(leaf)) for path, leaf in leaf_spaces(space)]
            self._ends = np.cumsum([leaf.size for _, leaf in self._leaves]).tolist()
            self.n_actions = self._ends[-1]
            self._decode = self._tree
        else:
            expected = 'Discrete, MultiDiscrete, MultiBinary, Box, and Dicts and Tuples of them'
            raise ValueError(f'the action space is {one_line(space)}; expected {expected}')
        self._dtype = space.dtype
        self._shape: tuple[int, ...] = space.shape or ()
        shape = () if isinstance(space, spaces.Discrete) else (self.n_actions,)
        has_floats = isinstance(space, spaces.Box | spaces.Dict | spaces.Tuple)
        self.action_spec: tuple[Any, Any] = (shape, np.float32 if has_floats else np.int32)

    @property
    def size(self) -> int:
        """The number of elements of a policy action."""
        return self.n_actions if self.action_spec[0] else 1

    def __call__(self, policy_actions: Any) -> Any:
        """Decode policy actions, int [N] for Discrete and otherwise [N, k], to [N, *shape] in the space's dtype.

        For Discrete the result is the argument itself if its dtype is right and start is 0. For Dict and Tuple it is a
        dict or tuple of arrays. Tensors become tensors.
        """
        return self._decode(policy_actions)

    def inverse(self, actions: Any) -> np.ndarray:
        """Return the policy actions, int32 [N] or int32 or float32 [N, k], for environment actions [N, …]."""
        if isinstance(self.space, spaces.Dict | spaces.Tuple):
            columns = [leaf.inverse(leaf_at(actions, path)) for path, leaf in self._leaves]
            return np.concatenate([column.reshape(len(column), -1) for column in columns], 1, dtype=np.float32)
        actions = np.asarray(actions)
        if isinstance(self.space, spaces.Discrete):
            return (actions - self._start).astype(np.int32)
        if not isinstance(self.space, spaces.Box):
            return (actions - self._start).reshape(len(actions), -1).astype(np.int32)
        scaled = (actions - self._middle) / np.where(self._half, self._half, 1.0)
        return scaled.reshape(len(actions), -1).astype(np.float32)

    def _tree(self, actions: Any) -> Any:
        xp = functions_for(actions)
        columns = xp.split(xp.asarray(actions, np.float32), self._ends[:-1], 1)
        decoded = []
        for (_, leaf), own in zip(self._leaves, columns, strict=True):
            shape, dtype = leaf.action_spec
            decoded.append(leaf(xp.astype(xp.reshape(own, (own.shape[0], *shape)), dtype, copy=False)))
        return tree_of(self.space, iter(decoded))

    def _index(self, actions: Any) -> np.ndarray:
        if type(actions) is not np.ndarray or actions.dtype != self._dtype:
            actions = functions_for(actions).asarray(actions, self._dtype)
        return actions + self._start if self._start else actions

    def _indices(self, actions: Any) -> np.ndarray:
        xp = functions_for(actions)
        indices = xp.asarray(actions, self._dtype)
        return xp.reshape(indices, (indices.shape[0], *self._shape)) + self._start

    def _prepare_box(self, space: spaces.Box) -> None:
        # Halve before subtracting: high - low would overflow for bounds near the largest float.
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._finite = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(self._finite, low, -1.0), np.where(self._finite, high, 1.0)
        self._half, self._middle = high / 2 - low / 2, high / 2 + low / 2
        self._policy_low = np.where(self._finite, -1.0, -np.inf)
        self._policy_high = np.where(self._finite, 1.0, np.inf)
        self._integer = np.issubdtype(space.dtype, np.integer)
        self._low, self._high = space.low, space.high

    def _box(self, actions: Any) -> np.ndarray:
        xp = functions_for(actions)
        actions = xp.asarray(actions, np.float64)
        shaped = xp.reshape(actions, (actions.shape[0], *self._shape))
        scaled = xp.clip(shaped, self._policy_low, self._policy_high) * self._half + self._middle
        decoded = xp.astype(xp.rint(scaled) if self._integer else scaled, self._dtype)
        return xp.clip(decoded, self._low, self._high)


def is_single(space: spaces.Space, observations: Any) -> bool:
    """Return whether an observation belongs to one environment, without a batch axis."""
    if isinstance(space, spaces.Dict | spaces.Tuple) and isinstance(observations, list | np.ndarray):
        return False  # a batch of N, or encoded observations
    check_parts(space, observations)
    if isinstance(space, spaces.Dict):
        return any(is_single(part, observations[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return any(is_single(part, one) for part, one in zip(space.spaces, observations, strict=True))
    return np.shape(observations) == (space.shape or ())


def as_batch(space: spaces.Space, observation: Any) -> Any:
    """Return one observation as a batch of size 1. Raise ValueError if it lacks a part."""
    check_parts(space, observation)
    if isinstance(space, spaces.Dict):
        return {key: as_batch(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_batch(part, one) for part, one in zip(space.spaces, observation, strict=True))
    return np.asarray(observation)[None]


def describe_space(space: spaces.Space) -> str:
    """Return a space in short form, without its bounds, such as `Box(84, 84, 4) uint8`."""
    if isinstance(space, spaces.Box):
        return f'Box{space.shape} {space.dtype}'
    if isinstance(space, spaces.Dict):
        return f'Dict({", ".join(f"{key}: {describe_space(part)}" for key, part in space.spaces.items())})'
    if isinstance(space, spaces.Tuple):
        return f'Tuple({", ".join(map(describe_space, space.spaces))})'
    return ' '.join(str(space).split())
