"""A run: the stream of an agent's recipe, drained by `fit` or taken one iteration at a time."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xagents import reporting, stages
from xagents.console import Console
from xagents.interruption import Interruption
from xagents.options import OptionError
from xagents.pipeline import Context, Recipe, source
from xagents.settings import AgentOptions, RunOptions

if TYPE_CHECKING:
    from xagents.base import BaseAgent
    from xagents.envs import Envs


class Running:
    """How an agent runs; what it needs of the agent is declared here."""

    options: AgentOptions
    run: RunOptions
    envs: Envs
    context: Context
    console: Console
    stopped: str
    paused: float
    ineffective: list[str]
    command: str
    _run_given: dict[str, Any]
    _seed_said: bool
    _evaluation_envs: dict[tuple, Envs]
    _open: Callable[[], Any]

    if TYPE_CHECKING:

        def recipe(self) -> Recipe:
            """Return the stages of a run."""

        def refresh(self) -> None:
            """Let acting use the models' present weights."""

        def start_targets(self, known: Mapping[str, np.ndarray] | None = None) -> None:
            """Let target networks begin as copies."""

    def train_iter(self, recipe: Recipe | None = None, **run: Any) -> Generator[dict[str, float], None, None]:
        """Train, one iteration at a time; calling it again goes on, and closes an older one that is still open.

        Args:
            recipe: the stages; `recipe()` when not given.
            run: `RunOptions`; `max_steps` and `max_time` are totals, earlier calls included.

        Yields:
            One flat dict of floats an iteration; `mean_reward` is always there, NaN before it exists.
        """
        self._close_open()
        self.prepare_run(**run)
        stream = self._iterate(recipe or self.recipe())
        self._open = weakref.ref(stream)
        return stream

    def fit(self, target_reward: float | None = None, *, recipe: Recipe | None = None, **run: Any) -> None:
        """Train until a target, a budget or an early stop.

        Args:
            target_reward: stop when the mean reward reaches it.
            recipe: the stages; `recipe()` when not given.
            run: the other `RunOptions`.

        Raises:
            OptionError: for a wrong option, or where nothing would end the run.
            KeyboardInterrupt: after a Ctrl-C, when everything is saved.
            SystemExit: with code 143 after a SIGTERM, likewise.
        """
        if target_reward is not None:
            run['target_reward'] = target_reward
        ends = RunOptions.resolve({**self._run_given, **run})
        if ends.target_reward is None and ends.max_steps is None and ends.max_time is None:
            raise OptionError('target_reward', 'one of target_reward, max_steps, max_time is required')
        with Interruption.guard() as interruption:
            try:
                for _ in self.train_iter(recipe, **run):
                    pass
            except KeyboardInterrupt:
                interruption.exit()  # a SIGTERM that came before
                raise

    def prepare_run(self, **run: Any) -> None:
        """Resolve and check the options of a run before anything is written."""
        self.run = RunOptions.resolve({**self._run_given, **run})
        if not self.context.updates:
            self.start_targets()  # their networks may have been given other weights since they were made
        stages.check_run(cast('BaseAgent', self))

    def notices(self) -> list[str]:
        """Return what a run says before it starts."""
        return self._ineffective_said()

    def _ineffective_said(self) -> list[str]:
        """Say once which of the given options do nothing here; other agents of the family have a use for them."""
        flags, self.ineffective = self.ineffective, []
        name = type(self).__name__
        return [f'Warning: without effect on {name}: {", ".join(flags)}'] if flags else []

    @property
    def schedule_steps(self) -> int | None:
        """The length of the schedules in steps."""
        return self.options.schedule_steps or self.run.max_steps

    def _iterate(self, recipe: Recipe) -> Generator[dict[str, float], None, None]:
        self.console = Console(self.run.quiet, self.run.max_steps)
        if not self._seed_said:
            self.console.say(f'Seed: {self.options.seed}')
            self._seed_said = True
        for line in self.notices():
            self.console.say(line)
        self.refresh()
        first = self._carried(recipe.context)
        self.stopped = stages.why_stop(cast('BaseAgent', self), first)
        if self.stopped:  # a finished run collects nothing, and opens nothing
            self.console.close(reporting.closing_line(cast('BaseAgent', self)))
            return
        stream = recipe.stream(source(first))
        interruption = Interruption()
        with contextlib.closing(stream):
            while True:
                with Interruption.guard() as present:
                    ctx = next(stream, None)
                interruption = present if present.signal else interruption
                if ctx is None:
                    break
                if present.signal and not ctx.stop:
                    ctx.stop = 'interrupted'  # it came after the last stage had looked
                self.context, self.stopped = ctx, ctx.stop
                left = time.perf_counter()
                yield ctx.logs
                self.paused += time.perf_counter() - left
        self.console.close(reporting.closing_line(cast('BaseAgent', self)))
        interruption.exit()

    def interrupted_line(self) -> str:
        """Return what an interrupted run says: what is saved, and how to go on."""
        paths = self.run.checkpoints
        line = f'Interrupted after {self.context.steps} steps; '
        if not paths:
            return line + 'nothing is saved, because no checkpoints were asked for'
        weights = ' '.join(paths)
        if not self.command:
            return line + f'the best weights are in {weights}; fit again to go on'
        more = '' if '--weights' in self.command else f' --weights {weights}'
        return line + f'the best weights are in {weights}. To go on: {self.command}{more}'

    def _carried(self, context: type[Context]) -> Context:
        """Return the context that a run goes on from, which may be of another class than the last run's."""
        fields = set(context.__dataclass_fields__)
        first = context(**{name: value for name, value in self.context.kept().items() if name in fields})
        first.kept_names = self.context.kept_names & fields
        if first.evaluated != bool(self.run.eval_frequency):
            # means of training episodes and of evaluations are not compared
            first.evaluated = bool(self.run.eval_frequency)
            first.mean_reward = first.best_reward = math.nan
        return first

    def _close_open(self) -> None:
        stream = self._open()
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close the environments, also those of evaluations."""
        self._close_open()
        for envs in (self.envs, *self._evaluation_envs.values()):
            envs.close()
        self._evaluation_envs.clear()
