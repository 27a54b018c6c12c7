"""Teams: one agent for each policy in `policies`, made for its part of the environments."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from xagents.envs.interface import Envs
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.options.settings import Settings, resolve_settings
from xagents.registry.agents import Entry, find_agent
from xagents.teams.cli import POLICY_FORMAT, POLICY_KEYS, TeamOptions, policy_seed

# makes an agent from its registry entry, its part of the environments, its settings and its saved networks
AgentMaker = Callable[[Entry, Envs, Settings, list[str]], Any]
# options of the whole team that its policies do not have
TEAM_ONLY_OPTIONS = ('seed', 'schedule_steps', 'reward_buffer_size')


def team_policies(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the policies of a team, by name.

    Raises:
        OptionError: if there is none.
    """
    assert isinstance(settings.agent, TeamOptions)
    if not settings.agent.policies:
        raise OptionError('policies', f'got nothing, {POLICY_FORMAT}')
    return settings.agent.policies


def drop_overridden_policy_options(record: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved record of a team without the policies' own values of options that are given for all policies."""
    options = dict(record.get('options', {}))
    if options.get('policies'):
        options['policies'] = {
            name: {key: value for key, value in policy.items() if key in POLICY_KEYS or key not in given}
            for name, policy in options['policies'].items()
        }
    return {**record, 'options': options}


def agents_by_policy(settings: Settings) -> dict[str, list[str]]:
    """Return the environment's agents that each policy controls, by name of the policy."""
    return {name: policy['agents'] for name, policy in team_policies(settings).items()}


def member_settings(settings: Settings) -> dict[str, tuple[Entry, Settings]]:
    """Return the registry entry and the settings of each policy, by name.

    Options of the whole team apply to a policy that does not set the option itself.

    Raises:
        OptionError: for an agent that does not exist, that learns from data sets only, or that has no such option.
    """
    seed, members = settings.agent.drawn_seed, {}
    for name, policy in team_policies(settings).items():
        with named_policy(name):
            entry = find_agent(policy['agent'])
            options = {**_shared_options(settings, entry), **_policy_options(entry, policy)}
            given = {'seed': policy_seed(seed, name), **options}
            members[name] = entry, resolve_settings(entry.options, entry.models, given, entry.id)
    return members


@contextlib.contextmanager
def named_policy(name: str) -> Iterator[None]:
    """Let errors about options within the block name a policy."""
    try:
        yield
    except OptionError as error:
        raise OptionError('policies', f'{name}: {error.name.replace("_", "-")}: {error.problem}') from error


def _shared_options(settings: Settings, entry: Entry) -> dict[str, Any]:
    """Return the options of the whole team that the agent of a policy has, too."""
    known = entry.options_in('network', 'agent').keys() - {*TEAM_ONLY_OPTIONS}
    return {name: value for name, value in settings.given_options.items() if name in known and value is not None}


def _policy_options(entry: Entry, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a policy sets for its own agent.

    Raises:
        OptionError: for an agent that learns from data sets only, or an option that the agent does not have.
    """
    if 'teams' in entry.folder or entry.options.datasets == 'only':
        raise OptionError('agent', f'got {entry.id}, expected an agent that collects its own experience')
    known = entry.options_in('network', 'agent')
    own = {name: value for name, value in policy.items() if name not in POLICY_KEYS}
    for name in own:
        if name not in known and not any(name in option.aliases for option in known.values()):
            expected = f'expected an option of {entry.id}{did_you_mean(name, known)}'
            raise OptionError(name, f'got {format_value(own[name])}, {expected}')
    return own


def make_members(
    members: Mapping[str, tuple[Entry, Settings]], parts: Mapping[str, Envs], make: AgentMaker, saved: Sequence[str]
) -> dict[str, Any]:
    """Make the agent of each policy for its part of the environments.

    Args:
        members: the registry entry and the settings of each policy, by name.
        parts: the part of the environments of each policy, by name.
        make: makes one agent.
        saved: descriptions of the saved networks of all policies, in order; empty for new networks.

    Returns:
        The agents, by name of the policy.
    """
    texts, made = iter(saved), {}
    for name, (entry, settings) in members.items():
        own = list(itertools.islice(texts, len(entry.networks)))
        with named_policy(name):
            made[name] = make(entry, parts[name], settings, own)
    return made


def split_policies(given: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into policies and options. A keyword that is not the name of an option is a policy."""
    policies = {name: value for name, value in given.items() if name not in known}
    return policies, {name: value for name, value in given.items() if name not in policies}
