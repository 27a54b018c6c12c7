"""Agents from options: environments, networks and optimisers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never, Unpack

import gymnasium

from xagents.checkpoints import weight_files
from xagents.checkpoints.protocols import AgentOrigin
from xagents.datasets.dataset_names import check_known
from xagents.datasets.environments import check_fits, dataset_environment_options, offline_envs
from xagents.datasets.reading import open_dataset
from xagents.envs.create import ATARI_OPTIONS, as_envs
from xagents.envs.env_factory import EnvFactory
from xagents.envs.functional.interface import FunctionalEnv
from xagents.envs.interface import Envs
from xagents.envs.maker import find_maker, load_wrappers
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.envs.spaces import Encoding
from xagents.envs.vectors import EnvNeeds
from xagents.factory.defaults import read_saved_record, resolve_with_record
from xagents.factory.networks import build_networks, check_batch_statistics, describe_networks, use_all_cores
from xagents.factory.rules import SETTINGS_RULES, Proposal, check_memory
from xagents.factory.teams import agents_by_policy, make_members, member_settings, named_policy, split_policies
from xagents.logs.history import check_history_path
from xagents.logs.monitors import check_monitor
from xagents.networks.registry import network_text, read_network
from xagents.options.curriculum import curriculum_of
from xagents.options.declaration import declared_options, resolve_aliases, to_flags
from xagents.options.environment import EnvironmentOptions, NetworkOptions, no_environment
from xagents.options.errors import OptionError, format_value
from xagents.options.runs import RunOptions
from xagents.options.settings import Settings
from xagents.registry.agents import TEAM_ENTRY, Entry, find_agent
from xagents.runs.registry import find_stages
from xagents.system.modules import import_modules
from xagents.system.paths import check_folder
from xagents.system.threads import set_threads, threads_in_use

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.options.keywords import MakeKeywords

# options that concern collecting and the replay buffer of collected transitions
COLLECTING_OPTIONS = (
    *('n_envs', 'vector', 'train_frequency', 'fragment_steps', 'buffer_max_size', 'buffer_initial_size'),
    *('noise', 'step_noise_coef', 'epsilon_start', 'epsilon_decay_steps', 'epsilon_ladder'),
)
# options that apply to ready-made environments, too
ENCODING_OPTIONS = ('flatten', 'mask_key', 'critic_only')
UNEVALUATED = 'nothing is evaluated, and the last weights are saved'


def make(
    agent_id: str,
    env: Any = None,
    *positional: Never,
    weights: list[str] | None = None,
    **options: Unpack[MakeKeywords],
) -> BaseAgent:
    """Make an agent with its environments, networks and optimisers.

    Args:
        agent_id: the agent's id, a key of `xagents.agents`.
        env: the id of an environment, a function that makes one, or existing environments that `as_envs` accepts. When
            not given, the environment saved with `weights`.
        positional: none; further arguments have names.
        weights: paths of saved weights to load, one for each model. Options saved with the weights replace defaults.
        options: options of the environments, the networks, the agent and the run, by name. Values are checked before
            anything is built.

    Returns:
        The agent, an instance of the class that is registered under `agent_id`.

    Raises:
        OptionError: for an unknown option or an invalid value.
        ValueError: in one line, for any other wrong input.
    """
    if positional:
        problem = 'networks need no policy class' if str(env).endswith('Policy') else 'further arguments have names'
        raise TypeError(
            f'make: got {format_value(positional[0])} as a third argument, expected an agent and env: {problem}'
        )
    if not isinstance(agent_id, str):
        name = getattr(agent_id, '__name__', type(agent_id).__name__)
        raise TypeError(f"make: got {name}, expected a name: that of @xagents.register, or 'module:{name}'")
    return plan_agent(agent_id, options if env is None else {'env': _name_of(env), **options}, weights).build()


def _name_of(env: Any) -> Any:
    """Return `module:Class` for a class that another process can import by this name, else the argument."""
    if not (isinstance(env, type) and issubclass(env, gymnasium.Env | FunctionalEnv)) or env.__module__ == '__main__':
        return env
    importable = getattr(sys.modules.get(env.__module__), env.__name__, None) is env
    return f'{env.__module__}:{env.__name__}' if importable else env


@dataclass
class AgentPlan:
    """All that is needed to make an agent. Its creation checks all options, without environments and TensorFlow.

    Attributes:
        entry: the registry entry of the agent.
        settings: the values of all options.
        networks: descriptions of saved networks, in the order of the entry's networks; empty for new networks.
        restore: loads a saved state into the new agent, if there is one.
        typed_options: the options that the user gave, without saved and default options.
    """

    entry: Entry
    settings: Settings
    networks: list[str] = field(default_factory=list)
    restore: Callable[[Any], None] | None = None
    typed_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise OptionError for wrong names, files and addresses."""
        environment, run = self.settings.environment, self.settings.run
        check_files(self.settings, self.entry, self.restore is not None, self.networks)
        if run.cluster is not None or run.cluster_key is not None:
            from xagents.explorers.launchers import check_cluster  # loads what explorers need

            check_cluster(run)
        if self.entry is TEAM_ENTRY:
            agents_by_policy(self.settings)
            for policy, (entry, own) in member_settings(self.settings).items():
                with named_policy(policy):
                    check_memory(Proposal(entry, own))
        # a resumed run has filled its buffer already
        names = {'dataset': run.dataset, 'fill_from': None if self.restore is not None else run.fill_from}
        for option, name in names.items():
            if name is not None and not run.download:
                check_known(option, name)
        if isinstance(environment.env, str) and environment.vector != 'envpool':
            import_modules(environment.imports)  # those of saved weights, too
            find_maker(environment.env)
        load_wrappers(environment.wrapper or ())

    def build(self) -> Any:
        """Make the agent.

        Raises:
            OptionError: if the environments or networks cannot be made with these options.
        """
        entry, settings = self.entry, self.settings
        env: Any = settings.environment.env
        new = isinstance(env, str) or callable(env)
        uses_explorers = settings.run.explorers is not None and settings.environment.vector == 'auto'
        if uses_explorers:  # explorers split the environments, but a native vector has one random generator for all
            settings = settings.with_environment(vector='sync')
        lines: list[str] = []
        envs: Any
        if entry is TEAM_ENTRY:
            policy_mapping, members = agents_by_policy(settings), member_settings(settings)
            envs = MultiPolicyEnvs(EnvFactory(**settings.environment.asdict()), policy_mapping)
        elif settings.run.dataset is not None:
            settings, envs, lines = _dataset_envs(settings, self.typed_options)
        elif new:
            needs = EnvNeeds(bool(settings.run.log_info), tuple(settings.run.curriculum or ()))
            envs = EnvFactory(**settings.environment.asdict())(needs=needs)
        else:
            envs = self._ready_made_envs(env)
        try:
            if settings.run.dataset is None:  # before networks are built
                plan = curriculum_of(settings.run)
                envs.check_params({} if plan is None else plan.values)
            if entry is TEAM_ENTRY:
                agent = self._team(settings, envs, members)
            else:
                agent = make_agent(entry, envs, settings, self.networks)
                agent.progress.startup_lines += [*lines, *_warn_ignored_options(envs, settings.run, self.typed_options)]
            if self.restore is not None:
                self.restore(agent)
            return agent
        except BaseException:
            envs.close()
            raise

    def _ready_made_envs(self, env: Any) -> Envs:
        """Return ready-made environments. Raise OptionError for a given option that would need other environments."""
        envs = as_envs(env, encoding_of(self.settings))
        n_envs, given = envs.n_whole_envs, self.typed_options
        if given.get('n_envs') not in (None, n_envs):
            got = f'got {given["n_envs"]} with {n_envs} ready-made environments'
            raise OptionError('n_envs', f'{got}, expected {n_envs}, or a class or function that makes one')
        for name, option in declared_options(EnvironmentOptions).items():
            if name not in ('env', 'n_envs', *ENCODING_OPTIONS) and given.get(name, option.default) != option.default:
                got = f'got {format_value(given[name])} with ready-made environments'
                raise OptionError(name, f'{got}, expected it where they are made, as in create_envs')
        return envs

    def _team(self, settings: Settings, envs: MultiPolicyEnvs, members: Mapping[str, tuple[Entry, Settings]]) -> Any:
        """Make a team of agents, one for each policy."""
        made = make_members(members, envs.groups, make_agent, self.networks)

        def remake(name: str, part: Envs) -> Any:
            entry, own = members[name]
            return make_agent(entry, part, own, agent.members[name].origin.networks)

        agent = self.entry.agent(envs, made, remake, settings=settings)
        networks = [text for member in made.values() for text in member.origin.networks]
        agent.origin = make_origin(settings, networks)
        return agent


def make_agent(entry: Entry, envs: Envs, settings: Settings, saved: list[str]) -> Any:
    """Make an agent for existing environments.

    Args:
        entry: the registry entry of the agent.
        envs: the environments.
        settings: the values of all options.
        saved: descriptions of saved networks, in the order of the entry's networks; empty for new networks.
    """
    entry = entry.form_for(envs.action_space)
    descriptions = describe_networks(entry, envs, settings, saved)
    agent = _build_agent(entry, envs, settings, descriptions)
    agent.origin = make_origin(settings, [network_text(description) for description in descriptions])
    return agent


def make_origin(settings: Settings, networks: list[str]) -> AgentOrigin:
    """Return the origin of an agent: the options and the networks that it was made with.

    Args:
        settings: the values of all options.
        networks: descriptions of the networks, as text.
    """
    creation_options = {**settings.environment.asdict(), **settings.network.asdict(), **settings.models}
    given = {name: value for name, value in creation_options.items() if name in settings.given_options}
    return AgentOrigin(_json_options(given), networks)


def team(env: Any, **given: Any) -> Any:
    """Make several policies that learn in one multi-agent environment. Each policy controls some of its agents.

    Args:
        env: 'pettingzoo:NAME', or a function that makes a PettingZoo environment.
        given: policies and options. A keyword that is not the name of an option is the name of a policy. Its value is
            (learning agent, environment's agents), such as `hunter=('ppo', 'adversary_*')`, or a mapping with `agent`,
            `agents` and options of the learning agent. Options of agents and networks apply to all policies that do
            not set the option themselves.

    Returns:
        A `TeamAgent`, with `fit`, `train_iter`, `evaluate`, `play`, `members` and `map`.

    Raises:
        OptionError: in one line, as for `make`.
    """
    policies, options = split_policies(given, TEAM_ENTRY.options_in())
    return plan_agent(TEAM_ENTRY.id, {'env': env, 'policies': policies, **options}).build()


def plan_agent(agent_id: str, options: Mapping[str, Any], weights: str | list[str] | None = None) -> AgentPlan:
    """Check all options and return the plan of the agent. Arguments and errors are the same as for `make`."""
    import_modules(options.get('imports'))
    entry = find_agent(agent_id)
    given = resolve_aliases(options, declared_options(entry.options))
    paths = [weights] if isinstance(weights, str) else weights
    record = read_saved_record(entry, paths)
    if paths is not None:
        check_forms(entry, given, record, paths[0])
    settings = resolve_with_record(entry, given, record)
    if settings.environment.env is None and settings.run.dataset is None:
        raise no_environment(paths)
    if paths is None:
        return AgentPlan(entry, settings, typed_options=given)

    def load(agent: Any) -> None:
        try:
            agent.load_weights(paths)
        except ValueError as error:
            trained = record.get('options', {}).get('env')
            raise ValueError(f'{error}' + (f'; it was trained on {trained}' if trained else '')) from error
        context = agent.progress.context
        context.plateau_count = context.early_stop_count = 0
        if 'lr' in given:
            context.plateau_factor = 1.0

    return AgentPlan(entry, settings, saved_networks(entry, given, record), load, given)


def check_forms(entry: Entry, given: Mapping[str, Any], record: Mapping[str, Any], name: str) -> None:
    """Check that the given options of the form of the networks are those of the saved networks.

    Args:
        entry: the registry entry of the agent, whose `variant` names a switch between two forms.
        given: the options that the user set.
        record: the record of the saved state.
        name: the name of the saved state in messages.

    Raises:
        OptionError: if an option differs from the saved value.
    """
    known, saved = declared_options(entry.options), record.get('options', {})
    switch = [entry.variant.option] if entry.variant else []
    for option in (*switch, *entry.options.forms) if record.get('networks') else ():
        # a switch of `--net` is not among the options of the agent
        trained = saved.get(option, known[option].default if option in known else False)
        if option in given and given[option] != trained:
            raise OptionError(option, f'got {format_value(given[option])}, expected {trained}, as in {name}')


def saved_networks(entry: Entry, given: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Return the descriptions of the saved networks, or an empty list if the user gave other networks."""
    own = any(given.get(name) is not None for name in (*declared_options(NetworkOptions), *entry.models))
    return [] if own else record.get('networks', [])


def _dataset_envs(settings: Settings, typed_options: Mapping[str, Any]) -> tuple[Settings, Envs, list[str]]:
    """Return settings with the environment of a data set, environments for learning from it, and lines to log.

    The environments have the spaces of the data set and are never stepped. Evaluations create environments from `env`
    or, if it is not given, from the options in the data set.

    Raises:
        OptionError: if the data set cannot be read or does not fit the environments.
    """
    environment, name = settings.environment, settings.run.dataset
    assert name is not None
    dataset = open_dataset(name, download=settings.run.download)
    env: Any = environment.env
    if env is not None and not isinstance(env, str) and not callable(env):
        envs = as_envs(env, encoding_of(settings))
        check_fits(dataset, envs, 'dataset')
        return settings, envs, []
    why = ''
    if env is None:
        dataset_options, why = dataset_environment_options(dataset)
        dataset_options = {n: v for n, v in dataset_options.items() if n not in settings.given_options}
        settings = settings.with_environment(**dataset_options)
        environment = settings.environment
    if environment.env is None:
        return settings, offline_envs(dataset, encoding=encoding_of(settings)), [f'{why}; {UNEVALUATED}']
    try:
        evaluation_envs = EnvFactory(**{**environment.asdict(), 'n_envs': 1})(compiled=False)
    except OptionError as error:
        if declared_options(EnvironmentOptions).keys() & typed_options.keys() - {'n_envs', 'vector'}:
            raise
        offline = offline_envs(dataset, encoding=encoding_of(settings))
        return settings.with_environment(env=None), offline, [f'{error.problem}; {UNEVALUATED}']
    with evaluation_envs:
        check_fits(dataset, evaluation_envs, 'dataset')
        return settings, offline_envs(dataset, evaluation_envs), []


def encoding_of(settings: Settings) -> Encoding:
    """Return the options of the encoder of observations."""
    return EnvFactory('', **{name: getattr(settings.environment, name) for name in ENCODING_OPTIONS}).encoding


def _warn_ignored_options(envs: Envs, run: RunOptions, typed_options: Mapping[str, Any]) -> list[str]:
    """Return a warning that lists the given options without effect, or an empty list.

    Options of Atari games have no effect in other environments. Options of collecting have no effect on a data set.
    """
    if run.dataset is not None:
        flags = [f'--{name.replace("_", "-")}' for name in COLLECTING_OPTIONS if name in typed_options]
        return [f'Warning: without effect on a data set: {", ".join(flags)}'] if flags else []
    typed = {name: typed_options[name] for name in ATARI_OPTIONS if name in typed_options and not envs.atari}
    flags = [word for word in to_flags(typed) if word.startswith('--')]
    where = f'{envs.id}, which is not a preprocessed Atari game'
    return [f'Warning: without effect on {where}: {", ".join(flags)}'] if flags else []


def check_files(settings: Settings, entry: Entry, continued: bool, saved: Sequence[str] = ()) -> None:
    """Check paths and networks before environments and TensorFlow are loaded.

    Args:
        settings: the values of all options.
        entry: the registry entry of the agent.
        continued: whether the history file may exist already, because a saved state is restored.
        saved: descriptions of saved networks.

    Raises:
        OptionError: for a path that cannot be used, a stage or network that does not exist, or options that exclude
            each other.
    """
    proposal = Proposal(entry, settings, saved)
    for rule in SETTINGS_RULES:
        rule.check(proposal)
    if entry is not TEAM_ENTRY:
        check_memory(proposal)
    run, models = settings.run, settings.models
    if run.checkpoints:
        weight_files.check_paths('checkpoints', run.checkpoints, entry.labels)
    if run.history_checkpoint:
        check_history_path(run.history_checkpoint, resume=continued)
    for name in ('tensorboard', 'run_dir'):
        if getattr(run, name):
            check_folder(name, getattr(run, name))
    if run.stages:
        find_stages(run.stages)
    if run.monitor_session:
        check_monitor(run.monitor)
    for name, value in models.items():
        if value is not None:
            read_network(value, name)


def _build_agent(entry: Entry, envs: Envs, settings: Settings, descriptions: list[Any]) -> Any:
    entry.agent.check_envs(envs, settings.agent)
    check_batch_statistics(entry, descriptions)
    if not use_all_cores(descriptions, envs) and threads_in_use() == 0:
        set_threads(1)
    if envs.functional_vector is not None:
        envs.functional_vector.check()  # starts TensorFlow, whose threads are chosen now
    return entry.agent(envs, *build_networks(entry, envs, settings, descriptions), settings=settings)


def _json_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that JSON can represent. Functions and existing environments are left out."""
    plain = {}
    for name, value in options.items():
        with contextlib.suppress(TypeError, AttributeError):
            # numbers and arrays of NumPy have tolist()
            plain[name] = json.loads(json.dumps(value, default=lambda x: x.tolist()))
    return plain
