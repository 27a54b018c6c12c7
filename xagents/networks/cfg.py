"""The grammar of the `.cfg` network files, read and checked without TensorFlow.

A file is a list of INI sections, one layer each, in the order in which they are built:

| section | required | optional |
|---|---|---|
| `convolutional-*` | `filters`, `size`, `stride` | `activation`, `initializer`, `gain`, `common`, `from` |
| `flatten-*` | | `common`, `from` |
| `dense-*` | `units`, unless it is an output | `activation`, `initializer`, `gain`, `common`, `output`, `from` |
| `action-*` | | `common`, `from` |
| `log-std-*` | | `init`, `from` |

What a layer is called on:

- `from=<section>`, an earlier one, or `from=input`, says it.
- Without `from`, a dense layer is called on the last layer before it that is marked `common=1`; every other layer, and
  a dense one where nothing is common, on the section before it (the first one on the input).
- `action` joins the actions, a second input of the model, to the vector before it: a critic of images needs it (after
  its `flatten`), and there is at most one. A critic without it reads one vector, observation and action joined.
- `log-std` is the learned log standard deviation of a Gaussian's mean: it belongs to an output (the first one when
  `from` is not given), is always the model's last output, and nothing follows it.

`output=1` marks an output. One without `units` takes its size from the environment.

Everything that is wrong with a file is a `ValueError` of one line: file, section, key, what it got, what it admits.
"""

import configparser
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xagents.networks.description import (
    ACTIVATIONS,
    INITIALIZERS,
    INPUT,
    MAX_SIZE,
    Layer,
    NetworkDescription,
    positive_integers,
    value_error,
)
from xagents.options.errors import did_you_mean, one_line


class _Key(NamedTuple):
    """What a key admits: in words, as a reader that raises ValueError or KeyError, and as names if there are."""

    admits: str
    read: Callable[[str], Any]
    names: Sequence[str] = ()


def _whole(text: str) -> int:
    if not re.fullmatch(r'[0-9]{1,9}', text) or not 1 <= int(text) <= MAX_SIZE:
        raise ValueError
    return int(text)


def _number(text: str, above: float = -math.inf) -> float:
    number = float(text)
    if not above < number < math.inf:
        raise ValueError
    return number


def _choice(names: Sequence[str]) -> _Key:
    return _Key(', '.join(names), {name: name for name in names}.__getitem__, names)


_WHOLE = _Key(f'a whole number from 1 to {MAX_SIZE}', _whole)
_SWITCH = _Key('1 or 0', lambda text: configparser.ConfigParser.BOOLEAN_STATES[text.lower()])
_ORIGIN = {'common': _SWITCH, 'from': _Key('input or an earlier section', str)}
_WEIGHTS = {
    'activation': _choice(ACTIVATIONS),
    'initializer': _choice(INITIALIZERS),
    'gain': _Key('a number above 0', lambda text: _number(text, above=0)),
}
_KEYS: dict[str, dict[str, _Key]] = {
    'convolutional': {'filters': _WHOLE, 'size': _WHOLE, 'stride': _WHOLE} | _WEIGHTS | _ORIGIN,
    'flatten': _ORIGIN,
    'dense': {'units': _WHOLE} | _WEIGHTS | {'output': _SWITCH} | _ORIGIN,
    'action': _ORIGIN,
    'log-std': {'init': _Key('a number', _number), 'from': _Key('an output section', str)},
}
_REQUIRED = {'convolutional': ('filters', 'size', 'stride')}
_SECTION = re.compile(rf'({"|".join(_KEYS)})(-[A-Za-z0-9_.-]+)?')
_SECTION_NAMES = ', '.join(f'{kind}-*' for kind in _KEYS)


def parse_network(path: str | Path) -> NetworkDescription:
    """Read and validate a `.cfg` file in UTF-8, or raise a ValueError."""
    where = one_line(path)
    try:
        text = Path(path).read_text(encoding='utf-8-sig')
    except OSError as error:
        raise ValueError(f'{where}: cannot be read: {error.strerror}') from None
    except UnicodeDecodeError:
        raise ValueError(f'{where}: is not a text file in UTF-8') from None
    except ValueError as error:  # a NUL in the path
        raise ValueError(f'{where}: cannot be read: {error}') from None
    return parse_text(text, where)


def parse_text(text: str, where: str = 'network') -> NetworkDescription:
    """Validate the text of a `.cfg` file, which error messages call `where`."""
    # No section is called like the default one, so that [DEFAULT] is refused like any unknown section.
    parser = configparser.ConfigParser(
        interpolation=None, default_section='\n', inline_comment_prefixes=('#', ';'), empty_lines_in_values=False
    )
    try:
        parser.read_string(text, where)
    except configparser.DuplicateSectionError as error:
        raise ValueError(f'{where}: [{one_line(error.section)}]: stands twice (line {error.lineno})') from None
    except configparser.DuplicateOptionError as error:
        section, option = one_line(error.section), one_line(error.option)
        raise ValueError(f'{where}: [{section}] {option}: stands twice (line {error.lineno})') from None
    except configparser.Error as error:
        raise ValueError(f'{where}: is not an INI file: {one_line(error.message)[:200]}') from None
    return network_from_sections({name: dict(parser[name]) for name in parser.sections()}, where)


def network_from_sections(sections: Mapping[str, Mapping[str, str]], where: str = 'network') -> NetworkDescription:
    """Validate sections, each with its keys and their text, and resolve what each layer is called on."""
    layers: dict[str, Layer] = {}
    previous, common = INPUT, None
    for name, text in sections.items():
        kind = _kind(name, where)
        values = _values(kind, text, f'{where}: [{name}]')
        source = values.pop('from', None)
        is_common = values.pop('common', False)
        if kind == 'log-std':
            layers[name] = Layer(name, kind, _log_std_source(name, source, layers, where), **values)
            continue
        if source is None:
            source = common if kind == 'dense' and common is not None else previous
        if kind == 'action':
            _check_single(name, kind, layers, where)
        _check_source(name, source, layers, sections, where)
        layers[name] = Layer(name, kind, source, **values)
        previous = name
        common = name if is_common else common
    network = NetworkDescription(tuple(layers.values()), where)
    if not network.outputs:
        raise ValueError(f'{where}: has no output, expected one or more dense-* sections with output=1')
    used = {layer.source for layer in network.layers}
    for layer in network.layers:
        if not layer.output and layer.kind != 'log-std' and layer.name not in used:
            remedy = f'mark it output=1 or write from={layer.name} in a later section'
            raise ValueError(f'{where}: [{layer.name}]: leads to no output; {remedy}')
    return network


def to_text(network: NetworkDescription) -> str:
    """Write a network, with every source as `from=`, as the text of a `.cfg` file that reads back as an equal one."""
    lines = []
    for layer in network.layers:
        lines += ['', f'[{layer.name}]', f'from={layer.source}']
        plain = Layer(layer.name, layer.kind, layer.source)
        for key in [key for key in _KEYS[layer.kind] if key not in ('from', 'common')]:
            value = getattr(layer, key)
            if value != getattr(plain, key):
                lines.append(f'{key}={int(value) if isinstance(value, bool) else value}')
    return '\n'.join(lines[1:]) + '\n'


# What --net's heads start with: a policy near the uniform one, values of ordinary size.
_HEAD_GAINS = {'actor': '0.01'}
_ROOT_2 = repr(math.sqrt(2))


def dense_network(
    net: Sequence[int],
    activation: str = 'tanh',
    shared: bool = False,
    outputs: Sequence[str] = ('actor', 'critic'),
    output_activation: str = 'linear',
    initializer: str = 'orthogonal',
) -> NetworkDescription:
    """Describe a dense network without a file (`--net 256 256 --activation relu`).

    An orthogonal one is initialised as the shipped files are: gain √2 in the trunk, 0.01 for the head called `actor`,
    1 for every other; `dense_network([64, 64])` is `ann-actor-critic.cfg`.

    Args:
        net: Widths of the trunk's layers.
        activation: Of the trunk's layers, one of ACTIVATIONS.
        shared: One trunk for all outputs; else each has one of its own.
        outputs: Names of the outputs, in order; their sizes come from the environment.
        output_activation: Of the outputs, one of ACTIVATIONS; `tanh` for an actor of actions from -1 to 1.
        initializer: Of all layers, one of INITIALIZERS.

    Raises:
        ValueError: If one of these admits no network.
    """
    admits = f'one or more whole numbers from 1 to {MAX_SIZE}'
    widths = [str(width) for width in positive_integers('net', net, admits)]
    for name, value, admitted in (
        ('activation', activation, ACTIVATIONS),
        ('output_activation', output_activation, ACTIVATIONS),
        ('initializer', initializer, INITIALIZERS),
    ):
        if value not in admitted:
            raise value_error(name, value, ', '.join(admitted), admitted)
    if not outputs or not all(map(str.isidentifier, outputs)) or len(set(outputs)) < len(outputs):
        raise value_error('outputs', outputs, 'one or more different names')
    sections: dict[str, dict[str, str]] = {}
    trunk = INPUT
    for output in outputs:
        if not shared or trunk == INPUT:
            prefix, trunk = 'dense' if shared else f'dense-{output}', INPUT
            for i, width in enumerate(widths):
                begin = _start(initializer, _ROOT_2, trunk)
                sections[f'{prefix}-{i}'] = begin | {'units': width, 'activation': activation}
                trunk = f'{prefix}-{i}'
        head = _start(initializer, _HEAD_GAINS.get(output, '1'), trunk)
        sections[f'dense-{output}'] = head | {'activation': output_activation, 'output': '1'}
    return network_from_sections(sections, f'net {" ".join(widths)}')


def _start(initializer: str, gain: str, source: str) -> dict[str, str]:
    gains = {'gain': gain} if initializer == 'orthogonal' else {}
    return {'initializer': initializer, **gains, 'from': source}


def _kind(name: str, where: str) -> str:
    match = _SECTION.fullmatch(name)
    if match is None:
        hint = did_you_mean(re.sub(r'-[^-]*$', '', name[:80]).lower(), _KEYS)
        raise ValueError(f'{where}: section: got {name[:80]!r}, expected {_SECTION_NAMES}{hint}')
    return match[1]


def _values(kind: str, text: Mapping[str, str], where: str) -> dict[str, Any]:
    """Read the keys of one section, each by its rule, and check how they go together."""
    keys, values = _KEYS[kind], {}
    for key, value in text.items():
        if key not in keys:
            raise value_error(f'{where} key', key, ', '.join(keys), keys)
        try:
            values[key] = keys[key].read(value)
        except (ValueError, KeyError):
            raise value_error(f'{where} {key}', value, keys[key].admits, keys[key].names) from None
    required: tuple[str, ...] = _REQUIRED.get(kind, ())
    if kind == 'dense' and not values.get('output'):
        required = ('units',)
    for key in required:
        if key not in values:
            also = ' (only an output, output=1, takes its size from the environment)' if kind == 'dense' else ''
            raise ValueError(f'{where} {key}: is missing, expected {keys[key].admits}{also}')
    if 'gain' in values and values.get('initializer') != 'orthogonal':
        raise ValueError(f'{where} gain: got {values["gain"]}, expected a gain with initializer=orthogonal only')
    return values


def _check_source(name: str, source: str, layers: Mapping[str, Layer], sections: Iterable[str], where: str) -> None:
    if source != INPUT and source not in layers:
        earlier = [INPUT, *(layer.name for layer in layers.values() if layer.kind != 'log-std')]
        later = ' (it stands later)' if source in sections and source != name else ''
        raise value_error(f'{where}: [{name}] from', source, f'{", ".join(earlier)}{later}', earlier)
    if source in layers and layers[source].kind == 'log-std':
        raise ValueError(f'{where}: [{name}] from: got {source!r}, expected no log-std: it is the last output')


def _check_single(name: str, kind: str, layers: Mapping[str, Layer], where: str) -> None:
    if any(layer.kind == kind for layer in layers.values()):
        raise ValueError(f'{where}: [{name}]: is a second {kind} section, expected one')


def _log_std_source(name: str, source: str | None, layers: Mapping[str, Layer], where: str) -> str:
    outputs = [layer.name for layer in layers.values() if layer.output]
    _check_single(name, 'log-std', layers, where)
    if not outputs:
        raise ValueError(
            f'{where}: [{name}]: stands before any output, expected a place after the output it belongs to'
        )
    if source is None:
        return outputs[0]
    if source not in outputs:
        raise value_error(f'{where}: [{name}] from', source, ', '.join(outputs), outputs)
    return source
