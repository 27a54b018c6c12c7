"""The tables of the speed benchmark."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.speed.cases import Case, Run
from benchmarks.tables import markdown, number, one_line, percent, ratios, spread, where
from benchmarks.tables import versions as format_versions

Results = Sequence[dict[str, Any] | None]


def rates(results: Results, clock: str = 'seconds') -> list[float | None]:
    """Return the steps per second of each repeat by one of the clocks; None without a result."""
    return [one['steps'] / one[clock] if one and clock in one else None for one in results]


def processor_rates(results: Results) -> list[float | None]:
    """Return the steps per second of processor time."""
    return rates(results, 'processor_seconds')


def render(case: Case, outcome: dict[str, Any], machine: dict[str, str], command: str) -> str:
    """Return the table of a case on one machine, with notes and the command that makes it."""
    first, compared, last = COLUMNS[case.task]
    heading = [*first, *(column.format(name) for name in case.baselines for column in compared), *last]
    cells = CELLS[case.task]
    rows = []
    for run in case.runs:
        done = [result for result in outcome[run.label]['results'] if result]
        # the notes give the reason for an empty row
        empty = ['–', *[''] * (len(heading) - 1)]
        rows += [[run.label, *row] for row in (cells(case, run, done, outcome) if done else [empty])]
    return markdown(['', *heading], rows, *notes(case, outcome), provenance(outcome, machine, command))


def speed_rows(case: Case, run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Return steps per second and the ratios to the baselines."""
    rate = spread([rate for rate in rates(done) if rate is not None])
    memory = spread([result['rss_mb'] for result in done])
    faster = [
        times(run, name, outcome, measured, ours_first=True)
        for name in case.baselines
        for measured in (rates, processor_rates)
    ]
    return [[rate, *faster, required_cell(run, case.baselines), shares(done), memory]]


def target_rows(case: Case, run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Return seconds and steps until the target, and the ratios to the baselines."""
    seconds = spread([result['seconds'] for result in done], 1)
    required = required_cell(run, case.baselines)
    sooner = [times(run, name, outcome, all_seconds) for name in case.baselines]
    return [[seconds, *sooner, required, spread([result['steps'] for result in done])]]


def all_seconds(results: Results) -> list[float | None]:
    """Return the seconds of each repeat; None without a result."""
    return [one['seconds'] if one else None for one in results]


def memory_rows(case: Case, run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Return the resident MB during a run."""
    limit = f'under {run.required:g}'
    return [[number(steps), number(megabytes), limit] for steps, megabytes in done[0]['samples']]


def times(
    run: Run,
    baseline: str,
    outcome: dict[str, Any],
    measured: Callable[[Results], list[float | None]],
    ours_first: bool = False,
) -> str:
    """Return the ratio of a baseline to a library, or the inverse with `ours_first`; empty without the baseline."""
    if run.label == baseline or baseline not in outcome:
        return ''
    pair = [measured(outcome[label]['results']) for label in (baseline, run.label)]
    found = ratios(*(reversed(pair) if ours_first else pair))
    return spread(found, 2) if found else ''


# for each task the headings before those of the baselines, those of each baseline, and those after them
COLUMNS: dict[str, tuple[list[str], list[str], list[str]]] = {
    'speed': (['steps/s'], ['times {}', 'in processor time'], ['required', 'where the time goes', 'resident MB']),
    'target': (['seconds'], ['times sooner than {}'], ['required', 'steps']),
    'memory': (['steps', 'resident MB', 'required'], [], []),
}
# for each task the function that makes the rows of a library
CELLS = {'speed': speed_rows, 'target': target_rows, 'memory': memory_rows}


def required_cell(run: Run, baselines: Sequence[str]) -> str:
    """Return the required ratios and the goal of a row."""
    second = None if run.second_required is None else f'{run.second_required:g} times {baselines[1]}'
    goal = None if run.goal is None else f'goal {run.goal:g}'
    parts = [None if run.required is None else f'{run.required:g}', goal, second]
    return ', '.join(part for part in parts if part)


def shares(done: Sequence[dict[str, Any]]) -> str:
    """Return the parts of the measured time in percent, over all repeats."""
    total = sum(result['seconds'] for result in done)
    names = dict.fromkeys(name for result in done for name in result.get('parts', {}))
    sums = {name: sum(result.get('parts', {}).get(name, 0) for result in done) for name in names}
    parts = {name: seconds / total for name, seconds in sums.items() if seconds >= total / 200}
    return ', '.join(f'{name} {percent(part)}' for name, part in parts.items())


def notes(case: Case, outcome: dict[str, Any]) -> list[str]:
    """Return the case's note, failures, shares of the peak, and the number of traces."""
    lines = [f'- {case.note}'] if case.note else []
    for label, row in outcome.items():
        done = [result for result in row['results'] if result]
        if row['problem']:
            lines.append(f'- {label}: {one_line(row["problem"])}')
        share = [result['peak_share'] for result in done if 'peak_share' in result]
        if share:
            peak = statistics.median(result['peak_gflops'] for result in done)
            half = [result['peak_gflops_bfloat16'] for result in done if 'peak_gflops_bfloat16' in result]
            text = f'of the {peak:.0f} GFLOP/s of a float32 matrix product in the same process'
            text += f' (bfloat16: {statistics.median(half):.0f})' if half else ''
            lines.append(f'- {label}: the update reaches {percent(statistics.median(share))} {text}')
        traced: dict[str, int] = {}
        for result in done:
            for name, count in result.get('traces', {}).items():
                traced[name] = max(count, traced.get(name, 0))
        if traced:
            lines.append(f'- {label}, times traced: ' + ', '.join(f'{name} {n}' for name, n in traced.items()))
    return [*lines, ''] if lines else []


def provenance(outcome: dict[str, Any], machine: dict[str, str], command: str) -> str:
    """Return date, machine, command, and the versions of each row."""
    repeats = max((len(row['results']) for row in outcome.values()), default=0)
    repeated = 'measured once' if repeats == 1 else f'{repeats} repeats in turn, median (least to largest)'
    lines = [f'{where(machine)}; {repeated}. Made by `{command}`.']
    labels: dict[str, list[str]] = {}
    for label, row in outcome.items():
        for result in row['results']:
            versions = format_versions((result or {}).get('versions', {}))
            if versions and label not in labels.setdefault(versions, []):
                labels[versions].append(label)
    if labels:
        lines += ['', *(f'- {"; ".join(names)}: {versions}' for versions, names in labels.items())]
    return '\n'.join(lines)


def progress(case: Case, result: dict[str, Any]) -> str:
    """Return one measurement for the console."""
    if case.task == 'target':
        return f'{result["seconds"]:.1f} s, {number(result["steps"])} steps'
    return f'{number(result["steps"] / result["seconds"])} steps/s'
