"""Markdown tables, and the sections of pages that they are written into."""

import datetime
import os
import platform
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xagents.system.files import atomic_write
from xagents.system.processor import cpuinfo_lines

SECTION = re.compile(r'<!-- benchmark (\S+) -->\n(.*?)\n?<!-- end of benchmark \1 -->', re.DOTALL)
# the name of a machine, above its table
MACHINE = re.compile(r'^#### (.+)\n', re.MULTILINE)


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """Return ours over theirs for each repeat: whatever slows the machine for a while slows both."""
    return [a / b for a, b in zip(ours, theirs, strict=False) if a is not None and b is not None]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the median, with the smallest and largest of several values."""
    text = number(statistics.median(values), digits)
    if len(values) == 1:
        return text
    return f'{text} ({number(min(values), digits)} to {number(max(values), digits)})'


def number(value: float, digits: int = 0) -> str:
    """Format a number with spaces between thousands; zero has no sign."""
    return f'{value:z,.{digits}f}'.replace(',', ' ')


def each(values: Iterable[float], digits: int = 1) -> str:
    """Format one number for each seed."""
    return ', '.join(number(value, digits) for value in values)


def percent(share: float) -> str:
    """Format a share."""
    return f'{100 * share:.0f} %'


def markdown(heading: Sequence[str], rows: Iterable[Sequence[Any]], *below: str) -> str:
    """Return a Markdown table and the lines below it."""
    lines = [f'| {" | ".join(map(str, cells))} |' for cells in (heading, *rows)]
    lines.insert(1, '|---' * len(heading) + '|')
    return '\n'.join([*lines, '', *below] if below else lines)


def versions(found: Mapping[str, str]) -> str:
    """Format the versions of packages."""
    return ', '.join(f'{name} {version}' for name, version in found.items())


def with_problems(note: str, problems: Sequence[str]) -> list[str]:
    """Return the lines below a table: a note, and a list of problems if there are any."""
    return [note, *([''] if problems else []), *(f'- {text}' for text in problems)]


def one_line(text: str) -> str:
    """Return a message in one line of at most 300 characters."""
    return ' '.join(text.split())[:300]


# ------------------------------------------------------------------------------------------------------------- machine


def machine() -> dict[str, str]:
    """Return the date and a description of this machine."""
    names = [line.split(':', 1)[1].strip() for line in cpuinfo_lines('model name')]
    cpu = names[0] if names else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return {
        'date': datetime.date.today().isoformat(),
        'cpu': cpu,
        'cores': str(cores),
        'system': f'{platform.system()} {platform.machine()}',
        'load': f'{os.getloadavg()[0]:.1f}' if hasattr(os, 'getloadavg') else 'unknown',
    }


def short(machine: dict[str, str]) -> dict[str, str]:
    """Return what is kept with a single run: date, processor and cores."""
    return {name: machine[name] for name in ('date', 'cpu', 'cores')}


def where(machine: dict[str, str]) -> str:
    """Return date and machine as a text."""
    return f'{machine["date"]}, {machine_type(machine)}, {machine["system"]}, load {machine["load"]} before the start'


def machine_type(machine: dict[str, str]) -> str:
    """Return the processor and its cores: results of one type of machine replace each other."""
    return f'{machine["cpu"]}, {machine["cores"]} core{"s" * (int(machine["cores"]) > 1)}'


# --------------------------------------------------------------------------------------------------------------- pages


def sections(text: str) -> dict[str, str]:
    """Return the text between markers in a Markdown file, by the names of the markers."""
    return dict(SECTION.findall(text))


def by_machine(section: str) -> dict[str, str]:
    """Split the section of a case into the text of each type of machine."""
    _, *parts = MACHINE.split(section)
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def write_for_machine(page: Path, name: str, title: str, machine: dict[str, str], text: str) -> None:
    """Write a table first into its section. It replaces only the older one of the same type of machine."""
    others = by_machine(sections(page.read_text()).get(name, ''))
    others.pop(machine_type(machine), None)
    blocks = [f'#### {name}\n\n{block}' for name, block in {machine_type(machine): text, **others}.items()]
    write_section(page, name, '\n\n'.join([f'### {title}', *blocks]))


def write_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers of a section. A page without the markers is not changed."""
    begin, end = f'<!-- benchmark {name} -->', f'<!-- end of benchmark {name} -->'
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        write_atomically(page, f'{before}{begin}\n{text}\n{end}{after}')


def write_atomically(path: Path, text: str) -> None:
    """Write a file such that readers see either the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding='utf-8')
