"""Grids: a run for every combination of values, each in a directory named after its values, next to `group.yaml`."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xagents.checkpoints.status import SaveError, check_new_run_directory, is_run, read_status, take_lock
from xagents.cli.default_directory import LONGEST_NAME, UNSAFE
from xagents.cli.grid_processes import GridResult, run_all
from xagents.config.configuration import read_config_file, to_yaml
from xagents.factory.defaults import resolve_grid_point
from xagents.options.declaration import to_flags
from xagents.options.errors import InputError, OptionError, format_value
from xagents.processes.launch import Launch, check_launch, open_launch
from xagents.reports.runs_page import runs_page
from xagents.system.file_names import GROUP, LOCK
from xagents.system.files import atomic_write
from xagents.system.interruption import exit_by_signal

# paths that every run has in its own directory
PER_RUN_PATHS = ('checkpoints', 'history_checkpoint', 'tensorboard')
# options of the command, not of its runs
COMMAND_OPTIONS = ('run_dir', 'grid_jobs', 'debug')
# options that set the end of a run; with a new end, a finished run can be resumed
BUDGET_OPTIONS = ('target_reward', 'max_steps', 'max_time')


@dataclass
class RunGroup:
    """A grid of runs of one agent in a directory.

    Attributes:
        folder: directory of the group.
        agent_id: id of the agent.
        options: options that all runs share, by name.
        grid: values of the options that vary, by name.
    """

    folder: str
    agent_id: str
    options: dict[str, Any]
    grid: dict[str, list[Any]]

    @classmethod
    def read(cls, folder: str) -> RunGroup:
        """Return the group in a directory. Raise ValueError if its file is wrong."""
        file = read_config_file(os.path.join(folder, GROUP))
        if file.agent and file.grid:
            return cls(folder, file.agent, file.options, file.grid)
        expected = 'expected an agent, and lists of values for the options that vary'
        raise ValueError(f'{os.path.join(folder, GROUP)}: {expected}')

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the options of each run by its name, with its directory. The last option varies fastest."""
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        runs = {}
        for name, point in zip(run_names(points), points, strict=True):
            options = resolve_grid_point(self.agent_id, own_options({**self.options, **point}))
            if 'monitor_session' in options and 'monitor_session' not in point:
                options['monitor_session'] += f' {name}'
            runs[name] = {**options, 'run_dir': os.path.join(self.folder, name)}
        return runs

    def write(self, command: str) -> None:
        """Write the options and the command line to the group's file."""
        options = own_options(self.options)
        started = datetime.datetime.now().astimezone().isoformat(timespec='seconds')
        text = to_yaml(self.agent_id, {**options, **self.grid}, {'command': command, 'started': started})
        with atomic_write(Path(self.folder) / GROUP) as temporary:
            temporary.write_text(text, encoding='utf-8')


def run_names(points: list[dict[str, Any]]) -> list[str]:
    """Return a unique name for each run that is valid in file systems, such as `lr=0.001,seed=1`."""
    names = [','.join(f'{name.replace("_", "-")}={_label(value)}' for name, value in p.items()) for p in points]
    taken: set[str] = set()
    for index, (name, point) in enumerate(zip(names, points, strict=True)):
        # on some file systems ppo and PPO are equal
        if name.casefold() in taken or len(name.encode()) > LONGEST_NAME:
            digest = hashlib.sha256(repr(sorted(point.items())).encode('utf-8', 'replace')).hexdigest()[:8]
            short = name.encode()[: LONGEST_NAME - 9].decode(errors='ignore')
            names[index] = f'{short}-{digest}'
        taken.add(names[index].casefold())
    return names


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return '+'.join(f'{key}={_label(one)}' for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return '-'.join(map(_label, value))
    return UNSAFE.sub('-', str(value).replace(',', '-')) or '-'


def cluster_of(options: Mapping[str, Any]) -> str | None:
    """Return where the runs of a grid are started. With `explorers`, `cluster` concerns the explorers of each run."""
    return None if options.get('explorers') else options.get('cluster')


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the runs of a grid, without those of the command."""
    command = {*COMMAND_OPTIONS, *(('cluster',) if cluster_of(options) else ())}
    return {name: value for name, value in options.items() if name not in command}


def start_group(group: RunGroup, jobs: int, command: str) -> None:
    """Start all runs of a grid.

    Args:
        group: grid to run.
        jobs: number of parallel runs.
        command: command line, which is stored in the group's file.

    Raises:
        OptionError: if an option cannot be used in a grid, or the directory is in use.
        InputError: if every run refuses its input. New files are removed then.
        SystemExit: with code 1 if runs failed, with code 143 after a SIGTERM.
        KeyboardInterrupt: after a Ctrl-C.
    """
    given = {**group.grid, **group.options}
    for name in PER_RUN_PATHS:
        if name in given:
            expected = 'expected no path: every run of a grid uses its own directory'
            raise OptionError(name, f'got {format_value(given[name])}, {expected}')
    runs = group.runs()
    words = {name: _command(group, own, {}, jobs) for name, own in runs.items()}
    check_launch(cluster_of(group.options))
    check_new_run_directory(group.folder)
    with open_launch(cluster_of(group.options), group.options.get('threads')) as launch:
        result = _start_runs(words, group, runs, jobs, command, launch)
    _conclude(group.folder, result, jobs, group.options)


def _start_runs(
    words: Mapping[str, list[str]], group: RunGroup, runs: Mapping[str, Any], jobs: int, command: str, launch: Launch
) -> GridResult:
    """Write the file of a group, and start its runs; remove new files if every run refuses its input."""
    path = Path(group.folder)
    # the innermost comes first
    made = list(itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    with _group_lock(group.folder):
        check_new_run_directory(group.folder)  # another command may have created it since
        group.write(command)
        result = _run_all(words, group, runs, {}, jobs, launch)
        if result.refused:
            for name in (GROUP, LOCK):
                (path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other programs may have written files there
                for folder in made:
                    folder.rmdir()
    return result


def resume_group(group: RunGroup, given: Mapping[str, Any], jobs: int) -> None:
    """Resume the unfinished runs of a group, and start the runs that have not begun.

    Args:
        group: group of runs.
        given: options that override those of the runs. With a new end of the runs, finished runs are resumed, too.
        jobs: number of parallel runs.

    Raises:
        SystemExit: with code 1 if runs failed, with code 143 after a SIGTERM.
        KeyboardInterrupt: after a Ctrl-C.
    """
    options, runs = {**group.options, **given}, group.runs()
    check_launch(cluster_of(options))
    with _group_lock(group.folder):
        words = {
            name: _command(group, own, given, jobs)
            for name, own in runs.items()
            if not is_run(own['run_dir']) or _should_resume(name, own['run_dir'], given, options)
        }
        result = None
        if words:
            with open_launch(cluster_of(options), options.get('threads')) as launch:
                result = _run_all(words, group, runs, given, jobs, launch)
    if result is None:
        line = f'No run of {group.folder} can be resumed; finished runs can, with a larger --max-steps'
        return _say(line, options)
    _conclude(group.folder, result, jobs, options)


def _command(group: RunGroup, own: Mapping[str, Any], given: Mapping[str, Any], jobs: int) -> list[str]:
    """Return the words after `xagents` that start a run, or that resume it if its directory contains it."""
    if cluster_of({**group.options, **given}):
        given = {name: value for name, value in given.items() if name != 'cluster'}
    if is_run(own['run_dir']):
        return ['train', '--resume', own['run_dir'], *to_flags(_with_threads(given, jobs))]
    return ['train', group.agent_id, *to_flags(_with_threads({**own, **given}, jobs))]


def _run_all(
    words: Mapping[str, list[str]],
    group: RunGroup,
    runs: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Any],
    jobs: int,
    launch: Launch,
) -> GridResult:
    """Run the commands of a group; see `run_all`."""
    options = {**group.options, **given}

    def resume_command(name: str) -> list[str]:
        return _command(group, runs[name], given, jobs)

    return run_all(words, jobs, resume_command, bool(options.get('quiet')), _as_json(options), launch)


@contextlib.contextmanager
def _group_lock(folder: str) -> Iterator[None]:
    """Lock a group against other commands. Raise InputError if another command has the lock."""
    try:
        lock = take_lock(Path(folder))
    except SaveError as error:
        raise InputError(f'{folder}: another command runs this group; wait for its end, or stop it') from error
    with lock or contextlib.nullcontext():
        yield


def _should_resume(name: str, folder: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether to resume a run: no process runs it, and it is not finished or has a new end."""
    try:
        status = read_status(folder)
    except ValueError:  # without a valid status the run is resumed from its checkpoints
        return True
    if status['state'] == 'running':
        _say(f'{name} is skipped: process {status["pid"]} on {status["host"]} runs it', options)
        return False
    return status['state'] != 'finished' or bool(set(BUDGET_OPTIONS) & given.keys())


def _as_json(options: Mapping[str, Any]) -> bool:
    return options.get('log_format') == 'json'


def _say(line: str, options: Mapping[str, Any]) -> None:
    print(json.dumps({'event': 'message', 'text': line}) if _as_json(options) else line, flush=True)


def _with_threads(options: Mapping[str, Any], jobs: int) -> dict[str, Any]:
    # parallel runs would compete for the cores
    return {**options, 'threads': options.get('threads', 1)} if jobs > 1 else dict(options)


def _conclude(folder: str, result: GridResult, jobs: int, options: Mapping[str, Any]) -> None:
    """Print the status of the runs, and end the command as `start_group` documents."""
    if result.refused:
        raise InputError(result.refused)
    if not options.get('quiet'):
        with contextlib.suppress(ValueError):  # no run has a directory yet
            print(runs_page([folder], _as_json(options)), flush=True)
    if result.signal is not None:
        command = f'xagents train --resume {shlex.quote(folder)}' + (f' --grid-jobs {jobs}' if jobs > 1 else '')
        command += f' --cluster {cluster}' if (cluster := cluster_of(options)) else ''
        finished, runs = list(result.codes.values()).count(0), len(result.codes) + len(result.not_started)
        _say(f'Interrupted; {finished} of {runs} runs ended by themselves. To resume: {command}', options)
        exit_by_signal(result.signal)
    failed = [f'{name} (exit code {code})' for name, code in result.codes.items() if code != 0]
    if failed or result.not_started:
        not_started = f'; not started: {", ".join(result.not_started)}' if result.not_started else ''
        line = f'{len(failed)} of {len(result.codes)} runs failed: {", ".join(failed)}{not_started}'
        print(f'xagents train: {line}', file=sys.stderr, flush=True)
        raise SystemExit(1)
    if not options.get('quiet') and not _as_json(options):
        print(f'Next: xagents plot --run-dir {shlex.quote(folder)}', flush=True)
