"""Trainings in this process, one after another: cases, their scores, tables, and curves of the mean of the seeds."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log

EPISODES = 100


def play_greedily(agent: Any, seed: int, **env_kwargs: Any) -> dict[str, float]:
    """Return the scores of greedy episodes, on environments with other arguments if there are any."""
    if not env_kwargs:
        return dict(agent.evaluate(EPISODES, seed=10_000 + seed))
    factory = agent.envs.factory
    envs = dataclasses.replace(factory, n_envs=4, env_kwargs={**(factory.env_kwargs or {}), **env_kwargs})()
    with envs:
        return dict(agent.evaluate(EPISODES, seed=10_000 + seed, envs=envs))


@dataclass(frozen=True)
class Case:
    """A training, which is repeated with every seed.

    Args:
        required: what the scores must reach, in words.
        settings: arguments of `xagents.make`.
        steps: of a training.
        run: further arguments of the run.
        points: number of times that the score is measured during a training, at equal distances.
        score: returns the scores of an agent; receives the agent and the seed.
    """

    required: str
    settings: dict[str, Any]
    steps: int
    run: dict[str, Any] = field(default_factory=dict)
    points: int = 1
    score: Callable[[Any, int], dict[str, float]] = play_greedily


def train(case: Case, seed: int, quick: bool = False) -> dict[str, Any]:
    """Train with a seed; return the scores of the last weights, the seconds, and the scores at each point."""
    import xagents

    steps, points = (min(case.steps, 2_000), 1) if quick else (case.steps, case.points)
    agent = xagents.make(**case.settings, seed=seed, quiet=True)
    curve: list[dict[str, float]] = []
    seconds, start = 0.0, time.perf_counter()
    for log in agent.train_iter(max_steps=steps, final_episodes=0, quiet=True, **case.run):
        if log['steps'] >= steps * (len(curve) + 1) / points:
            seconds += time.perf_counter() - start
            curve.append({'steps': log['steps'], **case.score(agent, seed)})
            start = time.perf_counter()
    agent.close()
    return {'seed': seed, 'seconds': seconds, **curve[-1], 'curve': curve}


def measure_cases(
    cases: Mapping[str, Case], folder: Path, options: argparse.Namespace, log: Log
) -> dict[str, dict[str, Any]]:
    """Train every case with every seed."""
    found = {}
    for name, case in cases.items():
        runs = []
        for seed in options.seeds[: 1 if options.quick else None]:
            runs.append(train(case, seed, options.quick))
            log(f'{name}, seed {seed}: { {key: value for key, value in runs[-1].items() if key != "curve"} }')
        found[name] = {'required': case.required, 'steps': case.steps, 'runs': runs}
    return found


def render_cases(columns: Mapping[str, str], below: str, found: dict[str, Any]) -> str:
    """Return the table of scores.

    Args:
        columns: the heading of each score.
        below: the text below the table.
        found: from `measure_cases`.
    """
    rows = []
    for name, case in found.items():
        runs = case['runs']
        scores = [', '.join(f'{run[key]:.2f}' for run in runs) for key in columns]
        seconds = statistics.median(run['seconds'] for run in runs)
        rows.append([name, tables.number(case['steps']), *scores, case['required'], f'{seconds:.0f}'])
    return tables.markdown(['', 'steps', *columns.values(), 'required', 'seconds'], rows, below)


def draw(path: Path, panels: Sequence[tuple[str, str, dict[str, Any]]], key: str = 'mean') -> None:
    """Draw curves: for each case the mean of the seeds, and each seed as a thin line.

    Args:
        path: of the picture.
        panels: title, label of the vertical axis, and cases from `measure_cases`.
        key: the score that is drawn.
    """
    from matplotlib.figure import Figure

    from xagents.system.files import atomic_write

    figure = Figure(figsize=(4.6 * len(panels), 3.4), layout='constrained')
    for number, (title, label, found) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for i, (name, case) in enumerate(found.items()):
            curves = [run['curve'] for run in case['runs']]
            steps = [point['steps'] for point in curves[0]]
            for curve in curves:
                axes.plot(steps, [point[key] for point in curve], color=f'C{i}', linewidth=0.7, alpha=0.4)
            means = [statistics.mean(point[key] for point in points) for points in zip(*curves, strict=True)]
            axes.plot(steps, means, color=f'C{i}', label=name)
        axes.set(title=title, xlabel='steps', ylabel=label)
        axes.xaxis.set_major_formatter(lambda step, place: f'{step / 1000:g}k')
        axes.grid(alpha=0.3)
        axes.legend(fontsize='small')
    # low resolution for a small file
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format='png', dpi=110)
