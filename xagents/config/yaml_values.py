"""Values of options in YAML: the declared type of an option says what a value is, not YAML's own guess.

1e-3 is a number where one belongs, and `no` the name of a run where a text does.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from xagents.options.declaration import Option
from xagents.options.errors import OptionError, shown

__all__ = ['check_tag', 'guess', 'kind_of', 'value_of']

SWITCH = {'true': True, 'yes': True, 'on': True, 'false': False, 'no': False, 'off': False}
NOTHING = ('', '~', 'null')
NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?', re.IGNORECASE)
NOT_FINITE = {'.inf': math.inf, '+.inf': math.inf, '-.inf': -math.inf, '.nan': math.nan}
_NAMES = ('str', 'int', 'float', 'bool', 'null', 'seq', 'map', 'timestamp', 'merge', 'value')
KINDS = {f'tag:yaml.org,2002:{kind}' for kind in _NAMES}
# of one argument of an environment; YAML's aliases could make a few lines mean billions
MOST_NODES = 10_000


def value_of(option: Option, node: yaml.Node) -> Any:
    """Return the value of an option that a node stands for, in the type that was declared; None for null.

    Raises:
        OptionError: naming the option, what it got and what it admits.
    """
    check_tag(option, node)
    if _is_nothing(node):
        return option.check(None)
    if option.type is dict:
        if not isinstance(node, yaml.MappingNode):
            raise OptionError(option.name, f'got {kind_of(node)}, admits key: value pairs')
        value = _any(option, node)
        wrong = next((key for key in value if not key.isidentifier()), None)
        if wrong is not None:
            raise OptionError(option.name, f'got {shown(wrong)} as a key, admits names')
        return value
    if option.many and isinstance(node, yaml.SequenceNode):
        if not node.value:
            raise OptionError(option.name, f'got an empty list, admits {option.admits}')
        return [_single(option, one) for one in node.value]
    return [_single(option, node)] if option.many else _single(option, node)


def _single(option: Option, node: yaml.Node) -> Any:
    check_tag(option, node)
    if not isinstance(node, yaml.ScalarNode) or _is_nothing(node):
        raise OptionError(option.name, f'got {kind_of(node)}, admits {option.admits}')
    text = node.value
    if option.type is bool:
        if text.lower() not in SWITCH:
            raise OptionError(option.name, f'got {shown(text)}, admits true or false')
        return SWITCH[text.lower()]
    return option.parse([text])[0] if option.many else option.parse(text)


def _any(option: Option, node: yaml.Node) -> Any:
    """Return what a node stands for where nothing says what it is to be: an argument of an environment."""
    left = [MOST_NODES]

    def plain(node: yaml.Node) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OptionError(option.name, f'got more than {MOST_NODES} values, admits fewer')
        check_tag(option, node)
        if isinstance(node, yaml.SequenceNode):
            return [plain(one) for one in node.value]
        if not isinstance(node, yaml.MappingNode):
            return guess(node)
        value: dict[str, Any] = {}
        for key, one in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in value:
                got = f'{shown(key.value)} twice' if isinstance(key, yaml.ScalarNode) else kind_of(key)
                raise OptionError(option.name, f'got {got} as a key, admits names, each of them once')
            value[key.value] = plain(one)
        return value

    try:
        return plain(node)
    except RecursionError:
        raise OptionError(option.name, 'is nested too deep') from None


def guess(node: yaml.Node) -> Any:
    """Return a scalar as what it looks like; what is quoted is a text."""
    text = node.value
    if node.style is not None:
        return text
    lower = text.lower()
    if lower in NOTHING:
        return None
    if lower in SWITCH:
        return SWITCH[lower]
    if lower in NOT_FINITE:
        return NOT_FINITE[lower]
    if not NUMBER.fullmatch(text):
        return text
    whole = text.lstrip('+-').isdecimal() and len(text) < 4000  # beyond that Python itself refuses
    return int(text) if whole else float(text)


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value.lower() in NOTHING


def check_tag(option: Option, node: yaml.Node) -> None:
    """Refuse what YAML would make an object of."""
    if node.tag not in KINDS:
        raise OptionError(option.name, f'got the tag {shown(node.tag)}, admits plain values')


def kind_of(node: yaml.Node) -> str:
    """Return what a node is, for messages."""
    if isinstance(node, yaml.SequenceNode):
        return 'a list'
    if isinstance(node, yaml.MappingNode):
        return 'a mapping'
    return 'nothing' if _is_nothing(node) else shown(node.value)
