"""Trained policies in the package, by agent and environment. `--pretrained` plays one, `xagents presets` marks it.

Each policy is a folder of `xagents/pretrained`. It contains the two policy files of a checkpoint and the part of the
checkpoint's record that playing needs, with the policy's origin and score. `benchmarks/learning/pretrained.py` writes
these folders from finished runs. No file contains code or is read by pickle. This module loads neither TensorFlow nor
NumPy.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.registry.agents import BUILTIN_AGENTS, find_agent
from xagents.system.file_names import STATE_FILE

FOLDER = Path(__file__).parents[1] / 'pretrained'


@dataclasses.dataclass(frozen=True)
class PretrainedPolicy:
    """A trained policy in the package.

    Args:
        folder: the folder of its files, which `xagents.policy` reads.
        agent: the id of the agent that learned the policy.
        env: the id of the environment.
        steps: the number of environment steps of the training run.
        seed: the seed of the training run.
        command: the command that trained the policy.
        date: the date on which the training run started.
        versions: the versions of the packages used in the training run, by package name.
        score: `mean`, `std`, `min`, `max` and `length` of `episodes` greedy episodes, played with `--seed` `seed`.
        first: the same statistics for the first episode of each environment.
    """

    folder: Path
    agent: str
    env: str
    steps: int
    seed: int
    command: str
    date: str
    versions: dict[str, str]
    score: dict[str, float]
    first: dict[str, float]


def list_pretrained(agent_id: str) -> list[PretrainedPolicy]:
    """Return the pretrained policies of an agent, ordered by environment.

    Raises:
        OptionError: for an unknown agent.
    """
    return list(_read_all(FOLDER / find_agent(agent_id).id))


def find_pretrained(agent_id: str, env_id: str) -> PretrainedPolicy:
    """Return the pretrained policy of an agent for an environment.

    In Python, `xagents.policy(find_pretrained('ppo', 'LunarLander-v3').folder)` loads the policy.

    Raises:
        OptionError: if there is no such policy. The message lists the agent's policies, the nearest name, and other
            agents that have a policy for the environment.
    """
    policies = {policy.env: policy for policy in list_pretrained(agent_id)}
    if env_id in policies:
        return policies[env_id]
    others = [name for name in BUILTIN_AGENTS if any(policy.env == env_id for policy in list_pretrained(name))]
    got = f'got {format_value(env_id)}, for which {agent_id} has no pretrained policy'
    if others:
        got += f' (but {" and ".join(others)} {"has" if len(others) == 1 else "have"} one)'
    expected = f'expected {", ".join(policies)}{did_you_mean(env_id, policies)}' if policies else 'see xagents presets'
    raise OptionError('pretrained', f'{got}, {expected}')


@functools.cache
def _read_all(folder: Path) -> tuple[PretrainedPolicy, ...]:
    return tuple(read_pretrained(path.parent) for path in sorted(folder.rglob(STATE_FILE)))


def read_pretrained(folder: Path) -> PretrainedPolicy:
    """Read the record of a pretrained policy.

    Raises:
        ValueError: in one line, if the record is damaged.
    """
    try:
        record = json.loads((folder / STATE_FILE).read_text())
        about = {'env': record['options']['env'], 'steps': record['counters']['steps'], **record['trained']}
        return PretrainedPolicy(folder, record['agent'], score=record['score'], first=record['first'], **about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{folder / STATE_FILE} is not the record of a pretrained policy ({error})') from error
