"""The natural gradient: products with the Fisher matrix, conjugate gradient, and a line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from xagents.networks.gradient_steps import flat_gradient

SHRINK = 0.8


def fisher_vector_product(
    divergence: Callable[[], tf.Tensor], variables: Sequence[keras.Variable], damping: float
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from a vector v [P] to (F + damping I) v, where F is the Hessian of a divergence.

    F is never made: (∇² KL) v = ∇ (∇KL · v) takes two backward passes (Schulman et al. 2015, appendix C.1).

    Args:
        divergence: returns the mean KL divergence from the present policy, as a constant, to the present policy, as a
            function of the variables; there its Hessian is the Fisher matrix.
        variables: of the policy, P parameters in all.
        damping: keeps the matrix positive definite.
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
        product: from a vector [P] to A times it.
        b: [P].
        iterations: at most so many.
        tolerance: of the squared residual |b − A x|², at which it stops; it also stops along a direction in which A
            has no positive curvature.

    Returns:
        x [P], and the residual b − A x [P] as the recursion knows it.
    """

    def step(
        k: tf.Tensor, x: tf.Tensor, residual: tf.Tensor, direction: tf.Tensor, squared: tf.Tensor, *_: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        image = product(direction)
        curvature = tf.reduce_sum(direction * image)
        definite = curvature > 0.0  # rounding may say otherwise where A has directions without any
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
    """Try fractions of a step, 1 first and each 0.8 times the one before, until one improves within the trust region.

    Args:
        measure: takes the step's fraction and returns what the surrogate gains by it, and its mean KL divergence.
        max_kl: the largest KL divergence that is accepted.
        tries: at most so many.

    Returns:
        The accepted fraction, 0 where none was; the gain and the KL divergence of what was accepted, 0 likewise; the
        KL divergence of the whole step.
    """

    def attempt(k: tf.Tensor, fraction: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        fraction = tf.where(k == 0, 1.0, fraction * SHRINK)
        gain, kl = measure(fraction)
        # nothing that is not a number is greater or less than another
        accepted = (gain > 0.0) & (kl <= max_kl) & tf.math.is_finite(gain)
        return k + 1, fraction, gain, kl, tf.where(k == 0, kl, state[2]), accepted

    def continues(k: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        return (k < tries) & ~state[-1]

    start = (0, 1.0, 0.0, 0.0, 0.0, False)
    _, fraction, gain, kl, whole_kl, accepted = tf.while_loop(continues, attempt, start)
    fraction, gain, kl = (tf.where(accepted, x, 0.0) for x in (fraction, gain, kl))
    return fraction, gain, kl, whole_kl
