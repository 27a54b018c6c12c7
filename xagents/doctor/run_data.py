"""The content of a run directory, with transitions of its last policy. Does not load TensorFlow."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xagents.checkpoints.status import read_status
from xagents.config.configuration import read_plain_config
from xagents.doctor.sample import Sample, random_rewards, take_sample
from xagents.envs.normalisation import RewardNormalizer
from xagents.factory.players import load_player
from xagents.factory.presets import find_preset, find_score
from xagents.logs.history import read_history
from xagents.logs.metrics import STEPS, read_metrics
from xagents.options.errors import OptionError, one_line
from xagents.system.file_names import CONFIG

HISTORY, METRICS = 'history.parquet', 'metrics.parquet'
SAMPLE_STEPS, SAMPLE_SECONDS = 2048, 15.0
RANDOM_EPISODES, RANDOM_SECONDS = 30, 5.0
MIN_EPISODES = 20  # fewer episodes do not show whether a run learned


@dataclass(frozen=True)
class RunData:
    """The content of a run directory.

    Attributes:
        folder: the run directory.
        options: the options of the run by name.
        status: the content of its status file.
        metrics: one row per iteration; without rows if there are none.
        rewards: the sums of rewards of all episodes, in order.
        ends: the steps of the ends of these episodes.
        sample: transitions of the last policy; None if they cannot be collected.
        sample_problem: why there is no sample.
        random_rewards: the sums of rewards of episodes with random actions; empty if there are none.
    """

    folder: Path
    options: Mapping[str, Any]
    status: Mapping[str, Any]
    metrics: pd.DataFrame
    rewards: np.ndarray
    ends: np.ndarray
    sample: Sample | None = None
    sample_problem: str = ''
    random_rewards: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def is_offline(self) -> bool:
        """Whether the run learned from a data set, without environment steps."""
        return self.options.get('dataset') is not None

    @property
    def steps(self) -> int:
        """The number of environment steps."""
        return int(self.status.get('steps') or 0)

    def metric(self, name: str) -> np.ndarray:
        """Return the finite values of a metric; empty if the run has none."""
        if name not in self.metrics:
            return np.zeros(0)
        values = self.metrics[name].to_numpy(float)
        return values[np.isfinite(values)]

    def late(self, name: str) -> float:
        """Return the median of a metric in the last quarter of the run; NaN if the run has none."""
        values = self.metric(name)
        return float(np.median(values[-max(len(values) // 4, 1) :])) if len(values) else math.nan

    @property
    def updates(self) -> int:
        """The number of updates."""
        values = self.metric('updates')
        return int(values[-1]) if len(values) else 0

    @functools.cached_property
    def window(self) -> int:
        """The number of episodes of a mean: a tenth of all."""
        return max(len(self.rewards) // 10, 5)

    @functools.cached_property
    def first(self) -> tuple[float, float]:
        """Mean and standard deviation of the rewards of the first episodes."""
        first = self.rewards[: self.window]
        return float(first.mean()), float(first.std())

    @functools.cached_property
    def baseline(self) -> tuple[float, float]:
        """Mean and standard deviation of episodes with random actions, or of the first ones if there are none."""
        drawn = self.random_rewards
        # the first episodes of a run may already be better, or, if it is broken, worse
        return (float(drawn.mean()), float(drawn.std())) if len(drawn) else self.first

    @functools.cached_property
    def means(self) -> np.ndarray:
        """Moving means of the rewards of episodes."""
        sums = np.cumsum(np.insert(self.rewards, 0, 0.0))
        return (sums[self.window :] - sums[: -self.window]) / self.window

    @property
    def has_episodes(self) -> bool:
        """Whether there are enough episodes to see progress."""
        return len(self.rewards) >= MIN_EPISODES

    @functools.cached_property
    def rose(self) -> bool:
        """Whether the mean reward rose clearly above that of random actions, at any time."""
        if not self.has_episodes:
            return False
        mean, deviation = self.baseline
        # the mean of `window` episodes varies by deviation / sqrt(window), and the largest of many means by more
        rise = max(deviation, 5 * deviation / math.sqrt(self.window), 0.02 * abs(mean), 1e-9)
        return float(self.means.max()) > mean + rise

    @functools.cached_property
    def is_good(self) -> bool:
        """Whether the last mean reward is about that of the preset, or the target."""
        if not self.has_episodes:
            return False
        last, target = float(self.means[-1]), self.options.get('target_reward')
        known = [score for score in (target, *self._known_scores()) if score is not None]
        mean, _ = self.first
        return any(last >= score - 0.1 * abs(score) or (mean < score and last >= score) for score in known)

    def _known_scores(self) -> Iterator[float | None]:
        if any(self.options.get(name) for name in ('max_episode_steps', 'env_kwargs', 'wrapper')):
            return  # scores are those of the unchanged environment
        try:
            preset = find_preset(self.options['agent'], self.options['env'], self.options)
        except (OptionError, KeyError, AttributeError):
            return
        score = find_score(preset)
        yield preset.published
        yield None if score is None else score.median

    def flags(self, *names: str) -> str:
        """Return the flags of the options that the agent of the run has, separated by commas."""
        return ', '.join('--' + name.replace('_', '-') for name in names if name in self.options)

    @property
    def learned(self) -> bool:
        """Whether symptoms do not count: the agent learned, or is as good as expected."""
        return self.rose or self.is_good

    @property
    def return_bound(self) -> float:
        """The largest absolute discounted return that rewards like those of the sample can sum to."""
        assert self.sample is not None
        largest = float(np.abs(self.sample.learned_rewards).max())
        return largest * min(1 / max(1 - float(self.options['gamma']), 1e-6), self.episode_length)

    @functools.cached_property
    def episode_length(self) -> float:
        """The mean number of steps of an episode; the number of all steps if none ended."""
        lengths = self.metric('episode_length')
        return float(lengths.mean()) if len(lengths) else float(max(self.steps, 1))


def read_run_data(folder: Path, sample: bool = True) -> RunData:
    """Read a run directory, and collect a sample of transitions with the policy of its last checkpoint.

    Raises:
        ValueError: in one line, if its settings, its status or a table is missing or damaged.
    """
    options = {name.replace('-', '_'): value for name, value in read_plain_config(folder / CONFIG).items()}
    metrics = read_metrics(folder / METRICS) if (folder / METRICS).exists() else pd.DataFrame({STEPS: []})
    history = read_history(folder / HISTORY) if (folder / HISTORY).exists() else None
    rewards, ends = np.zeros(0), np.zeros(0)
    if history is not None and len(history):
        finite = np.isfinite(history['episode_reward'].to_numpy(float))
        rewards, ends = (history[name].to_numpy(float)[finite] for name in ('episode_reward', 'step'))
    elif 'evaluate/mean' in metrics:  # a run on a data set has evaluations only
        known = metrics[metrics['evaluate/mean'].notna()]
        rewards, ends = known['evaluate/mean'].to_numpy(float), known[STEPS].to_numpy(float)
    run = RunData(folder, options, read_status(folder), metrics, rewards, ends, sample_problem='not collected')
    return _with_sample(run) if sample else run


def _with_sample(run: RunData) -> RunData:
    """Return the data with transitions of the last policy and random episodes, or the reason why there are none."""
    options = run.options
    try:
        player = load_player(run.folder, 'last', {})
    except (ValueError, ImportError) as error:
        return replace(run, sample_problem=one_line(error))
    if player is None:
        return replace(run, sample_problem='the run has no saved policy that acts without its agent, as teams')
    try:
        if player.envs.is_game or player.envs.agents:
            return replace(run, sample_problem='the environment has several agents')
        # a saved policy contains the statistics of observations only
        gamma = options.get('gamma') or 0.99  # agents that only imitate have none
        rewards = RewardNormalizer(player.envs.n_envs, gamma) if options.get('normalize_reward') else None
        statistics = replace(player.statistics, rewards=rewards, reward_scale=options.get('reward_scale') or 1.0)
        acting = player.acting_policy, statistics, gamma
        taken = take_sample(player.envs, *acting, SAMPLE_STEPS, SAMPLE_SECONDS)
        drawn = random_rewards(player.envs, RANDOM_EPISODES, RANDOM_SECONDS)
        return replace(run, sample=taken, sample_problem='', random_rewards=drawn)
    except Exception as error:  # an environment or a saved policy may raise any error
        return replace(run, sample_problem=one_line(error))
    finally:
        player.close()
