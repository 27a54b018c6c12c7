"""The process of a worker: `python -m xagents.explorers.process ADDRESS [FOLDER PARENT_PID]`.

The process connects to the learner, creates the environments of the specification, and collects on request. It exits
with its parent, whose exit closes standard input. It does not import TensorFlow. Without a folder, the first line of
standard input contains its credentials.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import grpc

from xagents.explorers.frames import FrameType
from xagents.explorers.keys import ExplorerCredentials, read_credentials
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.explorers.rollout_worker import RolloutWorker
from xagents.explorers.transport import Connection
from xagents.options.errors import error_line
from xagents.processes.parent_exit import wait_for_parent_exit
from xagents.version import __version__

# exit code of a worker that the learner refused
EXIT_REFUSED = 3
# seconds between two checks for progress
HEARTBEAT_SECONDS = 5.0
# seconds that environments have to close after the exit of the parent
SECONDS_TO_CLOSE = 1.5


class RefusedError(Exception):
    """The learner refuses this worker; the message is one line."""


def explore(connection: Connection) -> None:
    """Collect until the learner ends the work, and close the connection.

    Raises:
        RefusedError: If the learner refuses this worker.
        grpc.RpcError: If the connection is lost.
        WireError: If the learner sends an invalid message.
        MemoryError: If an environment needs more memory than there is.
    """
    connection.send(pack('hello', {'format': FORMAT, 'xagents': __version__, 'pid': os.getpid()}))
    worker: RolloutWorker | None = None
    heartbeat = Heartbeat(connection)
    try:
        for frame in connection:
            message = unpack(frame.data) if frame.frame_type is FrameType.MESSAGE else None
            if message is None or message.message_type == 'end':
                break
            if message.message_type == 'refused':
                raise RefusedError(str(message.header.get('why')))
            worker = heartbeat.worker = _handle_message(connection, worker, message)
    finally:
        heartbeat.ended.set()
        if worker is not None:
            worker.close()
        connection.close()


class Heartbeat(threading.Thread):
    """A thread that sends `alive` to the learner every few seconds if the worker has taken new steps."""

    def __init__(self, connection: Connection):
        super().__init__(daemon=True)
        self.ended, self._connection = threading.Event(), connection
        self.worker: RolloutWorker | None = None
        self.start()

    def run(self) -> None:
        """Check for new steps and send `alive` until `ended` is set."""
        before = 0
        while not self.ended.wait(HEARTBEAT_SECONDS):
            steps = 0 if self.worker is None else self.worker.steps
            if steps != before:
                self._connection.send(pack('alive', {}))
            before = steps


def _handle_message(connection: Connection, worker: RolloutWorker | None, message: Message) -> RolloutWorker | None:
    """Handle a message of the learner and return the worker; errors are sent to the learner."""
    try:
        if message.message_type == 'spec':
            if worker is not None:
                worker.close()
            header = message.header
            worker = RolloutWorker(header, header['first'], header['n_envs'])
            connection.send(pack('ready', {}))
        elif worker is not None and message.message_type == 'share':
            worker.receive_broadcast(message)
        elif worker is not None:
            connection.send(worker.collect(message))
    except MemoryError:  # only a new process has its memory back: the learner replaces this one, as if it were killed
        raise
    except Exception as error:  # environments can raise any exception
        connection.send(pack('error', {'why': error_line(error)}))
    return worker


def main(address: str, folder: str | None = None, key: ExplorerCredentials | None = None) -> int:
    """Collect for a learner and return the exit code.

    Args:
        address: the address of the learner.
        folder: the folder for large messages of a learner on this machine.
        key: the credentials for a learner on another machine.
    """
    try:
        explore(Connection(address, key, folder=None if folder is None else Path(folder)))
    except RefusedError as error:
        _print_error(str(error))
        return EXIT_REFUSED
    except (grpc.RpcError, WireError, MemoryError) as error:
        _print_error(error_line(error))
        return 1
    return 0


def _print_error(line: str) -> None:
    with contextlib.suppress(OSError):  # the reader may have exited
        print(line, file=sys.stderr, flush=True)


def _exit_with_parent(ended: threading.Event, parent: int, folder: str | None) -> None:
    wait_for_parent_exit()
    if not ended.wait(SECONDS_TO_CLOSE):
        _remove_folder(parent, folder)
        os._exit(0)


def _remove_folder(parent: int, folder: str | None, seconds: float = 0.0) -> None:
    """Remove the folder, if there is one, if the parent has exited; wait up to `seconds` for its exit."""
    if folder is None:
        return
    deadline = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.05)
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner handles Ctrl-C
    address, folder, parent = sys.argv[1:] if sys.argv[2:] else (sys.argv[1], None, 0)
    key = read_credentials(sys.stdin.readline()) if folder is None else None
    ended = threading.Event()
    threading.Thread(target=_exit_with_parent, args=(ended, int(parent), folder), daemon=True).start()
    code = main(address, folder, key)
    ended.set()
    _remove_folder(int(parent), folder, 1.0 if code else 0.0)
    sys.exit(code)
