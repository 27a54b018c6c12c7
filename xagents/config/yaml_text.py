"""Reading YAML files into nodes, whose values depend on the options' types, and writing plain values as YAML."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xagents.config.yaml_values import add_scalar_resolvers
from xagents.options.errors import did_you_mean, format_value, one_line
from xagents.system.file_names import CONFIG, GROUP


class _Loader(yaml.BaseLoader):
    """A loader that creates no Python objects."""


class _Dumper(yaml.SafeDumper):
    """A dumper that writes a list on one line, and a repeated value a second time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# quote texts that this reader or other YAML readers would take for another type
add_scalar_resolvers(_Loader)
add_scalar_resolvers(_Dumper)
_Dumper.add_representer(list, lambda dumper, values: dumper.represent_sequence('tag:yaml.org,2002:seq', values, True))


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
