"""What agents share that learn from rollouts of a stochastic policy."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from xagents.base.agent import BaseAgent
from xagents.base.returns import gae
from xagents.collecting.rollouts import Columns, Rollout, allocate, fill
from xagents.networks.compiled import Program, has_convolutions, network_input
from xagents.networks.distributions import Distribution, distribution_for
from xagents.networks.models import with_log_std, with_logits
from xagents.options.agents import AgentOptions, OnPolicyOptions

IMAGES_AT_ONCE = 512
STEPS = ('observations', 'actions', 'rewards', 'terminated', 'truncated', 'valid')


class Steps(NamedTuple):
    """A rollout as an update sees it: T steps of N environments."""

    observations: Any  # [T + 1, N, *D]
    actions: Any  # [T, N, …]
    rewards: Any  # [T, N]
    terminated: Any  # bool [T, N]
    truncated: Any  # bool [T, N]
    valid: Any  # bool [T, N]; a row that is not valid only reset its environment
    outputs: tuple = ()  # of the policy that acted, [T, N, units] each, where they are kept


class Transitions(NamedTuple):
    """What a rollout teaches, a row a transition: [B, …] each, B = T * N."""

    observations: tf.Tensor
    actions: tf.Tensor
    advantages: tf.Tensor
    returns: tf.Tensor
    values: tf.Tensor
    valid: tf.Tensor  # 1, or 0 where a row means nothing
    log_probs: tf.Tensor  # of the policy that acted; empty where its outputs are not kept

    def take(self, rows: tf.Tensor) -> Self:
        """Return some of the rows."""
        return type(self)(*(tf.gather(x, rows) for x in self))


class OnPolicy(BaseAgent):
    """Agents with a stochastic policy, which learn from the rollouts that it collects.

    A subclass sets `actor`, the policy, and `critic`, from observations to values, and implements `learn`.
    """

    Options: ClassVar[type[AgentOptions]] = OnPolicyOptions
    options: OnPolicyOptions
    METRICS: ClassVar[tuple[str, ...]] = ()
    # whether a rollout has the outputs of the policy that acted as columns
    keeps_outputs: ClassVar[bool] = False
    critic: keras.Model
    _update: Program

    # acting

    @functools.cached_property
    def distribution(self) -> Distribution:
        """The distribution of the policy's actions."""
        return distribution_for(self.envs.action_space)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the policy's outputs are called."""
        return ('mean', 'log_std') if self.distribution.has_log_std else ('logits',)

    def with_policy_head(self, model: keras.Model) -> keras.Model:
        """Return a model whose first output is what the distribution starts from, and the log deviation its last."""
        return with_log_std(model, self.options.log_std_init) if self.distribution.has_log_std else with_logits(model)

    def policy_heads(self) -> list[Any]:
        """Return the model's outputs of which one is the policy: all but the log standard deviation."""
        heads = super().policy_heads()
        return heads[:-1] if self.distribution.has_log_std else heads

    def columns(self) -> Columns:
        """Shape and dtype of each column that `policy` returns for one environment."""
        columns: dict[str, Any] = {'actions': (self.distribution.action_shape, self.distribution.action_dtype)}
        if self.keeps_outputs:
            columns |= {name: ((self.distribution.n_units,), np.dtype(np.float32)) for name in self.output_names}
        return columns

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the randomness of `shape` actions, for `policy`."""
        return self.distribution.draw_noise(rng, shape)

    def policy(self, observations: np.ndarray, noise: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return columns of the rollout by name: `actions` [N, …], greedy ones without noise, and the policy's outputs.

        The outputs, [N, units] each, are all that an update may want to know of the policy that acted, because the
        log-probabilities of a whole rollout are cheaper to make at once than one step at a time.
        """
        outputs = self.actor(observations)
        actions = self.distribution.mode(outputs) if noise is None else self.distribution.sample(outputs, noise)
        return {'actions': actions, **dict(zip(self.output_names, outputs, strict=True))}

    # collecting

    @functools.cached_property
    def rollout(self) -> Rollout:
        """The arrays that every rollout is written into."""
        return allocate(self.envs, self.options.n_steps, self.columns())

    def gather(self) -> Rollout:
        """Take `n_steps` steps in every environment; return `rollout`, all as the environments gave it."""
        rollout = self.rollout
        noise = self.draw_noise(self.rng('act'), rollout['valid'].shape)

        def choose(t: int, observations: np.ndarray) -> dict[str, np.ndarray]:
            return self.policy(self.prepare(observations), None if noise is None else noise[t])

        fill(self, rollout, self.columns(), choose)
        self.observe_rewards(rollout)
        return rollout

    def collect(self) -> Rollout:
        """Take `n_steps` steps in every environment.

        Returns:
            `observations` [T + 1, N, *D], normalised where asked for by the statistics that acting saw; `actions` and
            the policy's other columns, `rewards` (scaled and normalised), `terminated`, `truncated` and `valid`
            [T, N, …]. A row that is not valid only reset its environment. The arrays are overwritten by the next call.
        """
        batch = dict(self.gather())
        batch['rewards'] = self.scale_rewards(batch['rewards'])
        if self.normalize_observations:
            raw = batch['observations']
            batch['observations'] = self.prepare(raw)
            self.normalize_observations.update(raw[:-1])
        return batch

    # learning

    def as_steps(self, batch: dict[str, np.ndarray]) -> Steps:
        """Return a batch as an update takes it; a stage may have made float64 of what was float32."""
        columns = {name: np.asarray(batch[name], self.rollout[name].dtype) for name in STEPS[1:]}
        outputs = tuple(np.asarray(batch[name], np.float32) for name in self.output_names) if self.keeps_outputs else ()
        return Steps(batch['observations'], **columns, outputs=outputs)

    def transitions(self, steps: Steps) -> Transitions:
        """Return advantages and returns by GAE, and what else an update needs of each transition."""
        flags = (steps.terminated, steps.truncated, steps.valid)
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in flags)
        values, advantages = self.advantages(steps.observations, steps.rewards, terminated, truncated)
        observations, actions, advantages, values, valid = map(
            flatten, (steps.observations[:-1], steps.actions, advantages, values[:-1], valid)
        )
        old = [flatten(x) for x in steps.outputs]
        log_probs = self.distribution.log_prob(old, actions) if old else tf.zeros_like(valid)
        return Transitions(observations, actions, advantages, advantages + values, values, valid, log_probs)

    def run_update(self, batch: dict[str, np.ndarray], *arguments: Any) -> dict[str, float]:
        """Call the compiled update, let acting use the new weights, and return the metrics by name."""
        weights, metrics = self._update(self.as_steps(batch), *arguments)
        self.actor.refresh(weights.numpy())
        return dict(zip(self.METRICS, metrics.numpy().tolist(), strict=True))

    def compiled(self, *arguments: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The whole update as one program: the acting weights, and the metrics as a vector."""
        metrics = self.update(*arguments)
        return self.actor.published(), tf.stack([metrics[name] for name in self.METRICS])

    def advantages(
        self, observations: tf.Tensor, rewards: tf.Tensor, terminated: tf.Tensor, truncated: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values [T + 1, N] of all observations, and advantages [T, N], which have no gradient."""
        values = self.values(observations)
        ended = tf.maximum(terminated, truncated)
        return values, gae(rewards, values, terminated, ended, self.options.gamma, self.options.lam)

    def values(self, observations: tf.Tensor) -> tf.Tensor:
        """Return the values [T + 1, N] of observations [T + 1, N, *D]."""
        flat = flatten(observations)
        # the activations of a long rollout of images would not fit into memory at once
        size = IMAGES_AT_ONCE if has_convolutions(self.critic) else flat.shape[0]
        parts = tf.split(flat, [min(size, flat.shape[0] - start) for start in range(0, flat.shape[0], size)])
        values = tf.concat([self.critic(network_input(part)) for part in parts], 0)
        return tf.reshape(tf.cast(values, tf.float32), observations.shape[:2])


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Return [T, N, …] as [T * N, …]."""
    return tf.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
