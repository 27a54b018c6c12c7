"""A recorder that collects the steps of environments into whole episodes of a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.datasets.reading import RecordedEpisode
from xagents.datasets.writing import DatasetWriter
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.trees import map_tree, stack_trees, tree_leaves

# Finished episodes are written after this time, or when this many bytes or episodes are in memory. Writing takes about
# a millisecond for each episode.
FLUSH_SECONDS, FLUSH_BYTES, FLUSH_EPISODES = 10.0, 2**26, 1000


class OpenEpisode:
    """An episode that has not ended.

    Attributes:
        observations: the observations so far, one more than steps.
        steps: action, reward, terminated and truncated of each step.

    Args:
        first: the observation after the reset.
    """

    def __init__(self, first: Any):
        self.observations = [first]
        self.steps: list[tuple[Any, Any, bool, bool]] = []

    def add(self, action: Any, observation: Any, reward: Any, terminated: bool, truncated: bool) -> None:
        """Add a step, with the observation after it."""
        self.steps.append((action, reward, terminated, truncated))
        self.observations.append(observation)

    def episode(self) -> RecordedEpisode:
        """Return the steps so far as an episode. There must be one step at least."""
        actions, rewards, terminated, truncated = zip(*self.steps, strict=True)
        ends = np.array(terminated, bool), np.array(truncated, bool)
        return RecordedEpisode(stack_trees(self.observations), stack_trees(actions), np.array(rewards), *ends)


class DatasetRecorder:
    """A recorder of the steps of N parallel environments, which passes whole episodes to a writer.

    Args:
        writer: the writer of the data set.
        n_envs: N, the number of environments.
        version: returns the version of the acting policy.
        quotas: the number of episodes to record in each environment; unlimited when not given.
    """

    def __init__(
        self,
        writer: DatasetWriter,
        n_envs: int,
        version: Callable[[], int] | None = None,
        quotas: Iterable[int] | None = None,
    ):
        self.writer, self._version = writer, version
        self._remaining = None if quotas is None else list(quotas)
        self._open: list[OpenEpisode | None] = [None] * n_envs
        self._finished: list[RecordedEpisode] = []
        self._versions: list[int] = []
        self._bytes = 0  # size of the observations in `_finished`
        self._written = time.monotonic()

    def reset(self, observations: Any) -> None:
        """Start a new episode in every environment. Episodes that have not ended are dropped."""
        self._open = [OpenEpisode(_row(observations, i)) for i in range(len(self._open))]

    def step(
        self,
        actions: Any,
        observations: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray,
    ) -> None:
        """Record one step of all environments.

        Args:
            actions: environment actions [N, …].
            observations: raw observations [N, …] after the step.
            rewards: rewards [N].
            terminated: bool [N].
            truncated: bool [N].
            valid: bool [N], False if the step only reset the environment.
        """
        for i, rows in enumerate(self._open):
            if self._remaining is not None and not self._remaining[i]:
                continue
            observation = _row(observations, i)
            if not valid[i] or rows is None:
                self._open[i] = OpenEpisode(observation)
                continue
            rows.add(_row(actions, i), observation, rewards[i], bool(terminated[i]), bool(truncated[i]))
            if terminated[i] or truncated[i]:
                self._close_episode(i, rows)

    def _close_episode(self, i: int, rows: OpenEpisode) -> None:
        self._finished.append(rows.episode())
        if self._version is not None:
            self._versions.append(self._version())
        if self._remaining is not None:
            self._remaining[i] -= 1
        self._bytes += sum(x.nbytes for x in tree_leaves(self._finished[-1].observations))
        # each flush rewrites the links to all episodes, so large data sets are flushed less often
        many = len(self._finished) >= max(FLUSH_EPISODES, self.writer.episodes // 20)
        late = time.monotonic() - self._written >= max(FLUSH_SECONDS, 10 * self.writer.naming_seconds)
        if many or late or self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all finished episodes."""
        self.writer.add(self._finished, self._versions)
        self._finished, self._versions, self._bytes = [], [], 0
        self._written = time.monotonic()

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Write all finished episodes and return the state of the recording.

        Returns:
            The unfinished episodes as arrays by name, and a record for JSON with the name and the identity of the
            data set and the number of episodes written.
        """
        self.flush()
        arrays: dict[str, np.ndarray] = {}
        for i, rows in enumerate(self._open):
            if rows is not None:
                own = dict(_named_leaves(stack_trees(rows.observations), 'observations'))
                if rows.steps:
                    episode = rows.episode()
                    own |= dict(_named_leaves(episode.actions, 'actions'))
                    own['rewards'] = episode.rewards
                arrays |= add_prefix(str(i), own)
        writer = self.writer
        return arrays, {'dataset': writer.name, 'identity': writer.identity, 'episodes': writer.episodes}

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
        """Restore the state that `state` returned.

        Args:
            arrays: the unfinished episodes, as arrays by name.
            record: the record of the data set.

        Raises:
            OptionError: if the data set lacks episodes or is another one.
        """
        self.writer.resume(record['episodes'], record['identity'])
        for i in range(len(self._open)):
            own = strip_prefix(str(i), arrays)
            self._open[i] = _open_episode_from(own, *self.writer.spaces) if own else None


def _row(tree: Any, i: int) -> Any:
    """Return a copy of the row i of each leaf."""
    return map_tree(lambda x: np.array(x[i]), tree)


def _named_leaves(tree: Any, name: str) -> Iterable[tuple[str, np.ndarray]]:
    """Yield name and value of each leaf. The name contains the indices that lead to the leaf, joined with `/`."""
    if isinstance(tree, dict | tuple):
        for i, part in enumerate(tree.values() if isinstance(tree, dict) else tree):
            yield from _named_leaves(part, f'{name}/{i}')
    else:
        yield name, tree


def _tree(space: spaces.Space, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    """Return the tree of a space from its arrays by name: the inverse of `_named_leaves`."""
    if isinstance(space, spaces.Dict):
        return {key: _tree(part, arrays, f'{name}/{i}') for i, (key, part) in enumerate(space.spaces.items())}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(part, arrays, f'{name}/{i}') for i, part in enumerate(space.spaces))
    return arrays[name]


def _open_episode_from(
    arrays: Mapping[str, np.ndarray], observation_space: spaces.Space, action_space: spaces.Space
) -> OpenEpisode:
    """Return an unfinished episode from its arrays by name."""
    observations = _tree(observation_space, arrays, 'observations')
    rewards = arrays.get('rewards', ())
    rows = OpenEpisode(_row(observations, 0))
    if len(rewards):
        actions = _tree(action_space, arrays, 'actions')
        for t, reward in enumerate(rewards):
            rows.add(_row(actions, t), _row(observations, t + 1), reward, False, False)
    return rows
