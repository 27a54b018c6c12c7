"""Train agents with tuned settings and several seeds, and write their scores: `python -m benchmarks.learning.run`."""

import argparse
import functools
import hashlib
import json
import math
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Job, find_peer, read
from benchmarks.learning.cases import CASES, CAUSES, LearningCase, describe_published_run, find_cases
from benchmarks.offline.cases import DataSet
from benchmarks.offline.run import describe, make
from benchmarks.processes import THREADS, Failed, Process, last_line, module
from benchmarks.venvs import CACHE, REPOSITORY
from benchmarks.workers.peer_worker import differences
from xagents import __version__
from xagents.factory.presets import PUBLISHED, SCORES
from xagents.processes.parent_exit import FOLLOW_PARENT_VARIABLE
from xagents.reports.reference_scores import known_bounds

EPISODES = 100
HEADING = [
    *('', 'environment', 'steps', 'each seed', 'median', 'sampled', 'peer here', 'required', 'published', 'reached'),
    'minutes a seed',
    'last run',
]
PEER = 'Stable-Baselines3'
# before the seeds of the peer, after the command of a row
PEER_SEEDS = '; peer: --seed '
# a score with greedy actions, and with sampled actions
PEER_SCORES = re.compile(r'(-?\d[\d ]*\.\d+)(?: \((-?\d[\d ]*\.\d+)\))?')
# at the start of a line that names a machine
DATE = re.compile(r'- (\d{4}-\d\d-\d\d), ')
# in the place of a number that one seed of a row lacks
MISSING = '–'
GAPS = (
    'Medians below the published score by more than a tenth of it, or of its distance from random actions. p is the '
    'probability that the peer is better in at least as many pairs, if the seeds of both libraries have one '
    'distribution (one-sided Mann-Whitney test). Some rows got more seeds after their first results were known; p '
    'ignores that.'
)
# the peer counts as better up to this probability
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Training:
    """One seed of a case. It trains in a run directory that is kept; a training that was stopped resumes there.

    With `peer`, Stable-Baselines3 trains with the same settings, and its saves are in that directory until it ends.
    """

    case: LearningCase
    seed: int
    runs: Path
    episodes: int = EPISODES
    peer: bool = False

    @property
    def label(self) -> str:
        """What is trained, for the console."""
        return f'{self.case.name}, seed {self.seed}' + (f', {PEER}' if self.peer else '')

    @property
    def folder(self) -> Path:
        """Its run directory. The name depends on the settings, so that other settings start a new run."""
        settings = json.dumps(settings_of(self.case), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        name = '-'.join([self.case.name, digest, *(['peer'] if self.peer else []), str(self.seed)])
        return (self.runs / name).absolute()

    def start(self, python: str = sys.executable) -> Process:
        """Start the process. It ends when this process ends, even if that is killed; ours saves before that."""
        job = {name: getattr(self.case, name) for name in ('agent', 'env', 'steps', 'source')}
        job['options'] = options = dict(self.case.options)
        if 'model' in options:
            options['model'] = str(REPOSITORY / options['model'])
        job |= {'seed': self.seed, 'episodes': self.episodes, 'folder': str(self.folder)}
        self.runs.mkdir(parents=True, exist_ok=True)
        variables = {**dict.fromkeys(THREADS, '1'), FOLLOW_PARENT_VARIABLE: '1'}
        command = module(f'workers.{"peer" if self.peer else "learning"}_worker', job, python)
        return Process.start(command, self.runs, self.folder.name, follows=True, **variables)

    def run(self, python: str = sys.executable) -> dict[str, Any]:
        """Train and return the result.

        Raises:
            Failed: if there is none.
        """
        process = self.start(python)
        if process.popen.wait():
            raise Failed(process.problem)
        return last_line(process.text)

    def job(self, python: str = sys.executable) -> Job:
        """Return the job for the runner."""
        return Job(self.label, functools.partial(self.run, python), self)


def settings_of(case: LearningCase) -> dict[str, Any]:
    """Return what a result depends on, as JSON gives it back: results of other settings are not used."""
    found = {'env': case.env, 'steps': case.steps, 'options': case.options}
    found |= {'dataset': case.source['dataset']} if case.dataset else {}
    return json.loads(json.dumps(found))


def runs_of(case: LearningCase, results: dict[str, Any], peer: bool = False) -> dict[str, Any]:
    """Return the kept results of a case, or of its peer, by seed; none if they are of other settings."""
    kept = results.get(key_of(case, peer), {})
    return kept['runs'] if kept.get('settings') == settings_of(case) else {}


def key_of(case: LearningCase, peer: bool) -> str:
    """Return the key of kept results."""
    return f'{case.name} peer' if peer else case.name


def keep(path: Path, case: LearningCase, seed: int, result: dict[str, Any] | None, peer: bool = False) -> None:
    """Add one result to the file; None removes a result."""
    runs = {**runs_of(case, read(path), peer), str(seed): result}
    runs = {number: run for number, run in runs.items() if run is not None}
    jobs.keep(path, {'settings': settings_of(case), 'runs': runs}, key_of(case, peer))


def merge(results: dict[str, Any], before: str) -> dict[str, Any]:
    """Add the results that a section of the page shows to the kept ones, which replace those of the same seed."""
    shown = read_section(before)
    merged = dict(results)
    for case in CASES:
        for peer, runs in zip((False, True), shown.get(case.command(1).partition(' --seed ')[0], ()), strict=False):
            if runs or runs_of(case, results, peer):
                runs = runs | runs_of(case, results, peer)
                merged[key_of(case, peer)] = {'settings': settings_of(case), 'runs': runs}
    return merged


def read_section(section: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the results by seed, and those of the peer, that a section shows, by the command without its seed."""
    cells = [line[2:-2].split(' | ') for line in section.splitlines() if line.startswith('| ')]
    commands = [line for line in section.splitlines() if is_command(line)]
    found = {}
    for row, command in zip(cells[1:], commands, strict=True):
        named = dict(zip(HEADING, row, strict=True))
        seconds = 60 * parse_numbers(named['minutes a seed'])[0]
        train, _, rest = command[command.index('xagents train ') :].partition(' --seed ')
        seeds, peer_seeds = (re.findall(r'\d+', part) for part in rest.partition(PEER_SEEDS)[::2])
        runs = {
            seed: {'mean': mean, 'seconds': seconds, 'date': named['last run']}
            for seed, mean in zip(seeds, parse_numbers(named['each seed']), strict=True)
        }
        cells_of_seeds = named['sampled'].split(', ') if named['sampled'] else [MISSING] * len(runs)
        for run, cell in zip(runs.values(), cells_of_seeds, strict=True):
            if cell != MISSING:
                (run['sampled'],) = parse_numbers(cell)
        scores = PEER_SCORES.findall(named['peer here'])
        date = named['last run']
        found[train] = runs, {seed: peer_run(*one, date) for seed, one in zip(peer_seeds, scores, strict=True)}
    return found


def peer_run(mean: str, sampled: str, date: str) -> dict[str, Any]:
    """Return a result of the peer from its scores in a cell, and the date of its row."""
    cells = {'mean': mean, 'sampled': sampled}
    return {**{name: parse_numbers(cell)[0] for name, cell in cells.items() if cell}, 'date': date}


def is_command(line: str) -> bool:
    """Return whether a line of a section gives the command of a row."""
    return line.startswith('- ') and '`xagents train ' in line


def parse_numbers(cell: str) -> list[float]:
    """Return the numbers in a cell."""
    return [float(one.replace(' ', '')) for one in re.findall(r'-?\d[\d ]*\.\d+', cell)]


def write_scores(path: Path, results: dict[str, Any]) -> None:
    """Write the scores of the tuned settings, which `xagents presets` shows."""
    import yaml

    # a score from another machine stays if there is no result here and the settings are the same
    before = (yaml.safe_load(path.read_text(encoding='utf-8')) or {}) if path.exists() else {}
    scores: dict[str, dict[str, Any]] = {}
    for case in CASES:
        runs, kept = runs_of(case, results), before.get(case.agent, {}).get(case.key, {})
        if not case.digest:
            continue
        kept = kept if kept.get('digest') == case.digest else {}
        if made_here(runs):
            kept |= score(case, runs)
        if kept:
            if peers := runs_of(case, results, peer=True):
                kept['peer'] = median_of(peers)
            scores.setdefault(case.agent, {})[case.key] = kept
    text = yaml.safe_dump(scores, sort_keys=False, default_flow_style=None, width=120)
    header = '# Written by benchmarks/learning/run.py from its kept results. Do not edit.\n'
    tables.write_atomically(path, header + text)


def made_here(runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results that are kept on this machine: the others are only known from the page."""
    return [run for run in runs.values() if 'cpu' in run]


def means_of(runs: dict[str, Any]) -> list[float]:
    """Return the mean reward of each seed. The page shows one digit, so other machines know no more."""
    return [round(runs[seed]['mean'], 1) for seed in sorted(runs, key=int)]


def sampled_of(runs: dict[str, Any]) -> list[float]:
    """Return the mean reward with sampled actions of each seed that has one."""
    return [round(runs[seed]['sampled'], 1) for seed in sorted(runs, key=int) if 'sampled' in runs[seed]]


def median_of(runs: dict[str, Any]) -> float:
    """Return the median of the means of the seeds."""
    return round(statistics.median(means_of(runs)), 1)


def score(case: LearningCase, runs: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a preset: see `xagents.factory.presets.Score`. At least one run is kept with its date."""
    last = max(made_here(runs), key=lambda run: run['date'])
    episodes = min(run.get('episodes', EPISODES) for run in runs.values())
    found = {'median': median_of(runs), 'means': means_of(runs)}
    version = last['versions'].get('xagents', __version__)
    return {**found, 'episodes': episodes, 'date': last['date'], 'version': version, 'digest': case.digest}


def render(results: dict[str, Any], before: str = '') -> str:
    """Return the table of results, its commands, and the machines.

    Args:
        results: kept on this machine.
        before: the section of the page. Its results count, too: they may come from another machine.
    """
    merged = merge(results, before)
    rows, commands, about, gaps = [], [], [], []
    for case in CASES:
        runs, peers = (runs_of(case, merged, peer) for peer in (False, True))
        if not runs:
            continue
        rows.append(row(case, runs, peers))
        preset = preset_of(case)
        gaps += gap(case, runs, peers, runs_of(preset, merged) if preset else {})
        seeds = sorted(map(int, runs))
        others = f', and with --seed {", ".join(map(str, seeds[1:]))}' if seeds[1:] else ''
        first = isinstance(case.dataset, DataSet) and ''.join(
            f'`xagents {one}`, then ' for one in case.dataset.commands
        )
        others += f'{PEER_SEEDS}{", ".join(sorted(peers, key=int))}' if peers else ''
        about_row = f'{case.agent.upper()}, {rows[-1][1]} (`{case.name}`)'
        commands.append(f'- {about_row}: {first or ""}`{case.command(seeds[0])}`{others}')
        about += made_here(runs) + made_here(peers)
    if not commands:
        return jobs.EMPTY
    made = 'Made by `python -m benchmarks.learning.run --only CASE`, which trains what these commands train:'
    machines = [f'- {run["date"]}, {run["cpu"]}, {cores_and_runs(run)}' for run in about]
    versions = [f'- {tables.versions(run["versions"])}' for run in about]
    lines = [line for line in before.splitlines() if line.startswith('- ') and not is_command(line)]
    oldest = min(cells[-1] for cells in rows)
    kept_lines = [line for line in lines if not (date := DATE.match(line)) or date[1] >= oldest]
    machines_and_versions = dict.fromkeys([*machines, *versions, *kept_lines])
    return tables.markdown(
        HEADING, rows, *gaps and [GAPS, '', *gaps, ''], made, '', *commands, '', *machines_and_versions
    )


def preset_of(case: LearningCase) -> LearningCase | None:
    """Return the case with the settings of this package, for one with the published settings."""
    words = case.form.split()
    if PUBLISHED not in words:
        return None
    form = ' '.join(word for word in words if word != PUBLISHED)
    wanted = (case.agent, case.env, form)
    return next(one for one in CASES if one.digest and (one.agent, one.env, one.form) == wanted)


def cores_and_runs(run: dict[str, Any]) -> str:
    """Return the numbers of cores, and of runs at a time, in words."""
    cores, runs = int(run['cores']), int(run['jobs'])
    return f'{cores} core{"s" * (cores > 1)}, {runs} run{"s" * (runs > 1)} at a time'


def gap(case: LearningCase, runs: dict[str, Any], peers: dict[str, Any], preset: dict[str, Any]) -> list[str]:
    """Return a line if the median is below the published score by more than a tenth.

    That is a tenth of the score or of its distance from random actions, whichever is less.

    Args:
        case: the row.
        runs: its results by seed.
        peers: those of the peer.
        preset: those of the row with the settings of this package, if the row has the published ones.
    """
    bounds, median = known_bounds(case.env), median_of(runs)
    if case.published is None or bounds is None:
        return []
    limit = case.published - 0.1 * min(abs(case.published), case.published - bounds.random)
    if median >= limit:
        return []
    parts, sentences = [f'{tables.number(median, 1)} of {target_text(case.published)}'], []
    if peers:
        compared, ahead = compare_with_peer(means_of(runs), means_of(peers), sampled_of(runs), sampled_of(peers))
        parts.append(f'{PEER} here {tables.number(median_of(peers), 1)}, {compared}')
        sentences += [ahead, 'The peer is below by more than a tenth, too.' if median_of(peers) < limit else '']
    else:
        sentences.append('No peer was trained here.')
    if preset:
        parts.append(f'the preset {tables.number(median_of(preset), 1)}')
    sentences += [describe_published_run(case), CAUSES.get(case.name, '')]
    about = ' '.join(filter(None, [f'{"; ".join(parts)}.', *sentences]))
    return [f'* {case.agent.upper()}, {environment_cell(case)}: {about}']


def compare_with_peer(
    ours: list[float], theirs: list[float], our_sampled: list[float], their_sampled: list[float]
) -> tuple[str, str]:
    """Return in how many pairs of seeds the peer is better, and what follows if it is in most of them.

    Args:
        ours: mean of each seed with greedy actions.
        theirs: those of the peer.
        our_sampled: mean with sampled actions of each seed that has one.
        their_sampled: those of the peer.
    """
    better, pairs = sum(one > our for one in theirs for our in ours), len(theirs) * len(ours)
    p = p_value(ours, theirs)
    both_sampled = our_sampled and their_sampled
    sampled = f', with sampled actions {p_value(our_sampled, their_sampled):.2g}' if both_sampled else ''
    compared = f'better in {better} of {pairs} pairs of seeds (p = {p:.2g}{sampled})'
    if 2 * better <= pairs:
        return compared, 'The peer is not better.'
    if p <= SIGNIFICANT:
        return compared, 'The peer learns more.'
    smallest = 1 / math.comb(len(theirs) + len(ours), len(ours))
    too_few = 'There are too few seeds to show a difference.'
    return compared, 'Chance may explain the difference from the peer.' if smallest <= SIGNIFICANT else too_few


def p_value(ours: list[float], theirs: list[float]) -> float:
    """Return the p of a one-sided Mann-Whitney test: the peer is better."""
    from scipy.stats import mannwhitneyu

    method = 'exact' if len({*theirs, *ours}) == len(theirs) + len(ours) else 'asymptotic'  # with ties
    return float(mannwhitneyu(theirs, ours, alternative='greater', method=method).pvalue)


def target_cells(case: LearningCase, median: float) -> dict[str, str]:
    """Return the cells of what a median should reach, and whether it does."""
    targets = {'required': case.required, 'published': case.published}
    shown = {name: '' if target is None else target_text(target) for name, target in targets.items()}
    if shown['published'] and case.scored_on:
        shown['published'] += f' ({case.scored_on})'
    rounded = round(median, 1)  # compared as the table shows them
    met = [f'{name} {"yes" if rounded >= target else "no"}' for name, target in targets.items() if target is not None]
    return {**shown, 'reached': ', '.join(met)}


def target_text(target: float) -> str:
    """Return a required or published score as the table shows it."""
    return tables.number(target, 0 if target == round(target) else 1)


def environment_cell(case: LearningCase) -> str:
    """Return the environment and the differences from the published settings."""
    return case.key + (f', {case.changed}' if case.changed else '')


def sampled_cell(runs: list[dict[str, Any]]) -> str:
    """Return the scores with sampled actions, with a mark for each seed without one; empty if all seeds lack it."""
    cells = [tables.number(run['sampled'], 1) if 'sampled' in run else MISSING for run in runs]
    return '' if set(cells) == {MISSING} else ', '.join(cells)


def peer_cell(run: dict[str, Any]) -> str:
    """Return the scores of a seed of the peer; agents without a distribution of actions have no sampled ones."""
    sampled = f' ({tables.number(run["sampled"], 1)})' if 'sampled' in run else ''
    return tables.number(run['mean'], 1) + sampled


def row(case: LearningCase, runs: dict[str, Any], peers: dict[str, Any]) -> list[str]:
    """Return the cells of one case."""
    ours, theirs = ([kept[seed] for seed in sorted(kept, key=int)] for kept in (runs, peers))
    median = median_of(runs)
    # the page keeps one number for all seeds, so a mean with it would change each time the page is written
    timed = made_here(runs) or ours
    return [
        case.agent.upper(),
        environment_cell(case),
        tables.number(case.steps),
        tables.each(means_of(runs)),
        tables.number(median, 1),
        sampled_cell(ours),
        ', '.join(map(peer_cell, theirs)),
        *target_cells(case, median).values(),
        tables.number(statistics.median(run['seconds'] for run in timed) / 60, 1),
        max(run['date'] for run in [*ours, *theirs]),
    ]


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = jobs.make_parser('learning.run', __doc__, results='learning.json')
    names = ', '.join(case.name for case in CASES if not case.listed)
    listed = ', '.join(case.name for case in CASES if case.listed)
    parser.add_argument(
        '--only',
        nargs='+',
        metavar='CASE',
        help=f'cases to train, or beginnings of their names: {names}; only by their whole names: {listed}',
    )
    parser.add_argument(
        '--seeds',
        nargs='+',
        type=jobs.seed,
        metavar='SEED',
        help='one run for each seed (those of the case, mostly 1 2 3)',
    )
    parser.add_argument('--jobs', type=jobs.positive, default=2, help='number of parallel runs')
    parser.add_argument(
        '--again', action='store_true', help='first remove kept results and run directories of these cases'
    )
    parser.add_argument(
        '--list', action='store_true', help='only print the commands that train each case, with its first seed'
    )
    parser.add_argument(
        '--peer',
        action='store_true',
        help=f'train {PEER} with the same settings instead, for the column "peer here"; without --only, the cases that '
        'have a counterpart there. A killed training continues from its last save, of every ten minutes',
    )
    parser.add_argument(
        '--python', type=jobs.existing_file, help='Python that trains (this one; with --peer, one with the peer)'
    )
    parser.add_argument(
        '--runs', type=Path, default=CACHE / 'learning', metavar='DIR', help='folder of run directories'
    )
    parser.add_argument('--cache', type=Path, default=CACHE, help='folder of the virtual environment of the peer')
    parser.add_argument('--scores', type=Path, default=SCORES, help='YAML file of the scores of the presets')
    return parser


def shorten(case: LearningCase) -> LearningCase:
    """Return a case with few steps, which still makes some updates."""
    options = dict(case.options)
    if 'buffer_initial_size' in options:
        options['buffer_initial_size'] = min(options['buffer_initial_size'], 512)
    return replace(case, steps=1_024, options=options)


def list_commands(case: LearningCase, seeds: Sequence[int], peer: bool) -> list[str]:
    """Return the commands that train a case, or its peer: those that record its data set come first."""
    if peer:
        numbers = ' '.join(map(str, seeds))
        return [f'python -m benchmarks.learning.run --peer --only {case.name} --seeds {numbers}']
    recorded = case.dataset.commands if isinstance(case.dataset, DataSet) else ()
    return [*(f'xagents {one}' for one in recorded), *map(case.command, seeds)]


def write_page(options: argparse.Namespace) -> str:
    """Write the table of all kept results into the page, and the scores of the presets; return the table."""
    results = read(options.results)
    before = tables.sections(options.page.read_text()).get('learning', '')
    text = render(results, before)
    tables.write_section(options.page, 'learning', text)
    write_scores(options.scores, merge(results, before))
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what has no kept result. Return 1 if a run fails; exit with 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        cases = find_cases(options.only)
    except ValueError as error:
        parser.error(str(error))
    options.seeds = list(dict.fromkeys(options.seeds or ()))
    if options.peer:
        lacking = {case.name: differences(case.agent, case.options) for case in cases}
        refused = [f'{name} ({", ".join(without)})' for name, without in lacking.items() if without]
        if refused and options.only:
            parser.error(f'--peer: {PEER} has no counterpart of {"; ".join(refused)}')
        cases = [case for case in cases if not lacking[case.name]]
    if options.list:
        listed = [line for case in cases for line in list_commands(case, options.seeds or case.seeds[:1], options.peer)]
        print('\n'.join(dict.fromkeys(listed)))
        return 0
    if options.docs:
        print(write_page(options))
        return 0
    with tempfile.TemporaryDirectory(prefix='learning-', ignore_cleanup_errors=True) as temporary:
        trainings = [
            Training(shorten(case), seed, Path(temporary), 5, options.peer)
            if options.quick
            else Training(case, seed, options.runs, peer=options.peer)
            for case in cases
            for seed in (options.seeds or case.seeds)[: 1 if options.quick else None]
        ]
        return train(trainings, options)


def train(trainings: list[Training], options: argparse.Namespace) -> int:
    """Train what has no kept result; return 1 if a run fails."""
    try:
        python = str(find_peer('sb3', options)) if options.peer else str(options.python or sys.executable)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    for training in trainings if options.again and not options.quick else ():
        keep(options.results, training.case, training.seed, None, options.peer)
        shutil.rmtree(training.folder, ignore_errors=True)
    kept = {} if options.quick else read(options.results)
    waiting = [one.job(python) for one in trainings if str(one.seed) not in runs_of(one.case, kept, options.peer)]

    data_sets = [one.about.case.dataset for one in waiting]
    for data in {data.name: data for data in data_sets if isinstance(data, DataSet)}.values():
        if describe(data) is None:
            options.runs.mkdir(parents=True, exist_ok=True)
            make(data, options.runs)

    def keep_run(job: Job, result: dict[str, Any], machine: dict[str, str]) -> None:
        if not options.quick:
            about = {'jobs': options.jobs, 'episodes': job.about.episodes}
            about['versions'] = {'xagents': __version__, **result['versions']}
            kept = {**result, **tables.short(machine), **about}
            keep(options.results, job.about.case, job.about.seed, kept, options.peer)
            write_page(options)

    def shown(result: dict[str, Any]) -> str:
        return f'{result["mean"]:.1f} in {result["seconds"] / 60:.1f} minutes'

    complete = jobs.measure_all(waiting, shown, keep_run, options.jobs)
    if not options.quick:
        print(render(read(options.results)))
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
