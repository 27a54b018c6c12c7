"""The text of the completion scripts, a function a shell; `xagents.cli.completion` says what goes into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

SHELLS = ('bash', 'zsh', 'fish')
FILES, FOLDERS, NOTHING = 'files', 'folders', ''


@dataclass(frozen=True)
class Flag:
    """One flag of a command or an agent.

    Args:
        name: with its dashes.
        help: one line.
        takes: `files`, `folders`, words with spaces between them, or nothing of which a shell knows.
        switch: whether it takes no value.
        many: whether it takes several.
    """

    name: str
    help: str
    takes: str = NOTHING
    switch: bool = False
    many: bool = False


class Declared(NamedTuple):
    """All that a script is written from.

    Args:
        commands: help by name.
        agents: help by id.
        taking: the commands that take an agent and then options.
        behind: what stands behind a command: `agents`, `shells`, `files` or `folders`.
        flags: of each command, those of every agent among them.
        own: of each agent, those that only some agents have.
        values: what a flag takes and whether it takes several, by flag and command.
    """

    commands: dict[str, str]
    agents: dict[str, str]
    taking: list[str]
    behind: dict[str, str]
    flags: dict[str, list[Flag]]
    own: dict[str, list[Flag]]
    values: dict[str, dict[str, tuple[str, str]]]


def _values(declared: Declared) -> dict[tuple[str, str], list[str]]:
    """Return, for what a flag takes and whether it takes several, `command:flag` patterns; `*` is any command."""
    patterns: dict[tuple[str, str], list[str]] = {}
    for name, taken in declared.values.items():
        if len(set(taken.values())) == 1:
            patterns.setdefault(next(iter(taken.values())), []).append(f'*:{name}')
        else:
            for command, value in taken.items():
                patterns.setdefault(value, []).append(f'{command}:{name}')
    return patterns


def _cases(cases: Mapping[str, str], indent: int) -> str:
    return '\n'.join(f'{" " * indent}{pattern}) {action} ;;' for pattern, action in cases.items())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _words(flags: Iterable[Flag]) -> str:
    return ' '.join(dict.fromkeys(flag.name for flag in flags))


_BASH = r"""# completes `xagents`; made by `xagents completion bash`
_xagents_matching() {
    local IFS=$' \n'
    COMPREPLY=($(compgen -W "$1" -- "$2"))
}

_xagents_paths() {
    local IFS=$'\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen "$1" -- "$2"))
}

_xagents_offer() {
    case "$1" in
        files) _xagents_paths -f "$2" ;;
        folders) _xagents_paths -d "$2" ;;
        *) _xagents_matching "$1" "$2" ;;
    esac
}

_xagents() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" behind='' flag='' taken=0 i
    local flags='' takes='' kind=switch
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _xagents_matching '@COMMANDS@ --help --version' "$current"
        return
    fi
    case "$command" in
@BEHIND@
        *) return ;;
    esac
    case "$command" in
@FLAGS@
    esac
    if [[ $behind == agents ]]; then
        if ((COMP_CWORD == 2)); then
            [[ $current == -* ]] && behind='--help' || behind='@AGENTS@'
            _xagents_matching "$behind" "$current"
            return
        fi
        case "${COMP_WORDS[2]}" in
@OWN@
        esac
    fi
    [[ $current == = ]] && current='' # --flag=value is three words to bash
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == --* ]]; then
            flag="${COMP_WORDS[i]}" taken=0
        elif [[ ${COMP_WORDS[i]} != = ]]; then
            ((taken++))
        fi
    done
    if [[ -n $flag ]]; then
        case "$command:$flag" in
@VALUES@
        esac
    fi
    if [[ $current == -* ]]; then
        _xagents_matching "$flags" "$current"
    elif [[ $kind == many || ($kind == one && $taken == 0) ]]; then
        _xagents_offer "$takes" "$current"
    elif [[ $behind == files || $behind == folders ]]; then
        _xagents_offer "$behind" "$current"
    elif [[ $behind != agents && $COMP_CWORD -eq 2 ]]; then
        _xagents_matching "$behind" "$current"
    else
        _xagents_matching "$flags" "$current"
    fi
}

complete -F _xagents xagents
"""


def bash(declared: Declared) -> str:
    """Return the script for bash."""
    words = {'agents': ' '.join(declared.agents), 'shells': ' '.join(SHELLS)}
    behind = {
        name: f'behind={_quoted(kind if name in declared.taking else words.get(kind, kind))}'
        for name, kind in declared.behind.items()
    }
    return _filled(
        _BASH,
        COMMANDS=' '.join(declared.commands),
        AGENTS=words['agents'],
        BEHIND=_cases(behind, 8),
        FLAGS=_cases({name: f'flags={_quoted(_words(flags))}' for name, flags in declared.flags.items()}, 8),
        OWN=_cases({id: f'flags+={_quoted(" " + _words(flags))}' for id, flags in declared.own.items()}, 12),
        VALUES=_value_cases(declared, 12),
    )


def _value_cases(declared: Declared, indent: int) -> str:
    patterns = _values(declared)
    return _cases({'|'.join(where): f'takes={_quoted(t)} kind={kind}' for (t, kind), where in patterns.items()}, indent)


def _filled(template: str, **parts: str) -> str:
    return re.sub(r'@([A-Z]+)@', lambda place: parts[place[1]], template)


_ZSH = r"""#compdef xagents
# completes `xagents`; made by `xagents completion zsh`
_xagents() {
    local current="${words[CURRENT]}" command="${words[2]}" behind='' flag='' takes='' kind=switch
    local -i taken=0 i
    local -a flags commands agents
    commands=(
@COMMANDS@
    )
    agents=(
@AGENTS@
    )
    if ((CURRENT == 2)); then
        _describe -t commands command commands
        [[ $current == -* ]] && compadd -- --help --version
        return
    fi
    case "$command" in
@BEHIND@
        *) return 1 ;;
    esac
    case "$command" in
@FLAGS@
    esac
    if [[ $behind == agents ]]; then
        if ((CURRENT == 3)); then
            _describe -t agents agent agents
            return
        fi
        case "${words[3]}" in
@OWN@
        esac
    fi
    for ((i = 3; i < CURRENT; i++)); do
        if [[ ${words[i]} == --* ]]; then
            flag="${words[i]}" taken=0
        else
            ((taken += 1))
        fi
    done
    if [[ -n $flag ]]; then
        case "$command:$flag" in
@VALUES@
        esac
    fi
    if [[ $current == -* ]]; then
        _describe -o option flags
        return
    elif [[ $kind == many || ($kind == one && $taken == 0) ]]; then
        behind=$takes
    elif [[ $behind == agents ]]; then
        _describe -o option flags
        return
    elif [[ $behind == presets ]]; then
        _describe -t agents agent agents
        return
    fi
    case "$behind" in
        files) _files ;;
        folders) _files -/ ;;
        *) compadd -- ${=behind} ;;
    esac
}

if [[ $funcstack[1] == _xagents ]]; then
    _xagents "$@"
else
    compdef _xagents xagents
fi
"""


def zsh(declared: Declared) -> str:
    """Return the script for zsh."""
    words = {'shells': ' '.join(SHELLS), 'agents': 'presets'}
    behind = {
        name: f'behind={_quoted(kind if name in declared.taking else words.get(kind, kind))}'
        for name, kind in declared.behind.items()
    }
    flags = {name: f'flags=(\n{_described(flags, 12)}\n        )' for name, flags in declared.flags.items()}
    own = {id: f'flags+=(\n{_described(flags, 16)}\n            )' for id, flags in declared.own.items()}
    return _filled(
        _ZSH,
        COMMANDS=_named(declared.commands, 8),
        AGENTS=_named(declared.agents, 8),
        BEHIND=_cases(behind, 8),
        FLAGS=_cases(flags, 8),
        OWN=_cases(own, 12),
        VALUES=_value_cases(declared, 12),
    )


def _named(helps: Mapping[str, str], indent: int) -> str:
    escaped = {name: help.replace('\\', '\\\\').replace(':', '\\:') for name, help in helps.items()}
    return '\n'.join(' ' * indent + _quoted(f'{name}:{help}') for name, help in escaped.items())


def _described(flags: Iterable[Flag], indent: int) -> str:
    return _named({flag.name: flag.help for flag in flags}, indent)


_FISH = r"""# completes `xagents`; made by `xagents completion fish`
function __xagents_at --argument-names place
    test (count (commandline -opc)) -eq $place
end

function __xagents_on
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[2] $argv
end

function __xagents_agent
    set -l words (commandline -opc)
    test (count $words) -ge 3; and contains -- $words[2] @TAKING@; and contains -- $words[3] $argv
end

# whether the last flag is one of $argv, all of which take several values
function __xagents_more
    set -l flag
    for word in (commandline -opc)[3..-1]
        string match -q -- '--*' $word; and set flag $word
    end
    contains -- "$flag" $argv
end

complete -c xagents -f
complete -c xagents -n '__xagents_at 1' -l version -d 'show the version'
@LINES@
"""


def fish(declared: Declared) -> str:
    """Return the script for fish."""
    taking = ' '.join(declared.taking)
    lines = []
    for name, help in declared.commands.items():
        lines.append(f"complete -c xagents -n '__xagents_at 1' -a {name} -d {_fish_quoted(help)}")
    presets = ' '.join(n for n, kind in declared.behind.items() if kind == 'agents')
    for id, help in declared.agents.items():
        where = f"-n '__xagents_at 2; and __xagents_on {presets}'"
        lines.append(f'complete -c xagents {where} -a {id} -d {_fish_quoted(help)}')
    for name, kind in declared.behind.items():
        if kind != 'agents':
            lines.append(f"complete -c xagents -n '__xagents_on {name}' {_fish_values(kind)}")
    for name, flags in declared.flags.items():
        lines += [_fish_flag(f'__xagents_on {name}', flag) for flag in flags]
        lines += [
            f"complete -c xagents -n '__xagents_on {name}; and __xagents_more {flag.name}' {_fish_values(flag.takes)}"
            for flag in flags
            if flag.many and flag.takes
        ]  # fish asks for a first value by itself, and for no second one
    for id, flags in declared.own.items():
        lines += [_fish_flag(f'__xagents_agent {id}', flag) for flag in flags]
    return _filled(_FISH, TAKING=taking, LINES='\n'.join(lines))


def _fish_flag(where: str, flag: Flag) -> str:
    values = '' if flag.switch else ' -r ' + (_fish_values(flag.takes) if flag.takes else '-f')
    return f"complete -c xagents -n '{where}' -l {flag.name[2:]}{values} -d {_fish_quoted(flag.help)}"


def _fish_values(takes: str) -> str:
    if takes == FILES:
        return '-F'
    if takes == FOLDERS:
        return "-f -a '(__fish_complete_directories)'"
    return f'-f -a {_fish_quoted(" ".join(SHELLS) if takes == "shells" else takes)}'


def _fish_quoted(text: str) -> str:
    return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"
