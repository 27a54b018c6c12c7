"""Network inference in NumPy, from a plan and one flat weight vector. Does not load TensorFlow.

For 16 observations and two layers of 64 units, a compiled TensorFlow call takes 130 to 400 µs, this module 15 to 20 µs:

- Activations of vectors are stored features first, [units, N], in buffers with an additional row of ones. A kernel
  [D, units] and its bias are adjacent in the weight vector. Together they are one matrix [D + 1, units] without a copy.
  A layer is then one matrix product, including the bias, into the contiguous rows of the next buffer.
- A convolution is a matrix product of the patches in a strided view.
- The functions and their buffers are determined once for each N. A call iterates over a list of
  (function, source, target).

The output bits of a row do not depend on the other rows (batch invariance). BLAS uses other routines for one row and
for one unit, so at least two rows and two units are computed. BLAS splits a long sum depending on the size of the whole
product, so sums are split here. Each image is convolved separately. On some processors, the bits of a column also
depend on its position (OpenBLAS without AVX-512). Each row then has its own product, which is slower.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from xagents.networks.acting import ILLEGAL, PublishedWeights
from xagents.networks.plan import BYTE_KINDS, GATES, JOINING_KINDS, NORM_WEIGHTS, STATES, LayerCall, NetworkPlan

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # optional on a machine that only acts
    ThreadpoolController = None

Array = np.ndarray
Step = tuple[Callable[[Any, Any], Any], Any, Any]  # f(source, target)

TINY = float(np.finfo(np.float32).tiny)
MAX_SUMMANDS = 256  # in one part of a sum, fewer than any BLAS splits
THREADED_SIZE = 2**19  # multiplications, from which BLAS may divide a product among threads
_MAX_SIZES = 8  # number of different N; acting and evaluation need two
_ZERO, _HALF, _TWO_TENTHS = np.float32(0), np.float32(0.5), np.float32(0.2)
_GELU = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32) / np.float32(2)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)


class _Prepared(NamedTuple):
    """The buffers and steps for one number of observations.

    Attributes:
        entry: the buffer of the observations.
        noise: the buffer of the noise [N, M].
        memories: the buffer of the memory [N, M] before the step; empty without recurrent layers.
        steps: the steps in order.
        outputs: the buffers of the outputs; that of the memory after the step is the last one.
    """

    entry: Array
    noise: Array
    memories: tuple[Array, ...]
    steps: list[Step]
    outputs: list[Array]


class NumpyNetwork:
    """A network that computes its plan in NumPy. It is not thread-safe, because calls share buffers.

    Args:
        plan: plan of the network.
        weights: float32 [plan.n_parameters]; the network copies them.
        version: version of the weights.
    """

    def __init__(self, plan: NetworkPlan, weights: Array, version: int = 0):
        self.plan = plan
        self._weights = np.zeros(plan.n_parameters, np.float32)
        self._version = version
        self._prepared: dict[tuple[int, bool], _Prepared] = {}
        self.refresh(weights)

    @property
    def published_weights(self) -> PublishedWeights:
        """The present weights; the next refresh overwrites the array."""
        return PublishedWeights(self._version, self._weights)

    @property
    def memory_units(self) -> int:
        """The length of the memory of one row; 0 without recurrent layers."""
        return self.plan.memory_units

    def copy(self) -> Self:
        """Return a network with a copy of the weights."""
        return type(self)(self.plan, self._weights, self._version)

    def sync(self, published_weights: PublishedWeights) -> None:
        """Replace the weights by published weights."""
        self.refresh(published_weights.weights)
        self._version = published_weights.version

    def refresh(self, weights: Array) -> None:
        """Replace the weights by new ones, float32 [n_parameters].

        Raises:
            ValueError: for a vector of another length.
        """
        if np.shape(weights) != self._weights.shape:
            raise ValueError(f'weights: got shape {np.shape(weights)}, expected ({self.plan.n_parameters},)')
        np.copyto(self._weights, weights)

    def __call__(self, observations: Array, noise: Array | None = None, memory: Array | None = None) -> list[Array]:
        """Return the outputs, one float32 array [N, units] each, for observations [N, *D] of any numeric dtype.

        Bytes are scaled to numbers from 0 to 1. The next call for the same N overwrites the arrays.

        Args:
            observations: [N, *D].
            noise: noise of the noisy layers, [N, M] with at least M = plan.noise_units columns; without it, the layers
                have their mean weights.
            memory: the memory [N, M] before the step, M = plan.memory_units; zeros by default. The memory after the
                step is then the last output.
        """
        key = len(observations), noise is not None
        entry, noise_entry, memories, steps, outputs = self._prepared.get(key) or self._prepare(*key)
        if memories:
            np.copyto(memories[0], 0 if memory is None else memory)
        if observations.dtype == np.uint8:
            observations = observations.astype(np.float32) / np.float32(255)
        np.copyto(entry, observations.reshape(entry.shape), 'same_kind')
        if noise is not None:
            np.copyto(noise_entry, noise[:, : self.plan.noise_units])
        threaded = self.plan.has_convolutions or len(observations) * self.plan.n_parameters >= THREADED_SIZE
        with single_blas_thread() if threaded else contextlib.nullcontext():
            for function, source, target in steps:
                function(source, target)
        return outputs.copy()

    def _prepare(self, n: int, noisy: bool) -> _Prepared:
        """Create the buffers and the list of steps for N observations, with or without noise."""
        shapes = self.plan.shapes()
        takes_bytes = self.plan.takes_bytes
        flat = not self.plan.has_convolutions and not takes_bytes
        first = np.zeros((n, *shapes[0]), np.int8 if takes_bytes else np.float32)
        first = _vectors(math.prod(shapes[0]), n) if flat else first
        noise = _vectors(self.plan.noise_units, n)[:-1]
        before, after = (_vectors(self.plan.memory_units, n)[:-1] for _ in range(2))
        buffers, steps = {0: first}, list[Step]()
        for call in self.plan.calls:
            source = buffers[call.source]
            if call.kind in JOINING_KINDS:
                second = None if call.second is None else buffers[call.second]
                buffers[call.target] = self._join(call, source, second, steps)
            elif call.kind == 'noisy-dense' and noisy:
                buffers[call.target] = self._noisy_dense(call, source, noise, steps)
            elif call.kind in GATES:
                buffers[call.target] = self._recurrent(call, source, before, after, steps)
            else:
                buffers[call.target] = self._call(call, source, shapes[call.target], steps)
        while len(self._prepared) >= _MAX_SIZES:
            self._prepared.pop(next(iter(self._prepared)))
        entry = first[:-1].T[:n] if flat else first
        outputs = [buffers[output][:-1].T[:n] for output in self.plan.outputs]
        memories = (before.T[:n],) if self.plan.memory_units else ()
        outputs += [after.T[:n]] if memories else []
        made = self._prepared[n, noisy] = _Prepared(entry, noise.T[:n], memories, steps, outputs)
        return made

    def _call(self, call: LayerCall, source: Array, shape: tuple[int, ...], steps: list[Step]) -> Array:
        """Append the steps of a layer call to `steps`, and return the buffer of its output."""
        if call.kind in ('dense', 'noisy-dense'):
            return self._dense(call, source, steps)
        if call.kind in BYTE_KINDS:
            return _parts_of_bytes(call, source, steps)
        if call.kind == 'deviations':
            return self._deviations(call, source, steps)
        if call.kind == 'convolution':
            return self._convolution(call, source, shape, steps)
        if call.kind in NORM_WEIGHTS:
            return self._normalisation(call, source, steps)
        if call.kind == 'activation' and source.ndim == 4:
            images = np.empty_like(source)
            steps.append((_fill, source, images))
            steps.extend(_activation_steps(call.activation, images.reshape(-1, shape[-1]).T))
            return images
        if call.kind == 'flatten' and source.ndim == 4:
            target = _vectors(shape[0], len(source))
            steps.append((_fill, source.reshape(len(source), -1).T, target[:-1, : len(source)]))
            return target
        if call.kind not in ('log-std', 'log-probabilities', 'activation', 'part'):
            return source  # the output equals the input
        target = _buffer(shape[0], source.shape[1])
        values = self._view(call.at, (shape[0], 1)) if call.kind == 'log-std' else source[call.start : -1]
        values = values[: shape[0]]
        steps.append((_fill, values, target[:-1]))
        if call.kind == 'log-probabilities':
            steps.append((_log, target[:-1], target[:-1]))
        steps.extend(_activation_steps(call.activation, target[:-1]))
        return target

    def _dense(self, call: LayerCall, source: Array, steps: list[Step]) -> Array:
        target = self._linear(call.at, call.kernel, call.bias, source, steps)
        steps.extend(_activation_steps(call.activation, target[:-1]))
        return target

    def _linear(self, at: int, kernel: tuple[int, ...], bias: bool, source: Array, steps: list[Step]) -> Array:
        """Append the product of the kernel at an index of the weights; the bias follows the kernel."""
        inputs, units = kernel
        target = _buffer(units, source.shape[1])
        weights = self._view(at, (inputs + bias, units))
        source = source[: len(weights)]
        if units == 1 and columns_are_independent():
            pair, both = np.zeros((len(weights), 2), np.float32), np.empty((2, source.shape[1]), np.float32)
            steps.append((_fill, weights, pair[:, :1]))
            _product(pair, source, both, steps)
            steps.append((_fill, both[0], target[0]))
        else:
            _product(weights, source, target[:-1], steps)
        return target

    def _noisy_dense(self, call: LayerCall, source: Array, noise: Array, steps: list[Step]) -> Array:
        """Append W x + b + ((σ_W (x f(ε_in))) + σ_b) f(ε_out), as `NoisyDense` does."""
        inputs, units = call.kernel
        into, out = noise[call.noise_at :][:inputs], noise[call.noise_at + inputs :][:units]
        target = self._linear(call.at, call.kernel, True, source, steps)
        scaled = _buffer(inputs, source.shape[1])
        steps.append((functools.partial(np.multiply, into), source[:-1], scaled[:-1]))
        deviation = self._linear(call.at + (inputs + 1) * units, call.kernel, True, scaled, steps)[:-1]
        steps += [(functools.partial(np.multiply, out), deviation, deviation), (_add, deviation, target[:-1])]
        steps.extend(_activation_steps(call.activation, target[:-1]))
        return target

    def _recurrent(self, call: LayerCall, source: Array, before: Array, after: Array, steps: list[Step]) -> Array:
        """Append one step of a recurrent layer, from its state in `before` to that in `after` [M, N]."""
        inputs, units = call.kernel
        width, state = GATES[call.kind] * units, slice(call.memory_at, call.memory_at + STATES[call.kind] * units)
        target, h = _buffer(units, source.shape[1]), _buffer(units, source.shape[1])
        p = self._linear(call.at, (inputs, width), True, source, steps)[:-1]
        steps.append((_fill, before[state][:units], h[:-1]))
        q = self._linear(call.at + (inputs + 1) * width, (units, width), call.kind == 'gru', h, steps)[:-1]
        step = _gru_step if call.kind == 'gru' else _lstm_step
        steps += [(functools.partial(step, p, q), before[state], after[state])]
        steps.append((_fill, after[state][:units], target[:-1]))
        return target

    def _join(self, call: LayerCall, source: Array, second: Array | None, steps: list[Step]) -> Array:
        """Append the steps of a layer call that may have two inputs, vectors, and return the buffer of its output."""
        if call.kind == 'add':
            assert second is not None
            target = np.empty_like(source)
            target[-1] = 1
            steps.append((functools.partial(np.add, second[:-1]), source[:-1], target[:-1]))
            return target
        if call.kind == 'concatenate':
            assert second is not None
            n = len(source) - 1
            target = _buffer(n + len(second) - 1, source.shape[1])
            steps += [(_fill, source[:-1], target[:n]), (_fill, second[:-1], target[n:-1])]
            return target
        if call.kind == 'mask-illegal':
            assert second is not None
            target = np.empty_like(source)
            target[-1] = 1
            steps.append((functools.partial(_mask_illegal, second[:-1]), source[:-1], target[:-1]))
            return target
        n_actions, n_atoms = call.kernel
        target = _buffer(n_actions, source.shape[1])
        atoms = source[:-1].reshape(n_actions, n_atoms, -1)
        support = np.linspace(call.support[0], call.support[1], n_atoms).astype(np.float32) if call.support else None
        value = None if second is None else second[:-1]
        steps.append((functools.partial(_action_values, support, value), atoms, target[:-1]))
        return target

    def _deviations(self, call: LayerCall, source: Array, steps: list[Step]) -> Array:
        features, units = call.kernel
        target = _buffer(features * units, source.shape[1])
        std = np.empty(call.kernel, np.float32)
        steps.append((_expln if call.expln else np.exp, self._view(call.at, call.kernel), std))
        by_feature = target[:-1].reshape(features, units, -1)
        steps.append((functools.partial(np.multiply, std[..., None]), source[:-1, None], by_feature))
        return target

    def _convolution(self, call: LayerCall, source: Array, shape: tuple[int, ...], steps: list[Step]) -> Array:
        height, width, channels, filters = call.kernel
        patches = np.lib.stride_tricks.sliding_window_view(source, (height, width, channels), (1, 2, 3))
        patches = patches[:, :: call.strides[0], :: call.strides[1], 0]  # [N, rows, columns, *kernel]
        columns = np.empty(patches.shape, np.float32)
        size = height * width * channels
        target = np.empty((len(source), *shape), np.float32)
        flat = target.reshape(-1, filters)
        steps.append((_fill, patches, columns))
        by_kernel = functools.partial(_dot, self._view(call.at, (size, filters)))
        for image, convolved in zip(columns, target, strict=True):
            steps.append((by_kernel, image.reshape(-1, size), convolved.reshape(-1, filters)))
        if call.bias:
            steps.append((_add, self._view(call.at + size * filters, (filters,)), flat))
        steps.extend(_activation_steps(call.activation, flat.T))
        return target

    def _normalisation(self, call: LayerCall, source: Array, steps: list[Step]) -> Array:
        (units,) = call.kernel
        weights = [self._view(call.at + i * units, (units,))[:, None] for i in range(NORM_WEIGHTS[call.kind])]
        epsilon = np.float32(call.epsilon)
        if source.ndim == 4:
            target = np.empty_like(source)
            rows, out = source.reshape(-1, units).T, target.reshape(-1, units).T
        else:
            target = _buffer(units, source.shape[1])
            rows, out = source[:-1], target[:-1]
        if call.kind == 'batch-norm':
            steps.append((functools.partial(_normalise_batch, epsilon, *weights), rows, out))
        elif source.ndim == 4:
            steps.append((functools.partial(_normalise_images, epsilon, *weights), rows, out))
        else:
            # means are products, ten times as fast as sums over the first axis
            share, both = np.full((units, 2), 1 / units, np.float32), np.empty((2, source.shape[1]), np.float32)
            squares = np.empty_like(out)
            _product(share, rows, both, steps)
            steps += [(functools.partial(_subtract, both[0]), rows, out), (np.square, out, squares)]
            _product(share, squares, both, steps)
            steps.append((functools.partial(_scale, epsilon, *weights), both[0], out))
        return target

    def _view(self, start: int, shape: tuple[int, ...]) -> Array:
        return self._weights[start : start + math.prod(shape)].reshape(shape)


def _parts_of_bytes(call: LayerCall, source: Array, steps: list[Step]) -> Array:
    """Append the step that reads a vector or an image from bytes [N, D], and return the buffer of its output."""
    n, n_bytes = source.shape
    if call.kind == 'vector-bytes':
        target = _vectors(call.kernel[0], n)
        steps.append((_fill, source[:, : 4 * call.kernel[0]].view(np.float32).T, target[:-1, :n]))
        return target
    pixel = np.dtype(call.pixel)
    strides = n_bytes, *(pixel.itemsize * math.prod(call.kernel[i:]) for i in (1, 2, 3))
    pixels = np.ndarray((n, *call.kernel), pixel, source, call.start, strides)
    images = np.zeros(pixels.shape, np.float32)
    steps.append((_scale_bytes if pixel == np.uint8 else _fill, pixels, images))
    return images


def _scale_bytes(source: Array, target: Array) -> None:
    np.divide(source, np.float32(255), out=target)


def _vectors(units: int, n: int) -> Array:
    """Return a buffer for N vectors, at least two."""
    return _buffer(units, max(n, 2))


def _buffer(units: int, n: int) -> Array:
    """Return a buffer [units + 1, N]; its last row of ones is the factor of the bias."""
    buffer = np.zeros((units + 1, n), np.float32)
    buffer[-1] = 1
    return buffer


def _fill(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _add(summand: Array, target: Array) -> None:
    np.add(target, summand, target)


def _dot(kernel: Array, source: Array, target: Array) -> None:
    np.dot(source, kernel, target)


def _subtract(subtrahend: Array, source: Array, target: Array) -> None:
    np.subtract(source, subtrahend, target)


def _scale(epsilon: np.float32, scale: Array, offset: Array, variance: Array, target: Array) -> None:
    """Divide centred columns [units, N] by their deviations, in place; then apply scale and offset [units, 1]."""
    np.multiply(target, np.float32(1) / np.sqrt(variance + epsilon), target)
    np.multiply(target, scale, target)
    np.add(target, offset, target)


def _normalise_images(epsilon: np.float32, scale: Array, offset: Array, source: Array, target: Array) -> None:
    """Normalise each column of [units, N]; sums run over the units in order, whatever N is."""
    units = np.float32(len(source))
    np.subtract(source, _sum_over_units(source) / units, target)
    _scale(epsilon, scale, offset, _sum_over_units(target * target) / units, target)


def _sum_over_units(x: Array) -> Array:
    """Return the sums [N] of [units, N]; NumPy adds rows of a C-contiguous array one after the other."""
    return np.add.reduce(np.ascontiguousarray(x), 0)


def _normalise_batch(
    epsilon: np.float32, scale: Array, offset: Array, mean: Array, variance: Array, source: Array, target: Array
) -> None:
    """Normalise each row of [units, N] by the moving statistics of its unit."""
    np.subtract(source, mean, target)
    np.multiply(target, scale / np.sqrt(variance + epsilon), target)
    np.add(target, offset, target)


def _action_values(support: Array | None, value: Array | None, atoms: Array, target: Array) -> None:
    """Compute the means [n, N] of distributions [n, K, N] of a value [K, N] and advantages, or of the atoms alone."""
    if value is not None:
        atoms = atoms + (value - np.add.reduce(atoms, 0) / np.float32(len(atoms)))
    if support is None:
        np.divide(np.add.reduce(atoms, 1), np.float32(atoms.shape[1]), target)
        return
    shares = np.exp(atoms - np.maximum.reduce(atoms, 1, keepdims=True))
    np.divide(np.add.reduce(shares * support[:, None], 1), np.add.reduce(shares, 1), target)


def _mask_illegal(mask: Array, source: Array, target: Array) -> None:
    """Copy values [n, N] with `ILLEGAL` where the mask [n, N] is 0, except in a column whose mask is 0."""
    np.copyto(target, source)
    np.copyto(target, ILLEGAL, where=(mask < _HALF) & (np.maximum.reduce(mask, 0) > _HALF))


def _expln(source: Array, target: Array) -> None:
    np.minimum(source, _ZERO, target)
    np.exp(target, target)
    np.add(target, np.log1p(np.maximum(source, _ZERO)), target)  # e^x + 0 below 0, 1 + log(1 + x) above


def _product(weights: Array, source: Array, target: Array, steps: list[Step]) -> None:
    """Append the steps of a product, whose sums are split into parts of MAX_SUMMANDS."""
    if not columns_are_independent():
        return _product_by_rows(weights, source, target, steps)
    for start in range(0, len(weights), MAX_SUMMANDS):
        part = slice(start, start + MAX_SUMMANDS)
        if not start:
            steps.append((weights[part].T.dot, source[part], target))
        else:
            summand = np.empty_like(target)
            steps += [(weights[part].T.dot, source[part], summand), (_add, summand, target)]


def _product_by_rows(weights: Array, source: Array, target: Array, steps: list[Step]) -> None:
    """Append the steps of a separate product for each row."""
    rows = np.empty((source.shape[1], 1, len(source)), np.float32)
    products = np.empty((source.shape[1], 1, len(target)), np.float32)

    def multiply(source: Array, target: Array) -> None:
        np.matmul(source, weights, target)

    steps += [(_fill, source.T[:, None], rows), (multiply, rows, products), (_fill, products[:, 0].T, target)]


@functools.cache
def _blas() -> Any:
    """Return the controller of BLAS threads, or None without threadpoolctl or with one thread."""
    if ThreadpoolController is None:
        return None
    controller = ThreadpoolController()
    return controller if any(pool['num_threads'] > 1 for pool in controller.info()) else None


def single_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Limit BLAS to one thread, which takes 8 µs.

    Two threads halve products of 25 to 400 µs on a free machine. On a busy one, where they wait for each other, the
    same products took 10 ms.
    """
    blas = _blas()
    return contextlib.nullcontext() if blas is None else blas.limit(limits=1, user_api='blas')


@functools.cache
def columns_are_independent() -> bool:
    """Return whether the bits of a column in a product depend neither on other columns nor on its position.

    The first call takes some milliseconds.
    """
    rng = np.random.default_rng(0)
    for inputs, units in ((5, 64), (65, 2), (65, 64), (MAX_SUMMANDS, 7)):
        weights = rng.standard_normal((inputs, units)).astype(np.float32)
        columns = rng.standard_normal((inputs, 50)).astype(np.float32)
        whole = weights.T.dot(columns)
        for n in range(2, 50):
            if not np.array_equal(weights.T.dot(columns[:, 50 - n :].copy()), whole[:, 50 - n :]):
                return False
    return True


def _activation_steps(activation: str, x: Array) -> Iterable[Step]:
    """Return the steps that apply an activation to x [units, N] in place."""
    if activation in _WITH_SCRATCH:
        return [(_WITH_SCRATCH[activation], x, np.empty_like(x))]
    return [(_IN_PLACE[activation], x, x)] if activation in _IN_PLACE else []


def _log(x: Array, out: Array) -> None:
    np.maximum(x, np.float32(TINY), out=out)
    np.log(out, out)


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, _ZERO, out=out)


def _sigmoid(x: Array, out: Array) -> None:
    np.multiply(x, _HALF, out)  # 1 / (1 + e^-x) = (1 + tanh(x / 2)) / 2, without an overflow
    np.tanh(out, out)
    np.multiply(out, _HALF, out)
    np.add(out, _HALF, out)


def _gru_step(p: Array, q: Array, before: Array, after: Array) -> None:
    """Compute h' = z h + (1 − z) n, all [U, N], from inputs of the gates z, r and n; overwrite p and q."""
    u = len(before)
    gates, new = p[: 2 * u], p[2 * u :]
    np.add(gates, q[: 2 * u], gates)
    _sigmoid(gates, gates)
    z, r = gates[:u], gates[u:]
    np.multiply(q[2 * u :], r, r)
    np.add(new, r, new)
    np.tanh(new, new)
    np.multiply(z, before, after)
    np.subtract(np.float32(1), z, z)
    np.multiply(z, new, new)
    np.add(after, new, after)


def _lstm_step(p: Array, q: Array, before: Array, after: Array) -> None:
    """Compute c' = f c + i g and h' = o tanh(c') from inputs of the gates i, f, g and o; overwrite p."""
    u = len(before) // 2
    np.add(p, q, p)
    i, f, g, o = (p[k * u : (k + 1) * u] for k in range(4))
    _sigmoid(p[: 2 * u], p[: 2 * u])
    np.tanh(g, g)
    _sigmoid(o, o)
    h, cell = after[:u], after[u:]
    np.multiply(f, before[u:], cell)
    np.multiply(i, g, g)
    np.add(cell, g, cell)
    np.tanh(cell, h)
    np.multiply(o, h, h)


def _softmax(x: Array, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, 0), out)
    np.exp(out, out)
    np.divide(out, np.add.reduce(out, 0), out)


def _elu(x: Array, scratch: Array) -> None:
    np.minimum(x, _ZERO, out=scratch)
    np.expm1(scratch, scratch)
    np.maximum(x, _ZERO, out=x)
    np.add(x, scratch, x)


def _selu(x: Array, scratch: Array) -> None:
    np.minimum(x, _ZERO, out=scratch)
    np.expm1(scratch, scratch)
    np.multiply(scratch, _SELU_ALPHA, scratch)
    np.maximum(x, _ZERO, out=x)
    np.add(x, scratch, x)
    np.multiply(x, _SELU_SCALE, x)


def _silu(x: Array, scratch: Array) -> None:
    _sigmoid(x, scratch)
    np.multiply(x, scratch, x)


def _leaky_relu(x: Array, scratch: Array) -> None:
    np.multiply(x, _TWO_TENTHS, scratch)
    np.maximum(x, scratch, out=x)


def _softsign(x: Array, scratch: Array) -> None:
    np.abs(x, scratch)
    np.add(scratch, np.float32(1), scratch)
    np.divide(x, scratch, x)


def _gelu(x: Array, scratch: Array) -> None:
    # x Φ(x); the tail is equation 7.1.26 of Abramowitz and Stegun 1964, with an error below 1.5e-7
    np.abs(x, scratch)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911 * math.sqrt(0.5)) * scratch)
    tail = np.polyval(_GELU, t) * t * np.exp(-_HALF * scratch * scratch)
    np.multiply(x, np.where(x > 0, np.float32(1) - tail, tail), x)


_IN_PLACE: dict[str, Callable[[Array, Array], Any]] = {
    'tanh': np.tanh,
    'relu': _relu,
    'sigmoid': _sigmoid,
    'softmax': _softmax,
    'softplus': functools.partial(np.logaddexp, _ZERO),
    'exponential': np.exp,
}
_WITH_SCRATCH: dict[str, Callable[[Array, Array], Any]] = {
    'elu': _elu,
    'selu': _selu,
    'silu': _silu,
    'leaky_relu': _leaky_relu,
    'softsign': _softsign,
    'gelu': _gelu,
}
