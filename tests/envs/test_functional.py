"""Environments as functions: equal to Gymnasium's, compiled or not; resets, parameters, adapters and messages."""

import concurrent.futures
import gc
import weakref

import gymnasium
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gymnasium.utils.env_checker import check_env

import xagents
from tests.commands import execute, refused
from tests.functional_problems import Mixed, Target, TwoLegal
from xagents.collecting.collector import Collector
from xagents.collecting.compiled_stepper import CompiledEnvStepper
from xagents.collecting.env_stepper import LocalEnvStepper
from xagents.collecting.random_streams import RandomStreams
from xagents.envs.functional import FunctionalEnv, classic_control, register
from xagents.envs.functional.adapter import FunctionalAdapter
from xagents.envs.functional.vector import FunctionalVectorEnv
from xagents.envs.interface import Envs
from xagents.networks.program_cache import share_programs
from xagents.options.errors import OptionError

TRANSITIONS = 100_000
# float32 against float64: absolute and relative differences of one step, about ten times the rounding of its sums
TOLERANCE = 2e-6
PI = np.pi
# of each environment: bounds of random states, a state on each edge, and whether an element of a state is an angle
STATES = {
    'CartPole-v1': (
        [2.5, 3.0, 0.25, 3.0],
        [[2.4, 0, 0, 0], [-2.4, 0, 0, 0], [0, 0, 0.20943951, 0], [0, 0, -0.20943951, 0], [2.39, 0.6, 0, 0]],
    ),
    'Pendulum-v1': ([20.0, 8.0], [[PI, 8], [-PI, -8], [0, 0], [3 * PI, 8], [PI / 2, -8]]),
    'Acrobot-v1': (
        [PI, PI, 4 * PI, 9 * PI],
        [[PI, PI, 12.5, 28.2], [-PI, -PI, -12.5, -28.2], [0, 0, 0, 0], [PI / 2, PI / 2, 0, 0]],
    ),
    'MountainCar-v0': ([1.2, 0.07], [[-1.2, -0.07], [0.6, 0.07], [0.45, 0.06], [-1.15, -0.05], [0.5, 0]]),
    'MountainCarContinuous-v0': ([1.2, 0.07], [[-1.2, -0.07], [0.6, 0.07], [0.44, 0.01], [-1.15, -0.05], [0.45, 0]]),
}
IDS = [*STATES]


def form_of(env_id, **params):
    """Return the functions of an environment of Gymnasium."""
    return getattr(classic_control, env_id.split('-')[0])(**params)


def random_states(env_id, n, rng):
    """Return n states of an environment as float32 numbers, with states on its edges, and n actions."""
    bounds, edges = STATES[env_id]
    states = rng.uniform(-1, 1, (n, len(bounds))) * bounds
    states[: len(edges)] = edges
    if env_id.startswith('MountainCar'):
        states[:, 0] = np.clip(states[:, 0], -1.2, 0.6)
    space = gymnasium.make(env_id).action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return states.astype(np.float32), rng.integers(int(space.n), size=n)
    return states.astype(np.float32), rng.uniform(1.2 * space.low, 1.2 * space.high, (n, 1)).astype(np.float32)


def gymnasium_steps(env_id, states, actions):
    """Return observations, rewards and terminations of one step of Gymnasium's environment from each state."""
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=0)
    results = []
    for state, action in zip(states.astype(np.float64), actions, strict=True):
        env.state, env.steps_beyond_terminated = state, None
        observation, reward, terminated, *_ = env.step(action)
        results.append((observation, reward, terminated))
    observations, rewards, terminated = zip(*results, strict=True)
    return np.array(observations), np.array(rewards, np.float64), np.array(terminated)


@pytest.mark.parametrize('n', [10_000, pytest.param(TRANSITIONS, marks=pytest.mark.slow)])
@pytest.mark.parametrize('env_id', IDS)
def test_transitions_equal_those_of_gymnasium(env_id, n):
    states, actions = random_states(env_id, n, np.random.default_rng(1))
    form = form_of(env_id)

    @tf.function(jit_compile=True)
    def step(states, actions):
        after = form.transition(states, actions, tf.zeros(2, tf.int32), form.params)
        reward = form.reward(states, actions, after, form.params)
        return form.observation(after, form.params), reward, form.terminal(after, form.params)

    observations, rewards, terminated = (x.numpy() for x in step(states, actions))
    expected, expected_rewards, expected_ends = gymnasium_steps(env_id, states, actions)
    errors = (np.abs(observations - expected) / np.maximum(np.abs(expected), 1)).max(1)
    if env_id == 'Acrobot-v1':  # which multiplies errors: velocities reach 28 rad/s in a step of 0.2 s
        assert np.quantile(errors, 0.999) < 2e-4 and errors.max() < 1e-2
    else:
        assert errors.max() < TOLERANCE
    differ = terminated != expected_ends
    same = ~differ
    np.testing.assert_allclose(rewards[same], expected_rewards[same], rtol=2e-6, atol=2e-5)
    assert terminated.sum() > 0 or env_id == 'Pendulum-v1'
    # terminations differ only if the float64 state lies within the tolerance of a threshold
    assert differ.sum() <= len(STATES[env_id][1]) + n // 20_000
    for i in np.flatnonzero(differ):
        nudged = [gymnasium_steps(env_id, states[[i]] * (1 + e), actions[[i]])[2][0] for e in (-1e-5, 1e-5)]
        assert len({*nudged, bool(expected_ends[i])}) > 1, states[i]


@pytest.mark.parametrize('env_id', IDS)
def test_initial_states_and_random_returns_are_distributed_as_in_gymnasium(env_id):
    # Kolmogorov-Smirnov, 20 000 against 2 000 samples: a difference of 0.06 between distributions is found with a
    # probability above 0.99; a false alarm has the probability 1e-4 for each test
    form, env = form_of(env_id), gymnasium.make(env_id)
    own = form.observation(form.initial(tf.constant([3, 4]), 20_000, form.params), form.params).numpy()
    env.reset(seed=1)
    theirs = np.array([env.reset()[0] for _ in range(2_000)])
    for i in range(own.shape[1]):
        assert scipy.stats.ks_2samp(own[:, i], theirs[:, i]).pvalue > 1e-4, i
    # 400 and 100 episodes of random actions; a shift of a standard deviation is found with p > 0.999
    steps = 100
    envs = xagents.create_envs(env_id, 400, vector='compiled', max_episode_steps=steps)
    rng = np.random.default_rng(0)
    played = play_once(envs, rng, steps)
    reference = play_once(xagents.create_envs(env_id, 100, vector='sync', max_episode_steps=steps), rng, steps)
    for i, (ours, other) in enumerate(zip(played, reference, strict=True)):
        # random actions reach no goal of Acrobot and MountainCar in these steps
        assert len({*ours, *other}) > 1 or (i == 0 and env_id in ('Acrobot-v1', 'MountainCar-v0')), i
        assert scipy.stats.ks_2samp(ours, other).pvalue > 1e-4, i


def play_once(envs, rng, steps):
    """Return the returns of the first episodes, and each element of the observations after 8 random actions."""
    envs.reset(seed=5)
    returns = {}
    for t in range(steps):
        space = envs.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            actions = rng.integers(int(space.n), size=envs.n_envs)
        else:
            actions = rng.uniform(space.low, space.high, (envs.n_envs, *space.shape)).astype(np.float32)
        observations, *_ = envs.step(actions)
        if t == 7:
            seen = np.array(observations).T
        for episode in envs.pop_episodes():
            returns.setdefault(episode.env, episode.reward)
    assert len(returns) == envs.n_envs
    return [np.array([*returns.values()]), *seen]


# steps and resets


def vector_of(functional, n=4, limit=None):
    return FunctionalVectorEnv(functional, n, functional.max_episode_steps if limit is None else limit)


def test_an_episode_ends_with_its_true_last_observation_and_the_next_step_only_resets():
    vector = vector_of(Target(noise=0.0))
    first, _ = vector.reset(seed=1)
    state, actions = np.array(first), np.full((4, 2), 0.1, np.float32)
    for t in range(1, 8):
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        state = state + np.float32(0.05)
        np.testing.assert_allclose(observations, state, rtol=1e-6)
        np.testing.assert_allclose(rewards, -(state**2).sum(1), rtol=1e-5)
        assert not terminated.any() and truncated.tolist() == [t == 7] * 4
    observations, rewards, terminated, truncated, _ = vector.step(actions)
    assert not rewards.any() and not (terminated | truncated).any()
    assert not np.isclose(observations, state).any() and (np.abs(observations) <= 1).all()
    following, *_ = vector.step(actions)
    np.testing.assert_allclose(following, observations + np.float32(0.05), rtol=1e-6)


def test_a_terminated_episode_does_not_touch_the_others():
    vector = vector_of(Target(noise=0.0))
    vector.reset(seed=1)
    push = np.zeros((4, 2), np.float32)
    push[1] = 8.0
    for expected in (True, False):
        before = np.array(vector.batch.observation)
        observations, _, terminated, _, _ = vector.step(push)
        assert terminated.tolist() == [False, expected, False, False]
        np.testing.assert_array_equal(observations[[0, 2, 3]], before[[0, 2, 3]])


def test_seeds_give_equal_and_different_episodes():
    results = []
    for seed in (1, 1, 2):
        vector = vector_of(Target())
        vector.reset(seed=seed)
        results.append(np.array([vector.step(np.zeros((4, 2), np.float32))[0] for _ in range(20)]))
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.isclose(results[0], results[2]).any(-1).any()
    assert len(np.unique(results[0].reshape(-1, 2), axis=0)) == 80


def test_agents_that_differ_in_numbers_share_programs_without_confusion():
    rewards = {}
    for n_envs, limit in ((6, 9), (8, 9), (6, 5)):
        keywords = {
            'n_envs': n_envs,
            'max_episode_steps': limit,
            'env': 'Pendulum-v1',
            'vector': 'compiled',
            'net': [4],
        }
        with share_programs(
            lambda keywords=keywords: xagents.make('ppo', n_steps=12, seed=1, **keywords), keywords
        ) as agent:
            batch = agent.collect({'learning_rate': 1e-3, 'clip_norm': 0.1})
            assert batch['rewards'].shape == (12, n_envs)
            assert np.flatnonzero(batch['truncated'][:, 0]).tolist() == list(range(limit - 1, 12, limit + 1))
            rewards[n_envs, limit] = np.array(batch['rewards'])
    np.testing.assert_array_equal(rewards[6, 9][:5], rewards[6, 5][:5])


def test_parameters_change_without_compiling():
    envs = xagents.create_envs(Target, 8, vector='compiled')
    envs.reset(seed=1)
    actions = np.zeros((8, 2), np.float32)
    envs.step(actions)
    program = envs.functional_vector._next
    envs.set_params(goal=[5.0, 0.0], noise=0.0)
    before = envs.functional_vector.batch.env
    observations, rewards, *_ = envs.step(actions)
    np.testing.assert_allclose(observations, before - np.float32([5, 0]), rtol=1e-6)
    np.testing.assert_allclose(rewards, -(observations**2).sum(1), rtol=1e-5)
    assert program.traces == 1
    for wrong, message in ({'gaol': 1}, 'goal'), ({'noise': 'x'}, 'expected a number'), ({'goal': 1}, 'shape'):
        with pytest.raises((TypeError, ValueError), match=message):
            envs.set_params(**wrong)


# one compiled program against single steps


def agents(agent_id, env, **options):
    """Return two equal agents in 6 environments, of which the second steps the environments one step at a time."""
    made = [xagents.make(agent_id, env, n_envs=6, vector='compiled', net=[8], seed=1, **options) for _ in range(2)]
    made[1].collector.stepper = LocalEnvStepper(made[1].envs)
    assert isinstance(made[0].collector.stepper, CompiledEnvStepper)
    return made


OFF = {'buffer_max_size': 600, 'buffer_initial_size': 120, 'buffer_batch_size': 8, 'train_frequency': 60}
CASES = {
    'categorical': ('ppo', 'CartPole-v1', {'n_steps': 40}),
    'gaussian': ('ppo', 'Pendulum-v1', {'n_steps': 20, 'normalize_obs': True, 'max_episode_steps': 9}),
    'state-dependent': ('a2c', Target, {'n_steps': 20, 'sde': True, 'sde_sample_frequency': 4}),
    'masks': ('ppo', TwoLegal, {'n_steps': 25, 'normalize_obs': True}),
    'mixed': ('ppo', Mixed, {'n_steps': 17}),
    'memory': ('ppo', TwoLegal, {'n_steps': 16, 'memory': 3}),
    'ε-greedy': ('dqn', TwoLegal, OFF),
    'noisy layers': ('rainbow', TwoLegal, {**OFF, 'prioritized': False}),
    'noise': ('td3', Target, OFF),
    'squashed': ('sac', Target, OFF),
    'correlated noise': ('ddpg', Target, {**OFF, 'noise': 'ornstein-uhlenbeck'}),
}


@pytest.mark.parametrize('case', CASES)
def test_one_program_collects_what_single_steps_collect(case):
    agent_id, env, options = CASES[case]
    pair = agents(agent_id, env, **options)
    n_ends = 0
    for _ in range(3):
        schedules = [{'learning_rate': 1e-3, 'clip_norm': 0.1, 'epsilon': 0.5, 'noise': 0.1} for _ in pair]
        one, other = (agent.collect(schedule) for agent, schedule in zip(pair, schedules, strict=True))
        assert one.keys() == other.keys()
        for name, column in one.items():
            assert column.dtype == other[name].dtype
            np.testing.assert_allclose(column, other[name], rtol=1e-4, atol=1e-4, err_msg=name)
        ends = [[(e.env, e.length, e.step) for e in agent.collector.stats.episodes] for agent in pair]
        returns = [[e.reward for e in agent.collector.stats.episodes] for agent in pair]
        assert ends[0] == ends[1]
        n_ends += len(ends[0])
        np.testing.assert_allclose(*returns, rtol=1e-4, atol=1e-4)
        assert pair[0].collector.stats.steps == pair[1].collector.stats.steps == one['valid'].sum()
        np.testing.assert_array_equal(pair[0].envs.valid, pair[1].envs.valid)
        for agent in pair:
            agent.collector.stats.episodes.clear()
            agent.collector.stats.steps = 0
    assert n_ends > 0


def test_a_reward_that_is_not_finite_ends_collecting_and_resets():
    agent = xagents.make('ppo', TwoLegal, n_envs=6, vector='compiled', n_steps=8, net=[8], seed=1)
    agent.envs.functional_vector.functional.reward = lambda state, action, after, params: (
        tf.cast(state['bit'], tf.float32) * np.nan
    )
    with pytest.raises(ArithmeticError, match='rewards are not finite'):
        agent.collect({'learning_rate': 1e-3, 'clip_norm': 0.1})
    assert agent.collector.observations is None


def test_overlap_and_two_runs_of_one_seed_are_equal(tmp_path):
    options = {'n_envs': 8, 'n_steps': 16, 'net': [8], 'seed': 3, 'vector': 'compiled', 'quiet': True}
    runs = []
    for overlap in (False, False, True):
        agent = xagents.make('ppo', 'CartPole-v1', **options)
        agent.fit(max_steps=1500, overlap=overlap, final_episodes=0)
        runs.append(np.concatenate([x.ravel() for x in agent.output_models[0].get_weights()]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.isfinite(runs[2]).all() and not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize(('agent_id', 'env'), [('ppo', 'TwoLegal'), ('sac', 'Target')])
def test_a_stopped_run_continues_exactly(agent_id, env, tmp_path):
    options = {'n_envs': 6, 'net': [8], 'seed': 3, 'vector': 'compiled', 'quiet': True, 'normalize_obs': True}
    options |= {'n_steps': 8} if agent_id == 'ppo' else OFF
    runs = []
    for steps in ([960], [480, 960]):
        folder = tmp_path / str(len(steps))
        agent = xagents.make(agent_id, f'tests.functional_problems:{env}', run_dir=folder, **options)
        for n in steps:
            agent = xagents.resume(folder) if agent.steps else agent
            agent.fit(max_steps=n, final_episodes=0)
        assert isinstance(agent.collector.stepper, CompiledEnvStepper)
        runs.append(np.concatenate([x.ravel() for model in agent.output_models for x in model.get_weights()]))
    np.testing.assert_array_equal(*runs)


# which environments are compiled


def vector_kind(**options):
    with xagents.create_envs(**{'env': 'CartPole-v1', 'n_envs': 8, **options}) as envs:
        return type(envs._vector).__name__


def test_auto_compiles_several_environments_and_evaluations_use_gymnasium():
    assert vector_kind() == 'FunctionalVectorEnv'
    assert vector_kind(n_envs=2) == 'LoopVectorEnv'
    assert vector_kind(n_envs=2, vector='compiled') == 'FunctionalVectorEnv'
    assert vector_kind(vector='sync') == 'LoopVectorEnv'
    assert vector_kind(env_kwargs={'sutton_barto_reward': True}) == 'CartPoleVectorEnv'
    assert vector_kind(env='Pendulum-v1', env_kwargs={'g': 5.0}) == 'FunctionalVectorEnv'
    assert vector_kind(wrapper=['gymnasium.wrappers:ClipReward', 'max_reward=1']) == 'LoopVectorEnv'
    for vector in ('auto', 'compiled'):
        with xagents.create_envs('CartPole-v1', 8, vector=vector) as envs, envs.recreate(8) as others:
            assert type(others._vector).__name__ == 'CartPoleVectorEnv'
        with xagents.create_envs(Target, 8, vector=vector) as envs, envs.recreate(2, render_mode='rgb_array') as own:
            assert isinstance(own._vector.envs[0].unwrapped, FunctionalAdapter)
            own.reset(seed=1)
            assert own.render()[0].shape == (16, 16, 3)
        with envs.recreate(8, training=True) as again:
            assert isinstance(again._vector, FunctionalVectorEnv)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'env': lambda: Target()}, 'is a function, expected a class of xagents.envs.FunctionalEnv'),
        ({'env': 'pettingzoo:mpe2.simple_spread_v3'}, 'simple_spread_v3 consists of Python steps'),
        ({'env': 'LunarLander-v3'}, 'got compiled, but LunarLander-v3 consists of Python steps'),
        ({'wrapper': ['gymnasium.wrappers:ClipReward', 'max_reward=1']}, 'cannot be compiled with wrappers'),
        ({'frame_skip': 2}, 'cannot be compiled with --frame-skip'),
        ({'env_kwargs': {'sutton_barto_reward': True}}, 'no functions for the argument sutton_barto_reward'),
        ({'env': Target, 'env_kwargs': {'nois': 1}}, "takes no 'nois', expected noise, goal .did you mean noise"),
        ({'env': Target, 'env_kwargs': {'noise': 'much'}}, "noise: got 'much', expected a number"),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_one_line(options, message):
    with pytest.raises(OptionError, match=message) as error:
        xagents.create_envs(**{'env': 'CartPole-v1', 'n_envs': 8, 'vector': 'compiled', **options})
    assert '\n' not in str(error.value)


def test_the_command_line_trains_evaluates_resumes_and_plays(tmp_path):
    own = ['--env', 'tests.functional_problems:Target', '--n-envs', '6', '--net', '8', '--seed', '1']
    run = ['--run-dir', str(tmp_path / 'run')]
    lines = [
        ['train', 'ppo', *own, '--n-steps', '16', '--max-steps', '400', '--final-episodes', '2', *run],
        ['train', '--resume', str(tmp_path / 'run'), '--max-steps', '800'],
        ['evaluate', *run, '--episodes', '3'],
        ['play', *run, '--video-dir', str(tmp_path / 'video'), '--max-steps', '5'],
    ]
    for line in lines:
        code, _, stderr = execute(*line)
        assert code == 0, (line, stderr)
    assert list((tmp_path / 'video').glob('*.mp4'))


def test_explorers_are_refused():
    options = {'vector': 'compiled', 'n_envs': 8, 'explorers': 2}
    line = refused('ppo', 'CartPole-v1', options)
    assert line.startswith('xagents train: --vector: got compiled with --explorers, expected auto or sync')


# Gymnasium


def test_the_adapter_is_an_environment_of_gymnasium(tmp_path):
    if 'FunctionalTarget-v0' not in gymnasium.registry:
        register('FunctionalTarget-v0', Target)
    env = gymnasium.make('FunctionalTarget-v0', noise=0.0, render_mode='rgb_array')
    check_env(env.unwrapped, skip_render_check=True)
    first = [env.reset(seed=seed)[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])
    for t in range(1, 8):
        observation, reward, terminated, truncated, _ = env.step(np.float32([0.1, 0.1]))
        np.testing.assert_allclose(observation, first[2] + 0.05 * t, rtol=1e-5)
        assert reward == pytest.approx(-(observation**2).sum(), rel=1e-5)
        assert not terminated and truncated == (t == 7)
    assert env.render().shape == (16, 16, 3)
    assert vector_kind(env='FunctionalTarget-v0') == 'FunctionalVectorEnv'
    for problem, message in ({'render_mode': 'human'}, 'render_mode'), ({'nose': 1}, 'nose'):
        with pytest.raises((TypeError, ValueError), match=message):
            FunctionalAdapter(Target(**{k: v for k, v in problem.items() if k == 'nose'}), problem.get('render_mode'))


def test_a_snapshot_of_an_adapter_and_of_a_vector_continues_exactly():
    for vector in ('compiled', 'sync'):
        envs = xagents.create_envs(Target, 3, vector=vector)
        envs.reset(seed=1)
        actions = np.full((3, 2), 0.3, np.float32)
        for _ in range(5):
            envs.step(actions)
        copy = envs.snapshot()
        assert copy is not None, envs.snapshot_problem
        results = []
        for _ in range(2):
            results.append(np.array([envs.step(actions)[0] for _ in range(9)]))
            envs.restore(copy)
        np.testing.assert_array_equal(*results)
        other = xagents.create_envs(Target, 3, vector=vector)
        other.restore(copy)
        np.testing.assert_array_equal(results[0], [other.step(actions)[0] for _ in range(9)])


def test_a_collector_reads_its_own_state_back():
    envs = xagents.create_envs('CartPole-v1', 6, vector='compiled')
    agent = xagents.make('ppo', 'CartPole-v1', n_envs=6, vector='compiled', n_steps=30, net=[8], seed=1)
    schedule = {'learning_rate': 1e-3, 'clip_norm': 0.1}
    agent.collect(schedule)
    arrays, record = agent.collector.state()
    first = {name: np.array(x) for name, x in agent.collect(schedule).items()}
    assert agent.collector.load(arrays, record)
    second = agent.collect(schedule)
    for name, x in first.items():
        np.testing.assert_array_equal(x, second[name], err_msg=name)
    assert isinstance(
        Collector.of_policy(envs, agent.acting_policy, agent.statistics, RandomStreams(1)).stepper, CompiledEnvStepper
    )


class Broken(Target):
    """An environment whose functions return what `wrong` says."""

    def __init__(self, wrong='', **params):
        super().__init__(**params)
        self.wrong = wrong

    def initial(self, rng, n, params):
        return [1.0] * n if self.wrong == 'list' else super().initial(rng, n, params)

    def transition(self, state, action, rng, params):
        after = super().transition(state, action, rng, params)
        return {'structure': (after, after), 'columns': after[:, :1], 'double': tf.cast(after, tf.float64)}.get(
            self.wrong, after
        )

    def observation(self, state, params):
        seen = super().observation(state, params)
        return tf.where(state == 0.0, 0.0, seen)[:, :1] if self.wrong == 'one' else seen

    def reward(self, state, action, next_state, params):
        reward = super().reward(state, action, next_state, params)
        return {'mean': tf.reduce_mean(reward), 'column': reward[:, None]}.get(self.wrong, reward)

    def terminal(self, state, params):
        end = super().terminal(state, params)
        return {'all': tf.reduce_any(end), 'float': tf.cast(end, tf.float32)}.get(self.wrong, end)


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        ('list', 'Broken.initial returned a float, expected a tensor of shape [6]'),
        ('structure', 'Broken.transition returned another structure than Broken.initial'),
        ('columns', 'Broken.transition returned float32 [6, 1], expected float32 [6, 2]'),
        ('double', 'Broken.transition returned float64 [6, 2], expected float32 [6, 2]'),
        ('one', 'Broken.observation returned float32 [6, 1], expected [6, 2]'),
        ('mean', 'Broken.reward returned float32 [], expected float32 or float64 [6]'),
        ('column', 'Broken.reward returned float32 [6, 1], expected float32 or float64 [6]'),
        ('all', 'Broken.terminal returned bool [], expected bool [6]'),
        ('float', 'Broken.terminal returned float32 [6], expected bool [6]'),
    ],
)
def test_functions_that_return_something_else_are_named(wrong, message):
    envs = Envs(FunctionalVectorEnv(Broken(wrong), 6, 7), id='broken')
    with pytest.raises(OptionError) as error:
        envs.reset(seed=1)
    assert message in str(error.value)


class CallsPython(Target):
    def transition(self, state, action, rng, params):
        return tf.ensure_shape(tf.py_function(lambda x: x, [state], tf.float32), state.shape)


class Crashes(Target):
    def transition(self, state, action, rng, params):
        return {}['missing']


@pytest.mark.parametrize('n_envs', [2, 6])
def test_functions_that_fail_do_so_before_a_run_writes_files(n_envs, tmp_path):
    for env, error in (CallsPython, OptionError), (Crashes, KeyError):
        with pytest.raises(error, match=r'CallsPython.transition calls Python|missing'):
            xagents.make('ppo', env, n_envs=n_envs, run_dir=tmp_path / 'run')
    assert not (tmp_path / 'run').exists()


def test_wrong_limits_spaces_and_parameters_are_refused():
    for attribute, value in (('max_episode_steps', -5), ('max_episode_steps', 2.5), ('action_space', None)):
        wrong = type('Wrong', (Target,), {attribute: value})
        for vector in ('compiled', 'sync'):
            with pytest.raises(OptionError, match=f'Wrong.* {attribute}|Wrong.{attribute}'):
                xagents.create_envs(wrong, 6, vector=vector)
    missing = type('Wrong', (Target,), {'reward': FunctionalEnv.reward})
    listed = type('Wrong', (Target,), {'default_params': ['noise']})
    for n_envs in (2, 6):
        with pytest.raises(OptionError, match=r'^env: Wrong has no method reward'):
            xagents.create_envs(missing, n_envs)
        with pytest.raises(OptionError, match=r'^env: Wrong.default_params: got list'):
            xagents.create_envs(listed, n_envs)
    for vector in ('compiled', 'sync'):
        with pytest.raises(OptionError, match=r'^env_kwargs: noise: got nan, expected finite numbers'):
            xagents.create_envs(Target, 6, vector=vector, env_kwargs={'noise': float('nan')})
    with pytest.raises(OptionError, match=r"^env_kwargs: g: got 'abc', expected a number"):
        xagents.create_envs('Pendulum-v1', 6, env_kwargs={'g': 'abc'})
    with pytest.raises(OptionError, match=r'^video_dir: .*draws no pictures'):
        xagents.create_envs(Mixed, 1, render_mode='rgb_array')


@pytest.mark.parametrize('env', [TwoLegal, Target])
def test_data_sets_of_compiled_environments_contain_raw_observations(env, tmp_path, monkeypatch):
    pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    name = f'compiled-{env.__name__.lower()}-v0'
    options = {'n_envs': 6, 'vector': 'compiled', 'n_steps': 8, 'net': [4], 'seed': 1, 'quiet': True}
    xagents.make('ppo', env, **options).fit(max_steps=400, final_episodes=0, record_dataset=name)
    space = env.observation_space
    dataset = xagents.open_dataset(name)
    assert dataset.episodes > 10
    for episode in dataset:
        assert len(episode.rewards) <= env.max_episode_steps
        observations = episode.observations
        first = {key: x[0] for key, x in observations.items()} if isinstance(observations, dict) else observations[0]
        assert space.contains(first)


class Registered(Target):
    """Its registration has no limit."""


def test_an_id_of_the_registry_has_the_limit_of_its_registration():
    register('TargetWithoutLimit-v0', Registered, max_episode_steps=None)
    for vector in ('compiled', 'auto', 'sync'):
        with xagents.create_envs('TargetWithoutLimit-v0', 6, vector=vector) as envs:
            envs.reset(seed=1)
            for _ in range(Registered.max_episode_steps + 1):
                _, _, _, truncated = envs.step(np.zeros((6, 2), np.float32))
                assert not truncated.any()
    xagents.create_envs(Target, 6, vector='compiled', max_episode_steps=3_000_000_000).reset(seed=1)


class Own(Target):
    """The reward depends on the type of an attribute."""

    def __init__(self, own, **params):
        super().__init__(**params)
        self.own = own

    def reward(self, state, action, next_state, params):
        found = 0.5 if isinstance(self.own, float) else float(np.sum(self.own))
        return tf.fill([state.shape[0]], found)


def test_adapters_share_programs_only_if_their_attributes_are_equal():
    unpicklable = Own(7)
    unpicklable.function = lambda: 0
    adapters = [*map(FunctionalAdapter, (Own(2), Own(2.0), Own(np.array([2, 3])), Own(np.array([2, 4])), unpicklable))]
    for env in adapters:
        env.reset(seed=1)
    # the actions are neither arrays nor of the space's dtype
    assert [env.step([0.5, 0.25])[1] for env in adapters] == [2.0, 0.5, 5.0, 6.0, 7.0]
    equal = FunctionalAdapter(Own(np.array([2, 3])))
    equal.reset(seed=1)
    assert equal.programs.vector is adapters[2].programs.vector


def test_programs_of_adapters_are_freed():
    vectors = []
    for i in range(40):
        env = FunctionalAdapter(Own(i))
        env.check()
        vectors.append(weakref.ref(env.programs.vector))
    del env
    gc.collect()
    assert sum(vector() is not None for vector in vectors) <= 16


def test_a_state_of_other_parameters_or_shapes():
    vector = vector_of(Target(goal=(0.5, 0.5)))
    vector.reset(seed=1)
    state = vector.get_state()
    state['params'] |= {'removed': np.float32(1)}
    del state['params']['noise']
    other = vector_of(Target(noise=0.5))
    other.set_state(state)
    assert other.params['noise'] == 0.5 and 'removed' not in other.params
    np.testing.assert_array_equal(other.params['goal'], vector.params['goal'])
    state['leaves'][0] = state['leaves'][0][..., None]
    with pytest.raises(ValueError, match='state of another environment'):
        other.set_state(state)


def test_a_curriculum_of_an_array_is_refused():
    for vector in ('compiled', 'sync'):
        with xagents.create_envs(Target, 6, vector=vector) as envs:
            envs.check_params({'noise': (0, 0.5)})
            with pytest.raises(OptionError, match=r'^curriculum: Target: goal: got an array of shape \(\), expected'):
                envs.check_params({'goal': (0, 0.5)})


def test_adapters_in_threads_do_not_disturb_each_other():
    def play(goal):
        env = FunctionalAdapter(Target(noise=0.0, goal=[goal, 0.0]))
        observation, _ = env.reset(seed=1)
        start = observation[0] + goal
        for _ in range(30):
            observation, *_ = env.step(np.zeros(2, np.float32))
            if not np.isclose(observation[0], start - goal, atol=1e-5):
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert all(pool.map(play, [0.0, 5.0, -3.0]))
