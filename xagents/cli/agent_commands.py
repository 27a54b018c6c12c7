"""The commands for a trained agent: `xagents play`, `evaluate`, `record` and `export`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from xagents.config.configuration import read_config_file, settings_file
from xagents.export import write as exporting
from xagents.export.formats import find_format
from xagents.factory import players
from xagents.factory.checkpoint_scores import score_checkpoints
from xagents.factory.load import load
from xagents.factory.make import make
from xagents.options.commands import DatasetRecordingOptions, EvaluateOptions, ExportOptions, PlayOptions
from xagents.options.declaration import declared_options
from xagents.options.errors import GivenOptions, OptionError, as_input_errors
from xagents.options.runs import RunOptions, SessionOptions
from xagents.registry.agents import TEAM_ENTRY
from xagents.runs import record_dataset
from xagents.system.interruption import Interruption
from xagents.system.threads import set_threads
from xagents.system.values import to_plain_value


def open_agent(agent_id: str, given: GivenOptions, *own: type) -> contextlib.closing:
    """Open a trained agent for a `with` block.

    Args:
        agent_id: id of the agent.
        given: options on the command line.
        own: dataclasses of options that belong to the command and not to the agent.
    """
    options = _agent_options(given, *own)
    with as_input_errors():
        _check_agent(agent_id, given)
        if given.get('threads') is not None:
            set_threads(given['threads'])
        if 'run_dir' in given:
            return contextlib.closing(load(given['run_dir'], given.get('checkpoint', 'best'), **options))
        weights = {'weights': given['weights']} if 'weights' in given else {}
        return contextlib.closing(make(agent_id, options.pop('env', None), **weights, **options))


def open_player(agent_id: str, given: GivenOptions, *own: type) -> contextlib.closing:
    """Open a player for a `with` block: only the policy if the policy is enough, otherwise the agent.

    The arguments are those of `open_agent`.
    """
    if given.get('action_idx'):  # actions come from another output of the model
        return open_agent(agent_id, given, *own)
    options, player = _agent_options(given, *own), None
    with as_input_errors():
        _check_agent(agent_id, given)
        if 'pretrained' in given:
            player = players.load_pretrained_player(agent_id, given['pretrained'], options)
        elif 'run_dir' in given:
            player = players.load_player(given['run_dir'], given.get('checkpoint', 'best'), options)
        elif given.get('weights'):
            player = players.load_player_from_weights(agent_id, given['weights'], options)
    return contextlib.closing(player) if player else open_agent(agent_id, given, *own)


def _check_agent(agent_id: str, given: GivenOptions) -> None:
    """Raise ValueError if the run directory belongs to another agent."""
    if 'run_dir' in given:
        read_config_file(settings_file(given['run_dir']), agent_id)


def _agent_options(given: GivenOptions, *own: type) -> dict[str, Any]:
    """Return the options of an agent: neither options of the session nor of the groups `own`."""
    command_only = {name for group in (*own, SessionOptions) for name in declared_options(group)}
    return {name: value for name, value in given.items() if name not in command_only}


def _command_options(given: GivenOptions, group: type) -> GivenOptions:
    """Return the options of a group, without the options that locate the agent."""
    place = ('weights', 'run_dir', 'checkpoint', 'pretrained')
    return {name: value for name, value in given.items() if name in declared_options(group) and name not in place}


def play(agent_id: str, given: GivenOptions, line: str) -> None:
    """Play an episode."""
    with open_player(agent_id, given, PlayOptions, RunOptions) as player:
        player.play(**{n: v for n, v in _command_options(given, PlayOptions).items() if n != 'action_idx' or v})


def evaluate(agent_id: str, given: GivenOptions, line: str) -> None:
    """Play episodes and print their statistics."""
    arguments = _command_options(given, EvaluateOptions)
    arguments.setdefault('episodes', declared_options(EvaluateOptions)['episodes'].default)
    as_json = arguments.pop('json', False)
    if 'follow' in given:
        return _follow(agent_id, given, arguments, as_json)
    with open_player(agent_id, given, EvaluateOptions, RunOptions) as player:
        result = player.evaluate(**arguments, n_envs=given.get('n_envs'))
    precision = given.get('display_precision', 2)
    print(json_line(result) if as_json else evaluation_line(result, arguments['episodes'], precision))


def _follow(agent_id: str, given: GivenOptions, arguments: GivenOptions, as_json: bool) -> None:
    """Evaluate each checkpoint of a run and print its scores, until the run ends."""
    folder, out = arguments.pop('follow'), arguments.pop('out', None)
    options = _agent_options(given, EvaluateOptions, RunOptions)
    with Interruption.guard() as interruption, as_input_errors():
        read_config_file(settings_file(folder), agent_id)
        for score in score_checkpoints(folder, out, options, **arguments, n_envs=given.get('n_envs')):
            line = evaluation_line(score, arguments['episodes'], given.get('display_precision', 2))
            print(json_line(score) if as_json else f'Step {score["steps"]}: {line}', flush=True)
    interruption.exit()


def record(agent_id: str, given: GivenOptions, line: str) -> None:
    """Record a data set."""
    arguments = _command_options(given, DatasetRecordingOptions)
    with open_player(agent_id, given, DatasetRecordingOptions, RunOptions) as player:
        record_dataset.record(player, **arguments, n_envs=given.get('n_envs'), command=line)


def json_line(result: Mapping[str, float | str]) -> str:
    """Return the result of an evaluation as a JSON object on one line. Numbers that are not finite become null."""
    numbers = {name: value if isinstance(value, str) else float(value) for name, value in result.items()}
    return json.dumps(to_plain_value(numbers, finite=True))


def evaluation_line(result: Mapping[str, Any], episodes: int, precision: int = 2) -> str:
    """Return the result of an evaluation for people."""
    n = {name: f'{value:.{precision}f}' for name, value in result.items() if not isinstance(value, str)}
    reward = f'Reward {n["mean"]} ± {n["std"]}, min {n["min"]}, max {n["max"]}'
    success = f', success {n["success"]}' if 'success' in n else ''
    agents = ', '.join(f'{name.partition("/")[2]} {n[name]}' for name in n if name.startswith('reward/'))
    team = f', all agents together {n["team_reward"]} ({agents})' if agents else ''
    return f'{reward}, length {n["length"]}, {episodes} episode{"s" if episodes != 1 else ""}{success}{team}'


def export(agent_id: str, given: GivenOptions, line: str) -> None:
    """Write the policy of an agent as files. The writer prints their paths."""
    arguments = {'format': declared_options(ExportOptions)['format'].default, **_command_options(given, ExportOptions)}
    with as_input_errors():
        find_format(arguments['format'])
        exporting.check_out(arguments['out'])
    policy = arguments.pop('policy', None)
    with open_agent(agent_id, given, ExportOptions) as agent, as_input_errors():
        if agent_id == TEAM_ENTRY.id:
            exporting.export_team_policy(agent, policy, **arguments)
        elif policy is not None:
            raise OptionError('policy', f'got {policy}, but {agent_id} has one policy, expected a team of several')
        else:
            exporting.export(agent, **arguments)
