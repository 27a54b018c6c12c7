"""`kill -9` of workers and parents of `xagents tune` at random instants, and what the study counts after it."""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.speed.run import Failed
from benchmarks.tuning.commands import Command, ending, load_study, processes_in, seconds_beside, start, tune

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

STORAGES = {'SQLite': 'sqlite:///{}/study.db', 'journal': 'journal:{}/study.log'}
KILLS = {'worker': 20, 'parent': 5}
# of the seconds that an undisturbed call takes, so that kills hit all of it however fast the machine is
SHARE_APART = 1 / 4
# a call that says nothing for so long waits for something that does not come
SILENT_SECONDS = 300.0
LINE = re.compile(r'^trial (\d+): value .*?, best .*?, (complete|pruned|failed|killed)\b', re.MULTILINE)
CLOSING = re.compile(r'^Finished: (\d+) trials? in this call', re.MULTILINE)
STATES = {'complete': 'COMPLETE', 'pruned': 'PRUNED'}


@dataclass
class Call:
    """One call of the command.

    Args:
        pid: of its process.
        born: when that began, in seconds since 1970.
        ended: 'normally', 'killed', or what it said instead.
        reported: the states that the console showed of finished trials, by number.
        said: how many trials it said to have finished in its last lines.
    """

    pid: int
    born: float
    ended: str = ''
    reported: dict[int, str] = field(default_factory=dict)
    said: int | None = None

    def ran(self, trial: FrozenTrial) -> bool:
        """Whether a trial was begun by this call."""
        attributes = trial.user_attrs
        return attributes.get('pid') == self.pid and abs(attributes['process_started'] - self.born) < 1

    def read(self, console: str) -> None:
        """Note what the console showed."""
        self.reported = {int(number): STATES[state] for number, state in LINE.findall(console) if state in STATES}
        closing = CLOSING.search(console)
        self.said = int(closing[1]) if closing else None


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill with every kind of storage, and count.

    Returns:
        The trials of a call, and for each storage what `account` found.
    """
    trials = 3 if options.quick else 10
    kills = {'worker': 2, 'parent': 1} if options.quick else KILLS
    found = {}
    for name, url in list(STORAGES.items())[: 1 if options.quick else None]:
        place = folder / name
        place.mkdir()
        found[name] = kill_in(place, url, trials, kills, log)
        log(f'{name}: {found[name]}')
    return {'trials': trials, 'storages': found}


def kill_in(folder: Path, url: str, trials: int, kills: dict[str, int], log: Log) -> dict[str, Any]:
    """Run the same command until all kills are done and a call has ended by itself; returns what is left."""
    undisturbed = folder / 'undisturbed'
    undisturbed.mkdir()
    seconds = seconds_beside([study(trials, url.format(undisturbed))], undisturbed)
    apart = seconds * SHARE_APART
    log(f'{seconds:.1f} s undisturbed: one kill each {apart:.1f} s')
    begin, url = time.monotonic(), url.format(folder)
    generator = random.Random(1)
    calls = Raid(study(trials, url), folder, instants(kills, apart, generator), apart, generator, log).go_on()
    left = [' '.join(process.cmdline()[-3:]) for process in processes_in(folder)]
    result = account(calls, load_study('kills', url).get_trials(), trials)
    if left:
        result['problems'].append(f'{len(left)} processes are left: {"; ".join(left)}')
    return {'kills': kills, 'seconds': time.monotonic() - begin, 'apart': apart, 'left': len(left), **result}


def study(trials: int, url: str) -> list[str]:
    """The command that is called again and again."""
    words = ['--n-trials', trials, '--trial-steps', 2_000, '--n-envs', 8, '--lr', 1e-4, 1e-2, '--n-jobs', 2]
    return tune(*words, '--study', 'kills', '--storage', url)


def instants(kills: dict[str, int], apart: float, generator: random.Random) -> list[tuple[float, str]]:
    """Who is killed when: instants are uniform in the time in which kills are `apart` seconds from each other."""
    victims = [victim for victim, count in kills.items() for _ in range(count)]
    generator.shuffle(victims)
    return sorted((generator.uniform(0, apart * len(victims)), victim) for victim in victims)


@dataclass
class Raid:
    """Runs the same command again and again, and kills what it is told to.

    Args:
        command: what is run.
        folder: where.
        due: instants, in seconds from the start, and victims.
        apart: seconds between two kills, on average.
        generator: chooses among workers.
        log: where to say what is done.
        killed: how many have been.
    """

    command: list[str]
    folder: Path
    due: list[tuple[float, str]]
    apart: float
    generator: random.Random
    log: Log
    killed: int = 0
    running: list[Command] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def go_on(self) -> list[Call]:
        """Run until all kills are done and the call after them has ended."""
        begin = time.monotonic()
        with ending(self.running):
            self.begin()
            while True:
                time.sleep(0.02)
                now = time.monotonic() - begin
                if self.running[-1].process.poll() is not None:
                    self.note()
                    if not self.due and self.calls[-1].ended == 'normally':
                        return self.calls
                    self.begin()
                elif self.due and now >= self.due[0][0]:
                    self.strike(now)
                elif time.time() - self.running[-1].output.stat().st_mtime > SILENT_SECONDS:
                    raise Failed(f'call {len(self.calls)} has said nothing for {SILENT_SECONDS:.0f} s')

    def begin(self) -> None:
        """Call the command."""
        self.running.append(start(self.command, self.folder, f'call-{len(self.calls):02}'))
        pid = self.running[-1].process.pid
        self.calls.append(Call(pid, psutil.Process(pid).create_time()))

    def note(self) -> None:
        """Write down how a call has ended.

        Raises:
            Failed: when more ended with an error than were hit by a kill.
        """
        command, call = self.running[-1], self.calls[-1]
        code = command.process.returncode
        call.read(command.output.read_text())
        call.ended = {0: 'normally', -signal.SIGKILL: 'killed'}.get(code, '') or command.problem
        self.log(f'call {len(self.calls) - 1}, {len(call.reported)} trials reported: {call.ended}')
        errors = sum(map(is_odd, self.calls))
        if errors > self.killed:
            raise Failed(f'{errors} calls ended by themselves after {self.killed} kills; the last one: {call.ended}')

    def strike(self, now: float) -> None:
        """Kill who is due, or wait for another random instant where there is none."""
        _, victim = self.due.pop(0)
        chosen = [self.running[-1].process] if victim == 'parent' else workers_of(self.running[-1].process.pid)
        if chosen:
            self.generator.choice(chosen).kill()  # type: ignore[attr-defined]
            self.killed += 1
            self.log(f'{now:.1f} s: killed a {victim}')
        else:
            self.due = sorted([*self.due, (now + self.generator.uniform(0, self.apart), victim)])


def workers_of(pid: int) -> list[psutil.Process]:
    """The living worker processes of a call."""
    workers = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and 'xagents.tuning.worker' in process.cmdline():
                    workers.append(process)
    return workers


def account(calls: Sequence[Call], trials: Sequence[FrozenTrial], wanted: int) -> dict[str, Any]:
    """Compare what calls said with what is in their study.

    Args:
        calls: all that were made, the last one ended normally.
        trials: of the study, by number.
        wanted: trials that each call was to finish.

    Returns:
        Counts, and a list of problems: one line each, none where all is well.
    """
    problems = [f'call {number} ended: {call.ended}' for number, call in enumerate(calls) if is_odd(call)]
    for number, call in enumerate(calls):
        problems += [f'call {number}: {text}' for text in miscounted(call, trials, wanted)]
    running = [trial.number for trial in trials if trial.state.name == 'RUNNING']
    if running:
        problems.append(f'still RUNNING: {running}')
    finished = [trial for trial in trials if is_finished(trial)]
    problems += [f'trial {one.number} is of no call' for one in finished if not any(call.ran(one) for call in calls)]
    broken_off = [trial for trial in trials if trial.state.name == 'FAIL' and 'reason' not in trial.user_attrs]
    for trial in broken_off:
        retries = [one.number for one in trials if one.user_attrs.get('retry_of') == trial.number]
        if len(retries) != 1:
            problems.append(f'trial {trial.number} was broken off and tried again {len(retries)} times')
    return {
        'calls': len(calls),
        'normal': sum(call.ended == 'normally' for call in calls),
        'reported': sum(len(call.reported) for call in calls),
        'finished': len(finished),
        'broken_off': len(broken_off),
        'running': len(running),
        'problems': problems,
    }


def is_odd(call: Call) -> bool:
    """Whether a call ended in a way that nobody has asked for."""
    return call.ended not in ('normally', 'killed')


def is_finished(trial: FrozenTrial) -> bool:
    """Whether a trial has come to its own end."""
    return trial.state.name in STATES.values()


def miscounted(call: Call, trials: Sequence[FrozenTrial], wanted: int) -> list[str]:
    """What is wrong with the counts of one call."""
    states = {trial.number: trial.state.name for trial in trials}
    problems = [
        f'reported trial {number} as {state}, which is {states.get(number)}'
        for number, state in call.reported.items()
        if states.get(number) != state
    ]
    kept = {trial.number for trial in trials if is_finished(trial) and call.ran(trial)}
    problems += [f'reported trial {number}, which is not its own' for number in call.reported.keys() - kept]
    if call.ended == 'normally':
        counts = (call.said, len(call.reported), len(kept))
        if counts != (wanted, wanted, wanted):
            problems.append('said {}, reported {}, kept {}'.format(*counts) + f', asked for {wanted}')
    elif len(kept) > len(call.reported) + 1:
        # a parent may die between writing and saying
        problems.append(f'kept {len(kept)} trials and reported {len(call.reported)}')
    return problems


def render_kills(result: dict[str, Any]) -> str:
    """The table of kills, counts and problems."""
    heading = ['', 'workers killed', 'parents killed', 'calls', 'of them to their end', 'trials reported finished']
    heading += ['in the study', 'broken off and tried again', 'RUNNING', 'processes left', 'problems', 's a kill']
    rows = []
    for name, found in result['storages'].items():
        counts = [found['kills']['worker'], found['kills']['parent']]
        counts += [found[key] for key in ('calls', 'normal', 'reported', 'finished', 'broken_off', 'running', 'left')]
        rows.append([name, *counts, len(found['problems']), f'{found["apart"]:.1f}'])
    note = f'`--n-trials {result["trials"]} --n-jobs 2`, the same command again after each death of a parent.'
    problems = [f'- {name}: {text}' for name, found in result['storages'].items() for text in found['problems']]
    return tables.markdown(heading, rows, note, *([''] if problems else []), *problems)
