"""Two network namespaces joined by a cable, which are two machines; and one that is alone. Linux, as root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from benchmarks.speed.run import Failed

# what each machine is started with: processes that end with the first of them, and a memory of its own
_OWN = ('unshare', '-m', '-p', '-f', '--mount-proc', '--kill-child')
_BEGIN = ('sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', 'sh')
# words before a command that is to run where nothing but itself can be reached
ALONE = ('unshare', '-n', *_OWN[2:], 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh')
NEEDED = 'namespaces cannot be made here: they need Linux, root, and the commands unshare, nsenter and ip'
Name = Literal['a', 'b']
ADDRESSES: dict[Name, str] = {'a': '10.77.0.1', 'b': '10.77.0.2'}


def check_namespaces() -> None:
    """Make sure that there can be namespaces.

    Raises:
        Failed: where they are not allowed, or a command is missing.
    """
    try:
        for command in ([*ALONE, 'true'], [*_OWN, *_BEGIN, 'true'], ['nsenter', '--version']):
            subprocess.run(command, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise Failed(NEEDED) from None


def inside(pid: int) -> list[str]:
    """Return the words before a command that is to run in the network of a process."""
    return ['nsenter', '-t', str(pid), '-n']


class Machines:
    """Two machines, `a` and `b`.

    Args:
        pids: of a process in each network.
    """

    def __init__(self, pids: dict[Name, int]):
        self._pids = pids
        self._begun: list[subprocess.Popen] = []

    def words(self, name: Name, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on a machine.

        Killing it is turning the machine off: all that it has started ends, and its memory is gone.
        """
        return [*inside(self._pids[name]), *_OWN, *_BEGIN, *command]

    def run_in(self, name: Name, command: Sequence[str], **options: Any) -> subprocess.Popen:
        """Begin a command on a machine; options are those of `Popen`."""
        process = subprocess.Popen(self.words(name, command), **options)
        self._begun.append(process)
        return process

    def link_down(self) -> None:
        """Cut the cable."""
        self._configure('down')

    def link_up(self) -> None:
        """Mend it."""
        self._configure('up')

    def _configure(self, state: str) -> None:
        run([*inside(self._pids['b']), 'ip', 'link', 'set', 'v1', state])

    def connected(self, port: int) -> bool:
        """Return whether somebody is connected to a port of machine `a`, as far as that machine knows."""
        for table in ('tcp', 'tcp6'):
            with contextlib.suppress(OSError), open(f'/proc/{self._pids["a"]}/net/{table}') as file:
                if established(file.read(), port):
                    return True
        return False

    def close(self) -> None:
        """End what runs on them."""
        for process in self._begun:
            process.kill()
            process.wait()


def established(table: str, port: int) -> bool:
    """Return whether a table of the kernel's, `/proc/net/tcp`, has a connection to a port of this side."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(row[1].endswith(f':{port:04X}') and row[3] == '01' for row in rows if len(row) > 3)


def run(command: Sequence[str]) -> None:
    """Run a command of the system's.

    Raises:
        Failed: where it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise Failed(f'{" ".join(command)}: {(done.stderr or done.stdout).strip()}')


@contextlib.contextmanager
def two_machines() -> Iterator[Machines]:
    """Let there be two machines, with 10.77.0.1 and 10.77.0.2, for as long as the context lasts.

    Raises:
        Failed: where there cannot be any.
    """
    check_namespaces()
    with contextlib.ExitStack() as stack:
        pids: dict[Name, int] = {name: stack.enter_context(_network()) for name in ADDRESSES}
        a, b = inside(pids['a']), inside(pids['b'])
        run([*a, 'ip', 'link', 'add', 'v0', 'type', 'veth', 'peer', 'name', 'v1', 'netns', str(pids['b'])])
        for words, name, address in ((a, 'v0', ADDRESSES['a']), (b, 'v1', ADDRESSES['b'])):
            run([*words, 'ip', 'addr', 'add', f'{address}/24', 'dev', name])
            run([*words, 'ip', 'link', 'set', 'lo', 'up'])
            run([*words, 'ip', 'link', 'set', name, 'up'])
        yield stack.enter_context(contextlib.closing(Machines(pids)))


@contextlib.contextmanager
def _network() -> Iterator[int]:
    """Yield the number of a process in a network of its own, which ends with this one."""
    process = subprocess.Popen(['unshare', '-n', 'cat'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline, own = time.monotonic() + 10, os.readlink('/proc/self/ns/net')
        while os.readlink(f'/proc/{process.pid}/ns/net') == own:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(NEEDED)
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.communicate()
