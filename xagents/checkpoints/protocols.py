"""Interfaces between a run and an agent, and between a run and the code that saves or evaluates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.checkpoints.progress import Progress
from xagents.collecting.collector import Collector
from xagents.collecting.opponents import OpponentPool
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.datasets.reading import Dataset
from xagents.envs.interface import Envs
from xagents.logs.console import Console
from xagents.options.agents import AgentOptions
from xagents.options.runs import RunOptions
from xagents.pipeline.schedules import Schedule
from xagents.registry.traits import Traits


@dataclass
class AgentOrigin:
    """The settings that an agent was made with.

    Attributes:
        creation: options of environments and networks that were set, as JSON values; empty if both were passed as
            objects.
        networks: text of each network's description.
    """

    creation: dict[str, Any] = field(default_factory=dict)
    networks: list[str] = field(default_factory=list)


def options_dict(agent: LearningAgent) -> dict[str, Any]:
    """Return every option of an agent as JSON values. An equal agent can be made from them."""
    return {**agent.options.asdict(), **agent.origin.creation}


class BufferNeeds(NamedTuple):
    """The transitions and the memory that a replay buffer needs.

    Attributes:
        min_transitions: number of stored transitions at which sampling starts.
        capacity: largest number of transitions.
        n_bytes: memory of the full buffer in bytes.
        verb: past participle for the console, such as 'learned'.
    """

    min_transitions: int
    capacity: int
    n_bytes: int
    verb: str


class ActingAgent(Protocol):
    """An agent, or a policy without one, that can act in environments."""

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
        """The collector that steps the environments."""

    @property
    def members(self) -> Mapping[str, ActingAgent]:
        """The agents of the policies, by name; a single policy has the name ''."""

    @property
    def acting_policy(self) -> Policy:
        """The policy with the present weights."""

    def refresh(self) -> None:
        """Copy the models' present weights to the acting policy."""


class LearningAgent(ActingAgent, Protocol):
    """The interface of an agent that a run trains."""

    traits: Traits
    output_models: list[Any]

    @property
    def options(self) -> AgentOptions:
        """The options of the algorithm."""

    @property
    def opponents(self) -> OpponentPool | None:
        """The players of the other seats, if the environments are games."""

    def collect(self, schedule: Mapping[str, float]) -> dict[str, Any]:
        """Return a rollout as a batch, given the values of the schedules by name."""

    def learn(self, batch: Any, schedule: Mapping[str, float]) -> dict[str, float]:
        """Learn from a batch and return metrics, given the values of the schedules and `steps`."""

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules by name."""

    def parts(self) -> dict[str, Any]:
        """Return by name the objects with a state. `state()` returns arrays by name, `load(state)` restores them."""

    def buffer_needs(self) -> BufferNeeds | None:
        """Return the needs of the replay buffer if it is empty; None otherwise, or without one."""


def replay_buffers(agent: Any) -> dict[str, Any]:
    """Return the replay buffers of an agent by the names of its policies. The name of a single policy is ''."""
    return {name: member.buffer for name, member in agent.members.items() if hasattr(member, 'buffer')}


def replay_key(name: str) -> str:
    """Return the name of a policy's replay buffer in checkpoints."""
    return f'{name}/replay' if name else 'replay'


class DatasetAgent(LearningAgent, Protocol):
    """An agent that learns from data sets."""

    # name of the data set that the agent learns from; empty if it learns from its own rollouts
    dataset_name: str
    # a replay buffer
    buffer: Any

    def buffer_bytes_for(self, size: int) -> int:
        """Return the memory in bytes of a buffer of `size` transitions."""

    def load_dataset(self, dataset: Dataset) -> int:
        """Sample later updates from a data set, and return its digest."""

    def fill_buffer(self, dataset: Dataset) -> None:
        """Fill the empty replay buffer with the newest transitions of a data set."""

    def clear_dataset(self) -> None:
        """Drop the data set, and learn from collected rollouts."""


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
