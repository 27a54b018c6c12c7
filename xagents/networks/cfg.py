"""The grammar, the parser and the checks of `.cfg` network files. Does not load TensorFlow.

A file is a list of INI sections. Each section describes one layer; layers are built in the order of the file:

| section | required | optional |
|---|---|---|
| `convolutional-*` | `filters`, `size`, `stride` | `activation`, `initializer`, `gain`, `common`, `from` |
| `flatten-*` | | `common`, `from` |
| `dense-*` | `units`, unless it is an output | `activation`, `initializer`, `gain`, `common`, `output`, `from` |
| `gru-*`, `lstm-*` | `units` | `common`, `from` |
| `layernorm-*`, `batchnorm-*` | | `activation`, `common`, `from` |
| `add-*`, `concatenate-*` | `with` | `common`, `from` |
| `action-*` | | `common`, `from` |
| `log-std-*` | | `init`, `from` |

The input of a layer:

- `from=<section>` sets it to the output of an earlier section; `from=input` sets it to the input of the network.
  If observations have images among other parts, `from=input:KEY` sets it to the image of this key (keys of nested
  spaces are joined by dots), and `from=input:vector` to the vector of all parts that are no images.
- Without `from`, the input of a dense layer is the last layer before it with `common=1`. The input of every other
  layer, and of a dense layer without a `common` layer before it, is the previous section. The first section has the
  input of the network.
- `action` concatenates its input vector and the actions, which are a second input of the model. A critic of images
  needs this section after its `flatten`; a file has at most one. A critic without it has one input vector, the
  concatenation of observation and action.
- `layernorm` normalises each row of its input to mean 0 and deviation 1 over its last axis (Ba et al. 2016,
  arXiv:1607.06450). `batchnorm` does so over the batch, with the correction of batch renormalisation (Ioffe 2017,
  arXiv:1702.03275). Both have a learned scale and offset, and apply their activation.
- `gru` and `lstm` are recurrent: their state passes from one step of an episode to the next (Cho et al. 2014,
  arXiv:1406.1078; Hochreiter and Schmidhuber 1997). Agents with memory admit them.
- `add` adds the output of the earlier section `with` to its input, a vector of the same size: a residual connection.
- `concatenate` appends the vector of the earlier section `with` to its input, a vector.
- `log-std` is the learned log standard deviation of a Gaussian. It belongs to the output that is the mean: the first
  output, or the one that `from` names. It is always the last output of the model and cannot be an input.

`output=1` marks an output. The environment determines the size of an output without `units`.

Errors in a file raise a `ValueError` with one line: file, section, key, the value, and the expected values.
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
    PART_PREFIX,
    Layer,
    NetworkDescription,
    positive_integers,
    value_error,
)
from xagents.options.errors import did_you_mean, one_line


class _Key(NamedTuple):
    """The expected values of a key: in words, as a parser (raises ValueError or KeyError), and as names."""

    expected: str
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
    'layernorm': {'activation': _choice(ACTIVATIONS)} | _ORIGIN,
    'batchnorm': {'activation': _choice(ACTIVATIONS)} | _ORIGIN,
    'add': {'with': _Key('input or an earlier section', str)} | _ORIGIN,
    'concatenate': {'with': _Key('input or an earlier section', str)} | _ORIGIN,
    'dense': {'units': _WHOLE} | _WEIGHTS | {'output': _SWITCH} | _ORIGIN,
    'gru': {'units': _WHOLE} | _ORIGIN,
    'lstm': {'units': _WHOLE} | _ORIGIN,
    'action': _ORIGIN,
    'log-std': {'init': _Key('a number', _number), 'from': _Key('an output section', str)},
}
_REQUIRED = {'convolutional': ('filters', 'size', 'stride'), 'dense': ('units',), 'add': ('with',)}
_REQUIRED |= {'concatenate': ('with',), 'gru': ('units',), 'lstm': ('units',)}
# a dense section needs `units`, or is an output
_SECTION = re.compile(rf'({"|".join(_KEYS)})(-[A-Za-z0-9_.-]+)?')
_SECTION_NAMES = ', '.join(f'{kind}-*' for kind in _KEYS)


def parse_network(path: str | Path) -> NetworkDescription:
    """Read and validate a `.cfg` file in UTF-8; raise a ValueError if it is not valid."""
    where = one_line(path)
    try:
        text = Path(path).read_text(encoding='utf-8-sig')
    except FileNotFoundError:
        raise ValueError(f'there is no file {where}') from None
    except OSError as error:
        raise ValueError(f'{where}: cannot be read: {error.strerror}') from None
    except UnicodeDecodeError:
        raise ValueError(f'{where}: is not a text file in UTF-8') from None
    except ValueError as error:  # a NUL in the path
        raise ValueError(f'{where}: cannot be read: {error}') from None
    return parse_text(text, where)


def parse_text(text: str, where: str = 'network') -> NetworkDescription:
    """Parse and validate the text of a `.cfg` file; error messages begin with `where`."""
    # No section has the name of the default section: [DEFAULT] is an unknown section like any other.
    parser = configparser.ConfigParser(
        interpolation=None, default_section='\n', inline_comment_prefixes=('#', ';'), empty_lines_in_values=False
    )
    try:
        parser.read_string(text, where)
    except configparser.DuplicateSectionError as error:
        raise ValueError(f'{where}: [{one_line(error.section)}]: occurs twice (line {error.lineno})') from None
    except configparser.DuplicateOptionError as error:
        section, option = one_line(error.section), one_line(error.option)
        raise ValueError(f'{where}: [{section}] {option}: occurs twice (line {error.lineno})') from None
    except configparser.Error as error:
        raise ValueError(f'{where}: is not an INI file: {one_line(error.message)[:200]}') from None
    return network_from_sections({name: dict(parser[name]) for name in parser.sections()}, where)


def network_from_sections(sections: Mapping[str, Mapping[str, str]], where: str = 'network') -> NetworkDescription:
    """Validate sections, each a mapping from keys to their text, and resolve the input of each layer."""
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
        if kind in ('add', 'concatenate'):
            values['second'] = values.pop('with')
            _check_source(name, values['second'], layers, sections, where, 'with')
        layers[name] = Layer(name, kind, source, **values)
        previous = name
        common = name if is_common else common
    network = NetworkDescription(tuple(layers.values()), where)
    if not network.outputs:
        raise ValueError(f'{where}: has no output, expected one or more dense-* sections with output=1')
    used = {source for layer in network.layers for source in layer.sources}
    for layer in network.layers:
        if not layer.output and layer.kind != 'log-std' and layer.name not in used:
            remedy = f'mark it output=1 or write from={layer.name} in a later section'
            raise ValueError(f'{where}: [{layer.name}]: leads to no output; {remedy}')
    return network


def to_text(network: NetworkDescription) -> str:
    """Return the text of a `.cfg` file that describes an equal network; every section has a `from` key."""
    lines = []
    for layer in network.layers:
        lines += ['', f'[{layer.name}]', f'from={layer.source}']
        plain = Layer(layer.name, layer.kind, layer.source)
        for key in [key for key in _KEYS[layer.kind] if key not in ('from', 'common')]:
            field = 'second' if key == 'with' else key
            value = getattr(layer, field)
            if value != getattr(plain, field):
                lines.append(f'{key}={int(value) if isinstance(value, bool) else value}')
    return '\n'.join(lines[1:]) + '\n'


# initial gains of the heads of --net: a nearly uniform policy, values of ordinary size
_HEAD_GAINS = {'actor': '0.01'}
_ROOT_2 = repr(math.sqrt(2))


def dense_network(
    net: Sequence[int],
    activation: str = 'tanh',
    shared: bool = False,
    outputs: Sequence[str] = ('actor', 'critic'),
    output_activation: str = 'linear',
    initializer: str = 'orthogonal',
    normalise: str | None = None,
    block: str | None = None,
) -> NetworkDescription:
    """Describe a dense network without a file (`--net 256 256 --activation relu`).

    Orthogonal initialisation uses the gains of the shipped files: √2 in the trunk, 0.01 for the head `actor`, 1 for
    every other head. `dense_network([64, 64])` equals `ann-actor-critic.cfg`.

    Args:
        net: widths of the layers in the trunk.
        activation: activation of the layers in the trunk, one of ACTIVATIONS.
        shared: whether all outputs have one trunk; otherwise each output has its own.
        outputs: names of the outputs, in order; the environment determines their sizes.
        output_activation: activation of the outputs, one of ACTIVATIONS; `tanh` for an actor of actions from -1 to 1.
        initializer: initializer of all layers, one of INITIALIZERS.
        normalise: `layer` for layer normalisation between each layer of the trunk and its activation, `batch` for batch
            renormalisation of the input and after each layer of the trunk (as CrossQ), or None.
        block: `simba` for a linear layer, a residual block for each width, and a layer normalisation (Lee et al. 2025,
            arXiv:2410.09754, section 4), or None. A block adds two layers, of four times the width and of the width,
            after a layer normalisation, to its input.

    Raises:
        ValueError: if an argument is not valid.
    """
    expected = f'one or more whole numbers from 1 to {MAX_SIZE}'
    widths = [str(width) for width in positive_integers('net', net, expected)]
    given = {'activation': activation, 'output_activation': output_activation, 'initializer': initializer}
    for name, value in given.items():
        names = INITIALIZERS if name == 'initializer' else ACTIVATIONS
        if value not in names:
            raise value_error(name, value, ', '.join(names), names)
    if block is not None and len(set(widths)) > 1:
        got = ' '.join(widths)
        raise ValueError(
            f'net: got {got} with {block} blocks, expected equal widths: a block adds its output to its input'
        )
    if not outputs or not all(map(str.isidentifier, outputs)) or len(set(outputs)) < len(outputs):
        raise value_error('outputs', outputs, 'one or more different names')
    sections: dict[str, dict[str, str]] = {}
    trunk = INPUT
    for output in outputs:
        if not shared or trunk == INPUT:
            own, trunk = '' if shared else f'-{output}', INPUT
            if block is not None:
                trunk = _simba_trunk(sections, own, widths, activation, initializer)
            if block is None and normalise == 'batch':
                sections[f'batchnorm{own}-input'], trunk = {'from': trunk}, f'batchnorm{own}-input'
            for i, width in enumerate(widths if block is None else ()):
                begin = _start(initializer, _ROOT_2, trunk)
                inside = 'linear' if normalise == 'layer' else activation
                sections[f'dense{own}-{i}'] = begin | {'units': width, 'activation': inside}
                trunk = f'dense{own}-{i}'
                if normalise is not None:
                    after = {'activation': activation} if normalise == 'layer' else {}
                    sections[f'{normalise}norm{own}-{i}'] = {'from': trunk, **after}
                    trunk = f'{normalise}norm{own}-{i}'
        head = _start(initializer, _HEAD_GAINS.get(output, '1'), trunk)
        sections[f'dense-{output}'] = head | {'activation': output_activation, 'output': '1'}
    return network_from_sections(sections, f'net {" ".join(widths)}')


def _simba_trunk(
    sections: dict[str, dict[str, str]], own: str, widths: Sequence[str], activation: str, initializer: str
) -> str:
    """Add the sections of a trunk of residual blocks, and return the name of the last section."""
    trunk = f'dense{own}-in'
    sections[trunk] = _start(initializer, '1', INPUT) | {'units': widths[0]}
    for i, width in enumerate(widths):
        normal, wide, narrow = (
            f'{kind}{own}-{i}{end}' for kind, end in (('layernorm', ''), ('dense', ''), ('dense', 'b'))
        )
        sections[normal] = {'from': trunk}
        sections[wide] = _start(initializer, _ROOT_2, normal) | {'units': str(4 * int(width)), 'activation': activation}
        sections[narrow] = _start(initializer, '1', wide) | {'units': width}
        sections[f'add{own}-{i}'] = {'from': narrow, 'with': trunk}
        trunk = f'add{own}-{i}'
    sections[f'layernorm{own}-out'] = {'from': trunk}
    return f'layernorm{own}-out'


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
    """Parse the keys of one section and check that they are consistent."""
    keys, values = _KEYS[kind], {}
    for key, value in text.items():
        if key not in keys:
            raise value_error(f'{where} key', key, ', '.join(keys), keys)
        try:
            values[key] = keys[key].read(value)
        except (ValueError, KeyError):
            raise value_error(f'{where} {key}', value, keys[key].expected, keys[key].names) from None
    required = _REQUIRED.get(kind, ()) if not values.get('output') else ()
    for key in required:
        if key not in values:
            also = ' (the environment determines only the size of an output, output=1)' if kind == 'dense' else ''
            raise ValueError(f'{where} {key}: is missing, expected {keys[key].expected}{also}')
    if 'gain' in values and values.get('initializer') != 'orthogonal':
        raise ValueError(f'{where} gain: got {values["gain"]}, expected a gain only with initializer=orthogonal')
    return values


def _check_source(
    name: str, source: str, layers: Mapping[str, Layer], sections: Iterable[str], where: str, key: str = 'from'
) -> None:
    if source != INPUT and not source.startswith(PART_PREFIX) and source not in layers:
        earlier = [INPUT, *(layer.name for layer in layers.values() if layer.kind != 'log-std')]
        later = ' (it is a later section)' if source in sections and source != name else ''
        raise value_error(f'{where}: [{name}] {key}', source, f'{", ".join(earlier)}{later}', earlier)
    if source in layers and layers[source].kind == 'log-std':
        raise ValueError(f'{where}: [{name}] {key}: got {source!r}, expected no log-std: it is the last output')


def _check_single(name: str, kind: str, layers: Mapping[str, Layer], where: str) -> None:
    if any(layer.kind == kind for layer in layers.values()):
        raise ValueError(f'{where}: [{name}]: is a second {kind} section, expected one')


def _log_std_source(name: str, source: str | None, layers: Mapping[str, Layer], where: str) -> str:
    outputs = [layer.name for layer in layers.values() if layer.output]
    _check_single(name, 'log-std', layers, where)
    if not outputs:
        raise ValueError(f'{where}: [{name}]: is before any output, expected a place after its output')
    if source is None:
        return outputs[0]
    if source not in outputs:
        raise value_error(f'{where}: [{name}] from', source, ', '.join(outputs), outputs)
    return source
