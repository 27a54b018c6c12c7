"""The child's side of a process that its parent writes to: a JSON object a line in, and one out."""

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
    """Return the stream for answers and the queue of what the parent writes; the process ends with its parent.

    `at_end` is called before that, whatever ended the parent.
    """
    prepare_process()
    # standard output is for the answers: what else is printed goes where errors go
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
        # the parent is gone, or wants no more: nobody waits for what is under way
        at_end()
        os._exit(0)
