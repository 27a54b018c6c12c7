"""Who collects for an agent: itself or, in a thread of its own, a double that acts by weights of its own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

from xagents.envs.spaces import ActionDecoder

if TYPE_CHECKING:
    from xagents.envs.create import Envs
    from xagents.runs.overlap import InFlight, Overlap

STATISTICS = ('normalize_observations', 'normalize_rewards')
_OWN = {*STATISTICS, 'actor', 'decode', 'rollout', '_spare', '_origin', '_collector', '_told'}


class Collecting:
    """What collecting by a double needs of an agent.

    Attributes:
        overlapping: the run's overlap, while it is there.
        in_flight: an iteration that was collected and not learned from yet.
    """

    # why an agent may not learn from what an older policy has collected, for a message; empty where it may
    NO_OVERLAP: ClassVar[str] = ''

    envs: Envs
    actor: Any
    decode: ActionDecoder
    overlapping: Overlap | None
    in_flight: InFlight | None
    _collector: Self | None

    @property
    def collector(self) -> Self:
        """Who collects: the agent itself, or its double."""
        return self if self._collector is None else self._collector

    @collector.setter
    def collector(self, double: Self | None) -> None:
        self._collector = double

    def double(self) -> Self:
        """Return an agent that shares everything with this one but what collecting changes or overwrites."""
        double = copy.copy(self)
        if self.actor is not None:
            double.actor = self.actor.apart()
        double.decode = ActionDecoder(self.envs.action_space)
        for name in STATISTICS:
            setattr(double, name, copy.deepcopy(getattr(self, name)))
        double.__dict__.pop('rollout', None)
        double.__dict__['_spare'] = None
        double.__dict__['_origin'] = dict(vars(double))
        return double

    def follow(self, learner: Self) -> None:
        """Let a double take over what acting needs to know of the one who learns, while it is idle."""
        if self.actor is not None:
            self.actor.follow(learner.actor)
        # the last rollout is being learned from: the next one is written into the other's arrays
        own = self.__dict__
        own['rollout'], own['_spare'] = own['_spare'], own.get('rollout')
        if own['rollout'] is None:
            del own['rollout']

    def take_statistics(self, collector: Self) -> None:
        """Take over what is known of observations and rewards."""
        for name in STATISTICS:
            if getattr(self, name) is not None:
                getattr(self, name).load(getattr(collector, name).state())

    def join(self, double: Self) -> None:
        """Go on where a double has stopped: take over what collecting has changed."""
        self.take_statistics(double)
        origin = double.__dict__['_origin']
        for name, value in vars(double).items():
            if name not in _OWN and value is not origin.get(name):
                self.__dict__[name] = value
        self.collector = None
