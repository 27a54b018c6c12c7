"""Run the policy in the folder of this file, written by `xagents export --format numpy`. Requires only NumPy.

    python policy.py [OBSERVATIONS.npz]

The .npz file contains a batch of raw observations, one array [N, …] for each input in policy.json, and may contain the
`memory` of a policy with memory. Without a file, the policy acts on two observations of zeros. In Python,
`NumpyPolicy(folder)(observations)` takes observations as vector environments return them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
PLAN, WEIGHTS = 'plan.json', 'policy.npz'


def _softmax(x: Array) -> Array:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


def _sigmoid(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2


def _gelu(x: Array) -> Array:
    # x Φ(x); the tail of Φ is equation 7.1.26 of Abramowitz and Stegun 1964, with an error below 1.5e-7
    t = 1 / (1 + np.float32(0.3275911 * 0.5**0.5) * np.abs(x))
    factors = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32)
    tail = np.polyval(factors, t) * t * np.exp(-x * x / 2) / 2
    return x * np.where(x > 0, 1 - tail, tail)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    'linear': lambda x: x,
    'tanh': np.tanh,
    'relu': lambda x: np.maximum(x, 0),
    'sigmoid': _sigmoid,
    'softmax': _softmax,
    'softplus': lambda x: np.logaddexp(np.float32(0), x),
    'exponential': np.exp,
    'elu': _elu,
    'selu': lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    'silu': lambda x: x * _sigmoid(x),
    'leaky_relu': lambda x: np.maximum(x, np.float32(0.2) * x),
    'softsign': lambda x: x / (1 + np.abs(x)),
    'gelu': _gelu,
}


class NumpyPolicy:
    """A greedy policy, from raw observations [N, …] (a dict for a Dict space, a tuple for a Tuple space) to actions.

    Args:
        folder: the folder with `plan.json` and `policy.npz`.
    """

    def __init__(self, folder: str | Path = '.'):
        folder = Path(folder)
        with np.load(folder / WEIGHTS, allow_pickle=False) as file:
            self._load(json.loads((folder / PLAN).read_text()), dict(file))

    @classmethod
    def from_data(cls, plan: dict[str, Any], arrays: dict[str, Array]) -> 'NumpyPolicy':
        """Return the policy of the contents of `plan.json` and `policy.npz`."""
        policy = cls.__new__(cls)
        policy._load(plan, arrays)
        return policy

    def _load(self, plan: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.plan, self.arrays = plan, arrays
        self.memory: Array | None = None
        # path, shape and order of axes of each image, and its number
        self.images = [((path, shape, order), start) for path, start, shape, order in self.plan['images']]

    def __call__(self, observations: Any) -> Any:
        """Return environment actions [N, …]; dicts and tuples of arrays for Dict and Tuple actions.

        A policy with memory remembers the observations of each row since the last `reset`.
        """
        outputs = self.outputs(observations, self.memory)
        self.memory = outputs.get('next_memory')
        return nest(outputs, [(name, path) for name, path, _ in self.plan['outputs']])

    def reset(self, rows: Any = None) -> None:
        """Begin episodes: forget the memory of all rows, or of some (indices, or bool [N])."""
        if rows is None or self.memory is None:
            self.memory = None
        else:
            self.memory[rows] = 0

    def outputs(self, observations: Any, memory: Array | None = None) -> dict[str, Array]:
        """Return the parts of the actions, arrays [N, …] by name of the output; with memory, also `next_memory`.

        Args:
            observations: raw observations [N, …].
            memory: of a policy with memory, that before the step [N, M]; zeros at the beginning of an episode.
        """
        x, after = self.network_outputs(observations, memory)
        return {**self.actions(x), **({'next_memory': after} if self.plan['memory_units'] else {})}

    def network_outputs(self, observations: Any, memory: Array | None = None) -> tuple[Array, Array]:
        """Return the network's first output [N, units], and the memory [N, M] after the step; see `outputs`."""
        images = {start: self.image(observations, *image) for image, start in self.images}
        inputs = self.normalize(self.encode(observations))
        before = np.zeros((len(inputs), self.plan['memory_units']), np.float32) if memory is None else memory
        after = np.zeros(before.shape, np.float32)
        return self.network(inputs, images, before, after), after

    def actions(self, x: Array) -> dict[str, Array]:
        """Return the parts of the actions, arrays [N, …] by name of the output, for outputs of the network."""
        actions = {}
        for name, path, units in self.plan['outputs']:
            space = self.plan['action_space']
            for key in path:
                space = dict(space['parts'])[key] if space['space'] == 'Dict' else space['parts'][key]
            actions[name] = self.decode(space, x[:, slice(*units)])
        return actions

    def encode(self, observations: Any) -> Array:
        """Return observations as vectors or images [N, *D]."""
        space, shape = self.plan['observation_space'], self.plan['network']['input_shape']
        if space['space'] != 'Box':
            return np.concatenate(self.leaves(observations), 1)
        x = np.asarray(observations)
        if x.shape[1:] != tuple(space['shape']):
            expected = ', '.join(map(str, ('N', *space['shape'])))
            raise ValueError(f'observations: got the shape {list(x.shape)}, expected [{expected}]')
        if self.plan['axes']:
            x = x.transpose(self.plan['axes'])
        return x.reshape(len(x), *shape).astype(np.uint8 if space['dtype'] == 'uint8' else np.float32)

    def leaves(self, observations: Any) -> list[Array]:
        """Return the parts of the vector, [N, d] each; 0 for parts that only critics received."""
        parts: list[Array | None] = []
        for path, space, hidden in self.plan['leaves']:
            part = observations
            for key in path:
                part = None if hidden else part[key]
            parts.append(None if hidden else flatten(space, part))
        n = next(len(part) for part in parts if part is not None)
        sizes = [len(flatten(space, first_element(space))[0]) for _, space, _ in self.plan['leaves']]
        return [
            np.zeros((n, size), np.float32) if part is None else part for part, size in zip(parts, sizes, strict=True)
        ]

    def image(self, observations: Any, path: list[Any], shape: list[int], order: list[int] | None) -> Array:
        """Return the images [N, H, W, C] at a path of the observations, as numbers from 0 to 1 if they are bytes."""
        for key in path:
            observations = observations[key]
        x = np.asarray(observations)
        x = x if order is None else x.transpose(0, *(axis + 1 for axis in order))
        scale = np.float32(255 if x.dtype == np.uint8 else 1)
        return x.reshape(len(x), *shape).astype(np.float32) / scale

    def normalize(self, x: Array) -> Array:
        """Normalise by the statistics of training, if the agent does so; scale bytes to [0, 1]."""
        if self.plan['normalizes'] and self.arrays['observation_statistics/count']:
            mean, var = (self.arrays[f'observation_statistics/{name}'] for name in ('mean', 'var'))
            scaled = (x.astype(np.float32) - mean.astype(np.float32)) * (1 / np.sqrt(var + 1e-8)).astype(np.float32)
            return scaled.clip(-10, 10)
        return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x

    def network(self, x: Array, images: dict[int, Array], before: Array, after: Array) -> Array:
        """Return the network's first output [N, units] for vectors or images x, and for images among other parts.

        Recurrent layers read their states from `before` [N, M], and write them to `after` [N, M].
        """
        tensors = {0: x.astype(np.float32)}
        for call in self.plan['network']['calls']:
            if call['kind'] in ('vector-bytes', 'image-bytes'):
                tensors[call['target']] = images[call['start']] if call['kind'] == 'image-bytes' else tensors[0]
                continue
            if call['kind'] in ('gru', 'lstm'):
                tensors[call['target']] = self.recurrent(call, tensors[call['source']], before, after)
                continue
            second = tensors[call['second']] if 'second' in call else None
            tensors[call['target']] = self.layer(call, tensors[call['source']], second)
        return tensors[self.plan['network']['outputs'][0]]

    def recurrent(self, call: dict[str, Any], x: Array, before: Array, after: Array) -> Array:
        """Return the output [N, U] of a recurrent layer, and write its state to `after` [N, M]."""
        (inputs, units), first, n_gates = call['kernel'], call.get('memory_at', 0), 3 if call['kind'] == 'gru' else 4
        weights = self.arrays['weights'][call.get('at', 0) :]
        kernel, bias, recurrent = np.split(
            weights[: (inputs + 1 + units) * n_gates * units].reshape(-1, n_gates * units), (inputs, inputs + 1)
        )
        h = before[:, first : first + units]
        p, q = np.split(x @ kernel + bias, n_gates, 1), h @ recurrent
        if call['kind'] == 'gru':
            rest = (inputs + 1 + units) * n_gates * units
            q_z, q_r, q_n = np.split(q + weights[rest : rest + n_gates * units], n_gates, 1)
            z, r = _sigmoid(p[0] + q_z), _sigmoid(p[1] + q_r)
            after[:, first : first + units] = h = z * h + (1 - z) * np.tanh(p[2] + r * q_n)
            return h
        i, f, g, o = (p[k] + part for k, part in enumerate(np.split(q, n_gates, 1)))
        cell = _sigmoid(f) * before[:, first + units : first + 2 * units] + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(cell)
        after[:, first : first + 2 * units] = np.concatenate([h, cell], 1)
        return h

    def layer(self, call: dict[str, Any], x: Array, second: Array | None) -> Array:
        """Return the output of one layer for x [N, …] and, if it has two inputs, `second` [N, …]."""
        kind, kernel, at = call['kind'], call.get('kernel', ()), call.get('at', 0)
        size = int(np.prod(kernel))
        if kind == 'add':
            return x + second
        if kind == 'concatenate':
            return np.concatenate([x, second], 1)
        if kind == 'part':
            return x[:, call.get('start', 0) :][:, : kernel[0]]
        if kind == 'mask-illegal':
            assert second is not None
            return np.where((second < 0.5) & (second.max(1, keepdims=True) > 0.5), np.float32(-1e30), x)
        if kind == 'action-values':
            return action_values(x.reshape(-1, *kernel), second, call.get('support'))
        weights = self.arrays['weights'][at : at + size].reshape(kernel)
        if kind == 'flatten':
            return x.reshape(len(x), -1)
        if kind in ('log-std', 'deviations'):
            return weights  # used only for sampling actions
        if kind == 'log-probabilities':
            return np.log(np.maximum(x, np.finfo(np.float32).tiny))
        if kind in ('layer-norm', 'batch-norm'):
            vectors = self.arrays['weights'][at : at + size * (2 if kind == 'layer-norm' else 4)].reshape(-1, size)
            mean = x.mean(-1, keepdims=True) if kind == 'layer-norm' else vectors[2]
            variance = x.var(-1, keepdims=True) if kind == 'layer-norm' else vectors[3]
            return (x - mean) / np.sqrt(variance + np.float32(call['epsilon'])) * vectors[0] + vectors[1]
        if kind == 'convolution':
            patches = np.lib.stride_tricks.sliding_window_view(x, kernel[:3], (1, 2, 3))
            rows, columns = call['strides']
            patches = patches[:, ::rows, ::columns, 0]
            x = patches.reshape(*patches.shape[:3], -1) @ weights.reshape(-1, kernel[3])
        elif kind in ('dense', 'noisy-dense'):
            x = x @ weights
        if call.get('bias'):
            x = x + self.arrays['weights'][at + size : at + size + kernel[-1]]
        return ACTIVATIONS[call.get('activation', 'linear')](x)

    def decode(self, space: dict[str, Any], x: Array) -> Array:
        """Return actions [N, …] of a space for outputs [N, units]."""
        kind, dtype = space['space'], space.get('dtype', 'int8')
        if kind == 'Discrete':
            return (x.argmax(1) + space['start']).astype(dtype)
        if kind == 'MultiBinary':
            return (x > 0).reshape(len(x), *np.atleast_1d(space['n'])).astype(dtype)
        if kind == 'MultiDiscrete':
            nvec = np.array(space['nvec'])
            parts = np.split(x, np.cumsum(nvec.ravel())[:-1], 1)
            choices = np.stack([part.argmax(1) for part in parts], 1)
            return (choices.reshape(len(x), *nvec.shape) + np.array(space['start'])).astype(dtype)
        low, high = bounds(space)
        finite = np.isfinite(low) & np.isfinite(high)
        one, zero = np.where(finite, 1.0, np.inf), np.where(finite, low, -1.0)
        half, middle = np.where(finite, high, 1.0) / 2 - zero / 2, np.where(finite, high, 1.0) / 2 + zero / 2
        actions = x.astype(np.float64).reshape(len(x), *space['shape']).clip(-one, one) * half + middle
        if np.issubdtype(dtype, np.integer):
            actions = np.rint(actions)
        return actions.astype(dtype).clip(low.astype(dtype), high.astype(dtype))


def action_values(atoms: Array, value: Array | None, support: list[float] | None) -> Array:
    """Return the means [N, n] of distributions [N, n, K]: of quantiles, or of K returns in `support`.

    Args:
        atoms: the distributions; the advantages of a dueling network.
        value: the value [N, K] of a dueling network, or None.
        support: smallest and largest return, or None for quantiles.
    """
    if value is not None:
        atoms = value[:, None] + atoms - atoms.mean(1, keepdims=True)
    if support is None:
        return atoms.mean(-1)
    return (_softmax(atoms) * np.linspace(support[0], support[1], atoms.shape[-1])).sum(-1).astype(np.float32)


def bounds(space: dict[str, Any]) -> list[Array]:
    """Return the lower and the upper bounds of a Box, float64 in its shape; null means an infinite bound."""
    both = []
    for name, infinite in (('low', -np.inf), ('high', np.inf)):
        numbers = space[name] if isinstance(space[name], list) else [space[name]]
        array = np.array([infinite if number is None else number for number in numbers], np.float64)
        both.append(np.broadcast_to(array.reshape(space['shape'] if len(numbers) > 1 else ()), space['shape']))
    return both


def flatten(space: dict[str, Any], x: Any) -> Array:
    """Return a batch of a space, neither Dict nor Tuple, as float32 [N, d]; discrete values are one-hot."""
    kind = space['space']
    if kind in ('Discrete', 'MultiDiscrete'):
        sizes = np.ravel(space['n'] if kind == 'Discrete' else space['nvec'])
        choices = np.asarray(x, np.int64).reshape(-1, len(sizes)) - np.ravel(space['start'])
        one_hot = [choices[:, i : i + 1] == np.arange(size) for i, size in enumerate(sizes)]
        return np.concatenate(one_hot, 1, dtype=np.float32)
    part = np.asarray(x)
    part = part.reshape(len(part), -1).astype(np.float32)
    return part * np.float32(1 / 255) if space.get('dtype') == 'uint8' else part


def first_element(space: dict[str, Any]) -> Array:
    """Return one element of a space, neither Dict nor Tuple, as a batch of 0, or of the first discrete values."""
    if space['space'] in ('Discrete', 'MultiDiscrete'):
        return np.array(space['start'])[None]
    shape = space['shape'] if space['space'] == 'Box' else np.atleast_1d(space['n'])
    return np.zeros((1, *shape))


def nest(arrays: dict[str, Array], inputs: list[tuple[str, list[str | int]]]) -> Any:
    """Return arrays as the environment nests them.

    Args:
        arrays: the arrays, by names of the inputs.
        inputs: the name of each input, and the keys and indices that lead to its array.
    """
    parts: dict[str | int, list[tuple[str, list[str | int]]]] = {}
    for name, path in inputs:
        if not path:
            return arrays[name]
        parts.setdefault(path[0], []).append((name, path[1:]))
    values = {key: nest(arrays, below) for key, below in parts.items()}
    return tuple(values.values()) if all(isinstance(key, int) for key in values) else values


def load(folder: str | Path) -> Callable[[dict[str, Array]], Any]:
    """Return a function from arrays [N, …], by the names in policy.json, to actions [N, …], for any N.

    Actions of a Dict or Tuple space are a dict of arrays, by the names of the outputs in policy.json. A policy with
    memory also takes `memory` [N, M], zeros at the beginning of an episode, and returns a dict with `next_memory`.
    """
    policy = NumpyPolicy(folder)

    def act(arrays: dict[str, Array]) -> Any:
        outputs = policy.outputs(nest(arrays, policy.plan['inputs']), arrays.get('memory'))
        return outputs['actions'] if outputs.keys() == {'actions'} else outputs

    return act


if __name__ == '__main__':
    page_folder = Path(__file__).parent
    input_specs = json.loads((page_folder / 'policy.json').read_text())['inputs']
    zeros = {part['name']: np.zeros((2, *part['shape'][1:])) for part in input_specs}
    given = np.load(sys.argv[1]) if sys.argv[1:] else zeros
    batch = {part['name']: given[part['name']].astype(part['dtype']) for part in input_specs}
    batch |= {'memory': given['memory']} if 'memory' in given else {}
    print(json.dumps(load(page_folder)(batch), default=lambda array: array.tolist()))
