"""Explorers of other machines: the same weights, whoever comes and goes; and who has no key stays out."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest

import xagents
from tests.commands import execute
from tests.explorers.test_explorers import COMMON, digest
from xagents.explorers.keys import ExplorerCredentials, make_key, read_key
from xagents.explorers.transport import Connection
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('small_agents')
STEPS = 5000


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return f'127.0.0.1:{free.getsockname()[1]}'


@pytest.fixture
def key(tmp_path):
    path = str(tmp_path / 'key.pem')
    make_key(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    return path


@pytest.fixture
def machines(address, key):
    """Begin machines of explorers, which end with the test."""
    begun = []

    def begin(n, key=key, wait=30):
        words = [sys.executable, '-m', 'xagents', 'explore', address, '--explorers', str(n)]
        machine = subprocess.Popen([*words, '--cluster-key', key, '--wait', str(wait)], stdout=-1, stderr=-1, text=True)
        begun.append(machine)
        return machine

    yield begin
    for machine in begun:
        machine.kill()
        machine.communicate()


def make(**options):
    return xagents.make('small', 'CartPole-v1', **{**COMMON, 'n_steps': 16, 'normalize_obs': True, **options})


@pytest.fixture(scope='module')
def alone(small_agents):
    with contextlib.closing(make()) as agent:
        agent.fit(max_steps=STEPS)
        return digest(agent)


def test_machines_that_come_and_go_change_nothing(address, key, machines, alone, monkeypatch):
    monkeypatch.setattr('xagents.explorers.cluster_launcher.SECONDS_FOR_NEW_MACHINES', 0.5)
    first, second = machines(1), machines(2)
    with contextlib.closing(make()) as agent:
        stream = agent.train_iter(max_steps=STEPS, explorers=2, cluster=address, cluster_key=key)
        logs = [next(stream) for _ in range(4)]
        second.kill()  # whoever of the others is there has to do for all
        logs += [next(stream) for _ in range(8)]
        machines(1)  # may come in time, or not
        logs += list(stream)
        assert digest(agent) == alone
    assert {log['explorers/alive'] for log in logs} <= {1, 2} and logs[-1]['explorers/lost_environments'] == 0
    out, said = first.communicate(timeout=20)
    assert (first.returncode, said) == (0, '') and 'has released its explorers' in out


def test_who_has_another_key_or_none_stays_out(address, key, machines, tmp_path, alone):
    other = str(tmp_path / 'other.pem')
    make_key(other)
    stranger = machines(1, other, wait=2)
    said = []

    def come():
        wrong = ExplorerCredentials(read_key(key).certificate, read_key(other).explorer_credentials.token)
        try:
            list(Connection(address, key=wrong))
        except grpc.RpcError as error:
            said.append((error.code(), error.details()))
        stranger.wait(30)
        machines(2)

    coming = threading.Thread(target=come)
    with contextlib.closing(make()) as agent:
        stream = agent.train_iter(max_steps=STEPS, explorers=2, cluster=address, cluster_key=key)
        coming.start()
        list(stream)
        assert digest(agent) == alone
    coming.join(10)
    assert said == [(grpc.StatusCode.UNAUTHENTICATED, 'wrong token')]
    assert stranger.returncode == 2
    line = stranger.stderr.read()
    assert line.count('\n') == 1 and f'the process at {address} has another key' in line


def test_nobody_there_is_one_line(address, machines):
    machine = machines(1, wait=1)
    _, said = machine.communicate(timeout=30)
    assert machine.returncode == 2
    assert said == f'xagents explore: got no answer from {address} within 1 s\n'


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        ({'cluster': '1.2.3.4:5'}, '--explorers'),
        ({'cluster': 'nowhere', 'explorers': 2}, 'HOST:PORT'),
        ({'cluster': 'Ray', 'explorers': 2}, 'did you mean ray'),
        ({'cluster': '1.2.3.4:99999', 'explorers': 2}, 'HOST:PORT'),
        ({'cluster': '1.2.3.4:5', 'explorers': 2}, 'Cannot assign'),
        ({'cluster': '127.0.0.1:5', 'explorers': 2}, 'requires --cluster-key or --run-dir'),
        ({'cluster': '127.0.0.1:5', 'explorers': 2, 'cluster_key': 'none.pem'}, 'there is no file none.pem'),
        ({'cluster': '127.0.0.1:5', 'explorers': 2, 'cluster_key': __file__}, 'holds no private key'),
        ({'explorers': 2, 'cluster_key': 'none.pem'}, 'requires --cluster'),
        ({'max_lag': 2}, 'requires --explorers'),
        ({'max_lag': 2, 'explorers': 2, 'overlap': True}, 'with --overlap'),
        ({'max_lag': 2, 'explorers': 3}, 'expected 1, 2, 4, 8'),
    ],
)
def test_what_does_not_go_together_is_one_line(options, said):
    with contextlib.closing(make()) as agent, pytest.raises(OptionError, match=said):
        agent.fit(max_steps=100, **options)


def test_an_address_that_is_taken_is_one_line(key):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        place = f'127.0.0.1:{taken.getsockname()[1]}'
        refused = pytest.raises(OptionError, match=r'cannot listen there \(Address already in use\)')
        with contextlib.closing(make()) as agent, refused:
            agent.fit(max_steps=100, explorers=2, cluster=place, cluster_key=key)


def test_an_interruption_does_not_wait_for_explorers(folder, address):
    def interrupt():
        while not (folder / 'run' / 'config.yaml').exists():
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    words = 'train small --env CartPole-v1 --n-envs 8 --n-steps 16 --max-steps 1000 --seed 1 --vector sync --run-dir'
    signals = threading.Thread(target=interrupt)
    signals.start()
    code, out, _ = execute(*words.split(), 'run', '--explorers', '2', '--cluster', address)
    signals.join()
    assert code == 143 and 'xagents explore' in out and 'resume' in out
    for line in ('train --resume run --explorers none --cluster here', f'{words} whole'):
        assert execute(*line.split())[0] == 0
    weights = [np.load(folder / f / 'checkpoints' / 'last' / 'policy.npz')['weights'] for f in ('run', 'whole')]
    assert np.array_equal(*weights)
