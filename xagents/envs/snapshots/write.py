"""Exact copies of environments' states as arrays and JSON: what is there is walked, and put back into what is there.

A copy is a table of nodes, one for each object that can change, and bytes that hold all arrays; objects that are shared
stay shared. Environments, wrappers and vectors get their attributes set; numbers, containers, arrays and generators are
made anew; what never changes (spaces, functions, types) stays that of the environment the copy is put into. Nothing is
imported, found or made by a name from a copy: a class is used only if the environment itself already does.
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
# Codes that hold nothing that can change, and so may be keys of a dict or items of a set.
IMMUTABLE = ('float', 'int', 'bytes', 'complex', 'number', 'enum', 'tuple', 'frozenset')
_LARGE = 1 << 1024
# What may own an array's memory: itself, or what nobody else can write to.
_OWNERS = (type(None), bytes, type(datetime.datetime_CAPI))  # type: ignore[attr-defined]


class Snapshot(NamedTuple):
    """A copy of a state.

    Attributes:
        arrays: 'bytes', uint8: the contents of all arrays.
        record: what JSON holds, and reads back equal.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]


class SnapshotError(Exception):
    """Something in a state can not be copied; the message says what."""


def take_snapshot(state: Any) -> Snapshot:
    """Copies a state of environments, and containers of them and of plain values, or raises `SnapshotError`."""
    try:
        return SnapshotWriter().snapshot(state)
    except RecursionError:
        raise SnapshotError('the environment holds something nested too deeply') from None
    except SnapshotError:
        raise
    except Exception as error:  # whatever somebody's objects raise when they are looked at
        raise SnapshotError(f'the environment holds what cannot be read ({type(error).__name__}: {error})') from error


EncodedValue = Any  # what JSON holds of one value: a plain value itself, anything else a list that begins with its tag


class SnapshotWriter:
    """Walks a state once.

    `nodes` has a list for each object that can change: its tag, and what it holds. `classes` are those met, by name,
    from which objects can be made again.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.classes: dict[str, type] = {}
        self._numbers: dict[int, int] = {}
        self._references: list[Any] = []  # so that no id is given to another object
        self._chunks: list[bytes] = []
        self._size = 0
        self._owner = 'the environment'
        self._part = ''  # the outermost object of a class of somebody's that is being walked
        self._foreign: dict[int, str] = {}
        self._simulated: set[int] = set()

    def snapshot(self, state: Any) -> Snapshot:
        """Walks a state and returns its copy."""
        code = self.encode(state)
        for array, owner in self._foreign.items():
            if array in self._simulated:
                raise SnapshotError(f"{owner} holds a view of a simulator's memory")
        arrays = {'bytes': np.frombuffer(b''.join(self._chunks), np.uint8)}
        return Snapshot(arrays, {'format': 1, 'state': code, 'nodes': self.nodes})

    def encode(self, value: Any) -> EncodedValue:
        """Returns what JSON holds of a value."""
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
        """Gives an object its number before its content is walked, which may lead back to it."""
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

    # values that can not change

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
        """Returns a set's items, if one made of them anew has them in the same order; strings never have one."""
        items = list(value)
        has_fixed_hashes = not any(isinstance(item, str | bytes) for item in items)
        if has_fixed_hashes and list(type(value)(items)) != items:
            raise SnapshotError(f'{self._owner} holds a set whose order can not be made again')
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
        """Keeps an array's content, and returns its type, shape, order, place and whether it can be written to."""
        axes = None if array.flags.c_contiguous else axes_of(array)
        chunk = (array if axes is None else array.transpose(axes)).tobytes()
        start = self._size
        self._chunks.append(chunk)
        self._size += len(chunk)
        return [array.dtype.str, list(array.shape), axes, start, array.flags.writeable]

    # random numbers

    def _bit_generator(self, value: Any) -> EncodedValue:
        seeds = value.seed_seq if isinstance(value.seed_seq, np.random.SeedSequence) else None
        name, state = type(value).__name__, value.state
        # those of the PCG family are numbers alone
        code = state if name.startswith('PCG64') else self.encode(state)
        return self._node(value, 'bits', lambda: [name, code, self.encode(seeds)])

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
        return self._node(
            value, 'function', lambda: [qualified_name(value), *[self.encode(c) for c in value.__closure__]]
        )

    def _cell(self, value: Any) -> EncodedValue:
        def content() -> list[Any]:
            try:
                return [self.encode(value.cell_contents)]
            except ValueError:
                return []  # still empty

        return self._node(value, 'cell', content)

    def _bound_method(self, value: Any) -> EncodedValue:
        """A method is its object's; what belongs to a module or a class is a constant."""
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
        return self._node(value, 'space', lambda: [qualified_name(value), *[self.encode(g) for g in generators]])

    def _environment(self, value: Any) -> EncodedValue:
        kind = type(value)
        if isinstance(value, AsyncVectorEnv):
            raise SnapshotError('worker processes keep their environments to themselves')
        if kind.__name__ == 'EnvPoolVectorEnv':
            raise SnapshotError('EnvPool keeps its environments to itself')
        if not is_plain_class(kind):
            return self._refuse(value)
        outer, self._owner, self._part = (self._owner, self._part), kind.__name__, ''
        code = self._node(value, 'env', lambda: [qualified_name(kind), self._attributes(value)])
        self._owner, self._part = outer
        return code

    def _object(self, value: Any) -> EncodedValue:
        kind = type(value)
        self.classes[qualified_name(kind)] = kind
        outer, self._part = self._part, self._part or kind.__name__
        code = self._node(value, 'object', lambda: [qualified_name(kind), self._attributes(value)])
        self._part = outer
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
    """Returns an array's axes, the one with the longest strides first: in this order its memory is read."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def is_immutable(code: EncodedValue) -> bool:
    """Whether what a code stands for can not change, all that it holds included."""
    if not isinstance(code, list):
        return True
    if code[0] in ('tuple', 'frozenset'):
        return all(is_immutable(item) for item in code[1:])
    return code[0] in IMMUTABLE


def subspaces(space: spaces.Space) -> Iterator[spaces.Space]:
    """Yields a space and the spaces it is made of, in a fixed order."""
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
    np.random.Generator: lambda writer, value: writer._node(
        value, 'generator', lambda: [writer.encode(value.bit_generator)]
    ),
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
    """Returns how values of a type are written."""
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
