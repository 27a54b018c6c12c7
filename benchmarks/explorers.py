"""What explorers give, take and promise: `python benchmarks/explorers.py`."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# a script's own folder is on the path, not the repository's
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil

import xagents
from benchmarks import parts, tables
from benchmarks.parts import Log, Part

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'grpcio')
SLOW = 'benchmarks.slow:Slow-v0'
NUMBERS = (1, 2, 4, 8)
ROLLOUTS = 6  # of each measurement, of which the first two are not timed
PPO = {'n_envs': 16, 'n_steps': 128, 'vector': 'sync', 'quiet': True, 'net': [64, 64], 'activation': 'tanh'}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = parts.make_parser('explorers', __doc__, PARTS)
    parser.add_argument('--repeats', type=int, default=3, help='scaling, cartpole: how often each is measured')
    parser.add_argument('--kills', type=int, default=100, help='kills: how many')
    parser.add_argument('--seed', type=int, default=1, help='of the runs, and of the instants of kills')
    return parser


@contextlib.contextmanager
def agent_of(env: str, seed: int, **options: Any) -> Iterator[Any]:
    """Make PPO, and close it."""
    agent = xagents.make('ppo', env, seed=seed, **{**PPO, **options})
    try:
        yield agent
    finally:
        agent.close()


def rate(env: str, seed: int, explorers: int | None, overlap: bool = False) -> float:
    """Return environment steps a second, start-up and compiling left out."""
    marks = []
    with agent_of(env, seed) as agent:
        for _ in agent.train_iter(max_steps=ROLLOUTS * 2048, explorers=explorers, overlap=overlap):
            marks.append((time.perf_counter(), agent.steps))
    (begun, before), (ended, after) = marks[1], marks[-1]
    return (after - before) / (ended - begun)


def measure_scaling(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 1, 2, 4 and 8 explorers, with and without overlap, and none, in turn."""
    return measure_rates(SLOW, options, log)


def measure_cartpole(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """The same with an environment that takes no time."""
    return measure_rates('CartPole-v1', options, log)


def measure_rates(env: str, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Return steps/s by row, one a repeat."""
    rows = [(None, False), *((n, False) for n in NUMBERS), *((n, True) for n in NUMBERS)]
    rates: dict[str, list[float]] = {}
    for repeat in range(1 if options.quick else options.repeats):
        for explorers, overlap in rows[:2] if options.quick else rows:
            name = f'{explorers or "none"}{", overlap" if overlap else ""}'
            rates.setdefault(name, []).append(rate(env, options.seed + repeat, explorers, overlap))
            log(f'{name}: {rates[name][-1]:.0f} steps/s')
    return {'rates': rates}


def render_rates(result: dict[str, Any]) -> str:
    """A row for each number, with what it is of as many times one explorer."""
    rows = ['| explorers | steps/s | times one explorer | of N |', '|---|---|---|---|']
    for name, rates in result['rates'].items():
        one = result['rates']['1, overlap' if 'overlap' in name else '1']
        times = [a / b for a, b in zip(rates, one, strict=True)]
        n = name.split(',')[0]
        share = [t / int(n) for t in times] if n.isdecimal() else []
        shown = tables.spread(share, 2) if share else ''
        rows.append(f'| {name} | {tables.spread(rates, 0)} | {tables.spread(times, 2)} | {shown} |')
    return '\n'.join(rows)


def digest(agent: Any) -> str:
    """What a run has come to."""
    weights = [w.tobytes() for model in agent.output_models for w in model.get_weights()]
    return hashlib.sha256(b''.join(weights) + f'{agent.steps} {agent.games}'.encode()).hexdigest()[:12]


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill explorers at random instants, at most 20 a run, and compare with the run that is left alone."""
    steps, wanted = 40 * 2048, 2 if options.quick else options.kills
    with agent_of('CartPole-v1', options.seed) as agent:
        agent.fit(max_steps=steps)
        alone = digest(agent)
    rng, killed, runs, equal, slowest = np.random.default_rng(options.seed), 0, 0, 0, 0.0
    while killed < wanted:
        with agent_of('CartPole-v1', options.seed) as agent:
            ended, counted = threading.Event(), [0]
            most = min(20, wanted - killed)
            thread = threading.Thread(target=_kill, args=(ended, rng, most, counted))
            thread.start()
            last = time.perf_counter()
            for _ in agent.train_iter(max_steps=steps, explorers=4):
                now = time.perf_counter()
                slowest, last = max(slowest, now - last), now
            ended.set()
            thread.join()
            runs, killed, equal = runs + 1, killed + counted[0], equal + (digest(agent) == alone)
        log(f'{killed} kills, {equal} of {runs} runs equal')
    return {'kills': killed, 'runs': runs, 'equal': equal, 'slowest': slowest, 'left': len(list(explorers()))}


def explorers() -> Iterator[psutil.Process]:
    """Yield the processes of explorers that this process has started."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if 'xagents.explorers.process' in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _kill(ended: threading.Event, rng: np.random.Generator, most: int, counted: list[int]) -> None:
    """Kill explorers as long as the run goes on."""
    while counted[0] < most and not ended.wait(rng.uniform(0.05, 0.5)):
        found = list(explorers())
        if found:
            with contextlib.suppress(psutil.Error):
                found[int(rng.integers(len(found)))].kill()
                counted[0] += 1


def render_kills(result: dict[str, Any]) -> str:
    """One row."""
    return (
        '| kills | runs | with the weights of the run that was left alone | longest iteration, s | processes left |\n'
        f'|---|---|---|---|---|\n| {result["kills"]} | {result["runs"]} | {result["equal"]} | '
        f'{result["slowest"]:.1f} | {result["left"]} |'
    )


def measure_start(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure how long the first rollout takes with explorers that have to start, and the memory of each."""
    rows: dict[str, Any] = {}
    for n in (1, 8):
        with agent_of('CartPole-v1', options.seed) as agent:
            stream = agent.train_iter(max_steps=8 * 2048, explorers=n)
            seconds = next(stream)['seconds/wait']
            memory = [process.memory_info().rss / 1e6 for process in explorers()]
            stream.close()
        rows[str(n)] = {'seconds': seconds, 'megabytes': memory}
        log(f'{n}: {seconds:.2f} s')
    return rows


def render_start(result: dict[str, Any]) -> str:
    """A row for each number."""
    rows = ['| explorers | first rollout, processes started, s | resident MB of one |', '|---|---|---|']
    for n, row in result.items():
        rows.append(f'| {n} | {row["seconds"]:.2f} | {statistics.median(row["megabytes"]):.0f} |')
    return '\n'.join(rows)


PARTS = {
    'scaling': Part(
        'An environment with a millisecond a step: PPO, 16 x 128', measure_scaling, render_rates, ('repeats', 'seed')
    ),
    'cartpole': Part('CartPole itself', measure_cartpole, render_rates, ('repeats', 'seed')),
    'start': Part('Start and memory', measure_start, render_start, ('seed',)),
    'kills': Part('Explorers killed at random instants', measure_kills, render_kills, ('kills', 'seed')),
}


def main() -> int:
    """Measure what the command line names."""
    parser = make_parser()
    return parts.run(PARTS, parser, parser.parse_args(), PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
