"""Makes the pictures of the README again: a learning curve over three seeds, and a gif of the trained agent."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import xagents
from xagents.reports.plotting import save_plot
from xagents.runs.evaluation import player

IMAGES = Path(__file__).parent.parent / 'img'
SEEDS = (1, 2, 3)
WIDTH = 320  # of the gif; wider frames are scaled down
MAX_FPS = 25  # of the gif; frames are left out where there are more
COLOURS = 32


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


def write_gif(path: Path, frames: list[np.ndarray], fps: float) -> None:
    """Write frames, uint8 [H, W, 3] each, to a small gif that loops, at their own pace.

    One palette serves all frames and nothing is dithered, so that what does not move costs nothing: a ten-second
    CartPole episode takes about 100 KB.
    """
    stride = max(1, math.ceil(fps / MAX_FPS))
    pictures = [shrunk(Image.fromarray(frame)) for frame in frames[::stride]]
    chosen = pictures[:: math.ceil(len(pictures) / 16)]
    palette = Image.fromarray(np.concatenate([np.asarray(picture) for picture in chosen])).quantize(COLOURS)
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    # A gif counts in hundredths of a second; rounding each frame's end, not its length, keeps the pace.
    ends = [round(100 * stride * (index + 1) / fps) for index in range(len(pictures))]
    lengths = [10 * max(2, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    first.save(path, save_all=True, append_images=others, duration=lengths, loop=0, optimize=True, disposal=1)


def shrunk(picture: Image.Image) -> Image.Image:
    """Return a picture that is not wider than `WIDTH`."""
    if picture.width <= WIDTH:
        return picture
    return picture.resize((WIDTH, max(1, round(picture.height * WIDTH / picture.width))), Image.Resampling.LANCZOS)


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
