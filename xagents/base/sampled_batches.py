"""The base class of agents that learn from sampled transitions: of a replay buffer or of a data set."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.base.agent import BaseAgent
from xagents.base.batches import ReplaySamples
from xagents.datasets.reading import Batch, Dataset, batch_digest, episode_batches
from xagents.envs.interface import Envs
from xagents.networks.optimisation.gradient_steps import COUNTS
from xagents.replay.frames import ByteImage
from xagents.replay.ring import NO_COLUMNS, RingColumns, ring_bytes_needed
from xagents.replay.transitions import ReplayBuffer

# default number of updates per iteration with a data set; fewer with images, because their batches are large
DATASET_UPDATES, DATASET_UPDATES_OF_IMAGES = 50, 5


def stacked_images(envs: Envs) -> list[ByteImage]:
    """Return the stacks of frames among the bytes of an observation; empty if observations are no bytes."""
    if envs.frame_stack == 1:
        return []
    found = []
    for image in envs.encoder.images:
        n_pixels = image.shape[0] * image.shape[1]
        found.append(ByteImage(image.start, n_pixels, image.n_bytes // (n_pixels * envs.frame_stack)))
    return found


class DatasetPriorities:
    """Priorities of a data set's transitions.

    Checkpoints store only the priorities, because the data set itself does not change.
    """

    def __init__(self) -> None:
        self.buffer: ReplayBuffer | None = None
        self._loaded_state: Mapping[str, np.ndarray] = {}

    def state(self) -> dict[str, np.ndarray]:
        """Return the current priorities; an empty dict before a buffer is attached."""
        return {} if self.buffer is None else self.buffer.priorities()

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state, at once or when a buffer is attached."""
        self._loaded_state = state
        if self.buffer is not None:
            self.buffer.load_priorities(state)

    def attach(self, buffer: ReplayBuffer) -> None:
        """Use the priorities of a filled buffer from now on."""
        self.buffer = buffer
        if self._loaded_state:
            buffer.load_priorities(self._loaded_state)


class SamplesBatches(BaseAgent):
    """Agents whose updates take batches of sampled transitions (`ReplaySamples`).

    Attributes:
        buffer: the buffer to sample from; it allocates its memory with the first transitions.
        dataset_name: name of the data set in the buffer; empty if the buffer contains collected transitions.
    """

    dataset_name: str = ''

    @property
    def priority_alpha(self) -> float | None:
        """The exponent of priorities in sampling; None samples uniformly."""
        return None

    def make_buffer(self, max_size: int, initial_size: int | None) -> ReplayBuffer:
        """Return an empty buffer for `max_size` transitions, which samples one-step transitions."""
        buffer = ReplayBuffer(max_size, initial_size, self.buffer_batch_size, stack=self.envs.frame_stack)
        buffer.byte_images = stacked_images(self.envs)
        return buffer

    # a data set

    def buffer_bytes_for(self, size: int) -> int:
        """Return the memory, in bytes, of a buffer of `size` transitions."""
        n_envs, space, stack = self.envs.n_envs, self.envs.observation_space, self.envs.frame_stack
        action, prioritized = self.collector.group.decode.action_spec, self.priority_alpha is not None
        images = stacked_images(self.envs)
        return ring_bytes_needed(size, n_envs, space, action, stack, prioritized, self._extra_columns, images)

    @property
    def _extra_columns(self) -> RingColumns:
        """Further columns of the buffer."""
        return NO_COLUMNS

    def load_dataset(self, dataset: Dataset) -> int:
        """Fill a new buffer with a whole data set; later updates sample from that buffer.

        Returns:
            A digest of the data, which changes if the data set changes.
        """
        rows = dataset.steps + dataset.episodes  # a row that only resets is between two episodes
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
        """Return the parts whose state belongs in checkpoints: also the priorities of a data set."""
        parts = super().parts()
        if self.priority_alpha is not None and (self.dataset_name or self.defaults.dataset is not None):
            parts['priorities'] = self._priorities
        return parts

    def clear_dataset(self) -> None:
        """Replace the buffer by an empty one for collected transitions."""
        del self.__dict__['buffer']
        self.dataset_name = ''

    def fill_buffer(self, dataset: Dataset) -> None:
        """Fill the empty buffer with the newest transitions of a data set, up to its capacity."""
        newest = dataset.first_recent_episode(self.buffer.max_size)
        self._fill(self.buffer, dataset, newest, self.envs.n_envs)

    def _fill(self, buffer: ReplayBuffer, dataset: Dataset, first: int, n_envs: int) -> int:
        """Add the episodes from index `first` on to a buffer, and to the running statistics if these are empty."""
        encoder, decoder = self.envs.encoder, self.collector.group.decode
        episodes: Iterable[Batch] = dataset.encoded_from(first, encoder, decoder)
        if self.statistics.is_empty:
            episodes = map(self._observe_episode, episodes)
        total = 0
        for batch in episode_batches(episodes, n_envs):
            total = batch_digest(batch, total)
            buffer.add(batch)
        return total

    def _observe_episode(self, episode: Batch) -> Batch:
        """Update the statistics with an episode, and return the episode."""
        columns = {name: x[:, None] for name, x in episode.items()}
        self.statistics.observe_rewards(columns, slice(1))
        self.statistics.observe({'observations': np.append(columns['observations'], columns['observations'][-1:], 0)})
        return episode

    # learning

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make the updates of one iteration with a batch of `replay`, and return the means of their metrics."""
        samples = self.replay_samples(batch, self.learning_noise(batch['actions'].shape))
        acting_weights, metrics = self._update(samples, batch['n_updates'], schedule['learning_rate'])
        self.actor.refresh(acting_weights)
        return self.metrics_by_name(metrics.numpy())

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray | tuple[()]:
        """Return the noise of the updates for actions of `shape` [K, B] or [K, B, A]: none."""
        return ()

    # sampling

    @property
    def max_updates(self) -> int:
        """The largest number of updates of an iteration: K of every batch."""
        return DATASET_UPDATES_OF_IMAGES if self.envs.image_shape else DATASET_UPDATES

    def replay(self, n_updates: int, schedule: Mapping[str, float]) -> dict[str, Any]:
        """Sample the batches of `n_updates` updates.

        Args:
            n_updates: number of updates, at most `max_updates`.
            schedule: the current values of `schedules()` by name; `beta`, by default 1, is the exponent of the
                importance weights, which correct for prioritized sampling.

        Returns:
            The result of `ReplayBuffer.sample`, [K, B, …] each, with normalised observations; and `n_updates`, the
            number of batches to learn from. K is the same in every call, so that the update is compiled once.
        """
        statistics, rng = self.statistics, self.rng('replay')
        scaled = statistics.rewards is not None or statistics.reward_scale != 1.0
        scale = statistics.scale_rewards if scaled else None
        beta, most = schedule.get('beta', 1.0), self.max_updates
        batch = self.buffer.sample(n_updates, rng, max_batches=most, beta=beta, scale=scale)
        # `prepare` does not write into the arrays of the buffer, which the next call overwrites
        seen = {name: statistics.prepare(batch[name]) for name in ('observations', 'next_observations')}
        return {**batch, **seen, 'n_updates': n_updates}

    def replay_samples(self, batch: Mapping[str, Any], noise: Any = ()) -> ReplaySamples:
        """Return a sampled batch as the input of an update; `noise` is [K, B, A], or empty if the update needs none."""
        columns = {name: batch[name] for name in ReplaySamples._fields if name in batch}
        return ReplaySamples(**{**columns, 'noise': noise})

    def metrics_by_name(self, metrics: np.ndarray) -> dict[str, float]:
        """Return the metrics of an update by name; if every update was refused, only the two counts."""
        values = dict(zip((*COUNTS, *self.METRICS), metrics.tolist(), strict=True))
        return values if values['updates'] else {name: values[name] for name in COUNTS}
