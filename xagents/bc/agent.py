"""Behaviour cloning (Pomerleau 1991, doi:10.1162/neco.1991.3.1.88): imitates the actions of a data set."""

from __future__ import annotations

from typing import Any, ClassVar

import keras
import tensorflow as tf

from xagents.base.actor_critic import ActorCritic
from xagents.base.batches import ReplaySamples
from xagents.base.sampled_batches import SamplesBatches
from xagents.bc.cli import BCOptions
from xagents.networks.distributions import clip_log_std
from xagents.networks.optimisation.gradient_steps import loop_mean
from xagents.networks.programs import float_outputs, network_input


class BC(SamplesBatches, ActorCritic):
    """BC: maximises the log probability of the actions of a data set.

    The network is the same as that of A2C and PPO, so these agents can start from its weights. The critic head is not
    trained.

    Args:
        envs: as for A2C.
        model: as for A2C.
        options: `BCOptions` and `RunOptions`.
    """

    Options = BCOptions
    options: BCOptions  # type: ignore[assignment]
    METRICS: ClassVar[tuple[str, ...]] = ('loss/policy', 'loss/entropy', 'stats/grad_norm')

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        self.step.may_be_unused = True  # no loss depends on the critic head

    def update(self, samples: ReplaySamples, n_updates: tf.Tensor, learning_rate: tf.Tensor) -> dict[str, tf.Tensor]:  # type: ignore[override]
        """Make an update with each of the first `n_updates` of K batches, and return the metrics; compiled."""
        self.step.set_rate(learning_rate)
        return loop_mean(lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS)

    def update_once(self, batch: ReplaySamples) -> dict[str, tf.Tensor]:
        """Make one gradient step on a batch, [B, …] each, and return its metrics."""
        observations = network_input(batch.observations)
        with tf.GradientTape() as tape:
            policy, _, *rest = float_outputs(self.model(observations, training=True))
            outputs = clip_log_std([policy, *rest])
            loss = -tf.reduce_mean(self.distribution.log_prob(outputs, batch.actions))
        norm, applied, refused = self.step(tape, loss)
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': loss,
            'loss/entropy': tf.reduce_mean(self.distribution.entropy(outputs)),
            'stats/grad_norm': norm,
        }
