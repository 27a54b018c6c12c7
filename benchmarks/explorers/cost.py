"""What a fragment costs the learner: processor time and bytes, from explorers here and from a machine of them."""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import xagents
from benchmarks.jobs import Log
from xagents.explorers.frames import Outgoing
from xagents.explorers.keys import make_key
from xagents.explorers.links import Channel

STEPS, ENVS = 128, 16
VECTORS = {'env': 'CartPole-v1', 'n_envs': ENVS, 'net': [64, 64], 'activation': 'tanh'}
IMAGES = {'env': 'ALE/Pong-v5', 'n_envs': 8}
# rollouts of each measurement, of which the first two are left out
ROLLOUTS = 8


class Counted:
    """Bytes that come and go, while it is entered."""

    def __init__(self) -> None:
        self.came = self.went = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count what links hear and send."""
        hear, put = Channel.hear, Outgoing.put

        def heard(channel: Channel, data: Any) -> None:
            self.came += len(data)
            hear(channel, data)

        def sent(outgoing: Outgoing, channel: int, message: bytes, share: bytes | None = None) -> None:
            again = share is not None and share is outgoing._shared
            self.went += len(message) + (0 if share is None or again else len(share))
            put(outgoing, channel, message, share)

        with mock.patch.object(Channel, 'hear', heard), mock.patch.object(Outgoing, 'put', sent):
            yield


@contextlib.contextmanager
def machine(folder: Path, n: int) -> Iterator[dict[str, Any]]:
    """Begin a machine of explorers on this one; yields the options of the run that they are for."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{free.getsockname()[1]}'
    key = str(folder / 'key.pem')
    make_key(key)
    words = ['explore', address, '--explorers', str(n), '--cluster-key', key]
    process = subprocess.Popen([sys.executable, '-m', 'xagents', *words], stdout=subprocess.DEVNULL)
    try:
        yield {'cluster': address, 'cluster_key': key}
        process.wait(30)
    finally:
        process.kill()


def cost(made: dict[str, Any], n: int, seed: int, rollouts: int, **where: Any) -> dict[str, float]:
    """Return ms of the learner's processor time and KB in and out, for each of n fragments of a rollout."""
    counted, seen = Counted(), []
    options = {**made, 'n_steps': STEPS, 'vector': 'sync', 'quiet': True, 'seed': seed}
    with contextlib.closing(xagents.make('ppo', **options)) as agent, counted.counting():
        marks: list[tuple[float, int, int]] = []

        def before(ctx: Any) -> None:
            marks.append((time.process_time(), counted.came, counted.went))

        def after(ctx: Any) -> None:
            now = (time.process_time(), counted.came, counted.went)
            seen.append([a - b for a, b in zip(now, marks[-1], strict=True)])

        recipe = agent.recipe().before('collect', before).after('collect', after)
        steps = rollouts * STEPS * made['n_envs']
        for _ in agent.train_iter(max_steps=steps, explorers=n, recipe=recipe, **where):
            pass
    seconds, came, went = (statistics.median(column) / n for column in zip(*seen[2:], strict=True))
    return {'milliseconds': 1e3 * seconds, 'in': came / 1e3, 'out': went / 1e3}


def measure_cost(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure vectors from 1, 2, 4, 8 and 16 explorers here and 8 and 16 of a machine, and images from 2."""
    rows: dict[str, Any] = {}
    rollouts = 4 if options.quick else ROLLOUTS
    for n in (2,) if options.quick else (1, 2, 4, 8, 16):
        rows[f'CartPole, {n} here'] = cost(VECTORS, n, options.seed, rollouts)
        log(str(rows))
    for n in () if options.quick else (8, 16):
        with machine(folder, n) as where:
            rows[f'CartPole, {n} on one machine'] = cost(VECTORS, n, options.seed, rollouts, **where)
            log(str(rows))
    if not options.quick:
        rows['Pong, 2 here'] = cost(IMAGES, 2, options.seed, rollouts)
        log(str(rows))
    return {'rows': rows}


def render_cost(result: dict[str, Any]) -> str:
    """A row for each place and number."""
    rows = ['| explorers | processor time of the learner for a fragment, ms | KB in | KB out |', '|---|---|---|---|']
    for name, row in result['rows'].items():
        rows.append(f'| {name} | {row["milliseconds"]:.2f} | {row["in"]:.0f} | {row["out"]:.1f} |')
    return '\n'.join(rows)
