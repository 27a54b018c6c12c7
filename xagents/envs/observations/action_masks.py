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
ORDINARY = f'--mask-key {NO_MASK} makes it an ordinary part of observations'


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
        raise ValueError(f'the action mask observation[{key!r}] is {one_line(mask)}; {expected}; {ORDINARY}')
    if len(space.spaces) == 1:
        raise ValueError(f'the observation has only the action mask {key!r}, expected more parts; {ORDINARY}')
    return int((mask.shape or ())[0])


def mask_problem(action_space: spaces.Space, n_mask: int) -> str:
    """Return why a mask of `n_mask` elements does not fit an action space; '' if it fits."""
    if isinstance(action_space, spaces.Discrete):
        n, of_what = int(action_space.n), 'action'
    elif isinstance(action_space, spaces.MultiDiscrete):
        n, of_what = int(action_space.nvec.sum()), 'value of each element of an action'
    else:
        got = f'has an action mask and actions of {one_line(action_space)}'
        return f'{got}, expected Discrete or MultiDiscrete ones; {ORDINARY}'
    got = f'has an action mask of {n_mask} elements'
    return '' if n_mask == n else f'{got}, expected {n}, one for each {of_what}; {ORDINARY}'


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
    actions, observations = env.action_space, env.observation_space
    if key is None or not isinstance(actions, spaces.Discrete | spaces.MultiDiscrete):
        return env
    if isinstance(observations, spaces.Dict) and key in observations.spaces:
        return env
    try:
        _, info = env.reset(seed=0)
    except OptionError:
        raise
    except Exception:  # the first reset of the run raises it
        return env
    return InfoMask(env, key, np.size(info[key])) if key in info else env


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
        ValueError: if an info within an episode has no mask, or a mask has another number of elements.
    """
    if key not in info and over:
        return np.zeros(n, np.int8)
    mask = np.asarray(info.get(key, ()), np.int8)
    if mask.shape != (n,):
        raise ValueError(f'{name}: got an info with an {key} of shape {list(mask.shape)}, expected [{n}]')
    return mask


def with_parallel_info_masks(env: Any, key: str | None) -> Any:
    """Return a parallel environment of PettingZoo whose observations contain the action masks if its infos do."""
    if key is None:
        return env
    _, infos = env.reset(seed=0)
    sizes = {agent: np.size(info[key]) for agent, info in (infos or {}).items() if key in info}
    known = [env.observation_space(agent) for agent in sizes]
    if not sizes or any(isinstance(space, spaces.Dict) and key in space.spaces for space in known):
        return env
    return ParallelInfoMasks(env, key, sizes)


class ParallelInfoMasks:
    """A parallel environment of PettingZoo with the action masks of infos in observations; see `InfoMask`.

    Args:
        env: the environment.
        key: the key of the masks in infos and observations.
        sizes: the number of elements of the mask of each agent.
    """

    def __init__(self, env: Any, key: str, sizes: dict[Any, int]) -> None:
        self.env, self._key, self._sizes = env, key, sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):
            raise AttributeError(name)
        return getattr(self.env, name)

    def observation_space(self, agent: Any) -> spaces.Space:
        """Return the observation space of an agent."""
        space = self.env.observation_space(agent)
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
        joined = {}
        for agent, observation in observations.items():
            parts = observation if isinstance(observation, dict) else {'observation': observation}
            info, ended = infos.get(agent) or {}, over.get(agent, False)
            joined[agent] = {**parts, self._key: mask_of(info, self._key, self._sizes[agent], str(agent), ended)}
        return joined
