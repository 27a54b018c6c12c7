"""The processes of a grid's runs: a few at a time, their lines printed under their names, none of them left behind.

Each is an `xagents train` in a session of its own, so that a Ctrl-C in the terminal reaches the parent alone, which
passes it on. A child whose parent is gone saves and ends, because its standard input ends then.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType

from xagents.system.child_process import ChildProcess, Said
from xagents.system.interruption import handled_by
from xagents.system.orphans import FOLLOWS, SECONDS_TO_END

WRONG_INPUT = 2


@dataclass
class Ended:
    """How the runs ended.

    Args:
        codes: exit codes by name.
        last: the last line of each.
        left: names of those that were not begun.
        signal: the first signal that came, if any did.
        signals: how many came.
    """

    codes: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    signal: int | None = None
    signals: int = 0

    @property
    def refused(self) -> str:
        """The line with which every run that was begun refused its input; it was not printed. Empty otherwise."""
        refused = set(self.codes.values()) == {WRONG_INPUT} and self.signal is None
        return next(iter(self.last.values())).removeprefix('xagents train: ') if refused else ''

    @property
    def goes_on(self) -> bool:
        """Whether another run may begin: no signal came, and the first runs have not refused their input."""
        return self.signal is None and not self.refused

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, which every run is to get."""
        self.signal = self.signal or number
        self.signals += 1


class Child(ChildProcess):
    """The process of the run `name`; `words` stand after `xagents`, and its lines go to `said`."""

    def __init__(self, name: str, words: list[str], said: Said):
        self.name = name
        self._signals = 0
        variables = {'PYTHONUNBUFFERED': '1', 'PYTHONIOENCODING': 'utf-8:replace', FOLLOWS: '1'}
        super().__init__(['xagents', *words], said, SECONDS_TO_END, subprocess.STDOUT, **variables)

    def pass_on(self, ended: Ended) -> None:
        """Pass on the signals that it has not had: the first lets it save and end, a second one ends it at once."""
        while ended.signal is not None and self._signals < ended.signals:
            self._signals += 1
            self.send_signal(ended.signal)


class Lines:
    """Prints what runs say under their names, or as JSON objects that have the name.

    Nothing is printed until a run says more than one line: a single one may be a refusal, which the caller prints.
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
        named = _as_object(name, line) if self._as_json else f'{name:<{self._width}}  {line}'
        if self._held is None:
            print(named, flush=True)
        else:
            self._held.append(named)

    def release(self) -> None:
        """Print what was held back, and from now on everything at once."""
        for line in self._held or ():
            print(line, flush=True)
        self._held = None


def _as_object(name: str, line: str) -> str:
    record = None
    with contextlib.suppress(ValueError):
        record = json.loads(line)
    return json.dumps({'run': name, **(record if isinstance(record, dict) else {'line': line})})


def run_all(commands: Mapping[str, list[str]], at_once: int, quiet: bool = False, as_json: bool = False) -> Ended:
    """Run commands, `at_once` at a time, and print their lines under their names.

    No more are begun after a signal, or when the first ones to end refuse their input.

    Args:
        commands: what stands after `xagents`, by the name of the run.
        at_once: how many at the same time.
        quiet: print nothing but what the runs print.
        as_json: whether their lines are JSON objects, to which the name is added.
    """
    lines = Lines(max(map(len, commands)), as_json)
    ended = Ended(last=lines.last, left=list(commands))
    running: list[Child] = []
    said: Said = queue.Queue()
    with handled_by(ended.note):
        try:
            while running or (ended.left and ended.goes_on):
                while ended.left and len(running) < at_once and ended.goes_on:
                    name = ended.left.pop(0)
                    if not (quiet or as_json):
                        lines.say(name, shlex.join(['xagents', *commands[name]]))
                    running.append(Child(name, commands[name], said))
                for child in running:
                    child.pass_on(ended)
                with contextlib.suppress(queue.Empty):
                    child, line = said.get(timeout=0.1)
                    if line is not None:
                        lines.take(child.name, line)
                        continue
                    running.remove(child)
                    ended.codes[child.name] = child.code
                    if child.code != WRONG_INPUT:
                        lines.release()
        finally:
            for child in running:
                child.dismiss()
            for child in running:
                child.end()
    if ended.signal is not None:
        lines.release()
    return ended
