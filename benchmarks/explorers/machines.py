"""Explorers on another machine, and what can happen to it: the weights are those of a run on one machine, or not."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import tables
from benchmarks.explorers.namespaces import ADDRESSES, Machines, two_machines
from benchmarks.explorers.runs import SLOW, explorers
from benchmarks.jobs import Log
from benchmarks.reliability.compare import differences
from benchmarks.reliability.runs import Run, resume, running, to_end
from benchmarks.speed.run import Failed
from benchmarks.venvs import XAGENTS

PORT = 5555
ADDRESS = f'{ADDRESSES["a"]}:{PORT}'
ROLLOUT = 16 * 128
ROLLOUTS, QUICK_ROLLOUTS = 50, 12
SECONDS_CUT, SECONDS_WITHOUT = 12.0, 3.0
# a machine that is lost is noticed after 8 s
PATIENCE = 30.0


def train(folder: Path, steps: int, *words: Any) -> list[str]:
    """Return the command of a learner."""
    line = (
        f'train ppo --env {SLOW} --n-envs 16 --n-steps 128 --vector sync --explorers 4 --seed 1 --max-steps {steps} '
        '--final-episodes 0 --save-seconds 1 --log-format json --log-frequency 1'
    )
    return [*XAGENTS, *line.split(), '--run-dir', str(folder), *map(str, words)]


def explore(key: Path, n_explorers: int = 5) -> list[str]:
    """Return the command of a machine of explorers."""
    return [*XAGENTS, 'explore', ADDRESS, '--explorers', str(n_explorers), '--cluster-key', str(key)]


@dataclass
class Scene:
    """A learner on one machine, and explorers on the other.

    Args:
        machines: both.
        folder: for all files; the run's own is `run` in it.
        steps: of the run.
        stack: ends what was begun.
    """

    machines: Machines
    folder: Path
    steps: int
    stack: contextlib.ExitStack
    noticed: float | None = None
    learners: list[Run] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.folder / 'run'

    @property
    def learner(self) -> Run:
        """The learner that runs, or ran last."""
        return self.learners[-1]

    def begin_learner(self, command: list[str]) -> None:
        """Begin a learner, and wait until it listens."""
        self.learners.append(self.stack.enter_context(running(self.machines.words('a', command), self.folder)))
        listens = self.learner.wait_until(
            lambda: any('Listening' in said.get('text', '') for _, said in self.learner.events('message')), PATIENCE * 2
        )
        if not listens:
            raise Failed(f'the learner: {self.learner.problem}')

    def begin_explorers(self) -> Run:
        """Begin the machine of explorers."""
        command = self.machines.words('b', explore(self.run_dir / 'cluster.pem'))
        return self.stack.enter_context(running(command, self.folder))

    def train_on(self, rollouts: int = 3) -> None:
        """Wait until the learner has learned from so many more rollouts."""
        begun = self.learner.steps
        if not self.learner.wait_until(lambda: self.learner.steps >= begun + rollouts * ROLLOUT, PATIENCE * 3):
            raise Failed(f'the learner: {self.learner.problem}')

    def notice(self, since: float, seen: Callable[[], Any], seconds: float = PATIENCE) -> None:
        """Note when something is seen for the first time, if it is."""
        while time.monotonic() - since < seconds:
            if seen():
                self.noticed = time.monotonic() - since
                return
            time.sleep(0.02)


def nothing(scene: Scene) -> None:
    """Let them be."""
    scene.begin_explorers()


def one_killed(scene: Scene) -> None:
    """Kill one explorer; noticed is when its machine has begun another one."""
    machine = scene.begin_explorers()
    scene.train_on()
    before = {process.pid for process in explorers(machine.process.pid, recursive=True)}
    psutil.Process(min(before)).kill()
    since = time.monotonic()
    scene.notice(since, lambda: {one.pid for one in explorers(machine.process.pid, recursive=True)} - before)


def link_cut(scene: Scene) -> None:
    """Cut the link for a while; noticed is when the learner has given the connection up."""
    scene.begin_explorers()
    scene.train_on()
    scene.machines.link_down()
    since = time.monotonic()
    scene.notice(since, lambda: not scene.machines.connected(PORT), SECONDS_CUT)
    time.sleep(max(0.0, SECONDS_CUT - (time.monotonic() - since)))
    scene.machines.link_up()


def machine_replaced(scene: Scene) -> None:
    """Turn the machine of explorers off, and another one on; noticed is when the learner knows."""
    machine = scene.begin_explorers()
    scene.train_on()
    machine.signal(signal.SIGKILL)
    since = time.monotonic()
    scene.notice(since, lambda: not scene.machines.connected(PORT))
    time.sleep(max(0.0, SECONDS_WITHOUT - (time.monotonic() - since)))
    scene.begin_explorers()


def learner_killed(scene: Scene) -> None:
    """Turn the learner's machine off and let it go on with another number; noticed is when the explorers say so."""
    machine = scene.begin_explorers()
    scene.train_on()
    scene.learner.signal(signal.SIGKILL)
    since = time.monotonic()
    scene.notice(since, lambda: any('was lost' in said.get('text', '') for _, said in list(machine.lines)))
    scene.learner.wait()
    scene.begin_learner(resume(scene.run_dir, '--explorers', 2))


CASES: dict[str, tuple[str, Callable[[Scene], None]]] = {
    'nothing': ('nothing', nothing),
    'killed': ('one of five explorers: `kill -9`', one_killed),
    'link': (f'the link is cut for {SECONDS_CUT:.0f} s', link_cut),
    'machine': (f'the machine is turned off, another one on {SECONDS_WITHOUT:.0f} s later', machine_replaced),
    'learner': ("the learner's machine is turned off; `--resume` with 2 explorers", learner_killed),
}
QUICK = ('killed', 'machine')


def measure_machines(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Compare runs with explorers on another machine with one on this machine.

    Raises:
        Failed: where there can be no machines, or the run on this machine fails.
    """
    steps = ROLLOUT * (QUICK_ROLLOUTS if options.quick else ROLLOUTS)
    alone = folder / 'alone'
    with two_machines() as machines:
        to_end(train(alone, steps), folder)
        log('alone: done')
        found = {}
        for name in QUICK if options.quick else CASES:
            place = folder / name
            place.mkdir()
            found[name] = outcome(name, machines, place, steps, alone)
            log(f'{name}: {found[name]}')
    return {'cases': found}


def outcome(name: str, machines: Machines, folder: Path, steps: int, alone: Path) -> dict[str, Any]:
    """Let something happen, and return what became of the run."""
    try:
        with contextlib.ExitStack() as stack:
            scene = Scene(machines, folder, steps, stack)
            scene.begin_learner(train(scene.run_dir, steps, '--cluster', ADDRESS))
            CASES[name][1](scene)
            if scene.learner.wait(300) != 0:
                raise Failed(scene.learner.problem)
        unequal = [*weights_unequal(alone, scene.run_dir), *differences(alone, scene.run_dir)]
    except (Failed, ValueError, OSError) as error:
        return {'problem': tables.one_line(str(error))}
    finally:
        machines.link_up()
    return {'unequal': unequal, 'noticed': scene.noticed, 'longest': longest(scene.learners)}


def weights_unequal(one: Path, other: Path) -> Iterator[str]:
    """Name arrays of the last policies of two runs that are not equal, but for how often they were published."""
    import numpy as np

    a, b = (np.load(folder / 'checkpoints' / 'last' / 'policy.npz') for folder in (one, other))
    for name in sorted({*a.files, *b.files} - {'version'}):
        if name not in a or name not in b or a[name].tobytes() != b[name].tobytes():
            yield f'policy: {name}'


def longest(runs: list[Run]) -> float:
    """Return the longest time in seconds between two lines of status, of whichever run."""
    moments = sorted(when for run in runs for when, _ in run.events('status'))
    return max((b - a for a, b in itertools.pairwise(moments)), default=0.0)


def render_machines(result: dict[str, Any]) -> str:
    """A row for each case, with what was not equal below."""
    rows, problems = [], []
    for name, case in result['cases'].items():
        label = CASES[name][0]
        if 'problem' in case:
            rows.append([label, '', '', 'failed'])
            problems.append(f'- {label}: {case["problem"]}')
            continue
        noticed = '' if case['noticed'] is None else tables.number(case['noticed'], 2)
        equal = 'not equal' if case['unequal'] else 'equal'
        rows.append([label, noticed, tables.number(case['longest'], 1), equal])
        if case['unequal']:
            problems.append(f'- {label}: not equal: {"; ".join(case["unequal"][:5])}')
    heading = ['what happens', 'noticed after, s', 'longest silence of the run, s', 'beside the run on one machine']
    note = 'Compared are all weights, optimisers, random streams, counters and environments of the last checkpoint.'
    return tables.markdown(heading, rows, note, *([''] if problems else []), *problems)
