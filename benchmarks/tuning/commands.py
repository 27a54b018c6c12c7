"""Commands of xagents as processes of a folder of their own, for the benchmark of tuning."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.speed.run import Failed
from benchmarks.venvs import REPOSITORY, XAGENTS

if TYPE_CHECKING:
    import optuna


@dataclass
class Command:
    """A process under way, what it prints in files beside it."""

    process: subprocess.Popen
    output: Path
    errors: Path

    @property
    def problem(self) -> str:
        """How it ended, and the last thing it said, on one line."""
        said = (self.errors.read_text().strip() or self.output.read_text().strip() or 'nothing').splitlines()[-1]
        return f'exit code {self.process.returncode}: {said}'


def start(command: Sequence[str], folder: Path, name: str, **variables: str) -> Command:
    """Start a command in a folder, its output in `<name>.out` and `<name>.err` there."""
    output, errors = folder / f'{name}.out', folder / f'{name}.err'
    with output.open('w') as out, errors.open('w') as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, 'PYTHONPATH': str(REPOSITORY), **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    return Command(process, output, errors)


def seconds_beside(commands: Sequence[Sequence[str]], folder: Path, **variables: str) -> float:
    """Run commands beside each other and return the seconds until the last one has ended.

    Raises:
        Failed: when one of them failed.
    """
    running: list[Command] = []
    begin = time.perf_counter()
    with ending(running):
        for number, command in enumerate(commands):
            running.append(start(command, folder, f'beside-{number}', **variables))
        for one in running:
            one.process.wait()
        seconds = time.perf_counter() - begin
    for one in running:
        if one.process.returncode:
            raise Failed(one.problem)
    return seconds


def seconds_in_turn(commands: Sequence[Sequence[str]], folder: Path) -> float:
    """Run commands one after the other and return the seconds that they took together."""
    return sum(seconds_beside([command], folder) for command in commands)


@contextlib.contextmanager
def ending(running: list[Command]) -> Iterator[None]:
    """End what still runs, however the body ends; the workers of `xagents tune` end with it."""
    try:
        yield
    finally:
        for one in running:
            if one.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.process.pid, signal.SIGKILL)
                one.process.wait()


def processes_in(folder: Path) -> list[psutil.Process]:
    """All processes that were started in a folder and live: also those whose parent has died."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve():
                found.append(process)
    return found


def load_study(name: str, url: str) -> optuna.Study:
    """Open a study that the commands have made."""
    import optuna

    from xagents.tuning.storages import open_storage

    return optuna.load_study(study_name=name, storage=open_storage(url, create=False))


def tune(*words: Any) -> list[str]:
    """The command that tunes PPO on CartPole."""
    return [*XAGENTS, 'tune', 'ppo', '--env', 'CartPole-v1', *map(str, words)]
