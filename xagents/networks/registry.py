"""Networks that have a name: functions that make a model, and .cfg files; loads no TensorFlow."""

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

if TYPE_CHECKING:
    import keras

    from xagents.networks.description import NetworkDescription


@dataclasses.dataclass(frozen=True)
class NetworkFunction:
    """A network that a function makes, and the package, `origin`, that it is of.

    The function takes `input_shape` and `output_units`, and `action_units` and `seed` where it names them; it returns a
    functional Keras model. A saved state keeps the name that it is registered under.
    """

    name: str
    function: Callable[..., Any]
    origin: str = ''

    @property
    def argument_names(self) -> frozenset[str]:
        """The names of what the function takes."""
        return frozenset(inspect.signature(self.function).parameters)

    def build(
        self, input_shape: tuple[int, ...], output_units: list[int], seed: int, action_units: int | None = None
    ) -> keras.Model:
        """Make the model; equal seeds make equal weights where layers draw them by Keras' own initialisers.

        Args:
            input_shape: of one observation, D or (height, width, channels); of a critic without `action_units`,
                (D + A,), the observation and the action behind it.
            output_units: sizes of the outputs in order.
            seed: of the weights.
            action_units: A, the length of one action, for a critic whose function takes it: its model has the inputs
                [observations, actions].

        Raises:
            ValueError: in one line that names the network, where the function fails or returns something else.
        """
        import keras

        offered = {'seed': seed, 'action_units': action_units}
        others = {name: value for name, value in offered.items() if name in self.argument_names}
        where = f'network {self.name}' + (f' of {self.origin}' if self.origin else '')
        # an initialiser that was given no seed draws one from here
        kept = random.getstate()
        random.seed(seed)
        try:
            model = self.function(tuple(input_shape), list(output_units), **others)
        except Exception as error:
            raise ValueError(f'{where} cannot be built: {error_line(error)}') from error
        finally:
            random.setstate(kept)
        if not isinstance(model, keras.Model) or not is_functional(model):
            raise ValueError(f'{where} returned a {type(model).__name__}, expected a functional keras.Model')
        return model


def is_functional(model: keras.Model) -> bool:
    """Whether a model is functional, or sequential and built."""
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
        raise ValueError('its function admits the arguments input_shape and output_units')
    return network


def read_network(value: str, option: str) -> NetworkDescription | NetworkFunction:
    """Return the network that was asked for, a registered one by its name, or a .cfg file; errors name the option."""
    path = Path(value)
    # a file wins: what stands in the folder one works in is seen, what is installed is not
    if isinstance(value, str) and NAME_PATTERN.fullmatch(value) and not path.exists():
        found = network_registry.find(value, option)
        if found is None:
            known = (
                f'expected a .cfg file or one of {", ".join(network_registry.names())}'
                if network_registry.names()
                else ''
            )
            raise OptionError(option, f'{value}: there is no such file' + (f', {known}' if known else ''))
        if isinstance(found, NetworkFunction):
            return found
        path = found
    try:
        return parse_network(path)
    except ValueError as error:
        raise OptionError(option, str(error)) from error


def network_text(network: NetworkDescription | NetworkFunction) -> str:
    """Return what a saved state keeps of a network: the name of a function's, the text of a file otherwise."""
    return network.name if isinstance(network, NetworkFunction) else to_text(network)


def network_from_text(text: str, option: str) -> NetworkDescription | NetworkFunction:
    """Return the network that a saved state names or describes; its function must still be registered."""
    if not NAME_PATTERN.fullmatch(text):
        return parse_text(text, 'the saved network')
    found = network_registry.find(text, option)
    if not isinstance(found, NetworkFunction):
        raise OptionError(option, f'what was saved has the network {text}, which no installed package registers')
    return found


network_registry: PartRegistry[NetworkFunction | Path] = PartRegistry('networks', 'network', _adopt_network)


def register_network(name: str, network: Any = None) -> Any:
    """Register a network in this process: wherever a .cfg path is taken, its name then is, too.

    Args:
        name: lowercase letters, digits and dashes.
        network: path of a .cfg file, or a function (see `NetworkFunction`); without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken, or something that is no network.
    """
    return network_registry.add(name, network)
