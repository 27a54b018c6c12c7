"""Fragments of bounded age: none is too old, none is lost or used twice, and nobody is starved, however slow."""

import contextlib
import queue
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from tests.explorers.test_explorers import COMMON, OFF, make
from tests.explorers.test_worker_pool import SPEC, FakeLink, Launcher
from xagents.collecting.collector import Collector
from xagents.collecting.env_stepper import CollectRequest, CollectStats
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.envs.normalisation import RewardNormalizer
from xagents.explorers.assignments import Event
from xagents.explorers.messages import pack, unpack
from xagents.explorers.worker_pool import WorkerPool
from xagents.networks.acting import PublishedWeights
from xagents.options.errors import OptionError

T = 3
pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla_in_module')


class Explorers:
    """Events of explorers that answer in an order drawn at random, each as often as its speed says."""

    def __init__(self, speeds, rng):
        self.speeds, self.rng, self.first, self.pending = speeds, rng, queue.SimpleQueue(), {}
        self.links = [FakeLink(self.first) for _ in speeds]
        for i, link in enumerate(self.links):
            link.hello()
            link.say('ready')
            link.send = lambda message, broadcast=None, i=i: self.ordered(i, message)
        self.noise, self.brought = [], []

    def ordered(self, i, data):
        message = unpack(data)
        if message.message_type == 'order':
            assert i not in self.pending
            self.noise.append(message.arrays['noise'].tobytes())
            self.pending[i] = message.header['number']

    def empty(self):
        return self.first.empty()

    def get(self, timeout=None):
        if not self.first.empty():
            return self.first.get()
        ready = sorted(self.pending)
        weights = np.array([self.speeds[i] for i in ready], float)
        i = int(self.rng.choice(ready, p=weights / weights.sum()))
        number = self.pending.pop(i)
        self.brought.append((i, number))
        return Event(self.links[i], pack('fragment', *fragment(i, number)))


def fragment(i, number):
    flags = {name: np.zeros((T, 2), bool) for name in ('terminated', 'truncated')}
    valid, rewards = np.ones((T, 2), bool), np.full((T, 2), number, np.float32)
    observations = np.full((T + 1, 2, 1), i, np.float32)
    header = {'number': number, 'episodes': [], 'seconds': {'env': 0.0, 'act': 0.0, 'busy': 0.0}, 'uncopied': ''}
    return header, {'observations': observations, 'rewards': rewards, 'valid': valid, **flags}


class ReseedingPolicy:
    exploration = None
    warming_up = False
    published_weights = PublishedWeights(1, np.zeros(3, np.float32))

    def draw_exploration(self, rng, shape):
        return rng.random(shape)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_no_fragment_is_older_than_the_bound_and_none_is_lost(speeds, max_lag, seed):
    rng, m = np.random.default_rng(seed), len(speeds)
    events = Explorers(speeds, rng)
    streams, nowhere = {'': RandomStreams(1)}, SimpleNamespace(row_states=None)
    pool = WorkerPool(SPEC, 2 * m, m, nowhere, streams, events, Launcher(), max_lag)
    pool.reset(1)
    policy, held, known = ReseedingPolicy(), {}, []
    for filled in range(40):
        rollout = {'observations': np.zeros((T + 1, 2 * m, 1), np.float32), 'rewards': np.zeros((T, 2 * m), np.float32)}
        rollout |= {name: np.zeros((T, 2 * m), bool) for name in ('valid', 'terminated', 'truncated')}
        stats = CollectStats()
        noise = policy.draw_exploration(rng, (T, 2 * m))
        (done,) = pool.fill([rollout], [CollectRequest(policy, Statistics(), noise, {})], stats)
        assert stats.metrics.get('explorers/most_lag', 0.0) <= min(max_lag, filled)
        assert rollout['valid'].all() and stats.steps == 2 * m * T
        for place in range(m):
            shard, number = int(rollout['observations'][0, 2 * place, 0]), int(rollout['rewards'][0, 2 * place])
            before = held.get(place)
            follows = before is None or before == (shard, previous(events.brought, shard, number))
            assert done.discontinuous[2 * place] == (not follows)
            held[place] = shard, number
        known += [(int(rollout['observations'][0, 2 * p, 0]), int(rollout['rewards'][0, 2 * p])) for p in range(m)]
        if not max_lag:
            assert [shard for shard, _ in known[-m:]] == [*range(m)] and not done.blocks
    assert len(set(known)) == len(known)
    for shard in range(m):  # of each slot all that came, in its order
        brought = [number for i, number in events.brought if i == shard]
        used = sorted(number for i, number in known if i == shard)
        assert used and used == brought[: len(used)] and len(brought) - len(used) <= 2 * m
    assert len(set(events.noise)) == len(events.noise)


def previous(brought, shard, number):
    """The fragment of a slot before one of it."""
    return max((other for i, other in brought if i == shard and other < number), default=None)


def test_rewards_and_observations_of_blocks_are_those_of_their_environments_and_times():
    """Two fragments of one slot, in the columns of two: running returns go on in time, statistics are of the order."""
    rng, gamma = np.random.default_rng(0), 0.9
    normal, split = RewardNormalizer(2, gamma), RewardNormalizer(4, gamma)
    rewards, ended = rng.normal(size=(6, 2)), rng.random((6, 2)) < 0.3
    valid = np.ones((3, 2), bool)
    for half in (slice(0, 3), slice(3, 6)):
        normal.update(rewards[half], ended[half], valid)
        split.update(rewards[half], ended[half], valid, slice(2, 4))
    assert np.array_equal(split.returns, [0, 0, *normal.returns])
    assert np.array_equal(split.statistics.var, normal.statistics.var)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ('acer', 'ddpg', 'td3')]


@pytest.mark.parametrize('name', ['dqn', *SLOW])
def test_agents_learn_from_what_comes(name):
    with contextlib.closing(make(name)) as agent:
        logs = list(agent.train_iter(max_steps=1000, explorers=4, max_lag=2))
        assert agent.steps >= 1000 and all(np.isfinite(w).all() for m in agent.output_models for w in m.get_weights())
        assert isinstance(agent.collector, Collector) and agent.collector.observations is not None
    lags = [log['explorers/most_lag'] for log in logs]
    assert max(lags) <= 2 and any(lags)


@pytest.mark.parametrize('name', ['a2c', 'trpo'])
def test_agents_without_a_correction_refuse(name):
    with contextlib.closing(make(name)) as agent, pytest.raises(OptionError) as refused:
        agent.fit(max_steps=100, explorers=2, max_lag=2)
    assert refused.value.name == 'max_lag'


@pytest.mark.slow
def test_a_run_of_bounded_age_stops_and_goes_on(tmp_path):
    folder = str(tmp_path / 'run')
    options = {**COMMON, **OFF, 'run_dir': folder}
    with contextlib.closing(xagents.make('small-replay', 'CartPole-v1', **options)) as agent:
        agent.fit(max_steps=800, explorers=4, max_lag=3)
        steps = agent.steps
    with contextlib.closing(xagents.resume(folder, max_steps=1600, explorers=2)) as agent:
        assert agent.steps == steps and agent.collector.observations is not None
        agent.fit()
        assert agent.steps >= 1600


def test_fragments_keep_the_ratio_of_updates_to_steps():
    options = {'train_frequency': 16, 'gradient_steps': 4}
    counts = []
    for steps in (None, 8):
        with contextlib.closing(make('dqn', fragment_steps=steps, **options)) as agent:
            agent.fit(max_steps=1500)
            counts.append((agent.n_steps, agent.updates_for(10**6), agent.progress.context.updates / agent.steps))
    (few, four, ratio), (eight, sixteen, same) = counts
    assert (few, four, eight, sixteen) == (2, 4, 8, 16) and abs(ratio - same) < 0.03
