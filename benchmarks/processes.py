"""Start commands, watch them, and end them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.venvs import REPOSITORY

THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
# the seconds without an event after which a process counts as hung
PATIENCE = 600.0


class Failed(Exception):
    """A measurement without a result; the message is one line."""


def launch(command: Sequence[str], timeout: float, variables: Mapping[str, str] | None = None) -> tuple[str, float]:
    """Run a command in an empty folder and return its standard output and the seconds that it took.

    Raises:
        Failed: if the command fails or takes longer than `timeout` seconds. All of its processes are killed.
    """
    plain = {'CUDA_VISIBLE_DEVICES': '', 'JAX_PLATFORMS': 'cpu'}
    with tempfile.TemporaryDirectory(prefix='benchmark-', ignore_cleanup_errors=True) as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment(plain | dict(variables or {})), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f'no result in {timeout:.0f} s') from None
            raise
        seconds = time.perf_counter() - start
    if process.returncode:
        lines = (errors.strip() or output.strip() or 'no message').splitlines()
        raise Failed(f'exit code {process.returncode}: {lines[-1]}'.replace(str(REPOSITORY), '.'))
    return output, seconds


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of this process with the repository on Python's path, and some more.

    Python may write bytecode, as on the machine of a user. Without it, each start compiles the modules of TensorFlow.
    """
    own = {name: value for name, value in os.environ.items() if name != 'PYTHONDONTWRITEBYTECODE'}
    return {**own, 'PYTHONPATH': str(REPOSITORY), **variables}


def module(name: str, job: Any, python: Path | str = sys.executable) -> list[str]:
    """Return the command that runs a module of the benchmarks with a job as JSON in the first argument."""
    return [str(python), '-m', f'benchmarks.{name}', json.dumps(job)]


def work(command: Sequence[str], timeout: float, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a worker in an empty folder and return its result.

    Raises:
        Failed: if the worker has no result.
    """
    return last_line(launch(command, timeout, variables)[0])


def last_line(output: str) -> dict[str, Any]:
    """Return the result of a worker, which is the last line that the worker prints.

    Raises:
        Failed: if the line is not JSON.
    """
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise Failed(f'no result in its output: {output.strip()[-200:]!r}') from None


@dataclass
class Process:
    """A running command.

    Args:
        popen: the process, which is the first of its own session.
        errors: the file with its standard error.
        output: the file with its standard output; None if the output is watched.
        lines: the JSON lines of a watched output, each with its time in seconds since 1970.
    """

    popen: subprocess.Popen
    errors: Path
    output: Path | None = None
    lines: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    _reader: threading.Thread | None = field(default=None, repr=False)

    @classmethod
    def start(
        cls, command: Sequence[str], folder: Path, files: str = '', watched: bool = False, follows: bool = False,
        **variables: str,
    ) -> Self:  # fmt: skip
        """Start a command in a folder.

        Args:
            command: its words.
            folder: the working directory, which also gets `<files>.err` and, unless it is watched, `<files>.out`.
            files: beginning of these file names.
            watched: read the standard output as JSON lines.
            follows: give the process a pipe as standard input, which ends when this process ends.
            variables: more environment variables.
        """
        files = files or str(time.time_ns())
        errors, output = folder / f'{files}.err', None if watched else folder / f'{files}.out'
        with contextlib.ExitStack() as stack:
            popen = subprocess.Popen(
                command, cwd=folder, env=environment(variables), text=True, start_new_session=True,
                stdin=subprocess.PIPE if follows else subprocess.DEVNULL,
                stdout=stack.enter_context(output.open('w')) if output else subprocess.PIPE,
                stderr=stack.enter_context(errors.open('w')),
            )  # fmt: skip
        process = cls(popen, errors, output)
        if watched:
            process._reader = threading.Thread(target=process._read, daemon=True)
            process._reader.start()
        return process

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for text in self.popen.stdout:
            now, line = time.time(), None
            with contextlib.suppress(ValueError):  # a kill can cut a line
                line = json.loads(text)
            self.lines.append((now, line if isinstance(line, dict) else {'event': 'torn', 'text': text}))

    def events(self, name: str) -> list[tuple[float, dict[str, Any]]]:
        """Return the lines of one event: start, message, status or end."""
        return [(when, line) for when, line in list(self.lines) if line.get('event') == name]

    @property
    def steps(self) -> int:
        """The steps of the last status line; 0 before the first."""
        status = self.events('status')
        return int(status[-1][1]['steps']) if status else 0

    @property
    def text(self) -> str:
        """The standard output in the file."""
        return self.output.read_text().strip() if self.output else ''

    @property
    def problem(self) -> str:
        """The exit code and the last printed line."""
        printed = self.errors.read_text().strip() or self.text
        last = printed.splitlines() or [str(line) for _, line in self.lines[-1:]] or ['nothing']
        return f'exit code {self.popen.poll()}: {last[-1]}'

    def wait_until(self, condition: Callable[[], Any], seconds: float = PATIENCE, pause: float = 0.002) -> bool:
        """Wait until a condition holds; return False if the process ends before.

        Raises:
            Failed: after `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if self.popen.poll() is not None:
                return bool(condition())
            if time.monotonic() > deadline:
                raise Failed(f'nothing has happened in {seconds:.0f} s; the last line is {self.problem}')
            time.sleep(pause)
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process, not to its children."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.popen.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until the process has ended and its output is read; return the exit code.

        Raises:
            Failed: after `seconds`.
        """
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f'has not ended in {seconds:.0f} s; the last line is {self.problem}') from None
        if self._reader:
            self._reader.join()
        return code

    def check(self) -> None:
        """Wait for the end of the process.

        Raises:
            Failed: if the exit code is not 0.
        """
        if self.wait() != 0:
            raise Failed(self.problem)

    def kill(self) -> None:
        """Kill the process and its children in the same session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()


@contextlib.contextmanager
def ending(processes: Iterable[Process]) -> Iterator[None]:
    """Kill the processes that still run when the body ends."""
    try:
        yield
    finally:
        for process in processes:
            if process.popen.poll() is None:
                process.kill()


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path, **variables: str) -> Iterator[Process]:
    """Run a command and watch its output. What still runs in its session when the body ends is killed."""
    process = Process.start(command, folder, watched=True, **variables)
    try:
        yield process
    finally:
        process.kill()


def run_to_end(command: Sequence[str], folder: Path) -> Process:
    """Run a command to its end.

    Raises:
        Failed: if the command fails.
    """
    with running(command, folder) as process:
        process.check()
    return process


def seconds_in_parallel(commands: Sequence[Sequence[str]], folder: Path, **variables: str) -> float:
    """Run commands at the same time and return the seconds until the last one has ended.

    Raises:
        Failed: if a command fails.
    """
    processes: list[Process] = []
    begin = time.perf_counter()
    with ending(processes):
        for number, command in enumerate(commands):
            processes.append(Process.start(command, folder, f'command-{number}', **variables))
        for process in processes:
            process.popen.wait()
        seconds = time.perf_counter() - begin
    for process in processes:
        process.check()
    return seconds
