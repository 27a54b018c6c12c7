"""A network as data: its layers, what each is called on, and the shapes that follow; loads no TensorFlow.

`xagents.networks.cfg` reads these descriptions from files, `xagents.networks.models` builds Keras models of them.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xagents.options.errors import did_you_mean

INPUT = 'input'
ACTIVATIONS = (
    *('linear', 'relu', 'tanh', 'sigmoid', 'softmax', 'elu', 'selu', 'gelu', 'silu', 'swish'),
    *('leaky_relu', 'softplus', 'softsign', 'exponential'),
)
INITIALIZERS = ('orthogonal', 'glorot_uniform', 'fan_in_uniform')
MAX_SIZE = 1_000_000  # of units, filters, sizes and strides: a slip of the finger must not ask for all the memory

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One section of a network, with its source resolved.

    Attributes:
        name: The section's name.
        kind: `convolutional`, `flatten`, `dense`, `action` or `log-std`.
        source: The section that this one is called on, or `input`.
        units: Width of a dense layer; None for an output whose size comes from the environment.
        filters: Number of filters of a convolution.
        size: Height and width of its kernel.
        stride: Its stride.
        activation: One of ACTIVATIONS.
        initializer: One of INITIALIZERS, of the kernel. Biases start at zero; with `fan_in_uniform` both are uniform
            in ±1/√inputs (LeCun et al. 1998, Efficient BackProp, section 4.6; Lillicrap et al. 2016, section 7).
        gain: Factor of the orthogonal initializer.
        output: Whether the layer is an output of the model.
        init: First value of a log standard deviation.
    """

    name: str
    kind: str
    source: str
    units: int | None = None
    filters: int = 0
    size: int = 0
    stride: int = 0
    activation: str = 'linear'
    initializer: str = 'glorot_uniform'
    gain: float = 1.0
    output: bool = False
    init: float = 0.0


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """A validated network description; error messages call it `where`. Each layer's source stands before it."""

    layers: tuple[Layer, ...]
    where: str = field(default='network', compare=False)

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """The outputs in the order of the file, without a `log-std`."""
        return tuple(layer for layer in self.layers if layer.output)

    @property
    def log_std(self) -> Layer | None:
        """The `log-std` section, if there is one."""
        return next((layer for layer in self.layers if layer.kind == 'log-std'), None)

    @property
    def action(self) -> Layer | None:
        """The `action` section, if there is one: the model then has the actions as a second input."""
        return next((layer for layer in self.layers if layer.kind == 'action'), None)

    def shapes(
        self, input_shape: Sequence[int], output_units: Sequence[int], action_units: int | None = None
    ) -> dict[str, Shape]:
        """Return the shape of every layer's output, without the batch, checking the network against input and outputs.

        Args:
            input_shape: Shape of one observation, D or (height, width, channels).
            output_units: Sizes of the outputs without `units`, in order; or of all outputs, and then an output with
                `units` must have the size that is given for it.
            action_units: A, the length of one action, for a network with an `action` section; else None.

        Raises:
            ValueError: If outputs and sizes do not match, a layer does not fit its input, or there are actions without
                a section for them or a section without actions.
        """
        units, action = _output_sizes(self, output_units), self.action
        if action is not None:
            if action_units is None:
                problem = "expected a place in a critic's network only: this model has no actions to join"
                raise ValueError(f'{self.where}: [{action.name}]: {problem}')
            admits = f'a whole number from 1 to {MAX_SIZE}'
            units[action.name] = positive_integers('action_units', [action_units], admits)[0]
        elif action_units is not None:
            raise ValueError(
                f'{self.where}: has no action-* section, expected no action_units (got {action_units}): '
                'without the section a critic reads one vector, observation and action joined'
            )
        admits = 'the shape of a vector or of an image (height, width, channels)'
        shapes: dict[str, Shape] = {INPUT: positive_integers('input_shape', input_shape, admits)}
        for layer in self.layers:
            shapes[layer.name] = _output_shape(layer, shapes[layer.source], units, self.where)
        return shapes


def value_error(where: str, got: Any, admits: str, names: Iterable[str] = ()) -> ValueError:
    """Make the one-line error for a wrong value: where, what it got, what it admits, and the nearest of `names`."""
    shown = repr(got)
    shown = shown if len(shown) <= 80 else f'{shown[:76]} …'
    return ValueError(f'{where}: got {shown}, expected {admits}{did_you_mean(str(got)[:80].lower(), names)}')


def positive_integers(where: str, values: Sequence[int], admits: str) -> tuple[int, ...]:
    """Return `values` as Python's integers, which Keras wants; they must be one or more from 1 to LARGEST."""
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        raise value_error(where, values, admits) from None
    if not numbers or not all(1 <= number <= MAX_SIZE for number in numbers):
        raise value_error(where, values, admits)
    return numbers


def _output_sizes(network: NetworkDescription, output_units: Sequence[int]) -> dict[str, int]:
    """Give each output its size, the environment's where the file has none."""
    admits = 'one whole number from 1 for each output'
    sizes = positive_integers('output_units', output_units, admits) if len(output_units) else ()
    outputs = network.outputs
    if len(sizes) != len(outputs):
        outputs = tuple(layer for layer in outputs if layer.units is None)
    if len(sizes) != len(outputs):
        got = ', '.join(f'[{layer.name}]' for layer in network.outputs)
        raise ValueError(
            f'{network.where}: outputs: got {len(network.outputs)} ({got}), '
            f'expected {len(sizes)}, of sizes {list(sizes)}, for this agent and environment'
        )
    for layer, units in zip(outputs, sizes, strict=True):
        if layer.units not in (None, units):
            raise ValueError(
                f'{network.where}: [{layer.name}] units: got {layer.units}, '
                f'expected {units} for this agent and environment, or no units'
            )
    return {layer.name: units for layer, units in zip(outputs, sizes, strict=True)}


def _output_shape(layer: Layer, shape: Shape, units: Mapping[str, int], where: str) -> Shape:
    at = f'{where}: [{layer.name}]'
    if layer.kind == 'flatten':
        return (math.prod(shape),)
    if layer.kind == 'log-std':
        return shape
    if layer.kind in ('dense', 'action'):
        if len(shape) != 1:
            raise ValueError(
                f'{at}: got an input of shape {shape}, expected a vector: put a flatten-* section before it'
            )
        return (shape[0] + units[layer.name],) if layer.kind == 'action' else (layer.units or units[layer.name],)
    if len(shape) != 3:
        raise ValueError(f'{at}: got an input of shape {shape}, expected an image (height, width, channels)')
    height, width, _ = shape
    if layer.size > min(height, width):
        raise ValueError(
            f'{at} size: got {layer.size}, expected at most {min(height, width)} for its input of {height}x{width}'
        )
    return (height - layer.size) // layer.stride + 1, (width - layer.size) // layer.stride + 1, layer.filters
