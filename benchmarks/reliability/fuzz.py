"""Run random command lines, .cfg and .yaml files through the command line, some hundreds in each process."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, run_to_end, running
from benchmarks.reliability.fuzz_worker import Tally
from benchmarks.reliability.runs import resume
from benchmarks.venvs import XAGENTS

EXAMPLES = 10_000
# examples in one process; a new process frees the memory that builds up
CHUNK = 500


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
        command = [sys.executable, '-m', 'benchmarks.reliability.fuzz_worker', str(count), str(seed)]
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
