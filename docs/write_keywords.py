"""Write `xagents/options/keywords.py`: the keyword arguments of `make`, `fit`, `tune` and others, for type checkers.

Run it after an option was added or changed: `python docs/write_keywords.py` (`make docs`).
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from pathlib import Path

from xagents.options.commands import TuneOptions
from xagents.options.declaration import Option, declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import DatasetOptions, ExplorerOptions, LoggingOptions, RunOptions, SessionOptions
from xagents.registry.agents import BUILTIN_AGENTS

FILE = Path(__file__).resolve().parents[1] / 'xagents' / 'options' / 'keywords.py'
HEAD = '''"""Keyword arguments of functions, for type checkers. Written by docs/write_keywords.py: do not edit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict
'''
Fields = dict[str, str]


def types_of(option: Option, searched: bool = False) -> list[str]:
    """Return the types of an option's values; if `searched`, a list of them defines a range."""
    if option.type is dict:
        kind = 'Mapping[str, Any]'
    elif option.choices is not None:
        kind = f'Literal[{", ".join(map(repr, option.choices))}]'
    elif option.name == 'wrapper':
        kind = 'str | Callable[..., Any]'
    elif option.type is str:
        kind = 'str | os.PathLike[str]'
    else:
        kind = option.type.__name__
    several = option.is_list or (searched and option.tune is not None)
    each = 'str' if option.choices is not None and option.type is str else kind
    return [kind, *([f'Sequence[{each}]'] if several else []), *(['None'] if option.optional else [])]


def fields(options: Iterable[Mapping[str, Option]], searched: bool = False) -> Fields:
    """Return the annotations of options by name, aliases included; equal names of several agents are joined."""
    found: dict[str, list[str]] = {}
    for option in (option for group in options for option in group.values()):
        for name in (option.name, *option.aliases):
            if not keyword.iskeyword(name):
                parts = found.setdefault(name, [])
                parts += [part for part in types_of(option, searched) if part not in parts]
    return {name: ' | '.join(sorted(parts, key='None'.__eq__)) for name, parts in found.items()}


def typed_dict(name: str, base: str, summary: str, own: Fields) -> str:
    """Return the code of a TypedDict whose keys are optional."""
    lines = '\n'.join(f'    {key}: {annotation}' for key, annotation in own.items())
    return f'\n\nclass {name}({base}, total=False):\n    """{summary}"""\n\n{lines}\n'


def text() -> str:
    """Return the contents of the file."""
    agents = [declared_options(entry.options) for entry in BUILTIN_AGENTS.values()]
    run = fields([declared_options(RunOptions)])
    made = fields([*map(declared_options, (EnvironmentOptions, NetworkOptions)), *agents])
    trial = (TuneOptions, EnvironmentOptions, NetworkOptions, LoggingOptions, DatasetOptions, ExplorerOptions)
    tuned = fields([*map(declared_options, (*trial, SessionOptions)), *agents], searched=True)
    for positional in (made, tuned):
        del positional['env']
    target = {'target_reward': run.pop('target_reward')}
    return ''.join(
        [
            HEAD,
            typed_dict('FitKeywords', 'TypedDict', 'Options of `fit`.', run),
            typed_dict('RunKeywords', 'FitKeywords', 'Options of `train_iter`.', target),
            typed_dict('MakeKeywords', 'RunKeywords', 'Options of `make`, of all built-in agents.', made),
            typed_dict('LoadKeywords', 'MakeKeywords', 'Options of `load` and `resume`.', {'env': 'Any'}),
            typed_dict('TuneKeywords', 'TypedDict', 'Options of `tune` and `evolve`. A list is a range.', tuned),
        ]
    )


if __name__ == '__main__':
    FILE.write_text(text())
