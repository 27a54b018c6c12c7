"""Messages at random, from nearly right ones to noise."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from xagents.explorers.frames import Frame, Kind
from xagents.explorers.messages import FORMAT, pack, unpack
from xagents.version import __version__

# what stands in the place of something else; no size that is merely large: who may give orders may give long ones
WILD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 2**62, -(2**70), 1e308, float('nan'), float('inf'), '', 'x', '\ud800', '\x00'),
    *('../..', 'x' * 20_000, '\x1b[2J\n', [], {}, [[]], [None], [1] * 50, {'a': {'b': [1]}}, [[1, 2, 3, 4, 5, 6]]),
)
DTYPES = ('|O', '<f8', '<M8[s]', 'V8', 'f4,f4', '|S5', '<f2', '>f4', 'x', 7)
SHAPES = ([2**40, 2**40], [-1], [1.0], [2**31], [], [0] * 99, 'x', None, [2**62])
DEPTH = 100_000


def hello(pid: Any = 1) -> bytes:
    """What an explorer says first."""
    return pack('hello', {'format': FORMAT, 'xagents': __version__, 'pid': pid})


def message(rng: random.Random, honest: list[bytes]) -> bytes:
    """Return one of the honest messages, changed."""
    return rng.choice(CHANGES)(rng, rng.choice(honest))


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Change some bytes, most of them near the beginning, where the header is."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(min(len(changed), rng.choice((4, 200, len(changed)))))] = rng.randrange(256)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    """Leave the end out."""
    return data[: rng.randrange(len(data))]


def longer(rng: random.Random, data: bytes) -> bytes:
    """Append something."""
    return data + rng.randbytes(rng.choice((1, 100, 100_000)))


def rewritten(rng: random.Random, data: bytes) -> bytes:
    """Put something else in one place of the header."""
    kind, header, arrays = unpack(data)
    places = [*places_in(header)]
    if not places or rng.random() < 0.1:
        return pack(
            rng.choice(('hello', 'ready', 'fragment', 'error', 'spec', 'order', 'share', 'x', '')), header, arrays
        )
    holder, key = rng.choice(places)
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice(WILD)
    return pack(kind, header, arrays)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return where something stands in what JSON holds: the dict or list, and the key."""
    keys = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places_in(value[key]))]


def rearranged(rng: random.Random, data: bytes) -> bytes:
    """Change an array: its name, kind or shape; or take it away."""
    kind, header, held = unpack(data)
    arrays = dict(held)
    name = rng.choice([*arrays, 'x'])
    array = arrays.pop(name, np.zeros(3, np.float32))
    changes: list[Callable[[], Any]] = [
        lambda: {},
        lambda: {name + 'x': array},
        lambda: {name: array.astype(rng.choice((np.float64, np.int8, bool, np.complex128)))},
        lambda: {name: array[..., None]},
        lambda: {name: array.reshape(-1)[: array.size // 2]},
        lambda: {name: np.zeros((0,) * rng.randint(1, 8), array.dtype)},
        lambda: {name: np.zeros(rng.choice((1, 10, 100_000)), array.dtype)},
    ]
    return pack(kind, header, {**arrays, **rng.choice(changes)()})


def announced(rng: random.Random, data: bytes) -> bytes:
    """Announce what does not follow: a long header, or arrays that cannot be."""
    if rng.random() < 0.3:
        return struct.pack('<I', rng.choice((2**32 - 1, 2**31, 2**26, len(data)))) + data[4:]
    (length,) = struct.unpack_from('<I', data)
    header = json.loads(data[4 : 4 + length])
    header['arrays'] = [[rng.choice(('observations', 'a')), rng.choice(DTYPES), rng.choice(SHAPES)]]
    text = json.dumps(header).encode()
    return struct.pack('<I', len(text)) + text + data[4 + length :]


def deep(rng: random.Random, data: bytes) -> bytes:
    """Nest the header deeply."""
    depth = rng.choice((100, DEPTH))
    left, right = rng.choice(((b'[', b']'), (b'{"a":', b'}')))
    text = b'{"kind": "hello", "arrays": [], "pid": ' + left * depth + b'1' + right * depth + b'}'
    return struct.pack('<I', len(text)) + text


def noise(rng: random.Random, data: bytes = b'') -> bytes:
    """Return nothing but noise."""
    return rng.randbytes(rng.choice((0, 1, 4, 30, 1000, 100_000)))


# those that are still messages, and those that may be none
MEANT = (rewritten, rewritten, rewritten, rearranged)
CHANGES = (*MEANT, flipped, cut, longer, announced, deep, noise)


def framed(rng: random.Random, data: bytes, channel: int = 0) -> bytes:
    """Return a message as a frame, one time in four as a wrong one."""
    if rng.random() < 0.75:
        return Frame(channel, Kind.MESSAGE, data).packed()
    kind = rng.randrange(8)
    names = (b'../../etc/passwd', b'1-1', b'x' * 5000, b'\xff\xfe', b'', b'-', data[:100])
    held = rng.choice(names) if kind == Kind.FILE else data
    length = rng.choice((len(held), len(held) + 1, 2**32 - 1, 0))
    return struct.pack('<IBI', rng.choice((0, channel, 7, 2**32 - 1)), kind, length) + held
