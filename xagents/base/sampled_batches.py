"""What agents share that learn from transitions drawn from a buffer: their own, or those of a data set."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from xagents.base.agent import BaseAgent
from xagents.base.batches import ReplaySamples
from xagents.datasets.reading import Batch, Dataset, batch_digest, encode_episode, episode_batches
from xagents.replay.ring import NO_COLUMNS, RingColumns
from xagents.replay.transitions import ReplayBuffer, ring_bytes_needed

# updates of an iteration that learns from a data set, where nothing else is said; with images, whose batches are large
DATASET_UPDATES, DATASET_UPDATES_OF_IMAGES = 50, 5


class DatasetPriorities:
    """The priorities of a data set's transitions, which stays where it is: what of its buffer a checkpoint keeps."""

    def __init__(self) -> None:
        self.buffer: ReplayBuffer | None = None
        self._loaded_state: Mapping[str, np.ndarray] = {}

    def state(self) -> dict[str, np.ndarray]:
        """Return the present priorities; nothing before there are some."""
        return {} if self.buffer is None else self.buffer.priorities()

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over a state, at once or when the data set is read."""
        self._loaded_state = state
        if self.buffer is not None:
            self.buffer.load_priorities(state)

    def attach(self, buffer: ReplayBuffer) -> None:
        """Be those of a buffer that was filled."""
        self.buffer = buffer
        if self._loaded_state:
            buffer.load_priorities(self._loaded_state)


class SamplesBatches(BaseAgent):
    """Agents whose update takes batches of transitions (`ReplaySamples`), wherever those were collected.

    Attributes:
        buffer: what is drawn from; it takes its memory when the first transitions come.
        dataset_name: name of the data set that it holds; empty where it holds what was collected.
    """

    METRICS: ClassVar[tuple[str, ...]] = ('updates', 'stats/refused')
    dataset_name: str = ''

    @property
    def priority_alpha(self) -> float | None:
        """How much priorities matter when transitions are drawn; None draws them uniformly."""
        return None

    def make_buffer(self, max_size: int, initial_size: int | None) -> ReplayBuffer:
        """Return an empty buffer for as many transitions, which are drawn as they are."""
        return ReplayBuffer(max_size, initial_size, self.buffer_batch_size, stack=self.envs.frame_stack)

    # a data set

    def buffer_bytes_for(self, size: int) -> int:
        """Return the memory that a buffer of as many transitions takes."""
        envs, prioritized = self.envs, self.priority_alpha is not None
        column, stack = self.collector.decode.action_spec, envs.frame_stack
        return ring_bytes_needed(
            size, envs.n_envs, envs.observation_space, *column, stack, prioritized, self._extra_columns
        )

    @property
    def _extra_columns(self) -> RingColumns:
        """What a buffer keeps of a transition besides."""
        return NO_COLUMNS

    def load_dataset(self, dataset: Dataset) -> int:
        """Let the buffer hold a whole data set, from which updates are drawn from now on.

        Returns:
            A digest of what was read, by which a data set that has changed is known.
        """
        rows = dataset.steps + dataset.episodes  # between two episodes one that only resets
        buffer = self.make_buffer(max(rows, self.buffer_batch_size), 0)
        total = self._fill(buffer, dataset, 0, 1)
        self.__dict__['buffer'], self.dataset_name = buffer, dataset.name
        if self.priority_alpha is not None:
            self._priorities.attach(buffer)
        return total

    @functools.cached_property
    def _priorities(self) -> DatasetPriorities:
        return DatasetPriorities()

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own: also priorities in a data set."""
        parts = super().parts()
        if self.priority_alpha is not None and (self.dataset_name or self.defaults.dataset is not None):
            parts['priorities'] = self._priorities
        return parts

    def clear_dataset(self) -> None:
        """Let the buffer be an empty one again, for what is collected."""
        del self.__dict__['buffer']
        self.dataset_name = ''

    def fill_buffer(self, dataset: Dataset) -> None:
        """Fill the empty buffer with the newest transitions of a data set, up to its capacity."""
        newest = dataset.first_recent_episode(self.buffer.max_size)
        self._fill(self.buffer, dataset, newest, self.envs.n_envs)

    def _fill(self, buffer: ReplayBuffer, dataset: Dataset, first: int, n_envs: int) -> int:
        """Add the episodes from the `first` on; statistics that know nothing yet learn from them."""
        encoder, decoder = self.envs.encoder, self.collector.decode
        episodes: Iterable[Batch] = (encode_episode(e, encoder, decoder) for e in dataset.from_episode(first))
        if self.statistics.is_empty:
            episodes = map(self._observe_episode, episodes)
        total = 0
        for batch in episode_batches(episodes, n_envs):
            total = batch_digest(batch, total)
            buffer.add(batch)
        return total

    def _observe_episode(self, episode: Batch) -> Batch:
        """Return an episode, from which the statistics have learned."""
        columns = {name: x[:, None] for name, x in episode.items()}
        self.statistics.observe_rewards(columns, slice(1))
        self.statistics.observe({'observations': np.append(columns['observations'], columns['observations'][-1:], 0)})
        return episode

    # drawing

    @property
    def max_updates(self) -> int:
        """How many updates an iteration makes at most: K of every batch."""
        return DATASET_UPDATES_OF_IMAGES if self.envs.is_image else DATASET_UPDATES

    def replay(self, n_updates: int, beta: float = 1.0) -> dict[str, Any]:
        """Draw the batches of `n_updates` updates.

        Args:
            n_updates: at most `max_updates`.
            beta: how much importance weights correct for prioritized drawing.

        Returns:
            What `ReplayBuffer.sample` returns, [K, B, …] each, observations normalised; and the number `n_updates` of
            the rows that are to be learned from: K is the same in every call, so that nothing is compiled anew.
        """
        statistics = self.statistics
        scaled = statistics.rewards is not None or statistics.reward_scale != 1.0
        batch: dict[str, Any] = self.buffer.sample(
            n_updates,
            self.rng('replay'),
            max_batches=self.max_updates,
            beta=beta,
            scale=statistics.scale_rewards if scaled else None,
        )
        # the buffer's own arrays, which the next call overwrites, stay as they are
        seen = {name: statistics.prepare(batch[name]) for name in ('observations', 'next_observations')}
        return {**batch, **seen, 'n_updates': n_updates}

    def replay_samples(self, batch: Mapping[str, Any], noise: Any = ()) -> ReplaySamples:
        """Return a drawn batch as an update takes it, with noise [K, B, A] where the update wants some."""
        weights = batch['weights'] if self.priority_alpha is not None else ()
        columns = (batch[name] for name in ReplaySamples._fields[:5])
        return ReplaySamples._make((*columns, weights, noise))

    def metrics_by_name(self, metrics: np.ndarray) -> dict[str, float]:
        """Return an update's metrics by name; where every update was refused, only that they were."""
        values = dict(zip(self.METRICS, metrics.tolist(), strict=True))
        return values if values['updates'] else {name: values[name] for name in ('updates', 'stats/refused')}
