"""What a run promises: exact resume, safety from kills, little cost. `python benchmarks/reliability.py`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# a script's own folder is on the path, not the repository's
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.environments import REPOSITORY
from benchmarks.harness import FOLDER, Failed
from benchmarks.reliability_cost import BUFFER, COSTS, SECONDS, measure_cost, measure_memory, render_cost, render_memory
from benchmarks.reliability_exact import measure_exact, render_exact
from benchmarks.reliability_fuzz import EXAMPLES, measure_fuzz, render_fuzz
from benchmarks.reliability_kills import measure_kills, render_kills
from benchmarks.reliability_overlap import PAIRS, measure_overlap, render_overlap
from benchmarks.reliability_runs import SETTINGS
from benchmarks.tuning import keep, place, provenance, read
from benchmarks.workers.measure import versions

PAGE = REPOSITORY / 'docs' / 'benchmarks.md'
RESULTS = FOLDER / '.venvs' / 'reliability.json'
PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'ale-py', 'hypothesis')


@dataclass(frozen=True)
class Part:
    """One thing that is measured.

    Args:
        title: of its table.
        measure: does it in a folder, with the command line's options, and says how it goes; returns what `json` can
            write.
        render: makes Markdown of that.
        options: those of the command line that it heeds.
    """

    title: str
    measure: Callable[[Path, argparse.Namespace, Callable[[str], None]], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    options: tuple[str, ...] = ()


PARTS = {
    'exact': Part(
        '2N steps beside N, a stop and N more', measure_exact, render_exact, ('agents', 'steps', 'seed')
    ),
    'kills': Part(
        'Trainings killed at random instants',
        measure_kills,
        render_kills,
        ('agents', 'kills', 'save_seconds', 'seed'),
    ),
    'cost': Part('What checkpoints take of the time', measure_cost, render_cost, ('costs', 'seconds')),
    'memory': Part('Resident memory of a long run', measure_memory, render_memory, ('steps',)),
    'overlap': Part('`--overlap` beside the same run without', measure_overlap, render_overlap, ('pairs', 'repeats')),
    'fuzz': Part('Random command lines and files', measure_fuzz, render_fuzz, ('examples', 'seed')),
}  # fmt: skip


def render(results: dict[str, Any]) -> str:
    """Return a table for each part that was measured, with what made it."""
    sections = []
    for name, part in PARTS.items():
        if name in results:
            kept = results[name]
            sections += [f'### {part.title}', part.render(kept['result']), provenance(kept)]
    return '\n\n'.join(sections) or 'Nothing has been measured yet.'


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='python benchmarks/reliability.py', description=__doc__, allow_abbrev=False)
    parser.add_argument('--only', nargs='+', metavar='PART', choices=PARTS, help=f'of {", ".join(PARTS)}')
    parser.add_argument(
        '--agents', nargs='+', choices=SETTINGS, metavar='AGENT', help='exact, kills: these agents only'
    )
    parser.add_argument('--steps', type=int, help='exact: N; memory: steps of the run (10 million)')
    parser.add_argument('--kills', type=int, help='kills: how many (100)')
    parser.add_argument('--save-seconds', type=float, default=2.0, help='kills: of the runs (2)')
    parser.add_argument('--costs', nargs='+', choices=COSTS, metavar='CASE', help=f'cost: of {", ".join(COSTS)}')
    parser.add_argument('--seconds', type=float, help=f'cost: of training, after {BUFFER} transitions ({SECONDS:g})')
    parser.add_argument('--pairs', nargs='+', choices=PAIRS, metavar='PAIR', help=f'overlap: of {", ".join(PAIRS)}')
    parser.add_argument('--repeats', type=int, default=5, help='overlap: how often each is measured')
    parser.add_argument('--examples', type=int, help=f'fuzz: how many lines and files ({EXAMPLES})')
    parser.add_argument('--seed', type=int, default=1, help='exact, kills, fuzz: of what is random')
    parser.add_argument('--quick', action='store_true', help='a smoke run: little of everything, not kept')
    parser.add_argument('--docs', action='store_true', help='only write the tables of what is kept, measure nothing')
    parser.add_argument('--folder', type=Path, help='keep runs there, in a new folder a part')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where results are kept, part by part')
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    parser.add_argument('--timeout', type=float, default=3600, help='seconds that one measured process may take')
    parser.add_argument(
        '--python',
        nargs='+',
        default=[],
        metavar='PEER=PYTHON',
        help='overlap: a library in an environment that exists',
    )
    parser.add_argument('--cache', type=Path, default=FOLDER / '.venvs', help='overlap: where environments are kept')
    parser.set_defaults(cleanrl=None)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write; 1 when a part failed, 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in ('steps', 'kills', 'seconds', 'repeats', 'examples'):
        if getattr(options, name) is not None and not getattr(options, name) > 0:
            parser.error(f'--{name}: got {getattr(options, name)}, admits more than 0')
    if any('=' not in pair for pair in options.python):
        parser.error(f'--python: got {" ".join(options.python)}, admits PEER=PYTHON pairs')
    # so that what is under way is ended when this process is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    complete = True
    for name in [] if options.docs else dict.fromkeys(options.only or PARTS):
        complete &= measured(name, options)
    if not options.quick:
        tables.write_section(options.page, 'reliability', render(read(options.results)))
    return 0 if complete else 1


def measured(name: str, options: argparse.Namespace) -> bool:
    """Measure a part, print it and keep it; returns whether there was a result."""
    machine = tables.machine()

    def log(text: str) -> None:
        print(f'{name}: {tables.one_line(text)}', file=sys.stderr, flush=True)

    try:
        with place(options.folder, name) as folder:
            result = PARTS[name].measure(folder, options, log)
    except Failed as error:
        log(str(error))
        return False
    print(PARTS[name].render(result), flush=True)
    if not options.quick:
        keep(options.results, name, {
            'result': result, 'machine': machine, 'versions': versions(*PACKAGES), 'command': command(name, options)
        })  # fmt: skip
    return True


def command(name: str, options: argparse.Namespace) -> str:
    """The command that measures a part again: what differs from the defaults, without paths of this machine."""
    words = ['python', 'benchmarks/reliability.py', '--only', name]
    parser = make_parser()
    for option in PARTS[name].options:
        value = getattr(options, option)
        if value != parser.get_default(option):
            words += [f'--{option.replace("_", "-")}', *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


if __name__ == '__main__':
    sys.exit(main())
