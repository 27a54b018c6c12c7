"""Interfaces between a run and an agent, and between a run and the code that saves or evaluates it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.checkpoints.progress import Progress
from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.datasets.reading import Dataset
from xagents.envs.interface import Envs
from xagents.logs.console import Console
from xagents.options.agents import AgentOptions
from xagents.options.runs import RunOptions
from xagents.pipeline.schedules import Schedule


@dataclass
class AgentOrigin:
    """What an agent was made of.

    Attributes:
        creation: the options of its environments and networks that were given, as JSON holds them; empty where both
            were handed over.
        networks: the text of each network's description.
        unserialisable: those of `creation` of which JSON holds something else than was given, such as a function or a
            tuple.
    """

    creation: dict[str, Any] = field(default_factory=dict)
    networks: list[str] = field(default_factory=list)
    unserialisable: list[str] = field(default_factory=list)


def options_dict(agent: LearningAgent) -> dict[str, Any]:
    """Return every option of an agent as JSON holds it: what makes an equal one."""
    return {**agent.options.asdict(), **agent.origin.creation}


class BufferNeeds(NamedTuple):
    """What a replay buffer needs before it is of use.

    Attributes:
        min_transitions: to be stored before it is drawn from.
        capacity: transitions that it holds.
        n_bytes: bytes that it takes when it is full.
        verb: what is done with it then, in the past tense.
    """

    min_transitions: int
    capacity: int
    n_bytes: int
    verb: str


class ActingAgent(Protocol):
    """Who plays: an agent, or a policy without one."""

    envs: Envs
    statistics: Statistics
    streams: RandomStreams
    progress: Progress
    origin: AgentOrigin

    @property
    def id(self) -> str:
        """The agent's name on the command line."""

    @property
    def collector(self) -> Collector:
        """Who collects for it."""

    @property
    def acting_policy(self) -> Policy:
        """The policy by its present weights."""

    def refresh(self) -> None:
        """Let acting use the models' present weights."""


class LearningAgent(ActingAgent, Protocol):
    """An agent, as its run sees it."""

    # why it may not learn from what an older policy has collected, for a message; empty where it may
    NO_OVERLAP_REASON: str
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

    def buffer_needs(self) -> BufferNeeds | None:
        """Return what its replay buffer needs, where it has one that is empty."""


def replay_buffers(agent: Any) -> dict[str, Any]:
    """Return the replay buffers of an agent by the names of its policies; that of a single one has the name ''."""
    members = getattr(agent, 'members', {'': agent})
    return {name: member.buffer for name, member in members.items() if hasattr(member, 'buffer')}


def replay_key(name: str) -> str:
    """Return what the replay buffer of a policy is called in checkpoints."""
    return f'{name}/replay' if name else 'replay'


class DatasetAgent(LearningAgent, Protocol):
    """An agent that learns from data sets."""

    # name of the data set that it learns from; empty where it learns from what it collects
    dataset_name: str
    # a replay buffer
    buffer: Any

    def buffer_bytes_for(self, size: int) -> int:
        """Return the memory that a buffer of as many transitions takes."""

    def load_dataset(self, dataset: Dataset) -> int:
        """Let updates be drawn from a data set, and return its digest."""

    def fill_buffer(self, dataset: Dataset) -> None:
        """Let the empty replay buffer hold the newest of a data set."""

    def clear_dataset(self) -> None:
        """Learn from what is collected again."""


class RunProtocol(Protocol):
    """A run, as checkpoints and evaluations use it; `xagents.runs.run.Run` documents the attributes."""

    agent: LearningAgent
    progress: Progress
    options: RunOptions
    command: str
    console: Console
    writers: list[Any]
    resumed_at: int | None
    overlap: Any
    evaluations: Any

    @property
    def in_flight(self) -> InFlightIteration | None:
        """The iteration that is collected and not yet learned from; None if there is none or collecting it failed."""

    def all_options(self) -> dict[str, Any]:
        """Return every option of the run by name."""

    def evaluation_seed(self, steps: int) -> int:
        """Return the seed of the evaluation after `steps` environment steps."""
