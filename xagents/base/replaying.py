"""What agents with a replay buffer share, be it of transitions or of rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from xagents.base.agent import BaseAgent
from xagents.collecting.rollouts import Rollout
from xagents.options.agents import ReplayOptions
from xagents.pipeline.recipe import Recipe
from xagents.runs import stages
from xagents.system.memory import check_memory, gigabytes

if TYPE_CHECKING:
    from xagents.replay.rollouts import RolloutBuffer
    from xagents.replay.transitions import ReplayBuffer


class Replaying(BaseAgent):
    """Agents that remember what they collect, raw, and learn from it again.

    A subclass has a `buffer` and says what it takes; `REPLAYED` is what a run misses that ends before it is ready.
    """

    options: ReplayOptions
    REPLAYED: ClassVar[str] = 'replayed'

    if TYPE_CHECKING:

        @property
        def buffer(self) -> ReplayBuffer | RolloutBuffer:
            """The replay buffer; it takes its memory when something comes."""

    def buffer_bytes(self) -> int:
        """Return the memory that the full replay buffer takes."""
        raise NotImplementedError

    def prepare_run(self, **run: Any) -> None:
        """Resolve and check the options of a run before anything is written, the memory for the replay too."""
        super().prepare_run(**run)
        if not self.buffer.stored:
            check_memory('buffer_max_size', self.options.buffer_max_size, self.buffer_bytes())

    def notices(self) -> list[str]:
        """Say what memory the replay buffer is going to take, and whether the run ends before it is used."""
        lines = super().notices()
        if self.buffer.stored:
            return lines
        size, needed, last = self.options.buffer_max_size, self.buffer.needed, self.run.max_steps
        lines.append(f'Replay buffer: {size} transitions, {gigabytes(self.buffer_bytes())} of memory when full')
        if last is not None and last - self.context.steps < needed:
            lines.append(
                f'Nothing will be {self.REPLAYED}: the buffer is filled by {needed} transitions first, and the run '
                f'ends at step {last} (see --learning-starts)'
            )
        return lines

    def raw(self, rollout: Rollout) -> Rollout:
        """Return a rollout as it is remembered: as the environments gave it, which the statistics have learned from.

        What is remembered is normalised when it is learned from. `restarted` [N] tells the buffer which environments
        were reset since the last one.
        """
        if self.normalize_observations:
            self.normalize_observations.update(rollout['observations'][:-1])
        batch = {**rollout, 'restarted': np.full(self.envs.n_envs, self.restarted)}
        self.restarted = False
        return batch


class Relearning(Replaying):
    """Agents that learn from what they have collected at once, and from stored rollouts as often as they draw them."""

    def draw_replays(self) -> int:
        """Return how many stored rollouts are learned from after the present one."""
        raise NotImplementedError

    def replay(self) -> Rollout:
        """Draw a stored rollout; the next call overwrites it."""
        raise NotImplementedError

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail: learn, remember, replay."""
        return stages.relearning(self)
