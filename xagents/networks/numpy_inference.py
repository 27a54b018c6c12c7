"""A network that is called in NumPy: by a plan, and one flat vector of weights. Loads no TensorFlow.

For 16 observations and two layers of 64, a compiled TensorFlow call costs 130 to 400 µs, this 15 to 20 µs:

- Activations of vectors stand features first, [units, N], in buffers with one more row of ones. A kernel [D, units] and
  its bias, one after the other in the vector of weights, are then one matrix [D + 1, units] without a copy, and a layer
  is one matrix product, bias included, into the rows of the next buffer, which are contiguous.
- A convolution is a matrix product, too, of the patches that a view with strides shows.
- What is called on which buffers is worked out once for each N; a call runs down a list of (function, from, to).

A row has the same bits among any others. The BLAS takes another routine for one row, and for one unit, so at least two
of each are computed; where it cuts a long sum depends on the whole product's size, so sums are cut here; and each image
is convolved by itself. Where that is not enough, because a column's bits depend on its place (OpenBLAS on processors
without AVX-512 does that), each row has a product of its own, which takes longer.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from xagents.networks.acting import PublishedWeights
from xagents.networks.plan import (
    ACTIVATION,
    CONVOLUTION,
    DENSE,
    DEVIATIONS,
    FLATTEN,
    LOG_PROBABILITIES,
    LOG_STD,
    LayerCall,
    NetworkPlan,
)

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # a machine that only acts goes without
    ThreadpoolController = None

Array = np.ndarray
Step = tuple[Callable[[Any, Any], Any], Any, Any]  # f(from, to)

TINY = float(np.finfo(np.float32).tiny)
MAX_SUMMANDS = 256  # of a part of a sum, fewer than any BLAS cuts off
_MAX_SIZES = 8  # of different N; acting and evaluating need two
_ZERO, _HALF, _TWO_TENTHS = np.float32(0), np.float32(0.5), np.float32(0.2)
_GELU = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32) / np.float32(2)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)


class NumpyNetwork:
    """A network by its plan. Weights and buffers are its own: it is not for two threads.

    Args:
        plan: of the network.
        weights: float32 [plan.n_parameters], copied.
        version: of the weights.
    """

    def __init__(self, plan: NetworkPlan, weights: Array, version: int = 0):
        self.plan = plan
        self._weights = np.zeros(plan.n_parameters, np.float32)
        self._version = version
        self._prepared: dict[int, tuple[Array, list[Step], list[Array]]] = {}
        self.refresh(weights)

    @property
    def published_weights(self) -> PublishedWeights:
        """The present weights; the next refresh overwrites the array."""
        return PublishedWeights(self._version, self._weights)

    def copy(self) -> Self:
        """Return a network with weights of its own."""
        return type(self)(self.plan, self._weights, self._version)

    def sync(self, published_weights: PublishedWeights) -> None:
        """Take over published weights."""
        self.refresh(published_weights.weights)
        self._version = published_weights.version

    def refresh(self, weights: Array) -> None:
        """Take over new weights, float32 [n_parameters].

        Raises:
            ValueError: for a vector of another length.
        """
        if np.shape(weights) != self._weights.shape:
            raise ValueError(f'weights: got shape {np.shape(weights)}, expected ({self.plan.n_parameters},)')
        np.copyto(self._weights, weights)

    def __call__(self, observations: Array) -> list[Array]:
        """Return the outputs, one float32 array [N, units] each, for observations [N, *D] of any numeric dtype.

        Bytes become numbers from 0 to 1. The arrays are overwritten by the next call for the same N.
        """
        n = len(observations)
        entry, steps, outputs = self._prepared.get(n) or self._prepare(n)
        if observations.dtype == np.uint8:
            observations = observations.astype(np.float32) / np.float32(255)
        np.copyto(entry, observations.reshape(entry.shape), 'same_kind')
        with single_blas_thread() if self.plan.has_convolutions else contextlib.nullcontext():
            for function, source, target in steps:
                function(source, target)
        return outputs.copy()

    def _prepare(self, n: int) -> tuple[Array, list[Step], list[Array]]:
        """Make the buffers and the list of calls for N observations."""
        shapes = self.plan.shapes()
        flat = not self.plan.has_convolutions
        first = _vectors(math.prod(shapes[0]), n) if flat else np.zeros((n, *shapes[0]), np.float32)
        buffers, steps = {0: first}, list[Step]()
        for call in self.plan.calls:
            buffers[call.target] = self._call(call, buffers[call.source], shapes[call.target], steps)
        while len(self._prepared) >= _MAX_SIZES:
            self._prepared.pop(next(iter(self._prepared)))
        entry = first[:-1].T[:n] if flat else first
        outputs = [buffers[output][:-1].T[:n] for output in self.plan.outputs]
        made = self._prepared[n] = entry, steps, outputs
        return made

    def _call(self, call: LayerCall, source: Array, shape: tuple[int, ...], steps: list[Step]) -> Array:
        """Add the steps of a call, and return the buffer of what it returns."""
        if call.kind == DENSE:
            return self._dense(call, source, steps)
        if call.kind == DEVIATIONS:
            return self._deviations(call, source, steps)
        if call.kind == CONVOLUTION:
            return self._convolution(call, source, shape, steps)
        if call.kind == FLATTEN and source.ndim == 4:
            target = _vectors(shape[0], len(source))
            steps.append((_fill, source.reshape(len(source), -1).T, target[:-1, : len(source)]))
            return target
        if call.kind not in (LOG_STD, LOG_PROBABILITIES, ACTIVATION):
            return source  # the same numbers
        target = _buffer(shape[0], source.shape[1])
        values = self._view(call.at, (shape[0], 1)) if call.kind == LOG_STD else source[:-1]
        steps.append((_fill, values, target[:-1]))
        if call.kind == LOG_PROBABILITIES:
            steps.append((_log, target[:-1], target[:-1]))
        steps.extend(_activation_steps(call.activation, target[:-1]))
        return target

    def _dense(self, call: LayerCall, source: Array, steps: list[Step]) -> Array:
        inputs, units = call.kernel
        target = _buffer(units, source.shape[1])
        weights = self._view(call.at, (inputs + call.bias, units))  # the bias stands behind the kernel
        source = source[: len(weights)]
        if not columns_are_independent():
            _product_by_rows(weights, source, target[:-1], steps)
        elif units == 1:
            pair, both = np.zeros((len(weights), 2), np.float32), np.empty((2, source.shape[1]), np.float32)
            steps.append((_fill, weights, pair[:, :1]))
            _product(pair, source, both, steps)
            steps.append((_fill, both[0], target[0]))
        else:
            _product(weights, source, target[:-1], steps)
        steps.extend(_activation_steps(call.activation, target[:-1]))
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
        kernel = self._view(call.at, (size, filters))
        by_kernel = functools.partial(_dot, kernel)
        for image, convolved in zip(columns, target, strict=True):
            steps.append((by_kernel, image.reshape(-1, size), convolved.reshape(-1, filters)))
        if call.bias:
            steps.append((_add, self._view(call.at + size * filters, (filters,)), flat))
        steps.extend(_activation_steps(call.activation, flat.T))
        return target

    def _view(self, start: int, shape: tuple[int, ...]) -> Array:
        return self._weights[start : start + math.prod(shape)].reshape(shape)


def _vectors(units: int, n: int) -> Array:
    """Make the buffer of N vectors, of which at least two are computed."""
    return _buffer(units, max(n, 2))


def _buffer(units: int, n: int) -> Array:
    """Make [units + 1, N] whose last row, of ones, meets the bias."""
    buffer = np.zeros((units + 1, n), np.float32)
    buffer[-1] = 1
    return buffer


def _fill(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _add(summand: Array, target: Array) -> None:
    np.add(target, summand, target)


def _dot(kernel: Array, source: Array, target: Array) -> None:
    np.dot(source, kernel, target)


def _expln(source: Array, target: Array) -> None:
    np.minimum(source, _ZERO, target)
    np.exp(target, target)
    np.add(target, np.log1p(np.maximum(source, _ZERO)), target)  # e^x + 0 below 0, 1 + log(1 + x) above


def _product(weights: Array, source: Array, target: Array, steps: list[Step]) -> None:
    """Add the steps of a product, whose sums have parts of SUMMANDS."""
    for start in range(0, len(weights), MAX_SUMMANDS):
        part = slice(start, start + MAX_SUMMANDS)
        if not start:
            steps.append((weights[part].T.dot, source[part], target))
        else:
            summand = np.empty_like(target)
            steps += [(weights[part].T.dot, source[part], summand), (_add, summand, target)]


def _product_by_rows(weights: Array, source: Array, target: Array, steps: list[Step]) -> None:
    """Add the steps of a product for each row by itself."""
    rows = np.empty((source.shape[1], 1, len(source)), np.float32)
    products = np.empty((source.shape[1], 1, len(target)), np.float32)

    def multiply(source: Array, target: Array) -> None:
        np.matmul(source, weights, target)

    steps += [(_fill, source.T[:, None], rows), (multiply, rows, products), (_fill, products[:, 0].T, target)]


@functools.cache
def _blas() -> Any:
    """Return what sets the threads of BLAS, where they are more than one and it is installed."""
    if ThreadpoolController is None:
        return None
    controller = ThreadpoolController()
    return controller if any(pool['num_threads'] > 1 for pool in controller.info()) else None


def single_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Let BLAS compute in one thread: waking others, on a machine that is busy, takes ten times as long as an image."""
    blas = _blas()
    return contextlib.nullcontext() if blas is None else blas.limit(limits=1, user_api='blas')


@functools.cache
def columns_are_independent() -> bool:
    """Return whether a column of a product has the same bits among any others, in any place; some ms, once."""
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
    """List the calls that apply an activation to x [units, N] in place."""
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
    # x Φ(x), whose tail is equation 7.1.26 of Abramowitz and Stegun 1964, to 1.5e-7
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
