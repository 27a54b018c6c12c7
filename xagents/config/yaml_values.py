"""YAML: files as nodes, values of nodes for options with declared types, and plain values as text.

1e-3 is a number for a numeric option, and `no` is a text for a text option.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xagents.options.declaration import NAME_CHARACTERS, Option
from xagents.options.errors import OptionError, did_you_mean, format_value, one_line
from xagents.system.file_names import CONFIG, GROUP

SWITCH = {'true': True, 'yes': True, 'on': True, 'false': False, 'no': False, 'off': False}
# unquoted scalars that are not texts if no option declares their type; upper and lower case are equal
SCALARS = {
    'null': '~|null|',
    'bool': '|'.join(SWITCH),
    'int': r'[-+]?\d+',
    'float': r'[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?\.inf|\.nan',
}
TAG = 'tag:yaml.org,2002:'
NULL = f'{TAG}null'
# largest number of values in one argument of an environment: with aliases, a few lines can mean billions
MAX_NODES = 10_000


class _Loader(yaml.BaseLoader):
    """A loader that creates no Python objects."""


class _Dumper(yaml.SafeDumper):
    """A dumper that writes a list on one line, and a repeated value a second time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# quote texts that this reader or other YAML readers would take for another type
for kind, pattern in SCALARS.items():
    for resolver in (_Loader, _Dumper):
        resolver.add_implicit_resolver(TAG + kind, re.compile(rf'({pattern})\Z', re.IGNORECASE), None)
_Dumper.add_representer(list, lambda dumper, values: dumper.represent_sequence('tag:yaml.org,2002:seq', values, True))


def parse_node(option: Option, node: yaml.Node) -> Any:
    """Return the value of an option in its declared type, or None for null. Raise OptionError for other values."""
    check_tag(option, node)
    if node.tag == NULL:
        return option.check(None)
    if option.type is dict:
        return _parse_arguments(option, node)
    if not (option.is_list and isinstance(node, yaml.SequenceNode)):
        return [_parse_single(option, node)] if option.is_list else _parse_single(option, node)
    if not node.value:
        raise OptionError(option.name, f'got an empty list, expected {option.expected}')
    return [_parse_single(option, one) for one in node.value]


def _parse_single(option: Option, node: yaml.Node) -> Any:
    check_tag(option, node)
    text = node.value
    if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
        raise OptionError(option.name, f'got {_describe_node(node)}, expected {option.expected}')
    if option.type is bool:
        if text.lower() not in SWITCH:
            raise OptionError(option.name, f'got {format_value(text)}, expected true or false')
        return SWITCH[text.lower()]
    return option.parse([text])[0] if option.is_list else option.parse(text)


def _parse_arguments(option: Option, node: yaml.Node) -> dict[str, Any]:
    """Return the arguments of an environment. The form of each scalar determines its type."""
    if not isinstance(node, yaml.MappingNode):
        raise OptionError(option.name, f'got {_describe_node(node)}, expected key: value pairs')
    remaining = MAX_NODES

    def plain(node: yaml.Node) -> Any:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise OptionError(option.name, f'got more than {MAX_NODES} values, expected fewer')
        check_tag(option, node)
        if isinstance(node, yaml.ScalarNode):
            return _parse_scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [plain(one) for one in node.value]
        value: dict[str, Any] = {}
        for key, one in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in value:
                got = f'{format_value(key.value)} twice' if isinstance(key, yaml.ScalarNode) else _describe_node(key)
                raise OptionError(option.name, f'got {got} as a key, expected names, each of them once')
            value[key.value] = plain(one)
        return value

    try:
        value = plain(node)
    except RecursionError:
        raise OptionError(option.name, 'is nested too deep') from None
    wrong = next((key for key in value if not key.isidentifier()), None)
    if wrong is not None:
        raise OptionError(option.name, f'got the name {format_value(wrong)}, expected {NAME_CHARACTERS}')
    return value


def _parse_scalar(node: yaml.ScalarNode) -> Any:
    kind, text = node.tag.removeprefix(TAG), node.value
    with contextlib.suppress(ValueError):  # a wrong tag, or a number too long for Python: keep the text
        if kind == 'int':
            return int(text)
        if kind == 'float':
            return float(text.lower().replace('.inf', 'inf').replace('.nan', 'nan'))
    return None if kind == 'null' else SWITCH.get(text.lower(), text) if kind == 'bool' else text


def check_tag(option: Option, node: yaml.Node) -> None:
    """Raise OptionError for a tag that would create a Python object."""
    if node.tag.removeprefix(TAG) not in ('str', 'seq', 'map', *SCALARS):
        raise OptionError(option.name, f'got the tag {format_value(node.tag)}, expected plain values')


def _describe_node(node: yaml.Node) -> str:
    """Return a description of a node, for messages."""
    kinds = {yaml.SequenceNode: 'a list', yaml.MappingNode: 'a mapping'}
    return kinds.get(type(node)) or ('nothing' if node.tag == NULL else format_value(node.value))


def read_nodes(path: str | os.PathLike[str]) -> dict[str, yaml.Node]:
    """Return the nodes of a file by key, with dashes replaced by underscores.

    Raises:
        ValueError: if the file cannot be read, is not a YAML mapping, or has a key twice. The message is one line with
            the file.
    """
    try:
        root = yaml.compose(Path(path).read_bytes().decode('utf-8-sig'), Loader=_Loader)
    except FileNotFoundError:
        folder, name = os.path.split(path)
        files = [file.name for file in Path(folder or '.').glob('*.y*ml')]
        raise ValueError(f'there is no file {format_value(str(path))}{did_you_mean(name, files)}') from None
    except (OSError, ValueError) as error:
        raise ValueError(f'{format_value(str(path))}: {_read_problem(path, error)}') from error
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        problem = f'{error.problem}, line {mark.line + 1}' if mark else format_value(one_line(error))
        raise ValueError(f'{path}: is no YAML: {problem}') from error
    except RecursionError:
        raise ValueError(f'{path}: is nested too deep, expected keys and their values') from None
    if not isinstance(root, yaml.MappingNode):
        got = 'is empty' if root is None else 'has no keys'
        raise ValueError(f'{path}: {got}, expected the flags of xagents train as keys, such as lr: 0.001')
    nodes: dict[str, yaml.Node] = {}
    for key, value in root.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f'{path}: line {line}: got a key of several parts, expected a flag')
        name = key.value.replace('-', '_')
        if name in nodes:
            raise ValueError(f'{path}: {format_value(key.value)}: got the key twice, the second time in line {line}')
        nodes[name] = value
    return nodes


def _read_problem(path: str | os.PathLike[str], error: OSError | ValueError) -> str:
    if isinstance(error, IsADirectoryError):
        files = [file for name in (CONFIG, GROUP) if os.path.isfile(file := os.path.join(path, name))]
        return 'is a directory, expected a YAML file' + (f' (did you mean {files[0]}?)' if files else '')
    if isinstance(error, UnicodeDecodeError):
        return 'is no text in UTF-8'
    return f'cannot be read ({getattr(error, "strerror", None) or error})'


def dump(settings: Mapping[str, Any]) -> str:
    """Return a mapping of plain values as YAML, one line per key."""
    # in ASCII: with allow_unicode PyYAML does not quote every control character that it reads as a line break
    return yaml.dump(settings, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=math.inf)
