"""Agents from run directories: loaded from a checkpoint, or resumed from the last one."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import yaml

from xagents.checkpoints.agent_state import load_run_state
from xagents.checkpoints.protocols import replay_buffers, replay_key
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.state_files import AgentState, find_checkpoint, read_state, recovery_advice
from xagents.checkpoints.status import check_run, is_locked, read_status
from xagents.config.configuration import read_config
from xagents.factory.defaults import effective_saved_options, fixed_options, resolve_with_record
from xagents.factory.make import AgentPlan, check_forms, saved_networks
from xagents.factory.teams import drop_overridden_policy_options
from xagents.options.declaration import declared_options, resolve_aliases, to_flags
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, format_value
from xagents.registry.agents import Entry, find_agent
from xagents.replay.segments import SegmentStore
from xagents.runs.header import describe_spaces
from xagents.system.arrays import strip_prefix
from xagents.system.file_names import CHECKPOINTS, CONFIG
from xagents.system.modules import import_modules
from xagents.system.threads import set_threads

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.options.keywords import LoadKeywords


def load(folder: str | os.PathLike[str], checkpoint: str = 'best', **options: Unpack[LoadKeywords]) -> BaseAgent:
    """Load the agent of a run from a checkpoint, with its saved networks, environments and normalisers.

    Args:
        folder: the run directory.
        checkpoint: 'best', 'last', or the name of a folder in `checkpoints`. 'best' means the last checkpoint if the
            run has no mean reward yet.
        options: options of `make`, which override the options of the run.

    Returns:
        The agent, as `make` returns it.

    Raises:
        ValueError: in one line, if the run or the checkpoint does not exist or is damaged.
    """
    check_run('run_dir', folder)
    if not isinstance(checkpoint, str):
        raise TypeError(
            f'load: got a {type(checkpoint).__name__} as checkpoint, expected its name; env=… passes an env'
        )
    import_modules(options.get('imports'))
    entry, saved = read_saved_options(folder)
    if (path := find_checkpoint(folder, checkpoint)) is None:
        problem = 'nothing was saved yet: the run ended before its first checkpoint'
        raise OptionError('run_dir', f'got {folder}, but {problem}')
    state = _read_state_with_retries(folder, checkpoint, path)
    record = _checkpoint_record(entry, path, state, saved)
    given = resolve_aliases(options, declared_options(entry.options))
    names = [name for name in declared_options(EnvironmentOptions) if name in given and name != 'n_envs']
    changed = [name for name in names if given[name] != saved.get(name)]

    def restore(agent: BaseAgent) -> None:
        try:
            with _checkpoint_errors(path):
                agent.load_state(state)
        except ValueError as error:
            if not changed:
                raise
            got = f'{format_value(given[changed[0]])} ({describe_spaces(agent.envs)})'
            problem = f'got {got}, expected an environment that fits the networks of {path}'
            raise OptionError(changed[0], problem) from error

    record = drop_overridden_policy_options(record, given)
    check_forms(entry, given, record, str(path))
    if saved.get('env') is None and 'env' not in given and saved.get('dataset') is not None:
        given = {**given, 'dataset': saved['dataset']}  # its spaces give the shapes of the networks
    settings = resolve_with_record(entry, given, record)
    return AgentPlan(entry, settings, saved_networks(entry, given, record), restore, given).build()


def resume(folder: str | os.PathLike[str], **options: Unpack[LoadKeywords]) -> BaseAgent:
    """Load the agent of a run from its last checkpoint, so that `fit()` continues the run as if it had not stopped.

    Args:
        folder: the run directory.
        options: options of `make`, which override the options of the run.

    Returns:
        The agent, as `make` returns it.

    Raises:
        ValueError: in one line, if the run does not exist or is damaged, or if an option does not fit the saved state.
    """
    return plan_resume(folder, **options).build()


def plan_resume(folder: str | os.PathLike[str], **options: Any) -> AgentPlan:
    """Return the plan of an agent that resumes a run. Arguments and errors are those of `resume`."""
    check_run('resume', folder)
    import_modules(options.get('imports'))
    if is_locked(folder):  # the other process would change the files while they are read
        raise OptionError('resume', f'got {folder}: another process is running in this run directory')
    entry, saved = read_saved_options(folder)
    given = resolve_aliases(options, declared_options(entry.options))
    _check_fixed_options(entry, given, saved)
    if (path := find_checkpoint(folder, 'last')) is None:
        _check_never_saved(folder)
    state = None if path is None else read_state(path, complete=True)
    record = {} if path is None or state is None else _checkpoint_record(entry, path, state, saved)
    record = drop_overridden_policy_options(record, given)
    # networks come from the checkpoint, if there is one
    fixed = {*entry.models, *declared_options(NetworkOptions)} if state is not None else set()
    # a resumed run prints its progress unless --quiet is given a second time
    dropped = {'quiet', *entry.options.ignored_options()}
    if state is not None:
        dropped.add('policies')  # the mapping of agents to policies may have changed since the run began
    known = entry.options_in('environment', 'run', 'agent')
    kept_options = {n: v for n, v in effective_saved_options(saved, given, known).items() if n not in fixed | dropped}
    if 'threads' in kept_options:
        set_threads(kept_options.pop('threads'))
    # copies of environments fit only if no option of the environment has changed
    environments = all(given[n] == saved.get(n) for n in declared_options(EnvironmentOptions) if n in given)

    about = yaml.safe_load((Path(folder) / CONFIG).read_text()).get('about') or {}

    def restore(agent: BaseAgent) -> None:
        # `creation` lists the saved options of the networks, although the checkpoint contains the networks themselves
        agent.origin.creation.update({n: saved[n] for n in fixed & saved.keys() if saved[n] is not None})
        run_folder = RunDirectory(folder, loaded=None if path is None else path.name, about=about)
        if path is not None and state is not None:
            with _checkpoint_errors(path):
                envs_restored = load_run_state(agent, state, environments)
            if 'lr' in given:
                agent.progress.context.plateau_factor = 1.0
            _restore_run(agent, run_folder, state, envs_restored)
        progress = agent.progress
        progress.run_directory, progress.resumed_at = run_folder, progress.context.steps
        progress.startup_lines.insert(0, _resumed_line(folder, agent, given, saved))

    settings = resolve_with_record(entry, {**kept_options, **given, 'run_dir': str(folder)}, record)
    return AgentPlan(entry, settings, saved_networks(entry, given, record), restore, given)


def _restore_run(agent: BaseAgent, run_folder: RunDirectory, state: AgentState, envs_restored: bool) -> None:
    """Restore the replay buffers and the best weights, and log what could not be restored.

    Args:
        agent: the agent, whose state is restored already.
        run_folder: the run directory.
        state: the state in the checkpoint.
        given: the options that the user set on resume.
        envs_restored: whether the environments have their saved states.
    """
    record, progress = state.record, agent.progress
    for name, buffer in replay_buffers(agent).items():
        prefix = replay_key(name)
        if saved := record.get(prefix):
            store, arrays = run_folder.segments.substore(name), strip_prefix(prefix, state.arrays)
            progress.startup_lines += _load_buffer(buffer, store, arrays, saved)
    if not envs_restored and record['environments'] is not None:
        progress.startup_lines.append('New episodes begin: the environments differ from the saved ones')
    elif record['uncopied']:
        progress.startup_lines.append(f'New episodes begin: the environments cannot be copied ({record["uncopied"]})')
    best = record.get('best') or ''
    try:
        progress.best = read_state(run_folder.path / CHECKPOINTS / best) if best else None
    except ValueError as error:
        line = f'The best weights are lost, so the next mean reward counts as the best one: {error}'
        progress.startup_lines.append(line)
        progress.context.best_reward, best = math.nan, ''
    run_folder.resume(progress.context.steps, best, progress.best)


def _load_buffer(buffer: Any, store: SegmentStore, arrays: dict[str, np.ndarray], saved: dict[str, Any]) -> list[str]:
    """Restore a replay buffer and return lines to log.

    Raises:
        ValueError: in one line, if the segments are damaged.
    """
    if saved['segments'] and not store.folder.exists():
        return [f'The replay buffer starts empty: there is no {store.folder}']
    try:
        store.load(buffer, arrays, saved)
        return []
    except ValueError as error:
        raise ValueError(f'{error}: move {store.folder} away to resume with an empty replay buffer') from error


def _read_state_with_retries(folder: str | os.PathLike[str], checkpoint: str, path: Path) -> AgentState:
    """Read a checkpoint. If a running training replaces the checkpoint in the meantime, read the newer one."""
    for _ in range(5):
        try:
            return read_state(path)
        except ValueError:
            newer = find_checkpoint(folder, checkpoint)
            if newer is None or newer == path:
                raise
            path = newer
    return read_state(path)


def _checkpoint_record(entry: Entry, path: Path, state: AgentState, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a checkpoint, completed with all options of its run.

    Raises:
        ValueError: in one line, if another agent saved the checkpoint.
    """
    if state.record['agent'] != entry.id:
        got = f'got a checkpoint of {state.record["agent"]}'
        raise ValueError(f'{path}: {got}, expected one of {entry.id}: {recovery_advice(path)}')
    return {**state.record, 'options': {**saved, **state.record['options']}}


@contextlib.contextmanager
def _checkpoint_errors(path: Path) -> Iterator[None]:
    """Raise a ValueError that names the checkpoint if its arrays do not fit the agent."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise ValueError(f'{path} is damaged or of another network: {recovery_advice(path)}') from error


def read_saved_options(folder: str | os.PathLike[str]) -> tuple[Entry, dict[str, Any]]:
    """Return the registry entry of the agent, and the options of a run.

    Raises:
        ValueError: in one line, if the configuration of the run is damaged or names no agent.
    """
    saved = read_config(folder)
    if saved['agent'] is None:
        raise ValueError(f'{Path(folder) / CONFIG}: agent: got nothing, expected the agent of the run')
    return find_agent(saved.pop('agent')), saved


def _check_never_saved(folder: str | os.PathLike[str]) -> None:
    """Raise a ValueError if the run has saved checkpoints and all of them are missing."""
    checkpoints = Path(folder) / CHECKPOINTS
    status: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        status = read_status(folder)
    # a run that ended without a crash has saved a checkpoint at its end
    saved = status.get('state') in ('finished', 'interrupted') and status.get('steps')
    if saved or not checkpoints.is_dir():
        problem = 'the checkpoints of the run are missing: restore them or train in another run directory'
        raise ValueError(f'{checkpoints}: {problem}')


def _check_fixed_options(entry: Entry, given: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise an OptionError for a given option that cannot change when a run is resumed."""
    for name in fixed_options(entry, saved) & given.keys():
        if name == 'env' and (not isinstance(given[name], str) or given[name].endswith(f':{saved.get(name)}')):
            continue  # a class, function or object of a script, of which a run records only the name
        if given[name] != saved.get(name) and given[name] is not None:
            was = f', was {saved[name]}' if saved.get(name) is not None else ''
            raise OptionError(name, f'got {given[name]}{was}: this option cannot change when a run is resumed')
    if 'run_dir' in given:
        raise OptionError('run_dir', 'cannot be used with --resume')


def _resumed_line(
    folder: str | os.PathLike[str], agent: BaseAgent, given: Mapping[str, Any], saved: Mapping[str, Any]
) -> str:
    parts = []
    for name, value in given.items():
        before = saved.get(name)
        if value is not None and value != before:
            words = map(str, before if isinstance(before, list) else [before])
            was = '' if before is None else f' (was {shlex.join(words)})'
            parts.append(shlex.join(to_flags({name: value})) + was)
    context = agent.progress.context
    line = f'Resumed {folder} at step {context.steps}' + ('' if context.iteration else ': nothing was saved before')
    return f'{line}; changed: {", ".join(parts)}' if parts else line
