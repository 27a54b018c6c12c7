"""Network descriptions: layers, their inputs, and their shapes. Does not load TensorFlow.

`xagents.networks.cfg` reads descriptions from files; `xagents.networks.models` builds Keras models from them.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xagents.options.errors import did_you_mean

INPUT = 'input'
# begins the name of a part of the input: input:camera
PART_PREFIX = f'{INPUT}:'
ACTIVATIONS = (
    *('linear', 'relu', 'tanh', 'sigmoid', 'softmax', 'elu', 'selu', 'gelu', 'silu', 'swish'),
    *('leaky_relu', 'softplus', 'softsign', 'exponential'),
)
NORMALISATIONS = ('layernorm', 'batchnorm')
MEMORIES = ('gru', 'lstm')
INITIALIZERS = ('orthogonal', 'glorot_uniform', 'fan_in_uniform')
VECTOR_UNITS = 64  # of the dense layer for a vector among images
MAX_SIZE = 1_000_000  # of units, filters, sizes and strides: a typing error must not allocate all the memory

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One section of a network, with its source resolved.

    Attributes:
        name: name of the section.
        kind: `convolutional`, `flatten`, `dense`, `gru`, `lstm`, `layernorm`, `batchnorm`, `add`, `concatenate`,
            `action`, `log-std`, or `part`, which no file has: the first `units` elements of a vector.
        source: name of the section that is the input of this layer; `input`, or `input:NAME` for a part of the input.
        second: name of the section that `add` adds to its input, or `concatenate` appends; empty for other layers.
        units: width of a dense or recurrent layer; None if the environment determines the size of an output.
        filters: number of filters of a convolution.
        size: height and width of the kernel of a convolution.
        stride: stride of a convolution.
        activation: one of ACTIVATIONS.
        initializer: initializer of the kernel, one of INITIALIZERS. Biases start at zero. With `fan_in_uniform`, kernel
            and bias are uniform in ±1/√inputs (LeCun et al. 1998, Efficient BackProp, section 4.6; Lillicrap et al.
            2016, section 7).
        gain: factor of the orthogonal initializer.
        output: whether the layer is an output of the model.
        init: initial value of a log standard deviation.
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
    second: str = ''

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of all sections that are inputs of this layer."""
        return (self.source, self.second) if self.second else (self.source,)


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """A validated network description.

    Attributes:
        layers: layers in the order of the file; the source of a layer is before the layer.
        where: name of the network in error messages, such as the path of the file.
    """

    layers: tuple[Layer, ...]
    where: str = field(default='network', compare=False)

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """The outputs in the order of the file, without `log-std`."""
        return tuple(layer for layer in self.layers if layer.output)

    @property
    def log_std(self) -> Layer | None:
        """The `log-std` section, if there is one."""
        return next((layer for layer in self.layers if layer.kind == 'log-std'), None)

    @property
    def action(self) -> Layer | None:
        """The `action` section, if there is one; the actions are then a second input of the model."""
        return next((layer for layer in self.layers if layer.kind == 'action'), None)

    @property
    def has_memory(self) -> bool:
        """Whether a layer is recurrent."""
        return any(layer.kind in MEMORIES for layer in self.layers)

    @property
    def smallest_image(self) -> int:
        """The smallest height and width of an image that all convolutions fit."""
        needed: dict[str, int] = {}
        for layer in reversed(self.layers):
            if layer.kind == 'convolutional':
                own = (needed.get(layer.name, 1) - 1) * layer.stride + layer.size
                needed[layer.source] = max(own, needed.get(layer.source, 1))
            elif layer.kind in NORMALISATIONS:  # of the same height and width
                needed[layer.source] = max(needed.get(layer.name, 1), needed.get(layer.source, 1))
        return needed.get(INPUT, 1)

    def shapes(
        self,
        input_shape: Sequence[int] | Mapping[str, Shape],
        output_units: Sequence[int],
        action_units: int | None = None,
    ) -> dict[str, Shape]:
        """Return the output shapes of all layers by name, without the batch dimension, and check the layers.

        Args:
            input_shape: shape of one observation, D or (height, width, channels); or those of its parts, by name.
            output_units: sizes of the outputs without `units`, in order; or of all outputs. In the second case, `units`
                of an output must equal its size.
            action_units: A, the length of one action, for a network with an `action` section; otherwise None.

        Raises:
            ValueError: if outputs and sizes do not match, a layer does not fit its input, or only one of `action_units`
                and an `action` section is given.
        """
        units, action = _output_sizes(self, output_units), self.action
        if action is not None:
            if action_units is None:
                problem = 'is only for the network of a critic: this model has no actions as an input'
                raise ValueError(f'{self.where}: [{action.name}]: {problem}')
            expected = f'a whole number from 1 to {MAX_SIZE}'
            units[action.name] = positive_integers('action_units', [action_units], expected)[0]
        elif action_units is not None:
            raise ValueError(
                f'{self.where}: has no action-* section, expected no action_units (got {action_units}): '
                'the input of a critic without this section is one vector of observation and action'
            )
        expected = 'the shape of a vector or of an image (height, width, channels)'
        shapes: dict[str, Shape] = {}
        if isinstance(input_shape, Mapping):
            shapes |= {PART_PREFIX + name: shape for name, shape in input_shape.items()}
        else:
            shapes[INPUT] = positive_integers('input_shape', input_shape, expected)
        for layer in self.layers:
            self._check_inputs(layer, shapes)
            if layer.kind == 'concatenate':
                vectors = [shapes[name] for name in layer.sources]
                if any(len(shape) != 1 for shape in vectors):
                    got = f'got inputs of shapes {vectors[0]} and {vectors[1]}'
                    raise ValueError(f'{self.where}: [{layer.name}]: {got}, expected vectors: add a flatten-* section')
                shapes[layer.name] = (vectors[0][0] + vectors[1][0],)
                continue
            if layer.second and shapes[layer.second] != shapes[layer.source]:
                got = f'got inputs of shapes {shapes[layer.source]} and {shapes[layer.second]}'
                raise ValueError(f'{self.where}: [{layer.name}]: {got}, expected equal ones')
            shapes[layer.name] = _output_shape(layer, shapes[layer.source], units, self.where)
        return shapes

    def _check_inputs(self, layer: Layer, shapes: Mapping[str, Shape]) -> None:
        """Check that the parts of the input that a layer reads exist."""
        known = [name for name in shapes if name == INPUT or name.startswith(PART_PREFIX)]
        for name in layer.sources:
            if name not in shapes:
                problem = 'the observation has parts' if name == INPUT else 'the observation has no such part'
                raise value_error(f'{self.where}: [{layer.name}] from', name, f'{", ".join(known)}: {problem}', known)


def joined_inputs(network: NetworkDescription, parts: Mapping[str, Shape], vector: str) -> NetworkDescription:
    """Return a network for several parts from a network for one image.

    Each image gets its own copy of the layers up to `flatten`, with kernels that fit the image. The vector gets a dense
    layer of 64 units. The results are concatenated.

    Args:
        network: the network for one image.
        parts: the shapes of the parts, by name.
        vector: the name of the part that is a vector, if there is one.
    """
    layers: list[Layer] = []
    ends: dict[str, str] = {}  # the concatenation in the place of each flatten layer
    trunks = {layer.name: _leading_to(network, [layer]) for layer in network.layers if layer.kind == 'flatten'}
    in_trunks = {name for names in trunks.values() for name in names}
    for flat, names in trunks.items():
        results = []
        for number, (part, shape) in enumerate(parts.items()):
            own = fit_small_images(network, shape) if len(shape) == 3 else network
            if part == vector:
                first = next(layer for layer in network.layers if layer.name in names)
                look: dict[str, Any] = {
                    'activation': first.activation,
                    'initializer': first.initializer,
                    'gain': first.gain,
                }
                results.append(f'dense-{flat}-{number}')
                layers.append(Layer(results[-1], 'dense', PART_PREFIX + part, units=VECTOR_UNITS, **look))
                continue
            for layer in own.layers:
                if layer.name in names:
                    source = PART_PREFIX + part if layer.source == INPUT else f'{layer.source}-{number}'
                    layers.append(replace(layer, name=f'{layer.name}-{number}', source=source))
            results.append(f'{flat}-{number}')
        joined = results[0]
        for i, result in enumerate(results[1:]):
            layers.append(Layer(f'concatenate-{flat}-{i}', 'concatenate', joined, second=result))
            joined = layers[-1].name
        ends[flat] = joined
    for layer in network.layers:
        if layer.name not in in_trunks:
            layers.append(
                replace(layer, source=ends.get(layer.source, layer.source), second=ends.get(layer.second, layer.second))
            )
    return replace(network, layers=tuple(layers))


def with_actor_part(network: NetworkDescription, size: int) -> NetworkDescription:
    """Return a network whose first output, the actor, receives only the first elements of an observation.

    Args:
        network: the description.
        size: the number of these elements.

    Raises:
        ValueError: if the actor shares layers with another output.
    """
    actor, *others = network.outputs
    own = _leading_to(network, [actor])
    shared = own & _leading_to(network, others)
    if shared:
        name = next(layer.name for layer in network.layers if layer.name in shared)
        raise ValueError(f'{network.where}: [{name}] leads to the actor and to the critic, expected separate layers')
    part = Layer('part-actor', 'part', INPUT, units=size)
    layers = [part]
    for layer in network.layers:
        if layer.name in own:
            source, second = (part.name if name == INPUT else name for name in (layer.source, layer.second))
            layer = replace(layer, source=source, second=second)
        layers.append(layer)
    return replace(network, layers=tuple(layers))


def with_memory(network: NetworkDescription, units: int, kind: str) -> NetworkDescription:
    """Return a network with a recurrent layer before its outputs; outputs with the same input share the layer.

    Args:
        network: the description.
        units: width of the recurrent layers.
        kind: `gru` or `lstm`.
    """
    layers, memories = list[Layer](), dict[str, Layer]()
    shared = len({layer.source for layer in network.outputs}) == 1
    for layer in network.layers:
        if layer.output:
            if layer.source not in memories:
                name = kind if shared else f'{kind}-{layer.name.removeprefix("dense-")}'
                layers.append(Layer(name, kind, layer.source, units=units))
                memories[layer.source] = layers[-1]
            layer = replace(layer, source=memories[layer.source].name)
        layers.append(layer)
    return replace(network, layers=tuple(layers))


def _leading_to(network: NetworkDescription, outputs: Iterable[Layer]) -> set[str]:
    """Return the names of the layers that lead to outputs, with the outputs."""
    names = {layer.name for layer in outputs}
    for layer in reversed(network.layers):
        if layer.name in names:
            names.update(source for source in layer.sources if source != INPUT)
    return names


def fit_small_images(network: NetworkDescription, image: Shape) -> NetworkDescription:
    """Return the network with small kernels if its convolutions do not fit an image [H, W, C], else the same network.

    While the image is longer than 10 pixels, a layer has kernels of 3 x 3 and the stride 2. All other layers have
    kernels of 2 x 2 and the stride 1, as the networks for images of 7 x 7 in MiniGrid's documentation. The convolutions
    of Mnih et al. (2015) need 36 x 36. They make 7 x 7 of 84 x 84, as small kernels do of 10 x 10.

    Args:
        network: the description.
        image: height, width and channels of the observations.
    """
    if min(image[:2]) >= network.smallest_image:
        return network
    sides, layers = {INPUT: image[:2]}, []
    for layer in network.layers:
        if layer.kind == 'convolutional':
            before = sides[layer.source]
            stride = 2 if max(before) > 10 else 1
            layer = replace(layer, size=min(stride + 1, *before), stride=stride)
            sides[layer.name] = tuple((side - layer.size) // stride + 1 for side in before)
        elif layer.kind in NORMALISATIONS and layer.source in sides:
            sides[layer.name] = sides[layer.source]
        layers.append(layer)
    return replace(network, layers=tuple(layers))


def value_error(where: str, got: Any, expected: str, names: Iterable[str] = ()) -> ValueError:
    """Return an error with one line about a wrong value: where, got, expected, and the most similar of `names`."""
    shown = repr(got)
    shown = shown if len(shown) <= 80 else f'{shown[:76]} …'
    return ValueError(f'{where}: got {shown}, expected {expected}{did_you_mean(str(got)[:80].lower(), names)}')


def positive_integers(where: str, values: Sequence[int], expected: str) -> tuple[int, ...]:
    """Return `values` as Python integers for Keras; raise a ValueError for none, or one outside 1 to MAX_SIZE."""
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        raise value_error(where, values, expected) from None
    if not numbers or not all(1 <= number <= MAX_SIZE for number in numbers):
        raise value_error(where, values, expected)
    return numbers


def _output_sizes(network: NetworkDescription, output_units: Sequence[int]) -> dict[str, int]:
    """Return the size of each output by name: from the environment if the file sets none."""
    expected = 'one whole number from 1 for each output'
    sizes = positive_integers('output_units', output_units, expected) if len(output_units) else ()
    outputs = network.outputs
    if len(sizes) != len(outputs):
        outputs = tuple(layer for layer in outputs if layer.units is None)
    if len(sizes) != len(outputs):
        got = ', '.join(f'[{layer.name}]' for layer in network.outputs)
        expected = f'expected {len(sizes)}, of sizes {list(sizes)}, for this agent and environment'
        raise ValueError(f'{network.where}: outputs: got {len(network.outputs)} ({got}), {expected}')
    for layer, units in zip(outputs, sizes, strict=True):
        if layer.units not in (None, units):
            expected = f'expected {units} for this agent and environment, or no units'
            raise ValueError(f'{network.where}: [{layer.name}] units: got {layer.units}, {expected}')
    return {layer.name: units for layer, units in zip(outputs, sizes, strict=True)}


def _output_shape(layer: Layer, shape: Shape, units: Mapping[str, int], where: str) -> Shape:
    at = f'{where}: [{layer.name}]'
    if layer.kind == 'flatten':
        return (math.prod(shape),)
    if layer.kind in ('log-std', *NORMALISATIONS):
        return shape
    got = f'{at}: got an input of shape {shape}'
    if layer.kind in ('dense', 'action', 'add', 'part', *MEMORIES):
        if len(shape) != 1:
            raise ValueError(f'{got}, expected a vector: add a flatten-* section before it')
        if layer.kind == 'add':
            return shape
        return (shape[0] + units[layer.name],) if layer.kind == 'action' else (layer.units or units[layer.name],)
    if len(shape) != 3:
        raise ValueError(f'{got}, expected an image (height, width, channels)')
    height, width, _ = shape
    most = min(height, width)
    if layer.size > most:
        raise ValueError(f'{at} size: got {layer.size}, expected at most {most} for its input of {height}x{width}')
    return (height - layer.size) // layer.stride + 1, (width - layer.size) // layer.stride + 1, layer.filters
