"""Evaluation and play without TensorFlow, by the policies that are saved with weights."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xagents.checkpoints import weight_files
from xagents.checkpoints.progress import Progress
from xagents.checkpoints.protocols import AgentOrigin
from xagents.checkpoints.state_files import checkpoint_policy_files, find_checkpoint, read_record
from xagents.checkpoints.status import check_run
from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.collecting.trained_policy import EnvSpaces, TrainedPolicy, read_policy
from xagents.envs.env_factory import EnvFactory
from xagents.envs.interface import Envs
from xagents.envs.spaces import describe_space
from xagents.evaluation import playing
from xagents.factory.defaults import read_saved_record, resolve_with_record
from xagents.factory.load import read_saved_options
from xagents.factory.make import check_files
from xagents.factory.pretrained import find_pretrained
from xagents.options.declaration import declared_options, resolve_aliases
from xagents.options.environment import EnvironmentOptions, NetworkOptions, no_environment
from xagents.options.errors import OptionError, format_value
from xagents.pipeline.context import Context
from xagents.registry.agents import Entry, find_agent


class PolicyPlayer:
    """A saved policy in its environments, with the part of an agent's interface that `evaluate` and `play` use.

    Args:
        id: the id of the agent that learned the policy.
        envs: the environments.
        trained: the policy and its statistics.
        seed: the seed of the random streams.
        steps: environment steps of the training run.
        creation: options that made the environments, by name.
    """

    def __init__(self, id: str, envs: Envs, trained: TrainedPolicy, seed: int, steps: int, creation: dict[str, Any]):
        self.id, self.envs, self.origin = id, envs, AgentOrigin(creation)
        self.acting_policy: Policy = trained.acting_policy
        self.statistics: Statistics = trained.statistics
        self.streams = RandomStreams(seed)
        self.progress = Progress(deque(), Context(steps=steps))
        self.members = {'': self}
        self.collector = Collector.of_policy(envs, self.acting_policy, self.statistics, self.streams)

    def refresh(self) -> None:
        """Do nothing: a saved policy does not change."""

    def evaluate(self, **options: Any) -> dict[str, float]:
        """Play episodes; see `BaseAgent.evaluate`."""
        return playing.evaluate(self, **options)

    def play(self, **options: Any) -> float:
        """Play one episode; see `BaseAgent.play`."""
        return playing.play(self, **options)

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()


def load_player(folder: str | os.PathLike[str], checkpoint: str, options: Mapping[str, Any]) -> PolicyPlayer | None:
    """Return a player for the agent of a run, or None if only the agent itself can play.

    Args:
        folder: the run directory.
        checkpoint: the checkpoint, as for `load`.
        options: options that override the options of the run.

    Raises:
        ValueError: in one line, if the run does not exist or is damaged, or if an option is invalid.
    """
    check_run('run_dir', folder)
    if (path := find_checkpoint(folder, checkpoint)) is None:
        return None
    entry, saved = read_saved_options(folder)
    try:
        return load_player_from_checkpoint(entry, path, options, saved)
    except ValueError:
        if path.is_dir():
            raise
        return None  # the run has replaced the checkpoint in the meantime; `load` handles this case


def load_player_from_weights(agent_id: str, weights: list[str], options: Mapping[str, Any]) -> PolicyPlayer | None:
    """Return a player for saved weights, or None if only the agent itself can play (see `make`)."""
    entry = find_agent(agent_id)
    record, files = read_saved_record(entry, weights), weight_files.saved_policy_files(weights[0])
    return None if files is None else _make_player(entry, read_policy(*files), record, options, weights[0])


def load_pretrained_player(agent_id: str, env_id: str, options: Mapping[str, Any]) -> PolicyPlayer:
    """Return a player for a policy that the package contains.

    Raises:
        OptionError: if there is no such policy, or for options that only a learning agent has.
    """
    entry, found = find_agent(agent_id), find_pretrained(agent_id, env_id)
    if given := _agent_only_options(entry, resolve_aliases(options, declared_options(entry.options))):
        problem = f'cannot be used with --pretrained {env_id}: the package ships a policy, not an agent'
        raise OptionError(given[0], problem)
    player = load_player_from_checkpoint(entry, found.folder, options, name=f'--pretrained {env_id}')
    assert player is not None
    return player


def load_player_from_checkpoint(
    entry: Entry, folder: Path, options: Mapping[str, Any], saved: Mapping[str, Any] | None = None, name: str = ''
) -> PolicyPlayer | None:
    """Return a player for a checkpoint, or None if only the agent itself can play.

    Args:
        entry: the registry entry of the agent.
        folder: the folder of a checkpoint or of a pretrained policy.
        options: options that override saved ones.
        saved: saved options that the record of the checkpoint does not contain.
        name: the name of the checkpoint in messages; its path when not given.
    """
    if (files := checkpoint_policy_files(folder)) is None:
        return None
    record, trained = read_record(folder), read_policy(*files)
    full_record = {**record, 'options': {**(saved or {}), **record['options']}}
    return _make_player(entry, trained, full_record, options, name or str(folder))


def _agent_only_options(entry: Entry, given: Mapping[str, Any]) -> list[str]:
    """Return the names of the given options that only a learning agent has: its own options and the networks'."""
    others = {*entry.options_in('agent'), *declared_options(NetworkOptions), *entry.models} - {'seed'}
    return [name for name in given if name in others]


def _make_player(
    entry: Entry, trained: TrainedPolicy, record: Mapping[str, Any], options: Mapping[str, Any], name: str
) -> PolicyPlayer | None:
    if trained.agent != entry.id:
        raise ValueError(f'--weights: got {name} with a policy of {trained.agent}, expected one of {entry.id}')
    given = resolve_aliases(options, declared_options(entry.options))
    if _agent_only_options(entry, given):
        return None
    settings = resolve_with_record(entry, given, record)
    if settings.environment.env is None:
        raise no_environment(name)
    check_files(settings, entry, continued=True, saved=record.get('networks', []))
    creation = {n: v for n, v in settings.given_options.items() if n in declared_options(EnvironmentOptions)}
    envs = EnvFactory(**settings.environment.asdict())(compiled=False)
    env_spaces = EnvSpaces.of(envs)
    if env_spaces != trained.spaces:
        envs.close()
        known = f'{describe_space(trained.spaces.observations)}, actions: {describe_space(trained.spaces.actions)}'
        expected = f'expected an environment that fits the networks of {name}: observations: {known}'
        raise OptionError('env', f'got {format_value(envs.id)}, {expected}')
    return PolicyPlayer(entry.id, envs, trained, settings.agent.drawn_seed, record['counters']['steps'], creation)
