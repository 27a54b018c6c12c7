"""What all agents share: options, random streams, environments, the whole state, and the run as a stream of stages."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from xagents import evaluation, reporting, stages
from xagents.classic import Classic
from xagents.console import Console
from xagents.envs import Envs, as_envs
from xagents.interruption import Interruption
from xagents.normalisation import ObservationNormalizer, RewardNormalizer
from xagents.options import OptionError, describe, nearest, signature
from xagents.pipeline import Context, Recipe, source
from xagents.settings import AgentOptions, RunOptions
from xagents.spaces import ActionDecoder
from xagents.state import State as State
from xagents.state import Stateful


def set_threads(threads: int) -> bool:
    """Set TensorFlow's threads, which are fixed once it has started; returns whether they are `threads` now."""
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf.config.threading.get_intra_op_parallelism_threads() == threads


class BaseAgent(Classic, Stateful):
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
        self.stopped = ''
        self.paused = 0.0
        self._seed_said = self.seed_given
        self.command = ''
        self.creation = {}
        self.networks = []
        self.observations = None
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

    def schedules(self) -> dict[str, tuple[float, str]]:
        """Return base value and kind (constant, linear, cosine) of what changes during a run and goes to `learn`."""
        return {'learning_rate': (self.options.lr, self.options.lr_schedule)}

    # helpers of the algorithms

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the generator of one purpose, seeded from (seed, purpose); its state is part of the agent's."""
        if purpose not in self._rngs:
            sequence = np.random.SeedSequence([int(self.options.seed or 0), zlib.crc32(purpose.encode())])
            self._rngs[purpose] = np.random.Generator(np.random.SFC64(sequence))
        return self._rngs[purpose]

    def check_model(self, model: keras.Model, units: list[int]) -> None:
        """Check a network's face.

        Raises:
            ValueError: where its input or its outputs do not fit the environment.
        """
        outputs = [output.shape[-1] for output in model.outputs]
        if tuple(model.input_shape[1:]) != self.input_shape or outputs != units:
            raise ValueError(
                f'model: got input {tuple(model.input_shape[1:])} and outputs {outputs}, '
                f'takes input {self.input_shape} and outputs {units} for {self.envs.id}'
            )

    @property
    def observation_dtype(self) -> Any:
        """The dtype of what `prepare` returns."""
        return np.float32 if self.normalize_observations else self.envs.observation_space.dtype

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
        self.actor.refresh()
        encoded = self.envs.encoder(observations)
        noise = None if greedy else self.draw_noise(self.rng('sample'), (len(encoded),))
        return np.array(self.decode(self.policy(self.prepare(encoded), noise)['actions']))

    @contextlib.contextmanager
    def policy_output(self, index: int) -> Iterator[None]:
        """Let the model's output `index` be the policy for a while.

        Raises:
            ValueError: where there is no such output.
        """
        outputs = self.output_models[0].outputs
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

    def recipe(self) -> Recipe:
        """Return the stages of a run, in order; see `Recipe` for changing them."""
        head, tail = stages.head(self), stages.tail(self)
        if type(self).train_step is not Classic.train_step:
            head = head.replace('collect', stages.train_step(self))
            return Recipe([*zip(head.names, head.stages, strict=True), *zip(tail.names, tail.stages, strict=True)])
        middle = Recipe([('learn', stages.learn(self))])
        parts = (head, middle, tail)
        return Recipe(pair for part in parts for pair in zip(part.names, part.stages, strict=True))

    def train_iter(self, recipe: Recipe | None = None, **run: Any) -> Generator[dict[str, float], None, None]:
        """Train, one iteration at a time; calling it again goes on, and closes an older one that is still open.

        Args:
            recipe: the stages; `recipe()` when not given.
            run: `RunOptions`; `max_steps` and `max_time` are totals, earlier calls included.

        Yields:
            One flat dict of floats an iteration; `mean_reward` is always there, NaN before it exists.
        """
        self._close_open()
        self.prepare_run(**run)
        stream = self._iterate(recipe or self.recipe())
        self._open = weakref.ref(stream)
        return stream

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
        ends = RunOptions.resolve({**self._run_given, **run})
        if ends.target_reward is None and ends.max_steps is None and ends.max_time is None:
            raise OptionError('target_reward', 'one of target_reward, max_steps, max_time is required')
        with Interruption.guard() as interruption:
            try:
                for _ in self.train_iter(recipe, **run):
                    pass
            except KeyboardInterrupt:
                interruption.exit()  # a SIGTERM that came before
                raise

    def prepare_run(self, **run: Any) -> None:
        """Resolve and check the options of a run before anything is written."""
        self.run = RunOptions.resolve({**self._run_given, **run})
        stages.check_run(self)

    @property
    def schedule_steps(self) -> int | None:
        """The length of the schedules in steps."""
        return self.options.schedule_steps or self.run.max_steps

    def _iterate(self, recipe: Recipe) -> Generator[dict[str, float], None, None]:
        self.console = Console(self.run.quiet, self.run.max_steps)
        if not self._seed_said:
            self.console.say(f'Seed: {self.options.seed}')
            self._seed_said = True
        self.refresh()
        first = self._carried(recipe.context)
        self.stopped = stages.why_stop(self, first)
        if self.stopped:  # a finished run collects nothing, and opens nothing
            self.console.close(reporting.closing_line(self))
            return
        stream = recipe.stream(source(first))
        interruption = Interruption()
        with contextlib.closing(stream):
            while True:
                with Interruption.guard() as present:
                    ctx = next(stream, None)
                interruption = present if present.signal else interruption
                if ctx is None:
                    break
                if present.signal and not ctx.stop:
                    ctx.stop = 'interrupted'  # it came after the last stage had looked
                self.context, self.stopped = ctx, ctx.stop
                left = time.perf_counter()
                yield ctx.logs
                self.paused += time.perf_counter() - left
        self.console.close(reporting.closing_line(self))
        interruption.exit()

    def interrupted_line(self) -> str:
        """Return what an interrupted run says: what is saved, and how to go on."""
        paths = self.run.checkpoints
        line = f'Interrupted after {self.context.steps} steps; '
        if not paths:
            return line + 'nothing is saved, because no checkpoints were asked for'
        weights = ' '.join(paths)
        if not self.command:
            return line + f'the best weights are in {weights}; fit again to go on'
        more = '' if '--weights' in self.command else f' --weights {weights}'
        return line + f'the best weights are in {weights}. To go on: {self.command}{more}'

    def _carried(self, context: type[Context]) -> Context:
        """Return the context that a run goes on from, which may be of another class than the last run's."""
        fields = set(context.__dataclass_fields__)
        first = context(**{name: value for name, value in self.context.kept().items() if name in fields})
        first.kept_names = self.context.kept_names & fields
        if first.evaluated != bool(self.run.eval_frequency):
            # means of training episodes and of evaluations are not compared
            first.evaluated = bool(self.run.eval_frequency)
            first.mean_reward = first.best_reward = math.nan
        return first

    def _close_open(self) -> None:
        stream = self._open()
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close the environments, also those of evaluations."""
        self._close_open()
        for envs in (self.envs, *self._evaluation_envs.values()):
            envs.close()
        self._evaluation_envs.clear()


class OnPolicy(BaseAgent):
    """Agents that learn from the rollout that their present policy has just collected."""

    def columns(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each column that `policy` returns for one environment."""
        raise NotImplementedError

    @functools.cached_property
    def rollout(self) -> dict[str, np.ndarray]:
        """The arrays that every rollout is written into: [T, N, …], observations [T + 1, N, *D]."""
        shape = (self.options.n_steps, self.envs.n_envs)  # type: ignore[attr-defined]
        space = self.envs.observation_space
        return {
            'observations': np.zeros((shape[0] + 1, shape[1], *space.shape), space.dtype),
            **{name: np.zeros(shape + s, d) for name, (s, d) in self.columns().items()},
            'rewards': np.zeros(shape, np.float32),
            **{name: np.zeros(shape, bool) for name in ('terminated', 'truncated', 'valid')},
        }

    def collect(self) -> dict[str, np.ndarray]:
        """Take `n_steps` steps in every environment.

        Returns:
            `observations` [T + 1, N, *D], normalised where asked for; `actions` and the policy's other columns,
            `rewards` (scaled and normalised), `terminated`, `truncated` and `valid` [T, N, …]. A row that is not valid
            only reset its environment. The arrays are overwritten by the next call.
        """
        rollout, envs = self.rollout, self.envs
        if self.observations is None:
            self.reset_envs()
        observations: np.ndarray = self.observations  # type: ignore[assignment]
        names = list(self.columns())
        noise = self.draw_noise(self.rng('act'), rollout['valid'].shape)
        clock = time.perf_counter
        acting, start = 0.0, clock()
        for t in range(len(rollout['valid'])):
            rollout['observations'][t] = observations
            before = clock()
            columns = self.policy(self.prepare(observations), None if noise is None else noise[t])
            for name in names:
                rollout[name][t] = columns[name]
            actions = self.decode(columns['actions'])
            acting += clock() - before
            rollout['valid'][t] = envs.valid
            observations, rollout['rewards'][t], rollout['terminated'][t], rollout['truncated'][t] = envs.step(actions)
            self.collected_steps += int(np.count_nonzero(rollout['valid'][t]))
            self.note_episodes(envs.pop_episodes(), clock() - start)
        self.observations = observations
        rollout['observations'][-1] = observations
        self.seconds['act'] += acting
        self.seconds['env'] += clock() - start - acting
        return self._normalised(rollout)

    def _normalised(self, rollout: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Scale rewards and normalise; observations by the statistics that acting saw, which learn afterwards."""
        rewards = rollout['rewards']
        if self.options.reward_scale != 1.0:
            rewards *= self.options.reward_scale
        if self.normalize_rewards:
            ended = rollout['terminated'] | rollout['truncated']
            self.normalize_rewards.update(rewards, ended, rollout['valid'])
            rewards[...] = self.normalize_rewards(rewards)
        batch = dict(rollout)
        if self.normalize_observations:
            batch['observations'] = self.prepare(rollout['observations'])
            self.normalize_observations.update(rollout['observations'][:-1])
        return batch


class OffPolicy(BaseAgent):
    """Agents that learn from a replay buffer."""
