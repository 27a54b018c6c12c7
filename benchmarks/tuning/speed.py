"""Measure the speed of two workers of `xagents tune` compared with one, and the time before a trial's first step."""

import argparse
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import seconds_in_parallel
from benchmarks.venvs import XAGENTS
from benchmarks.workers.first_step import FILE

REQUIRED_TIMES = 1.8
# steps of a trial; each worker compiles the update once
LENGTHS = (20_000, 100_000)
REQUIRED_SECONDS = 1.0
SPIN = 'total = 0\nfor number in range({}): total += number'
WRAPPER = 'benchmarks.workers.first_step:FirstStep'
# a policy gradient, a replay buffer with discrete actions, one with continuous actions
AGENTS = {'ppo': 'CartPole-v1', 'dqn': 'CartPole-v1', 'td3': 'Pendulum-v1'}

Pair = tuple[float, float]


def tune(*words: Any) -> list[str]:
    """Return the command that tunes PPO on CartPole."""
    return [*XAGENTS, 'tune', 'ppo', '--env', 'CartPole-v1', *map(str, words)]


def load_study(name: str, url: str) -> Any:
    """Open a study that a command has created."""
    import optuna

    from xagents.tuning.storages import open_storage

    return optuna.load_study(study_name=name, storage=open_storage(url, create=False))


# ------------------------------------------------------------------------------------------------------------- workers


def measure_jobs(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Time the same trials with one worker and with two, and independent commands in sequence and in parallel.

    Returns:
        For each row pairs of seconds, one for each repeat: first one at a time, then two.
    """
    trials, lengths = (4, (2_000,)) if options.quick else (16, LENGTHS)
    work = trials * lengths[0] // 2
    pairs: dict[str, list[Pair]] = {name: [] for name in ('spin', 'train', *map(str, lengths))}

    def add(name: str, pair: Pair) -> None:
        pairs[name].append(pair)
        times = f'{pair[0] / pair[1]:.2f} times'
        log(f'{name} {len(pairs[name])}: {pair[0]:.1f} s one at a time, {pair[1]:.1f} s two at a time: {times}')

    for _ in range(1 if options.quick else options.repeats):
        for name, commands in independent(work, 3_000_000 if options.quick else 30_000_000).items():
            one = sum(seconds_in_parallel([command], folder) for command in commands)
            add(name, (one, seconds_in_parallel(commands, folder)))
        for steps in lengths:
            one, two = (seconds_in_parallel([study(trials, steps, jobs)], folder) for jobs in (1, 2))
            add(str(steps), (one, two))
    return {'trials': trials, 'work': work, 'pairs': pairs}


def study(trials: int, steps: int, jobs: int) -> list[str]:
    """Return the command that runs the trials; they are the same for any number of workers."""
    words = ['--n-trials', trials, '--trial-steps', steps, '--n-envs', 8, '--lr', 1e-4, 1e-2]
    return tune(*words, '--sampler', 'random', '--pruner', 'none', '--seed', 1, '--n-jobs', jobs)


def independent(steps: int, rounds: int) -> dict[str, list[list[str]]]:
    """Return pairs of independent commands, which show the possible gain on this machine."""
    spin = [sys.executable, '-c', SPIN.format(rounds)]
    train = [*XAGENTS, 'train', 'ppo', '--env', 'CartPole-v1', '--max-steps', str(steps), '--n-envs', '8']
    train += ['--final-episodes', '0', '--threads', '1', '--quiet', '--seed']
    return {'spin': [spin, spin], 'train': [[*train, '1'], [*train, '2']]}


def render_jobs(result: dict[str, Any]) -> str:
    """Return the table of times."""
    work = tables.number(result['work'])
    labels = {
        steps: f'`xagents tune ppo`, {result["trials"]} trials of {tables.number(int(steps))} steps, `--n-jobs` 1 and 2'
        for steps in result['pairs']
        if steps.isdecimal()
    }
    labels['train'] = f'the machine: two `xagents train ppo` of {work} steps'
    rows = []
    for name, label in {**labels, 'spin': 'the machine: two loops of pure Python'}.items():
        required = f'{REQUIRED_TIMES:g}' if name.isdecimal() else ''
        one, two = zip(*result['pairs'][name], strict=True)
        ratios = tables.spread(tables.ratios(one, two), 2)
        rows.append([label, tables.spread(one, 1), tables.spread(two, 1), ratios, required])
    return tables.markdown(['', 'seconds, one at a time', 'two at a time', 'times as fast', 'required'], rows)


# ---------------------------------------------------------------------------------------------------------- first steps


def measure_overhead(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Return the seconds from the start of each trial to its first environment step, by agent, in one worker."""
    trials = 3 if options.quick else 8
    seconds = {}
    for agent, env in list(AGENTS.items())[: 1 if options.quick else None]:
        steps, url = folder / f'{agent}.steps', f'sqlite:///{folder}/{agent}.db'
        command = [*XAGENTS, 'tune', agent, '--env', env, '--n-envs', '8', '--study', agent, '--storage', url]
        command += ['--n-trials', str(trials), '--trial-steps', '2000', '--lr', '1e-4', '1e-2', '--pruner', 'none']
        seconds_in_parallel([[*command, '--wrapper', WRAPPER]], folder, **{FILE: str(steps)})
        begun = [trial.datetime_start for trial in load_study(agent, url).trials]
        seconds[agent] = first_steps(begun, [float(line) for line in steps.read_text().split()])
        log(f'{agent}: ' + ', '.join(f'{value:.2f}' for value in seconds[agent]) + ' s to the first step')
    return {'seconds': seconds}


def first_steps(begun: Sequence[datetime | None], stepped: Sequence[float]) -> list[float]:
    """Return the seconds from the start of each trial to the first step after it, for trials in sequence.

    Args:
        begun: when the trials started, in order, in local time as Optuna writes it.
        stepped: when environments made their first steps, in seconds since 1970.
    """
    starts = [moment.timestamp() for moment in begun if moment is not None]
    ends = [*starts[1:], float('inf')]
    return [
        min(moment for moment in stepped if start <= moment < end) - start
        for start, end in zip(starts, ends, strict=True)
    ]


def render_overhead(result: dict[str, Any]) -> str:
    """Return the table of seconds to the first step."""
    rows = []
    for agent, (first, *later) in result['seconds'].items():
        late = f'{statistics.median(later):.2f} (at most {max(later):.2f} of {len(later)})'
        label = f'{agent.upper()} on {AGENTS[agent]}, 8 environments'
        rows.append([label, f'{first:.2f}', late, f'under {REQUIRED_SECONDS:g}'])
    return tables.markdown(['', 'first trial of the worker, s', 'later ones, s', 'required'], rows)
