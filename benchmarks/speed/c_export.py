"""Measure size and time of policies that are exported to C, compared with LiteRT and NumPy.

`python -m benchmarks.speed.c_export` exports untrained policies, because size and time do not depend on the weights. A
time is the shortest of several measurements of one call with one observation, in processor time of its thread, which
other processes of a busy machine disturb less.
"""

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import xagents
from benchmarks.tables import machine, markdown, number, where, write_section
from xagents.export import check
from xagents.export.c_program import CompiledPolicy, find_compiler
from xagents.export.formats import FORMATS
from xagents.export.policy import ExportedPolicy
from xagents.export.write import export

PAGE = Path(__file__).parents[2] / 'docs' / 'microcontroller.md'
COMMAND = 'python -m benchmarks.speed.c_export'
SECONDS, REPEATS = 0.05, 10
POLICIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    'PPO, CartPole, 64-64': ('ppo', 'CartPole-v1', {'net': [64, 64]}),
    'PPO, Pendulum, 64-64, normalised': ('ppo', 'Pendulum-v1', {'net': [64, 64], 'normalize_obs': True}),
    'PPO, Pendulum, 64 and GRU of 32': ('ppo', 'Pendulum-v1', {'net': [64], 'memory': 32}),
    'PPO, Pendulum, 64 and LSTM of 32': ('ppo', 'Pendulum-v1', {'net': [64], 'memory': 32, 'memory_kind': 'lstm'}),
    'SAC, Pendulum, 256-256': (
        'sac',
        'Pendulum-v1',
        {'net': [256, 256], 'buffer_max_size': 512, 'buffer_initial_size': 256},
    ),
}
QUICK = tuple(POLICIES)[:1]


class Measured(NamedTuple):
    """A policy in C, LiteRT and NumPy: bytes, and seconds of a call."""

    size: int
    stack: int
    small: float
    fast: float
    litert: float
    numpy: float


def shortest(call: Any) -> float:
    """Return the processor time of a call in seconds, the shortest of several measurements."""
    times = []
    for _ in range(REPEATS):
        calls, start = 0, time.thread_time()
        while (elapsed := time.thread_time() - start) < SECONDS:
            call()
            calls += 1
        times.append(elapsed / calls)
    return min(times)


def measure(agent_id: str, env: str, options: dict[str, Any], compiler: str) -> Measured:
    """Export a policy in all three formats, which compares it with its agent, and measure it."""
    with contextlib.closing(xagents.make(agent_id, env, n_envs=1, seed=1, **options)) as agent:
        agent.collector.collect(8)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            paths = {format: export(agent, format, Path(folder) / format) for format in ('c', 'litert', 'numpy')}
            seen = check.collect_observations(agent)
            policy = ExportedPolicy(agent, agent.actor.model, seen.batch, seen.starts)
            small, fast = (CompiledPolicy(paths['c'], policy, compiler, ('-std=c99', flag)) for flag in ('-Os', '-O2'))
            one = {name: array[:1] for name, array in policy.arrays.items()}
            if policy.memory_units:
                one['memory'] = np.zeros((1, policy.memory_units), np.float32)
            calls = {format: FORMATS[format].load(paths[format], policy).run for format in ('litert', 'numpy')}
            seconds = {format: shortest(lambda run=run: run(one)) for format, run in calls.items()}
            (line,) = (text for text in paths['c'].read_text().splitlines() if text.startswith('A call uses '))
            stack = int(line.split()[3])
        return Measured(small.size, stack, small.seconds_per_call(), fast.seconds_per_call(), **seconds)


def main() -> None:
    """Print the table and write it into the page."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='one policy; writes nothing')
    arguments = parser.parse_args()
    compiler = find_compiler()
    if compiler is None:
        parser.error('no C compiler is installed')
    before, rows = machine(), []
    for name in QUICK if arguments.quick else POLICIES:
        found = measure(*POLICIES[name], compiler)
        row = [f'{found.size / 1e3:.1f} kB', f'{found.stack} B', f'{number(1e9 * found.small)} ns']
        row += [f'{number(1e9 * seconds)} ns' for seconds in (found.fast, found.litert, found.numpy)]
        rows.append([name, *row])
        print(*rows[-1], sep=' | ', flush=True)
    heading = ['', 'compiled with `-Os`', 'stack', 'a call, `-Os`', 'a call, `-O2`', 'LiteRT', 'NumPy']
    how = f'processor time of a call with one observation; {Path(compiler).name} for this processor'
    note = f'{where(before)}; {how}. Made by `{COMMAND}`.'
    table = markdown(heading, rows, note)
    if not arguments.quick:
        write_section(PAGE, 'c-export', table)


if __name__ == '__main__':
    main()
