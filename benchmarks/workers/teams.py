"""Functions of both workers with several agents: the environment, the evaluation, bins of episodes."""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from benchmarks.workers.settings import Settings, from_fields

# seed of the first evaluation episode; training uses smaller seeds
EVALUATION_SEED = 1_000_000
Act = Callable[[np.ndarray, bool], np.ndarray]


@dataclass(frozen=True)
class TeamJob:
    """The job of a worker.

    Args:
        settings: of both libraries; `n_envs` counts environments, each with a row for every agent.
        env: module with `parallel_env`.
        env_kwargs: arguments of the environment.
        agents: number of agents in an environment.
        warmup: steps of agents before the clock starts.
        steps: timed steps of agents.
        episodes: number of evaluation episodes with greedy actions, and of those with sampled actions.
        width: steps of agents in a bin of the curve.
        options: where the library runs environments.
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
    def from_command_line(cls) -> Self:
        """Read the job, a JSON object in the first argument."""
        fields = json.loads(sys.argv[1])
        settings = from_fields(fields.pop('settings'))
        assert isinstance(settings, Settings)
        return cls(settings=settings, **fields)


def make_env(job: TeamJob) -> Any:
    """Make one environment of PettingZoo."""
    return importlib.import_module(job.env).parallel_env(**job.env_kwargs)


def play(env: Any, act: Act, greedy: bool, episodes: int) -> float:
    """Return the mean return of an agent in episodes with the same starts for every library and seed.

    Args:
        env: parallel environment of PettingZoo; all agents stay until the end.
        act: takes observations [M, …] of the M agents and whether to act greedily, returns actions [M].
        greedy: whether to act greedily or by sampling.
        episodes: number of episodes.
    """
    total = 0.0
    for episode in range(episodes):
        seen, _ = env.reset(seed=EVALUATION_SEED + episode)
        while env.agents:
            actions = act(np.stack([seen[agent] for agent in env.agents]), greedy)
            seen, rewards, *_ = env.step({a: int(action) for a, action in zip(env.agents, actions, strict=True)})
            total += sum(rewards.values())
    return float(total / (episodes * len(env.possible_agents)))


def evaluate(job: TeamJob, act: Act) -> dict[str, float]:
    """Return the mean returns with greedy and with sampled actions; empty if the job has no episodes."""
    if not job.episodes:
        return {}
    env = make_env(job)
    found = {name: play(env, act, name == 'greedy', job.episodes) for name in ('greedy', 'sampled')}
    env.close()
    return found


def binned(steps: Sequence[float], returns: Sequence[float], width: int) -> list[float | None]:
    """Return the mean return of the episodes that ended in each `width` steps; None without episodes."""
    bins = (np.asarray(steps, int) - 1) // width
    counts, sums = np.bincount(bins), np.bincount(bins, np.asarray(returns, float))
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]
