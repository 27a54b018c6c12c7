"""Compare a run of 2N steps with resumed runs: after a stop at N, after Ctrl-C, and after `kill -9`."""

import argparse
import random
import signal
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, run_to_end
from benchmarks.reliability.compare import differences, row_differences
from benchmarks.reliability.runs import SETTINGS, resume, stopped_at, train

# N: at least five seconds of training on two idle cores, so that Ctrl-C hits any part of it
STEPS = {'a2c': 150_000, 'acer': 40_000, 'ddpg': 12_000, 'dqn': 20_000, 'ppo': 300_000, 'td3': 12_000, 'trpo': 200_000}
OVERLAPPING = ('acer', 'dqn', 'ppo', 'td3')
INTERRUPTIONS = 3
WAYS = {'stop': 'stop at N', 'ctrl-c': f'{INTERRUPTIONS} x Ctrl-C', 'kill': '`kill -9`'}


def measure_exact(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Compare runs of each agent, also with overlap for some agents.

    Returns:
        For each case N, the unequal names for each way to stop, and the number of stops.
    """
    found: dict[str, Any] = {}
    for agent_id in options.agents or SETTINGS:
        for overlap in (False, True) if agent_id in OVERLAPPING else (False,):
            name = f'{agent_id} --overlap' if overlap else agent_id
            place = folder / name.replace(' ', '')
            place.mkdir()
            steps = options.steps or STEPS[agent_id] // (4 if options.quick else 1)
            try:
                found[name] = compare(agent_id, overlap, steps, place, options.seed, log)
            except (Failed, ValueError) as error:
                found[name] = {'steps': steps, 'problem': str(error)}
            log(f'{name}: {found[name]}')
    return {'cases': found}


def compare(agent_id: str, overlap: bool, steps: int, folder: Path, seed: int, log: Log) -> dict[str, Any]:
    """Make the whole run and the stopped runs, and compare their run directories.

    Raises:
        Failed: if a command fails.
        ValueError: if a file cannot be read.
    """
    generator = random.Random(f'{seed} {agent_id} {overlap}')

    def begin(place: Path, until: int) -> list[str]:
        options = {'overlap': overlap, 'seed': 7, 'max_steps': until, 'schedule_steps': 2 * steps}
        return train(agent_id, place, save_seconds=1.0, final_episodes=2, **options)

    whole = folder / 'whole'
    run_to_end(begin(whole, 2 * steps), folder)
    found, breaks = {}, {}
    for way in WAYS:
        place = folder / way
        if way == 'stop':
            run_to_end(begin(place, steps), folder)
            run_to_end(resume(place, '--max-steps', 2 * steps), folder)
            breaks[way] = 1
        else:
            number, count = (signal.SIGINT, INTERRUPTIONS) if way == 'ctrl-c' else (signal.SIGKILL, 1)
            command, breaks[way] = begin(place, 2 * steps), 0
            for target in targets(2 * steps, count, generator):
                run = stopped_at(command, folder, target, number, generator)
                breaks[way] += run.popen.returncode != 0
                log(f'{agent_id}: {way} after {run.steps} steps: exit code {run.popen.returncode}')
                command = resume(place)
            run_to_end(command, folder)
        found[way] = [*differences(whole, place), *row_differences(whole, place)]
    return {'steps': steps, 'found': found, 'breaks': breaks}


def targets(steps: int, count: int, generator: random.Random) -> list[int]:
    """Return the steps after which a run is stopped: one random number in each part of the run, not at its end."""
    return [int(steps * (part + generator.uniform(0, 0.7)) / count) for part in range(count)]


def render_exact(result: dict[str, Any]) -> str:
    """Return the table, with the unequal names below it."""
    rows, problems = [], []
    for name, case in result['cases'].items():
        rows.append([name, case['steps'], *(cell(case, way) for way in WAYS)])
        if 'problem' in case:
            problems.append(f'- {name}: {case["problem"]}')
        for way, unequal in case.get('found', {}).items():
            if unequal:
                more = f' and {len(unequal) - 5} more' if len(unequal) > 5 else ''
                problems.append(f'- {name}, {way}: not equal: {"; ".join(unequal[:5])}{more}')
    return tables.markdown(['', 'N', *WAYS.values()], rows, *problems)


def cell(case: dict[str, Any], way: str) -> str:
    """Return the result of one comparison."""
    if 'problem' in case:
        return 'failed'
    equal = 'not equal' if case['found'][way] else 'equal'
    return equal if way == 'stop' else f'{equal}, stopped {case["breaks"][way]} times'
