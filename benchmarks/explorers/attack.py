"""Sends a learner what it has not asked for: `python -m benchmarks.explorers.attack JOB`.

The job has the learner's address, the file of its key or none, the number of messages, a seed, the number of the
process whose explorers may be killed, and the file that grows by a byte an iteration.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from benchmarks.explorers import noise
from benchmarks.explorers.runs import explorers
from xagents.explorers.fragments import fragment_of
from xagents.explorers.frames import Frame, Kind, Repeats
from xagents.explorers.keys import Pass, read_key
from xagents.explorers.links import MACHINE, METHOD, SERVICE, TOKEN
from xagents.explorers.messages import Message, WireError, pack, unpack
from xagents.explorers.work import Worker

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
SECONDS = 0.3
# until a slot is given; until an iteration ends
SECONDS_TO_TAKE, PATIENCE = 5.0, 30.0
# of the rest, one in so many attempts takes a slot: another explorer has to be killed for it
RARELY = 40


class Attack:
    """What is sent, and how often.

    Args:
        job: as above.
    """

    def __init__(self, job: dict[str, Any]):
        self.rng, self.address, self.root = random.Random(job['seed']), job['address'], job['root']
        self.progress = Path(job['progress'])
        self.key: Pass | None = read_key(job['key']).explorers_pass if job['key'] else None
        self.sent: Counter[str] = Counter()
        self.slots = self.fragments = 0
        self._worker: tuple[int, Worker] | None = None
        self._honest = [noise.hello(), pack('ready', {}), pack('error', {'why': 'the motor is hot'})]
        if self.key is None:
            self._channel = grpc.insecure_channel(self.address)
        else:
            options = [('grpc.ssl_target_name_override', 'xagents'), ('grpc.default_authority', 'xagents')]
            trusted = grpc.ssl_channel_credentials(self.key.certificate)
            self._channel = grpc.secure_channel(self.address, trusted, options)
        self._call = self._channel.stream_stream(f'/{SERVICE}/{METHOD}', bytes, bytes)

    def go(self, messages: int) -> None:
        """Send so many."""
        kinds: list[Callable[[], int]] = [self.say, self.say, self.say, self.babble, self.crowd, self.shout]
        if self.key is not None:
            kinds.append(self.pretend)
        attempt = 0
        while sum(self.sent.values()) < messages:
            kind = self.take if attempt % RARELY == 0 else self.rng.choice(kinds)
            attempt += 1
            self.sent[kind.__name__] += kind()

    # ways to send

    def say(self) -> int:
        """Say nearly the right things, as an explorer."""
        return self._stream([noise.framed(self.rng, noise.message(self.rng, self._honest)) for _ in self._some()])

    def babble(self) -> int:
        """Say hello, and then what is no frame, or none of ours."""
        first = [Frame(0, Kind.MESSAGE, noise.hello()).packed()] if self.rng.random() < 0.5 else []
        return self._stream([*first, *(noise.noise(self.rng) for _ in self._some())])

    def crowd(self) -> int:
        """Come as a machine with many explorers."""
        data = [
            noise.framed(self.rng, noise.message(self.rng, self._honest), self.rng.randrange(100))
            for _ in self._some(9)
        ]
        return self._stream(data, [(MACHINE, self.rng.choice(('1', '5', '99999999', '-1', 'x', '²', '1' * 5000)))])

    def pretend(self) -> int:
        """Show a wrong token, or none."""
        token = self.rng.choice((None, '', 'x', '0' * 64, 'x' * 5000))
        return self._stream([Frame(0, Kind.MESSAGE, noise.hello()).packed()], [(TOKEN, token)] if token else [], False)

    def shout(self) -> int:
        """Send noise without gRPC, one time in two after what begins as it does."""
        said = 1
        with contextlib.suppress(OSError), contextlib.closing(self._dial()) as place:
            begin = PREFACE if self.rng.random() < 0.5 else b''
            for _ in range(said := self.rng.randint(1, 5)):
                place.sendall(begin + noise.noise(self.rng))
        return said

    def take(self) -> int:
        """Wait for a slot, kill who has one, and answer its order wrongly; returns once the run has gone on."""
        said, outgoing = 1, queue.SimpleQueue[bytes | None]()
        outgoing.put(Frame(0, Kind.MESSAGE, noise.hello()).packed())
        call = self._call(iter(outgoing.get, None), timeout=SECONDS_TO_TAKE, metadata=self._token())
        time.sleep(0.1)  # it is heard
        victims = list(explorers(self.root, recursive=True))
        with contextlib.suppress(psutil.Error, IndexError):
            self.rng.choice(victims).kill()
        with contextlib.suppress(grpc.RpcError):
            for told in self._told(call):
                answer = self._answer(told)
                if answer is not None:
                    said += 1
                    outgoing.put(Frame(0, Kind.MESSAGE, answer).packed())
        outgoing.put(None)
        call.cancel()
        before, deadline = self._iterations(), time.monotonic() + PATIENCE
        while self._iterations() < before + 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return said

    # what they are made of

    def _some(self, most: int = 5) -> range:
        return range(self.rng.randint(1, most))

    def _token(self) -> list[tuple[str, str]]:
        return [(TOKEN, self.key.token)] if self.key else []

    def _iterations(self) -> int:
        return self.progress.stat().st_size

    def _stream(self, data: list[bytes], told: list[tuple[str, Any]] | None = None, token: bool = True) -> int:
        """Send data over a stream, and end it; returns how many."""
        metadata = [*(told or []), *(self._token() if token else [])]
        try:
            call = self._call(iter(data), timeout=SECONDS, metadata=metadata)
            for _ in call:
                pass
        except (grpc.RpcError, ValueError):  # refused, or no metadata
            pass
        return len(data)

    def _dial(self) -> socket.socket:
        if self.key is None:
            place = socket.socket(socket.AF_UNIX)
            place.settimeout(SECONDS)
            place.connect(self.address.removeprefix('unix:'))
            return place
        host, _, port = self.address.rpartition(':')
        place = socket.create_connection((host, int(port)), SECONDS)
        if self.rng.random() < 0.5:
            return place
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(['h2'])
        return context.wrap_socket(place)

    def _told(self, call: Iterator[bytes]) -> Iterator[Message]:
        repeats = Repeats()
        for data in call:
            for frame in repeats.read(data):
                if frame.kind is Kind.MESSAGE:
                    yield unpack(frame.data)

    def _answer(self, told: Message) -> bytes | None:
        """Return what is said to a message of the learner's: to an order a fragment that has to be refused."""
        if told.kind == 'spec':
            self.slots += 1
            first = told.header['first']
            if self._worker is None or self._worker[0] != first:
                self._worker = first, Worker(told.header, first, told.header['n_envs'])
            return pack('ready', {}) if self.rng.random() < 0.9 else noise.noise(self.rng) + b'x'
        assert self._worker is not None
        worker = self._worker[1]
        if told.kind == 'share':
            worker.share(told)
        elif told.kind == 'order':
            self.fragments += 1
            return refused(self.rng, worker.collect(told), worker.first, worker.explorer.envs.n_envs)
        return None


def refused(rng: random.Random, fragment: bytes, first: int, n_envs: int) -> bytes:
    """Return a fragment changed so that it is to be refused: one that is whole, and lies, is not a wrong message."""
    number, arrays = unpack(fragment).header['number'], unpack(fragment).arrays
    wanted = {name: (array.dtype, array.shape) for name, array in arrays.items() if '/' not in name}
    while True:
        changed = noise.message(rng, [fragment])
        try:
            found = unpack(changed)
            fragment_of(found, wanted, range(first, first + n_envs), n_envs, False)
            if found.kind not in ('fragment', 'error') or found.header.get('number') != number:
                return changed
        except WireError:
            if not _is_error(changed):
                return changed


def _is_error(data: bytes) -> bool:
    """Return whether a message says that an order has failed: it is then given again, to the same explorer."""
    try:
        return unpack(data).kind == 'error'
    except WireError:
        return False


def main() -> None:
    """Do the job, and print what was sent."""
    job = json.loads(sys.argv[1])
    attack = Attack(job)
    np.seterr(all='ignore')
    attack.go(job['messages'])
    print(json.dumps({'sent': attack.sent, 'slots': attack.slots, 'fragments': attack.fragments}), flush=True)


if __name__ == '__main__':
    main()
