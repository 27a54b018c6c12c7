"""Sequences of a replay buffer against a record of everything that was added."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xagents.options.errors import OptionError
from xagents.replay.sequences import SequenceBuffer

UNITS = 2


def batches(rng, n_batches, steps, n_envs):
    """Yield rollouts of numbered observations; each row also records what the sampled arrays must contain."""
    counter = np.arange(n_envs) * 1000.0
    in_episode, memory = np.ones(n_envs, bool), np.zeros((n_envs, UNITS), np.float32)
    for _ in range(n_batches):
        batch = {
            'observations': np.zeros((steps + 1, n_envs, 1), np.float32),
            'memory': np.zeros((steps + 1, n_envs, UNITS), np.float32),
            'actions': rng.integers(0, 9, (steps, n_envs)).astype(np.int32),
            'rewards': rng.normal(size=(steps, n_envs)).astype(np.float32),
            **{name: np.zeros((steps, n_envs), bool) for name in ('terminated', 'truncated', 'valid')},
        }
        for t in range(steps):
            batch['observations'][t, :, 0], batch['memory'][t], batch['valid'][t] = counter, memory, in_episode
            ended = in_episode & (rng.random(n_envs) < 0.2)
            terminated = ended & (rng.random(n_envs) < 0.5)
            batch['terminated'][t], batch['truncated'][t] = terminated, ended & ~terminated
            memory = (memory + rng.normal(size=memory.shape).astype(np.float32)) * in_episode[:, None]
            in_episode, counter = ~ended, counter + 1
        batch['observations'][-1, :, 0], batch['memory'][-1] = counter, memory
        yield batch


@given(
    seed=st.integers(0, 1000),
    n_envs=st.integers(1, 3),
    steps=st.integers(1, 5),
    length=st.integers(2, 5),
    burn_in=st.integers(0, 3),
    capacity=st.integers(8, 20),
)
def test_sequences_are_consecutive_steps_with_the_stored_memory(seed, n_envs, steps, length, burn_in, capacity):
    rng = np.random.default_rng(seed)
    buffer = SequenceBuffer(capacity * n_envs, 0, 4, length=length, burn_in=burn_in)
    rows = {}
    for batch in batches(rng, 12, steps, n_envs):
        buffer.add(batch)
        for t in range(steps):
            for n in range(n_envs):
                columns = {name: batch[name][t, n] for name in batch}
                rows[batch['observations'][t, n, 0]] = columns
    assert buffer.ready
    sampled = buffer.sample(3, rng, max_batches=5, scale=lambda x: 2 * x)
    width = length + burn_in
    valid_and_learned = np.zeros((3, width, 4), bool)
    by_step = {name: x[:3].reshape(3, width, 4, *x.shape[2:]) for name, x in sampled.items() if 'memory' not in name}
    for k, b in np.ndindex(3, 4):
        first = by_step['observations'][k, 0, b, 0]
        np.testing.assert_array_equal(sampled['memory'][k, b], rows[first]['memory'])
        np.testing.assert_array_equal(sampled['next_memory'][k, b], rows[first + 1]['memory'])
        for t in range(width):
            row = rows[first + t]
            got = {name: x[k, t, b] for name, x in by_step.items()}
            assert got['observations'] == first + t and got['next_observations'] == first + t + 1
            if t < width - 1:  # the last ones are not used
                assert got['keep'] == row['valid'] == rows[first + t + 1]['memory'].any()
                assert got['next_keep'] == rows[first + t + 1]['valid']
            assert got['actions'] == row['actions']
            assert got['rewards'] == (2 * row['rewards'] if row['valid'] else 0)
            assert not row['valid'] or got['discounts'] == pytest.approx(0.0 if row['terminated'] else 0.99)
            valid_and_learned[k, t, b] = row['valid'] and t >= burn_in
    for k in range(3):
        expected = valid_and_learned[k] * (width * 4 / max(valid_and_learned[k].sum(), 1))
        np.testing.assert_allclose(by_step['weights'][k], expected, rtol=1e-6)


def test_sequences_begin_in_every_valid_row_that_has_a_whole_one():
    rng = np.random.default_rng(0)
    buffer = SequenceBuffer(40, 0, 32, length=3, burn_in=1)
    (batch,) = batches(rng, 1, 20, 2)
    buffer.add(batch)
    seen = {*buffer.sample(20, rng)['observations'].reshape(20, 4, 32)[:, 0].ravel().tolist()}
    starts = batch['observations'][:17, :, 0][batch['valid'][:17]]
    assert seen == {*starts.tolist()}


def test_a_buffer_is_not_ready_before_it_has_a_sequence():
    buffer = SequenceBuffer(100, 0, 1, length=4, burn_in=2)
    rng = np.random.default_rng(0)
    stream = batches(rng, 4, 2, 1)
    for expected in (False, False, True, True):
        assert not buffer.ready
        with pytest.raises(ValueError, match='holds no sequence of 6 steps'):
            buffer.sample(1, rng)
        buffer.add(next(stream))
        if expected:
            break
    assert buffer.ready
    with pytest.raises(OptionError, match='buffer_batch_size'):
        SequenceBuffer(4, 0, 5, length=4)
