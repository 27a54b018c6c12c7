"""Scales of observations and rewards with which networks do not learn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xagents.doctor.finding import Finding

# networks learn inputs and targets of about 1; the limits are an order of magnitude beyond those of MuJoCo
MAX_INPUT, MIN_INPUT = 50.0, 1e-3
MAX_RETURN, MIN_RETURN = 1e4, 1e-2


def observation_scale(observations: np.ndarray, is_image: bool, normalized: bool) -> Iterator[Finding]:
    """Yield a finding if inputs of a network [S, D] are far from 1. Images are scaled by the networks."""
    if is_image or observations.dtype == np.uint8 or observations.ndim != 2 or normalized:
        return
    sizes = np.sqrt(np.mean(np.square(observations, dtype=np.float64), 0))
    moving = observations.std(0) > 0
    remedy = 'Add --normalize-obs'
    if sizes.size and (largest := float(sizes.max())) > MAX_INPUT:
        i = int(sizes.argmax())
        seen = f'element {i} of the observation is about {largest:.4g} ({_count(sizes > MAX_INPUT)} so large)'
        meaning = 'Networks learn inputs of about 1; one large input saturates their units or hides the others'
        yield Finding('observation-scale', seen, meaning, remedy)
    elif moving.any() and (largest := float(sizes[moving].max())) < MIN_INPUT:
        seen = f'all elements of the observation are below {largest:.1g}'
        yield Finding('observation-scale', seen, 'A network hardly sees differences of this size', remedy)


def _count(which: np.ndarray) -> str:
    return f'{np.count_nonzero(which)} of {len(which)} are' if np.count_nonzero(which) > 1 else 'only this one is'


def large_returns(seen: str) -> Finding:
    """Return the finding for returns above `MAX_RETURN`, with the numbers in `seen`."""
    meaning = 'The loss of the critic is the square of such numbers, and outweighs everything else'
    return Finding('reward-scale', seen, meaning, 'Add --normalize-reward, or a smaller --reward-scale')


def small_returns(seen: str) -> Finding:
    """Return the finding for returns below `MIN_RETURN`, with the numbers in `seen`."""
    meaning = 'Errors of the critic at the start are larger than all returns'
    return Finding('reward-scale', seen, meaning, 'Add --normalize-reward, or a larger --reward-scale')
