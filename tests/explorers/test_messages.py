"""What goes over the wire: arrays and headers come back as they were, and nothing else does any harm."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xagents.explorers.messages import DTYPES, WireError, pack, unpack

DTYPE = st.sampled_from(sorted(DTYPES)).map(np.dtype)
ARRAYS = st.dictionaries(
    st.text(max_size=9), arrays.arrays(DTYPE, arrays.array_shapes(min_dims=0, min_side=0)), max_size=4
)
PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=9)
HEADER = st.dictionaries(st.text(max_size=9).filter(lambda name: name not in ('kind', 'arrays')), PLAIN, max_size=4)


@given(st.text(max_size=9), HEADER, ARRAYS)
@settings(max_examples=50, deadline=None)
def test_a_message_comes_back_as_it_was(kind, header, held):
    message = unpack(pack(kind, header, held))
    assert (message.message_type, message.header) == (kind, header)
    assert message.arrays.keys() == held.keys()
    for name, array in held.items():
        assert message.arrays[name].dtype == array.dtype and message.arrays[name].shape == array.shape
        np.testing.assert_array_equal(message.arrays[name], array)


def test_what_is_no_message_is_one_line():
    refused, rng = 0, np.random.default_rng(0)
    whole = pack(
        'fragment', {'number': 3, 'episodes': [[1.0, 2, None, 0, 1, 0.5, None]]}, {'a': np.arange(6.0).reshape(2, 3)}
    )
    for _ in range(2000):
        data = bytearray(whole[: rng.integers(0, len(whole) + 1)])
        for place in rng.integers(0, max(len(data), 1), rng.integers(0, 9)):
            if data:
                data[place] = rng.integers(256)
        try:
            unpack(bytes(data))
        except WireError as error:
            refused += 1
            assert len(str(error)) < 300 and '\n' not in str(error)
    assert refused > 1000


def tampered(table):
    text = json.dumps({'kind': 'x', 'arrays': table}).encode()
    return struct.pack('<I', len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    'table',
    [
        *([['a', '|O', [1]]], [['a', '<f8', [-1]]], [['a', '<f8', [2**40, 2**40]]], [['a', '<f8', [1.0]]], [['a']]),
        *([['a', '<f8', 1]], [['a', '<M8[s]', [1]]], [['a', 'V8', [1]]], [['a', '<f8', [1] * 99]], 7, [['a', 7, [1]]]),
        *([['a', '<f8', [2]]], []),
    ],
)
def test_an_array_is_checked_before_it_is_made(table):
    with pytest.raises(WireError):
        unpack(tampered(table))
    with pytest.raises(WireError):
        unpack(struct.pack('<I', 2**31) + b'{}')
    with pytest.raises(WireError):
        unpack(struct.pack('<I', 200_000) + b'[' * 200_000)
