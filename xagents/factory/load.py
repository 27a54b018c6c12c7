"""Agents of runs that are kept in folders: as they were at a checkpoint, or to go on with."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from xagents.checkpoints.agent_state import load_run_state
from xagents.checkpoints.protocols import replay_buffers, replay_key
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.state_files import AgentState, find_checkpoint, read_state, recovery_advice
from xagents.checkpoints.status import check_run, is_locked, read_status
from xagents.config.configuration import read_config
from xagents.factory.defaults import effective_saved_options, fixed_options, resolve_with_record
from xagents.factory.make import AgentPlan, check_variant_switch, saved_networks
from xagents.factory.teams import drop_overridden_policy_options
from xagents.options.declaration import declared_options, resolve_aliases, to_flags
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, format_value
from xagents.registry.agents import Entry, find_agent
from xagents.replay.segments import SegmentStore
from xagents.system.arrays import strip_prefix
from xagents.system.file_names import CHECKPOINTS, CONFIG
from xagents.system.threads import set_threads

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent


def load(folder: str | os.PathLike[str], checkpoint: str = 'best', **options: Any) -> BaseAgent:
    """Make the agent of a run: its networks, environments and normalisers as they were saved.

    Args:
        folder: of the run.
        checkpoint: 'best' (the last one, where no mean was ever reached), 'last', or a folder's name in `checkpoints`.
        options: win over those of the run; what `make` takes.

    Raises:
        ValueError: in one line, where there is no such run or checkpoint, or it is damaged.
    """
    check_run('run_dir', folder)
    entry, saved = read_saved_options(folder)
    path = find_checkpoint(folder, checkpoint)
    if path is None:
        raise OptionError('run_dir', f'got {folder}, where nothing was saved yet: the run ended before its first one')
    state = _read_state_with_retries(folder, checkpoint, path)
    record = _checkpoint_record(entry, path, state, saved)
    given = resolve_aliases(options, declared_options(entry.options))
    environment = [
        n for n in declared_options(EnvironmentOptions) if n in given and given[n] != saved.get(n) and n != 'n_envs'
    ]

    def restore(agent: BaseAgent) -> None:
        try:
            with _checkpoint_errors(path):
                agent.load_state(state)
        except ValueError as error:
            if not environment:
                raise
            problem = f'got {format_value(given[environment[0]])}, which the networks of {path} do not fit'
            raise OptionError(environment[0], problem) from error

    record = drop_overridden_policy_options(record, given)
    check_variant_switch(entry, given, record, str(path))
    if saved.get('env') is None and 'env' not in given and saved.get('dataset') is not None:
        given = {**given, 'dataset': saved['dataset']}  # which knows what the networks take
    return AgentPlan(
        entry, resolve_with_record(entry, given, record), saved_networks(entry, given, record), restore, given
    ).build()


def resume(folder: str | os.PathLike[str], **options: Any) -> BaseAgent:
    """Make the agent of a run as it stood when it was last saved: `fit()` goes on as if it had never stopped.

    Args:
        folder: of the run.
        options: win over those of the run.

    Raises:
        ValueError: in one line, where there is no such run, it is damaged, or an option does not fit what was saved.
    """
    check_run('resume', folder)
    if is_locked(folder):  # what is read here would change meanwhile
        raise OptionError('resume', f'got {folder}: another process is running in this folder')
    entry, saved = read_saved_options(folder)
    given = resolve_aliases(options, declared_options(entry.options))
    _check_fixed_options(entry, given, saved)
    path = find_checkpoint(folder, 'last')
    if path is None:
        _check_never_saved(folder)
    state = None if path is None else read_state(path, complete=True)
    record = {} if path is None or state is None else _checkpoint_record(entry, path, state, saved)
    record = drop_overridden_policy_options(record, given)
    # networks are taken from the checkpoint, where there is one
    fixed = {*entry.models, *declared_options(NetworkOptions)} if state is not None else set()
    # what was said on an earlier line is no reason to be quiet for ever
    dropped = {'quiet', *entry.options.ignored_options()}
    if state is not None:
        dropped.add('policies')  # who plays for whom may have changed since the run began
    known = entry.options_in('environment', 'run', 'agent')
    kept_options = {n: v for n, v in effective_saved_options(saved, given, known).items() if n not in fixed | dropped}
    if 'threads' in kept_options:
        set_threads(kept_options.pop('threads'))
    # what an environment is made with is part of its copy
    environments = all(given[n] == saved.get(n) for n in declared_options(EnvironmentOptions) if n in given)

    about = yaml.safe_load((Path(folder) / CONFIG).read_text()).get('about') or {}

    def restore(agent: BaseAgent) -> None:
        # networks come from the checkpoint and are described by their text
        agent.origin.creation.update({n: saved[n] for n in fixed & saved.keys() if saved[n] is not None})
        run_folder = RunDirectory(folder, loaded=None if path is None else path.name, about=about)
        if path is not None and state is not None:
            with _checkpoint_errors(path):
                envs_restored = load_run_state(agent, state, environments)
            _restore_run(agent, run_folder, state, given, envs_restored)
        progress = agent.progress
        progress.run_directory, progress.resumed_at = run_folder, progress.context.steps
        progress.startup_lines.insert(0, _resumed_line(folder, agent, given, saved))

    settings = resolve_with_record(entry, {**kept_options, **given, 'run_dir': str(folder)}, record)
    return AgentPlan(entry, settings, saved_networks(entry, given, record), restore, given).build()


def _restore_run(
    agent: BaseAgent, run_folder: RunDirectory, state: AgentState, given: Mapping[str, Any], envs_restored: bool
) -> None:
    """Restore the replay buffer and the best weights; `envs_restored`: the environments are as they were saved."""
    record, progress = state.record, agent.progress
    if 'lr' in given:
        progress.context.plateau_factor = 1.0
    for name, buffer in replay_buffers(agent).items():
        prefix = replay_key(name)
        if record.get(prefix):
            arrays = strip_prefix(prefix, state.arrays)
            agent.progress.startup_lines += _restore_buffer(
                buffer, run_folder.segments.substore(name), arrays, record[prefix]
            )
    if not envs_restored and record['environments'] is not None:
        progress.startup_lines.append('New episodes begin: the environments are others than those that were saved')
    elif record['uncopied']:
        progress.startup_lines.append(f'New episodes begin: the environments cannot be copied ({record["uncopied"]})')
    best = record.get('best') or ''
    try:
        progress.best = read_state(run_folder.path / CHECKPOINTS / best) if best else None
    except ValueError as error:
        progress.startup_lines.append(f'The best weights are lost, so that the next mean is the best one: {error}')
        progress.context.best_reward, best = math.nan, ''
    run_folder.resume(progress.context.steps, best, progress.best)


def _restore_buffer(
    buffer: Any, segments: SegmentStore, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]
) -> list[str]:
    """Restore a replay buffer; return what is to be said of it."""
    if record['segments'] and not segments.folder.exists():
        return [f'The replay buffer is filled anew: there is no {segments.folder}']
    try:
        segments.load(buffer, arrays, record)
        return []
    except ValueError as error:
        raise ValueError(f'{error}: move {segments.folder} away to go on with an empty replay buffer') from error


def _read_state_with_retries(folder: str | os.PathLike[str], checkpoint: str, path: Path) -> AgentState:
    """Read a checkpoint of a run that may be going on, and replace it meanwhile."""
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
    """Return the record of a checkpoint, which must be of the agent, with all options of its run."""
    if state.record['agent'] != entry.id:
        raise ValueError(f'{path} is of {state.record["agent"]}, not of {entry.id}: {recovery_advice(path)}')
    return {**state.record, 'options': {**saved, **state.record['options']}}


@contextlib.contextmanager
def _checkpoint_errors(path: Path) -> Iterator[None]:
    """Name the checkpoint whose arrays do not fit the agent."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise ValueError(f'{path} is damaged or of another network: {recovery_advice(path)}') from error


def read_saved_options(folder: str | os.PathLike[str]) -> tuple[Entry, dict[str, Any]]:
    """Return the agent's entry and the options of a run."""
    saved = read_config(folder)
    if saved['agent'] is None:
        raise ValueError(f'{Path(folder) / CONFIG}: agent: got nothing, expected what made the run')
    return find_agent(saved.pop('agent')), saved


def _check_never_saved(folder: str | os.PathLike[str]) -> None:
    """Refuse to begin a run anew that was saved once, and whose checkpoints are gone."""
    checkpoints = Path(folder) / CHECKPOINTS
    try:
        status = read_status(folder)
    except ValueError:
        status = {'state': ''}
    # what ended by itself was saved at its end
    saved = status['state'] in ('finished', 'interrupted') and status.get('steps')
    if saved or not checkpoints.is_dir():
        raise ValueError(f'{checkpoints}: what the run goes on from is gone: put it back, or train anew elsewhere')


def _check_fixed_options(entry: Entry, given: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse what cannot change while a run goes on."""
    for name in fixed_options(entry, saved) & given.keys():
        if given[name] != saved.get(name) and given[name] is not None:
            was = f', was {saved[name]}' if saved.get(name) is not None else ''
            raise OptionError(name, f'got {given[name]}{was}: it is fixed for a run that is resumed')
    if 'run_dir' in given:
        raise OptionError('run_dir', 'stands instead of --resume, expected one of the two')


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
