"""A cache of compiled programs, shared by agents of equal structure in one process."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from xagents.networks.programs import CompiledFunction, Program
from xagents.networks.traced_options import is_traced_number

MAX_STRUCTURES = 4  # number of structures in the cache


@dataclass
class AgentResources:
    """Variables and programs of an agent in the order of creation; agents of equal structure have equal lists."""

    variables: list[tf.Variable] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    @property
    def shapes(self) -> list[tuple[Any, ...]]:
        """Shape and dtype of each variable; a program can use only variables with equal ones."""
        return [(tuple(v.shape), v.dtype) for v in self.variables]


@contextlib.contextmanager
def record_resources() -> Iterator[AgentResources]:
    """Record the variables and the programs that the block creates."""
    made = AgentResources()

    def creator(following: Any, **options: Any) -> tf.Variable:
        made.variables.append(following(**options))
        return made.variables[-1]

    with tf.variable_creator_scope(creator), Program.record_programs(made.programs):
        yield made


class SharedPrograms:
    """Compiled programs by structure of their agents; the least recently stored structure is dropped."""

    def __init__(self) -> None:
        self._stored: OrderedDict[Hashable, tuple[list[Any], list[list[CompiledFunction]]]] = OrderedDict()

    def reuse(self, structure: Hashable, made: AgentResources) -> None:
        """Reuse the compiled programs of an earlier agent of equal structure, if any, for a new agent.

        An agent with the structure None shares no programs.
        """
        shapes, kept = self._stored.get(structure, ([], []))
        if shapes == made.shapes and len(kept) == len(made.programs):
            for program, compiled in zip(made.programs, kept, strict=True):
                program.adopt(compiled, made.variables)

    def store(self, structure: Hashable, made: AgentResources) -> None:
        """Store the compiled programs of an agent."""
        compiled = [program.compiled_functions(made.variables) for program in made.programs]
        if structure is None or not any(compiled):
            return
        self._stored[structure] = made.shapes, compiled
        self._stored.move_to_end(structure)
        while len(self._stored) > MAX_STRUCTURES:
            self._stored.popitem(last=False)


def structure_of(options: Mapping[str, Any]) -> Hashable:
    """Return the part of the options that determines how programs are built.

    Of a number, only whether it is 0 belongs to this part. If a number determines a shape, the shapes of variables and
    arguments differ.
    """
    return tuple((name, _structure(value)) for name, value in sorted(options.items()))


def _structure(value: Any) -> Hashable:
    # large whole numbers, which float32 cannot represent exactly, are constants of the program
    return ('a number', value == 0) if is_traced_number(value) else repr(value)


_PROGRAMS = SharedPrograms()


@contextlib.contextmanager
def share_programs(make: Callable[[], Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Create an agent that shares compiled programs with equal agents of this process.

    Agents are equal if their classes are equal and their options have equal structures.

    Args:
        make: function that returns the agent.
        options: options of the environment and of the network.
    """
    with record_resources() as made:
        agent = make()
    structure = None
    if type(agent).__module__.startswith('xagents.'):  # programs of other agents may contain any option as a constant
        constants = tuple(getattr(agent.options, name) for name in agent.options.constants)
        structure = type(agent), constants, structure_of({**options, **agent.options.asdict(), 'seed': 0})
    _PROGRAMS.reuse(structure, made)
    try:
        yield agent
    finally:
        _PROGRAMS.store(structure, made)
