"""Policies that are loaded without TensorFlow choose the same actions as their agents."""

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xagents
from tests.agents.contract import clause
from tests.commands import execute
from tests.small_agents import on_cartpole
from xagents.checkpoints.agent_state import capture_policy
from xagents.checkpoints.weight_files import write_weight_files
from xagents.collecting.policies import SamplingPolicy
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN, write_policy
from xagents.collecting.trained_policy import read_policy
from xagents.options.declaration import declared_options
from xagents.options.environment import NetworkOptions

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla_in_module')


class RandomObservations(gymnasium.Env):
    """An environment whose observations are samples of a space."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def write_and_read(agent, folder):
    """Write the current policy of an agent and read the files."""
    write_policy(capture_policy(agent), folder / POLICY_PLAN, folder / POLICY_ARRAYS)
    return read_policy(folder / POLICY_PLAN, folder / POLICY_ARRAYS)


def assert_acts_as(agent, observation_space, action_space, folder):
    """Write the policy of an agent with random weights, read it, and compare the actions of both, bit for bit."""
    rng = np.random.default_rng(0)
    for model in agent.output_models:
        for variable in model.weights:
            value = rng.normal(size=variable.shape) / max((*variable.shape[:1], 1)) ** 0.5
            variable.assign(np.abs(value) if 'variance' in variable.path else value)
    agent.collector.collect(7)  # updates the statistics
    policy = write_and_read(agent, folder)
    assert (policy.agent, *policy.spaces) == (agent.id, observation_space, action_space, None, ())
    batch = gymnasium.vector.utils.batch_space(observation_space, 11)
    batch.seed(3)
    batch = batch.sample()
    np.testing.assert_array_equal(policy(batch), agent.act(batch))
    policy.reset(5)
    sampled = policy(batch, stochastic=True)
    encoded = agent.envs.encoder(batch)
    noise = agent.acting_policy.draw_noise(np.random.default_rng(5), (len(encoded),))
    columns = agent.acting_policy(agent.statistics.prepare(encoded), noise)
    np.testing.assert_array_equal(sampled, agent.collector.group.decode(columns['actions']))
    actual = policy.acting_policy(policy.statistics.prepare(encoded), noise)
    assert actual.keys() == columns.keys()
    assert policy.acting_policy.columns.keys() == agent.acting_policy.columns.keys()
    for column in actual:
        np.testing.assert_array_equal(actual[column], columns[column])
    one = agent.envs._vector.single_observation_space.sample()
    action = policy(one)
    assert action_space.contains(action if action_space.shape or isinstance(action_space, spaces.Box) else int(action))


@clause('acts from a plan')
def test_a_plan_acts_as_its_agent_does_to_the_bit(case, tmp_path):
    observation_space, action_space, options = case.deployed
    options = {'n_envs': 3, 'seed': 1, 'net': [9, 1, 6], 'normalize_obs': True, **options}
    agent = xagents.make(case.id, lambda: RandomObservations(observation_space, action_space), **options)
    assert_acts_as(agent, observation_space, action_space, tmp_path)


SIZES = st.integers(1, 5)
FINITE = st.builds(
    lambda shape, high: spaces.Box(-1, high, tuple(shape), np.float32), st.lists(SIZES, max_size=2), SIZES
)
DISCRETE = st.builds(spaces.Discrete, st.integers(2, 9), start=st.integers(-3, 3))
ANY = st.one_of(
    FINITE,
    DISCRETE,
    st.builds(spaces.MultiDiscrete, st.lists(SIZES, min_size=1, max_size=4)),
    st.builds(spaces.MultiBinary, SIZES),
    st.builds(lambda n: spaces.Box(-np.inf, np.inf, (n,), np.float32), SIZES),
)
ACTION_SPACES = {**dict.fromkeys(('a2c', 'ppo', 'trpo'), ANY), **dict.fromkeys(('acer', 'dqn'), DISCRETE)}
ACTION_SPACES |= dict.fromkeys(('ddpg', 'td3'), FINITE)


@given(
    case=st.sampled_from(sorted(ACTION_SPACES)).flatmap(lambda name: st.tuples(st.just(name), ACTION_SPACES[name])),
    net=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    activation=st.sampled_from(declared_options(NetworkOptions)['activation'].choices),
    inputs=st.integers(1, 300),
    normalize=st.booleans(),
    sde=st.booleans(),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_dense_policy_acts_as_its_agent_does(case, net, activation, inputs, normalize, sde, tmp_path):
    name, action_space = case
    observation_space = spaces.Box(-3, 3, (inputs,), np.float32)
    options = {'net': net, 'activation': activation, 'normalize_obs': normalize}
    if sde and name in ('a2c', 'ppo', 'trpo') and isinstance(action_space, spaces.Box):
        options |= {'sde': True, 'sde_expln': normalize}
    agent = xagents.make(name, lambda: RandomObservations(observation_space, action_space), n_envs=3, seed=1, **options)
    assert_acts_as(agent, observation_space, action_space, tmp_path)


class CustomAct(xagents.A2C):
    """An agent that overrides `act`."""

    def act(self, observations, greedy=True, policy=None):
        return super().act(observations, greedy, policy)


class PolicyWithoutPlan(SamplingPolicy):
    """A policy that has no plan."""

    def to_dict(self):
        return None


def test_what_acts_by_code_of_its_own_has_no_plan(monkeypatch):
    envs = xagents.create_envs('CartPole-v1', 2)
    agent = CustomAct(envs, xagents.make('a2c', envs).model)
    assert capture_policy(agent) is None
    agent = xagents.make('a2c', 'CartPole-v1')
    assert capture_policy(agent) is not None
    monkeypatch.setattr(SamplingPolicy, 'to_dict', PolicyWithoutPlan.to_dict)
    assert capture_policy(agent) is None


@pytest.fixture(scope='module')
def run(tmp_path_factory, without_xla_in_module):
    """Train PPO for a few steps. Return the folder of its run directory and of its weight files."""
    folder = tmp_path_factory.mktemp('runs')
    options = {'n_envs': 2, 'n_steps': 16, 'mini_batches': 1, 'net': [8], 'normalize_obs': True, 'seed': 2}
    options |= {'run_dir': str(folder / 'run'), 'checkpoints': [str(folder / 'a.tf')], 'quiet': True}
    agent = xagents.make('ppo', 'CartPole-v1', **options)
    agent.fit(max_steps=400)
    agent.close()
    return folder


LINES = (
    'evaluate ppo --run-dir {run}/run --episodes 3 --seed 4',
    'evaluate ppo --weights {run}/a.tf --episodes 3 --seed 4 --stochastic --json',
    'play ppo --run-dir {run}/run --seed 4 --checkpoint last',
)


def test_playing_loads_neither_tensorflow_nor_keras_and_takes_little_memory(run, tmp_path):
    run = Path(shutil.copytree(run, tmp_path / 'runs', symlinks=True))
    code = (
        'import sys\n'
        'from xagents.cli.dispatch import execute\n'
        'for line in sys.argv[1:]:\n'
        '    execute(line.split())\n'
        # packages that docs/policy.md does not list for a machine that only acts
        "names = {'tensorflow', 'keras', 'pandas', 'pyarrow', 'matplotlib', 'optuna', 'psutil', 'scipy'}\n"
        'assert not names & set(sys.modules)\n'
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        'assert int(peak.split()[1]) < 120_000, peak\n'
    )
    lines = [line.format(run=run) for line in LINES]
    done = subprocess.run([sys.executable, '-c', code, *lines], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, '')
    for file in (*run.rglob(f'*{POLICY_PLAN}'), *run.rglob(f'*{POLICY_ARRAYS}')):
        file.unlink()
    # without policy files, the agent itself acts and prints the same output
    results = [execute(*line.split()) for line in lines]
    assert [code for code, _, _ in results] == [0, 0, 0]
    assert ''.join(out for _, out, _ in results) == done.stdout


@pytest.fixture
def copied(run, tmp_path):
    """Copy the run, so that a test can damage its policy."""
    return Path(shutil.copytree(run / 'run', tmp_path / 'run', symlinks=True))


def plan(change):
    def damage(best):
        record = json.loads((best / POLICY_PLAN).read_text())
        change(record)
        (best / POLICY_PLAN).write_text(json.dumps(record))

    return damage


def arrays(**others):
    def damage(best):
        with np.load(best / POLICY_ARRAYS) as file:
            changed = {**file, **others}
        np.savez(best / POLICY_ARRAYS, **changed)

    return damage


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        (plan(lambda record: record.update(format=2)), f'{POLICY_PLAN} is damaged or not a policy (it has the'),
        (plan(lambda record: record.pop('network')), f'{POLICY_PLAN} is damaged'),
        (plan(lambda record: record['policy'].update(kind='own')), 'it is no record of a policy'),
        (plan(lambda record: record['action_space'].update(space='Text')), 'it is no record of a space'),
        (plan(lambda record: record['observation_space'].update(shape=[5])), f'{POLICY_PLAN} is damaged'),
        (plan(lambda record: record['network'].update(outputs=[0])), 'do not fit actions Discrete(2)'),
        (plan(lambda record: record['network'].update(outputs=[])), 'its outputs are not vectors'),
        (plan(lambda record: record['network'].update(n_parameters=10**15)), 'weights: got float32 of shape ('),
        (plan(lambda record: record['network']['calls'][0].update(bias=5)), 'bias and expln must be true or false'),
        (plan(lambda record: record['network']['calls'][0].update(kernel=[4, 8.0])), 'a size is not a whole number'),
        (
            plan(lambda record: record['policy'].update(kind='noisy', n_units=2, scale=1, drifts=False)),
            'do not fit actions Disc',
        ),
        (plan(lambda record: record.update(agent='dqn')), 'with a policy of dqn, expected one of ppo'),
        (lambda best: (best / POLICY_PLAN).write_text('[' * 100_000), f'{POLICY_PLAN} is damaged'),
        (arrays(weights=np.zeros(5, np.float32)), 'weights: got float32 of shape (5,), expected float32 of ('),
        (arrays(weights=np.full(67, np.nan, np.float32)), f'{POLICY_ARRAYS} is damaged or not a policy (its weights'),
        (arrays(**{'observation_statistics/var': -np.ones(4)}), 'observation_statistics/var are below 0'),
        (arrays(version=np.array(np.inf)), f'{POLICY_ARRAYS} is damaged'),
        (lambda best: (best / POLICY_ARRAYS).write_bytes(b'PK\x03\x04'), f'{POLICY_ARRAYS} is damaged'),
        (lambda best: (best / POLICY_ARRAYS).unlink(), f'{POLICY_ARRAYS} is damaged'),
    ],
)
def test_a_damaged_policy_is_one_line(copied, damage, words):
    damage(copied / 'checkpoints' / 'best')
    code, out, stderr = execute('evaluate', 'ppo', '--run-dir', str(copied))
    assert (code, out) == (2, '') and stderr.count('\n') == 1
    assert words in stderr
    if 'dqn' not in words:
        with pytest.raises(ValueError, match='damaged'):
            xagents.policy(copied)


@pytest.mark.parametrize('ending', ['tf', 'weights.h5'])
def test_a_policy_of_other_weights_than_lie_there_is_none(ending, tmp_path):
    path = tmp_path / f'a.{ending}'
    options = {'n_envs': 2, 'net': [8], 'checkpoints': [str(path)]}
    with contextlib.closing(on_cartpole(**options)) as agent:
        agent.fit(max_steps=400)
    assert xagents.policy(path).agent == 'small'
    with contextlib.closing(on_cartpole(**{**options, 'seed': 2})) as other:
        write_weight_files([str(tmp_path / f'other.{ending}')], other.output_models, {}, {})
    for file in tmp_path.glob('other*'):
        file.replace(tmp_path / file.name.replace('other', 'a'))
    with pytest.raises(ValueError, match='has no policy'):
        xagents.policy(path)


def test_other_environments_and_places_are_one_line(copied, tmp_path):
    code, _, stderr = execute('evaluate', 'ppo', '--run-dir', str(copied), '--env', 'Acrobot-v1')
    assert code == 2 and stderr.count('\n') == 1
    assert 'got Acrobot-v1, expected an environment that fits the networks of' in stderr
    policy = xagents.policy(copied)
    for wrong in (np.zeros((2, 7), np.float32), None, [[1, 2], [3]], {'a': 1}):
        with pytest.raises(ValueError, match='observations: got'):
            policy(wrong)
    assert np.array_equal(policy(np.ones((1, 4), np.float32))[0], policy(np.ones(4, np.float32)))
    (copied / 'checkpoints' / 'last' / POLICY_PLAN).unlink()
    for place, words in (
        (tmp_path / 'none.tf', 'there is no directory or weight file'),
        (tmp_path, 'it contains no run'),
        (copied / 'checkpoints' / 'last', 'has no policy'),
    ):
        with pytest.raises(ValueError, match=words):
            xagents.policy(place)
