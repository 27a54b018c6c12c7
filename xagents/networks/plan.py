"""Network plans: a list of layer calls, which is stored as JSON, for one flat weight vector.

Does not load TensorFlow. `xagents.networks.keras_to_plan` converts a Keras model to a plan;
`xagents.networks.numpy_inference` computes the outputs from a plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

ACTIVATIONS = (
    *('linear', 'tanh', 'relu', 'sigmoid', 'softmax', 'softplus', 'exponential'),
    *('elu', 'selu', 'silu', 'leaky_relu', 'softsign', 'gelu'),
)
Kind = Literal[
    'dense',
    'convolution',
    'log-std',
    'deviations',
    'log-probabilities',
    'activation',
    'flatten',
    'same',
    'layer-norm',
    'batch-norm',
    'noisy-dense',
    'add',
    'action-values',
    'part',
    'mask-illegal',
    'concatenate',
    'vector-bytes',
    'image-bytes',
    'gru',
    'lstm',
]
# weights of a normalisation for each unit: scale and offset, and for `batch-norm` also moving mean and variance
NORM_WEIGHTS = {'layer-norm': 2, 'batch-norm': 4}
# kinds that may have a second input
JOINING_KINDS = ('add', 'action-values', 'mask-illegal', 'concatenate')
# kinds whose input is the bytes of several parts
BYTE_KINDS = ('vector-bytes', 'image-bytes')
# recurrent kinds: the number of gates, and the length of the state in multiples of the units
GATES, STATES = {'gru': 3, 'lstm': 4}, {'gru': 1, 'lstm': 2}


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
        kind: kind of the layer; the output of `same` equals its input.
        source: number of the input tensor; 0 is the input of the network.
        target: number of the output tensor.
        second: number of the second input tensor, of `add`, of `action-values` of a dueling network, and of
            `mask-illegal`, the mask; or None.
        at: index of the first weight in the weight vector: the kernel, then the bias.
        kernel: shape of the kernel: (inputs, units) for dense layers and deviations, (height, width, channels, filters)
            for convolutions, (units,) for a log-std and a normalisation; (actions, atoms) for `action-values` and
            (elements,) for a part or a vector among bytes, (height, width, channels) for an image among bytes, which
            have no weights. A noisy layer has kernel and bias, then their standard
            deviations. A recurrent layer has (inputs, units): kernel and bias of all gates, recurrent kernel, and, for
            `gru`, recurrent bias.
        bias: whether the layer has a bias.
        strides: strides of a convolution without padding.
        activation: activation after the layer, one of ACTIVATIONS.
        epsilon: number that a normalisation adds to the variance.
        expln: whether deviations use expln instead of exp (see `xagents.networks.state_dependent`).
        noise_at: index of the first noise of a noisy layer in the noise vector: of its inputs, then of its units.
        support: smallest and largest return of a categorical distribution; empty for quantiles.
        start: index of the first element of a part, or of the first byte of an image.
        memory_at: index of the first element of the state of a recurrent layer in the memory.
        pixel: dtype of the pixels of an image among bytes, `uint8` or `float32`.
    """

    kind: Kind
    source: int
    target: int
    at: int = 0
    kernel: tuple[int, ...] = ()
    bias: bool = False
    strides: tuple[int, ...] = ()
    activation: str = 'linear'
    expln: bool = False
    epsilon: float = 0.0
    second: int | None = None
    noise_at: int = 0
    support: tuple[float, ...] = ()
    start: int = 0
    pixel: str = ''
    memory_at: int = 0

    @property
    def n_parameters(self) -> int:
        """Number of weights of the layer."""
        if self.kind in ('action-values', 'part', *BYTE_KINDS):
            return 0
        if self.kind in GATES:
            inputs, units = self.kernel
            return GATES[self.kind] * units * (inputs + 1 + units + (self.kind == 'gru'))
        if self.kind == 'noisy-dense':
            return 2 * (math.prod(self.kernel) + self.kernel[-1])
        if self.kind in NORM_WEIGHTS:
            return NORM_WEIGHTS[self.kind] * math.prod(self.kernel)
        return (math.prod(self.kernel) if self.kernel else 0) + self.bias * (self.kernel[-1] if self.kernel else 0)


@dataclass(frozen=True)
class NetworkPlan:
    """The layer calls of a network in the order of computation.

    Attributes:
        input_shape: shape of one observation.
        calls: layer calls; the source of a call is computed before the call.
        outputs: numbers of the output tensors, of shape [N, units] each.
        n_parameters: length of the weight vector.
    """

    input_shape: tuple[int, ...]
    calls: tuple[LayerCall, ...]
    outputs: tuple[int, ...]
    n_parameters: int

    def __post_init__(self) -> None:
        self._check_numbers()
        self.shapes()

    def _check_numbers(self) -> None:
        """Check that the numbers, which may be from a file, are whole numbers, and that sizes are at least 1."""
        sizes = [*self.input_shape, *(n for call in self.calls for n in (*call.kernel, *call.strides))]
        others = [self.n_parameters, *self.outputs]
        indices = ('source', 'target', 'at', 'noise_at', 'start', 'memory_at')
        others += [n for c in self.calls for n in (*(getattr(c, name) for name in indices), c.second or 0)]
        if any(type(n) is not int or n < 1 for n in sizes) or any(type(n) is not int or n < 0 for n in others):
            raise ValueError('not a network plan: a size is not a whole number, or is too small')
        if any(type(flag) is not bool for call in self.calls for flag in (call.bias, call.expln)):
            raise ValueError('not a network plan: bias and expln must be true or false')
        if any(type(call.epsilon) is not float or not 0 <= call.epsilon < math.inf for call in self.calls):
            raise ValueError('not a network plan: epsilon must be a number from 0')
        for support in (call.support for call in self.calls if call.support):
            if len(support) != 2 or any(type(x) is not float for x in support) or not support[0] < support[1]:
                raise ValueError('not a network plan: a support must be two numbers, the smaller first')

    @property
    def takes_bytes(self) -> bool:
        """Whether the input is the bytes of several parts."""
        return any(call.kind in BYTE_KINDS for call in self.calls)

    @property
    def has_convolutions(self) -> bool:
        """Whether the network has a convolution."""
        return any(call.kind == 'convolution' for call in self.calls)

    @property
    def noise_units(self) -> int:
        """Length of the noise vector of one observation; 0 without noisy layers."""
        return max((c.noise_at + sum(c.kernel) for c in self.calls if c.kind == 'noisy-dense'), default=0)

    @functools.cached_property
    def memory_units(self) -> int:
        """Length of the memory of one row, the states of all recurrent layers; 0 without recurrent layers."""
        return max((c.memory_at + STATES[c.kind] * c.kernel[-1] for c in self.calls if c.kind in STATES), default=0)

    def pruned(self) -> tuple[Self, list[slice]]:
        """Return a plan of the layer calls that lead to the outputs; others may only compute the memory of critics.

        Returns:
            The plan, and the parts of the weight vector that it needs, in order.
        """
        needed, kept = {*self.outputs}, list[LayerCall]()
        for call in reversed(self.calls):
            if call.target in needed:
                needed |= {call.source, *([] if call.second is None else [call.second])}
                kept.insert(0, call)
        if len(kept) == len(self.calls):
            return self, [slice(0, self.n_parameters)]
        parts = sorted({(call.at, call.n_parameters) for call in kept if call.n_parameters})
        sizes = [size for _, size in parts]
        starts = {first: sum(sizes[:i]) for i, (first, _) in enumerate(parts)}
        memory_at = 0
        for i, call in enumerate(kept):
            kept[i] = call = replace(call, at=starts[call.at] if call.n_parameters else 0)
            if call.kind in STATES:
                kept[i] = replace(call, memory_at=memory_at)
                memory_at += STATES[call.kind] * call.kernel[-1]
        plan = replace(self, calls=tuple(kept), n_parameters=sum(sizes))
        return plan, [slice(first, first + size) for first, size in parts]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values; values of layer calls that equal their defaults are omitted."""
        defaults = {f.name: f.default for f in fields(LayerCall)}
        calls = [{k: v for k, v in asdict(call).items() if v != defaults[k]} for call in self.calls]
        return {**asdict(self), 'calls': calls}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the plan from a result of `to_dict`.

        Raises:
            ValueError: with a message of one line, if the record is not a plan.
        """
        try:
            calls = tuple(LayerCall(**{k: _frozen(v) for k, v in call.items()}) for call in record['calls'])
            return cls(_frozen(record['input_shape']), calls, _frozen(record['outputs']), record['n_parameters'])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'not a network plan ({type(error).__name__}: {error})') from error

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Return the shape of each tensor by number, without the batch dimension.

        Raises:
            ValueError: with a message of one line, if a layer does not fit its input or the weight vector.
        """
        shapes: dict[int, tuple[int, ...]] = {0: self.input_shape}
        for call in self.calls:
            if not {call.source, call.source if call.second is None else call.second} <= shapes.keys():
                raise ValueError(f'not a network plan: a {call.kind} has an input that does not exist')
            if call.target in shapes or (call.second is not None and call.kind not in JOINING_KINDS):
                raise ValueError(f'not a network plan: a {call.kind} has an output that exists, or a second input')
            if call.activation not in ACTIVATIONS:
                raise ValueError(f'not a network plan: a {call.kind} has the activation {call.activation}')
            if not 0 <= call.at <= self.n_parameters - call.n_parameters:
                raise ValueError(f'not a network plan: the weights of a {call.kind} are not in the vector')
            second = None if call.second is None else shapes[call.second]
            shapes[call.target] = _shape(call, shapes[call.source], second)
        if not self.outputs or any(len(shapes.get(output, ())) != 1 for output in self.outputs):
            raise ValueError('not a network plan: its outputs are not vectors')
        return shapes


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shape(call: LayerCall, source: tuple[int, ...], second: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the output shape of a call for inputs of shapes `source` and, if there is one, `second`."""
    if call.kind == 'flatten':
        return (math.prod(source),)
    if call.kind == 'convolution' and len(source) == 3 and len(call.kernel) == 4 and len(call.strides) == 2:
        height, width = (1 + (source[i] - call.kernel[i]) // call.strides[i] for i in (0, 1))
        if source[2] == call.kernel[2] and height > 0 and width > 0:
            return height, width, call.kernel[3]
    elif call.kind in ('dense', 'noisy-dense', *GATES) and len(call.kernel) == 2 and source == call.kernel[:1]:
        return call.kernel[1:]
    elif call.kind in ('add', 'mask-illegal') and source == second:
        return source
    elif call.kind == 'concatenate' and second is not None and len(source) == len(second) == 1:
        return (source[0] + second[0],)
    elif call.kind in BYTE_KINDS and call.source == 0 and len(source) == 1 and call.kernel:
        width = 1 if call.pixel == 'uint8' else 4
        if call.start + width * math.prod(call.kernel) <= source[0] and (call.kind == 'vector-bytes' or call.pixel):
            return call.kernel
    elif call.kind == 'part' and len(call.kernel) == len(source) == 1 and call.start + call.kernel[0] <= source[0]:
        return call.kernel
    elif call.kind == 'action-values' and len(call.kernel) == 2:
        if source == (math.prod(call.kernel),) and second in (None, call.kernel[1:]):
            return call.kernel[:1]
    elif call.kind == 'deviations' and len(call.kernel) == 2 and source == call.kernel[:1]:
        return (math.prod(call.kernel),)
    elif call.kind == 'log-std' and len(call.kernel) == 1 and len(source) == 1:
        return call.kernel
    elif call.kind in NORM_WEIGHTS and source[-1:] == call.kernel:
        return source
    same_shape = ('same', 'activation', *(['log-probabilities'] if len(source) == 1 else []))
    if call.kind in same_shape:
        return source
    raise ValueError(f'not a network plan: a {call.kind} of {call.kernel} has an input of shape {source}')
