"""Exit of a child process with its parent, for any exit of the parent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

# set for a child process; the child removes it, so that its own children do not inherit it
FOLLOW_PARENT_VARIABLE = 'XAGENTS_FOLLOWS_STDIN'
SECONDS_TO_END = 30.0


def exit_with_parent() -> None:
    """If this process runs one run of a grid, save and exit when standard input ends."""
    if os.environ.pop(FOLLOW_PARENT_VARIABLE, None):
        threading.Thread(target=_exit_with_parent, daemon=True).start()


def wait_for_parent_exit() -> None:
    """Wait until standard input ends, which any exit of the parent causes."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass


def _exit_with_parent() -> None:
    wait_for_parent_exit()
    # the reader of the output has exited, and output must not raise an error in the run
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    for _ in range(2):  # the second signal stops the run without saving
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_END)
    os._exit(128 + signal.SIGTERM)
