"""`kill -9` of explorers at random instants: whether the weights are those of the run that was left alone."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.explorers.runs import agent_of, digest, explorers
from benchmarks.jobs import Log


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
