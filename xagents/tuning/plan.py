"""The plan of a call of `xagents tune`: its options, checked before TensorFlow is imported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xagents.factory import defaults
from xagents.options.commands import TuneOptions
from xagents.options.declaration import Option, declared_options, resolve_aliases
from xagents.options.errors import OptionError, requires
from xagents.options.foreign_names import option_hint
from xagents.options.settings import resolve_settings
from xagents.processes.launch import check_launch
from xagents.registry.agents import Entry, find_agent
from xagents.system.modules import import_modules
from xagents.tuning.search import Bounds, Choices, SearchRange, default_ranges, describe_ranges, split_searched
from xagents.tuning.worker import TrialJob

CONSOLE_OPTIONS = ('log_frequency', 'display_precision')
PATH_OPTIONS = ('checkpoints', 'history_checkpoint')
PROCESS_OPTIONS = ('seed', *PATH_OPTIONS, *CONSOLE_OPTIONS, 'quiet', 'threads', 'debug')


class TuningError(RuntimeError):
    """A study that cannot continue, or that has no complete trial."""


@dataclass
class TuningPlan:
    """The options of a call of `tune`, checked as far as possible without TensorFlow."""

    entry: Entry
    tune: TuneOptions
    fixed: dict[str, Any]  # options of every trial
    ranges: dict[str, SearchRange]  # ranges of the searched options
    first: dict[str, Any]  # parameters of a new study's first trial
    process_options: dict[str, Any]  # values of `PROCESS_OPTIONS`, which do not change how well an agent learns
    has_trial_limit: bool  # whether `tune.n_trials` limits the call
    source_line: str = ''  # a line on the source of a preset

    @property
    def study_attributes(self) -> dict[str, Any]:
        """The options that all trials of the study share. They are saved as attributes of the study."""
        # leave out defaults, so that a given default equals an option that is not given
        defaults = {**_defaults(known_options(self.entry)), 'env': self.fixed['env']}
        options = {name: value for name, value in self.fixed.items() if value != defaults.get(name)}
        shared = ['trial_steps', 'objective', 'trial_seeds']
        if self.tune.objective == 'evaluation':
            shared.append('eval_episodes')
        study_attributes = {'agent': self.entry.id, 'env': self.fixed['env'], 'fixed': options}
        return study_attributes | {name: getattr(self.tune, name) for name in shared}

    def settings_to_check(self) -> list[dict[str, Any]]:
        """Return parameters to check before the first trial: those of the first trial, and each switch turned on."""
        choices = {name: r.values for name, r in self.ranges.items() if isinstance(r, Choices)}
        on = [name for name, values in choices.items() if any(value is True for value in values)]
        return [self.first, *({**self.first, name: True} for name in on if self.first.get(name) is not True)]

    @property
    def warning(self) -> str:
        """A warning that trials end before learning starts; empty if they do not."""
        known = declared_options(self.entry.options)
        option = known.get('buffer_initial_size')
        if option is None or 'dataset' in self.fixed:
            return ''
        settings = {**self.fixed, **self.first}
        size, r = settings.get(option.name), self.ranges.get(option.name)
        whole = settings.get('buffer_max_size', known['buffer_max_size'].default)
        least = r.low if isinstance(r, Bounds) else whole if size is None else size
        if least < self.tune.trial_steps:
            return ''
        problem = f'learning starts after {least} transitions, and trials end after {self.tune.trial_steps} steps'
        return f'Warning: {problem}: give a smaller {option.flag}, or a larger --trial-steps'

    @property
    def study_name(self) -> str:
        """The name of the study."""
        return self.tune.study or f'{self.entry.id}-{self.fixed["env"]}'

    def job(self, number: int, parameters: Mapping[str, Any], seed: int) -> TrialJob:
        """Return the job that runs a trial in a worker."""
        given = self.process_options
        quiet = not self.tune.non_silent or bool(given.get('quiet'))
        console = {name: given[name] for name in CONSOLE_OPTIONS if name in given}
        return TrialJob(
            number=number,
            agent=self.entry.id,
            options={**self.fixed, **parameters, **console, 'quiet': quiet},
            steps=self.tune.trial_steps,
            seeds=[(seed + i) % 2**32 for i in range(self.tune.trial_seeds)],
            objective=self.tune.objective,
            episodes=self.tune.eval_episodes,
            paths={name: given[name] for name in PATH_OPTIONS if name in given},
        )


def known_options(entry: Entry) -> dict[str, Option]:
    """Return the options of a trial by name, without the options of the command."""
    return entry.options_in('environment', 'network', 'record', 'dataset', 'explorers', 'session', 'agent')


def _defaults(known: Mapping[str, Option]) -> dict[str, Any]:
    return {name: option.default for name, option in known.items()}


def plan(agent_id: str, given: Mapping[str, Any]) -> TuningPlan:
    """Return the plan of a call of `tune`.

    Args:
        agent_id: id of the agent.
        given: given options by name. Options with a search type have one or several values.

    Raises:
        OptionError: if an option is unknown or its value is not valid.
    """
    import_modules(given.get('imports'))
    entry = find_agent(agent_id)
    known = known_options(entry)
    command = declared_options(TuneOptions)
    given = resolve_aliases(given, known)
    for name in given:
        if name not in known and name not in command:
            raise OptionError(name, f'is no option of tune {agent_id}{option_hint(name, {**known, **command})}')
    has_trial_limit = 'n_trials' in given or given.get('timeout') is None
    tune = TuneOptions.resolve({name: value for name, value in given.items() if name in command})
    check_launch(tune.cluster)
    given = {name: value for name, value in given.items() if name not in command and value is not None}
    if tune.weights:
        known['weights'], given['weights'] = command['weights'], tune.weights
    if 'dataset' in given:
        given = {**defaults.dataset_environment_options(given), **given}
        tune = _with_evaluations(tune)
    fixed, ranges = split_searched(given, known)
    fixed_for_members = _fixed_for_members(entry, tune)
    for name in ranges.keys() & fixed_for_members:
        raise OptionError(name, 'got several values, expected one value: members of a population cannot change it')
    base, source_line = dict[str, Any](), ''
    if tune.published and not tune.tuned:
        raise requires('published', True, '--tuned')
    if tune.tuned:
        overriding = {'max_steps': tune.trial_steps, 'published': tune.published}
        supplied, _ = defaults.apply_tuned_settings(agent_id, {**fixed, **overriding})
        _, source_line = defaults.apply_tuned_settings(agent_id, {**fixed, **ranges, **overriding})
        base = {name: value for name, value in supplied.items() if name not in fixed and name in known}
    if tune.search:
        # the first trial uses the preset, and some of its settings replace other options
        replacements = {name: value for name, value in base.items() if known[name].replaces}
        found = default_ranges(entry.options, known, {**fixed, **ranges, **replacements})
        ranges |= {name: r for name, r in found.items() if name not in fixed_for_members}
    if tune.population is not None:
        tune = _checked_members(entry, tune, given, {**fixed, **ranges})
    if not ranges:
        name = 'search' if tune.population is None else 'population'
        raise OptionError(name, 'nothing is searched: give an option several values, or --search')
    wanted = {**_defaults(known), **base}
    first = {name: r.nearest(wanted.get(name)) for name, r in ranges.items()}
    fixed = {**defaults.effective_options(base, ranges, known), **fixed}
    process_options = {name: fixed.pop(name) for name in PROCESS_OPTIONS if name in fixed}
    # check the combination of options in the first trial
    own = entry.options_in('environment', 'network', 'agent')
    checked = {name: value for name, value in {**fixed, **first}.items() if name in own}
    resolve_settings(entry.options, entry.models, checked, agent_id)
    return TuningPlan(entry, tune, fixed, ranges, first, process_options, has_trial_limit, source_line)


# options that would end a member early, or that cannot be shared by several members
FORBIDDEN_MEMBER_OPTIONS = ('early_stop_patience', 'target_reward', 'max_time', *PATH_OPTIONS, 'log_frequency')


def _checked_members(
    entry: Entry, tune: TuneOptions, given: Mapping[str, Any], settings: Mapping[str, Any]
) -> TuneOptions:
    """Return the options of a population, whose rounds have at least one iteration.

    Raises:
        OptionError: for options that members cannot have, and for shorter rounds.
    """
    for name in FORBIDDEN_MEMBER_OPTIONS:
        if name in given:
            raise OptionError(name, 'is for single runs, and cannot be used with --population')
    known = entry.options_in('environment', 'agent')
    sizes = [settings.get(name, known[name].default) for name in ('n_envs', 'n_steps') if name in known]
    iteration = math.prod(max(size.values) if isinstance(size, SearchRange) else size for size in sizes)
    if tune.exploit_steps is not None and tune.exploit_steps < iteration:
        if 'exploit_steps' in tune.given_names:
            got = f'got {tune.exploit_steps}, expected at least {iteration}, the steps of an iteration'
            raise OptionError('exploit_steps', got)
        return tune.changed(exploit_steps=iteration)
    return tune


def _fixed_for_members(entry: Entry, tune: TuneOptions) -> set[str]:
    """Return the options that members cannot change between rounds; an empty set without a population."""
    if tune.population is None:
        return set()
    variant = {entry.variant.option} if entry.variant else set()
    return defaults.fixed_options(entry, declared_options(entry.options)) | variant


def _with_evaluations(tune: TuneOptions) -> TuneOptions:
    """Return options with evaluations as the objective, for trials on a data set, which collect no episodes."""
    if 'objective' in tune.given_names and tune.objective == 'reward':
        raise OptionError('objective', 'got reward, expected evaluation: training on a --dataset collects no episodes')
    return tune.changed(objective='evaluation')


def search_page(agent_id: str, given: Mapping[str, Any]) -> str:
    """Return the ranges that a call searches with --search, one line per option."""
    planned = plan(agent_id, {**given, 'search': True})
    return '\n'.join(describe_ranges(planned.ranges, known_options(planned.entry), planned.first))
