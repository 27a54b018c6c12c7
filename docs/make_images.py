"""Makes the pictures of the README again: a learning curve over three seeds, and a gif of the trained agent."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import xagents
from xagents.logs.recording import write_gif
from xagents.reports.plotting import save_plot
from xagents.runs.evaluation import choose

IMAGES = Path(__file__).parent.parent / 'img'
SEEDS = (1, 2, 3)


def train(agent_id: str, seed: int, history: Path) -> xagents.PPO:
    """Train on CartPole-v1 for 200 000 steps; one row an episode goes to `history`."""
    agent = xagents.make(agent_id, 'CartPole-v1', n_envs=16, seed=seed, history_checkpoint=str(history))
    agent.fit(max_steps=200_000)
    return agent


def film(agent: xagents.PPO, path: Path, steps: int) -> None:
    """Draw the agent's first `steps` steps as a gif."""
    envs = agent.envs.another(1, render_mode='rgb_array')
    frames = []
    observations = envs.reset(1)
    for _ in range(steps):
        frames.append(np.asarray(envs.render()[0]))
        observations, *_ = envs.step(choose(agent, observations, rng=None))
    envs.close()
    write_gif(path, frames, envs.frames_per_second)


def main() -> None:
    """Write both pictures into img/."""
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
    main()
