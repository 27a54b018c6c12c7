"""`kill -9` of a learner with local explorers at random instants: what is left over, and whether it goes on."""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import tables
from benchmarks.explorers.machines import ROLLOUT, train, weights_unequal
from benchmarks.explorers.runs import EXPLORER, explorers, variables_of
from benchmarks.jobs import Log
from benchmarks.reliability.compare import differences
from benchmarks.reliability.runs import Run, resume, running, to_end
from benchmarks.speed.run import Failed

KILLS, QUICK_KILLS = 10, 2
ROLLOUTS, QUICK_ROLLOUTS = 100, 14
# from the first line of status on, until it is killed at the latest
SECONDS = 4.0
# that what a learner leaves behind may take to be gone
PATIENCE = 10.0
MARK = 'XAGENTS_BENCHMARK_MARK'
MOMENTS = ('start', 'explorers start', 'any', 'any')


class Traces:
    """Finds what runs leave behind, of these and not of others.

    Args:
        folder: where their temporary files are.
    """

    def __init__(self, folder: Path):
        self.mark, self.folder = uuid.uuid4().hex, folder
        self._seen: set[Path] = set()
        folder.mkdir()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the runs, by which they are known."""
        return {MARK: self.mark, 'TMPDIR': str(self.folder)}

    def look(self) -> None:
        """Note the folders where learners listen, and those that explorers were told."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words, sockets = process.cmdline(), process.net_connections('unix')
                self._seen |= {Path(words[-2])} if EXPLORER in words else set()
                self._seen |= {Path(str(one.laddr)).parent for one in sockets if str(one.laddr).endswith('/explorers')}

    def processes(self) -> Iterator[psutil.Process]:
        """Yield processes that are left."""
        for process in psutil.process_iter(['status']):
            if process.info['status'] != psutil.STATUS_ZOMBIE and variables_of(process).get(MARK) == self.mark:
                yield process

    def folders(self) -> set[Path]:
        """Return folders and files that are left."""
        return {path for path in {*self._seen, *self.folder.iterdir()} if path.exists()}

    def sockets(self) -> list[str]:
        """Return names of sockets that are left."""
        table = Path('/proc/net/unix')
        names = [line.split()[-1] for line in table.read_text().splitlines()] if table.exists() else []
        return [name for name in names if any(name.startswith(f'{path}/') for path in [*self._seen, self.folder])]

    def left(self) -> dict[str, int]:
        """Count them."""
        return {
            'processes': sum(1 for _ in self.processes()),
            'sockets': len(self.sockets()),
            'folders': len(self.folders()),
        }

    def sweep(self) -> None:
        """Take away what is left, so that it is counted once."""
        for process in self.processes():
            process.kill()
        for path in self.folders():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def measure_learner(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill a learner again and again, go on each time, and compare with the run that is left alone.

    Raises:
        Failed: where a run cannot go on.
    """
    kills, rollouts = (QUICK_KILLS, QUICK_ROLLOUTS) if options.quick else (KILLS, ROLLOUTS)
    steps = rollouts * ROLLOUT
    to_end(train(folder / 'alone', steps), folder)
    log('alone: done')
    generator, traces = random.Random(options.seed), Traces(folder / 'temporary')
    result: dict[str, Any] = {'kills': 0, 'slowest': 0.0, 'left': {'processes': 0, 'sockets': 0, 'folders': 0}}
    run_dir = folder / 'run'
    while result['kills'] < kills:
        command = resume(run_dir) if (run_dir / 'config.yaml').exists() else train(run_dir, steps)
        with running(command, folder, **traces.variables) as run:
            if not killed(run, traces, generator):
                break
            left, seconds = settled(traces)
        result['kills'] += 1
        result['slowest'] = max(result['slowest'], seconds)
        result['left'] = {name: result['left'][name] + n for name, n in left.items()}
        log(f'{result["kills"]} kills; left over after {seconds:.1f} s: {left}')
    with running(resume(run_dir), folder, **traces.variables) as run:
        if run.wait() != 0:
            raise Failed(f'after {result["kills"]} kills: {run.problem}')
    left, _ = settled(traces)
    result['left'] = {name: result['left'][name] + n for name, n in left.items()}
    alone = folder / 'alone'
    return {**result, 'unequal': [*weights_unequal(alone, run_dir), *differences(alone, run_dir)]}


def killed(run: Run, traces: Traces, generator: random.Random) -> bool:
    """Kill a run at a random instant of its start, of its explorers' start, or later; returns whether it was there.

    Raises:
        Failed: where it ended by an error.
    """
    moment = generator.choice(MOMENTS)
    if moment == 'start':
        time.sleep(generator.uniform(0, 2 * SECONDS))
    elif moment == 'explorers start':
        run.wait_until(lambda: next(explorers(run.process.pid), None))
        time.sleep(generator.uniform(0, 0.6))
    else:
        run.wait_until(lambda: run.events('status'))
        time.sleep(generator.uniform(0, SECONDS))
    traces.look()
    run.signal(signal.SIGKILL)
    code = run.wait()
    if code not in (0, -signal.SIGKILL):
        raise Failed(run.problem)
    return code != 0


def settled(traces: Traces) -> tuple[dict[str, int], float]:
    """Wait until nothing is left, for a while; returns what is, and how long that took."""
    begun = time.monotonic()
    left = traces.left()
    while any(left.values()) and time.monotonic() - begun < PATIENCE:
        time.sleep(0.05)
        left = traces.left()
    traces.sweep()
    return left, time.monotonic() - begun


def render_learner(result: dict[str, Any]) -> str:
    """One row, with what was not equal below."""
    heading = ['kills', 'all gone after, s', 'processes left', 'sockets left', 'folders left']
    heading += ['beside the run that was left alone']
    left, unequal = result['left'], result['unequal']
    row = [
        result['kills'],
        tables.number(result['slowest'], 1),
        *(left[n] for n in ('processes', 'sockets', 'folders')),
    ]
    return tables.markdown(
        heading, [[*row, 'not equal' if unequal else 'equal']], *(f'- not equal: {name}' for name in unequal[:5])
    )
