"""Population-based training: selection of parents and changes of settings, as pure functions of the scores.

Jaderberg et al. 2017, "Population Based Training of Neural Networks" (arXiv:1711.09846): truncation selection, and
settings that are perturbed or resampled (section 3, appendix A).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.reports.population_files import Member
from xagents.tuning.search import Bounds, Choices, SearchRange

# default factors of a perturbation
PERTURB = (0.8, 1.2)


@dataclass(frozen=True)
class Evolution:
    """The rules by which a population evolves.

    Attributes:
        ranges: ranges of the searched options.
        exploit: fraction of the members that are replaced by copies of the best ones.
        perturb: factors; one is drawn for each setting of a copied member.
        resample: probability of sampling a setting from its range instead of perturbing it.
    """

    ranges: Mapping[str, SearchRange]
    exploit: float = 0.2
    perturb: Sequence[float] = PERTURB
    resample: float = 0.25

    def first(self, size: int, given: Mapping[str, Any], rng: np.random.Generator) -> list[Member]:
        """Return the members of the first round: one with the given settings, the others with sampled settings."""
        others = ({n: draw(r, rng) for n, r in sorted(self.ranges.items())} for _ in range(size - 1))
        return [Member(dict(given)), *map(Member, others)]

    def next(self, members: Sequence[Member], rng: np.random.Generator) -> list[Member]:
        """Return the members of the round after `members`."""
        parents = exploit([member.score for member in members], self.exploit, rng)
        return [
            Member(members[i].settings, i)
            if parent == i
            else Member(self.explore(members[parent].settings, rng), parent)
            for i, parent in enumerate(parents)
        ]

    def explore(self, settings: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return changed settings: each is multiplied by one of the factors or resampled, and stays within its range.

        For choices, a factor above 1 selects the next choice, and a factor below 1 the previous one.

        Args:
            settings: settings of the parent by name.
            rng: random generator.
        """
        new_settings = {}
        for name, r in sorted(self.ranges.items()):
            resampled, factor = rng.random() < self.resample, self.perturb[int(rng.integers(len(self.perturb)))]
            drawn = draw(r, rng)  # always sample, so that one setting does not change the random numbers of the others
            new_settings[name] = drawn if resampled else perturbed_value(r, settings[name], factor)
        return new_settings


def exploit(scores: Sequence[float | None], share: float, rng: np.random.Generator) -> list[int]:
    """Return the parent of each member: one of the best for the worst members, itself for all others.

    The best and the worst are equally many: `share` of the members, at least one and at most half. Members without a
    score are always among the worst. If two scores are equal, the member with the smaller number is better.

    Args:
        scores: score of each member; None if it has none.
        share: fraction of the members; with 0 only members without a score are replaced.
        rng: random generator.

    Raises:
        ValueError: if no member has a score.
    """
    count = min(max(1, round(share * len(scores))), len(scores) // 2) if share else 0
    order = sorted(range(len(scores)), key=lambda i: (-_worth(scores[i]), i))  # the best first
    failed = {i for i in order if _worth(scores[i]) == -math.inf}
    best = [i for i in order[: max(count, 1)] if i not in failed]
    if not best:
        raise ValueError('no member has a score')
    worst = {*order[len(order) - count :], *failed} - set(best)
    return [best[int(rng.integers(len(best)))] if i in worst else i for i in range(len(scores))]


def draw(r: SearchRange, rng: np.random.Generator) -> Any:
    """Return a sampled value of a range, uniform or, for a logarithmic range, log-uniform."""
    if isinstance(r, Choices):
        return r.values[int(rng.integers(len(r.values)))]
    share = rng.random()
    value = r.low * (r.high / r.low) ** share if r.log else r.low + (r.high - r.low) * share
    return _within(r, value)


def perturbed_value(r: SearchRange, value: Any, factor: float) -> Any:
    """Return a value multiplied by a factor and clipped to its range; for choices, a neighbour of the value."""
    if isinstance(r, Choices):
        place = r.values.index(value) + (factor > 1) - (factor < 1)
        return r.values[min(max(place, 0), len(r.values) - 1)]
    return _within(r, value * factor)


def _within(r: Bounds, value: float) -> Any:
    return r.nearest(round(value) if isinstance(r.low, int) else value)


def _worth(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score
