"""A functional environment as an environment of Gymnasium, for evaluations, videos and other libraries."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any

import gymnasium
import numpy as np

from xagents.envs.functional.interface import FunctionalEnv


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
        self.metadata = {'render_modes': modes, **functional.metadata}
        self.observation_space, self.action_space = functional.observation_space, functional.action_space
        self.state: dict[str, Any] | None = None  # of a vector of one environment; None before the first reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        with _LOCK:
            vector = self._vector()
            observations, _ = vector.reset(seed=int(self.np_random.integers(2**31)))
            self.state = vector.get_state()
        return _first(observations), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        with _LOCK:
            vector = self._vector()
            observations, rewards, terminated, _, infos = vector.step(_batch(action))
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
        vector = _vector_of(self.functional)
        vector.set_state(self.state or {'leaves': None, 'params': self.functional.params})
        return vector


# Programs are no part of the state of an environment, which a checkpoint copies. The lock serialises their use.
_VECTORS: dict[Any, Any] = {}
_LOCK = threading.RLock()


def _vector_of(functional: FunctionalEnv) -> Any:
    """Return the vector that executes the functions; it loads TensorFlow.

    Environments of a class with equal attributes share one, because parameters are arguments of its programs.
    """
    own = {name: value for name, value in vars(functional).items() if name != 'params'}
    simple = all(isinstance(value, int | float | str | None) for value in own.values())
    key = (type(functional), *sorted(own.items())) if simple else id(functional)
    if key not in _VECTORS:
        from xagents.envs.functional.vector import FunctionalVectorEnv

        vector = _VECTORS[key] = FunctionalVectorEnv(functional, 1, None)
        if functional.has_info:
            vector.select_infos(vector.all_infos)
        if not simple:
            weakref.finalize(functional, _VECTORS.pop, key, None)
    return _VECTORS[key]


def _first(nest: Any) -> Any:
    """Return the arrays of a nest without their first axis, of size 1."""
    if isinstance(nest, dict):
        return {name: _first(part) for name, part in nest.items()}
    if isinstance(nest, tuple | list):
        parts = list(map(_first, nest))
        return type(nest)(*parts) if hasattr(nest, '_fields') else type(nest)(parts)
    return np.array(nest[0])


def _batch(action: Any) -> Any:
    """Return an action as a batch of size 1."""
    if isinstance(action, dict):
        return {name: _batch(part) for name, part in action.items()}
    return tuple(map(_batch, action)) if isinstance(action, tuple) else np.asarray(action)[None]


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
