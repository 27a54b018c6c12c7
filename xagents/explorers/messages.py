"""What goes over the wire: a header, as JSON holds it, and arrays by name. Nothing in it is executed.

A message is the header's length (4 bytes, little-endian), the header with the names, dtypes and shapes of the arrays,
and their bytes, one after the other. Sizes are checked before memory is taken.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT = 2
# of a header, with the records of environments that a fragment brings; and how deep it may be nested
MAX_HEADER_BYTES = 64 * 2**20
# as NumPy writes them; no other text is given to it
DTYPES = frozenset(np.dtype(code).str for code in '?bBhHiIlLqQefd')
MAX_DIMENSIONS = 8


class WireError(ValueError):
    """What came over the wire is none of our messages; one line."""


class Message(NamedTuple):
    """A message.

    Attributes:
        message_type: what it is.
        header: the rest of what JSON holds.
        arrays: by name.
    """

    message_type: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(message_type: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Return a message as bytes."""
    held = {name: np.asarray(array) for name, array in (arrays or {}).items()}
    table = [[name, array.dtype.str, list(array.shape)] for name, array in held.items()]
    text = json.dumps({**header, 'kind': message_type, 'arrays': table}, separators=(',', ':')).encode()
    return b''.join([struct.pack('<I', len(text)), text, *(array.tobytes() for array in held.values())])


def unpack(data: bytes) -> Message:
    """Return a message; its arrays are views of the bytes.

    Raises:
        WireError: in one line, where it is none.
    """
    try:
        (length,) = struct.unpack_from('<I', data)
        if length > min(MAX_HEADER_BYTES, len(data) - 4):
            raise WireError(f'its header is to have {length} of {len(data)} bytes')
        header = json.loads(data[4 : 4 + length])
        message_type, table = header.pop('kind'), header.pop('arrays')
        arrays, at = {}, 4 + length
        for name, dtype, shape in table:
            if not isinstance(name, str) or name in arrays:
                raise WireError(f'an array has the name {str(name)[:20]!r}')
            array = _array(data, at, dtype, shape)
            arrays[name], at = array, at + array.nbytes
        if at != len(data) or not isinstance(message_type, str):
            raise WireError(f'it has {len(data)} bytes and tells of {at}')
        return Message(message_type, header, arrays)
    except WireError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise WireError(f'it is no message ({type(error).__name__}: {" ".join(str(error).split())[:100]})') from error


def _array(data: bytes, at: int, dtype: Any, shape: Any) -> np.ndarray:
    plain = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    known = isinstance(dtype, str) and dtype in DTYPES
    if not known or not plain or any(type(n) is not int or n < 0 for n in shape):
        raise WireError(f'it has an array of {str(dtype)[:20]!r} and {str(shape)[:40]}')
    item_type = np.dtype(dtype)
    size = math.prod(shape)
    if size * item_type.itemsize > len(data) - at:
        raise WireError(f'an array of the shape {str(shape)[:40]} is longer than the message')
    return np.frombuffer(data, item_type, size, at).reshape(shape)


def pid_of(message: Message) -> int:
    """Return the number of the process that a message tells of; 0 where it tells of none."""
    pid = message.header.get('pid')
    return pid if type(pid) is int else 0
