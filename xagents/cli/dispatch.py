"""The command line: `xagents <command> <agent> [options]`. Help and errors in the input do not load TensorFlow."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import sys
import sysconfig
import textwrap
import traceback
from argparse import ArgumentError, ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from xagents.cli.command import flag_parser
from xagents.cli.commands import Command, commands, find_command
from xagents.cli.usage import HELP_ALL, command_page, usage_page
from xagents.config.configuration import agents_with_option
from xagents.options.declaration import Option, declared_options
from xagents.options.errors import InputError, OptionError, but_of, format_value
from xagents.options.foreign_names import command_hint, foreign_hint, option_hint
from xagents.processes.parent_exit import exit_with_parent
from xagents.registry.agents import agent_names, agents, find_agent
from xagents.system import compilation_cache
from xagents.system.modules import import_modules
from xagents.system.startup import prepare_exit, prepare_process, replace_unencodable_characters
from xagents.system.versions import versions
from xagents.tuning.storages import mask_password
from xagents.version import __version__

HELP = ('-h', '--help', HELP_ALL)
# argparse in Python 3.11 parses -1e-3 as a flag
NEGATIVE_NUMBER = re.compile(r'^-((\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$', re.IGNORECASE)


def main() -> None:
    """Run the console script with the arguments of the process."""
    replace_unencodable_characters()
    exit_with_parent()
    try:
        execute()
    finally:
        prepare_exit()


def execute(argv: Sequence[str] | None = None) -> None:
    """Run one command, as a shell would.

    Args:
        argv: words after `xagents`. The default are the arguments of the process.

    Raises:
        SystemExit: if the command fails, with the exit code: 2 for wrong input, 130 for Ctrl-C, 143 for SIGTERM, 1 for
            other errors. The last line on stderr describes the error.
    """
    arguments = [str(word) for word in (sys.argv[1:] if argv is None else argv)]
    if code := _exit_code(arguments):
        # An exception with the traceback of the run would keep the run's objects until Python ends. Atari environments
        # then print that they were leaked.
        raise SystemExit(code)


def _exit_code(arguments: list[str]) -> int | str | None:
    """Run one command and return its exit code; None or 0 if it succeeds."""
    command = commands.get(arguments[0]) if arguments else None
    try:
        _dispatch(arguments)
    except SystemExit as stop:
        return stop.code
    except KeyboardInterrupt as stop:
        if not stop.args:  # with arguments, the run has printed its closing line
            print(f'xagents {command.name if command else ""}: interrupted', file=sys.stderr)
        return 130
    except (OptionError, InputError) as error:
        return _fail(error, command, arguments, 2)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_ended():
            return 1
        return _fail(error, command, arguments, 1)
    return None


def _dispatch(arguments: list[str]) -> None:
    words = [word for word in arguments if word not in HELP]
    if not words:
        return _show(usage_page())
    if words == ['--version']:
        return _show(f'xagents {__version__}')
    if words[0] == '--version':
        if words[1:] != ['--verbose']:
            raise OptionError('version', f'got {words[1]}, expected --verbose or nothing')
        return _show(_about())
    command = find_command(words[0])
    rest = words[1:]
    prepare_process()  # before modules of users, which may import TensorFlow
    others = _import_modules(command, rest)
    typed = command.takes_agent and bool(rest) and not rest[0].startswith('-')
    if typed and 'run_dir' in command.agent_sources and os.path.isdir(rest[0]):
        problem = f'got {format_value(rest[0])}, expected an agent, or nothing and --run-dir {format_value(rest[0])}'
        raise OptionError('agent', problem)
    agent_id = find_agent(rest[0]).id if typed else None
    if len(words) < len(arguments) or (len(others) <= typed and not command.runs_without_arguments):
        return _show(command_page(command, agent_id, complete=HELP_ALL in arguments))
    if command.takes_agent and agent_id is None:
        agent_id = _agent_in(command, rest)
    paths, given = parse(command, agent_id, rest[1:] if typed else rest)
    target = paths if agent_id is None else agent_id
    command.check(target, given)
    # hide passwords in URLs, because runs print and store the command line
    line = shlex.join(['xagents', *(mask_password(word) if '://' in word else word for word in arguments)])
    if (page := command.run(target, given, line)) is not None:
        _show(page)


def _import_modules(command: Command, rest: Sequence[str]) -> Sequence[str]:
    """Import the modules of --import and return the other words, which may contain names that the modules register."""
    option = command.options().get('imports')
    if option is None or not any(word.partition('=')[0] in option.flags for word in rest):
        return rest
    parser = _parser({option.name: option})
    with contextlib.suppress(ArgumentError):  # parse() raises an error with a message
        typed, others = parser.parse_known_args(rest)
        import_modules(vars(typed).get(option.name))
        return others
    return rest


def _about() -> str:
    """Return the installed versions and the cache directory of compiled programs."""
    lines = [' '.join(pair) for pair in versions().items()]
    return '\n'.join([*lines, f'compiled programs {compilation_cache.cache_summary()}'])


def _show(page: str) -> None:
    print(page, flush=True)


def _reader_has_ended() -> bool:
    """Return whether the reader of standard output, such as `head`, has ended; further output is then discarded."""
    with contextlib.suppress(OSError, AttributeError):  # no file, or a system without `poll`
        stdout, poll = sys.stdout.fileno(), select.poll()
        poll.register(stdout, 0)  # only for errors
        if poll.poll(0):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)  # else Python's last flush would raise
            return True
    return False


def _agent_in(command: Command, rest: Sequence[str]) -> str:
    """Return the agent of a command line that does not begin with an agent."""
    if (agent_id := command.find_agent_id(rest)) is None:
        flag = rest[0].partition('=')[0]
        known = [command.options(), *(declared_options(agents[owner].options) for owner in agents)]
        if not any(_has_flag(options, flag) for options in known):
            raise _unknown_flags([flag], command, None)
        file = ' and a --config without an agent' if '--config' in rest else ''
        raise OptionError('agent', f'got {format_value(rest[0])}{file}, expected one of {", ".join(agent_names())}')
    return agent_id


def parse(command: Command, agent_id: str | None, words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the paths, for a command without an agent, and the given options by name. Raise OptionError."""
    options = command.options(agent_id)
    parser = _parser(options)
    try:
        typed, others = parser.parse_known_args(words)
    except ArgumentError as error:
        raise _incomplete(error, parser, options) from None
    for option in options.values():
        typed_names = [flag for flag in option.flags if option.aliases and flag in words]
        if len(typed_names) > 1:
            raise OptionError(typed_names[1], f'is another name of {typed_names[0]}, expected one of the two')
    if flags := [word for word in others if word.startswith('-') and word != '--']:
        raise _unknown_flags(list(dict.fromkeys(flag.partition('=')[0] for flag in flags)), command, agent_id)
    paths = [word for word in others if not word.startswith('-')]
    if paths and command.takes_agent:
        raise InputError(f'{format_value(paths[0])}: belongs to no option, expected only flags and their values')
    return paths, {name: _value(options[name], value) for name, value in vars(typed).items()}


def _value(option: Option, typed: bool | str | list[str]) -> Any:
    if isinstance(typed, bool):
        return typed
    if typed == []:  # a switch without a value; of --flag=-- argparse drops the two dashes
        typed = ['true'] if option.type is bool else ['--'] if option.accepts_multiple else '--'
    return option.parse(typed)


def _parser(options: Mapping[str, Option]) -> ArgumentParser:
    parser = flag_parser()
    parser._negative_number_matcher = NEGATIVE_NUMBER
    for option in options.values():
        if option.type is not bool:
            nargs = '+' if option.accepts_multiple else None
            action = 'extend' if option.type is dict else 'store'  # further pairs after a second flag
            parser.add_argument(*option.flags, dest=option.name, nargs=nargs, action=action)
            continue
        for flag in option.flags:
            on = not flag.startswith('--no-')
            # a search may try both positions of a switch: --double false true
            how: dict[str, Any] = {'nargs': '*'} if on and option.is_list else {'action': 'store_const', 'const': on}
            parser.add_argument(flag, dest=option.name, **how)
    return parser


def _incomplete(error: ArgumentError, parser: ArgumentParser, options: Mapping[str, Option]) -> OptionError:
    # argparse may translate its messages, so the option's type determines the message
    flag = (error.argument_name or '').split('/')[0]
    option = options[parser._option_string_actions[flag].dest]
    if option.type is bool:
        return OptionError(flag, f'got a value, expected none: it is {" or ".join(option.flags)}')
    example = f', as in {flag} {option.metavar}' if option.metavar else ''
    return OptionError(flag, f'got nothing, expected {option.expected}{example}')


def _unknown_flags(flags: Sequence[str], command: Command, agent_id: str | None) -> OptionError:
    """Return the error for flags that a command does not have, with the nearest flag of each."""
    hints = [_flag_hint(flag, command, agent_id) for flag in flags]
    place = f'xagents {command.name}' + (f' {agent_id}' if agent_id else '')
    others = [f'; nor is {format_value(flag)}{hint}' for flag, hint in zip(flags[1:], hints[1:], strict=True)]
    return OptionError(format_value(flags[0]), f'is no option of {place}{hints[0]}{"".join(others)}')


def _flag_hint(flag: str, command: Command, agent_id: str | None) -> str:
    """Return the nearest flag, or the agents or commands that have the flag, for a message."""
    admitted = [flag for section in command.sections(agent_id).values() for o in section.values() for flag in o.flags]
    if flag == '--model' and '--actor-model' in admitted:
        return ' (did you mean --actor-model and --critic-model?)'
    known = {id: declared_options(agents[id].options) for id in agents} if command.takes_agent else {}
    owners = [id for id, options in known.items() if _has_flag(options, flag)]
    owners = owners or [f'xagents {other.name}' for other in commands.values() if _has_flag(other.options(), flag)]
    return (
        command_hint(command.name, flag)
        or foreign_hint(flag, admitted)
        or but_of(owners)
        or option_hint(flag, admitted)
    )


def _has_flag(options: Mapping[str, Option], flag: str) -> bool:
    return any(flag in option.flags and not option.ignored for option in options.values())


def _fail(error: Exception, command: Command | None, arguments: Sequence[str], code: int) -> int:
    """Print an error on one line, the last one on stderr, and return the exit code."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    debug = '--debug' in arguments
    if debug:
        traceback.print_exception(error)
    message = str(error)
    if isinstance(error, OptionError) and command is not None:
        agent_id = None
        if command.takes_agent:
            typed = [word for word in arguments[1:2] if word in agents]
            agent_id = next(iter(typed or agents_with_option(error.name)), None)
        option = command.options(agent_id).get(error.name)
        flags = option.flags if option else [error.name]
        typed_flags = [word.partition('=')[0] for word in arguments]
        message = f'{next((flag for flag in flags if flag in typed_flags), flags[0])}: {error.problem}'
    if isinstance(error, ModuleNotFoundError) and not (error.name or '').startswith('xagents'):
        message = f'this command needs {error.name}, which is not installed: pip install . in a clone of xagents'
    elif code == 1:
        message = textwrap.shorten(f'{type(error).__name__}: {message}', 500, placeholder=' …')
        notes = [_user_line(error), '' if debug else '--debug shows the traceback']
        message += f' ({"; ".join(filter(None, notes))})' if any(notes) else ''
    print(f'xagents{f" {command.name}" if command else ""}: {" ".join(message.split())}', file=sys.stderr)
    return code


def _user_line(error: Exception) -> str:
    """Return file and line of the user's own code that raised an error, or an empty text."""
    folders = [*sysconfig.get_paths().values(), os.path.dirname(os.path.dirname(__file__))]
    installed = [folder.rstrip(os.sep) + os.sep for folder in folders]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*installed, '<'))]
    return f'{os.path.basename(own[-1].filename)}, line {own[-1].lineno}' if own else ''
