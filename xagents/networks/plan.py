"""A network as data: the list of layer calls as JSON, and one flat vector of weights.

Loads no TensorFlow. `xagents.networks.keras_to_plan` makes a plan of a Keras model, `xagents.networks.numpy_inference`
computes by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

ACTIVATIONS = (
    *('linear', 'tanh', 'relu', 'sigmoid', 'softmax', 'softplus', 'exponential'),
    *('elu', 'selu', 'silu', 'leaky_relu', 'softsign', 'gelu'),
)
DENSE, CONVOLUTION, LOG_STD, DEVIATIONS, LOG_PROBABILITIES, ACTIVATION, FLATTEN, IDENTITY = KINDS = (
    'dense', 'convolution', 'log-std', 'deviations', 'log-probabilities', 'activation', 'flatten', 'same',
)  # fmt: skip


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
        kind: one of KINDS.
        source: number of the tensor that it is called on; 0 is the network's input.
        target: number of the tensor that it returns.
        at: where its weights begin in the vector: the kernel, then the bias.
        kernel: the kernel's shape: (inputs, units), also of deviations, (height, width, channels, filters), or (units,)
            of a log-std.
        bias: whether it has one.
        strides: of a convolution, without padding.
        activation: what follows, one of ACTIVATIONS.
        expln: how deviations follow from their logarithms (see `xagents.networks.state_dependent`).
    """

    kind: str
    source: int
    target: int
    at: int = 0
    kernel: tuple[int, ...] = ()
    bias: bool = False
    strides: tuple[int, ...] = ()
    activation: str = 'linear'
    expln: bool = False

    @property
    def n_parameters(self) -> int:
        """How many numbers of the vector are its own."""
        return (math.prod(self.kernel) if self.kernel else 0) + self.bias * (self.kernel[-1] if self.kernel else 0)


@dataclass(frozen=True)
class NetworkPlan:
    """The layers of a network, each after what it is called on.

    Attributes:
        input_shape: of one observation.
        calls: in the order of computation.
        outputs: numbers of the tensors that the network returns, of shape [N, units] each.
        n_parameters: length of the vector of weights.
    """

    input_shape: tuple[int, ...]
    calls: tuple[LayerCall, ...]
    outputs: tuple[int, ...]
    n_parameters: int

    def __post_init__(self) -> None:
        self._check_numbers()
        self.shapes()

    def _check_numbers(self) -> None:
        """Check that what came out of a file are whole numbers, and sizes at least 1."""
        sizes = [*self.input_shape, *(n for call in self.calls for n in (*call.kernel, *call.strides))]
        others = [self.n_parameters, *self.outputs, *(n for c in self.calls for n in (c.source, c.target, c.at))]
        if any(type(n) is not int or n < 1 for n in sizes) or any(type(n) is not int or n < 0 for n in others):
            raise ValueError('it is no plan of a network: a size is no whole number, or too small')
        if any(type(flag) is not bool for call in self.calls for flag in (call.bias, call.expln)):
            raise ValueError('it is no plan of a network: a bias is there or not')

    @property
    def has_convolutions(self) -> bool:
        """Whether it has a convolution."""
        return any(call.kind == CONVOLUTION for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it; what has its default is left out."""
        defaults = {f.name: f.default for f in fields(LayerCall)}
        calls = [{k: v for k, v in asdict(call).items() if v != defaults[k]} for call in self.calls]
        return {**asdict(self), 'calls': calls}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Undo `record`.

        Raises:
            ValueError: in one line, for a record that is no plan.
        """
        try:
            calls = tuple(LayerCall(**{k: _frozen(v) for k, v in call.items()}) for call in record['calls'])
            return cls(_frozen(record['input_shape']), calls, _frozen(record['outputs']), record['n_parameters'])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'it is no plan of a network ({type(error).__name__}: {error})') from error

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Return the shape of every tensor, without the rows.

        Raises:
            ValueError: in one line, for a layer that does not fit what it is called on, or the vector.
        """
        shapes: dict[int, tuple[int, ...]] = {0: self.input_shape}
        for call in self.calls:
            if call.source not in shapes or call.target in shapes:
                raise ValueError(f'it is no plan of a network: a {call.kind} is called on what is not there')
            if call.activation not in ACTIVATIONS:
                raise ValueError(f'it is no plan of a network: a {call.kind} has the activation {call.activation}')
            if not 0 <= call.at <= self.n_parameters - call.n_parameters:
                raise ValueError(f'it is no plan of a network: the weights of a {call.kind} are not in the vector')
            shapes[call.target] = _shape(call, shapes[call.source])
        if not self.outputs or any(len(shapes.get(output, ())) != 1 for output in self.outputs):
            raise ValueError('it is no plan of a network: its outputs are no vectors')
        return shapes


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shape(call: LayerCall, source: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what a call returns."""
    if call.kind == FLATTEN:
        return (math.prod(source),)
    if call.kind == CONVOLUTION and len(source) == 3 and len(call.kernel) == 4 and len(call.strides) == 2:
        height, width = (1 + (source[i] - call.kernel[i]) // call.strides[i] for i in (0, 1))
        if source[2] == call.kernel[2] and height > 0 and width > 0:
            return height, width, call.kernel[3]
    elif call.kind == DENSE and len(call.kernel) == 2 and source == call.kernel[:1]:
        return call.kernel[1:]
    elif call.kind == DEVIATIONS and len(call.kernel) == 2 and source == call.kernel[:1]:
        return (math.prod(call.kernel),)
    elif call.kind == LOG_STD and len(call.kernel) == 1 and len(source) == 1:
        return call.kernel
    elif call.kind == IDENTITY or (call.kind in (ACTIVATION, LOG_PROBABILITIES) and len(source) == 1):
        return source
    raise ValueError(f'it is no plan of a network: a {call.kind} of {call.kernel} is called on the shape {source}')
