"""What agents share that learn from a replay buffer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from xagents.base.replaying import Replaying
from xagents.collecting.rollouts import Rollout, allocate, fill
from xagents.envs.create import Envs
from xagents.options.agents import AgentOptions, OffPolicyOptions, ReplayOptions
from xagents.options.errors import OptionError
from xagents.pipeline.recipe import Recipe
from xagents.replay.transitions import ReplayBuffer, memory_needed
from xagents.runs import stages

# what an update needs of each transition: columns [K, B, …] of what `replay` returns
TRANSITION = ('observations', 'actions', 'rewards', 'next_observations', 'discounts')


class OffPolicy(Replaying):
    """Agents that learn from a replay buffer, which all their policies so far have filled.

    Args:
        envs: as for every agent.
        buffers: a `ReplayBuffer` to fill and to draw from, or as in 1.0 a list of them, whose sizes are added up; made
            of the options when not given.
        options: those of the agent's `Options` and of `RunOptions`.
    """

    Options: ClassVar[type[AgentOptions]] = OffPolicyOptions
    options: OffPolicyOptions
    METRICS: ClassVar[tuple[str, ...]] = ('updates', 'stats/refused')
    REPLAYED: ClassVar[str] = 'learned'

    def __init__(self, envs: Any, *, buffers: ReplayBuffer | Sequence[ReplayBuffer] | None = None, **options: Any):
        given = _buffers(buffers, options)
        if given:
            options |= {f'buffer_{name}': sum(getattr(buffer, name) for buffer in given) for name in _SIZES}
        super().__init__(envs, **options)
        self._given_buffer = given[0] if len(given) == 1 else None
        self._experienced = False
        self._told: bool | None = None  # of a double: whether the buffer is ready

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the agent can learn in environments, before a network is built.

        Raises:
            OptionError: for actions that it does not know, or more environments than transitions in the buffer.
        """
        super().check_envs(envs, options)
        assert isinstance(options, ReplayOptions)
        if envs.n_envs > options.buffer_max_size:
            raise OptionError(
                'buffer_max_size',
                f'got {options.buffer_max_size}, admits at least one transition for each of {envs.n_envs} environments',
            )

    # the replay buffer

    @functools.cached_property
    def buffer(self) -> ReplayBuffer:
        """The replay buffer; it takes its memory when the first transitions come."""
        o = self.options
        buffer = self._given_buffer
        if buffer is None:
            buffer = ReplayBuffer(o.buffer_max_size, o.buffer_initial_size, o.buffer_batch_size)
        buffer.configure(n_step=o.n_step, gamma=o.gamma, stack=self.envs.frame_stack, alpha=self.priority_alpha)
        return buffer

    @property
    def warming_up(self) -> bool:
        """Whether the buffer of an agent that has not learned yet is being filled."""
        return not (self._experienced or (self.buffer.ready if self._told is None else self._told))

    def double(self) -> Self:
        """Return who collects in another thread, and is told whether the buffer is ready."""
        told = self.buffer.ready  # makes the buffer, too, which both have
        double = super().double()
        double._told = told
        return double

    def follow(self, learner: Self) -> None:
        """Let a double take over what acting needs to know of the one who learns, while it is idle."""
        super().follow(learner)
        self._told = learner.buffer.ready

    @property
    def priority_alpha(self) -> float | None:
        """How much priorities matter when transitions are drawn; None draws them uniformly."""
        return None

    def action_column(self) -> tuple[tuple[int, ...], Any]:
        """Return shape and dtype of a policy's action in one environment."""
        raise NotImplementedError

    def buffer_bytes(self) -> int:
        """Return the memory that the full replay buffer takes."""
        o, space = self.options, self.envs.observation_space
        prioritized = self.priority_alpha is not None
        return memory_needed(
            o.buffer_max_size, self.envs.n_envs, space, *self.action_column(), self.envs.frame_stack, prioritized
        )

    def load_record(self, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        """Take over the agent's parts and the counters; one that has learned fills its buffer by what it knows."""
        super().load_record(arrays, record)
        self._experienced = self.context.updates > 0

    # collecting, and drawing from the buffer

    @functools.cached_property
    def rollout(self) -> Rollout:
        """The arrays that the steps of one iteration are written into."""
        n_steps = math.ceil(self.options.train_frequency / self.envs.n_envs)
        return allocate(self.envs, n_steps, {'actions': self.action_column()})

    def explore(self, choose: Callable[[np.ndarray], np.ndarray]) -> Rollout:
        """Take `train_frequency` steps, over all environments.

        Args:
            choose: from prepared observations [N, *D] to policy actions [N, …].

        Returns:
            `observations` [T + 1, N, *D], `actions`, `rewards`, `terminated`, `truncated`, `valid` [T, N, …], all as
            the environments gave them: they are normalised when they are replayed. Overwritten by the next call.
        """
        rollout = self.rollout
        fill(self, rollout, ('actions',), lambda t, observations: {'actions': choose(self.prepare(observations))})
        self.observe_rewards(rollout)
        return self.raw(rollout)

    def updates_for(self, steps: int) -> int:
        """Return how many updates follow `steps` environment steps."""
        return steps if self.options.gradient_steps < 0 else self.options.gradient_steps

    def replay(self, n_updates: int, beta: float = 1.0) -> dict[str, Any]:
        """Draw the batches of `n_updates` updates.

        Args:
            n_updates: at most as many as `updates_for` gives.
            beta: how much importance weights correct for prioritized drawing.

        Returns:
            What `ReplayBuffer.sample` returns, [K, B, …] each, observations normalised; and the number `n_updates` of
            the rows that are to be learned from: K is the same in every call, so that nothing is compiled anew.
        """
        scaled = self.normalize_rewards is not None or self.options.reward_scale != 1.0
        batch: dict[str, Any] = self.buffer.sample(
            n_updates,
            self.rng('replay'),
            room=self.updates_for(self.rollout['valid'].size),
            beta=beta,
            scale=self.scale_rewards if scaled else None,
        )
        # the buffer's own arrays, which the next call overwrites, stay as they are
        batch = {**batch, 'n_updates': n_updates}
        if self.normalize_observations:
            for name in ('observations', 'next_observations'):
                batch[name] = self.prepare(batch[name])
        return batch

    def named(self, metrics: np.ndarray) -> dict[str, float]:
        """Return an update's metrics by name; where every update was refused, only that they were."""
        values = dict(zip(self.METRICS, metrics.tolist(), strict=True))
        return values if values['updates'] else {name: values[name] for name in ('updates', 'stats/refused')}

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail: remember, replay, learn."""
        return stages.replaying(self)


_SIZES = ('max_size', 'initial_size', 'batch_size')


def _buffers(buffers: Any, options: Mapping[str, Any]) -> list[ReplayBuffer]:
    """Return the buffers that were handed over.

    Raises:
        OptionError: where they are something else, or their sizes are given once more.
    """
    given = [] if buffers is None else list(buffers) if isinstance(buffers, list | tuple) else [buffers]
    for buffer in given:
        if not isinstance(buffer, ReplayBuffer):
            raise OptionError('buffers', f'got a {type(buffer).__name__}, admits a ReplayBuffer or a list of them')
    if len(given) > 1 and any(buffer.stored for buffer in given):
        raise OptionError('buffers', f'got {len(given)}, of which some are filled, admits one that is, or empty ones')
    twice = [name for name in (*(f'buffer_{name}' for name in _SIZES), 'learning_starts') if name in options]
    if given and twice:
        raise OptionError(twice[0], f'got {options[twice[0]]} beside buffers, which have sizes of their own')
    return given
