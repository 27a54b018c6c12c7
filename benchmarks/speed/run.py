"""The harness measures all libraries in turn, again and again, and writes the tables."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.speed import summary
from benchmarks.speed.cases import CASES, Case, Run, find_cases
from benchmarks.venvs import CACHE, PAGE, REPOSITORY, NotInstalled, prepare
from benchmarks.workers import xagents_worker
from benchmarks.workers.settings import AnySettings, Settings

THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
COMPILED = CACHE / 'compiled'  # what xagents keeps of compiled programs while it is measured
REACHED = re.compile(r'Reward achieved in ([\d,._ ]+) steps')


class Failed(Exception):
    """A measurement that gave no result; the message says why, in one line."""


def launch(command: Sequence[str], timeout: float, variables: dict[str, str] | None = None) -> tuple[str, float]:
    """Run a command in an empty folder and return its standard output and the seconds it took.

    Raises:
        Failed: when it fails or takes longer than `timeout` seconds; everything that it started is ended.
    """
    environment = {**os.environ, 'PYTHONPATH': str(REPOSITORY), 'CUDA_VISIBLE_DEVICES': '', 'JAX_PLATFORMS': 'cpu'}
    environment |= variables or {}
    with tempfile.TemporaryDirectory(prefix='benchmark-', ignore_cleanup_errors=True) as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f'no result in {timeout:.0f} s') from None
            raise
        seconds = time.perf_counter() - start
    if process.returncode:
        lines = (errors.strip() or output.strip() or 'no message').splitlines()
        raise Failed(f'exit code {process.returncode}: {lines[-1]}'.replace(str(REPOSITORY), '.'))
    return output, seconds


def last_line(output: str) -> dict[str, Any]:
    """Return a worker's result, the last line that it printed.

    Raises:
        Failed: where there is none.
    """
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise Failed(f'no result in its output: {output.strip()[-200:]!r}') from None


def measure(case: Case, run: Run, settings: AnySettings, python: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one library once.

    Raises:
        Failed: when there is no result.
    """
    target = 30 if options.quick else 250
    if case.task == 'target' and run.peer == 'xagents' and isinstance(settings, Settings):
        command = [str(python), '-m', 'xagents', *xagents_worker.command(settings, target)]
        if run.anew:
            shutil.rmtree(COMPILED, ignore_errors=True)
        output, seconds = launch(command, options.timeout, {'XAGENTS_CACHE': str(COMPILED)})
        reached = REACHED.search(output)
        if not reached:
            raise Failed('the target was not reached')
        return {'seconds': seconds, 'steps': int(re.sub(r'\D', '', reached[1]))}
    warmup, steps = case.quick if options.quick else (case.warmup, case.steps)
    job = {
        'task': case.task,
        'settings': dataclasses.asdict(settings),
        'warmup': warmup,
        'steps': steps,
        'target': target,
        'checkout': str(options.cleanrl.absolute()) if options.cleanrl else '',
    }
    command = [str(python), '-m', f'benchmarks.workers.{run.worker}', json.dumps(job)]
    # NumPy's threads, in every library alike; the workers set those of their own library
    threads = dict.fromkeys(THREADS, str(settings.threads)) if settings.threads and case.task != 'target' else {}
    output, seconds = launch(command, options.timeout, threads)
    result = last_line(output)
    if case.task == 'target':
        if not result['reached']:
            raise Failed('the target was not reached')
        result['seconds'] = seconds
    return result


def measure_case(case: Case, pythons: dict[str, Path | str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure a case: all its libraries in turn, `--repeats` times.

    Args:
        case: what to measure.
        pythons: each library's Python, or the reason why it has none.
        options: the command line's.

    Returns:
        `{label: {'results': [one dict or None a repeat], 'problem': str or None}}`.
    """
    outcome: dict[str, Any] = {run.label: {'results': [], 'problem': None} for run in case.runs}
    for repeat in range(options.repeats):
        for run in case.runs:
            row, python = outcome[run.label], pythons[run.peer]
            if isinstance(python, str):
                row['problem'] = f'not installed: {python}'
                continue
            result = None
            if repeat < (run.repeats or options.repeats) and not row['problem']:
                seed = case.settings.seed + repeat * case.seed_step
                settings = dataclasses.replace(case.settings, **run.settings, seed=seed)
                try:
                    result = measure(case, run, settings, python, options)
                except Failed as error:
                    row['problem'] = str(error)
                print(tables.progress(case, run, repeat, result, row['problem']), file=sys.stderr, flush=True)
            row['results'].append(result)
    return outcome


def find_pythons(cases: Sequence[Case], options: argparse.Namespace) -> dict[str, Path | str]:
    """Return the Python of each library that the cases need, or the reason why there is none."""
    pythons: dict[str, Path | str] = {}
    given = dict(pair.split('=', 1) for pair in options.python)
    for peer in dict.fromkeys(run.peer for case in cases for run in case.runs):
        if peer in given:
            pythons[peer] = Path(given[peer]).absolute()
        elif peer.startswith('cleanrl') and not options.cleanrl:
            pythons[peer] = 'needs a checkout: --cleanrl PATH'
        else:
            try:
                pythons[peer] = prepare(peer, options.cache)
            except NotInstalled as error:
                pythons[peer] = str(error)
    return pythons


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    peers = sorted({run.peer for case in CASES for run in case.runs})
    names = ', '.join(case.name for case in CASES)
    parser = argparse.ArgumentParser(prog='python -m benchmarks.speed.run', description=__doc__, allow_abbrev=False)
    parser.add_argument('--only', nargs='+', metavar='CASE', help=f'cases to measure: {names}')
    parser.add_argument('--memory', action='store_true', help='the long run that watches memory, instead of the others')
    parser.add_argument('--repeats', type=int, default=5, help='how often each library is measured')
    parser.add_argument('--quick', action='store_true', help='a smoke run: few steps, once, nothing written')
    parser.add_argument('--peers', nargs='+', choices=peers, help='measure these only')
    parser.add_argument('--cleanrl', type=Path, metavar='PATH', help='a checkout of CleanRL')
    parser.add_argument(
        '--python', nargs='+', default=[], metavar='PEER=PYTHON', help='run a library in an environment that exists'
    )
    parser.add_argument('--cache', type=Path, default=CACHE, help='where the environments are kept')
    parser.add_argument(
        '--docs', type=Path, nargs='*', default=None, help='files whose tables are rewritten (docs/benchmarks.md)'
    )
    parser.add_argument('--results', type=Path, help='where measurements are kept (CACHE/results.json)')
    parser.add_argument('--timeout', type=float, default=1800, help='seconds that one measurement may take')
    return parser


def shown_command(options: argparse.Namespace) -> str:
    """The command as a reader can type it: what chooses the measurements, without the paths of this machine."""
    words = ['python', '-m', 'benchmarks.speed.run']
    words += ['--only', *options.only] if options.only else []
    words += ['--memory'] if options.memory else ['--repeats', str(options.repeats)]
    words += ['--quick'] if options.quick else []
    words += ['--peers', *options.peers] if options.peers else []
    words += ['--cleanrl', 'PATH'] if options.cleanrl else []
    return shlex.join(words)


def keep(path: Path, case: Case, machine: dict[str, str], result: dict[str, Any]) -> None:
    """Put a case's measurements in the place of older ones of the same kind of machine; all others stay."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept.setdefault(tables.kind(machine), {})[case.name] = result
    tables.write_atomically(path, json.dumps(kept, indent=1))


def warn(machine: dict[str, str], options: argparse.Namespace) -> None:
    """Say what makes the numbers worth little."""
    if options.quick:
        print('a smoke run: few steps, a target of 30, each once; its numbers mean nothing', file=sys.stderr)
    with contextlib.suppress(ValueError):
        if float(machine['load']) > 0.5:
            print(f'load {machine["load"]}: other processes are at work, and slow what is measured', file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write them; 1 when xagents gave no result somewhere, 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f'--repeats: got {options.repeats}, admits 1 or more')
    if any('=' not in pair for pair in options.python):
        parser.error(f'--python: got {" ".join(options.python)}, admits PEER=PYTHON pairs')
    if options.cleanrl and not (options.cleanrl / 'cleanrl' / 'ppo.py').exists():
        parser.error(f'--cleanrl: got {options.cleanrl}, admits a checkout with cleanrl/ppo.py in it')
    try:
        cases = find_cases(options.only, options.memory)
    except ValueError as error:
        parser.error(str(error))
    if options.quick:
        options.repeats = 1
    options.repeats = 1 if options.memory else options.repeats
    if options.peers:
        cases = [dataclasses.replace(c, runs=tuple(r for r in c.runs if r.peer in options.peers)) for c in cases]
        cases = [case for case in cases if case.runs]
    if options.docs is None:
        options.docs = [] if options.quick else [PAGE]

    # so that the process under way is ended when this one is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine = tables.machine()
    warn(machine, options)
    pythons = find_pythons(cases, options)
    shown = shown_command(options)
    results_file = options.results or (None if options.quick else options.cache / 'results.json')
    complete = True
    for case in cases:
        outcome = measure_case(case, pythons, options)
        if results_file:
            keep(results_file, case, machine, {'machine': machine, 'command': shown, 'rows': outcome})
        text = tables.render(case, outcome, machine, shown)
        print(f'\n### {case.title}\n\n{text}', flush=True)
        for page in options.docs:
            tables.write_case(page, case, machine, text)
        if PAGE in options.docs:
            summary.write()
        ours = [outcome[run.label] for run in case.runs if run.peer == 'xagents']
        complete &= not any(row['problem'] for row in ours)
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
