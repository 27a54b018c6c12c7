"""Network plans: a list of layer calls, which is stored as JSON, for one flat weight vector.

Does not load TensorFlow. `xagents.networks.keras_to_plan` converts a Keras model to a plan;
`xagents.networks.numpy_inference` computes the outputs from a plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
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
]
# weights of a normalisation for each unit: scale and offset, and for `batch-norm` also moving mean and variance
NORM_WEIGHTS = {'layer-norm': 2, 'batch-norm': 4}


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
        kind: kind of the layer; the output of `same` equals its input.
        source: number of the input tensor; 0 is the input of the network.
        target: number of the output tensor.
        at: index of the first weight in the weight vector: the kernel, then the bias.
        kernel: shape of the kernel: (inputs, units) for dense layers and deviations, (height, width, channels, filters)
            for convolutions, (units,) for a log-std and a normalisation.
        bias: whether the layer has a bias.
        strides: strides of a convolution without padding.
        activation: activation after the layer, one of ACTIVATIONS.
        epsilon: number that a normalisation adds to the variance.
        expln: whether deviations use expln instead of exp (see `xagents.networks.state_dependent`).
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

    @property
    def n_parameters(self) -> int:
        """Number of weights of the layer."""
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
        others = [self.n_parameters, *self.outputs, *(n for c in self.calls for n in (c.source, c.target, c.at))]
        if any(type(n) is not int or n < 1 for n in sizes) or any(type(n) is not int or n < 0 for n in others):
            raise ValueError('not a network plan: a size is not a whole number, or is too small')
        if any(type(flag) is not bool for call in self.calls for flag in (call.bias, call.expln)):
            raise ValueError('not a network plan: bias and expln must be true or false')
        if any(type(call.epsilon) is not float or not 0 <= call.epsilon < math.inf for call in self.calls):
            raise ValueError('not a network plan: epsilon must be a number from 0')

    @property
    def has_convolutions(self) -> bool:
        """Whether the network has a convolution."""
        return any(call.kind == 'convolution' for call in self.calls)

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
            if call.source not in shapes or call.target in shapes:
                raise ValueError(f'not a network plan: a {call.kind} has an input that does not exist')
            if call.activation not in ACTIVATIONS:
                raise ValueError(f'not a network plan: a {call.kind} has the activation {call.activation}')
            if not 0 <= call.at <= self.n_parameters - call.n_parameters:
                raise ValueError(f'not a network plan: the weights of a {call.kind} are not in the vector')
            shapes[call.target] = _shape(call, shapes[call.source])
        if not self.outputs or any(len(shapes.get(output, ())) != 1 for output in self.outputs):
            raise ValueError('not a network plan: its outputs are not vectors')
        return shapes


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shape(call: LayerCall, source: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output shape of a call for an input of shape `source`."""
    if call.kind == 'flatten':
        return (math.prod(source),)
    if call.kind == 'convolution' and len(source) == 3 and len(call.kernel) == 4 and len(call.strides) == 2:
        height, width = (1 + (source[i] - call.kernel[i]) // call.strides[i] for i in (0, 1))
        if source[2] == call.kernel[2] and height > 0 and width > 0:
            return height, width, call.kernel[3]
    elif call.kind == 'dense' and len(call.kernel) == 2 and source == call.kernel[:1]:
        return call.kernel[1:]
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
