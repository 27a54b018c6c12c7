"""Run random command lines, .cfg and .yaml files through the command line, some hundreds in each process.

`python -m benchmarks.reliability.fuzz EXAMPLES SEED` is the worker, which stops lines at the start of the work itself.
"""

import argparse
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

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, run_to_end, running
from benchmarks.reliability.lines import Line, examples
from benchmarks.reliability.runs import resume
from benchmarks.venvs import XAGENTS

EXAMPLES = 10_000
# examples in one process; a new process frees the memory that builds up
CHUNK = 500
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
        found = {shape(problem): {'count': 1, 'example': str(line), 'text': problem}} if problem else {}
        self.join({'codes': {f'{line.file_type} {end}': 1}, 'problems': found})

    def join(self, other: dict[str, Any]) -> None:
        """Add the counts of another process."""
        for name, count in other['codes'].items():
            self.codes[name] = self.codes.get(name, 0) + count
        for name, found in other['problems'].items():
            known = self.problems.setdefault(name, {**found, 'count': 0})
            known['count'] += found['count']
            if len(found['example']) < len(known['example']):
                known |= {'example': found['example'], 'text': found['text']}


def make_files(folder: Path, trained: bool = True) -> None:
    """Make the files that lines can name: whole and damaged runs, weights, a history, a group.

    Args:
        folder: gets the files.
        trained: whether to train a run, which takes some seconds, or to write only its settings.

    Raises:
        Failed: if the training fails.
    """
    run_dir = folder / 'run'
    if trained:
        line = 'train ppo --env CartPole-v1 --max-steps 600 --n-envs 4 --n-steps 16 --seed 1 --final-episodes 0'
        words = f'{line} --log-format json --checkpoints w.tf --run-dir run'.split()
        run_to_end([*XAGENTS, *words], folder)
        run_to_end([*resume(Path('run')), '--max-steps', '700'], folder)
        shutil.copy(run_dir / 'history.parquet', folder / 'h.parquet')
        for error in folder.glob('*.err'):
            error.unlink()
    else:
        run_dir.mkdir()
        (run_dir / 'config.yaml').write_text('agent: ppo\nenv: CartPole-v1\nmax-steps: 600\n')
    for name in ('torn', 'foreign'):
        shutil.copytree(run_dir, folder / name, symlinks=True)
    for path in (folder / 'torn').rglob('*'):
        if path.is_file() and path.suffix in ('.npz', '.json', '.parquet'):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for path in (folder / 'foreign').rglob('*.json'):
        path.write_text('{"a": 1}')
    for name in ('bare', 'group', 'empty'):
        (folder / name).mkdir()
    shutil.copy(run_dir / 'config.yaml', folder / 'bare')
    (folder / 'group' / 'group.yaml').write_text('agent: ppo\nenv: CartPole-v1\nmax-steps: 600\nseed: [1, 2]\n')
    shutil.copytree(run_dir, folder / 'group' / 'seed=1', symlinks=True)
    (folder / 'text.txt').write_text('no network, no run\n')


def measure_fuzz(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Run random lines, some hundreds in each process.

    Returns:
        The numbers of their ends, and the problems.

    Raises:
        Failed: if a process dies.
    """
    number = options.examples or (200 if options.quick else EXAMPLES)
    tally = Tally()
    place = folder / 'files'
    place.mkdir()
    make_files(place)
    for begin in range(0, number, CHUNK):
        own = folder / f'from-{begin}'
        shutil.copytree(place, own, symlinks=True)
        seed = options.seed + begin
        count = min(CHUNK, number - begin)
        command = [sys.executable, '-m', 'benchmarks.reliability.fuzz', str(count), str(seed)]
        with running(command, own) as process:
            if process.wait(options.timeout) != 0:
                raise Failed(f'seed {seed}: {process.problem}')
        found = process.lines[-1][1]
        for name in found['problems'].keys() - tally.problems.keys():
            log(f'seed {seed}: {found["problems"][name]["text"]}: {found["problems"][name]["example"]}')
        tally.join(found)
        shutil.rmtree(own)
        log(f'{sum(tally.codes.values())} of {number}: {tally.codes}; {len(tally.problems)} problems')
    return {'codes': tally.codes, 'problems': tally.problems}


def render_fuzz(result: dict[str, Any]) -> str:
    """Return the table of how lines ended, with problems below it."""
    ends = {'0': 'exit 0', 'begun': 'all checks passed', '2': 'exit 2, one line'}
    kinds = {'line': 'command lines', 'cfg': '.cfg files', 'yaml': '.yaml files'}
    others = sorted({name.partition(' ')[2] for name in result['codes']} - ends.keys())
    rows = []
    for kind, label in {**kinds, '': 'all'}.items():
        counts = [
            sum(count for name, count in result['codes'].items() if name.startswith(kind) and name.endswith(f' {end}'))
            for end in (*ends, *others)
        ]
        rows.append([label, *counts, sum(counts)])
    problems = [
        f'{found["count"]} times: {found["text"]}: `{found["example"]}`'
        for found in sorted(result['problems'].values(), key=lambda found: -found['count'])
    ]
    wrong = sum(found['count'] for found in result['problems'].values())
    note = f'Tracebacks, other exit codes and messages of more than one line: {wrong}.'
    heading = ['', *ends.values(), *others, 'all']
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))


# -------------------------------------------------------------------------------------------------------------- worker


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

    functions = (
        'runs.training.fit',
        'cli.grid.run_all',
        'processes.process_pool.ProcessPool.__init__',
        'export.write.export',
    )
    before = signal.signal(signal.SIGALRM, hang)
    with contextlib.ExitStack() as stack:
        for name in ('play', 'evaluate'):
            stack.enter_context(mock.patch.object(BaseAgent, name, begin))
        for name in (*(f'xagents.{function}' for function in functions), *earlier):
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

    unchecked: dict[str, Any] = {'suppress_health_check': list(HealthCheck)}

    @seeded(seed)
    @settings(max_examples=number, database=None, deadline=None, phases=[Phase.generate], **unchecked)
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
