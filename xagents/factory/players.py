"""Trained agents that play without TensorFlow: by the policy that is saved with their weights."""

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
from xagents.envs.create import create_envs
from xagents.envs.interface import Envs
from xagents.evaluation import playing
from xagents.factory.defaults import read_saved_record, resolve_with_record
from xagents.factory.load import read_saved_options
from xagents.factory.make import check_files
from xagents.factory.pretrained import find_pretrained
from xagents.options.declaration import declared_options, resolve_aliases
from xagents.options.environment import NO_ENVIRONMENT, EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, format_value
from xagents.pipeline.context import Context
from xagents.registry.agents import Entry, find_agent


class PolicyPlayer:
    """Plays by a policy: what an agent is to `evaluate` and `play`."""

    def __init__(
        self, agent_id: str, envs: Envs, trained: TrainedPolicy, seed: int, steps: int, creation: dict[str, Any]
    ):
        self.id, self.envs, self.origin = agent_id, envs, AgentOrigin(creation)
        self.acting_policy: Policy = trained.acting_policy
        self.statistics: Statistics = trained.statistics
        self.streams = RandomStreams(seed)
        self.progress = Progress(deque(), Context(steps=steps))
        self.collector = Collector(envs, self.acting_policy, self.statistics, self.streams)

    def refresh(self) -> None:
        """Nothing learns meanwhile."""

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
    """Return who plays for the agent of a run's folder; None where that takes the agent itself (see `load`)."""
    check_run('run_dir', folder)
    path = find_checkpoint(folder, checkpoint)
    if path is None:
        return None
    entry, saved = read_saved_options(folder)
    try:
        return load_player_from_checkpoint(entry, path, options, saved)
    except ValueError:
        if path.is_dir():
            raise
        return None  # a run that goes on has replaced it meanwhile, which `load` knows about


def load_player_from_weights(agent_id: str, weights: list[str], options: Mapping[str, Any]) -> PolicyPlayer | None:
    """Return who plays for weights; None where that takes the agent itself (see `make`)."""
    entry = find_agent(agent_id)
    record, files = read_saved_record(entry, weights), weight_files.saved_policy_files(weights[0])
    return None if files is None else _make_player(entry, read_policy(*files), record, options, weights[0])


def load_pretrained_player(agent_id: str, env_id: str, options: Mapping[str, Any]) -> PolicyPlayer:
    """Return who plays for a policy that ships; OptionError where there is none, or for what only an agent knows."""
    entry, found = find_agent(agent_id), find_pretrained(agent_id, env_id)
    given = _agent_only_options(entry, resolve_aliases(options, declared_options(entry.options)))
    if given:
        problem = f'cannot be used with --pretrained {env_id}: the package ships a policy, not an agent'
        raise OptionError(given[0], problem)
    player = load_player_from_checkpoint(entry, found.folder, options, name=f'--pretrained {env_id}')
    assert player is not None
    return player


def load_player_from_checkpoint(
    entry: Entry,
    folder: Path,
    options: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> PolicyPlayer | None:
    """Return who plays for a checkpoint's folder, or one like it; None where that takes the agent itself.

    `saved` are options that its record does not tell, and `name` is what messages call it.
    """
    files = checkpoint_policy_files(folder)
    if files is None:
        return None
    record, trained = read_record(folder), read_policy(*files)
    full_record = {**record, 'options': {**(saved or {}), **record['options']}}
    return _make_player(entry, trained, full_record, options, name or str(folder))


def _agent_only_options(entry: Entry, given: Mapping[str, Any]) -> list[str]:
    """Return which of given options are those of an agent that learns, or of its networks."""
    others = {*entry.options_in('agent'), *declared_options(NetworkOptions), *entry.models} - {'seed'}
    return [name for name in given if name in others]


def _make_player(
    entry: Entry, trained: TrainedPolicy, record: Mapping[str, Any], options: Mapping[str, Any], name: str
) -> PolicyPlayer | None:
    if trained.agent != entry.id:
        raise ValueError(f'--weights: the policy of {name} is that of {trained.agent}, not of {entry.id}')
    given = resolve_aliases(options, declared_options(entry.options))
    if _agent_only_options(entry, given):
        return None
    settings = resolve_with_record(entry, given, record)
    if settings.environment.env is None:
        raise OptionError('env', NO_ENVIRONMENT)
    check_files(settings, entry, continued=True)
    creation = {n: v for n, v in settings.given_options.items() if n in declared_options(EnvironmentOptions)}
    envs = create_envs(**settings.environment.create_envs_kwargs())
    env_spaces = EnvSpaces(envs.encoder.raw_space, envs.action_space)
    if env_spaces != trained.spaces:
        envs.close()
        raise OptionError('env', f'got {format_value(envs.id)}, which the networks of {name} do not fit')
    return PolicyPlayer(entry.id, envs, trained, settings.agent.draw_seed(), record['counters']['steps'], creation)
