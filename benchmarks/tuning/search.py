"""Measure whether `xagents tune --search` finds settings that are at least as good as the defaults on new seeds."""

import argparse
import statistics
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Log
from benchmarks.learning.cases import LearningCase
from benchmarks.learning.run import Training
from benchmarks.processes import Failed, seconds_in_parallel
from benchmarks.tuning.speed import load_study, tune

STUDIES = (1, 2, 3)
# no trial has one of these seeds
NEW_SEEDS = (101, 102, 103)
EPISODES = 100


def measure_search(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Run three searches, then train the best settings and the defaults with new seeds.

    Raises:
        Failed: if a search or a training fails.
    """
    trials, steps = (3, 2_000) if options.quick else (40, 20_000)
    studies = []
    for seed in STUDIES[: 1 if options.quick else None]:
        url = f'sqlite:///{folder}/search-{seed}.db'
        seconds = seconds_in_parallel([search(trials, steps, seed, url)], folder)
        studies.append({'seed': seed, 'seconds': seconds, **(found := best_of(str(seed), url))})
        log(f'study {seed}: {found["value"]:.1f} in trial {found["number"]} after {seconds / 60:.1f} minutes')
    cases = {'default': {}, **{str(study['seed']): study['options'] for study in studies}}
    means = train_cases(cases, steps, folder / 'runs', options.quick, log)
    for study in studies:
        study['means'] = means[str(study['seed'])]
    return {'trials': trials, 'steps': steps, 'default': means['default'], 'studies': studies}


def search(trials: int, steps: int, seed: int, url: str) -> list[str]:
    """Return the command of one study."""
    words = ['--search', '--n-trials', trials, '--trial-steps', steps, '--objective', 'evaluation', '--n-jobs', 2]
    return tune(*words, '--seed', seed, '--study', seed, '--storage', url)


def best_of(name: str, url: str) -> dict[str, Any]:
    """Return the best trial of a study, and its options without environment and number of steps."""
    from xagents.tuning.storages import open_storage
    from xagents.tuning.studies import load_best

    trial, options = load_best(name, open_storage(url, create=False), 'ppo')
    states = [one.state.name for one in load_study(name, url).trials]
    counts = {state.lower(): states.count(state) for state in ('COMPLETE', 'PRUNED', 'FAIL')}
    options = {option: value for option, value in options.items() if option not in ('env', 'max_steps')}
    return {'number': trial.number, 'value': trial.value, 'counts': counts, 'options': options}


def train_cases(
    cases: dict[str, dict[str, Any]], steps: int, runs: Path, quick: bool, log: Log
) -> dict[str, list[float]]:
    """Train each case with each new seed; return the means of greedy episodes by case."""
    waiting = [
        Training(LearningCase(name, 'ppo', 'CartPole-v1', steps, options), seed, runs, 5 if quick else EPISODES).job()
        for name, options in cases.items()
        for seed in NEW_SEEDS[: 1 if quick else None]
    ]
    means: dict[str, dict[int, float]] = {name: {} for name in cases}
    for job, result, _ in jobs.run_all(waiting, 2):
        if isinstance(result, Failed):
            raise Failed(f'{job.label}: {result}')
        means[job.about.case.name][job.about.seed] = result['mean']
        log(f'{job.label}: {result["mean"]:.1f}')
    return {name: [found[seed] for seed in sorted(found)] for name, found in means.items()}


def render_search(result: dict[str, Any]) -> str:
    """Return the table of the found settings and the defaults, and the commands that train with them."""
    heading = ['', 'best trial', 'its value', 'trained with new seeds', 'mean', 'at least the default']
    default = statistics.mean(result['default'])
    rows = [['the defaults', '', '', tables.each(result['default']), tables.number(default, 1), '']]
    commands = []
    for study in result['studies']:
        mean = statistics.mean(study['means'])
        cells = [f'study {study["seed"]}', study['number'], tables.number(study['value'], 1)]
        better = 'yes' if mean >= default else 'no'
        rows.append([*map(str, cells), tables.each(study['means']), tables.number(mean, 1), better])
        case = LearningCase('', 'ppo', 'CartPole-v1', result['steps'], study['options'])
        counts = ', '.join(f'{count} {state}' for state, count in study['counts'].items())
        minutes = study['seconds'] / 60
        commands.append(f'- study {study["seed"]} ({minutes:.1f} minutes; {counts}): `{case.command(NEW_SEEDS[0])}`')
    return tables.markdown(heading, rows, *commands)
