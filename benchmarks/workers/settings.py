"""The hyper-parameters that every library gets alike; the workers translate them to their libraries' names.

Loads the standard library only: the workers read them inside their libraries' own environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters of an on-policy case, in the field's names; an algorithm ignores those of the others.

    `threads` 0 means all cores. `shared_network`, `precision` and `seed` aside, every library gets equal values. ACER
    stands here, too, because it collects rollouts: it takes `n_envs`, `n_steps`, `replay_ratio` and `seed`, and has its
    own defaults for all else.
    """

    one_core: ClassVar[bool] = False

    algorithm: Literal['ppo', 'a2c', 'trpo', 'acer'] = 'ppo'
    env: str = 'CartPole-v1'
    n_envs: int = 16
    n_steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.99
    lam: float = 0.95
    lr: float = 7e-4
    clip: float = 0.1
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    grad_norm: float = 0.5
    optimizer: Literal['adam', 'rmsprop'] = 'adam'
    optimizer_epsilon: float = 1e-5
    normalize_advantage: bool = True
    units: tuple[int, ...] = (64, 64)
    activation: str = 'tanh'
    atari: bool = False
    threads: int = 1
    shared_network: bool = False
    precision: Literal['float32', 'bfloat16'] = 'float32'
    seed: int = 1
    # TRPO, whose epochs and minibatches are the critic's
    max_kl: float = 0.01
    cg_iterations: int = 10
    cg_damping: float = 1e-3
    line_search: int = 10
    fisher_every: int = 1
    # ACER
    replay_ratio: float = 4.0

    @property
    def batch_size(self) -> int:
        """Transitions collected between two updates."""
        return self.n_envs * self.n_steps

    @property
    def minibatch_size(self) -> int:
        """Transitions in one gradient step."""
        return self.batch_size // self.minibatches

    @property
    def updates_per_call(self) -> float:
        """Steps of the optimisers in one update: TRPO's with that of the policy, ACER's mean with its replays."""
        if self.algorithm == 'acer':
            return 1 + self.replay_ratio
        return self.epochs * self.minibatches + (self.algorithm == 'trpo')

    def updates(self, steps: int) -> int:
        """Updates in that many environment steps, each of `updates_per_call` gradient steps."""
        return steps // self.batch_size


@dataclass(frozen=True)
class OffPolicySettings:
    """The hyper-parameters of an off-policy case, in the field's names; an algorithm ignores those of the others.

    Steps are counted over all environments: with 8 environments, `train_frequency` 8 trains once a vector step.
    `gradient_steps` −1 means as many as steps were taken since the last training. ε does not decay, because how often a
    random action saves the network's would change with it.
    """

    # JAX has no setting for one thread that covers all of its pools: the whole process is held to one core instead
    one_core: ClassVar[bool] = True
    atari: ClassVar[bool] = False

    algorithm: Literal['dqn', 'ddpg', 'td3'] = 'dqn'
    env: str = 'CartPole-v1'
    n_envs: int = 1
    buffer_size: int = 10_000
    learning_starts: int = 1_000
    batch_size: int = 64
    train_frequency: int = 1
    gradient_steps: int = -1
    gamma: float = 0.99
    lr: float = 1e-3
    optimizer_epsilon: float = 1e-8
    units: tuple[int, ...] = (64, 64)
    activation: str = 'relu'
    # DQN, whose loss is Huber's
    target_sync_steps: int = 500
    epsilon: float = 0.05
    grad_norm: float = 10.0
    # DDPG and TD3
    tau: float = 0.005
    noise: float = 0.1
    # TD3
    policy_delay: int = 2
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    precision: Literal['float32', 'bfloat16'] = 'float32'
    threads: int = 1
    seed: int = 1

    @property
    def updates_per_call(self) -> int:
        """Gradient steps of one training."""
        return self.train_frequency if self.gradient_steps < 0 else self.gradient_steps

    def updates(self, steps: int) -> int:
        """Gradient steps in that many environment steps."""
        return steps // self.train_frequency * self.updates_per_call


AnySettings = Settings | OffPolicySettings
OFF_POLICY = ('dqn', 'ddpg', 'td3')


def from_fields(fields: dict[str, Any]) -> AnySettings:
    """Make the settings again from their fields after a way through JSON."""
    kind = OffPolicySettings if fields['algorithm'] in OFF_POLICY else Settings
    return kind(**{**fields, 'units': tuple(fields['units'])})
