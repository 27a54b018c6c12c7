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
from xagents.search import searchable
from xagents.settings import (
    AgentOptions,
    EnvironmentOptions,
    EvaluateOptions,
    NetworkOptions,
    PlayOptions,
    PlotOptions,
    PresetsOptions,
    RecordOptions,
    RunOptions,
    SessionOptions,
    TrainOptions,
    TuneOptions,
)

Given = dict[str, Any]
# options of train that stand for others
SUPPLIERS = ('tuned', 'from_study', 'storage')


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
            the line that was typed; returns a page to show, if it is one.
        check: raises OptionError for what is missing or contradicts itself.
        takes_agent: whether an agent's id stands behind the command; paths do otherwise.
        bare: whether it runs with nothing behind it; its page is shown otherwise.
        hidden: dataclass of options that are checked and have no effect.
        searches: whether options with a search type take ranges, too.
    """

    name: str
    help: str
    example: str
    groups: tuple[tuple[str, type], ...]
    run: Callable[[Any, Given, str], str | None]
    check: Callable[[Any, Given], None]
    takes_agent: bool = True
    bare: bool = False
    hidden: type | None = None
    searches: bool = False

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
            title, group = self.groups[0]
            # the agent's own stand first, but for what the command is about
            first = {} if group is EnvironmentOptions else {title: sections.pop(title)}
            sections = {**first, f'Only {agent_id}': own, **sections}
        sections['Every agent'] = shared
        sections['Session'] = describe(SessionOptions)
        if self.searches:
            sections = {t: {n: searchable(o) for n, o in section.items()} for t, section in sections.items()}
        return sections

    def options(self, agent_id: str | None = None) -> dict[str, Option]:
        """Return every accepted option by name, the hidden ones last."""
        options = {name: option for section in self.sections(agent_id).values() for name, option in section.items()}
        return options | {name: o for name, o in self.hidden_options().items() if name not in options}

    def hidden_options(self) -> dict[str, Option]:
        """Return the options that are accepted without an effect and not shown."""
        return {} if self.hidden is None else describe(self.hidden)


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


def _supplied(agent_id: str, given: Given) -> Given:
    """The given options, completed by what --tuned or --from-study stands for; says what it took."""
    rest = {name: value for name, value in given.items() if name not in SUPPLIERS}
    if not (given.get('tuned') or 'from_study' in given):
        return rest
    from xagents import supply

    with wrong_input():
        if given.get('tuned'):
            rest, said = supply.tuned(agent_id, rest)
        else:
            rest, said = supply.best_of_study(agent_id, rest, given['from_study'], given['storage'])
    if not given.get('quiet'):
        print(said, flush=True)
    return rest


def _train(agent_id: str, given: Given, line: str) -> None:
    with _made(agent_id, _supplied(agent_id, given)) as agent:
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


def _tune(agent_id: str, given: Given, line: str) -> str | None:
    from xagents.tuning_plan import plan, search_page

    given = {name: value for name, value in given.items() if name != 'debug'}
    with wrong_input():
        if given.pop('print_search', False):
            return search_page(agent_id, given)
        planned = plan(agent_id, given)
    from xagents.tuning import SettingsError, run

    try:
        run(planned, line)
    except SettingsError as error:
        raise InputError(str(error)) from error
    return None


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


def _presets(names: list[str], given: Given, line: str) -> str:
    from xagents.presets.listing import presets_page

    return presets_page(names[0] if names else None)


def _check_presets(names: list[str], given: Given) -> None:
    if len(names) > 1:
        raise InputError(f'{shown(names[1])}: stands behind {shown(names[0])}, admits one agent or none')
    for name in names:
        find_agent(name)


def _check_train(agent_id: str, given: Given) -> None:
    if 'from_study' in given and given.get('tuned'):
        raise OptionError('from_study', f'got {given["from_study"]} beside --tuned, admits one of the two')
    if len({'from_study', 'storage'} & given.keys()) == 1:
        raise InputError('--from-study and --storage: got one of them, admits both: the study and where it is kept')
    # the state saved with the weights names the environment, where there is one, and a study has both
    if not ({'env', 'weights', 'from_study'} & given.keys()):
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")
    if not ({'target_reward', 'max_steps', 'max_time', 'from_study'} & given.keys() or given.get('tuned')):
        raise InputError('got none of --target-reward, --max-steps and --max-time, admits one or more of them')


def _check_tune(agent_id: str, given: Given) -> None:
    if not ({'env', 'print_search'} & given.keys()):
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")


def _check_weights(agent_id: str, given: Given) -> None:
    if 'weights' not in given:
        raise OptionError('weights', 'got nothing, admits what --checkpoints of a training was')


def _check_plot(paths: list[str], given: Given) -> None:
    if not paths:
        raise InputError('got no history, admits the .parquet files that --history-checkpoint wrote')
    if 'labels' in given and len(given['labels']) != len(paths):
        raise OptionError('labels', f'got {len(given["labels"])}, admits as many as there are histories: {len(paths)}')


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
            hidden=RecordOptions,
        ),
        Command(
            'tune',
            'Tune hyperparameters given an agent, hyperparameter specs, and environment',
            '<agent> --env ID --n-trials N --lr 1e-5 1e-2 [options]',
            (
                ('Tune', TuneOptions),
                ('Environment', EnvironmentOptions),
                ('Trial', RecordOptions),
                ('Network', NetworkOptions),
            ),
            _tune,
            _check_tune,
            searches=True,
        ),
        Command(
            'evaluate',
            'Evaluate a trained agent given its weights and environment',
            '<agent> --env ID --weights PATH [options]',
            (('Evaluate', EvaluateOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            _evaluate,
            _check_weights,
            hidden=RecordOptions,
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
        Command(
            'presets',
            'List tuned settings, with the scores that they reach',
            '[<agent>]',
            (('Session', PresetsOptions),),
            _presets,
            _check_presets,
            takes_agent=False,
            bare=True,
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
