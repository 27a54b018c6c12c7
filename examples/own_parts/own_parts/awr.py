"""Advantage-weighted regression (Peng et al. 2019, arXiv:1910.00177), on rollouts instead of a replay buffer."""

import tensorflow as tf

from own_parts.options import AWROptions
from xagents import A2C

LARGEST = 20.0


class AWR(A2C):
    """A2C whose policy imitates its own actions, weighted by the exponential of their advantages."""

    Options = AWROptions

    def policy_loss(self, outputs, actions, advantages, valid):
        """Return −mean(log π(a|s) exp(A / β)), the only difference to A2C."""
        weights = tf.minimum(tf.exp(advantages / self.options.temperature), LARGEST)
        return super().policy_loss(outputs, actions, weights, valid)
