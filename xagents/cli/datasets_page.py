"""The page of `xagents datasets`: the local data sets, with their environments, sizes and mean returns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xagents.datasets import dataset_names
from xagents.datasets.minari import minari_module
from xagents.datasets.reading import open_dataset
from xagents.options.errors import OptionError
from xagents.system.pages import column_widths, console_width, make_table, render_page
from xagents.system.values import to_plain_value

HEADER = ('Data set', 'Environment', 'Episodes', 'Steps', 'Mean return', 'Agent')
NUMERIC_COLUMNS = (2, 3, 4)


def datasets_page(wanted: Sequence[str] = (), as_json: bool = False, download: bool = False) -> str:
    """Return the list of all local data sets, or of some. A damaged data set is listed with its error.

    Args:
        wanted: names of data sets; empty for all.
        as_json: whether to return one JSON object per line.
        download: whether to download missing data sets from Minari's server.

    Raises:
        OptionError: if a name is unknown.
    """
    minari_module('serialization', 'datasets')
    for name in wanted:
        if download:
            open_dataset(name, 'name', download=True)
        dataset_names.check_known('name', name)
    found = [_record(name) for name in (wanted or dataset_names.list_names())]
    if as_json:
        return '\n'.join(json.dumps(to_plain_value(record, finite=True)) for record in found)
    if not found:
        return f'There is no data set in {dataset_names.root()}: xagents record writes one'
    rows = [HEADER, *map(_row, (record for record in found if not record['problem']))]
    lines = [record['problem'] for record in found if record['problem']]
    widths, parts = column_widths(rows), list[Any]()
    if len(rows) > 1:
        parts.append(make_table(rows[:1], widths, ('bold',) * len(HEADER), NUMERIC_COLUMNS))
        parts.append(make_table(rows[1:], widths, (), NUMERIC_COLUMNS))
    return render_page([*parts, *lines, f'\nIn {dataset_names.root()}'], console_width())


def _record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(('env', 'episodes', 'steps', 'mean_return', 'agent', 'command'))
    record = {'dataset': name, **record, 'problem': ''}
    try:
        dataset = open_dataset(name, 'name')
        record |= {'env': dataset.environment_options.get('env'), 'episodes': dataset.episodes, 'steps': dataset.steps}
        record |= {'mean_return': dataset.mean_return, 'agent': dataset.metadata.get('algorithm_name') or None}
        record['command'] = dataset.xagents_metadata.get('command')
    except OptionError as error:
        record['problem'] = error.problem
    return record


def _row(record: dict[str, Any]) -> list[str]:
    columns = [str(record[name] or '-') for name in ('dataset', 'env', 'episodes', 'steps')]
    cells = [*columns, f'{record["mean_return"]:.2f}', str(record['agent'] or '-')]
    # files may contain control characters
    return [''.join(c if c.isprintable() else '?' for c in cell) for cell in cells]
