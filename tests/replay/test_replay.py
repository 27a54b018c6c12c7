"""The replay buffer against lists that keep every transition whole."""

import dataclasses
import itertools

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from xagents.options.errors import OptionError
from xagents.replay.ring import ring_bytes_needed
from xagents.replay.sum_tree import SumTree
from xagents.replay.transitions import ReplayBuffer
from xagents.utils.buffers import ReplayBuffer1, ReplayBuffer2

GO, TERMINATE, TRUNCATE = range(3)
REPEAT, SHIFT, UNSEEN = 'repeat', 'shift', 'unseen'
GAMMA = 0.5


@dataclasses.dataclass
class Row:
    """A transition as it happened, and what its stack of frames needs."""

    observation: np.ndarray
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    next_observation: np.ndarray
    since_start: int  # rows since the first one whose frames belong to this stack
    needs: int  # earlier rows that hold frames of its stack
    broken: bool = False


class History:
    """An environment that ends episodes when told, each frame another one, and a list of all that happened.

    Stands for Gymnasium's NEXT_STEP mode: the step after an episode's end only resets.
    """

    def __init__(self, frames, stack, start):
        self.frames, self.stack, self.rows = frames, stack, []
        self.valid = True
        self.begin(start)

    def frame(self):
        number = next(self.frames)
        if self.stack == 1:
            return np.array([number, -number, 0.5], np.float32)
        return np.array([[number % 256, number // 256]], np.uint8)[..., None]

    def begin(self, kind):
        if kind == SHIFT and self.stack > 1:
            self.shift()
            return
        self.since_start, self.whole = 0, self.stack == 1 or kind == REPEAT
        frames = [self.frame()] * self.stack if self.whole else [self.frame() for _ in range(self.stack)]
        self.observation = np.concatenate(frames, axis=-1)

    def shift(self):
        self.observation = np.concatenate([self.observation[..., 1:], self.frame()], axis=-1)
        self.since_start += 1

    def step(self, action, event, reset_kind):
        observation, valid = self.observation, self.valid
        start = self.since_start
        needs = min(start, self.stack - 1) if self.whole else self.stack - 1
        if not valid:
            event = GO
            self.begin(reset_kind)
        elif self.stack == 1:
            self.observation = self.frame()
        else:
            self.shift()
        ended = (event == TERMINATE, event == TRUNCATE)
        self.valid = not any(ended)
        reward = float(len(self.rows) % 7 + 1)
        self.rows.append(Row(observation, action, reward, *ended, valid, self.observation, start, needs))
        return self.rows[-1]

    def reset_from_outside(self, kind):
        if self.rows:
            self.rows[-1].broken = True
        self.valid = True
        self.begin(REPEAT if kind == SHIFT else kind)

    def sampleable(self, capacity):
        """The transitions that can be sampled from a ring that holds `capacity` of this environment."""
        oldest = len(self.rows) - capacity
        return [
            i
            for i, row in enumerate(self.rows)
            if row.valid and not row.broken and row.needs <= row.since_start and i - row.needs >= oldest
        ]

    def expected(self, i, n_step, scale):
        """What sampling transition `i` must return."""
        total, m = 0.0, 0
        while True:
            row = self.rows[i + m]
            total += GAMMA**m * scale(row.reward)
            m += 1
            if m == n_step or row.terminated or row.truncated or i + m == len(self.rows):
                break
            if not self.rows[i + m].valid or self.rows[i + m].broken:
                break
        first = self.rows[i]
        return first.observation, first.action, total, row.next_observation, GAMMA**m * (not row.terminated)


def collect(histories, events, reset_kinds, continuous):
    """Let each environment take a step for each row of events [T, N]; return the batch."""
    first = [history.observation for history in histories]
    rows = []
    for now, kinds in zip(events, reset_kinds, strict=True):
        numbered = [len(history.rows) * 10 + n for n, history in enumerate(histories)]
        actions = [np.array([a, -a], np.float32) if continuous else np.int64(a) for a in numbered]
        rows.append([h.step(*what) for h, *what in zip(histories, actions, now, kinds, strict=True)])
    batch = {'observations': np.array([first, *([row.next_observation for row in t] for t in rows)])}
    fields = {'actions': 'action', 'rewards': 'reward', 'terminated': 'terminated', 'truncated': 'truncated'}
    for name, field in {**fields, 'valid': 'valid'}.items():
        batch[name] = np.array([[getattr(row, field) for row in t] for t in rows])
    return batch | {'rewards': batch['rewards'].astype(np.float32)}


@st.composite
def plans(draw, n_steps=None):
    """How environments begin, and additions: events [T, N], how resets look, which are reset from outside before."""
    n_envs = draw(st.integers(1, 3))
    event = st.sampled_from([GO] * 5 + [TERMINATE, TRUNCATE])
    kind = st.sampled_from([REPEAT, REPEAT, SHIFT, UNSEEN])
    outside = st.sampled_from([None] * 8 + [REPEAT, UNSEEN])
    steps = []
    for _ in range(draw(st.integers(1, 10))):
        t = n_steps or draw(st.one_of(st.integers(1, 5), st.integers(1, 25)))
        rows = [[[draw(what) for _ in range(n_envs)] for _ in range(t)] for what in (event, kind)]
        steps.append((*rows, [draw(outside) for _ in range(n_envs)]))
    return [draw(st.sampled_from([REPEAT, UNSEEN])) for _ in range(n_envs)], steps


def check(buffer, histories, capacity, n_step, rng):
    """Draw so often that every transition must come, and compare each draw with what happened."""

    def scale(rewards):
        return 2 * rewards + 1

    happened = [h.expected(i, n_step, scale) for h in histories for i in h.sampleable(capacity)]
    assert len(buffer) == len(happened)
    assert buffer.stored == sum(row.valid for history in histories for row in history.rows)
    if not happened:
        assert not buffer.ready
        with pytest.raises(ValueError, match='no transition'):
            buffer.sample(1, rng)
        return
    draws = -(-30 * len(happened) // buffer.batch_size)
    batch = buffer.sample(draws, rng, scale=scale, max_batches=draws + 1)
    places = {expected[0].tobytes(): place for place, expected in enumerate(happened)}
    drawn = [places[observation.tobytes()] for observation in batch['observations'][:draws, 0]]
    assert {*drawn} == {*places.values()}
    names = ('observations', 'actions', 'rewards', 'next_observations', 'discounts')
    for name, expected in zip(names, zip(*happened, strict=True), strict=True):
        np.testing.assert_array_equal(batch[name][:draws, 0], np.array(expected)[drawn], name)


@settings(deadline=None, max_examples=120)
@given(
    plan=plans(),
    stack=st.sampled_from([1, 1, 3]),
    n_step=st.integers(1, 4),
    size=st.integers(1, 12),
    more=st.integers(0, 2),
    alpha=st.sampled_from([None, 0.6]),
    continuous=st.booleans(),
)
def test_every_sample_is_what_happened(plan, stack, n_step, size, more, alpha, continuous):
    starts, steps = plan
    n_envs = len(starts)
    max_size = size * n_envs + more % n_envs
    buffer = ReplayBuffer(max_size, batch_size=1, n_step=n_step, gamma=GAMMA, stack=stack, alpha=alpha)
    frames, rng = itertools.count(1), np.random.default_rng(0)
    histories = [History(frames, stack, start) for start in starts]
    for events, kinds, outside in steps:
        for history, kind in zip(histories, outside, strict=True):
            if kind:
                history.reset_from_outside(kind)
        batch = collect(histories, events, kinds, continuous)
        buffer.add(batch)
        for array in batch.values():  # the next collection overwrites them
            array[...] = 0
        check(buffer, histories, size, n_step, rng)
        if alpha and len(buffer):
            drawn = buffer.sample(1, rng)
            buffer.prioritize(drawn['rows'], rng.uniform(0.5, 1.5, drawn['rows'].shape))


def steps_of_one(rewards, terminated=(), truncated=(), masked=()):
    """A batch of one environment whose observations count up from 0."""
    index = np.arange(len(rewards))[:, None]
    batch = random_batch(np.random.default_rng(0), len(rewards), 1)
    return batch | {
        'observations': np.arange(len(rewards) + 1, dtype=np.float32).reshape(-1, 1, 1),
        'rewards': np.array(rewards, np.float32)[:, None],
        'terminated': np.isin(index, terminated),
        'truncated': np.isin(index, truncated),
        'valid': ~np.isin(index, masked),
    }


def all_transitions(buffer):
    """{observation: (reward, next observation, discount)} of everything that can be sampled."""
    batch = buffer.sample(-(-50 * len(buffer) // buffer.batch_size), np.random.default_rng(0))
    names = ('observations', 'rewards', 'next_observations', 'discounts')
    rows = np.stack([batch[name].reshape(-1) for name in names], axis=1)
    return {row[0]: tuple(row[1:]) for row in rows.astype(float).tolist()}


def test_sums_of_three_steps_by_hand():
    buffer = ReplayBuffer(20, batch_size=1, n_step=3, gamma=0.5)
    # an episode that terminates at step 3, one that is cut at step 6; rows 4 and 7 only reset
    buffer.add(steps_of_one([1, 2, 4, 8, 99, 16, 32, 99, 64], terminated=[3], truncated=[6], masked=[4, 7]))
    assert all_transitions(buffer) == {
        0: (1 + 2 / 2 + 4 / 4, 3, 0.125),
        1: (2 + 4 / 2 + 8 / 4, 4, 0),
        2: (4 + 8 / 2, 4, 0),
        3: (8, 4, 0),
        5: (16 + 32 / 2, 7, 0.25),  # cut: bootstraps from the episode's last observation
        6: (32, 7, 0.5),
        8: (64, 9, 0.5),  # the newest observation is as far as it goes
    }
    buffer = ReplayBuffer(20, batch_size=1, n_step=4, gamma=0.5)
    # ends without a row that resets
    buffer.add(steps_of_one([1, 2, 4, 8], terminated=[1], truncated=[2]))
    assert all_transitions(buffer) == {0: (2, 2, 0), 1: (2, 2, 0), 2: (4, 3, 0.5), 3: (8, 4, 0.5)}


def random_batch(rng, steps, n_envs, first=None, masked=0.2):
    observations = rng.random((steps + 1, n_envs, 4), dtype=np.float32)
    if first is not None:
        observations[0] = first
    valid = rng.random((steps, n_envs)) >= masked
    return {
        'observations': observations,
        'actions': rng.integers(2, size=(steps, n_envs)),
        'rewards': rng.random((steps, n_envs), dtype=np.float32),
        'terminated': valid & (rng.random((steps, n_envs)) < 0.1),
        'truncated': np.zeros((steps, n_envs), bool),
        'valid': valid,
    }


def frequencies(buffer, draws, rng, **options):
    """How often each flat row is drawn, of a buffer with priorities or of rewards that all differ."""
    batch = buffer.sample(draws, rng, **options)
    key = 'rows' if 'rows' in batch else 'rewards'
    return np.unique(batch[key], return_counts=True)


def test_uniform_sampling_is_uniform_over_environments_and_rows():
    rng = np.random.default_rng(1)
    batch = random_batch(rng, 30, 4)
    buffer = ReplayBuffer(80, batch_size=80)  # the last 20 rows
    buffer.add(batch)
    values, counts = frequencies(buffer, 2500, rng)
    assert values.tolist() == sorted(batch['rewards'][-20:][batch['valid'][-20:]].tolist())
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize('alpha', [None, 0.6])
def test_sampling_ends_where_nearly_everything_is_masked(alpha):
    rng = np.random.default_rng(0)
    batch = random_batch(rng, 5000, 2, masked=1.0)
    batch['valid'][[1234, 4000], [1, 0]] = True
    buffer = ReplayBuffer(10_000, 1, batch_size=64, alpha=alpha)
    buffer.add(batch)
    assert len(buffer) == buffer.stored == 2
    expected = {float(batch['rewards'][1234, 1]), float(batch['rewards'][4000, 0])}
    assert {*buffer.sample(3, rng)['rewards'].reshape(-1).tolist()} == expected


def test_draws_follow_priorities_and_weights_undo_them():
    rng = np.random.default_rng(2)
    buffer = ReplayBuffer(64, batch_size=50, alpha=0.7)
    buffer.add(random_batch(rng, 20, 3))
    rows, _ = frequencies(buffer, 50, rng)
    assert len(rows) == len(buffer)
    errors = rng.exponential(size=len(rows)) * rng.choice([-1, 1], size=len(rows))
    buffer.prioritize(rows, errors)
    priorities = (np.abs(errors) + 1e-6) ** 0.7
    shares = priorities / priorities.sum()
    drawn = buffer.sample(2000, rng)['rows'].ravel()
    assert np.isin(drawn, rows).all()
    counts = (drawn == rows[:, None]).sum(axis=1)
    assert stats.chisquare(counts, shares * drawn.size).pvalue > 1e-4
    batch = buffer.sample(7, rng, beta=0.4)
    weights = (len(rows) * shares[np.searchsorted(rows, batch['rows'])]) ** -0.4
    np.testing.assert_allclose(batch['weights'], weights / weights.max(axis=1, keepdims=True), rtol=1e-5)
    assert batch['weights'].dtype == np.float32 and batch['rows'].dtype == np.int64


def test_new_transitions_get_the_largest_priority_so_far():
    rng = np.random.default_rng(4)
    buffer = ReplayBuffer(100, 1, batch_size=10, alpha=1.0)
    first = random_batch(rng, 10, 1, masked=0.0)
    buffer.add(first)
    # with equal priorities, a batch has one draw of each of 10 equal parts: all of them
    assert (np.sort(buffer.sample(10, rng)['rows'], axis=1) == np.arange(10)).all()
    buffer.prioritize(np.arange(10), np.array([0.5] * 9 + [7.0]))
    buffer.prioritize(np.array([9]), np.array([0.5]))
    buffer.add(random_batch(rng, 1, 1, first['observations'][-1], masked=0.0))
    batch = buffer.sample(2000, rng, beta=1.0)
    # its share is 7 of 12
    assert (batch['rows'] == 10).mean() == pytest.approx(7 / 12, abs=0.01)


def test_priorities_of_forgotten_rows_and_errors_that_are_not_finite_change_nothing():
    rng = np.random.default_rng(5)
    buffer = ReplayBuffer(8, 1, batch_size=4, alpha=0.5)
    first = random_batch(rng, 8, 1, masked=0.0)
    buffer.add(first)
    last = random_batch(rng, 1, 1, first['observations'][-1], masked=0.0)
    last['valid'][:] = False
    buffer.add(last)  # row 8 was the head and is masked now; row 0 is the head
    buffer.prioritize(np.array([8, 0, 3, 4]), np.array([1e9, 1e9, np.nan, np.inf]))
    rows, counts = frequencies(buffer, 1000, rng)
    assert rows.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert stats.chisquare(counts).pvalue > 1e-4
    with pytest.raises(ValueError, match='no priorities'):
        ReplayBuffer(8, batch_size=4).prioritize(rows, rows)


@settings(deadline=None)
@given(
    size=st.sampled_from([1, 5, 32, 33, 1024, 3000]),
    zero=st.floats(0, 0.99),
    magnitude=st.sampled_from([1e-8, 1.0, 1e12]),
    seed=st.integers(0, 1000),
)
def test_a_sum_tree_finds_what_adding_up_finds(size, zero, magnitude, seed):
    rng = np.random.default_rng(seed)
    tree = SumTree(size)
    priorities = np.zeros(size)
    for _ in range(5):
        indices = np.unique(rng.integers(size, size=20))
        start = rng.integers(size)
        for where in (indices, np.arange(start, rng.integers(start, size) + 1)):
            values = rng.exponential(size=len(where)) * magnitude * (rng.random(len(where)) >= zero)
            priorities[where] = values
            tree.set(where, values) if where is indices else tree.set_span(start, values)
    assert (tree.leaves[:size] == priorities).all()
    if not priorities.any():
        return
    fractions = np.array([*rng.random(200), 0.0, 1 - 2**-53])
    found, total = tree.find(fractions)
    assert total == pytest.approx(priorities.sum())
    assert (priorities[found] > 0).all()
    ends = priorities.cumsum()
    slack = 1e-9 * total
    assert (fractions * total <= ends[found] + slack).all()
    assert (fractions * total >= ends[found] - priorities[found] - slack).all()


def test_a_sum_tree_does_not_drift():
    rng = np.random.default_rng(0)
    tree = SumTree(2000)
    for _ in range(3000):
        tree.set(rng.integers(2000, size=8), 10.0 ** rng.integers(-12, 13, size=8))
    tree.set(np.arange(2000), 0.0)
    tree.set(np.array([77]), 1e-9)
    found, total = tree.find(np.array([0.0, 0.5, 0.999]))
    assert total == 1e-9
    assert found.tolist() == [77, 77, 77]


@pytest.mark.parametrize('stack', [1, 4])
@pytest.mark.parametrize('alpha', [None, 0.6])
def test_memory_is_said_beforehand(stack, alpha):
    buffer, batch = ReplayBuffer(5001, stack=stack, alpha=alpha), random_batch(np.random.default_rng(0), 1, 4)
    batch |= {'observations': np.zeros((2, 4, 6, 5, stack), np.uint8), 'actions': np.zeros((1, 4, 2), np.float32)}
    buffer.add(batch)
    tree = buffer.ring.priorities
    arrays = [*buffer.ring.arrays.values()]
    arrays += [tree.leaves, tree._sums, tree._tops] if tree else []
    space = Box(0, 255, (6, 5, stack), np.uint8)
    assert ring_bytes_needed(5001, 4, space, ((2,), np.float32), stack, bool(tree)) == sum(a.nbytes for a in arrays)
    assert buffer.ring.arrays['observations'].shape[2:] == ((6, 5, 1) if stack == 1 else (6, 5)), 'a frame a row'


def test_a_million_atari_frames_fit():
    space = Box(0, 255, (84, 84, 4), np.uint8)
    assert ring_bytes_needed(1_000_000, 8, space, ((), np.int64), 4, True) < 7.1e9
    with pytest.raises(OptionError, match='buffer_max_size: got 7, expected at least 8'):
        ring_bytes_needed(7, 8, space, ((), np.int64))


@pytest.mark.parametrize(
    ('sizes', 'ready'),
    [
        ((100, 10, 4), [False, True]),  # 10 rounds up to 12
        ((10, None, 10), [False, True]),  # of 10, 3 environments fill 9: stored ones are counted, overwritten or not
        ((10, None, 4), [True, True]),
    ],
)
def test_ready_when_enough_was_stored(sizes, ready):
    rng, buffer = np.random.default_rng(0), ReplayBuffer(*sizes)
    assert not buffer.ready and len(buffer) == 0
    batch = random_batch(rng, 3, 3, masked=0.0)
    for expected in ready:  # 9 are stored, then 12
        buffer.add(batch)
        assert buffer.ready == expected
        batch = random_batch(rng, 1, 3, batch['observations'][-1], masked=0.0)
    assert len(buffer) == min(12, sizes[0] // 3 * 3)


def test_outputs_are_reused_and_have_the_room_asked_for():
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(50, batch_size=6)
    buffer.add(random_batch(rng, 20, 2))
    one = buffer.sample(2, rng, max_batches=5)
    assert all(array.shape[:2] == (5, 6) for array in one.values())
    assert [one[name].dtype for name in ('observations', 'rewards', 'discounts')] == [np.float32] * 3
    assert buffer.sample(4, rng, max_batches=5) is one
    assert buffer.sample(4, rng)['actions'].shape == (4, 6)
    for wrong in (0, 6):
        with pytest.raises(ValueError, match='n_batches: got'):
            buffer.sample(wrong, rng, max_batches=5)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'max_size': 10, 'batch_size': 11}, 'buffer_batch_size: got 11, expected at most buffer_max_size, 10'),
        ({'max_size': 40, 'initial_size': 41}, 'buffer_initial_size: got 41, expected at most buffer_max_size, 40'),
        ({'max_size': 0}, 'buffer_max_size: got 0'),
        ({'max_size': 40, 'alpha': 1.5}, 'priority_alpha: got 1.5'),
        ({'max_size': 40, 'gamma': -0.1}, 'gamma: got -0.1'),
        ({'max_size': 40, 'gamma': float('nan')}, 'gamma: got nan'),
        ({'max_size': 40, 'n_step': 0}, 'n_step: got 0'),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(OptionError, match=message) as error:
        ReplayBuffer(**options)
    assert '\n' not in str(error.value)


def test_wrong_batches_are_refused():
    batch = random_batch(np.random.default_rng(0), 2, 3)
    with pytest.raises(OptionError, match='buffer_max_size: got 2, expected at least 3'):
        ReplayBuffer(2, batch_size=1).add(batch)
    with pytest.raises(ValueError, match=r'expected \[H, W, 4\]'):
        ReplayBuffer(50, stack=4).add(batch)
    buffer = ReplayBuffer(50)
    buffer.add(batch)
    with pytest.raises(ValueError, match=r'observations: got the shape \(2, 4\), expected \(3, 4\)'):
        buffer.add(random_batch(np.random.default_rng(0), 2, 2))


def test_names_of_version_1():
    assert isinstance(ReplayBuffer1(100, 10, 5), ReplayBuffer)
    second = ReplayBuffer2(100, 5, initial_size=10, batch_size=6)
    assert isinstance(second, ReplayBuffer)
    assert (second.max_size, second.initial_size, second.batch_size) == (100, 10, 6)
