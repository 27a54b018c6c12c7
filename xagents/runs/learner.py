"""What a run needs of an agent: it knows one by this alone, and no class of agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.statistics import Statistics
from xagents.collecting.streams import Streams
from xagents.datasets.reading import Dataset
from xagents.envs.face import Envs
from xagents.options.agents import AgentOptions
from xagents.pipeline.schedules import Schedule
from xagents.runs.progress import Progress


@dataclass
class Origin:
    """What an agent was made of.

    Attributes:
        creation: the options of its environments and networks that were given, as JSON holds them; empty where both
            were handed over.
        networks: the text of each network's description.
        untold: those of `creation` of which JSON holds something else than was given, such as a function or a tuple.
    """

    creation: dict[str, Any] = field(default_factory=dict)
    networks: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)


def options_record(agent: Learner) -> dict[str, Any]:
    """Return every option of an agent as JSON holds it: what makes an equal one."""
    return {**agent.options.asdict(), **agent.origin.creation}


class Needs(NamedTuple):
    """What a replay buffer needs before it is of use.

    Attributes:
        transitions: to be stored before it is drawn from.
        capacity: transitions that it holds.
        memory: bytes that it takes when it is full.
        used: what is done with it then, in the past tense.
    """

    transitions: int
    capacity: int
    memory: int
    used: str


class Playing(Protocol):
    """Who plays: an agent, or a policy without one."""

    envs: Envs
    statistics: Statistics
    streams: Streams
    progress: Progress
    origin: Origin

    @property
    def id(self) -> str:
        """The agent's name on the command line."""

    @property
    def collector(self) -> Collector:
        """Who collects for it."""

    @property
    def acting(self) -> Policy:
        """The policy by its present weights."""

    def refresh(self) -> None:
        """Let acting use the models' present weights."""


class Learner(Playing, Protocol):
    """An agent, as its run sees it."""

    # why it may not learn from what an older policy has collected, for a message; empty where it may
    NO_OVERLAP: str
    model_names: ClassVar[tuple[str, ...]]
    output_models: list[Any]

    @property
    def options(self) -> AgentOptions:
        """The options of its mathematics."""

    def collect(self, **schedule: Any) -> dict[str, Any]:
        """Return a rollout as a batch; gets the values of the schedules that its signature names."""

    def learn(self, batch: Any, **schedule: Any) -> dict[str, float]:
        """Learn from a batch and return metrics; gets the values of the schedules that its signature names."""

    def schedules(self) -> dict[str, Schedule]:
        """Return what changes during a run."""

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own, by name: objects with `state()`, arrays by name, and `load(state)`."""

    def needs(self) -> Needs | None:
        """Return what its replay buffer needs, where it has one that is empty."""


def buffers_of(agent: Any) -> dict[str, Any]:
    """Return the replay buffers of an agent by the names of its policies; that of a single one has the name ''."""
    members = getattr(agent, 'members', {'': agent})
    return {name: member.buffer for name, member in members.items() if hasattr(member, 'buffer')}


def place_of(name: str) -> str:
    """Return what the replay buffer of a policy is called in checkpoints."""
    return f'{name}/replay' if name else 'replay'


class Drawer(Learner, Protocol):
    """An agent that learns from data sets."""

    # name of the data set that it learns from; empty where it learns from what it collects
    from_dataset: str
    # a replay buffer
    buffer: Any

    def bytes_of(self, size: int) -> int:
        """Return the memory that a buffer of as many transitions takes."""

    def learn_from(self, dataset: Dataset) -> int:
        """Let updates be drawn from a data set, and return its digest."""

    def fill_from(self, dataset: Dataset) -> None:
        """Let the empty replay buffer hold the newest of a data set."""

    def leave_dataset(self) -> None:
        """Learn from what is collected again."""
