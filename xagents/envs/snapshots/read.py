"""Restoring of snapshots: a snapshot is read and checked completely before any environment changes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import struct
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import Enum, Flag
from typing import Any

import numpy as np

from xagents.envs.snapshots.attributes import checksum, get_fields, qualified_name, set_fields
from xagents.envs.snapshots.simulators import write_simulator
from xagents.envs.snapshots.write import (
    BIT_GENERATORS,
    EncodedValue,
    Snapshot,
    SnapshotError,
    SnapshotWriter,
    axes_of,
    is_immutable,
    subspaces,
)

_DAMAGED = (TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, RecursionError, struct.error)


MISSING: Any = object()  # the present value if the environment has no counterpart


class MissingStateError(ValueError):
    """An object of a snapshot that the environment lacks and that cannot be made; a reset may create the object."""


def restore_snapshot(state: Any, snapshot: Snapshot) -> Any:
    """Restore a snapshot into a state of the same structure; environments change only if the whole snapshot fits.

    Args:
        state: a state like the argument of `take_snapshot`.
        snapshot: the copy.

    Returns:
        the restored state: the environments of `state`, and new objects otherwise.

    Raises:
        MissingStateError: if the environments (still) lack an object of the snapshot.
        ValueError: if the snapshot is damaged or of another state, in one line.
    """
    known = SnapshotWriter()
    with contextlib.suppress(SnapshotError):  # the classes found until then are known
        known.encode(state)
    try:
        reader = SnapshotReader(snapshot, known.classes)
        restored = reader.decode(snapshot.record['state'], state)
        for change in reader.changes:
            change()
    except _DAMAGED as error:
        raise ValueError(f'snapshot: the snapshot is damaged ({type(error).__name__}: {error})') from error
    return restored


class SnapshotReader:
    """A reader that decodes a snapshot and compares it with the present state.

    Attributes:
        changes: the assignments that restore the snapshot, as functions.
    """

    def __init__(self, snapshot: Snapshot, classes: dict[str, type]) -> None:
        if snapshot.record['format'] != 1:
            raise ValueError(f'snapshot: got the format {snapshot.record["format"]!r}, expected 1')
        self.changes: list[Callable[[], Any]] = []
        self._nodes = snapshot.record['nodes']
        self._bytes = np.ascontiguousarray(snapshot.arrays['bytes'], np.uint8)
        self._classes = classes
        self._decoded: dict[int, Any] = {}
        self._matched: dict[int, int] = {}  # the node of each object of the environment, by id

    def decode(self, code: EncodedValue, present: Any = MISSING) -> Any:
        """Return the value that `SnapshotWriter.encode` encoded; `present` is the environment's present value."""
        if not isinstance(code, list):
            return code
        tag, *content = code
        if tag != 'node':
            return _VALUE_DECODERS[tag](self, present, *content)
        (number,) = content
        if number not in self._decoded:
            tag, *content = self._nodes[number]
            if tag in _OBJECT_DECODERS:
                self._decoded[number] = _OBJECT_DECODERS[tag](self, *content)
            else:
                _NODE_DECODERS[tag](self, number, present, *content)
        return self._decoded[number]

    def _decode_all(self, codes: Sequence[EncodedValue], present: Any, kind: Any) -> list[Any]:
        counterparts = itertools.chain(present if type(present) is kind else (), itertools.repeat(MISSING))
        return [self.decode(code, other) for code, other in zip(codes, counterparts, strict=False)]

    # immutable values

    def _number(self, present: Any, dtype: str, text: str) -> Any:
        kind = _dtype(dtype)
        return np.frombuffer(bytes.fromhex(text), kind)[0] if kind.itemsize else np.zeros((), kind)[()]

    def _enum(self, present: Any, name: str, value: str | int) -> Enum:
        kind = self._class(name)
        if not issubclass(kind, Enum):
            raise ValueError(f'snapshot: got the class {name}, expected an Enum')
        return kind(value) if issubclass(kind, Flag) else kind[str(value)]

    def _constant(self, present: Any, name: str) -> Any:
        if present is MISSING or qualified_name(present) != name:
            raise _mismatch_error(name, present)
        return present

    def _table(self, present: Any, number: int) -> Any:
        if present is MISSING or checksum(present) != number:
            raise MissingStateError('snapshot: its table of transitions differs from the table of the environment')
        return present

    def _method(self, present: Any, name: str, owner: EncodedValue) -> Any:
        self._constant(present, name)
        own = self.decode(owner, present.__self__)
        if isinstance(present, types.MethodType):
            return types.MethodType(present.__func__, own)
        return getattr(own, present.__name__)

    # containers

    def _keys(self, codes: Sequence[EncodedValue]) -> list[Any]:
        if not all(is_immutable(code) for code in codes):
            raise ValueError('snapshot: the snapshot is damaged (a mutable key)')
        return [self.decode(code) for code in codes]

    def _sequence(self, number: int, present: Any, made: Any, codes: Sequence[EncodedValue]) -> None:
        self._decoded[number] = made
        made.extend(self._decode_all(codes, present, type(made)))

    def _dict(self, number: int, present: Any, keys: list[Any], codes: list[Any], kind: Any = dict) -> None:
        made = self._decoded[number] = kind()
        counterparts = present if type(present) is kind else {}
        for key, code in zip(self._keys(keys), codes, strict=True):
            made[key] = self.decode(code, counterparts.get(key, MISSING))

    # arrays

    def _stored(self, dtype: str, shape: list[int], axes: list[int] | None, start: int, writeable: bool) -> np.ndarray:
        kind, order = _dtype(dtype), list(range(len(shape))) if axes is None else axes
        end = start + kind.itemsize * int(np.prod(shape, dtype=object))
        if not 0 <= start <= end <= len(self._bytes) or min(shape, default=0) < 0:
            raise ValueError('snapshot: the snapshot is damaged (an array beyond its end)')
        array = np.empty([shape[axis] for axis in order], kind)
        if array.size and kind.itemsize:
            array[...] = np.ndarray(array.shape, kind, self._bytes[start:end])
        array = array if axes is None else array.transpose(np.argsort(order).tolist())
        array.flags.writeable = writeable
        return array

    def _view(self, owner: Any, dtype: str, shape: Any, strides: Any, offset: int, writeable: bool) -> np.ndarray:
        base = self.decode(owner)
        if base.size == 0 or base.itemsize == 0:
            made = np.empty(shape, _dtype(dtype))
        else:
            made = np.ndarray(shape, _dtype(dtype), base.transpose(axes_of(base)), offset, strides)
        if made.flags.writeable:
            made.flags.writeable = writeable
        return made

    # random numbers

    def _bits(self, name: str, state: EncodedValue, seeds: EncodedValue) -> Any:
        if name not in BIT_GENERATORS:
            expected = ', '.join(BIT_GENERATORS)
            raise ValueError(f'snapshot: got the random bit generator {name!r}, expected {expected}')
        made = getattr(np.random, name)(0 if seeds is None else self.decode(seeds))
        made.state = state if isinstance(state, dict) else self.decode(state)
        return made

    def _seeds(self, entropy: EncodedValue, key: list[int], pool: int, children: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.decode(entropy), spawn_key=key, pool_size=pool, n_children_spawned=children)

    def _random_state(self, code: EncodedValue) -> np.random.RandomState:
        state = self.decode(code)
        if state['bit_generator'] not in BIT_GENERATORS:
            raise ValueError(f'snapshot: got the random bit generator {state["bit_generator"]!r}')
        made = np.random.RandomState(getattr(np.random, state['bit_generator'])(0))
        made.set_state(state)
        return made

    def _random(self, state: EncodedValue) -> random.Random:
        made = random.Random()
        made.setstate(self.decode(state))
        return made

    # objects of the environment, which are not replaced

    def _match_present(self, number: int, present: Any, name: str) -> None:
        self._constant(present, name)
        if self._matched.setdefault(id(present), number) != number:
            raise MissingStateError(f'snapshot: it has two {name}, but the environment has one')
        self._decoded[number] = present

    def _function(self, number: int, present: Any, name: str, *cells: EncodedValue) -> None:
        self._match_present(number, present, name)
        own = present.__closure__ or ()
        if len(own) != len(cells):
            raise _mismatch_error(name, present)
        for cell, code in zip(own, cells, strict=True):
            self.decode(code, cell)

    def _cell(self, number: int, present: Any, *content: EncodedValue) -> None:
        self._match_present(number, present, 'builtins.cell')
        if content:
            counterparts = MISSING
            with contextlib.suppress(ValueError):  # an empty cell
                counterparts = present.cell_contents
            value = self.decode(content[0], counterparts)
            self.changes.append(functools.partial(setattr, present, 'cell_contents', value))

    def _space(self, number: int, present: Any, name: str, *generators: EncodedValue) -> None:
        self._constant(present, name)
        parts = list(subspaces(present))
        if len(parts) != len(generators):
            raise _mismatch_error(name, present)
        for part, code in zip(parts, generators, strict=True):
            self.changes.append(functools.partial(setattr, part, '_np_random', self.decode(code)))
        self._decoded[number] = present

    def _environment(self, number: int, present: Any, name: str, attributes: dict[str, EncodedValue]) -> None:
        self._match_present(number, present, name)
        self._fill(present, attributes, get_fields(present))

    def _object(self, number: int, present: Any, name: str, attributes: dict[str, EncodedValue]) -> None:
        kind = self._class(name)
        # a new object: the present object may be a default that belongs to the class
        made: Any = object.__new__(kind)
        self._decoded[number] = made
        self._fill(made, attributes, get_fields(present) if type(present) is kind else {})

    def _fill(self, target: Any, attributes: dict[str, EncodedValue], counterparts: dict[str, Any]) -> None:
        values = {name: self.decode(code, counterparts.get(name, MISSING)) for name, code in attributes.items()}
        self.changes.append(functools.partial(set_fields, target, values))

    def _simulator(self, number: int, present: Any, name: str, stored: list[Any], meaning: EncodedValue) -> None:
        self._match_present(number, present, name)
        self.changes.append(write_simulator(present, self._stored(*stored), self.decode(meaning)))

    def _class(self, name: str) -> type:
        if name not in self._classes:
            raise MissingStateError(f'snapshot: it contains a {name}, but the environment contains none')
        return self._classes[name]


def _mismatch_error(name: str, present: Any) -> MissingStateError:
    found = 'nothing' if present is MISSING else qualified_name(present)
    return MissingStateError(f'snapshot: it has {name}, but the environment has {found}')


def _dtype(name: str) -> np.dtype:
    """Return the dtype of an array, for plain numbers and strings only."""
    if not isinstance(name, str) or np.dtype(name).kind not in 'biufcSUMm':
        raise ValueError(f'snapshot: got the dtype {name!r}')
    return np.dtype(name)


# the decoders of immutable values; arguments: reader, present value, and the rest of the code
_VALUE_DECODERS: dict[str, Callable[..., Any]] = {
    'int': lambda reader, present, text: int(text, 16),
    'float': lambda reader, present, text: struct.unpack('<d', bytes.fromhex(text))[0],
    'complex': lambda reader, present, text: complex(*struct.unpack('<dd', bytes.fromhex(text))),
    'bytes': lambda reader, present, text: bytes.fromhex(text),
    'number': SnapshotReader._number,
    'tuple': lambda reader, present, *codes: tuple(reader._decode_all(codes, present, tuple)),
    'frozenset': lambda reader, present, *codes: frozenset(reader._keys(codes)),
    'enum': SnapshotReader._enum,
    'constant': SnapshotReader._constant,
    'table': SnapshotReader._table,
    'method': SnapshotReader._method,
}
# the decoders of objects that do not depend on the present value
_OBJECT_DECODERS: dict[str, Callable[..., Any]] = {
    'set': lambda reader, *codes: set(reader._keys(codes)),
    'bytearray': lambda reader, text: bytearray.fromhex(text),
    'array': SnapshotReader._stored,
    'view': SnapshotReader._view,
    'bits': SnapshotReader._bits,
    'generator': lambda reader, bits: np.random.Generator(reader.decode(bits)),
    'seeds': SnapshotReader._seeds,
    'random_state': SnapshotReader._random_state,
    'random': SnapshotReader._random,
}
# the decoders of all other objects; each adds its object to the table itself, because the content may refer to it
_NODE_DECODERS: dict[str, Callable[..., None]] = {
    'list': lambda reader, number, present, *codes: reader._sequence(number, present, [], codes),
    'deque': lambda reader, number, present, most, *codes: reader._sequence(number, present, deque(maxlen=most), codes),
    'dict': SnapshotReader._dict,
    'OrderedDict': functools.partial(SnapshotReader._dict, kind=OrderedDict),
    'Counter': functools.partial(SnapshotReader._dict, kind=Counter),
    'function': SnapshotReader._function,
    'cell': SnapshotReader._cell,
    'space': SnapshotReader._space,
    'env': SnapshotReader._environment,
    'object': SnapshotReader._object,
    'simulator': SnapshotReader._simulator,
}
