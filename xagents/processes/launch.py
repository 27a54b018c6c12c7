"""Where processes run: on this machine, or on free processors of a Ray cluster.

The security of Ray is not part of this package: Ray sends pickled code to its machines, and anyone who can reach its
ports can execute code there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from xagents.options.errors import OptionError, error_line, format_value
from xagents.options.runs import HERE
from xagents.processes.child_process import (
    ChildProcess,
    ManagedProcess,
    OutputHandler,
    OutputQueue,
    importable_paths,
)

# exit code of a process whose machine was lost
MACHINE_LOST = 128


Launch = Callable[..., ManagedProcess]
"""A function that starts a process; its arguments are those of `ChildProcess`."""


def launch_here(*arguments: Any) -> ManagedProcess:
    """Start a process on this machine; see `Launch`."""
    return ChildProcess(*arguments)


def is_ray(cluster: str | None) -> bool:
    """Return whether a value of --cluster names a Ray cluster."""
    return cluster is not None and (cluster == 'ray' or cluster.startswith('ray://'))


def check_ray(cluster: str) -> None:
    """Check that Ray is installed.

    Raises:
        OptionError: if it is not installed; the error names `cluster`.
    """
    if importlib.util.find_spec('ray') is None:
        raise OptionError('cluster', f"got {cluster}, which needs an extra: pip install '.[ray]'")


def check_launch(cluster: str | None) -> None:
    """Check where processes run.

    Raises:
        OptionError: if it is neither this machine nor Ray, or Ray is not installed; the error names `cluster`.
    """
    if is_ray(cluster):
        check_ray(str(cluster))
    elif cluster not in (None, HERE):
        raise OptionError('cluster', f'got {format_value(cluster)}, expected here, ray or ray://HOST:PORT')


@contextlib.contextmanager
def ray_cluster(cluster: str) -> Iterator[Any]:
    """Connect to a Ray cluster inside a `with` block, and yield the module `ray`.

    Args:
        cluster: `ray` for the cluster of this machine, which is started if it does not exist; `ray://HOST:PORT` for a
            remote one.

    Raises:
        OptionError: if the connection fails; the error names `cluster`.
    """
    import ray

    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')  # no usage report to Ray's servers
    quiet: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR'}
    began = not ray.is_initialized()
    try:
        if began:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                ray.init(None if cluster == 'ray' else cluster, **quiet)
    except Exception as error:  # Ray can raise any exception
        raise OptionError('cluster', f'got {cluster}, cannot connect to Ray ({error_line(error)})') from error
    try:
        yield ray
    finally:
        if began:
            ray.shutdown()


def address_in_cluster() -> str:
    """Return the address of this machine in the Ray cluster to which it is connected."""
    import ray

    return str(ray.util.get_node_ip_address())


@contextlib.contextmanager
def open_launch(cluster: str | None, threads: int | None = None, folder: str | None = None) -> Iterator[Launch]:
    """Yield the function that starts processes inside a `with` block.

    Args:
        cluster: `here` or None for this machine; otherwise as for `ray_cluster`.
        threads: number of processors that Ray reserves for a process; one if None.
        folder: working directory on machines of Ray; that of this process if None, and that of Ray if ''.

    Raises:
        OptionError: if the connection to Ray fails.
    """
    if not is_ray(cluster):
        yield launch_here
        return
    with ray_cluster(str(cluster)) as ray:
        place = os.getcwd() if folder is None else folder
        yield lambda *arguments: RayProcess(ray, threads or 1, place, *arguments)


class RayProcess(ManagedProcess):
    """A process that Ray places on one of its machines.

    Args:
        ray: the module `ray`.
        n_cpus: number of processors that Ray reserves for the process.
        folder: working directory; that of Ray if ''.
        arguments: as for `ChildProcess`.
        output: as for `ChildProcess`.
        seconds_to_end: as for `ChildProcess`.
        stderr: as for `ChildProcess`.
        variables: as for `ChildProcess`.
    """

    pid = 0

    def __init__(
        self,
        ray: Any,
        n_cpus: int,
        folder: str,
        arguments: Sequence[str],
        output: OutputHandler,
        seconds_to_end: float,
        stderr: int | None,
        variables: Mapping[str, str] | None,
    ):
        self._ray, self._seconds_to_end, self._code = ray, seconds_to_end, MACHINE_LOST
        self._ended = threading.Event()
        # a thread of its own waits for output; Ray keeps the order of all other calls
        actor = ray.remote(num_cpus=n_cpus, concurrency_groups={'output': 1})(RemoteProcess)
        environment = {'PYTHONPATH': importable_paths(), **(variables or {})}
        how = (list(arguments), seconds_to_end, stderr, variables)
        self._actor = actor.options(runtime_env={'env_vars': environment}).remote(folder, *how)
        threading.Thread(target=self._relay, args=(output,), daemon=True).start()

    def _relay(self, output: OutputHandler) -> None:
        """Pass the lines of the process to the receiver until it ends, or until its machine is lost."""
        try:
            while True:
                read = self._actor.read.options(concurrency_group='output').remote()
                lines, self.last_output, code = self._ray.get(read)
                for line in lines:
                    output((self, line))
                if code is not None:
                    self._code = code
                    break
        except Exception as error:  # Ray can raise any exception
            self.last_output = error_line(error)
        self._ended.set()
        output((self, None))

    @property
    def code(self) -> int:
        """The exit code, after waiting for the end; `MACHINE_LOST` if the machine of the process was lost."""
        self._ended.wait()
        return self._code

    @property
    def exit_status(self) -> str:
        """The exit code as text."""
        return 'its machine was lost' if self.code == MACHINE_LOST else super().exit_status

    def write(self, line: str) -> None:
        """Write a line to the standard input of the process; do nothing if it has ended."""
        self._actor.call.remote('write', line)

    def start(self, kind: str, job: Any) -> None:
        """Start a job; see `ManagedProcess`."""
        self._actor.forget_output.remote()
        super().start(kind, job)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process; do nothing if it has ended."""
        self._actor.call.remote('send_signal', number)

    def request_exit(self) -> None:
        """Close the standard input of the process, which requests its exit."""
        self._actor.end.remote()

    def end(self) -> None:
        """Request the exit of the process, and kill it if it does not exit in time; then free its processors."""
        self.request_exit()
        self._ended.wait(self._seconds_to_end + 1.0)
        self._ray.kill(self._actor)


class RemoteProcess:
    """The part of a `RayProcess` on the machine of the process, in a worker of Ray.

    Args:
        folder: working directory of the process; that of Ray if ''.
        how: the arguments of the `ChildProcess`, without `output`.
    """

    def __init__(self, folder: str, arguments: list[str], *how: Any):
        self._lines: OutputQueue = queue.Queue()
        self._process: ChildProcess | None = None
        if not folder or os.path.isdir(folder):
            os.chdir(folder or os.curdir)
            self._process = ChildProcess(arguments, self._lines.put, *how)
        else:
            expected = 'expected a working directory that all machines see'
            self._problem = f'{folder} does not exist on {socket.gethostname()}, {expected}'

    def read(self) -> tuple[list[str], str, int | None]:
        """Wait for output.

        Returns:
            New lines of the process, the last line of its other output, and its exit code if it has ended.
        """
        if self._process is None:
            return [], self._problem, 1
        items = [self._lines.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                items.append(self._lines.get_nowait())
        lines = [line for _, line in items if line is not None]
        return lines, self._process.last_output, None if items[-1][1] is not None else self._process.code

    def call(self, method: str, *arguments: Any) -> None:
        """Call a method of the process, if there is one."""
        if self._process is not None:
            getattr(self._process, method)(*arguments)

    def forget_output(self) -> None:
        """Remove the last line of other output."""
        if self._process is not None:
            self._process.last_output = ''

    def end(self) -> None:
        """Request the exit of the process; kill the process if it does not exit in time."""
        if self._process is not None:
            threading.Thread(target=self._process.end, daemon=True).start()
