"""Recording a data set of a trained agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xagents.collecting.collector import Collector
from xagents.collecting.policies import Distracted, Policy
from xagents.datasets import names
from xagents.datasets.environments import environment_record
from xagents.datasets.recorder import Recorder
from xagents.datasets.writing import DatasetWriter, check_keys
from xagents.envs.create import as_envs
from xagents.logs.console import number
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError
from xagents.runs import evaluation
from xagents.runs.learner import Playing
from xagents.version import __version__


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
    if hasattr(agent, 'members'):
        raise OptionError('dataset', f'got {dataset}, but several policies play here, admits an agent with one')
    names.check_new('dataset', dataset)
    check_keys('dataset', agent.envs.encoder.raw_space)
    if episodes < 1:
        raise ValueError(f'episodes: got {episodes}, admits a whole number at least 1')
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
    quotas = evaluation.quotas(episodes, played_in)
    writer = writer_of(agent, dataset, 'dataset', command)
    recorder = Recorder(writer, played_in.n_envs, version_of(agent), quotas.tolist())
    played_in.witness = recorder
    try:
        played = evaluation.played(collector, quotas, seed, stochastic or random_actions > 0, say)
    finally:
        played_in.witness = None
        recorder.flush()
        writer.finish()
    mean = number(float(np.mean([episode.reward for episode in played])), 2)
    say(f'Recorded {writer.episodes} episodes, {writer.steps} steps, mean return {mean}: {dataset}, in {writer.folder}')


def version_of(agent: Playing) -> Callable[[], int] | None:
    """Return what tells the version of the weights that an agent acts by; None where it acts by no network."""
    if agent.acting.network is None:
        return None

    def version() -> int:
        network = agent.collector.policy.network
        assert network is not None
        return network.published.version

    return version


def writer_of(agent: Playing, name: str, option: str, command: str) -> DatasetWriter:
    """Return the writer of a data set of an agent's environments."""
    envs, known = agent.envs, describe(EnvironmentOptions)
    creation = environment_record({k: v for k, v in agent.origin.creation.items() if k in known})
    about = {'environment': creation, 'command': command, 'version': __version__, 'agent': agent.id}
    space, actions = envs.encoder.raw_space, envs.action_space
    return DatasetWriter(name, space, actions, about, spec=envs.spec, agent=agent.id, option=option)
