"""`contract.json` of an exported policy: the meaning of its inputs and outputs, for the engineer who connects them.

`policy.json` describes the file and its check. The contract describes one observation and one action: names, shapes,
units, ranges, the control rate, and what a reset does. Names, units and the control rate are those in the `metadata` of
the environment:

    metadata = {
        'names': {'observations': ['angle', 'speed'], 'actions': ['brake', 'coast', 'drive']},
        'units': {'observations': ['rad', 'rad/s'], 'actions': 'N m'},
        'control_rate': 50,
    }
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from xagents.envs.space_serialization import bound_to_json
from xagents.options.errors import OptionError, one_line

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.export.policy import ExportedPolicy

CONTRACT = 'contract.json'
VERSION = 1
_SECTIONS = ('observations', 'actions')


def describe_contract(agent: BaseAgent, policy: ExportedPolicy) -> dict[str, Any]:
    """Return the contract of a policy.

    Raises:
        OptionError: for metadata of the environment that are not of the form above.
    """
    metadata = agent.envs.metadata
    env = _Environment(agent)
    observations = [_describe(agent, metadata, 'observations', part) for part in policy.inputs]
    actions = [_describe(agent, metadata, 'actions', part) for part in policy.outputs]
    if len(actions) == 1 and actions[0]['names'] is None:
        actions[0]['names'] = env.meanings(policy.outputs[0].space)
    memory, reset = None, 'nothing: the policy has no memory'
    if policy.memory_units:
        memory = {'shape': [policy.memory_units], 'dtype': 'float32'}
        reset = 'at the first step of an episode, set the memory to zeros'
    return {
        'version': VERSION,
        'observations': observations,
        'actions': actions,
        'greedy': True,
        'control_rate': env.control_rate(),
        'memory': memory,
        'reset': reset,
    }


class _Environment:
    """What an environment says about time and actions outside of its spaces.

    Args:
        agent: the agent of the environment.
    """

    def __init__(self, agent: BaseAgent):
        envs = agent.envs
        self._id, self._rate = envs.id, envs.metadata.get('control_rate')
        # steps for which the wrappers repeat an action
        self._repeats = getattr(envs.factory, 'frame_skip', None) or 1
        env = envs.first_env
        self._read(env)
        if env is None and envs.can_recreate:
            with envs.recreate(1, in_process=True) as others:
                self._read(others.first_env)

    def _read(self, env: Any) -> None:
        base = getattr(env, 'unwrapped', None)
        self._dt: Any = getattr(base, 'dt', None)
        meanings = getattr(base, 'get_action_meanings', None)
        self._meanings: Any = meanings() if callable(meanings) else None

    def control_rate(self) -> float | None:
        """Return the number of actions in a second of the environment's time, or None if it is unknown.

        Raises:
            OptionError: for a rate that is no positive number.
        """
        rate = self._rate
        if rate is not None and not _is_positive(rate):
            got = f"got {self._id}, whose metadata['control_rate'] is {one_line(repr(rate))}"
            raise OptionError('env', f'{got}, expected actions per second, a number above 0')
        if rate is None and _is_positive(self._dt):
            rate = 1 / self._dt
        return None if rate is None else round(float(rate) / self._repeats, 6)

    def meanings(self, space: spaces.Space) -> list[str] | None:
        """Return the names of discrete actions by `get_action_meanings`, or None."""
        known = self._meanings
        fits = isinstance(space, spaces.Discrete) and isinstance(known, Sequence) and len(known) == space.n
        return list(map(str, known)) if fits else None


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and 0 < value < math.inf


def _describe(agent: BaseAgent, metadata: Mapping[str, Any], section: str, part: Any) -> dict[str, Any]:
    """Return the description of one input or output."""
    space: Any = part.space
    size = math.prod(space.shape or ())
    n_names = int(space.n) if isinstance(space, spaces.Discrete) else size
    low, high = space_range(space)
    return {
        'name': part.name,
        'path': list(part.path),
        'shape': list(space.shape or ()),
        'dtype': np.dtype(space.dtype).name,
        'low': low,
        'high': high,
        'names': _texts(agent.envs.id, metadata, 'names', section, part.path, n_names),
        'units': _texts(agent.envs.id, metadata, 'units', section, part.path, size),
    }


def space_range(space: Any) -> tuple[Any, Any]:
    """Return the smallest and largest value of a space, neither Dict nor Tuple, as in `space_to_dict`."""
    if isinstance(space, spaces.Box):
        return bound_to_json(space.low), bound_to_json(space.high)
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return bound_to_json(space.start), bound_to_json(space.start + space.nvec - 1)
    return 0, 1


def _texts(id: str, metadata: Mapping[str, Any], what: str, section: str, path: Sequence[Any], n: int) -> Any:
    """Return the names or units of one input or output by the metadata: one text, a list of n texts, or None."""
    place, value = f'metadata[{what!r}]', metadata.get(what)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not set(value) <= set(_SECTIONS):
        got = f'got {id}, whose {place} is {one_line(repr(value))}'
        raise OptionError('env', f'{got}, expected a dict with the keys {" and ".join(_SECTIONS)}')
    for key in (section, *path):
        place += f'[{key!r}]'
        try:
            value = value.get(key) if isinstance(value, Mapping) else value[key]
        except (TypeError, IndexError, KeyError):
            raise OptionError('env', f'got {id}, which has no {place}, expected one text, or {n} texts') from None
        if value is None:
            return None
    if isinstance(value, str):
        return value
    texts = list(value) if isinstance(value, list | tuple) else []
    if len(texts) != n or not all(isinstance(text, str) for text in texts):
        got = f'got {id}, whose {place} is {one_line(repr(value))}'
        raise OptionError('env', f'{got}, expected one text{f", or {n} texts" if n > 1 else ""}')
    return texts
