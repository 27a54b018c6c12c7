"""Encoding observations and decoding actions."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.envs.spaces import ActionDecoder, Encoding, ObservationEncoder, as_batch, is_single

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
    encoder = ObservationEncoder(space)
    encoded = encoder(batch)
    assert encoded.dtype == np.float32 and encoded.shape == (n, *encoder.space.shape)
    for row, observation in zip(encoded, iterate(batched, batch), strict=True):
        np.testing.assert_array_equal(row, spaces.flatten(space, observation).astype(np.float32))
        assert encoder.space.contains(row)
    if encoded.shape != getattr(batch, 'shape', None):
        np.testing.assert_array_equal(encoder(encoded), encoded)  # encoded already: passes


@pytest.mark.parametrize('kind', [spaces.Dict, spaces.Tuple])
def test_bytes_within_a_vector_become_numbers_from_0_to_1(kind):
    parts = spaces.Box(0, 255, (16, 16, 1), np.uint8), spaces.Box(-2, 2, (1,), np.float32)
    shown = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1), np.float32([[-1.5]])
    if kind is spaces.Dict:
        parts, shown = (dict(zip('ab', two, strict=True)) for two in (parts, shown))
    encoder = ObservationEncoder(kind(parts), Encoding(flatten=True))
    np.testing.assert_array_equal(encoder(shown)[0], [*np.arange(256, dtype=np.float32) * np.float32(1 / 255), -1.5])
    assert (encoder.space.low.min(), encoder.space.high[:256].max()) == (-2, 1)


def test_lists_of_observations_are_batches():
    space = spaces.Dict({'a': spaces.Discrete(3), 'b': spaces.Box(0, 1, (2,), np.float32)})
    encoded = ObservationEncoder(space)([{'a': 2, 'b': np.array([0.25, 0.5])}, {'a': 0, 'b': np.array([1.0, 0.0])}])
    assert encoded.tolist() == [[0, 0, 1, 0.25, 0.5], [1, 0, 0, 1, 0]]
    encoder, batch = ObservationEncoder(spaces.Box(0, 9, (2,), np.float32)), np.float32([[1, 2], [3, 4]])
    assert encoder(batch.tolist()).tolist() == batch.tolist() and encoder(batch) is batch
    assert ObservationEncoder(spaces.Discrete(2, start=4))([5, 4]).tolist() == [[0, 1], [1, 0]]


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
        ((6,), (6,)),
    ],
)
def test_where_the_channels_of_images_go(shape, encoded):
    space = spaces.Box(0, 255, shape, np.uint8)
    encoder = ObservationEncoder(space)
    assert encoder.space.shape == encoded
    batch = batch_space(space, 2).sample()
    out = encoder(batch)
    assert encoder.identity == (out is batch) == (shape == encoded)
    assert (encoder.space == space) == encoder.identity
    assert out.shape == (2, *encoded) and out.dtype == np.uint8 and out.flags['C_CONTIGUOUS']
    if shape == (3, 9, 8):
        np.testing.assert_array_equal(out[1, :, :, 2], batch[1, 2])
    if shape == (4, 9, 8, 3):
        np.testing.assert_array_equal(out[1, :, :, 9:], batch[1, 3])
    np.testing.assert_array_equal(np.sort(out, axis=None), np.sort(batch, axis=None))


@pytest.mark.parametrize('dtype', [bool, np.int64, np.uint8, np.float32])
def test_images_of_any_numbers_stay_images_or_become_vectors(dtype):
    space = spaces.Box(0, 1, (3, 9, 8), dtype)
    batch = batch_space(space, 2).sample()
    image, vector = ObservationEncoder(space), ObservationEncoder(space, Encoding(flatten=True))
    encoded = np.uint8 if dtype is np.uint8 else np.float32
    assert image(batch).dtype == vector(batch).dtype == encoded
    np.testing.assert_array_equal(image(batch), np.moveaxis(batch, 1, -1).astype(encoded))
    np.testing.assert_array_equal(vector(batch), batch.reshape(2, -1).astype(encoded))
    assert vector.space.contains(vector(batch)[0]) and vector.space.shape == (216,)


def test_the_wrapper_of_a_known_package_is_named_without_addresses():
    class MissionSpace(spaces.Space):
        __module__ = 'minigrid.core.mission'

    space = spaces.Dict({'image': spaces.Box(0, 255, (7, 7, 3), np.uint8), 'mission': MissionSpace()})
    with pytest.raises(ValueError, match=r"\['mission'\] is a MissionSpace; .*: use --wrapper minigrid.wrappers:Img"):
        ObservationEncoder(space)
    with pytest.raises(ValueError, match='MissionSpace object>'):
        ActionDecoder(MissionSpace())


@pytest.mark.parametrize(
    ('of', 'space', 'problem'),
    [
        (ObservationEncoder, spaces.Text(5), '^the observation space is a Text; .*wrappers:FlattenObservation'),
        (ObservationEncoder, spaces.Sequence(spaces.Discrete(2)), 'Sequence; .* of your own, --wrapper'),
        (ObservationEncoder, spaces.Graph(spaces.Box(0, 1, (2,)), None), 'Graph'),
        (ObservationEncoder, spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]), 'OneOf'),
        (ObservationEncoder, spaces.Dict({'inner': spaces.Tuple([spaces.Text(3)])}), r"\['inner'\]\[0\] is a Text"),
        (ActionDecoder, spaces.Text(3), '^the action space is Text'),
        (ActionDecoder, spaces.Dict({'a': spaces.Text(2)}), '^the action space is Text'),
        (ActionDecoder, spaces.Tuple([]), '^the action space is Tuple'),
    ],
)
def test_other_spaces_are_refused_by_name(of, space, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        of(space)
    assert '\n' not in str(refused.value)


@pytest.mark.parametrize(
    ('space', 'shown', 'problem'),
    [
        (
            spaces.Box(-1, 1, (4,), np.float32),
            np.zeros(4, np.float32),
            r'shape \[4\]; expected \[4\] for one observation, \[N, 4\] for N$',
        ),
        (spaces.Box(0, 255, (9, 8), np.uint8), np.zeros((2, 8, 9), np.uint8), r'\[N, 9, 8, 1\] or \[N, 9, 8\] for N$'),
        (spaces.Discrete(3), np.array([3]), 'outside its space Discrete'),
        (spaces.MultiDiscrete([3, 2]), np.array([[0, 2]]), 'outside its space MultiD'),  # a neighbour's column
    ],
)
def test_wrong_observations_are_refused(space, shown, problem):
    with pytest.raises(ValueError, match=problem):
        ObservationEncoder(space)(shown)


PARTS = spaces.Dict({'place': spaces.Box(-1, 1, (2,)), 'hand': spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])})
HERE = {'place': np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ('shown', 'problem'),
    [
        (HERE, 'lacks hand: got the parts place$'),
        ([HERE, HERE], 'lacks hand: got the parts place$'),
        ({'hand': (0, 1)}, 'lacks place: got the parts hand$'),
        ({**HERE, 'hand': (0,)}, 'has 1 parts, expected 2$'),
        (3, 'lacks hand, place: got a int without parts$'),
    ],
)
def test_an_observation_without_a_part_is_refused_by_the_name_of_the_part(shown, problem):
    with pytest.raises(ValueError, match=problem):
        ObservationEncoder(PARTS)(as_batch(PARTS, shown) if is_single(PARTS, shown) else shown)


def test_discrete_actions_are_not_copied_where_nothing_changes():
    actions = np.array([1, 0])
    assert ActionDecoder(spaces.Discrete(2))(actions) is actions
    decoder = ActionDecoder(spaces.Discrete(3, start=-1))
    assert decoder(np.array([0, 2], np.int32)).tolist() == [-1, 1]
    assert decoder(np.array([0, 2], np.int32)).dtype == np.int64
    assert decoder.n_actions == 3


LISTS = [
    spaces.MultiDiscrete([3, 2, 4]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, -2], [0, 5]])),
    spaces.MultiDiscrete([3, 2], dtype=np.int32),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
]


@pytest.mark.parametrize('space', LISTS, ids=str)
def test_lists_of_choices_reach_every_action_in_the_spaces_shape(space):
    decoder = ActionDecoder(space)
    k = decoder.n_actions
    assert k == np.prod(space.shape)
    largest = getattr(space, 'nvec', np.full(space.shape, 2)) - 1
    lowest, highest = decoder(np.stack([np.zeros(k, np.int64), largest.ravel()]))
    assert space.contains(lowest) and space.contains(highest) and lowest.dtype == space.dtype
    np.testing.assert_array_equal(lowest, getattr(space, 'start', np.zeros(space.shape)))
    np.testing.assert_array_equal(highest, lowest + largest)


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


LARGEST_64 = np.finfo(np.float64).max
SOME_INFINITE = [np.float32([[-2, 0.5], [-np.inf, -np.inf]]), np.float32([[6, np.inf], [-1, np.inf]])]


@pytest.mark.parametrize(
    ('space', 'policy', 'expected'),
    [
        (spaces.Box(*SOME_INFINITE), [[0.5, 0.25, 3, 40], [-9, 8, -7, -60]], [4, 0.5, -1, 40, -2, 8, -7, -60]),
        (spaces.Box(-LARGEST_64, LARGEST_64, (1,), np.float64), [[-1.0], [0], [1]], [-LARGEST_64, 0, LARGEST_64]),
        (spaces.Box(0, 10, (1,), np.int32), [[0.99], [-0.99], [0.12]], [10, 0, 6]),
    ],
    ids=['infinite bounds are not scaled to', 'the largest do not overflow', 'whole numbers are rounded'],
)
def test_boxes_by_hand(space, policy, expected):
    decoder = ActionDecoder(space)
    decoded = decoder(np.array(policy))
    assert decoder.n_actions == len(policy[0]) and decoded.shape == (len(policy), *space.shape)
    assert decoded.ravel().tolist() == expected


@pytest.mark.parametrize(
    'space', [*LISTS, spaces.Discrete(4, start=-1), spaces.Box(np.float32([-2, 0]), np.float32([6, 1]))], ids=str
)
def test_the_inverse_of_a_decoder_gives_back_what_the_policy_drew(space):
    decode = ActionDecoder(space)
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(50)])
    np.testing.assert_allclose(decode(decode.inverse(actions)), actions, rtol=1e-5, atol=1e-6)
