"""Playing whole episodes with an agent's present weights: evaluation, rendering and videos."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from xagents.checkpoints.protocols import ActingAgent
from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.envs.create import as_envs
from xagents.envs.interface import Envs
from xagents.evaluation.games import outcome_text, playing_against, show_game
from xagents.logs import video
from xagents.logs.window import Window
from xagents.options.errors import OptionError
from xagents.pipeline.context import EpisodeEnd
from xagents.system.interruption import Interruption
from xagents.system.paths import check_folder

# prints a line
Say = Callable[[str], Any]
# is called after each step with the number of finished episodes
OnStep = Callable[[int], Any]
DEFAULT_N_ENVS = 10
# steps after which an endless episode counts with its present reward
MAX_EPISODE_STEPS = 100_000
# episodes that an environment may begin without a report before this is an error
MAX_UNREPORTED = 100


def evaluation_collector(agent: ActingAgent, envs: Envs, policy: Policy | None = None) -> Collector:
    """Return a collector that plays with an agent's present weights, or with another policy, and changes no state."""
    acting = {name: (policy or member.acting_policy, member.statistics) for name, member in agent.members.items()}
    return agent.collector.with_envs(envs, acting)


def evaluate(
    agent: ActingAgent,
    episodes: int,
    stochastic: bool = False,
    seed: int | None = None,
    envs: Any = None,
    n_envs: int | None = None,
    say: Say = print,
    on_step: OnStep | None = None,
    opponent: str | None = None,
) -> dict[str, float]:
    """Play `episodes` episodes and return their statistics.

    Each environment plays an equal number of episodes, so that short episodes do not count more. The agent's statistics
    are used and do not change.

    Args:
        agent: agent that acts.
        episodes: number of episodes.
        stochastic: whether to sample actions; otherwise the agent acts greedily.
        seed: seed of the episodes. The default is derived from (seed, 'evaluate', steps).
        envs: environments to play in. The default is environments like the agent's.
        n_envs: number of parallel environments, by default 10.
        say: function that prints warnings.
        on_step: function that is called after each step with the number of finished episodes; it may raise.
        opponent: opponent in games (see `playing_against`).

    Returns:
        `mean`, `std`, `min` and `max` of the episode rewards, the mean `length`, the mean rewards of several agents
        (see `mean_rewards_per_agent`), and the share `success` if episodes report it.

    Raises:
        OptionError: if the environments end episodes without reporting them.
        RunInterrupted: if the run is to end.
    """
    if episodes < 1:
        raise ValueError(f'episodes: got {episodes}, expected a whole number at least 1')
    if envs is None:
        envs = agent.collector.evaluation_envs(min(episodes, n_envs or DEFAULT_N_ENVS))
    seed = agent.streams.derive_seed('evaluate', agent.progress.context.steps) if seed is None else seed
    agent.refresh()
    collector = evaluation_collector(agent, as_envs(envs))
    with playing_against(agent, collector.envs, opponent):
        return evaluate_collector(collector, episodes, seed, stochastic, say, on_step)


def evaluate_collector(
    collector: Collector,
    episodes: int,
    seed: int,
    stochastic: bool = False,
    say: Say = print,
    on_step: OnStep | None = None,
) -> dict[str, float]:
    """Play episodes with a collector and return the statistics that `evaluate` returns."""
    envs = collector.envs
    ended = play_episodes(collector, episode_quotas(episodes, envs), seed, stochastic, say, on_step)
    rewards = [e.reward for e in ended]
    result = {name: float(getattr(np, name)(rewards)) for name in ('mean', 'std', 'min', 'max')}
    result['length'] = float(np.mean([e.length for e in ended]))
    result |= mean_rewards_per_agent(envs.agents, ended)
    successes = [e.success for e in ended if e.success is not None]
    return {**result, 'success': float(np.mean(successes))} if successes else result


def episode_quotas(episodes: int, envs: Envs) -> np.ndarray:
    """Return the number of episodes for each environment and its agents, int [N], as equal as possible."""
    n_envs = envs.n_whole_envs
    each = np.full(n_envs, episodes // n_envs)
    each[: episodes % n_envs] += 1
    return each.repeat(envs.agents_per_env)


def mean_rewards_per_agent(agents: Sequence[str], episodes: Iterable[EpisodeEnd]) -> dict[str, float]:
    """Return the mean reward of each of several agents as `reward/NAME`, and of all agents together as `team_reward`.

    Means without an episode are left out. The result is empty if the agents have no names.
    """
    if not agents:
        return {}
    ended = list(episodes)
    own = {f'reward/{name}': [e.reward for e in ended if e.env % len(agents) == i] for i, name in enumerate(agents)}
    own['team_reward'] = [episode.team for episode in ended if episode.team is not None]
    return {name: float(np.mean(rewards)) for name, rewards in own.items() if rewards}


def play_episodes(
    collector: Collector, quota: np.ndarray, seed: int, stochastic: bool, say: Say, on_step: OnStep | None = None
) -> list[EpisodeEnd]:
    """Play `quota[i]` episodes in each environment i, and return them in the order in which they ended."""
    envs, quota = collector.envs, quota.copy()
    episodes: list[EpisodeEnd] = []
    totals, ages, unreported = np.zeros(envs.n_envs), np.zeros(envs.n_envs, int), np.zeros(envs.n_envs, int)
    rng = np.random.default_rng(seed) if stochastic else None
    envs.pop_episodes()
    collector.reset(seed)
    while quota.any():
        Interruption.check()
        before = envs.valid.copy()
        ages += before
        rewards = collector.step_groups(collector.act_groups(rng))
        totals += rewards
        unreported += envs.valid & ~before  # episodes that began since the last report
        ended = collector.ended_episodes
        if ages.max() >= MAX_EPISODE_STEPS:
            say(f'An episode of {envs.id} does not end: it counts with its reward after {MAX_EPISODE_STEPS} steps')
            ended = [EpisodeEnd(float(totals[i]), int(ages[i]), i, None) for i in np.flatnonzero(quota).tolist()]
            quota[:] = quota > 0
        for episode in ended:
            totals[episode.env] = ages[episode.env] = unreported[episode.env] = 0
            if quota[episode.env]:
                episodes.append(episode)
                if not envs.agents:
                    quota[episode.env] -= 1
                elif episode.team is not None:  # all agents of its environment have played
                    first = episode.env - episode.env % envs.agents_per_env
                    quota[first : first + envs.agents_per_env] -= 1
        if unreported.max() >= MAX_UNREPORTED:
            problem = f'{envs.id} began {MAX_UNREPORTED} episodes without reporting one'
            raise OptionError('env', f'{problem}, expected a vector that reports all')
        if on_step is not None:
            on_step(len(episodes))
    return episodes


def play(
    agent: ActingAgent,
    video_dir: str | None = None,
    render: bool = False,
    frame_dir: str | None = None,
    frame_delay: float = 0.0,
    max_steps: int | None = None,
    policy: Policy | None = None,
    frame_frequency: int = 1,
    stochastic: bool = False,
    seed: int | None = None,
    opponent: str | None = None,
) -> float:
    """Play one episode, and show or record it.

    Args:
        agent: agent whose present weights act.
        video_dir: directory for an .mp4 named after agent, environment and time.
        render: whether to show the episode in a window. Without a display one line is printed.
        frame_dir: directory for the frames as .jpg.
        frame_delay: seconds between two frames.
        max_steps: largest number of steps, or None.
        policy: policy that acts in place of the agent's own.
        frame_frequency: number of frames per saved frame.
        stochastic: whether to sample actions; otherwise the agent acts greedily.
        seed: seed of the episode. The default is derived from (seed, 'evaluate', steps).
        opponent: opponent in a game (see `playing_against`). Without pictures, the board is printed after each move.

    Returns:
        The sum of the raw rewards of all agents.

    Raises:
        OptionError: if the environment cannot render, or a directory cannot be written.
        RunInterrupted: if the run is to end.
    """
    seed = agent.streams.derive_seed('evaluate', agent.progress.context.steps) if seed is None else seed
    if render and not video.has_display():
        print('--render: there is no display; the episode is played without a window')
        render = False
    requested = {'render': render, 'video_dir': video_dir is not None, 'frame_dir': frame_dir is not None}
    drawn = [name for name, is_requested in requested.items() if is_requested]
    envs = agent.envs.recreate(1, render_mode='rgb_array' if drawn else None)
    with contextlib.ExitStack() as stack:
        stack.callback(envs.close)
        if drawn and not envs.can_render:
            raise OptionError(drawn[0], f'{envs.id} draws no pictures, expected environments that do')
        name = f'{agent.id}-{Path(envs.id).name.replace(":", "-")}'
        sinks: list[Callable[[np.ndarray], Any]] = []
        if video_dir is not None:
            path = _checked_folder('video_dir', video_dir) / f'{name}-{datetime.now():%Y%m%d-%H%M%S-%f}.mp4'
            sinks.append(stack.enter_context(video.VideoWriter(path, envs.frames_per_second)).write)
        if frame_dir is not None:
            sinks.append(_frame_writer(_checked_folder('frame_dir', frame_dir), frame_frequency))
        if render:
            sinks.append(stack.enter_context(Window(name, envs.frames_per_second)).show)
        agent.refresh()
        collector, agents = evaluation_collector(agent, envs, policy), envs.agents
        stack.enter_context(playing_against(agent, envs, opponent))
        after = show_game if envs.is_game and not drawn else None
        rewards, steps = play_episode(collector, seed, max_steps, stochastic, sinks, frame_delay, after)
    reward = float(sum(rewards))
    if envs.is_game and (max_steps is None or steps < max_steps):
        print(outcome_text(reward))
    print(f'Episode reward: {reward:g}, steps: {steps}')
    if agents:
        each = ', '.join(f'{name} {of:g}' for name, of in zip(agents, rewards, strict=True))
        print(f'Rewards of the agents: {each}')
    if video_dir is not None:
        print(f'Video: {path}')
    if frame_dir is not None:
        print(f'Frames: {frame_dir}')
    return reward


def play_episode(
    collector: Collector,
    seed: int,
    max_steps: int | None = None,
    stochastic: bool = False,
    sinks: Sequence[Callable[[np.ndarray], Any]] = (),
    delay: float = 0.0,
    after: Callable[[Envs], Any] | None = None,
) -> tuple[list[float], int]:
    """Play one episode in the single environment of a collector.

    Args:
        collector: collector with one environment.
        seed: seed of the episode.
        max_steps: largest number of steps, or None.
        stochastic: whether to sample actions; otherwise the policy acts greedily.
        sinks: functions that receive every frame, uint8 [H, W, 3], including that of the first observation.
        delay: seconds between two frames.
        after: function that is called with the environments after the reset and after each step.

    Returns:
        The raw reward of each agent, and the number of steps.

    Raises:
        RunInterrupted: if the run is to end.
    """
    envs, steps = collector.envs, 0
    totals, is_over = np.zeros(envs.n_envs), False
    envs.pop_episodes()
    rng = np.random.default_rng(seed) if stochastic else None
    collector.reset(seed)
    _show(envs, sinks)
    if after is not None:
        after(envs)
    while not is_over and (max_steps is None or steps < max_steps):
        Interruption.check()
        rewards = collector.step_groups(collector.act_groups(rng))
        steps, totals = steps + 1, totals + rewards
        for ended in collector.ended_episodes:
            is_over = not envs.agents or ended.team is not None
            if not envs.agents:
                totals[ended.env], steps = ended.reward, ended.length
        _show(envs, sinks)
        if after is not None:
            after(envs)
        if delay:
            time.sleep(delay)
    return totals.tolist(), steps


def _show(envs: Envs, sinks: Sequence[Callable[[np.ndarray], Any]]) -> None:
    if sinks:
        frame = envs.render()[0]
        for sink in sinks:
            sink(frame)


def _frame_writer(folder: Path, frequency: int) -> Callable[[np.ndarray], Any]:
    """Return a sink that writes one of every `frequency` frames as .jpg."""
    count = itertools.count()

    def sink(frame: np.ndarray) -> None:
        i = next(count)
        if i % frequency == 0:
            video.write_frame(folder / f'{i:05}.jpg', frame)

    return sink


def _checked_folder(name: str, folder: str) -> Path:
    check_folder(name, folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
