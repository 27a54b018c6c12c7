"""The child's side of a pipe to its parent: requests and answers are JSON objects, one per line.

`process_pool.py` is the side of the parent.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from xagents.options.errors import error_line
from xagents.system.startup import prepare_process


class NoJobPossibleError(Exception):
    """An error after which no process can do any job, such as a full disk; one line."""


class Parent:
    """The connection to the parent process. This process exits when the parent exits or closes the pipe.

    Args:
        at_end: a function that is called before this exit.
    """

    def __init__(self, at_end: Callable[[], Any] = lambda: None):
        prepare_process()
        # standard output is reserved for answers: other output is redirected to standard error
        self._answers = os.fdopen(os.dup(1), 'w', buffering=1, encoding='utf-8')
        os.dup2(2, 1)
        self._requests: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, args=(sys.stdin, at_end), daemon=True).start()

    def _listen(self, source: IO[str], at_end: Callable[[], Any]) -> None:
        try:
            for line in source:
                self._requests.put(json.loads(line))
        finally:
            # the parent has exited or closed the pipe, so no process waits for the present request
            at_end()
            os._exit(0)

    def send(self, **message: Any) -> None:
        """Send a message to the parent."""
        self._answers.write(json.dumps(message) + '\n')
        self._answers.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for the next message of the parent."""
        return self._requests.get()


Handler = Callable[..., Mapping[str, Any]]
"""A function of the parent and the fields of a request. It returns the answer, whose field `kind` is for the parent."""


def serve(parent: Parent, handlers: Mapping[str, Handler], prepare: Callable[[], Any] = lambda: None) -> None:
    """Answer the requests of the parent, one after the other, until it exits.

    A handler may exchange further messages with the parent. An error that it raises is the answer `failed` with a
    reason in one line; `broken` says that no job is possible.

    Args:
        parent: the connection to the parent.
        handlers: the handlers by the kind of request.
        prepare: a function that is called before the first request.
    """
    try:
        prepare()
    except Exception as error:
        return parent.send(kind='broken', reason=error_line(error))
    parent.send(kind='ready')
    while True:
        answer(parent, handlers, parent.receive())


def answer(parent: Any, handlers: Mapping[str, Handler], request: Mapping[str, Any]) -> None:
    """Answer one request; see `serve`."""
    fields = dict(request)
    try:
        found = handlers[fields.pop('kind')](parent, **fields)
    except NoJobPossibleError as error:
        found = {'kind': 'broken', 'reason': str(error)}
    except Exception as error:  # environments may raise anything
        found = {'kind': 'failed', 'reason': error_line(error)}
    parent.send(**found)
