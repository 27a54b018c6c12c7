"""Reading of data sets: one episode after another, or as batches for a replay buffer."""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import registry

from xagents.datasets import dataset_names
from xagents.datasets.minari import minari_module
from xagents.envs.observations.action_masks import MASKS_OFF, are_legal, mask_ends
from xagents.envs.packages import AUTOMATIC_MODULES
from xagents.envs.spaces import ActionDecoder, ObservationEncoder
from xagents.options.errors import OptionError, one_line
from xagents.system.trees import check_values

# rows of a batch; a large data set is copied in batches because it may not fit into memory
BATCH_ROWS = 4096

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """One episode of T steps, with raw observations and actions of the environment.

    Attributes:
        observations: observations [T + 1, …]; for composite spaces a dict or a tuple of arrays.
        actions: actions [T, …]; for composite spaces a dict or a tuple of arrays.
        rewards: rewards [T].
        terminated: bool [T], whether a step ended the episode in a terminal state.
        truncated: bool [T], whether a step ended the episode for another reason, such as a time limit.
    """

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)


class Dataset:
    """A data set on this machine. Iteration loads one episode at a time into memory.

    Attributes:
        name: the id of the data set.
        metadata: the contents of its metadata file.
        episodes: the number of episodes.
        steps: the number of steps of all episodes.
        observation_space: the raw observation space of one environment.
        action_space: the action space of one environment.

    Args:
        name: the id of the data set.
        option: the option that was given the name, for messages.

    Raises:
        OptionError: in one line, if the data set is unknown, empty or damaged, or has spaces that Minari cannot read.
    """

    def __init__(self, name: str, option: str = 'dataset'):
        dataset_names.check_known(option, name)
        self.name, self._option = name, option
        try:
            self.metadata = dataset_names.read_metadata(name)
            if not {'observation_space', 'action_space'} <= self.metadata.keys():
                # without stored spaces, Minari would make the environment to get them
                raise ValueError('it contains no spaces')
            storage_class = minari_module('dataset.minari_storage', option).MinariStorage
            self._storage = storage_class.read(dataset_names.data_folder(name))
        except OptionError:
            raise
        except Exception as error:  # Minari, HDF5 and NumPy raise many types of exceptions for damaged files
            raise self.damage_error(error) from error
        self.episodes, self.steps = int(self.metadata['total_episodes']), int(self.metadata['total_steps'])
        self.observation_space: spaces.Space = self._storage.observation_space
        self.action_space: spaces.Space = self._storage.action_space
        if not self.steps:
            raise OptionError(option, f'got {name}, which is empty, expected one step at least')

    def damage_error(self, error: Exception) -> OptionError:
        """Return the exception for an `error` in reading this data set."""
        return OptionError(self._option, f'{self.name} is damaged or not a data set ({one_line(error)})')

    @property
    def xagents_metadata(self) -> dict[str, Any]:
        """The metadata that this package has added; empty if another program wrote the data set."""
        stored = self.metadata.get(dataset_names.XAGENTS_KEY)
        return stored if isinstance(stored, dict) else {}

    @property
    def environment_options(self) -> dict[str, Any]:
        """The options that make the data set's environment, by name; empty if the data set names no environment."""
        if isinstance(self.xagents_metadata.get('environment'), dict):
            return dict(self.xagents_metadata['environment'])
        try:
            spec = json.loads(self.metadata['env_spec'])
            name, kwargs = spec['id'], {k: v for k, v in (spec.get('kwargs') or {}).items() if k != 'render_mode'}
            package = str(spec.get('entry_point')).partition('.')[0].partition(':')[0]
        except (KeyError, TypeError, ValueError, AttributeError):
            return {}
        # an id that is not registered yet needs the module that registers it
        is_known = package in AUTOMATIC_MODULES or name in registry
        env = name if is_known or not package.isidentifier() else f'{package}:{name}'
        return {'env': env, **({'env_kwargs': kwargs} if kwargs else {})}

    def lengths(self) -> list[int]:
        """Return the number of steps of each episode.

        Raises:
            OptionError: in one line, if the data set is damaged.
        """
        try:
            stored = self._storage.get_episode_metadata(range(self.episodes))
            return [int(episode['total_steps']) for episode in stored]
        except Exception as error:
            raise self.damage_error(error) from error

    def check_counts(self) -> None:
        """Check that the numbers of episodes and steps in the metadata are correct.

        Raises:
            OptionError: in one line, if a number is wrong.
        """
        steps = sum(self.lengths())
        if steps != self.steps:
            problem = f'its {self.episodes} episodes have {steps} steps, expected {self.steps}'
            raise self.damage_error(ValueError(problem))

    def first_recent_episode(self, steps: int) -> int:
        """Return the index of the last episode from which on at least `steps` steps follow, or 0 if there is none."""
        following = np.cumsum(self.lengths()[::-1])
        return max(self.episodes - 1 - int(np.searchsorted(following, steps)), 0)

    def __len__(self) -> int:
        return self.episodes

    def __iter__(self) -> Iterator[RecordedEpisode]:
        return self.from_episode(0)

    def from_episode(self, first: int) -> Iterator[RecordedEpisode]:
        """Yield the episodes from the index `first` on. Each episode is checked.

        Raises:
            OptionError: in one line, if an episode is damaged.
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
            n, n_terminations, n_truncations = map(len, (rewards, *ends))
            raise ValueError(f'it has {n} rewards, {n_terminations} terminations and {n_truncations} truncations')
        with np.errstate(over='ignore'):
            # agents learn from float32
            if rewards.ndim != 1 or not np.isfinite(rewards.astype(np.float32)).all():
                raise ValueError('its rewards are not finite numbers')
        check_values('observations', self.observation_space, episode.observations, len(episode) + 1)
        check_values('actions', self.action_space, episode.actions, len(episode))
        return episode

    def encoded_from(self, first: int, encoder: ObservationEncoder, decoder: ActionDecoder) -> Iterator[Batch]:
        """Yield the episodes from the index `first` on; see `encode_episode`.

        Raises:
            OptionError: in one line, if an episode is damaged, or has an action that its mask forbids.
        """
        for index, episode in enumerate(self.from_episode(first), first):
            batch = encode_episode(episode, encoder, decoder)
            if encoder.n_mask:
                masks = encoder.masks(batch['observations'][:-1])
                legal = are_legal(batch['actions'][:-1], masks, mask_ends(self.action_space))
                if not legal.all():
                    problem = f'{self.name}: its action mask forbids the action of step {int(np.argmin(legal))}'
                    raise OptionError(self._option, f'{problem} of episode {index}; {MASKS_OFF}')
            yield batch

    @functools.cached_property
    def mean_return(self) -> float:
        """The mean return of the episodes. Recordings of this package store it; for other data sets it is computed."""
        if isinstance(self.xagents_metadata.get('mean_return'), int | float):
            return float(self.xagents_metadata['mean_return'])
        return float(np.mean([episode.rewards.sum() for episode in self]))


def open_dataset(name: str, option: str = 'dataset', download: bool = False) -> Dataset:
    """Open a data set.

    Args:
        name: the id of the data set.
        option: the option that was given the name, for messages.
        download: whether to download a data set that is missing on this machine from Minari's server.

    Raises:
        OptionError: in one line, if the data set is unknown, empty or damaged, or cannot be downloaded.
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
    """Return an episode in the format of a rollout: T steps, and one row for the reset.

    Args:
        episode: an episode of T steps.
        encoder: encodes raw observations as vectors or images.
        decoder: its inverse turns environment actions into the agent's actions.

    Returns:
        `observations` [T + 1, *D]; `actions`, `rewards`, `terminated`, `truncated` and `valid` [T + 1, …]. An episode
        without an end counts as truncated, so that the value of its last observation is estimated.
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
    """Yield encoded episodes as batches for a replay buffer. Each batch contains whole episodes.

    Each episode is added to the column with the fewest rows so far. Rows with `valid` False fill shorter columns.

    Args:
        episodes: encoded episodes, see `encode_episode`.
        n_envs: N, the number of columns.
        rows: the minimal number of rows of each column, except in the last batch.

    Yields:
        Batches with `observations` [T + 1, N, …], other arrays [T, N, …], and `restarted`, bool [N].
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
    """Return N columns of episodes as one batch, with the episodes of a column one after another."""
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
    """Return a CRC-32 checksum of batches, to detect a changed data set.

    Args:
        batch: a batch of encoded episodes.
        before: the checksum of all earlier batches.
    """
    for name in ('observations', 'actions', 'rewards', 'terminated', 'truncated', 'valid'):
        before = zlib.crc32(batch[name].tobytes(), before)
    return before
