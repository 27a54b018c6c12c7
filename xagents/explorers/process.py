"""The process of an explorer: `python -m xagents.explorers.process ADDRESS FOLDER`. Loads no TensorFlow.

It connects to the learner, creates the environments of the specification, and collects on request. It exits with its
parent, whose exit closes standard input.
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
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.explorers.rollout_worker import RolloutWorker
from xagents.explorers.transport import Connection
from xagents.options.errors import error_line
from xagents.system.parent_exit import wait_for_parent_exit
from xagents.version import __version__

# exit code of an explorer that was not taken
EXIT_REFUSED = 3
# between two looks at whether something happens
HEARTBEAT_SECONDS = 5.0
# that environments may take to close, once the learner is gone
SECONDS_TO_CLOSE = 1.5


class RefusedError(Exception):
    """The learner does not take this explorer; one line."""


def explore(connection: Connection) -> None:
    """Explore until the learner lets go, and close the connection.

    Raises:
        RefusedError: where it does not take this explorer.
        RpcError: of gRPC, where it is lost.
        WireError: where it says what makes no sense.
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
    """Tells the learner, once in a while, that an explorer is at work: that it has taken a step since."""

    def __init__(self, connection: Connection):
        super().__init__(daemon=True)
        self.ended, self._connection = threading.Event(), connection
        self.worker: RolloutWorker | None = None
        self.start()

    def run(self) -> None:
        """Look, and tell."""
        before = 0
        while not self.ended.wait(HEARTBEAT_SECONDS):
            steps = 0 if self.worker is None else self.worker.steps
            if steps != before:
                self._connection.send(pack('alive', {}))
            before = steps


def _handle_message(connection: Connection, worker: RolloutWorker | None, message: Message) -> RolloutWorker | None:
    """Handle messages of the learner; an error is sent back and does not end the process."""
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
    except Exception as error:  # whatever somebody's environment raises
        connection.send(pack('error', {'why': error_line(error)}))
    return worker


def main(address: str, folder: str) -> int:
    """Explore for a learner on this machine; returns the exit code."""
    try:
        explore(Connection(address, folder=Path(folder)))
    except RefusedError as error:
        _print_error(str(error))
        return EXIT_REFUSED
    except (grpc.RpcError, WireError) as error:
        _print_error(error_line(error))
        return 1
    return 0


def _print_error(line: str) -> None:
    with contextlib.suppress(OSError):  # who reads it may be gone
        print(line, file=sys.stderr, flush=True)


def _exit_with_parent(ended: threading.Event, parent: int, folder: str) -> None:
    wait_for_parent_exit()
    if not ended.wait(SECONDS_TO_CLOSE):
        _remove_folder(parent, folder)
        os._exit(0)


def _remove_folder(parent: int, folder: str, seconds: float = 0.0) -> None:
    """Remove the folder of a parent that was killed, which may take a moment to be seen."""
    deadline = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.05)
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to hear
    ended, parent = threading.Event(), int(sys.argv[3])
    threading.Thread(target=_exit_with_parent, args=(ended, parent, sys.argv[2]), daemon=True).start()
    code = main(*sys.argv[1:3])
    ended.set()
    _remove_folder(parent, sys.argv[2], 1.0 if code else 0.0)
    sys.exit(code)
