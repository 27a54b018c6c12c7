"""Random command lines, .cfg and .yaml files through the real command line, up to where the work itself begins.

`python -m benchmarks.reliability_fuzz EXAMPLES SEED` does so in its own process, in the folder where it is called.
"""

from __future__ import annotations

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

from benchmarks.harness import Failed
from benchmarks.parts import Log
from benchmarks.reliability_lines import Line, examples
from benchmarks.reliability_runs import XAGENTS, resume, to_end
from benchmarks.reliability_runs import running as under_way

EXAMPLES = 10_000
# of one process: whatever builds up in it is gone then
CHUNK = 500
SECONDS_A_LINE = 60.0


class Begun(BaseException):
    """The work itself was about to begin."""


class Hung(BaseException):
    """A line took too long."""


@dataclass
class Tally:
    """What became of the examples.

    Args:
        codes: how many ended with 0 or 2, or got as far as to begin, by kind and end.
        problems: what was wrong, and how often, with the shortest example.
    """

    codes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, line: Line, end: str, problem: str) -> None:
        """Count an example."""
        name = f'{line.kind} {end}'
        self.codes[name] = self.codes.get(name, 0) + 1
        if problem:
            known = self.problems.setdefault(shape(problem), {'count': 0, 'example': str(line), 'said': problem})
            known['count'] += 1
            if len(str(line)) < len(known['example']):
                known |= {'example': str(line), 'said': problem}

    def join(self, other: dict[str, Any]) -> None:
        """Take over what another process has counted."""
        for name, count in other['codes'].items():
            self.codes[name] = self.codes.get(name, 0) + count
        for name, found in other['problems'].items():
            known = self.problems.setdefault(name, {**found, 'count': 0})
            known['count'] += found['count']
            if len(found['example']) < len(known['example']):
                known |= {'example': found['example'], 'said': found['said']}


def shape(problem: str) -> str:
    """Return a problem without what differs from line to line, so that equal ones are counted together."""
    return re.sub(r"'[^']*'|\d+", '…', problem)[:100]


# ------------------------------------------------------------------------------------------------------------ one line


def run(line: Line) -> tuple[str, str]:
    """Run a line in this process, where its files stand; returns its end (0, 2, begun) and what is wrong with it."""
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
        except BaseException as error:  # whatever comes through is a problem
            end = f'{type(error).__name__}: {error}'
    return end, wrong(end, stdout.getvalue(), stderr.getvalue())


def wrong(end: str, stdout: str, stderr: str) -> str:
    """Return what is wrong with how a line ended; nothing where all is well."""
    said = stderr.strip('\n').splitlines() or ['']
    if 'Traceback' in stderr or 'Traceback' in stdout:
        return f'traceback: {said[-1]}'
    if end not in ('0', '2', 'begun'):
        return f'exit {end}: {said[-1]}'
    # a message of several lines ends with one that does not begin as a message does
    if end == '2' and not re.match(r'xagents( [a-z]+)?: \S', said[-1]):
        return f'its last line is no whole message: {said[-1]!r}'
    return ''


@contextlib.contextmanager
def stopped_before_the_work(*earlier: str, seconds: float = SECONDS_A_LINE) -> Iterator[None]:
    """Let training, playing, evaluating, exporting, and whatever starts processes raise `Begun` instead.

    Args:
        earlier: functions that raise it, too, as `module.name`.
        seconds: that a line may take.
    """
    from unittest import mock

    def begin(*arguments: Any, **options: Any) -> None:
        raise Begun

    def hang(*arguments: Any) -> None:
        raise Hung

    from xagents.base import BaseAgent

    targets = [(BaseAgent, name) for name in ('fit', 'play', 'evaluate')]
    modules = (
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
def furnished(folder: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Let files stand in a folder, and take away what is new in it at the end."""
    there = set(folder.rglob('*'))
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        yield
    finally:
        for path in sorted(set(folder.rglob('*')) - there):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def count(number: int, seed: int, tally: Tally, *earlier: str) -> None:
    """Run so many random examples in the present folder, and count what becomes of them; `earlier` ends them sooner."""
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
        with furnished(Path.cwd(), line.files), stopped_before_the_work(*earlier):
            end, problem = run(line)
        tally.add(line, end.split(':')[0], problem)
        if sum(tally.codes.values()) % 50 == 0:
            clean()

    try_out()


def clean() -> None:
    """Let Keras forget the models that were made."""
    if 'keras' in sys.modules:
        sys.modules['keras'].backend.clear_session()
    gc.collect()


# ------------------------------------------------------------------------------------------------------- all processes


def furnish(folder: Path, trained: bool = True) -> None:
    """Make what lines can name: runs, whole and damaged, weights, a history, a group.

    Args:
        folder: where.
        trained: make a real run, which takes some seconds; else there are settings without a checkpoint.

    Raises:
        Failed: where the training fails.
    """
    run_dir = folder / 'run'
    if trained:
        command = [
            *XAGENTS,
            'train',
            'ppo',
            '--env',
            'CartPole-v1',
            '--max-steps',
            '600',
            '--n-envs',
            '4',
            '--seed',
            '1',
        ]
        command += ['--n-steps', '16', '--final-episodes', '0', '--log-format', 'json', '--checkpoints', 'w.tf']
        to_end([*command, '--run-dir', 'run'], folder)
        to_end([*resume(Path('run')), '--max-steps', '700'], folder)
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
    """Try random lines out, some hundreds in a process.

    Returns:
        What became of them, and what was wrong.

    Raises:
        Failed: where a process dies.
    """
    number = options.examples or (200 if options.quick else EXAMPLES)
    tally = Tally()
    place = folder / 'files'
    place.mkdir()
    furnish(place)
    for begin in range(0, number, CHUNK):
        own = folder / f'from-{begin}'
        shutil.copytree(place, own, symlinks=True)
        seed = options.seed + begin
        command = [sys.executable, '-m', 'benchmarks.reliability_fuzz', str(min(CHUNK, number - begin)), str(seed)]
        with under_way(command, own) as process:
            if process.wait(options.timeout) != 0:
                raise Failed(f'seed {seed}: {process.problem}')
        found = process.lines[-1][1]
        for name in found['problems'].keys() - tally.problems.keys():
            log(f'seed {seed}: {found["problems"][name]["said"]}: {found["problems"][name]["example"]}')
        tally.join(found)
        shutil.rmtree(own)
        log(f'{sum(tally.codes.values())} of {number}: {tally.codes}; {len(tally.problems)} problems')
    return {'codes': tally.codes, 'problems': tally.problems}


def render_fuzz(result: dict[str, Any]) -> str:
    """The table of how lines ended, with what was wrong below it."""
    ends = {'0': 'exit 0', 'begun': 'all checks passed', '2': 'exit 2, one line'}
    kinds = {'line': 'command lines', 'cfg': '.cfg files', 'yaml': '.yaml files'}
    others = sorted({name.partition(' ')[2] for name in result['codes']} - ends.keys())
    lines = [
        '|  | ' + ' | '.join([*ends.values(), *others, 'all']) + ' |',
        '|---' * (len(ends) + len(others) + 2) + '|',
    ]
    for kind, label in {**kinds, '': 'all'}.items():
        counts = [
            sum(count for name, count in result['codes'].items() if name.startswith(kind) and name.endswith(f' {end}'))
            for end in (*ends, *others)
        ]
        lines.append(f'| {label} | ' + ' | '.join(map(str, [*counts, sum(counts)])) + ' |')
    problems = [
        f'- {found["count"]} times: {found["said"]}: `{found["example"]}`'
        for found in sorted(result['problems'].values(), key=lambda found: -found['count'])
    ]
    wrong = sum(found['count'] for found in result['problems'].values())
    lines += ['', f'Tracebacks, other exit codes and messages of more than one line: {wrong}.']
    return '\n'.join([*lines, '', *problems] if problems else lines)


def main() -> None:
    """Try lines out in this process and print what became of them as JSON."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    tally = Tally()
    stdout = sys.stdout
    # what the lines start might print beside them
    with contextlib.redirect_stdout(io.StringIO()):
        count(int(sys.argv[1]), int(sys.argv[2]), tally)
    print(json.dumps(vars(tally)), file=stdout, flush=True)


if __name__ == '__main__':
    main()
