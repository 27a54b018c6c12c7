"""Kill workers and parents of `xagents tune` with `kill -9` at random times, and check the counts of the study."""

import argparse
import contextlib
import random
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, Process, ending, seconds_in_parallel
from benchmarks.tuning.speed import load_study, tune

STORAGES = {'SQLite': 'sqlite:///{}/study.db', 'journal': 'journal:{}/study.log'}
KILLS = {'worker': 20, 'parent': 5}
# time between kills as a share of an undisturbed call, so that kills hit all of it on any machine
SHARE_BETWEEN = 1 / 4
# a call without output for so long counts as hung
SILENT_SECONDS = 300.0
LINE = re.compile(r'^trial (\d+): value .*?, best .*?, (complete|pruned|failed|killed)\b', re.MULTILINE)
CLOSING = re.compile(r'^Finished: (\d+) trials? in this call', re.MULTILINE)
STATES = {'complete': 'COMPLETE', 'pruned': 'PRUNED'}


@dataclass
class Call:
    """One call of the command.

    Args:
        pid: of its process.
        born: start of the process, in seconds since 1970.
        ended: 'normally', 'killed', or the problem.
        reported: states of finished trials that the console showed, by number.
        total: number of finished trials in the last lines of the console.
    """

    pid: int
    born: float
    ended: str = ''
    reported: dict[int, str] = field(default_factory=dict)
    total: int | None = None

    @property
    def is_odd(self) -> bool:
        """Whether the call ended neither normally nor by a kill."""
        return self.ended not in ('normally', 'killed')

    def ran(self, trial: Any) -> bool:
        """Return whether this call started a trial."""
        attributes = trial.user_attrs
        return attributes.get('pid') == self.pid and abs(attributes['process_started'] - self.born) < 1

    def read(self, console: str) -> None:
        """Read what the console showed."""
        self.reported = {int(number): STATES[state] for number, state in LINE.findall(console) if state in STATES}
        closing = CLOSING.search(console)
        self.total = int(closing[1]) if closing else None


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill with every kind of storage.

    Returns:
        The trials of a call, and for each storage the result of `account`.
    """
    trials = 3 if options.quick else 10
    kills = {'worker': 2, 'parent': 1} if options.quick else KILLS
    found = {}
    for name, url in list(STORAGES.items())[: 1 if options.quick else None]:
        (folder / name).mkdir()
        found[name] = kill_in(folder / name, url, trials, kills, log)
        log(f'{name}: {found[name]}')
    return {'trials': trials, 'storages': found}


def kill_in(folder: Path, url: str, trials: int, kills: dict[str, int], log: Log) -> dict[str, Any]:
    """Repeat a command until all kills are done and a call has ended normally; return what is left."""
    undisturbed = folder / 'undisturbed'
    undisturbed.mkdir()
    seconds = seconds_in_parallel([study(trials, url.format(undisturbed))], undisturbed)
    between = seconds * SHARE_BETWEEN
    log(f'{seconds:.1f} s undisturbed: one kill each {between:.1f} s')
    begin, url = time.monotonic(), url.format(folder)
    generator = random.Random(1)
    due = kill_times(kills, between, generator)
    calls = Killer(study(trials, url), folder, due, between, generator, log).run()
    left = [' '.join(process.cmdline()[-3:]) for process in processes_in(folder)]
    result = account(calls, load_study('kills', url).get_trials(), trials)
    if left:
        result['problems'].append(f'{len(left)} processes are left: {"; ".join(left)}')
    return {'kills': kills, 'seconds': time.monotonic() - begin, 'apart': between, 'left': len(left), **result}


def study(trials: int, url: str) -> list[str]:
    """Return the command."""
    words = ['--n-trials', trials, '--trial-steps', 2_000, '--n-envs', 8, '--lr', 1e-4, 1e-2, '--n-jobs', 2]
    return tune(*words, '--study', 'kills', '--storage', url)


def kill_times(kills: dict[str, int], between: float, generator: random.Random) -> list[tuple[float, str]]:
    """Return seconds from the start, which are uniform, with the kind of process to kill."""
    victims = [victim for victim, count in kills.items() for _ in range(count)]
    generator.shuffle(victims)
    return sorted((generator.uniform(0, between * len(victims)), victim) for victim in victims)


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return all running processes that were started in a folder, also orphans."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve():
                found.append(process)
    return found


@dataclass
class Killer:
    """Repeats a command and kills its processes.

    Args:
        command: the command.
        folder: its working directory.
        due: the kills from `kill_times`.
        between: mean seconds between two kills.
        generator: chooses among workers.
        log: prints progress.
        killed: number of kills so far.
    """

    command: list[str]
    folder: Path
    due: list[tuple[float, str]]
    between: float
    generator: random.Random
    log: Log
    killed: int = 0
    processes: list[Process] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def run(self) -> list[Call]:
        """Run until all kills are done and the call after them has ended."""
        begin = time.monotonic()
        with ending(self.processes):
            self.start()
            while True:
                time.sleep(0.02)
                now, process = time.monotonic() - begin, self.processes[-1]
                assert process.output is not None
                if process.popen.poll() is not None:
                    self.end_call()
                    if not self.due and self.calls[-1].ended == 'normally':
                        return self.calls
                    self.start()
                elif self.due and now >= self.due[0][0]:
                    self.kill(now)
                elif time.time() - process.output.stat().st_mtime > SILENT_SECONDS:
                    raise Failed(f'call {len(self.calls)} has printed nothing for {SILENT_SECONDS:.0f} s')

    def start(self) -> None:
        """Start the command."""
        self.processes.append(Process.start(self.command, self.folder, f'call-{len(self.calls):02}'))
        pid = self.processes[-1].popen.pid
        self.calls.append(Call(pid, psutil.Process(pid).create_time()))

    def end_call(self) -> None:
        """Store how a call has ended.

        Raises:
            Failed: if more calls have ended with an error than were hit by a kill.
        """
        process, call = self.processes[-1], self.calls[-1]
        call.read(process.text)
        code = process.popen.returncode
        call.ended = {0: 'normally', -signal.SIGKILL: 'killed'}.get(code, '') or process.problem
        self.log(f'call {len(self.calls) - 1}, {len(call.reported)} trials reported: {call.ended}')
        errors = sum(call.is_odd for call in self.calls)
        if errors > self.killed:
            raise Failed(f'{errors} calls ended by themselves after {self.killed} kills; the last one: {call.ended}')

    def kill(self, now: float) -> None:
        """Kill a process. If there is none, choose another random time."""
        _, victim = self.due.pop(0)
        process = self.processes[-1].popen
        chosen: list[Any] = [process] if victim == 'parent' else workers_of(process.pid)
        if chosen:
            self.generator.choice(chosen).kill()
            self.killed += 1
            self.log(f'{now:.1f} s: killed a {victim}')
        else:
            self.due = sorted([*self.due, (now + self.generator.uniform(0, self.between), victim)])


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the running worker processes of a call."""
    workers = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and 'xagents.tuning.worker' in process.cmdline():
                    workers.append(process)
    return workers


def account(calls: Sequence[Call], trials: Sequence[Any], wanted: int) -> dict[str, Any]:
    """Compare the reports of calls with their study.

    Args:
        calls: all calls; the last one ended normally.
        trials: of the study, by number.
        wanted: number of trials that each call had to finish.

    Returns:
        Counts, and a list of problems of one line each.
    """
    problems = [f'call {number} ended: {call.ended}' for number, call in enumerate(calls) if call.is_odd]
    for number, call in enumerate(calls):
        problems += [f'call {number}: {text}' for text in wrong_counts(call, trials, wanted)]
    running = [trial.number for trial in trials if trial.state.name == 'RUNNING']
    if running:
        problems.append(f'still RUNNING: {running}')
    finished = [trial for trial in trials if is_finished(trial)]
    problems += [f'trial {one.number} is of no call' for one in finished if not any(call.ran(one) for call in calls)]
    interrupted = [trial for trial in trials if trial.state.name == 'FAIL' and 'reason' not in trial.user_attrs]
    for trial in interrupted:
        retries = [one.number for one in trials if one.user_attrs.get('retry_of') == trial.number]
        if len(retries) != 1:
            problems.append(f'trial {trial.number} was interrupted and retried {len(retries)} times')
    counts = {'calls': len(calls), 'normal': sum(call.ended == 'normally' for call in calls)}
    counts |= {'reported': sum(len(call.reported) for call in calls), 'finished': len(finished)}
    return {**counts, 'interrupted': len(interrupted), 'running': len(running), 'problems': problems}


def is_finished(trial: Any) -> bool:
    """Return whether a trial has ended by itself."""
    return trial.state.name in STATES.values()


def wrong_counts(call: Call, trials: Sequence[Any], wanted: int) -> list[str]:
    """Return what is wrong with the counts of one call."""
    states = {trial.number: trial.state.name for trial in trials}
    problems = [
        f'reported trial {number} as {state}, which is {states.get(number)}'
        for number, state in call.reported.items()
        if states.get(number) != state
    ]
    kept = {trial.number for trial in trials if is_finished(trial) and call.ran(trial)}
    problems += [f'reported trial {number} of another call' for number in call.reported.keys() - kept]
    if call.ended == 'normally':
        counts = (call.total, len(call.reported), len(kept))
        if counts != (wanted, wanted, wanted):
            problems.append('total {}, reported {}, kept {}'.format(*counts) + f', requested {wanted}')
    elif len(kept) > len(call.reported) + 1:
        # a parent may die between writing and reporting
        problems.append(f'kept {len(kept)} trials and reported {len(call.reported)}')
    return problems


def render_kills(result: dict[str, Any]) -> str:
    """Return the table of kills, counts and problems."""
    heading = ['', 'workers killed', 'parents killed', 'calls', 'ended normally', 'trials reported finished']
    heading += ['in the study', 'interrupted and retried', 'RUNNING', 'processes left', 'problems', 's per kill']
    rows = []
    for name, found in result['storages'].items():
        counts = [found['kills']['worker'], found['kills']['parent']]
        counts += [found[key] for key in ('calls', 'normal', 'reported', 'finished', 'interrupted', 'running', 'left')]
        rows.append([name, *counts, len(found['problems']), f'{found["apart"]:.1f}'])
    note = f'`--n-trials {result["trials"]} --n-jobs 2`; the same command was repeated after each death of a parent.'
    problems = [f'{name}: {text}' for name, found in result['storages'].items() for text in found['problems']]
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))
