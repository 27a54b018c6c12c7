"""Running: the checks before a run, and the stream of its recipe, drained or taken one iteration at a time."""

from __future__ import annotations

import contextlib
import errno
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from xagents.checkpoints import weight_files
from xagents.checkpoints.agent_state import init_target_networks
from xagents.checkpoints.protocols import LearningAgent
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.status import check_new_run_directory
from xagents.collecting.finite import NotFiniteError
from xagents.evaluation.schedule import async_evaluation, check_async_evaluation
from xagents.evaluation.videos import check_video
from xagents.logs.history import check_history_path
from xagents.logs.metrics import read_metrics
from xagents.logs.table_files import check_can_continue
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.recipe import Recipe
from xagents.runs import reporting, saving
from xagents.runs.run import Run
from xagents.runs.run_datasets import check_datasets, prepare_datasets, record_episodes, with_default_evaluation
from xagents.runs.run_workers import check_explorers, collect_with_explorers
from xagents.runs.stages import why_stop
from xagents.system.interruption import Interruption
from xagents.system.memory import check_memory, format_bytes
from xagents.system.processor import supports_bfloat16

# a full disk, one that became read-only, or broke
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def begin(agent: LearningAgent, options: RunOptions, command: str = '') -> Run:
    """Return a run of an agent (see `Run`), checked before anything is written.

    Raises:
        OptionError: for what the agent, the machine or the folder does not admit.
    """
    run = Run(agent, with_default_evaluation(agent, options), command)
    if not run.progress.context.updates:
        init_target_networks(agent)  # their networks may have been given other weights since they were made
    _check(run)
    needs = agent.buffer_needs()
    if needs is not None and run.options.dataset is None:
        check_memory('buffer_max_size', needs.capacity, needs.n_bytes)
    run.progress.startup_lines[:0] = prepare_datasets(run)
    _set_run_directory(run)
    return run


def _check(run: Run) -> None:
    """Check the options of a run against its agent."""
    agent, options = run.agent, run.options
    if options.checkpoints:
        models = agent.model_names or [f'model {i + 1}' for i in range(len(agent.output_models))]
        weight_files.check_paths('checkpoints', options.checkpoints, models)
    if options.history_path and (options.history_checkpoint or run.resumed_at is not None):
        given = 'history_checkpoint' if options.history_checkpoint else 'resume'
        check_history_path(options.history_path, run.continues, given)
    if options.metrics_path and run.resumed_at is not None:
        check_can_continue('resume', options.metrics_path, read_metrics)
    check_datasets(run)
    check_video(run)
    check_explorers(agent, options)
    if options.eval_frequency and not agent.envs.can_recreate:
        raise OptionError('eval_frequency', f'{agent.envs.id} cannot be made afresh: give create_envs a function')
    check_async_evaluation(agent, options)
    for value in agent.schedules().values():
        if value.needs_length() and not value.optional and run.schedule_steps is None:
            raise OptionError(
                value.option, f'got {value.schedule_type}, which needs max_steps or schedule_steps for its length'
            )


def _set_run_directory(run: Run) -> None:
    """Keep a run in the folder that is asked for."""
    progress, path = run.progress, run.options.run_dir
    if path is None:
        if progress.run_directory is not None:
            progress.startup_lines.append(
                f'Nothing more is kept in {progress.run_directory.path}: this call was given no run_dir'
            )
        progress.run_directory = None
    elif progress.run_directory is None or progress.run_directory.path != Path(path):
        check_new_run_directory(path)
        progress.run_directory = RunDirectory(path)
    run.run_directory = progress.run_directory


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
    progress.context = progress.first_context(recipe.context, bool(run.options.eval_frequency))
    run.stop_reason = why_stop(run, progress.context)
    if run.stop_reason:  # a finished run collects nothing, and opens nothing
        if run.run_directory is not None and run.resumed_at is not None and not run.run_directory.is_finished():
            with _open_run_directory(run), async_evaluation(run):  # a kill came before what stands after the last step
                if run.stop_reason in saving.BUDGET_ENDS:
                    saving.final_evaluation(run, saving.checkpoint_writers(run))
        reporting.end(run, begun=run.resumed_at is None)
        return
    lines, progress.startup_lines = [*progress.startup_lines, *_notices(run)], []
    for line in lines:
        run.console.print_line(line)
    run.agent.refresh()
    with _open_run_directory(run):
        yield from _drain(run, recipe)


def _notices(run: Run) -> list[str]:
    """Say what memory a replay buffer is going to take, and what the run asks for that will do no good."""
    envs, needs, last, lines = run.agent.envs, run.agent.buffer_needs(), run.options.max_steps, []
    if envs.agents:
        several = f'{envs.n_envs // envs.agents_per_env} environments of {envs.agents_per_env} agents'
        lines.append(f'{envs.id}: {several} ({", ".join(envs.agents)}); steps and episodes are those of agents')
    if run.agent.options.precision == 'bfloat16' and not supports_bfloat16():
        lines.append('This processor does not multiply in bfloat16: --precision float32 is faster on it')
    if needs is None or run.options.dataset is not None:
        return lines
    lines.append(f'Replay buffer: {needs.capacity} transitions, {format_bytes(needs.n_bytes)} of memory when full')
    if last is not None and last - run.progress.context.steps < needs.min_transitions:
        lines.append(
            f'Nothing will be {needs.verb}: the buffer is filled by {needs.min_transitions} transitions first, and '
            f'the run ends at step {last} (see --learning-starts)'
        )
    return lines


@contextlib.contextmanager
def _open_run_directory(run: Run) -> Iterator[None]:
    """Let the run's folder, if it has one, know that it goes on and how it ended."""
    run_directory = run.run_directory
    if run_directory is not None:
        run_directory.begin(run)
    state, why = 'failed', ''
    try:
        yield
        state = 'interrupted' if run.stop_reason == 'interrupted' else 'finished'
        why = run.stop_reason
    except GeneratorExit:
        state, why = 'interrupted', 'the loop was left'
        raise
    except (KeyboardInterrupt, SystemExit):
        state, why = 'interrupted', 'interrupted'
        raise
    except OSError as error:
        if run_directory is None or error.errno not in DISK_ERRORS:
            why = f'{type(error).__name__}: {error}'
            raise
        save_error = run_directory.save_error(error)
        why = str(save_error)
        raise save_error from error
    except BaseException as error:
        why = f'{type(error).__name__}: {error}'
        reporting.end(run, error)
        raise
    finally:
        run.progress.resumed_at = None
        if run_directory is not None:
            run_directory.finish(state, why)


def _drain(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    progress = run.progress
    in_flight, progress.in_flight = progress.in_flight, None
    first = progress.context if in_flight is None else in_flight.to_context(progress.context)
    stream = recipe.bind(run).stream(first, collected=in_flight is not None)
    interruption = Interruption()
    with (
        record_episodes(run),
        collect_with_explorers(run),
        async_evaluation(run),
        contextlib.closing(stream),
        _save_best_on_nonfinite(run),
    ):
        while True:
            with Interruption.guard() as present:
                ctx = next(stream, None)
            interruption = present if present.signal else interruption
            if ctx is None:
                break
            if present.signal and not ctx.stop:
                ctx.stop = 'interrupted'  # it came after the last stage had looked
            progress.context, run.stop_reason = ctx, ctx.stop
            left = time.perf_counter()
            yield ctx.logs
            run.pause(time.perf_counter() - left)
    reporting.end(run)
    interruption.exit()


@contextlib.contextmanager
def _save_best_on_nonfinite(run: Run) -> Iterator[None]:
    """Before numbers that are not finite end the run, save what is known to be good."""
    try:
        yield
    except NotFiniteError as error:
        run_directory, paths = run.run_directory, run.options.checkpoints
        if paths and run.progress.best is not None:
            saving.write_weights(paths, run.agent, run.progress.best)
        if run_directory is not None:
            run_directory.save_best()
        if run_directory is not None and run_directory.saved_steps >= 0:
            error.saved = f'; the last good state, of step {run_directory.saved_steps}, is in {run_directory.path}'
        elif paths and run.progress.best is not None:
            error.saved = f'; the best weights so far are in {" ".join(paths)}'
        raise


def check_recipe(recipe: Any, agent: LearningAgent, overlap: bool) -> Recipe:
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
