"""Construction of an agent's environments from a name, or from ready-made environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from xagents.envs.interface import RECREATE_HINT, EnvFactory, Envs
from xagents.envs.maker import NOT_ATARI, EnvMaker, find_maker, is_atari, load_wrapper
from xagents.envs.multi_agent import ParallelEnvAdapter
from xagents.envs.multi_policy import MultiPolicyEnvs, PolicyMapping, create_multi_policy_envs
from xagents.envs.pettingzoo_envs import is_pettingzoo_env, to_parallel_env
from xagents.envs.vectors import LoopVectorEnv, make_vector, maker_for_vector, with_agent_rows
from xagents.envs.wrappers import AtariConfig, with_report
from xagents.options.errors import OptionError, did_you_mean, one_line
from xagents.system.modules import import_modules

# options that affect only preprocessed Atari games
ATARI_OPTIONS = ('max_frame', 'frame_stack', 'clip_rewards', 'episodic_life', 'fire_reset', 'sticky_actions')
VECTORS = ('auto', 'sync', 'async', 'envpool')


def create_envs(
    env: str | EnvSpec | Callable[..., gymnasium.Env],
    n_envs: int = 1,
    preprocess: bool | None = None,
    max_frame: bool = True,
    *,
    max_episode_steps: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vector: str = 'auto',
    frame_stack: int = 4,
    clip_rewards: bool = True,
    episodic_life: bool = True,
    fire_reset: bool = True,
    sticky_actions: bool = False,
    wrapper: Sequence[str | Callable[..., Any]] = (),
    imports: Sequence[str] = (),
    agent_index: bool = False,
    flatten: bool = False,
    render_mode: str | None = None,
) -> Envs:
    """Make a vector of environments.

    Args:
        env: a Gymnasium id; 'module:Id', which imports the module first; 'gym:Id' for an environment of the old gym;
            'pettingzoo:NAME' for several agents, such as pettingzoo:mpe2.simple_spread_v3; or a function that makes one
            environment (and accepts `render_mode` if the environment can be rendered).
        n_envs: the number of environments; with several agents in each, every agent is a row of `Envs`.
        preprocess: whether to use the Atari preprocessing; None detects games of the ALE.
        max_frame: accepted for compatibility with 1.0, without effect: the maximum of two frames is always taken when
            frames are skipped.
        max_episode_steps: a time limit, instead of the environment's own.
        env_kwargs: arguments of the environment.
        vector: 'auto' (Gymnasium's native vectors, else a loop; independent of installed extras), 'sync' (a loop in
            this process), 'async' (worker processes) or 'envpool'.
        frame_stack: Atari: the number of frames in an observation.
        clip_rewards: Atari: whether rewards are clipped to their sign; statistics stay raw.
        episodic_life: Atari: whether a lost life counts as `terminated`.
        fire_reset: Atari: whether FIRE is pressed at the start of a life.
        sticky_actions: Atari: whether the last action is repeated with probability 0.25.
        wrapper: Gymnasium or PettingZoo wrappers, applied in order outside all others: 'module:Class' or functions.
        imports: modules to import first, which register environments.
        agent_index: whether the agent's one-hot index is appended to each observation of several agents.
        flatten: whether image observations become vectors.
        render_mode: Gymnasium's render mode.

    Raises:
        OptionError: for a wrong value; one line with the option, the value and the expected values.
    """
    import_modules(imports)
    for name, number in (('n_envs', n_envs), ('frame_stack', frame_stack), ('max_episode_steps', max_episode_steps)):
        optional = name == 'max_episode_steps' and number is None
        if not optional and (isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1):
            raise OptionError(name, f'got {number!r}, expected a whole number of at least 1')
    if vector not in VECTORS:
        hint = did_you_mean(str(vector), VECTORS)
        raise OptionError('vector', f'got {vector!r}, expected {", ".join(VECTORS)}{hint}')
    wrappers = tuple(load_wrapper(w) for w in ([wrapper] if isinstance(wrapper, str) or callable(wrapper) else wrapper))
    atari = AtariConfig(frame_stack, clip_rewards, episodic_life, fire_reset, sticky_actions)
    if vector == 'envpool':
        if not isinstance(env, str) or ':' in env or wrappers or agent_index:
            odd = {'wrappers': bool(wrappers), 'agent_index': agent_index, 'a function': not isinstance(env, str)}
            got = next((name for name, is_so in odd.items() if is_so), env)
            expected = "one of EnvPool's own environments without wrappers"
            raise OptionError('vector', f'got envpool with {got}, expected {expected}')
        pool_settings = {'kwargs': env_kwargs, 'preprocess': preprocess, 'max_episode_steps': max_episode_steps}
        return _create_pool(env, n_envs, render_mode, atari, pool_settings, bool(flatten))
    settings: dict[str, Any] = {
        'max_episode_steps': max_episode_steps,
        'wrappers': wrappers,
        'render_mode': render_mode,
        'flatten': bool(flatten),
    }
    maker = find_maker(env, kwargs=dict(env_kwargs or {}), agent_index=bool(agent_index), **settings)
    recognised = is_atari(maker.spec, maker.kwargs)
    if preprocess and maker.spec is not None and not recognised:
        raise OptionError('preprocess', maker.name + NOT_ATARI)
    preprocess = recognised if preprocess is None else preprocess
    return _create_from_maker(dataclasses.replace(maker, atari=atari if preprocess else None), n_envs, vector)


def create_groups(policy_mapping: PolicyMapping, **options: Any) -> Any:
    """Make environments for the policies of an `Envs.policy_mapping`; see `create_envs` for the options."""
    if '' in policy_mapping:  # all rows belong to a policy without a name
        return create_envs(**options)
    return create_multi_policy_envs(policy_mapping, **options)


def _create_from_maker(maker: EnvMaker, n_envs: int, vector: str) -> Envs:
    def factory(n_envs: int, render_mode: str | None, training: bool, in_process: bool) -> Envs:
        atari = maker.atari if training or maker.atari is None else maker.atari.for_evaluation()
        other = dataclasses.replace(maker, render_mode=render_mode, atari=atari)
        return _create_from_maker(other, n_envs, 'sync' if in_process else vector)

    made, has_reports = make_vector(maker, int(n_envs), vector)
    # a user's wrapper may change the stack
    stack = maker.atari.frame_stack if maker.atari and not maker.wrappers else 1
    about: dict[str, Any] = {'spec': maker.spec, 'frame_stack': stack, 'atari': maker.atari is not None}
    return Envs(made, id=maker.name, has_reports=has_reports, factory=factory, flatten=maker.flatten, **about)


def _create_pool(
    name: str, n_envs: int, render_mode: str | None, atari: AtariConfig, settings: dict[str, Any], flatten: bool
) -> Envs:
    from xagents.envs.envpool import EnvPoolVectorEnv

    def factory(n_envs: int, render_mode: str | None, training: bool, in_process: bool) -> Envs:
        other = atari if training else atari.for_evaluation()
        return _create_pool(name, n_envs, render_mode, other, settings, flatten)

    made = EnvPoolVectorEnv(name, int(n_envs), atari, render_mode=render_mode, **settings)
    stack = atari.frame_stack if made.atari else 1
    about: dict[str, Any] = {'frame_stack': stack, 'atari': made.atari, 'flatten': flatten}
    return Envs(made, id=name, has_reports=True, factory=factory, **about)


def as_envs(envs: Any, flatten: bool = False) -> Envs:
    """Return ready-made environments as `Envs`.

    Args:
        envs: an `Envs`, which is returned unchanged; a `gymnasium.vector.VectorEnv` in NEXT_STEP mode; a
            `gymnasium.Env` or PettingZoo environment; or a list of them. `RawReward`, which sums raw rewards, is
            inserted below the wrappers of single environments.
        flatten: whether image observations become vectors; without effect on an `Envs`.

    Raises:
        ValueError: for any other object, another autoreset mode, or environments with different spaces.
    """
    if isinstance(envs, Envs | MultiPolicyEnvs):
        return envs  # type: ignore[return-value]
    if isinstance(envs, VectorEnv):
        maker = maker_for_vector(envs)
        spec = maker.spec if maker else None
        factory = None if maker is None else _factory_of(dataclasses.replace(maker, flatten=flatten))
        name = spec.id if spec else type(envs.unwrapped).__name__
        return Envs(envs, id=name, factory=factory, spec=spec, flatten=flatten)
    members = list(envs) if isinstance(envs, list | tuple) else [envs]
    members = [_to_adapter(env, flatten) if is_pettingzoo_env(env) else env for env in members]
    if not members or not all(isinstance(env, gymnasium.Env) for env in members):
        several = isinstance(envs, list | tuple) and bool(envs)
        got = [type(env).__name__ for env in members] if several else type(envs).__name__
        expected = 'create_envs(…), a vector environment, an environment or a list'
        hint = '; xagents.make(agent, env) makes an agent from ids' if isinstance(envs, str) else ''
        if several and all(map(callable, members)):
            hint = '; xagents.make(agent, function, n_envs=N) makes N of a function'
        raise ValueError(f'envs: got {got}, expected {expected}{hint}')
    first: gymnasium.Env = members[0]
    for env in members[1:]:
        if env.observation_space != first.observation_space or env.action_space != first.action_space:
            raise ValueError(f'envs: {first} and {env} have different spaces, expected equal spaces')
    if len({id(env) for env in members}) < len(members):
        raise ValueError('envs: got a list with one environment twice, expected different environments')
    spec = first.spec
    name = spec.id if spec is not None else getattr(first, 'name', None) or type(first.unwrapped).__name__
    factory = None if spec is None else _factory_of(EnvMaker(name=name, source=spec, flatten=flatten))
    loop = LoopVectorEnv([env if isinstance(env, ParallelEnvAdapter) else with_report(env) for env in members])
    made, has_reports = with_agent_rows(loop)
    return Envs(made, id=name, has_reports=has_reports, factory=factory, spec=spec, flatten=flatten)


def _to_adapter(env: Any, flatten: bool) -> ParallelEnvAdapter:
    name = env.metadata.get('name') or type(env).__name__
    return ParallelEnvAdapter(to_parallel_env(env, name), name, flatten=flatten)


def _factory_of(maker: EnvMaker) -> EnvFactory:
    def factory(n_envs: int, render_mode: str | None, training: bool, in_process: bool) -> Envs:
        try:
            return _create_from_maker(dataclasses.replace(maker, render_mode=render_mode), n_envs, 'sync')
        except Exception as error:
            raise ValueError(
                f'env: {maker.name} cannot be created again ({one_line(error)}); {RECREATE_HINT}'
            ) from error

    return factory
