"""YAML as text: files are read into nodes, whose values an option's type decides, and plain values are written."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xagents.config.yaml_values import guess
from xagents.options.errors import nearest, shown
from xagents.system.names import CONFIG, GROUP

__all__ = ['dump', 'plain', 'read_nodes']


def read_nodes(path: str | os.PathLike[str]) -> dict[str, yaml.Node]:
    """Return the values of a file by key, dashes as underscores.

    Raises:
        ValueError: in one line that names the file, for what is no YAML mapping, or has a key twice.
    """
    try:
        text = Path(path).read_bytes().decode('utf-8-sig')
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        folder, name = os.path.split(path)
        files = [file.name for file in Path(folder or '.').glob('*.y*ml')] if os.path.isdir(folder or '.') else []
        raise ValueError(f'there is no file {shown(str(path))}{nearest(name, files)}') from None
    except (OSError, ValueError) as error:
        raise ValueError(f'{shown(str(path))}: {_why_unread(path, error)}') from error
    except yaml.YAMLError as error:
        raise ValueError(f'{path}: is no YAML: {_where(error)}') from error
    except RecursionError:
        raise ValueError(f'{path}: is nested too deep, admits keys and their values') from None
    if not isinstance(root, yaml.MappingNode):
        got = 'is empty' if root is None else 'has no keys'
        raise ValueError(f'{path}: {got}, admits the flags of xagents train as keys, such as lr: 0.001')
    nodes: dict[str, yaml.Node] = {}
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f'{path}: line {key.start_mark.line + 1}: got a key of several parts, admits a flag')
        name = key.value.replace('-', '_')
        if name in nodes:
            raise ValueError(f'{path}: {shown(key.value)}: stands twice, the second time in line {_line(key)}')
        nodes[name] = value
    return nodes


def _why_unread(path: str | os.PathLike[str], error: OSError | ValueError) -> str:
    if isinstance(error, IsADirectoryError):
        holds = next((name for name in (CONFIG, GROUP) if os.path.isfile(os.path.join(path, name))), None)
        return 'is a folder, admits a YAML file' + (f' (did you mean {os.path.join(path, holds)}?)' if holds else '')
    if isinstance(error, UnicodeDecodeError):
        return 'is no text in UTF-8'
    return f'cannot be read ({getattr(error, "strerror", None) or error})'


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, 'problem_mark', None)
    problem = getattr(error, 'problem', None) or ' '.join(str(error).split())
    return f'{problem}, line {mark.line + 1}' if mark else shown(problem)


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


class _Dumper(yaml.SafeDumper):
    """Lists stand on one line, and what stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _one_line(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    return dumper.represent_sequence('tag:yaml.org,2002:seq', values, flow_style=True)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # quoted where it would be read as something else, which YAML knows of 1e3 only without a point
    node = dumper.represent_str(text)
    if node.style is None and guess(node) != text:
        node.style = "'"
    return node


_Dumper.add_representer(list, _one_line)
_Dumper.add_representer(str, _text)


def dump(settings: Mapping[str, Any]) -> str:
    """Return a mapping of plain values as YAML, a key a line."""
    # in ASCII: with allow_unicode PyYAML does not quote every control character that it reads as a line break
    return yaml.dump(settings, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=math.inf)


def plain(value: Any) -> Any:
    """Return a value in YAML's own types."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if hasattr(value, 'tolist'):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, '__fspath__'):
        return value.__fspath__()
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
