"""Playing whole episodes with an agent's present weights: to measure it, and to show it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.envs.create import Envs, Episode, as_envs
from xagents.system.interruption import Interruption
from xagents.system.paths import check_folder

if TYPE_CHECKING:
    from xagents.runs.learner import Learner

ENVIRONMENTS = 10
# steps after which an episode without a time limit counts as it stands
LONGEST = 100_000


def evaluate(
    agent: Learner, episodes: int, stochastic: bool = False, seed: int | None = None, envs: Any = None
) -> dict[str, float]:
    """Play `episodes` episodes, an equal quota in each environment, so that short ones do not count more.

    Args:
        agent: whose normaliser is used and left as it is.
        episodes: at least 1.
        stochastic: sample actions; greedy when not.
        seed: of environments and actions.
        envs: to play in; made anew and kept for the next evaluation when not given.

    Returns:
        mean, std, min, max of the raw rewards, and the mean length in steps.

    Raises:
        Interrupted: where the run that asks is to end.
    """
    if episodes < 1:
        raise ValueError(f'episodes: got {episodes}, admits a whole number at least 1')
    envs = as_envs(envs) if envs is not None else _evaluation_envs(agent, min(episodes, ENVIRONMENTS))
    seed = agent.evaluation_seed(agent.steps) if seed is None else seed
    quota = np.full(envs.n_envs, episodes // envs.n_envs)
    quota[: episodes % envs.n_envs] += 1
    played: list[Episode] = []
    so_far, ages = np.zeros(envs.n_envs), np.zeros(envs.n_envs, int)
    envs.pop_episodes()
    agent.refresh()
    rng = np.random.default_rng(seed) if stochastic else None
    observations = envs.reset(seed)
    while quota.any():
        Interruption.check()
        ages += envs.valid
        observations, rewards, *_ = envs.step(choose(agent, observations, rng))
        so_far += rewards
        ended = envs.pop_episodes()
        if ages.max() >= LONGEST:
            agent.console.say(f'An episode of {envs.id} does not end: it counts as it stands after {LONGEST} steps')
            ended = [Episode(float(so_far[i]), int(ages[i]), i, None) for i in np.flatnonzero(quota).tolist()]
            quota[:] = quota > 0
        for episode in ended:
            so_far[episode.env] = ages[episode.env] = 0
            if quota[episode.env]:
                quota[episode.env] -= 1
                played.append(episode)
    earned, lengths = [e.reward for e in played], [e.length for e in played]
    return {
        'mean': float(np.mean(earned)),
        'std': float(np.std(earned)),
        'min': float(np.min(earned)),
        'max': float(np.max(earned)),
        'length': float(np.mean(lengths)),
    }


def choose(agent: Learner, observations: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Return environment actions [N, …] for encoded observations [N, *D]: sampled with `rng`, greedy without."""
    noise = None if rng is None else agent.draw_noise(rng, (len(observations),))
    return agent.decode(agent.policy(agent.prepare(observations), noise)['actions'])


def _evaluation_envs(agent: Learner, n_envs: int) -> Envs:
    key = ('evaluate', n_envs)
    if key not in agent._evaluation_envs:
        agent._evaluation_envs[key] = agent.envs.another(n_envs)
    return agent._evaluation_envs[key]


def play(
    agent: Learner,
    video_dir: str | None = None,
    render: bool = False,
    frame_dir: str | None = None,
    frame_delay: float = 0.0,
    max_steps: int | None = None,
    action_idx: int = 0,
    frame_frequency: int = 1,
    stochastic: bool = False,
    seed: int | None = None,
) -> float:
    """Play one episode, and show or record it.

    Args:
        agent: whose present weights play.
        video_dir: folder for an .mp4 named after agent, environment and time.
        render: show it in a window; without a display one line says so.
        frame_dir: folder for the frames as .jpg.
        frame_delay: seconds between two frames.
        max_steps: end it after that many steps.
        action_idx: index of the policy among the model's outputs.
        frame_frequency: save every so many frames.
        stochastic: sample actions; greedy when not.
        seed: of the episode.

    Returns:
        The sum of its raw rewards.
    """
    from xagents.logs import recording
    from xagents.logs.window import Window

    seed = agent.evaluation_seed(agent.steps) if seed is None else seed
    if render and not recording.has_display():
        print('--render: there is no display here; going on without a window')
        render = False
    drawn = render or video_dir is not None or frame_dir is not None
    envs = agent.envs.another(1, render_mode='rgb_array' if drawn else None)
    with contextlib.ExitStack() as stack:
        stack.callback(envs.close)
        name = f'{agent.id}-{Path(envs.id).name.replace(":", "-")}'
        sinks = []
        if video_dir is not None:
            path = _folder('video_dir', video_dir) / f'{name}-{datetime.now():%Y%m%d-%H%M%S-%f}.mp4'
            writer = stack.enter_context(recording.VideoWriter(path, envs.frames_per_second))
            sinks.append(writer.write)
        if frame_dir is not None:
            folder = _folder('frame_dir', frame_dir)
            sinks.append(_every(frame_frequency, lambda i, frame: recording.write_frame(folder / f'{i:05}.jpg', frame)))
        if render:
            window = stack.enter_context(Window(name, envs.frames_per_second))
            sinks.append(window.show)
        stack.enter_context(agent.policy_output(action_idx))
        reward, steps = episode(agent, envs, seed, max_steps, stochastic, sinks, frame_delay)
    print(f'Episode reward: {reward:g}, steps: {steps}')
    if video_dir is not None:
        print(f'Video: {path}')
    if frame_dir is not None:
        print(f'Frames: {frame_dir}')
    return reward


def episode(
    agent: Learner,
    envs: Envs,
    seed: int,
    max_steps: int | None = None,
    stochastic: bool = False,
    sinks: Sequence[Callable[[np.ndarray], Any]] = (),
    delay: float = 0.0,
) -> tuple[float, int]:
    """Play one episode with the present weights.

    Args:
        agent: whose weights and normaliser are used and left as they are; none of its random streams is.
        envs: a single environment to play in, which can be drawn where there are sinks.
        seed: of the environment and, where they are sampled, the actions.
        max_steps: end it after that many steps.
        stochastic: sample actions; greedy when not.
        sinks: each is given every frame, uint8 [H, W, 3], the first observation's included.
        delay: seconds between two frames.

    Returns:
        Its raw reward and its steps.

    Raises:
        Interrupted: where the run that asks is to end.
    """
    steps, reward = 0, 0.0
    ended: list[Episode] = []
    envs.pop_episodes()
    agent.refresh()
    rng = np.random.default_rng(seed) if stochastic else None
    observations = envs.reset(seed)
    _show(envs, sinks)
    while not ended and (max_steps is None or steps < max_steps):
        Interruption.check()
        observations, rewards, *_ = envs.step(choose(agent, observations, rng))
        steps, reward = steps + 1, reward + float(rewards[0])
        ended = envs.pop_episodes()
        _show(envs, sinks)
        if delay:
            time.sleep(delay)
    return (ended[0].reward, ended[0].length) if ended else (reward, steps)


def _show(envs: Envs, sinks: Sequence[Callable[[np.ndarray], Any]]) -> None:
    if sinks:
        frame = envs.render()[0]
        for sink in sinks:
            sink(frame)


def _every(n: int, write: Any) -> Any:
    count = iter(range(10**9))

    def sink(frame: np.ndarray) -> None:
        i = next(count)
        if i % n == 0:
            write(i, frame)

    return sink


def _folder(name: str, folder: str) -> Path:
    check_folder(name, folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
