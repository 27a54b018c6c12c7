"""Run random command lines and files through the command line in one process, up to the start of the work itself.

`python -m benchmarks.reliability.fuzz_worker EXAMPLES SEED` does so in the working directory.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.lines import Line, examples

SECONDS_A_LINE = 60.0


class Begun(BaseException):
    """Raised at the start of the work itself."""


class Hung(BaseException):
    """Raised if a line takes too long."""


@dataclass
class Tally:
    """Counts of the examples.

    Args:
        codes: number of examples by file type and end: exit code 0 or 2, or begun.
        problems: text, number and shortest example of each problem.
    """

    codes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, line: Line, end: str, problem: str) -> None:
        """Count an example."""
        name = f'{line.file_type} {end}'
        self.codes[name] = self.codes.get(name, 0) + 1
        if problem:
            known = self.problems.setdefault(shape(problem), {'count': 0, 'example': str(line), 'text': problem})
            known['count'] += 1
            if len(str(line)) < len(known['example']):
                known |= {'example': str(line), 'text': problem}

    def join(self, other: dict[str, Any]) -> None:
        """Add the counts of another process."""
        for name, count in other['codes'].items():
            self.codes[name] = self.codes.get(name, 0) + count
        for name, found in other['problems'].items():
            known = self.problems.setdefault(name, {**found, 'count': 0})
            known['count'] += found['count']
            if len(found['example']) < len(known['example']):
                known |= {'example': found['example'], 'text': found['text']}


def shape(problem: str) -> str:
    """Return a problem without quoted words and numbers, so that equal problems are counted together."""
    return re.sub(r"'[^']*'|\d+", '…', problem)[:100]


def run(line: Line) -> tuple[str, str]:
    """Run a line in this process and folder; return its end (0, 2, begun) and its problem."""
    from xagents import cli

    stdout, stderr = io.StringIO(), io.StringIO()
    end = '0'
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            cli.execute(line.words)
        except SystemExit as exit:
            end = str(exit.code or 0)
        except Begun:
            end = 'begun'
        except Hung:
            end = 'hung'
        except BaseException as error:  # any other exception is a problem
            end = f'{type(error).__name__}: {error}'
    return end, wrong(end, stdout.getvalue(), stderr.getvalue())


def wrong(end: str, stdout: str, stderr: str) -> str:
    """Return what is wrong with the end of a line; empty if nothing is."""
    lines = stderr.strip('\n').splitlines() or ['']
    if 'Traceback' in stderr or 'Traceback' in stdout:
        return f'traceback: {lines[-1]}'
    if end not in ('0', '2', 'begun'):
        return f'exit {end}: {lines[-1]}'
    # the last line of a message of several lines does not begin as a message
    if end == '2' and not re.match(r'xagents( [a-z]+)?: \S', lines[-1]):
        return f'the last line is no whole message: {lines[-1]!r}'
    return ''


@contextlib.contextmanager
def stopped_before_the_work(*earlier: str, seconds: float = SECONDS_A_LINE) -> Iterator[None]:
    """Make training, playing, evaluating, exporting, and starting processes raise `Begun`.

    Args:
        earlier: other functions that raise `Begun`, as `module.name`.
        seconds: largest time of a line.
    """
    from unittest import mock

    def begin(*arguments: Any, **options: Any) -> None:
        raise Begun

    def hang(*arguments: Any) -> None:
        raise Hung

    from xagents.base import BaseAgent

    targets = [(BaseAgent, name) for name in ('play', 'evaluate')]
    modules = (
        'xagents.runs.training.fit',
        'xagents.cli.grid.run_all',
        'xagents.tuning.processes.Workers.__init__',
        'xagents.export.write.export',
        *earlier,
    )
    before = signal.signal(signal.SIGALRM, hang)
    with contextlib.ExitStack() as stack:
        for owner, name in targets:
            stack.enter_context(mock.patch.object(owner, name, begin))
        for name in modules:
            stack.enter_context(mock.patch(name, begin))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def with_files(folder: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Write files into a folder, and remove all new files at the end."""
    before_files = set(folder.rglob('*'))
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        yield
    finally:
        for path in sorted(set(folder.rglob('*')) - before_files):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def count(number: int, seed: int, tally: Tally, *earlier: str) -> None:
    """Run random examples in the working directory and count their ends; for `earlier` see above."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    @seeded(seed)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(examples())
    def try_out(line: Line) -> None:
        with with_files(Path.cwd(), line.files), stopped_before_the_work(*earlier):
            end, problem = run(line)
        tally.add(line, end.split(':')[0], problem)
        if sum(tally.codes.values()) % 50 == 0:
            clean()

    try_out()


def clean() -> None:
    """Free the Keras models."""
    if 'keras' in sys.modules:
        sys.modules['keras'].backend.clear_session()
    gc.collect()


def main() -> None:
    """Run lines in this process and print the counts as JSON."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    tally = Tally()
    stdout = sys.stdout
    # lines may print
    with contextlib.redirect_stdout(io.StringIO()):
        count(int(sys.argv[1]), int(sys.argv[2]), tally)
    print(json.dumps(vars(tally)), file=stdout, flush=True)


if __name__ == '__main__':
    main()
