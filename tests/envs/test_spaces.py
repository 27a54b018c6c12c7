"""Encoding observations and decoding actions."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.envs.spaces import ActionDecoder, Encoder

SIMPLE = st.one_of(
    st.builds(lambda n, s: spaces.Discrete(n, start=s), st.integers(1, 5), st.integers(-3, 3)),
    st.builds(lambda n: spaces.MultiBinary(n), st.lists(st.integers(1, 3), min_size=1, max_size=2)),
    st.builds(lambda n: spaces.MultiDiscrete(n), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.just(spaces.MultiDiscrete(np.array([[2, 3], [4, 1]]), start=np.array([[1, -2], [0, 5]]))),
    st.builds(lambda s: spaces.Box(-3, 3, tuple(s), np.float64), st.lists(st.integers(1, 3), max_size=2)),
    st.just(spaces.Box(-7, 9, (2,), np.int64)),
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from('zaqb'), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None)
@given(NESTED, st.integers(1, 4), st.integers(0, 1000))
def test_encoding_a_batch_is_gymnasiums_flatten_of_each_observation(space, n, seed):
    batched = batch_space(space, n)
    batched.seed(seed)
    batch = batched.sample()
    encoder = Encoder(space)
    encoded = encoder(batch)
    assert encoded.dtype == np.float32 and encoded.shape == (n, *encoder.space.shape)
    for row, observation in zip(encoded, iterate(batched, batch), strict=True):
        np.testing.assert_array_equal(row, spaces.flatten(space, observation).astype(np.float32))
        assert encoder.space.contains(row)
    if encoded.shape != getattr(batch, 'shape', None):
        np.testing.assert_array_equal(encoder(encoded), encoded)  # encoded already: passes


@pytest.mark.parametrize('kind', [spaces.Dict, spaces.Tuple])
def test_bytes_within_a_vector_become_numbers_from_0_to_1(kind):
    image, speed = spaces.Box(0, 255, (16, 16, 1), np.uint8), spaces.Box(-2, 2, (1,), np.float32)
    space = kind({'a': image, 'b': speed}) if kind is spaces.Dict else kind([image, speed])
    shown = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1), np.float32([[-1.5]])
    encoder = Encoder(space)
    encoded = encoder(dict(zip('ab', shown, strict=True)) if kind is spaces.Dict else shown)
    np.testing.assert_array_equal(encoded[0], [*np.arange(256, dtype=np.float32) * np.float32(1 / 255), -1.5])
    assert (encoder.space.low.min(), encoder.space.high[:256].max()) == (-2, 1)


def test_vectors_and_images_pass_through_untouched():
    for space in (
        spaces.Box(-1, 1, (4,), np.float32),
        spaces.Box(0, 255, (6,), np.uint8),
        spaces.Box(0, 255, (9, 8, 3), np.uint8),
    ):
        encoder = Encoder(space)
        batch = batch_space(space, 2).sample()
        assert encoder.identity
        assert encoder(batch) is batch
        assert encoder.space == space


def test_lists_of_observations_are_batches():
    space = spaces.Dict({'a': spaces.Discrete(3), 'b': spaces.Box(0, 1, (2,), np.float32)})
    encoded = Encoder(space)([{'a': 2, 'b': np.array([0.25, 0.5])}, {'a': 0, 'b': np.array([1.0, 0.0])}])
    assert encoded.tolist() == [[0, 0, 1, 0.25, 0.5], [1, 0, 0, 1, 0]]
    assert Encoder(spaces.Box(0, 9, (2,), np.float32))([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Encoder(spaces.Discrete(2, start=4))([5, 4]).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ('shape', 'encoded'),
    [
        ((9, 8), (9, 8, 1)),
        ((3, 9, 8), (9, 8, 3)),
        ((9, 8, 3), (9, 8, 3)),
        ((3, 9, 3), (3, 9, 3)),  # either could be the channels: stays
        ((5, 9, 8), (5, 9, 8)),
        ((4, 9, 8, 3), (9, 8, 12)),
        ((2, 2, 2, 2, 2), (32,)),
    ],
)
def test_where_the_channels_of_images_go(shape, encoded):
    space = spaces.Box(0, 255, shape, np.uint8)
    encoder = Encoder(space)
    assert encoder.space.shape == encoded
    batch = batch_space(space, 2).sample()
    out = encoder(batch)
    assert out.shape == (2, *encoded) and out.dtype == np.uint8 and out.flags['C_CONTIGUOUS']
    if shape == (3, 9, 8):
        np.testing.assert_array_equal(out[1, :, :, 2], batch[1, 2])
    if shape == (4, 9, 8, 3):
        np.testing.assert_array_equal(out[1, :, :, 9:], batch[1, 3])
    np.testing.assert_array_equal(np.sort(out, axis=None), np.sort(batch, axis=None))


@pytest.mark.parametrize(
    'space',
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
        spaces.Dict({'fine': spaces.Discrete(2), 'inner': spaces.Tuple([spaces.Text(3)])}),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_a_size_are_refused_by_name(space):
    with pytest.raises(ValueError) as refused:
        Encoder(space)
    message = str(refused.value)
    assert '\n' not in message
    assert type(space).__name__ in message if not isinstance(space, spaces.Dict) else "['inner'][0] is Text" in message


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r'shape \(4,\); expected \[N, 4\]$'):
        Encoder(spaces.Box(-1, 1, (4,), np.float32))(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r'expected \[N, 9, 8, 1\] or \[N, 9, 8\]$'):
        Encoder(spaces.Box(0, 255, (9, 8), np.uint8))(np.zeros((2, 8, 9), np.uint8))
    with pytest.raises(ValueError, match='outside its space Discrete'):
        Encoder(spaces.Discrete(3))(np.array([3]))
    with pytest.raises(ValueError, match='outside its space MultiDiscrete'):
        Encoder(spaces.MultiDiscrete([3, 2]))(np.array([[0, 2]]))  # would hit a neighbour's column otherwise


def test_discrete_actions_are_not_copied_where_nothing_changes():
    actions = np.array([1, 0])
    assert ActionDecoder(spaces.Discrete(2))(actions) is actions
    decoder = ActionDecoder(spaces.Discrete(3, start=-1))
    assert decoder(np.array([0, 2], np.int32)).tolist() == [-1, 1]
    assert decoder(np.array([0, 2], np.int32)).dtype == np.int64
    assert decoder.n_actions == 3


@pytest.mark.parametrize(
    'space',
    [
        spaces.MultiDiscrete([3, 2, 4]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, -2], [0, 5]])),
        spaces.MultiDiscrete([3, 2], dtype=np.int32),
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 2]),
    ],
)
def test_lists_of_choices_reach_every_action_in_the_spaces_shape(space):
    decoder = ActionDecoder(space)
    k = decoder.n_actions
    assert k == np.prod(space.shape)
    sizes = getattr(space, 'nvec', np.full(space.shape, 2)).reshape(-1)
    lowest, highest = decoder(np.stack([np.zeros(k, np.int64), sizes - 1]))
    assert space.contains(lowest) and space.contains(highest)
    assert lowest.dtype == space.dtype
    start = getattr(space, 'start', np.zeros(space.shape))
    np.testing.assert_array_equal(lowest, start)
    np.testing.assert_array_equal(highest.reshape(-1), (sizes - 1) + np.asarray(start).reshape(-1))


LARGEST = float(np.float32(1e30))
BOUND = st.floats(-LARGEST, LARGEST, width=32)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(BOUND, BOUND).map(sorted), min_size=1, max_size=4),
    st.lists(st.floats(-1.5, 1.5, width=32), min_size=4, max_size=4),
    st.sampled_from([np.float32, np.float64]),
)
def test_boxes_are_scaled_to_their_bounds_and_never_left(bounds, policy, dtype):
    low, high = (np.array(b, dtype) for b in zip(*bounds, strict=True))
    space = spaces.Box(low, high, dtype=dtype)
    decoder = ActionDecoder(space)
    k = len(low)
    policy = np.array(policy[:k], np.float32)
    decoded = decoder(np.stack([policy, -np.ones(k), np.ones(k)]))
    assert decoded.dtype == dtype
    assert all(space.contains(row) for row in decoded)
    # Exact up to the rounding of the larger bound; inside the bounds exactly.
    rounding = 1e-6 * np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
    assert (decoded[1] - low.astype(np.float64) <= rounding).all()
    assert (high.astype(np.float64) - decoded[2] <= rounding).all()
    width = high.astype(np.float64) - low
    expected = low + (np.clip(policy.astype(np.float64), -1, 1) + 1) / 2 * width
    assert (np.abs(decoded[0] - expected) <= rounding + 1e-44).all()


def test_infinite_bounds_are_not_scaled_to():
    low = np.array([[-2.0, 0.5], [-np.inf, -np.inf]], np.float32)
    high = np.array([[6.0, np.inf], [-1.0, np.inf]], np.float32)
    decoder = ActionDecoder(spaces.Box(low, high))
    assert decoder.n_actions == 4
    decoded = decoder(np.array([[0.5, 0.25, 3.0, 40.0], [-9.0, 8.0, -7.0, -60.0]]))
    assert decoded.tolist() == [[[4.0, 0.5], [-1.0, 40.0]], [[-2.0, 8.0], [-7.0, -60.0]]]


def test_the_largest_bounds_do_not_overflow():
    largest = np.finfo(np.float64).max
    decoder = ActionDecoder(spaces.Box(-largest, largest, (1,), np.float64))
    assert decoder(np.array([[-1.0], [0.0], [1.0]])).tolist() == [[-largest], [0.0], [largest]]


def test_whole_numbers_are_rounded_not_cut():
    decoder = ActionDecoder(spaces.Box(0, 10, (1,), np.int32))
    assert decoder(np.array([[0.99], [-0.99], [0.12]])).reshape(-1).tolist() == [10, 0, 6]


@pytest.mark.parametrize('space', [spaces.Text(3), spaces.Dict({'a': spaces.Discrete(2)}), spaces.Tuple([])])
def test_other_action_spaces_are_refused_by_name(space):
    with pytest.raises(ValueError, match=f'^the action space is {type(space).__name__}') as refused:
        ActionDecoder(space)
    assert '\n' not in str(refused.value)


def test_decoded_actions_are_what_gymnasium_takes():
    env = gymnasium.make('Pendulum-v1')
    env.reset(seed=0)
    env.step(ActionDecoder(env.action_space)(np.array([[0.3]], np.float32))[0])
    assert env.unwrapped.last_u == pytest.approx(0.6)


@pytest.mark.parametrize(
    'space',
    [
        spaces.Discrete(4, start=-1),
        spaces.MultiDiscrete([3, 2], start=[1, 0]),
        spaces.MultiBinary(3),
        spaces.Box(np.float32([-2, 0]), np.float32([6, 1])),
    ],
    ids=str,
)
def test_the_inverse_of_a_decoder_gives_back_what_the_policy_drew(space):
    decode = ActionDecoder(space)
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(50)])
    np.testing.assert_allclose(decode(decode.inverse(actions)), actions, rtol=1e-5, atol=1e-6)
