"""The attributes and methods by which 1.0's notebooks and subclasses know an agent; all of them are thin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xagents.pipeline.context import EndedEpisode
from xagents.runs.saving import is_better
from xagents.runs.stages import why_stop

if TYPE_CHECKING:
    from xagents.envs.create import Episode
    from xagents.runs.learner import Learner


class Classic:
    """A run's counters as attributes, and the steps of 1.0's loop as methods."""

    observations: np.ndarray | None
    restarted: bool
    collected: list[EndedEpisode]
    collected_steps: int

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # counters: written once an iteration, just before its log is yielded

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.context.steps

    @property
    def games(self) -> int:
        """Episodes that ended so far."""
        return self.context.games

    @property
    def mean_reward(self) -> float:
        """Mean of the last episodes; NaN before the first."""
        return self.context.mean_reward

    @property
    def best_reward(self) -> float:
        """The best mean so far; NaN before the first."""
        return self.context.best_reward

    @property
    def plateau_count(self) -> int:
        """Checks without a new best."""
        return self.context.plateau_count

    @property
    def early_stop_count(self) -> int:
        """Reductions of the learning rate."""
        return self.context.early_stop_count

    @property
    def n_envs(self) -> int:
        """Environments side by side."""
        return self.envs.n_envs

    @property
    def n_actions(self) -> int:
        """Number of discrete actions, or length of a flat continuous one."""
        return self.decode.n_actions

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one encoded observation."""
        return tuple(self.envs.observation_space.shape)

    # the loop

    def train_step(self) -> None:
        """One iteration, for a subclass that does not split it into `collect` and `learn`."""

    def at_step_start(self) -> None:
        """Called before `train_step`."""

    def at_step_end(self) -> None:
        """Called after `train_step`."""

    def set_seeds(self, seed: int) -> None:
        """Seed everything random anew; environments at their next reset."""
        self.options.seed = self.options.resolve({'seed': seed}).seed
        self._rngs.clear()
        self.observations = None

    def reset_envs(self) -> None:
        """Begin a new episode in every environment."""
        seed = int(self.rng('env').integers(2**31))
        self.observations = self.envs.reset(seed)
        self.restarted = True

    def get_states(self) -> np.ndarray:
        """Return the observations [N, *D] that the environments stand at."""
        if self.observations is None:
            self.reset_envs()
        return np.array(self.observations)

    def step_envs(
        self, actions: Any, get_observation: bool = False, store_in_buffers: bool = False
    ) -> list[np.ndarray]:
        """Step every environment, and count steps and episodes.

        Args:
            actions: environment actions [N, …].
            get_observation: whether to return what was seen.
            store_in_buffers: whether an agent's replay buffer remembers the step.

        Returns:
            Observations, actions, rewards, terminated, next observations, [N, …] each, or an empty list. In the step
            after an episode's end its environment only resets: `envs.valid` says so beforehand.
        """
        if store_in_buffers and not hasattr(self, 'buffer'):
            raise ValueError(f'store_in_buffers: {type(self).__name__} has no replay buffer')
        before = self.get_states()
        valid = self.envs.valid.copy()
        after, rewards, terminated, truncated = self.envs.step(np.asarray(actions))
        self.observations = after
        if store_in_buffers:
            row = {'actions': self.decode.inverse(actions), 'rewards': rewards, 'valid': valid}
            row |= {'terminated': terminated, 'truncated': truncated}
            observations = np.stack([before, after])
            self.buffer.add({'observations': observations, **{name: np.asarray(x)[None] for name, x in row.items()}})
        self.collected_steps += int(np.count_nonzero(valid))
        self.note_episodes(self.envs.pop_episodes(), 0.0)
        if not get_observation:
            return []
        return [before, np.asarray(actions), np.array(rewards), np.array(terminated), np.array(after)]

    def note_episodes(self, episodes: list[Episode], seconds: float) -> None:
        """Remember episodes that ended, at `collected_steps` and `seconds` of this iteration."""
        if episodes:
            self.collected += [
                EndedEpisode(e.reward, e.length, e.success, self.collected_steps, seconds) for e in episodes
            ]

    def update_metrics(self) -> None:
        """Take the mean of the last episodes, and a new best if it is one."""
        if self.total_rewards:
            self.context.mean_reward = float(np.mean(self.total_rewards))
        if is_better(self.context.mean_reward, self.context.best_reward):
            self.context.best_reward = self.context.mean_reward

    def check_episodes(self) -> None:
        """Update the mean when as many episodes have ended as `log_frequency` says."""
        if self.games - self.context.checked_games >= (self.run.log_frequency or self.n_envs):
            self.context.checked_games = self.games
            self.update_metrics()

    def training_done(self) -> bool:
        """Return whether the target or the budget is reached, or the run stopped early."""
        return bool(why_stop(cast('Learner', self), self.context))

    def checkpoint(self) -> None:
        """Write `checkpoints` now, from the present weights."""
        if self.run.checkpoints:
            self.write_checkpoints(self.state())

    def update_history(self, episode_reward: float) -> None:
        """Add an episode to `history_checkpoint`."""
        from xagents.logs.history import HistoryWriter

        if self.run.history_checkpoint:
            writer = HistoryWriter(self.run.history_checkpoint, resume=True)
            context = self.context
            writer.append([(self.mean_reward, self.best_reward, float(episode_reward), self.steps, context.seconds)])
            writer.close()

    def init_from_checkpoint(self) -> None:
        """Take over steps, games, time and best from `history_checkpoint`."""
        from xagents.logs.history import read_history

        if self.run.history_checkpoint:
            history = read_history(self.run.history_checkpoint)
            if len(history):
                last = history.iloc[-1]
                self.context.steps, self.context.games = int(last['step']), len(history)
                self.context.seconds, self.context.best_reward = float(last['time']), float(last['best_reward'])
