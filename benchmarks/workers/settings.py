"""The hyper-parameters of the benchmarks, which are equal for all libraries; workers translate them for a library.

Imports only the standard library, because the workers run in the virtual environments of their libraries.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters of an on-policy case; an algorithm ignores those of other algorithms.

    `threads` 0 means all cores. Except for `shared_network`, `precision` and `seed`, all libraries get equal values.
    ACER also collects rollouts: it uses `n_envs`, `n_steps`, `replay_ratio` and `seed`, and defaults for all else. The
    layers of PQN are normalised, and its ε does not decay.
    """

    one_core: ClassVar[bool] = False

    algorithm: Literal['ppo', 'a2c', 'trpo', 'acer', 'pqn'] = 'ppo'
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
    # TRPO, which uses `epochs` and `minibatches` for the critic
    max_kl: float = 0.01
    cg_iterations: int = 10
    cg_damping: float = 1e-3
    line_search: int = 10
    fisher_every: int = 1
    # ACER
    replay_ratio: float = 4.0
    # PQN
    epsilon: float = 0.05

    @property
    def batch_size(self) -> int:
        """Number of transitions between two updates."""
        return self.n_envs * self.n_steps

    @property
    def minibatch_size(self) -> int:
        """Number of transitions in one gradient step."""
        return self.batch_size // self.minibatches

    @property
    def updates_per_call(self) -> float:
        """Gradient steps of one update: for TRPO with the step of the policy, for ACER the mean with its replays."""
        if self.algorithm == 'acer':
            return 1 + self.replay_ratio
        return self.epochs * self.minibatches + (self.algorithm == 'trpo')

    def updates(self, steps: int) -> int:
        """Return the updates in a number of environment steps, each with `updates_per_call` gradient steps."""
        return steps // self.batch_size


@dataclass(frozen=True)
class OffPolicySettings:
    """The hyper-parameters of an off-policy case; an algorithm ignores those of other algorithms.

    Steps are counted over all environments: with 8 environments, `train_frequency` 8 trains once per vector step.
    `gradient_steps` −1 means as many as environment steps since the last training. ε does not decay, because the share
    of random actions, which need no network, would change with it. SAC, TQC and CrossQ have two critics, and learn the
    temperature, which is 1 at the start.
    """

    # no setting of JAX gives all of its pools one thread, so the process is limited to one core
    one_core: ClassVar[bool] = True
    atari: ClassVar[bool] = False

    algorithm: Literal['dqn', 'ddpg', 'td3', 'sac', 'tqc', 'crossq'] = 'dqn'
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
    # DQN, with Huber's loss
    target_sync_steps: int = 500
    epsilon: float = 0.05
    grad_norm: float = 10.0
    # DDPG, TD3, SAC and TQC
    tau: float = 0.005
    # DDPG and TD3
    noise: float = 0.1
    # TD3 and CrossQ
    policy_delay: int = 2
    # TD3
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    # SAC, TQC and CrossQ
    target_entropy: float = -1.0
    # TQC, for each critic
    n_quantiles: int = 25
    dropped_quantiles: int = 2
    # CrossQ
    beta1: float = 0.5
    precision: Literal['float32', 'bfloat16'] = 'float32'
    threads: int = 1
    seed: int = 1

    @property
    def updates_per_call(self) -> int:
        """Gradient steps of one training."""
        return self.train_frequency if self.gradient_steps < 0 else self.gradient_steps

    def updates(self, steps: int) -> int:
        """Return the gradient steps in a number of environment steps."""
        return steps // self.train_frequency * self.updates_per_call


AnySettings = Settings | OffPolicySettings
OFF_POLICY = ('dqn', 'ddpg', 'td3', 'sac', 'tqc', 'crossq')
# off-policy algorithms that add noise to their actions
NOISY = ('ddpg', 'td3')


def from_fields(fields: dict[str, Any]) -> AnySettings:
    """Return settings from their fields in JSON."""
    settings_class = OffPolicySettings if fields['algorithm'] in OFF_POLICY else Settings
    return settings_class(**{**fields, 'units': tuple(fields['units'])})


def translate(settings: AnySettings | dict[str, Any], names: str) -> dict[str, Any]:
    """Return settings under other names.

    Args:
        settings: the settings, or their fields.
        names: words of the form `theirs=ours`, or one word if both names are equal.
    """
    fields = settings if isinstance(settings, dict) else vars(settings)
    pairs = (word.partition('=')[::2] for word in names.split())
    return {theirs: fields[ours or theirs] for theirs, ours in pairs}
