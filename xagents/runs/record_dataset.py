"""Recording a data set with a trained agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xagents.checkpoints.protocols import ActingAgent
from xagents.collecting.collector import Collector
from xagents.collecting.policies import EpsilonRandomPolicy, Policy
from xagents.datasets import dataset_names
from xagents.datasets.environments import environment_to_dict
from xagents.datasets.recorder import DatasetRecorder
from xagents.datasets.writing import DatasetWriter, check_keys
from xagents.envs.create import as_envs
from xagents.evaluation import playing
from xagents.logs.console import format_number
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError
from xagents.version import __version__


def record(
    agent: ActingAgent,
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
    """Play whole episodes with the agent's present weights and write them as a data set in Minari's format.

    Args:
        agent: agent that acts.
        dataset: new name with a version, such as pendulum/medium-v0.
        episodes: number of episodes, divided equally among the environments.
        stochastic: whether to sample actions; otherwise the agent acts greedily.
        random_actions: share of actions, in [0, 1], that are drawn uniformly from the action space.
        seed: seed of the episodes. The default is derived from (seed, 'evaluate', steps).
        envs: environments to play in. The default is environments like the agent's.
        n_envs: number of parallel environments, by default 10.
        command: command line, for the metadata of the data set.
        say: function that prints the closing line.

    Raises:
        OptionError: if the name is invalid or in use, or Minari cannot describe the spaces.
        ValueError: if `episodes` or `random_actions` is out of range.
    """
    if '' not in agent.members:
        raise OptionError('dataset', f'got {dataset} with several policies, expected an agent with one policy')
    dataset_names.check_new('dataset', dataset)
    check_keys('dataset', agent.envs.encoder.raw_space)
    if episodes < 1:
        raise ValueError(f'episodes: got {episodes}, expected a whole number at least 1')
    if not 0 <= random_actions <= 1:
        raise ValueError(f'random_actions: got {random_actions}, expected a number at least 0 and at most 1')
    if envs is None:
        envs = agent.collector.evaluation_envs(min(episodes, n_envs or playing.DEFAULT_N_ENVS))
    envs = as_envs(envs)
    seed = agent.streams.derive_seed('evaluate', agent.progress.context.steps) if seed is None else seed
    agent.refresh()
    policy: Policy = agent.acting_policy
    if random_actions:
        policy = EpsilonRandomPolicy(policy, envs.action_space, random_actions, stochastic)
    collector = Collector.of_policy(envs, policy, agent.statistics, agent.streams)
    quotas = playing.episode_quotas(episodes, envs)
    writer = dataset_writer(agent, dataset, 'dataset', command)
    envs.recorder = recorder = DatasetRecorder(writer, envs.n_envs, weights_version(agent), quotas.tolist())
    try:
        played = playing.play_episodes(collector, quotas, seed, stochastic or random_actions > 0, say)
    finally:
        envs.recorder = None
        recorder.flush()
        writer.finish()
    mean = format_number(float(np.mean([episode.reward for episode in played])), 2)
    say(f'Recorded {writer.episodes} episodes, {writer.steps} steps, mean return {mean}: {dataset}, in {writer.folder}')


def weights_version(agent: ActingAgent) -> Callable[[], int] | None:
    """Return a function that returns the version of the acting weights. Return None if the policy has no network."""
    if agent.acting_policy.network is None:
        return None

    def version() -> int:
        network = agent.collector.policy.network
        assert network is not None
        return network.published_weights.version

    return version


def dataset_writer(agent: ActingAgent, name: str, option: str, command: str) -> DatasetWriter:
    """Return a writer for a data set recorded in an agent's environments."""
    envs, known = agent.envs, declared_options(EnvironmentOptions)
    creation = environment_to_dict({k: v for k, v in agent.origin.creation.items() if k in known})
    about = {'environment': creation, 'command': command, 'version': __version__, 'agent': agent.id}
    space, actions = envs.encoder.raw_space, envs.action_space
    return DatasetWriter(name, space, actions, about, spec=envs.spec, agent=agent.id, option=option)
