"""A learner that says what it likes to explorers: `python -m benchmarks.explorers.liar MESSAGES SEED`.

Explorers are real ones, on a Unix socket. They are told the messages of a real run first, and then such messages
changed; each until it ends by itself, which it may, with one line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any
from unittest import mock

import grpc
import psutil

from benchmarks.explorers import noise
from benchmarks.explorers.runs import EXPLORER, agent_of
from xagents.explorers.frames import Frame, Kind, frames_of
from xagents.explorers.links import METHOD, SERVICE, Channel
from xagents.explorers.local import ONE_THREAD
from xagents.explorers.messages import unpack

AT_ONCE = 2
MOST_EACH = 40
# of the messages to an explorer, those that are none, after which it ends
SHARE_OF_NOISE = 0.08
# an explorer whose memory has grown by so much, or that has not answered for so long, is killed and counted
MOST_BYTES, PATIENCE = 512e6, 20.0


def overheard(seed: int) -> list[bytes]:
    """Return what a real learner says to an explorer: what it is told once, what all are told, and an order."""
    said: list[bytes] = []
    send = Channel.send

    def note(self: Channel, message: bytes, share: bytes | None = None) -> None:
        said.extend([share, message] if share is not None else [message])
        send(self, message, share)

    with mock.patch.object(Channel, 'send', note), agent_of('CartPole-v1', seed, n_envs=4, normalize_obs=True) as agent:
        agent.fit(max_steps=4 * 128, explorers=2)
    return said[:1] + next([a, b] for a, b in itertools.pairwise(said) if b'"order"' in b and b'"share"' in a)


class Liar:
    """Takes explorers in.

    Args:
        honest: what they are told first.
        messages: how many are sent to all of them together.
        seed: of what is random.
    """

    def __init__(self, honest: list[bytes], messages: int, seed: int):
        self.honest, self.messages, self.sent = honest, messages, 0
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self.last: dict[int, bytes] = {}

    def explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Talk to one explorer."""
        with self._lock:
            rng = random.Random(self._rng.random())
        answers: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=_hear, args=(requests, answers), daemon=True).start()
        pid = unpack(next(frames_of(answers.get() or b'')).data).header['pid']
        yield from self._begin(answers)
        for _ in range(rng.randrange(MOST_EACH)):
            with self._lock:
                if self.sent >= self.messages:
                    break
                self.sent += 1
            self.last[pid] = self._lie(rng)
            yield self.last[pid]
            try:
                if answers.get(timeout=0.05) is None:
                    return
            except Empty:  # it has nothing to say to that, or takes its time
                continue

    def _begin(self, answers: SimpleQueue[bytes | None]) -> Iterator[bytes]:
        for message, is_answered in zip(self.honest, (True, False, True), strict=True):
            yield Frame(0, Kind.MESSAGE, message).packed()
            if is_answered:
                with contextlib.suppress(Empty):
                    answers.get(timeout=PATIENCE)

    def _lie(self, rng: random.Random) -> bytes:
        honest = rng.choice(self.honest)
        if rng.random() >= SHARE_OF_NOISE:
            return Frame(0, Kind.MESSAGE, rng.choice(noise.MEANT)(rng, honest)).packed()
        if rng.random() < 0.3:
            return noise.noise(rng) + b'x'
        return noise.framed(rng, noise.message(rng, [honest]))


def _hear(requests: Iterator[bytes], answers: SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(Exception):  # gRPC raises what it likes when a stream breaks
        for data in requests:
            answers.put(data)
    answers.put(None)


class Explorer:
    """An explorer's process, which is watched.

    Args:
        folder: with the socket.
    """

    def __init__(self, folder: Path):
        self.printed: IO[str] = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
        words = [sys.executable, '-P', '-m', EXPLORER, address_in(folder), str(folder), str(os.getpid())]
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.DEVNULL, 'stderr': self.printed}
        self.process = subprocess.Popen(words, env={**_variables(), **ONE_THREAD}, **pipes)
        self.most, self.begun, self.killed = 0, time.monotonic(), ''

    def watch(self, honest: float) -> bool:
        """Note its memory, and end it where it takes too much, of memory or time; returns whether it is there."""
        if self.process.poll() is not None:
            return False
        with contextlib.suppress(psutil.Error):
            self.most = max(self.most, psutil.Process(self.process.pid).memory_info().rss)
        if self.most - honest > MOST_BYTES:
            self.killed = 'memory'
        elif time.monotonic() - self.begun > PATIENCE + MOST_EACH:
            self.killed = 'silence'
        if self.killed:
            self.process.kill()
            self.process.wait()
        return not self.killed

    def end(self) -> dict[str, Any]:
        """Return how it ended; it is gone then."""
        self.process.kill()
        self.process.communicate()
        self.printed.seek(0)
        said = self.printed.read()
        self.printed.close()
        lines = said.strip().splitlines()
        return {
            'pid': self.process.pid,
            'code': self.process.returncode,
            'lines': lines,
            'most': self.most,
            'killed': self.killed,
        }


def _variables() -> dict[str, str]:
    """The environment of an explorer, which can import what this process can."""
    return {**os.environ, 'PYTHONPATH': ':'.join(path or os.getcwd() for path in sys.path)}


def address_in(folder: Path) -> str:
    """Return the address of the socket in a folder."""
    return f'unix:{folder / "explorers"}'


@contextlib.contextmanager
def serving(liar: Liar) -> Iterator[Path]:
    """Let a learner listen; yields the folder of its socket."""
    with tempfile.TemporaryDirectory(prefix='xagents-liar-', ignore_cleanup_errors=True) as name:
        server = grpc.server(futures.ThreadPoolExecutor(2 * AT_ONCE))
        handler = grpc.stream_stream_rpc_method_handler(liar.explore, bytes, bytes)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        server.add_insecure_port(address_in(Path(name)))
        server.start()
        try:
            yield Path(name)
        finally:
            server.stop(None).wait()


def lie(messages: int, seed: int) -> dict[str, Any]:
    """Lie to explorers, two at once, until enough is said; return how they took it."""
    honest = overheard(seed)
    with serving(Liar(honest, 0, seed)) as folder:
        only = run_all(folder, lambda ended: bool(ended), 0.0)
    usual = max(one['most'] for one in only)
    liar = Liar(honest, messages, seed)
    with serving(liar) as folder:
        ended = run_all(folder, lambda _: liar.sent >= messages, usual)
    for one in ended:  # what was said to those that did not get over it
        if one['killed']:
            one['lines'].append(f'{one["killed"]} after {bytes(liar.last.get(one["pid"], b""))[9:600]!r}')
    return {'sent': liar.sent, 'usual': usual / 1e6, **tally(ended, usual)}


def run_all(folder: Path, enough: Any, honest: float) -> list[dict[str, Any]]:
    """Let explorers come, one for each that has ended, until it is enough; return how they ended."""
    ended: list[dict[str, Any]] = []
    under_way: list[Explorer] = []
    try:
        while under_way or not enough(ended):
            while len(under_way) < AT_ONCE and not enough(ended):
                under_way.append(Explorer(folder))
            for one in [one for one in under_way if not one.watch(honest)]:
                under_way.remove(one)
                ended.append(one.end())
            time.sleep(0.005)
    finally:
        for one in under_way:
            one.end()
    return ended


def tally(ended: list[dict[str, Any]], usual: float) -> dict[str, Any]:
    """Count how explorers ended."""
    wrong = [one for one in ended if any('Traceback' in line for line in one['lines'])]
    talkative = [one for one in ended if one['code'] and not one['killed'] and len(one['lines']) != 1]
    others = [one for one in ended if one['code'] not in (0, 1) and not one['killed']]
    killed = [one for one in ended if one['killed']]
    return {
        'explorers': len(ended),
        'tracebacks': len(wrong),
        'growth': max(one['most'] - usual for one in ended) / 1e6,
        'killed': [one['killed'] for one in killed],
        'talkative': len(talkative),
        'codes': sorted({one['code'] for one in others}),
        'examples': [one['lines'][-5:] for one in [*wrong, *talkative, *others, *killed][:9]],
    }


def main() -> None:
    """Lie, and print how it was taken."""
    print(json.dumps({'event': 'result', **lie(int(sys.argv[1]), int(sys.argv[2]))}), flush=True)


if __name__ == '__main__':
    main()
