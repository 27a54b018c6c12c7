"""Makes pictures of the documentation: `python docs/make_images.py [readme] [offline] [compare]`, by default all.

`readme` makes the learning curve over three seeds and the gif of the trained agent for the README. `offline` makes the
learning curves of offline agents for docs/datasets.md. `compare` makes the comparison in docs/compare.md.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gifs import write_gif

import xagents
from xagents.cli import execute
from xagents.datasets import dataset_names
from xagents.evaluation.playing import evaluation_collector
from xagents.factory.presets import find_preset
from xagents.reports.curves import run_curves
from xagents.reports.plotting import plot_history, save_plot

IMAGES = Path(__file__).absolute().parent.parent / 'img'
SEEDS = (1, 2, 3)
# the experiment in docs/datasets.md: the data set, and the commands that record it and train on it
RECORDED = 'pendulum/medium-v0'
OFFLINE = """
train td3 --env Pendulum-v1 --max-steps 6000 --net 64 64 --buffer-max-size 20000 --buffer-initial-size 500 \
    --buffer-batch-size 128 --lr 0.001 --gamma 0.98 --train-frequency 8 --gradient-steps 8 --seed 4 \
    --run-dir runs/pendulum
record td3 --run-dir runs/pendulum --checkpoint last --episodes 100 --stochastic --step-noise-coef 0.3 \
    --random-actions 0.3 --seed 1 --dataset pendulum/medium-v0
train td3-bc --dataset pendulum/medium-v0 --max-steps 20000 --net 64 64 --gamma 0.98 --eval-frequency 1000 \
    --seeds 1 2 3 --run-dir runs/td3-bc
train iql --dataset pendulum/medium-v0 --max-steps 20000 --net 64 64 --gamma 0.98 --reward-scale 0.1 \
    --eval-frequency 1000 --seeds 1 2 3 --run-dir runs/iql
train bc --dataset pendulum/medium-v0 --max-steps 20000 --eval-frequency 1000 --seeds 1 2 3 --run-dir runs/bc
"""


def train(agent_id: str, seed: int, history: Path) -> xagents.PPO:
    """Train on CartPole-v1 with tuned settings, and write one row per episode to `history`."""
    options = find_preset(agent_id, 'CartPole-v1').options
    agent = xagents.make(agent_id, 'CartPole-v1', **options, seed=seed, history_checkpoint=str(history))
    agent.fit(max_steps=200_000)
    return agent


def film(agent: xagents.PPO, path: Path, steps: int) -> None:
    """Write a gif of the agent's first `steps` steps."""
    envs = agent.collector.evaluation_envs(1, render_mode='rgb_array')
    collector = evaluation_collector(agent, envs)
    frames = []
    collector.reset(1)
    for _ in range(steps):
        frames.append(np.asarray(envs.render()[0]))
        collector.step(collector.act())
    envs.close()
    write_gif(path, frames, envs.frames_per_second)


@contextlib.contextmanager
def working_directory(folder: str) -> Iterator[None]:
    """Change to a folder, and use its `datasets` as the root of data sets."""
    before = os.environ.get(dataset_names.ROOT)
    os.environ[dataset_names.ROOT] = str(Path(folder, 'datasets').absolute())
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop(dataset_names.ROOT)
        if before is not None:
            os.environ[dataset_names.ROOT] = before


def draw_offline(path: Path) -> None:
    """Draw the learning curves of the runs of `OFFLINE`, and the mean return of their data set."""
    from matplotlib.figure import Figure

    runs = run_curves(['runs/td3-bc', 'runs/iql', 'runs/bc'], 'mean_reward', ['TD3+BC', 'IQL', 'BC'])
    figure = Figure(figsize=(8, 4.5), layout='constrained')
    axes = plot_history(runs.frames, runs.labels, runs.env, average='mean', shade='range', ax=figure.subplots())
    mean = xagents.open_dataset(RECORDED).mean_return
    axes.axhline(mean, color='black', linestyle='--', linewidth=1, label=f'the data: {mean:.0f}')
    axes.set_xlabel('update')
    axes.legend()
    figure.savefig(path, dpi=160)


def offline() -> None:
    """Run the commands of docs/datasets.md, and write its picture."""
    with tempfile.TemporaryDirectory() as folder, working_directory(folder):
        for line in OFFLINE.strip().splitlines():
            execute(shlex.split(line))
        draw_offline(IMAGES / 'offline.png')


def compare() -> None:
    """Run the first commands of docs/compare.md, and write their picture."""
    with tempfile.TemporaryDirectory() as folder, working_directory(folder):
        for agent_id in ('ppo', 'a2c'):
            for env in ('CartPole-v1', 'Acrobot-v1'):
                line = f'train {agent_id} --env {env} --n-envs 8 --max-steps 20000 --seeds 1 2 3 4 5'
                execute(shlex.split(f'{line} --run-dir runs/{agent_id}/{env}'))
        execute(['compare', 'runs/ppo', 'runs/a2c', '--versus', 'a2c', '--out', str(IMAGES / 'compare.png')])


def readme() -> None:
    """Write the two pictures of the README."""
    with tempfile.TemporaryDirectory() as folder:
        histories, labels = [], []
        for agent_id in ('ppo', 'a2c'):
            for seed in SEEDS:
                histories.append(Path(folder) / f'{agent_id}-{seed}.parquet')
                labels.append(agent_id.upper())
                agent = train(agent_id, seed, histories[-1])
                if agent_id == 'ppo' and seed == SEEDS[-1]:
                    film(agent, IMAGES / 'cartpole.gif', 250)
                agent.close()
        save_plot(histories, labels, out=IMAGES / 'learning-curve.png', env='CartPole-v1')


if __name__ == '__main__':
    for name in sys.argv[1:] or ('readme', 'offline', 'compare'):
        {'readme': readme, 'offline': offline, 'compare': compare}[name]()
