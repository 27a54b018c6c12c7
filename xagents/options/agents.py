"""Options that several algorithms share. Options of a single agent are in the package of the agent."""

from __future__ import annotations

import dataclasses
import secrets
from typing import ClassVar, Literal

from xagents.options.declaration import (
    Options,
    choice,
    count,
    decay_rate,
    fraction,
    option,
    positive,
    schedule,
    seed_number,
    tuned_count,
    tuned_fraction,
    weight,
)
from xagents.options.rules import Rule, Rules, needs

OPTIMIZERS = ('adam', 'rmsprop', 'adamw', 'muon')
WITH_WEIGHT_DECAY = ('adamw', 'muon')
# recurrent layers act by plans, which have no convolutions in bfloat16
FLOAT32 = Rule('precision', lambda o: o.precision != 'float32', 'got {o.precision} with memory, expected float32')


@dataclasses.dataclass
class AgentOptions(Options):
    """Options that every agent shares.

    Attributes:
        datasets: 'never' if the agent cannot learn from a data set, 'also' if it can, 'only' if it requires one.
        forms: names of options that set the sizes or the meaning of network outputs, so that weights fit one value.
        constants: names of numbers that compiled updates contain as constants; all others are variables or shapes.
        has_memory: whether networks may have recurrent layers.
        memory_options: names of options that require networks with recurrent layers.
        memory_rules: rules for agents with such networks.
    """

    datasets: ClassVar[Literal['never', 'also', 'only']] = 'never'
    forms: ClassVar[tuple[str, ...]] = ()
    constants: ClassVar[tuple[str, ...]] = ()
    has_memory: ClassVar[bool] = False
    memory_options: ClassVar[tuple[str, ...]] = ()
    memory_rules: ClassVar[Rules] = ()

    gamma: float = tuned_fraction(0.99, 'discount factor; larger values look further ahead, with more variance')
    lr: float = positive(7e-4, 'learning rate; larger values learn faster and less stably')
    opt_epsilon: float = positive(1e-7, 'epsilon of the optimizer; larger values damp small gradients')
    beta1: float = decay_rate(0.9, 'Adam: decay of the mean gradient; larger values average more updates')
    beta2: float = decay_rate(0.999, 'Adam: decay of the mean squared gradient; larger values average more updates')
    optimizer: str = choice('adam', 'optimizer of the networks', choices=OPTIMIZERS)
    weight_decay: float = weight(
        0.01,
        'AdamW and Muon: a step multiplies parameters by 1 - learning rate * weight decay; larger values keep them '
        'smaller',
    )
    lr_schedule: str = schedule(
        'course of the learning rate: constant, or down to 0 along a line or a cosine', tune='categorical'
    )
    schedule_steps: int | None = count(
        None, 'steps until schedules reach their end (default: --max-steps); larger values make them slower'
    )
    normalize_obs: bool = choice(False, 'normalise observations by their running mean and standard deviation')
    normalize_reward: bool = choice(False, 'divide rewards by the running standard deviation of the return')
    reward_scale: float = positive(1.0, 'factor on the reward during training; larger values give larger gradients')
    precision: str = option('float32', 'number format in which the networks compute', choices=('float32', 'bfloat16'))
    reward_buffer_size: int = count(
        100,
        'number of recent episodes in the mean reward; larger values make the mean smoother and slower to change',
        at_most=10**9,
    )
    seed: int | None = seed_number(None, 'seed of all random generators; by default it is drawn, and printed')

    rules: ClassVar[Rules] = (
        needs(
            'weight_decay',
            f'--optimizer {" or ".join(WITH_WEIGHT_DECAY)}',
            lambda o: o.optimizer in (None, *WITH_WEIGHT_DECAY),  # None: each policy of a team has its own
        ),
    )

    def complete(self) -> None:
        """Draw a seed if none was given."""
        super().complete()
        if self.seed is None:
            self.seed = secrets.randbits(32)

    def check_memory(self, has_memory: bool) -> None:
        """Raise OptionError for an option that needs memory, or that cannot be used with it.

        Args:
            has_memory: whether a network has recurrent layers.
        """
        without = (needs(name, '--memory', lambda o: False) for name in self.memory_options)
        for rule in (FLOAT32, *self.memory_rules) if has_memory else without:
            rule.check(self)

    @property
    def drawn_seed(self) -> int:
        """The seed of resolved options, which is drawn if none was given."""
        assert self.seed is not None
        return self.seed


@dataclasses.dataclass
class OnPolicyOptions(AgentOptions):
    """Options that A2C, ACER, PPO and TRPO share: a stochastic policy that learns from rollouts."""

    n_steps: int = choice(
        5, 'steps of each environment in a rollout; larger values give less bias and fewer updates', at_least=1
    )
    lam: float = tuned_fraction(1.0, 'GAE lambda; larger values rely more on rewards than on the critic')
    entropy_coef: float = weight(0.01, 'weight of the entropy bonus; larger values explore more')
    value_loss_coef: float = weight(
        0.5, "weight of the critic's loss; larger values train the critic more and the policy less"
    )
    grad_norm: float = positive(0.5, 'norm to which gradients are clipped; larger values allow larger updates')
    normalize_advantage: bool = choice(False, 'normalise advantages to mean 0 and standard deviation 1')
    log_std_init: float = choice(
        0.0,
        'initial log standard deviation of continuous actions, which are from -1 to 1; larger values explore more',
        at_least=-20,
        at_most=5,
    )


@dataclasses.dataclass
class SDEOptions(AgentOptions):
    """Options that A2C, PPO, TRPO and SAC share: state-dependent exploration (gSDE)."""

    sde: bool = choice(
        False,
        'continuous actions: explore with noise that depends on the state and is kept for several steps (gSDE)',
    )
    sde_sample_frequency: int = choice(
        -1,
        'steps between samples of the gSDE noise, -1: one sample per rollout; larger values explore more smoothly',
        at_least=-1,
    )
    sde_expln: bool = choice(False, 'gSDE: let standard deviations above 1 grow logarithmically, not exponentially')

    rules: ClassVar[Rules] = (
        Rule(
            'sde_sample_frequency',
            lambda o: o.sde_sample_frequency == 0,
            'got 0, expected -1 (once a rollout) or a whole number from 1',
        ),
        *(needs(name, '--sde', lambda o: o.sde) for name in ('sde_sample_frequency', 'sde_expln')),
    )

    def noise_repeat(self, n_steps: int) -> int:
        """Return the number of steps with the same noise in rollouts of `n_steps`."""
        if not self.sde:
            return 1
        return n_steps if self.sde_sample_frequency == -1 else self.sde_sample_frequency


def at_most_capacity(name: str) -> Rule:
    """Return the rule that a size does not exceed the capacity of the buffer."""
    return Rule(
        name,
        lambda o: getattr(o, name) is not None and getattr(o, name) > o.buffer_max_size,
        f'got {{o.{name}}}, expected at most the {{o.buffer_max_size}} of --buffer-max-size',
    )


@dataclasses.dataclass
class ReplayOptions(AgentOptions):
    """Options of agents with a replay buffer; sizes are totals over all environments."""

    buffer_max_size: int = tuned_count(
        10_000, 'capacity of the replay buffer in transitions; larger values keep older data and take more memory'
    )
    buffer_initial_size: int | None = option(
        None,
        'transitions stored before learning starts (default: --buffer-max-size); larger values start later',
        at_least=0,
        tune='int',
        aliases=('learning_starts',),
    )

    rules: ClassVar[Rules] = (at_most_capacity('buffer_initial_size'),)


@dataclasses.dataclass
class OffPolicyOptions(ReplayOptions):
    """Options that DQN, DDPG, SAC and TD3 share."""

    datasets = 'also'

    buffer_batch_size: int = choice(
        32, 'transitions of one update; larger values make updates slower and less noisy', at_least=1
    )
    train_frequency: int = choice(
        1,
        'environment steps per iteration, summed over the environments and rounded up to a multiple of '
        '--n-envs; larger values update less often',
        at_least=1,
    )
    gradient_steps: int = option(
        -1,
        'updates per iteration, -1: as many as environment steps; larger values learn more from each step',
        at_least=-1,
        tune='int',
    )
    fragment_steps: int | None = count(
        None,
        'steps of each environment per iteration, instead of --train-frequency, with as many updates per '
        'step; larger values need fewer messages from explorers and update less often',
    )
    n_step: int = tuned_count(
        1,
        'number of rewards that a target sums before it bootstraps; larger values propagate rewards faster '
        'and less exactly',
    )
    her: bool = option(
        False, 'replace goals of sampled transitions by goals achieved in their episode (hindsight experience replay)'
    )
    her_strategy: str = choice(
        'future',
        'source of the new goals of --her: the transition or a later one, the last one, or any one of the episode',
        choices=('future', 'final', 'episode'),
    )
    her_ratio: float = fraction(0.8, 'share of samples with a new goal; larger values use fewer original goals')

    rules: ClassVar[Rules] = (
        at_most_capacity('buffer_batch_size'),
        Rule('n_step', lambda o: o.her and o.n_step > 1, 'got {o.n_step} with --her, expected 1'),
        *(needs(name, '--her', lambda o: o.her) for name in ('her_strategy', 'her_ratio')),
        Rule(
            'gradient_steps',
            lambda o: o.gradient_steps == 0,
            'got 0, expected -1 (as many as steps taken) or a whole number from 1',
        ),
    )
