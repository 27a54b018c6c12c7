"""The first lines of a run: what is known before the environments exist, and their spaces once they exist."""

from __future__ import annotations

from typing import Any

from xagents.envs.interface import Envs
from xagents.envs.spaces import describe_space
from xagents.logs.console import format_number
from xagents.options.runs import RunOptions


def header_lines(agent_id: str, env: str, n_envs: int, seed: int, options: RunOptions) -> list[str]:
    """Return the agent, its environments, the place of the files, and what ends the run.

    Args:
        agent_id: id of the agent.
        env: id of the environments, or the name of the data set.
        n_envs: number of parallel environments.
        seed: seed of the run.
        options: options of the run.
    """
    several = f', {n_envs} environments' if n_envs > 1 else ''
    n = options.explorers
    explorers = '' if n is None else f' in {n} explorer{"s" if n > 1 else ""}'
    lines = [f'{agent_id} on {env}{several}{explorers}, seed {seed}', _place_line(options), _end_line(options)]
    return list(filter(None, lines))


def space_lines(envs: Any) -> list[str]:
    """Return the spaces of environments in one line, or in one line for each policy."""
    named = {f'{name}: observations' if name else 'Observations:': group for name, group in envs.groups.items()}
    return [f'{title} {describe_spaces(group)}' for title, group in named.items()]


def describe_spaces(envs: Envs) -> str:
    """Return the spaces of one environment in short form."""
    return f'{describe_space(envs.encoder.raw_space)}, actions: {describe_space(envs.action_space)}'


def _place_line(options: RunOptions) -> str:
    if options.run_dir is not None:
        return f'Run directory: {options.run_dir}'
    if options.checkpoints:
        return f'Best weights: {" ".join(options.checkpoints)}'
    others = options.history_checkpoint or options.tensorboard or options.record_dataset
    return '' if others else 'Nothing will be saved'


def _end_line(options: RunOptions) -> str:
    ends = []
    if options.target_reward is not None:
        ends.append(f'a mean reward of {format_number(options.target_reward, options.display_precision)}')
    if options.max_steps is not None:
        ends.append(f'{options.max_steps} steps')
    if options.max_time is not None:
        ends.append(f'{format_number(options.max_time, 1)} second{"s" * (options.max_time != 1)}')
    return f'Stops at {" or ".join(ends)}' if ends else ''
