"""Exact copies of environments' states as arrays and JSON, taken from live objects and restored into live objects.

A copy is a table of nodes, one for each mutable object, and the bytes of all arrays; shared objects stay shared. A
restore sets the attributes of environments, wrappers and vectors, and makes new numbers, containers, arrays and
generators. Immutable objects (spaces, functions, types) remain those of the environment. A copy cannot import or make
an object by name: a class is used only if the environment already uses it.
"""

from __future__ import annotations

import datetime
import functools
import math
import random
import struct
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from enum import Enum, Flag
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from xagents.envs.snapshots.attributes import (
    attribute_layout,
    cache_by_class,
    checksum,
    get_fields,
    is_constant,
    is_environment,
    is_plain_class,
    qualified_name,
)
from xagents.envs.snapshots.simulators import read_simulator, simulator_arrays, simulator_of

BIT_GENERATORS = ('MT19937', 'PCG64', 'PCG64DXSM', 'Philox', 'SFC64')
# The tags of immutable values, which may be keys of a dict or items of a set.
IMMUTABLE = ('float', 'int', 'bytes', 'complex', 'number', 'enum', 'tuple', 'frozenset')
_LARGE = 1 << 1024
# The permitted owners of an array's memory: the array itself, or an object that no other code can write to.
_OWNERS = (type(None), bytes, type(datetime.datetime_CAPI))  # type: ignore[attr-defined]


class Snapshot(NamedTuple):
    """A copy of a state.

    Attributes:
        arrays: 'bytes', uint8: the contents of all arrays.
        record: a dict that JSON preserves exactly.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]


class SnapshotError(Exception):
    """An object in a state that cannot be copied; the message names the object."""


def take_snapshot(state: Any) -> Snapshot:
    """Return a copy of environments, or of containers of environments and plain values.

    Raises:
        SnapshotError: if an object in the state cannot be copied.
    """
    try:
        return SnapshotWriter().snapshot(state)
    except RecursionError:
        raise SnapshotError('the environment holds objects nested too deeply') from None
    except SnapshotError:
        raise
    except Exception as error:  # a user's objects may raise any exception
        reason = f'{type(error).__name__}: {error}'
        raise SnapshotError(f'the environment holds an object that cannot be read ({reason})') from error


EncodedValue = Any  # one value in JSON: a plain value itself, any other value a list that starts with its tag


class SnapshotWriter:
    """A writer that traverses and encodes a state.

    Attributes:
        nodes: a list of tag and content for each mutable object.
        classes: the classes found, by qualified name; a reader makes objects of these classes only.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.classes: dict[str, type] = {}
        self._numbers: dict[int, int] = {}
        self._references: list[Any] = []  # keeps objects alive, so that no id is reused
        self._chunks: list[bytes] = []
        self._size = 0
        self._owner = 'the environment'
        self._part = ''  # the class name of the outermost user-defined object on the path
        self._foreign: dict[int, str] = {}
        self._simulated: set[int] = set()

    def snapshot(self, state: Any) -> Snapshot:
        """Return the copy of a state."""
        code = self.encode(state)
        for array, owner in self._foreign.items():
            if array in self._simulated:
                raise SnapshotError(f"{owner} holds a view of a simulator's memory")
        arrays = {'bytes': np.frombuffer(b''.join(self._chunks), np.uint8)}
        return Snapshot(arrays, {'format': 1, 'state': code, 'nodes': self.nodes})

    def encode(self, value: Any) -> EncodedValue:
        """Return the encoding of a value for JSON."""
        kind = type(value)
        if kind is str or kind is bool or value is None:
            return value
        if kind is int:
            return value if -_LARGE < value < _LARGE else ['int', hex(value)]
        if kind is float:
            return value if math.isfinite(value) else ['float', struct.pack('<d', value).hex()]
        number = self._numbers.get(id(value))
        if number is not None:
            return ['node', number]
        return _encoder_for(kind)(self, value)

    def _node(self, value: Any, tag: str, content: Callable[[], list[Any]]) -> EncodedValue:
        """Number an object before encoding its content, which may refer back to the object."""
        number = self._numbers[id(value)] = len(self.nodes)
        self._references.append(value)
        self.nodes.append(None)
        self.nodes[number] = [tag, *content()]
        return ['node', number]

    def _refuse(self, value: Any) -> EncodedValue:
        name = self._part or type(value).__name__
        raise SnapshotError(f'{self._owner} holds {"an" if name[:1] in "aeiouAEIO" else "a"} {name}')

    def _keys(self, values: Any) -> list[EncodedValue]:
        codes = [self.encode(value) for value in values]
        for code, value in zip(codes, values, strict=True):
            if not is_immutable(code):
                raise SnapshotError(f'{self._owner} holds a {type(value).__name__} as a key')
        return codes

    # immutable values

    def _number(self, value: np.generic) -> EncodedValue:
        if value.dtype.kind in 'OV':
            return self._refuse(value)
        return ['number', value.dtype.str, value.tobytes().hex()]

    def _enum(self, value: Enum) -> EncodedValue:
        kind = type(value)
        self.classes[qualified_name(kind)] = kind
        return ['enum', qualified_name(kind), int(value.value) if isinstance(value, Flag) else value.name]

    def _constant(self, value: Any) -> EncodedValue:
        if value is np.random or value is random:
            raise SnapshotError(f'{self._owner} holds the module {value.__name__}')
        return ['constant', qualified_name(value)]

    # containers

    def _dict(self, value: dict) -> EncodedValue:
        tag = type(value).__name__
        return self._node(value, tag, lambda: [self._keys(list(value)), [self.encode(v) for v in value.values()]])

    def _ordered(self, value: set | frozenset) -> list[EncodedValue]:
        """Return a set's items if a new set of them has the same order; strings have no reproducible order."""
        items = list(value)
        has_fixed_hashes = not any(isinstance(item, str | bytes) for item in items)
        if has_fixed_hashes and list(type(value)(items)) != items:
            raise SnapshotError(f'{self._owner} holds a set whose order cannot be reproduced')
        return self._keys(items)

    # arrays

    def _array(self, value: np.ndarray) -> EncodedValue:
        owner = value
        while type(owner.base) is np.ndarray:
            owner = owner.base
        if value.dtype.kind in 'OV' or not isinstance(owner.base, _OWNERS):
            return self._refuse(value)
        if owner.base is not None:
            self._foreign[id(owner)] = self._owner
        if owner is value:
            return self._node(value, 'array', lambda: self.store(value))
        if not owner.transpose(axes_of(owner)).flags.c_contiguous:
            return self._refuse(value)
        return self._node(value, 'view', lambda: self._view(value, owner))

    def _view(self, value: np.ndarray, owner: np.ndarray) -> list[Any]:
        offset = value.__array_interface__['data'][0] - owner.__array_interface__['data'][0]
        layout = [list(value.shape), list(value.strides), offset, value.flags.writeable]
        return [self.encode(owner), value.dtype.str, *layout]

    def store(self, array: np.ndarray) -> list[Any]:
        """Store an array's content, and return the array's dtype, shape, axis order, offset and writeable flag."""
        axes = None if array.flags.c_contiguous else axes_of(array)
        self._chunks.append(array.transpose(axes or range(array.ndim)).tobytes())
        start, self._size = self._size, self._size + array.nbytes
        return [array.dtype.str, list(array.shape), axes, start, array.flags.writeable]

    # random numbers

    def _bit_generator(self, value: Any) -> EncodedValue:
        seeds = value.seed_seq if isinstance(value.seed_seq, np.random.SeedSequence) else None
        name, state = type(value).__name__, value.state
        # states of the PCG family contain numbers only
        code = state if name.startswith('PCG64') else self.encode(state)
        return self._node(value, 'bits', lambda: [name, code, self.encode(seeds)])

    def _generator(self, value: np.random.Generator) -> EncodedValue:
        return self._node(value, 'generator', lambda: [self.encode(value.bit_generator)])

    def _seeds(self, value: np.random.SeedSequence) -> EncodedValue:
        rest = [list(value.spawn_key), value.pool_size, value.n_children_spawned]
        return self._node(value, 'seeds', lambda: [self.encode(value.entropy), *rest])

    def _random_state(self, value: np.random.RandomState) -> EncodedValue:
        if value is np.random.mtrand._rand:  # type: ignore[attr-defined]
            raise SnapshotError(f"{self._owner} holds NumPy's global random state")
        return self._node(value, 'random_state', lambda: [self.encode(value.get_state(legacy=False))])

    # functions

    def _function(self, value: Any) -> EncodedValue:
        if not value.__closure__:
            return self._constant(value)
        return self._node(value, 'function', lambda: [qualified_name(value), *map(self.encode, value.__closure__)])

    def _cell(self, value: Any) -> EncodedValue:
        def content() -> list[Any]:
            try:
                return [self.encode(value.cell_contents)]
            except ValueError:
                return []  # still empty

        return self._node(value, 'cell', content)

    def _bound_method(self, value: Any) -> EncodedValue:
        """Encode a method with its object; a function of a module or class is a constant."""
        if value.__self__ is None or isinstance(value.__self__, types.ModuleType | type):
            return self._constant(value)
        return ['method', qualified_name(value), self.encode(value.__self__)]

    def _partial(self, value: functools.partial) -> EncodedValue:
        codes = [self.encode(part) for part in (value.func, *value.args, *value.keywords.values())]
        if not all(is_immutable(code) or code[0] == 'constant' for code in codes):
            return self._refuse(value)
        return ['constant', qualified_name(value)]

    # objects

    def _space(self, value: spaces.Space) -> EncodedValue:
        generators = [space._np_random for space in subspaces(value)]
        if not any(generators):
            return self._constant(value)
        return self._node(value, 'space', lambda: [qualified_name(value), *map(self.encode, generators)])

    def _environment(self, value: Any) -> EncodedValue:
        kind = type(value)
        if isinstance(value, AsyncVectorEnv):
            raise SnapshotError('their state is in worker processes')
        if kind.__name__ == 'EnvPoolVectorEnv':
            raise SnapshotError('EnvPool does not expose their state')
        if not is_plain_class(kind):
            return self._refuse(value)
        return self._instance(value, 'env', kind.__name__, '')

    def _object(self, value: Any) -> EncodedValue:
        kind = type(value)
        self.classes[qualified_name(kind)] = kind
        return self._instance(value, 'object', self._owner, self._part or kind.__name__)

    def _instance(self, value: Any, tag: str, owner: str, part: str) -> EncodedValue:
        """Encode the class and the attributes of an object; errors within it name `owner` and `part`."""
        outer, self._owner, self._part = (self._owner, self._part), owner, part
        code = self._node(value, tag, lambda: [qualified_name(type(value)), self._attributes(value)])
        self._owner, self._part = outer
        return code

    def _attributes(self, value: Any) -> dict[str, EncodedValue]:
        fields = attribute_layout(type(value))
        codes = {name: self.encode(v) for name, v in get_fields(value).items() if name not in fields.skipped}
        codes.update({name: ['table', checksum(getattr(value, name))] for name in fields.tables})
        return codes

    def _simulator(self, value: Any) -> EncodedValue:
        self._simulated.update(id(array) for array in simulator_arrays(value))
        try:
            state, meaning = read_simulator(value)
        except ValueError as error:
            raise SnapshotError(f'{self._owner} holds {error}') from error
        return self._node(value, 'simulator', lambda: [qualified_name(value), self.store(state), self.encode(meaning)])


_SIMPLE = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete, spaces.Text)


def axes_of(array: np.ndarray) -> list[int]:
    """Return an array's axes by decreasing stride, the order of its memory."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def is_immutable(code: EncodedValue) -> bool:
    """Return whether an encoded value and its whole content are immutable."""
    if not isinstance(code, list):
        return True
    if code[0] in ('tuple', 'frozenset'):
        return all(is_immutable(item) for item in code[1:])
    return code[0] in IMMUTABLE


def subspaces(space: spaces.Space) -> Iterator[spaces.Space]:
    """Yield a space and all spaces within it, in a fixed order."""
    yield space
    if type(space) in _SIMPLE:
        return
    for value in vars(space).values():
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        for part in inner:
            if isinstance(part, spaces.Space):
                yield from subspaces(part)


_EXACT: dict[type, Callable[[SnapshotWriter, Any], EncodedValue]] = {
    bytes: lambda writer, value: ['bytes', value.hex()],
    complex: lambda writer, value: ['complex', struct.pack('<dd', value.real, value.imag).hex()],
    tuple: lambda writer, value: ['tuple', *map(writer.encode, value)],
    frozenset: lambda writer, value: ['frozenset', *writer._ordered(value)],
    list: lambda writer, value: writer._node(value, 'list', lambda: [*map(writer.encode, value)]),
    deque: lambda writer, value: writer._node(value, 'deque', lambda: [value.maxlen, *map(writer.encode, value)]),
    dict: SnapshotWriter._dict,
    OrderedDict: SnapshotWriter._dict,
    Counter: SnapshotWriter._dict,
    set: lambda writer, value: writer._node(value, 'set', lambda: writer._ordered(value)),
    bytearray: lambda writer, value: writer._node(value, 'bytearray', lambda: [value.hex()]),
    np.ndarray: SnapshotWriter._array,
    np.random.Generator: SnapshotWriter._generator,
    np.random.SeedSequence: SnapshotWriter._seeds,
    np.random.RandomState: SnapshotWriter._random_state,
    random.Random: lambda writer, value: writer._node(value, 'random', lambda: [writer.encode(value.getstate())]),
    types.FunctionType: SnapshotWriter._function,
    types.CellType: SnapshotWriter._cell,
    types.MethodType: SnapshotWriter._bound_method,
    types.BuiltinFunctionType: SnapshotWriter._bound_method,
    functools.partial: SnapshotWriter._partial,
    **{getattr(np.random, name): SnapshotWriter._bit_generator for name in BIT_GENERATORS},
}


@cache_by_class
def _encoder_for(kind: type) -> Callable[[SnapshotWriter, Any], EncodedValue]:
    """Return the encoder for values of a type."""
    if kind in _EXACT:
        return _EXACT[kind]
    if issubclass(kind, np.generic):
        return SnapshotWriter._number
    if issubclass(kind, spaces.Space):
        return SnapshotWriter._space
    if is_environment(kind):
        return SnapshotWriter._environment
    if issubclass(kind, Enum):
        return SnapshotWriter._enum
    if is_constant(kind):
        return SnapshotWriter._constant
    if simulator_of(kind):
        return SnapshotWriter._simulator
    return SnapshotWriter._object if is_plain_class(kind) else SnapshotWriter._refuse
