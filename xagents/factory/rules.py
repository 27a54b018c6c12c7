"""Rules of the settings of an agent: combinations of its network, environment and run that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from xagents.networks.description import NetworkDescription
from xagents.networks.registry import NetworkFunction, network_from_text, read_network
from xagents.options.environment import NET_ONLY_OPTIONS
from xagents.options.errors import OptionError, requires
from xagents.options.rules import Rule, Rules
from xagents.options.settings import Settings
from xagents.registry.agents import BUILTIN_AGENTS, TEAM_ENTRY, Entry


class Proposal(NamedTuple):
    """An agent and its settings, before either exists.

    Attributes:
        entry: the registry entry of the agent.
        settings: the values of all options.
        saved: descriptions of saved networks; empty for new networks.
    """

    entry: Entry
    settings: Settings
    saved: Sequence[str] = ()

    @property
    def network(self) -> Any:
        """The options of networks."""
        return self.settings.network

    @property
    def models(self) -> dict[str, Any]:
        """The given files of networks."""
        return {name: value for name, value in self.settings.models.items() if value is not None}

    @property
    def described(self) -> list[NetworkDescription | NetworkFunction]:
        """The networks that are saved or given as files and functions."""
        if self.saved:
            pairs = zip(self.saved, self.entry.networks, strict=True)
            return [network_from_text(text, role.option) for text, role in pairs]
        return [read_network(value, name) for name, value in self.models.items()]

    @property
    def has_memory(self) -> bool | None:
        """Whether a network has recurrent layers; None if functions make networks, whose layers are unknown."""
        described = self.described
        if any(isinstance(one, NetworkFunction) for one in described):
            return None
        return bool(self.network.memory) or any(not isinstance(n, NetworkFunction) and n.has_memory for n in described)

    @property
    def shown_critic_only(self) -> str:
        """The keys of --critic-only as one text."""
        return ' '.join(self.settings.environment.critic_only or ())

    @property
    def normalisation(self) -> str:
        """The flag or the agent that normalises the layers of --net; empty if none does."""
        own = self.network.normalize_layers
        if own is None:
            return self.entry.id if self.entry.normalise == 'batch' else ''
        return '' if own == 'none' else f'--normalize-layers {own}'


def _net_with_file(p: Proposal) -> str:
    name, value = next(iter(p.models.items()))
    return f'got {p.network.net} with --{name.replace("_", "-")} {value}, expected one of the two'


def _has_actor(entry: Entry) -> bool:
    """Return whether an agent has an actor and a critic; agents without networks and teams may have."""
    outputs = [name for network in entry.networks for name in network.outputs]
    return not outputs or ('actor' in outputs and len({*outputs} - {'log_std'}) > 1)


def _actor_critics() -> str:
    return ', '.join(id for id, entry in BUILTIN_AGENTS.items() if _has_actor(entry))


def no_memory(entry: Entry) -> str:
    """Return the end of an error about recurrent layers of an agent that cannot learn with them."""
    known = ', '.join(id for id, other in BUILTIN_AGENTS.items() if other.options.has_memory)
    return f'but {entry.id} has no memory, expected one of {known}'


def check_memory(proposal: Proposal) -> None:
    """Check the options of an agent, and files of networks, against whether networks have recurrent layers.

    Raises:
        OptionError: for an option that needs memory, or that cannot be used with it; or for a file with recurrent
            layers of an agent that cannot learn with them.
    """
    options, has_memory = proposal.settings.agent, proposal.has_memory
    if has_memory and not options.has_memory:
        name = next(iter(proposal.models), 'memory')
        raise OptionError(name, f'got {proposal.models.get(name, "recurrent layers")}, {no_memory(proposal.entry)}')
    if has_memory is not None:
        options.check_memory(has_memory)


def _without_memory(name: str) -> Rule:
    return Rule(
        name,
        lambda p: getattr(p.settings.run, name) is not None and p.has_memory,
        lambda p: f'got {getattr(p.settings.run, name)} with memory, which data sets do not contain',
    )


def _only_with_net(name: str) -> Rule:
    return Rule(
        name,
        lambda p: getattr(p.network, name) and not p.network.net,
        lambda p: requires(name, getattr(p.network, name), '--net').problem,
    )


# rules of a `Proposal`
SETTINGS_RULES: Rules = (
    Rule(
        'vector',
        lambda p: p.settings.environment.vector == 'compiled' and p.settings.run.explorers is not None,
        'got compiled with --explorers, expected auto or sync: compiled environments run in the process that learns',
    ),
    Rule(
        'env_kwargs',
        lambda p: 'render_mode' in (p.settings.environment.env_kwargs or {}),
        'got render_mode, expected --render or --video-dir instead',
    ),
    Rule(
        'net',
        lambda p: p.network.net and not p.entry.networks and p.entry is not TEAM_ENTRY,
        'got {o.network.net}, but {o.entry.id} has no network',
    ),
    Rule('net', lambda p: p.network.net and p.models, _net_with_file),
    Rule(
        'shared_network',
        lambda p: p.network.shared_network and getattr(p.entry.variant, 'option', '') != 'shared_network',
        '{o.entry.id} has no network with two outputs that could share layers',
    ),
    Rule(
        'shared_network',
        lambda p: p.network.shared_network and p.models,
        lambda p: f'cannot be used with {next(iter(p.models.values()))}: the file sets the shared layers',
    ),
    Rule(
        'block',
        lambda p: p.network.block and p.normalisation,
        'got {o.network.block}, which has its own normalisation: cannot be used with {o.normalisation}',
    ),
    Rule(
        'critic_only',
        lambda p: p.settings.environment.critic_only and p.network.shared_network,
        'cannot be used with --shared-network: actor and critic receive different observations',
    ),
    Rule(
        'critic_only',
        lambda p: p.settings.environment.critic_only and not _has_actor(p.entry),
        'got {o.shown_critic_only}, but {o.entry.id} has no actor with a critic, expected one of ' + _actor_critics(),
    ),
    *map(_only_with_net, NET_ONLY_OPTIONS),
    Rule(
        'memory',
        lambda p: p.network.memory and not p.entry.options.has_memory and p.entry is not TEAM_ENTRY,
        lambda p: f'got {p.network.memory}, {no_memory(p.entry)}',
    ),
    *map(_without_memory, ('dataset', 'fill_from')),
    Rule(
        'memory',
        lambda p: p.network.memory and p.models,
        lambda p: f'cannot be used with {next(iter(p.models.values()))}: the file sets the recurrent layers',
    ),
    Rule(
        'memory_kind',
        lambda p: p.network.memory_kind != 'gru' and not p.network.memory,
        lambda p: requires('memory_kind', p.network.memory_kind, '--memory').problem,
    ),
    Rule(
        'explorers',
        lambda p: (
            p.settings.run.explorers is not None
            and isinstance(p.settings.environment.env, str)
            and p.settings.run.explorers > p.settings.environment.n_envs
        ),
        'got {o.settings.run.explorers}, expected at most the {o.settings.environment.n_envs} of --n-envs',
    ),
)
