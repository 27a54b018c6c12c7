"""The job runner: it measures, keeps results, skips kept ones, and writes tables into a page.

Every benchmark is a sequence of jobs. Benchmarks whose parts have different tables are declared as `Part`s.
"""

import argparse
import contextlib
import functools
import json
import queue
import re
import shlex
import signal
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.processes import Failed
from benchmarks.venvs import CACHE, PAGE, NotInstalled, prepare
from benchmarks.workers.measure import versions
from xagents.options.declaration import LARGEST_SEED
from xagents.system.locks import lock_file

Log = Callable[[str], None]
EMPTY = 'Nothing has been measured yet.'


def log(label: str, text: str) -> None:
    """Print a line about a job."""
    print(f'{label}: {tables.one_line(text)}', file=sys.stderr, flush=True)


def stop_on_sigterm() -> None:
    """Let SIGTERM raise `SystemExit`, so that the running process is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


# ---------------------------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True)
class Job:
    """One measurement.

    Args:
        label: its name on the console.
        measure: returns the result as JSON can hold it, or raises `Failed`.
        about: what is measured, for the function that keeps the result.
    """

    label: str
    measure: Callable[[], dict[str, Any]]
    about: Any = None


Outcome = dict[str, Any] | Failed


def parse_key(about: Any) -> str:
    """Return a key for a result: what it depends on, as JSON."""
    return json.dumps(about, sort_keys=True)


def run_all(jobs: Iterable[Job], n_parallel: int = 1) -> Iterator[tuple[Job, Outcome, dict[str, str]]]:
    """Run jobs, `n_parallel` in parallel; yield each with its result or failure, and the machine before its start.

    A single job at a time runs in this thread, and an iterator of jobs can depend on the results so far.
    """

    def outcome(job: Job) -> tuple[Job, Outcome, dict[str, str]]:
        machine = tables.machine()
        try:
            return job, job.measure(), machine
        except Failed as error:
            return job, error, machine

    if n_parallel == 1:
        yield from map(outcome, jobs)
        return
    waiting = list(jobs)
    remaining, done = iter(waiting), queue.SimpleQueue[Any]()

    def work() -> None:
        for job in remaining:
            try:
                done.put(outcome(job))
            except BaseException as error:
                done.put(error)

    # daemon threads: a stop of this process does not wait for them
    for _ in range(n_parallel):
        threading.Thread(target=work, daemon=True).start()
    for _ in waiting:
        found = done.get()
        if isinstance(found, BaseException):
            raise found
        yield found


def measure_all(
    jobs: Iterable[Job],
    shown: Callable[[dict[str, Any]], str],
    keep: Callable[[Job, dict[str, Any], dict[str, str]], None],
    n_parallel: int = 1,
) -> bool:
    """Run jobs, print a line about each, and keep the results; return whether all jobs have one.

    Args:
        jobs: what to run.
        shown: returns the text of a result for the console; no line is printed for an empty text.
        keep: gets the job, its result and the machine as soon as the result is there.
        n_parallel: number of parallel jobs.
    """
    complete = True
    for job, outcome, machine in run_all(jobs, n_parallel):
        if isinstance(outcome, Failed):
            complete = False
            log(job.label, str(outcome))
            continue
        if text := shown(outcome):
            log(job.label, text)
        keep(job, outcome, machine)
    return complete


# -------------------------------------------------------------------------------------------------------- kept results


def read(path: Path) -> dict[str, Any]:
    """Return the kept results of a file by name; none if there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, result: Any, *names: str) -> None:
    """Replace the result under some nested names. The file is read first: another process may have added to it."""
    with _locked(path):
        results = read(path)
        place = results
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = result
        tables.write_atomically(path, json.dumps(results, indent=1))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the kept results of a file of rows: JSON lines, or one JSON list; none if there is no file."""
    text = path.read_text() if path.exists() else ''
    return json.loads(text) if text.startswith('[') else [json.loads(line) for line in text.splitlines()]


def keep_row(path: Path, row: dict[str, Any], key: Callable[[dict[str, Any]], str]) -> None:
    """Add a row to a file. It replaces a row with the same key."""
    with _locked(path):
        rows = [*(kept for kept in read_rows(path) if key(kept) != key(row)), row]
        lines = [json.dumps(one) for one in rows]
        text = '\n'.join([*lines, '']) if path.suffix == '.jsonl' else json.dumps(rows, indent=1)
        tables.write_atomically(path, text)


def _locked(path: Path) -> contextlib.AbstractContextManager[Any]:
    """Let no other process change a file of results inside a `with` block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # a file of its own, because each write replaces the file of results
    return lock_file(path.with_name(f'{path.name}.lock'), wait=True) or contextlib.nullcontext()


def run_rows(
    options: argparse.Namespace,
    waiting: Callable[[], Iterable[Job]],
    key: Callable[[dict[str, Any]], str],
    row: Callable[[Job, dict[str, Any], dict[str, str]], dict[str, Any]],
    shown: Callable[[dict[str, Any]], str],
    render: Callable[[list[dict[str, Any]]], str],
) -> int:
    """Measure what has no kept row, keep it, and write the page.

    Args:
        options: the command line.
        waiting: returns all jobs; raises `Failed` if they cannot be run.
        key: returns what the result of a row depends on, also from what its job is about.
        row: makes the row of a job, its result and the machine.
        shown: returns the text of a result for the console.
        render: makes the section of the page from rows.

    Returns:
        1 if a job fails, else 0.
    """
    stop_on_sigterm()
    found: list[dict[str, Any]] = []

    def keep_result(job: Job, result: dict[str, Any], machine: dict[str, str]) -> None:
        found.append(row(job, result, machine))
        if not options.quick:
            keep_row(options.results, found[-1], key)

    complete = True
    if not options.docs:
        known = set() if options.quick else {key(kept) for kept in read_rows(options.results)}
        try:
            complete = measure_all((job for job in waiting() if key(job.about) not in known), shown, keep_result)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
    text = render(found if options.quick else read_rows(options.results))
    print(text)
    if not options.quick:
        tables.write_section(options.page, options.section, text)
    return 0 if complete else 1


# -------------------------------------------------------------------------------------------------------- command line


class WholeNames(argparse.HelpFormatter):
    """Breaks lines of help between words only, not at the hyphens of names that one copies."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(' '.join(text.split()), width, break_on_hyphens=False)


def make_parser(module: str, about: str | None, page: Path = PAGE, results: str = '') -> argparse.ArgumentParser:
    """Return a command line with the options that all benchmarks with kept results share.

    Args:
        module: of the benchmark, below `benchmarks`.
        about: the description.
        page: the default of `--page`.
        results: file name of the kept results; the section of the page has this name without its ending.
    """
    # errors show the usage, which would hide their line if it named all options
    parser = argparse.ArgumentParser(
        prog=f'python -m benchmarks.{module}',
        usage='%(prog)s [options]',
        description=about,
        allow_abbrev=False,
        formatter_class=WholeNames,
    )
    parser.add_argument(
        '--quick', action='store_true', help='measure little, once, to see whether it works; keep nothing'
    )
    parser.add_argument('--docs', action='store_true', help='measure nothing, only write the page from kept results')
    section = Path(results).stem
    parser.add_argument('--results', type=results_file, default=CACHE / results, help='file of kept results')
    page_type = functools.partial(page_with, section)
    parser.add_argument('--page', type=page_type, default=page, help='Markdown file with the markers')
    parser.set_defaults(section=section)
    return parser


def add_names(parser: argparse.ArgumentParser, flag: str, names: Iterable[str], **options: Any) -> None:
    """Add an option that takes some of these names."""
    text = f'some of {", ".join(names)}; all by default'
    parser.add_argument(flag, nargs='+', choices=list(names), help=text, **{'metavar': 'NAME', **options})


def positive(text: str) -> int:
    """Return a number above 0, for argparse."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'got {text}, expected an integer above 0')
    return int(text)


def seed(text: str) -> int:
    """Return a seed, for argparse."""
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f'got {text}, expected an integer from 0 to {LARGEST_SEED}')
    return int(text)


def existing_file(text: str) -> Path:
    """Return the path of a file, for argparse."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f'got {text}, expected an existing file')
    return Path(text)


def results_file(text: str) -> Path:
    """Return the path of a file of kept results, which may not exist yet, for argparse."""
    path = Path(text)
    try:
        (read_rows if path.suffix == '.jsonl' else read)(path)
    except (OSError, ValueError):
        raise argparse.ArgumentTypeError(f'got {text}, expected a JSON file of kept results or a new file') from None
    return path


def page_with(section: str, text: str) -> Path:
    """Return the path of a page with a section, for argparse; an empty name is not looked for."""
    page = existing_file(text)
    if section and section not in tables.sections(page.read_text(encoding='utf-8', errors='replace')):
        marker = f'<!-- benchmark {section} -->'
        raise argparse.ArgumentTypeError(f'got {text}, expected a page with {marker} and its end')
    return page


def add_peer(parser: argparse.ArgumentParser, library: str) -> None:
    """Add the options for the virtual environment of another library."""
    parser.add_argument('--python', type=existing_file, help=f'existing Python with {library}')
    parser.add_argument('--cache', type=Path, default=CACHE, help='folder of the virtual environments')


def find_peer(library: str, options: argparse.Namespace) -> Path:
    """Return the Python of another library.

    Raises:
        Failed: if the library does not install.
    """
    try:
        return (options.python or prepare(library, options.cache)).absolute()
    except NotInstalled as error:
        raise Failed(f'{library}: not installed: {error}') from None


# --------------------------------------------------------------------------------------------------------------- parts


@dataclass(frozen=True)
class Part:
    """A part of a benchmark with a table of its own.

    Args:
        title: heading of its table.
        measure: measures in a folder, with the options of the command line and a function that prints progress;
            returns what JSON can hold.
        render: makes Markdown from that.
        options: names of the options that `measure` uses.
    """

    title: str
    measure: Callable[[Path, argparse.Namespace, Log], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    options: tuple[str, ...] = ()


def make_parts_parser(
    module: str, about: str | None, parts: Mapping[str, Part], page: Path = PAGE, name: str = ''
) -> argparse.ArgumentParser:
    """Return the command line of a benchmark with parts; `name` is that of its section and of its file of results."""
    parser = make_parser(module, about, page, f'{name or module.split(".")[0]}.json')
    add_names(parser, '--only', parts, metavar='PART')
    parser.add_argument('--folder', type=Path, help='keep runs, studies and outputs in a new folder for each part')
    return parser


def run_parts(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, parts: Mapping[str, Part], packages: Sequence[str]
) -> int:
    """Measure parts, print and keep their results, write the page.

    Args:
        parser: from `make_parts_parser`.
        arguments: of the command line.
        parts: by name.
        packages: whose versions are kept with a result.

    Returns:
        1 if a part fails, else 0.
    """
    options = parser.parse_args(arguments)
    stop_on_sigterm()

    def measure(name: str) -> dict[str, Any]:
        with part_folder(options.folder, name) as folder:
            return parts[name].measure(folder, options, functools.partial(log, name))

    def keep_part(job: Job, result: dict[str, Any], machine: dict[str, str]) -> None:
        print(parts[job.label].render(result), flush=True)
        if not options.quick:
            command = command_of(job.label, parts[job.label], parser, options)
            about = {'machine': machine, 'versions': versions(*packages), 'command': command}
            keep(options.results, {'result': result, **about}, job.label)

    names = [] if options.docs else dict.fromkeys(options.only or parts)
    jobs = [Job(name, functools.partial(measure, name)) for name in names]
    complete = measure_all(jobs, lambda result: '', keep_part)
    if not options.quick:
        before = tables.sections(options.page.read_text()).get(options.section, '')
        tables.write_section(options.page, options.section, render_parts(parts, read(options.results), before))
    return 0 if complete else 1


@contextlib.contextmanager
def part_folder(folder: Path | None, part: str) -> Iterator[Path]:
    """Yield an empty folder for a part. It stays only below a folder of the user's."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix='benchmark-', ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    try:
        (folder / part).mkdir(parents=True)
    except FileExistsError:
        raise Failed(f'--folder: {folder / part} exists already') from None
    yield (folder / part).absolute()


def command_of(name: str, part: Part, parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """Return the command that measures a part: options that are not defaults, without paths of this machine."""
    words = [*parser.prog.split(), '--only', name]
    for option in part.options:
        value = getattr(options, option)
        if value != parser.get_default(option):
            words += [f'--{option.replace("_", "-")}', *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def parts_in(section: str) -> dict[str, str]:
    """Return the text below each heading of a section."""
    _, *split = re.split(r'^### (.+)$', section, flags=re.MULTILINE)
    return {title: text.strip() for title, text in zip(split[::2], split[1::2], strict=True)}


def render_parts(parts: Mapping[str, Part], results: dict[str, Any], before: str = '') -> str:
    """Return the table of each part, with the command that makes it.

    A part without a kept result keeps its table of `before`, the section of the page: it may come from another machine.
    """
    texts = parts_in(before)
    for name, part in parts.items():
        if name in results:
            texts[part.title] = f'{part.render(results[name]["result"])}\n\n{provenance(results[name])}'
    sections = [f'### {part.title}\n\n{texts[part.title]}' for part in parts.values() if part.title in texts]
    return '\n\n'.join(sections) or EMPTY


def provenance(kept: dict[str, Any]) -> str:
    """Return date, machine, versions and command of a result."""
    return f'{tables.where(kept["machine"])}; {tables.versions(kept["versions"])}. Made by `{kept["command"]}`.'
