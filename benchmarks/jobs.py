"""Benchmarks of several parts: each is measured by itself, kept beside the others, and shown on a page with them."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.speed.run import Failed
from benchmarks.venvs import CACHE, PAGE
from benchmarks.workers.measure import versions

Log = Callable[[str], None]
PROGRAMS = {name: f'benchmarks.{name}.run' for name in ('tuning', 'reliability', 'explorers')}
PROGRAMS |= {'hindsight': 'benchmarks.learning.hindsight', 'populations': 'benchmarks.tuning.populations'}


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
    measure: Callable[[Path, argparse.Namespace, Log], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    options: tuple[str, ...] = ()


def make_parser(name: str, about: str | None, parts: Mapping[str, Part]) -> argparse.ArgumentParser:
    """Return a command line with what all of these benchmarks have.

    Args:
        name: of the script, and of its section of the page.
        about: the help's first line.
        parts: that `--only` chooses from.
    """
    parser = argparse.ArgumentParser(prog=f'python -m {PROGRAMS[name]}', description=about, allow_abbrev=False)
    parser.add_argument('--only', nargs='+', metavar='PART', choices=parts, help=f'of {", ".join(parts)}')
    parser.add_argument('--quick', action='store_true', help='a smoke run: little of everything, not kept')
    parser.add_argument('--docs', action='store_true', help='only write the tables of what is kept, measure nothing')
    parser.add_argument('--folder', type=Path, help='keep runs, studies and consoles there, in a new folder a part')
    parser.add_argument(
        '--results', type=Path, default=CACHE / f'{name}.json', help='where results are kept, part by part'
    )
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    parser.set_defaults(name=name)
    return parser


def run(
    parts: Mapping[str, Part], parser: argparse.ArgumentParser, options: argparse.Namespace, packages: Sequence[str]
) -> int:
    """Measure, print, keep, write.

    Args:
        parts: by name.
        parser: of `make_parser`.
        options: that it made of the command line.
        packages: whose versions are kept with a result.

    Returns:
        1 where a part failed, else 0.
    """
    # so that what is under way is ended when this process is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    complete = True
    for name in [] if options.docs else dict.fromkeys(options.only or parts):
        complete &= _measured(name, parts[name], parser, options, packages)
    if not options.quick:
        before = tables.sections(options.page.read_text()).get(options.name, '')
        tables.write_section(options.page, options.name, render(parts, read(options.results), before))
    return 0 if complete else 1


def _measured(
    name: str, part: Part, parser: argparse.ArgumentParser, options: argparse.Namespace, packages: Sequence[str]
) -> bool:
    """Measure a part, print it and keep it; returns whether there was a result."""
    machine = tables.machine()

    def log(text: str) -> None:
        print(f'{name}: {tables.one_line(text)}', file=sys.stderr, flush=True)

    try:
        with _place(options.folder, name) as folder:
            result = part.measure(folder, options, log)
    except Failed as error:
        log(str(error))
        return False
    print(part.render(result), flush=True)
    if not options.quick:
        command = _command(name, part, parser, options)
        about = {'machine': machine, 'versions': versions(*packages), 'command': command}
        keep(options.results, name, {'result': result, **about})
    return True


@contextlib.contextmanager
def _place(folder: Path | None, part: str) -> Iterator[Path]:
    """Where a part's commands run: an empty folder, which stays only where it was named."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix='benchmark-', ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    try:
        (folder / part).mkdir(parents=True)
    except FileExistsError:
        raise Failed(f'{folder / part} is there already: choose another --folder') from None
    yield (folder / part).absolute()


def _command(name: str, part: Part, parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command that measures a part again: what differs from the defaults, without paths of this machine."""
    words = [*parser.prog.split(), '--only', name]
    for option in part.options:
        value = getattr(options, option)
        if value != parser.get_default(option):
            words += [f'--{option.replace("_", "-")}', *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def read(path: Path) -> dict[str, Any]:
    """All kept results by part; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, part: str, result: dict[str, Any]) -> None:
    """Put a part's result in the place of its older one."""
    tables.write_atomically(path, json.dumps({**read(path), part: result}, indent=1))


def render(parts: Mapping[str, Part], results: dict[str, Any], before: str = '') -> str:
    """Return a table for each part that was measured, with what made it.

    What was there `before` of a part stays where no result of it is kept: others may have measured it, elsewhere.
    """
    _, *split = re.split(r'^### (.+)$', before, flags=re.MULTILINE)
    there = dict(zip(split[::2], split[1::2], strict=True))
    sections = []
    for name, part in parts.items():
        if name in results:
            kept = results[name]
            sections += [f'### {part.title}', part.render(kept['result']), _provenance(kept)]
        elif part.title in there:
            sections += [f'### {part.title}', there[part.title].strip()]
    return '\n\n'.join(sections) or 'Nothing has been measured yet.'


def _provenance(kept: dict[str, Any]) -> str:
    """Date, machine, versions and command of a part."""
    behind = ', '.join(f'{name} {version}' for name, version in kept['versions'].items())
    return f'{tables.where(kept["machine"])}; {behind}. Made by `{kept["command"]}`.'
