"""The pages of the site that are made of the code: rooms with their reference, public names, commands."""

from __future__ import annotations

import ast
import functools
import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import xagents
from docs.write_agents import table
from xagents.cli.commands import commands
from xagents.cli.usage import shown_default
from xagents.options import Option
from xagents.registry.agents import OURS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'xagents'


def made_pages() -> Iterator[tuple[str, str]]:
    """Yield the paths of all pages that are made of the code, and their Markdown."""
    for room in rooms():
        yield f'rooms/{room}.md', room_page(room)
    yield 'rooms/index.md', rooms_page()
    yield 'agents/index.md', agents_page()
    yield 'api.md', names_page()
    yield 'commands.md', commands_page()
    yield 'options.md', options_page()


@functools.cache
def floors() -> list[list[str]]:
    """Return the rooms of each floor, from the top down, as the linter's contract has them."""
    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    layers = settings['tool']['importlinter']['contracts'][0]['layers']
    return [layer.replace('|', ':').replace(' ', '').split(':') for layer in layers]


def rooms() -> list[str]:
    """Return the names of all rooms, from the top floor down."""
    return [room for floor in floors() for room in floor]


# rooms


def files(room: str) -> dict[str, str]:
    """Return the modules of a room with their docstrings, the room itself first."""
    paths = sorted((PACKAGE / room).rglob('*.py'), key=lambda path: (path.parent, path.name != '__init__.py', path))
    return {module_of(path): ast.get_docstring(ast.parse(path.read_text())) or '' for path in paths}


def module_of(path: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


@functools.cache
def doors(room: str) -> list[str]:
    """Return the rooms that one imports."""
    found = set()
    for path in (PACKAGE / room).rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ''] if isinstance(node, ast.ImportFrom) else []
            found |= {name.split('.')[1] for name in names if name.startswith('xagents.')}
    return [other for other in rooms() if other in found - {room}]


def room_page(room: str) -> str:
    """Return a room's page: what it is for, its doors, its files, and the reference of all that is public in it."""
    found = files(room)
    below, above = doors(room), [other for other in rooms() if room in doors(other)]
    name, *modules = found
    rows = '\n'.join(f'| [{cut(one, name)}](#{one}) | {first_line(found[one])} |' for one in modules)
    return '\n\n'.join(
        [
            f'# {room}',
            found[name],
            f'Imports: {links(below)}. Imported by: {links(above)}.',
            f'| file | |\n|---|---|\n{rows}',
            *(f'::: {module}' for module in modules),
        ]
    )


def rooms_page() -> str:
    """Return the page of all rooms, from the top floor down."""
    rows = [f'| [{room}]({room}.md) | {first_line(next(iter(files(room).values())))} |' for room in rooms()]
    text = (
        'From the top floor down: a room imports what stands below it and nothing above. '
        '[The house](../architecture.md) tells how that is meant, and where to find what.'
    )
    return '\n'.join(['# Rooms', '', text, '', '| room | |', '|---|---|', *rows, ''])


def cut(module: str, room: str) -> str:
    """Return a module's path inside its room."""
    return module.removeprefix(f'{room}.').replace('.', '/')


def links(names: list[str]) -> str:
    """Return links to the pages of rooms, from the page of one."""
    return ', '.join(f'[{name}]({name}.md)' for name in names) or 'none'


def first_line(text: str) -> str:
    """Return the first line of a docstring, as a cell of a table holds it."""
    return text.partition('\n')[0].replace('|', '&#124;')


# names, agents, commands


def names_page() -> str:
    """Return the page of what `import xagents` offers."""
    parts = [
        '# Python API',
        "What `import xagents` offers; a name is loaded when it is used. Other public names are on their rooms' pages.",
    ]
    for name in sorted(set(xagents.__all__) - {'__version__'}, key=str.lower):
        home = xagents._HOMES[name]
        says = docstring(home, name).partition('\n\n')[0].replace('\n', ' ')
        parts += [f'## xagents.{name}', f'{says} [More]({anchor(home, name)})']
    return '\n\n'.join([*parts, '## `xagents.__version__`', 'The version, as a text.']) + '\n'


def anchor(module: str, name: str) -> str:
    """Return where a name stands on its room's page, from the top of the site; for a private one its public owner."""
    parts = name.split('.')
    private = [i for i, part in enumerate(parts) if part.startswith('_')]
    public = '.'.join([module, *parts[: private[0] if private else None]])
    return f'rooms/{module.split(".")[1]}.md#{public}'


def docstring(module: str, name: str) -> str:
    """Return what the code says of a module's class, function or variable."""
    body = ast.parse((ROOT / module.replace('.', '/')).with_suffix('.py').read_text()).body
    for node, after in itertools.pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ''
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in map(ast.unparse, targets(node)):
            says = after.value if isinstance(after, ast.Expr) else None
            return str(says.value) if isinstance(says, ast.Constant) else ''
    raise ValueError(f'{name} is not defined in {module}')


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Return what an assignment sets."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def agents_page() -> str:
    """Return the page of all agents."""
    rows = [f'| [{entry.class_name}]({entry.id}.md) | `{entry.id}` | {entry.help} |' for entry in OURS.values()]
    return '\n'.join(['# Agents', '', '| | | |', '|---|---|---|', *rows, ''])


def commands_page() -> str:
    """Return the page of all commands and their options; agents' own options are on their pages."""
    parts = [
        '# Commands',
        'Every command, and its options that all agents share, as `xagents <command>` prints them. Those of one agent '
        'are on its page, and `xagents <command> <agent>` prints them, too.',
    ]
    for command in commands.values():
        usage = '\n'.join(f'xagents {command.name} {line}' for line in command.examples)
        parts += [f'## {command.name}', f'{command.help}.', f'```\n{usage}\n```']
        if command.takes_agent:
            pages = ', '.join(f'[{entry.class_name}](agents/{entry.id}.md#options)' for entry in OURS.values())
            parts.append(f'And the options of the agent: {pages}.')
        for title, section in command.sections(None).items():
            parts += [f'**{title}**', table(list(section.values()))]
    return '\n\n'.join(parts) + '\n'


def options_page() -> str:
    """Return the page of all options, a heading each: what they do, and who takes them."""
    found: dict[str, dict[str, list[str]]] = {}
    for command in commands.values():
        for agent in (None, *OURS) if command.takes_agent else (None,):
            shared = set() if agent is None else set(command.options(None))
            for name, option in command.options(agent).items():
                if name not in shared:
                    takers = found.setdefault(option.flag, {}).setdefault(about(option), [])
                    takers.append(command.name if agent is None else f'{command.name} {agent}')
    parts = ['# Options', 'Every option of every command, in the order of the alphabet.']
    for flag, meanings in sorted(found.items()):
        parts.append(f'## {flag}')
        parts += [
            f'{text} Taken by {", ".join(f"`{taker}`" for taker in takers)}.' for text, takers in meanings.items()
        ]
    return '\n\n'.join(parts) + '\n'


def about(option: Option) -> str:
    """Return what an option does, admits and is when it is not given, as sentences."""
    default = shown_default(option.default)
    admits = 'A switch' if option.type is bool else f'Admits {option.admits}'
    unset = 'not given by default' if default == '-' else f'`{default}` by default'
    also = [flag for flag in option.flags if flag != option.flag]
    names = f' Also {", ".join(f"`{flag}`" for flag in also)}.' if also else ''
    text = option.help.replace('<', '&lt;')
    return f'{text[:1].upper()}{text[1:]}. {admits}; {unset}.{names}'
