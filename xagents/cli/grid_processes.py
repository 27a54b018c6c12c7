"""Processes of the runs of a grid, a few in parallel. Their output is printed with the names of the runs.

Each process is an `xagents train` in its own session, so that a Ctrl-C in the terminal reaches only the parent. The
parent sends it the signal. If the parent dies, a child saves and ends, because its standard input ends. No process
outlives the command. A run whose machine was lost (with Ray) is resumed on another one.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from rich.console import Console

from xagents.cli.run_table import WRONG_INPUT, RunTable
from xagents.logs.console import FORMAT_VARIABLE
from xagents.logs.live_table import is_live_terminal
from xagents.processes.launch import MACHINE_LOST, Launch, launch_here
from xagents.processes.parent_exit import FOLLOW_PARENT_VARIABLE, SECONDS_TO_END
from xagents.processes.process_pool import ProcessPool
from xagents.system.interruption import handle_signals


@dataclass
class GridResult:
    """The results of the runs.

    Attributes:
        codes: exit codes by name of the run.
        last: last lines of output by name of the run.
        not_started: names of runs that have not started.
        signal: number of the first signal, or None.
        signals: number of signals.
    """

    codes: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    not_started: list[str] = field(default_factory=list)
    signal: int | None = None
    signals: int = 0

    @property
    def refused(self) -> str:
        """The error of the runs if every started run refused its input; otherwise empty. It was not printed."""
        refused = set(self.codes.values()) == {WRONG_INPUT} and self.signal is None
        return next(iter(self.last.values())).removeprefix('xagents train: ') if refused else ''

    @property
    def may_start_more(self) -> bool:
        """Whether another run may start: there was no signal, and the first runs have not refused their input."""
        return self.signal is None and not self.refused

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Count a signal, which `run_all` sends to every run."""
        self.signal = self.signal or number
        self.signals += 1


class OutputPrinter:
    """A printer of the runs' lines, with their names in front or as JSON objects with the names.

    Lines are held back until a run prints a second line, because a single line may be an error that the caller prints.

    Args:
        width: width of the names.
        quiet: whether to print only lines of the runs.
        as_json: whether to print JSON objects.

    Attributes:
        last: last line of each run by name.
    """

    def __init__(self, width: int, quiet: bool, as_json: bool):
        self.last: dict[str, str] = {}
        self._width, self._quiet, self._as_json = width, quiet, as_json
        self._held: list[str] | None = []

    def started(self, name: str, command: str) -> None:
        """Print the command line of a run."""
        if not (self._quiet or self._as_json):
            self.say(name, command)

    def print_line(self, name: str, line: str) -> None:
        """Print a line of output of a run."""
        further = name in self.last
        self.last[name] = line if line.strip() else self.last.get(name, '')
        self.say(name, line)
        if further:
            self.print_held()

    def ended(self, name: str, code: int) -> None:
        """Print the lines that were held back, unless the run has refused its input."""
        if code != WRONG_INPUT:
            self.print_held()

    def close(self, interrupted: bool) -> None:
        """Print the lines that were held back if a signal has ended the runs."""
        if interrupted:
            self.print_held()

    def say(self, name: str, line: str) -> None:
        """Print a line about a run."""
        named = _as_object(name, line) if self._as_json else f'{name:<{self._width}}  {line}'
        if self._held is None:
            print(named, flush=True)
        else:
            self._held.append(named)

    def print_held(self) -> None:
        """Print the lines that were held back. Print later lines at once."""
        for line in self._held or ():
            print(line, flush=True)
        self._held = None


def _as_object(name: str, line: str) -> str:
    record = None
    with contextlib.suppress(ValueError):
        record = json.loads(line)
    return json.dumps({'run': name, **(record if isinstance(record, dict) else {'line': line})})


def run_all(
    commands: Mapping[str, list[str]],
    jobs: int,
    resume_command: Callable[[str], list[str]],
    quiet: bool = False,
    as_json: bool = False,
    launch: Launch = launch_here,
) -> GridResult:
    """Run commands in parallel. Show a live table on a terminal, else print their lines with the names of the runs.

    No command starts after a signal, or if the first commands to end refuse their input.

    Args:
        commands: words after `xagents`, by the name of the run.
        jobs: number of parallel commands.
        resume_command: returns the words that resume a run whose machine was lost.
        quiet: whether to print only the output of the runs.
        as_json: whether the lines are JSON objects, to which the name is added.
        launch: starts the processes.

    Returns:
        The exit codes and last lines of the runs.
    """
    table = not (quiet or as_json) and is_live_terminal(Console())
    width = max(map(len, commands))
    lines: RunTable | OutputPrinter = RunTable(commands) if table else OutputPrinter(width, quiet, as_json)
    result = GridResult(last=lines.last, not_started=list(commands))
    words, signals = dict(commands), Counter[int]()
    variables = {FORMAT_VARIABLE: '1'} if table else {}
    variables |= {'PYTHONUNBUFFERED': '1', 'PYTHONIOENCODING': 'utf-8:replace', FOLLOW_PARENT_VARIABLE: '1'}
    how: dict[str, Any] = {'seconds_to_end': SECONDS_TO_END, 'stderr': subprocess.STDOUT, 'variables': variables}
    pool = ProcessPool(['xagents'], launch=launch, **how)
    with handle_signals(result.on_signal), contextlib.closing(pool):
        try:
            while pool.processes or (result.not_started and result.may_start_more):
                while result.not_started and len(pool.processes) < jobs and result.may_start_more:
                    name = result.not_started.pop(0)
                    lines.started(name, shlex.join(['xagents', *words[name]]))
                    pool.start_job(name, *words[name])
                for process in pool.processes:
                    # the first signal saves and ends a run, a second ends it at once
                    while result.signal is not None and signals[id(process)] < result.signals:
                        signals[id(process)] += 1
                        process.send_signal(result.signal)
                if (received := pool.receive_line(0.1)) is None:
                    continue
                process, line = received
                if line is not None:
                    lines.print_line(process.job, line)
                    continue
                pool.remove_ended(process)
                if process.code == MACHINE_LOST and result.signal is None:
                    words[process.job] = resume_command(process.job)
                    result.not_started.insert(0, process.job)
                    continue
                result.codes[process.job] = process.code
                lines.ended(process.job, process.code)
        finally:
            lines.close(interrupted=result.signal is not None)
    return result
