"""Tuned settings that ship, by agent and environment: `--tuned` takes them, `xagents presets` lists them.

One YAML file an agent holds them, in this package's own names of options; `scores.yaml` holds what they were seen to
reach and is written by the learning benchmark. Loads no TensorFlow.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.registry.agents import find_agent

FOLDER = Path(__file__).parent
SCORES = FOLDER / 'scores.yaml'
# the entry of every Atari game
ATARI = 'atari'


@dataclasses.dataclass(frozen=True)
class Preset:
    """Tuned settings of an agent in an environment.

    Args:
        agent: its id.
        env: the environment's id, or `atari` for every Atari game.
        max_steps: how long they were tuned for.
        options: of `xagents.make`, by name.
        source: where they come from; its first word is a name.
        published: the mean reward that they were published with, if they were.
        scored_on: the environment of that score, where it is another version.
        changed: what is not as published.
        games: published scores by environment id, where `env` is `atari`.
    """

    agent: str
    env: str
    max_steps: int
    options: dict[str, Any]
    source: str
    published: float | None = None
    scored_on: str = ''
    changed: str = ''
    games: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def source_name(self) -> str:
        """Who tuned them, in a word."""
        return self.source.split()[0]

    @property
    def digest(self) -> str:
        """A short name of the settings: a score that was measured with others has another one."""
        settings = {'env': self.env, 'max_steps': self.max_steps, 'options': self.options}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]

    def for_game(self, env_id: str) -> Preset:
        """Return the settings of one Atari game, with the score that was published for it."""
        name = (
            f'{_strip_module(env_id).removeprefix("ALE/").partition("NoFrameskip")[0].partition("-v")[0]}NoFrameskip-v4'
        )
        scored_on = name if name in self.games and name != env_id else ''
        return dataclasses.replace(self, env=env_id, published=self.games.get(name), scored_on=scored_on, games={})


@dataclasses.dataclass(frozen=True)
class Score:
    """What settings were seen to reach.

    Args:
        median: of the seeds' means.
        means: of each seed, after its training.
        episodes: greedy ones of each mean.
        date: of the last run.
        version: of this package.
        digest: of the settings, see `Preset.digest`.
    """

    median: float
    means: tuple[float, ...]
    episodes: int
    date: str
    version: str
    digest: str


def list_presets(agent_id: str) -> list[Preset]:
    """Return the tuned settings of an agent, the one for every Atari game last; raises OptionError for no agent."""
    presets = []
    for env, entry in copy.deepcopy(_read_yaml(FOLDER / f'{find_agent(agent_id).id}.yaml')).items():
        games = entry.pop('published', {}) if env == ATARI else {}
        presets.append(Preset(agent_id, env, games=games, **entry))
    return presets


def find_preset(agent_id: str, env_id: str) -> Preset:
    """Return the tuned settings of an agent for an environment.

    In Python, `xagents.make('ppo', 'CartPole-v1', **find_preset('ppo', 'CartPole-v1').options)` makes an agent with
    them, and `fit(max_steps=preset.max_steps)` trains it as long as they were tuned for.

    `env_id` is what `--env` takes; `ALE/…` and `…NoFrameskip-v4` are Atari games.

    Raises:
        OptionError: where the agent has none for it; names the environments that there are, and the nearest one.
    """
    presets = {preset.env: preset for preset in list_presets(agent_id)}
    name = _strip_module(env_id)
    if name in presets and name != ATARI:
        return presets[name]
    if ATARI in presets and (name.startswith('ALE/') or 'NoFrameskip-v' in name):
        return presets[ATARI].for_game(env_id)
    if not presets:
        raise OptionError('tuned', f'got {format_value(env_id)}, and {agent_id} has no tuned settings')
    names = ', '.join('every Atari game' if env == ATARI else env for env in presets)
    got = f'got {format_value(env_id)}, for which {agent_id} has no tuned settings'
    raise OptionError('tuned', f'{got}, expected {names}{did_you_mean(name, presets.keys() - {ATARI})}')


def find_score(preset: Preset) -> Score | None:
    """Return what settings were seen to reach; None where nobody ran them, or they have changed since."""
    entry = read_scores().get(preset.agent, {}).get(preset.env)
    if entry is None or entry['digest'] != preset.digest:
        return None
    return Score(**{**entry, 'means': tuple(entry['means'])})


def read_scores() -> dict[str, Any]:
    """Return all kept scores by agent and environment; none where there is no file."""
    return _read_yaml(SCORES) if SCORES.exists() else {}


def _strip_module(env_id: str) -> str:
    # gym:Id and module:Id are environments of the same names
    return env_id.rpartition(':')[2]


@functools.cache
def _read_yaml(path: Path) -> dict[str, Any]:
    return (yaml.safe_load(path.read_text(encoding='utf-8')) or {}) if path.exists() else {}
