"""Collecting: what is in a rollout, how it goes on, and that it needs no TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.environments import Drawn
from tests.problems import Arbitrary
from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import PublishedWeights

N, T = 3, 11
SCALE = 0.25  # of rewards
TAKEN = spaces.Discrete(4, start=2)
ENDS = ('terminated', 'truncated', 'valid')


class Linear:
    """A network of two weights."""

    def __init__(self):
        self.published_weights = PublishedWeights(0, np.ones(2, np.float32))

    def __call__(self, observations):
        return [observations @ self.published_weights.weights]

    def sync(self, published_weights):
        self.published_weights = published_weights


class Rounding(Policy):
    """Acts by what the network says, some noise, and a schedule."""

    def __init__(self):
        self.network, self.columns = Linear(), {'actions': ((), np.int32), 'said': ((), np.float32)}

    def __call__(self, observations, noise, /, *, valid=None, shift=0, **schedule):
        (said,) = self.network(observations)
        noise = 0 if noise is None else noise
        return {'actions': np.floor(4 * abs(said + noise)).astype(np.int32) % 3 + shift, 'said': said}

    def draw_noise(self, rng, shape):
        return rng.normal(size=shape)


def environments(seed=1):
    made = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (2,), np.float32), TAKEN, 4), N)
    made.reset(seed)
    return made


def collector(seed=1, raw=False, normalize=True):
    normalizers = (ObservationNormalizer((2,)), RewardNormalizer(N, 0.9)) if normalize else (None, None)
    statistics = Statistics(*normalizers, SCALE, np.float32)
    return Collector.of_policy(environments(), Rounding(), statistics, RandomStreams(seed), raw)


def copied(rollout):
    return {name: array.copy() for name, array in rollout.items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize('raw', [False, True])
def test_a_rollout_is_what_a_loop_over_the_environments_sees(raw):
    """Twice, so that the second one begins where the first one ended; learning from it comes after acting."""
    collecting, envs, streams = collector(raw=raw), environments(), RandomStreams(1)
    policy, decode = Rounding(), ActionDecoder(TAKEN)
    seen, scaled = ObservationNormalizer((2,)), RewardNormalizer(N, 0.9)
    observations = envs.reset(int(streams('env').integers(2**31)))
    steps = episodes = 0
    for round_ in range(2):
        noise = policy.draw_noise(streams('act'), (T, N))
        rows = {name: [] for name in ('observations', 'actions', 'said', 'rewards', *ENDS)}
        for t in range(T):
            chosen = policy(seen(observations), noise[t], shift=1)
            rows['valid'].append(envs.valid.copy())
            rows['observations'].append(observations.copy())
            observations, *given = envs.step(decode(chosen['actions']))
            for name, row in {**chosen, **dict(zip(('rewards', *ENDS[:2]), given, strict=True))}.items():
                rows[name].append(np.array(row))
        rows['observations'].append(observations.copy())
        expected = {name: np.stack(row) for name, row in rows.items()}
        ended = expected['terminated'] | expected['truncated']
        steps += expected['valid'].sum()
        episodes += ended.sum()
        shown = expected['observations']
        scaled.update(SCALE * expected['rewards'], ended, expected['valid'])
        if raw:
            expected['restarted'] = np.full(N, not round_)
        else:
            expected |= {'observations': seen(shown), 'rewards': scaled(SCALE * expected['rewards'])}
        seen.update(shown[:-1])
        got = collecting.collect(T, {'shift': 1, 'unknown': 5})
        assert got['said'].dtype == got['rewards'].dtype == np.float32
        assert got.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-6, atol=1e-7, err_msg=name)
    assert (collecting.stats.steps, len(collecting.stats.episodes)) == (steps, episodes)
    assert 0 < steps < 2 * T * N and all(episode.length == 4 for episode in collecting.stats.episodes)
    assert min(collecting.stats.seconds.values()) > 0


def test_the_last_rollouts_stay_as_they_are_where_they_are_kept():
    collecting = collector(raw=True)
    collecting.group.keep_rollouts(2)
    first = collecting.collect(T)
    then = copied(first)
    collecting.collect(T)
    assert_same(first, then)
    collecting.collect(T)
    assert not np.array_equal(first['observations'], then['observations'])


def test_it_goes_on_to_the_bit_where_its_state_was_taken():
    """Also where it is loaded into other environments, of another seed, in the middle of episodes."""
    collecting = collector()
    collecting.collect(T)
    arrays, record = collecting.state()
    ahead = [copied(collecting.collect(T)) for _ in range(2)]
    other = collector(seed=5)
    other.collect(2)
    assert other.load(arrays, record)
    for expected in ahead:
        assert_same(expected, other.collect(T))
    for got, expected in zip(other.state()[0].values(), collecting.state()[0].values(), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_state_without_environments_begins_new_episodes_and_keeps_the_statistics():
    collecting, other = collector(), collector(seed=5)
    collecting.collect(T)
    arrays, record = collecting.state()
    for environments, changed in ((False, record), (True, {**record, 'environments': None})):
        assert not other.load(arrays, changed, environments)
        assert other.observations is None
        mean = other.statistics.observations.statistics.mean
        np.testing.assert_array_equal(mean, collecting.statistics.observations.statistics.mean)
    assert other.collect(T)['valid'][0].all()
    fewer = Collector.of_policy(
        xagents.create_envs(Drawn, 1), Rounding(), Statistics(None, None, 1.0, np.float32), RandomStreams(1)
    )
    assert not fewer.load(arrays, record), 'of other environments'


def test_an_error_in_between_lets_episodes_begin_anew():
    collecting, calls = collector(), []

    def failing(noise):
        calls.append(noise)
        if len(calls) == 3:
            raise ArithmeticError('broken')

    act = collecting.policy.network.__call__
    collecting.policy.network = lambda x: failing(x) or act(x)
    with pytest.raises(ArithmeticError, match='broken'):
        collecting.collect(T)
    assert collecting.observations is None and collecting.stats.steps == 2 * N
    assert collecting.collect(T)['valid'][0].all()


def test_it_acts_by_what_was_published():
    collecting = collector(normalize=False)
    collecting.reset(1)
    np.testing.assert_array_equal(collecting.policy.network.published_weights.weights, [1, 1])
    collecting.sync(PublishedWeights(3, np.float32([0, 0]), warming_up=True))
    assert collecting.policy.warming_up and collecting.policy.published_weights.version == 3
    rollout = collecting.collect(T)
    assert (rollout['said'] == 0).all()
    np.testing.assert_array_equal(collecting.act(), np.full(N, 2), 'greedy, and as the environments want it')
    assert len(set(np.concatenate([collecting.act(np.random.default_rng(i)) for i in range(9)]))) > 1


def test_steps_by_themselves_count_as_well():
    collecting = collector()
    np.testing.assert_array_equal(collecting.current_observations(), collecting.observations[0])
    ended = 0
    for _ in range(9):
        collecting.step(np.full(N, 2))
        ended += len(collecting.ended_episodes)
    assert ended == len(collecting.stats.episodes) == 2 * N
    assert collecting.stats.steps == 8 * N, 'the fifth step only resets'


def test_a_seed_is_that_of_a_purpose_at_a_count_and_changes_no_generator():
    streams, untouched = RandomStreams(1), RandomStreams(1)
    seeds = [streams.derive_seed(purpose, count) for purpose in ('evaluate', 'env') for count in (0, 1, 2)]
    assert len({*seeds, RandomStreams(2).derive_seed('evaluate', 0)}) == 7
    assert seeds[:3] == [untouched.derive_seed('evaluate', count) for count in (0, 1, 2)]
    assert streams('evaluate').integers(2**31) == RandomStreams(1)('evaluate').integers(2**31)


def test_environments_beside_are_made_once_and_closed_with_the_others():
    collecting, closed = collector(), []
    beside = collecting.evaluation_envs(2)
    assert collecting.evaluation_envs(2) is beside is not collecting.evaluation_envs(1)
    for envs in (collecting.envs, beside, collecting.evaluation_envs(1)):
        envs.close = lambda envs=envs: closed.append(envs.n_envs)
    collecting.close()
    assert sorted(closed) == [1, 2, N]


def test_collecting_needs_no_tensorflow():
    code = "import sys, xagents.collecting.collector; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


def test_streams_that_a_state_has_not_begin_anew():
    streams = RandomStreams(1)
    streams('act').random(3)
    state = streams.state()
    expected = streams('act').random(), RandomStreams(1)('env').random()
    streams('env').random(5)
    streams.load(state)
    assert (streams('act').random(), streams('env').random()) == expected
