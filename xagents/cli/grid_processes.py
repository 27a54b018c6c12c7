"""The processes of a grid's runs: some at a time, their lines under their names, none of them left behind.

Each is an `xagents train` in a session of its own, so that a Ctrl-C in the terminal reaches the parent alone, which
passes it on once. A child ends, saved, when its parent is gone: its standard input ends then.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType

from xagents.system.child_process import ChildProcess
from xagents.system.orphans import FOLLOWS, SECONDS_TO_END

WRONG_INPUT = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Ended:
    """How the runs ended.

    Args:
        codes: exit codes by name.
        last: the last line that each of them said.
        left: names of those that were not begun.
        signal: what ended all of them, if anything did.
        signals: how many came.
    """

    codes: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    signal: int | None = None
    signals: int = 0

    @property
    def refused(self) -> str:
        """What all that were begun said who refused their input, on one line that was not printed; else nothing."""
        refused = set(self.codes.values()) == {WRONG_INPUT} and self.signal is None
        return next(iter(self.last.values())).removeprefix('xagents train: ') if refused else ''

    def exit(self) -> None:
        """End in the way of the signal.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            SystemExit: with code 143, after a SIGTERM.
        """
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt('the grid has said so')


class Child(ChildProcess):
    """One run's process.

    Args:
        name: of the run.
        words: what stands after `xagents`.
        said: where its lines go, with the name.
    """

    def __init__(self, name: str, words: list[str], said: queue.Queue[tuple[str, str]]):
        self.name = name
        self._said = said
        self._signals = 0
        variables = {'PYTHONUNBUFFERED': '1', 'PYTHONIOENCODING': 'utf-8:replace', FOLLOWS: '1'}
        super().__init__(['xagents', *words], SECONDS_TO_END, subprocess.STDOUT, **variables)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put((self.name, line.rstrip('\r\n')))

    def code(self) -> int | None:
        """Return its exit code, None while it runs; all its lines are there then."""
        code = self._process.poll()
        if code is not None:
            # what it started itself may hold the pipe for longer
            self._listener.join(2.0)
        return code

    def pass_on(self, ended: Ended) -> None:
        """Pass on the signals that came and that it has not had yet."""
        while ended.signal is not None and self._signals < ended.signals:
            self._signals += 1
            with contextlib.suppress(OSError):
                self._process.send_signal(ended.signal)


class Lines:
    """What runs say, printed under their names.

    Held back until a run says more than the one line that refuses its input, which whoever called says.

    Args:
        width: of the longest name.
        as_json: whether lines are JSON objects, into which the name goes.
    """

    def __init__(self, width: int, as_json: bool):
        self.last: dict[str, str] = {}
        self._width, self._as_json = width, as_json
        self._held: list[str] | None = []

    def take(self, name: str, line: str) -> None:
        """Print what a run has said."""
        further = name in self.last
        self.last[name] = line if line.strip() else self.last.get(name, '')
        self.say(name, line)
        if further:
            self.release()

    def say(self, name: str, line: str) -> None:
        """Print a line about a run."""
        named = self._named(name, line)
        if self._held is None:
            print(named, flush=True)
        else:
            self._held.append(named)

    def release(self) -> None:
        """Print what was held back, and hold nothing back any more."""
        for line in self._held or ():
            print(line, flush=True)
        self._held = None

    def _named(self, name: str, line: str) -> str:
        if not self._as_json:
            return f'{name:<{self._width}}  {line}'
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        return json.dumps({'run': name, **(record if isinstance(record, dict) else {'line': line})})


def run_all(commands: Mapping[str, list[str]], at_once: int, quiet: bool = False, as_json: bool = False) -> Ended:
    """Run commands, some at a time, and print their lines under their names.

    No more are begun once the first to end refuse their input, or after a signal.

    Args:
        commands: what stands after `xagents`, by the name of the run.
        at_once: how many at the same time.
        quiet: whether nothing is said but what they say.
        as_json: whether their lines are JSON objects, into which the name goes.
    """
    lines = Lines(max(map(len, commands)), as_json)
    ended = Ended(last=lines.last, left=list(commands))
    running: list[Child] = []
    said: queue.Queue[tuple[str, str]] = queue.Queue()

    with _signals(ended, running):
        try:
            while running or (ended.left and _may_begin(ended)):
                while ended.left and len(running) < at_once and _may_begin(ended):
                    name = ended.left.pop(0)
                    if not (quiet or as_json):
                        lines.say(name, shlex.join(['xagents', *commands[name]]))
                    running.append(Child(name, commands[name], said))
                    running[-1].pass_on(ended)  # one that came while it was made
                with contextlib.suppress(queue.Empty):
                    lines.take(*said.get(timeout=0.1))
                for child in [child for child in running if child.code() is not None]:
                    while not said.empty():
                        lines.take(*said.get())
                    running.remove(child)
                    ended.codes[child.name] = child.code() or 0
                    if ended.codes[child.name] != WRONG_INPUT:
                        lines.release()
        finally:
            for child in running:
                child.dismiss()
            for child in running:
                child.end()
    if ended.signal is not None:
        lines.release()
    return ended


def _may_begin(ended: Ended) -> bool:
    return ended.signal is None and not ended.refused


@contextlib.contextmanager
def _signals(ended: Ended, running: list[Child]) -> Iterator[None]:
    """Pass Ctrl-C and SIGTERM on to all that run: a first one lets them save and end, a second one quits."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        ended.signal = ended.signal or number
        ended.signals += 1
        for child in list(running):
            child.pass_on(ended)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
