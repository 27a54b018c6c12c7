"""Attackers of the explorers' protocol, in processes of their own: `python -m benchmarks.explorers.attackers ROLE JOB`.

The roles:

- `explorers` sends wrong messages to a learner, mostly as an explorer. The job has the address of the learner, the file
  of its key or None, the number of messages, a seed, the id of the process whose explorers may be killed, and a file
  that grows by a byte with each iteration.
- `learner` is a learner that trains and starts this attack. The job has the transport (`unix` or `tls`), the number of
  messages, and a seed.
- `fake-learner` sends wrong messages to real explorers on a Unix socket. The job has the number of messages and a seed.
"""

import contextlib
import itertools
import json
import os
import queue
import random
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from unittest import mock

import grpc
import numpy as np
import psutil

from benchmarks.explorers.runs import EXPLORER, SLOW, digest, explorer_machine, explorers, make_agent
from benchmarks.processes import Failed, Process, last_line, module
from xagents.explorers.fragments import parse_fragment
from xagents.explorers.frames import Frame, FrameDecoder, FrameType, frames_of
from xagents.explorers.keys import read_key
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.explorers.rollout_worker import RolloutWorker
from xagents.explorers.transport import MACHINE, METHOD, SERVICE, TOKEN, Channel
from xagents.processes.child_process import ONE_THREAD
from xagents.version import __version__

# ------------------------------------------------------------------------------------------------------ wrong messages

# replacements of values; no size that is only large, because a learner may request long fragments
WILD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 2**62, -(2**70), 1e308, float('nan'), float('inf'), '', 'x', '\ud800', '\x00'),
    *('../..', 'x' * 20_000, '\x1b[2J\n', [], {}, [[]], [None], [1] * 50, {'a': {'b': [1]}}, [[1, 2, 3, 4, 5, 6]]),
)
DTYPES = ('|O', '<f8', '<M8[s]', 'V8', 'f4,f4', '|S5', '<f2', '>f4', 'x', 7)
SHAPES = ([2**40, 2**40], [-1], [1.0], [2**31], [], [0] * 99, 'x', None, [2**62])
MESSAGE_TYPES = ('hello', 'ready', 'fragment', 'error', 'spec', 'order', 'share', 'x', '')
DEPTH = 100_000


def hello(pid: Any = 1) -> bytes:
    """Return the first message of an explorer."""
    return pack('hello', {'format': FORMAT, 'xagents': __version__, 'pid': pid})


def flip(rng: random.Random, data: bytes) -> bytes:
    """Change some bytes, mostly near the beginning, which contains the header."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(min(len(changed), rng.choice((4, 200, len(changed)))))] = rng.randrange(256)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    """Remove the end."""
    return data[: rng.randrange(len(data))]


def lengthen(rng: random.Random, data: bytes) -> bytes:
    """Append random bytes."""
    return data + rng.randbytes(rng.choice((1, 100, 100_000)))


def change_header(rng: random.Random, data: bytes) -> bytes:
    """Replace or delete one value of the header, or change the type of the message."""
    message_type, header, arrays = unpack(data)
    places = [*places_in(header)]
    if not places or rng.random() < 0.1:
        return pack(rng.choice(MESSAGE_TYPES), header, arrays)
    holder, key = rng.choice(places)
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice(WILD)
    return pack(message_type, header, arrays)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return all values in JSON data, as pairs of a dict or list and a key."""
    keys = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places_in(value[key]))]


def change_array(rng: random.Random, data: bytes) -> bytes:
    """Remove an array, or change its name, dtype or shape."""
    message_type, header, found = unpack(data)
    arrays = dict(found)
    name = rng.choice([*arrays, 'x'])
    array = arrays.pop(name, np.zeros(3, np.float32))
    changes: list[Callable[[], Any]] = [
        lambda: {},
        lambda: {name + 'x': array},
        lambda: {name: array.astype(rng.choice((np.float64, np.int8, bool, np.complex128)))},
        lambda: {name: array[..., None]},
        lambda: {name: array.reshape(-1)[: array.size // 2]},
        lambda: {name: np.zeros((0,) * rng.randint(1, 8), array.dtype)},
        lambda: {name: np.zeros(rng.choice((1, 10, 100_000)), array.dtype)},
    ]
    return pack(message_type, header, {**arrays, **rng.choice(changes)()})


def wrong_lengths(rng: random.Random, data: bytes) -> bytes:
    """Declare a long header, or impossible arrays."""
    if rng.random() < 0.3:
        return struct.pack('<I', rng.choice((2**32 - 1, 2**31, 2**26, len(data)))) + data[4:]
    (length,) = struct.unpack_from('<I', data)
    header = json.loads(data[4 : 4 + length])
    header['arrays'] = [[rng.choice(('observations', 'a')), rng.choice(DTYPES), rng.choice(SHAPES)]]
    text = json.dumps(header).encode()
    return struct.pack('<I', len(text)) + text + data[4 + length :]


def nest(rng: random.Random, data: bytes) -> bytes:
    """Return a message with a deeply nested header."""
    depth = rng.choice((100, DEPTH))
    left, right = rng.choice(((b'[', b']'), (b'{"a":', b'}')))
    text = b'{"kind": "hello", "arrays": [], "pid": ' + left * depth + b'1' + right * depth + b'}'
    return struct.pack('<I', len(text)) + text


def noise(rng: random.Random, data: bytes = b'') -> bytes:
    """Return random bytes."""
    return rng.randbytes(rng.choice((0, 1, 4, 30, 1000, 100_000)))


# changes that give messages, and changes that may give none
MESSAGES = (change_header, change_header, change_header, change_array)
CHANGES = (*MESSAGES, flip, cut, lengthen, wrong_lengths, nest, noise)


def change(rng: random.Random, honest: list[bytes]) -> bytes:
    """Return one of the honest messages with a change."""
    return rng.choice(CHANGES)(rng, rng.choice(honest))


def frame(data: bytes) -> bytes:
    """Return a message as a frame."""
    return Frame(0, FrameType.MESSAGE, data).packed()


def random_frame(rng: random.Random, data: bytes, channel: int = 0) -> bytes:
    """Return a message as a frame; one frame in four is wrong."""
    if rng.random() < 0.75:
        return Frame(channel, FrameType.MESSAGE, data).packed()
    frame_type = rng.randrange(8)
    names = (b'../../etc/passwd', b'1-1', b'x' * 5000, b'\xff\xfe', b'', b'-', data[:100])
    content = rng.choice(names) if frame_type == FrameType.FILE else data
    length = rng.choice((len(content), len(content) + 1, 2**32 - 1, 0))
    return struct.pack('<IBI', rng.choice((0, channel, 7, 2**32 - 1)), frame_type, length) + content


# -------------------------------------------------------------------------------------------------- attack on a learner

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
SECONDS = 0.3
# until a slot is given; until an iteration ends
SECONDS_TO_TAKE, PATIENCE = 5.0, 30.0
# one attempt in so many takes a slot, for which another explorer has to be killed
RARELY = 40


class Attacker:
    """Sends messages to a learner and counts them.

    Args:
        job: of the role `explorers`.
    """

    def __init__(self, job: dict[str, Any]):
        self.rng, self.address, self.root = random.Random(job['seed']), job['address'], job['root']
        self.progress = Path(job['progress'])
        self.key = read_key(job['key']).explorer_credentials if job['key'] else None
        self.token = [(TOKEN, self.key.token)] if self.key else []
        self.sent: Counter[str] = Counter()
        self.slots = self.fragments = 0
        self._worker: tuple[int, RolloutWorker] | None = None
        self._honest = [hello(), pack('ready', {}), pack('error', {'why': 'the motor is hot'})]
        if self.key is None:
            self._channel = grpc.insecure_channel(self.address)
        else:
            options = [('grpc.ssl_target_name_override', 'xagents'), ('grpc.default_authority', 'xagents')]
            trusted = grpc.ssl_channel_credentials(self.key.certificate)
            self._channel = grpc.secure_channel(self.address, trusted, options)
        self._call = self._channel.stream_stream(f'/{SERVICE}/{METHOD}', bytes, bytes)

    def run(self, messages: int) -> dict[str, Any]:
        """Send messages, and return what was sent."""
        ways: list[Callable[[], int]] = [self.messages] * 3 + [self.noise, self.machine, self.raw]
        ways += [self.wrong_token] if self.key else []
        for attempt in itertools.count():
            if sum(self.sent.values()) >= messages:
                break
            way = self.take_slot if attempt % RARELY == 0 else self.rng.choice(ways)
            self.sent[way.__name__] += way()
        return {'sent': self.sent, 'slots': self.slots, 'fragments': self.fragments}

    # ways to send: each returns the number of messages

    def messages(self) -> int:
        """Send changed messages as an explorer."""
        return self._stream([self._frame() for _ in self._some()])

    def noise(self) -> int:
        """Send random bytes, half of the time after a correct first message."""
        first = [frame(hello())] if self.rng.random() < 0.5 else []
        return self._stream([*first, *(noise(self.rng) for _ in self._some())])

    def machine(self) -> int:
        """Send changed messages as a machine with many explorers."""
        data = [self._frame(self.rng.randrange(100)) for _ in self._some(9)]
        return self._stream(data, (MACHINE, self.rng.choice(('1', '5', '99999999', '-1', 'x', '²', '1' * 5000))))

    def wrong_token(self) -> int:
        """Send a message with a wrong token, or without one."""
        token = self.rng.choice((None, '', 'x', '0' * 64, 'x' * 5000))
        return self._stream([frame(hello())], *([(TOKEN, token)] if token else []), token=False)

    def raw(self) -> int:
        """Send random bytes without gRPC, half of the time after the beginning of HTTP/2."""
        number = self.rng.randint(1, 5)
        with contextlib.suppress(OSError), contextlib.closing(self._connect()) as connection:
            begin = PREFACE if self.rng.random() < 0.5 else b''
            for _ in range(number):
                connection.sendall(begin + noise(self.rng))
        return number

    def take_slot(self) -> int:
        """Kill an explorer, take its slot, and return a wrong fragment; wait until the run has continued."""
        number, outgoing = 1, queue.SimpleQueue[bytes | None]()
        outgoing.put(frame(hello()))
        call = self._call(iter(outgoing.get, None), timeout=SECONDS_TO_TAKE, metadata=self.token)
        time.sleep(0.1)  # until the learner has read it
        with contextlib.suppress(psutil.Error, IndexError):
            self.rng.choice(list(explorers(self.root, recursive=True))).kill()
        with contextlib.suppress(grpc.RpcError):
            repeats = FrameDecoder()
            for found in (
                found for data in call for found in repeats.read(data) if found.frame_type is FrameType.MESSAGE
            ):
                answer = self._answer(unpack(found.data))
                if answer is not None:
                    number += 1
                    outgoing.put(frame(answer))
        outgoing.put(None)
        call.cancel()
        before, deadline = self.progress.stat().st_size, time.monotonic() + PATIENCE
        while self.progress.stat().st_size < before + 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return number

    def _some(self, most: int = 5) -> range:
        return range(self.rng.randint(1, most))

    def _frame(self, channel: int = 0) -> bytes:
        return random_frame(self.rng, change(self.rng, self._honest), channel)

    def _stream(self, data: list[bytes], *metadata: tuple[str, Any], token: bool = True) -> int:
        """Send data over a stream and end the stream; return the number of messages."""
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: gRPC refuses the metadata
            for _ in self._call(iter(data), timeout=SECONDS, metadata=[*metadata, *(self.token if token else [])]):
                pass
        return len(data)

    def _connect(self) -> socket.socket:
        """Connect without gRPC, half of the time also without TLS."""
        if self.key is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(SECONDS)
            connection.connect(self.address.removeprefix('unix:'))
            return connection
        host, _, port = self.address.rpartition(':')
        connection = socket.create_connection((host, int(port)), SECONDS)
        if self.rng.random() < 0.5:
            return connection
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(['h2'])
        return context.wrap_socket(connection)

    def _answer(self, message: Message) -> bytes | None:
        """Return the answer to a message of the learner: to an order, a fragment that must be refused."""
        if message.message_type == 'spec':
            self.slots += 1
            first = message.header['first']
            if self._worker is None or self._worker[0] != first:
                self._worker = first, RolloutWorker(message.header, first, message.header['n_envs'])
            return pack('ready', {}) if self.rng.random() < 0.9 else noise(self.rng) + b'x'
        assert self._worker is not None
        worker = self._worker[1]
        if message.message_type == 'share':
            worker.receive_broadcast(message)
        elif message.message_type == 'order':
            self.fragments += 1
            return refused(self.rng, worker.collect(message), worker.first, worker.stepper.envs.n_envs)
        return None


def refused(rng: random.Random, fragment: bytes, first: int, n_envs: int) -> bytes:
    """Return a changed fragment that must be refused. A valid fragment with false content is not a wrong message."""
    number, arrays = unpack(fragment).header['number'], unpack(fragment).arrays
    wanted = {name: (array.dtype, array.shape) for name, array in arrays.items() if '/' not in name}
    while True:
        changed = change(rng, [fragment])
        found = None
        with contextlib.suppress(WireError):
            found = unpack(changed)
            parse_fragment(found, wanted, range(first, first + n_envs), n_envs, False)
            if found.message_type not in ('fragment', 'error') or found.header.get('number') != number:
                return changed
            continue
        # an error message repeats the order, to the same explorer
        if found is None or found.message_type != 'error':
            return changed


# ------------------------------------------------------------------------------------------- the learner under attack

EXPLORERS = 4
# iterations before the attack, which allocate the memory of honest messages
ITERATIONS = 30
SETTINGS = {'n_envs': 8, 'n_steps': 16, 'normalize_obs': True}
# an iteration takes a tenth of a second; a silent explorer is replaced after a minute
LONGEST_ITERATION = 150.0


@contextlib.contextmanager
def transport(name: str) -> Iterator[dict[str, Any]]:
    """Yield the options of a run whose explorers use a transport; with `tls` they are started here."""
    if name == 'unix':
        yield {'explorers': EXPLORERS}
        return
    with explorer_machine(Path(), EXPLORERS) as options:
        yield {'explorers': EXPLORERS, **options}


def start_attack(job: dict[str, Any], options: dict[str, Any], progress: Path) -> Process:
    """Start to attack the learner in this process."""
    address = options.get('cluster') or next(explorers()).cmdline()[-2]
    attack = {'address': address, 'key': options.get('cluster_key'), 'messages': job['messages']}
    attack |= {'seed': job['seed'], 'root': os.getpid(), 'progress': str(progress)}
    words = module('explorers.attackers', attack)
    return Process.start([*words[:-1], 'explorers', words[-1]], Path(), 'attack')


def exit_if_stuck(moments: list[float], ended: threading.Event) -> None:
    """Exit from this process if no iteration has ended for a long time."""
    while not ended.wait(1):
        if moments and time.monotonic() - moments[-1] > LONGEST_ITERATION:
            print(f'no iteration of the learner ended in {LONGEST_ITERATION:.0f} s', file=sys.stderr, flush=True)
            os._exit(1)


def train_under_attack(job: dict[str, Any]) -> dict[str, Any]:
    """Train until the attack ends; return its counts, growth of memory, and whether the weights are as without it.

    Raises:
        Failed: if the attack fails.
    """
    progress, memory, moments, own = Path('progress'), [], [], psutil.Process()
    attack: Process | None = None
    ended = threading.Event()
    threading.Thread(target=exit_if_stuck, args=(moments, ended), daemon=True).start()
    with transport(job['transport']) as options, make_agent(SLOW, job['seed'], **SETTINGS) as agent:
        stream = agent.train_iter(max_steps=10**9, **options)
        try:
            for iteration, _ in enumerate(stream):
                with progress.open('ab') as file:
                    file.write(b'.')
                memory.append(own.memory_info().rss)
                moments.append(time.monotonic())
                if iteration == ITERATIONS:
                    attack = start_attack(job, options, progress)
                if attack is not None and attack.popen.poll() is not None:
                    break
            ended.set()
            found, steps = digest(agent), agent.steps
            stream.close()
        finally:
            if attack is not None:
                attack.kill()
    assert attack is not None
    if attack.popen.returncode:
        raise Failed(f'the attack: {attack.problem}')
    growth = (max(memory) - max(memory[: ITERATIONS + 1])) / 1e6
    longest = max(b - a for a, b in itertools.pairwise(moments[ITERATIONS:]))
    # CartPole is the same environment without the sleep
    with make_agent('CartPole-v1', job['seed'], **SETTINGS) as agent:
        agent.fit(max_steps=steps)
        equal = digest(agent) == found
    return {
        'digest': found,
        'steps': steps,
        'growth': growth,
        'longest': longest,
        'equal': equal,
        **last_line(attack.text),
    }


# ------------------------------------------------------------------------------------------------- attack on explorers

AT_ONCE = 2
MOST_EACH = 40
# share of messages that are no messages, after which an explorer ends
SHARE_OF_NOISE = 0.08
# an explorer whose memory grows by more, or that does not answer for longer, is killed and counted
MOST_BYTES, SILENCE = 512e6, 20.0


def record_learner(seed: int) -> list[bytes]:
    """Return the messages of a real learner to an explorer: the spec, a share, and an order."""
    sent: list[bytes] = []
    send = Channel.send

    def store(self: Channel, message: bytes, share: bytes | None = None) -> None:
        sent.extend([share, message] if share is not None else [message])
        send(self, message, share)

    agent_of = make_agent('CartPole-v1', seed, n_envs=4, normalize_obs=True)
    with mock.patch.object(Channel, 'send', store), agent_of as agent:
        agent.fit(max_steps=4 * 128, explorers=2)
    return sent[:1] + next([a, b] for a, b in itertools.pairwise(sent) if b'"order"' in b and b'"share"' in a)


class FakeLearner:
    """A server that explorers connect to.

    Args:
        honest: the first messages to each explorer.
        messages: number of wrong messages to all explorers together.
        seed: of the random changes.
    """

    def __init__(self, honest: list[bytes], messages: int, seed: int):
        self.honest, self.messages, self.sent = honest, messages, 0
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self.last: dict[int, bytes] = {}

    def explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Send messages to one explorer."""
        with self._lock:
            rng = random.Random(self._rng.random())
        answers: SimpleQueue[bytes | None] = SimpleQueue()

        def receive() -> None:
            with contextlib.suppress(Exception):  # gRPC raises several exceptions if a stream breaks
                for data in requests:
                    answers.put(data)
            answers.put(None)

        threading.Thread(target=receive, daemon=True).start()
        pid = unpack(next(frames_of(answers.get() or b'')).data).header['pid']
        for message, is_answered in zip(self.honest, (True, False, True), strict=True):
            yield frame(message)
            with contextlib.suppress(Empty):
                _ = is_answered and answers.get(timeout=SILENCE)
        for _ in range(rng.randrange(MOST_EACH)):
            with self._lock:
                if self.sent >= self.messages:
                    break
                self.sent += 1
            self.last[pid] = self._wrong(rng)
            yield self.last[pid]
            with contextlib.suppress(Empty):  # the explorer does not answer every message
                if answers.get(timeout=0.05) is None:
                    return

    def _wrong(self, rng: random.Random) -> bytes:
        honest = rng.choice(self.honest)
        if rng.random() >= SHARE_OF_NOISE:
            return frame(rng.choice(MESSAGES)(rng, honest))
        return noise(rng) + b'x' if rng.random() < 0.3 else random_frame(rng, change(rng, [honest]))

    @contextlib.contextmanager
    def serving(self) -> Iterator[Path]:
        """Listen on a Unix socket; yield its folder."""
        with tempfile.TemporaryDirectory(prefix='xagents-fake-', ignore_cleanup_errors=True) as name:
            server = grpc.server(futures.ThreadPoolExecutor(2 * AT_ONCE))
            handler = grpc.stream_stream_rpc_method_handler(self.explore, bytes, bytes)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
            server.add_insecure_port(socket_address(Path(name)))
            server.start()
            try:
                yield Path(name)
            finally:
                server.stop(None).wait()


def socket_address(folder: Path) -> str:
    """Return the address of the socket in a folder."""
    return f'unix:{folder / "explorers"}'


class ExplorerProcess:
    """The process of a real explorer.

    Args:
        folder: of the socket.
    """

    def __init__(self, folder: Path):
        words = [sys.executable, '-P', '-m', EXPLORER, socket_address(folder), str(folder), str(os.getpid())]
        # an explorer can import what this process can
        variables = {'PYTHONPATH': ':'.join(path or os.getcwd() for path in sys.path), **ONE_THREAD}
        self.process = Process.start(words, folder, follows=True, **variables)
        self.most, self.begun, self.killed = 0, time.monotonic(), ''

    def is_running(self, usual: float) -> bool:
        """Update the peak of its memory; return False if the process has ended or takes too much memory or time."""
        if self.process.popen.poll() is not None:
            return False
        with contextlib.suppress(psutil.Error):
            self.most = max(self.most, psutil.Process(self.process.popen.pid).memory_info().rss)
        if self.most - usual > MOST_BYTES:
            self.killed = 'memory'
        elif time.monotonic() - self.begun > SILENCE + MOST_EACH:
            self.killed = 'silence'
        return not self.killed

    def end(self) -> dict[str, Any]:
        """Kill the process if it runs, and return how it ended."""
        self.process.kill()
        lines = self.process.errors.read_text(errors='replace').strip().splitlines()
        about = {'pid': self.process.popen.pid, 'code': self.process.popen.returncode, 'lines': lines}
        return {**about, 'most': self.most, 'killed': self.killed}


def attack_explorers(job: dict[str, Any]) -> dict[str, Any]:
    """Send wrong messages to explorers, two at a time; return how the explorers ended."""
    honest = record_learner(job['seed'])
    with FakeLearner(honest, 0, job['seed']).serving() as folder:
        only = run_explorers(folder, lambda ended: bool(ended), 0.0)
    usual = max(one['most'] for one in only)
    learner = FakeLearner(honest, job['messages'], job['seed'])
    with learner.serving() as folder:
        ended = run_explorers(folder, lambda _: learner.sent >= learner.messages, usual)
    for one in ended:
        if one['killed']:
            one['lines'].append(f'{one["killed"]} after {bytes(learner.last.get(one["pid"], b""))[9:600]!r}')
    return {'sent': learner.sent, 'usual': usual / 1e6, **tally(ended, usual)}


def run_explorers(folder: Path, enough: Callable[[list], bool], usual: float) -> list[dict[str, Any]]:
    """Start a new explorer for each that has ended, until it is enough; return how they ended."""
    ended: list[dict[str, Any]] = []
    processes: list[ExplorerProcess] = []
    try:
        while processes or not enough(ended):
            while len(processes) < AT_ONCE and not enough(ended):
                processes.append(ExplorerProcess(folder))
            for one in [one for one in processes if not one.is_running(usual)]:
                processes.remove(one)
                ended.append(one.end())
            time.sleep(0.005)
    finally:
        for one in processes:
            one.end()
    return ended


def tally(ended: list[dict[str, Any]], usual: float) -> dict[str, Any]:
    """Count how explorers ended."""
    wrong = [one for one in ended if any('Traceback' in line for line in one['lines'])]
    talkative = [one for one in ended if one['code'] and not one['killed'] and len(one['lines']) != 1]
    others = [one for one in ended if one['code'] not in (0, 1) and not one['killed']]
    killed = [one for one in ended if one['killed']]
    growth = max(one['most'] - usual for one in ended) / 1e6
    counts = {'explorers': len(ended), 'tracebacks': len(wrong), 'growth': growth, 'talkative': len(talkative)}
    counts |= {'killed': [one['killed'] for one in killed], 'codes': sorted({one['code'] for one in others})}
    return {**counts, 'examples': [one['lines'][-5:] for one in [*wrong, *talkative, *others, *killed][:9]]}


def main() -> None:
    """Run a role and print its result."""
    role, job = sys.argv[1], json.loads(sys.argv[2])
    if role == 'explorers':
        np.seterr(all='ignore')
        result = Attacker(job).run(job['messages'])
    else:
        result = {'learner': train_under_attack, 'fake-learner': attack_explorers}[role](job)
    print(json.dumps({'event': 'result', **result}), flush=True)


if __name__ == '__main__':
    main()
