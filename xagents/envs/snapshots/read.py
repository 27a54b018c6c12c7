"""Puts a snapshot back: everything is read and checked first, and only then the environments are changed."""

from __future__ import annotations

import contextlib
import functools
import random
import struct
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

import numpy as np

from xagents.envs.snapshots.attributes import checksum, get_fields, label, set_fields
from xagents.envs.snapshots.simulators import write_simulator
from xagents.envs.snapshots.write import (
    BIT_GENERATORS,
    Code,
    Snapshot,
    Uncopyable,
    Writer,
    axes_of,
    is_immutable,
    parts_of,
)

_DAMAGED = (TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, RecursionError, struct.error)


NOTHING: Any = object()  # stands where the environment has no counterpart


class AbsentError(ValueError):
    """The environment lacks something that the snapshot can not make; after a reset it may have it."""


def give(state: Any, snapshot: Snapshot) -> Any:
    """Puts a copy into a state like that which `take` was given; its environments are changed only if all fits.

    Returns:
        the state copied: the environments of `state`, everything else made anew.

    Raises:
        AbsentError: if the environments have not (yet) what the snapshot needs.
        ValueError: in one line, if it is that of something else, or damaged.
    """
    known = Writer()
    with contextlib.suppress(Uncopyable):  # what was met until then is known
        known.encode(state)
    try:
        reader = Reader(snapshot, known.classes)
        restored = reader.decode(snapshot.record['state'], state)
        for change in reader.changes:
            change()
    except _DAMAGED as error:
        raise ValueError(f'snapshot: it is damaged ({type(error).__name__}: {error})') from error
    return restored


class Reader:
    """Reads a snapshot beside the state that it is to be put into; `changes` is what remains to be done to that."""

    def __init__(self, snapshot: Snapshot, classes: dict[str, type]) -> None:
        if snapshot.record['format'] != 1:
            raise ValueError(f'snapshot: got the format {snapshot.record["format"]!r}, admitted is 1')
        self.changes: list[Callable[[], Any]] = []
        self._nodes = snapshot.record['nodes']
        self._bytes = np.ascontiguousarray(snapshot.arrays['bytes'], np.uint8)
        self._classes = classes
        self._made: dict[int, Any] = {}
        self._taken: dict[int, int] = {}  # node of each object of the environment's, by id

    def decode(self, code: Code, present: Any = NOTHING) -> Any:
        """Returns the value of a code of `Writer.encode`, at whose place `present` stands in the environment."""
        if not isinstance(code, list):
            return code
        tag, *content = code
        if tag != 'node':
            return _VALUES[tag](self, present, *content)
        (number,) = content
        if number not in self._made:
            tag, *content = self._nodes[number]
            if tag in _MADE:
                self._made[number] = _MADE[tag](self, *content)
            else:
                _NODES[tag](self, number, present, *content)
        return self._made[number]

    def _decode_all(self, codes: list[Code], present: Any, kind: Any) -> list[Any]:
        beside: list[Any] = [*present] if type(present) is kind else []
        beside += [NOTHING] * (len(codes) - len(beside))
        return [self.decode(code, other) for code, other in zip(codes, beside, strict=False)]

    # values that can not change

    def _number(self, present: Any, dtype: str, text: str) -> Any:
        kind = _dtype(dtype)
        return np.frombuffer(bytes.fromhex(text), kind)[0] if kind.itemsize else np.zeros((), kind)[()]

    def _enum(self, present: Any, name: str, value: str | int) -> Enum:
        kind = self._class(name)
        if not issubclass(kind, Enum):
            raise ValueError(f'snapshot: {name} is no Enum')
        return kind(value) if issubclass(kind, Flag) else kind[str(value)]

    def _constant(self, present: Any, name: str) -> Any:
        if present is NOTHING or label(present) != name:
            raise _differs(name, present)
        return present

    def _table(self, present: Any, number: int) -> Any:
        if present is NOTHING or checksum(present) != number:
            raise AbsentError('snapshot: its table of transitions is not that of the environment')
        return present

    def _method(self, present: Any, name: str, owner: Code) -> Any:
        self._constant(present, name)
        own = self.decode(owner, present.__self__)
        if isinstance(present, types.MethodType):
            return types.MethodType(present.__func__, own)
        return getattr(own, present.__name__)

    # containers

    def _keys(self, codes: list[Code]) -> list[Any]:
        if not all(is_immutable(code) for code in codes):
            raise ValueError('snapshot: it is damaged (a key that can change)')
        return [self.decode(code) for code in codes]

    def _sequence(self, number: int, present: Any, made: list[Any] | deque[Any], codes: tuple[Code, ...]) -> None:
        self._made[number] = made
        made.extend(self._decode_all(list(codes), present, type(made)))

    def _dict(self, number: int, present: Any, keys: list[Code], codes: list[Code], kind: Any = dict) -> None:
        made = self._made[number] = kind()
        beside = present if type(present) is kind else {}
        for key, code in zip(self._keys(keys), codes, strict=True):
            made[key] = self.decode(code, beside.get(key, NOTHING))

    # arrays

    def _stored(self, dtype: str, shape: list[int], axes: list[int] | None, start: int, writeable: bool) -> np.ndarray:
        kind = _dtype(dtype)
        order = list(range(len(shape))) if axes is None else axes
        end = start + kind.itemsize * int(np.prod(shape, dtype=object))
        if not 0 <= start <= end <= len(self._bytes) or min(shape, default=0) < 0:
            raise ValueError('snapshot: it is damaged (an array beyond its end)')
        array = np.empty([shape[axis] for axis in order], kind)
        if array.size and kind.itemsize:
            array[...] = np.ndarray(array.shape, kind, self._bytes[start:end])
        array = array.transpose(np.argsort(order).tolist()) if axes is not None else array
        array.flags.writeable = writeable
        return array

    def _view(self, owner: Code, dtype: str, shape: Any, strides: Any, offset: int, writeable: bool) -> np.ndarray:
        base = self.decode(owner)
        if base.size == 0 or base.itemsize == 0:
            made = np.empty(shape, _dtype(dtype))
        else:
            made = np.ndarray(shape, _dtype(dtype), base.transpose(axes_of(base)), offset, strides)
        if made.flags.writeable:
            made.flags.writeable = writeable
        return made

    # random numbers

    def _bits(self, name: str, state: Code, seeds: Code) -> Any:
        if name not in BIT_GENERATORS:
            admitted = ', '.join(BIT_GENERATORS)
            raise ValueError(f'snapshot: got the random bit generator {name!r}, admitted are {admitted}')
        made = getattr(np.random, name)(0 if seeds is None else self.decode(seeds))
        made.state = state if isinstance(state, dict) else self.decode(state)
        return made

    def _seeds(self, entropy: Code, key: list[int], pool: int, children: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.decode(entropy), spawn_key=key, pool_size=pool, n_children_spawned=children)

    def _random_state(self, code: Code) -> np.random.RandomState:
        state = self.decode(code)
        if state['bit_generator'] not in BIT_GENERATORS:
            raise ValueError(f'snapshot: got the random bit generator {state["bit_generator"]!r}')
        made = np.random.RandomState(getattr(np.random, state['bit_generator'])(0))
        made.set_state(state)
        return made

    def _random(self, state: Code) -> random.Random:
        made = random.Random()
        made.setstate(self.decode(state))
        return made

    # what the environment has, and keeps

    def _keep(self, number: int, present: Any, name: str) -> None:
        self._constant(present, name)
        if self._taken.setdefault(id(present), number) != number:
            raise AbsentError(f'snapshot: it has two {name} where the environment has one')
        self._made[number] = present

    def _function(self, number: int, present: Any, name: str, *cells: Code) -> None:
        self._keep(number, present, name)
        own = present.__closure__ or ()
        if len(own) != len(cells):
            raise _differs(name, present)
        for cell, code in zip(own, cells, strict=True):
            self.decode(code, cell)

    def _cell(self, number: int, present: Any, *content: Code) -> None:
        self._keep(number, present, 'builtins.cell')
        if content:
            beside = NOTHING
            with contextlib.suppress(ValueError):  # an empty one
                beside = present.cell_contents
            value = self.decode(content[0], beside)
            self.changes.append(functools.partial(setattr, present, 'cell_contents', value))

    def _space(self, number: int, present: Any, name: str, *generators: Code) -> None:
        self._constant(present, name)
        parts = list(parts_of(present))
        if len(parts) != len(generators):
            raise _differs(name, present)
        for part, code in zip(parts, generators, strict=True):
            self.changes.append(functools.partial(setattr, part, '_np_random', self.decode(code)))
        self._made[number] = present

    def _environment(self, number: int, present: Any, name: str, attributes: dict[str, Code]) -> None:
        self._keep(number, present, name)
        self._fill(present, attributes, get_fields(present))

    def _object(self, number: int, present: Any, name: str, attributes: dict[str, Code]) -> None:
        kind = self._class(name)
        # a new one: what stands there may be a default that belongs to the class
        made: Any = object.__new__(kind)
        self._made[number] = made
        self._fill(made, attributes, get_fields(present) if type(present) is kind else {})

    def _fill(self, target: Any, attributes: dict[str, Code], beside: dict[str, Any]) -> None:
        values = {name: self.decode(code, beside.get(name, NOTHING)) for name, code in attributes.items()}
        self.changes.append(functools.partial(set_fields, target, values))

    def _simulator(self, number: int, present: Any, name: str, stored: list[Any], meaning: Code) -> None:
        self._keep(number, present, name)
        self.changes.append(write_simulator(present, self._stored(*stored), self.decode(meaning)))

    def _class(self, name: str) -> type:
        if name not in self._classes:
            raise AbsentError(f'snapshot: it holds a {name}, which the environment does not')
        return self._classes[name]


def _differs(name: str, present: Any) -> AbsentError:
    there = 'nothing' if present is NOTHING else label(present)
    return AbsentError(f'snapshot: it has {name} where the environment has {there}')


def _dtype(name: str) -> np.dtype:
    """Returns the type of an array; only of plain numbers and texts."""
    if not isinstance(name, str) or np.dtype(name).kind not in 'biufcSUMm':
        raise ValueError(f'snapshot: got the dtype {name!r}')
    return np.dtype(name)


# what makes a value that can not change, of what stands at its place and the rest of its code
_VALUES: dict[str, Callable[..., Any]] = {
    'int': lambda reader, present, text: int(text, 16),
    'float': lambda reader, present, text: struct.unpack('<d', bytes.fromhex(text))[0],
    'complex': lambda reader, present, text: complex(*struct.unpack('<dd', bytes.fromhex(text))),
    'bytes': lambda reader, present, text: bytes.fromhex(text),
    'number': Reader._number,
    'tuple': lambda reader, present, *codes: tuple(reader._decode_all(list(codes), present, tuple)),
    'frozenset': lambda reader, present, *codes: frozenset(reader._keys(list(codes))),
    'enum': Reader._enum,
    'constant': Reader._constant,
    'table': Reader._table,
    'method': Reader._method,
}
# what makes an object without looking at what stands at its place
_MADE: dict[str, Callable[..., Any]] = {
    'set': lambda reader, *codes: set(reader._keys(list(codes))),
    'bytearray': lambda reader, text: bytearray.fromhex(text),
    'array': Reader._stored,
    'view': Reader._view,
    'bits': Reader._bits,
    'generator': lambda reader, bits: np.random.Generator(reader.decode(bits)),
    'seeds': Reader._seeds,
    'random_state': Reader._random_state,
    'random': Reader._random,
}
# what puts any other one into the table of objects, because its content may lead back to it
_NODES: dict[str, Callable[..., None]] = {
    'list': lambda reader, number, present, *codes: reader._sequence(number, present, [], codes),
    'deque': lambda reader, number, present, most, *codes: reader._sequence(number, present, deque(maxlen=most), codes),
    'dict': Reader._dict,
    'OrderedDict': functools.partial(Reader._dict, kind=OrderedDict),
    'Counter': functools.partial(Reader._dict, kind=Counter),
    'function': Reader._function,
    'cell': Reader._cell,
    'space': Reader._space,
    'env': Reader._environment,
    'object': Reader._object,
    'simulator': Reader._simulator,
}
