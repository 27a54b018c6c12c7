"""A grid: a run for every combination of values, each in a directory named by its values, next to `group.yaml`."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xagents.checkpoints.status import SaveError, check_new_run_directory, is_run, read_status, take_lock
from xagents.cli.grid_processes import GridResult, run_all
from xagents.config.configuration import read_config_file, to_yaml
from xagents.factory.defaults import resolve_grid_point
from xagents.options.declaration import to_flags
from xagents.options.errors import InputError, OptionError, format_value
from xagents.reports.runs_page import runs_page
from xagents.system.file_names import GROUP, LOCK
from xagents.system.files import atomic_write
from xagents.system.interruption import exit_by_signal

# bytes of a folder's name; names of temporary files next to it are longer
LONGEST_NAME = 150
UNSAFE = re.compile(r'[^\w.+=,@-]+')
# what every run has in its own folder
PER_RUN_PATHS = ('checkpoints', 'history_checkpoint', 'tensorboard')
# about the command, not about its runs
COMMAND_OPTIONS = ('run_dir', 'grid_jobs', 'debug')
# what lets a finished run go on
BUDGET_OPTIONS = ('target_reward', 'max_steps', 'max_time')


@dataclass
class RunGroup:
    """A grid of runs of one agent in a folder: the options that they share, and the values of what varies, by name."""

    folder: str
    agent_id: str
    options: dict[str, Any]
    grid: dict[str, list[Any]]

    @classmethod
    def read(cls, folder: str) -> RunGroup:
        """Return the group that a folder holds; raises ValueError where its file cannot be taken as it is."""
        file = read_config_file(os.path.join(folder, GROUP))
        if not (file.agent and file.grid):
            raise ValueError(f'{os.path.join(folder, GROUP)}: expected an agent, and a list of values for what varies')
        return cls(folder, file.agent, file.options, file.grid)

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the options of each run by its name, its folder included; the last option varies fastest."""
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        runs = {}
        for name, point in zip(run_names(points), points, strict=True):
            options = {k: v for k, v in {**self.options, **point}.items() if k not in COMMAND_OPTIONS}
            options = resolve_grid_point(self.agent_id, options)
            if 'monitor_session' in options and 'monitor_session' not in point:
                options['monitor_session'] += f' {name}'
            runs[name] = {**options, 'run_dir': os.path.join(self.folder, name)}
        return runs

    def write(self, command: str) -> None:
        """Write what was asked for into the group's folder."""
        options = {name: value for name, value in self.options.items() if name not in COMMAND_OPTIONS}
        started = datetime.datetime.now().astimezone().isoformat(timespec='seconds')
        text = to_yaml(self.agent_id, {**options, **self.grid}, {'command': command, 'started': started})
        with atomic_write(Path(self.folder) / GROUP) as temporary:
            temporary.write_text(text, encoding='utf-8')


def run_names(points: list[dict[str, Any]]) -> list[str]:
    """Return a name for each run that a file system takes and no two of them share: `lr=0.001,seed=1`."""
    names = [','.join(f'{name.replace("_", "-")}={_label(value)}' for name, value in p.items()) for p in points]
    taken: set[str] = set()
    for index, (name, point) in enumerate(zip(names, points, strict=True)):
        # some file systems take ppo and PPO for the same
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


def start_group(group: RunGroup, jobs: int, command: str) -> None:
    """Run a grid from its beginning, `jobs` runs at the same time; the typed `command` is kept.

    Raises:
        OptionError: for options that do not suit a grid, or a folder that is taken.
        InputError: where every run refuses its input; nothing is left behind then.
        SystemExit: with code 1 where runs failed.
        KeyboardInterrupt: after a Ctrl-C; a SIGTERM makes it a SystemExit with code 143.
    """
    given = {**group.grid, **group.options}
    for name in PER_RUN_PATHS:
        if name in given:
            raise OptionError(
                name, f'got {format_value(given[name])}, but every run of a grid keeps that in its own folder'
            )
    words = {name: _start_words(group.agent_id, options, jobs) for name, options in group.runs().items()}
    check_new_run_directory(group.folder)
    path = Path(group.folder)
    made = list(itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents)))  # the innermost first
    path.mkdir(parents=True, exist_ok=True)
    with _group_lock(group.folder):
        check_new_run_directory(group.folder)  # another command may have been faster
        group.write(command)
        result = _run(words, jobs, group.options)
        if result.refused:
            for name in (GROUP, LOCK):
                (path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody has put something there
                for folder in made:
                    folder.rmdir()
    _conclude(group.folder, result, jobs, group.options)


def resume_group(group: RunGroup, given: Mapping[str, Any], jobs: int) -> None:
    """Go on with the runs of a group that are not finished, and start those that never were, `jobs` at the same time.

    The given options win over those of the runs; one that moves a run's end lets finished runs go on, too.

    Raises:
        SystemExit: with code 1 where runs failed.
        KeyboardInterrupt: after a Ctrl-C; a SIGTERM makes it a SystemExit with code 143.
    """
    options = {**group.options, **given}
    words = {}
    with _group_lock(group.folder):
        for name, own in group.runs().items():
            folder = own['run_dir']
            if not is_run(folder):
                words[name] = _start_words(group.agent_id, {**own, **given}, jobs)
            elif _should_resume(name, folder, given, options):
                words[name] = ['train', '--resume', folder, *to_flags(_with_threads(given, jobs))]
        result = _run(words, jobs, options) if words else None
    if result is None:
        not_started = f'No run of {group.folder} is left to go on with'
        return _say(f'{not_started}; more --max-steps would let finished ones', options)
    _conclude(group.folder, result, jobs, options)


@contextlib.contextmanager
def _group_lock(folder: str) -> Iterator[None]:
    """Keep other commands out of a group while its runs are under way; raises InputError where one is in it."""
    try:
        lock = take_lock(Path(folder))
    except SaveError as error:
        raise InputError(f'{folder}: another command is at work on this group; wait for its end, or stop it') from error
    with lock or contextlib.nullcontext():
        yield


def _should_resume(name: str, folder: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether a run is to go on: it is not finished, or its end is moved, and no other process has it."""
    try:
        status = read_status(folder)
    except ValueError:  # it is resumed from its checkpoints, whatever happened to that file
        return True
    if status['state'] == 'running':
        _say(f'{name} is skipped: process {status["pid"]} on {status["host"]} runs it', options)
        return False
    return status['state'] != 'finished' or bool(set(BUDGET_OPTIONS) & given.keys())


def _say(line: str, options: Mapping[str, Any]) -> None:
    as_json = options.get('log_format') == 'json'
    print(json.dumps({'event': 'message', 'text': line}) if as_json else line, flush=True)


def _run(words: Mapping[str, list[str]], jobs: int, options: Mapping[str, Any]) -> GridResult:
    return run_all(words, jobs, bool(options.get('quiet')), options.get('log_format') == 'json')


def _start_words(agent_id: str, options: Mapping[str, Any], jobs: int) -> list[str]:
    return ['train', agent_id, *to_flags(_with_threads(options, jobs))]


def _with_threads(options: Mapping[str, Any], jobs: int) -> dict[str, Any]:
    # parallel runs would compete for the cores
    return {**options, 'threads': options.get('threads', 1)} if jobs > 1 else dict(options)


def _conclude(folder: str, result: GridResult, jobs: int, options: Mapping[str, Any]) -> None:
    """Show how the runs stand, and end the command as they ended; raises what `start` does."""
    if result.refused:
        raise InputError(result.refused)
    if not options.get('quiet'):
        with contextlib.suppress(ValueError):  # where no run got as far as to have a folder
            print(runs_page([folder], options.get('log_format') == 'json'), flush=True)
    if result.signal is not None:
        command = f'xagents train --resume {shlex.quote(folder)}' + (f' --grid-jobs {jobs}' if jobs > 1 else '')
        finished, runs = list(result.codes.values()).count(0), len(result.codes) + len(result.not_started)
        _say(f'Interrupted; {finished} of {runs} runs ended by themselves. To go on: {command}', options)
        exit_by_signal(result.signal)
    failed = [f'{name} (exit code {code})' for name, code in result.codes.items() if code != 0]
    if failed or result.not_started:
        not_started = f'; not begun: {", ".join(result.not_started)}' if result.not_started else ''
        line = f'{len(failed)} of {len(result.codes)} runs failed: {", ".join(failed)}{not_started}'
        print(f'xagents train: {line}', file=sys.stderr, flush=True)
        raise SystemExit(1)
