"""From settings to an agent that is ready to train: environments, networks, optimisers."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xagents.checkpoints import weight_files
from xagents.checkpoints.protocols import AgentOrigin
from xagents.datasets.environments import check_fits, dataset_environment_options, offline_envs
from xagents.datasets.reading import open_dataset
from xagents.envs.create import ATARI_OPTIONS, as_envs, create_envs
from xagents.envs.interface import Envs
from xagents.envs.multi_policy import MultiPolicyEnvs, create_multi_policy_envs
from xagents.factory.defaults import read_saved_record, resolve_with_record
from xagents.factory.teams import agents_by_policy, make_members, member_settings, split_policies
from xagents.logs.history import check_history_path
from xagents.logs.monitors import check_wandb
from xagents.networks.cfg import dense_network, parse_network
from xagents.networks.registry import NetworkFunction, network_from_text, network_text, read_network
from xagents.options.declaration import Option, declared_options, resolve_aliases
from xagents.options.environment import NET_ONLY_OPTIONS, NO_ENVIRONMENT, EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.options.settings import Settings
from xagents.registry.agents import TEAM_ENTRY, Entry, NetworkRole, find_agent
from xagents.runs.registry import find_registered_stages
from xagents.system.paths import check_folder
from xagents.system.threads import set_threads, threads_in_use

# what is about collecting, and the buffer of what is collected
COLLECTING_OPTIONS = (
    *('n_envs', 'vector', 'train_frequency', 'fragment_steps', 'buffer_max_size', 'buffer_initial_size'),
    *('noise', 'step_noise_coef', 'epsilon_start', 'epsilon_decay_steps', 'epsilon_ladder'),
)


def make(agent_id: str, env: Any = None, *, weights: list[str] | None = None, **options: Any) -> Any:
    """Make an agent with its environments, networks and optimisers.

    Args:
        agent_id: as `xagents.agents` names it.
        env: an environment's id, a function that makes one, or ready-made environments as `as_envs` takes them; when
            not given, the one that was saved with `weights`.
        weights: checkpoints to restore, one path a model; the options saved with them replace defaults.
        options: of the environments, the network, the agent and the run, by their names; values are checked before
            anything is built.

    Raises:
        OptionError: for an unknown option, or a value that is not admitted.
        ValueError: in one line, for anything else that is wrong with the input.
    """
    return plan_agent(agent_id, options if env is None else {'env': env, **options}, weights).build()


@dataclass
class AgentPlan:
    """An agent that is to be made: all that is known of it before environments and TensorFlow are loaded.

    Attributes:
        entry: the agent's.
        settings: every option.
        networks: descriptions of its networks that were saved, where they are to be taken.
        load: loads what was saved into the agent, where something was.
        typed_options: the options that were given this time.
    """

    entry: Entry
    settings: Settings
    networks: list[str] = field(default_factory=list)
    restore: Callable[[Any], None] | None = None
    typed_options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Any:
        """Make the agent."""
        entry, settings = self.entry, self.settings
        check_files(settings, entry, continued=self.restore is not None)
        env: Any = settings.environment.env
        new = isinstance(env, str) or callable(env)
        uses_explorers = settings.run.explorers is not None and settings.environment.vector == 'auto'
        if uses_explorers:  # a native vector has one random generator for all of its environments
            settings.environment.vector = settings.given_options['vector'] = 'sync'
        lines: list[str] = []
        envs: Any
        if entry is TEAM_ENTRY:
            policy_mapping, members = agents_by_policy(settings), member_settings(settings)
            envs = create_multi_policy_envs(policy_mapping, **settings.environment.create_envs_kwargs())
        elif settings.run.dataset is not None:
            envs, lines = _dataset_envs(settings, self.typed_options)
        else:
            envs = create_envs(**settings.environment.create_envs_kwargs()) if new else as_envs(env)
        try:
            if entry is TEAM_ENTRY:
                agent = self._team(envs, members)
            else:
                agent = make_agent(entry, envs, settings, self.networks)
                agent.progress.startup_lines += [*lines, *_warn_ignored_options(envs, settings.run, self.typed_options)]
            if self.restore is not None:
                self.restore(agent)
            return agent
        except BaseException:
            envs.close()
            raise

    def _team(self, envs: MultiPolicyEnvs, members: Mapping[str, tuple[Entry, Settings]]) -> Any:
        """Make several policies that learn together."""
        made = make_members(members, envs.parts, make_agent, self.networks)

        def remake(name: str, part: Envs) -> Any:
            entry, own = members[name]
            return make_agent(entry, part, copy.deepcopy(own), agent.members[name].origin.networks)

        agent = self.entry.agent(envs, made, remake, settings=self.settings)
        networks = [text for member in made.values() for text in member.origin.networks]
        agent.origin = make_origin(self.settings, networks)
        return agent


def make_agent(entry: Entry, envs: Envs, settings: Settings, saved: list[str]) -> Any:
    """Return an agent for environments, with networks that were saved, where some were."""
    descriptions = _network_descriptions(entry, envs, settings, saved)
    agent = _build_agent(entry, envs, settings, descriptions)
    agent.origin = make_origin(settings, [network_text(description) for description in descriptions])
    return agent


def make_origin(settings: Settings, networks: list[str]) -> AgentOrigin:
    """Return what an agent was made of, of its settings and the texts of its networks."""
    creation_options = {**settings.environment.asdict(), **settings.network.asdict(), **settings.models}
    given = {name: value for name, value in creation_options.items() if name in settings.given_options}
    unsaved = [name for name, value in given.items() if not _survives_json(value, outermost=True)]
    return AgentOrigin(_json_options(given), networks, unsaved)


def team(env: Any, **given: Any) -> Any:
    """Make several policies that learn in one environment, each for some of its agents.

    Args:
        env: 'pettingzoo:NAME', or a function that makes one of PettingZoo's environments.
        given: policies by names of your choice, each as (agent, players), such as `hunter=('ppo', 'adversary_*')`, or
            as a mapping of `agent`, `agents` and options of that agent; and options: of the environments, of the run,
            and those of agents and networks that stand for every policy that says nothing else.

    Returns:
        A `TeamAgent`, with `fit`, `train_iter`, `evaluate`, `play`, `members` and `map`.

    Raises:
        OptionError: in one line, as `make`.
    """
    policies, options = split_policies(given, TEAM_ENTRY.options_in())
    return make(TEAM_ENTRY.id, env, policies=policies, **options)


def plan_agent(agent_id: str, options: Mapping[str, Any], weights: str | list[str] | None = None) -> AgentPlan:
    """Return what `make` is going to make, with every option checked; arguments and errors are those of `make`."""
    entry = find_agent(agent_id)
    given = resolve_aliases(options, declared_options(entry.options))
    paths = [weights] if isinstance(weights, str) else weights
    record = read_saved_record(entry, paths)
    settings = resolve_with_record(entry, given, record)
    if settings.environment.env is None and settings.run.dataset is None:
        raise OptionError('env', NO_ENVIRONMENT)
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

    check_variant_switch(entry, given, record, paths[0])
    return AgentPlan(entry, settings, saved_networks(entry, given, record), load, given)


def check_variant_switch(entry: Entry, given: Mapping[str, Any], record: Mapping[str, Any], name: str) -> None:
    """Refuse a switch that differs from the networks of a saved state, which messages call `name`."""
    switch = entry.variant.option if entry.variant else ''
    if record.get('networks') and switch in given:
        trained = bool(record.get('options', {}).get(switch))
        if given[switch] != trained:
            raise OptionError(switch, f'got {given[switch]}, but {name} was trained with {trained}')


def saved_networks(entry: Entry, given: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Return the descriptions of the networks that were saved; none where other ones are given."""
    own = any(given.get(name) is not None for name in (*declared_options(NetworkOptions), *entry.models))
    return [] if own else record.get('networks', [])


def _dataset_envs(settings: Settings, typed_options: Mapping[str, Any]) -> tuple[Envs, list[str]]:
    """Return environments that nobody steps, for a data set to learn from; and what is to be said of them.

    Those of evaluations are what `env` says or, where it says nothing, what the data set tells.
    """
    environment, name = settings.environment, settings.run.dataset
    assert name is not None
    dataset = open_dataset(name, download=settings.run.download)
    env: Any = environment.env
    if env is not None and not isinstance(env, str) and not callable(env):
        envs = as_envs(env)
        check_fits(dataset, envs, 'dataset')
        return envs, []
    why, given_env_options = (
        '',
        declared_options(EnvironmentOptions).keys() & typed_options.keys() - {'n_envs', 'vector'},
    )
    if env is None:
        dataset_options, why = dataset_environment_options(dataset)
        dataset_options = {n: v for n, v in dataset_options.items() if n not in settings.given_options}
        settings.given_options |= dataset_options
        for option, value in dataset_options.items():
            setattr(environment, option, value)
    if environment.env is None:
        return offline_envs(dataset), [f'{why}; nothing is evaluated, and the last weights are kept']
    try:
        evaluation_envs = create_envs(**{**environment.create_envs_kwargs(), 'n_envs': 1})
    except OptionError as error:
        if given_env_options:
            raise
        environment.env = None
        del settings.given_options['env']
        return offline_envs(dataset), [f'{error.problem}; nothing is evaluated, and the last weights are kept']
    with evaluation_envs:
        check_fits(dataset, evaluation_envs, 'dataset')
        return offline_envs(dataset, evaluation_envs), []


def _typed_flag(option: Option, value: Any) -> str:
    return f'--no-{option.flag[2:]}' if value is False else option.flag


def _warn_ignored_options(envs: Envs, run: RunOptions, typed_options: Mapping[str, Any]) -> list[str]:
    """Return a line that names the options that were given and change nothing.

    They are about Atari games where nothing is preprocessed, or about collecting where nothing is collected.
    """
    if run.dataset is not None:
        flags = [f'--{name.replace("_", "-")}' for name in COLLECTING_OPTIONS if name in typed_options]
        return [f'Warning: without effect on a data set: {", ".join(flags)}'] if flags else []
    known = declared_options(EnvironmentOptions)
    flags = (
        []
        if envs.atari
        else [_typed_flag(known[name], typed_options[name]) for name in ATARI_OPTIONS if name in typed_options]
    )
    where = f'{envs.id}, which is no preprocessed Atari game'
    return [f'Warning: without effect on {where}: {", ".join(flags)}'] if flags else []


def check_files(settings: Settings, entry: Entry, continued: bool) -> None:
    """Check paths and networks before environments and TensorFlow are loaded."""
    run, network, models = settings.run, settings.network, settings.models
    if run.checkpoints:
        weight_files.check_paths('checkpoints', run.checkpoints, entry.labels)
    if run.history_checkpoint:
        check_history_path(run.history_checkpoint, resume=continued)
    for name in ('tensorboard', 'run_dir'):
        if getattr(run, name):
            check_folder(name, getattr(run, name))
    if run.stages:
        find_registered_stages(run.stages)
    if run.monitor_session:
        check_wandb()
    if 'render_mode' in (settings.environment.env_kwargs or {}):
        raise OptionError('env_kwargs', 'got render_mode, which play chooses: see --render and --video-dir')
    given = [name for name in models if models[name] is not None]
    if network.net and not entry.networks and entry is not TEAM_ENTRY:
        raise OptionError('net', f'got {network.net}, but {entry.id} has no network')
    for name in given:
        if network.net:
            raise OptionError('net', f'got {network.net} with {name} {models[name]}, expected one of them')
        read_network(models[name], name)
    shares = entry.variant is not None and entry.variant.option == 'shared_network'
    if network.shared_network and not shares:
        raise OptionError('shared_network', f'{entry.id} has no network of two heads to share')
    if given and network.shared_network:
        raise OptionError('shared_network', f'the file {models[given[0]]} says itself what is shared')
    for name in NET_ONLY_OPTIONS:
        value = getattr(network, name)
        if value and not network.net:
            raise OptionError(name, f'got {value} without --net, whose layers it is for')


def _build_agent(entry: Entry, envs: Envs, settings: Settings, descriptions: list[Any]) -> Any:
    options = settings.agent
    entry.agent.check_envs(envs, options)
    convolutional = any(_is_convolutional(network, envs) for network in descriptions)
    if not convolutional and threads_in_use() == 0:
        set_threads(1)  # best for dense networks on a CPU; convolutions take all cores
    units, seed = entry.agent.output_units(envs), options.draw_seed()
    with _dtype_policy(options.precision):
        models = [
            # neither two networks of an agent nor two agents share initial weights
            _build_network(
                network, description, envs, units, _network_outputs(entry, network, settings), _network_seed(seed, i)
            )
            for i, (network, description) in enumerate(zip(entry.networks, descriptions, strict=True))
        ]
    return entry.agent(envs, *models, settings=settings)


def _build_network(
    network: NetworkRole, description: Any, envs: Envs, units: Mapping[str, int], outputs: tuple[str, ...], seed: int
) -> Any:
    """Build one network for observations, or for observations and actions."""
    from xagents.networks.models import ModelReader

    own = isinstance(description, NetworkFunction)
    joins = network.takes_actions and (
        'action_units' in description.argument_names if own else description.action is not None
    )
    shape, sizes = envs.observation_space.shape, [units[name] for name in outputs]
    if network.takes_actions and not joins:
        if len(shape) > 1:
            needed = 'the function needs an argument action_units' if own else 'the file needs an action-* section'
            raise OptionError(network.option, f'{envs.id} shows images: {needed}')
        shape = (shape[0] + units['actor'],)
    action_units = units['actor'] if joins else None
    if own:
        return description.build(shape, sizes, seed, action_units)
    reader = ModelReader(description, output_units=sizes, input_shape=shape, seed=seed, action_units=action_units)
    return reader.build_model()


def _network_descriptions(entry: Entry, envs: Envs, settings: Settings, saved: list[str]) -> list[Any]:
    """Return each network's description: what was saved, a file, `--net`, or the default for these observations."""
    if saved:
        return [network_from_text(text, network.option) for text, network in zip(saved, entry.networks, strict=True)]
    return [_network_description(entry, network, envs, settings) for network in entry.networks]


def _network_description(entry: Entry, network: NetworkRole, envs: Envs, settings: Settings) -> Any:
    file, net = settings.models[network.option], settings.network.net
    if file:
        return read_network(file, network.option)
    uses_variant = _uses_variant(entry, settings)
    if net:
        if envs.is_image:
            flag = '--' + network.option.replace('_', '-')
            raise OptionError('net', f'{envs.id} shows images, which need convolutions: give a .cfg by {flag}')
        activation, outputs = (
            settings.network.activation or entry.activation,
            _network_outputs(entry, network, settings),
        )
        last, initializer = network.output_activation, settings.network.initializer or entry.initializer
        return dense_network(net, activation, uses_variant, outputs, output_activation=last, initializer=initializer)
    files = entry[network.option]['cnn' if envs.is_image else 'ann']
    if not files:
        kind = 'images' if envs.is_image else 'vectors'
        raise OptionError(network.option, f'got nothing, and {entry.id} ships no network for {kind}: give a .cfg')
    # what convolves shares its trunk by default
    return parse_network(files[-1] if uses_variant else files[0])


def _uses_variant(entry: Entry, settings: Settings) -> bool:
    """Return whether the other form of an agent's networks is asked for."""
    if entry.variant is None:
        return False
    name = entry.variant.option
    return bool(getattr(settings.network if hasattr(settings.network, name) else settings.agent, name))


def _network_outputs(entry: Entry, network: NetworkRole, settings: Settings) -> tuple[str, ...]:
    variant = entry.variant
    if variant is None or variant.outputs is None or not _uses_variant(entry, settings):
        return network.outputs
    return variant.outputs


def _network_seed(seed: int, index: int) -> int:
    """Return the seed of one network's weights: neither two networks of an agent nor two agents share any."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) if index else seed


def _is_convolutional(network: Any, envs: Envs) -> bool:
    if isinstance(network, NetworkFunction):
        return envs.is_image  # what it makes is not known before TensorFlow has started
    return any(layer.kind == 'convolutional' for layer in network.layers)


@contextlib.contextmanager
def _dtype_policy(precision: str) -> Iterator[None]:
    import keras

    kept = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16' if precision == 'bfloat16' else 'float32')
    try:
        yield
    finally:
        keras.config.set_dtype_policy(kept)


def _survives_json(value: Any, outermost: bool = False) -> bool:
    """Return whether JSON gives a value back as it is; an outermost tuple counts as a list."""
    if type(value) is list or (outermost and type(value) is tuple):
        return all(map(_survives_json, value))
    if type(value) is dict:
        return all(type(key) is str and _survives_json(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _json_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON can hold of the given options; functions and ready-made environments are left out."""
    plain = {}
    for name, value in options.items():
        with contextlib.suppress(TypeError, AttributeError):
            # NumPy's numbers and arrays have a tolist()
            plain[name] = json.loads(json.dumps(value, default=lambda x: x.tolist()))
    return plain
