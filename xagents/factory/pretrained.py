"""Trained policies that ship, by agent and environment: `--pretrained` plays one, `xagents presets` marks it.

Each is a folder of `xagents/pretrained`: the two files of a policy as every checkpoint has them, and of a checkpoint's
record what playing needs, with where the policy comes from and its score. They are written by benchmarks/pretrained.py
out of kept runs. None holds code, and none is read by pickle. Loads neither TensorFlow
nor NumPy.
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
    """A trained policy that ships.

    Args:
        folder: of its files, which `xagents.policy` reads.
        agent: id of the agent that learned it.
        env: the environment's id.
        steps: environment steps of the training.
        seed: of the training.
        command: that trained it.
        date: on which the training began.
        versions: of the packages that it was trained with.
        score: mean, std, min, max and length of greedy `episodes`, played with `--seed` `seed`.
        first: the same of its first episodes, one an environment.
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
    """Return the policies of an agent that ship, by environment; raises OptionError for no agent."""
    return list(_read_all(FOLDER / find_agent(agent_id).id))


def find_pretrained(agent_id: str, env_id: str) -> PretrainedPolicy:
    """Return the policy of an agent that ships for an environment.

    In Python, `xagents.policy(find_pretrained('ppo', 'LunarLander-v3').folder)` is what acts.

    Raises:
        OptionError: where none ships; names those that do, the nearest one, and who has one for the environment.
    """
    ours = {one.env: one for one in list_pretrained(agent_id)}
    if env_id in ours:
        return ours[env_id]
    others = [name for name in BUILTIN_AGENTS if any(one.env == env_id for one in list_pretrained(name))]
    got = f'got {format_value(env_id)}, for which no policy of {agent_id} ships'
    if others:
        got += f', but one of {" and ".join(others)}'
    admits = f'expected {", ".join(ours)}{did_you_mean(env_id, ours)}' if ours else 'see xagents presets'
    raise OptionError('pretrained', f'{got}, {admits}')


@functools.cache
def _read_all(folder: Path) -> tuple[PretrainedPolicy, ...]:
    return tuple(read_pretrained(path.parent) for path in sorted(folder.rglob(STATE_FILE)))


def read_pretrained(folder: Path) -> PretrainedPolicy:
    """Return what the record of a folder tells of its policy; raises ValueError in one line for a damaged one."""
    try:
        record = json.loads((folder / STATE_FILE).read_text())
        about = {'env': record['options']['env'], 'steps': record['counters']['steps'], **record['trained']}
        return PretrainedPolicy(folder, record['agent'], score=record['score'], first=record['first'], **about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{folder / STATE_FILE} is no record of a policy that ships ({error})') from error
