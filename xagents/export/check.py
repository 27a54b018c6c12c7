"""Comparison of an exported policy with its agent, on real observations in batches of several sizes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from xagents.collecting.policies import Policy
from xagents.envs.observations.action_masks import sample_legal
from xagents.envs.observations.composite import vector_of
from xagents.envs.spaces import ActionDecoder
from xagents.system.trees import leaf_at

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.export.formats import PolicyFunction

N_OBSERVATIONS = 128
# steps after which an episode is compared as far as it went
MAX_STEPS = 1000
BATCH_SIZES = (1, 7)  # sizes of additional batches
TOLERANCE = 1e-5
# for a bfloat16 network exported in float32: bfloat16 has 8 significant bits, and rounding errors of layers add up
BFLOAT16_TOLERANCE = 2.0**-5


class Agreement(NamedTuple):
    """The agreement of an exported policy with its agent.

    Attributes:
        observations: the number of observations.
        ties: the number of observations with different discrete actions whose outputs are equal within the tolerance.
        difference: the largest difference between continuous actions, in their unit; 0 for discrete actions.
        tolerance: the largest accepted difference: relative to half the range of continuous actions, or to the size of
            the outputs of discrete actions.
    """

    observations: int
    ties: int
    difference: float
    tolerance: float


class Observations(NamedTuple):
    """Raw observations for the comparison.

    Attributes:
        batch: the observations [N, …], as vector environments return them.
        starts: bool [N], whether an observation is the first one of an episode; observations in between follow each
            other. Used only for policies with memory.
    """

    batch: Any
    starts: np.ndarray


def collect_observations(agent: BaseAgent) -> Observations:
    """Collect N_OBSERVATIONS raw observations in a new environment; with memory, at least one whole episode.

    In the second half, an action is random with probability 1/2, because greedy actions may reach few states.

    Raises:
        ValueError: in one line, if the agent's environment cannot be created again.
    """
    import keras

    if not agent.envs.can_recreate:
        problem = f'{agent.envs.id} is an existing environment and cannot be created again for the comparison'
        raise ValueError(f'export: {problem}; give observations=[N, …]')
    seed = agent.streams.derive_seed('evaluate', 0)
    rng = np.random.default_rng(seed)
    actions = copy.deepcopy(agent.envs.action_space)
    actions.seed(seed % 2**31)
    policy = agent.acting_policy
    whole = policy.memory_units > 0
    with agent._memory.replaced(policy, None, None), agent.envs.recreate(1) as envs:
        envs.return_raw_observations()
        seen = [copy.deepcopy(envs.reset(seed))]  # a copy, because environments reuse their array
        n, starts = envs.n_envs, [np.ones(envs.n_envs, bool)]
        while len(seen) * n < N_OBSERVATIONS or (
            whole and len(starts) < MAX_STEPS and not any(own[0] for own in starts[1:])
        ):
            random = len(seen) * n > N_OBSERVATIONS // 2 and rng.random() < 0.5
            action: Any = _random_actions(agent, actions, seen[-1], n) if random else agent.act(seen[-1])
            starts.append(~envs.valid)
            seen.append(copy.deepcopy(envs.step(action)[0]))
            agent.reset_memory(starts[-1])
    most = N_OBSERVATIONS
    if whole:  # the episodes of one row
        most = len(starts)
        seen = [keras.tree.map_structure(lambda x: np.asarray(x)[:1], rows) for rows in seen]
        starts = [own[:1] for own in starts]
    batch = keras.tree.map_structure(lambda *rows: np.concatenate(rows)[:most], *seen)
    return Observations(batch, np.concatenate(starts)[:most])


def _random_actions(agent: BaseAgent, actions: spaces.Space, observations: Any, n: int) -> Any:
    """Return random actions for raw observations [n, …]; legal ones if they have action masks."""
    n_mask = agent.envs.n_mask
    encoder = agent.envs.encoder
    masks = vector_of(encoder(observations), encoder.n_floats)[:, -n_mask:] if n_mask else [None] * n
    empty: Any = create_empty_array(actions, n=n)
    return concatenate(actions, [sample_legal(actions, mask) for mask in masks], empty)


def as_batch(space: spaces.Space, observations: Any) -> Any:
    """Return raw observations as a batch [N, …]: an array, a dict for a Dict space, or a tuple for a Tuple space.

    Args:
        space: the raw observation space.
        observations: a sequence of N observations, or a batch, which is returned unchanged.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.asarray(observations, space.dtype)
    if isinstance(observations, dict if isinstance(space, spaces.Dict) else tuple):
        return observations
    empty: Any = create_empty_array(space, n=len(observations))
    return concatenate(space, list(observations), empty)


def check_agreement(
    agent: BaseAgent,
    run: PolicyFunction,
    observations: Observations,
    arrays: dict[str, np.ndarray],
    tolerance: float,
    policy: Policy,
) -> Agreement:
    """Compare the actions of an agent and of its exported policy on N raw observations.

    Policies with memory are compared step by step over whole episodes, in several rows at different times.

    Args:
        agent: the agent.
        run: the exported policy.
        observations: the observations.
        arrays: the same observations, by the names of the policy's inputs.
        tolerance: the largest accepted difference, see `Agreement`.
        policy: the agent's policy, or the same policy in higher precision.

    Raises:
        RuntimeError: if actions differ by more than `tolerance`, or in shape or dtype.
    """
    from xagents.export.policy import policy_outputs

    n, parts = len(next(iter(arrays.values()))), policy_outputs(agent.envs.action_space)
    agent.refresh()
    prepared = agent.statistics.prepare(agent.envs.encoder(observations.batch))
    ties, difference = np.zeros(n, bool), 0.0
    steps = _steps_of_episodes if policy.memory_units else _single_steps
    for rows, outputs, actions, all_got in steps(policy, run, prepared, arrays, observations.starts):
        expected, size = agent.collector.group.decode(actions), len(rows)
        for part in parts:
            got, wanted = all_got[part.name], np.asarray(leaf_at(expected, part.path))
            continuous = isinstance(part.space, spaces.Box) and np.issubdtype(part.space.dtype, np.floating)
            far = _check_part(part.space, outputs[:, part.units], wanted, got, tolerance, continuous)
            if continuous:
                difference = max(difference, float(far.max()))
            else:
                ties[rows] |= far.reshape(size, -1).any(1)
    return Agreement(n, int(ties.sum()), difference, tolerance)


# row numbers, outputs of the network, actions of the policy, and outputs of the exported policy
_Compared = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]


def _single_steps(
    policy: Policy, run: PolicyFunction, prepared: np.ndarray, arrays: dict[str, np.ndarray], starts: np.ndarray
) -> Iterator[_Compared]:
    """Yield batches of several sizes."""
    n = len(prepared)
    # copies, because the next call of the network overwrites its arrays
    outputs = np.array(policy.run_network(prepared)[0][0])
    actions = np.array(policy(prepared, None)['actions'])
    for size in (n, *BATCH_SIZES):
        rows = np.arange(size) % n
        yield rows, outputs[rows], actions[rows], run({name: array[rows] for name, array in arrays.items()})


def _steps_of_episodes(
    policy: Policy, run: PolicyFunction, prepared: np.ndarray, arrays: dict[str, np.ndarray], starts: np.ndarray
) -> Iterator[_Compared]:
    """Yield the steps of episodes; the rows of a batch begin at different observations, with an empty memory."""
    from xagents.export.policy import MEMORY_INPUT, MEMORY_OUTPUT

    n, plan = len(prepared), getattr(policy.network, 'plan', None)
    assert plan is not None  # networks with memory have a plan
    # the exported policy has no memory of critics
    exported_units = plan.pruned()[0].memory_units
    for size in BATCH_SIZES:
        own = np.zeros((size, policy.memory_units), np.float32)
        exported = np.zeros((size, exported_units), np.float32)
        for t in range(n):
            rows = (t + np.arange(size) * n // size) % n
            begins = starts[rows] | (rows == 0)
            own[begins] = exported[begins] = 0
            seen = prepared[rows]
            outputs = np.array(policy.run_network(seen, memory=own)[0][0])
            columns = policy(seen, None, memory=own)
            got = run({name: array[rows] for name, array in arrays.items()} | {MEMORY_INPUT: exported})
            yield rows, outputs, np.array(columns['actions']), got
            own, exported = np.array(columns['memory']), np.array(got[MEMORY_OUTPUT])


def _check_part(
    space: spaces.Space, outputs: np.ndarray, wanted: np.ndarray, got: np.ndarray, tolerance: float, continuous: bool
) -> np.ndarray:
    """Compare one part of the actions, and return the differences [N, …]; see `check_agreement`."""
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        both = f'{got.dtype} {got.shape}, expected {wanted.dtype} {wanted.shape}'
        raise RuntimeError(f'the policy returned {both}; nothing is written')
    far = np.abs(got - wanted, dtype=np.float64)
    distance = _distances(space, outputs, wanted, got)
    wrong = ~(distance <= tolerance)  # true for NaN, too
    if wrong.any():
        by = f'by up to {far.max():.2g}' if continuous else f'with logits {distance.max():.2g} apart'
        where = f'on {wrong.sum()} of {len(got)} observations, {by}, expected {tolerance:.2g} at most'
        raise RuntimeError(f'the policy acts differently from the agent {where}; nothing is written')
    return far


def _distances(space: spaces.Space, outputs: np.ndarray, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Return the distance [N] between the agent's outputs and the nearest outputs that give the exported actions.

    The distance is relative to half the range of a continuous action, otherwise to the size of the outputs, at least 1.

    Args:
        space: the space of the actions.
        outputs: the outputs of the agent's network [N, units].
        expected: the agent's actions [N, …].
        got: the actions of the exported policy [N, …].
    """
    if isinstance(space, spaces.Box):
        distances = _box_distances(space, outputs, expected, got)
    elif isinstance(space, spaces.MultiBinary):
        distances = np.where(expected != got, np.abs(outputs).reshape(got.shape), 0)
    else:
        decoder = ActionDecoder(space)
        nvec = space.nvec.ravel() if isinstance(space, spaces.MultiDiscrete) else [decoder.n_actions]
        sizes = np.asarray(nvec, np.int64)
        wanted, returned = (decoder.inverse(actions).reshape(len(got), -1) for actions in (expected, got))
        valid = (returned >= 0) & (returned < sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        chosen = np.take_along_axis(outputs, wanted + offsets, 1)
        distances = chosen - np.take_along_axis(outputs, np.where(valid, returned, 0) + offsets, 1)
        distances = np.where(valid, distances, np.inf)
    distances = distances.reshape(len(got), -1).max(1)
    return distances if isinstance(space, spaces.Box) else distances / np.maximum(1, np.abs(outputs).max(1))


def _box_distances(space: spaces.Box, outputs: np.ndarray, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    half = high / 2 - low / 2
    unit = np.where(bounded, half, np.maximum(1, np.abs(expected)))
    if np.issubdtype(space.dtype, np.integer):
        # rounding changes from one integer to the next halfway between the two
        before = outputs.reshape(got.shape).clip(-1, 1) * half + (high / 2 + low / 2)
        return np.where(expected != got, np.abs(before - (expected / 2 + got / 2)), 0) / unit
    # adjacent numbers of the dtype, or of float32 if it is coarser, count as equal
    coarser = np.float16 if space.dtype == np.float16 else np.float32
    rounding = 2 * np.spacing(np.maximum(np.abs(expected), np.abs(got)).astype(coarser)).astype(np.float64)
    return np.maximum(0, np.abs(got - expected, dtype=np.float64) - rounding) / unit
