"""The natural gradient: products with the Fisher matrix, conjugate gradient, and a line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from xagents.networks.optimisation.gradient_steps import flat_gradient

SHRINK = 0.8


def fisher_vector_product(
    divergence: Callable[[], tf.Tensor], variables: Sequence[keras.Variable], damping: float
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from a vector v [P] to (F + damping I) v, where F is the Hessian of a divergence.

    The product (∇² KL) v = ∇ (∇KL · v) takes two backward passes and does not build F (Schulman et al. 2015,
    appendix C.1).

    Args:
        divergence: returns the mean KL divergence from the present policy, a constant, to the policy of the variables.
            At the present variables, the Hessian of this divergence is the Fisher matrix.
        variables: the variables of the policy, P parameters in total.
        damping: a positive value makes the matrix positive definite.
    """

    def product(vector: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                kl = divergence()
            gradient = flat_gradient(inner, kl, variables)
            along = tf.reduce_sum(gradient * vector)
        return flat_gradient(outer, along, variables) + damping * vector

    return product


def conjugate_gradient(
    product: Callable[[tf.Tensor], tf.Tensor], b: tf.Tensor, iterations: int, tolerance: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Solve A x = b for a positive definite A (Hestenes and Stiefel 1952).

    Args:
        product: returns A v for a vector v [P].
        b: [P].
        iterations: largest number of iterations.
        tolerance: squared residual |b − A x|² at which the iteration stops. The iteration also stops at a direction
            without positive curvature of A.

    Returns:
        x [P], and the residual b − A x [P] as computed by the recursion.
    """

    def step(
        k: tf.Tensor, x: tf.Tensor, residual: tf.Tensor, direction: tf.Tensor, squared: tf.Tensor, *_: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        image = product(direction)
        curvature = tf.reduce_sum(direction * image)
        definite = curvature > 0.0  # rounding can make a curvature of 0 negative
        length = tf.where(definite, squared / curvature, 0.0)
        residual = residual - length * image
        new = tf.reduce_sum(residual**2)
        return k + 1, x + length * direction, residual, residual + new / squared * direction, new, definite

    def continues(k: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        *_, squared, definite = state
        return (k < iterations) & (squared > tolerance) & definite

    start = (tf.constant(0), tf.zeros_like(b), b, b, tf.reduce_sum(b**2), tf.constant(True))
    _, x, residual, *_ = tf.while_loop(continues, step, start)
    return x, residual


def line_search(
    measure: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]], max_kl: float, tries: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the first fraction of a step, of 1, 0.8, 0.64, …, that improves the surrogate within the trust region.

    Args:
        measure: returns the gain of the surrogate and the mean KL divergence for a fraction of the step.
        max_kl: largest accepted KL divergence.
        tries: largest number of fractions to try.

    Returns:
        The accepted fraction, its gain and its KL divergence, all 0 if no fraction was accepted; and the KL divergence
        of the whole step.
    """

    def attempt(k: tf.Tensor, fraction: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        fraction = tf.where(k == 0, 1.0, fraction * SHRINK)
        gain, kl = measure(fraction)
        # comparisons with NaN are false, so NaN is never accepted
        accepted = (gain > 0.0) & (kl <= max_kl) & tf.math.is_finite(gain)
        return k + 1, fraction, gain, kl, tf.where(k == 0, kl, state[2]), accepted

    def continues(k: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        return (k < tries) & ~state[-1]

    start = (0, 1.0, 0.0, 0.0, 0.0, False)
    _, fraction, gain, kl, whole_kl, accepted = tf.while_loop(continues, attempt, start)
    fraction, gain, kl = (tf.where(accepted, x, 0.0) for x in (fraction, gain, kl))
    return fraction, gain, kl, whole_kl
