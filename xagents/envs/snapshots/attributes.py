"""The state of an object: which classes store it in attributes only, and which attributes never change."""

from __future__ import annotations

import functools
import logging
import marshal
import pathlib
import re
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

# Attributes of environments that are fixed at construction, or used for rendering only.
_FIXED = {'spec', '_cached_spec', 'metadata', '_metadata', 'render_mode', 'env_fns', 'mujoco_renderer'}
_FIXED |= {'_saved_kwargs', '_ezpickle_args', '_ezpickle_kwargs', 'info_reader'}
# Tables of up to 12 000 numbers that are made with the environment. They are compared and not copied.
_WITH_TABLES = ('taxi.TaxiEnv', 'cliffwalking.CliffWalkingEnv', 'frozen_lake.FrozenLakeEnv')
_TABLES = {f'gymnasium.envs.toy_text.{name}': 'P' for name in _WITH_TABLES}
# Attributes for rendering only, by class.
_RENDERING = {'mpe2._mpe_utils.simple_env.SimpleEnv': {'screen', 'game_font', 'viewer'}}
# PettingZoo's base classes of environments, which do not derive from Gymnasium's.
_ENVIRONMENTS = {'pettingzoo.utils.env.AECEnv', 'pettingzoo.utils.env.ParallelEnv'}


class ConstantPart:
    """The base class of parts of an environment that a copy of its state does not contain."""


_CONSTANTS = (
    *(type, types.ModuleType, np.dtype, np.ufunc, EnvSpec, range, slice, type(...), property),
    *(pathlib.PurePath, logging.Logger, re.Pattern, types.GenericAlias, types.WrapperDescriptorType),
    *(types.MethodDescriptorType, functools._lru_cache_wrapper, ConstantPart),
)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, np.ufunc)

_HEAP_TYPE = 1 << 9
T = TypeVar('T')


def cache_by_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """Cache the results of a function of a class."""
    return cast(Callable[[type], T], functools.cache(function))


@dataclass(frozen=True, slots=True)
class AttributeLayout:
    """The places in which the objects of a class store their state.

    Attributes:
        slots: the descriptors of `__slots__`, by name.
        in_dict: whether objects have a `__dict__`.
        skipped: names of attributes that are neither copied nor restored.
        tables: the skipped attributes that must be equal in both environments.
    """

    slots: dict[str, types.MemberDescriptorType]
    in_dict: bool
    skipped: frozenset[str]
    tables: frozenset[str]


@cache_by_class
def attribute_layout(kind: type) -> AttributeLayout:
    """Return the attribute layout of a class."""
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    slots = {name: member for name, member in members.items() if isinstance(member, types.MemberDescriptorType)}
    names = [qualified_name(base) for base in kind.__mro__]
    fixed = frozenset(_FIXED if is_environment(kind) else ()).union(*(_RENDERING.get(name, ()) for name in names))
    tables = frozenset(_TABLES[name] for name in names if name in _TABLES)
    return AttributeLayout(slots, bool(kind.__dictoffset__), fixed | tables, tables)


def get_fields(value: Any) -> dict[str, Any]:
    """Return an object's attributes by name, including those in slots."""
    fields = attribute_layout(type(value))
    if not fields.slots:
        return vars(value)
    slots = {name: slot.__get__(value) for name, slot in fields.slots.items() if _is_filled(slot, value)}
    return {**slots, **(vars(value) if fields.in_dict else {})}


def set_fields(value: Any, attributes: dict[str, Any]) -> None:
    """Set exactly these attributes of an object without calling setters of its class; skipped attributes stay."""
    fields = attribute_layout(type(value))
    for name, slot in fields.slots.items():
        if name in attributes:
            slot.__set__(value, attributes[name])
        elif _is_filled(slot, value):
            slot.__delete__(value)
    if fields.in_dict:
        own = vars(value)
        for name in [n for n in own if n not in attributes and n not in fields.skipped]:
            del own[name]
        own.update({name: v for name, v in attributes.items() if name not in fields.slots})


def _is_filled(slot: types.MemberDescriptorType, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def checksum(table: Any) -> int:
    """Return a checksum of a table of plain values."""
    return zlib.crc32(marshal.dumps(table, 2))  # later versions than 2 also encode reference counts


@cache_by_class
def is_plain_class(kind: type) -> bool:
    """Return whether a class and all its bases are written in Python, so that attributes are the whole state.

    A class of an extension module has its own `__new__`, or neither `__dict__` nor `__slots__`.
    """
    for base in kind.__mro__[:-1]:
        if not base.__flags__ & _HEAP_TYPE or isinstance(vars(base).get('__new__'), types.BuiltinFunctionType):
            return False
        if not base.__dictoffset__ and '__slots__' not in vars(base):
            return False
    return kind is not object


@cache_by_class
def is_environment(kind: type) -> bool:
    """Return whether a class is one of Gymnasium or PettingZoo environments, or of vector environments."""
    return issubclass(kind, Env | VectorEnv) or any(qualified_name(base) in _ENVIRONMENTS for base in kind.__mro__)


def is_constant(kind: type) -> bool:
    """Return whether objects of a class never change."""
    return issubclass(kind, _CONSTANTS)


def qualified_name(value: Any) -> str:
    """Return the qualified name of a class, function or module, or of the class of any other object."""
    named = value if isinstance(value, _NAMED) else type(value)
    module = getattr(named, '__module__', None)
    name = str(getattr(named, '__qualname__', None) or getattr(named, '__name__', ''))
    return f'{module}.{name}' if module else name
