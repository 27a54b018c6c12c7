"""The tables and the picture of the benchmark with several agents."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from xagents.system.files import atomic_write

Runs = Sequence[dict[str, Any]]
BASELINE = 'sb3'
TITLES = {
    'learning': 'simple_spread, 3 million steps',
    'speed': 'simple_spread, environments in the process or in others',
    'cheap': 'An environment with negligible cost',
}
NOTES = {
    'learning': """\
*greedy*, *sampled*: mean return of an agent in 100 episodes with the last weights, from the same initial states for
both libraries: the mean of the seeds, and in brackets each seed. *training*: the same for the episodes that ended in
the last 100 000 training steps. Speed is that of whole training runs. PPO with 8 environments of 3 agents and 125 steps
each, 10 epochs of minibatches of 600, Adam 3e-4 (ε 1e-5), γ 0.99, λ 0.95, clip 0.2, entropy 0.01, gradients up to
0.5; two networks 64-64 tanh, orthogonal.""",
    'speed': 'The first 6 000 steps, which include compiling, are not counted.',
    'cheap': """\
Shapes and time limit of simple_spread; a step only looks up a table: `pettingzoo:benchmarks.envs.cheap`. The first
6 000 steps are not counted.""",
}


def render(runs: Runs, labels: Mapping[str, str], before: str = '') -> str:
    """Return the table of each part, with the command that makes it.

    A part without runs keeps its table of `before`, the section of the page.
    """
    sections, texts = [], jobs.parts_in(before)
    for part, title in TITLES.items():
        chosen = [run for run in runs if run['part'] == part]
        if chosen:
            table = learning_table if part == 'learning' else speed_table
            sections += [f'### {title}', table(chosen, labels), NOTES[part], provenance(part, chosen)]
        elif title in texts:
            sections += [f'### {title}', texts[title]]
    return '\n\n'.join(sections) or jobs.EMPTY


def by_row(runs: Runs, labels: Mapping[str, str]) -> dict[str, Runs]:
    """Return the runs of each row, sorted by seed, in the order of the rows."""
    found = {name: sorted((r for r in runs if r['row'] == name), key=lambda run: run['seed']) for name in labels}
    return {name: of_row for name, of_row in found.items() if of_row}


def learning_table(runs: Runs, labels: Mapping[str, str]) -> str:
    """Return the table of scores and of the speed of whole trainings."""
    rows = []
    for name, of_row in by_row(runs, labels).items():
        seeds = ', '.join(str(run['seed']) for run in of_row)
        scores = [[run['result'][kind] for run in of_row] for kind in ('greedy', 'sampled')]
        scores.append([curve(run)[-1] for run in of_row])
        rows.append([labels[name], seeds, *map(mean_and_seeds, scores), *speed(name, runs)])
    heading = ['', 'seeds', 'greedy', 'sampled', 'training', 'steps/s', 'relative to SB3', 'the same in processor time']
    return tables.markdown([*heading, 'in the environment', 'learning'], rows)


def curve(run: dict[str, Any]) -> list[float]:
    """Return the mean returns of whole bins. The last rollout may end after the last requested step."""
    return list(run['result']['curve'][: run['job']['steps'] // run['job']['width']])


def speed_table(runs: Runs, labels: Mapping[str, str]) -> str:
    """Return the table of speeds."""
    rows = [[labels[name], *speed(name, runs)] for name in by_row(runs, labels)]
    heading = ['', 'steps/s', 'relative to SB3', 'the same in processor time', 'in the environment', 'learning']
    return tables.markdown(heading, rows)


def mean_and_seeds(values: Sequence[float]) -> str:
    """Return the mean of the seeds, and the value of each if there are several."""
    text = f'{statistics.mean(values):.2f}'
    return text if len(values) == 1 else f'{text} ({", ".join(f"{value:.2f}" for value in values)})'


def speed(name: str, runs: Runs) -> list[str]:
    """Return steps per second, ratios to the baseline seed by seed, and shares of the time."""
    of_row, baseline = ({run['seed']: run for run in runs if run['row'] == row} for row in (name, BASELINE))
    pairs = [(of_row[seed], baseline[seed]) for seed in sorted(of_row) if seed in baseline]
    # the processor time of a process does not include that of environments in other processes
    one_process = not any(run['job']['options'].keys() - {'bootstrap'} for run in of_row.values())
    ratios = []
    for clock in ('seconds', 'processor_seconds'):
        found = [rate(ours, clock) / rate(theirs, clock) for ours, theirs in pairs]
        shown = found and name != BASELINE and (one_process or clock == 'seconds')
        ratios.append(tables.spread(found, 2) if shown else '')
    done = [run['result'] for run in of_row.values()]
    total = sum(result['seconds'] for result in done)
    shares = [sum(result['parts'][part] for result in done) / total for part in ('env', 'learn')]
    rates = tables.spread([rate(run, 'seconds') for run in of_row.values()])
    return [rates, *ratios, *map(tables.percent, shares)]


def rate(run: dict[str, Any], clock: str) -> float:
    """Return steps per second by one of the clocks."""
    return float(run['result']['steps'] / run['result'][clock])


def provenance(part: str, runs: Runs) -> str:
    """Return dates, machines, versions and the command."""
    machines = dict.fromkeys(
        f'{run["machine"]["date"]}, {tables.machine_type(run["machine"])}, {run["machine"]["system"]}' for run in runs
    )
    loads = sorted(float(run['machine']['load']) for run in runs)
    versions = {name: version for run in runs for name, version in run['result']['versions'].items()}
    command = f'python -m benchmarks.teams.run --only {part}'
    about = f'{"; ".join(machines)}, load {loads[0]} to {loads[-1]} before the runs; {tables.versions(versions)}'
    return f'{about}. Made by `{command}`.'


def draw(runs: Runs, labels: Mapping[str, str], path: Path) -> None:
    """Draw the learning curves, mean and range of the seeds, if there are runs. A point is the middle of a bin."""
    if not runs:
        return
    import pandas as pd
    from matplotlib.figure import Figure

    from xagents.reports.plotting import plot_history

    frames, names = [], []
    for row, of_row in by_row(runs, labels).items():
        for run in of_row:
            returns, width = curve(run), run['job']['width']
            steps = [width * (number + 0.5) for number in range(len(returns))]
            frames.append(pd.DataFrame({'step': steps, 'episode_reward': returns}))
            names.append(labels[row])
    figure = Figure(figsize=(7, 4), layout='constrained')
    axes = figure.subplots()
    plot_history(frames, names, 'simple_spread_v3', 'episode_reward', shade='range', ax=axes)
    axes.set_xlabel('steps of agents')
    axes.set_ylabel('mean return of an agent')
    # low resolution for a small file
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format='png', dpi=110)
