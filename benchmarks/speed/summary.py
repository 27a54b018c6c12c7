"""Summaries of the speed benchmark: a table of all machines, the table of the README, and its picture.

All of them are made from the tables of docs/benchmarks.md, which also contains tables from other machines.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tables
from benchmarks.speed.cases import BASELINE, SBX, XAGENTS
from benchmarks.venvs import PAGE, REPOSITORY

README = REPOSITORY / 'README.md'
PICTURE = REPOSITORY / 'img' / 'speed.png'
DATE = re.compile(r'^(\d{4}-\d\d-\d\d), ', re.MULTILINE)
# headings of the columns with results, and their units
UNITS = {'steps/s': ' steps/s', 'seconds': ' s'}
TIMES = f'times {BASELINE}', f'times {SBX.label}'
WHITE = {'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.5}
# the field of the PNG file that contains the numbers
NUMBERS = 'Description'


@dataclass(frozen=True)
class Row:
    """A case on one type of machine.

    Args:
        case: its name.
        title: its heading.
        machine: the processor and its cores.
        date: of the measurement, as in 2026-01-02.
        ours: the result of xagents with its unit.
        times: speed of xagents divided by that of the baseline.
        sbx: the same for SBX; None if it was not measured.
        once: whether it was measured only once.
        over_sbx: median of the ratios of xagents to SBX in each repeat; None if the table has no such column.
    """

    case: str
    title: str
    machine: str
    date: str
    ours: str
    times: float
    sbx: float | None
    once: bool
    over_sbx: float | None = None

    @property
    def times_sbx(self) -> str:
        """Speed of xagents divided by that of SBX; empty if SBX was not measured."""
        ratio = self.over_sbx or (self.times / self.sbx if self.sbx else None)
        return f'{ratio:.2f}' if ratio else ''


def find_rows(page: str) -> list[Row]:
    """Return the comparisons with the baseline in the tables of a page."""
    rows = []
    for case, section in tables.sections(page).items():
        for machine, text in tables.by_machine(section).items():
            row = read_row(case, section.partition('\n')[0].removeprefix('### '), machine, text)
            rows += [row] if row else []
    return rows


def read_row(case: str, title: str, machine: str, text: str) -> Row | None:
    """Return the comparison in one table; None if the table has no ratio of xagents to the baseline."""
    lines = [line for line in text.splitlines() if line.startswith('|')]
    heading, _, *cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines] or [[], []]
    found = {row[0]: dict(zip(heading, row, strict=True)) for row in cells}
    # the first row of xagents has the settings of the other libraries
    ours = next((row for label, row in found.items() if label.startswith(XAGENTS.label)), {})
    times = next((title for title in heading if title.startswith('times') and title.endswith(BASELINE)), '')
    unit = next((title for title in heading if title in UNITS), '')
    date, sbx = DATE.search(text), found.get(SBX.label, {}).get(times)
    if not times or not ours.get(times) or not date:
        return None
    result, once = median(ours[unit]) + UNITS[unit], 'measured once' in text
    ratio, over_sbx = number(ours[times]), ours.get(TIMES[1])
    numbers = [number(cell) if cell else None for cell in (sbx, over_sbx)]
    return Row(case, title, machine, date[1], result, ratio, numbers[0], once, numbers[1])


def median(cell: str) -> str:
    """Return a cell without the range."""
    return cell.partition(' (')[0]


def number(cell: str) -> float:
    """Return the median in a cell."""
    return float(median(cell).replace(' ', ''))


def of_one_machine(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the machine with most cases; of several such machines, the one that was measured last."""
    machines = [[row for row in rows if row.machine == name] for name in dict.fromkeys(row.machine for row in rows)]
    return max(machines, key=lambda own: (len(own), max(row.date for row in own)), default=[])


def without_variants(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without variants, whose names continue that of another case: `td3-pendulum-8`."""
    names = tuple(f'{row.case}-' for row in rows)
    return [row for row in rows if not row.case.startswith(names)]


def readme_table(rows: Sequence[Row]) -> str:
    """Return the table of one machine: a row for each case, with the command that measures it."""
    heading = ['', 'xagents', *(f'relative to {name}' for name in (BASELINE, SBX.label)), 'the command']
    cells = [
        [row.title, row.ours, f'{row.times:.2f}', row.times_sbx, f"`make bench CASES='--only {row.case}'`"]
        for row in rows
    ]
    dates = sorted({row.date for row in rows})
    days = dates[0] if len(dates) == 1 else f'{dates[0]} to {dates[-1]}'
    return tables.markdown(heading, cells, f'{days}, {rows[0].machine}{repeats(rows)}.')


def repeats(rows: Sequence[Row]) -> str:
    """Return which rows have no spread because they were measured only once."""
    once, others = ([f'`{row.case}`' for row in rows if row.once is value] for value in (True, False))
    if len(once) > len(others):
        return '; measured once, without a spread: all rows' + (f' but {", ".join(others)}' if others else '')
    return f'; measured once, without a spread: {", ".join(once)}' if once else ''


def machines_table(rows: Sequence[Row]) -> str:
    """Return the table of all machines: a row for each case on each machine."""
    ordered = sorted(rows, key=lambda row: row.machine)
    titles = dict.fromkeys(row.title for row in rows)
    cells = [
        [title, row.machine, row.ours, f'{row.times:.2f}', row.times_sbx]
        for title in titles
        for row in ordered
        if row.title == title
    ]
    return tables.markdown(['', 'machine', 'xagents', *TIMES], cells)


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the ratios of xagents and SBX to the baseline, largest first; the same numbers make the same file."""
    from matplotlib.figure import Figure

    rows = sorted(rows, key=lambda row: -row.times)
    figure = Figure(figsize=(9, 1 + 0.48 * len(rows)), layout='constrained')
    axes = figure.subplots()
    libraries = (
        ('xagents', '#0072B2', -0.2, [row.times for row in rows]),
        (SBX.label, '#E69F00', 0.2, [row.sbx for row in rows]),
    )
    for label, color, shift, values in libraries:
        places = [place + shift for place, value in enumerate(values) if value]
        bars = axes.barh(places, [value for value in values if value], 0.38, color=color, label=label)
        axes.bar_label(bars, fmt='%.1f', padding=2, fontsize=8, bbox=WHITE)
    axes.axvline(1, color='black', linestyle='--', linewidth=1, label=BASELINE)
    axes.set_yticks(range(len(rows)), [textwrap.fill(row.title, 56) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f'times as fast as {BASELINE}')
    axes.set_title(rows[0].machine, fontsize=9)
    axes.legend(loc='lower right')
    axes.spines[['top', 'right']].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={'Software': None, NUMBERS: readme_table(rows)})


def write(page: Path = PAGE, readme: Path = README, picture: Path = PICTURE) -> None:
    """Write the table of all machines into the page, the table of the README, and the picture, if there are rows.

    The README and the picture leave out variants of cases.
    """
    rows = find_rows(page.read_text())
    if rows:
        tables.write_section(page, 'machines', machines_table(rows))
        shown = without_variants(of_one_machine(rows))
        tables.write_section(readme, 'speed', readme_table(shown))
        draw(picture, shown)
