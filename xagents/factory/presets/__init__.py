"""Tuned settings in the package, by agent and environment. `--tuned` uses them, `xagents presets` lists them.

Each agent has one YAML file, with the names of this package's options. The learning benchmark writes the measured
scores to `scores.yaml`. This module does not load TensorFlow.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.registry.agents import find_agent

FOLDER = Path(__file__).parent
SCORES = FOLDER / 'scores.yaml'
# the key of the settings for all Atari games
ATARI = 'atari'
# Further words of a key distinguish presets for the same environment: a value of this option, then PUBLISHED for the
# published settings if the preset has settings that were found for this package, or EARLY for the first steps.
FORM_OPTION = 'distribution'
PUBLISHED = 'published'
EARLY = 'early'
# the source of settings that were found here
OWN_SOURCE = 'xagents'


@dataclasses.dataclass(frozen=True)
class Preset:
    """Tuned settings of an agent in an environment.

    Args:
        agent: the id of the agent.
        env: the id of the environment, or `atari` for all Atari games.
        max_steps: the number of environment steps that the settings were tuned for.
        options: options of `xagents.make`, by name.
        source: the source of the settings; its first word is a name.
        published: the published mean reward of the settings, if there is one.
        scored_on: the id of the environment of the published score, if it is another version of `env`.
        scored_with: the settings of the run with the published score, where they differ from the published settings.
        changed: the differences from the published settings.
        games: published scores by environment id, if `env` is `atari`.
        form: the value of `distribution` that the settings are for, then `published` for the published settings if
            the preset differs from them, or `early`, see `after_early_steps`; empty without these.
        early: `max_steps` after which a score is known earlier, and `published`, the published mean reward there, if
            there is one.
    """

    agent: str
    env: str
    max_steps: int
    options: dict[str, Any]
    source: str
    published: float | None = None
    scored_on: str = ''
    scored_with: str = ''
    changed: str = ''
    games: dict[str, float] = dataclasses.field(default_factory=dict)
    form: str = ''
    early: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The key of the preset: the environment, and the form if there is one."""
        return f'{self.env} {self.form}'.rstrip()

    @property
    def is_published(self) -> bool:
        """Whether these are the published settings of another preset."""
        return self.form.endswith(PUBLISHED)

    @property
    def is_early(self) -> bool:
        """Whether these are the fewer steps of another preset, see `after_early_steps`."""
        return self.form.endswith(EARLY)

    @property
    def distribution(self) -> str:
        """The value of `distribution` that the settings are for, or an empty string."""
        return ' '.join(word for word in self.form.split() if word not in (PUBLISHED, EARLY))

    @property
    def source_name(self) -> str:
        """The name of the source: the first word of `source`."""
        return self.source.split()[0].rstrip(',')

    @property
    def digest(self) -> str:
        """A hash of the settings. A score with another digest was measured with other settings."""
        settings = {'env': self.env, 'max_steps': self.max_steps, 'options': self.options}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]

    def for_game(self, env_id: str) -> Preset:
        """Return the settings for one Atari game, with the score that was published for this game."""
        game = _strip_module(env_id).removeprefix('ALE/').partition('NoFrameskip')[0].partition('-v')[0]
        name = f'{game}NoFrameskip-v4'
        scored_on = name if name in self.games and name != env_id else ''
        return dataclasses.replace(self, env=env_id, published=self.games.get(name), scored_on=scored_on, games={})

    def after_early_steps(self) -> Preset | None:
        """Return the same settings for the steps of `early`, or None without `early`."""
        if not self.early:
            return None
        changes = {'published': None, 'form': f'{self.form} {EARLY}'.lstrip(), 'early': {}, **self.early}
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Score:
    """A measured score of a preset.

    Args:
        median: the median of `means`.
        means: the mean reward of each seed after its training.
        episodes: the number of greedy episodes of each mean.
        date: the date of the last run.
        version: the version of this package.
        digest: the digest of the settings, see `Preset.digest`.
        peer: the median of Stable-Baselines3 or sb3-contrib with the same settings and versions of environments.
    """

    median: float
    means: tuple[float, ...]
    episodes: int
    date: str
    version: str
    digest: str
    peer: float | None = None


def list_presets(agent_id: str) -> list[Preset]:
    """Return the presets of an agent. The preset for all Atari games is the last one.

    Raises:
        OptionError: for an unknown agent.
    """
    presets = []
    for key, entry in copy.deepcopy(_read_yaml(FOLDER / f'{find_agent(agent_id).id}.yaml')).items():
        env, _, form = key.partition(' ')
        games = entry.pop('published', {}) if env == ATARI else {}
        preset = Preset(agent_id, env, games=games, form=form, **entry)
        if preset.distribution:
            preset.options[FORM_OPTION] = preset.distribution
        presets.append(preset)
    return presets


def find_preset(agent_id: str, env_id: str, given: Mapping[str, Any] | None = None) -> Preset:
    """Return the preset of an agent for an environment.

    In Python, `xagents.make('ppo', 'CartPole-v1', **find_preset('ppo', 'CartPole-v1').options)` makes an agent with
    these settings, and `fit(max_steps=preset.max_steps)` trains the agent for the tuned number of steps.

    Args:
        agent_id: the id of the agent.
        env_id: the id of the environment, as for `--env`. `ALE/…` and `…NoFrameskip-v4` are Atari games.
        given: options that the user set. A given `distribution` selects the preset for it, if there is one. A true
            `published` selects the published settings: those for the given distribution, if any environment has a
            preset for it.

    Raises:
        OptionError: if the agent has no preset, or no published settings, for the environment. The message lists the
            environments that have them, and the nearest name.
    """
    given, presets, name = given or {}, list_presets(agent_id), _strip_module(env_id)
    published = bool(given.get('published'))
    distributions = [preset.distribution for preset in presets if published or preset.env == name]
    distribution = given[FORM_OPTION] if given.get(FORM_OPTION) in distributions else ''
    presets = [preset for preset in presets if preset.distribution == distribution]
    option, kind, kinds = 'tuned', 'preset', 'presets'
    offered = {preset.env: preset for preset in presets if not preset.is_published}
    if published:
        option, kind, kinds = 'published', 'published settings', 'published settings'
        offered = {preset.env: preset for preset in presets if preset.source_name != OWN_SOURCE}
    if name in offered and name != ATARI:
        return offered[name]
    if ATARI in offered and (name.startswith('ALE/') or 'NoFrameskip-v' in name):
        return offered[ATARI].for_game(env_id)
    if not offered:
        raise OptionError(option, f'{agent_id} has no {kinds}')
    names = ', '.join('every Atari game' if env == ATARI else env for env in offered)
    form = f' with {FORM_OPTION} {distribution}' if distribution else ''
    problem = f'{agent_id} has no {kind} for {format_value(env_id)}{form}'
    raise OptionError(option, f'{problem}, expected {names}{did_you_mean(name, offered.keys() - {ATARI})}')


def find_score(preset: Preset) -> Score | None:
    """Return the measured score of settings, or None if there is none or the settings have changed since."""
    entry = read_scores().get(preset.agent, {}).get(preset.name)
    if entry is None or entry['digest'] != preset.digest:
        return None
    return Score(**{**entry, 'means': tuple(entry['means'])})


def read_scores() -> dict[str, Any]:
    """Return all saved scores by agent and environment, or an empty dict if there is no file."""
    return _read_yaml(SCORES) if SCORES.exists() else {}


def _strip_module(env_id: str) -> str:
    # gym:Id and module:Id have the same preset as Id
    return env_id.rpartition(':')[2]


@functools.cache
def _read_yaml(path: Path) -> dict[str, Any]:
    return (yaml.safe_load(path.read_text(encoding='utf-8')) or {}) if path.exists() else {}
