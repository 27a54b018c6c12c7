"""Kill explorers, or a learner with local explorers, with `kill -9` at random times.

Do the runs end with the weights of an undisturbed run, does a killed learner resume, and does it leave anything?
"""

import argparse
import contextlib
import random
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import tables
from benchmarks.explorers.machines import ROLLOUT, train, unequal_in
from benchmarks.explorers.runs import EXPLORER, digest, explorers, make_agent, variables_of
from benchmarks.jobs import Log
from benchmarks.processes import Failed, Process, run_to_end, running
from benchmarks.reliability.runs import resume

KILLS, QUICK_KILLS = 10, 2
ROLLOUTS, QUICK_ROLLOUTS = 100, 14
# largest time between the first status line and the kill
SECONDS = 4.0
# time after which remains of a learner must be gone
PATIENCE = 10.0
MARK = 'XAGENTS_BENCHMARK_MARK'
MOMENTS = ('start', 'explorers start', 'any', 'any')
REMAINS = ('processes', 'sockets', 'folders')


class Remains:
    """Finds processes, sockets and folders that these runs leave, not those of other runs.

    Args:
        folder: for the temporary files of the runs.
    """

    def __init__(self, folder: Path):
        self.mark, self.folder = uuid.uuid4().hex, folder
        self._seen: set[Path] = set()
        folder.mkdir()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that identify the runs."""
        return {MARK: self.mark, 'TMPDIR': str(self.folder)}

    def look(self) -> None:
        """Store the folders with sockets of learners, and the folders in the commands of explorers."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words, sockets = process.cmdline(), process.net_connections('unix')
                self._seen |= {Path(words[-2])} if EXPLORER in words else set()
                self._seen |= {Path(str(one.laddr)).parent for one in sockets if str(one.laddr).endswith('/explorers')}

    def processes(self) -> Iterator[psutil.Process]:
        """Yield the processes that are left."""
        for process in psutil.process_iter(['status']):
            if process.info['status'] != psutil.STATUS_ZOMBIE and variables_of(process).get(MARK) == self.mark:
                yield process

    def folders(self) -> set[Path]:
        """Return the folders and files that are left."""
        return {path for path in {*self._seen, *self.folder.iterdir()} if path.exists()}

    def sockets(self) -> list[str]:
        """Return the names of sockets that are left."""
        table = Path('/proc/net/unix')
        names = [line.split()[-1] for line in table.read_text().splitlines()] if table.exists() else []
        return [name for name in names if any(name.startswith(f'{path}/') for path in [*self._seen, self.folder])]

    def count(self) -> dict[str, int]:
        """Return the numbers of what is left."""
        return dict(zip(REMAINS, map(len, ([*self.processes()], self.sockets(), self.folders())), strict=True))

    def remove(self) -> None:
        """Remove what is left, so that it is counted once."""
        for process in self.processes():
            process.kill()
        for path in self.folders():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def measure_learner(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill a learner repeatedly, resume it each time, and compare it with an undisturbed run.

    Raises:
        Failed: if a run cannot be resumed.
    """
    kills, rollouts = (QUICK_KILLS, QUICK_ROLLOUTS) if options.quick else (KILLS, ROLLOUTS)
    steps, undisturbed, run_dir = rollouts * ROLLOUT, folder / 'undisturbed', folder / 'run'
    run_to_end(train(undisturbed, steps), folder)
    log('undisturbed run: done')
    generator, remains = random.Random(options.seed), Remains(folder / 'temporary')
    result: dict[str, Any] = {'kills': 0, 'slowest': 0.0, 'left': dict.fromkeys(REMAINS, 0)}

    def add_left() -> float:
        left, seconds = wait_for_removal(remains)
        result['left'] = {name: result['left'][name] + n for name, n in left.items()}
        log(f'{result["kills"]} kills; left after {seconds:.1f} s: {left}')
        return seconds

    while result['kills'] < kills:
        command = resume(run_dir) if (run_dir / 'config.yaml').exists() else train(run_dir, steps)
        with running(command, folder, **remains.variables) as run:
            if not kill(run, remains, generator):
                break
            result['kills'] += 1
            result['slowest'] = max(result['slowest'], add_left())
    with running(resume(run_dir), folder, **remains.variables) as run:
        run.check()
    add_left()
    return {**result, 'unequal': unequal_in(undisturbed, run_dir)}


def kill(run: Process, remains: Remains, generator: random.Random) -> bool:
    """Kill a run while it starts, while its explorers start, or later; return whether it still ran.

    Raises:
        Failed: if the run ended with an error.
    """
    moment = generator.choice(MOMENTS)
    if moment == 'start':
        time.sleep(generator.uniform(0, 2 * SECONDS))
    elif moment == 'explorers start':
        run.wait_until(lambda: next(explorers(run.popen.pid), None))
        time.sleep(generator.uniform(0, 0.6))
    else:
        run.wait_until(lambda: run.events('status'))
        time.sleep(generator.uniform(0, SECONDS))
    remains.look()
    run.signal(signal.SIGKILL)
    code = run.wait()
    if code not in (0, -signal.SIGKILL):
        raise Failed(run.problem)
    return code != 0


def wait_for_removal(remains: Remains) -> tuple[dict[str, int], float]:
    """Wait until nothing is left, at most `PATIENCE`; return what is left, and the time."""
    begun = time.monotonic()
    left = remains.count()
    while any(left.values()) and time.monotonic() - begun < PATIENCE:
        time.sleep(0.05)
        left = remains.count()
    remains.remove()
    return left, time.monotonic() - begun


def render_learner(result: dict[str, Any]) -> str:
    """Return the table, which has one row, with unequal names below it."""
    heading = ['kills', 'all gone after, s', *(f'{name} left' for name in REMAINS), 'compared with an undisturbed run']
    left, unequal = result['left'], result['unequal']
    row = [result['kills'], tables.number(result['slowest'], 1), *(left[name] for name in REMAINS)]
    row.append('not equal' if unequal else 'equal')
    return tables.markdown(heading, [row], *(f'- not equal: {name}' for name in unequal[:5]))


# ----------------------------------------------------------------------------------------------------------- explorers


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill at most 20 explorers in each run, and compare each run with an undisturbed run."""
    steps, wanted = 40 * 2048, 2 if options.quick else options.kills
    with make_agent('CartPole-v1', options.seed) as agent:
        agent.fit(max_steps=steps)
        undisturbed = digest(agent)
    rng, killed, runs, equal, slowest = np.random.default_rng(options.seed), 0, 0, 0, 0.0
    while killed < wanted:
        with make_agent('CartPole-v1', options.seed) as agent:
            ended, counted = threading.Event(), [0]
            most = min(20, wanted - killed)
            thread = threading.Thread(target=kill_some, args=(ended, rng, most, counted))
            thread.start()
            last = time.perf_counter()
            for _ in agent.train_iter(max_steps=steps, explorers=4):
                now = time.perf_counter()
                slowest, last = max(slowest, now - last), now
            ended.set()
            thread.join()
            runs, killed, equal = runs + 1, killed + counted[0], equal + (digest(agent) == undisturbed)
        log(f'{killed} kills, {equal} of {runs} runs equal')
    return {'kills': killed, 'runs': runs, 'equal': equal, 'slowest': slowest, 'left': len(list(explorers()))}


def kill_some(ended: threading.Event, rng: np.random.Generator, most: int, counted: list[int]) -> None:
    """Kill explorers until the run ends; count them in `counted`."""
    while counted[0] < most and not ended.wait(rng.uniform(0.05, 0.5)):
        found = list(explorers())
        if found:
            with contextlib.suppress(psutil.Error):
                found[int(rng.integers(len(found)))].kill()
                counted[0] += 1


def render_kills(result: dict[str, Any]) -> str:
    """Return the table, which has one row."""
    heading = ['kills', 'runs', 'with the weights of an undisturbed run', 'longest iteration, s', 'processes left']
    row = [result['kills'], result['runs'], result['equal'], f'{result["slowest"]:.1f}', result['left']]
    return tables.markdown(heading, [row])
