"""Assignments of environments to rollout workers, and the interfaces of links and launchers."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from xagents.collecting.env_stepper import CollectRequest
from xagents.collecting.opponents import OPPONENTS
from xagents.collecting.statistics import Statistics
from xagents.explorers.fragments import STATISTICS, Fragment, MessagePart
from xagents.explorers.messages import pack
from xagents.system.arrays import add_prefix


class ExplorerError(RuntimeError):
    """The explorers cannot continue to collect; the message is one line."""


class Link(Protocol):
    """The connection to one worker; `pid` is the process id of the worker on its machine."""

    pid: Any

    @property
    def has_extra_workers(self) -> bool:
        """Whether the machine of the worker runs more workers now than it connected with."""

    def send(self, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message after the shared `broadcast`; do nothing if the worker has disconnected."""

    def disconnect(self) -> None:
        """End the connection."""

    def acknowledge(self) -> None:
        """Mark a message as handled, so that the next one can be queued."""


class Event(NamedTuple):
    """A message from a link or from the process of a worker; `data` is None when `source` has ended."""

    source: Any
    data: bytes | None


EventQueue = queue.SimpleQueue[Event]


class Launcher:
    """A source of workers: it starts them or waits for them, and replaces workers that are lost.

    The methods of this base class do nothing.
    """

    # why the last worker ended; empty if that is unknown
    last_exit_reason = ''

    def on_connect(self, link: Link) -> None:
        """Handle a new connection of a worker."""

    def on_exit(self, source: Any) -> None:
        """Handle the end of a link or of a process.

        Raises:
            ExplorerError: If workers end so often that the run cannot continue.
        """

    def terminate(self, link: Link | None) -> None:
        """End a worker that does not respond; if `link` is None, end all workers that have not connected."""

    def on_refusal(self, why: str) -> None:
        """Handle the refusal of a worker that cannot collect for this learner."""

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Handle `n` shards without a worker, and the connected workers; called once a second, also with n = 0."""


class Broadcast:
    """The part of an assignment that is the same for all workers: weights, statistics and schedule values.

    Args:
        requests: the request of each policy for the present rollout, by the policy's name.
        n_steps: the number of steps of the rollout.

    Attributes:
        versions: the version of the weights of each policy, and that of the opponents in games.
    """

    def __init__(self, requests: Mapping[str, CollectRequest], n_steps: int):
        self.versions = tuple(request.policy.published_weights.version for request in requests.values())
        params = dict(next(iter(requests.values())).env_params)
        self._header: dict[str, Any] = {'n_steps': n_steps, 'env_params': params, 'policies': {}}
        self._weights: dict[str, np.ndarray] = {}
        self._statistics: dict[str, np.ndarray] = {}
        for (name, request), version in zip(requests.items(), self.versions, strict=True):
            about = {'version': version, 'warming_up': request.policy.warming_up}
            self._header['policies'][name] = {'schedule': dict(request.schedule), **about}
            self._weights |= add_prefix(name, {'weights': np.array(request.policy.published_weights.weights)})
            if request.statistics.observations:
                statistics = add_prefix(STATISTICS, request.statistics.observations.state())
                self._statistics |= add_prefix(name, statistics)
            if request.opponents is not None:
                self.versions = (*self.versions, request.opponents.version)
                self._weights |= add_prefix(OPPONENTS, request.opponents.state())
        self._packed: dict[bool, bytes] = {}

    def message(self, versions: tuple[int, ...]) -> bytes:
        """Return the message for a worker that has the weights of `versions`; equal messages are the same object.

        The message omits the weights if the worker already has them.
        """
        known = versions == self.versions
        if known not in self._packed:
            self._packed[known] = pack('share', self._header, {**({} if known else self._weights), **self._statistics})
        return self._packed[known]


class Assignment(NamedTuple):
    """A task for one shard: it determines the resulting fragment completely.

    Attributes:
        number: the number of the assignment, unique in a run.
        rollout_index: the number of the rollout that was being filled when the assignment was sent.
        broadcast: the part that assignments of the same time share.
        arrays: the arrays of the shard, such as noise [T, n, …] of a policy.
        statistics: the statistics that normalise the observations of each policy.
    """

    number: int
    rollout_index: int
    broadcast: Broadcast
    arrays: dict[str, np.ndarray]
    statistics: Mapping[str, Statistics]


class ReceivedFragment(NamedTuple):
    """A fragment that the learner has received.

    Attributes:
        shard: the shard of the fragment.
        assignment: the assignment that produced the fragment.
        fragment: the fragment.
        sequence: the number of earlier fragments of the shard.
        envs_reset: whether the environments were lost before the fragment, and were reset.
    """

    shard: EnvShard
    assignment: Assignment
    fragment: Fragment
    sequence: int
    envs_reset: bool


class EnvShard:
    """A fixed range of environments, which one worker at a time steps.

    Attributes:
        index: the index of the shard.
        n_envs: the number of environments n.
        envs: the environments of the shard, as a slice.
        columns: the columns of the shard in the rollout of each policy, as slices. An agent is one column.
        rows: the rows of the shard among those of all agents of all environments.
        link: the connection to the worker of the shard; None if the shard has no worker.
        ready: whether the worker has created the environments.
        versions: the versions of the weights that the worker has; empty if it has none.
        in_sync: whether the environments of the worker are in the state of the shard.
        state_before: the state of the environments at the start of the present assignment; None if it is unknown.
        state_after: the state after the last fragment that was learned from; None if it is unknown.
        assignment: the assignment in progress; None if there is none.
        failures: how often the present assignment has failed.
        deaths: how many workers were lost during the present assignment.
        last_seen: the time in seconds when the assignment was sent, or of the last sign of life.
        envs_reset: whether the environments were reset for the present assignment, because they were lost.
        n_fragments: the number of fragments so far.
        noise_rollout: the number of the rollout whose noise the shard has used.
    """

    def __init__(self, index: int, first: int, n_envs: int, agents: Mapping[str, int]):
        self.index, self.n_envs, self.envs = index, n_envs, slice(first, first + n_envs)
        last, per_env = first + n_envs, sum(agents.values())
        self.columns = {name: slice(first * m, last * m) for name, m in agents.items()}
        self.rows = range(first * per_env, last * per_env)
        self.link: Link | None = None
        self.ready = self.in_sync = self.envs_reset = False
        self.versions: tuple[int, ...] = ()
        self.state_before: MessagePart | None = None
        self.state_after: MessagePart | None = None
        self.assignment: Assignment | None = None
        self.failures = self.deaths = self.n_fragments = self.noise_rollout = 0
        self.last_seen = 0.0

    def clear_worker(self) -> None:
        """Remove the worker from the shard."""
        self.link, self.ready, self.in_sync, self.versions = None, False, False, ()
