"""Transitions that a check collects, as a network receives them. Does not load TensorFlow."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.doctor.random_policy import RandomPolicy
from xagents.envs.interface import Envs
from xagents.networks.numpy_inference import NumpyNetwork

# steps of a rollout of a sample
CHUNK = 64


@dataclass(frozen=True)
class Sample:
    """Transitions of one or several environments.

    Attributes:
        observations: the input of the network, [S, *D], encoded and normalised.
        rewards: raw rewards [S].
        learned_rewards: rewards after the options that scale and normalise them, [S].
        returns: their discounted sums to the end of the episode or of the sample, [S].
        first_reward: steps of the first episodes until a reward differs from the usual one, at least 1 each.
        actions: actions of the policy, [S, …].
        action_space: the action space.
        is_image: whether observations are images or bytes of images.
        units: activation and outputs [S, units] of the hidden layers of the policy's network, by name.
    """

    observations: np.ndarray
    rewards: np.ndarray
    learned_rewards: np.ndarray
    returns: np.ndarray
    first_reward: tuple[int, ...]
    actions: np.ndarray
    action_space: spaces.Space
    is_image: bool
    units: dict[str, tuple[str, np.ndarray]]


def take_sample(
    envs: Envs, policy: Policy, statistics: Statistics, gamma: float, n_steps: int, seconds: float
) -> Sample:
    """Collect about `n_steps` transitions with a policy, as a run does, in at most about `seconds` seconds."""
    statistics = statistics.copy()
    collector = Collector.of_policy(envs, policy, statistics, RandomStreams(0), raw_rollouts=True)
    chunks: list[dict[str, np.ndarray]] = []
    start, taken = time.perf_counter(), 0
    while taken < n_steps and time.perf_counter() - start < seconds:
        rollout = collector.collect(CHUNK)
        kept = {name: np.array(rollout[name]) for name in ('actions', 'rewards', 'terminated', 'truncated', 'valid')}
        chunks.append({**kept, 'observations': np.array(rollout['observations'][:-1])})
        taken += int(np.count_nonzero(kept['valid']))
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    valid = columns['valid']
    seen = statistics.prepare(columns['observations'][valid])
    raw = columns['rewards']
    clipped = np.sign(raw) if envs.atari and getattr(envs.factory, 'clip_rewards', False) else raw
    learned = np.asarray(statistics.scale_rewards(clipped), np.float64)
    ended = columns['terminated'] | columns['truncated']
    return Sample(
        observations=seen,
        rewards=raw[valid],
        learned_rewards=learned[valid],
        returns=_discounted(learned, ended | ~valid, gamma)[valid],
        first_reward=tuple(_first_rewards(columns)),
        actions=columns['actions'][valid],
        action_space=envs.action_space,
        is_image=envs.is_image or bool(envs.encoder.images),
        units=hidden_units(policy.network, seen),
    )


def _discounted(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted sums of rewards [T, N] from each step to the end of the episode or of the rows."""
    returns, running = np.zeros(rewards.shape), np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        running = returns[t] = rewards[t] + gamma * running * ~ended[t]
    return returns


def random_rewards(envs: Envs, n_episodes: int, seconds: float) -> np.ndarray:
    """Return the sums of raw rewards of about `n_episodes` episodes with random actions, in at most about `seconds`."""
    statistics = Statistics(raw_dtype=envs.observation_space.dtype)
    collector = Collector.of_policy(envs, RandomPolicy(envs), statistics, RandomStreams(0), raw_rollouts=True)
    start = time.perf_counter()
    while len(collector.stats.episodes) < n_episodes and time.perf_counter() - start < seconds:
        collector.collect(CHUNK)
    return np.array([episode.reward for episode in collector.stats.episodes])


def _first_rewards(columns: dict[str, np.ndarray]) -> list[int]:
    """Return the steps until the first unusual reward of each episode that begins in the sample and has one."""
    rewards, valid = columns['rewards'], columns['valid']
    ended = columns['terminated'] | columns['truncated']
    usual = usual_value(rewards[valid])
    found = []
    for i in range(rewards.shape[1]):
        step, done = 0, False
        for t in range(len(rewards)):
            if not valid[t, i]:
                continue
            step += 1
            if not done and rewards[t, i] != usual:
                found.append(step)
                done = True
            if ended[t, i]:
                step, done = 0, False
    return found


def usual_value(values: np.ndarray) -> float:
    """Return the most frequent value."""
    kinds, counts = np.unique(values, return_counts=True)
    return float(kinds[np.argmax(counts)])


def hidden_units(network: Any, observations: np.ndarray) -> dict[str, tuple[str, np.ndarray]]:
    """Return activation and outputs [S, units] of the hidden layers of vectors, by name; empty without a plan."""
    plan = getattr(network, 'plan', None)
    if plan is None or plan.memory_units or len(plan.input_shape) != 1 or plan.noise_units:
        return {}
    shapes = plan.shapes()
    hidden = [
        call
        for call in plan.calls
        if call.target not in plan.outputs and call.activation in ('relu', 'tanh') and len(shapes[call.target]) == 1
    ]
    if not hidden:
        return {}
    shown = replace(plan, outputs=tuple(call.target for call in hidden))
    weights = network.published_weights.weights
    outputs = NumpyNetwork(shown, np.asarray(weights, np.float32))(observations)
    pairs = enumerate(zip(hidden, outputs, strict=True), start=1)
    return {f'layer {i}': (call.activation, np.array(output)) for i, (call, output) in pairs}
