"""Where metrics go besides the console: TensorBoard event files and Weights & Biases.

A monitor takes flat dicts of metrics: `write(step, {'loss/policy': 0.1, …})`, and `close()` at the end.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from xagents.logs.wandb_log import cut_offline_log
from xagents.system.files import replacing
from xagents.system.paths import check_folder

__all__ = ['Monitor', 'TensorBoardMonitor', 'WandbMonitor', 'check_wandb']

FLUSH_SECONDS = 2.0
"""Longest time that metrics wait in memory before TensorBoard can see them, as long as more keep coming."""
WANDB_FLUSH_SECONDS = 1.0
"""How often W&B writes out what is logged offline: a kill loses what came since."""
QUEUE_SIZE = 1000
"""How many writes may wait for W&B before `write` waits, too."""

_file_numbers = itertools.count()


class Monitor(Protocol):
    """What takes the metrics of a run."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""

    def close(self) -> None:
        """Write what is left and let go of everything. Closing again does nothing."""


class TensorBoardMonitor:
    """Writes scalars to a TensorBoard event file, without TensorFlow."""

    def __init__(self, folder: str | os.PathLike[str], purge_step: int | None = None) -> None:
        """Open a new event file.

        Args:
            folder: Where TensorBoard's `--logdir` points; made when it does not exist.
            purge_step: For a resumed run: TensorBoard hides what earlier files hold from this step on. It takes the
                files in the order of their names, so this one's name comes last whatever the clock says.

        Raises:
            ValueError: If `folder` is an existing file, or tensorboard is not installed.
        """
        _require('tensorboard', '--tensorboard', 'pip install tensorboard')
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        folder = Path(folder)
        check_folder('tensorboard', folder)
        folder.mkdir(parents=True, exist_ok=True)
        seconds = max(int(time.time()), _newest(folder) + 1)
        name = f'events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}'
        self.path = folder / name
        self._event = Event
        self._file = open(self.path, 'xb')  # noqa: SIM115 (kept open between writes)
        self._write_event(Event(wall_time=time.time(), file_version='brain.Event:2'))
        if purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            for _ in range(2):  # the first start of all hides nothing, and earlier files have none
                self._write_event(Event(wall_time=time.time(), step=purge_step, session_log=start))
        self.flush()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars; values that are not finite are left out, TensorBoard cannot draw them."""
        now = time.time()
        event = self._event(wall_time=now, step=int(step))
        add = event.summary.value.add
        for name, value in metrics.items():
            if isfinite(value):
                add(tag=name, simple_value=value)
        self._write_event(event)
        if now - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Let TensorBoard see everything written so far."""
        if not self._file.closed:
            self._file.flush()
            self._flushed = time.time()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._file.close()

    def _write_event(self, event: Any) -> None:
        data = event.SerializeToString()
        length = struct.pack('<Q', len(data))
        self._file.write(length + _masked_crc32c(length) + data + _masked_crc32c(data))


def _newest(folder: Path) -> int:
    """Return the largest number of seconds in the names of a folder's event files, 0 where there are none."""
    seconds = (path.name.split('.')[3] for path in folder.glob('events.out.tfevents.*'))
    return max((int(text) for text in seconds if text.isdigit()), default=0)


class WandbMonitor:
    """Logs metrics to a W&B run, in a thread: W&B takes up to a millisecond for what costs the caller microseconds."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        project: str = 'xagents',
        folder: str | os.PathLike[str] | None = None,
        memory: str | os.PathLike[str] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        """Start a run, quietly and without ever asking for input.

        Args:
            name: The run's name.
            config: The options of the run.
            project: The W&B project.
            folder: W&B keeps its files in `<folder>/wandb`; the working directory (or WANDB_DIR) when not given.
            memory: A file that remembers which W&B run it was: where it exists, that run goes on.
            resumed_at: The step of the checkpoint that a run goes on from. What W&B holds beyond it is cut where it
                was logged offline and not synced yet. What W&B's server has, or a synced file, cannot be taken back: it
                stays, and logging goes on behind it.

        Raises:
            ValueError: As `check_wandb`.
        """
        check_wandb()
        import wandb

        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        known = _read_memory(memory)
        self._known_step = -1  # what W&B has up to here is not logged again
        if resumed_at is not None:
            self._known_step = max([resumed_at, *(cut_offline_log(path, resumed_at) for path in known['files'])])
        self.run: Any = wandb.init(
            project=project,
            name=name,
            config=dict(config),
            dir=None if folder is None else str(folder),
            id=known['id'],
            resume='allow' if known['id'] else None,
            settings=_wandb_settings(),
        )
        if resumed_at is not None:
            self._known_step = max(self._known_step, getattr(self.run, 'starting_step', 0) - 1)
        if memory is not None:
            _write_memory(memory, self.run, known['files'])
        self._error: BaseException | None = None
        self._waiting: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(QUEUE_SIZE)
        self._thread: threading.Thread | None = threading.Thread(target=self._log, name='wandb', daemon=True)
        self._thread.start()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics at a step; W&B warns about and drops a step that lies before the last one.

        Raises:
            RuntimeError: If logging an earlier step failed.
        """
        self._check()
        if step > self._known_step:
            self._waiting.put((int(step), dict(metrics)))

    def close(self) -> None:
        """Log what waits and finish the run. Closing again does nothing.

        Raises:
            RuntimeError: If logging failed.
        """
        if self._thread is None:
            return
        self._waiting.put(None)
        self._thread.join()
        self._thread = None
        self.run.finish(exit_code=0 if self._error is None else 1)
        self._check()

    def _log(self) -> None:
        # After an error the queue is still emptied, so that nobody waits for room in it.
        while (item := self._waiting.get()) is not None:
            if self._error is None:
                step, metrics = item
                try:
                    self.run.log(metrics, step=step, commit=True)  # not only with the next one
                except BaseException as error:
                    self._error = error

    def _check(self) -> None:
        if self._error is not None:
            raise RuntimeError(f'W&B could not log a metric: {self._error}') from self._error


def _wandb_settings() -> Any:
    import wandb

    options: dict[str, Any] = {'silent': True, 'console': 'off', 'disable_git': True, 'save_code': False}
    flushing = 'x_transaction_log_flush_interval'  # newer versions have it
    if flushing in getattr(wandb.Settings, 'model_fields', {}):
        options[flushing] = WANDB_FLUSH_SECONDS
    return wandb.Settings(**options)


def _read_memory(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return a W&B run's id, None where there is none, and its files of what was logged offline."""
    try:
        known = json.loads(Path(path).read_bytes()) if path is not None else {}
        return {'id': str(known['id']), 'files': [str(file) for file in known['files']]}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {'id': None, 'files': []}


def _write_memory(path: str | os.PathLike[str], run: Any, files: list[str]) -> None:
    file = str(run.settings.sync_file)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({'id': run.id, 'files': [*files, file]}))


def check_wandb() -> None:
    """Check that W&B can log: that it is installed, and that there is a login or an offline mode.

    Asks neither the network nor the user.

    Raises:
        ValueError: If it cannot; the message says what to do.
    """
    _require('wandb', '--monitor-session', 'pip install "xagents[wandb]"')
    if os.environ.get('WANDB_MODE', '').lower() in ('offline', 'disabled', 'dryrun'):
        return
    how = 'run `wandb login` once, or set WANDB_MODE=offline'
    from wandb.errors import Error as WandbError

    try:
        # wandb.login() would verify a key over the network; these two only look at what is configured here.
        from wandb.sdk import wandb_setup
        from wandb.sdk.lib import wbauth

        settings = wandb_setup.singleton().settings
        if settings.mode in ('offline', 'disabled'):
            return
        login: Any = wbauth.authenticate_session(
            host=settings.base_url, source='xagents', prompt=False, update_session=False
        )
    except WandbError as error:
        raise ValueError(f'--monitor-session: the W&B login is not usable ({_one_line(error)}): {how}') from error
    except (ImportError, AttributeError, TypeError):  # another version of wandb: only the variable can be trusted
        login = os.environ.get('WANDB_API_KEY')
        how = 'set WANDB_API_KEY or WANDB_MODE=offline'
    if not login:
        raise ValueError(f'--monitor-session needs a W&B login: {how}')


def _require(module: str, flag: str, how: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'{flag} needs {module}, which is not installed: {how}')


def _one_line(error: BaseException) -> str:
    return ' '.join(str(error).split())


# Records of an event file carry CRC-32C checksums, which Python's own libraries do not have; tensorboard's, a loop over
# bytes, takes 0.4 ms for 20 scalars. A CRC is linear: the checksum of a block is the XOR of what each byte contributes
# by its distance from the block's end, and those contributions are looked up at once.
_BLOCK = 1024
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed (RFC 3720, B.4)


@cache
def _contributions() -> tuple[np.ndarray, np.ndarray]:
    """What a byte contributes to the CRC-32C by its distance from the end, farthest first.

    Returns:
        The contributions, flat [_BLOCK * 256] uint32, and where those of each distance begin, [_BLOCK].
    """
    nearest = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        nearest = np.where(nearest & 1, (nearest >> 1) ^ _POLYNOMIAL, nearest >> 1).astype(np.uint32)
    table = np.empty((_BLOCK, 256), np.uint32)
    table[-1] = nearest
    for row in range(_BLOCK - 2, -1, -1):  # one zero byte more behind it
        table[row] = nearest[table[row + 1] & 0xFF] ^ (table[row + 1] >> 8)
    return table.ravel(), np.arange(_BLOCK) * 256


def _crc32c(data: bytes) -> int:
    table, begins = _contributions()
    state = 0xFFFFFFFF
    for start in range(0, len(data), _BLOCK):
        # The state so far acts like four bytes XORed onto the block's first ones; a shorter block shifts out the rest.
        n_bytes = min(4, len(data) - start)
        head = int.from_bytes(data[start : start + n_bytes], 'little') ^ (state & ((1 << 8 * n_bytes) - 1))
        rest = data[start + n_bytes : start + _BLOCK]
        block = np.frombuffer(head.to_bytes(n_bytes, 'little') + rest, np.uint8)
        contributions = table.take(begins[_BLOCK - len(block) :] + block)
        state = (state >> (8 * n_bytes)) ^ int(np.bitwise_xor.reduce(contributions))
    return state ^ 0xFFFFFFFF


def _masked_crc32c(data: bytes) -> bytes:
    """The CRC-32C as TFRecord files store it: rotated right by 15 bits, plus a constant."""
    crc = _crc32c(data)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, 'little')
