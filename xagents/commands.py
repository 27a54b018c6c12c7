"""The commands: which options each takes, what it requires, and what it runs.

A command is one entry of `commands`; parsing, help and errors derive from it. Nothing heavy is loaded before a command
runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xagents.options import Option, OptionError, describe, nearest, shown
from xagents.registry import find_agent
from xagents.settings import (
    TRAIN_ONLY,
    AgentOptions,
    EnvironmentOptions,
    EvaluateOptions,
    NetworkOptions,
    PlayOptions,
    PlotOptions,
    RunOptions,
    SessionOptions,
    TrainOptions,
)

Given = dict[str, Any]


class InputError(Exception):
    """Wrong input that names no option; its message is for the user as it stands."""


@contextlib.contextmanager
def wrong_input() -> Iterator[None]:
    """Turn what is raised over wrong values and paths into an `InputError`.

    Only what stands before the work itself belongs into this block: a ValueError later on is a crash.
    """
    try:
        yield
    except OptionError:
        raise
    except (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the command line.

    Args:
        name: what is typed.
        help: its line on the usage page.
        example: what is typed after its name, for its own page.
        groups: titles and dataclasses of its options in the order of its page, where an agent's own come first and
            what every agent has last; those under one title are one section.
        run: does the work, given the agent's id (or the paths, where the command takes no agent), the given options and
            the line that was typed.
        check: raises OptionError for what is missing or contradicts itself.
        takes_agent: whether an agent's id stands behind the command; paths do otherwise.
        hidden: dataclass of options that are checked and have no effect, and names in it that are not accepted.
    """

    name: str
    help: str
    example: str
    groups: tuple[tuple[str, type], ...]
    run: Callable[[Any, Given, str], None]
    check: Callable[[Any, Given], None]
    takes_agent: bool = True
    hidden: tuple[type, frozenset[str]] | None = None

    def sections(self, agent_id: str | None = None) -> dict[str, dict[str, Option]]:
        """Return the options by section title and name, those that only `agent_id` has first."""
        sections: dict[str, dict[str, Option]] = {}
        for title, group in self.groups:
            sections[title] = sections.get(title, {}) | describe(group)
        if not self.takes_agent:
            return sections
        shared = describe(AgentOptions)
        if agent_id is not None:
            entry = find_agent(agent_id)
            known = describe(entry.options)
            # the networks first, what does nothing last
            names = sorted(known.keys() - shared.keys(), key=list(known).index)
            names.sort(key=lambda name: (name not in entry.models) + 2 * known[name].without_effect)
            own = {name: known[name] for name in names}
            shared = {name: known[name] for name in shared}
            first = {} if self.hidden is None else {self.groups[0][0]: sections.pop(self.groups[0][0])}
            sections = {**first, f'Only {agent_id}': own, **sections}
        sections['Every agent'] = shared
        sections['Session'] = describe(SessionOptions)
        return sections

    def options(self, agent_id: str | None = None) -> dict[str, Option]:
        """Return every accepted option by name, the hidden ones last."""
        options = {name: option for section in self.sections(agent_id).values() for name, option in section.items()}
        return options | {name: o for name, o in self.hidden_options().items() if name not in options}

    def hidden_options(self) -> dict[str, Option]:
        """Return the options that are accepted without an effect and not shown."""
        if self.hidden is None:
            return {}
        group, refused = self.hidden
        return {name: option for name, option in describe(group).items() if name not in refused}


def _only(given: Given, group: type) -> Given:
    return {name: value for name, value in given.items() if name in describe(group)}


def _make(agent_id: str, given: Given) -> Any:
    given = dict(given)
    threads = given.pop('threads', None)
    given.pop('debug', None)
    with wrong_input():
        if threads is not None:
            from xagents.compiling import set_threads

            set_threads(threads)
        from xagents.factory import make

        return make(agent_id, given.pop('env', None), **given)


def _made(agent_id: str, given: Given, *own: type) -> contextlib.closing:
    """An agent that is closed at the end, without the options that belong to the command and not to it."""
    command_only = {name for group in own for name in describe(group)} - {'weights'}
    return contextlib.closing(_make(agent_id, {name: v for name, v in given.items() if name not in command_only}))


def _train(agent_id: str, given: Given, line: str) -> None:
    with _made(agent_id, given) as agent:
        agent.command = line  # an interrupted run says how to go on
        with wrong_input():
            agent.prepare_run()
        agent.fit()


def _play(agent_id: str, given: Given, line: str) -> None:
    arguments = _only(given, PlayOptions)
    arguments.pop('weights')
    with _made(agent_id, given, PlayOptions, RunOptions) as agent:
        agent.play(**arguments)


def _evaluate(agent_id: str, given: Given, line: str) -> None:
    arguments = {'episodes': describe(EvaluateOptions)['episodes'].default, **_only(given, EvaluateOptions)}
    arguments.pop('weights')
    as_json = arguments.pop('json', False)
    with _made(agent_id, given, EvaluateOptions, RunOptions) as agent:
        result = agent.evaluate(**arguments)
    if as_json:
        print(json_line(result))
    else:
        print(evaluation_line(result, arguments['episodes'], given.get('display_precision', 2)))


def json_line(result: Mapping[str, float]) -> str:
    """Return the result of an evaluation as one JSON object on one line; what is not finite becomes null."""
    numbers = {name: float(value) for name, value in result.items()}
    return json.dumps({name: number if math.isfinite(number) else None for name, number in numbers.items()})


def evaluation_line(result: Mapping[str, float], episodes: int, precision: int = 2) -> str:
    """Return the result of an evaluation for people."""
    n = {name: f'{value:.{precision}f}' for name, value in result.items()}
    plural = 's' if episodes != 1 else ''
    return (
        f'Reward {n["mean"]} ± {n["std"]}, min {n["min"]}, max {n["max"]}, '
        f'length {n["length"]}, {episodes} episode{plural}'
    )


def _plot(paths: list[str], given: Given, line: str) -> None:
    names = {'column': 'plot', 'title': 'env'}
    arguments = {names.get(name, name): value for name, value in given.items() if name != 'debug'}
    with wrong_input():
        from xagents.plotting import save_plot

        print(f'Plot saved to {save_plot(paths, **arguments)}')


def _check_train(agent_id: str, given: Given) -> None:
    # the state saved with the weights names the environment, where there is one
    if not ({'env', 'weights'} & given.keys()):
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")
    if not ({'target_reward', 'max_steps', 'max_time'} & given.keys()):
        raise InputError('got none of --target-reward, --max-steps and --max-time, admits one or more of them')


def _check_weights(agent_id: str, given: Given) -> None:
    if 'weights' not in given:
        raise OptionError('weights', 'got nothing, admits what --checkpoints of a training was')


def _check_plot(paths: list[str], given: Given) -> None:
    if not paths:
        raise InputError('got no history, admits the .parquet files that --history-checkpoint wrote')
    if 'labels' in given and len(given['labels']) != len(paths):
        raise OptionError('labels', f'got {len(given["labels"])}, admits as many as there are histories: {len(paths)}')


_one_zero = (RunOptions, TRAIN_ONLY)

commands: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            'train',
            'Train given an agent and environment',
            '<agent> --env ID --target-reward REWARD [options]',
            (
                ('Environment', EnvironmentOptions),
                ('Run', RunOptions),
                ('Run', TrainOptions),
                ('Network', NetworkOptions),
            ),
            _train,
            _check_train,
        ),
        Command(
            'play',
            'Play a game given a trained agent and environment',
            '<agent> --env ID --weights PATH [options]',
            (('Play', PlayOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            _play,
            _check_weights,
            hidden=_one_zero,
        ),
        Command(
            'evaluate',
            'Evaluate a trained agent given its weights and environment',
            '<agent> --env ID --weights PATH [options]',
            (('Evaluate', EvaluateOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            _evaluate,
            _check_weights,
            hidden=_one_zero,
        ),
        Command(
            'plot',
            'Plot the histories of trainings',
            'HISTORY.parquet ... [options]',
            (('Plot', PlotOptions),),
            _plot,
            _check_plot,
            takes_agent=False,
        ),
    )
}


def find_command(name: str) -> Command:
    """Return a command.

    Raises:
        OptionError: where there is no such command; names the nearest one.
    """
    if name not in commands:
        raise OptionError('command', f'got {shown(name)}, admits one of {", ".join(commands)}{nearest(name, commands)}')
    return commands[name]
