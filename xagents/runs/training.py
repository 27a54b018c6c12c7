"""Training: the checks before a run, and the stream of its recipe, which yields one iteration at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from xagents.checkpoints import weight_files
from xagents.checkpoints.agent_state import init_target_networks
from xagents.checkpoints.protocols import LearningAgent
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.status import check_new_run_directory, is_run
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
from xagents.runs.rules import RUN_RULES
from xagents.runs.run import Run
from xagents.runs.run_datasets import check_datasets, prepare_datasets, record_episodes, with_default_evaluation
from xagents.runs.run_workers import check_explorers, collect_with_explorers
from xagents.runs.stage_checks import own_stages, with_stage_checks
from xagents.runs.stages import why_stop
from xagents.system.files import DISK_ERRORS
from xagents.system.interruption import Interruption
from xagents.system.memory import check_memory, format_bytes
from xagents.system.processor import supports_bfloat16


def begin(agent: LearningAgent, options: RunOptions, command: str = '') -> Run:
    """Create a run of an agent (see `Run`) and check it before anything is written.

    Args:
        agent: agent to train.
        options: options of the run.
        command: command line; empty if the run was started from Python.

    Returns:
        The run, ready for `fit` or `iterate`.

    Raises:
        OptionError: if an option does not fit the agent, the machine or the run directory.
    """
    run = Run(agent, with_default_evaluation(agent, options), command)
    if not run.progress.context.updates:
        init_target_networks(agent)  # the networks may have received other weights since the agent was made
    _check(run)
    needs = agent.buffer_needs()
    if needs is not None and run.options.dataset is None:
        check_memory('buffer_max_size', needs.capacity, needs.n_bytes)
    run.progress.startup_lines[:0] = prepare_datasets(run)
    _set_run_directory(run)
    return run


def save(agent: LearningAgent, options: RunOptions, folder: str | os.PathLike[str]) -> None:
    """Write an agent and its whole state as a run directory that is finished.

    Args:
        agent: agent to save.
        options: options of its last run.
        folder: new directory.

    Raises:
        OptionError: if the directory contains a run.
        SaveError: if the directory cannot be written.
    """
    if is_run(folder):
        raise OptionError('folder', f'{folder} already contains a run, expected a new directory')
    check_new_run_directory(folder)
    run, writer = Run(agent, dataclasses.replace(options, run_dir=os.fspath(folder))), RunDirectory(folder)
    writer.begin(run)
    writer.end(run.progress.context)
    writer.finish('finished', 'saved by agent.save')


def _check(run: Run) -> None:
    """Raise OptionError if an option of a run does not fit its agent."""
    agent, options = run.agent, run.options
    for rule in RUN_RULES:
        rule.check(run)
    if options.checkpoints:
        models = agent.traits.model_names or [f'model {i + 1}' for i in range(len(agent.output_models))]
        weight_files.check_paths('checkpoints', options.checkpoints, models)
    if options.history_path and (options.history_checkpoint or run.resumed_at is not None):
        given = 'history_checkpoint' if options.history_checkpoint else 'resume'
        check_history_path(options.history_path, run.continues, given)
    if options.metrics_path and run.resumed_at is not None:
        check_can_continue('resume', options.metrics_path, read_metrics)
    check_datasets(run)
    if options.dataset is None:
        agent.envs.select_infos(options.log_info or ())
        agent.envs.check_params(run.curriculum.values if run.curriculum is not None else {})
    check_video(run)
    check_explorers(agent, options)
    check_async_evaluation(agent, options)
    for value in agent.schedules().values():
        if value.needs_length() and not value.optional and run.schedule_steps is None:
            problem = f'got {value.schedule_type} without a length, expected max_steps or schedule_steps'
            raise OptionError(value.option, problem)


def _set_run_directory(run: Run) -> None:
    """Set the run directory of a run to `--run-dir`."""
    progress, path = run.progress, run.options.run_dir
    known = progress.run_directory.path if progress.run_directory is not None else None
    if path is None:
        if known is not None:
            progress.startup_lines.append(f'Nothing more is saved in {known}: this call has no run_dir')
        progress.run_directory = None
    elif known != Path(path):
        check_new_run_directory(path)
        progress.run_directory = RunDirectory(path)
    run.run_directory = progress.run_directory


def fit(run: Run, recipe: Recipe) -> None:
    """Run every iteration of a run.

    Raises:
        KeyboardInterrupt: after a Ctrl-C, once everything is saved.
        SystemExit: with code 143 after a SIGTERM, once everything is saved.
    """
    with Interruption.guard() as interruption:
        try:
            for _ in iterate(run, recipe):
                pass
        except KeyboardInterrupt:
            interruption.exit()  # raises SystemExit if a SIGTERM came first
            raise


def iterate(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    """Return the stream of a run, a generator of the log of each iteration."""
    stream = _iterate(run, recipe)
    run.stream = weakref.ref(stream)
    return stream


def _iterate(run: Run, recipe: Recipe) -> Generator[dict[str, float], None, None]:
    progress = run.progress
    reporting.start(run)
    progress.context = progress.first_context(recipe.context, bool(run.options.eval_frequency))
    run.stop_reason = why_stop(run, progress.context)
    if run.stop_reason:  # a finished run collects nothing and opens no files
        if run.run_directory is not None and run.resumed_at is not None and not run.run_directory.is_finished():
            level = _evaluation_level(run, progress.context.level)
            with _open_run_directory(run), async_evaluation(run), level:  # it was killed before its final evaluation
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
    """Return console lines about the memory of the replay buffer, and about options that will have no effect."""
    envs, needs, last, lines = run.agent.envs, run.agent.buffer_needs(), run.options.max_steps, []
    if envs.agents:
        several = f'{envs.n_whole_envs} environments of {envs.agents_per_env} agents'
        lines.append(f'{envs.id}: {several} ({", ".join(envs.agents)}); steps and episodes are those of agents')
    if run.agent.options.precision == 'bfloat16' and not supports_bfloat16():
        lines.append('This processor does not multiply in bfloat16: --precision float32 is faster on it')
    if run.options.dataset is not None:
        return lines
    lines += run.schedule_notices()
    if needs is None:
        return lines
    lines.append(f'Replay buffer: {needs.capacity} transitions, {format_bytes(needs.n_bytes)} of memory when full')
    if last is not None and last - run.progress.context.steps < needs.min_transitions:
        needed = f'the buffer needs {needs.min_transitions} transitions first'
        lines.append(f'Nothing will be {needs.verb}: {needed}, and the run ends at step {last} (see --learning-starts)')
    return lines


@contextlib.contextmanager
def _open_run_directory(run: Run) -> Iterator[None]:
    """Open the run directory, if there is one. Write at the end how the run ended."""
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
    own = own_stages(recipe)
    learned = recipe.names.index('learn') if 'learn' in recipe.names else len(recipe.names)
    run.stages_before_learning = [name for name in own if name in recipe.names[:learned]]
    stream = with_stage_checks(recipe.bind(run), own).stream(first, collected=in_flight is not None)
    interruption = Interruption()
    with (
        record_episodes(run),
        collect_with_explorers(run),
        async_evaluation(run),
        _evaluation_level(run, first.level),
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
                ctx.stop = 'interrupted'  # the signal came after the last stage had checked for one
            progress.context, run.stop_reason = ctx, ctx.stop
            left = time.perf_counter()
            yield ctx.logs
            run.pause(time.perf_counter() - left)
    reporting.end(run)
    interruption.exit()


@contextlib.contextmanager
def _evaluation_level(run: Run, level: int) -> Iterator[None]:
    """Let evaluations of the run use the parameters of a level of the curriculum, and later those of the next ones."""
    if (plan := run.curriculum) is None:
        yield
        return
    collector = run.agent.collector
    collector.evaluation_params = plan.params(level)
    try:
        yield
    finally:
        collector.evaluation_params = {}
        collector.close_evaluation_envs()


@contextlib.contextmanager
def _save_best_on_nonfinite(run: Run) -> Iterator[None]:
    """Save the best weights if numbers that are not finite end the run."""
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


def check_recipe(recipe: Any, agent: LearningAgent, options: RunOptions) -> Recipe:
    """Return a user's recipe if a run of the agent can use it.

    Raises:
        TypeError: if `recipe` is not a Recipe.
        ValueError: if the recipe belongs to another agent.
        OptionError: if the run overlaps or has a curriculum, and the recipe has no stage `overlap` or `curriculum`.
    """
    if not isinstance(recipe, Recipe):
        hint = '; a number of steps is max_steps=…' if isinstance(recipe, int | float) else ''
        raise TypeError(f'recipe: got {type(recipe).__name__}, expected a Recipe, such as agent.recipe(){hint}')
    if recipe.agent not in (None, agent):
        raise ValueError('recipe: got the recipe of another agent, expected one from recipe() of this agent')
    if options.overlap and 'overlap' not in recipe.names:
        raise OptionError('overlap', 'got a recipe without this stage, expected one from recipe(overlap=True)')
    if options.curriculum and 'curriculum' not in recipe.names:
        expected = 'expected one from recipe() of an agent that was made with the option'
        raise OptionError('curriculum', f'got a recipe without this stage, {expected}')
    return recipe
