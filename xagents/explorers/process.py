"""The process of an explorer: `python -m xagents.explorers.process ADDRESS FOLDER`. Loads no TensorFlow.

It dials the learner, makes the environments that it is told, and collects when it is ordered to. It ends with its
parent, whose end closes standard input.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import grpc

from xagents.explorers.frames import Kind
from xagents.explorers.links import Connection
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.explorers.work import Worker
from xagents.options.errors import told
from xagents.system.orphans import await_parents_end
from xagents.version import __version__

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
    worker: Worker | None = None
    try:
        for frame in connection:
            message = unpack(frame.data) if frame.kind is Kind.MESSAGE else None
            if message is None or message.kind == 'end':
                break
            if message.kind == 'refused':
                raise RefusedError(str(message.header.get('why')))
            worker = _answer(connection, worker, message)
    finally:
        if worker is not None:
            worker.close()
        connection.close()


def _answer(connection: Connection, worker: Worker | None, message: Message) -> Worker | None:
    """Do what the learner says; an error is told, and not the end."""
    try:
        if message.kind == 'spec':
            if worker is not None:
                worker.close()
            header = message.header
            worker = Worker(header, header['first'], header['n_envs'])
            connection.send(pack('ready', {}))
        elif worker is not None and message.kind == 'share':
            worker.share(message)
        elif worker is not None:
            connection.send(worker.collect(message))
    except Exception as error:  # whatever somebody's environment raises
        connection.send(pack('error', {'why': told(error)}))
    return worker


def main(address: str, folder: str) -> int:
    """Explore for a learner on this machine; returns the exit code."""
    try:
        explore(Connection(address, folder=Path(folder)))
    except (grpc.RpcError, WireError, RefusedError) as error:
        print(error if isinstance(error, RefusedError) else told(error), file=sys.stderr)
        return 1
    return 0


def _end_with_parent(ended: threading.Event, parent: int, folder: str) -> None:
    await_parents_end()
    if not ended.wait(SECONDS_TO_CLOSE):
        _tidy(parent, folder)
        os._exit(0)


def _tidy(parent: int, folder: str, seconds: float = 0.0) -> None:
    """Remove the folder of a parent that was killed, which may take a moment to be seen."""
    deadline = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.05)
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to hear
    ended, parent = threading.Event(), os.getppid()
    threading.Thread(target=_end_with_parent, args=(ended, parent, sys.argv[2]), daemon=True).start()
    code = main(*sys.argv[1:3])
    ended.set()
    _tidy(parent, sys.argv[2], 1.0 if code else 0.0)
    sys.exit(code)
