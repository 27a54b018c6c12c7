"""A run: the stream of an agent's recipe, drained by `fit` or taken one iteration at a time."""

from __future__ import annotations

import contextlib
import errno
import math
import shlex
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xagents.collecting.finite import NotFiniteError
from xagents.logs.console import Console
from xagents.options.agents import AgentOptions
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context
from xagents.pipeline.recipe import Recipe
from xagents.runs import reporting, saving, stages
from xagents.runs.folder import RunFolder
from xagents.runs.overlap import InFlight
from xagents.runs.state import State
from xagents.runs.status import check_new
from xagents.system.interruption import Interruption
from xagents.system.threads import threads_in_use

if TYPE_CHECKING:
    from xagents.envs.create import Envs
    from xagents.runs.learner import Learner


# a full disk, one that became read-only, or broke
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class Running:
    """How an agent runs; what it needs of the agent is declared here."""

    options: AgentOptions
    run: RunOptions
    envs: Envs
    context: Context
    creation: dict[str, Any]
    best: State | None
    folder: RunFolder | None
    resumed_at: int | None
    resume_lines: list[str]
    writers: list[Any]
    in_flight: InFlight | None
    own_counters: dict[str, Any]
    own_kept: frozenset[str]
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
        recipe = self.recipe() if recipe is None else recipe
        if not isinstance(recipe, Recipe):
            raise TypeError(f'recipe: got {type(recipe).__name__}, takes a Recipe, such as agent.recipe()')
        if recipe.agent not in (None, self):
            raise ValueError('recipe: it is of another agent, whose stages it has: make it with recipe() of this one')
        if self.run.overlap and 'overlap' not in recipe.names:
            raise OptionError('overlap', 'the recipe has no such stage: make it with recipe(overlap=True)')
        stream = self._iterate(recipe)
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
        stages.check_run(cast('Learner', self))
        self._choose_folder()

    def _choose_folder(self) -> None:
        """Keep the run in the folder that is asked for.

        Raises:
            OptionError: where another run is kept there, or nothing can be.
        """
        path = self.run.run_dir
        if path is None:
            if self.folder is not None:
                self.resume_lines.append(f'Nothing more is kept in {self.folder.path}: this call was given no run_dir')
            self.folder = None
        elif self.folder is None or self.folder.path != Path(path):
            check_new(path)
            self.folder = RunFolder(path, cast('Learner', self))

    def run_record(self) -> dict[str, Any]:
        """Return every option of the present run by name: what makes an equal one."""
        schedules = cast('Learner', self).schedules().values()
        length = {'schedule_steps': self.schedule_steps} if any(s.needs_length() for s in schedules) else {}
        known = {'env': self.envs.id, 'n_envs': self.envs.n_envs}
        if threads_in_use():  # another number of them would round otherwise
            known['threads'] = threads_in_use()
        run = {name: value for name, value in self.run.asdict().items() if name != 'run_dir'}  # a folder can be moved
        # of environments and networks that were handed over nothing is known
        made = (EnvironmentOptions, NetworkOptions) if self.creation else ()
        defaults = {name: o.default for group in made for name, o in describe(group).items()}
        agent = cast('Learner', self)
        without_effect = agent.options.without_effect()
        own = {name: value for name, value in agent.options_record().items() if name not in without_effect}
        return {**defaults, **known, **own, **length, **run}

    def notices(self) -> list[str]:
        """Return what a run says before it starts."""
        lines, self.resume_lines = self.resume_lines, []
        return lines + self._ineffective_said()

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
        self.console = reporting.begin(cast('Learner', self))
        self.context = self._carried(recipe.context)
        self.stopped = stages.why_stop(cast('Learner', self), self.context)
        if self.stopped:  # a finished run collects nothing, and opens nothing
            if self.folder is not None and self.resumed_at is not None and not self.folder.is_finished():
                self._end_what_was_killed()
            reporting.end(cast('Learner', self), begun=self.resumed_at is None)
            return
        if not self._seed_said:
            self.console.say(f'Seed: {self.options.seed}')
            self._seed_said = True
        for line in self.notices():
            self.console.say(line)
        self.refresh()
        with self._kept_in_folder():
            yield from self._drain(recipe)

    def _end_what_was_killed(self) -> None:
        """Do what stands after the last step of a run, of which a kill came first."""
        agent = cast('Learner', self)
        with self._kept_in_folder():
            if self.stopped in saving.SPENT:
                saving.contest(agent, saving.keepers(agent))

    @contextlib.contextmanager
    def _kept_in_folder(self) -> Iterator[None]:
        """Let the run's folder, if it has one, know that it goes on and how it ended."""
        self.writers = []
        folder = self.folder
        if folder is not None:
            folder.begin()
        state, why = 'failed', ''
        try:
            yield
            state = 'interrupted' if self.stopped == 'interrupted' else 'finished'
            why = self.stopped
        except GeneratorExit:
            state, why = 'interrupted', 'the loop was left'
            raise
        except (KeyboardInterrupt, SystemExit):
            state, why = 'interrupted', 'interrupted'
            raise
        except OSError as error:
            if folder is None or error.errno not in UNWRITABLE:
                why = f'{type(error).__name__}: {error}'
                raise
            said = folder.unwritable(error)
            why = str(said)
            raise said from error
        except BaseException as error:
            why = f'{type(error).__name__}: {error}'
            reporting.end(cast('Learner', self), error)
            raise
        finally:
            self.resumed_at = None
            if folder is not None:
                folder.ended(state, why)

    def _drain(self, recipe: Recipe) -> Generator[dict[str, float], None, None]:
        flight, self.in_flight = self.in_flight, None
        first = self.context if flight is None else flight.onto(self.context)
        stream = recipe.stream(first, collected=flight is not None)
        interruption = Interruption()
        with contextlib.closing(stream), self._best_saved_on_bad_numbers():
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
        reporting.end(cast('Learner', self))
        interruption.exit()

    @contextlib.contextmanager
    def _best_saved_on_bad_numbers(self) -> Iterator[None]:
        """Before numbers that are not finite end the run, save what is known to be good."""
        try:
            yield
        except NotFiniteError as error:
            if self.run.checkpoints and self.best is not None:
                cast('Learner', self).write_checkpoints(self.best)
            if self.folder is not None:
                self.folder.save_best()
            if self.folder is not None and self.folder.saved_steps >= 0:
                error.saved = f'; the last good state, of step {self.folder.saved_steps}, is in {self.folder.path}'
            elif self.run.checkpoints and self.best is not None:
                error.saved = f'; the best weights so far are in {" ".join(self.run.checkpoints)}'
            raise

    def interrupted_line(self) -> str:
        """Return what an interrupted run says: what is saved, and how to go on."""
        if self.folder is not None:
            return (
                f'Interrupted after {self.context.steps} steps; everything is in {self.folder.path}. '
                f'To go on: xagents train --resume {shlex.quote(str(self.folder.path))}'
            )
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
        values = {**self.own_counters, **self.context.kept()}
        first = context(**{name: value for name, value in values.items() if name in fields})
        first.kept_names = (self.context.kept_names | self.own_kept) & fields
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
        if self.folder is not None:
            self.folder.let_go()
        for envs in (self.envs, *self._evaluation_envs.values()):
            envs.close()
        self._evaluation_envs.clear()
