"""What a fleet keeps: slots, which are the work; and who does it: links to explorers, and a crew that brings them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from xagents.collecting.statistics import Statistics
from xagents.explorers.fragments import Fragment, Told
from xagents.explorers.messages import pack


class ExplorerError(RuntimeError):
    """Explorers cannot do what is asked of them; one line."""


class Link(Protocol):
    """The connection to one explorer, whose process has the number `pid` where it is."""

    pid: Any

    @property
    def extra(self) -> bool:
        """Whether its machine has more explorers now than it came with."""

    def send(self, message: bytes, share: bytes | None = None) -> None:
        """Send a message, after the `share` that others may get, too; nothing happens where the explorer is gone."""

    def cut(self) -> None:
        """End the connection."""

    def taken(self) -> None:
        """Hear that a message of it was dealt with: there is room for another one."""


class Event(NamedTuple):
    """What a link, or the process of an explorer, has to tell: a message, or None as its last word."""

    source: Any
    data: bytes | None


class Crew(Protocol):
    """Who brings explorers."""

    # how explorers ended last, where that is known
    last_words: str

    def joined(self, link: Link) -> None:
        """Hear that an explorer has come."""

    def ended(self, source: Any) -> None:
        """Hear that something has had its last word; raises ExplorerError where it makes no sense to go on."""

    def give_up(self, link: Link | None) -> None:
        """End an explorer that is silent; without a link those that have not come."""

    def refused(self, why: str) -> None:
        """Hear that an explorer cannot collect here, and was let go."""

    def lack(self, links: list[Link], n: int) -> None:
        """Hear, once a second, that `n` slots have no explorer, and who there is; 0 when all have one."""


class Share:
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


class Given(NamedTuple):
    """An order that is under way.

    Attributes:
        number: its own.
        fill: number of the rollout that was being filled when it was given.
        share: what it has in common with others of that time.
        arrays: what is the slot's.
        statistics: through which observations are looked at.
    """

    number: int
    fill: int
    share: Share
    arrays: dict[str, np.ndarray]
    statistics: Statistics


class Arrived(NamedTuple):
    """A fragment that has come.

    Attributes:
        slot: whose it is.
        order: that it answers.
        fragment: itself.
        sequence: how many the slot has brought before.
        anew: whether its environments were lost, and began anew with it.
    """

    slot: Slot
    order: Given
    fragment: Fragment
    sequence: int
    anew: bool


class Slot:
    """A range of environments.

    Attributes:
        index: among the slots.
        n_envs: how many environments it has.
        together: how many of a rollout's columns are of one environment: its agents.
        range: their columns among all.
        link: to who collects for it; None while nobody does.
        ready: whether its explorer has made the environments.
        version: of the weights that its explorer has.
        there: whether its explorer's environments stand where the slot's do.
        stand: where they stood when the present order was given; None where that is not known.
        kept: where they stood after the last fragment that was learned from; likewise.
        order: under way; None where nothing is.
        failures: how often the present order has failed.
        deaths: how often who did it was gone.
        since: when its order was given.
        anew: whether its environments began anew with the present order, because they were lost.
        brought: fragments so far.
        drawn: number of the rollout whose noise it has used.
    """

    def __init__(self, index: int, first: int, n_envs: int, together: int = 1):
        self.index, self.n_envs, self.together = index, n_envs, together
        self.range = slice(first * together, (first + n_envs) * together)
        self.link: Link | None = None
        self.ready = self.there = self.anew = False
        self.version = -1
        self.stand: Told | None = None
        self.kept: Told | None = None
        self.order: Given | None = None
        self.failures = self.deaths = self.brought = self.drawn = 0
        self.since = 0.0

    @property
    def columns(self) -> range:
        """Its columns of a rollout, one by one."""
        return range(self.range.start, self.range.stop)

    def leave(self) -> None:
        """Have no explorer any more."""
        self.link, self.ready, self.there, self.version = None, False, False, -1
