"""Trained agents that play without TensorFlow: by the policy that lies beside their weights."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.statistics import Statistics
from xagents.collecting.streams import Streams
from xagents.collecting.trained import Spaces, TrainedPolicy, read_policy
from xagents.envs.create import create_envs
from xagents.envs.face import Envs
from xagents.factory.defaults import resolved, saved_record
from xagents.factory.load import saved_options
from xagents.factory.make import check_files
from xagents.factory.pretrained import find_pretrained
from xagents.options.declaration import canonical, describe
from xagents.options.environment import NO_ENVIRONMENT, EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, shown
from xagents.pipeline.context import Context
from xagents.registry.agents import Entry, find_agent
from xagents.runs import evaluation, weight_files
from xagents.runs.checkpoints import checkpoint_of, policy_files, read_record
from xagents.runs.learner import Origin
from xagents.runs.progress import Progress
from xagents.runs.status import check_run


class Player:
    """Plays by a policy: what an agent is to `evaluate` and `play`."""

    def __init__(
        self, agent_id: str, envs: Envs, trained: TrainedPolicy, seed: int, steps: int, creation: dict[str, Any]
    ):
        self.id, self.envs, self.origin = agent_id, envs, Origin(creation)
        self.acting: Policy = trained.acting
        self.statistics: Statistics = trained.statistics
        self.streams = Streams(seed)
        self.progress = Progress(deque(), Context(steps=steps))
        self.collector = Collector(envs, self.acting, self.statistics, self.streams)

    def refresh(self) -> None:
        """Nothing learns meanwhile."""

    def evaluate(self, **options: Any) -> dict[str, float]:
        """Play episodes; see `BaseAgent.evaluate`."""
        return evaluation.evaluate(self, **options)

    def play(self, **options: Any) -> float:
        """Play one episode; see `BaseAgent.play`."""
        return evaluation.play(self, **options)

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()


def loaded(folder: str | os.PathLike[str], checkpoint: str, options: Mapping[str, Any]) -> Player | None:
    """Return who plays for the agent of a run's folder; None where that takes the agent itself (see `load`)."""
    check_run('run_dir', folder)
    path = checkpoint_of(folder, checkpoint)
    if path is None:
        return None
    entry, saved = saved_options(folder)
    try:
        return in_folder(entry, path, options, saved)
    except ValueError:
        if path.is_dir():
            raise
        return None  # a run that goes on has replaced it meanwhile, which `load` knows about


def of_weights(agent_id: str, weights: list[str], options: Mapping[str, Any]) -> Player | None:
    """Return who plays for weights; None where that takes the agent itself (see `make`)."""
    entry = find_agent(agent_id)
    record, files = saved_record(entry, weights), weight_files.policy_files(weights[0])
    return None if files is None else _player(entry, read_policy(*files), record, options, weights[0])


def pretrained(agent_id: str, env_id: str, options: Mapping[str, Any]) -> Player:
    """Return who plays for a policy that ships; OptionError where there is none, or for what only an agent knows."""
    entry, found = find_agent(agent_id), find_pretrained(agent_id, env_id)
    given = _of_agent(entry, canonical(options, describe(entry.options)))
    if given:
        problem = f'is no option beside --pretrained {env_id}: what ships is a policy and no agent'
        raise OptionError(given[0], problem)
    player = in_folder(entry, found.folder, options, name=f'--pretrained {env_id}')
    assert player is not None
    return player


def in_folder(
    entry: Entry,
    folder: Path,
    options: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Player | None:
    """Return who plays for a checkpoint's folder, or one like it; None where that takes the agent itself.

    `saved` are options that its record does not tell, and `name` is what messages call it.
    """
    files = policy_files(folder)
    if files is None:
        return None
    record, trained = read_record(folder), read_policy(*files)
    whole = {**record, 'options': {**(saved or {}), **record['options']}}
    return _player(entry, trained, whole, options, name or str(folder))


def _of_agent(entry: Entry, given: Mapping[str, Any]) -> list[str]:
    """Return which of given options are those of an agent that learns, or of its networks."""
    others = {*entry.known('agent'), *describe(NetworkOptions), *entry.models} - {'seed'}
    return [name for name in given if name in others]


def _player(
    entry: Entry, trained: TrainedPolicy, record: Mapping[str, Any], options: Mapping[str, Any], name: str
) -> Player | None:
    if trained.agent != entry.id:
        raise ValueError(f'--weights: the policy of {name} is that of {trained.agent}, not of {entry.id}')
    given = canonical(options, describe(entry.options))
    if _of_agent(entry, given):
        return None
    settings = resolved(entry, given, record)
    if settings.environment.env is None:
        raise OptionError('env', NO_ENVIRONMENT)
    check_files(settings, entry, continued=True)
    creation = {n: v for n, v in settings.given.items() if n in describe(EnvironmentOptions)}
    envs = create_envs(**settings.environment.creation())
    shown_here = Spaces(envs.encoder.raw_space, envs.action_space)
    if shown_here != trained.spaces:
        envs.close()
        raise OptionError('env', f'got {shown(envs.id)}, which the networks of {name} do not fit')
    return Player(entry.id, envs, trained, settings.agent.draw_seed(), record['counters']['steps'], creation)
