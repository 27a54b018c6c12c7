"""What `xagents runs` shows: the runs in folders, how each stands, and the statistics of groups of them."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xagents.reports.found import Found, find_runs
from xagents.reports.statistics import Summary, setting, summarise, varying
from xagents.runs.status import read_status
from xagents.system.names import GROUP

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MIN_WIDTH = 72
GAP = 2
LONG_REASON = 16
"""A reason with more characters stands on a line of its own, below its run."""
HEADERS = {
    'run': 'Run',
    'agent': 'Agent',
    'env': 'Environment',
    'seed': 'Seed',
    'steps': 'Steps',
    'games': 'Games',
    'mean_reward': 'Mean reward',
    'best_reward': 'Best reward',
    'state': 'State',
    'updated': 'Updated',
}
NUMBERS = ('seed', 'steps', 'games', 'mean_reward', 'best_reward')
DISPENSABLE = ('updated', 'games', 'seed', 'env', 'agent')
"""What a narrow console goes without, first to last."""
COLOURS = {'running': 'cyan', 'finished': 'green', 'interrupted': 'yellow', 'failed': 'red', 'killed': 'red'}
STATISTICS = 'IQM: interquartile mean of the runs, of their middle half, with its 95 % bootstrap confidence interval.'


class Run(NamedTuple):
    """A run's folder, options and status; `problem` where one of them cannot be read."""

    folder: Path
    config: Mapping[str, Any]
    status: Mapping[str, Any]
    problem: str = ''


def runs_page(folders: Sequence[str | os.PathLike[str]], as_json: bool = False, width: int | None = None) -> str:
    """Return the list of the runs at or below folders.

    A group of runs stands together, and under it, for each setting that it varies besides the seed, the mean, the
    interquartile mean and its confidence interval of the runs' best and mean rewards.

    Args:
        folders: Where to look, a few levels deep.
        as_json: One JSON object a line, instead of a table: each run and, after those of a group, its statistics, whose
            `run` is null, as whatever is not known.
        width: Columns, instead of the console's. Where that is too narrow, the least important columns are left out,
            and a line says so; what is not shown on a console has all of them.

    Raises:
        ValueError: If a folder is missing, or there is no run in it. A run that cannot be read is listed with what is
            wrong with it.
    """
    found = [(one, [read_run(run) for run in one.runs]) for one in find_runs(folders)]
    if as_json:
        return '\n'.join(json.dumps(record) for one, runs in found for record in _records(one, runs))
    return _page(found, width)


def read_run(folder: Path) -> Run:
    """Read what `xagents runs` says of a run."""
    from xagents.factory.load import read_config

    config: Mapping[str, Any] = {}
    try:
        config = read_config(folder)
        return Run(folder, config, read_status(folder))
    except (OSError, ValueError) as error:
        return Run(folder, config, {}, _one_line(error))


def _records(found: Found, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    yield from (_record(run, found) for run in runs)
    if found.is_group:
        for label, column, summary in _statistics(runs):
            head = {'run': None, 'group': str(found.folder), 'setting': label, 'reward': column}
            yield {**head, **{name: _finite(value) for name, value in summary._asdict().items()}}


def _record(run: Run, found: Found) -> dict[str, Any]:
    group = str(found.folder) if found.is_group else None
    numbers = {
        name: _finite(run.status.get(name)) for name in ('steps', 'games', 'seconds', 'mean_reward', 'best_reward')
    }
    return {
        'run': str(run.folder),
        'group': group,
        **{name: run.config.get(name) for name in ('agent', 'env', 'seed')},
        **numbers,
        **{name: run.status.get(name) for name in ('state', 'why', 'updated')},
        'problem': run.problem or None,
    }


def _page(found: Sequence[tuple[Found, Sequence[Run]]], width: int | None) -> str:
    from rich.console import Console
    from rich.text import Text

    rows: list[dict[str, str] | str] = []
    for number, (one, runs) in enumerate(found):
        if one.is_group:
            rows += [''] if number and rows[-1] != '' else []
            rows.append(f'{one.folder} ({_count(runs, _asked(one.folder) - len(runs))})')
        for run in runs:
            rows.append(_cells(run, f'  {run.folder.name}' if one.is_group else str(run.folder)))
            rows += [f'    {_reason(run)}'] if len(_reason(run)) > LONG_REASON else []
        if one.is_group:
            rows += [*(f'  {_statistics_line(*one)}' for one in _statistics(runs)), '']
    cells = [HEADERS, *(row for row in rows if not isinstance(row, str))]
    console = Console(highlight=False)
    widths = {name: max(len(row[name]) for row in cells) for name in HEADERS}
    left_out = _too_many(widths, max(width or console.width, MIN_WIDTH)) if width or console.is_terminal else []
    shown = {name: size for name, size in widths.items() if name not in left_out}
    lines = [_line(HEADERS, shown, header=True)]
    lines += [Text(row) if isinstance(row, str) else _line(row, shown) for row in rows]
    if any(one.is_group for one, _ in found):
        lines += [Text(''), Text(STATISTICS, style='dim')] if rows[-1] else [Text(STATISTICS, style='dim')]
    if left_out:
        names = ', '.join(HEADERS[name].lower() for name in HEADERS if name in left_out)
        lines.append(Text(f'Left out on a console of this width: {names}.', style='dim'))
    return _rendered(console, lines)


def _rendered(console: Console, lines: Sequence[Text]) -> str:
    with console.capture() as page:
        for line in lines:
            console.print(line, soft_wrap=True)
    return '\n'.join(line.rstrip() for line in page.get().splitlines())


def _line(cells: Mapping[str, str], widths: Mapping[str, int], header: bool = False) -> Text:
    from rich.text import Text

    line = Text(style='bold' if header else '')
    for name, size in widths.items():
        text = cells[name].rjust(size) if name in NUMBERS else cells[name].ljust(size)
        colour = COLOURS.get(cells[name].split(':')[0], 'red') if name == 'state' and not header else ''
        line.append(text, style=colour).append(' ' * GAP)
    return line


def _too_many(widths: Mapping[str, int], room: int) -> list[str]:
    """The columns to leave out so that the others fit."""
    left_out: list[str] = []
    for name in DISPENSABLE:
        kept = [size for column, size in widths.items() if column not in left_out]
        if sum(kept) + GAP * (len(kept) - 1) <= room:
            break
        left_out.append(name)
    return left_out


def _cells(run: Run, name: str) -> dict[str, str]:
    cells = {'run': name, 'state': _state(run), 'updated': _local_time(run.status.get('updated'))}
    for column in ('agent', 'env', 'seed', 'steps', 'games'):
        value = run.config.get(column, run.status.get(column))
        cells[column] = '-' if value is None else str(value)
    for column in ('mean_reward', 'best_reward'):
        cells[column] = _reward(run.status.get(column))
    return cells


def _state(run: Run) -> str:
    """`running`, `finished: target`, or how it ended otherwise; a long reason is left to the line below."""
    state = 'unreadable' if run.problem else str(run.status.get('state'))
    return f'{state}: {_reason(run)}' if 0 < len(_reason(run)) <= LONG_REASON else state


def _reason(run: Run) -> str:
    """What there is to say of a state, on one line; nothing where that is the state itself."""
    why = _one_line(run.problem or run.status.get('why') or '')
    return '' if why == run.status.get('state') else why


def _statistics(runs: Sequence[Run]) -> Iterator[tuple[str, str, Summary]]:
    """Of each reward of each setting: the setting's label, the reward's column, and the statistics."""
    readable = [run for run in runs if run.config]
    names = varying([run.config for run in readable]) if readable else []
    settings: dict[str, list[Run]] = {}
    for run in readable:
        settings.setdefault(setting(run.config, names), []).append(run)
    for label, members in settings.items():
        for column in ('best_reward', 'mean_reward'):
            scores = [score for run in members if (score := _finite(run.status.get(column))) is not None]
            if scores:
                yield label, column, summarise(scores)


def _statistics_line(label: str, column: str, summary: Summary) -> str:
    n, mean, iqm, low, high = summary
    start = f'{label}: ' if label else ''
    interval = f' [{low:.2f}, {high:.2f}]' if n > 1 else ''
    return f'{start}{HEADERS[column].lower()}: mean {mean:.2f}, IQM {iqm:.2f}{interval}, {n} run{"s" if n > 1 else ""}'


def _asked(group: Path) -> int:
    """How many runs a group was asked for; 0 where that cannot be read."""
    from xagents.config.configuration import read_config_file

    try:
        return math.prod(len(values) for values in read_config_file(group / GROUP).grid.values())
    except (OSError, ValueError):
        return 0


def _count(runs: Sequence[Run], missing: int) -> str:
    """`6 runs: 3 finished, 2 running, 1 not begun`."""
    states = Counter('unreadable' if run.problem else str(run.status.get('state')) for run in runs)
    if missing > 0:
        states['not begun'] = missing
    each = ', '.join(f'{n} {state}' for state, n in states.items())
    total = states.total()
    return f'{total} run{"s" if total != 1 else ""}' + (f': {each}' if each else '')


def _finite(value: Any) -> float | int | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def _reward(value: Any) -> str:
    number = _finite(value)
    return '-' if number is None else f'{number:.2f}'


def _local_time(text: Any) -> str:
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return '-'
    return (moment.astimezone() if moment.tzinfo else moment).strftime('%Y-%m-%d %H:%M')


def _one_line(value: Any) -> str:
    return ' '.join(str(value).split())
