"""Two network namespaces with a link, which act as two machines, and one without a network. Linux, as root."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from benchmarks.processes import Failed

# words before a command on a machine: its processes end with the first of them, and it has its own shared memory
_OWN = ('unshare', '-m', '-p', '-f', '--mount-proc', '--kill-child')
_BEGIN = ('sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', 'sh')
# words before a command that runs without a network
WITHOUT_NETWORK = ('unshare', '-n', *_OWN[2:], 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh')
NEEDED = 'cannot create namespaces: they need Linux, root, and the commands unshare, nsenter and ip'
Name = Literal['a', 'b']
ADDRESSES: dict[Name, str] = {'a': '10.77.0.1', 'b': '10.77.0.2'}


def check_namespaces() -> None:
    """Check that namespaces can be created.

    Raises:
        Failed: if they are not allowed, or a command is missing.
    """
    try:
        for command in ([*WITHOUT_NETWORK, 'true'], [*_OWN, *_BEGIN, 'true'], ['nsenter', '--version']):
            subprocess.run(command, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise Failed(NEEDED) from None


def inside(pid: int) -> list[str]:
    """Return the words before a command that runs in the network of a process."""
    return ['nsenter', '-t', str(pid), '-n']


class Machines:
    """Two machines, `a` and `b`.

    Args:
        pids: of a process in each network.
    """

    def __init__(self, pids: dict[Name, int]):
        self._pids = pids

    def words(self, name: Name, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on a machine.

        Killing it turns the machine off: all processes on it end, and its shared memory is gone.
        """
        return [*inside(self._pids[name]), *_OWN, *_BEGIN, *command]

    def set_link(self, state: Literal['up', 'down']) -> None:
        """Connect or disconnect the machines."""
        run([*inside(self._pids['b']), 'ip', 'link', 'set', 'v1', state])

    def connected(self, port: int) -> bool:
        """Return whether machine `a` has an established connection to one of its ports."""
        for table in ('tcp', 'tcp6'):
            with contextlib.suppress(OSError), open(f'/proc/{self._pids["a"]}/net/{table}') as file:
                if established(file.read(), port):
                    return True
        return False


def established(table: str, port: int) -> bool:
    """Return whether `/proc/net/tcp` has a connection to a local port."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(row[1].endswith(f':{port:04X}') and row[3] == '01' for row in rows if len(row) > 3)


def run(command: Sequence[str]) -> None:
    """Run a system command.

    Raises:
        Failed: if the command fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise Failed(f'{" ".join(command)}: {(done.stderr or done.stdout).strip()}')


@contextlib.contextmanager
def two_machines() -> Iterator[Machines]:
    """Create two machines with the addresses 10.77.0.1 and 10.77.0.2 until the context ends.

    Raises:
        Failed: if namespaces cannot be created.
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
        yield Machines(pids)


@contextlib.contextmanager
def _network() -> Iterator[int]:
    """Yield the id of a process in a new network; the process ends with this one."""
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
