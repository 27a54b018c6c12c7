"""Scripts for shells that complete `xagents …`. shtab writes the scripts from the declarations of the options.

A script contains the names of parts that are installed when it is written. Pressing Tab starts no Python.
"""

from __future__ import annotations

from argparse import ArgumentParser as Parser
from collections.abc import Iterable, Mapping
from typing import Any

import shtab

from xagents.cli.checks import SHELLS
from xagents.cli.command import Command
from xagents.envs.registry import env_registry
from xagents.factory.pretrained import list_pretrained
from xagents.registry import agents as registry
from xagents.runs.registry import stage_registry

PATHS = {'PATH': shtab.FILE, 'FILE': shtab.FILE, 'CFG': shtab.FILE, 'DIR': shtab.DIRECTORY}
# completion in bash after an agent or a switch, before a dash is typed
PREAMBLE = '_xagents_flags() { compgen -W "${current_option_strings[*]}" -- "$1"; }'
FLAGS = {'bash': '_xagents_flags', 'preamble': {'bash': PREAMBLE}}
# Bash splits --flag=value into three words. A flag after a flag with paths would be completed as another path, so the
# words before the flag are hidden from shtab.
WORDS = r"""
_xagents() {
    local current="${COMP_WORDS[COMP_CWORD]#=}" word words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        [[ $current == -* && $word == -* ]] && break
        [[ $word == = ]] || words+=("$word")
    done
    COMP_CWORD=${#words[@]} COMP_WORDS=("${words[@]}" "$current")
    _shtab_xagents
}
complete -o bashdefault -F _xagents xagents
"""


def completion_script(shell: str, commands: Mapping[str, Command]) -> str:
    """Return a script for a shell, one of `SHELLS`, that completes commands, agents, flags, choices and paths."""
    # agents that cannot be loaded are left out
    agents = {id: line for id, line in registry.help_lines().items() if id in registry.agents}
    names = {'env': [*_environments(), *env_registry.names()], 'stages': stage_registry.names()}
    behind: dict[str, dict[str, Any]] = {
        'explore': {'dest': 'address'},
        'datasets': {'dest': 'name', 'nargs': '*'},
        'presets': {'dest': 'agent', 'choices': list(agents)},
        'doctor': {'dest': 'environment', 'choices': names['env'], 'nargs': '*'},
        'completion': {'dest': 'shell', 'choices': SHELLS},
        'runs': {'dest': 'folder', 'complete': shtab.DIRECTORY, 'nargs': '*'},
        'report': {'dest': 'folder', 'complete': shtab.DIRECTORY, 'nargs': '*'},
        'plot': {'dest': 'history', 'complete': shtab.FILE, 'nargs': '*'},
        'compare': {'dest': 'group', 'complete': shtab.DIRECTORY, 'nargs': '*'},
    }
    parser = Parser('xagents')
    _add(parser, '--version', action='store_true', help='show the version')
    _add(parser, '--verbose', action='store_true', help='with --version: also the installed versions')
    by_command = parser.add_subparsers()
    for command in commands.values():
        own = by_command.add_parser(command.name, help=command.help)
        _add_flags(own, command, None, names)
        if not command.takes_agent:
            _add(own, **behind[command.name])
            continue
        by_agent = own.add_subparsers()
        for agent_id, line in agents.items():
            one = by_agent.add_parser(agent_id, help=line.replace('%', '%%'))
            _add_flags(one, command, agent_id, {**names, 'pretrained': [p.env for p in list_pretrained(agent_id)]})
            if shell == 'bash':
                _add(one, 'flags', complete=FLAGS)
    return shtab.complete(parser, shell) + (WORDS if shell == 'bash' else '')


def _add_flags(parser: Parser, command: Command, agent_id: str | None, names: Mapping[str, Iterable[str]]) -> None:
    """Add the flags of a command. `names` contains the choices of options that depend on installed packages."""
    options = [option for section in command.sections(agent_id).values() for option in section.values()]
    for option in (option for option in options if not option.ignored):
        if option.type is bool:
            for flag in option.flags:
                off = 'not: ' if flag.startswith('--no-') else ''
                _add(parser, flag, action='store_true', help=off + option.help)
        else:
            choices = option.choices or names.get(option.name) or None
            values = {'nargs': '+' if option.accepts_multiple else None, 'choices': choices}
            _add(parser, *option.flags, help=option.help, complete=PATHS.get(option.metavar), **values)


def _add(parser: Parser, *flags: str, help: str = '', complete: Any = None, **keywords: Any) -> None:
    argument = parser.add_argument(*flags, help=help.replace('%', '%%'), **keywords)
    if complete:
        argument.complete = complete  # type: ignore[attr-defined]


def _environments() -> list[str]:
    """Return the ids of Gymnasium's own environments, the newest version of each."""
    from gymnasium.envs.registration import registry as specs

    known = sorted(specs.items(), key=lambda item: item[1].version or 0)
    return sorted({spec.name: id for id, spec in known if spec.namespace is None}.values())
