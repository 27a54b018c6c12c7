"""The child's side of a pipe to its parent: requests and answers are JSON objects, one per line."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from xagents.system.startup import prepare_process

Orders = queue.Queue[dict[str, Any]]


def answering(at_end: Callable[[], Any] = lambda: None) -> tuple[IO[str], Orders]:
    """Prepare this process to answer its parent; the process exits when the parent exits or closes the pipe.

    Args:
        at_end: a function that is called before this exit.

    Returns:
        The stream for answers and the queue of requests.
    """
    prepare_process()
    # standard output is reserved for answers: other output is redirected to standard error
    answers = os.fdopen(os.dup(1), 'w', buffering=1, encoding='utf-8')
    os.dup2(2, 1)
    requests: Orders = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, requests, at_end), daemon=True).start()
    return answers, requests


def _listen(source: IO[str], requests: Orders, at_end: Callable[[], Any]) -> None:
    try:
        for line in source:
            requests.put(json.loads(line))
    finally:
        # the parent has exited or closed the pipe, so no process waits for the present request
        at_end()
        os._exit(0)
