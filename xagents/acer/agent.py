"""Actor-critic with experience replay (Wang et al. 2017, arXiv:1611.01224), for discrete actions."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents import stages
from xagents.a2c.agent import A2C
from xagents.acer.cli import ACEROptions
from xagents.compiling import float_outputs, network_input
from xagents.distributions import distribution_for
from xagents.envs import Envs
from xagents.memory import check_memory, gigabytes
from xagents.on_policy import flatten
from xagents.options import OptionError
from xagents.pipeline import Recipe
from xagents.returns import explained_variance, masked_deviation, masked_mean, masked_normalise, retrace
from xagents.rollout_buffer import RolloutBuffer, memory_needed, room
from xagents.rollouts import Rollout
from xagents.settings import AgentOptions
from xagents.targets import TargetNetwork


class ACER(A2C):
    """ACER: A2C that learns from each rollout when it is collected and again, out of a buffer, as often as it is drawn.

    Args:
        envs: as for A2C; their actions are discrete.
        model: observations [B, *D] to [policy logits [B, A], Q values [B, A]], compiled with an optimizer or not. A
            policy head that ends in softmax is taken without it.
        options: those of `ACEROptions` and `RunOptions`.
    """

    Options = ACEROptions
    options: ACEROptions
    keeps_outputs = True
    METRICS = (
        'updates',
        'stats/refused',
        'loss/policy',
        'loss/value',
        'loss/entropy',
        'stats/grad_norm',
        'stats/importance',
        'stats/kl_average',
        'stats/projected',
        'stats/explained_variance',
    )

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        self.check_envs(self.envs, self.options)
        self.average_policy = TargetNetwork(self.actor.model)

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are discrete, and that the buffer has room for a rollout.

        Raises:
            OptionError: where they are not, or it has none.
        """
        super().check_envs(envs, options)
        if not isinstance(envs.action_space, spaces.Discrete):
            raise OptionError('env', f'{envs.id} has the actions {envs.action_space}, ACER admits Discrete')
        assert isinstance(options, ACEROptions)
        room(options.buffer_max_size, options.n_steps, envs.n_envs)

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of its network's outputs."""
        n_actions = distribution_for(envs.action_space).n_units
        return {'actor': n_actions, 'q': n_actions}

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own: also the average policy."""
        return {**super().parts(), 'average_policy': self.average_policy}

    # replay

    @functools.cached_property
    def buffer(self) -> RolloutBuffer:
        """The stored rollouts; it takes its memory when the first one comes."""
        o = self.options
        stack = self.envs.frame_stack
        return RolloutBuffer(o.buffer_max_size, o.buffer_initial_size, n_steps=o.n_steps, stack=stack)

    def buffer_bytes(self) -> int:
        """Return the memory that the full buffer takes."""
        columns = dict(self.columns())
        action = columns.pop('actions')
        o, envs = self.options, self.envs
        return memory_needed(
            o.buffer_max_size, o.n_steps, envs.n_envs, envs.observation_space, *action, columns, envs.frame_stack
        )

    def prepare_run(self, **run: Any) -> None:
        """Resolve and check the options of a run before anything is written, the memory for the replay too."""
        super().prepare_run(**run)
        if not self.buffer.stored:
            check_memory('buffer_max_size', self.options.buffer_max_size, self.buffer_bytes())

    def notices(self) -> list[str]:
        """Say what memory the replay buffer is going to take."""
        if self.buffer.stored:
            return super().notices()
        size, needed, last = self.options.buffer_max_size, gigabytes(self.buffer_bytes()), self.run.max_steps
        lines = [*super().notices(), f'Replay buffer: {size} transitions, {needed} of memory when full']
        if last is not None and last - self.context.steps < self.buffer.needed:
            lines.append(
                f'Nothing will be replayed: {self.buffer.needed} transitions are stored first, and the run ends at '
                f'step {last} (see --learning-starts)'
            )
        return lines

    def draw_replays(self) -> int:
        """Return how many stored rollouts are learned from after the present one: Poisson (algorithm 1)."""
        return int(self.rng('replay').poisson(self.options.replay_ratio))

    def replay(self) -> Rollout:
        """Draw a stored rollout; the next call overwrites it."""
        return self.buffer.sample(self.rng('replay'))

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail: learn, remember, replay."""
        return stages.relearning(self)

    # learning

    def collect(self) -> Rollout:
        """Take `n_steps` steps in every environment.

        Returns:
            As for A2C, and the policy's `logits` [T, N, A]; observations and rewards are as the environments gave them:
            rollouts are normalised when they are learned from, stored ones by what is known then.
        """
        rollout = self.gather()
        if self.normalize_observations:
            self.normalize_observations.update(rollout['observations'][:-1])
        batch = {**rollout, 'restarted': np.full(self.envs.n_envs, self.restarted)}
        self.restarted = False
        return batch

    def learn(self, batch: dict[str, np.ndarray], learning_rate: float) -> dict[str, float]:  # type: ignore[override]
        """Make one gradient step on a rollout, whichever policy collected it.

        Args:
            batch: `observations` [T + 1, N, *D]; `actions`, `rewards`, `terminated`, `truncated`, `valid` [T, N], and
                the `logits` [T, N, A] of the policy that acted.
            learning_rate: of this update.

        Returns:
            The metrics by name.
        """
        batch = {
            **batch,
            'observations': self.prepare(batch['observations']),
            'rewards': self.scale_rewards(batch['rewards']),
        }
        return super().learn(batch, learning_rate)

    def update(  # type: ignore[override]
        self,
        observations: tf.Tensor,
        actions: tf.Tensor,
        rewards: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        valid: tf.Tensor,
        old_logits: tf.Tensor,
        learning_rate: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The whole update, compiled: returns the acting weights and the metrics.

        Args:
            observations: [T + 1, N, *D]
            actions: [T, N]
            rewards: [T, N]
            terminated: bool [T, N]
            truncated: bool [T, N]
            valid: bool [T, N]
            old_logits: [T, N, A], of the policy μ that acted.
            learning_rate: of this update.
        """
        options = self.options
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (terminated, truncated, valid))
        behaviour = tf.nn.softmax(old_logits)
        average = self.average_probabilities(observations[:-1])
        taken = tf.one_hot(actions, behaviour.shape[-1])
        with tf.GradientTape() as tape:
            policies, q = self.probabilities_and_values(observations)
            policy, q_taken = policies[:-1], tf.reduce_sum(taken * q[:-1], -1)
            with tape.stop_recording():  # neither the targets nor the policy's direction have a gradient
                values = tf.reduce_sum(policies * q, -1)
                ratios = policy / (behaviour + options.epsilon)
                ratio = tf.reduce_sum(taken * ratios, -1)
                ended = tf.maximum(terminated, truncated)
                targets = retrace(rewards, q_taken, values, ratio, terminated, ended, valid, options.gamma, options.lam)
                advantages, others = targets - values[:-1], q[:-1] - values[:-1, :, None]
                if options.normalize_advantage:
                    others /= masked_deviation(advantages, valid) + 1e-8
                    advantages = masked_normalise(advantages, valid, 1e-8)
                g = policy_gradient(policy, ratios, taken, advantages, others, options.importance_c, options.epsilon)
                g += options.entropy_coef * entropy_gradient(policy, options.epsilon)
                # ∇ KL(f(φ_a) ‖ f(φ)) by φ
                k = -average / (policy + options.epsilon)
                z, projected = project(g, k, options.delta, options.epsilon)
                direction = z if options.trust_region else g
            # its gradient by the parameters is −z ∂φ/∂θ
            policy_loss = -masked_mean(tf.reduce_sum(direction * policy, -1), valid)
            value_loss = masked_mean((targets - q_taken) ** 2, valid)
            loss = policy_loss + options.value_loss_coef * value_loss
        self.step.set_rate(learning_rate)
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(valid > 0))
        self.average_policy.follow((1.0 - options.ema_alpha) * applied)
        metrics = {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': masked_mean(entropy(policy, options.epsilon), valid),
            'stats/grad_norm': norm,
            'stats/importance': masked_mean(ratio, valid),
            'stats/kl_average': masked_mean(divergence(average, policy, options.epsilon), valid),
            'stats/projected': masked_mean(projected, valid),
            'stats/explained_variance': explained_variance(q_taken, targets, valid),
        }
        return self.actor.published(), tf.stack([metrics[name] for name in self.METRICS])

    def probabilities_and_values(self, observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the policy's probabilities φ and the Q values, [T + 1, N, A] each, of observations [T + 1, N, *D]."""
        outputs = float_outputs(self.model(network_input(flatten(observations)), training=True))
        logits, q = (tf.reshape(x, (*observations.shape[:2], x.shape[-1])) for x in outputs)
        return tf.nn.softmax(logits), q

    def average_probabilities(self, observations: tf.Tensor) -> tf.Tensor:
        """Return φ_a, the average policy's probabilities [T, N, A], of observations [T, N, *D]."""
        (logits,) = self.average_policy(network_input(flatten(observations)))
        return tf.reshape(tf.nn.softmax(logits), (*observations.shape[:2], logits.shape[-1]))


def policy_gradient(
    policy: tf.Tensor,
    ratios: tf.Tensor,
    taken: tf.Tensor,
    advantages: tf.Tensor,
    others: tf.Tensor,
    importance_c: float,
    epsilon: float,
) -> tf.Tensor:
    """Return g, the gradient of the policy's objective by its probabilities (equation 9, as in algorithm 2).

    ∇_φ log f(a) is 1 / f(a) in the place of a, and 0 elsewhere.

    Args:
        policy: [T, N, A] f, the present probabilities.
        ratios: [T, N, A] ρ, of the present probabilities to those of the policy that acted.
        taken: [T, N, A] 1 for the action that was taken.
        advantages: [T, N] Q^ret(x, a) − V(x) of that action.
        others: [T, N, A] Q(x, a) − V(x) of every action.
        importance_c: c, above which weights are cut; the second term makes good for what is cut.
        epsilon: added to what is divided by.

    Returns:
        [T, N, A].
    """
    truncated = taken * tf.minimum(ratios, importance_c) * advantages[..., None]
    correction = tf.nn.relu(1.0 - importance_c / (ratios + epsilon)) * policy * others
    return (truncated + correction) / (policy + epsilon)


def project(g: tf.Tensor, k: tf.Tensor, delta: float, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what is nearest to g of all z with kᵀz ≤ δ (equation 12).

    Args:
        g: [T, N, A] the gradient.
        k: [T, N, A] the gradient of the divergence from the average policy.
        delta: δ.
        epsilon: added to what is divided by.

    Returns:
        z [T, N, A]; and float [T, N], 1 where it is not g.
    """
    excess = tf.nn.relu(tf.reduce_sum(k * g, -1) - delta)
    z = g - (excess / (tf.reduce_sum(k**2, -1) + epsilon))[..., None] * k
    return z, tf.cast(excess > 0, tf.float32)


def entropy(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the entropy [T, N] of probabilities [T, N, A], in nats."""
    return -tf.reduce_sum(policy * tf.math.log(policy + epsilon), -1)


def entropy_gradient(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the entropy's gradient [T, N, A] by the probabilities."""
    return -tf.math.log(policy + epsilon) - 1.0


def divergence(average: tf.Tensor, policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return KL(average ‖ policy) [T, N] of probabilities [T, N, A], in nats."""
    return tf.reduce_sum(average * tf.math.log((average + epsilon) / (policy + epsilon)), -1)
