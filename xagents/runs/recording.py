"""Recording a data set of a trained agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xagents.collecting.collector import Collector
from xagents.collecting.policies import Distracted, Policy
from xagents.datasets import names
from xagents.datasets.recorder import Recorder
from xagents.envs.create import as_envs
from xagents.logs.console import number
from xagents.runs import evaluation, experience
from xagents.runs.learner import Playing


def record(
    agent: Playing,
    dataset: str,
    episodes: int = 100,
    stochastic: bool = False,
    random_actions: float = 0.0,
    seed: int | None = None,
    envs: Any = None,
    n_envs: int | None = None,
    command: str = '',
    say: Callable[[str], Any] = print,
) -> None:
    """Let an agent play whole episodes by its present weights, and keep them as a data set in Minari's form.

    Args:
        agent: who plays.
        dataset: a new name with its version, such as pendulum/medium-v0.
        episodes: how many, an equal quota in each environment.
        stochastic: sample actions; greedy when not.
        random_actions: share of actions that are drawn at random from the action space.
        seed: of the episodes; derived from (seed, 'evaluate', steps) when not given.
        envs: environments to play in; ones of the agent's kind when not given.
        n_envs: how many of them play side by side; 10 when not given.
        command: what was typed, for the data set's metadata.
        say: takes the closing line.

    Raises:
        OptionError: for a name that is none or is taken, or spaces that Minari cannot tell of.
    """
    names.check_new('dataset', dataset)
    if not 0 <= random_actions <= 1:
        raise ValueError(f'random_actions: got {random_actions}, admits a number at least 0 and at most 1')
    played_in = as_envs(
        agent.collector.beside(min(episodes, n_envs or evaluation.ENVIRONMENTS)) if envs is None else envs
    )
    seed = agent.streams.seed_of('evaluate', agent.progress.context.steps) if seed is None else seed
    agent.refresh()
    policy: Policy = agent.acting
    if random_actions:
        policy = Distracted(policy, played_in.action_space, random_actions, stochastic)
    collector = Collector(played_in, policy, agent.statistics, agent.streams)
    quotas = evaluation.quotas(episodes, played_in.n_envs)
    writer = experience.writer_of(agent, dataset, 'dataset', command)
    recorder = Recorder(writer, played_in.n_envs, experience.version_of(agent), quotas.tolist())
    played_in.witness = recorder
    try:
        played = evaluation.played(collector, quotas, seed, stochastic or random_actions > 0, say)
    finally:
        played_in.witness = None
        recorder.flush()
        writer.finish()
    mean = number(float(np.mean([episode.reward for episode in played])), 2)
    say(f'Recorded {writer.episodes} episodes, {writer.steps} steps, mean return {mean}: {dataset}, in {writer.folder}')
