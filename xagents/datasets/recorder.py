"""Recording: what environments give, step by step, becomes whole episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.datasets.reading import RecordedEpisode
from xagents.datasets.trees import map_tree, stack_trees, tree_leaves
from xagents.datasets.writing import DatasetWriter
from xagents.system.arrays import add_prefix, strip_prefix

# what is kept in memory before it is written: seconds, bytes, and episodes, whose writing takes a millisecond each
FLUSH_SECONDS, FLUSH_BYTES, FLUSH_EPISODES = 10.0, 2**26, 1000


class OpenEpisode:
    """An episode that goes on: its first observation, and for each step what was done and what followed."""

    def __init__(self, first: Any):
        self.observations = [first]
        self.steps: list[tuple[Any, Any, bool, bool]] = []

    def add(self, action: Any, shown: Any, reward: Any, terminated: bool, truncated: bool) -> None:
        """Add a step."""
        self.steps.append((action, reward, terminated, truncated))
        self.observations.append(shown)

    def episode(self) -> RecordedEpisode:
        """Return what there is as an episode."""
        actions, rewards, terminated, truncated = zip(*self.steps, strict=True)
        ends = np.array(terminated, bool), np.array(truncated, bool)
        return RecordedEpisode(stack_trees(self.observations), stack_trees(actions), np.array(rewards), *ends)


class DatasetRecorder:
    """Watches N environments side by side, and hands whole episodes to a writer.

    Args:
        writer: of the data set.
        n_envs: N.
        version: that of the policy which acts now.
        quotas: how many episodes of each environment are wanted; all when not given.
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
        self._bytes = 0  # of their observations
        self._written = time.monotonic()

    # what environments tell

    def reset(self, observations: Any) -> None:
        """Begin anew in every environment; episodes that were broken off are no whole ones."""
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
        """Take in one step of every environment, raw, [N, …] each; one that was not valid before it only reset."""
        for i, rows in enumerate(self._open):
            if self._remaining is not None and not self._remaining[i]:
                continue
            shown = _row(observations, i)
            if not valid[i] or rows is None:
                self._open[i] = OpenEpisode(shown)
                continue
            rows.add(_row(actions, i), shown, rewards[i], bool(terminated[i]), bool(truncated[i]))
            if terminated[i] or truncated[i]:
                self._close_episode(i, rows)

    def _close_episode(self, i: int, rows: OpenEpisode) -> None:
        self._finished.append(rows.episode())
        if self._version is not None:
            self._versions.append(self._version())
        if self._remaining is not None:
            self._remaining[i] -= 1
        self._bytes += sum(x.nbytes for x in tree_leaves(self._finished[-1].observations))
        # all episodes are named again with each part, which must not come to take most of the time
        many = len(self._finished) >= max(FLUSH_EPISODES, self.writer.episodes // 20)
        late = time.monotonic() - self._written >= max(FLUSH_SECONDS, 10 * self.writer.naming_seconds)
        if many or late or self._bytes >= FLUSH_BYTES:
            self.flush()

    # what a run asks for

    def flush(self) -> None:
        """Write the episodes that have ended."""
        self.writer.add(self._finished, self._versions)
        self._finished, self._versions, self._bytes = [], [], 0
        self._written = time.monotonic()

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the episodes that go on, as arrays by name, and how many are written; all that ended are."""
        self.flush()
        arrays: dict[str, np.ndarray] = {}
        for i, rows in enumerate(self._open):
            if rows is not None:
                shown = dict(_named_leaves(stack_trees(rows.observations), 'observations'))
                if rows.steps:
                    episode = rows.episode()
                    shown |= dict(_named_leaves(episode.actions, 'actions'))
                    shown['rewards'] = episode.rewards
                arrays |= add_prefix(str(i), shown)
        writer = self.writer
        return arrays, {'dataset': writer.name, 'identity': writer.identity, 'episodes': writer.episodes}

    def load(
        self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], shown: spaces.Space, taken: spaces.Space
    ) -> None:
        """Go on where `state` was taken, in environments of these spaces."""
        self.writer.resume(record['episodes'], record['identity'])
        for i in range(len(self._open)):
            own = strip_prefix(str(i), arrays)
            self._open[i] = _open_episode_from(own, shown, taken) if own else None


def _row(tree: Any, i: int) -> Any:
    """Return the row of one environment, as arrays of its own."""
    return map_tree(lambda x: np.array(x[i]), tree)


def _named_leaves(tree: Any, name: str) -> Iterable[tuple[str, np.ndarray]]:
    """Yield the leaves of a tree with names that say where they stand."""
    if isinstance(tree, dict):
        for i, part in enumerate(tree.values()):
            yield from _named_leaves(part, f'{name}/{i}')
    elif isinstance(tree, tuple):
        for i, part in enumerate(tree):
            yield from _named_leaves(part, f'{name}/{i}')
    else:
        yield name, tree


def _tree(space: spaces.Space, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    """Undo `_named_leaves`."""
    if isinstance(space, spaces.Dict):
        return {key: _tree(part, arrays, f'{name}/{i}') for i, (key, part) in enumerate(space.spaces.items())}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(part, arrays, f'{name}/{i}') for i, part in enumerate(space.spaces))
    return arrays[name]


def _open_episode_from(arrays: Mapping[str, np.ndarray], shown: spaces.Space, taken: spaces.Space) -> OpenEpisode:
    """Return an episode that goes on, of its arrays."""
    observations = _tree(shown, arrays, 'observations')
    rewards = arrays.get('rewards', ())
    rows = OpenEpisode(_row(observations, 0))
    if len(rewards):
        actions = _tree(taken, arrays, 'actions')
        for t, reward in enumerate(rewards):
            rows.add(_row(actions, t), _row(observations, t + 1), reward, False, False)
    return rows
