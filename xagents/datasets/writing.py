"""Writing of data sets in the format of Minari. A killed process leaves a valid data set with whole episodes.

Episodes are written in parts. A part is complete before it is moved to its final path. The main file contains links to
the episodes of all parts and is replaced atomically. `finish` copies all episodes into one file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from xagents.datasets import dataset_names
from xagents.datasets.minari import minari_module
from xagents.datasets.reading import RecordedEpisode
from xagents.options.errors import OptionError, one_line
from xagents.system.files import atomic_write
from xagents.system.locks import lock_file
from xagents.system.trees import tree_leaves

MAIN, PARTS, LOCK = 'main_data.hdf5', '.parts', '.lock'
# bytes: what HDF5 needs for an episode in addition to its arrays, and what must remain free on the disk
EPISODE_OVERHEAD, FREE_MARGIN = 2**15, 2**20


def hdf5() -> Any:
    """Return the module h5py, which is imported only when data sets are read or written."""
    import h5py

    return h5py


def check_keys(option: str, space: spaces.Space) -> None:
    """Check that HDF5 can store the keys of Dict spaces: texts that are not paths.

    Args:
        option: the option that starts the recording, for messages.
        space: the observation or action space.

    Raises:
        OptionError: for a key that HDF5 cannot store.
    """
    parts: Any = space.spaces if isinstance(space, spaces.Dict | spaces.Tuple) else ()
    if isinstance(space, spaces.Dict):
        for key in parts:
            if not isinstance(key, str) or '/' in key or key in ('', '.'):
                raise OptionError(option, f'got observations with the key {key!r}, expected names without a slash')
        parts = parts.values()
    for part in parts:
        check_keys(option, part)


class DatasetWriter:
    """A writer of one data set.

    Args:
        name: the id of the data set, which must be new unless `resume` is called.
        observation_space: the raw observation space of one environment.
        action_space: the action space of one environment.
        about: metadata of this package, for JSON: `environment`, `command`, …
        spec: the environment's specification in Gymnasium; ignored if JSON cannot represent it.
        agent: the id of the acting agent.
        option: the option that was given the name, for messages.

    Attributes:
        episodes: the number of episodes written.
        steps: the number of steps in these episodes.
        identity: a random text that identifies the data set when a recording is resumed.
        spaces: the raw observation space and the action space of one environment.
        naming_seconds: the duration of the last update of the links to all episodes, in seconds.

    Raises:
        OptionError: if Minari is not installed or cannot store the spaces, or if the folder is not writable or in use.
    """

    def __init__(
        self,
        name: str,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        about: Mapping[str, Any],
        *,
        spec: EnvSpec | None = None,
        agent: str = '',
        option: str = 'dataset',
    ):
        self.name, self._about, self._agent = name, dict(about), agent
        self.identity = secrets.token_hex(8)
        self.naming_seconds = 0.0
        self._spec, self._option = spec if _is_json(spec) else None, option
        self.spaces = observation_space, action_space
        self._storage = minari_module('dataset.minari_storage', option).MinariStorage
        self._buffer = minari_module('data_collector.episode_buffer', option).EpisodeBuffer
        serialize = minari_module('serialization', option).serialize_space
        try:
            for space in self.spaces:
                serialize(space)
        except Exception as error:
            raise OptionError(option, f'Minari cannot store {one_line(space)} ({one_line(error)})') from error
        self.folder = dataset_names.data_folder(name)
        self._lock = self._acquire_lock(option)
        self.episodes = self.steps = 0
        self._parts: list[tuple[Path, int]] = []  # the file of each part, and the number of its episodes
        self._total = 0.0

    def _acquire_lock(self, option: str) -> IO[bytes] | None:
        """Lock the data set against other processes.

        Raises:
            OptionError: if another process has the lock, or the folder is not writable.
        """
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            return lock_file(self.folder.parent / LOCK)
        except BlockingIOError:
            raise OptionError(option, f'got {self.name}, which another process is recording') from None
        except OSError as error:
            problem = f'got {self.name}, but {self.folder} is not writable ({error.strerror})'
            raise OptionError(option, problem) from error

    def close(self) -> None:
        """Release the lock, and delete the folder of a data set without episodes."""
        (self.folder.parent / LOCK).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
        folder = self.folder.parent
        while folder != dataset_names.root() and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def add(self, episodes: Sequence[RecordedEpisode], versions: Sequence[int] = ()) -> None:
        """Write whole episodes.

        Args:
            episodes: the episodes.
            versions: the version of the policy at the end of each episode; empty if unknown.

        Raises:
            OSError: if the disk is full or damaged.
        """
        if not episodes:
            return
        size = sum(x.nbytes for e in episodes for tree in (e.observations, e.actions) for x in tree_leaves(tree))
        self._check_disk_space(2 * size + EPISODE_OVERHEAD * (len(episodes) + self.episodes // 50))
        self._move_main_file_to_part()
        part = self.folder / PARTS / f'{self.episodes:09d}'
        shutil.rmtree(part, ignore_errors=True)
        new = part.with_name(f'.{part.name}')
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        with self._errors():
            storage = self._new_storage(new)
            storage.update_episodes(self._buffers(episodes))
            if versions:
                storage.update_episode_metadata([{'policy_version': int(version)} for version in versions])
        os.rename(new, part)
        self._parts.append((part / MAIN, len(episodes)))
        self.episodes += len(episodes)
        self.steps += sum(map(len, episodes))
        self._total += float(sum(np.sum(episode.rewards, dtype=np.float64) for episode in episodes))
        self._link_parts(part)

    def _check_disk_space(self, needed: int) -> None:
        """Check that `needed` bytes are free, because HDF5 damages its file when the disk is full.

        Raises:
            OSError: with ENOSPC, if there is too little space.
        """
        if shutil.disk_usage(self.folder.parent).free < needed + FREE_MARGIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))

    def _new_storage(self, folder: Path) -> Any:
        with warnings.catch_warnings(action='ignore'):
            # JPEG, Minari's default for images, is lossy
            return self._storage.new(folder, *self.spaces, self._spec, 'hdf5', jpeg_encoding=False)

    def _buffers(self, episodes: Sequence[RecordedEpisode]) -> Any:
        for e in episodes:
            ends = {'terminations': e.terminated, 'truncations': e.truncated}
            yield self._buffer(observations=e.observations, actions=e.actions, rewards=e.rewards, infos={}, **ends)

    def _link_parts(self, newest: Path) -> None:
        """Write links to all episodes into the main file, then update the counts in the metadata.

        If the process is killed in between, the data set contains all episodes that the metadata counts.
        """
        begun = time.monotonic()
        count = 0
        with self._errors(), self._main() as file:
            for path, episodes in self._parts:
                for i in range(episodes):
                    link = hdf5().ExternalLink(str(path.relative_to(self.folder)), f'/episode_{i}')
                    file[f'episode_{count}'] = link
                    count += 1
        self._write_metadata(newest)
        self.naming_seconds = time.monotonic() - begun

    @contextlib.contextmanager
    def _main(self) -> Iterator[Any]:
        """Replace the main file atomically by the file that is yielded."""
        with atomic_write(self.folder / MAIN) as temporary, hdf5().File(temporary, 'w', track_order=True) as file:
            yield file

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn RuntimeErrors of HDF5 about the disk into OSErrors."""
        try:
            yield
        except RuntimeError as error:
            full = 'No space left' in str(error) or 'errno = 28' in str(error)
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, os.strerror(code), str(self.folder)) from error

    def _write_metadata(self, template: Path) -> None:
        """Write the metadata, based on the metadata that Minari wrote in the folder `template`."""
        content = json.loads((template / dataset_names.METADATA).read_text())
        size = sum(path.stat().st_size for path in self.folder.glob('**/*.hdf5')) / 1e6
        mean = self._total / self.episodes if self.episodes else 0.0
        content |= {'total_episodes': self.episodes, 'total_steps': self.steps, 'dataset_size': round(size, 1)}
        version = metadata.version('minari')
        content |= {'dataset_id': self.name, 'minari_version': version, 'algorithm_name': self._agent}
        content['requirements'] = []
        content[dataset_names.XAGENTS_KEY] = {**self._about, 'mean_return': mean, 'identity': self.identity}
        with atomic_write(self.folder / dataset_names.METADATA) as temporary:
            temporary.write_text(json.dumps(content))

    def resume(self, episodes: int, identity: str) -> None:
        """Continue an existing data set after its first episodes. Later episodes are removed.

        Args:
            episodes: the number of episodes to keep.
            identity: the identity of the data set in the checkpoint.

        Raises:
            OptionError: if the data set has fewer episodes, or another identity.
        """
        main, there = self.folder / MAIN, 0
        self.identity = identity
        if dataset_names.dataset_exists(self.name):
            stored = dataset_names.read_metadata(self.name)
            there = stored['total_episodes']
            if (stored.get(dataset_names.XAGENTS_KEY) or {}).get('identity') != identity:
                raise OptionError(self._option, f'got {self.name}, expected the data set that the run has recorded')
        if there < episodes:
            expected = f'expected {episodes} at least, as in the checkpoint'
            raise OptionError(self._option, f'got {self.name} with {there} episodes, {expected}')
        self._parts, self.episodes, self.steps, self._total = [], 0, 0, 0.0
        if not there:
            return
        with hdf5().File(main, 'r') as file:
            episode_counts: dict[str, int] = {}
            for i in range(episodes):
                link = file.get(f'episode_{i}', getlink=True)
                path = link.filename if isinstance(link, hdf5().ExternalLink) else MAIN
                episode_counts[path] = episode_counts.get(path, 0) + 1
                rewards: Any = file[f'episode_{i}/rewards']
                self.steps += len(rewards)
                self._total += float(np.sum(rewards[:], dtype=np.float64))
        self.episodes = episodes
        self._parts = [(self.folder / path, n) for path, n in episode_counts.items()]
        if not episodes:
            shutil.rmtree(self.folder)
        elif episodes < there:
            self._move_main_file_to_part()
            self._link_parts(self.folder)

    def _move_main_file_to_part(self) -> None:
        """Move a main file with episodes to the folder of parts, so that the main file contains links only."""
        main = self.folder / MAIN
        if any(path == main for path, _ in self._parts):
            whole = self.folder / PARTS / 'whole'
            whole.mkdir(parents=True, exist_ok=True)
            os.link(main, whole / f'.{MAIN}')
            os.replace(whole / f'.{MAIN}', whole / MAIN)
            self._parts = [(whole / MAIN if path == main else path, n) for path, n in self._parts]

    def finish(self) -> None:
        """Copy all episodes into the main file, delete the parts, and close the data set."""
        try:
            if self._parts and self._parts != [(self.folder / MAIN, self.episodes)]:
                self._check_disk_space(sum(path.stat().st_size for path, _ in self._parts))
                self._join()
        finally:
            self.close()

    def _join(self) -> None:
        count = 0
        with self._errors(), self._main() as file:
            for path, episodes in self._parts:
                with hdf5().File(path, 'r') as part:
                    for i in range(episodes):
                        part.copy(f'episode_{i}', file, name=f'episode_{count}')
                        file[f'episode_{count}'].attrs['id'] = count
                        count += 1
        self._parts = [(self.folder / MAIN, count)]
        self._write_metadata(self.folder)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder / PARTS)


def _is_json(spec: EnvSpec | None) -> bool:
    """Return whether JSON can represent a specification. It cannot if the environment was registered with a class."""
    try:
        return spec is not None and bool(spec.to_json())
    except (TypeError, ValueError):
        return False
