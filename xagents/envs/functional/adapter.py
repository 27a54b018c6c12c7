"""A functional environment as an environment of Gymnasium, for evaluations, videos and other libraries."""

from __future__ import annotations

import collections
import dataclasses
import pickle
import threading
import weakref
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.envs.functional.interface import FunctionalEnv
from xagents.envs.snapshots.attributes import ConstantPart


class FunctionalAdapter(gymnasium.Env):
    """One environment of a `FunctionalEnv`. The time limit is that of Gymnasium's wrapper, not of this class.

    Args:
        functional: the functions.
        render_mode: 'rgb_array', or None for no frames.

    Raises:
        ValueError: for another render mode, or if the functions draw no frames.
    """

    def __init__(self, functional: FunctionalEnv, render_mode: str | None = None) -> None:
        modes = ['rgb_array'] if functional.can_render else []
        if render_mode not in (None, *modes):
            expected = ', '.join(modes) or 'none, because the environment has no method render'
            raise ValueError(f'render_mode: got {render_mode!r}, expected {expected}')
        self.functional, self.render_mode = functional, render_mode
        self.metadata = {**functional.metadata, 'render_modes': modes}
        self.observation_space, self.action_space = functional.observation_space, functional.action_space
        self.state: dict[str, Any] | None = None  # of a vector of one environment; None before the first reset
        self.programs = _Programs()

    def check(self) -> None:
        """Check what the functions return.

        Raises:
            OptionError: for a result of another shape or type, in one line.
        """
        with _LOCK:
            self._vector().check()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        with _LOCK:
            self.programs.vector_of(self.functional)  # its attributes may have changed
            vector = self._vector()
            observations, _ = vector.reset(seed=int(self.np_random.integers(2**31)))
            self.state = vector.get_state()
        return _first(observations), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        with _LOCK:
            vector = self._vector()
            observations, rewards, terminated, _, infos = vector.step(_batch(self.action_space, action))
            # also after the end of an episode, a step is a step: the wrappers of Gymnasium ask for a reset
            vector.batch = vector.batch._replace(ended=np.zeros(1, bool))
            self.state = vector.get_state()
        info = {name: float(x[0]) for name, x in infos.items()}
        return _first(observations), float(rewards[0]), bool(terminated[0]), False, info

    def set_params(self, **params: Any) -> None:
        """Change parameters from the next step on; see `FunctionalVectorEnv.set_params`."""
        with _LOCK:
            vector = self._vector()
            vector.set_params(**params)
            self.state = vector.get_state()

    def render(self) -> Any:
        """Return a frame, uint8 [H, W, 3], if the render mode is 'rgb_array'."""
        if self.render_mode is None:
            return None
        with _LOCK:
            vector = self._vector()
            return self.functional.render(_first(vector.batch.env), vector.params)

    def _vector(self) -> Any:
        """Return a vector of one environment in the present state, without time limit."""
        vector = self.programs.vector
        if vector is None:
            vector = self.programs.vector_of(self.functional)
        vector.set_state(self.state or {'leaves': None, 'params': self.functional.params})
        return vector


# the vectors by the classes and attributes of their functions; the last ones stay for environments that are made again
_VECTORS: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_LAST: collections.deque[Any] = collections.deque(maxlen=16)
_LOCK = threading.RLock()  # serialises the use of a vector by several adapters


class _Programs(ConstantPart):
    """The vector that executes the functions of an adapter; no part of its state, which a checkpoint copies."""

    def __init__(self) -> None:
        self.attributes: bytes | None = None  # of the functions of the vector
        self.vector: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Programs:
        return self

    def __reduce__(self) -> tuple[type[_Programs], tuple[()]]:
        return _Programs, ()

    def vector_of(self, functional: FunctionalEnv) -> Any:
        """Return the vector; the first call loads TensorFlow.

        Environments of a class with equal attributes share one, because parameters are arguments of its programs.
        """
        attributes = _pickled({name: value for name, value in vars(functional).items() if name != 'params'})
        if self.vector is None or attributes != self.attributes:
            key = type(functional), attributes
            vector = None if attributes is None else _VECTORS.get(key)
            if vector is None:
                vector = _make_vector(functional)
                if attributes is not None:
                    _VECTORS[key] = vector
                    _LAST.append(vector)
            self.attributes, self.vector = attributes, vector
        return self.vector


def _make_vector(functional: FunctionalEnv) -> Any:
    """Return a vector of one environment without time limit."""
    from xagents.envs.functional.vector import FunctionalVectorEnv

    vector = FunctionalVectorEnv(functional, 1, None)
    if functional.has_info:
        vector.select_infos(vector.all_infos)
    return vector


def _pickled(value: Any) -> bytes | None:
    """Return the value as bytes; None if that is not possible."""
    try:
        return pickle.dumps(value)
    except Exception:  # classes raise errors of any kind
        return None


def _first(nest: Any) -> Any:
    """Return the arrays of a nest without their first axis, of size 1."""
    if isinstance(nest, dict):
        return {name: _first(part) for name, part in nest.items()}
    if isinstance(nest, tuple | list):
        parts = list(map(_first, nest))
        return type(nest)(*parts) if hasattr(nest, '_fields') else type(nest)(parts)
    return np.array(nest[0])


def _batch(space: spaces.Space, action: Any) -> Any:
    """Return an action as a batch of size 1 with the dtypes of the space."""
    if isinstance(space, spaces.Dict):
        return {name: _batch(part, action[name]) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(_batch, space.spaces, action))
    return np.asarray(action, space.dtype)[None]


@dataclasses.dataclass(frozen=True)
class FunctionalMaker:
    """A function that makes an adapter of the class `functional`, with values of its parameters as arguments."""

    functional: type[FunctionalEnv]

    def __call__(self, render_mode: str | None = None, **params: Any) -> FunctionalAdapter:
        """Make the adapter."""
        return FunctionalAdapter(self.functional(**params), render_mode)


def register(id: str, functional: type[FunctionalEnv], **kwargs: Any) -> None:
    """Register functions under an id of Gymnasium, so that `gymnasium.make(id)` makes an adapter.

    Args:
        id: the id, such as 'Queue-v0'.
        functional: the class.
        kwargs: further arguments of `gymnasium.register`, such as `reward_threshold`.
    """
    gymnasium.register(id, FunctionalMaker(functional), **{'max_episode_steps': functional.max_episode_steps, **kwargs})
