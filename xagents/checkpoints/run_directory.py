"""The folder of a run: settings, status and whole checkpoints, of which a kill at any instant leaves old or new ones.

A checkpoint is a folder with a name of its own, made whole and then renamed in; `best` and `last` are links that are
replaced. `last` is the whole state, and names the best weights and the segments of the replay buffer it belongs with.
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

import numpy as np

from xagents.checkpoints.agent_state import capture_run_state
from xagents.checkpoints.protocols import RunProtocol, replay_buffers, replay_key
from xagents.checkpoints.state_files import (
    BEST_PREFIX,
    LAST_PREFIX,
    STEP_PREFIX,
    AgentState,
    newest_complete,
    read_record,
    read_record_or_empty,
    remove_checkpoint,
    steps_in_name,
    write_state,
)
from xagents.checkpoints.status import SaveError, read_status, take_lock
from xagents.config.configuration import to_yaml
from xagents.pipeline.context import Context
from xagents.replay.segments import SegmentStore
from xagents.system.arrays import add_prefix
from xagents.system.file_names import CHECKPOINTS, CONFIG, STATUS
from xagents.system.files import atomic_write, replace_link
from xagents.system.versions import versions

REPLAY_DIRECTORY = 'replay'


class RunDirectory:
    """Keeps an agent's runs in a folder.

    Args:
        path: of the folder; made when the run begins.
        loaded: name of the checkpoint that the agent goes on from; '' of a new run, None of one that saved nothing.
        about: what its settings say of who made it; None of a new one.
    """

    _run: RunProtocol  # the present one

    def __init__(self, path: str | os.PathLike[str], loaded: str | None = '', about: dict[str, Any] | None = None):
        self.path, self.about = Path(path), about
        self.segments = SegmentStore(self.path / REPLAY_DIRECTORY)
        self.saved_steps = -1
        self.best_name = ''
        self._best: AgentState | None = None
        self._records: dict[str, dict[str, Any]] = {}
        self._loaded = loaded
        self._lock: IO[bytes] | None = None

    # the run's beginning and end

    def begin(self, run: RunProtocol) -> None:
        """Take the folder for a run, write its settings, and say that it is going on.

        Raises:
            SaveError: where another process is at it, or it cannot be written.
        """
        self._run, context = run, run.progress.context
        try:
            with self._writing():
                (self.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
                self._lock = self._lock or take_lock(self.path)
                self._check_unchanged()
                self._repair()
                self.about = _provenance(run, self.about)
                with atomic_write(self.path / CONFIG) as temporary:
                    temporary.write_text(to_yaml(run.agent.id, run.all_options(), self.about))
                self.write_status('running')
            if self.saved_steps < 0 and context.iteration:  # what it begins with is kept nowhere else
                self.save(context)
        except BaseException:
            self.release()
            raise

    def _check_unchanged(self) -> None:
        """Check, once nobody else can write, that the run is still where it was loaded."""
        if self._loaded == '':
            return
        last, newest = self.path / CHECKPOINTS / 'last', newest_complete(self.path / CHECKPOINTS)
        present = newest.name if newest else None
        if last.is_dir():
            present = os.readlink(last) if last.is_symlink() else last.name
        if present != self._loaded:
            raise SaveError(f'{self.path}: the run has gone on since it was loaded: resume it again')
        self._loaded = ''

    def _repair(self) -> None:
        """Remove what a killed process left half made, and link again what was copied by following links."""
        folder = self.path / CHECKPOINTS
        for stale in folder.glob('.*'):
            shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()
        for link, kind in (('best', BEST_PREFIX), ('last', LAST_PREFIX)):
            if (folder / link).is_dir() and not (folder / link).is_symlink():
                name = _unused_name(folder, f'{kind}-{read_record(folder / link)["counters"]["steps"]:012d}')
                os.rename(folder / link, folder / name)
                self._link(link, name)
        newest = newest_complete(folder)
        if self.saved_steps >= 0 and newest is not None and not (folder / 'last').is_dir():
            self._link('last', newest.name)

    def resume(self, steps: int, best_name: str, best: AgentState | None) -> None:
        """Go on from the last checkpoint: its steps, and the best weights that it named."""
        self.best_name, self._best, self.saved_steps = best_name, best, steps

    def finish(self, state: str, why: str) -> None:
        """Say that the run has ended, and let go of the folder."""
        with contextlib.suppress(SaveError):  # what is kept is whole; a full disk was said already
            self.write_status(state, why)
        self.release()

    def is_finished(self) -> bool:
        """Return whether the run's status says that it is finished; a kill at its very end leaves that unsaid."""
        try:
            return read_status(self.path)['state'] == 'finished'
        except ValueError:
            return False

    def release(self) -> None:
        """Let other processes have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_status(self, state: str, why: str = '') -> None:
        """Write how the run stands, for `xagents runs` and machines."""
        ctx = self._run.progress.context
        counts = {'steps': ctx.steps, 'games': ctx.games, 'seconds': ctx.seconds}
        means = {'mean_reward': _finite_or_none(ctx.mean_reward), 'best_reward': _finite_or_none(ctx.best_reward)}
        process = {'pid': os.getpid(), 'host': socket.gethostname(), 'updated': _now()}
        with self._writing(), atomic_write(self.path / STATUS) as temporary:
            temporary.write_text(json.dumps({'state': state, 'why': why, **counts, **means, **process}))

    # what `saving.checkpoint` asks for; `WeightSaver` has the same

    def is_due(self, ctx: Context) -> bool:
        """Return whether the first checkpoint is to be written, or one that stays."""
        return self.saved_steps < 0 or self._is_permanent(ctx)

    def _is_permanent(self, ctx: Context) -> bool:
        frequency = self._run.options.checkpoint_frequency
        return frequency is not None and ctx.steps // frequency > max(self.saved_steps, 0) // frequency

    def save(self, ctx: Context) -> None:
        """Write a whole checkpoint.

        Raises:
            SaveError: where the folder cannot be written; the last checkpoint stays whole.
        """
        agent, in_flight = self._run.agent, self._run.in_flight
        if self._run.overlap is not None and in_flight is None:
            return  # collecting has failed, as the next iteration will say: the last whole checkpoint stays
        with self._writing():
            for writer in self._run.writers:
                writer.flush()
            state = capture_run_state(agent, agent.collector, in_flight)
            # a data set stays where it is
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
        """Write the best weights, where there are new ones."""
        best = self._run.progress.best
        if best is not None and best is not self._best:
            with self._writing():
                self.best_name, self._best = self._write(BEST_PREFIX, best), best
                self._link('best', self.best_name)

    def end(self, ctx: Context) -> None:
        """Write the last checkpoint, where the run has gone on since."""
        if ctx.steps != self.saved_steps or self._run.progress.best is not self._best:
            self.save(ctx)
        if self.best_name:
            with self._writing():
                self._link('best', self.best_name)

    def set_best(self, state: AgentState) -> None:
        """Let other weights count as the best, for those who load them; a run that is resumed knows its own."""
        with self._writing():
            self._link('best', self._write(BEST_PREFIX, state))
            self._prune()

    def _write(self, kind: str, state: AgentState) -> str:
        """Write a checkpoint under a new name, which is returned."""
        folder = self.path / CHECKPOINTS
        name = f'{kind}-{state.record["counters"]["steps"]:012d}'
        if kind == STEP_PREFIX and name not in self._linked() and (folder / name).exists():
            remove_checkpoint(
                folder / name
            )  # by a process that was killed before it counted, or of a run that went back
        name = _unused_name(folder, name)
        write_state(folder / name, state)
        return name

    def _linked(self) -> set[str]:
        folder = self.path / CHECKPOINTS
        return {os.readlink(folder / link) for link in ('best', 'last') if (folder / link).is_symlink()}

    def _link(self, link: str, name: str) -> None:
        """Let `best` or `last` be the checkpoint `name`, in one step."""
        replace_link(self.path / CHECKPOINTS / link, name)

    def _prune(self) -> None:
        """Remove checkpoints that nothing names any more, and the segments that only they needed."""
        folder, keep = self.path / CHECKPOINTS, self._run.options.keep
        staying = sorted(path.name for path in folder.glob(f'{STEP_PREFIX}-*'))
        # a run that went back to an earlier one leaves the later ones alone until it gets there
        later = {name for name in staying if steps_in_name(name) > self.saved_steps}
        staying = [name for name in staying if name not in later]
        needed = self._linked() | later | set(staying[-(keep or len(staying)) :])
        self._records |= {name: read_record_or_empty(folder / name) for name in needed - self._records.keys()}
        self._records = {name: self._records[name] for name in needed}
        records = [*self._records.values()]
        needed |= {record.get('best', '') for record in records}  # what is resumed from one needs its best, too
        for path in folder.iterdir():
            if (
                path.is_symlink()
                or path.name in needed
                or path.name.partition('-')[0] not in (STEP_PREFIX, BEST_PREFIX, LAST_PREFIX)
            ):
                continue
            remove_checkpoint(path)
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
        """Return what to say of a file that cannot be written: its name, and what to do."""
        name = error.filename if isinstance(error.filename, str) else self.path
        state_note = 'the last checkpoint is whole: ' if self.saved_steps >= 0 else ''
        next_step = f'go on with xagents train --resume {self.path}' if (self.path / CONFIG).is_file() else 'try again'
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        remedy = 'move it away' if in_the_way else 'free disk space'
        return SaveError(f'{name}: cannot be written ({error.strerror or error}); {state_note}{remedy} and {next_step}')


def _provenance(run: RunProtocol, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what made the run: the command that began it, and those that went on."""
    if before is None:
        return {'command': run.command, 'started': _now(), 'versions': versions()}
    resumed = {'command': run.command, 'time': _now(), 'step': run.progress.context.steps, 'versions': versions()}
    return {**before, 'resumed': [*before.get('resumed', ()), resumed]}


def _unused_name(folder: Path, name: str) -> str:
    """Return `name`, or one like it that nothing has."""
    names = itertools.chain([name], (f'{name}-{n}' for n in itertools.count(2)))
    return next(n for n in names if not (folder / n).exists())


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec='seconds')
