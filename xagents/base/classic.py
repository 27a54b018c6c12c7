"""The attributes and methods by which 1.0's notebooks and subclasses know an agent; all of them are thin.

What a subclass may override stands in the class; the rest is looked up where an attribute is missing.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.envs.spaces import ActionDecoder
from xagents.logs.history import HistoryWriter, read_history
from xagents.pipeline.context import Context
from xagents.runs.capture import state_of
from xagents.runs.run import Run
from xagents.runs.saving import is_better, write_weights
from xagents.runs.stages import why_stop

COUNTERS = ('steps', 'games', 'mean_reward', 'best_reward', 'plateau_count', 'early_stop_count')
ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    **{name: operator.attrgetter(f'progress.context.{name}') for name in COUNTERS},
    'context': operator.attrgetter('progress.context'),
    'total_rewards': operator.attrgetter('progress.rewards'),
    'n_envs': operator.attrgetter('envs.n_envs'),
    'n_actions': lambda agent: ActionDecoder(agent.envs.action_space).n_actions,
    'input_shape': lambda agent: tuple(agent.envs.observation_space.shape),
    'reset_envs': operator.attrgetter('collector.reset'),
    'get_states': operator.attrgetter('collector.standing'),
}


class Classic:
    """The steps of 1.0's loop as methods, and a run's counters as attributes.

    Attributes:
        context: the last iteration's, written just before its log is yielded; its counters are attributes, too.
        total_rewards: the rewards of the last episodes.
        n_envs: environments side by side.
        n_actions: number of discrete actions, or length of a flat continuous one.
        input_shape: shape of one encoded observation.
    """

    context: Context
    steps: int
    games: int
    mean_reward: float
    best_reward: float
    total_rewards: deque[float]
    plateau_count: int
    early_stop_count: int
    n_envs: int
    n_actions: int
    input_shape: tuple[int, ...]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def train_step(self) -> None:
        """One iteration, for a subclass that does not split it into `collect` and `learn`."""

    def at_step_start(self) -> None:
        """Called before `train_step`."""

    def at_step_end(self) -> None:
        """Called after `train_step`."""


def set_seeds(agent: Any, seed: int) -> None:
    """Seed everything random anew; environments at their next reset."""
    agent.options.seed = agent.options.resolve({'seed': seed}).seed
    agent.streams.restart(seed)
    agent.collector.observations = None


def step_envs(
    agent: Any, actions: Any, get_observation: bool = False, store_in_buffers: bool = False
) -> list[np.ndarray]:
    """Step every environment, and count steps and episodes.

    Args:
        agent: whose environments step.
        actions: environment actions [N, …].
        get_observation: whether to return what was seen.
        store_in_buffers: whether an agent's replay buffer remembers the step.

    Returns:
        Observations, actions, rewards, terminated, next observations, [N, …] each, or an empty list. In the step
        after an episode's end its environment only resets: `envs.valid` says so beforehand.
    """
    if store_in_buffers and not hasattr(agent, 'buffer'):
        raise ValueError(f'store_in_buffers: {type(agent).__name__} has no replay buffer')
    collector = agent.collector
    before, valid = collector.standing(), agent.envs.valid.copy()
    after, rewards, terminated, truncated = collector.step(np.asarray(actions))
    if store_in_buffers:
        row = {'actions': collector.decode.inverse(actions), 'rewards': rewards, 'valid': valid}
        row |= {'terminated': terminated, 'truncated': truncated}
        observations = np.stack([before, after])
        agent.buffer.add({'observations': observations, **{name: np.asarray(x)[None] for name, x in row.items()}})
    if not get_observation:
        return []
    return [before, np.asarray(actions), np.array(rewards), np.array(terminated), np.array(after)]


def update_metrics(agent: Any) -> None:
    """Take the mean of the last episodes, and a new best if it is one."""
    context = agent.context
    if agent.total_rewards:
        context.mean_reward = float(np.mean(agent.total_rewards))
    if is_better(context.mean_reward, context.best_reward):
        context.best_reward = context.mean_reward


def check_episodes(agent: Any) -> None:
    """Update the mean when as many episodes have ended as `log_frequency` says."""
    if agent.games - agent.context.checked_games >= (agent.log_frequency or agent.n_envs):
        agent.context.checked_games = agent.games
        agent.update_metrics()


def training_done(agent: Any) -> bool:
    """Return whether the target or the budget is reached, or the run stopped early."""
    return bool(why_stop(agent.run or Run(agent, agent.defaults), agent.context))


def checkpoint(agent: Any) -> None:
    """Write `checkpoints` now, from the present weights."""
    if agent.checkpoints:
        write_weights(agent.checkpoints, agent, state_of(agent))


def update_history(agent: Any, episode_reward: float) -> None:
    """Add an episode to `history_checkpoint`."""
    if agent.history_checkpoint:
        context = agent.context
        with HistoryWriter(agent.history_checkpoint, resume=True) as writer:
            reward = float(episode_reward)
            writer.append([(context.mean_reward, context.best_reward, reward, context.steps, context.seconds)])


def init_from_checkpoint(agent: Any) -> None:
    """Take over steps, games, time and best from `history_checkpoint`."""
    if not agent.history_checkpoint:
        return
    history = read_history(agent.history_checkpoint)
    if len(history):
        last, context = history.iloc[-1], agent.context
        context.steps, context.games = int(last['step']), len(history)
        context.seconds, context.best_reward = float(last['time']), float(last['best_reward'])


_METHODS = (set_seeds, step_envs, update_metrics, check_episodes, training_done, checkpoint, update_history)
METHODS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (*_METHODS, init_from_checkpoint)}
