"""How much sooner two workers of `xagents tune` are done than one, and what a trial takes before its first step."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.tuning.commands import load_study, seconds_beside, seconds_in_turn, tune
from benchmarks.venvs import XAGENTS
from benchmarks.workers.first_step import FILE

ASKED_TIMES = 1.8
# steps of a trial; each worker compiles the update once
LENGTHS = (20_000, 100_000)
ASKED_SECONDS = 1.0
SPIN = 'total = 0\nfor number in range({}): total += number'
WRAPPER = 'benchmarks.workers.first_step:FirstStep'
# a policy gradient, a replay of discrete actions, one of continuous actions
AGENTS = {'ppo': 'CartPole-v1', 'dqn': 'CartPole-v1', 'td3': 'Pendulum-v1'}

Pair = tuple[float, float]


# ------------------------------------------------------------------------------------------------------------- workers


def measure_jobs(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Seconds of the same trials with one worker and with two, and of what the machine does beside each other.

    Returns:
        For each row pairs of seconds, one a repeat: first one at a time, then two.
    """
    trials, lengths = (4, (2_000,)) if options.quick else (16, LENGTHS)
    work = trials * lengths[0] // 2
    pairs: dict[str, list[Pair]] = {name: [] for name in ('spin', 'train', *map(str, lengths))}
    for repeat in range(1 if options.quick else options.repeats):
        for name, commands in independent(work, 3_000_000 if options.quick else 30_000_000).items():
            pairs[name].append((seconds_in_turn(commands, folder), seconds_beside(commands, folder)))
            log(f'{name} {repeat + 1}: {said(pairs[name][-1])}')
        for steps in lengths:
            one, two = (seconds_beside([study(trials, steps, jobs)], folder) for jobs in (1, 2))
            pairs[str(steps)].append((one, two))
            log(f'{steps} steps {repeat + 1}: {said(pairs[str(steps)][-1])}')
    return {'trials': trials, 'work': work, 'pairs': pairs}


def study(trials: int, steps: int, jobs: int) -> list[str]:
    """The command that runs the trials, the same ones with any number of workers."""
    words = ['--n-trials', trials, '--trial-steps', steps, '--n-envs', 8, '--lr', 1e-4, 1e-2]
    return tune(*words, '--sampler', 'random', '--pruner', 'none', '--seed', 1, '--n-jobs', jobs)


def independent(steps: int, rounds: int) -> dict[str, list[list[str]]]:
    """Two commands each that have nothing to do with each other, for what the machine itself admits."""
    spin = [sys.executable, '-c', SPIN.format(rounds)]
    train = [*XAGENTS, 'train', 'ppo', '--env', 'CartPole-v1', '--max-steps', str(steps), '--n-envs', '8']
    train += ['--final-episodes', '0', '--threads', '1', '--quiet', '--seed']
    return {'spin': [spin, spin], 'train': [[*train, '1'], [*train, '2']]}


def said(pair: Pair) -> str:
    """One measurement, for the console."""
    return f'{pair[0]:.1f} s one at a time, {pair[1]:.1f} s two at a time: {pair[0] / pair[1]:.2f} times'


def render_jobs(result: dict[str, Any]) -> str:
    """The table of one and two at a time."""
    studies = {
        steps: (
            f'`xagents tune ppo`, {result["trials"]} trials of {tables.number(int(steps))} steps, `--n-jobs` 1 and 2',
            f'{ASKED_TIMES:g}',
        )
        for steps in result['pairs']
        if steps.isdecimal()
    }
    names = {
        **studies,
        'train': (f'the machine: two `xagents train ppo` of {tables.number(result["work"])} steps', ''),
        'spin': ('the machine: two loops of pure Python', ''),
    }
    rows = []
    for name, (label, asked) in names.items():
        one, two = zip(*result['pairs'][name], strict=True)
        ratios = tables.spread(tables.ratios(one, two), 2)
        rows.append([label, tables.spread(one, 1), tables.spread(two, 1), ratios, asked])
    return tables.markdown(['', 'seconds, one at a time', 'two at a time', 'times as fast', 'asked'], rows)


# ---------------------------------------------------------------------------------------------------------- first steps


def measure_overhead(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Seconds from the start of each trial to its first environment step, by agent, in one worker."""
    trials = 3 if options.quick else 8
    seconds = {}
    for agent, env in list(AGENTS.items())[: 1 if options.quick else None]:
        steps, url = folder / f'{agent}.steps', f'sqlite:///{folder}/{agent}.db'
        command = [*XAGENTS, 'tune', agent, '--env', env, '--n-envs', '8', '--study', agent, '--storage', url]
        command += ['--n-trials', str(trials), '--trial-steps', '2000', '--lr', '1e-4', '1e-2', '--pruner', 'none']
        seconds_beside([[*command, '--wrapper', WRAPPER]], folder, **{FILE: str(steps)})
        begun = [trial.datetime_start for trial in load_study(agent, url).trials]
        seconds[agent] = first_steps(begun, [float(line) for line in steps.read_text().split()])
        log(f'{agent}: ' + ', '.join(f'{value:.2f}' for value in seconds[agent]) + ' s to the first step')
    return {'seconds': seconds}


def first_steps(begun: Sequence[datetime | None], stepped: Sequence[float]) -> list[float]:
    """Seconds from each trial's beginning to the first step after it, where trials ran one after another.

    Args:
        begun: when the trials began, in order, as Optuna writes it: local time.
        stepped: when environments made their first steps, in seconds since 1970.
    """
    starts = [moment.timestamp() for moment in begun if moment is not None]
    ends = [*starts[1:], float('inf')]
    return [
        min(moment for moment in stepped if start <= moment < end) - start
        for start, end in zip(starts, ends, strict=True)
    ]


def render_overhead(result: dict[str, Any]) -> str:
    """The table of seconds to the first step."""
    lines = ['|  | first trial of the worker, s | later ones, s | asked |', '|---|---|---|---|']
    for agent, (first, *later) in result['seconds'].items():
        median = statistics.median(later)
        cells = [f'{first:.2f}', f'{median:.2f} (at most {max(later):.2f} of {len(later)})', f'under {ASKED_SECONDS:g}']
        lines.append(f'| {agent.upper()} on {AGENTS[agent]}, 8 environments | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)
