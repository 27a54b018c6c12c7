"""Checks of an environment: what to know before hours of training."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from xagents.collecting.collector import Collector
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.doctor.finding import Finding
from xagents.doctor.random_policy import RandomPolicy
from xagents.doctor.sample import usual_value
from xagents.doctor.scales import MAX_RETURN, MIN_RETURN, large_returns, observation_scale, small_returns
from xagents.envs.env_factory import EnvFactory
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder, describe_space
from xagents.factory.make import make
from xagents.options.errors import OptionError, one_line
from xagents.pipeline.context import EpisodeEnd
from xagents.registry.agents import BUILTIN_AGENTS, find_agent
from xagents.system.trees import leaf_at, leaf_spaces

# the fastest of some measurements counts, because other processes only slow them down
SPEED_SECONDS, SPEED_REPEATS, SPEED_STEPS = 0.2, 3, 128
CHUNK = 32
# the vectors whose speed is measured, if the environment has them
VECTORS = ('sync', 'async', 'native', 'compiled', 'envpool')
# warnings of Gymnasium's checker that this module replaces by its own findings
IGNORED_WARNINGS = (
    'infinity',
    'out of date',
    'normalized',
    'symmetric',
    'Overriding',
    'deprecat',
    'not within the obs',
)
EXPECTED = 'Correct the environment; https://gymnasium.farama.org/api/env describes the interface'


class EnvReport(NamedTuple):
    """What the checks of an environment found.

    Attributes:
        facts: title and text of each fact, in order.
        findings: properties that can keep an agent from learning.
        numbers: the measured numbers by name, for JSON.
    """

    facts: list[tuple[str, str]]
    findings: list[Finding]
    numbers: dict[str, Any]


class RawSteps:
    """A recorder that compares raw observations with their space.

    Attributes:
        outside: how observations first violated the bounds of their space, by the path of the part.

    Args:
        space: the space of raw observations.
    """

    def __init__(self, space: spaces.Space):
        self._parts = list(leaf_spaces(space)) if isinstance(space, spaces.Dict | spaces.Tuple) else [((), space)]
        self.outside: dict[Any, str] = {}

    def reset(self, observations: Any) -> None:
        """Check the observations after a reset."""
        self._check(observations)

    def step(self, actions: Any, observations: Any, *others: Any) -> None:
        """Check the observations after a step."""
        self._check(observations)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return an empty state."""
        return {}, {}

    def _check(self, observations: Any) -> None:
        for path, space in self._parts:
            if path in self.outside or not isinstance(space, spaces.Box):
                continue
            values = np.asarray(leaf_at(observations, path) if path else observations)
            low, high = values < space.low, values > space.high
            if (low | high).any():
                i = tuple(np.argwhere(low | high)[0])
                bound = space.low[i[1:]] if low[i] else space.high[i[1:]]
                element = f'[{", ".join(map(str, i[1:]))}]' if len(i) > 1 else ''
                name = ''.join(f'[{key!r}]' for key in path)
                side = 'below' if low[i] else 'above'
                self.outside[path] = f'observation{name}{element} was {values[i]:.6g}, {side} its bound {bound:.6g}'


def check_environment(
    factory: EnvFactory,
    episodes: int = 20,
    seconds: float = 5.0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> EnvReport:
    """Check an environment with random actions, and measure its speed.

    Args:
        factory: the environment.
        episodes: random episodes to play.
        seconds: about how long to play at most.
        seed: seed of environment and actions.
        options: options of `make` for the environment.

    Raises:
        OptionError: if the environment cannot be made.
    """
    facts: list[tuple[str, str]] = []
    numbers: dict[str, Any] = {}
    findings = list(_contract(factory))
    single = dataclasses.replace(factory, n_envs=1)
    with single(in_process=True) as envs:
        facts += _space_facts(envs)
        findings += _action_findings(envs)
        played, error = _play(envs, episodes, seconds, seed)
        findings += error
        if played is not None:
            more, found = _played_findings(envs, played, numbers)
            facts += more
            findings += found
        facts += _limit_facts(envs)
        snapshot = envs.snapshot()
        copied = snapshot is not None
        numbers['exact_resume'] = copied
        why = 'yes: the state of the environment can be copied'
        facts.append(('Exact resume', why if copied else f'no: {envs.snapshot_problem}; a resumed run begins episodes'))
    if played is not None:
        findings += _determinism(single, seed, numbers)
    facts.append(('Agents', ', '.join(_agents(single)) or 'none'))
    if played is not None:
        facts += [(f'--vector {name}', text) for name, text in _speeds(factory, options or {}, numbers).items()]
    return EnvReport(facts, findings, numbers)


def _contract(factory: EnvFactory) -> Iterator[Finding]:
    """Yield what Gymnasium's or PettingZoo's own checker says of the environment without our wrappers."""
    maker = factory.maker()
    env = maker()
    inner = env.unwrapped
    env.close()
    if type(inner).__module__.startswith(('gymnasium.envs.', 'ale_py', 'xagents.')):
        return  # checked by their own projects, or adapters of environments with another interface
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter('always')
        try:
            from gymnasium.utils.env_checker import check_env

            check_env(inner, skip_render_check=True)
        except ImportError:
            raise
        except Exception as error:  # assertions, and errors of the environment
            problems.append(one_line(error))
        finally:
            with contextlib.suppress(Exception):
                inner.close()
    for warning in caught:
        text = one_line(str(warning.message)).removeprefix('\x1b[33mWARN: ').removesuffix('\x1b[0m').strip()
        if not any(word in text for word in IGNORED_WARNINGS):
            problems.append(text)
    for problem in dict.fromkeys(problems):
        yield Finding(
            'contract', problem.rstrip('.'), 'The environment differs from the interface of Gymnasium', EXPECTED
        )


def _space_facts(envs: Envs) -> list[tuple[str, str]]:
    encoded = list(envs.observation_space.shape)
    facts = [
        ('Observations', f'{describe_space(envs.encoder.raw_space)}; a network receives {encoded}'),
        ('Actions', describe_space(envs.action_space)),
    ]
    if envs.agents:
        facts.append(('Agents in it', f'{envs.agents_per_env}: {", ".join(envs.agents)}'))
    if envs.n_mask:
        facts.append(('Action mask', f'{envs.n_mask} elements'))
    return facts


def _action_findings(envs: Envs) -> Iterator[Finding]:
    space = envs.action_space
    if isinstance(space, spaces.Box) and not np.isfinite([space.low, space.high]).all():
        meaning = 'Agents with bounded actions (DDPG, TD3, SAC, TQC, CrossQ) refuse it, and others act without scale'
        remedy = 'Declare the bounds, or add --wrapper gymnasium.wrappers:RescaleAction after bounding the actions'
        yield Finding('action-bounds', f'the actions are {describe_space(space)}', meaning, remedy)


class Played(NamedTuple):
    """Random episodes.

    Attributes:
        observations: encoded observations [S, *D].
        rewards: rewards [S], clipped by the Atari preprocessing.
        ends: bool [S, 2], terminated and truncated.
        episodes: the episodes that ended.
        outside: how observations violate the bounds of their space.
    """

    observations: np.ndarray
    rewards: np.ndarray
    ends: np.ndarray
    episodes: list[EpisodeEnd]
    outside: list[str]


def _play(envs: Envs, episodes: int, seconds: float, seed: int) -> tuple[Played | None, list[Finding]]:
    """Play random episodes; return them, and a finding if the environment fails."""
    recorder = RawSteps(envs.encoder.raw_space)
    collector = Collector.of_policy(
        envs, RandomPolicy(envs, seed), Statistics(raw_dtype=envs.observation_space.dtype), RandomStreams(seed), True
    )
    if not envs.agents:  # the rows of agents have observations of their own
        envs.recorder = recorder
    columns: list[dict[str, np.ndarray]] = []
    start = time.perf_counter()
    try:
        while len(collector.stats.episodes) < episodes and time.perf_counter() - start < seconds:
            rollout = collector.collect(CHUNK)
            columns.append(
                {name: np.array(x[: len(rollout['valid'])]) for name, x in rollout.items() if np.ndim(x) > 1}
            )
    except NotFiniteError as error:
        finding = Finding('not-finite', one_line(error), 'Networks turn it into NaN weights', EXPECTED)
        return None, [finding]
    except OptionError:
        raise
    except Exception as error:  # an environment may raise any error
        seen = f'the environment raised {type(error).__name__}: {one_line(error)}'
        return None, [Finding('contract', seen, 'A run would end there', EXPECTED)]
    finally:
        envs.recorder = None
    if not columns:
        return None, []
    valid = np.concatenate([c['valid'] for c in columns])
    joined = {name: np.concatenate([c[name] for c in columns])[valid] for name in columns[0] if name != 'valid'}
    ends = np.stack([joined['terminated'], joined['truncated']], -1)
    outside = list(recorder.outside.values())
    return Played(joined['observations'], joined['rewards'], ends, collector.stats.episodes, outside), []


def _played_findings(
    envs: Envs, played: Played, numbers: dict[str, Any]
) -> tuple[list[tuple[str, str]], list[Finding]]:
    """Return facts and findings of random episodes."""
    observations, rewards = played.observations, played.rewards
    returns = np.array([episode.reward for episode in played.episodes])
    lengths = np.array([episode.length for episode in played.episodes])
    nonzero = float((rewards != 0).mean())
    usual = usual_value(rewards)
    numbers |= {'steps': len(rewards), 'episodes': len(returns), 'reward_nonzero': nonzero}
    facts, findings = list[tuple[str, str]](), list[Finding]()
    facts.append(('Random actions', f'{len(returns)} episodes, {len(rewards)} steps'))
    if len(returns):
        numbers |= {'return_mean': float(returns.mean()), 'return_std': float(returns.std())}
        numbers['episode_length'] = float(lengths.mean())
        text = f'return {returns.mean():.4g} ± {returns.std():.3g} ({returns.min():.4g} to {returns.max():.4g})'
        facts.append(('', f'{text}, length {lengths.mean():.4g} ({lengths.min()} to {lengths.max()})'))
        terminated = int(played.ends[:, 0].sum())
        facts.append(('', f'{terminated} episodes terminated, {int(played.ends[:, 1].sum())} were truncated'))
    low, high = float(rewards.min()), float(rewards.max())
    numbers |= {'reward_min': low, 'reward_max': high}
    facts.append(('Rewards', f'{low:.4g} to {high:.4g}, not 0 in {_percent(nonzero)} of the steps'))
    findings += _reward_findings(envs, rewards, returns, usual, nonzero)
    findings += [
        Finding('bounds', one, 'The space does not describe the observations', 'Correct the bounds of the space')
        for one in played.outside
    ]
    sizes = observations.reshape(len(observations), -1)
    if not envs.is_image and observations.dtype != np.uint8:
        n = envs.encoder.n_floats if envs.encoder.images else sizes.shape[1]
        sizes = sizes[:, : n - envs.n_mask]
    if not envs.encoder.images and not envs.is_image:
        # a category or a bit that random actions do not reach is no fault
        constant = np.flatnonzero((np.ptp(sizes, 0) == 0) & _is_measured(envs, sizes.shape[1]))
        numbers['constant_elements'] = constant.tolist()
        spread = np.sqrt(np.mean(np.square(sizes, dtype=np.float64), 0))
        facts.append(('Scale', f'elements of observations are about {spread.min():.3g} to {spread.max():.3g}'))
        if len(constant):
            findings.append(_constant_finding(constant, sizes.shape[1]))
        findings += observation_scale(sizes, envs.is_image, normalized=False)
    findings += _end_findings(envs, played, lengths)
    return facts, findings


def _is_measured(envs: Envs, n: int) -> np.ndarray:
    """Return which of the first n elements of encoded observations are numbers, and not parts of a category."""
    space, encoder = envs.encoder.raw_space, envs.encoder
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.full(n, isinstance(space, spaces.Box))
    measured = np.zeros(n, bool)
    for path, leaf in leaf_spaces(space):
        if len(path) == 1 and isinstance(leaf, spaces.Box) and (part := encoder.slices().get(path[0])) is not None:
            measured[part] = True
    return measured


def _constant_finding(constant: np.ndarray, n: int) -> Finding:
    if len(constant) == n:
        meaning, remedy = 'The agent cannot tell states apart', EXPECTED
        return Finding('constant-observations', 'the observation never changed', meaning, remedy)
    names = ', '.join(map(str, constant[:8])) + (', …' if len(constant) > 8 else '')
    seen = f'{len(constant)} of {n} elements of the observation never changed: {names}'
    return Finding('constant-observations', seen, 'They tell the agent nothing', 'Check that they are meant to')


def _reward_findings(
    envs: Envs, rewards: np.ndarray, returns: np.ndarray, usual: float, nonzero: float
) -> Iterator[Finding]:
    clipped = envs.atari and getattr(envs.factory, 'clip_rewards', False)
    largest = 1.0 if clipped else float(np.abs(rewards).max())
    total = float(np.abs(returns).max()) if len(returns) else largest
    if nonzero == 0 or (len(np.unique(rewards)) == 1 and len(returns) and np.ptp(returns) == 0):
        what = 'always 0' if nonzero == 0 else f'always {usual:g}, and each episode had the same return'
        seen = f'the reward was {what} in {len(rewards)} steps of random actions'
        meaning = 'An agent that begins with random actions has nothing to learn from'
        remedy = 'Reward progress towards the goal, use --her if the environment has goals, or explore for longer'
        yield Finding('sparse-reward', seen, meaning, remedy)
    elif nonzero < 0.005:
        seen = f'the reward was not 0 in only {100 * nonzero:.2g} % of the steps'
        remedy = 'Explore for longer (--entropy-coef, --epsilon-decay-steps), use --n-step, or --her with goals'
        yield Finding('sparse-reward', seen, 'Random actions rarely find a reward: learning begins late', remedy)
    if (largest > MAX_RETURN / 100 and not clipped) or total > 10 * MAX_RETURN:
        seen = f'rewards are up to {largest:.4g}, returns up to {total:.4g}'
        yield large_returns(seen)
    elif 0 < total < MIN_RETURN:
        seen = f'rewards are at most {largest:.2g}, returns at most {total:.2g}'
        yield small_returns(seen)


def _end_findings(envs: Envs, played: Played, lengths: np.ndarray) -> Iterator[Finding]:
    limit = getattr(envs.factory, 'max_episode_steps', None) or (envs.spec and envs.spec.max_episode_steps)
    if not len(played.episodes):
        if limit and len(played.rewards) < 2 * limit:
            return  # the time was too short for an episode
        seen = f'no episode ended in {len(played.rewards)} steps'
        meaning = 'Without ends there is no mean reward, and the agent may never leave a bad state'
        yield Finding('endless-episodes', seen, meaning, 'Set --max-episode-steps')
        return
    terminated = played.ends[:, 0]
    if len(lengths) >= 3 and np.ptp(lengths) == 0 and terminated.sum() == played.ends.sum() and lengths[0] > 1:
        seen = f'all {len(lengths)} episodes terminated after exactly {lengths[0]} steps'
        meaning = 'That looks like a time limit: a terminated state has the value 0, a truncated one does not'
        yield Finding('time-limit', seen, meaning, 'Return truncated=True, or leave the limit to --max-episode-steps')
    if (played.ends[:, 0] & played.ends[:, 1]).mean() > 0.5 * played.ends.any(1).mean() > 0:
        yield Finding(
            'time-limit',
            'most episodes ended as terminated and as truncated',
            'Terminated wins',
            'Return one of the two',
        )


def _limit_facts(envs: Envs) -> Iterator[tuple[str, str]]:
    limit = None if envs.spec is None else envs.spec.max_episode_steps
    own = getattr(envs.factory, 'max_episode_steps', None)
    text = f'{own} steps (--max-episode-steps)' if own else f'{limit} steps' if limit else 'none registered'
    yield 'Time limit', text


def _determinism(factory: EnvFactory, seed: int, numbers: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding if equal seeds and actions do not give equal transitions."""
    runs = []
    for _ in range(2):
        with factory(in_process=True) as envs:
            policy = RandomPolicy(envs, seed)
            statistics = Statistics(raw_dtype=envs.observation_space.dtype)
            rollout = Collector.of_policy(envs, policy, statistics, RandomStreams(seed), True).collect(2 * CHUNK)
            runs.append(
                {name: np.array(rollout[name]) for name in ('observations', 'rewards', 'terminated', 'truncated')}
            )
    different = [name for name, values in runs[0].items() if not np.array_equal(values, runs[1][name])]
    numbers['deterministic'] = not different
    if different:
        seen = f'equal seeds and actions gave different {different[0]}'
        meaning = 'Equal seeds will not give equal runs, and a resume is not exact'
        remedy = 'Draw all random numbers from self.np_random, which reset(seed=…) creates'
        yield Finding('determinism', seen, meaning, remedy)


def _agents(factory: EnvFactory) -> Iterator[str]:
    """Yield the ids of agents that admit the spaces."""
    with factory(in_process=True) as envs:
        for agent_id in BUILTIN_AGENTS:
            entry = find_agent(agent_id).form_for(envs.action_space)
            if entry.options.datasets == 'only':
                continue
            with contextlib.suppress(ValueError, TypeError):
                entry.agent.check_envs(envs, entry.options())
                yield agent_id


def _speeds(factory: EnvFactory, options: Mapping[str, Any], numbers: dict[str, Any]) -> dict[str, str]:
    """Return the speed of each vector, or the reason why the environment has none."""
    n_envs = factory.n_envs if factory.n_envs > 1 else 8
    numbers['n_envs'], numbers['steps_per_second'] = n_envs, {}
    found = {}
    for name in VECTORS:
        try:
            if name == 'compiled':
                speed = _compiled_speed(options, n_envs)
            else:
                with dataclasses.replace(factory, n_envs=n_envs, vector=name)(compiled=False) as envs:
                    speed = _step_speed(envs)
        except Exception as error:  # an environment may raise any error in other processes or forms
            problem = error.problem if isinstance(error, OptionError) else one_line(error)
            found[name] = f'not possible: {problem}'
            continue
        numbers['steps_per_second'][name] = speed
        found[name] = f'{speed:,.0f} steps/s with {n_envs} environments'.replace(',', ' ')
        if name == 'compiled':
            found[name] += ', acting included'
    return found


def _step_speed(envs: Envs) -> float:
    """Return the steps per second with random actions, drawn before."""
    policy, rng, decode = RandomPolicy(envs), np.random.default_rng(0), ActionDecoder(envs.action_space)
    observations = envs.reset(seed=0)
    noise = policy.draw_noise(rng, (SPEED_STEPS, envs.n_envs))
    envs.step(decode(policy(observations, noise[0])['actions']))
    observed = [observations]
    rows = itertools.cycle(noise)

    def step() -> int:
        observed[0], *_ = envs.step(decode(policy(observed[0], next(rows))['actions']))
        return int(np.count_nonzero(envs.valid))

    return _fastest(step) / envs.agents_per_env


def _fastest(call: Callable[[], int]) -> float:
    """Return the largest number of steps per second of calls that return their steps."""
    speeds = []
    for _ in range(SPEED_REPEATS):
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < SPEED_SECONDS:
            steps += call()
        speeds.append(steps / (time.perf_counter() - start))
    return max(speeds)


def _compiled_speed(options: Mapping[str, Any], n_envs: int) -> float:
    """Return the steps per second of a compiled rollout with a small network."""
    arguments = {name: value for name, value in options.items() if name not in ('env', 'n_envs', 'vector')}
    agent: Any = make('ppo', options['env'], n_envs=n_envs, vector='compiled', seed=0, **arguments)
    with contextlib.closing(agent):
        agent.collector.collect(SPEED_STEPS)
        return _fastest(lambda: int(np.count_nonzero(agent.collector.collect(SPEED_STEPS)['valid'])))


def _percent(share: float) -> str:
    return f'{100 * share:.3g} %'
