"""From single measurements to the tables of the docs."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.cases import BASELINE, Case, Run
from xagents.system.files import replacing
from xagents.system.processor import facts

Results = Sequence[dict[str, Any] | None]
SECTION = re.compile(r'<!-- benchmark (\S+) -->\n(.*?)\n?<!-- end of benchmark \1 -->', re.DOTALL)
# a machine's table stands below its name
MACHINE = re.compile(r'^#### (.+)\n', re.MULTILINE)


def rates(results: Results) -> list[float | None]:
    """Steps/s of each repeat, None where there was no result."""
    return [result['steps'] / result['seconds'] if result else None for result in results]


def processor_rates(results: Results) -> list[float | None]:
    """Steps a second of processors, likewise; None also where the library's worker cannot tell."""
    return [one['steps'] / one['processor_seconds'] if one and 'processor_seconds' in one else None for one in results]


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


def markdown(heading: Sequence[str], rows: Iterable[Sequence[Any]], *below: str) -> str:
    """A Markdown table, and the lines below it."""
    lines = [f'| {" | ".join(map(str, cells))} |' for cells in (heading, *rows)]
    lines.insert(1, '|---' * len(heading) + '|')
    return '\n'.join([*lines, '', *below] if below else lines)


def render(case: Case, outcome: dict[str, Any], machine: dict[str, str], command: str) -> str:
    """A case on one machine: table, notes, and what made it, as Markdown."""
    heading, cells = COLUMNS[case.task]
    rows = []
    for run in case.runs:
        done = [result for result in outcome[run.label]['results'] if result]
        # the reason why a library has no result stands below the table
        empty = ['–', *[''] * (len(heading) - 1)]
        rows += [[run.label, *row] for row in (cells(run, done, outcome) if done else [empty])]
    below = *notes(case, outcome), provenance(outcome, machine, command)
    return markdown(['', *heading], rows, *below)


def speed_rows(run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Steps/s of a library and its ratio to the baseline."""
    rate = spread([rate for rate in rates(done) if rate is not None])
    floor = promised(run, '{:g}', 'goal {:g}')
    memory = spread([result['rss_mb'] for result in done])
    faster = [times(run, outcome, measured, ours_first=True) for measured in (rates, processor_rates)]
    return [[rate, *faster, floor, shares(done), memory]]


def target_rows(run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Seconds and steps to the target, and how many times sooner than the baseline."""
    seconds = spread([result['seconds'] for result in done], 1)
    sooner = times(run, outcome, lambda results: [one['seconds'] if one else None for one in results])
    return [[seconds, promised(run, 'under {:g}', '{:g}'), sooner, spread([result['steps'] for result in done])]]


def memory_rows(run: Run, done: Sequence[dict[str, Any]], outcome: dict[str, Any]) -> list[list[str]]:
    """Resident MB as a run goes on."""
    floor = promised(run, 'under {:g}', '{:g}')
    return [[number(steps), number(megabytes), floor] for steps, megabytes in done[0]['samples']]


def times(
    run: Run, outcome: dict[str, Any], measured: Callable[[Results], list[float | None]], ours_first: bool = False
) -> str:
    """How often a library goes into the baseline, or the other way round, by what was measured; empty without one."""
    if run.label == BASELINE or BASELINE not in outcome:
        return ''
    pair = [measured(outcome[label]['results']) for label in (BASELINE, run.label)]
    found = ratios(*(reversed(pair) if ours_first else pair))
    return spread(found, 2) if found else ''


# of each task, the heading and what makes a library's rows
COLUMNS = {
    'speed': (
        ['steps/s', f'times {BASELINE}', 'in processor time', 'promised', 'where the time goes', 'resident MB'],
        speed_rows,
    ),
    'target': (['seconds', 'promised', f'times sooner than {BASELINE}', 'steps'], target_rows),
    'memory': (['steps', 'resident MB', 'promised'], memory_rows),
}


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
    repeated = 'measured once' if repeats == 1 else f'{repeats} repeats in turn, median (least to largest)'
    lines = [f'{where(machine)}; {repeated}. Made by `{command}`.']
    behind: dict[str, list[str]] = {}
    for label, row in outcome.items():
        for result in row['results']:
            versions = ', '.join(f'{name} {version}' for name, version in (result or {}).get('versions', {}).items())
            if versions and label not in behind.setdefault(versions, []):
                behind[versions].append(label)
    if behind:
        lines += ['', *(f'- {"; ".join(labels)}: {versions}' for versions, labels in behind.items())]
    return '\n'.join(lines)


def where(machine: dict[str, str]) -> str:
    """What the numbers were measured on, for a reader."""
    text = f'{machine["date"]}, {kind(machine)}, {machine["system"]}'
    return f'{text}, load {machine["load"]} before the start'


def kind(machine: dict[str, str]) -> str:
    """What machines have in common whose numbers take each other's place: the processor and its cores."""
    return f'{machine["cpu"]}, {machine["cores"]} cores'


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    named = [line.split(':', 1)[1].strip() for line in facts('model name')]
    cpu = named[0] if named else platform.processor() or platform.machine()
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


def sections(text: str) -> dict[str, str]:
    """What stands between markers in a Markdown text, by their names."""
    return dict(SECTION.findall(text))


def by_machine(section: str) -> dict[str, str]:
    """A case's section, taken apart: what stands below each kind of machine."""
    _, *parts = MACHINE.split(section)
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def write_case(page: Path, case: Case, machine: dict[str, str], text: str) -> None:
    """Put a case's table first in its section, in the place of an older one of the same kind of machine.

    Those of other kinds of machine stay as they are.
    """
    others = by_machine(sections(page.read_text()).get(case.name, ''))
    others.pop(kind(machine), None)
    blocks = [f'#### {name}\n\n{block}' for name, block in {kind(machine): text, **others}.items()]
    write_section(page, case.name, '\n\n'.join([f'### {case.title}', *blocks]))


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
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding='utf-8')
