"""What one agent has compiled, for agents of equal structure that are made later in the same process."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from xagents.networks.programs import CompiledFunction, Program
from xagents.networks.traced_options import is_traced_number

MAX_STRUCTURES = 4  # structures of which programs are kept


@dataclass
class AgentResources:
    """What belongs to an agent, in the order in which it was made: agents of equal structure have equal lists."""

    variables: list[tf.Variable] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    @property
    def shapes(self) -> list[tuple[Any, ...]]:
        """What a variable must have in common with the one in whose place it comes."""
        return [(tuple(v.shape), v.dtype) for v in self.variables]


@contextlib.contextmanager
def record_resources() -> Iterator[AgentResources]:
    """Note what variables and programs are made in the block."""
    made = AgentResources()

    def creator(following: Any, **options: Any) -> tf.Variable:
        made.variables.append(following(**options))
        return made.variables[-1]

    with tf.variable_creator_scope(creator), Program.record_programs(made.programs):
        yield made


class SharedPrograms:
    """Programs by the structure of the agents that have compiled them; those that were used last stay."""

    def __init__(self) -> None:
        self._stored: OrderedDict[Hashable, tuple[list[Any], list[list[CompiledFunction]]]] = OrderedDict()

    def reuse(self, structure: Hashable, made: AgentResources) -> None:
        """Let the programs of a new agent be those that an equal one has compiled, where there was one.

        None is the structure of an agent like no other.
        """
        shapes, kept = self._stored.get(structure, ([], []))
        if shapes == made.shapes and len(kept) == len(made.programs):
            for program, compiled in zip(made.programs, kept, strict=True):
                program.adopt(compiled, made.variables)

    def store(self, structure: Hashable, made: AgentResources) -> None:
        """Keep what the programs of an agent have compiled."""
        compiled = [program.compiled_functions(made.variables) for program in made.programs]
        if structure is None or not any(compiled):
            return
        self._stored[structure] = made.shapes, compiled
        self._stored.move_to_end(structure)
        while len(self._stored) > MAX_STRUCTURES:
            self._stored.popitem(last=False)


def structure_of(options: Mapping[str, Any]) -> Hashable:
    """Return what of options decides how programs are built: of numbers only whether they are 0.

    A number that decides a shape is seen in the shapes of variables and arguments.
    """
    return tuple((name, _structure(value)) for name, value in sorted(options.items()))


def _structure(value: Any) -> Hashable:
    # whole numbers that float32 cannot tell apart are built in
    return ('a number', value == 0) if is_traced_number(value) else repr(value)


_PROGRAMS = SharedPrograms()


@contextlib.contextmanager
def share_programs(make: Callable[[], Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Make an agent that runs what equal ones of this process have compiled, and let others run what it compiles.

    Equal are agents whose options have one structure; those of the environment and the network are given.
    """
    with record_resources() as made:
        agent = make()
    structure = None
    if type(agent).__module__.startswith('xagents.'):  # one from elsewhere may build any option into its programs
        structure = type(agent), structure_of({**options, **agent.options.asdict(), 'seed': 0})
    _PROGRAMS.reuse(structure, made)
    try:
        yield agent
    finally:
        _PROGRAMS.store(structure, made)
