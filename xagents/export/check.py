"""Whether an exported policy acts as its agent does: on real observations, in batches of several sizes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from xagents.collecting.policies import Policy

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.export.formats import PolicyFunction

N_OBSERVATIONS = 128
BATCH_SIZES = (1, 7)  # of the additional batches
TOLERANCE = 1e-5
# Of a bfloat16 network that is written in float32: a number has 8 bits, of which a few layers lose some.
BFLOAT16_TOLERANCE = 2.0**-5


class Agreement(NamedTuple):
    """How an exported policy and its agent agree on so many observations.

    Attributes:
        ties: on how many the two answer differently, because two actions are worth the same to the agent.
        difference: the largest between continuous actions, in their own units; 0 for others.
        tolerance: what was admitted: of continuous actions relative to half their range, of logits to their size.
    """

    observations: int
    ties: int
    difference: float
    tolerance: float


def collect_observations(agent: BaseAgent) -> Any:
    """Return a batch of OBSERVATIONS raw observations, of an environment of their own; ValueError if there can be none.

    In the second half every other action is random: greedy actions alone may show very little.
    """
    import keras

    if not agent.envs.can_recreate:
        problem = f'{agent.envs.id} was handed over ready-made and cannot be made afresh to compare in'
        raise ValueError(f'export: {problem}; give observations=[N, …] of it')
    seed = agent.streams.derive_seed('evaluate', 0)
    rng = np.random.default_rng(seed)
    actions = copy.deepcopy(agent.envs.action_space)
    actions.seed(seed % 2**31)
    with agent.envs.recreate(1) as envs:
        envs._encode = None  # raw observations are what is wanted here
        seen = [copy.deepcopy(envs.reset(seed))]  # the environments' own array
        n = envs.n_envs
        while len(seen) * n < N_OBSERVATIONS:
            random = len(seen) * n > N_OBSERVATIONS // 2 and rng.random() < 0.5
            action = np.stack([actions.sample() for _ in range(n)]) if random else agent.act(seen[-1])
            seen.append(copy.deepcopy(envs.step(action)[0]))
    return keras.tree.map_structure(lambda *rows: np.concatenate(rows)[:N_OBSERVATIONS], *seen)


def as_batch(space: spaces.Space, observations: Any) -> Any:
    """Batch a sequence of N observations; a batch stays one: [N, …], for a Dict space a dict, for a Tuple a tuple."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.asarray(observations, space.dtype)
    if isinstance(observations, dict if isinstance(space, spaces.Dict) else tuple):
        return observations
    empty: Any = create_empty_array(space, n=len(observations))
    return concatenate(space, list(observations), empty)


def check_agreement(
    agent: BaseAgent,
    run: PolicyFunction,
    batch: Any,
    arrays: dict[str, np.ndarray],
    tolerance: float,
    acting_policy: Policy,
) -> Agreement:
    """Compare what an agent and its exported policy, `run`, do on raw observations [N, …].

    These are in `batch` as vector environments batch them, and in `arrays` by the names of the policy's inputs.
    `acting_policy` is the agent's policy, or one like it that acts more precisely. RuntimeError where they differ by
    more than
    rounding does, or shape or dtype of actions are others.
    """
    n, space = len(next(iter(arrays.values()))), agent.envs.action_space
    continuous = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    expected = agent.act(batch, policy=acting_policy)
    assert acting_policy.network is not None
    # the network's arrays are overwritten by its next call
    outputs = np.array(acting_policy.network(agent.statistics.prepare(agent.envs.encoder(batch)))[0])
    ties, difference = np.zeros(n, bool), 0.0
    for size in (n, *BATCH_SIZES):
        rows = np.arange(size) % n
        got = run({name: array[rows] for name, array in arrays.items()})
        wanted = expected[rows]
        if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            both = f'{got.dtype} {got.shape}, the agent {wanted.dtype} {wanted.shape}'
            raise RuntimeError(f'the policy returned {both}; nothing is written')
        far = np.abs(got - wanted, dtype=np.float64)
        distance = _distances(agent, outputs[rows], wanted, got)
        wrong = ~(distance <= tolerance)  # NaN is wrong, too
        if wrong.any():
            by = f'by up to {far.max():.2g}' if continuous else f'with logits {distance.max():.2g} apart'
            where = f'on {wrong.sum()} of {size} observations, {by}, admitted is {tolerance:.2g}'
            raise RuntimeError(f'the policy acts otherwise than the agent {where}; nothing is written')
        if continuous:
            difference = max(difference, float(far.max()))
        else:
            ties[rows] |= far.reshape(size, -1).any(1)
    return Agreement(n, int(ties.sum()), difference, tolerance)


def _distances(agent: BaseAgent, outputs: np.ndarray, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Return how far the agent's outputs [N, units] would have to move for the actions that were got, [N].

    Relative to half the range of a continuous action, otherwise to the outputs' size, 1 at least; 0 for equal actions.
    """
    space = agent.envs.action_space
    if isinstance(space, spaces.Box):
        distances = _box_distances(space, outputs, expected, got)
    elif isinstance(space, spaces.MultiBinary):
        distances = np.where(expected != got, np.abs(outputs).reshape(got.shape), 0)
    else:
        nvec = space.nvec.ravel() if isinstance(space, spaces.MultiDiscrete) else [agent.n_actions]
        sizes = np.asarray(nvec, np.int64)
        mine, theirs = (agent.collector.decode.inverse(actions).reshape(len(got), -1) for actions in (expected, got))
        admitted = (theirs >= 0) & (theirs < sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        chosen = np.take_along_axis(outputs, mine + offsets, 1)
        distances = chosen - np.take_along_axis(outputs, np.where(admitted, theirs, 0) + offsets, 1)
        distances = np.where(admitted, distances, np.inf)
    distances = distances.reshape(len(got), -1).max(1)
    return distances if isinstance(space, spaces.Box) else distances / np.maximum(1, np.abs(outputs).max(1))


def _box_distances(space: spaces.Box, outputs: np.ndarray, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    half = high / 2 - low / 2
    unit = np.where(bounded, half, np.maximum(1, np.abs(expected)))
    if np.issubdtype(space.dtype, np.integer):
        # halfway between two numbers is where the one becomes the other
        before = outputs.reshape(got.shape).clip(-1, 1) * half + (high / 2 + low / 2)
        return np.where(expected != got, np.abs(before - (expected / 2 + got / 2)), 0) / unit
    # neighbours in the dtype, or in float32 where that is coarser, cannot be distinguished
    coarser = np.float16 if space.dtype == np.float16 else np.float32
    rounding = 2 * np.spacing(np.maximum(np.abs(expected), np.abs(got)).astype(coarser)).astype(np.float64)
    return np.maximum(0, np.abs(got - expected, dtype=np.float64) - rounding) / unit
