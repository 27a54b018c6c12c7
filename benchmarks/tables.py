"""From single measurements to the tables of the docs."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import BASELINE, Case, Run

Results = Sequence[dict[str, Any] | None]


def rates(results: Results) -> list[float | None]:
    """Steps/s of each repeat, None where there was no result."""
    return [result['steps'] / result['seconds'] if result else None for result in results]


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """Pair by pair, ours over theirs of the same repeat: what slows the machine for a while slows both."""
    return [a / b for a, b in zip(ours, theirs, strict=False) if a is not None and b is not None]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The median, with least and largest where there are several."""
    text = number(statistics.median(values), digits)
    if len(values) == 1:
        return text
    return f'{text} ({number(min(values), digits)} to {number(max(values), digits)})'


def number(value: float, digits: int = 0) -> str:
    """A number as people read it, thousands apart."""
    return f'{value:,.{digits}f}'.replace(',', ' ')


def render(case: Case, outcome: dict[str, Any], machine: dict[str, str], command: str) -> str:
    """One case's section: heading, table, notes, and what made it, as Markdown."""
    heading, rows = {'speed': speed_rows, 'target': target_rows, 'memory': memory_rows}[case.task](case, outcome)
    lines = [f'### {case.title}', '', '| ' + ' | '.join(heading) + ' |', '|---' * len(heading) + '|']
    lines += ['| ' + ' | '.join(row) + ' |' for row in rows]
    lines += ['', *notes(case, outcome), provenance(outcome, machine, command)]
    return '\n'.join(lines)


def speed_rows(case: Case, outcome: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Steps/s of each library and its ratio to the baseline."""
    heading = ['', 'steps/s', f'times {BASELINE}', 'promised', 'where the time goes', 'resident MB']
    baseline = rates(outcome[BASELINE]['results']) if BASELINE in outcome else []
    rows = []
    for run in case.runs:
        done = [result for result in outcome[run.label]['results'] if result]
        if not done:
            rows.append(missing(run, outcome, heading))
            continue
        ours = rates(outcome[run.label]['results'])
        beside = ratios(ours, baseline)
        rows.append(
            [
                run.label,
                spread([rate for rate in ours if rate is not None]),
                spread(beside, 2) if beside and run.label != BASELINE else '',
                promised(run, '{:g}', 'goal {:g}'),
                shares(done),
                spread([result['rss_mb'] for result in done]),
            ]
        )
    return heading, rows


def target_rows(case: Case, outcome: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Seconds and steps to the target, and how many times sooner than the baseline."""
    heading = ['', 'seconds', 'promised', f'times sooner than {BASELINE}', 'steps']

    def seconds(label: str) -> list[float | None]:
        return [result['seconds'] if result else None for result in outcome[label]['results']]

    rows = []
    for run in case.runs:
        done = [result for result in outcome[run.label]['results'] if result]
        if not done:
            rows.append(missing(run, outcome, heading))
            continue
        sooner = ratios(seconds(BASELINE), seconds(run.label)) if BASELINE in outcome else []
        rows.append(
            [
                run.label,
                spread([result['seconds'] for result in done], 1),
                promised(run, 'under {:g}', '{:g}'),
                spread(sooner, 2) if sooner and run.label != BASELINE else '',
                spread([result['steps'] for result in done]),
            ]
        )
    return heading, rows


def memory_rows(case: Case, outcome: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Resident MB as a run goes on."""
    heading = ['', 'steps', 'resident MB', 'promised']
    rows = []
    for run in case.runs:
        done = [result for result in outcome[run.label]['results'] if result]
        for steps, megabytes in done[0]['samples'] if done else []:
            rows.append([run.label, number(steps), number(megabytes), promised(run, 'under {:g}', '{:g}')])
        if not done:
            rows.append(missing(run, outcome, heading))
    return heading, rows


def missing(run: Run, outcome: dict[str, Any], heading: list[str]) -> list[str]:
    """The row of a library without a result; the reason stands below the table."""
    return [run.label, '–', *[''] * (len(heading) - 2)]


def promised(run: Run, floor: str, goal: str) -> str:
    """What the project promises of a row."""
    parts = [floor.format(run.floor)] if run.floor is not None else []
    return ', '.join([*parts, goal.format(run.goal)] if run.goal is not None else parts)


def shares(done: Sequence[dict[str, Any]]) -> str:
    """The parts of the measured time, in percent, from all repeats together."""
    total = sum(result['seconds'] for result in done)
    names = dict.fromkeys(name for result in done for name in result.get('parts', {}))
    sums = {name: sum(result.get('parts', {}).get(name, 0) for result in done) for name in names}
    parts = {name: seconds / total for name, seconds in sums.items() if seconds >= total / 200}
    return ', '.join(f'{name} {100 * part:.0f} %' for name, part in parts.items())


def notes(case: Case, outcome: dict[str, Any]) -> list[str]:
    """What a row cannot say: the case's note, failures, the share of the peak, how often functions were traced."""
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
            lines.append(f'- {label}: the update reaches {100 * statistics.median(share):.0f} % {text}')
        traced: dict[str, int] = {}
        for result in done:
            for name, count in result.get('traces', {}).items():
                traced[name] = max(count, traced.get(name, 0))
        if traced:
            lines.append(f'- {label}, times traced: ' + ', '.join(f'{name} {n}' for name, n in traced.items()))
    return [*lines, ''] if lines else []


def provenance(outcome: dict[str, Any], machine: dict[str, str], command: str) -> str:
    """Date, machine and command, and below them the versions behind each row."""
    repeats = max((len(row['results']) for row in outcome.values()), default=0)
    times = 'measured once' if repeats == 1 else f'{repeats} repeats in turn, median (least to largest)'
    where = f'{machine["date"]}, {machine["cpu"]}, {machine["cores"]} cores, {machine["system"]}'
    lines = [f'{where}, load {machine["load"]} before the start; {times}. Made by `{command}`.']
    behind: dict[str, list[str]] = {}
    for label, row in outcome.items():
        for result in row['results']:
            versions = ', '.join(f'{name} {version}' for name, version in (result or {}).get('versions', {}).items())
            if versions and label not in behind.setdefault(versions, []):
                behind[versions].append(label)
    if behind:
        lines += ['', *(f'- {"; ".join(labels)}: {versions}' for versions, labels in behind.items())]
    return '\n'.join(lines)


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path('/proc/cpuinfo').read_text().splitlines()
        cpu = next((line.split(':', 1)[1].strip() for line in lines if line.startswith('model name')), cpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return {
        'date': datetime.date.today().isoformat(),
        'cpu': cpu,
        'cores': str(cores),
        'system': f'{platform.system()} {platform.machine()}',
        'load': f'{os.getloadavg()[0]:.1f}' if hasattr(os, 'getloadavg') else 'unknown',
    }


def progress(case: Case, run: Run, repeat: int, result: dict[str, Any] | None, problem: str | None) -> str:
    """One line about one measurement."""
    if result is None:
        text = one_line(problem or 'no result')
    elif case.task == 'target':
        text = f'{result["seconds"]:.1f} s, {number(result["steps"])} steps'
    else:
        text = f'{number(result["steps"] / result["seconds"])} steps/s'
    return f'{case.name} {repeat + 1}: {run.label}: {text}'


def one_line(text: str) -> str:
    """A message in one line of a sensible length."""
    return ' '.join(text.split())[:300]


def write_section(page: Path, name: str, text: str) -> None:
    """Replace what stands between a case's markers in a Markdown file.

    A file without these markers is left as it is: a page shows the tables that it asks for.
    """
    begin, end = f'<!-- benchmark {name} -->', f'<!-- end of benchmark {name} -->'
    old = page.read_text()
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        write_atomically(page, f'{before}{begin}\n{text}\n{end}{after}')


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is the old or the new one at every moment."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    try:
        with os.fdopen(descriptor, 'w') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
