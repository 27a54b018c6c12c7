"""Normalisation of scores: 0 for a random policy, 1 for a reference score."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from xagents.options.errors import OptionError, did_you_mean, format_value

FILE = Path(__file__).with_name('reference_scores.yaml')


class ScoreBounds(NamedTuple):
    """Scores of an environment: `random` is normalised to 0, `reference` to 1."""

    random: float
    reference: float

    def normalise(self, scores: np.ndarray) -> np.ndarray:
        """Return (scores - random) / (reference - random)."""
        return (scores - self.random) / (self.reference - self.random)


def known_bounds(env: str) -> ScoreBounds | None:
    """Return the scores of an environment in the table of the package, or None if the table does not have it."""
    name = env.rpartition(':')[2]
    if name.startswith('ALE/') or 'NoFrameskip-v' in name:
        name = name.removeprefix('ALE/').partition('NoFrameskip')[0].partition('-v')[0]
    entry = _table().get(name)
    return None if entry is None else ScoreBounds(float(entry['random']), float(entry['reference']))


def find_bounds(
    envs: Sequence[str], random: Sequence[str] | None = None, reference: Sequence[str] | None = None
) -> dict[str, ScoreBounds] | None:
    """Return the scores with which each environment is normalised. Given scores replace those of the package.

    Args:
        envs: names of the environments.
        random: scores of a random policy, as `ENV=NUMBER`.
        reference: reference scores, as `ENV=NUMBER`.

    Returns:
        The scores by environment; None if there is only one environment, and neither score is known or given.

    Raises:
        OptionError: if a text has another form, names another environment, or an environment has no scores.
    """
    given = {
        name: _read_pairs(name, pairs or (), envs) for name, pairs in (('random', random), ('reference', reference))
    }
    bounds = {}
    for env in envs:
        known = known_bounds(env)
        found = {name: scores.get(env, getattr(known, name, None)) for name, scores in given.items()}
        missing = [name for name, score in found.items() if score is None]
        if len(envs) == 1 and len(missing) == 2:
            return None
        if missing:
            other = ' and '.join(f'--{name}' for name in missing[1:])
            also = f' and {other}' if other else ''
            problem = f'no score of {env} is known, expected {format_value(f"{env}=NUMBER")} here{also}, or --raw'
            raise OptionError(missing[0], problem)
        bounds[env] = ScoreBounds(float(found['random'] or 0.0), float(found['reference'] or 0.0))
        if bounds[env].reference <= bounds[env].random:
            name = 'reference' if env in given['reference'] else 'random'
            expected = f'expected a reference score above the score of a random policy, {bounds[env].random:g}'
            raise OptionError(name, f'got {bounds[env].reference:g} as the reference score of {env}, {expected}')
    return bounds


def _read_pairs(name: str, pairs: Iterable[str], envs: Sequence[str]) -> Mapping[str, float]:
    scores: dict[str, float] = {}
    for pair in pairs:
        env, _, text = pair.rpartition('=')
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not env or not math.isfinite(score):
            raise OptionError(name, f'got {format_value(pair)}, expected ENV=NUMBER, such as {envs[0]}=100')
        if env not in envs:
            expected = f'expected one of {", ".join(envs)}{did_you_mean(env, envs)}'
            raise OptionError(name, f'got the environment {format_value(env)}, {expected}')
        if env in scores:
            raise OptionError(name, f'got {env} twice, expected each environment once')
        scores[env] = score
    return scores


@functools.cache
def _table() -> dict[str, dict[str, float]]:
    return yaml.safe_load(FILE.read_text(encoding='utf-8')) or {}
