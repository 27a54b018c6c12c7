"""Options that several algorithms share. Options of a single agent are in the package of the agent."""

from __future__ import annotations

import dataclasses
import secrets
from typing import ClassVar, Literal

from xagents.options.declaration import Options, choice, count, decay_rate, fraction, option, positive, weight
from xagents.options.errors import OptionError


@dataclasses.dataclass
class AgentOptions(Options):
    """Options that every agent shares.

    Attributes:
        datasets: 'never' if the agent cannot learn from a data set, 'also' if it can, 'only' if it requires one.
    """

    datasets: ClassVar[Literal['never', 'also', 'only']] = 'never'

    gamma: float = fraction(0.99, 'discount factor; larger looks further ahead, with more variance', tune='log_uniform')
    lr: float = positive(7e-4, 'learning rate; larger learns faster and less stably')
    opt_epsilon: float = positive(1e-7, "the optimizer's epsilon; larger damps small gradients")
    beta1: float = decay_rate(0.9, 'Adam: decay of the mean gradient; larger averages over more updates')
    beta2: float = decay_rate(0.999, 'Adam: decay of the mean squared gradient; larger averages over more updates')
    optimizer: str = choice('adam', 'the optimizer', choices=('adam', 'rmsprop'))
    lr_schedule: str = choice('constant', 'how the learning rate goes to 0', choices=('constant', 'linear', 'cosine'))
    schedule_steps: int | None = count(
        None, 'steps of the schedules, --max-steps when not given; larger values decay more slowly'
    )
    normalize_obs: bool = choice(False, 'normalise observations by their running mean and deviation')
    normalize_reward: bool = choice(False, 'normalise rewards by the deviation of the return')
    reward_scale: float = positive(1.0, 'factor on the reward during training; larger gives larger gradients')
    precision: str = option('float32', 'arithmetic of the networks', choices=('float32', 'bfloat16'))
    reward_buffer_size: int = count(
        100, 'episodes in the mean reward; larger values make it smoother and slower to change', at_most=10**9
    )
    seed: int | None = option(
        None, 'seed of everything random; drawn and printed when not given', at_least=0, at_most=2**32 - 1
    )

    def check_only_with(self, switch: str, *names: str) -> None:
        """Check that options which require a switch have their defaults if the switch is off."""
        for name in names:
            value = getattr(self, name)
            if not getattr(self, switch) and value != type(self).__dataclass_fields__[name].default:
                raise OptionError(name, f'got {str(value).lower()} without --{switch}, expected both')

    def draw_seed(self) -> int:
        """Return the seed; draw one if none was given."""
        if self.seed is None:
            self.seed = secrets.randbits(32)
        return self.seed


@dataclasses.dataclass
class OnPolicyOptions(AgentOptions):
    """Options that A2C, ACER, PPO and TRPO share: a stochastic policy that learns from rollouts."""

    n_steps: int = choice(
        5, 'steps an environment takes before an update; more give less bias and fewer updates', at_least=1
    )
    lam: float = fraction(1.0, 'GAE lambda; larger trusts rewards more than the critic', tune='log_uniform')
    entropy_coef: float = weight(0.01, 'weight of the entropy bonus; larger explores more')
    value_loss_coef: float = weight(0.5, "weight of the critic's loss; larger favours it over the policy")
    grad_norm: float = positive(0.5, 'largest gradient norm; larger allows larger updates')
    normalize_advantage: bool = choice(False, 'normalise advantages to mean 0 and deviation 1')
    log_std_init: float = choice(
        0.0, 'initial log standard deviation of continuous actions; larger explores more', at_least=-20, at_most=5
    )


@dataclasses.dataclass
class SDEOptions(OnPolicyOptions):
    """Options that A2C, PPO and TRPO share: state-dependent exploration (gSDE)."""

    sde: bool = choice(
        False,
        'explore by noise that depends on the state and stays for several steps (gSDE), where actions are continuous',
    )
    sde_sample_frequency: int = choice(
        -1,
        'steps between samples of the gSDE noise, -1 for once a rollout; larger values explore more smoothly',
        at_least=-1,
    )
    sde_expln: bool = choice(False, "let that noise's deviations above 1 grow like a logarithm, not exponentially")

    def check(self) -> None:
        """Check the options that require state-dependent exploration."""
        super().check()
        if self.sde_sample_frequency == 0:
            raise OptionError('sde_sample_frequency', 'got 0, expected -1 (once a rollout) or a whole number from 1')
        self.check_only_with('sde', 'sde_sample_frequency', 'sde_expln')


@dataclasses.dataclass
class ReplayOptions(AgentOptions):
    """Options of agents with a replay buffer; sizes are totals over all environments."""

    buffer_max_size: int = count(
        10_000,
        'capacity of the replay buffer in transitions; larger keeps older data and takes more memory',
        tune='int',
    )
    buffer_initial_size: int | None = option(
        None,
        'transitions stored before learning starts, the capacity when not given; larger values start later',
        at_least=0,
        tune='int',
        aliases=('learning_starts',),
    )

    def check(self) -> None:
        """Check the sizes against each other."""
        self.check_size('buffer_initial_size')

    def check_size(self, name: str) -> None:
        """Check that a size does not exceed the capacity of the buffer."""
        value, most = getattr(self, name), self.buffer_max_size
        if value is not None and value > most:
            raise OptionError(name, f'got {value}, expected at most the {most} of --buffer-max-size')


@dataclasses.dataclass
class OffPolicyOptions(ReplayOptions):
    """Options that DQN, DDPG and TD3 share."""

    datasets = 'also'

    buffer_batch_size: int = choice(
        32, 'transitions of one update; a larger batch makes updates slower and less noisy', at_least=1
    )
    train_frequency: int = choice(
        1,
        'steps between trainings, over all environments, rounded up to whole steps of all; more train less often',
        at_least=1,
    )
    gradient_steps: int = option(
        -1,
        'updates of a training, -1 for one a step taken; larger values learn more from each step',
        at_least=-1,
        tune='int',
    )
    fragment_steps: int | None = count(
        None,
        'steps of each environment before the updates for all of them, as in --train-frequency when not given; '
        'larger values need fewer messages from explorers and update later',
    )
    n_step: int = count(
        1,
        'rewards that a target sums before it bootstraps; larger values propagate rewards faster and less exactly',
        tune='int',
    )
    her: bool = option(
        False, 'replace goals of sampled transitions by goals achieved in their episode (hindsight experience replay)'
    )
    her_strategy: str = choice(
        'future',
        'new goals of --her: achieved by the transition or later, at the end of the episode, or anywhere in it',
        choices=('future', 'final', 'episode'),
    )
    her_ratio: float = fraction(
        0.8, 'share of sampled transitions with a new goal; larger values use fewer original goals'
    )

    def check(self) -> None:
        """Check the options against each other."""
        super().check()
        self.check_size('buffer_batch_size')
        self._check_hindsight()
        if self.gradient_steps == 0:
            raise OptionError('gradient_steps', 'got 0, expected -1 (as many as steps taken) or a whole number from 1')

    def _check_hindsight(self) -> None:
        """Check the options that exclude hindsight and the options that require it."""
        if self.her and self.n_step > 1:
            raise OptionError('n_step', f'got {self.n_step} with --her, expected 1')
        if self.her and getattr(self, 'prioritized', False):
            raise OptionError('prioritized', 'got true with --her, which samples uniformly')
        self.check_only_with('her', 'her_strategy', 'her_ratio')
