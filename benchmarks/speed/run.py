"""Measure the speed of xagents and other libraries in turn, with equal settings, and write the tables."""

import argparse
import contextlib
import dataclasses
import functools
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.processes import THREADS, Failed, last_line, launch, module
from benchmarks.speed import summary
from benchmarks.speed.cases import CASES, Case, Run, find_cases
from benchmarks.speed.tables import progress, render
from benchmarks.venvs import CACHE, PAGE, NotInstalled, prepare
from benchmarks.workers import xagents_worker
from benchmarks.workers.settings import AnySettings, Settings

COMPILED = CACHE / 'compiled'  # compiled programs of xagents
REACHED = re.compile(r'Reward achieved in ([\d,._ ]+) steps')


def measure(case: Case, run: Run, settings: AnySettings, python: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one library once.

    Raises:
        Failed: if there is no result.
    """
    target = 30 if options.quick else 250
    if case.task == 'target' and run.peer == 'xagents' and isinstance(settings, Settings):
        command = [str(python), '-m', 'xagents', *xagents_worker.command(settings, target)]
        if run.compiles:
            shutil.rmtree(COMPILED, ignore_errors=True)
        output, seconds = launch(command, options.timeout, {'XAGENTS_CACHE': str(COMPILED)})
        reached = REACHED.search(output)
        if not reached:
            raise Failed('the target was not reached')
        return {'seconds': seconds, 'steps': int(re.sub(r'\D', '', reached[1]))}
    warmup, steps = case.quick if options.quick else (case.warmup, case.steps)
    job = {'task': case.task, 'settings': dataclasses.asdict(settings), 'warmup': warmup, 'steps': steps}
    job |= {'target': target, 'checkout': str(options.cleanrl.absolute()) if options.cleanrl else ''}
    job |= {'options': run.options, 'gymnasium': run.gymnasium}
    # threads of NumPy, equal for all libraries; the workers set those of their own library
    threads = dict.fromkeys(THREADS, str(settings.threads)) if settings.threads and case.task != 'target' else {}
    output, seconds = launch(module(f'workers.{run.worker}', job, python), options.timeout, threads)
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
        pythons: the Python of each library, or the reason why there is none.
        options: the command line.

    Returns:
        `{label: {'results': [one dict or None for each repeat], 'problem': str or None}}`.
    """
    rows: dict[str, Any] = {run.label: {'results': [], 'problem': None} for run in case.runs}

    def waiting() -> Iterator[Job]:
        for repeat in range(options.repeats):
            for run in case.runs:
                row, python = rows[run.label], pythons[run.peer]
                if isinstance(python, str):
                    row['problem'] = f'not installed: {python}'
                elif row['problem'] or repeat >= (run.repeats or options.repeats):
                    row['results'].append(None)
                else:
                    seed = case.settings.seed + repeat * case.seed_step
                    settings = dataclasses.replace(case.settings, **run.settings, seed=seed)
                    call = functools.partial(measure, case, run, settings, python, options)
                    yield Job(f'{case.name} {repeat + 1}: {run.label}', call, run.label)

    for job, result, _ in jobs.run_all(waiting()):
        failed = isinstance(result, Failed)
        rows[job.about]['results'].append(None if failed else result)
        rows[job.about]['problem'] = str(result) if failed else None
        jobs.log(job.label, str(result) if failed else progress(case, result))
    return rows


def find_pythons(cases: Sequence[Case], options: argparse.Namespace) -> dict[str, Path | str]:
    """Return the Python of each library of the cases, or the reason why there is none."""
    pythons: dict[str, Path | str] = {}
    given = dict(options.python)
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


def peer_and_python(text: str) -> tuple[str, str]:
    """Split a pair, for argparse."""
    peer, equals, python = text.partition('=')
    if not equals:
        raise argparse.ArgumentTypeError(f'got {text}, expected PEER=PYTHON')
    return peer, python


def add_python(parser: argparse.ArgumentParser) -> None:
    """Add the options for virtual environments of other libraries."""
    text = 'use an existing Python for a library'
    parser.add_argument('--python', nargs='+', default=[], type=peer_and_python, metavar='PEER=PYTHON', help=text)
    parser.add_argument('--cache', type=Path, default=CACHE, help='folder of the virtual environments')


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    peers = sorted({run.peer for case in CASES for run in case.runs})
    names = ', '.join(case.name for case in CASES)
    parser = argparse.ArgumentParser(prog='python -m benchmarks.speed.run', description=__doc__, allow_abbrev=False)
    parser.add_argument('--only', nargs='+', metavar='CASE', help=f'cases, by name or beginning of a name: {names}')
    parser.add_argument('--memory', action='store_true', help='measure resident memory in a long run, nothing else')
    parser.add_argument('--repeats', type=jobs.positive, default=5, help='number of measurements of each library')
    parser.add_argument(
        '--quick', action='store_true', help='measure few steps once, to see whether it works; write nothing'
    )
    parser.add_argument('--peers', nargs='+', choices=peers, help='measure only these libraries')
    parser.add_argument('--cleanrl', type=Path, metavar='PATH', help='checkout of CleanRL')
    add_python(parser)
    parser.add_argument('--docs', type=Path, nargs='*', help='pages that get the tables (docs/benchmarks.md)')
    parser.add_argument('--results', type=Path, help='file of kept results (CACHE/results.json)')
    parser.add_argument('--timeout', type=float, default=1800, help='largest number of seconds of a measurement')
    return parser


def command_of(options: argparse.Namespace) -> str:
    """Return the command that repeats the measurement, without paths of this machine."""
    words = ['python', '-m', 'benchmarks.speed.run']
    words += ['--only', *options.only] if options.only else []
    words += ['--memory'] if options.memory else ['--repeats', str(options.repeats)]
    words += ['--quick'] if options.quick else []
    words += ['--peers', *options.peers] if options.peers else []
    words += ['--cleanrl', 'PATH'] if options.cleanrl else []
    return shlex.join(words)


def warn(machine: dict[str, str], options: argparse.Namespace) -> None:
    """Print why the numbers of this call are not reliable, if so."""
    if options.quick:
        print('--quick: few steps, a target of 30, each once; the numbers mean nothing', file=sys.stderr)
    with contextlib.suppress(ValueError):
        if float(machine['load']) > 0.5:
            print(f'load {machine["load"]}: other processes slow the measurement', file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the tables. Return 1 if xagents has no result in a case; exit with 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.cleanrl and not (options.cleanrl / 'cleanrl' / 'ppo.py').exists():
        parser.error(f'--cleanrl: got {options.cleanrl}, expected a checkout with cleanrl/ppo.py')
    try:
        cases = find_cases(options.only, options.memory)
    except ValueError as error:
        parser.error(str(error))
    options.repeats = 1 if options.quick or options.memory else options.repeats
    if options.peers:
        cases = [dataclasses.replace(c, runs=tuple(r for r in c.runs if r.peer in options.peers)) for c in cases]
        cases = [case for case in cases if case.runs]
    if options.docs is None:
        options.docs = [] if options.quick else [PAGE]

    jobs.stop_on_sigterm()
    machine = tables.machine()
    warn(machine, options)
    pythons = find_pythons(cases, options)
    command = command_of(options)
    results_file = options.results or (None if options.quick else options.cache / 'results.json')
    complete = True
    for case in cases:
        rows = measure_case(case, pythons, options)
        if results_file:
            kept = {'machine': machine, 'command': command, 'rows': rows}
            jobs.keep(results_file, kept, tables.machine_type(machine), case.name)
        text = render(case, rows, machine, command)
        print(f'\n### {case.title}\n\n{text}', flush=True)
        for page in options.docs:
            tables.write_for_machine(page, case.name, case.title, machine, text)
        if PAGE in options.docs:
            summary.write()
        complete &= not any(rows[run.label]['problem'] for run in case.runs if run.peer == 'xagents')
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
