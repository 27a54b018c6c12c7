"""The registry of networks: functions that create a model, and .cfg files. Does not load TensorFlow."""

from __future__ import annotations

import dataclasses
import inspect
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xagents.networks.cfg import parse_network, parse_text, to_text
from xagents.options.errors import OptionError, error_line
from xagents.registry.parts import NAME_PATTERN, PartRegistry
from xagents.system.modules import LOCATION

if TYPE_CHECKING:
    import keras

    from xagents.networks.description import NetworkDescription


@dataclasses.dataclass(frozen=True)
class NetworkFunction:
    """A function that creates a network.

    A saved state contains the registered name of the network.

    Attributes:
        name: registered name.
        function: function with the arguments `input_shape` and `output_units`, and optionally `action_units` and
            `seed`, that returns a functional Keras model.
        origin: package that registered the network.
    """

    name: str
    function: Callable[..., Any]
    origin: str = ''

    @property
    def argument_names(self) -> frozenset[str]:
        """The names of the function's arguments."""
        return frozenset(inspect.signature(self.function).parameters)

    def build(
        self, input_shape: tuple[int, ...], output_units: list[int], seed: int, action_units: int | None = None
    ) -> keras.Model:
        """Create the model. Equal seeds give equal weights if the layers use initialisers of Keras.

        Args:
            input_shape: shape of one observation, D or (height, width, channels); for a critic without `action_units`
                (D + A,), the observation followed by the action.
            output_units: sizes of the outputs in order.
            seed: seed of the weights.
            action_units: A, the length of one action, for a critic whose function has this argument. The inputs of its
                model are [observations, actions].

        Raises:
            ValueError: with one line that names the network, if the function fails or does not return a functional
                model.
        """
        import keras

        offered = {'seed': seed, 'action_units': action_units}
        others = {name: value for name, value in offered.items() if name in self.argument_names}
        where = f'network {self.name}' + (f' of {self.origin}' if self.origin else '')
        # an initialiser without a seed draws its seed from `random`
        state_before = random.getstate()
        random.seed(seed)
        try:
            model = self.function(tuple(input_shape), list(output_units), **others)
        except Exception as error:
            raise ValueError(f'{where} cannot be built: {error_line(error)}') from error
        finally:
            random.setstate(state_before)
        if not isinstance(model, keras.Model) or not is_functional(model):
            raise ValueError(f'{where} returned a {type(model).__name__}, expected a functional keras.Model')
        if isinstance(model.output, dict):
            raise ValueError(f'{where} returned a model with a dict of outputs, expected a list in the same order')
        return model


def is_functional(model: keras.Model) -> bool:
    """Return whether a model is functional, or sequential and built."""
    try:
        return bool(model.inputs and model.outputs)
    except (AttributeError, ValueError):  # subclassed; a sequential model without an input
        return False


def _adopt_network(name: str, thing: Any, package: str) -> NetworkFunction | Path:
    if isinstance(thing, str | os.PathLike):
        return Path(thing)
    if not callable(thing):
        raise ValueError(f'got a {type(thing).__name__}, expected a path of a .cfg file or a function')
    network = NetworkFunction(name, thing, package)
    if not {'input_shape', 'output_units'} <= network.argument_names:
        raise ValueError('its function must have the arguments input_shape and output_units')
    return network


def _is_name(text: str) -> bool:
    """Return whether a text is a registered name or `module:function`, and not the path or the text of a .cfg file."""
    return bool(NAME_PATTERN.fullmatch(text) or LOCATION.fullmatch(text))


def read_network(value: str, option: str) -> NetworkDescription | NetworkFunction:
    """Return the network of a registered name, of `module:function` or of a .cfg file; errors name the option."""
    if not isinstance(value, str | os.PathLike):
        expected = "expected a .cfg file, module:function, or a name of @register_network('name')"
        raise OptionError(option, f'got a {type(value).__name__}, {expected}')
    path = Path(value)
    dotted, _, last = str(value).rpartition('.')
    is_object = str(value).replace('.', '').isidentifier() and last != 'cfg' and not path.exists()
    if dotted and (last == 'py' or is_object):
        module = f'{dotted.replace(os.sep, ".").lstrip(".")}:FUNCTION' if last == 'py' else f'{dotted}:{last}'
        raise OptionError(option, f'got {value}, expected a .cfg file or module:function, such as {module}')
    # a file takes precedence: the user sees the files in the working directory, but not the installed packages
    if isinstance(value, str) and _is_name(value) and not path.exists():
        found = network_registry.find(value, option)
        if found is None:
            names = ', '.join(network_registry.names())
            known = f' or one of {names}' if names else ''
            own = "; --import MODULE registers a module's networks"
            expected = f', expected a .cfg file{known}, or module:function{own}'
            raise OptionError(option, f'there is no file {value}{expected}')
        if isinstance(found, NetworkFunction):
            return found
        path = found
    try:
        return parse_network(path)
    except ValueError as error:
        raise OptionError(option, str(error)) from error


def network_text(network: NetworkDescription | NetworkFunction) -> str:
    """Return the text of a network in a saved state: the registered name of a function, or the text of a file."""
    return network.name if isinstance(network, NetworkFunction) else to_text(network)


def network_from_text(text: str, option: str) -> NetworkDescription | NetworkFunction:
    """Return the network of a saved state; a function must still be registered."""
    if not _is_name(text):
        return parse_text(text, 'the saved network')
    found = network_registry.find(text, option)
    if not isinstance(found, NetworkFunction):
        raise OptionError(option, f'the saved state has the network {text}, which no installed package registers')
    return found


network_registry: PartRegistry[NetworkFunction | Path] = PartRegistry('networks', 'network', _adopt_network)


def register_network(name: str, network: Any = None) -> Any:
    """Register a network in this process, so that its name can replace the path of a .cfg file.

    Args:
        name: name of lowercase letters, digits and dashes.
        network: path of a .cfg file, or a function (see `NetworkFunction`). Without it, return a decorator for a
            function.

    Raises:
        OptionError: if the name is not valid or is taken already, or `network` is not a network.
    """
    return network_registry.add(name, network)
