"""Pages of the site that are generated from the code: package reference, Python API, agents, commands, options."""

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
from xagents.cli.usage import format_default
from xagents.options import Option, keywords
from xagents.registry.agents import BUILTIN_AGENTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'xagents'


def made_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each generated page."""
    for package in packages():
        yield f'packages/{package}.md', package_page(package)
    yield 'packages/index.md', packages_page()
    yield 'agents/index.md', agents_page()
    yield 'api.md', names_page()
    yield 'commands.md', commands_page()
    yield 'options.md', options_page()


@functools.cache
def layers() -> list[list[str]]:
    """Return the packages of each layer, from the top layer down, as the import-linter contract lists them."""
    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    contract = settings['tool']['importlinter']['contracts'][0]
    return [layer.replace('|', ':').replace(' ', '').split(':') for layer in contract['layers']]


def packages() -> list[str]:
    """Return the names of all packages, from the top layer down."""
    return [package for layer in layers() for package in layer]


# packages


def files(package: str) -> dict[str, str]:
    """Return the modules of a package and their docstrings, the package itself first."""
    paths = sorted((PACKAGE / package).rglob('*.py'), key=lambda path: (path.parent, path.name != '__init__.py', path))
    return {module_of(path): ast.get_docstring(ast.parse(path.read_text())) or '' for path in paths}


def module_of(path: Path) -> str:
    """Return the import name of a file."""
    parts = path.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


@functools.cache
def imports(package: str) -> list[str]:
    """Return the other packages that a package imports."""
    found = set()
    for path in (PACKAGE / package).rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ''] if isinstance(node, ast.ImportFrom) else []
            found |= {name.split('.')[1] for name in names if name.startswith('xagents.')}
    return [other for other in packages() if other in found - {package}]


def package_page(package: str) -> str:
    """Return the page of a package: its purpose, imports, files, and the reference of its public names."""
    found = files(package)
    below, above = imports(package), [other for other in packages() if package in imports(other)]
    name, *modules = found
    rows = '\n'.join(f'| [{cut(one, name)}](#{one}) | {first_line(found[one])} |' for one in modules)
    return '\n\n'.join(
        [
            f'# {package}',
            found[name],
            f'Imports: {links(below)}. Imported by: {links(above)}.',
            f'| file | purpose |\n|---|---|\n{rows}',
            *(f'::: {module}' for module in modules),
        ]
    )


def packages_page() -> str:
    """Return the page that lists all packages, from the top layer down."""
    rows = [f'| [{name}]({name}.md) | {first_line(next(iter(files(name).values())))} |' for name in packages()]
    text = (
        'The packages of xagents, from the top layer down. A package imports only packages of lower layers. '
        '[The page about the architecture](../architecture.md) explains the layers and helps to find code.'
    )
    return '\n'.join(['# Packages', '', text, '', '| package | purpose |', '|---|---|', *rows, ''])


def cut(module: str, package: str) -> str:
    """Return the path of a module inside its package."""
    return module.removeprefix(f'{package}.').replace('.', '/')


def links(names: list[str]) -> str:
    """Return links to pages of packages, relative to the page of a package."""
    return ', '.join(f'[{name}]({name}.md)' for name in names) or 'none'


def first_line(text: str) -> str:
    """Return the first line of a docstring, escaped for a cell of a table."""
    return text.partition('\n')[0].replace('|', '&#124;')


# names, agents, commands


def names_page() -> str:
    """Return the page of the names that `import xagents` provides."""
    parts = [
        '# Python API',
        'The names that `import xagents` provides. Each is loaded when it is first used. '
        'Other public names are on the [pages of their packages](packages/index.md).',
    ]
    for name in sorted(set(xagents.__all__) - {'__version__'}, key=str.lower):
        home = xagents._MODULES[name]
        says = docstring(home, name).partition('\n\n')[0].replace('\n', ' ')
        parts += [f'## xagents.{name}', *signature(home, name), f'{says} [More]({anchor(home, name)})']
    for name in ('fit', 'train_iter'):
        method, says = f'BaseAgent.{name}', 'A method of every agent.'
        parts += [f'## agent.{name}', *signature('xagents.base.agent', method)]
        parts += [f'{says} [More]({anchor("xagents.base.agent", method)})']
    return '\n\n'.join([*parts, '## `xagents.__version__`', 'The version as a string.']) + '\n'


def signature(module: str, name: str) -> list[str]:
    """Return the signature of a function or method as a block of code, and the names of its keywords.

    The result is empty for other objects.
    """
    body: list[ast.stmt] = ast.parse((ROOT / module.replace('.', '/')).with_suffix('.py').read_text()).body
    node: ast.stmt | None = None
    for part in name.split('.'):
        node = next((n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part), None)
        body = node.body if isinstance(node, ast.ClassDef) else []
    if not isinstance(node, ast.FunctionDef):
        return []
    returned = f' -> {ast.unparse(node.returns)}' if node.returns else ''
    parts = [f'```python\n{node.name}({ast.unparse(node.args)}){returned}\n```']
    typed = ast.unparse(node.args.kwarg.annotation) if node.args.kwarg and node.args.kwarg.annotation else ''
    if typed.startswith('Unpack['):
        names = ', '.join(f'`{key}`' for key in getattr(keywords, typed[7:-1]).__annotations__)
        parts.append(f'Keywords (see [the options](options.md)): {names}.')
    return parts


def anchor(module: str, name: str) -> str:
    """Return the link to a name on the page of its package, relative to the root of the site.

    The link of a private name leads to its public owner.
    """
    parts = name.split('.')
    private = [i for i, part in enumerate(parts) if part.startswith('_')]
    public = '.'.join([module, *parts[: private[0] if private else None]])
    return f'packages/{module.split(".")[1]}.md#{public}'


def docstring(module: str, name: str) -> str:
    """Return the docstring of a class, function or variable of a module.

    Raises:
        ValueError: if the module does not define the name.
    """
    body = ast.parse((ROOT / module.replace('.', '/')).with_suffix('.py').read_text()).body
    for node, after in itertools.pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ''
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in map(ast.unparse, targets(node)):
            says = after.value if isinstance(after, ast.Expr) else None
            return str(says.value) if isinstance(says, ast.Constant) else ''
    raise ValueError(f'{name} is not defined in {module}')


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Return the targets of an assignment."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def agents_page() -> str:
    """Return the page that lists all agents."""
    rows = [
        f'| [{entry.class_name}]({entry.id}.md) | `{entry.id}` | {entry.help} |' for entry in BUILTIN_AGENTS.values()
    ]
    return '\n'.join(['# Agents', '', '| agent | id | algorithm |', '|---|---|---|', *rows, ''])


def commands_page() -> str:
    """Return the page of all commands and their shared options; each agent's page lists the options of the agent."""
    parts = [
        '# Commands',
        'All commands and the options that all agents share, as `xagents <command>` prints them. '
        "An agent's page lists the options of that agent; `xagents <command> <agent>` prints them, too.",
    ]
    for command in commands.values():
        usage = '\n'.join(f'xagents {command.name} {line}' for line in command.examples)
        parts += [f'## {command.name}', f'{command.help}.', f'```\n{usage}\n```']
        if command.takes_agent:
            pages = ', '.join(
                f'[{entry.class_name}](agents/{entry.id}.md#options)' for entry in BUILTIN_AGENTS.values()
            )
            parts.append(f'Also the options of the agent: {pages}.')
        for title, section in command.sections(None).items():
            parts += [f'**{title}**', table(list(section.values()))]
    return '\n\n'.join(parts) + '\n'


def options_page() -> str:
    """Return the page of all options: for each, its help and the commands and agents that accept it."""
    found: dict[str, dict[str, list[str]]] = {}
    for command in commands.values():
        for agent in (None, *BUILTIN_AGENTS) if command.takes_agent else (None,):
            shared = set() if agent is None else set(command.options(None))
            for name, option in command.options(agent).items():
                if name not in shared:
                    takers = found.setdefault(option.flag, {}).setdefault(about(option), [])
                    takers.append(command.name if agent is None else f'{command.name} {agent}')
    parts = ['# Options', 'All options of all commands, in alphabetical order.']
    for flag, meanings in sorted(found.items()):
        parts.append(f'## {flag}')
        parts += [
            f'{text} Accepted by {", ".join(f"`{taker}`" for taker in takers)}.' for text, takers in meanings.items()
        ]
    return '\n\n'.join(parts) + '\n'


def about(option: Option) -> str:
    """Return the help, the accepted values and the default of an option as sentences."""
    default = format_default(option)
    admits = 'A switch' if option.type is bool else f'Accepts {option.expected}'
    unset = 'not given by default' if default == '-' else f'`{default}` by default'
    also = [flag for flag in option.flags if flag != option.flag]
    names = f' Also {", ".join(f"`{flag}`" for flag in also)}.' if also else ''
    text = option.help.replace('<', '&lt;')
    return f'{text[:1].upper()}{text[1:]}. {admits}; {unset}.{names}'
