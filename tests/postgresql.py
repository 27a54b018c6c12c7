"""A PostgreSQL server of a test's own, from Debian's package, on a free loopback port; nothing of it is left behind."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

START_SECONDS = 30

# what ends the server when the tests are killed: it reads a pipe that nobody writes to, until its other end is closed
_GUARD = """
import os, signal, shutil, sys, time
server, folder = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.stdin.read()
try:
    os.kill(server, signal.SIGQUIT)
    for _ in range(100):
        os.kill(server, 0)
        time.sleep(0.05)
except ProcessLookupError:
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


def find_programs():
    """Return the folder of initdb and postgres, or None."""
    folders = sorted(Path('/usr/lib/postgresql').glob('*/bin'), key=lambda path: path.parent.name.zfill(4))
    folders += [Path(found).resolve().parent for found in [shutil.which('pg_ctl')] if found]
    return next(
        (path for path in reversed(folders) if (path / 'initdb').exists() and (path / 'postgres').exists()), None
    )


def unprivileged():
    """Return how subprocess starts a program that refuses to run as the superuser."""
    if os.geteuid():
        return {}
    names = {user.pw_name: user for user in pwd.getpwall()}
    user = names.get('postgres') or names.get('nobody')
    return {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}


@contextlib.contextmanager
def running_server():
    """Run a server and give the URL of it without a database: `postgresql://postgres@127.0.0.1:PORT/`."""
    programs, account = find_programs(), unprivileged()
    folder = Path(tempfile.mkdtemp(prefix='xagents-postgresql-'))
    server = guard = None
    try:
        if account:
            os.chown(folder, account['user'], account['group'])
        data = folder / 'data'
        quiet = {'cwd': folder, 'stdin': subprocess.DEVNULL, 'env': {'LC_ALL': 'C', 'PATH': os.defpath}, **account}
        options = ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--no-sync', '--no-locale']
        subprocess.run([programs / 'initdb', data, *options], check=True, capture_output=True, timeout=60, **quiet)
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        settings = {'listen_addresses': '127.0.0.1', 'port': port, 'unix_socket_directories': '', 'fsync': 'off'}
        settings |= {'synchronous_commit': 'off', 'full_page_writes': 'off', 'autovacuum': 'off'}
        words = [word for name, value in settings.items() for word in ('-c', f'{name}={value}')]
        with open(folder / 'log', 'w') as log:
            # in a session of its own: Ctrl-C at the tests is no signal to it
            server = subprocess.Popen(
                [programs / 'postgres', '-D', data, *words], stdout=log, stderr=log, start_new_session=True, **quiet
            )
        guard = subprocess.Popen(
            [sys.executable, '-I', '-c', _GUARD, str(server.pid), folder], stdin=subprocess.PIPE, start_new_session=True
        )
        _wait_for(server, port, folder / 'log')
        yield f'postgresql://postgres@127.0.0.1:{port}/'
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once, with its children
            server.wait(30)
        if guard is not None:
            guard.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(server, port, log):
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), 1):
            if 'ready to accept connections' in log.read_text():
                return
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f'PostgreSQL did not start: {log.read_text()}')
        time.sleep(0.02)


@pytest.fixture(scope='session')
def postgresql_server():
    """The URL of a running server, without a database."""
    if find_programs() is None:
        pytest.skip("needs a PostgreSQL server: Debian's package postgresql has it")
    pytest.importorskip('psycopg2', reason="needs PostgreSQL's driver: pip install psycopg2-binary")
    with running_server() as url:
        yield url


@pytest.fixture
def postgresql(postgresql_server):
    """The URL of a new, empty database."""
    import psycopg2

    name = f'study_{os.urandom(4).hex()}'
    connection = psycopg2.connect(postgresql_server + 'postgres')
    connection.autocommit = True  # databases are not made in transactions
    connection.cursor().execute(f'CREATE DATABASE {name}')
    connection.close()
    return postgresql_server + name
