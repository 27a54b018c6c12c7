"""Kill explorers with `kill -9` at random times, and compare the weights with those of an undisturbed run."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import tables
from benchmarks.explorers.runs import digest, explorers, make_agent
from benchmarks.jobs import Log


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
