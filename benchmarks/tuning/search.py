"""Whether `xagents tune --search` finds settings that are at least as good as the defaults, judged by fresh seeds."""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.learning.cases import LearningCase
from benchmarks.learning.run import Training, train_all
from benchmarks.speed.run import Failed
from benchmarks.tuning.commands import load_study, seconds_beside, tune

STUDIES = (1, 2, 3)
# no trial had one of these
FRESH = (101, 102, 103)
EPISODES = 100


def measure_search(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Search three times, then train the best found and the defaults anew.

    Raises:
        Failed: when a search or a training failed.
    """
    trials, steps = (3, 2_000) if options.quick else (40, 20_000)
    studies = []
    for seed in STUDIES[: 1 if options.quick else None]:
        url = f'sqlite:///{folder}/search-{seed}.db'
        seconds = seconds_beside([search(trials, steps, seed, url)], folder)
        studies.append({'seed': seed, 'seconds': seconds, **(found := best_of(str(seed), url))})
        log(f'study {seed}: {found["value"]:.1f} in trial {found["number"]} after {seconds / 60:.1f} minutes')
    cases = {'default': {}, **{str(study['seed']): study['options'] for study in studies}}
    means = train_anew(cases, steps, options.quick, log)
    for study in studies:
        study['means'] = means[str(study['seed'])]
    return {'trials': trials, 'steps': steps, 'default': means['default'], 'studies': studies}


def search(trials: int, steps: int, seed: int, url: str) -> list[str]:
    """The command of one study."""
    words = ['--search', '--n-trials', trials, '--trial-steps', steps, '--objective', 'evaluation', '--n-jobs', 2]
    return tune(*words, '--seed', seed, '--study', seed, '--storage', url)


def best_of(name: str, url: str) -> dict[str, Any]:
    """The best trial of a study, and its options beside the environment and the budget."""
    from xagents.tuning.storages import open_storage
    from xagents.tuning.studies import load_best

    trial, options = load_best(name, open_storage(url, create=False), 'ppo')
    states = [one.state.name for one in load_study(name, url).trials]
    counts = {state.lower(): states.count(state) for state in ('COMPLETE', 'PRUNED', 'FAIL')}
    options = {option: value for option, value in options.items() if option not in ('env', 'max_steps')}
    return {'number': trial.number, 'value': trial.value, 'counts': counts, 'options': options}


def train_anew(cases: dict[str, dict[str, Any]], steps: int, quick: bool, log: Log) -> dict[str, list[float]]:
    """The mean of greedy episodes after a training with each fresh seed, by case."""
    waiting = [
        Training(LearningCase(name, 'ppo', 'CartPole-v1', steps, options), seed, 5 if quick else EPISODES)
        for name, options in cases.items()
        for seed in FRESH[: 1 if quick else None]
    ]
    means: dict[str, dict[int, float]] = {name: {} for name in cases}
    for training, result in train_all(waiting, 2, sys.executable):
        name, seed = training.case.name, training.seed
        if isinstance(result, str):
            raise Failed(f'{name}, seed {seed}: {result}')
        means[name][seed] = result['mean']
        log(f'{name}, fresh seed {seed}: {result["mean"]:.1f}')
    return {name: [found[seed] for seed in sorted(found)] for name, found in means.items()}


def render_search(result: dict[str, Any]) -> str:
    """The table of the settings found and the defaults, and the commands that train with them."""
    heading = ['', 'best trial', 'its value', 'trained anew, each seed', 'mean', 'at least the default']
    default = statistics.mean(result['default'])
    rows = [['the defaults', '', '', each(result['default']), tables.number(default, 1), '']]
    commands = []
    for study in result['studies']:
        mean = statistics.mean(study['means'])
        cells = [f'study {study["seed"]}', str(study['number']), tables.number(study['value'], 1), each(study['means'])]
        rows.append([*cells, tables.number(mean, 1), 'yes' if mean >= default else 'no'])
        case = LearningCase('', 'ppo', 'CartPole-v1', result['steps'], study['options'])
        counts = ', '.join(f'{count} {state}' for state, count in study['counts'].items())
        minutes = study['seconds'] / 60
        commands.append(f'- study {study["seed"]} ({minutes:.1f} minutes; {counts}): `{case.command(FRESH[0])}`')
    return tables.markdown(heading, rows, *commands)


def each(means: list[float]) -> str:
    """One mean a seed."""
    return ', '.join(tables.number(mean, 1) for mean in means)
