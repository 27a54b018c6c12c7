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

from xagents.config.configuration import to_yaml
from xagents.pipeline.context import Context
from xagents.replay.segments import Segments
from xagents.runs.capture import whole_state
from xagents.runs.checkpoints import (
    BEST,
    NEWEST,
    STAYING,
    State,
    newest_whole,
    read_record,
    record_if_sound,
    remove,
    steps_of,
    write_state,
)
from xagents.runs.learner import buffers_of, place_of
from xagents.runs.run import Run
from xagents.runs.status import SaveError, read_status, take_lock
from xagents.system.arrays import prefixed
from xagents.system.files import replace_link, replacing
from xagents.system.names import CHECKPOINTS, CONFIG, STATUS
from xagents.system.versions import versions

SEGMENTS = 'replay'


class RunFolder:
    """Keeps an agent's runs in a folder.

    Args:
        path: of the folder; made when the run begins.
        loaded: name of the checkpoint that the agent goes on from; '' of a new run, None of one that saved nothing.
        about: what its settings say of who made it; None of a new one.
    """

    _run: Run  # the present one

    def __init__(self, path: str | os.PathLike[str], loaded: str | None = '', about: dict[str, Any] | None = None):
        self.path, self.about = Path(path), about
        self.segments = Segments(self.path / SEGMENTS)
        self.saved_steps = -1
        self.best_name = ''
        self._best: State | None = None
        self._records: dict[str, dict[str, Any]] = {}
        self._loaded = loaded
        self._lock: IO[bytes] | None = None

    # the run's beginning and end

    def begin(self, run: Run) -> None:
        """Take the folder for a run, write its settings, and say that it is going on.

        Raises:
            SaveError: where another process is at it, or it cannot be written.
        """
        self._run, context = run, run.progress.context
        try:
            with self._writing():
                (self.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
                self._lock = self._lock or take_lock(self.path)
                self._check_not_gone_on()
                self._tidy()
                self.about = _about(run, self.about)
                with replacing(self.path / CONFIG) as temporary:
                    temporary.write_text(to_yaml(run.agent.id, run.record(), self.about))
                self.write_status('running')
            if self.saved_steps < 0 and context.iteration:  # what it begins with is kept nowhere else
                self.save(context)
        except BaseException:
            self.let_go()
            raise

    def _check_not_gone_on(self) -> None:
        """Check, once nobody else can write, that the run is still where it was loaded."""
        if self._loaded == '':
            return
        last, newest = self.path / CHECKPOINTS / 'last', newest_whole(self.path / CHECKPOINTS)
        present = newest.name if newest else None
        if last.is_dir():
            present = os.readlink(last) if last.is_symlink() else last.name
        if present != self._loaded:
            raise SaveError(f'{self.path}: the run has gone on since it was loaded: resume it again')
        self._loaded = ''

    def _tidy(self) -> None:
        """Remove what a killed process left half made, and link again what was copied by following links."""
        folder = self.path / CHECKPOINTS
        for stale in folder.glob('.*'):
            shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()
        for link, kind in (('best', BEST), ('last', NEWEST)):
            if (folder / link).is_dir() and not (folder / link).is_symlink():
                name = _free(folder, f'{kind}-{read_record(folder / link)["counters"]["steps"]:012d}')
                os.rename(folder / link, folder / name)
                self._link(link, name)
        newest = newest_whole(folder)
        if self.saved_steps >= 0 and newest is not None and not (folder / 'last').is_dir():
            self._link('last', newest.name)

    def resume(self, steps: int, best_name: str, best: State | None) -> None:
        """Go on from the last checkpoint: its steps, and the best weights that it named."""
        self.best_name, self._best, self.saved_steps = best_name, best, steps

    def ended(self, state: str, why: str) -> None:
        """Say that the run has ended, and let go of the folder."""
        with contextlib.suppress(SaveError):  # what is kept is whole; a full disk was said already
            self.write_status(state, why)
        self.let_go()

    def is_finished(self) -> bool:
        """Return whether the run's status says that it is finished; a kill at its very end leaves that unsaid."""
        try:
            return read_status(self.path)['state'] == 'finished'
        except ValueError:
            return False

    def let_go(self) -> None:
        """Let other processes have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_status(self, state: str, why: str = '') -> None:
        """Write how the run stands, for `xagents runs` and machines."""
        ctx = self._run.progress.context
        numbers = {'steps': ctx.steps, 'games': ctx.games, 'seconds': ctx.seconds}
        means = {'mean_reward': _finite(ctx.mean_reward), 'best_reward': _finite(ctx.best_reward)}
        process = {'pid': os.getpid(), 'host': socket.gethostname(), 'updated': _now()}
        with self._writing(), replacing(self.path / STATUS) as temporary:
            temporary.write_text(json.dumps({'state': state, 'why': why, **numbers, **means, **process}))

    # what `saving.checkpoint` asks for; `WeightFiles` has the same

    def due(self, ctx: Context) -> bool:
        """Return whether the first checkpoint is to be written, or one that stays."""
        return self.saved_steps < 0 or self._stays(ctx)

    def _stays(self, ctx: Context) -> bool:
        frequency = self._run.options.checkpoint_frequency
        return frequency is not None and ctx.steps // frequency > max(self.saved_steps, 0) // frequency

    def save(self, ctx: Context) -> None:
        """Write a whole checkpoint.

        Raises:
            SaveError: where the folder cannot be written; the last checkpoint stays whole.
        """
        agent, pending = self._run.agent, self._run.pending
        if self._run.overlap is not None and pending is None:
            return  # collecting has failed, as the next iteration will say: the last whole checkpoint stays
        with self._writing():
            for writer in self._run.writers:
                writer.flush()
            state = whole_state(agent, agent.collector, pending)
            # a data set stays where it is
            for name, buffer in ({} if self._run.options.dataset else buffers_of(agent)).items():
                arrays, state.record[place_of(name)] = self.segments.of(name).save(buffer)
                state.arrays |= prefixed(place_of(name), arrays)
            self.save_best()
            state.record['best'] = self.best_name
            name = self._write(STAYING if self._stays(ctx) else NEWEST, state)
            self._link('last', name)
            self.saved_steps = ctx.steps
            self._prune()
            self.write_status('running')

    def save_best(self) -> None:
        """Write the best weights, where there are new ones."""
        best = self._run.progress.best
        if best is not None and best is not self._best:
            with self._writing():
                self.best_name, self._best = self._write(BEST, best), best
                self._link('best', self.best_name)

    def end(self, ctx: Context) -> None:
        """Write the last checkpoint, where the run has gone on since."""
        if ctx.steps != self.saved_steps or self._run.progress.best is not self._best:
            self.save(ctx)
        if self.best_name:
            with self._writing():
                self._link('best', self.best_name)

    def choose(self, state: State) -> None:
        """Let other weights count as the best, for those who load them; a run that is resumed knows its own."""
        with self._writing():
            self._link('best', self._write(BEST, state))
            self._prune()

    def _write(self, kind: str, state: State) -> str:
        """Write a checkpoint under a new name, which is returned."""
        folder = self.path / CHECKPOINTS
        name = f'{kind}-{state.record["counters"]["steps"]:012d}'
        if kind == STAYING and name not in self._linked() and (folder / name).exists():
            remove(folder / name)  # by a process that was killed before it counted, or of a run that went back
        name = _free(folder, name)
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
        staying = sorted(path.name for path in folder.glob(f'{STAYING}-*'))
        # a run that went back to an earlier one leaves the later ones alone until it gets there
        later = {name for name in staying if steps_of(name) > self.saved_steps}
        staying = [name for name in staying if name not in later]
        needed = self._linked() | later | set(staying[-(keep or len(staying)) :])
        self._records |= {name: record_if_sound(folder / name) for name in needed - self._records.keys()}
        self._records = {name: self._records[name] for name in needed}
        records = [*self._records.values()]
        needed |= {record.get('best', '') for record in records}  # what is resumed from one needs its best, too
        for path in folder.iterdir():
            if path.is_symlink() or path.name in needed or path.name.partition('-')[0] not in (STAYING, BEST, NEWEST):
                continue
            remove(path)
        for name in buffers_of(self._run.agent):
            place = place_of(name)
            self.segments.of(name).prune(record[place] for record in records if record.get(place))

    # files

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.unwritable(error) from error

    def unwritable(self, error: OSError) -> SaveError:
        """Return what to say of a file that cannot be written: its name, and what to do."""
        name = error.filename if isinstance(error.filename, str) else self.path
        kept = 'the last checkpoint is whole: ' if self.saved_steps >= 0 else ''
        again = f'go on with xagents train --resume {self.path}' if (self.path / CONFIG).is_file() else 'try again'
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        remedy = 'move it away' if in_the_way else 'make room'
        return SaveError(f'{name}: cannot be written ({error.strerror or error}); {kept}{remedy} and {again}')


def _about(run: Run, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what made the run: the command that began it, and those that went on."""
    if before is None:
        return {'command': run.command, 'started': _now(), 'versions': versions()}
    resumed = {'command': run.command, 'time': _now(), 'step': run.progress.context.steps, 'versions': versions()}
    return {**before, 'resumed': [*before.get('resumed', ()), resumed]}


def _free(folder: Path, name: str) -> str:
    """Return `name`, or one like it that nothing has."""
    names = itertools.chain([name], (f'{name}-{n}' for n in itertools.count(2)))
    return next(n for n in names if not (folder / n).exists())


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec='seconds')
