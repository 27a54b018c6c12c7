"""Populations: who copies whom, and how settings change. Pure functions of what members have earned.

Jaderberg et al. 2017, "Population Based Training of Neural Networks" (arXiv:1711.09846): truncation selection, and
settings that are perturbed or drawn anew (section 3, appendix A).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.reports.population_files import Member
from xagents.tuning.search import Bounds, Choices, SearchRange

# factors of a perturbation, where none are given
PERTURB = (0.8, 1.2)


@dataclass(frozen=True)
class Evolution:
    """How a population evolves.

    Attributes:
        ranges: what is searched.
        exploit: share of the worst that copy as many of the best.
        perturb: factors of which one is drawn for each setting of who has copied.
        resample: probability of drawing a setting anew instead.
    """

    ranges: Mapping[str, SearchRange]
    exploit: float = 0.2
    perturb: Sequence[float] = PERTURB
    resample: float = 0.25

    def first(self, size: int, given: Mapping[str, Any], rng: np.random.Generator) -> list[Member]:
        """Return the first round: one member with the given settings, the others with settings that are drawn."""
        others = ({n: draw(r, rng) for n, r in sorted(self.ranges.items())} for _ in range(size - 1))
        return [Member(dict(given)), *map(Member, others)]

    def next(self, members: Sequence[Member], rng: np.random.Generator) -> list[Member]:
        """Return the round that follows another."""
        parents = exploit([member.score for member in members], self.exploit, rng)
        return [
            Member(members[i].settings, i)
            if parent == i
            else Member(explore(members[parent].settings, self.ranges, self.perturb, self.resample, rng), parent)
            for i, parent in enumerate(parents)
        ]


def exploit(scores: Sequence[float | None], share: float, rng: np.random.Generator) -> list[int]:
    """Return from whom each member goes on: the worst from one of the best, all others from themselves.

    As many are worst as are best, `share` of them all, at least one, at most half; who has no score is among the
    worst in any case. Of equal scores the earlier member's counts as the better one.

    Raises:
        ValueError: where nobody has a score.
    """
    count = min(max(1, round(share * len(scores))), len(scores) // 2) if share else 0
    order = sorted(range(len(scores)), key=lambda i: (-_worth(scores[i]), i))  # the best first
    failed = {i for i in order if _worth(scores[i]) == -math.inf}
    best = [i for i in order[: max(count, 1)] if i not in failed]
    if not best:
        raise ValueError('no member has a score')
    worst = {*order[len(order) - count :], *failed} - set(best)
    return [best[int(rng.integers(len(best)))] if i in worst else i for i in range(len(scores))]


def explore(
    settings: Mapping[str, Any],
    ranges: Mapping[str, SearchRange],
    perturb: Sequence[float],
    resample: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return settings near others: each is multiplied by one of the factors, or drawn anew; all stay within ranges.

    Of choices the neighbour is taken: the next one for a factor above 1, else the one before.
    """
    new_settings = {}
    for name, r in sorted(ranges.items()):
        resampled, factor = rng.random() < resample, perturb[int(rng.integers(len(perturb)))]
        drawn = draw(r, rng)  # in any case, so that one setting's fate changes no other's
        new_settings[name] = drawn if resampled else perturbed_value(r, settings[name], factor)
    return new_settings


def draw(r: SearchRange, rng: np.random.Generator) -> Any:
    """Return a value of a range; each order of magnitude is equally likely where it is searched by these."""
    if isinstance(r, Choices):
        return r.values[int(rng.integers(len(r.values)))]
    share = rng.random()
    value = r.low * (r.high / r.low) ** share if r.log else r.low + (r.high - r.low) * share
    return _within(r, value)


def perturbed_value(r: SearchRange, value: Any, factor: float) -> Any:
    """Return a value of a range, multiplied by a factor."""
    if isinstance(r, Choices):
        place = r.values.index(value) + (factor > 1) - (factor < 1)
        return r.values[min(max(place, 0), len(r.values) - 1)]
    return _within(r, value * factor)


def _within(r: Bounds, value: float) -> Any:
    whole = isinstance(r.low, int)
    return r.nearest(round(value) if whole else value)


def _worth(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score
