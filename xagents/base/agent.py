"""The base class of all agents: options, environments, random streams, the published policy, and `fit`."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections import deque
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, Unpack

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from xagents.base.foreign_calls import ForeignAttribute, answer_keywords, check_batch
from xagents.base.method_checks import check_parameters, check_results
from xagents.base.method_policy import MethodPolicy, NoPolicy
from xagents.checkpoints.agent_state import capture_state, load_state
from xagents.checkpoints.progress import Progress
from xagents.checkpoints.protocols import AgentOrigin, BufferNeeds
from xagents.checkpoints.state_files import AgentState as AgentState
from xagents.collecting.collector import Collector
from xagents.collecting.opponents import OPPONENTS, OpponentPool, policy_form
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import ColumnSpecs, Rollout
from xagents.collecting.row_memory import RowMemory
from xagents.collecting.statistics import Statistics
from xagents.envs.create import as_envs
from xagents.envs.interface import Envs
from xagents.envs.observations.action_masks import check_masks
from xagents.envs.spaces import ActionDecoder
from xagents.evaluation import playing
from xagents.logs.console import format_number
from xagents.networks.acting import ActingNetwork
from xagents.networks.keras_to_plan import for_whole_observations, with_mask
from xagents.networks.layers import vector_bytes
from xagents.networks.memory import memory_units
from xagents.networks.optimisation.gradient_steps import COUNTS
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions
from xagents.options.declaration import declared_options, signature
from xagents.options.errors import OptionError
from xagents.options.foreign_names import attribute_hint
from xagents.options.runs import RunOptions
from xagents.options.settings import resolve_agent_options
from xagents.pipeline.recipe import Recipe
from xagents.pipeline.schedules import Schedule
from xagents.registry.agents import agent_id_of
from xagents.registry.traits import Traits
from xagents.runs import recipes, training
from xagents.runs.run import Run
from xagents.runs.saving import read_weights
from xagents.system.trees import map_tree

if TYPE_CHECKING:
    from xagents.options.keywords import FitKeywords, RunKeywords

# counters of a run that an agent has as attributes: the path of each, by name
READ_FROM = {name: f'progress.context.{name}' for name in ('steps', 'games', 'mean_reward', 'best_reward')}
READ_FROM |= {'context': 'progress.context', 'n_envs': 'envs.n_envs'}

NOT_IMPLEMENTED = ' implements neither train_step() nor collect(schedule) and learn(batch, schedule)'


class BaseAgent:
    """The base class of algorithms: an agent learns from batches and publishes a policy.

    A subclass implements `learn(batch, schedule)` and either `make_policy(network)` or `policy(observations, noise)`.
    As in 1.0, a subclass may implement `train_step()` instead.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, an environment, or a list of environments.
        options: options of the algorithm (`Options`) and, as in 1.0, defaults for `fit` (`RunOptions`).

    Attributes:
        traits: properties of the class that other packages read.
        options: the options of the algorithm.
        defaults: the run options that were passed to the constructor.
        envs: the training environments.
        output_models: the networks, in the order of `--checkpoints`.
        actor: the acting network, as a function of arrays; None if the agent has none.
        statistics: the running statistics that normalise observations and rewards.
        streams: the random generators.
        progress: the training progress.
        origin: the options and network descriptions that the agent was created from.
        context: the context of the last iteration, set just before the log of the iteration is yielded.
        steps, games, mean_reward, best_reward: the counters of `context`.
        n_envs: the number of environments.
        run: the current or last run; None before the first.

    Raises:
        OptionError: if an option does not exist or has an invalid value.
    """

    Options: ClassVar[type[AgentOptions]] = AgentOptions
    traits: Traits = Traits()
    # metrics that an update returns besides 'updates' and 'stats/refused'
    METRICS: ClassVar[tuple[str, ...]] = ()
    options: AgentOptions
    load = ForeignAttribute()

    _option_names: ClassVar[frozenset[str]] = frozenset(declared_options(AgentOptions))

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        # options such as `model` name a file; the attribute of the same name is the network
        cls._option_names = frozenset(name for name in declared_options(cls.Options) if not name.endswith('model'))
        check_parameters(cls)
        check_results(cls)
        if repeated := {*COUNTS} & {*cls.METRICS}:
            expected = 'expected only the other metrics, because every update has this one'
            raise TypeError(f'{cls.__name__}.METRICS: got {min(repeated)}, {expected}')
        if 'learn' in vars(cls):
            cls.learn = check_batch(cls.learn)  # type: ignore[method-assign]
        if positional := list(inspect.signature(cls.__init__).parameters)[:-1]:
            cls.__signature__ = signature(positional[1:], cls.Options, RunOptions)  # type: ignore[attr-defined]

    def __new__(cls, envs: Any = None, *networks: Any, **options: Any) -> Self:
        """Refuse an id in place of environments before the missing networks are an error."""
        if isinstance(envs, str):
            expected = f"expected environments and networks, or xagents.make('{agent_id_of(cls)}', env)"
            raise TypeError(f'{cls.__name__}: got {envs!r}, {expected}')
        return super().__new__(cls)

    def __init__(self, envs: Any, **options: Any):
        self.options, self.defaults, lines = resolve_agent_options(type(self).__name__, self.Options, options)
        self.envs: Envs = as_envs(envs)
        self.check_envs(self.envs, self.options)
        self.output_models: list[keras.Model] = []
        self.actor: Any = None
        self.statistics = self._make_statistics()
        self.streams = RandomStreams(int(self.options.seed or 0))
        self.progress = Progress(deque(maxlen=self.options.reward_buffer_size), startup_lines=lines)
        self.origin = AgentOrigin()
        self.run: Run | None = None
        self._memory = RowMemory()

    def __setattr__(self, name: str, value: Any) -> None:
        """Reject new values of options, which compiled programs would ignore, and of counters."""
        if name in self._option_names and 'options' in self.__dict__:
            raise AttributeError(f'{name} is fixed when the agent is created: create another with {name}={value!r}')
        if name in READ_FROM:
            raise AttributeError(f'{name} is a counter of the run and cannot be assigned')
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Return an option, as in `agent.gamma`, or a counter of the run."""
        if not name.startswith('_') and 'options' in self.__dict__:
            if hasattr(self.options, name):
                return getattr(self.options, name)
            if name in READ_FROM:
                return operator.attrgetter(READ_FROM[name])(self)
        if hasattr(type(self), name):  # a property that failed: raise its own error
            return object.__getattribute__(self, name)
        hint = attribute_hint(name)
        if 'options' not in self.__dict__ and not name.startswith('_'):
            hint = ': its __init__ has not called super().__init__(envs, **options)'
        raise AttributeError(f'{type(self).__name__} has no attribute {name!r}{hint}')

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *READ_FROM})

    @functools.cached_property
    def traced_options(self) -> TracedOptions:
        """The options for compiled updates: numbers are variables, so that other values need no compilation."""
        return TracedOptions(self.options)

    @property
    def id(self) -> str:
        """The name of the agent on the command line."""
        return agent_id_of(type(self))

    @property
    def n_actions(self) -> int:
        """Number of discrete actions, or the length of a flat continuous action."""
        return ActionDecoder(self.envs.action_space).n_actions

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the part of one encoded observation that critics receive: without an action mask."""
        return tuple(self.envs.network_shape)

    def _make_statistics(self) -> Statistics:
        return Statistics.from_options(self.envs, self.options)

    # the interface of an algorithm

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the agent supports the environments; called before a network is built.

        Raises:
            OptionError: if the agent does not support them; the message names the supported spaces.
        """

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs, by their names in the registry."""
        return {}

    @classmethod
    def _units_for(cls, envs: Envs, options: AgentOptions) -> dict[str, int]:
        """Return the sizes of network outputs, which options of the agent may set."""
        return cls.output_units(envs)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return a policy that acts with `network`, which has the form of `actor`."""
        return NoPolicy(type(self).__name__, self._policy_columns())

    def make_actor(self, index: int) -> Any:
        """Return an acting network whose policy is output `index` of the model."""
        raise TypeError(f'{type(self).__name__} has no policy')

    def train_step(self) -> None:
        """Run one iteration; for a subclass that does not split it into `collect` and `learn`."""

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Learn from a batch and return metrics by name; `updates` is the number of optimiser steps.

        Args:
            batch: the result of `collect` or `replay`, which other stages may have changed.
            schedule: the current values of `schedules()` by name, and `steps`, the number of environment steps so far.
        """
        raise TypeError(type(self).__name__ + NOT_IMPLEMENTED)

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules by name; `collect`, `replay` and `learn` receive their current values."""
        return {'learning_rate': Schedule(self.options.lr, self.options.lr_schedule)}

    def parts(self) -> dict[str, Any]:
        """Return the parts of the agent whose state belongs in checkpoints, by name.

        A part has `state()`, which returns arrays by name, and `load(state)`; or it is a NumPy array, which loading
        changes in place.
        """
        games = {} if self.opponents is None else {OPPONENTS: self.opponents}
        return {**self.statistics.parts(), **self.acting_policy.parts(), **games}

    def buffer_needs(self) -> BufferNeeds | None:
        """Return the needs of the replay buffer; None if there is none or it already contains data."""
        return None

    def _check_model(
        self, model: keras.Model, units: list[int], name: str = 'model', inputs: list[tuple[int, ...]] | None = None
    ) -> None:
        """Check the output sizes and input shapes of a network; the default input is one observation."""
        if memory_units(model) and not self.options.has_memory:
            expected = f'which {type(self).__name__} cannot learn with; expected layers without memory'
            raise ValueError(f'{name}: got recurrent layers, {expected}')
        inputs = inputs or [self.input_shape]
        got = [tuple(x.shape[1:]) for x in model.inputs], [output.shape[-1] for output in model.outputs]
        if got != (inputs, units):
            expected = f'expected inputs {inputs} and outputs {units} for {self.envs.id}'
            raise ValueError(f'{name}: got inputs {got[0]} and outputs {got[1]}, {expected}')

    def _adopt_model(
        self,
        model: keras.Model,
        units: list[int],
        name: str = 'model',
        inputs: list[tuple[int, ...]] | None = None,
        masked: bool = False,
        acts: bool = False,
    ) -> keras.Model:
        """Check a network, and return it as a network of whole encoded observations.

        Args:
            model: the network.
            units: the expected sizes of its outputs.
            name: the name of the network in messages.
            inputs: the expected shapes of its inputs; by default those of one observation.
            masked: whether the first output is the logits or values of actions, which an action mask limits.
            acts: whether the network is an actor, which does not receive the parts of observations for critics.
        """
        envs = self.envs
        inputs = inputs or [tuple(envs.actor_shape if acts else envs.network_shape)]
        self._check_model(model, units, name, inputs)
        n_mask, (n_whole, *others) = envs.n_mask, envs.observation_space.shape
        if envs.encoder.images:
            return with_mask(model, n_mask, envs.encoder.n_floats) if masked and n_mask else model
        takes_part = not others and (n_mask > 0 or (inputs[0] != self.input_shape and acts))
        return for_whole_observations(model, n_whole, n_mask, masked) if takes_part else model

    def action_masks(self, observations: tf.Tensor) -> tf.Tensor:
        """Return the action masks [B, n] in network inputs [B, *D]."""
        encoder = self.envs.encoder
        vectors = vector_bytes(observations, encoder.n_floats) if encoder.images else observations
        return vectors[:, -self.envs.n_mask :]

    # acting

    @functools.cached_property
    def acting_policy(self) -> Policy:
        """The policy with the current weights."""
        own, ours = type(self), BaseAgent
        policy = MethodPolicy(self, self._actor_policy) if own.policy is not ours.policy else self._actor_policy
        policy.self_contained = (own.act, own.evaluate, own.play) == (ours.act, ours.evaluate, ours.play)
        return policy

    def __repr__(self) -> str:
        counted = f'{self.steps} steps, mean reward {format_number(self.mean_reward, 2)}'
        envs = f'{self.n_envs} environment{"s" if self.n_envs > 1 else ""}'
        return f'<{type(self).__name__} in {envs} of {self.envs.id}: {counted}>'

    @functools.cached_property
    def _actor_policy(self) -> Policy:
        return self.make_policy(self.actor)

    @property
    def members(self) -> Mapping[str, BaseAgent]:
        """The agents of the policies, by the names of the policies: this agent, whose policy has no name."""
        return {'': self}

    @functools.cached_property
    def collector(self) -> Collector:
        """The collector: environments, policy, statistics and random generators."""
        raw = self.traits.raw_rollouts
        collector = Collector.of_policy(self.envs, self.acting_policy, self.statistics, self.streams, raw)
        collector.group.opponents = self.opponents
        return collector

    @functools.cached_property
    def opponents(self) -> OpponentPool | None:
        """The players of the other seats, if the environments are games; earlier or present policies of this agent."""
        if not self.envs.is_game:
            return None
        pool = OpponentPool(self.envs, policy_form(self), self._make_statistics())
        self.envs.set_opponents(pool)
        return pool

    def policy(self, observations: np.ndarray, noise: np.ndarray | None, **schedule: Any) -> dict[str, np.ndarray]:
        """Return `actions` [N, …] and other columns for prepared observations [N, *D]; without noise, greedy actions.

        A custom agent may define `policy` and `draw_noise` instead of `make_policy`.
        """
        return self._actor_policy(observations, noise, **schedule)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the noise that `policy` needs for `shape` actions."""
        return self._actor_policy.draw_noise(rng, shape)

    def _policy_columns(self) -> ColumnSpecs:
        """Return the shape and dtype, for one environment, of each rollout column that a custom policy fills."""
        return {'actions': ActionDecoder(self.envs.action_space).action_spec}

    def collect(self, schedule: Mapping[str, float]) -> Rollout:
        """Step the environments and return a rollout, arrays by name; see `Collector.collect`.

        `schedule` contains the current values of `schedules()` by name.
        """
        if not self._uses_train_step():
            raise TypeError(type(self).__name__ + NOT_IMPLEMENTED)
        self.train_step()
        return {}

    @answer_keywords
    def act(self, observations: Any, greedy: bool = True, policy: Policy | None = None) -> Any:
        """Return environment actions.

        An agent with memory remembers the observations of each row since the last `reset_memory`.

        Args:
            observations: raw observations [N, …] of the environments, any N, or the observation of one environment.
            greedy: whether to return the best actions; if False, actions are sampled.
            policy: a policy to use instead of the agent's own.

        Returns:
            [N, …] in the shape and dtype of the environment's action space; one action for one observation. For a Dict
            or Tuple of actions, a dict or tuple of arrays.

        Raises:
            ValueError: if observations do not fit, a mask has no legal action, or an agent with memory gets another
                number of rows.
        """
        self.refresh()
        policy, space = self.acting_policy if policy is None else policy, self.envs.encoder.raw_space
        is_reset = isinstance(observations, tuple) and len(observations) == 2 and isinstance(observations[1], dict)
        if is_reset and not isinstance(space, gymnasium.spaces.Tuple):
            raise ValueError('observations: got (observation, info) of reset(), expected only the observation')
        encoder = self.envs.encoder
        single = encoder.is_single(observations)
        encoded = encoder(encoder.as_batch(observations) if single else observations)
        if encoder.n_mask:
            check_masks(encoder.masks(encoded), self.envs.action_space)
        noise = None if greedy else policy.draw_noise(self.rng('sample'), (len(encoded),))
        columns = self._memory.act(policy, self.statistics.prepare(encoded), noise)
        actions = self.collector.group.decode(columns['actions'])
        return map_tree(lambda leaf: np.array(leaf)[0] if single else np.array(leaf), actions)

    @answer_keywords
    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Return actions and `state`, as `predict` of Stable-Baselines3 does; `act` returns only actions.

        Args:
            observation: as for `act`.
            state: the memory [N, M] before the step; None before the first step.
            episode_start: bool [N], the rows in which an episode begins, whose memory is forgotten.
            deterministic: whether to return the best actions; if False, as by default there, actions are sampled.

        Returns:
            The actions, and the memory after the step; of an agent without memory, `state` unchanged.
        """
        with self._memory.replaced(self.acting_policy, state, episode_start) as memory:
            return self.act(observation, greedy=deterministic), memory.state

    def reset_memory(self, rows: Any = None) -> None:
        """Forget the memory of `act`, of all rows or of some: indices, or bool [N]."""
        self._memory.reset(rows)

    def greedy_model(self, network: keras.Model) -> keras.Model:
        """Return a model whose first output gives the greedy action, for exports; `network` acts for the agent."""
        return network

    def refresh(self) -> None:
        """Update the acting network to the current weights of the models."""
        if self.actor is not None:
            self.actor.refresh()

    @answer_keywords
    def evaluate(
        self,
        episodes: int = 20,
        stochastic: bool = False,
        seed: int | None = None,
        envs: Any = None,
        n_envs: int | None = None,
        opponent: str | None = None,
    ) -> dict[str, float]:
        """Play whole episodes with the current weights in separate environments.

        Args:
            episodes: number of episodes.
            stochastic: whether to sample actions; if False, actions are greedy.
            seed: seed of the episodes; derived from (seed, 'evaluate', steps) when not given.
            envs: environments to play in; needed if the environments of the agent cannot be created again.
            n_envs: number of parallel environments, at most one per episode; 10 when not given.
            opponent: who plays the other seats of games: `random` legal actions, or the `policy` itself.

        Returns:
            mean, std, min and max of the raw episode rewards, and the mean length. If the environment reports success,
            also success, the share of successful episodes.
        """
        if not isinstance(episodes, numbers.Integral):
            problem = f'got a {type(episodes).__name__} as episodes, expected a number; envs=… passes environments'
            raise TypeError(f'evaluate: {problem}')
        return playing.evaluate(self, int(episodes), stochastic, seed, envs, n_envs, opponent=opponent)

    def play(self, video_dir: str | None = None, action_idx: int = 0, **options: Any) -> float:
        """Play one episode with the current weights and return its reward.

        Args:
            video_dir: folder for an .mp4 file, named after agent, environment and time.
            action_idx: index of the policy among the model's outputs.
            options: other arguments of `evaluation.play`.
        """
        policy = self._policy_of_output(action_idx) if action_idx else None
        return playing.play(self, video_dir, policy=policy, **options)

    def _policy_of_output(self, index: int) -> Policy:
        """Return a policy that acts with another output of the model."""
        outputs = self._policy_outputs()
        admitted = [i for i, output in enumerate(outputs) if output.shape[-1] == outputs[0].shape[-1]]
        if index not in admitted:
            expected = ', '.join(map(str, admitted))
            raise OptionError('action_idx', f'got {index}, expected {expected}: outputs of its size')
        return self.acting_policy.with_network(self.make_actor(index))

    def _policy_outputs(self) -> list[Any]:
        """Return the model's outputs that can be the policy: one is, others may have the same size."""
        return self.output_models[0].outputs

    # random numbers, state

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the generator for a purpose, seeded from (seed, purpose); checkpoints contain its state."""
        return self.streams(purpose)

    def state(self) -> AgentState:
        """Return a copy of the state of the agent, without environments and replay buffer."""
        return capture_state(self)

    def load_state(self, state: AgentState) -> None:
        """Load a state of an agent with equal networks; the environments do not change."""
        load_state(self, state)

    def load_weights(self, paths: list[str]) -> None:
        """Load weights and optimiser states, and the state file next to the first file if it exists.

        Raises:
            ValueError: if a file cannot be read; the one-line message names the file.
        """
        read_weights(paths, self)

    # runs

    def recipe(self, overlap: bool | None = None, stages: list[str] | None = None) -> Recipe:
        """Return the stages of a run, in order; see `Recipe` for changing them.

        Args:
            overlap: whether to collect in a thread, one iteration ahead of learning; by default as in the run options.
            stages: names of registered stages; by default those of the run options.

        Raises:
            OptionError: if `overlap` is set and the agent does not support it.
        """
        options = self.defaults if self.run is None else self.run.options
        overlap = options.overlap if overlap is None else overlap
        stages = options.stages if stages is None else stages
        if options.dataset is not None:
            return recipes.dataset_recipe(self, stages)
        if overlap:
            self._check_overlap()
        learning = None if self._uses_train_step() else self.learning()
        return recipes.complete_recipe(self, learning, overlap, stages, bool(options.curriculum))

    def learning(self) -> Recipe:
        """Return the stages in the middle of a recipe, which learn from the collected batch."""
        return recipes.LEARNING

    def _uses_train_step(self) -> bool:
        """Return whether the agent implements `train_step` instead of `collect` and `learn`."""
        return type(self).train_step is not BaseAgent.train_step

    def _check_overlap(self) -> None:
        """Check that the agent can learn from data of an older policy."""
        name = type(self).__name__
        if self._uses_train_step():
            expected = 'expected an agent that implements collect(schedule) and learn(batch, schedule)'
            raise OptionError('overlap', f'{name} collects and learns in train_step(), {expected}')
        if reason := self.traits.no_overlap_reason:
            raise OptionError('overlap', f'{name} {reason}')
        if self.acting_policy.network is None:
            raise OptionError('overlap', f'{name} acts by no network, expected an agent whose `actor` is one')

    def begin(self, command: str = '', **options: Any) -> Run:
        """Return a checked run for `training.fit` or `training.iterate`; nothing is written before the checks.

        Options are `RunOptions`; defaults are the run options that the agent was created with.
        """
        self._close_stream()
        given = {name: getattr(self.defaults, name) for name in self.defaults.given_names}
        resolved = RunOptions.resolve({**given, **options}) if options else self.defaults
        self.run = training.begin(self, resolved, command)
        return self.run

    def train_iter(
        self, recipe: Recipe | None = None, **run: Unpack[RunKeywords]
    ) -> Generator[dict[str, float], None, None]:
        """Train, one iteration at a time.

        A second call continues training, and closes the generator of the first.

        Args:
            recipe: the stages; `recipe()` when not given.
            run: `RunOptions`; `max_steps` and `max_time` are totals that include earlier calls.

        Yields:
            A flat dict of floats per iteration. It always contains `mean_reward`, which is NaN before the first mean.
        """
        begun = self.begin(**run)
        return training.iterate(begun, self._recipe_of(begun, recipe))

    def fit(
        self,
        *positional: Never,
        target_reward: float | None = None,
        recipe: Recipe | None = None,
        **run: Unpack[FitKeywords],
    ) -> None:
        """Train until a target, a budget or an early stop.

        Args:
            positional: none; arguments have names.
            target_reward: mean reward at which training stops.
            recipe: the stages; `recipe()` when not given.
            run: the other `RunOptions`.

        Raises:
            OptionError: if an option is invalid or no option would end the run.
            KeyboardInterrupt: after Ctrl-C, once everything is saved.
            SystemExit: with code 143 after SIGTERM, once everything is saved.
        """
        if positional:
            raise TypeError(f'fit: got {positional[0]} without a name, expected max_steps=… or target_reward=…')
        given: dict[str, Any] = {} if target_reward is None else {'target_reward': target_reward}
        begun = self.begin(**run, **given)
        ends = begun.options
        if ends.target_reward is None and ends.max_steps is None and ends.max_time is None:
            raise OptionError('target_reward', 'one of target_reward, max_steps, max_time is required')
        training.fit(begun, self._recipe_of(begun, recipe))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the agent as a run directory, which `xagents.load` and every command read.

        The directory contains the settings and the whole state, so that `xagents train --resume` continues from it.

        Args:
            folder: a new directory.

        Raises:
            OptionError: if the directory contains a run.
            SaveError: in one line, if the directory cannot be written.
        """
        training.save(self, self.defaults if self.run is None else self.run.options, folder)

    def _recipe_of(self, run: Run, recipe: Recipe | None) -> Recipe:
        return training.check_recipe(self.recipe() if recipe is None else recipe, self, run.options)

    def _close_stream(self) -> None:
        stream = None if self.run is None else self.run.stream()
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close the environments, including those for evaluations."""
        self._close_stream()
        if self.progress.run_directory is not None:
            self.progress.run_directory.release()
        if 'collector' in self.__dict__:
            self.collector.close()
        self.envs.close()
