"""The folder of a run: settings, status and whole checkpoints, of which a kill at any instant leaves old or new ones.

A checkpoint is a folder with a name of its own, made whole and then renamed in; `best` and `last` are links that are
replaced. `last` is the whole state, and names the best weights and the segments of the replay buffer it belongs with.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from xagents import __version__
from xagents.configuration import CONFIG, to_yaml
from xagents.history import replacing
from xagents.segments import Segments

if TYPE_CHECKING:
    from xagents.base import BaseAgent
    from xagents.pipeline import Context
    from xagents.state import State

STATUS, CHECKPOINTS, SEGMENTS, LOCK = 'status.json', 'checkpoints', 'replay', '.lock'
ARRAYS, RECORD = 'state.npz', 'state.json'
LIBRARIES = ('tensorflow', 'keras', 'gymnasium', 'numpy')
# what of a checkpoint's name says how long it stays: those of `--checkpoint-frequency`, of the best, the newest
STAYING, BEST, NEWEST = 'step', 'best', 'last'


class SaveError(RuntimeError):
    """A run folder cannot be written."""


class RunFolder:
    """Keeps a run in a folder; a `Keeper` of `saving.checkpoint`.

    Args:
        path: of the folder; made when the run begins.
        agent: whose run it is.
    """

    def __init__(self, path: str | os.PathLike[str], agent: BaseAgent):
        self.path, self.agent = Path(path), agent
        self.segments = Segments(self.path / SEGMENTS)
        self.saved_steps = -1
        self.best_name = ''
        self._best: State | None = None
        self._records: dict[str, dict[str, Any]] = {}
        self.about: dict[str, Any] | None = None  # what its settings say of who made it; None of a new one
        self._lock: IO[bytes] | None = None

    # the run's beginning and end

    def begin(self) -> None:
        """Take the folder, write its settings, and say that the run is going on.

        Raises:
            SaveError: where another process is at it, or it cannot be written.
        """
        with self._writing():
            (self.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            self._take_lock()
            for stale in (self.path / CHECKPOINTS).glob('.*'):
                shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()
            self.about = _about(self.agent, self.about)
            with replacing(self.path / CONFIG) as temporary:
                temporary.write_text(to_yaml(self.agent.id, self.agent.run_record(), self.about))
            self.write_status('running')
        if self.saved_steps < 0 and self.agent.context.iteration:  # what it begins with is kept nowhere else
            self.save(self.agent.context)

    def resume(self, best_name: str, best: State | None) -> None:
        """Go on with the best weights that the last checkpoint named."""
        self.best_name, self._best = best_name, best
        self.saved_steps = self.agent.context.steps

    def ended(self, state: str, why: str) -> None:
        """Say that the run has ended, and let go of the folder."""
        with contextlib.suppress(SaveError):  # what is kept is whole; a full disk was said already
            self.write_status(state, why)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_status(self, state: str, why: str = '') -> None:
        """Write how the run stands, for `xagents runs` and machines."""
        ctx = self.agent.context
        numbers = {'steps': ctx.steps, 'games': ctx.games, 'seconds': ctx.seconds}
        means = {'mean_reward': _finite(ctx.mean_reward), 'best_reward': _finite(ctx.best_reward)}
        process = {'pid': os.getpid(), 'host': socket.gethostname(), 'updated': _now()}
        with self._writing(), replacing(self.path / STATUS) as temporary:
            temporary.write_text(json.dumps({'state': state, 'why': why, **numbers, **means, **process}))

    # a keeper of checkpoints

    def due(self, ctx: Context) -> bool:
        """Return whether the first checkpoint is to be written, or one that stays."""
        return self.saved_steps < 0 or self._stays(ctx)

    def _stays(self, ctx: Context) -> bool:
        frequency = self.agent.run.checkpoint_frequency
        return frequency is not None and ctx.steps // frequency > max(self.saved_steps, 0) // frequency

    def save(self, ctx: Context) -> None:
        """Write a whole checkpoint.

        Raises:
            SaveError: where the folder cannot be written; the last checkpoint stays whole.
        """
        agent = self.agent
        with self._writing():
            for writer in agent.writers:
                writer.flush()
            state = agent.whole_state()
            buffer = getattr(agent, 'buffer', None)
            if buffer is not None:
                arrays, state.record['replay'] = self.segments.save(buffer)
                state.arrays |= {f'replay/{name}': array for name, array in arrays.items()}
            self.save_best()
            state.record['best'] = self.best_name
            name = self._write(STAYING if self._stays(ctx) else NEWEST, state)
            self._link('last', name)
            self.saved_steps = ctx.steps
            self._prune()
            self.write_status('running')

    def save_best(self) -> None:
        """Write the best weights, where there are new ones."""
        if self.agent.best is not None and self.agent.best is not self._best:
            with self._writing():
                self.best_name, self._best = self._write(BEST, self.agent.best), self.agent.best
                self._link('best', self.best_name)

    def end(self, ctx: Context) -> None:
        """Write the last checkpoint, where the run has gone on since."""
        if ctx.steps != self.saved_steps or self.agent.best is not self._best:
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
        name = _free(folder, f'{kind}-{state.record["counters"]["steps"]:012d}')
        write_state(folder / name, state)
        return name

    def _link(self, link: str, name: str) -> None:
        """Let `best` or `last` be the checkpoint `name`, in one step."""
        folder = self.path / CHECKPOINTS
        temporary = folder / f'.{link}'
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name, target_is_directory=True)
        os.replace(temporary, folder / link)
        _sync(folder)

    def _prune(self) -> None:
        """Remove checkpoints that nothing names any more, and the segments that only they needed."""
        folder, keep = self.path / CHECKPOINTS, self.agent.run.keep
        staying = sorted(path.name for path in folder.glob(f'{STAYING}-*'))
        needed = {os.readlink(folder / link) for link in ('best', 'last') if (folder / link).is_symlink()}
        needed |= set(staying[-(keep or len(staying)) :])
        self._records |= {name: read_record(folder / name) for name in needed - self._records.keys()}
        self._records = {name: self._records[name] for name in needed}
        records = [*self._records.values()]
        needed |= {record.get('best', '') for record in records}  # what is resumed from one needs its best, too
        for path in folder.iterdir():
            if path.is_symlink() or path.name in needed or path.name.partition('-')[0] not in (STAYING, BEST, NEWEST):
                continue
            gone = path.with_name(f'.{path.name}')  # a folder that is half removed must not look like a checkpoint
            os.rename(path, gone)
            shutil.rmtree(gone)
        self.segments.prune(record['replay'] for record in records if record.get('replay'))

    # files

    def _take_lock(self) -> None:
        """Let no second process write into the folder; what holds the lock dies with this process."""
        if self._lock is not None:
            return
        try:
            import fcntl
        except ImportError:  # not on this system
            return
        lock = open(self.path / LOCK, 'wb')  # noqa: SIM115 (held as long as the run goes on)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise SaveError(f'{self.path}: another process is running in this folder') from error
        self._lock = lock

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            name = error.filename if isinstance(error.filename, str) else self.path
            raise SaveError(
                f'{name}: cannot be written ({error.strerror or error}); the last checkpoint is whole: '
                f'make room and go on with xagents train --resume {self.path}'
            ) from error


def write_state(folder: Path, state: State) -> None:
    """Write a state as a folder that is there whole or not at all."""
    new = folder.with_name(f'.{folder.name}.new')
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    weights = {f'weights/{i}/{j}': array for i, model in enumerate(state.weights) for j, array in enumerate(model)}
    np.savez(new / ARRAYS, **weights, **state.arrays)  # type: ignore[arg-type]
    (new / RECORD).write_text(json.dumps(state.record, default=_scalar))
    for path in (new / ARRAYS, new / RECORD, new):
        _sync(path)
    os.rename(new, folder)
    _sync(folder.parent)


def read_state(folder: Path) -> State:
    """Read what `write_state` wrote.

    Raises:
        ValueError: in one line that names the file, where it is missing, torn or foreign.
    """
    from xagents.state import State

    record = read_record(folder)
    path = folder / ARRAYS
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        weights: list[list[np.ndarray]] = []
        while f'weights/{len(weights)}/0' in arrays:
            own = f'weights/{len(weights)}/'
            n = sum(name.startswith(own) for name in arrays)
            weights.append([arrays.pop(f'{own}{j}') for j in range(n)])
    except Exception as error:  # whatever NumPy and zip files raise about what they cannot read
        raise ValueError(_damaged(path, error)) from error
    return State(weights, arrays, record)


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a checkpoint, without its arrays.

    Raises:
        ValueError: in one line that names the file, where it is missing, torn or foreign.
    """
    path = folder / RECORD
    try:
        record = json.loads(path.read_text())
        if not {'agent', 'options', 'counters'} <= record.keys():
            raise ValueError('it is no checkpoint of xagents')
        return record
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    others = [p.name for p in sorted(path.parent.parent.glob('*-*')) if p.name != path.parent.resolve().name]
    hint = f'let checkpoints/last be a link to another one ({", ".join(others)})' if others else 'train anew'
    return ' '.join(f'{path} is damaged or not a checkpoint ({error}): {hint}'.split())


def _about(agent: BaseAgent, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what made the run: the command that began it, and those that went on."""
    versions = {'xagents': __version__, 'python': platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in LIBRARIES}
    if before is None:
        return {'command': agent.command, 'started': _now(), 'versions': versions}
    resumed = {'command': agent.command, 'time': _now(), 'step': agent.context.steps, 'versions': versions}
    return {**before, 'resumed': [*before.get('resumed', ()), resumed]}


def _free(folder: Path, name: str) -> str:
    """Return `name`, or one like it that nothing has."""
    others = (f'{name}-{n}' for n in range(2, 10**6))
    return next(n for n in (name, *others) if not (folder / n).exists()) if (folder / name).exists() else name


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f'a checkpoint takes numbers and texts, got {type(value).__name__}')


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec='seconds')


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
