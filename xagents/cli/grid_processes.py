"""The processes of a grid's runs: a few at a time, their lines printed under their names, none of them left behind.

Each is an `xagents train` in a session of its own, so that a Ctrl-C in the terminal reaches only the parent, which
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

from xagents.system.child_process import ChildProcess, OutputQueue
from xagents.system.interruption import handle_signals
from xagents.system.parent_exit import FOLLOW_PARENT_VARIABLE, SECONDS_TO_END

WRONG_INPUT = 2


@dataclass
class GridResult:
    """How the runs ended.

    Args:
        codes: exit codes by name.
        last: the last line of each.
        not_started: names of those that were not begun.
        signal: the first signal that came, if any did.
        signals: how many came.
    """

    codes: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    not_started: list[str] = field(default_factory=list)
    signal: int | None = None
    signals: int = 0

    @property
    def refused(self) -> str:
        """The line with which every run that was begun refused its input; it was not printed. Empty otherwise."""
        refused = set(self.codes.values()) == {WRONG_INPUT} and self.signal is None
        return next(iter(self.last.values())).removeprefix('xagents train: ') if refused else ''

    @property
    def may_start_more(self) -> bool:
        """Whether another run may begin: no signal came, and the first runs have not refused their input."""
        return self.signal is None and not self.refused

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, which every run is to get."""
        self.signal = self.signal or number
        self.signals += 1


class GridProcess(ChildProcess):
    """The process of the run `name`; `arguments` stand after `xagents`, and its lines go to `output`."""

    def __init__(self, name: str, arguments: list[str], output: OutputQueue):
        self.name = name
        self._signals = 0
        variables = {'PYTHONUNBUFFERED': '1', 'PYTHONIOENCODING': 'utf-8:replace', FOLLOW_PARENT_VARIABLE: '1'}
        super().__init__(['xagents', *arguments], output, SECONDS_TO_END, subprocess.STDOUT, **variables)

    def forward_signals(self, result: GridResult) -> None:
        """Pass on the signals that it has not had: the first lets it save and end, a second one ends it at once."""
        while result.signal is not None and self._signals < result.signals:
            self._signals += 1
            self.send_signal(result.signal)


class OutputPrinter:
    """Prints what runs say under their names, or as JSON objects that have the name.

    Nothing is printed until a run says more than one line: a single one may be a refusal, which the caller prints.
    """

    def __init__(self, width: int, as_json: bool):
        self.last: dict[str, str] = {}
        self._width, self._as_json = width, as_json
        self._held: list[str] | None = []

    def print_line(self, name: str, line: str) -> None:
        """Print what a run has said."""
        further = name in self.last
        self.last[name] = line if line.strip() else self.last.get(name, '')
        self.say(name, line)
        if further:
            self.print_held()

    def say(self, name: str, line: str) -> None:
        """Print a line about a run."""
        named = _as_object(name, line) if self._as_json else f'{name:<{self._width}}  {line}'
        if self._held is None:
            print(named, flush=True)
        else:
            self._held.append(named)

    def print_held(self) -> None:
        """Print what was held back, and from now on everything at once."""
        for line in self._held or ():
            print(line, flush=True)
        self._held = None


def _as_object(name: str, line: str) -> str:
    record = None
    with contextlib.suppress(ValueError):
        record = json.loads(line)
    return json.dumps({'run': name, **(record if isinstance(record, dict) else {'line': line})})


def run_all(
    commands: Mapping[str, list[str]], n_parallel: int, quiet: bool = False, as_json: bool = False
) -> GridResult:
    """Run commands, `n_parallel` at a time, and print their lines under their names.

    No more are begun after a signal, or when the first ones to end refuse their input.

    Args:
        commands: what stands after `xagents`, by the name of the run.
        n_parallel: how many at the same time.
        quiet: print nothing but what the runs print.
        as_json: whether their lines are JSON objects, to which the name is added.
    """
    lines = OutputPrinter(max(map(len, commands)), as_json)
    result = GridResult(last=lines.last, not_started=list(commands))
    running: list[GridProcess] = []
    output: OutputQueue = queue.Queue()
    with handle_signals(result.on_signal):
        try:
            while running or (result.not_started and result.may_start_more):
                while result.not_started and len(running) < n_parallel and result.may_start_more:
                    name = result.not_started.pop(0)
                    if not (quiet or as_json):
                        lines.say(name, shlex.join(['xagents', *commands[name]]))
                    running.append(GridProcess(name, commands[name], output))
                for child in running:
                    child.forward_signals(result)
                with contextlib.suppress(queue.Empty):
                    child, line = output.get(timeout=0.1)
                    if line is not None:
                        lines.print_line(child.name, line)
                        continue
                    running.remove(child)
                    result.codes[child.name] = child.code
                    if child.code != WRONG_INPUT:
                        lines.print_held()
        finally:
            for child in running:
                child.request_exit()
            for child in running:
                child.end()
    if result.signal is not None:
        lines.print_held()
    return result
