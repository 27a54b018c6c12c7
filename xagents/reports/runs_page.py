"""The output of `xagents runs`: the runs in folders, the state of each run, and statistics of groups of runs."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xagents.checkpoints.status import read_status
from xagents.config.configuration import read_config_file, read_plain_config
from xagents.logs.console import shown_best
from xagents.options.errors import one_line
from xagents.reports.search import FoundRuns, find_runs
from xagents.reports.statistics import Summary, setting_label, summarise, varying_options
from xagents.system.file_names import CONFIG, GROUP
from xagents.system.pages import COLUMN_GAP, column_widths, console_width, make_table, render_page
from xagents.system.values import to_plain_value

if TYPE_CHECKING:
    from rich.text import Text

TableRow = Sequence['str | Text']

MAX_INLINE_REASON = 16  # a longer reason is printed on a separate line below its run
HEADERS = {
    **{'run': 'Run', 'agent': 'Agent', 'env': 'Environment', 'seed': 'Seed', 'steps': 'Steps', 'games': 'Games'},
    **{'mean_reward': 'Mean reward', 'best_reward': 'Best reward', 'state': 'State', 'updated': 'Updated'},
}
NUMBER_COLUMNS = range(3, 8)  # columns that are aligned to the right
OPTIONAL_COLUMNS = ('updated', 'games', 'seed', 'env', 'agent')  # dropped on a narrow console, in this order
COLOURS = {'running': 'cyan', 'finished': 'green', 'interrupted': 'yellow'}
NOTE = 'IQM: interquartile mean of the runs (mean of the middle half), with its 95 % bootstrap confidence interval.'


class RunSummary(NamedTuple):
    """The state of a run.

    Attributes:
        folder: run directory.
        config: options of the run.
        status: content of its status file.
        problem: why a file cannot be read; empty if all files can be read.
    """

    folder: Path
    config: Mapping[str, Any]
    status: Mapping[str, Any]
    problem: str = ''

    @property
    def state(self) -> str:
        """The state in one word."""
        return 'unreadable' if self.problem else str(self.status.get('state'))

    @property
    def reason(self) -> str:
        """The reason for the state, on one line; empty if it is equal to the state."""
        why = ' '.join(str(self.problem or self.status.get('why') or '').split())
        return '' if why == self.state else why


def runs_page(folders: Sequence[str | os.PathLike[str]], as_json: bool = False, width: int | None = None) -> str:
    """Return the list of the runs in some folders.

    The runs of a group are listed together. Below them are statistics for each setting that differs between the runs,
    except the seed: the mean, the interquartile mean and its confidence interval of the best and the mean rewards.

    Args:
        folders: folders to search, a few levels deep.
        as_json: return JSON instead of a table. Each line is one object: a run or, after the runs of a group, its
            statistics, whose `run` is null. Unknown values are null.
        width: width in characters; that of the console by default. A narrow table omits the least important columns,
            and a line below the table names them.

    Raises:
        ValueError: if a folder is missing or contains no run. A run that cannot be read is listed with the reason.
    """
    run_groups = [(one, [read_run(run) for run in one.runs]) for one in find_runs(folders)]
    if as_json:
        records = [record for one, runs in run_groups for record in _records(one, runs)]
        return '\n'.join(json.dumps(to_plain_value(record, finite=True)) for record in records)
    return _page(run_groups, width)


def read_run(folder: Path) -> RunSummary:
    """Return the options and the status of a run, or the reason why they cannot be read."""
    config: Mapping[str, Any] = {}
    try:
        config = read_plain_config(folder / CONFIG)
        status = read_status(folder)
        mean, best = (status.get(name) for name in ('mean_reward', 'best_reward'))
        if mean is not None and best is not None:
            status['best_reward'] = shown_best(mean, best)
        return RunSummary(folder, config, status)
    except (OSError, ValueError) as error:
        return RunSummary(folder, config, {}, one_line(error))


def _records(run_groups: FoundRuns, runs: Sequence[RunSummary]) -> Iterator[dict[str, Any]]:
    group = str(run_groups.folder) if run_groups.is_group else None
    for run in runs:
        yield {
            'run': str(run.folder),
            'group': group,
            **{name: run.config.get(name) for name in ('agent', 'env', 'seed')},
            **{name: finite_number(run, name) for name in ('steps', 'games', 'seconds', 'mean_reward', 'best_reward')},
            **{name: run.status.get(name) for name in ('state', 'why', 'updated')},
            'problem': run.problem or None,
        }
    for label, column, summary in group_statistics(runs) if run_groups.is_group else ():
        yield {'run': None, 'group': group, 'setting': label, 'reward': column, **summary._asdict()}


def _page(run_groups: Sequence[tuple[FoundRuns, Sequence[RunSummary]]], width: int | None) -> str:
    from rich.console import Console
    from rich.text import Text

    rows = list(_rows(run_groups))
    header = list(HEADERS.values())
    run_rows = [row for row in rows if not isinstance(row, str)]
    widths = dict(zip(HEADERS, column_widths([header, *run_rows]), strict=True))
    if width or Console().is_terminal:
        widths = _fit_widths(widths, console_width(width))
    columns = list(widths.values())
    parts: list[Any] = [make_table([header], columns, ['bold'] * len(header), NUMBER_COLUMNS)]
    for is_line, group in itertools.groupby(rows, lambda row: isinstance(row, str)):
        group_rows = list(group)
        parts += group_rows if is_line else [make_table(group_rows, columns, right=NUMBER_COLUMNS)]
    if any(one.is_group for one, _ in run_groups):
        parts += ['', Text(NOTE, style='dim')]
    if not all(columns):
        names = ', '.join(HEADERS[name].lower() for name, size in widths.items() if not size)
        parts.append(Text(f'Columns that do not fit on this console: {names}.', style='dim'))
    return render_page(parts)


def _rows(run_groups: Sequence[tuple[FoundRuns, Sequence[RunSummary]]]) -> Iterator[TableRow]:
    """Yield the cells of each run, and the lines between runs as text."""
    for number, (one, runs) in enumerate(run_groups):
        if number and (one.is_group or run_groups[number - 1][0].is_group):
            yield ''
        if one.is_group:
            yield f'{one.folder} ({count_line(runs, n_requested_runs(one.folder) - len(runs))})'
        for run in runs:
            yield _cells(run, f'  {run.folder.name}' if one.is_group else str(run.folder))
            if len(run.reason) > MAX_INLINE_REASON:
                yield f'    {run.reason}'
        for label, column, (n, mean, iqm, low, high) in group_statistics(runs) if one.is_group else ():
            start = f'  {label}: ' if label else '  '
            interval = f' [{low:.2f}, {high:.2f}], {n} runs' if n > 1 else ', 1 run'
            yield f'{start}{HEADERS[column].lower()}: mean {mean:.2f}, IQM {iqm:.2f}{interval}'


def _fit_widths(widths: dict[str, int], available_width: int) -> dict[str, int]:
    """Return the widths of the columns that fit on a line; 0 for omitted columns."""
    for name in OPTIONAL_COLUMNS:
        if sum(size + COLUMN_GAP for size in widths.values() if size) - COLUMN_GAP <= available_width:
            break
        widths = {**widths, name: 0}
    return widths


def _cells(run: RunSummary, name: str) -> TableRow:
    from rich.text import Text

    known = [run.config.get(column, run.status.get(column)) for column in ('agent', 'env', 'seed', 'steps', 'games')]
    rewards = [finite_number(run, column) for column in ('mean_reward', 'best_reward')]
    state = f'{run.state}: {run.reason}' if 0 < len(run.reason) <= MAX_INLINE_REASON else run.state
    return (
        name,
        *('-' if value is None else str(value) for value in known),
        *('-' if value is None else f'{value:.2f}' for value in rewards),
        Text(state, style=COLOURS.get(run.state, 'red')),
        local_time(run.status.get('updated')),
    )


def group_settings(runs: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    """Return the readable runs of a group by the label of their setting, which is empty if no option differs."""
    readable = [run for run in runs if run.config]
    names = varying_options([run.config for run in readable]) if readable else []
    settings: dict[str, list[RunSummary]] = {}
    for run in readable:
        settings.setdefault(setting_label(run.config, names), []).append(run)
    return settings


def group_statistics(runs: Sequence[RunSummary]) -> Iterator[tuple[str, str, Summary]]:
    """Yield the label of a setting, the name of a reward column, and its statistics."""
    for label, members in group_settings(runs).items():
        for column in ('best_reward', 'mean_reward'):
            scores = [score for run in members if (score := finite_number(run, column)) is not None]
            if scores:
                yield label, column, summarise(scores)


def n_requested_runs(group: Path) -> int:
    """Return the number of runs that a group will have; 0 if its file cannot be read."""
    try:
        plain = read_plain_config(group / GROUP)
        if 'imports' in plain or ':' in plain['agent']:  # a list of runs imports no modules
            return 0
        return math.prod(len(values) for values in read_config_file(group / GROUP).grid.values())
    except (OSError, ValueError, KeyError):
        return 0


def count_line(runs: Sequence[RunSummary], missing: int) -> str:
    """Return a line such as `6 runs: 3 finished, 2 running, 1 not begun`."""
    states = Counter(run.state for run in runs)
    if missing > 0:
        states['not begun'] = missing
    each = ', '.join(f'{n} {state}' for state, n in states.items())
    total = states.total()
    return f'{total} run{"s" if total != 1 else ""}' + (f': {each}' if each else '')


def finite_number(run: RunSummary, name: str) -> float | int | None:
    """Return a number of the status of a run, or None if it is missing or not finite."""
    value = run.status.get(name)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def local_time(text: Any) -> str:
    """Return a time of a status file in the local time zone; `-` if it is unknown."""
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return '-'
    return (moment.astimezone() if moment.tzinfo else moment).strftime('%Y-%m-%d %H:%M')
