"""The rollout buffer against a list of copied rollouts."""

import itertools

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.replay.test_replay import GO, REPEAT, TERMINATE, TRUNCATE, History, collect, plans, random_batch
from xagents.options.errors import OptionError
from xagents.replay.ring import ring_bytes_needed
from xagents.replay.rollouts import RolloutBuffer, rounded_size

A = 3
STEPS = ('actions', 'rewards', 'terminated', 'truncated', 'valid', 'logits')


class Rollouts:
    """Environments that are stepped by plan, a buffer, and a list of all rollouts that were added to it, copied."""

    def __init__(self, n_steps, starts, stack, continuous=False):
        self.n_steps, self.continuous = n_steps, continuous
        frames = itertools.count(1)
        self.histories = [History(frames, stack, start) for start in starts]
        self.added = []
        self.last_is_seen = []  # of each rollout, whether its last observations were not replaced by a reset

    def next(self, events, resets, outside, say=True):
        """Reset some environments from outside, collect a rollout, and return it."""
        for history, kind in zip(self.histories, outside, strict=True):
            if kind:
                history.reset_from_outside(kind)
        restarted = np.array([kind is not None for kind in outside])
        if self.added:
            self.last_is_seen[-1] &= ~restarted
        batch = collect(self.histories, events, resets, self.continuous)
        shape = batch['valid'].shape
        number = len(self.added) + 1
        batch['logits'] = np.arange(number * 1000, number * 1000 + np.prod(shape) * A, dtype=np.float32)
        batch['logits'] = batch['logits'].reshape(*shape, A)
        self.added.append({name: array.copy() for name, array in batch.items()})
        self.last_is_seen.append(np.ones(len(self.histories), bool))
        return batch | ({'restarted': restarted} if say else {})

    def masks(self, capacity):
        """Of all steps, bool [rows, N]: which are valid if `capacity` are kept, and which stacks are whole."""
        rows = len(self.added) * self.n_steps
        valid, whole = np.zeros((2, rows, len(self.histories)), bool)
        for n, history in enumerate(self.histories):
            valid[history.sampleable(capacity), n] = True
            for i, row in enumerate(history.rows):
                whole[i, n] = row.needs <= row.since_start and i - row.needs >= rows - capacity
        return valid, whole

    def check(self, buffer, capacity, rng):
        """Draw so often that each rollout must come, and compare each with what was added."""
        t = self.n_steps
        held = min(len(self.added), capacity)
        valid, whole = self.masks(capacity * t)
        first = len(self.added) - held
        assert len(buffer) == valid[first * t :].sum()
        assert not valid[: first * t].any()
        assert buffer.rollouts == held
        assert buffer.stored == sum(int(rollout['valid'].sum()) for rollout in self.added)
        seen = set()
        for _ in range(25 * held):
            drawn = buffer.sample(rng)
            k = int(drawn['logits'].flat[0]) // 1000 - 1
            if k in seen:
                continue
            seen.add(k)
            added, here = self.added[k], slice(k * t, (k + 1) * t)
            now = valid[here]
            expected = {**added, 'valid': now}
            expected |= {name: added[name] & now for name in ('terminated', 'truncated')}
            assert {*drawn} == {'observations', *STEPS}
            for name in STEPS:
                np.testing.assert_array_equal(drawn[name], expected[name], name)
                assert drawn[name].dtype == added[name].dtype
            assert drawn['observations'].dtype == added['observations'].dtype
            assert drawn['observations'].shape == added['observations'].shape
            same = (drawn['observations'] == added['observations']).reshape(t + 1, now.shape[1], -1).all(axis=-1)
            assert same[:-1][whole[here]].all()
            assert same[:-1][now].all() and same[1:][now].all()
            # the last observations too, of which those of the newest rollout have no row yet
            last = self.last_is_seen[k] & (whole[here.stop] if here.stop < len(whole) else now[-1])
            assert same[-1][last].all()
        assert seen == {*range(first, len(self.added))}


@settings(deadline=None, max_examples=120)
@given(
    t=st.integers(1, 7),
    data=st.data(),
    stack=st.sampled_from([1, 3, 4]),
    capacity=st.integers(1, 4),
    more=st.integers(0, 20),
    continuous=st.booleans(),
    say=st.booleans(),
)
def test_each_draw_is_a_rollout_as_it_was_added(t, data, stack, capacity, more, continuous, say):
    starts, steps = data.draw(plans(t))
    size = t * len(starts)
    buffer = RolloutBuffer(capacity * size + more % size, n_steps=t, stack=stack)
    rollouts, rng = Rollouts(t, starts, stack, continuous), np.random.default_rng(0)
    for events, resets, outside in steps:
        batch = rollouts.next(events, resets, outside, say)
        buffer.add(batch)
        for array in batch.values():  # the next collection overwrites them
            array[...] = 0
        rollouts.check(buffer, capacity, rng)


def random_rollouts(count, n_steps, n_envs, stack=1, ends=0.15):
    """Rollouts of environments that begin at a reset and whose resets repeat one frame."""
    rng = np.random.default_rng(3)
    rollouts = Rollouts(n_steps, [REPEAT] * n_envs, stack)
    for _ in range(count):
        events = rng.choice([GO, TERMINATE, TRUNCATE], p=[1 - ends, ends / 2, ends / 2], size=(n_steps, n_envs))
        rollouts.next(events, [[REPEAT] * n_envs] * n_steps, [None] * n_envs)
    return rollouts


def filled(rollouts, capacity, **options):
    n_envs = len(rollouts.histories)
    buffer = RolloutBuffer(capacity * rollouts.n_steps * n_envs, n_steps=rollouts.n_steps, **options)
    for rollout in rollouts.added:
        buffer.add(rollout)
    return buffer


def test_what_is_said_of_restarts_counts_more_than_equal_observations():
    rollout = random_rollouts(1, 4, 2, ends=0.0).added[0]
    rollout['observations'][-1] = rollout['observations'][0]
    buffer = RolloutBuffer(100, n_steps=4)
    for said, stored in (({}, 8), ({}, 16), ({'restarted': np.array([False, True])}, 23)):
        buffer.add(rollout | said)
        assert len(buffer) == stored


@pytest.mark.parametrize('capacity', [7, 20])
def test_every_rollout_is_drawn_equally_often_and_equal_generators_draw_equal_ones(capacity):
    buffer = filled(random_rollouts(10, 4, 2, ends=0.5), capacity)  # of different numbers of valid steps

    def draws(seed, number):
        rng = np.random.default_rng(seed)
        return [int(buffer.sample(rng)['logits'].flat[0]) for _ in range(number)]

    numbers_drawn, counts = np.unique(draws(1, 5000), return_counts=True)
    assert numbers_drawn.tolist() == [1000 * (k + 1) for k in range(10 - min(capacity, 10), 10)]
    assert stats.chisquare(counts).pvalue > 1e-4
    assert draws(5, 30) == draws(5, 30) != draws(6, 30)


def test_arrays_are_reused_and_nobody_elses():
    rollouts = random_rollouts(2, 3, 2, ends=0.0)
    buffer, rng = filled(rollouts, 2), np.random.default_rng(0)
    one = buffer.sample(rng)
    addresses = {name: array.__array_interface__['data'] for name, array in one.items()}
    for array in one.values():
        array[...] = 0
    one.clear()  # the caller's own dictionary
    rollouts.check(buffer, 2, rng)
    assert {name: array.__array_interface__['data'] for name, array in buffer.sample(rng).items()} == addresses


def rollout_of(n_steps, n_envs, shape=(2,), dtype=np.float32, valid=None):
    batch = random_batch(np.random.default_rng(0), n_steps, n_envs, masked=0.0)
    batch |= {'logits': np.zeros((n_steps, n_envs, A), np.float32)} | ({} if valid is None else {'valid': valid})
    return batch | {'observations': np.zeros((n_steps + 1, n_envs, *shape), dtype)}


@pytest.mark.parametrize('stack', [1, 4])
@pytest.mark.parametrize(
    'columns', [{}, {'logits': ((A,), np.float32)}, {'logits': ((A,), np.float32), 'k': ((), 'i1')}]
)
def test_memory_is_said_beforehand(stack, columns):
    space = Box(0, 255, (6, 5, stack), np.uint8)
    buffer = RolloutBuffer(5001, n_steps=20, stack=stack, columns=columns)
    rollout = rollout_of(20, 4, (6, 5, stack), np.uint8) | {'k': np.zeros((20, 4), np.int8)}
    buffer.add(rollout)
    arrays = buffer.ring.arrays.values()
    assert {len(array) for array in arrays} == {62 * 20 + 1}
    assert buffer.ring.arrays['observations'].shape[2:] == ((6, 5, 1) if stack == 1 else (6, 5)), 'a frame a row'
    needed = ring_bytes_needed(rounded_size(5001, 20, 4), 4, space, ((), np.int64), stack, columns=columns)
    assert needed == sum(array.nbytes for array in arrays)


def test_sizes_round_to_whole_rollouts():
    for initial, adds in ((None, 2), (30, 2), (13, 2), (12, 1), (1, 1), (0, 1)):
        buffer = RolloutBuffer(30, initial, n_steps=4)  # 12 transitions a rollout: 2 of them
        assert not buffer.ready and len(buffer) == 0
        for k in range(1, 5):
            buffer.add(rollout_of(4, 3))
            assert buffer.ready == (k >= adds)
            assert len(buffer) == min(k, 2) * 12 and buffer.stored == k * 12
        assert buffer.required_size == adds * 12 - 12 * (initial == 0)
        assert (buffer.max_size, buffer.initial_size) == (30, 30 if initial is None else initial)


def test_valid_steps_are_counted_overwritten_or_not_so_that_the_default_is_reached():
    valid = np.ones((4, 3), bool)
    valid[1, :] = False  # 9 of 12
    buffer = RolloutBuffer(24, n_steps=4)
    ready = []
    for _ in range(4):
        buffer.add(rollout_of(4, 3, valid=valid))
        ready.append(buffer.ready)
    assert ready == [False, False, True, True]
    assert (len(buffer), buffer.stored, buffer.required_size) == (18, 36, 24)
    # a rollout without a valid step is one all the same, but nothing to learn from
    buffer = RolloutBuffer(24, 0, n_steps=4)
    buffer.add(rollout_of(4, 3, valid=np.zeros((4, 3), bool)))
    assert not buffer.ready and not buffer.sample(np.random.default_rng(0))['valid'].any()


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'max_size': 40, 'initial_size': -1}, 'buffer_initial_size: got -1'),
        ({'max_size': 40, 'n_steps': 0}, 'n_steps: got 0'),
        ({'max_size': 40, 'stack': 0}, 'frame_stack: got 0'),
        ({'max_size': 40, 'columns': ['rewards']}, "columns: got 'rewards'"),
        ({'max_size': 40, 'columns': ['logits', 'logits']}, "columns: got 'logits'"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message) as error:
        RolloutBuffer(**{'n_steps': 5, **options})
    assert '\n' not in str(error.value)


def test_no_room_for_one_rollout():
    message = 'buffer_max_size: got 100, expected at least 320, one rollout of 20 steps x 16 environments'
    buffer = RolloutBuffer(100, n_steps=20)
    with pytest.raises(OptionError, match=message):
        buffer.add(rollout_of(20, 16))
    assert not buffer.stored
    with pytest.raises(OptionError, match=message):
        rounded_size(100, 20, 16)
    RolloutBuffer(320, n_steps=20).add(rollout_of(20, 16))


def test_wrong_rollouts_are_refused_and_change_nothing():
    buffer, rng = RolloutBuffer(100, n_steps=4), np.random.default_rng(0)
    with pytest.raises(ValueError, match='holds no rollout'):
        buffer.sample(rng)
    for wrong, message in (
        (rollout_of(3, 2), 'observations: got a rollout of 3 steps, expected 4'),
        ({k: v for k, v in rollout_of(4, 2).items() if k != 'logits'}, 'logits: not in the rollout'),
        (rollout_of(4, 2) | {'valid': np.ones((3, 2), bool)}, r'valid: got the shape \(3, 2\)'),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.add(wrong)
    rollouts = random_rollouts(1, 4, 2)
    buffer = filled(rollouts, 3)
    right = rollout_of(4, 2, (3,))
    shapes = {'observations': (5, 2, 4), 'rewards': (4, 1), 'actions': (4, 2, 1), 'terminated': (3, 2)}
    for name, shape in {**shapes, 'logits': (4, 2, 1)}.items():
        with pytest.raises(ValueError, match=f'{name}: got the shape'):
            buffer.add(right | {name: np.zeros(shape, right[name].dtype)})
        rollouts.check(buffer, 3, rng)
    with pytest.raises(ValueError, match='got the shape'):
        buffer.add(rollout_of(4, 3, (3,)))
