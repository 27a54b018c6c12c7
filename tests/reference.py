"""Policies in float64 NumPy, written from the definitions: what the updates of TRPO and ACER are compared with.

Parameters are one vector; gradients and Hessians are differences.
"""

from __future__ import annotations

import itertools

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.base.test_returns import brute_force, episodes_of
from tests.problems import Arbitrary
from xagents.networks.state_dependent import Deviations, LogNorm

T, N, D = 6, 3, 3
LR = 0.05
SPACES = {
    'Discrete': spaces.Discrete(3),
    'MultiDiscrete': spaces.MultiDiscrete([3, 2]),
    'MultiBinary': spaces.MultiBinary(3),
    'Box': spaces.Box(np.float32([-2.0, 0.5]), np.float32([6.0, 1.25])),
}
# of the choices of a space, and how many units their logits are
CHOICES = {'Discrete': [3], 'MultiDiscrete': [3, 2], 'MultiBinary': [1, 1, 1], 'Box': [2]}


def run_eagerly(program, *arguments):
    """Stands for `Program.__call__`: an update as it stands, without tracing or compiling."""
    kinds = {float: np.float32, int: np.int32}
    return program._function(
        *tf.nest.map_structure(lambda a: tf.constant(np.asarray(a, kinds.get(type(a)))), arguments)
    )


# ----------------------------------------------------------------------------------------------------- networks, spaces


def environments(kind):
    return xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), SPACES[kind]), N)


def network(outputs, seed, heads=(), plain=True):
    """A tanh layer of 3 and its outputs, drawn; with `plain` gradient descent, a step shows the gradient."""
    entry = keras.Input((D,))
    hidden = keras.layers.Dense(3, 'tanh')(entry)
    layers = [keras.layers.Dense(n, head) for n, head in itertools.zip_longest(outputs, heads)]
    model = keras.Model(entry, [layer(hidden) for layer in layers])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=v.shape) * (0.8 if len(v.shape) > 1 else 0.2) for v in model.weights])
    if plain:
        model.compile(keras.optimizers.SGD(LR))
    return model


def flat(model):
    """The parameters, float64 [P]."""
    return np.concatenate([v.numpy().ravel() for v in model.trainable_variables]).astype(np.float64)


def outputs(model, parameters, x, frozen=False):
    """The outputs [*M, B, units] at other parameters [*M, P], layer by layer in float64, for x [B, D].

    With `frozen`, state-dependent noise is of the features at the present parameters: no gradient reaches them.
    """
    tensors = tensors_of(model, parameters, x, tensors_of(model, flat(model), x) if frozen else None)
    return [tensors[id(output)] for output in model.outputs]


def tensors_of(model, parameters, x, features=None):
    """Everything that a model computes, by the ids of its tensors; `features` are what deviations are made of."""
    values, start = {}, 0
    for variable in model.trainable_variables:
        size, shape = int(np.prod(variable.shape)), tuple(variable.shape)
        shape = shape if len(shape) == 2 else (1, *shape)
        values[id(variable)] = parameters[..., start : start + size].reshape(*parameters.shape[:-1], *shape)
        start += size
    tensors = {}
    for operation in model._operations:
        node = operation._inbound_nodes[0]
        target = id(node.output_tensors[0])
        if not node.input_tensors:
            tensors[target] = x
            continue
        value = tensors[id(node.input_tensors[0])]
        if isinstance(operation, keras.layers.Dense):
            kernel, bias = (values[id(v)] for v in operation.trainable_variables)
            value = value @ kernel + bias
            value = np.tanh(value) if operation.activation.__name__ == 'tanh' else value
        elif isinstance(operation, Deviations):  # [*M, B, L, A]
            value = value if features is None else features[id(node.input_tensors[0])]
            value = value[..., None] * np.exp(values[id(operation.log_std)])[..., None, :, :]
        elif isinstance(operation, LogNorm):
            value = 0.5 * np.log((value**2).sum(-2) + 1e-6)
        else:  # the log deviation
            value = np.zeros_like(value) + values[id(operation.trainable_variables[0])]
        tensors[target] = value
    return tensors


# -------------------------------------------------------------------------------------------------------- distributions


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def probabilities(kind, logits):
    """Of each of the independent choices, [*M, B, n] for each; of a switch, [*M, B, 2]."""
    if kind == 'MultiBinary':
        return [softmax(np.stack([np.zeros_like(logit), logit], -1)) for logit in np.moveaxis(logits, -1, 0)]
    return [softmax(part) for part in np.split(logits, np.cumsum(CHOICES[kind])[:-1], -1)]


def log_prob(kind, policy, actions):
    """The log-probabilities [*M, B] of actions [B, …]."""
    if kind == 'Box':
        mean, log_std = policy
        return (-0.5 * ((actions - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    choices = actions.reshape(len(actions), -1).T
    parts = zip(probabilities(kind, policy[0]), choices, strict=True)
    return sum(np.log(p[..., np.arange(len(choice)), choice]) for p, choice in parts)


def kl(kind, old, new):
    """KL(old ‖ new) [*M, B] of new outputs [*M, B, units]."""
    if kind == 'Box':
        (mean, log_std), (new_mean, new_log_std) = old, new
        variance, new_variance = np.exp(2 * log_std), np.exp(2 * new_log_std)
        spread = (variance + (mean - new_mean) ** 2) / (2 * new_variance)
        return (new_log_std - log_std + spread - 0.5).sum(-1)
    pairs = zip(probabilities(kind, old[0]), probabilities(kind, new[0]), strict=True)
    return sum((p * np.log(p / q)).sum(-1) for p, q in pairs)


def entropy(kind, policy):
    if kind == 'Box':
        return (policy[1] + 0.5 * np.log(2 * np.pi * np.e)).sum(-1)
    return sum(-(p * np.log(p)).sum(-1) for p in probabilities(kind, policy[0]))


def actions_of(kind, rng, policy):
    """Actions drawn by a policy [B, units]."""
    if kind == 'Box':
        return (policy[0] + np.exp(policy[1]) * rng.normal(size=policy[0].shape)).astype(np.float32)
    drawn = [(p.cumsum(-1) > rng.random((len(p), 1))).argmax(-1) for p in probabilities(kind, policy[0])]
    return (drawn[0] if kind == 'Discrete' else np.stack(drawn, -1)).astype(np.int32)


# ------------------------------------------------------------------------------------------------------------- rollouts


def rollout(kind, policy, seed=0, steps=T, envs=N):
    """What was collected by `policy`, from x [B, D] to its outputs: every kind of ending, and rows that only reset."""
    rng = np.random.default_rng(seed)
    terminated, truncated, valid = episodes_of(rng, steps, envs)
    observations = rng.normal(size=(steps + 1, envs, D)).astype(np.float32)
    acted = policy(observations[:-1].reshape(-1, D).astype(np.float64))
    actions = actions_of(kind, rng, acted)
    rewards = rng.normal(size=(steps, envs)).astype(np.float32)
    rewards[~valid] = 1e3  # nothing of a row that only resets may be learned from
    return {
        'observations': observations,
        'actions': actions.reshape(steps, envs, *actions.shape[1:]),
        'rewards': rewards,
        'terminated': terminated,
        'truncated': truncated,
        'valid': valid,
        'logits': acted[0].reshape(steps, envs, -1).astype(np.float32),
    }


def rows(x):
    """[T, N, …] as [T * N, …]."""
    return x.reshape(-1, *x.shape[2:])


def estimates(agent, batch, model, output):
    """Generalised advantages and returns [T, N], term by term, and the values of a model's present output."""
    observations = batch['observations'].astype(np.float64)
    values = outputs(model, flat(model), rows(observations))[output].reshape(observations.shape[:2])
    given = [batch['rewards'], values, batch['terminated'], batch['truncated'], agent.gamma, agent.lam]
    advantages = np.zeros(batch['rewards'].shape)
    for t, n in np.ndindex(advantages.shape):
        advantages[t, n] = brute_force(*given, t, n)
    return advantages, advantages + values[:-1], values[:-1]


# ---------------------------------------------------------------------------------------------------------- differences


def gradient(f, at, step=1e-5):
    """∂f/∂at, for f from [M, P] to [M, …]: [P], or […, P]."""
    moves = np.eye(len(at)) * step
    return np.moveaxis((f(at + moves) - f(at - moves)) / (2 * step), 0, -1)


def hessian(f, at, step=1e-3):
    """[P, P], for f from [M, P] to [M]."""
    moves = np.eye(len(at)) * step
    i, j = np.triu_indices(len(at))
    a, b = moves[i], moves[j]
    result = np.zeros((len(at), len(at)))
    result[i, j] = (f(at + a + b) - f(at + a - b) - f(at - a + b) + f(at - a - b)) / (4 * step**2)
    result[j, i] = result[i, j]
    return result
