"""The multiplications and additions of an update, computed from the shapes of its layers.

A dense layer with a batch of B costs 2·B·in·out operations in the forward pass, as much in the backward pass for the
gradient of its weights, and as much for the gradient of its inputs. A first layer needs no gradient of its inputs,
except for actions that are optimised. Biases, activations, normalisation, losses and optimisers are not counted.
"""

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.workers.settings import AnySettings, OffPolicySettings


def forward(widths: Sequence[int], batch_size: int) -> int:
    """Return the operations of a forward pass through a dense network; widths include inputs and outputs."""
    return sum(2 * batch_size * inputs * outputs for inputs, outputs in pairwise(widths))


def backward(widths: Sequence[int], batch_size: int) -> int:
    """Return the operations of the gradient of all weights, without that of the inputs."""
    return 2 * forward(widths, batch_size) - forward(widths[:2], batch_size)


def dqn_update(widths: Sequence[int], batch_size: int) -> int:
    """Return the operations of a gradient step of DQN: target network forward, network forward and backward."""
    return 2 * forward(widths, batch_size) + backward(widths, batch_size)


def actor_critic_update(
    actor: Sequence[int], critic: Sequence[int], batch_size: int, critics: int = 2, policy_delay: int = 2
) -> float:
    """Return the mean operations of a gradient step of TD3, or of DDPG with one critic and no delay.

    A step of the critics takes the target actor and each target critic forward, and each critic forward and backward.
    A step of the actor, one in `policy_delay`, takes the actor forward and backward, and one critic forward and
    backward to its inputs, without its weights.
    """
    of_critics = critics * (2 * forward(critic, batch_size) + backward(critic, batch_size))
    of_actor = forward(actor, batch_size) + backward(actor, batch_size) + 2 * forward(critic, batch_size)
    return forward(actor, batch_size) + of_critics + of_actor / policy_delay


def soft_actor_critic_update(actor: Sequence[int], critic: Sequence[int], batch_size: int) -> int:
    """Return the operations of a gradient step of SAC or TQC.

    The step of the critics takes the actor and two target critics forward, and two critics forward and backward. The
    step of the actor takes the actor forward and backward, and two critics forward and backward to their inputs.
    """
    of_critics = forward(actor, batch_size) + 2 * (2 * forward(critic, batch_size) + backward(critic, batch_size))
    return of_critics + soft_actor_update(actor, critic, batch_size)


def soft_actor_update(actor: Sequence[int], critic: Sequence[int], batch_size: int) -> int:
    """Return the operations of the step of an actor that maximises the smaller or the mean value of two critics."""
    return forward(actor, batch_size) + backward(actor, batch_size) + 2 * 2 * forward(critic, batch_size)


def crossq_update(actor: Sequence[int], critic: Sequence[int], batch_size: int, policy_delay: int) -> float:
    """Return the mean operations of a gradient step of CrossQ.

    The step of the critics takes the actor forward, and two critics forward and backward with a batch of present and
    next pairs. The step of the actor is that of SAC, one in `policy_delay`.
    """
    of_critics = 2 * (forward(critic, 2 * batch_size) + backward(critic, 2 * batch_size))
    return forward(actor, batch_size) + of_critics + soft_actor_update(actor, critic, batch_size) / policy_delay


def ppo_update(networks: Sequence[Sequence[int]], batch_size: int, epochs: int) -> int:
    """Return the operations of the gradient steps of PPO: each network forward and backward, for each epoch."""
    return epochs * sum(forward(widths, batch_size) + backward(widths, batch_size) for widths in networks)


def nature_cnn_flops(n_actions: int, side: int = 84, channels: int = 4) -> tuple[int, int]:
    """Return the operations of the Nature CNN for one image: forward, and forward with backward.

    The layers are those of Mnih et al. 2015 with one policy and one value head. A backward pass costs as much as the
    forward pass for the weights, and as much for the inputs, which the first layer does not need.
    """
    layers = []
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        side = (side - kernel) // stride + 1
        layers.append(2 * side * side * filters * kernel * kernel * channels)
        channels = filters
    layers += [2 * side * side * channels * 512, 2 * 512 * (n_actions + 1)]
    return sum(layers), 3 * sum(layers) - layers[0]


def update_flops(settings: AnySettings, n_inputs: int, n_actions: int) -> float:
    """Return the operations of one update; for PPO, those of the gradient steps.

    Args:
        settings: algorithm, batch size and widths of the networks.
        n_inputs: size of an observation; not used for images.
        n_actions: number of actions, or size of one.
    """
    if not isinstance(settings, OffPolicySettings):
        if settings.atari:
            return settings.epochs * settings.batch_size * nature_cnn_flops(n_actions)[1]
        heads = [n_actions + 1] if settings.shared_network else [n_actions, 1]
        networks = [(n_inputs, *settings.units, units) for units in heads]
        return ppo_update(networks, settings.batch_size, settings.epochs)
    actor = (n_inputs, *settings.units, n_actions)
    if settings.algorithm == 'dqn':
        return dqn_update(actor, settings.batch_size)
    critic = (n_inputs + n_actions, *settings.units, 1)
    if settings.algorithm in ('sac', 'tqc', 'crossq'):
        actor = (n_inputs, *settings.units, 2 * n_actions)
        if settings.algorithm == 'crossq':
            return crossq_update(actor, critic, settings.batch_size, settings.policy_delay)
        quantiles = (*critic[:-1], settings.n_quantiles)
        return soft_actor_critic_update(
            actor, quantiles if settings.algorithm == 'tqc' else critic, settings.batch_size
        )
    if settings.algorithm == 'ddpg':
        return actor_critic_update(actor, critic, settings.batch_size, critics=1, policy_delay=1)
    return actor_critic_update(actor, critic, settings.batch_size, policy_delay=settings.policy_delay)


def peak_matters(settings: AnySettings) -> bool:
    """Return whether arithmetic limits a case, so that the share of the peak is useful."""
    return settings.algorithm == 'ppo' or (isinstance(settings, OffPolicySettings) and settings.algorithm != 'dqn')


def peak_size(settings: AnySettings) -> int:
    """Return the size of the matrices whose product is the peak."""
    return 2048 if settings.atari or isinstance(settings, OffPolicySettings) else 1024


def update_share(
    settings: AnySettings, n_inputs: int, n_actions: int, updates: int, seconds: float, peak: float
) -> float:
    """Return the share of `peak`, in operations per second, of `updates` updates in `seconds`."""
    return updates * update_flops(settings, n_inputs, n_actions) / seconds / peak
