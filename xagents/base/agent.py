"""The base class of all agents: options, environments, random streams, the published policy, and `fit`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections import deque
from collections.abc import Generator
from typing import Any, ClassVar

import keras
import numpy as np

from xagents.base.method_policy import MethodPolicy, NoPolicy
from xagents.checkpoints.agent_state import capture_state, load_state
from xagents.checkpoints.progress import Progress
from xagents.checkpoints.protocols import AgentOrigin, BufferNeeds
from xagents.checkpoints.state_files import AgentState as AgentState
from xagents.collecting.collector import Collector
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import ColumnSpecs, Rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.create import as_envs
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.evaluation import playing
from xagents.networks.acting import ActingNetwork
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions
from xagents.options.declaration import declared_options, signature
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.options.settings import resolve_agent_options
from xagents.pipeline.recipe import Recipe
from xagents.pipeline.schedules import Schedule
from xagents.registry.agents import agent_id_of
from xagents.runs import recipes, training
from xagents.runs.run import Run
from xagents.runs.saving import read_weights

# attributes that an agent reads from its parts, by name
READ_FROM = {name: f'progress.context.{name}' for name in ('steps', 'games', 'mean_reward', 'best_reward')}
READ_FROM |= {'context': 'progress.context', 'n_envs': 'envs.n_envs'}


class BaseAgent:
    """The mathematics of an algorithm: what it learns from a batch, and the policy that it publishes.

    A subclass implements `learn(batch)` and either `make_policy(network)` or `policy(observations, noise)`; or, as in
    1.0, `train_step()`.

    Args:
        envs: what `create_envs` returns, a Gymnasium vector environment, an environment, or a list of them.
        options: mathematics (`Options`) and, as in 1.0, defaults for `fit` (`RunOptions`).

    Attributes:
        options: of the mathematics.
        defaults: the options of runs that were given here.
        envs: the environments that it learns from.
        output_models: its networks, in the order of `--checkpoints`.
        actor: the network that acts, as a function of arrays; None where none does.
        statistics: of observations and rewards, by which it normalises.
        streams: its random generators.
        progress: how far its training has come.
        origin: what it was made of.
        context: the last iteration's context, written just before its log is yielded.
        steps, games, mean_reward, best_reward: the counters of `context`.
        n_envs: number of environments.
        run: the last run, or the one that goes on; None before the first.

    Raises:
        OptionError: for an option that does not exist or a value that is not admitted.
    """

    Options: ClassVar[type[AgentOptions]] = AgentOptions
    NO_OVERLAP_REASON: str = ''
    model_names: ClassVar[tuple[str, ...]] = ()
    # whether rollouts stay as the environments gave them, to be normalised when they are learned from
    raw_rollouts: ClassVar[bool] = False
    options: AgentOptions

    _option_names: ClassVar[frozenset[str]] = frozenset(declared_options(AgentOptions))

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        # networks have the names of the options of their files
        cls._option_names = frozenset(name for name in declared_options(cls.Options) if not name.endswith('model'))
        positional = list(inspect.signature(cls.__init__).parameters)[:-1] if '__init__' in vars(cls) else []
        if positional:
            cls.__signature__ = signature(positional[1:], cls.Options, RunOptions)  # type: ignore[attr-defined]

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

    def __setattr__(self, name: str, value: Any) -> None:
        """Options are part of what was compiled: assigning one would change nothing."""
        if name in self._option_names and 'options' in self.__dict__:
            raise AttributeError(f'{name} is fixed when the agent is made: make another one with {name}={value!r}')
        if name in READ_FROM:
            raise AttributeError(f'{name} is counted by the run, and cannot be assigned')
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Options read like attributes, `agent.gamma`, and counters, too."""
        if not name.startswith('_') and 'options' in self.__dict__:
            if hasattr(self.options, name):
                return getattr(self.options, name)
            if name in READ_FROM:
                return operator.attrgetter(READ_FROM[name])(self)
        if hasattr(type(self), name):  # a property that failed: say what it lacked
            return object.__getattribute__(self, name)
        raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *READ_FROM})

    @functools.cached_property
    def traced_options(self) -> TracedOptions:
        """The options as compiled updates read them: those that are numbers are no constants there."""
        return TracedOptions(self.options)

    @property
    def id(self) -> str:
        """Its name on the command line."""
        return agent_id_of(type(self))

    @property
    def n_actions(self) -> int:
        """Number of discrete actions, or the length of a flat continuous action."""
        return ActionDecoder(self.envs.action_space).n_actions

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one encoded observation."""
        return tuple(self.envs.observation_space.shape)

    def _make_statistics(self) -> Statistics:
        return Statistics.from_options(self.envs, self.options)

    # what an algorithm says

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the agent can learn in environments, before a network is built.

        Raises:
            OptionError: naming what they have and what the agent admits.
        """

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of the outputs that its networks may have, by the names in the registry."""
        return {}

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the policy that acts by a network like `actor`."""
        return NoPolicy(type(self).__name__, self._policy_columns())

    def make_actor(self, index: int) -> Any:
        """Return the network that acts, with the model's output `index` as the policy."""
        raise TypeError(f'{type(self).__name__} has no policy')

    def train_step(self) -> None:
        """Do one iteration, in a subclass that does not split it into `collect` and `learn`."""

    def learn(self, batch: dict[str, np.ndarray], **schedule: float) -> dict[str, float]:
        """Learn from what was collected and return metrics by name; `updates` counts the optimiser's steps.

        An agent declares which values of `schedules` it takes.
        """
        raise TypeError(f'{type(self).__name__} implements neither train_step() nor collect() and learn(batch)')

    def schedules(self) -> dict[str, Schedule]:
        """Return what changes during a run, by name; `collect` and `learn` get those that their signatures name."""
        return {'learning_rate': Schedule(self.options.lr, self.options.lr_schedule)}

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own, by name.

        An object has `state()`, which returns arrays by name, and `load(state)`; a NumPy array is changed in place.
        """
        return {**self.statistics.parts(), **self.acting_policy.parts()}

    def buffer_needs(self) -> BufferNeeds | None:
        """Return what its replay buffer needs, where it has one that is empty."""
        return None

    def _check_model(
        self, model: keras.Model, units: list[int], name: str = 'model', inputs: list[tuple[int, ...]] | None = None
    ) -> None:
        """Check the sizes of a network's outputs and the shapes of its inputs: one observation when not given."""
        inputs = inputs or [self.input_shape]
        got = [tuple(x.shape[1:]) for x in model.inputs], [output.shape[-1] for output in model.outputs]
        if got != (inputs, units):
            raise ValueError(
                f'{name}: got inputs {got[0]} and outputs {got[1]}, '
                f'takes inputs {inputs} and outputs {units} for {self.envs.id}'
            )

    # acting

    @functools.cached_property
    def acting_policy(self) -> Policy:
        """The policy by the present weights."""
        own, ours = type(self), BaseAgent
        policy = MethodPolicy(self, self._actor_policy) if own.policy is not ours.policy else self._actor_policy
        policy.self_contained = (own.act, own.evaluate, own.play) == (ours.act, ours.evaluate, ours.play)
        return policy

    @functools.cached_property
    def _actor_policy(self) -> Policy:
        return self.make_policy(self.actor)

    @functools.cached_property
    def collector(self) -> Collector:
        """Who collects: environments, the policy, and all that belongs to acting."""
        return Collector(self.envs, self.acting_policy, self.statistics, self.streams, self.raw_rollouts)

    def policy(self, observations: np.ndarray, noise: np.ndarray | None, **schedule: Any) -> dict[str, np.ndarray]:
        """Return `actions` [N, …] and other columns for prepared observations [N, *D]; greedy ones without noise.

        An agent of one's own may define this, and `draw_noise`, in place of `make_policy`.
        """
        return self._actor_policy(observations, noise, **schedule)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the randomness that `policy` needs for `shape` actions."""
        return self._actor_policy.draw_noise(rng, shape)

    def _policy_columns(self) -> ColumnSpecs:
        """Return shape and dtype, for one environment, of what a rollout keeps of a policy of one's own."""
        return {'actions': ActionDecoder(self.envs.action_space).action_spec}

    def collect(self, **schedule: Any) -> Rollout:
        """Let the environments take some steps and return what was seen, arrays by name; see `Collector.collect`."""
        if not self._uses_train_step():
            raise TypeError(f'{type(self).__name__} implements neither train_step() nor collect() and learn(batch)')
        self.train_step()
        return {}

    def act(self, observations: Any, greedy: bool = True, policy: Policy | None = None) -> np.ndarray:
        """Return environment actions.

        Args:
            observations: raw ones [N, …] as the environments give them, any N.
            greedy: the best action; else one is sampled.
            policy: another one than the agent's own.

        Returns:
            [N, …] in the shape and dtype of the environment's action space.
        """
        self.refresh()
        policy = self.acting_policy if policy is None else policy
        encoded = self.envs.encoder(observations)
        noise = None if greedy else policy.draw_noise(self.rng('sample'), (len(encoded),))
        return np.array(self.collector.decode(policy(self.statistics.prepare(encoded), noise)['actions']))

    def refresh(self) -> None:
        """Let acting use the models' present weights."""
        if self.actor is not None:
            self.actor.refresh()

    def evaluate(
        self,
        episodes: int = 20,
        stochastic: bool = False,
        seed: int | None = None,
        envs: Any = None,
        n_envs: int | None = None,
    ) -> dict[str, float]:
        """Play whole episodes with the present weights, on environments of their own.

        Args:
            episodes: how many.
            stochastic: sample actions; greedy when not.
            seed: of the episodes; derived from (seed, 'evaluate', steps) when not given.
            envs: environments to play in, where the agent was given some that cannot be made again.
            n_envs: how many of them play side by side, at most one for each episode; 10 when not given.

        Returns:
            mean, std, min, max of the episodes' raw rewards, and their mean length; where the environment reports it,
            also success, the share of the episodes that had it.
        """
        return playing.evaluate(self, episodes, stochastic, seed, envs, n_envs)

    def play(self, video_dir: str | None = None, action_idx: int = 0, **options: Any) -> float:
        """Play one episode with the present weights, and return its reward.

        Args:
            video_dir: folder for an .mp4 named after agent, environment and time.
            action_idx: index of the policy among the model's outputs.
            options: those of `evaluation.play`.
        """
        policy = self._policy_of_output(action_idx) if action_idx else None
        return playing.play(self, video_dir, policy=policy, **options)

    def _policy_of_output(self, index: int) -> Policy:
        """Return the policy by another output of the model."""
        outputs = self._policy_outputs()
        admitted = [i for i, output in enumerate(outputs) if output.shape[-1] == outputs[0].shape[-1]]
        if index not in admitted:
            raise OptionError(
                'action_idx', f'got {index}, expected {", ".join(map(str, admitted))}: outputs of its size'
            )
        return self.acting_policy.with_network(self.make_actor(index))

    def _policy_outputs(self) -> list[Any]:
        """Return the model's outputs of which one is the policy, and others of its size might be."""
        return self.output_models[0].outputs

    # random numbers, state

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the generator of one purpose, seeded from (seed, purpose); its state is part of the agent's."""
        return self.streams(purpose)

    def state(self) -> AgentState:
        """Return a copy of what the agent knows: all but its environments and its replay buffer."""
        return capture_state(self)

    def load_state(self, state: AgentState) -> None:
        """Take over a state, of an equal network; the environments stand where they are."""
        load_state(self, state)

    def load_weights(self, paths: list[str]) -> None:
        """Read weights and optimisers, and the state next to the first file if it exists.

        Raises:
            ValueError: in one line, naming the file.
        """
        read_weights(paths, self)

    # runs

    def recipe(self, overlap: bool | None = None, stages: list[str] | None = None) -> Recipe:
        """Return the stages of a run, in order; see `Recipe` for changing them.

        Args:
            overlap: collect in a thread, one iteration ahead of learning; the default of its runs when not given.
            stages: names of registered stages; likewise.

        Raises:
            OptionError: where overlap is asked for and the agent cannot learn so.
        """
        options = self.defaults if self.run is None else self.run.options
        overlap = options.overlap if overlap is None else overlap
        stages = options.stages if stages is None else stages
        if options.dataset is not None:
            return recipes.dataset_recipe(self, stages)
        if overlap:
            self._check_overlap()
        learning = None if self._uses_train_step() else self.learning()
        return recipes.complete_recipe(self, learning, overlap, stages)

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail: from what was collected to what was learned."""
        return recipes.LEARNING

    def _uses_train_step(self) -> bool:
        """Return whether it implements `train_step`, and is not split into `collect` and `learn`."""
        return type(self).train_step is not BaseAgent.train_step

    def _check_overlap(self) -> None:
        """Check that it may learn from what an older policy has collected."""
        name = type(self).__name__
        if self._uses_train_step():
            raise OptionError(
                'overlap',
                f'{name} collects and learns in train_step(), expected an agent that '
                'implements collect() and learn(batch)',
            )
        if self.NO_OVERLAP_REASON:
            raise OptionError('overlap', f'{name} {self.NO_OVERLAP_REASON}')
        if self.acting_policy.network is None:
            raise OptionError('overlap', f'{name} acts by no network, expected an agent whose `actor` is one')

    def begin(self, command: str = '', **options: Any) -> Run:
        """Return a run, checked before anything is written, for `training.fit` or `training.iterate`.

        Options are `RunOptions`; those that the agent was made with stand in for others.
        """
        self._close_stream()
        given = {name: getattr(self.defaults, name) for name in self.defaults.given_names}
        resolved = RunOptions.resolve({**given, **options}) if options else self.defaults
        self.run = training.begin(self, resolved, command)
        return self.run

    def train_iter(self, recipe: Recipe | None = None, **run: Any) -> Generator[dict[str, float], None, None]:
        """Train, one iteration at a time; calling it again goes on, and closes an older one that is still open.

        Args:
            recipe: the stages; `recipe()` when not given.
            run: `RunOptions`; `max_steps` and `max_time` are totals, earlier calls included.

        Yields:
            One flat dict of floats an iteration; `mean_reward` is always there, NaN before it exists.
        """
        begun = self.begin(**run)
        return training.iterate(begun, self._recipe_of(begun, recipe))

    def fit(self, target_reward: float | None = None, *, recipe: Recipe | None = None, **run: Any) -> None:
        """Train until a target, a budget or an early stop.

        Args:
            target_reward: stop when the mean reward reaches it.
            recipe: the stages; `recipe()` when not given.
            run: the other `RunOptions`.

        Raises:
            OptionError: for a wrong option, or where nothing would end the run.
            KeyboardInterrupt: after a Ctrl-C, when everything is saved.
            SystemExit: with code 143 after a SIGTERM, likewise.
        """
        if target_reward is not None:
            run['target_reward'] = target_reward
        begun = self.begin(**run)
        ends = begun.options
        if ends.target_reward is None and ends.max_steps is None and ends.max_time is None:
            raise OptionError('target_reward', 'one of target_reward, max_steps, max_time is required')
        training.fit(begun, self._recipe_of(begun, recipe))

    def _recipe_of(self, run: Run, recipe: Recipe | None) -> Recipe:
        return training.check_recipe(self.recipe() if recipe is None else recipe, self, run.options.overlap)

    def _close_stream(self) -> None:
        stream = None if self.run is None else self.run.stream()
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close the environments, also those of evaluations."""
        self._close_stream()
        if self.progress.run_directory is not None:
            self.progress.run_directory.release()
        if 'collector' in self.__dict__:
            self.collector.close()
        self.envs.close()
