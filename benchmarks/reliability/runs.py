"""Runs of `xagents train` as processes that are watched and ended, for the benchmark of reliability."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.run import Failed
from benchmarks.venvs import REPOSITORY, XAGENTS

# a process that does nothing for so long waits for something that does not come
PATIENCE = 600.0
# whatever has a state: normalisers, noise, priorities, schedules, replay buffers, plateaus
SETTINGS: dict[str, dict[str, Any]] = {
    'a2c': {'env': 'CartPole-v1', 'n_envs': 16, 'normalize_reward': True, 'optimizer': 'rmsprop'},
    'acer': {'env': 'CartPole-v1', 'n_envs': 8, 'n_steps': 20, 'buffer_initial_size': 800, 'normalize_obs': True},
    'ddpg': {
        'env': 'Pendulum-v1',
        'n_envs': 2,
        'max_episode_steps': 100,
        'buffer_initial_size': 500,
        'noise': 'ornstein-uhlenbeck',
        'normalize_obs': True,
        'train_frequency': 8,
        'net': [64, 64],
    },
    'dqn': {
        'env': 'CartPole-v1',
        'n_envs': 4,
        'buffer_initial_size': 1_000,
        'buffer_max_size': 5_000,
        'prioritized': True,
        'train_frequency': 16,
        'n_step': 3,
    },
    'ppo': {
        'env': 'CartPole-v1',
        'n_envs': 16,
        'n_steps': 64,
        'normalize_obs': True,
        'normalize_reward': True,
        'lr_schedule': 'linear',
        'divergence_monitoring_steps': 1_000,
        'early_stop_patience': 1_000_000,
    },
    'td3': {
        'env': 'Pendulum-v1',
        'n_envs': 2,
        'max_episode_steps': 100,
        'buffer_initial_size': 500,
        'train_frequency': 8,
        'net': [64, 64],
    },
    'trpo': {'env': 'MountainCarContinuous-v0', 'n_envs': 8, 'n_steps': 64, 'max_episode_steps': 100},
}


def train(agent_id: str, folder: Path, *words: Any, **options: Any) -> list[str]:
    """Return the command that begins a run in a folder: the agent's settings, and a status line where it can be."""
    from xagents.options.declaration import flags_of

    given = {**SETTINGS[agent_id], 'log_format': 'json', 'log_frequency': 1, **options}
    return [*XAGENTS, 'train', agent_id, *flags_of(given), '--run-dir', str(folder), *map(str, words)]


def resume(folder: Path, *words: Any) -> list[str]:
    """Return the command that goes on with a run."""
    return [*XAGENTS, 'train', '--resume', str(folder), *map(str, words)]


@dataclass
class Run:
    """A process under way, and what it says.

    Args:
        process: its own session's first.
        errors: the file with what it writes to stderr.
        lines: what it said on stdout, each with the time in seconds since 1970.
    """

    process: subprocess.Popen
    errors: Path
    lines: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def start(cls, command: Sequence[str], folder: Path, **variables: str) -> Run:
        """Start a command in a folder, which gets the file of its errors."""
        errors = folder / f'{time.time_ns()}.err'
        with errors.open('w') as err:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, 'PYTHONPATH': str(REPOSITORY), **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        run = cls(process, errors)
        run._reader = threading.Thread(target=run._read, daemon=True)
        run._reader.start()
        return run

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.time()
            try:
                said = json.loads(line)
            except ValueError:  # torn by a kill
                said = {'event': 'torn', 'text': line}
            self.lines.append((now, said if isinstance(said, dict) else {'event': 'torn', 'text': line}))

    def events(self, kind: str) -> list[tuple[float, dict[str, Any]]]:
        """Return what it said so far of one kind: start, message, status or end."""
        return [(when, said) for when, said in list(self.lines) if said.get('event') == kind]

    @property
    def steps(self) -> int:
        """The steps of its last status line; 0 before the first."""
        status = self.events('status')
        return int(status[-1][1]['steps']) if status else 0

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def wait_until(self, condition: Callable[[], Any], seconds: float = PATIENCE, pause: float = 0.002) -> bool:
        """Wait until something is so, and return whether it is: the process may end before.

        Raises:
            Failed: after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if self.ended:
                return bool(condition())
            if time.monotonic() > deadline:
                raise Failed(f'nothing has happened in {seconds:.0f} s; it last said {self.problem}')
            time.sleep(pause)
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until it has ended and all it said is read; returns the exit code.

        Raises:
            Failed: after so many seconds.
        """
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f'has not ended in {seconds:.0f} s; it last said {self.problem}') from None
        self._reader.join()
        return code

    @property
    def problem(self) -> str:
        """How it ended, and the last thing it said, on one line."""
        said = self.errors.read_text().strip().splitlines() or [str(line) for _, line in self.lines[-1:]] or ['nothing']
        return f'exit code {self.process.poll()}: {said[-1]}'

    _reader: threading.Thread = field(init=False, repr=False)


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path, **variables: str) -> Iterator[Run]:
    """Run a command; what of it still lives at the end is killed."""
    run = Run.start(command, folder, **variables)
    try:
        yield run
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.wait()
        assert run.process.stdout is not None
        run.process.stdout.close()


def to_end(command: Sequence[str], folder: Path) -> Run:
    """Run a command to its end.

    Raises:
        Failed: where it fails.
    """
    with running(command, folder) as run:
        if run.wait() != 0:
            raise Failed(run.problem)
    return run


def stopped_at(command: Sequence[str], folder: Path, steps: int, number: int, generator: random.Random) -> Run:
    """Run a command and end it by a signal at a random instant after so many steps; it may have ended before.

    Raises:
        Failed: where it ends in another way.
    """
    with running(command, folder) as run:
        if run.wait_until(lambda: run.steps >= steps):
            time.sleep(generator.uniform(0, 0.5))  # status lines are half a second apart
        run.signal(number)
        code = run.wait()
        if code not in (0, -number, 128 + number):
            raise Failed(run.problem)
    return run


def steps_of(agent_ids: Sequence[str], steps: Mapping[str, int], asked: int | None) -> dict[str, int]:
    """Return the steps for each agent: those that were asked for, or its own."""
    return {agent_id: asked or steps[agent_id] for agent_id in agent_ids}
