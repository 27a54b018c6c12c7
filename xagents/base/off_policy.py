"""Base classes of agents with a replay buffer, of rollouts or of transitions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from xagents.base.agent import BaseAgent
from xagents.base.sampled_batches import SamplesBatches, stacked_images
from xagents.checkpoints.protocols import BufferNeeds
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import ColumnSpecs, Rollout
from xagents.envs.interface import Envs
from xagents.options.agents import AgentOptions, OffPolicyOptions, ReplayOptions
from xagents.options.errors import OptionError
from xagents.pipeline.recipe import Recipe
from xagents.registry.traits import Traits
from xagents.replay.hindsight import EPISODE_COLUMNS, HindsightBuffer
from xagents.replay.ring import NO_COLUMNS
from xagents.replay.sequences import MEMORY, SequenceBuffer
from xagents.replay.transitions import ReplayBuffer
from xagents.runs import recipes


class WithReplay(BaseAgent):
    """Agents that store raw rollouts and learn from them several times.

    A subclass has a `buffer`, and `buffer_bytes()` returns the memory of the full buffer.
    """

    options: ReplayOptions
    traits = Traits(raw_rollouts=True)
    # allocates its memory with the first data
    buffer: Any

    def buffer_needs(self) -> BufferNeeds | None:
        """Return the needs of the replay buffer; None if it already contains data."""
        buffer = self.buffer
        if buffer.stored:
            return None
        max_size, use = self.options.buffer_max_size, self.traits.buffer_use
        return BufferNeeds(buffer.required_size, max_size, self.buffer_bytes(), use)

    def remember(self, batch: dict[str, Any]) -> None:
        """Add a raw rollout to the buffer."""
        self.buffer.add(batch)


class OffPolicy(WithReplay, SamplesBatches):
    """Agents that learn from a replay buffer with transitions of all their policies so far.

    Args:
        envs: as for every agent.
        buffers: a `ReplayBuffer`, or as in 1.0 a list of them, whose sizes are added; by default the options define it.
        options: options of the agent (`Options`) and `RunOptions`.
    """

    Options: ClassVar[type[AgentOptions]] = OffPolicyOptions
    options: OffPolicyOptions
    traits = WithReplay.traits.changed(buffer_use='learned')

    def __init__(self, envs: Any, *, buffers: ReplayBuffer | Sequence[ReplayBuffer] | None = None, **options: Any):
        given = _buffers(buffers, options)
        if given:
            options |= {f'buffer_{name}': sum(getattr(buffer, name) for buffer in given) for name in _SIZES}
        super().__init__(envs, **options)
        self._given_buffer = given[0] if len(given) == 1 else None

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the buffer can hold a transition of each environment, and that `her` has goals."""
        super().check_envs(envs, options)
        assert isinstance(options, OffPolicyOptions)
        if envs.n_envs > options.buffer_max_size:
            expected = f'expected at least {envs.n_envs}, one transition per environment'
            raise OptionError('buffer_max_size', f'got {options.buffer_max_size}, {expected}')
        if options.her:
            _ = envs.goals  # raises OptionError if there are none

    # the replay buffer

    @functools.cached_property
    def buffer(self) -> ReplayBuffer:
        """The replay buffer; it allocates its memory with the first transitions."""
        o = self.options
        if self._given_buffer is None:
            return self.make_buffer(o.buffer_max_size, o.buffer_initial_size)
        if self.memory_units and not isinstance(self._given_buffer, SequenceBuffer):
            got = type(self._given_buffer).__name__
            raise OptionError('buffers', f'got a {got} for a network with memory, expected a SequenceBuffer')
        return self._configure(self._given_buffer)

    def make_buffer(self, max_size: int, initial_size: int | None) -> ReplayBuffer:
        """Return an empty buffer for `max_size` transitions."""
        o, sizes = self.options, (max_size, initial_size, self.options.buffer_batch_size)
        if self.memory_units:
            return self._configure(self._sequence_buffer(*sizes))
        if not o.her:
            return self._configure(ReplayBuffer(*sizes))
        goals, strategy, ratio = self.envs.goals, o.her_strategy, o.her_ratio
        return self._configure(HindsightBuffer(*sizes, goals=goals, strategy=strategy, ratio=ratio))

    def _sequence_buffer(self, max_size: int, initial_size: int | None, batch_size: int) -> SequenceBuffer:
        """Return an empty buffer of sequences."""
        o: Any = self.options
        buffer = SequenceBuffer(max_size, initial_size, batch_size, length=o.sequence_length, burn_in=o.burn_in)
        if max_size // self.envs.n_envs < buffer.steps:
            least = buffer.steps * self.envs.n_envs
            expected = f'expected at least {least}, one sequence of {buffer.steps} steps for each environment'
            raise OptionError('buffer_max_size', f'got {max_size}, {expected}')
        return buffer

    @property
    def memory_units(self) -> int:
        """The length of the memory of one row; 0 without memory."""
        return getattr(self.actor, 'memory_units', 0)  # the policy may need the buffer

    @property
    def _extra_columns(self) -> ColumnSpecs:
        if self.memory_units:
            return {MEMORY: ((self.memory_units,), np.float32)}
        return EPISODE_COLUMNS if self.options.her else NO_COLUMNS

    def _configure(self, buffer: ReplayBuffer) -> ReplayBuffer:
        o = self.options
        buffer.byte_images = stacked_images(self.envs)
        buffer.configure(n_step=o.n_step, gamma=o.gamma, stack=self.envs.frame_stack, alpha=self.priority_alpha)
        return buffer

    def action_column(self) -> tuple[tuple[int, ...], Any]:
        """Return the shape and dtype of a policy action in one environment."""
        return super()._policy_columns()['actions']

    def _policy_columns(self) -> ColumnSpecs:
        return {'actions': self.action_column()}

    def buffer_bytes(self) -> int:
        """Return the memory that the full replay buffer takes."""
        return self.buffer_bytes_for(self.options.buffer_max_size)

    # collecting

    @property
    def n_steps(self) -> int:
        """T, the number of steps of each environment per iteration."""
        return self.options.fragment_steps or self._train_steps()

    def _train_steps(self) -> int:
        return math.ceil(self.options.train_frequency / self.envs.n_envs)

    def collect(self, schedule: Mapping[str, float]) -> Rollout:
        """Take `train_frequency` steps over all environments, or `fragment_steps` in each; see `Collector.collect`."""
        return self.collector.collect(self.n_steps, schedule)

    def collect_with(self, choose_actions: Callable[[np.ndarray], np.ndarray]) -> Rollout:
        """Collect with a function from prepared observations [N, *D] to policy actions [N, …] instead of the policy."""
        group, policy = self.collector.group, self.collector.policy
        group.policy = _FunctionPolicy(choose_actions, policy.columns)
        try:
            return self.collector.collect(self.n_steps)
        finally:
            group.policy = policy

    def remember(self, batch: dict[str, Any]) -> None:
        """Add a raw rollout to the buffer."""
        super().remember(batch)
        self._warm_up()

    def refresh(self) -> None:
        """Update the acting network to the current weights of the models."""
        super().refresh()
        self._warm_up()

    def _warm_up(self) -> None:
        self.acting_policy.warming_up = self.warming_up

    @property
    def warming_up(self) -> bool:
        """Whether actions are random: no update was made yet and the buffer has too few transitions."""
        return not (self.progress.context.updates or self.buffer.ready)

    @property
    def max_updates(self) -> int:
        """The largest number of updates of an iteration: K of every batch."""
        if self.dataset_name:
            each = self.options.gradient_steps
            return each if each > 0 else super().max_updates
        return self.updates_for(self.n_steps * self.envs.n_envs)

    def updates_for(self, steps: int) -> int:
        """Return the number of updates after an iteration of `steps` environment steps."""
        each = self.options.gradient_steps
        return steps if each < 0 else max(1, round(each * self.n_steps / self._train_steps()))

    def learning(self) -> Recipe:
        """Return the stages in the middle of a recipe: remember, replay, learn."""
        return recipes.REPLAYING


class _FunctionPolicy(Policy):
    """A policy that calls a function from observations to actions."""

    def __init__(self, choose_actions: Callable[[np.ndarray], np.ndarray], columns: Any):
        self._choose_actions, self.columns = choose_actions, columns

    def __call__(self, observations: np.ndarray, noise: Any, /, **others: Any) -> dict[str, np.ndarray]:
        """Return the function's actions."""
        return {'actions': self._choose_actions(observations)}


_SIZES = ('max_size', 'initial_size', 'batch_size')


def _buffers(buffers: Any, options: Mapping[str, Any]) -> list[ReplayBuffer]:
    """Return the given buffers as a list, after checking them against the options."""
    given = [] if buffers is None else list(buffers) if isinstance(buffers, list | tuple) else [buffers]
    for buffer in given:
        if not isinstance(buffer, ReplayBuffer):
            raise OptionError('buffers', f'got a {type(buffer).__name__}, expected a ReplayBuffer or a list of them')
    if len(given) > 1 and any(buffer.stored for buffer in given):
        raise OptionError('buffers', f'got {len(given)}, of which some are filled, expected one that is, or empty ones')
    twice = [name for name in (*(f'buffer_{name}' for name in _SIZES), 'learning_starts') if name in options]
    if given and twice:
        raise OptionError(twice[0], f'got {options[twice[0]]} with buffers, which have their own sizes')
    if given and options.get('her'):
        raise OptionError('her', 'got true with buffers, expected no buffers (or pass over a HindsightBuffer)')
    return given
