"""The process of a grid's run ends with its parent, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

# set for a child; what it starts itself does not inherit it
FOLLOW_PARENT_VARIABLE = 'XAGENTS_FOLLOWS_STDIN'
SECONDS_TO_END = 30.0


def exit_with_parent() -> None:
    """End, saved, when standard input ends, if this is the process of a grid's run."""
    if os.environ.pop(FOLLOW_PARENT_VARIABLE, None):
        threading.Thread(target=_exit_with_parent, daemon=True).start()


def wait_for_parent_exit() -> None:
    """Return once standard input ends, as it does with the parent, however that ends."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass


def _exit_with_parent() -> None:
    wait_for_parent_exit()
    # nobody reads any more, which is not to be an error of the run
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    for _ in range(2):  # the second one quits unsaved
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_END)
    os._exit(128 + signal.SIGTERM)
