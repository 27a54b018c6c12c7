"""Measure what a fragment costs the learner: processor time and bytes, from local explorers and from a machine."""

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import xagents
from benchmarks import tables
from benchmarks.explorers.runs import explorer_machine
from benchmarks.jobs import Log
from xagents.explorers.frames import SendQueue
from xagents.explorers.transport import Channel

STEPS, ENVS = 128, 16
VECTORS = {'env': 'CartPole-v1', 'n_envs': ENVS, 'net': [64, 64], 'activation': 'tanh'}
IMAGES = {'env': 'ALE/Pong-v5', 'n_envs': 8}
# rollouts of each measurement; the first two are not counted
ROLLOUTS = 8


class ByteCounter:
    """Counts received and sent bytes."""

    def __init__(self) -> None:
        self.received = self.sent = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the bytes of all links."""
        hear, put = Channel.receive, SendQueue.put

        def receive(channel: Channel, data: Any) -> None:
            self.received += len(data)
            hear(channel, data)

        def send(outgoing: SendQueue, channel: int, message: bytes, share: bytes | None = None) -> None:
            repeated = share is not None and share is outgoing._last_sent_broadcast
            self.sent += len(message) + (0 if share is None or repeated else len(share))
            put(outgoing, channel, message, share)

        with mock.patch.object(Channel, 'receive', receive), mock.patch.object(SendQueue, 'put', send):
            yield


def cost(made: dict[str, Any], n: int, seed: int, rollouts: int, **options: Any) -> dict[str, float]:
    """Return ms of the learner's processor time and KB in and out, for each of n fragments of a rollout."""
    counter, marks, seen = ByteCounter(), [], []
    settings = {**made, 'n_steps': STEPS, 'vector': 'sync', 'quiet': True, 'seed': seed}

    def now() -> tuple[float, int, int]:
        return time.process_time(), counter.received, counter.sent

    with contextlib.closing(xagents.make('ppo', **settings)) as agent, counter.counting():

        def before(ctx: Any) -> None:
            marks.append(now())

        def after(ctx: Any) -> None:
            seen.append([a - b for a, b in zip(now(), marks[-1], strict=True)])

        recipe = agent.recipe().before('collect', before).after('collect', after)
        steps = rollouts * STEPS * made['n_envs']
        for _ in agent.train_iter(max_steps=steps, explorers=n, recipe=recipe, **options):
            pass
    seconds, received, sent = (statistics.median(column) / n for column in zip(*seen[2:], strict=True))
    return {'milliseconds': 1e3 * seconds, 'in': received / 1e3, 'out': sent / 1e3}


def measure_cost(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure vectors from 1, 2, 4, 8 and 16 local explorers and 8 and 16 of a machine, and images from 2."""
    rows: dict[str, Any] = {}
    rollouts = 4 if options.quick else ROLLOUTS

    def add(name: str, *given: Any, **connection: Any) -> None:
        rows[name] = cost(*given, options.seed, rollouts, **connection)
        log(f'{name}: {rows[name]}')

    for n in (2,) if options.quick else (1, 2, 4, 8, 16):
        add(f'CartPole, {n} here', VECTORS, n)
    for n in () if options.quick else (8, 16):
        with explorer_machine(folder, n) as connection:
            add(f'CartPole, {n} on one machine', VECTORS, n, **connection)
    if not options.quick:
        add('Pong, 2 here', IMAGES, 2)
    return {'rows': rows}


def render_cost(result: dict[str, Any]) -> str:
    """Return the table of costs."""
    rows = [
        [name, f'{row["milliseconds"]:.2f}', f'{row["in"]:.0f}', f'{row["out"]:.1f}']
        for name, row in result['rows'].items()
    ]
    heading = ['explorers', 'processor time of the learner for a fragment, ms', 'KB in', 'KB out']
    return tables.markdown(heading, rows)
