"""The process of an explorer: `python -m xagents.explorers.process ADDRESS LARGEST`. Loads no TensorFlow.

It dials the learner, makes the environments that it is told, and collects when it is ordered to. It ends with its
parent, whose end closes standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import grpc

from xagents.explorers.links import Connection
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.explorers.work import Worker
from xagents.options.errors import told
from xagents.system.orphans import await_parents_end
from xagents.version import __version__

# that environments may take to close, once the learner is gone
SECONDS_TO_CLOSE = 1.5


def main(address: str, largest: int) -> int:
    """Explore until the learner lets go; returns the exit code."""
    connection = Connection(address, largest)
    connection.send(pack('hello', {'format': FORMAT, 'xagents': __version__, 'pid': os.getpid()}))
    worker: Worker | None = None
    try:
        for data in connection:
            message = unpack(data)
            if message.kind == 'end':
                break
            if message.kind == 'refused':
                print(message.header['why'], file=sys.stderr)
                return 1
            worker = _answer(connection, worker, message)
    except (grpc.RpcError, WireError) as error:
        print(told(error), file=sys.stderr)
        return 1
    finally:
        if worker is not None:
            worker.close()
        connection.close()
    return 0


def _answer(connection: Connection, worker: Worker | None, message: Message) -> Worker | None:
    """Do what the learner says; an error is told, and not the end."""
    try:
        if message.kind == 'spec':
            if worker is not None:
                worker.close()
            header = message.header
            worker = Worker(header, header['first'], header['n_envs'])
            connection.send(pack('ready', {}))
        elif worker is not None:
            connection.send(worker.collect(message))
    except Exception as error:  # whatever somebody's environment raises
        connection.send(pack('error', {'why': told(error)}))
    return worker


def _end_with_parent(ended: threading.Event) -> None:
    await_parents_end()
    ended.wait(SECONDS_TO_CLOSE)
    os._exit(0)


if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to hear
    ended = threading.Event()
    threading.Thread(target=_end_with_parent, args=(ended,), daemon=True).start()
    code = main(sys.argv[1], int(sys.argv[2]))
    ended.set()
    sys.exit(code)
