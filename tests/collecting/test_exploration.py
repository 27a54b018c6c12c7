"""How policies act and explore: draws, white and Ornstein-Uhlenbeck noise, random warm-up, and actions' bounds."""

import keras
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.problems import Arbitrary
from tests.reference import network
from xagents.checkpoints.agent_state import temporary_weights
from xagents.collecting.noise_process import OrnsteinUhlenbeckNoise
from xagents.collecting.policies import EpsilonGreedyPolicy, NoisyPolicy, SamplingPolicy
from xagents.networks.acting import PublishedWeights
from xagents.networks.distributions import distribution_for

pytestmark = pytest.mark.usefixtures('without_xla')

SHOWN = spaces.Box(-1, 1, (3,), np.float32)
ODD = spaces.Box(np.float32([-2.0, 0.5]), np.float32([6.0, 1.25]))


def make(name, n_envs=4, length=7, action_space=None, **options):
    space = action_space or (spaces.Discrete(5, start=2) if name == 'dqn' else ODD)
    return xagents.make(
        name, lambda **_: Arbitrary(SHOWN, space, length), n_envs=n_envs, seed=1, net=[8], quiet=True, **options
    )


# ------------------------------------------------------------------------------------------------------- policies alone


class Network:
    """Says the observations times a weight; counts how often it is asked."""

    def __init__(self, weight=1.0):
        self.published_weights, self.asked = PublishedWeights(1, np.float32([weight])), 0

    def __call__(self, observations):
        self.asked += 1
        return [observations * self.published_weights.weights[0]]

    def sync(self, published_weights):
        self.published_weights = published_weights

    def copy(self):
        return Network(self.published_weights.weights[0])


POLICIES = {
    'sampling': lambda network: SamplingPolicy(network, distribution_for(spaces.Discrete(3)), True),
    'epsilon-greedy': lambda network: EpsilonGreedyPolicy(network, 3, 0.5),
    'noisy': lambda network: NoisyPolicy(network, 3, 0.5, OrnsteinUhlenbeckNoise()),
}


@pytest.mark.parametrize('name', POLICIES)
def test_policies_act_by_their_network_and_take_over_what_is_published(name):
    """Greedy without noise; the same with the same noise; what is asked for in columns."""
    network, shown = Network(), np.float32([[0.1, 0.3, 0.2], [0.9, -0.5, 0.4]])
    policy = POLICIES[name](network)
    greedy = shown if name == 'noisy' else [1, 0]
    np.testing.assert_array_equal(policy(shown, None)['actions'], greedy)
    noise = policy.draw_noise(np.random.default_rng(0), (5, 2))
    assert len(noise) == 5 and noise[0].shape[0] == 2
    chosen = [policy(shown, noise[0], unknown=1) for _ in range(2)]
    assert network.asked == 3 and chosen[0].keys() == policy.columns.keys()
    for column, (shape, _) in policy.columns.items():
        assert chosen[0][column].shape == (2, *shape)
        np.testing.assert_array_equal(chosen[0][column], chosen[1][column])
    other = policy.with_network(network.copy())
    assert other.parts() == policy.parts(), 'its exploration is shared'
    other.sync(PublishedWeights(7, np.float32([-1.0]), warming_up=name == 'noisy'))
    assert (other.published_weights.version, other.warming_up) == (7, name == 'noisy') and not policy.warming_up
    np.testing.assert_array_equal(other(shown, None)['actions'], -shown if name == 'noisy' else [0, 1])
    np.testing.assert_array_equal(policy(shown, None)['actions'], greedy, 'the first one keeps its network')


def test_sampling_keeps_outputs_where_it_is_asked_to():
    distribution, rng = distribution_for(spaces.Discrete(3)), np.random.default_rng(0)
    keeps, other = (SamplingPolicy(Network(), distribution, keep) for keep in (True, False))
    assert list(keeps.columns) == ['actions', 'logits'] and list(other.columns) == ['actions']
    shown = np.log(np.tile(np.float32([[0.2, 0.5, 0.3]]), (20_000, 1)))
    chosen = keeps(shown, keeps.draw_noise(rng, (20_000,)))
    np.testing.assert_array_equal(chosen['logits'], shown)
    np.testing.assert_allclose(np.bincount(chosen['actions']) / 20_000, [0.2, 0.5, 0.3], atol=0.02)


def test_noise_with_a_memory_is_for_collecting_and_warming_up_asks_nobody():
    network, shown, noise = Network(), np.zeros((2, 3), np.float32), np.float32([[1, -1, 5], [0.5, 0, 0]])
    policy = NoisyPolicy(network, 3, 0.5, OrnsteinUhlenbeckNoise(dt=0.01))
    np.testing.assert_array_equal(policy(shown, noise)['actions'], np.clip(0.5 * noise, -1, 1))
    assert policy.exploration.state()['x'].size == 0
    drifting = policy(shown, noise, valid=np.bool_([True, False]), noise=2.0)['actions']
    np.testing.assert_allclose(drifting, np.clip(0.2 * noise * [[1], [0]], -1, 1), rtol=1e-6)
    policy.warming_up, network.asked = True, 0
    uniform = policy.draw_exploration(np.random.default_rng(0), (2,))
    np.testing.assert_array_equal(policy(shown, uniform, valid=np.ones(2, bool))['actions'], uniform)
    assert abs(uniform).max() <= 1 and not network.asked
    sampled = policy(shown, noise)['actions']
    np.testing.assert_array_equal(sampled, np.clip(0.5 * noise, -1, 1), 'only collecting warms up')


# ------------------------------------------------------------------------------------------------------------- ε-greedy


def test_epsilon_greedy_draws_each_action_as_often_as_it_should():
    """A random action may be the greedy one, too: the others have ε / n each."""
    agent, n = make('dqn'), 40_000
    observations = np.zeros((n, 3), np.float32)
    (greedy,) = set(agent.policy(observations, None)['actions'])
    for epsilon in (0.0, 0.3, 1.0):
        actions = agent.policy(observations, agent.draw_noise(np.random.default_rng(0), (n,)), epsilon=epsilon)[
            'actions'
        ]
        expected = np.full(5, epsilon / 5)
        expected[greedy] += 1 - epsilon
        frequencies = np.bincount(actions, minlength=5) / n
        np.testing.assert_allclose(frequencies, expected, atol=4 * np.sqrt(0.25 / n))
        assert epsilon or frequencies[greedy] == 1


def test_each_environment_has_a_draw_of_its_own():
    agent = make('dqn', train_frequency=8_000, length=1000)
    rollout = agent.collect({'epsilon': 0.5})
    shown = rollout['observations'][:-1]
    greedy = agent.policy(shown.reshape(-1, 3), None)['actions'].reshape(2000, 4)
    explored = (rollout['actions'] != greedy).astype(float)
    assert explored.mean() == pytest.approx(0.5 * 4 / 5, abs=0.02)
    correlation = np.corrcoef(explored.T) - np.eye(4)
    assert abs(correlation).max() < 0.1
    # nor does one step's draw say anything of the next one's
    assert abs(np.corrcoef(explored[:-1, 0], explored[1:, 0])[0, 1]) < 0.1
    both = (explored[:, 0] == 1) & (explored[:, 1] == 1)
    same = rollout['actions'][both, 0] == rollout['actions'][both, 1]
    assert same.mean() < 0.5, 'nor are the random actions the same ones'


def test_epsilon_1_never_asks_what_is_best_and_0_always_does():
    agent = make('dqn', train_frequency=400)
    all_random = agent.collect({'epsilon': 1.0})['actions'].copy()
    assert set(all_random.ravel()) == set(range(5))
    rollout = agent.collect({'epsilon': 0.0})
    shown = rollout['observations'][:-1].reshape(-1, 3)
    np.testing.assert_array_equal(rollout['actions'].ravel(), agent.policy(shown, None)['actions'])


def test_sampled_actions_use_the_last_epsilon():
    agent, shown = make('dqn', epsilon_end=0.5), np.zeros((4000, 3), np.float32)
    best = agent.act(shown[:1])[0]
    assert 2 <= best < 7
    assert np.mean(agent.act(shown, greedy=False) == best) == pytest.approx(0.6, abs=0.04)
    assert set(agent.act(shown)) == {best}


# ---------------------------------------------------------------------------------------------------------------- noise


def test_gaussian_noise_is_drawn_anew():
    policy, rng = NoisyPolicy(None, 2, 0.1), np.random.default_rng(0)
    x = np.stack([policy.draw_noise(rng, (50,)) for _ in range(400)])
    assert x.dtype == np.float32 and x.shape == (400, 50, 2)
    assert x.mean() == pytest.approx(0, abs=0.02) and x.std() == pytest.approx(1, abs=0.02)
    assert abs(np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 0.02
    assert policy.parts() == {}


@pytest.mark.parametrize('theta, dt', [(0.15, 0.01), (0.5, 0.2), (1.0, 0.5)])
def test_ornstein_uhlenbeck_noise_has_the_moments_of_its_recursion(theta, dt):
    """x ← a x + b ξ from x = 0: variance b² (1 − a^2t) / (1 − a²) after t steps, covariance a^k times that k later."""
    noise, rng, n = OrnsteinUhlenbeckNoise(theta, dt), np.random.default_rng(0), 20_000
    drawn = rng.standard_normal((60, n, 1), np.float32)
    x = np.stack([noise(row, np.ones(n, bool))[:, 0].copy() for row in drawn]).astype(np.float64)
    a, b = 1 - theta * dt, np.sqrt(dt)
    for t in (1, 2, 10, 40):
        variance = b**2 * (1 - a ** (2 * t)) / (1 - a**2)
        tolerance = 5 * variance / np.sqrt(n / 2)
        assert x[t - 1].mean() == pytest.approx(0, abs=5 * np.sqrt(variance / n))
        assert x[t - 1].var() == pytest.approx(variance, abs=tolerance)
        for k in (1, 5, 20):
            assert np.mean(x[t - 1] * x[t - 1 + k]) == pytest.approx(a**k * variance, abs=2 * tolerance)


def test_each_environment_has_a_process_of_its_own_that_begins_with_its_episode():
    noise, rng, free = OrnsteinUhlenbeckNoise(dt=0.1), np.random.default_rng(0), np.zeros((3, 2))
    valid = np.random.default_rng(1).random((50, 3)) > 0.2
    for row in valid:
        drawn = rng.standard_normal((3, 2), np.float32)
        x = noise(drawn, row)
        free = (free - 0.15 * 0.1 * free + np.sqrt(0.1) * drawn) * row[:, None]
        np.testing.assert_allclose(x, free, rtol=1e-4, atol=1e-6)
    assert (valid.sum(0) > 30).all() and not valid.all(0).any()


def test_processes_go_on_where_their_state_was_taken():
    noise, other, always = OrnsteinUhlenbeckNoise(), OrnsteinUhlenbeckNoise(), np.ones(3, bool)
    drawn = np.random.default_rng(0).standard_normal((9, 3, 2), np.float32)
    for row in drawn[:5]:
        noise(row, always)
    other.load(noise.state())
    for row in drawn[5:]:
        np.testing.assert_array_equal(other(row, always), noise(row, always))
    # another number of environments begins anew
    np.testing.assert_allclose(other(np.ones((4, 2), np.float32), np.ones(4, bool)), np.full((4, 2), 0.1), rtol=1e-6)


@pytest.mark.parametrize('name', ['ddpg', 'td3'])
@pytest.mark.parametrize('noise', ['gaussian', 'ornstein-uhlenbeck'])
def test_collecting_adds_the_noise_to_what_the_policy_says(name, noise):
    """Recomputed from the same generator: clipped to [-1, 1], and for OU one process an environment and episode."""
    agent = make(name, n_envs=3, noise=noise, step_noise_coef=0.4, train_frequency=60)
    agent.acting_policy.warming_up = False
    agent.collector.reset()
    generator = np.random.Generator(np.random.SFC64(0))
    generator.bit_generator.state = agent.rng('act').bit_generator.state
    x = np.zeros((3, 2))
    for _ in range(3):
        rollout = agent.collect({'noise': 0.4})
        for t in range(20):
            drawn = generator.standard_normal((3, 2), np.float32)
            x = (x - 0.0015 * x + 0.1 * drawn) * rollout['valid'][t][:, None]
            said = agent.policy(rollout['observations'][t], None)['actions']
            expected = np.clip(said + 0.4 * (drawn if noise == 'gaussian' else x), -1, 1)
            rows = rollout['valid'][t]
            np.testing.assert_allclose(rollout['actions'][t][rows], expected[rows], atol=1e-5)
    assert not rollout['valid'].all() and abs(rollout['actions']).max() <= 1


def test_noise_belongs_to_the_agents_state():
    agent = make('ddpg', noise='ornstein-uhlenbeck', train_frequency=40)
    agent.acting_policy.warming_up = False
    agent.collect({'noise': 0.1})
    state = agent.state()
    other = make('ddpg', noise='ornstein-uhlenbeck', train_frequency=40)
    other.load_state(state)
    np.testing.assert_array_equal(
        other.acting_policy.exploration.state()['x'], agent.acting_policy.exploration.state()['x']
    )
    assert abs(other.acting_policy.exploration.state()['x']).max() > 0
    # weights that are taken for a while leave it alone: under overlap a thread explores meanwhile
    with temporary_weights(agent, state):
        moved = agent.acting_policy.exploration(np.ones((4, 2), np.float32), np.ones(4, bool)).copy()
    np.testing.assert_array_equal(agent.acting_policy.exploration.state()['x'], moved)


# -------------------------------------------------------------------------------------------------- warm-up, and bounds


def test_the_warm_up_is_uniform_and_ends_with_it():
    agent = make('ddpg', train_frequency=2400, buffer_max_size=2400, buffer_initial_size=2000, step_noise_coef=0.1)
    rollout = agent.collect({'noise': 0.1})
    actions = rollout['actions'].reshape(-1, 2).copy()
    assert -1 <= actions.min() < -0.99 and 0.99 < actions.max() <= 1
    # the largest distance of the distribution functions, with a confidence of 0.9999
    for each in np.sort(actions, axis=0).T:
        n = len(each)
        assert abs((each + 1) / 2 - (np.arange(n) + 0.5) / n).max() < 2.2 / np.sqrt(n)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.08
    agent.remember(rollout)
    assert not agent.acting_policy.warming_up
    rollout = agent.collect({'noise': 0.1})
    said = agent.policy(rollout['observations'][:-1].reshape(-1, 3), None)['actions']
    added = rollout['actions'].reshape(-1, 2) - said
    assert added.std() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize('name', ['ddpg', 'td3'])
def test_actions_reach_the_bounds_exactly_and_never_leave_them(name):
    agent, shown = make(name, step_noise_coef=0.5), np.zeros((200, 3), np.float32)
    *_, kernel, bias = agent.actor_model.trainable_variables
    kernel.assign(np.zeros(kernel.shape))
    for units, expected in (
        ([50, 50], ODD.high), ([-50, -50], ODD.low), ([50, -50], [6.0, 0.5]), ([0, 0], [2.0, 0.875]),
    ):  # fmt: skip
        bias.assign(np.float32(units))
        actions = agent.act(shown)
        assert actions.dtype == np.float32
        np.testing.assert_array_equal(actions, np.broadcast_to(np.float32(expected), (200, 2)))
        noisy = agent.act(shown, greedy=False)
        assert (noisy >= ODD.low).all() and (noisy <= ODD.high).all() and len(np.unique(noisy[:, 0])) > 20
        # between the bounds, deviations are scaled as the actions are
        if units == [0, 0]:
            inner = abs(noisy - expected) < (ODD.high - ODD.low) / 2
            assert np.mean(inner) == pytest.approx(0.954, abs=0.04)


def test_actions_of_several_axes_are_flat_to_the_policy():
    space = spaces.Box(np.float32([[0, -3], [1, 2]]), np.float32([[1, 3], [5, 2.5]]))
    agent = make('ddpg', action_space=space, train_frequency=40)
    assert agent.collect({'noise': 0.1})['actions'].shape == (10, 4, 4)
    *_, kernel, bias = agent.actor_model.trainable_variables
    kernel.assign(np.zeros(kernel.shape))
    bias.assign(np.float32([50, -50, 0, 50]))
    np.testing.assert_array_equal(agent.act(np.zeros((1, 3), np.float32))[0], [[1, -3], [3, 2.5]])


@pytest.mark.parametrize('name', ['dqn', 'ddpg', 'td3'])
def test_greedy_acting_and_evaluating_are_deterministic_and_draw_nothing(name):
    agent = make(name, **({'epsilon_end': 0.5} if name == 'dqn' else {}))
    agent.collector.reset()
    shown = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    before = agent.streams.state()
    np.testing.assert_array_equal(agent.act(shown), agent.act(shown))
    assert agent.evaluate(4, seed=3) == agent.evaluate(4, seed=3) != agent.evaluate(4, seed=3, stochastic=True)
    assert agent.streams.state() == before
    sampled = [agent.act(np.tile(shown, (50, 1)), greedy=False) for _ in range(2)]
    assert not np.array_equal(*sampled)


def test_a_policy_of_ones_own_gets_the_noise_of_its_class():
    class Own(xagents.PPO):
        def policy(self, observations, noise):
            given.append(noise)
            return super().policy(observations, noise)

    given = []
    agents = []
    for agent_class in (Own, xagents.PPO):
        envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(5)), 4)
        agents.append(agent_class(envs, network([5, 1], 1), n_steps=8, seed=1))
    own, expected = (agent.collect({}) for agent in agents)
    np.testing.assert_array_equal(own['actions'], expected['actions'])
    assert len(given) == 8 and given[0].shape == (4, 5)


@pytest.mark.parametrize('noise', ['gaussian', 'ornstein-uhlenbeck'])
def test_a_policy_that_asks_its_class_explores_like_it(noise):
    """Uniform actions while the buffer fills, the noise's memory, and its place in checkpoints."""

    class Asking(xagents.DDPG):
        def policy(self, observations, noise, **schedule):
            return super().policy(observations, noise, **schedule)

    def collected(kind):
        made = xagents.make('ddpg', 'Pendulum-v1', n_envs=2)
        options = {'seed': 1, 'noise': noise, 'buffer_max_size': 100, 'buffer_initial_size': 20, 'train_frequency': 16}
        agent = kind(made.envs, *(keras.models.clone_model(m) for m in made.output_models), **options)
        for ours, theirs in zip(agent.output_models, made.output_models, strict=True):
            ours.set_weights([np.full_like(w, 0.1) for w in theirs.get_weights()])
        agent.refresh()
        rollouts = []
        for _ in range(3):
            batch = agent.collect({})
            rollouts.append(batch['actions'].copy())
            agent.remember(batch)
        return rollouts, set(agent.parts())

    (own, own_parts), (plain, parts) = collected(Asking), collected(xagents.DDPG)
    np.testing.assert_array_equal(own, plain)
    assert own_parts == parts and ('exploration' in parts) == (noise != 'gaussian')


def test_a_policy_of_ones_own_is_told_the_schedule():
    told = []

    class Asking(xagents.DQN):
        def policy(self, observations, noise, epsilon=None):
            told.append(epsilon)
            return super().policy(observations, noise, epsilon=epsilon)

    made = xagents.make('dqn', 'CartPole-v1')
    agent = Asking(made.envs, made.model, buffer_max_size=100, buffer_initial_size=20, seed=1)
    agent.collect({'epsilon': 0.25})
    assert set(told) == {0.25}
