"""What both workers of `spread.py` share: the environment, the play that judges, bins of episodes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.workers.settings import Settings, from_fields

# of the first episode that is played; those that are trained on have smaller ones
EVALUATION_SEED = 1_000_000
Act = Callable[[np.ndarray, bool], np.ndarray]


@dataclass(frozen=True)
class TeamJob:
    """What `spread.py` asks of a worker.

    Args:
        settings: that both libraries get; `n_envs` counts environments, each with a row for every agent.
        env: a module with `parallel_env`.
        env_kwargs: its arguments.
        agents: in an environment.
        warmup: steps of agents before the clock.
        steps: steps of agents that are timed.
        episodes: of environments that are played greedily at the end, and as many by sampled actions.
        width: steps of agents in a bin of the curve.
        options: how the library places environments.
    """

    settings: Settings
    env: str
    env_kwargs: dict[str, Any]
    agents: int
    warmup: int
    steps: int
    episodes: int
    width: int
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_command_line(cls) -> TeamJob:
        """Read the job, one JSON object in the first argument."""
        fields = json.loads(sys.argv[1])
        settings = from_fields(fields.pop('settings'))
        assert isinstance(settings, Settings)
        return cls(settings=settings, **fields)


def make_env(job: TeamJob) -> Any:
    """Make one environment of PettingZoo's."""
    return importlib.import_module(job.env).parallel_env(**job.env_kwargs)


def play(env: Any, act: Act, greedy: bool, episodes: int) -> float:
    """Return the mean return of an agent in so many episodes, which begin alike for every library and seed.

    Args:
        env: of PettingZoo's, in its parallel form; all agents stay until the end.
        act: takes observations [M, …] of the M agents and whether to be greedy, returns actions [M].
        greedy: the best actions, or sampled ones.
        episodes: how many.
    """
    total = 0.0
    for episode in range(episodes):
        seen, _ = env.reset(seed=EVALUATION_SEED + episode)
        while env.agents:
            actions = act(np.stack([seen[agent] for agent in env.agents]), greedy)
            seen, rewards, *_ = env.step({a: int(action) for a, action in zip(env.agents, actions, strict=True)})
            total += sum(rewards.values())
    return float(total / (episodes * len(env.possible_agents)))


def judged(job: TeamJob, act: Act) -> dict[str, float]:
    """Play greedily and by sampled actions; nothing where no episodes are asked for."""
    if not job.episodes:
        return {}
    env = make_env(job)
    found = {name: play(env, act, name == 'greedy', job.episodes) for name in ('greedy', 'sampled')}
    env.close()
    return found


def binned(steps: Sequence[float], returns: Sequence[float], width: int) -> list[float | None]:
    """Return the mean return of the episodes that ended in each `width` steps; None where none did."""
    bins = (np.asarray(steps, int) - 1) // width
    counts, sums = np.bincount(bins), np.bincount(bins, np.asarray(returns, float))
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]
