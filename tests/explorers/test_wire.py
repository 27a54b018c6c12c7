"""Both ends of the wire beside peers that say anything: one line at most, no traceback, no memory."""

import contextlib
import os
import queue
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xagents.explorers.cluster_launcher import ClusterLauncher
from xagents.explorers.frames import Frame, FrameDecoder, FrameType, SendQueue, frames_of
from xagents.explorers.keys import make_key, parse_key, read_key
from xagents.explorers.local_launcher import socket_address
from xagents.explorers.messages import WireError, pack, unpack
from xagents.explorers.process import main
from xagents.explorers.transport import Connection, Server
from xagents.explorers.versions import version_differences, versions
from xagents.options.errors import OptionError

FRAMES = st.lists(st.builds(Frame, st.integers(0, 2**32 - 1), st.sampled_from(FrameType), st.binary(max_size=40)))


@given(FRAMES)
def test_frames_come_out_as_they_went_in(frames):
    assert list(frames_of(b''.join(frame.packed() for frame in frames))) == frames


@given(st.binary(max_size=200))
def test_bytes_are_frames_or_an_error(data):
    with contextlib.suppress(WireError):
        assert b''.join(frame.packed() for frame in frames_of(data)) == data


def test_what_all_are_told_goes_over_a_stream_once():
    out, broadcast = SendQueue(), bytes(1000)
    for channel in range(5):
        out.put(channel, b'own', broadcast)
    out.put(0, b'last')
    out.end()
    sent = list(out.stream())
    assert len(sent) == 1 and len(sent[0]) < 1200
    repeats = FrameDecoder()
    heard = [frame for data in sent for frame in repeats.read(data)]
    assert heard[:10] == [Frame(i, FrameType.MESSAGE, data) for i in range(5) for data in (broadcast, b'own')]
    with pytest.raises(WireError):
        list(FrameDecoder().read(Frame(0, FrameType.REPEAT).packed()))


@pytest.fixture
def server(tmp_path):
    events = queue.SimpleQueue()
    made = Server(socket_address(tmp_path), events, 2, 2**20, folder=tmp_path)
    yield events, tmp_path
    made.close()


def test_a_large_message_lies_in_a_file_that_goes(server):
    events, folder = server
    connection = Connection(socket_address(folder), folder=folder)
    array = np.arange(2**20, dtype=np.uint8)
    connection.send(pack('fragment', {}, {'a': array}))
    message = unpack(events.get(timeout=10).data)
    assert np.array_equal(message.arrays['a'], array)
    assert [path.name for path in folder.iterdir()] == ['explorers']
    connection.close()


@pytest.mark.parametrize('name', [b'../other', b'', b'none-1', b'/etc/passwd', b'\xff', b'explorers'])
def test_no_other_file_is_read(server, name):
    events, folder = server
    (folder.parent / 'other').write_bytes(b'secret')
    connection = Connection(socket_address(folder), folder=folder)
    connection.send(b'hello')
    assert events.get(timeout=10).data == b'hello'
    connection.outgoing.put_frame(0, FrameType.FILE, name)
    assert events.get(timeout=10).data is None  # its last word
    assert (folder.parent / 'other').exists()
    connection.close()


def test_who_floods_waits(server):
    """A peer that sends and sends is read no faster than it is heard: memory stays."""
    events, folder = server
    connection = Connection(socket_address(folder))
    before = psutil.Process().memory_info().rss
    for _ in range(300):
        connection.send(bytes(2**18))
        if events.qsize() > 2:
            break
    time.sleep(1)
    assert events.qsize() <= 2
    assert psutil.Process().memory_info().rss - before < 300 * 2**18 * 2
    events.get().source.acknowledge()
    events.get().source.disconnect()
    connection.close()


def begin(folder):
    """Begin an explorer, as a learner here does."""
    words = ['xagents.explorers.process', socket_address(folder), str(folder), str(os.getpid())]
    return subprocess.Popen([sys.executable, '-m', *words], stdin=-1, stderr=-1, text=True)


def noise(rng):
    """A message: real ones, bent ones, nonsense."""
    whole = pack('spec', {'first': 0, 'n_envs': 1, 'environment': {'env': 'CartPole-v1'}}, {'a': np.zeros(4)})
    kinds = ['spec', 'share', 'order', 'ready', 'refuse', 'x']
    made = [
        lambda: pack(str(rng.choice(kinds)), {'number': int(rng.integers(9)), 'n_steps': 2**40}),
        lambda: bytes(rng.integers(0, 256, int(rng.integers(0, 60)), np.uint8)),
        lambda: whole[: int(rng.integers(len(whole)))],
        lambda: bytes(b ^ (int(rng.random() < 0.05) * int(rng.integers(256))) for b in whole),
        lambda: struct.pack('<I', 20) + b'{"kind":' + b'[' * int(rng.integers(5000)),
        lambda: pack('order', {'kind': 'order'}, {'noise': np.zeros((0, 2**10))}),
    ]
    return made[int(rng.integers(len(made)))]()


@pytest.mark.slow
def test_an_explorer_beside_a_learner_that_says_anything(tmp_path):
    events, rng, ended = queue.SimpleQueue(), np.random.default_rng(0), []
    server = Server(socket_address(tmp_path), events, 2, 2**20)
    try:
        for _ in range(3):
            process = begin(tmp_path)
            link = events.get(timeout=20).source
            while process.poll() is None:
                link.send(noise(rng))
                with contextlib.suppress(queue.Empty):
                    while events.get(timeout=0.01).data is not None:
                        link.acknowledge()
            said = process.stderr.read()
            process.communicate()
            assert 'Traceback' not in said and said.count('\n') <= 1
            ended.append(process.returncode)
            with contextlib.suppress(queue.Empty):
                while True:
                    events.get(timeout=0.2)
    finally:
        server.close()
    assert set(ended) <= {0, 1, 3}


def test_who_has_no_memory_ends_as_if_it_were_killed(server, monkeypatch, capsys):
    def greedy(*arguments):
        raise MemoryError('no more\npages')

    events, folder = server
    monkeypatch.setattr('xagents.explorers.process.RolloutWorker', greedy)
    with ThreadPoolExecutor(1) as threads:
        code = threads.submit(main, socket_address(folder), str(folder))
        link = events.get(timeout=10).source
        link.send(pack('spec', {'first': 0, 'n_envs': 1}))
        assert code.result(20) == 1 and events.get(timeout=10) == (link, None)  # it does not send an error
    assert capsys.readouterr().err == 'MemoryError: no more pages\n'


def test_who_says_nothing_sensible_is_let_go_and_others_stay(server):
    events, folder = server
    good = Connection(socket_address(folder))
    good.send(b'first')
    assert events.get(timeout=10).data == b'first'
    channel = grpc.insecure_channel(socket_address(folder))
    call = channel.stream_stream('/xagents/explore', lambda data: data, lambda data: data)
    for data in (b'\x00', b'\xff' * 40, Frame(7, FrameType.REPEAT).packed(), Frame(0, FrameType.END).packed()):
        assert list(call(iter([data]), timeout=10)) == []
    threading.Event().wait(0.1)
    good.send(b'second')
    while (event := events.get(timeout=10)).data is None:  # the last words of those who were let go
        pass
    assert event.data == b'second'
    good.close()
    channel.close()


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A server that anyone can reach, with small limits."""
    for name, value in {'SPARE_CONNECTIONS': 2, 'MAX_STRANGERS': 4, 'SECONDS_FOR_STRANGERS': 1.0}.items():
        monkeypatch.setattr(f'xagents.explorers.transport.{name}', value)
    monkeypatch.setattr('xagents.explorers.cluster_launcher.MAX_STRANGERS', 4)
    make_key(str(tmp_path / 'key.pem'))
    events, key = queue.SimpleQueue(), read_key(str(tmp_path / 'key.pem'))
    server = Server('127.0.0.1:0', events, 1, 2**20, key)
    yield server, events, key.explorer_credentials
    server.close()


def closed(connection, seconds=5.0):
    """Whether the other side closes a connection soon."""
    connection.settimeout(seconds)
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_who_reaches_the_port_without_a_key_is_bounded_and_let_go(guarded):
    server, events, credentials = guarded
    said = []
    with contextlib.ExitStack() as stack:
        strangers = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(40)]
        for stranger in strangers:
            stack.callback(stranger.close)
        launcher = ClusterLauncher(server, '', said.append)
        deadline = time.monotonic() + 5
        while not said and time.monotonic() < deadline:
            launcher.on_shortage([], 0)
        assert len(said) == 1 and f'connections to port {server.port} have no key of this run' in said[0]
        connection = Connection(f'127.0.0.1:{server.port}', key=credentials)
        stack.callback(connection.close)
        connection.send(b'hello')
        assert sum(closed(stranger, 0.01) for stranger in strangers) >= 40 - 7
        assert all(map(closed, strangers))
        assert events.get(timeout=10).data == b'hello'
        time.sleep(1.2)
        launcher.on_shortage([], 0)
        connection.send(b'still there')
        assert events.get(timeout=10).data == b'still there' and len(said) == 1 and server.n_strangers() == 0


def test_who_shakes_hands_and_says_nothing_is_let_go(guarded):
    server, _, credentials = guarded
    context = ssl.create_default_context(cadata=credentials.certificate.decode())
    context.set_alpn_protocols(['h2'])
    with socket.create_connection(('127.0.0.1', server.port)) as plain:
        secure = context.wrap_socket(plain, server_hostname='xagents')
        secure.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert closed(secure)


def test_keys_are_made_once_and_read_in_any_order(tmp_path):
    path = tmp_path / 'a.pem'
    make_key(str(path))
    first = path.read_bytes()
    make_key(str(path))
    key = read_key(str(path))
    assert path.read_bytes() == first and parse_key(key.certificate + b'text\n' + key.private_key) == key
    shown = key.explorer_credentials
    assert len(shown.token) == 64 and shown.token.encode() not in first and shown.certificate == key.certificate
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(OptionError, match=rf'can be read by other users \(mode {mode:04o}\), .*: chmod 600 '):
            read_key(str(path))
    path.chmod(0o400)
    assert read_key(str(path)) == key
    path.chmod(0o600)
    with pytest.raises(OptionError, match='holds no private key'):
        path.write_bytes(key.certificate)
        read_key(str(path))


def test_other_versions_of_environments_are_told():
    import gymnasium

    here = versions('CartPole-v1')
    assert here['gymnasium'] == gymnasium.__version__ and versions('numpy:Id')['numpy'] == np.__version__
    assert version_differences(here, here) == ''
    there = {**here, 'gymnasium': '0.1', 'of something else': '3'}
    assert version_differences(here, there) == f'gymnasium is {gymnasium.__version__} here and 0.1 there'


def test_who_is_refused_says_why_and_ends(server):
    events, folder = server
    process = begin(folder)
    link = events.get(timeout=20).source
    link.send(pack('refused', {'why': 'it is xagents 1.0, the learner is 2.0'}))
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (3, 'it is xagents 1.0, the learner is 2.0\n')
