"""Construction of an agent's environments from a name, or from ready-made environments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from xagents.envs.env_factory import EnvFactory
from xagents.envs.games import SeatEnv
from xagents.envs.interface import RECREATE_HINT, Envs
from xagents.envs.multi_agent import ParallelEnvAdapter
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.envs.observations.action_masks import with_info_mask, with_parallel_info_masks
from xagents.envs.pettingzoo_envs import is_pettingzoo_env, takes_turns, to_parallel_env
from xagents.envs.spaces import DEFAULT_ENCODING, Encoding
from xagents.envs.vectors import LoopVectorEnv, with_agent_rows
from xagents.envs.wrappers import with_report
from xagents.options.errors import one_line

# options that affect only preprocessed Atari games
ATARI_OPTIONS = ('max_frame', 'clip_rewards', 'episodic_life', 'fire_reset', 'sticky_actions')
P = ParamSpec('P')


def _takes_arguments_of(factory: Callable[P, EnvFactory]) -> Callable[[Callable[..., Envs]], Callable[P, Envs]]:
    """Return a decorator that gives a function the signature of a class."""

    def decorate(function: Callable[..., Envs]) -> Callable[P, Envs]:
        function.__signature__ = inspect.signature(factory).replace(return_annotation=Envs)  # type: ignore[attr-defined]
        return function

    return decorate


@_takes_arguments_of(EnvFactory)
def create_envs(*arguments: Any, **options: Any) -> Envs:
    """Make a vector of environments.

    The arguments are those of `EnvFactory`: `env`, `n_envs` and options.

    Raises:
        OptionError: for a wrong value; one line with the option, the value and the expected values.
    """
    return EnvFactory(*arguments, **options)()


def as_envs(envs: Any, encoding: Encoding = DEFAULT_ENCODING) -> Envs:
    """Return ready-made environments as `Envs`.

    Args:
        envs: an `Envs`, which is returned unchanged; a `gymnasium.vector.VectorEnv` in NEXT_STEP mode; a
            `gymnasium.Env` or PettingZoo environment; or a list of them. `RawReward`, which sums raw rewards, is
            inserted below the wrappers of single environments.
        encoding: options of the encoder of observations; without effect on an `Envs`.

    Raises:
        ValueError: for any other object, another autoreset mode, or environments with different spaces.
    """
    if isinstance(envs, Envs | MultiPolicyEnvs):
        return envs  # type: ignore[return-value]
    if isinstance(envs, VectorEnv):
        factory = _vector_factory(envs, encoding)
        spec = factory.env if factory and isinstance(factory.env, EnvSpec) else None
        name = spec.id if spec else type(envs.unwrapped).__name__
        return Envs(envs, id=name, factory=factory, spec=spec, encoding=encoding)
    members = list(envs) if isinstance(envs, list | tuple) else [envs]
    members = [_to_adapter(env, encoding) if is_pettingzoo_env(env) else env for env in members]
    if not members or not all(isinstance(env, gymnasium.Env) for env in members):
        several = isinstance(envs, list | tuple) and bool(envs)
        got = [type(env).__name__ for env in members] if several else type(envs).__name__
        expected = 'create_envs(…), a vector environment, an environment or a list'
        hint = '; xagents.make(agent, env) makes an agent from ids' if isinstance(envs, str) else ''
        if several and all(map(callable, members)):
            hint = '; xagents.make(agent, function, n_envs=N) makes N of a function'
        raise ValueError(f'envs: got {got}, expected {expected}{hint}')
    key = encoding.mask_key
    masked = [env if isinstance(env, ParallelEnvAdapter) else with_info_mask(env, key) for env in members]
    first: gymnasium.Env = members[0]
    for env in members[1:]:
        if env.observation_space != first.observation_space or env.action_space != first.action_space:
            raise ValueError(f'envs: {first} and {env} have different spaces, expected equal spaces')
    if len({id(env) for env in members}) < len(members):
        raise ValueError('envs: got a list with one environment twice, expected different environments')
    spec = first.spec
    name = spec.id if spec is not None else getattr(first, 'name', None) or type(first.unwrapped).__name__
    factory = None if spec is None else ReadyMadeFactory(spec, preprocess=False, vector='sync', **vars(encoding))
    loop = LoopVectorEnv([env if isinstance(env, ParallelEnvAdapter) else with_report(env) for env in masked])
    made, has_reports = with_agent_rows(loop)
    return Envs(made, id=name, has_reports=has_reports, factory=factory, spec=spec, encoding=encoding)


def _to_adapter(env: Any, encoding: Encoding) -> gymnasium.Env:
    name = env.metadata.get('name') or type(env).__name__
    if takes_turns(env):
        return SeatEnv(env, name, mask_key=encoding.mask_key)
    parallel = with_parallel_info_masks(to_parallel_env(env), encoding.mask_key)
    return ParallelEnvAdapter(parallel, name, encoding=encoding)


class ReadyMadeFactory(EnvFactory):
    """The factory of environments like ready-made ones, of which only the spec or a function is known."""

    def __call__(self, **changes: Any) -> Envs:
        """Make the environments.

        Raises:
            ValueError: if this fails; the message says what to pass instead.
        """
        try:
            return super().__call__(**changes)
        except Exception as error:
            name = getattr(self.env, 'id', None) or getattr(self.env, '__name__', type(self.env).__name__)
            raise ValueError(f'env: {name} cannot be created again ({one_line(error)}); {RECREATE_HINT}') from error


def _vector_factory(vector: VectorEnv, encoding: Encoding) -> ReadyMadeFactory | None:
    """Return the factory of environments like those of a ready-made vector, or None if their maker is unknown."""
    # A spec does not contain the wrappers around a vector; without them observations or rewards would differ.
    while isinstance(vector, gymnasium.vector.VectorWrapper):
        if type(vector) is not gymnasium.wrappers.vector.RecordEpisodeStatistics:  # which only adds to infos
            return None
        vector = vector.env
    spec, wrappers = vector.spec, ()
    if isinstance(spec, EnvSpec) and spec.entry_point is not None:
        kwargs = {k: v for k, v in spec.kwargs.items() if k not in ('num_envs', 'vectorization_mode', 'vector_kwargs')}
        limit, wrappers = kwargs.pop('max_episode_steps', None), kwargs.pop('wrappers', None) or ()
        limit = spec.max_episode_steps if limit is None else limit
        source = dataclasses.replace(spec, kwargs=kwargs, max_episode_steps=None if limit == -1 else limit)
    elif functions := getattr(vector, 'env_fns', None):
        source = functions[0]
    else:
        return None
    return ReadyMadeFactory(source, preprocess=False, wrapper=wrappers, vector='sync', **vars(encoding))
