"""Running: the checks before a run, and the stream of its recipe, drained or taken one iteration at a time."""

from __future__ import annotations

import contextlib
import errno
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from xagents.collecting.finite import NotFiniteError
from xagents.logs.history import check_history_path
from xagents.logs.metrics import read_metrics
from xagents.logs.table_files import check_goes_on
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.recipe import Recipe
from xagents.runs import reporting, saving, weight_files
from xagents.runs.capture import start_targets
from xagents.runs.evaluating import check_evaluating, evaluating
from xagents.runs.experience import check_experience, prepare, recording, settled
from xagents.runs.exploring import check_explorers, exploring
from xagents.runs.folder import RunFolder
from xagents.runs.learner import Learner
from xagents.runs.run import Run
from xagents.runs.stages import why_stop
from xagents.runs.status import check_new
from xagents.runs.videos import check_video
from xagents.system.interruption import Interruption
from xagents.system.memory import check_memory, gigabytes
from xagents.system.processor import multiplies_in_bfloat16

# a full disk, one that became read-only, or broke
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def begin(agent: Learner, options: RunOptions, command: str = '') -> Run:
    """Return a run of an agent (see `Run`), checked before anything is written.

    Raises:
        OptionError: for what the agent, the machine or the folder does not admit.
    """
    run = Run(agent, settled(agent, options), command)
    if not run.progress.context.updates:
        start_targets(agent)  # their networks may have been given other weights since they were made
    _check(run)
    needs = agent.needs()
    if needs is not None and run.options.dataset is None:
        check_memory('buffer_max_size', needs.capacity, needs.memory)
    run.progress.lines[:0] = prepare(run)
    _choose_folder(run)
    return run


def _check(run: Run) -> None:
    """Check the options of a run against its agent."""
    agent, options = run.agent, run.options
    if options.checkpoints:
        models = agent.model_names or [f'model {i + 1}' for i in range(len(agent.output_models))]
        weight_files.check_paths('checkpoints', options.checkpoints, models)
    if options.history_path and (options.history_checkpoint or run.resumed_at is not None):
        given = 'history_checkpoint' if options.history_checkpoint else 'resume'
        check_history_path(options.history_path, run.goes_on, given)
    if options.metrics_path and run.resumed_at is not None:
        check_goes_on('resume', options.metrics_path, read_metrics)
    check_experience(run)
    check_video(run)
    check_explorers(agent, options)
    if options.eval_frequency and not agent.envs.can_be_made_again:
        raise OptionError('eval_frequency', f'{agent.envs.id} cannot be made afresh: give create_envs a function')
    check_evaluating(agent, options)
    for value in agent.schedules().values():
        if value.needs_length() and not value.optional and run.schedule_steps is None:
            raise OptionError(value.option, f'got {value.kind}, which needs max_steps or schedule_steps for its length')


def _choose_folder(run: Run) -> None:
    """Keep a run in the folder that is asked for."""
    progress, path = run.progress, run.options.run_dir
    if path is None:
        if progress.folder is not None:
            progress.lines.append(f'Nothing more is kept in {progress.folder.path}: this call was given no run_dir')
        progress.folder = None
    elif progress.folder is None or progress.folder.path != Path(path):
        check_new(path)
        progress.folder = RunFolder(path)
    run.folder = progress.folder


def fit(run: Run, recipe: Recipe) -> None:
    """Drain a run's stream.

    Raises:
        KeyboardInterrupt: after a Ctrl-C, when everything is saved.
        SystemExit: with code 143 after a SIGTERM, likewise.
    """
    with Interruption.guard() as interruption:
        try:
            for _ in iterate(run, recipe):
                pass
        except KeyboardInterrupt:
            interruption.exit()  # a SIGTERM that came before
            raise


def iterate(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    """Return the stream of a run, which gives the log of each iteration."""
    stream = _iterate(run, recipe)
    run.stream = weakref.ref(stream)
    return stream


def _iterate(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    progress = run.progress
    reporting.start(run)
    progress.context = progress.first(recipe.context, bool(run.options.eval_frequency))
    run.stopped = why_stop(run, progress.context)
    if run.stopped:  # a finished run collects nothing, and opens nothing
        if run.folder is not None and run.resumed_at is not None and not run.folder.is_finished():
            with _kept_in_folder(run), evaluating(run):  # a kill came before what stands after the last step
                if run.stopped in saving.SPENT:
                    saving.final_evaluation(run, saving.keepers(run))
        reporting.end(run, begun=run.resumed_at is None)
        return
    lines, progress.lines = [*progress.lines, *_notices(run)], []
    for line in lines:
        run.console.say(line)
    run.agent.refresh()
    with _kept_in_folder(run):
        yield from _drain(run, recipe)


def _notices(run: Run) -> list[str]:
    """Say what memory a replay buffer is going to take, and what the run asks for that will do no good."""
    envs, needs, last, lines = run.agent.envs, run.agent.needs(), run.options.max_steps, []
    if envs.agents:
        several = f'{envs.n_envs // envs.together} environments of {envs.together} agents'
        lines.append(f'{envs.id}: {several} ({", ".join(envs.agents)}); steps and episodes are those of agents')
    if run.agent.options.precision == 'bfloat16' and not multiplies_in_bfloat16():
        lines.append('This processor does not multiply in bfloat16: --precision float32 is faster on it')
    if needs is None or run.options.dataset is not None:
        return lines
    lines.append(f'Replay buffer: {needs.capacity} transitions, {gigabytes(needs.memory)} of memory when full')
    if last is not None and last - run.progress.context.steps < needs.transitions:
        lines.append(
            f'Nothing will be {needs.used}: the buffer is filled by {needs.transitions} transitions first, and the run '
            f'ends at step {last} (see --learning-starts)'
        )
    return lines


@contextlib.contextmanager
def _kept_in_folder(run: Run) -> Iterator[None]:
    """Let the run's folder, if it has one, know that it goes on and how it ended."""
    folder = run.folder
    if folder is not None:
        folder.begin(run)
    state, why = 'failed', ''
    try:
        yield
        state = 'interrupted' if run.stopped == 'interrupted' else 'finished'
        why = run.stopped
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
        reporting.end(run, error)
        raise
    finally:
        run.progress.resumed_at = None
        if folder is not None:
            folder.ended(state, why)


def _drain(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    progress = run.progress
    pending, progress.pending = progress.pending, None
    first = progress.context if pending is None else pending.onto(progress.context)
    stream = recipe.made(run).stream(first, collected=pending is not None)
    interruption = Interruption()
    with recording(run), exploring(run), evaluating(run), contextlib.closing(stream), _best_saved_on_bad_numbers(run):
        while True:
            with Interruption.guard() as present:
                ctx = next(stream, None)
            interruption = present if present.signal else interruption
            if ctx is None:
                break
            if present.signal and not ctx.stop:
                ctx.stop = 'interrupted'  # it came after the last stage had looked
            progress.context, run.stopped = ctx, ctx.stop
            left = time.perf_counter()
            yield ctx.logs
            run.pause(time.perf_counter() - left)
    reporting.end(run)
    interruption.exit()


@contextlib.contextmanager
def _best_saved_on_bad_numbers(run: Run) -> Iterator[None]:
    """Before numbers that are not finite end the run, save what is known to be good."""
    try:
        yield
    except NotFiniteError as error:
        folder, paths = run.folder, run.options.checkpoints
        if paths and run.progress.best is not None:
            saving.write_weights(paths, run.agent, run.progress.best)
        if folder is not None:
            folder.save_best()
        if folder is not None and folder.saved_steps >= 0:
            error.saved = f'; the last good state, of step {folder.saved_steps}, is in {folder.path}'
        elif paths and run.progress.best is not None:
            error.saved = f'; the best weights so far are in {" ".join(paths)}'
        raise


def check_recipe(recipe: Any, agent: Learner, overlap: bool) -> Recipe:
    """Return a recipe that a user gave, if it can be that of a run.

    Raises:
        TypeError: for what is none.
        ValueError: for one of another agent.
        OptionError: for one without overlap where that is asked for.
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f'recipe: got {type(recipe).__name__}, takes a Recipe, such as agent.recipe()')
    if recipe.agent not in (None, agent):
        raise ValueError('recipe: it is of another agent, whose stages it has: make it with recipe() of this one')
    if overlap and 'overlap' not in recipe.names:
        raise OptionError('overlap', 'the recipe has no such stage: make it with recipe(overlap=True)')
    return recipe
