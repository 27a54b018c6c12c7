"""How well agents learn: trains each case with several seeds, and writes the table. `python -m benchmarks.learning.run`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import read
from benchmarks.learning.cases import CASES, LearningCase, find_cases
from benchmarks.speed.run import THREADS
from benchmarks.venvs import CACHE, PAGE, REPOSITORY
from xagents import __version__
from xagents.factory.presets import SCORES
from xagents.system.orphans import FOLLOWS

EPISODES = 100
HEADING = ['', 'environment', 'steps', 'each seed', 'median', 'asked', 'goal', 'reached', 'minutes a seed']


@dataclass
class Training:
    """A process that trains one seed of a case in a run folder, which stays; what was begun there goes on."""

    case: LearningCase
    seed: int
    runs: Path
    episodes: int = EPISODES
    process: subprocess.Popen | None = None

    @property
    def folder(self) -> Path:
        """Its run folder; settings are in the name, so that others begin anew."""
        settings = json.dumps(settings_of(self.case), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        return (self.runs / f'{self.case.name}-{digest}-{self.seed}').absolute()

    def start(self, python: str) -> None:
        """Start it; it saves and ends when this process does, however that ends."""
        job = {name: getattr(self.case, name) for name in ('agent', 'env', 'steps', 'options')}
        job |= {'seed': self.seed, 'episodes': self.episodes, 'folder': str(self.folder)}
        self.runs.mkdir(parents=True, exist_ok=True)
        variables = {**os.environ, 'PYTHONPATH': str(REPOSITORY), **dict.fromkeys(THREADS, '1'), FOLLOWS: '1'}
        with self.file('output').open('w') as output, self.file('errors').open('w') as errors:
            self.process = subprocess.Popen(
                [python, '-m', 'benchmarks.workers.learning_worker', json.dumps(job)],
                cwd=self.runs,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def file(self, name: str) -> Path:
        """Where what it prints is kept."""
        return self.folder.with_name(f'{self.folder.name}.{name}')

    def result(self) -> dict[str, Any] | str | None:
        """What it found, one line about its failure, or None as long as it runs."""
        if self.process is None or self.process.poll() is None:
            return None
        output, errors = (self.file(name).read_text().strip() for name in ('output', 'errors'))
        last = (output or 'nothing').splitlines()[-1]
        if self.process.returncode:
            return f'exit code {self.process.returncode}: {(errors or last).splitlines()[-1]}'
        try:
            return json.loads(last)
        except json.JSONDecodeError:
            return f'no result in its output: {last}'


def train_all(waiting: list[Training], jobs: int, python: str) -> Iterator[tuple[Training, dict[str, Any] | str]]:
    """Run trainings, `jobs` at a time, and yield each with its result or the reason why there is none."""
    running: list[Training] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(waiting.pop(0))
            running[-1].start(python)
        time.sleep(0.2)
        for training in list(running):
            result = training.result()
            if result is not None:
                running.remove(training)
                yield training, result


def settings_of(case: LearningCase) -> dict[str, Any]:
    """What a result depends on, as JSON gives it back: results of other settings are not mixed with its own."""
    return json.loads(json.dumps({'env': case.env, 'steps': case.steps, 'options': case.options}))


def runs_of(case: LearningCase, results: dict[str, Any]) -> dict[str, Any]:
    """The kept results of a case by seed; none where its settings were others."""
    kept = results.get(case.name, {})
    return kept['runs'] if kept.get('settings') == settings_of(case) else {}


def keep(path: Path, case: LearningCase, seed: int, result: dict[str, Any] | None) -> None:
    """Add one result to the file, which another process may have added to meanwhile; None takes it out."""
    results = read(path)
    runs = {**runs_of(case, results), str(seed): result}
    runs = {number: run for number, run in runs.items() if run is not None}
    results[case.name] = {'settings': settings_of(case), 'runs': runs}
    tables.write_atomically(path, json.dumps(results, indent=1))


def write_scores(path: Path, results: dict[str, Any]) -> None:
    """Write what the tuned settings that ship were seen to reach, which `xagents presets` shows."""
    import yaml

    # what others have measured stays, where nobody has here, as long as the settings are the same
    before = (yaml.safe_load(path.read_text(encoding='utf-8')) or {}) if path.exists() else {}
    scores: dict[str, dict[str, Any]] = {}
    for case in CASES:
        runs, kept = runs_of(case, results), before.get(case.agent, {}).get(case.env, {})
        if case.digest and runs:
            kept = score(case, [runs[seed] for seed in sorted(runs, key=int)])
        if case.digest and kept.get('digest') == case.digest:
            scores.setdefault(case.agent, {})[case.env] = kept
    text = yaml.safe_dump(scores, sort_keys=False, default_flow_style=None, width=120)
    tables.write_atomically(
        path, f'# Written by benchmarks/learning/run.py of its kept results, never by hand.\n{text}'
    )


def score(case: LearningCase, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One preset's entry: see `xagents.factory.presets.Score`."""
    means = [run['mean'] for run in runs]
    return {
        'median': round(statistics.median(means), 2),
        'means': [round(mean, 2) for mean in means],
        'episodes': min(run.get('episodes', EPISODES) for run in runs),
        'date': max(run['date'] for run in runs),
        'version': runs[-1]['versions'].get('xagents', __version__),
        'digest': case.digest,
    }


def render(results: dict[str, Any], before: str = '') -> str:
    """The table of what is there, the commands below it, and where it was measured.

    A row that was there `before` stays, where nothing newer is kept and the case's settings are still those of its
    command: others may have measured it, elsewhere.
    """
    rows, commands, machines, behind = [], [], [], []
    told, about_before = taken_apart(before)
    for case in CASES:
        runs = runs_of(case, results)
        if not runs:
            if (settings := without_seed(case.command(1))) in told:
                cells, command = told[settings]
                rows.append(cells)
                commands.append(command)
            continue
        rows.append(row(case, runs))
        seeds = sorted(map(int, runs))
        others = f', and with --seed {", ".join(map(str, seeds[1:]))}' if seeds[1:] else ''
        commands.append(f'- {case.agent.upper()}, {rows[-1][1]}: `{case.command(seeds[0])}`{others}')
        for run in runs.values():
            machines.append(f'{run["date"]}, {run["cpu"]}, {run["cores"]} cores, {run["jobs"]} runs at a time')
            behind.append(', '.join(f'{name} {version}' for name, version in run['versions'].items()))
    if not commands:
        return 'Nothing has been measured yet.'
    made = 'Made by `python -m benchmarks.learning.run`, which trains what these commands train:'
    about = dict.fromkeys([*(f'- {text}' for text in (*machines, *behind)), *about_before])
    return tables.markdown(HEADING, rows, made, '', *commands, '', *about)


def taken_apart(section: str) -> tuple[dict[str, tuple[list[str], str]], list[str]]:
    """Take apart what `render` made: cells and line of each command, by it without its seed, and what stands below."""
    cells = [line[2:-2].split(' | ') for line in section.splitlines() if line.startswith('| ')]
    lines = [line for line in section.splitlines() if line.startswith('- ')]
    commands = [line for line in lines if '`xagents train ' in line]
    told = dict(zip(map(without_seed, commands), zip(cells[1:], commands, strict=True), strict=True))
    return told, [line for line in lines if line not in commands]


def without_seed(command: str) -> str:
    """Return a command, or a line that has one, from its first word to what stands before its seed."""
    return command[command.index('xagents train ') :].partition(' --seed ')[0]


def row(case: LearningCase, runs: dict[str, Any]) -> list[str]:
    """One case's cells."""
    means = [runs[seed]['mean'] for seed in sorted(runs, key=int)]
    median = statistics.median(means)
    return [
        case.agent.upper(),
        case.env + (f', {case.changed}' if case.changed else ''),
        tables.number(case.steps),
        ', '.join(tables.number(mean, 1) for mean in means),
        tables.number(median, 1),
        '' if case.floor is None else f'{case.floor:g}',
        '' if case.goal is None else f'{case.goal:g}' + (f' ({case.scored_on})' if case.scored_on else ''),
        reached(case, median),
        tables.number(statistics.median(run['seconds'] for run in runs.values()) / 60, 1),
    ]


def reached(case: LearningCase, median: float) -> str:
    """Which of the two marks the median reaches; either may be the higher one."""
    marks = {'asked': case.floor, 'goal': case.goal}
    return ', '.join(f'{name} {"yes" if median >= mark else "no"}' for name, mark in marks.items() if mark is not None)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.learning.run', description=__doc__, allow_abbrev=False)
    names = ', '.join(case.name for case in CASES if not case.listed)
    listed = ', '.join(case.name for case in CASES if case.listed)
    parser.add_argument('--only', nargs='+', metavar='CASE', help=f'cases to train: {names}; by name only: {listed}')
    parser.add_argument('--seeds', nargs='+', type=int, metavar='SEED', help='one run each (1 2 3)')
    parser.add_argument('--jobs', type=int, default=2, help='runs at a time')
    parser.add_argument('--again', action='store_true', help='first forget results and run folders of what is chosen')
    parser.add_argument(
        '--docs', action='store_true', help='only write table and scores of the kept results, train nothing'
    )
    parser.add_argument('--quick', action='store_true', help='a smoke run: few steps and episodes, one seed, not kept')
    parser.add_argument('--list', action='store_true', help='only print the commands of the cases')
    parser.add_argument('--python', default=sys.executable, help='the Python to train with (this one)')
    parser.add_argument(
        '--results', type=Path, default=CACHE / 'learning.json', help='where results are kept, run by run'
    )
    parser.add_argument(
        '--runs', type=Path, default=CACHE / 'learning', metavar='DIR', help='where run folders are kept, and go on'
    )
    parser.add_argument('--scores', type=Path, default=SCORES, help='the YAML file of the scores that ship')
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    return parser


def shortened(case: LearningCase) -> LearningCase:
    """A case for a smoke run: a few updates, to see whether it runs."""
    options = dict(case.options)
    if 'buffer_initial_size' in options:
        options['buffer_initial_size'] = min(options['buffer_initial_size'], 512)
    return replace(case, steps=1_024, options=options)


def write_page(options: argparse.Namespace) -> None:
    """Put the table of all kept results between its markers, and write the scores of the presets."""
    results = read(options.results)
    before = tables.sections(options.page.read_text()).get('learning', '')
    tables.write_section(options.page, 'learning', render(results, before))
    write_scores(options.scores, results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print, keep, write; 1 when a run failed, 2 on wrong input. What is kept is not trained again."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f'--jobs: got {options.jobs}, admits 1 or more')
    try:
        cases = find_cases(options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print('\n'.join(case.command((options.seeds or case.seeds)[0]) for case in cases))
        return 0
    if options.docs:
        write_page(options)
        print(render(read(options.results)))
        return 0
    with tempfile.TemporaryDirectory(prefix='learning-', ignore_cleanup_errors=True) as temporary:
        trainings = [
            Training(shortened(case), seed, Path(temporary), 5) if options.quick else Training(case, seed, options.runs)
            for case in cases
            for seed in (options.seeds or case.seeds)[: 1 if options.quick else None]
        ]
        return train(trainings, options)


def train(trainings: list[Training], options: argparse.Namespace) -> int:
    """Train what there is no result of; 1 when a run failed."""
    for training in trainings if options.again and not options.quick else ():
        keep(options.results, training.case, training.seed, None)
        shutil.rmtree(training.folder, ignore_errors=True)
    kept = {} if options.quick else read(options.results)
    waiting = [training for training in trainings if str(training.seed) not in runs_of(training.case, kept)]
    complete = True
    for training, result in train_all(waiting, options.jobs, options.python):
        case, seed = training.case, training.seed
        if isinstance(result, str):
            complete = False
            print(f'{case.name}, seed {seed}: {result}', file=sys.stderr, flush=True)
            continue
        minutes = result['seconds'] / 60
        print(f'{case.name}, seed {seed}: {result["mean"]:.1f} in {minutes:.1f} minutes', file=sys.stderr, flush=True)
        if not options.quick:
            versions = {'xagents': __version__, **result['versions']}
            machine = {name: text for name, text in tables.machine().items() if name in ('date', 'cpu', 'cores')}
            run = {**result, **machine, 'jobs': options.jobs, 'episodes': training.episodes, 'versions': versions}
            keep(options.results, case, seed, run)
            write_page(options)
    if not options.quick:
        print(render(read(options.results)))
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
