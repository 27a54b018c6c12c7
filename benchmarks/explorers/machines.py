"""Compare runs with explorers on another machine, and some failures, with a run on one machine."""

import argparse
import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import tables
from benchmarks.explorers.namespaces import ADDRESSES, Machines, two_machines
from benchmarks.explorers.runs import SLOW, explorers
from benchmarks.jobs import Log
from benchmarks.processes import Failed, Process, run_to_end, running
from benchmarks.reliability.compare import differences
from benchmarks.reliability.runs import resume
from benchmarks.venvs import XAGENTS

PORT = 5555
ADDRESS = f'{ADDRESSES["a"]}:{PORT}'
ROLLOUT = 16 * 128
ROLLOUTS, QUICK_ROLLOUTS = 50, 12
SECONDS_CUT, SECONDS_WITHOUT = 12.0, 3.0
# the learner notices the loss of a machine after 8 s
PATIENCE = 30.0


def train(folder: Path, steps: int, *words: Any) -> list[str]:
    """Return the command of a learner."""
    line = (
        f'train ppo --env {SLOW} --n-envs 16 --n-steps 128 --vector sync --explorers 4 --seed 1 --max-steps {steps} '
        '--final-episodes 0 --save-seconds 1 --log-format json --log-frequency 1'
    )
    return [*XAGENTS, *line.split(), '--run-dir', str(folder), *map(str, words)]


def explore(key: Path, n_explorers: int = 5) -> list[str]:
    """Return the command that runs explorers on a machine."""
    return [*XAGENTS, 'explore', ADDRESS, '--explorers', str(n_explorers), '--cluster-key', str(key)]


@dataclass
class Scenario:
    """A learner on one machine, and explorers on the other.

    Args:
        machines: both machines.
        folder: for all files; the run directory is `run` in it.
        steps: of the run.
        stack: ends the processes.
        noticed: seconds until the failure was noticed; None if it was not.
    """

    machines: Machines
    folder: Path
    steps: int
    stack: contextlib.ExitStack
    noticed: float | None = None
    learners: list[Process] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.folder / 'run'

    @property
    def learner(self) -> Process:
        """The last learner."""
        return self.learners[-1]

    def start_learner(self, command: list[str]) -> None:
        """Start a learner, and wait until it listens."""
        self.learners.append(self.stack.enter_context(running(self.machines.words('a', command), self.folder)))
        self.wait(
            lambda: any('Listening' in m.get('text', '') for _, m in self.learner.events('message')), PATIENCE * 2
        )

    def start_explorers(self) -> Process:
        """Start the explorers on the other machine."""
        command = self.machines.words('b', explore(self.run_dir / 'cluster.pem'))
        return self.stack.enter_context(running(command, self.folder))

    def start_and_train(self) -> Process:
        """Start the explorers, and wait until the learner has used three rollouts."""
        machine, begun = self.start_explorers(), self.learner.steps
        self.wait(lambda: self.learner.steps >= begun + 3 * ROLLOUT, PATIENCE * 3)
        return machine

    def wait(self, condition: Callable[[], Any], seconds: float) -> None:
        """Wait for a condition of the learner.

        Raises:
            Failed: if the learner ends before.
        """
        if not self.learner.wait_until(condition, seconds):
            raise Failed(f'the learner: {self.learner.problem}')

    def time_until(self, condition: Callable[[], Any], seconds: float = PATIENCE, whole: float = 0.0) -> None:
        """Store the time until a condition holds, at most `seconds`; return after at least `whole` seconds."""
        since = time.monotonic()
        while time.monotonic() - since < seconds:
            if condition():
                self.noticed = time.monotonic() - since
                break
            time.sleep(0.02)
        time.sleep(max(0.0, whole - (time.monotonic() - since)))

    def is_disconnected(self) -> bool:
        """Return whether the learner's machine has no connection to explorers."""
        return not self.machines.connected(PORT)


def nothing(scenario: Scenario) -> None:
    """Run without a failure."""
    scenario.start_explorers()


def one_killed(scenario: Scenario) -> None:
    """Kill one explorer; it is noticed when its machine has started another one."""
    machine = scenario.start_and_train()
    before = {process.pid for process in explorers(machine.popen.pid, recursive=True)}
    psutil.Process(min(before)).kill()
    scenario.time_until(lambda: {one.pid for one in explorers(machine.popen.pid, recursive=True)} - before)


def link_cut(scenario: Scenario) -> None:
    """Cut the link for some seconds; it is noticed when the learner has closed the connection."""
    scenario.start_and_train()
    scenario.machines.set_link('down')
    scenario.time_until(scenario.is_disconnected, SECONDS_CUT, SECONDS_CUT)
    scenario.machines.set_link('up')


def machine_replaced(scenario: Scenario) -> None:
    """Turn the machine of explorers off, and another one on; it is noticed when the connection is closed."""
    scenario.start_and_train().signal(signal.SIGKILL)
    scenario.time_until(scenario.is_disconnected, whole=SECONDS_WITHOUT)
    scenario.start_explorers()


def learner_killed(scenario: Scenario) -> None:
    """Turn the learner's machine off and resume with fewer explorers; it is noticed when explorers print it."""
    machine = scenario.start_and_train()
    scenario.learner.signal(signal.SIGKILL)
    scenario.time_until(lambda: any('was lost' in line.get('text', '') for _, line in list(machine.lines)))
    scenario.learner.wait()
    scenario.start_learner(resume(scenario.run_dir, '--explorers', 2))


CASES: dict[str, tuple[str, Callable[[Scenario], None]]] = {
    'nothing': ('nothing', nothing),
    'killed': ('one of five explorers: `kill -9`', one_killed),
    'link': (f'the link is cut for {SECONDS_CUT:.0f} s', link_cut),
    'machine': (f'the machine is turned off, another one on {SECONDS_WITHOUT:.0f} s later', machine_replaced),
    'learner': ("the learner's machine is turned off; `--resume` with 2 explorers", learner_killed),
}
QUICK = ('killed', 'machine')


def measure_machines(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Compare runs with explorers on another machine with a run on this machine.

    Raises:
        Failed: if there can be no machines, or the run on this machine fails.
    """
    steps = ROLLOUT * (QUICK_ROLLOUTS if options.quick else ROLLOUTS)
    local = folder / 'local'
    with two_machines() as machines:
        run_to_end(train(local, steps), folder)
        log('local run: done')
        found = {}
        for name in QUICK if options.quick else CASES:
            (folder / name).mkdir()
            found[name] = outcome(name, machines, folder / name, steps, local)
            log(f'{name}: {found[name]}')
    return {'cases': found}


def outcome(name: str, machines: Machines, folder: Path, steps: int, local: Path) -> dict[str, Any]:
    """Run a case, and return its comparison with the local run."""
    try:
        with contextlib.ExitStack() as stack:
            scenario = Scenario(machines, folder, steps, stack)
            scenario.start_learner(train(scenario.run_dir, steps, '--cluster', ADDRESS))
            CASES[name][1](scenario)
            if scenario.learner.wait(300) != 0:
                raise Failed(scenario.learner.problem)
        unequal = unequal_in(local, scenario.run_dir)
    except (Failed, ValueError, OSError) as error:
        return {'problem': tables.one_line(str(error))}
    finally:
        machines.set_link('up')
    return {'unequal': unequal, 'noticed': scenario.noticed, 'longest': longest(scenario.learners)}


def unequal_in(one: Path, other: Path) -> list[str]:
    """Return the names of what differs in two run directories; the number of a policy's publications may differ."""
    import numpy as np

    a, b = (np.load(folder / 'checkpoints' / 'last' / 'policy.npz') for folder in (one, other))
    found = []
    for name in sorted({*a.files, *b.files} - {'version'}):
        if name not in a or name not in b or a[name].tobytes() != b[name].tobytes():
            found.append(f'policy: {name}')
    return [*found, *differences(one, other)]


def longest(runs: Sequence[Process]) -> float:
    """Return the longest time in seconds between two status lines of any run."""
    moments = sorted(when for run in runs for when, _ in run.events('status'))
    return max((b - a for a, b in itertools.pairwise(moments)), default=0.0)


def render_machines(result: dict[str, Any]) -> str:
    """Return the table of cases, with unequal names below it."""
    rows, problems = [], []
    for name, case in result['cases'].items():
        label = CASES[name][0]
        if 'problem' in case:
            rows.append([label, '', '', 'failed'])
            problems.append(f'{label}: {case["problem"]}')
            continue
        noticed = '' if case['noticed'] is None else tables.number(case['noticed'], 2)
        equal = 'not equal' if case['unequal'] else 'equal'
        rows.append([label, noticed, tables.number(case['longest'], 1), equal])
        if case['unequal']:
            problems.append(f'{label}: not equal: {"; ".join(case["unequal"][:5])}')
    heading = ['what happens', 'noticed after, s', 'longest time without a status line, s', 'compared with one machine']
    note = 'All weights, optimisers, random streams, counters and environments of the last checkpoint are compared.'
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))
