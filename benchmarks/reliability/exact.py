"""2N steps beside N, a stop and N more, and beside runs that a Ctrl-C or `kill -9` broke off: equal to the bit?"""

from __future__ import annotations

import argparse
import random
import signal
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.reliability.compare import differences, row_differences
from benchmarks.reliability.runs import SETTINGS, resume, stopped_at, to_end, train
from benchmarks.speed.run import Failed

# N: five seconds of training or more on two quiet cores, of which a Ctrl-C hits any
STEPS = {'a2c': 150_000, 'acer': 40_000, 'ddpg': 12_000, 'dqn': 20_000, 'ppo': 300_000, 'td3': 12_000, 'trpo': 200_000}
OVERLAPPING = ('acer', 'dqn', 'ppo', 'td3')
INTERRUPTIONS = 3
WAYS = {'stop': 'stop at N', 'ctrl-c': f'{INTERRUPTIONS} x Ctrl-C', 'kill': '`kill -9`'}


def measure_exact(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Compare, for each agent, and with overlap where there is one.

    Returns:
        For each case what was not equal by the way it was broken off, N, and how often it really was.
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
            log(f'{name}: {said(found[name])}')
    return {'cases': found}


def compare(agent_id: str, overlap: bool, steps: int, folder: Path, seed: int, log: Log) -> dict[str, Any]:
    """Make the whole run and those that were broken off, and compare their folders.

    Raises:
        Failed: where a command fails.
        ValueError: where a file cannot be read.
    """
    generator = random.Random(f'{seed} {agent_id} {overlap}')

    def begin(place: Path, until: int) -> list[str]:
        return train(
            agent_id,
            place,
            overlap=overlap,
            seed=7,
            max_steps=until,
            schedule_steps=2 * steps,
            save_seconds=1.0,
            final_episodes=2,
        )

    whole = folder / 'whole'
    to_end(begin(whole, 2 * steps), folder)
    found, breaks = {}, {}
    for way in WAYS:
        place = folder / way
        if way == 'stop':
            to_end(begin(place, steps), folder)
            to_end(resume(place, '--max-steps', 2 * steps), folder)
            breaks[way] = 1
        else:
            number, count = (signal.SIGINT, INTERRUPTIONS) if way == 'ctrl-c' else (signal.SIGKILL, 1)
            command, breaks[way] = begin(place, 2 * steps), 0
            for target in targets(2 * steps, count, generator):
                run = stopped_at(command, folder, target, number, generator)
                breaks[way] += run.process.returncode != 0
                log(f'{agent_id}: {way} after {run.steps} steps: exit code {run.process.returncode}')
                command = resume(place)
            to_end(command, folder)
        found[way] = [*differences(whole, place), *row_differences(whole, place)]
    return {'steps': steps, 'found': found, 'breaks': breaks}


def targets(steps: int, count: int, generator: random.Random) -> list[int]:
    """Return after how many steps a run is broken off: one random point in each part of it, not at the parts' ends."""
    return [int(steps * (part + generator.uniform(0, 0.7)) / count) for part in range(count)]


def said(case: dict[str, Any]) -> str:
    """One case, for the console."""
    if 'problem' in case:
        return case['problem']
    return ', '.join(f'{way}: {"equal" if not unequal else unequal[:3]}' for way, unequal in case['found'].items())


def render_exact(result: dict[str, Any]) -> str:
    """The table of what is equal, with what is not below it."""
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
    """What one run beside the whole one was found to be."""
    if 'problem' in case:
        return 'failed'
    equal = 'not equal' if case['found'][way] else 'equal'
    return equal if way == 'stop' else f'{equal}, {case["breaks"][way]} times broken off'
