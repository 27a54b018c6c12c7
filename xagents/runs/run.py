"""A run: one call of `fit`, made when it begins and gone when it ends."""

from __future__ import annotations

import inspect
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.checkpoints.protocols import LearningAgent, options_dict
from xagents.logs.console import Console
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions
from xagents.system.threads import threads_in_use


class Run:
    """What the stages of one run share.

    Args:
        agent: who learns.
        options: of the run.
        command: what was typed, where it was.

    Attributes:
        progress: the agent's: what outlives the run.
        run_directory: keeps the run; None without `--run-dir`.
        resumed_at: the step of the checkpoint that the run goes on from; None of one that goes on from none.
        console: shows how the run stands.
        writers: of history, metrics and events, to be flushed before a checkpoint.
        stop_reason: why the run ended; empty as long as it goes on.
        overlap: what collects ahead, while it does.
        evaluations: the schedule of the evaluation process; None if the run evaluates itself.
        stream: gives the stream, as long as it is there.
    """

    def __init__(self, agent: LearningAgent, options: RunOptions, command: str = ''):
        self.agent, self.progress, self.options, self.command = agent, agent.progress, options, command
        self.run_directory: Any = None
        self.resumed_at = agent.progress.resumed_at
        self.console = Console(quiet=True)
        self.writers: list[Any] = []
        self.stop_reason = ''
        self.overlap: Any = None
        self.evaluations: Any = None
        self.stream: Callable[[], Any] = lambda: None
        self._paused = 0.0
        self._accepted_names: dict[Any, frozenset[str] | None] = {}

    @property
    def schedule_steps(self) -> int | None:
        """The length of the schedules in steps."""
        return self.agent.options.schedule_steps or self.options.max_steps

    @property
    def continues(self) -> bool:
        """Whether the files that are there are this run's; one that resumes may have had no checkpoint yet."""
        return self.progress.context.iteration > 0 or self.resumed_at is not None

    @property
    def in_flight(self) -> InFlightIteration | None:
        """What is collected and not learned from, waited for where it is under way; None where collecting failed."""
        return self.progress.in_flight if self.overlap is None else self.overlap.in_flight()

    def accepted(self, function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of some values that a method of the agent takes by their names."""
        method = getattr(function, '__func__', function)
        if method not in self._accepted_names:
            parameters = inspect.signature(function).parameters
            takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            self._accepted_names[method] = None if takes_all else frozenset(parameters)
        taken = self._accepted_names[method]
        return {n: value for n, value in values.items() if taken is None or n in taken}

    def clock(self) -> float:
        """Return seconds that go on while the run works, and not in the body of a user's own loop."""
        return time.perf_counter() - self._paused

    def pause(self, seconds: float) -> None:
        """Leave seconds out of the clock."""
        self._paused += seconds

    def evaluation_seed(self, steps: int) -> int:
        """Return the seed of an evaluation after `steps`: how often one evaluates changes nothing else."""
        return self.agent.streams.derive_seed('evaluate', steps)

    def all_options(self) -> dict[str, Any]:
        """Return every option of the run by name: what makes an equal one."""
        agent = self.agent
        timed = any(schedule.needs_length() for schedule in agent.schedules().values())
        length = {'schedule_steps': self.schedule_steps} if timed and self.schedule_steps is not None else {}
        # what has the data set's name is no environment: it tells of none that can be made
        env = None if agent.envs.id == self.options.dataset else agent.envs.id
        known = {'env': env, 'n_envs': agent.envs.n_envs // agent.envs.agents_per_env}
        if threads_in_use():  # another number of them would round otherwise
            known['threads'] = threads_in_use()
        run = {name: value for name, value in self.options.asdict().items() if name != 'run_dir'}  # it can be moved
        # of environments and networks that were handed over nothing is known
        made = (EnvironmentOptions, NetworkOptions) if agent.origin.creation else ()
        defaults = {name: o.default for group in made for name, o in declared_options(group).items()}
        ignored = agent.options.ignored_options()
        own = {name: value for name, value in options_dict(agent).items() if name not in ignored}
        return {**defaults, **known, **own, **length, **run}

    def interrupted_line(self) -> str:
        """Return what an interrupted run says: what is saved, and how to go on."""
        steps = self.progress.context.steps
        if self.run_directory is not None:
            return (
                f'Interrupted after {steps} steps; everything is in {self.run_directory.path}. '
                f'To go on: xagents train --resume {shlex.quote(str(self.run_directory.path))}'
            )
        paths, line = self.options.checkpoints, f'Interrupted after {steps} steps; '
        if not paths:
            return line + 'nothing is saved, because no checkpoints were asked for'
        weights = ' '.join(paths)
        if not self.command:
            return line + f'the best weights are in {weights}; fit again to go on'
        more = '' if '--weights' in self.command else f' --weights {weights}'
        return line + f'the best weights are in {weights}. To go on: {self.command}{more}'
