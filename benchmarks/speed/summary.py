"""The speed benchmark in short: machines beside each other, the README's table, and its picture.

All of it is made from the tables of the benchmarks' page, which also has those of machines that are gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tables
from benchmarks.speed.cases import BASELINE, SBX, XAGENTS
from benchmarks.venvs import PAGE, REPOSITORY

README = REPOSITORY / 'README.md'
PICTURE = REPOSITORY / 'img' / 'speed.png'
DATE = re.compile(r'^(\d{4}-\d\d-\d\d), ', re.MULTILINE)
# what is counted, as a cell says it
UNITS = {'steps/s': ' steps/s', 'seconds': ' s'}
TIMES = f'times {BASELINE}', f'times {SBX.label}'
# what the picture keeps its numbers under
NUMBERS = 'Description'


@dataclass(frozen=True)
class Row:
    """A case on one kind of machine.

    Args:
        case: its name.
        title: its heading.
        machine: the processor and its cores.
        date: of the measurement, as in 2026-01-02.
        ours: what xagents reached, with its unit.
        times: how many times as fast as the baseline xagents is.
        sbx: likewise SBX; None where it was not measured.
        once: whether it was measured only once.
    """

    case: str
    title: str
    machine: str
    date: str
    ours: str
    times: float
    sbx: float | None
    once: bool

    @property
    def times_sbx(self) -> str:
        """How many times as fast as SBX xagents is; empty where that was not measured."""
        return f'{self.times / self.sbx:.2f}' if self.sbx else ''


def measured(page: str) -> list[Row]:
    """Return what the tables of a page compare with the baseline, case by case."""
    rows = []
    for case, section in tables.sections(page).items():
        for machine, text in tables.by_machine(section).items():
            title = section.partition('\n')[0].removeprefix('### ')
            row = compared(case, title, machine, text)
            rows += [row] if row else []
    return rows


def compared(case: str, title: str, machine: str, text: str) -> Row | None:
    """Return what a table says in short; None where nothing of ours stands beside the baseline."""
    lines = [line for line in text.splitlines() if line.startswith('|')]
    heading, _, *cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines] or [[], []]
    found = {row[0]: dict(zip(heading, row, strict=True)) for row in cells}
    ours, sbx = found.get(first_of_ours(list(found)), {}), found.get(SBX.label, {})
    times = next((title for title in heading if title.startswith('times') and title.endswith(BASELINE)), '')
    unit = next((title for title in heading if title in UNITS), '')
    date = DATE.search(text)
    if not ours.get(times) or not date:
        return None
    theirs = number(sbx[times]) if sbx.get(times) else None
    reached, once = median(ours[unit]) + UNITS[unit], 'measured once' in text
    return Row(case, title, machine, date[1], reached, number(ours[times]), theirs, once)


def first_of_ours(labels: Sequence[str]) -> str:
    """Return the row that has the settings of the others: of several of ours it is the first."""
    return next((label for label in labels if label.startswith(XAGENTS.label)), '')


def median(cell: str) -> str:
    """Return a cell without the range that follows."""
    return cell.partition(' (')[0]


def number(cell: str) -> float:
    """Return a cell's median as a number."""
    return float(median(cell).replace(' ', ''))


def shown(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one machine: on which most cases were measured, of several such the newest."""
    machines = [[row for row in rows if row.machine == name] for name in dict.fromkeys(row.machine for row in rows)]
    return max(machines, key=lambda own: (len(own), max(row.date for row in own)), default=[])


def in_the_readme(rows: Sequence[Row]) -> str:
    """Return the table of one machine: a row a case, with the command that measures it."""
    heading = ['', 'xagents', *TIMES, 'the command']
    cells = [
        [row.title, row.ours, f'{row.times:.2f}', row.times_sbx, f"`make bench CASES='--only {row.case}'`"]
        for row in rows
    ]
    dates = sorted({row.date for row in rows})
    days = dates[0] if len(dates) == 1 else f'{dates[0]} to {dates[-1]}'
    once = ', '.join(f'`{row.case}`' for row in rows if row.once)
    return tables.markdown(heading, cells, f'{days}, {rows[0].machine}{once and f"; measured once: {once}"}.')


def beside(rows: Sequence[Row]) -> str:
    """Return the machines beside each other: a row a case."""
    machines = sorted({row.machine for row in rows})
    heading = ['', *(f'{name}: {what}' for name in machines for what in ('xagents', *TIMES))]
    found = {(row.case, row.machine): [row.ours, f'{row.times:.2f}', row.times_sbx] for row in rows}
    titles = {row.case: row.title for row in rows}
    cells = [
        [title, *(cell for name in machines for cell in found.get((case, name), ['–', '', '']))]
        for case, title in titles.items()
    ]
    return tables.markdown(heading, cells)


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw how many times as fast as the baseline xagents and SBX are; the same numbers make the same file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.9 + 0.33 * len(rows)), layout='constrained')
    axes = figure.subplots()
    places = range(len(rows))
    bars = axes.barh([y - 0.2 for y in places], [row.times for row in rows], 0.38, color='#0072B2', label='xagents')
    axes.bar_label(bars, fmt='%.1f', padding=2, fontsize=8)
    axes.barh([y + 0.2 for y in places], [row.sbx or 0 for row in rows], 0.38, color='#E69F00', label=SBX.label)
    axes.axvline(1, color='black', linestyle='--', linewidth=1, label=BASELINE)
    axes.set_yticks(list(places), [row.case for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f'times as fast as {BASELINE}')
    axes.set_title(rows[0].machine, fontsize=9)
    axes.legend(loc='lower right')
    axes.spines[['top', 'right']].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={'Software': None, NUMBERS: in_the_readme(rows)})


def write(page: Path = PAGE, readme: Path = README, picture: Path = PICTURE) -> None:
    """Write the machines beside each other into the page, the table into the README, and the picture.

    Nothing is written where nothing of ours stands beside the baseline.
    """
    rows = measured(page.read_text())
    if rows:
        tables.write_section(page, 'machines', beside(rows))
        tables.write_section(readme, 'speed', in_the_readme(shown(rows)))
        draw(picture, shown(rows))
