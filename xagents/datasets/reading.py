"""Data sets as they are read: whole episodes, one after the other, and as batches of a replay buffer."""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.datasets import dataset_names
from xagents.datasets.minari import minari_module
from xagents.datasets.trees import check_values
from xagents.envs.spaces import ActionDecoder, ObservationEncoder
from xagents.options.errors import OptionError, one_line

# rows of a batch, so that a large data set need not be in memory to be copied
BATCH_ROWS = 4096
# who has environments that Gymnasium knows once its package is imported
ENV_PACKAGES = ('gymnasium_robotics',)

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """One episode of T steps, raw: as the environment gave it and took it.

    Attributes:
        observations: [T + 1, …], for composite spaces a dict or a tuple of arrays.
        actions: [T, …] likewise.
        rewards: [T]
        terminated: bool [T]
        truncated: bool [T]
    """

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)


class Dataset:
    """A data set here, of which an episode at a time is in memory.

    Attributes:
        name: its id.
        metadata: what it says of itself.
        episodes: how many.
        steps: of all episodes.
        observation_space: raw, of one environment.
        action_space: likewise.

    Args:
        name: its id.
        option: where it was typed, for messages.

    Raises:
        OptionError: in one line, for one that is unknown, empty, damaged, or of spaces that Minari cannot tell.
    """

    def __init__(self, name: str, option: str = 'dataset'):
        dataset_names.check_known(option, name)
        self.name, self._option = name, option
        try:
            self.metadata = dataset_names.read_metadata(name)
            if not {'observation_space', 'action_space'} <= self.metadata.keys():
                raise ValueError('it names no spaces')  # Minari would make the environment to ask it
            self._storage = minari_module('dataset.minari_storage', option).MinariStorage.read(
                dataset_names.data_folder(name)
            )
        except OptionError:
            raise
        except Exception as error:  # whatever Minari, HDF5 and NumPy raise about what they cannot read
            raise self.damage_error(error) from error
        self.episodes, self.steps = int(self.metadata['total_episodes']), int(self.metadata['total_steps'])
        self.observation_space: spaces.Space = self._storage.observation_space
        self.action_space: spaces.Space = self._storage.action_space
        if not self.steps:
            raise OptionError(option, f'{name} holds no step')

    def damage_error(self, error: Exception) -> OptionError:
        """Return what is said of a data set that cannot be read."""
        return OptionError(self._option, f'{self.name} is damaged or no data set ({one_line(error)})')

    @property
    def xagents_metadata(self) -> dict[str, Any]:
        """What its metadata says under our name; empty where others have written it."""
        stored = self.metadata.get(dataset_names.XAGENTS_KEY)
        return stored if isinstance(stored, dict) else {}

    @property
    def environment_options(self) -> dict[str, Any]:
        """The options that make its environment, by name; empty where it tells of none."""
        if isinstance(self.xagents_metadata.get('environment'), dict):
            return dict(self.xagents_metadata['environment'])
        try:
            spec = json.loads(self.metadata['env_spec'])
            name, kwargs = spec['id'], {k: v for k, v in (spec.get('kwargs') or {}).items() if k != 'render_mode'}
            package = str(spec.get('entry_point')).partition('.')[0].partition(':')[0]
        except (KeyError, TypeError, ValueError, AttributeError):
            return {}
        env = f'{package}:{name}' if package in ENV_PACKAGES else name
        return {'env': env, **({'env_kwargs': kwargs} if kwargs else {})}

    def lengths(self) -> list[int]:
        """Return the steps of each episode."""
        try:
            stored = self._storage.get_episode_metadata(range(self.episodes))
            return [int(episode['total_steps']) for episode in stored]
        except Exception as error:
            raise self.damage_error(error) from error

    def check_counts(self) -> None:
        """Check that the episodes that are counted are there, and have as many steps.

        Raises:
            OptionError: in one line, where they have not.
        """
        steps = sum(self.lengths())
        if steps != self.steps:
            raise self.damage_error(
                ValueError(f'its {self.episodes} episodes have {steps} steps, it tells {self.steps}')
            )

    def first_recent_episode(self, steps: int) -> int:
        """Return the episode from which on at least `steps` steps follow; the first where there are fewer."""
        following = np.cumsum(self.lengths()[::-1])
        return max(self.episodes - 1 - int(np.searchsorted(following, steps)), 0)

    def __len__(self) -> int:
        return self.episodes

    def __iter__(self) -> Iterator[RecordedEpisode]:
        return self.from_episode(0)

    def from_episode(self, first: int) -> Iterator[RecordedEpisode]:
        """Yield the episodes from the one with the index `first` on, checked.

        Raises:
            OptionError: in one line, where one is damaged.
        """
        index = first
        try:
            for stored in self._storage.get_episodes(range(first, self.episodes)):
                yield self._parse_episode(stored)
                index += 1
        except Exception as error:
            raise self.damage_error(ValueError(f'episode {index}: {one_line(error)}')) from error

    def _parse_episode(self, stored: dict[str, Any]) -> RecordedEpisode:
        rewards = np.asarray(stored['rewards'])
        ends = [np.asarray(stored[name], bool) for name in ('terminations', 'truncations')]
        episode = RecordedEpisode(stored['observations'], stored['actions'], rewards, *ends)
        if not len(episode) or any(end.shape != rewards.shape for end in ends):
            raise ValueError(f'it has {len(rewards)} rewards, {len(ends[0])} terminations and {len(ends[1])} ends')
        with np.errstate(over='ignore'):
            if rewards.ndim != 1 or not np.isfinite(rewards.astype(np.float32)).all():  # as they are learned from
                raise ValueError('its rewards are no numbers, or not finite')
        check_values('observations', self.observation_space, episode.observations, len(episode) + 1)
        check_values('actions', self.action_space, episode.actions, len(episode))
        return episode

    @functools.cached_property
    def mean_return(self) -> float:
        """The mean sum of an episode's rewards; recordings store it, for other data sets it is computed."""
        if isinstance(self.xagents_metadata.get('mean_return'), int | float):
            return float(self.xagents_metadata['mean_return'])
        return float(np.mean([episode.rewards.sum() for episode in self]))


def open_dataset(name: str, option: str = 'dataset', download: bool = False) -> Dataset:
    """Open a data set; `download` asks Minari's server for one that is not here.

    Raises:
        OptionError: in one line, naming the `option` where it was typed.
    """
    if download and not dataset_names.dataset_exists(name):
        dataset_names.check_name(option, name)
        try:
            minari_module('storage.hosting', option).download_dataset(name)
        except OptionError:
            raise
        except Exception as error:
            raise OptionError(option, f'{name} cannot be downloaded ({one_line(error)})') from error
    return Dataset(name, option)


def encode_episode(episode: RecordedEpisode, encoder: ObservationEncoder, decoder: ActionDecoder) -> Batch:
    """Return an episode as columns of a rollout: T steps, and a row that only resets.

    Returns:
        `observations` [T + 1, *D]; `actions`, `rewards`, `terminated`, `truncated` and `valid` [T + 1, …]. An episode
        that is cut without a word counts as truncated: what it would have come to is to be estimated.
    """
    actions = decoder.inverse(episode.actions)
    truncated = np.array(episode.truncated)
    truncated[-1] |= not episode.terminated[-1]
    return {
        'observations': encoder(episode.observations),
        'actions': _append_row(actions, actions[-1]),
        'rewards': _append_row(episode.rewards.astype(np.float32), 0),
        'terminated': _append_row(episode.terminated, False),
        'truncated': _append_row(truncated, False),
        'valid': _append_row(np.ones(len(episode), bool), False),
    }


def _append_row(rows: np.ndarray, last: Any) -> np.ndarray:
    return np.concatenate([rows, np.asarray(last, rows.dtype)[None]])


def episode_batches(episodes: Iterable[Batch], n_envs: int = 1, rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Yield encoded episodes as a replay buffer takes them: [T + 1, N, …], each batch of whole episodes.

    An episode goes to the column that has the fewest rows so far; rows that only reset fill the shorter columns.
    """
    columns: list[list[Batch]] = [[] for _ in range(n_envs)]
    lengths = [0] * n_envs
    for episode in episodes:
        shortest = lengths.index(min(lengths))
        columns[shortest].append(episode)
        lengths[shortest] += len(episode['valid'])
        if min(lengths) >= rows:
            yield _side_by_side(columns)
            columns, lengths = [[] for _ in range(n_envs)], [0] * n_envs
    if any(columns):
        yield _side_by_side(columns)


def _side_by_side(columns: Sequence[Sequence[Batch]]) -> Batch:
    """Return columns of episodes as one batch."""
    longest = max(sum(len(episode['valid']) for episode in column) for column in columns)
    template = next(column[0] for column in columns if column)
    arrays = {name: np.zeros((longest, len(columns), *x.shape[1:]), x.dtype) for name, x in template.items()}
    for n, column in enumerate(columns):
        t = 0
        for episode in column:
            for name, x in episode.items():
                arrays[name][t : t + len(x), n] = x
            t += len(episode['valid'])
        if column and t < longest:
            arrays['observations'][t:, n] = arrays['observations'][t - 1, n]
    last = arrays['observations'][-1:]
    arrays['observations'] = np.concatenate([arrays['observations'], last])
    arrays['restarted'] = np.ones(len(columns), bool)
    return arrays


def batch_digest(batch: Batch, before: int = 0) -> int:
    """Return a sum over what batches hold, by which a changed data set is known; `before` is that of those before."""
    for name in ('observations', 'actions', 'rewards', 'terminated', 'truncated', 'valid'):
        before = zlib.crc32(batch[name].tobytes(), before)
    return before
