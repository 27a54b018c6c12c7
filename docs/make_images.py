"""Makes the pictures again: `python docs/make_images.py readme offline`, or those of them that are named.

Of the README, a learning curve over three seeds and a gif of the trained agent; of docs/datasets.md, learning from one.
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
from xagents.datasets import names
from xagents.reports.curves import run_curves
from xagents.reports.plotting import plot_history, save_plot
from xagents.runs.evaluation import player

IMAGES = Path(__file__).absolute().parent.parent / 'img'
SEEDS = (1, 2, 3)
# what docs/datasets.md shows: the data, and who learns from them
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
    """Train on CartPole-v1 for 200 000 steps; one row an episode goes to `history`."""
    agent = xagents.make(agent_id, 'CartPole-v1', n_envs=16, seed=seed, history_checkpoint=str(history))
    agent.fit(max_steps=200_000)
    return agent


def film(agent: xagents.PPO, path: Path, steps: int) -> None:
    """Draw the agent's first `steps` steps as a gif."""
    envs = agent.collector.beside(1, render_mode='rgb_array')
    collector = player(agent, envs)
    frames = []
    collector.reset(1)
    for _ in range(steps):
        frames.append(np.asarray(envs.render()[0]))
        collector.step(collector.act())
    envs.close()
    write_gif(path, frames, envs.frames_per_second)


@contextlib.contextmanager
def elsewhere(folder: str) -> Iterator[None]:
    """Work in another folder, where data sets lie, too."""
    before = os.environ.get(names.ROOT)
    os.environ[names.ROOT] = str(Path(folder, 'datasets').absolute())
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop(names.ROOT)
        if before is not None:
            os.environ[names.ROOT] = before


def draw_offline(path: Path) -> None:
    """Draw the runs of `OFFLINE` that are here, and the mean return of what they have learned from."""
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
    """Write the picture of docs/datasets.md, after the commands that stand there."""
    with tempfile.TemporaryDirectory() as folder, elsewhere(folder):
        for line in OFFLINE.strip().splitlines():
            execute(shlex.split(line))
        draw_offline(IMAGES / 'offline.png')


def readme() -> None:
    """Write both pictures of the README."""
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
    for name in sys.argv[1:] or ('readme', 'offline'):
        {'readme': readme, 'offline': offline}[name]()
