"""A run: one call of `fit`. The object exists from the start of the run to its end."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.checkpoints.protocols import LearningAgent, options_dict
from xagents.logs.console import Console, format_number
from xagents.options.curriculum import curriculum_of
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context
from xagents.registry.parts import modules_of
from xagents.system.threads import threads_in_use

# packages whose ids are registered without an import
_KNOWN_PACKAGES = ('gymnasium', 'ale_py', 'shimmy', 'gymnasium_robotics')


class Run:
    """The state that the stages of one run share.

    Args:
        agent: agent that is trained.
        options: options of the run.
        command: command line; empty if the run was started from Python.

    Attributes:
        progress: progress of the agent, which outlives the run.
        run_directory: writer of the run directory; None without `--run-dir`.
        resumed_at: step of the checkpoint from which the run resumes; None if it does not resume.
        console: printer of the status.
        writers: writers of history, metrics and events, which are flushed before a checkpoint.
        stop_reason: reason why the run ended; empty while it runs.
        overlap: the `Overlap` that collects ahead; None without one.
        evaluations: schedule of the evaluation process; None if the run evaluates in its own process.
        stream: function that returns the stream, or None when the stream is gone.
        summary: lines to print when the run ends.
        is_first: whether the agent was not trained before.
        needs_sampling: whether greedy play was far worse than training.
        stages_before_learning: names of the user's stages that change the batch before an update.
        episode_length: mean length of the episodes that ended last; NaN before the first.
        curriculum: levels of environment parameters; None without `--curriculum`.
        missing_infos: the names of `--log-info` that have not appeared in infos; empty once a warning was printed.
    """

    def __init__(self, agent: LearningAgent, options: RunOptions, command: str = ''):
        self.agent, self.progress, self.options, self.command = agent, agent.progress, options, command
        self.run_directory: Any = None
        self.resumed_at = agent.progress.resumed_at
        self.console = Console(quiet=True)
        self.writers: list[Any] = []
        self.stop_reason = ''
        self.summary: list[str] = []
        self.episode_length = math.nan
        self.needs_sampling = False
        self.stages_before_learning: list[str] = []
        self.is_first = agent.progress.context.iteration == 0
        self.overlap: Any = None
        self.evaluations: Any = None
        self.stream: Callable[[], Any] = lambda: None
        self.missing_infos = {*(options.log_info or ())}
        self.curriculum = curriculum_of(options)
        self._paused = 0.0

    @property
    def schedule_steps(self) -> int | None:
        """Length of the schedules in environment steps, or None."""
        return self.agent.options.schedule_steps or self.options.max_steps

    @property
    def continues(self) -> bool:
        """Whether existing files belong to this run. A run may resume before its first checkpoint."""
        return self.progress.context.iteration > 0 or self.resumed_at is not None

    @property
    def is_named(self) -> bool:
        """Whether another process can make the environment from its name in the run directory."""
        agent = self.agent
        named = isinstance(agent.origin.creation.get('env'), str) or self.options.dataset is not None
        return named or getattr(agent.envs, 'spec', None) is not None

    @property
    def in_flight(self) -> InFlightIteration | None:
        """The iteration that is collected but not yet learned from, or None. Waits until it is collected."""
        return self.progress.in_flight if self.overlap is None else self.overlap.in_flight()

    def is_of_level(self, ctx: Context) -> bool:
        """Return whether the batch of an iteration was collected in its level of the curriculum.

        With `--overlap`, the first batch of a level was collected in the level before.
        """
        params = {} if self.curriculum is None else self.curriculum.params(ctx.level)
        return all(ctx.env_params.get(name) == value for name, value in params.items())

    def clock(self) -> float:
        """Return the seconds that the run has worked, without the time spent in the body of a user's loop."""
        return time.perf_counter() - self._paused

    def pause(self, seconds: float) -> None:
        """Subtract seconds from the clock."""
        self._paused += seconds

    def evaluation_seed(self, steps: int) -> int:
        """Return the seed of the evaluation after `steps`. It does not depend on the number of evaluations."""
        return self.agent.streams.derive_seed('evaluate', steps)

    def all_options(self) -> dict[str, Any]:
        """Return every option of the run by name. An equal run can be made from them."""
        agent = self.agent
        timed = any(schedule.needs_length() for schedule in agent.schedules().values())
        timed = timed or bool(self.options.curriculum and not self.options.curriculum_when)
        length = {'schedule_steps': self.schedule_steps} if timed and self.schedule_steps is not None else {}
        # a data set that does not describe its environment gives its own name as the id
        env = None if agent.envs.id == self.options.dataset else agent.envs.id
        known = {'env': env, 'n_envs': agent.envs.n_whole_envs}
        if threads_in_use():  # results depend on the number of threads by rounding
            known['threads'] = threads_in_use()
        run = {name: value for name, value in self.options.asdict().items() if name != 'run_dir'}  # users may move it
        # nothing is known of environments and networks that were passed as objects
        made = (EnvironmentOptions, NetworkOptions) if agent.origin.creation else ()
        defaults = {name: o.default for group in made for name, o in declared_options(group).items()}
        ignored = agent.options.ignored_options()
        own = {name: value for name, value in options_dict(agent).items() if name not in ignored}
        options = {**defaults, **known, **own, **length, **run}
        models = [value for name, value in options.items() if name.endswith('model') and isinstance(value, str)]
        # other processes need the modules of registered parts
        modules = [*modules_of([agent.id, str(env), *models, *(self.options.stages or ())]), *_registering(agent.envs)]
        return {**options, 'imports': list(dict.fromkeys([*(options.get('imports') or ()), *modules])) or None}

    def schedule_notices(self) -> list[str]:
        """Return a line for each schedule whose length is an option and exceeds the run."""
        last, lines = self.options.max_steps, list[str]()
        if last is None or self.options.dataset is not None:
            return lines
        for name, schedule in self.agent.schedules().items():
            if schedule.steps_option and schedule.steps is not None and schedule.steps > last:
                value, flag = format_number(schedule(last, None), 2), schedule.steps_option.replace('_', '-')
                ends = f'it reaches {format_number(schedule.end, 2)} at step {schedule.steps} (see --{flag})'
                lines.append(f'The {name} will be {value} at step {last}, the end of the run: {ends}')
        return lines

    def interrupted_line(self) -> str:
        """Return the closing line of an interrupted run: the saved files, and the command that resumes it."""
        paths, line = self.options.checkpoints, f'Interrupted after {self.progress.context.steps} steps; '
        if self.run_directory is not None:
            path = str(self.run_directory.path)
            command = f'xagents train --resume {shlex.quote(path)}'
            if not self.is_named:
                command = f'xagents.resume({path!r}, env=…)'
            return line + f'the run is saved in {path}. To resume: {command}'
        if not paths:
            return line + 'nothing is saved, because neither --run-dir nor --checkpoints is set'
        weights = ' '.join(paths)
        if not self.command:
            return line + f'the best weights are in {weights}; call fit to train further'
        more = '' if '--weights' in self.command else f' --weights {weights}'
        return line + f'the best weights are in {weights}. To train further: {self.command}{more}'


def _registering(envs: Any) -> list[str]:
    """Return the module of a user that has probably registered the id of an environment in Gymnasium."""
    entry = getattr(getattr(envs, 'spec', None), 'entry_point', None)
    module = entry.partition(':')[0] if isinstance(entry, str) else getattr(entry, '__module__', None)
    if ':' in envs.id or not module or module == '__main__' or module.partition('.')[0] in _KNOWN_PACKAGES:
        return []
    return [module]
