"""What `xagents tune` was asked to reach: speed, kills, and what a search finds. `python benchmarks/tuning.py`."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# a script's own folder is on the path, not the repository's
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.environments import REPOSITORY
from benchmarks.harness import Failed
from benchmarks.tuning_kills import measure_kills, render_kills
from benchmarks.tuning_search import measure_search, render_search
from benchmarks.tuning_speed import measure_jobs, measure_overhead, render_jobs, render_overhead
from benchmarks.workers.measure import versions

PAGE = REPOSITORY / 'docs' / 'benchmarks.md'
RESULTS = REPOSITORY / 'benchmarks' / '.venvs' / 'tuning.json'
PACKAGES = ('xagents', 'optuna', 'tensorflow', 'keras', 'gymnasium', 'numpy')


@dataclass(frozen=True)
class Part:
    """One thing that is measured.

    Args:
        title: of its table.
        measure: does it in a folder, with the number of repeats, whether it is a smoke run, and where to say how it
            goes; returns what `json` can write.
        render: makes Markdown of that.
    """

    title: str
    measure: Callable[[Path, int, bool, Callable[[str], None]], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]


PARTS = {
    'jobs': Part('Two workers beside one', measure_jobs, render_jobs),
    'overhead': Part('From the start of a trial to its first environment step', measure_overhead, render_overhead),
    'kills': Part('Killed at random instants', measure_kills, render_kills),
    'search': Part('The ready ranges beside the defaults', measure_search, render_search),
}


def read(path: Path) -> dict[str, Any]:
    """All kept results by part; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, part: str, result: dict[str, Any]) -> None:
    """Put a part's result in the place of its older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables.write_atomically(path, json.dumps({**read(path), part: result}, indent=1))


def render(results: dict[str, Any]) -> str:
    """Return a table for each part that was measured, with what made it."""
    sections = []
    for name, part in PARTS.items():
        if name in results:
            kept = results[name]
            sections += [f'### {part.title}', part.render(kept['result']), provenance(kept)]
    return '\n\n'.join(sections) or 'Nothing has been measured yet.'


def provenance(kept: dict[str, Any]) -> str:
    """Date, machine, versions and command of a part."""
    machine = kept['machine']
    where = f'{machine["date"]}, {machine["cpu"]}, {machine["cores"]} cores, {machine["system"]}'
    behind = ', '.join(f'{name} {version}' for name, version in kept['versions'].items())
    return f'{where}, load {machine["load"]} before the start; {behind}. Made by `{kept["command"]}`.'


@contextlib.contextmanager
def place(folder: Path | None, part: str) -> Iterator[Path]:
    """Where a part's commands run: an empty folder, which stays only where it was named."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix='tuning-', ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    (folder / part).mkdir(parents=True)
    yield (folder / part).absolute()


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='python benchmarks/tuning.py', description=__doc__, allow_abbrev=False)
    parser.add_argument('--only', nargs='+', metavar='PART', choices=PARTS, help=f'of {", ".join(PARTS)}')
    parser.add_argument('--repeats', type=int, default=3, help='of what two workers are timed by')
    parser.add_argument('--quick', action='store_true', help='a smoke run: little of everything, not kept')
    parser.add_argument('--docs', action='store_true', help='only write the tables of what is kept, measure nothing')
    parser.add_argument('--folder', type=Path, help='keep studies and consoles there, in a new folder a part')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where results are kept, part by part')
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write; 1 when a part failed, 2 on wrong input."""
    parser = make_parser()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f'--repeats: got {options.repeats}, admits 1 or more')
    # so that the commands under way are ended when this process is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    complete = True
    for name in [] if options.docs else dict.fromkeys(options.only or PARTS):
        complete &= measured(name, options)
    if not options.quick:
        tables.write_section(options.page, 'tuning', render(read(options.results)))
    return 0 if complete else 1


def measured(name: str, options: argparse.Namespace) -> bool:
    """Measure a part, print it and keep it; returns whether there was a result."""
    machine = tables.machine()

    def log(text: str) -> None:
        print(f'{name}: {tables.one_line(text)}', file=sys.stderr, flush=True)

    try:
        with place(options.folder, name) as folder:
            result = PARTS[name].measure(folder, options.repeats, options.quick, log)
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
    """The command that measures a part again."""
    repeats = ['--repeats', str(options.repeats)] if name == 'jobs' else []
    return shlex.join(['python', 'benchmarks/tuning.py', '--only', name, *repeats])


if __name__ == '__main__':
    sys.exit(main())
