"""Action masks: which actions are legal, as a part of an observation or of an info.

A mask is a vector of 0 and 1 with an element for each action of a Discrete space, or for each value of each element of
a MultiDiscrete action. 1 marks a legal action.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.options.errors import OptionError, one_line

# the key of action masks in observations and infos
MASK_KEY = 'action_mask'
# the value of --mask-key for observations whose parts are all ordinary
NO_MASK = 'none'
MASKS_OFF = f'--mask-key {NO_MASK} turns masks off'


class NoLegalActionError(ValueError):
    """An error about a state in which no action is legal."""

    def __init__(self, env_id: str, env: int, step: int):
        super().__init__(f'{env_id} has no legal action in environment {env} after step {step}: its action mask is 0')


def mask_size(space: spaces.Dict, key: str) -> int:
    """Return the number of elements of an action mask, a part of an observation space.

    Raises:
        ValueError: if the part is not a vector of 0 and 1, or the only part.
    """
    mask = space.spaces[key]
    is_vector = isinstance(mask, spaces.Box | spaces.MultiBinary) and len(mask.shape or ()) == 1
    is_whole = is_vector and mask.dtype is not None and mask.dtype.kind in 'iub'
    is_binary = isinstance(mask, spaces.MultiBinary) or (
        isinstance(mask, spaces.Box) and bool(np.all(mask.low >= 0) and np.all(mask.high <= 1))
    )
    if not (is_whole and is_binary):
        expected = 'expected a vector of 0 and 1, in MultiBinary or in a Box of int8'
        raise ValueError(f'the action mask observation[{key!r}] is {one_line(mask)}; {expected}; {MASKS_OFF}')
    if len(space.spaces) == 1:
        raise ValueError(f'the observation has only the action mask {key!r}, expected more parts; {MASKS_OFF}')
    return int((mask.shape or ())[0])


def mask_problem(action_space: spaces.Space, n_mask: int) -> str:
    """Return why a mask of `n_mask` elements does not fit an action space; '' if it fits."""
    if isinstance(action_space, spaces.Discrete):
        n, of_what = int(action_space.n), 'action'
    elif isinstance(action_space, spaces.MultiDiscrete):
        n, of_what = int(action_space.nvec.sum()), 'value of each element of an action'
    else:
        got = f'has an action mask and actions of {one_line(action_space)}'
        return f'{got}, expected Discrete or MultiDiscrete ones; {MASKS_OFF}'
    got = f'has an action mask of {n_mask} elements'
    return '' if n_mask == n else f'{got}, expected {n}, one for each {of_what}; {MASKS_OFF}'


def mask_ends(action_space: spaces.Space) -> np.ndarray:
    """Return where the mask of each element of a MultiDiscrete action but the last ends; empty for other spaces."""
    nvec: Any = action_space.nvec.ravel() if isinstance(action_space, spaces.MultiDiscrete) else []
    return np.cumsum(nvec, dtype=np.int64)[:-1]


def has_no_legal_action(masks: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return for each of N masks whether no action is legal, bool [N].

    Args:
        masks: [N, K].
        ends: see `mask_ends`.
    """
    return ~np.all([part.any(1) for part in np.split(masks, ends, 1)], 0)


def are_legal(actions: np.ndarray, masks: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return for each of N actions whether its mask admits it, bool [N].

    Args:
        actions: indices of actions [N] or, of several elements, [N, k].
        masks: [N, K].
        ends: see `mask_ends`.
    """
    indices = actions.reshape(len(actions), -1) + np.concatenate([[0], ends]).astype(np.int64)
    return np.asarray(np.take_along_axis(masks != 0, indices, 1).all(1))


def mask_in(observation: Any, key: str | None = MASK_KEY) -> np.ndarray | None:
    """Return the action mask of a raw observation of one environment, [K]; None without a mask."""
    found = observation.get(key) if key is not None and isinstance(observation, dict) else None
    return None if found is None else np.asarray(found)


def is_binary(masks: np.ndarray) -> bool:
    """Return whether all elements of masks of any shape are 0 or 1."""
    return np.array_equal(masks, masks.astype(bool))


def check_masks(masks: np.ndarray, action_space: spaces.Space) -> None:
    """Check the masks [N, K] of observations that somebody passes to a policy.

    Raises:
        ValueError: for other values than 0 and 1, or if no action is legal.
    """
    if not is_binary(masks):
        raise ValueError('observations: got an action mask with other values than 0 and 1')
    if has_no_legal_action(masks, mask_ends(action_space)).any():
        raise ValueError('observations: got an action mask of 0, expected at least one legal action')


def sample_legal(space: spaces.Space, mask: np.ndarray | None) -> Any:
    """Return a random action of a space; with a mask, a legal one."""
    if mask is None or not mask.any():
        return space.sample()
    legal: Any = mask.astype(np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        nvec = space.nvec.ravel()
        parts = np.split(legal, np.cumsum(nvec)[:-1])
        flat = spaces.MultiDiscrete(nvec, seed=space.np_random)
        return (flat.sample(mask=tuple(parts)).reshape(space.shape) + space.start).astype(space.dtype)
    return np.asarray(space.sample(mask=legal))


def with_info_mask(env: gymnasium.Env, key: str | None) -> gymnasium.Env:
    """Return an environment whose observations contain the action mask if its infos do.

    Only a reset shows whether infos contain a mask.
    """
    observations = env.observation_space
    if key is None or (isinstance(observations, spaces.Dict) and key in observations.spaces):
        return env
    try:
        _, info = env.reset(seed=0)
    except OptionError:
        raise
    except Exception:  # the first reset of the run raises it
        return env
    if info.get(key) is None:
        return env
    return InfoMask(env, key, len(vector_of_info(info[key], key, type(env.unwrapped).__name__)))


class InfoMask(gymnasium.Wrapper):
    """A wrapper that moves the action mask from the info to the observation.

    The observation is a Dict of `observation` and the mask; a Dict observation gets the mask as a further part. After
    the end of an episode, for which infos may have no mask, its elements are 0.

    Args:
        env: the environment.
        key: the key of the mask in infos and observations.
        n: the number of elements of the mask.
    """

    def __init__(self, env: gymnasium.Env, key: str, n: int) -> None:
        super().__init__(env)
        self._key, self._n = key, n
        self._is_dict = isinstance(env.observation_space, spaces.Dict)
        space: Any = env.observation_space
        parts = space.spaces if self._is_dict else {'observation': space}
        self.observation_space = spaces.Dict({**parts, key: spaces.MultiBinary(n)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._join(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = bool(terminated or truncated)
        return self._join(observation, info, over), reward, terminated, truncated, info

    def _join(self, observation: Any, info: dict[str, Any], over: bool = False) -> dict[str, Any]:
        mask = mask_of(info, self._key, self._n, type(self.env.unwrapped).__name__, over)
        return {**observation, self._key: mask} if self._is_dict else {'observation': observation, self._key: mask}


def mask_of(info: dict[str, Any], key: str, n: int, name: str, over: bool) -> np.ndarray:
    """Return the action mask in an info, int8 [n].

    Raises:
        OptionError: if an info within an episode has no mask, or a mask that is no vector of `n` elements 0 and 1.
    """
    if info.get(key) is None:
        if over:
            return np.zeros(n, np.int8)
        raise OptionError('env', f'{name} gives an info without {key}, expected one in each info of an episode')
    mask = vector_of_info(info[key], key, name)
    if mask.shape != (n,):
        raise OptionError('env', f'{name} gives an info with an {key} of {len(mask)} elements, expected {n}')
    return mask


def vector_of_info(value: Any, key: str, name: str) -> np.ndarray:
    """Return the action mask of an info, a vector or a tuple of vectors, as int8 [K].

    Raises:
        OptionError: for another shape, another dtype, or other values than 0 and 1.
    """
    try:
        parts = [np.asarray(part) for part in value] if isinstance(value, tuple) else [np.asarray(value)]
        mask = np.concatenate([np.atleast_1d(part) for part in parts])
    except ValueError:  # parts of different dimensions
        mask = np.array(0.5)
    if mask.ndim != 1 or mask.dtype.kind not in 'iub' or not is_binary(mask):
        expected = 'expected a vector, or a tuple of vectors, of whole numbers 0 and 1'
        raise OptionError('env', f'{name} gives an info with {key}={one_line(value)}; {expected}; {MASKS_OFF}')
    return mask.astype(np.int8)


def with_parallel_info_masks(env: Any, key: str | None) -> Any:
    """Return a parallel environment of PettingZoo whose observations contain the action masks if its infos do."""
    if key is None:
        return env
    _, infos = env.reset(seed=0)
    given = {agent: info[key] for agent, info in (infos or {}).items() if info.get(key) is not None}
    sizes = {agent: len(vector_of_info(mask, key, str(agent))) for agent, mask in given.items()}
    known = [env.observation_space(agent) for agent in sizes]
    if not sizes or any(isinstance(space, spaces.Dict) and key in space.spaces for space in known):
        return env
    return ParallelInfoMasks(env, key, sizes)


class ParallelInfoMasks:
    """A parallel environment of PettingZoo with the action masks of infos in observations; see `InfoMask`.

    Args:
        env: the environment.
        key: the key of the masks in infos and observations.
        sizes: the number of elements of the mask of each agent; agents without masks keep their observations.
    """

    def __init__(self, env: Any, key: str, sizes: dict[Any, int]) -> None:
        self.env, self._key, self._sizes = env, key, sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):
            raise AttributeError(name)
        return getattr(self.env, name)

    def observation_space(self, agent: Any) -> spaces.Space:
        """Return the observation space of an agent."""
        space: spaces.Space = self.env.observation_space(agent)
        if agent not in self._sizes:
            return space
        parts: Any = space.spaces if isinstance(space, spaces.Dict) else {'observation': space}
        return spaces.Dict({**parts, self._key: spaces.MultiBinary(self._sizes[agent])})

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset the environment."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._join(observations, infos, {}), infos

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step the environment."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = {agent: terminated.get(agent, False) or truncated.get(agent, False) for agent in observations}
        return self._join(observations, infos, over), rewards, terminated, truncated, infos

    def _join(self, observations: Any, infos: Any, over: dict[Any, bool]) -> dict[Any, Any]:
        joined: dict[Any, Any] = {}
        for agent, observation in observations.items():
            if agent not in self._sizes:
                joined[agent] = observation
                continue
            parts = observation if isinstance(observation, dict) else {'observation': observation}
            info, ended = infos.get(agent) or {}, over.get(agent, False)
            joined[agent] = {**parts, self._key: mask_of(info, self._key, self._sizes[agent], str(agent), ended)}
        return joined
