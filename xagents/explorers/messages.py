"""Messages between learner and workers: a JSON header and named arrays. No part of a message is executed.

A message consists of the length of the header (4 bytes, little-endian), the header, and the bytes of the arrays, one
after the other. The header contains the names, dtypes and shapes of the arrays. Sizes are checked before memory is
allocated.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT = 4
# maximum size of a header, which contains the records of environments in a fragment
MAX_HEADER_BYTES = 64 * 2**20
# NumPy's names of the accepted dtypes; np.dtype() is not called with any other text
DTYPES = frozenset(np.dtype(code).str for code in '?bBhHiIlLqQefd')
MAX_DIMENSIONS = 8


class WireError(ValueError):
    """The received data is not a valid message; the text is one line."""


class Message(NamedTuple):
    """A decoded message.

    Attributes:
        message_type: the type, such as `fragment`.
        header: the other entries of the JSON header.
        arrays: the arrays by name.
    """

    message_type: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(message_type: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Return a message of a type as bytes."""
    held = {name: np.asarray(array) for name, array in (arrays or {}).items()}
    table = [[name, array.dtype.str, list(array.shape)] for name, array in held.items()]
    text = json.dumps({**header, 'kind': message_type, 'arrays': table}, separators=(',', ':')).encode()
    return b''.join([struct.pack('<I', len(text)), text, *(array.tobytes() for array in held.values())])


def unpack(data: bytes) -> Message:
    """Return the message in `data`; its arrays are views of `data`.

    Raises:
        WireError: If `data` is not a valid message.
    """
    try:
        (length,) = struct.unpack_from('<I', data)
        if length > min(MAX_HEADER_BYTES, len(data) - 4):
            raise WireError(f'a header of {length} bytes is too long for a message of {len(data)} bytes')
        header = json.loads(data[4 : 4 + length])
        message_type, table = header.pop('kind'), header.pop('arrays')
        arrays, at = {}, 4 + length
        for name, dtype, shape in table:
            if not isinstance(name, str) or name in arrays:
                raise WireError(f'the name {str(name)[:20]!r} of an array is no text or not unique')
            array = _array(data, at, dtype, shape)
            arrays[name], at = array, at + array.nbytes
        if at != len(data) or not isinstance(message_type, str):
            raise WireError(f'a message has {len(data)} bytes, but its header describes {at}')
        return Message(message_type, header, arrays)
    except WireError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        reason = f'{type(error).__name__}: {" ".join(str(error).split())[:100]}'
        raise WireError(f'the message is invalid ({reason})') from error


def _array(data: bytes, at: int, dtype: Any, shape: Any) -> np.ndarray:
    plain = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    known = isinstance(dtype, str) and dtype in DTYPES
    if not known or not plain or any(type(n) is not int or n < 0 for n in shape):
        raise WireError(f'an array has the dtype {str(dtype)[:20]!r} and the shape {str(shape)[:40]}')
    item_type, size = np.dtype(dtype), math.prod(shape)
    if size * item_type.itemsize > len(data) - at:
        raise WireError(f'an array of the shape {str(shape)[:40]} is longer than the message')
    return np.frombuffer(data, item_type, size, at).reshape(shape)


def pid_of(message: Message) -> int:
    """Return the process id in a message, or 0 if there is none."""
    pid = message.header.get('pid')
    return pid if type(pid) is int else 0
