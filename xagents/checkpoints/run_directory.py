"""Run directories: settings, status and checkpoints. A kill at any time leaves the old or the new files complete.

A checkpoint is a directory with a unique name, which is written completely and then renamed. `best` and `last` are
links that are replaced. `last` contains the whole state. Its record names the best weights, and the segments of the
replay buffer that belong to the checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from xagents.checkpoints import state_files
from xagents.checkpoints.agent_state import capture_run_state
from xagents.checkpoints.protocols import RunProtocol, replay_buffers, replay_key
from xagents.checkpoints.state_files import BEST_PREFIX, LAST_PREFIX, STEP_PREFIX, AgentState
from xagents.checkpoints.status import SaveError, read_status, take_lock
from xagents.config.configuration import to_yaml
from xagents.pipeline.context import Context
from xagents.replay.segments import SegmentStore
from xagents.system.arrays import add_prefix
from xagents.system.file_names import CHECKPOINTS, CONFIG, STATUS
from xagents.system.files import atomic_write, name_file_in_errors, replace_link, write_problem
from xagents.system.values import to_plain_value
from xagents.system.versions import versions

REPLAY_DIRECTORY = 'replay'


class RunDirectory:
    """The writer of a run directory.

    Args:
        path: path of the directory, which is created when the run begins.
        loaded: name of the checkpoint from which the agent was loaded; '' for a new run, None for a run without a
            checkpoint.
        about: section `about` of the existing settings; None for a new run.

    Attributes:
        segments: store of the replay buffer's segments.
        saved_steps: steps of the last checkpoint; -1 before the first.
        best_name: name of the checkpoint with the best weights; '' before the first.
    """

    _run: RunProtocol  # the present run

    def __init__(self, path: str | os.PathLike[str], loaded: str | None = '', about: dict[str, Any] | None = None):
        self.path, self.about = Path(path), about
        self._folder = self.path / CHECKPOINTS
        self.segments = SegmentStore(self.path / REPLAY_DIRECTORY)
        self.saved_steps = -1
        self.best_name = ''
        self._best: AgentState | None = None
        self._records: dict[str, dict[str, Any]] = {}
        self._loaded = loaded
        self._lock: IO[bytes] | None = None

    # start and end of a run

    def begin(self, run: RunProtocol) -> None:
        """Lock the directory for a run, write its settings, and set its status to running.

        Raises:
            SaveError: if another process uses the directory, or it cannot be written.
        """
        self._run, context = run, run.progress.context
        try:
            with self._writing():
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = self._lock or take_lock(self.path)
                self._check_unchanged()
                self._repair()
                self.about = _provenance(run, self.about)
                with atomic_write(self.path / CONFIG) as temporary:
                    temporary.write_text(to_yaml(run.agent.id, run.all_options(), self.about))
                self.write_status('running')
            if self.saved_steps < 0 and context.iteration:  # the initial state is saved nowhere else
                self.save(context)
        except BaseException:
            self.release()
            raise

    def _check_unchanged(self) -> None:
        """Raise SaveError if another process has trained the run since it was loaded. Call with the lock held."""
        if self._loaded == '':
            return
        last, newest = self._folder / 'last', state_files.newest_complete(self._folder)
        present = newest.name if newest else None
        if last.is_dir():
            present = os.readlink(last) if last.is_symlink() else last.name
        if present != self._loaded:
            problem = 'another process has trained the run since it was loaded: resume it again'
            raise SaveError(f'{self.path}: {problem}')
        self._loaded = ''

    def _repair(self) -> None:
        """Remove incomplete files of a killed process. Restore links that a copy has replaced by directories."""
        folder = self._folder
        for stale in folder.glob('.*'):
            shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()
        for link, kind in (('best', BEST_PREFIX), ('last', LAST_PREFIX)):
            if (folder / link).is_dir() and not (folder / link).is_symlink():
                steps = state_files.read_record(folder / link)['counters']['steps']
                name = _unused_name(folder, f'{kind}-{steps:012d}')
                os.rename(folder / link, folder / name)
                self._link(link, name)
        newest = state_files.newest_complete(folder)
        if self.saved_steps >= 0 and newest is not None and not (folder / 'last').is_dir():
            self._link('last', newest.name)

    def resume(self, steps: int, best_name: str, best: AgentState | None) -> None:
        """Set the state of the last checkpoint: its steps, and the best weights that it names."""
        self.best_name, self._best, self.saved_steps = best_name, best, steps

    def finish(self, state: str, why: str) -> None:
        """Write the status of an ended run, and release the directory."""
        with contextlib.suppress(SaveError):  # checkpoints are complete, and a full disk was reported before
            self.write_status(state, why)
        self.release()

    def is_finished(self) -> bool:
        """Return whether the status of the run is `finished`. After a kill at the very end it is not."""
        try:
            return read_status(self.path)['state'] == 'finished'
        except ValueError:
            return False

    def release(self) -> None:
        """Release the lock, so that other processes can use the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_status(self, state: str, why: str = '') -> None:
        """Write the status of the run, for `xagents runs` and other programs."""
        names = ('steps', 'games', 'seconds', 'mean_reward', 'best_reward')
        counters = {name: getattr(self._run.progress.context, name) for name in names}
        process = {'pid': os.getpid(), 'host': socket.gethostname(), 'updated': _now()}
        status = to_plain_value({'state': state, 'why': why, **counters, **process}, finite=True)
        with self._writing(), atomic_write(self.path / STATUS) as temporary:
            temporary.write_text(json.dumps(status))

    # interface of the stage `checkpoint`, as that of `WeightSaver`

    def is_due(self, ctx: Context) -> bool:
        """Return whether the first checkpoint is due, or a permanent one (`--checkpoint-frequency`)."""
        return self.saved_steps < 0 or self._is_permanent(ctx)

    def _is_permanent(self, ctx: Context) -> bool:
        frequency = self._run.options.checkpoint_frequency
        return frequency is not None and ctx.steps // frequency > max(self.saved_steps, 0) // frequency

    def save(self, ctx: Context) -> None:
        """Write a checkpoint of the whole state.

        Raises:
            SaveError: if the directory cannot be written. The last checkpoint stays complete.
        """
        agent, in_flight = self._run.agent, self._run.in_flight
        if self._run.overlap is not None and in_flight is None:
            return  # collecting failed, which the next iteration raises: keep the last checkpoint
        with self._writing():
            for writer in self._run.writers:
                writer.flush()
            state = capture_run_state(agent, agent.collector, in_flight)
            # a data set does not change, so checkpoints do not contain it
            for name, buffer in ({} if self._run.options.dataset else replay_buffers(agent)).items():
                arrays, state.record[replay_key(name)] = self.segments.substore(name).save(buffer)
                state.arrays |= add_prefix(replay_key(name), arrays)
            self.save_best()
            state.record['best'] = self.best_name
            name = self._write(STEP_PREFIX if self._is_permanent(ctx) else LAST_PREFIX, state)
            self._link('last', name)
            self.saved_steps = ctx.steps
            self._prune()
            self.write_status('running')

    def save_best(self) -> None:
        """Write the best weights if they are new."""
        best = self._run.progress.best
        if best is not None and best is not self._best:
            with self._writing():
                self.best_name, self._best = self._write(BEST_PREFIX, best), best
                self._link('best', self.best_name)

    def end(self, ctx: Context) -> None:
        """Write the last checkpoint if the run has trained since the previous one."""
        if ctx.steps != self.saved_steps or self._run.progress.best is not self._best:
            self.save(ctx)
        if self.best_name:
            with self._writing():
                self._link('best', self.best_name)

    def set_best(self, state: AgentState) -> None:
        """Write other weights as `best` for players. A resumed run uses the best weights that `last` names."""
        with self._writing():
            self._link('best', self._write(BEST_PREFIX, state))
            self._prune()

    def _write(self, kind: str, state: AgentState) -> str:
        """Write a checkpoint and return its new name."""
        name = f'{kind}-{state.record["counters"]["steps"]:012d}'
        if kind == STEP_PREFIX and name not in self._linked() and (self._folder / name).exists():
            # a killed process has written it without linking it, or the run has returned to an earlier checkpoint
            state_files.remove_checkpoint(self._folder / name)
        name = _unused_name(self._folder, name)
        state_files.write_state(self._folder / name, state)
        return name

    def _linked(self) -> set[str]:
        links = (self._folder / 'best', self._folder / 'last')
        return {os.readlink(link) for link in links if link.is_symlink()}

    def _link(self, link: str, name: str) -> None:
        """Point the link `best` or `last` to the checkpoint `name`, atomically."""
        replace_link(self._folder / link, name)

    def _prune(self) -> None:
        """Remove checkpoints without a reference, and the segments that only these checkpoints need."""
        folder, keep = self._folder, self._run.options.keep
        staying = sorted(path.name for path in folder.glob(f'{STEP_PREFIX}-*'))
        # a run that was resumed from an earlier checkpoint keeps later ones until it reaches their steps
        later = {name for name in staying if state_files.steps_in_name(name) > self.saved_steps}
        staying = [name for name in staying if name not in later]
        needed = self._linked() | later | set(staying[-(keep or len(staying)) :])
        known = self._records
        self._records = {name: known.get(name) or state_files.read_record_or_empty(folder / name) for name in needed}
        records = [*self._records.values()]
        # resuming from a checkpoint needs its best weights, too
        needed |= {record.get('best', '') for record in records}
        for path in folder.iterdir():
            is_own = path.name.partition('-')[0] in (STEP_PREFIX, BEST_PREFIX, LAST_PREFIX) and not path.is_symlink()
            if is_own and path.name not in needed:
                state_files.remove_checkpoint(path)
        for name in replay_buffers(self._run.agent):
            key = replay_key(name)
            self.segments.substore(name).prune(record[key] for record in records if record.get(key))

    # files

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.save_error(error) from error

    def save_error(self, error: OSError) -> SaveError:
        """Return an error that names the file that cannot be written, and the remedy."""
        state_note = 'the last checkpoint is complete: ' if self.saved_steps >= 0 else ''
        next_step = f'resume with xagents train --resume {self.path}' if (self.path / CONFIG).is_file() else 'try again'
        remedy = 'move it away' if isinstance(error, FileExistsError | NotADirectoryError) else 'free disk space'
        return SaveError(f'{write_problem(error, self.path)}; {state_note}{remedy} and {next_step}')


def copy_run(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a run directory that no process uses. A resumed copy continues exactly as the original run would.

    Segments of replay buffers are written once, so they are hard-linked if possible; other files are copied.

    Args:
        source: the run directory.
        target: the new directory; an existing one, from a copy that was killed, is replaced.

    Raises:
        OSError: if a file cannot be copied.
    """
    shutil.rmtree(target, ignore_errors=True)
    failures: list[OSError] = []

    def copy(file: str, to: str) -> None:
        if Path(file).parent.name == REPLAY_DIRECTORY:
            with contextlib.suppress(OSError):  # another file system, or one without links
                return os.link(file, to)
        try:
            with name_file_in_errors(to):
                shutil.copy2(file, to)
        except OSError as error:
            failures.append(error)
            raise

    try:
        shutil.copytree(source, target, symlinks=True, copy_function=copy)
    except shutil.Error as error:  # a list of texts
        raise next(iter(failures), error) from None


def _provenance(run: RunProtocol, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the section `about`: command, time and versions of the start and of each resume."""
    if before is None:
        return {'command': run.command, 'started': _now(), 'versions': versions()}
    resumed = {'command': run.command, 'time': _now(), 'step': run.progress.context.steps, 'versions': versions()}
    return {**before, 'resumed': [*before.get('resumed', ()), resumed]}


def _unused_name(folder: Path, name: str) -> str:
    """Return `name`, or `name` with a number if it is in use."""
    names = itertools.chain([name], (f'{name}-{n}' for n in itertools.count(2)))
    return next(n for n in names if not (folder / n).exists())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec='seconds')
