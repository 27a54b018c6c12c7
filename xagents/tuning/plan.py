"""What a call of `xagents tune` is to do, checked before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xagents.factory import supply
from xagents.options.commands import TuneOptions
from xagents.options.declaration import Option, Options, canonical, describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, nearest
from xagents.options.runs import RecordOptions, SessionOptions
from xagents.registry.agents import Entry, find_agent
from xagents.tuning.search import Bounds, Range, described, first_values, ready, separate
from xagents.tuning.worker import Job

# what says nothing about how well an agent learns
ASIDE = ('seed', 'checkpoints', 'history_checkpoint', 'log_frequency', 'display_precision', 'quiet', 'threads', 'debug')


@dataclass
class Plan:
    """What a call of `tune` is to do, checked as far as that goes without TensorFlow.

    Args:
        entry: the agent.
        tune: the options of the command.
        fixed: options of every trial, by name.
        ranges: what is searched.
        first: parameters of a new study's first trial.
        aside: given options that say nothing about the mathematics: seed, files, console.
        limited: whether `tune.n_trials` bounds the call.
        said: a line on where settings come from that nobody gave.
    """

    entry: Entry
    tune: TuneOptions
    fixed: dict[str, Any]
    ranges: dict[str, Range]
    first: dict[str, Any]
    aside: dict[str, Any]
    limited: bool
    said: str = ''

    @property
    def facts(self) -> dict[str, Any]:
        """What all trials of the study share, kept as its attributes."""
        # whether a default was typed or not makes no difference
        defaults = {name: option.default for name, option in known_options(self.entry).items()}
        options = {name: value for name, value in self.fixed.items() if value != defaults.get(name) and name != 'env'}
        facts = {
            'agent': self.entry.id,
            'env': self.fixed['env'],
            'fixed': options,
            'trial_steps': self.tune.trial_steps,
            'objective': self.tune.objective,
            'trial_seeds': self.tune.trial_seeds,
        }
        return facts | ({'eval_episodes': self.tune.eval_episodes} if self.tune.objective == 'evaluation' else {})

    @property
    def warning(self) -> str:
        """A line on trials that end before anything is learned; empty where there is none."""
        option = describe(self.entry.options).get('buffer_initial_size')
        if option is None:
            return ''
        settings = {**self.fixed, **self.first}
        whole = settings.get('buffer_max_size', describe(self.entry.options)['buffer_max_size'].default)
        size = settings.get(option.name)
        r = self.ranges.get(option.name)
        least = r.low if isinstance(r, Bounds) else whole if size is None else size
        if least < self.tune.trial_steps:
            return ''
        return (
            f'Warning: nothing is learned before {least} transitions are stored, and trials end after '
            f'{self.tune.trial_steps} steps: give a smaller {option.flag}, or more --trial-steps'
        )

    @property
    def study_name(self) -> str:
        """The study's name."""
        return self.tune.study or f'{self.entry.id}-{self.fixed["env"]}'

    def job(self, number: int, parameters: Mapping[str, Any], seed: int) -> Job:
        """Return what a worker is told to do for a trial."""
        quiet = not self.tune.non_silent or bool(self.aside.get('quiet'))
        console = {name: value for name, value in self.aside.items() if name in ('log_frequency', 'display_precision')}
        paths = {name: value for name, value in self.aside.items() if name in ('checkpoints', 'history_checkpoint')}
        return Job(
            number=number,
            agent=self.entry.id,
            options={**self.fixed, **parameters, **console, 'quiet': quiet},
            steps=self.tune.trial_steps,
            seeds=[(seed + i) % 2**32 for i in range(self.tune.trial_seeds)],
            objective=self.tune.objective,
            episodes=self.tune.eval_episodes,
            paths=paths,
        )


def known_options(entry: Entry) -> dict[str, Option]:
    """Return every option of a trial by name, without those of the command itself."""
    groups = (EnvironmentOptions, NetworkOptions, RecordOptions, SessionOptions, entry.options)
    return {name: option for group in groups for name, option in describe(group).items()}


def plan(agent_id: str, given: Mapping[str, Any]) -> Plan:
    """Return what a call of `tune` is to do.

    Args:
        agent_id: as `xagents.agents` names it.
        given: options by name; those with a search type have one value or several.

    Raises:
        OptionError: for an unknown option, a value or a range that is not admitted.
    """
    entry = find_agent(agent_id)
    known = known_options(entry)
    command = describe(TuneOptions)
    given = canonical(given, known)
    for name in given:
        if name not in known and name not in command:
            raise OptionError(name, f'is no option of tune {agent_id}{nearest(name, {**known, **command})}')
    limited = 'n_trials' in given or given.get('timeout') is None
    tune = TuneOptions.resolve({name: value for name, value in given.items() if name in command})
    given = {name: value for name, value in given.items() if name not in command and value is not None}
    if tune.weights:
        known['weights'], given['weights'] = command['weights'], tune.weights
    fixed, ranges = separate(given, known)
    base: dict[str, Any] = {}
    said = ''
    if tune.tuned:
        steps = {'max_steps': tune.trial_steps}
        supplied, _ = supply.tuned(agent_id, {**fixed, **steps})
        _, said = supply.tuned(agent_id, {**fixed, **ranges, **steps})
        base = {name: value for name, value in supplied.items() if name not in fixed and name in known}
    if tune.search:
        # the first trial is to be the tuned settings, and some of them stand instead of others
        stands = {name: value for name, value in base.items() if known[name].instead_of}
        ranges |= ready(entry.options, known, {**fixed, **ranges, **stands})
    defaults = {name: option.default for name, option in known.items()}
    first = first_values(ranges, {**defaults, **base})
    fixed = {**supply.beside(base, ranges, known), **fixed}
    aside = {name: fixed.pop(name) for name in ASIDE if name in fixed}
    for group in (entry.options, EnvironmentOptions, NetworkOptions):
        _resolve(group, fixed, first)
    return Plan(entry, tune, fixed, ranges, first, aside, limited, said)


def _resolve(group: type[Options], fixed: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Check options against each other as the first trial has them."""
    known = describe(group)
    group.resolve({name: value for name, value in {**fixed, **first}.items() if name in known})


def search_page(agent_id: str, given: Mapping[str, Any]) -> str:
    """Return what a call would search with --search, a line an option."""
    planned = plan(agent_id, {**given, 'search': True})
    known = known_options(planned.entry)
    defaults = {name: option.default for name, option in known.items()}
    return '\n'.join(described(planned.ranges, known, {**defaults, **planned.first}))
