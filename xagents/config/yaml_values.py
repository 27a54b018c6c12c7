"""Values in YAML: the type of a scalar, and its value for an option with a declared type.

1e-3 is a number for a numeric option, and `no` is a text for a text option.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import yaml

from xagents.options.declaration import Option
from xagents.options.errors import OptionError, format_value

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


def add_scalar_resolvers(resolver: type[yaml.resolver.BaseResolver]) -> None:
    """Add the types of scalars to a loader or dumper. A dumper then quotes texts that look like another type."""
    for kind, pattern in SCALARS.items():
        resolver.add_implicit_resolver(TAG + kind, re.compile(rf'({pattern})\Z', re.IGNORECASE), None)


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
        raise OptionError(option.name, f'got {format_value(wrong)} as a key, expected names')
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
