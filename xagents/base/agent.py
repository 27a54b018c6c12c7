"""What all agents share: options, random streams, environments, the whole state, and the run as a stream of stages."""

from __future__ import annotations

import contextlib
import inspect
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import keras
import numpy as np

from xagents.base.classic import Classic
from xagents.base.schedules import Schedule
from xagents.base.state import Stateful
from xagents.collecting.double import Collecting
from xagents.collecting.rollouts import Rollout
from xagents.envs.create import Envs, as_envs
from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer
from xagents.envs.spaces import ActionDecoder
from xagents.logs.console import Console
from xagents.options.agents import AgentOptions
from xagents.options.declaration import canonical, describe, signature
from xagents.options.errors import OptionError, nearest
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context
from xagents.pipeline.recipe import Recipe
from xagents.runs import evaluation, stages
from xagents.runs.named import with_stages
from xagents.runs.overlap import check_overlap
from xagents.runs.run import Running
from xagents.runs.state import State as State


class BaseAgent(Running, Classic, Collecting, Stateful):
    """The mathematics of an algorithm, and the run around it.

    A subclass implements `train_step()` or, better, `collect()` and `learn(batch)`.

    Args:
        envs: what `create_envs` returns, a Gymnasium vector environment, an environment, or a list of them.
        options: mathematics (`Options`) and, as in 1.0, defaults for `fit` (`RunOptions`).

    Raises:
        OptionError: for an option that does not exist or a value that is not admitted.
    """

    Options: ClassVar[type[AgentOptions]] = AgentOptions
    model_names: ClassVar[tuple[str, ...]] = ()
    options: AgentOptions
    output_models: list[keras.Model]

    _option_names: ClassVar[frozenset[str]] = frozenset(describe(AgentOptions))

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        cls._option_names = frozenset(describe(cls.Options)) - {'model', 'actor_model', 'critic_model'}
        positional = list(inspect.signature(cls.__init__).parameters)[:-1] if '__init__' in vars(cls) else []
        if positional:
            cls.__signature__ = signature(positional[1:], cls.Options, RunOptions)  # type: ignore[attr-defined]

    def __init__(self, envs: Any, **options: Any):
        mathematics, run = describe(self.Options), describe(RunOptions)
        options = canonical(options, mathematics)
        for name in options:
            if name not in {**mathematics, **run}:
                raise OptionError(name, f'is no option of {type(self).__name__}{nearest(name, {**mathematics, **run})}')
        self.options = self.Options.resolve({k: v for k, v in options.items() if k in mathematics})
        self.run = RunOptions.resolve({k: v for k, v in options.items() if k in run})
        self._run_given = {k: v for k, v in options.items() if k in run}
        self.seed_given = self.options.seed is not None
        if self.options.seed is None:
            self.options.seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.envs: Envs = as_envs(envs)
        self.check_envs(self.envs, self.options)
        self.decode = ActionDecoder(self.envs.action_space)
        self.normalize_observations = ObservationNormalizer(self.input_shape) if self.options.normalize_obs else None
        self.normalize_rewards = (
            RewardNormalizer(self.envs.n_envs, self.options.gamma) if self.options.normalize_reward else None
        )
        self.output_models = []
        self.actor: Any = None
        self.context = Context()
        self.total_rewards: deque[float] = deque(maxlen=self.options.reward_buffer_size)
        self.best = None
        self.folder = None
        self.resumed_at = None
        self.resume_lines, self.writers = [], []
        self.own_counters, self.own_kept = {}, frozenset()
        self.overlapping = self.in_flight = self._collector = None
        self.stopped = ''
        self.paused = 0.0
        self._seed_said = self.seed_given
        self.command = ''
        self.ineffective = [o.flag for name, o in mathematics.items() if name in options and o.without_effect]
        self.creation = {}
        self.networks = []
        self.observations = None
        self.restarted = False
        self.collected = []
        self.collected_steps = 0
        self.seconds = {'env': 0.0, 'act': 0.0}
        self.console = Console(quiet=True)
        self._rngs: dict[str, np.random.Generator] = {}
        self._evaluation_envs: dict[tuple, Envs] = {}
        self._open: Callable[[], Any] = lambda: None

    def __setattr__(self, name: str, value: Any) -> None:
        """Options are part of what was compiled: assigning one would change nothing."""
        if name in self._option_names and 'options' in self.__dict__:
            raise AttributeError(f'{name} is fixed when the agent is made: make another one with {name}={value!r}')
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Options read like attributes: `agent.gamma`."""
        if not name.startswith('_') and 'options' in self.__dict__:
            for options in (self.options, self.__dict__.get('run')):
                if hasattr(options, name):
                    return getattr(options, name)
        raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')

    # what a subclass implements

    def collect(self) -> dict[str, np.ndarray]:
        """Let the environments take some steps and return what was seen, arrays by name."""
        raise TypeError(f'{type(self).__name__} implements neither train_step() nor collect() and learn(batch)')

    def learn(self, batch: dict[str, np.ndarray], **schedule: float) -> dict[str, float]:
        """Learn from what was collected and return metrics by name; `updates` counts the optimiser's steps.

        An agent declares which values of `schedules` it takes.
        """
        raise TypeError(f'{type(self).__name__} implements neither train_step() nor collect() and learn(batch)')

    def policy(self, observations: np.ndarray, noise: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return `actions` [N, …] and other columns for observations [N, *D]; greedy ones without noise."""
        raise TypeError(f'{type(self).__name__} has no policy')

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the randomness that `policy` needs for `shape` actions."""
        return None

    def schedules(self) -> dict[str, Schedule]:
        """Return what changes during a run, by name; `collect` and `learn` get those that their signatures name."""
        return {'learning_rate': Schedule(self.options.lr, self.options.lr_schedule)}

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the agent can learn in environments, before a network is built.

        Raises:
            OptionError: naming what they have and what the agent admits.
        """

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of the outputs that its networks may have, by the names in the registry."""
        raise NotImplementedError

    # helpers of the algorithms

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the generator of one purpose, seeded from (seed, purpose); its state is part of the agent's."""
        if purpose not in self._rngs:
            sequence = np.random.SeedSequence([int(self.options.seed or 0), zlib.crc32(purpose.encode())])
            self._rngs[purpose] = np.random.Generator(np.random.SFC64(sequence))
        return self._rngs[purpose]

    def check_model(
        self, model: keras.Model, units: list[int], name: str = 'model', inputs: list[tuple[int, ...]] | None = None
    ) -> None:
        """Check a network's face.

        Args:
            model: the network.
            units: sizes of its outputs.
            name: the argument that it was.
            inputs: shapes of its inputs; one observation when not given.

        Raises:
            ValueError: where its inputs or its outputs do not fit the environment.
        """
        inputs = inputs or [self.input_shape]
        got = [tuple(x.shape[1:]) for x in model.inputs], [output.shape[-1] for output in model.outputs]
        if got != (inputs, units):
            raise ValueError(
                f'{name}: got inputs {got[0]} and outputs {got[1]}, '
                f'takes inputs {inputs} and outputs {units} for {self.envs.id}'
            )

    @property
    def observation_dtype(self) -> Any:
        """The dtype of what `prepare` returns."""
        return np.float32 if self.normalize_observations else self.envs.observation_space.dtype

    def observe_rewards(self, rollout: Rollout) -> None:
        """Let the statistics of rewards, where there are any, learn from a rollout of raw ones."""
        if self.normalize_rewards:
            ended = rollout['terminated'] | rollout['truncated']
            self.normalize_rewards.update(rollout['rewards'] * self.options.reward_scale, ended, rollout['valid'])

    def scale_rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Return raw rewards, of any shape, as they are learned from: scaled, and normalised where asked for."""
        if self.options.reward_scale != 1.0:
            rewards = rewards * np.float32(self.options.reward_scale)
        return self.normalize_rewards(rewards) if self.normalize_rewards else rewards

    # acting, evaluating, playing

    def prepare(self, observations: np.ndarray) -> np.ndarray:
        """Return encoded observations [N, *D] as the networks see them: normalised where that is asked for."""
        return self.normalize_observations(observations) if self.normalize_observations else observations

    def act(self, observations: Any, greedy: bool = True) -> np.ndarray:
        """Return environment actions.

        Args:
            observations: raw ones [N, …] as the environments give them, any N.
            greedy: the best action; else one is sampled.

        Returns:
            [N, …] in the shape and dtype of the environment's action space.
        """
        self.refresh()
        encoded = self.envs.encoder(observations)
        noise = None if greedy else self.draw_noise(self.rng('sample'), (len(encoded),))
        return np.array(self.decode(self.policy(self.prepare(encoded), noise)['actions']))

    @contextlib.contextmanager
    def policy_output(self, index: int) -> Iterator[None]:
        """Let the model's output `index` be the policy for a while.

        Raises:
            ValueError: where there is no such output.
        """
        outputs = self.policy_heads()
        admitted = [i for i, output in enumerate(outputs) if output.shape[-1] == outputs[0].shape[-1]]
        if index not in admitted:
            raise OptionError('action_idx', f'got {index}, admits {", ".join(map(str, admitted))}: outputs of its size')
        kept = self.actor
        try:
            if index:
                self.actor = self.make_actor(index)
            yield
        finally:
            self.actor = kept

    def policy_heads(self) -> list[Any]:
        """Return the model's outputs of which one is the policy, and others of its size might be."""
        return self.output_models[0].outputs

    def make_actor(self, index: int) -> Any:
        """Return what acts by the model's output `index`."""
        raise TypeError(f'{type(self).__name__} has no policy')

    def evaluation_seed(self, steps: int) -> int:
        """Return the seed of an evaluation after `steps`: how often one evaluates changes nothing else."""
        return int(
            np.random.SeedSequence([int(self.options.seed or 0), zlib.crc32(b'evaluate'), steps]).generate_state(1)[0]
        )

    def evaluate(
        self, episodes: int = 20, stochastic: bool = False, seed: int | None = None, envs: Any = None
    ) -> dict[str, float]:
        """Play whole episodes with the present weights, on environments of their own.

        Args:
            episodes: how many.
            stochastic: sample actions; greedy when not.
            seed: of the episodes; derived from (seed, 'evaluate', steps) when not given.
            envs: environments to play in, where the agent was given some that cannot be made again.

        Returns:
            mean, std, min, max of the episodes' raw rewards, and their mean length.
        """
        return evaluation.evaluate(self, episodes, stochastic, seed, envs)

    def play(self, video_dir: str | None = None, **options: Any) -> float:
        """Play one episode with the present weights; see `evaluation.play` for the options. Returns its reward."""
        return evaluation.play(self, video_dir, **options)

    # the run

    def recipe(self, overlap: bool | None = None) -> Recipe:
        """Return the stages of a run, in order; see `Recipe` for changing them.

        Args:
            overlap: collect in a thread, one iteration ahead of learning; the run's option when not given.

        Raises:
            OptionError: where overlap is asked for and the agent cannot learn so.
        """
        head, tail = stages.head(self), stages.tail(self)
        if overlap or (overlap is None and self.run.overlap):
            check_overlap(self)
            head = head.before('checkpoint', stages.overlap(self))
        if self.trains_in_one_step:
            recipe = head.replace('collect', stages.train_step(self)) + tail
        else:
            recipe = head + self.learning() + tail
        return with_stages(recipe, self, self.run.stages)

    @property
    def trains_in_one_step(self) -> bool:
        """Whether it is not split into `collect` and `learn`."""
        return type(self).train_step is not Classic.train_step

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail: from what was collected to what was learned."""
        return stages.learning(self)
