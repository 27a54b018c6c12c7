"""Assignments of environments to rollout workers, and the interfaces of links and launchers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from xagents.collecting.statistics import Statistics
from xagents.explorers.fragments import Fragment, MessagePart
from xagents.explorers.messages import pack


class ExplorerError(RuntimeError):
    """Explorers cannot do what is asked of them; one line."""


class Link(Protocol):
    """The connection to one explorer, whose process has the number `pid` where it is."""

    pid: Any

    @property
    def has_extra_workers(self) -> bool:
        """Whether its machine has more explorers now than it came with."""

    def send(self, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message after the shared `broadcast`; do nothing if the explorer has disconnected."""

    def disconnect(self) -> None:
        """End the connection."""

    def acknowledge(self) -> None:
        """Note that a message was handled, so that another one can be queued."""


class Event(NamedTuple):
    """What a link, or the process of an explorer, has to tell: a message, or None as its last word."""

    source: Any
    data: bytes | None


class Launcher(Protocol):
    """Who brings explorers."""

    # how explorers ended last, where that is known
    last_exit_reason: str

    def on_connect(self, link: Link) -> None:
        """Hear that an explorer has come."""

    def on_exit(self, source: Any) -> None:
        """Hear that something has had its last word; raises ExplorerError where it makes no sense to go on."""

    def terminate(self, link: Link | None) -> None:
        """End an explorer that is silent; without a link those that have not come."""

    def on_refusal(self, why: str) -> None:
        """Hear that an explorer cannot collect here, and was let go."""

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Hear, once a second, that `n` slots have no explorer, and who there is; 0 when all have one."""


class Broadcast:
    """The part of an order that is the same for all explorers.

    Args:
        header: of the message, with the `version` of the weights.
        arrays: of the message, with `weights`.
    """

    def __init__(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]):
        self.version: int = header['version']
        self._header, self._arrays = dict(header), dict(arrays)
        self._packed: dict[bool, bytes] = {}

    def message(self, version: int) -> bytes:
        """Return it as a message, for an explorer that has the weights of a version: the same object every time."""
        known = version == self.version
        if known not in self._packed:
            arrays = {name: array for name, array in self._arrays.items() if not known or name != 'weights'}
            self._packed[known] = pack('share', self._header, arrays)
        return self._packed[known]


class Assignment(NamedTuple):
    """An order that is under way.

    Attributes:
        number: its own.
        rollout_index: number of the rollout that was being filled when it was given.
        broadcast: what it has in common with others of that time.
        arrays: what is the slot's.
        statistics: through which observations are looked at.
    """

    number: int
    rollout_index: int
    broadcast: Broadcast
    arrays: dict[str, np.ndarray]
    statistics: Statistics


class ReceivedFragment(NamedTuple):
    """A fragment that has come.

    Attributes:
        shard: whose it is.
        assignment: that it answers.
        fragment: itself.
        sequence: how many the slot has brought before.
        envs_reset: whether its environments were lost, and began anew with it.
    """

    shard: EnvShard
    assignment: Assignment
    fragment: Fragment
    sequence: int
    envs_reset: bool


class EnvShard:
    """A range of environments.

    Attributes:
        index: among the slots.
        n_envs: how many environments it has.
        agents_per_env: how many of a rollout's columns are of one environment: its agents.
        range: their columns among all.
        link: to who collects for it; None while nobody does.
        ready: whether its explorer has made the environments.
        version: of the weights that its explorer has.
        in_sync: whether its explorer's environments stand where the slot's do.
        state_before: where they stood when the present order was given; None where that is not known.
        state_after: where they stood after the last fragment that was learned from; likewise.
        assignment: under way; None where nothing is.
        failures: how often the present order has failed.
        deaths: how often who did it was gone.
        last_seen: when its order was given.
        envs_reset: whether its environments began anew with the present order, because they were lost.
        n_fragments: fragments so far.
        noise_rollout: number of the rollout whose noise it has used.
    """

    def __init__(self, index: int, first: int, n_envs: int, agents_per_env: int = 1):
        self.index, self.n_envs, self.agents_per_env = index, n_envs, agents_per_env
        self.range = slice(first * agents_per_env, (first + n_envs) * agents_per_env)
        self.link: Link | None = None
        self.ready = self.in_sync = self.envs_reset = False
        self.version = -1
        self.state_before: MessagePart | None = None
        self.state_after: MessagePart | None = None
        self.assignment: Assignment | None = None
        self.failures = self.deaths = self.n_fragments = self.noise_rollout = 0
        self.last_seen = 0.0

    @property
    def columns(self) -> range:
        """Its columns of a rollout, one by one."""
        return range(self.range.start, self.range.stop)

    def clear_worker(self) -> None:
        """Have no explorer any more."""
        self.link, self.ready, self.in_sync, self.version = None, False, False, -1
