"""What shells need to complete `xagents …`: a static script, written from the declarations; no Python runs at Tab.

The script knows what is installed when it is written: commands, agents (of other packages, too), their flags, choices,
and the names of registered parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xagents.cli.command import Command
from xagents.cli.completion_scripts import FILES, FOLDERS, NOTHING, SHELLS, Declared, Flag, bash, fish, zsh
from xagents.envs.named import envs
from xagents.options.agents import AgentOptions
from xagents.options.declaration import Option, describe
from xagents.options.errors import OptionError, nearest, shown
from xagents.registry import agents as registry
from xagents.runs.named import stages

# what stands behind a command that takes no agent, files where nothing is said
BEHIND = {'presets': 'agents', 'completion': 'shells', 'runs': 'folders'}


def completion_script(shell: str, commands: Mapping[str, Command]) -> str:
    """Return the script that lets a shell complete commands, agents, flags, choices and paths.

    Args:
        shell: bash, zsh or fish.
        commands: by name.

    Raises:
        OptionError: for another shell.
    """
    if shell not in SHELLS:
        raise OptionError('shell', f'got {shown(shell)}, admits one of {", ".join(SHELLS)}{nearest(shell, SHELLS)}')
    return {'bash': bash, 'zsh': zsh, 'fish': fish}[shell](_declared(commands))


def _declared(commands: Mapping[str, Command]) -> Declared:
    agents = {id: help for id, help in registry.listed().items() if id in registry.agents}
    shared = describe(AgentOptions)
    own = {
        id: [f for o in describe(registry.agents[id].options).values() if o.name not in shared for f in _flags(o)]
        for id in agents
    }
    behind = {
        command.name: 'agents' if command.takes_agent else BEHIND.get(command.name, FILES)
        for command in commands.values()
    }
    helps = {command.name: command.help for command in commands.values()}
    flags = {name: [*_flags_of(c), Flag('--help', 'show the options', switch=True)] for name, c in commands.items()}
    values: dict[str, dict[str, tuple[str, str]]] = {}
    for name, command in commands.items():
        # an option may take one value of an agent and several of the search of tune
        for id in agents if command.takes_agent else (None,):
            for flag in _flags_of(command, id):
                if not flag.switch:
                    values.setdefault(flag.name, {})[name] = flag.takes, 'many' if flag.many else 'one'
    taking = [command.name for command in commands.values() if command.takes_agent]
    return Declared(helps, agents, taking, behind, flags, own, values)


def _flags_of(command: Command, agent_id: str | None = None) -> list[Flag]:
    sections = command.sections(agent_id).values()
    return [flag for section in sections for option in section.values() for flag in _flags(option)]


def _flags(option: Option) -> Iterator[Flag]:
    if option.without_effect:
        return
    for name in option.flags:
        off = name.startswith('--no-') and option.type is bool
        help = f'{"not: " if off else ""}{option.help}'
        yield Flag(name, help, _taken(option), option.type is bool, option.takes_several)


def _taken(option: Option) -> str:
    if option.choices is not None:
        return ' '.join(map(str, option.choices))
    if option.name == 'env':
        return ' '.join([*_environments(), *envs.names()])
    if option.name == 'stages':
        return ' '.join(stages.names())
    return {'PATH': FILES, 'FILE': FILES, 'CFG': FILES, 'DIR': FOLDERS}.get(option.metavar, NOTHING)


def _environments() -> list[str]:
    """The ids of Gymnasium, the newest version of each."""
    from gymnasium.envs.registration import registry as specs

    newest: dict[str, tuple[int, str]] = {}
    for id, spec in specs.items():
        if spec.namespace is None:
            newest[spec.name] = max(newest.get(spec.name, (0, '')), (spec.version or 0, id))
    return sorted(id for _, id in newest.values())
