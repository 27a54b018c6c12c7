"""The options of DQN. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OffPolicyOptions
from xagents.options.declaration import (
    choice,
    count,
    fraction,
    network_file,
    option,
    positive,
    tuned_count,
    tuned_fraction,
    weight,
)
from xagents.options.rules import Rule, Rules, excluded, needs

# options that only one form of the distribution has
_FORM_OPTIONS = {'quantile': ('n_quantiles',), 'categorical': ('n_atoms', 'value_min', 'value_max')}
_MUNCHAUSEN_OPTIONS = ('munchausen_alpha', 'munchausen_temperature')


def _of_distribution(form: str, name: str) -> Rule:
    return needs(name, f'--distribution {form}', lambda o: o.distribution == form)


@dataclass
class DQNOptions(OffPolicyOptions):
    """Deep Q-network."""

    ranges: ClassVar = {
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'buffer_batch_size': (32, 64, 128, 256),
        'buffer_initial_size': (500, 10_000),
        'train_frequency': (1, 4, 16, 64, 256),
        'target_sync_steps': (10, 10_000),
        'epsilon_end': (0.01, 0.2),
        'epsilon_decay_steps': (1000, 200_000),
        'double': (False, True),
        'huber': (False, True),
    }

    forms: ClassVar = ('distribution', *(name for names in _FORM_OPTIONS.values() for name in names), 'noisy')

    model: str | None = network_file('.cfg file of the network; the default depends on the environment')
    double: bool = choice(False, 'choose the next action of the target with the online network (double DQN)')
    dueling: bool = choice(False, 'estimate value and advantages separately (dueling network)')
    prioritized: bool = choice(False, 'sample transitions in proportion to their last TD error (prioritized replay)')
    priority_alpha: float = fraction(
        0.6, '--prioritized: exponent of the priorities; larger values sample large errors more often'
    )
    priority_beta: float = fraction(
        0.4, '--prioritized: initial exponent of the importance weights, which rises to 1; larger values correct more'
    )
    conservative: float = weight(
        0.0,
        '--dataset: weight of the loss against high values of actions that are not in the data (CQL); larger '
        'values stay closer to the data',
    )
    huber: bool = choice(False, 'use the Huber loss, which is linear above an error of 1, instead of the squared error')
    munchausen: bool = choice(
        False, 'add the log-probability of each action to its reward, and use soft maxima in targets (Munchausen DQN)'
    )
    munchausen_alpha: float = fraction(
        0.9, '--munchausen: factor of the log-probabilities in rewards; larger values favour actions that are certain'
    )
    munchausen_temperature: float = positive(
        0.03, '--munchausen: temperature of the soft maxima; larger values weigh actions more equally', tune=None
    )
    distribution: str | None = choice(
        None,
        'learn the distribution of the return: quantiles (QR-DQN), or probabilities of fixed returns (C51); none: '
        'learn only its mean',
        choices=('quantile', 'categorical'),
    )
    n_quantiles: int = count(
        50,
        '--distribution quantile: number of quantiles of each value; larger values describe the distribution more '
        'finely and are slower',
    )
    n_atoms: int = count(
        51,
        '--distribution categorical: number of returns with a probability; larger values describe the distribution '
        'more finely and are slower',
        at_least=2,
    )
    value_min: float = option(
        -10.0, '--distribution categorical: smallest return; larger values resolve the others more finely'
    )
    value_max: float = option(
        10.0, '--distribution categorical: largest return; larger values admit larger returns, less finely'
    )
    noisy: bool = choice(
        False,
        'explore by learned noise on the weights of dense layers (noisy network), and by random actions with the '
        'constant probability --epsilon-end',
    )
    grad_norm: float = positive(10.0, 'norm to which gradients are clipped; larger values allow larger updates')
    epsilon_start: float | None = tuned_fraction(
        None,
        'initial probability of a random action (default: 1; with --noisy, --epsilon-end); larger values explore more',
    )
    epsilon_end: float = tuned_fraction(0.02, 'probability of a random action after decay; larger values explore more')
    epsilon_decay_steps: int = tuned_count(
        150_000, 'environment steps until ε has fallen to --epsilon-end; larger values explore for longer'
    )
    epsilon_ladder: bool = choice(
        False,
        'give environment i of N (from 0) the probability ε^(1 + 7 i / (N - 1)) of random actions (Ape-X: ε = 0.4)',
    )
    target_sync_steps: int = tuned_count(
        1000,
        'environment steps between two copies of the network to the target network; larger values are slower '
        'and more stable',
    )

    sequence_length: int = count(
        32,
        '--memory: steps of a sequence to learn from, through which gradients pass; larger values remember longer and '
        'are slower',
        at_least=2,
    )
    burn_in: int = option(
        16,
        '--memory: steps before a sequence that only prepare the memory; larger values correct stored memory more',
        at_least=0,
    )

    @property
    def epsilon(self) -> tuple[float, float]:
        """The probability of a random action, first and last."""
        start = (self.epsilon_end if self.noisy else 1.0) if self.epsilon_start is None else self.epsilon_start
        return start, self.epsilon_end

    @property
    def support(self) -> tuple[float, ...]:
        """Smallest and largest return of a categorical distribution; empty for other forms of values."""
        return (self.value_min, self.value_max) if self.distribution == 'categorical' else ()

    @property
    def atoms(self) -> int:
        """Number of network outputs for the value of one action."""
        return {None: 1, 'quantile': self.n_quantiles, 'categorical': self.n_atoms}[self.distribution]

    has_memory = True
    memory_options: ClassVar = ('sequence_length', 'burn_in')
    memory_rules: ClassVar[Rules] = (
        Rule('n_step', lambda o: o.n_step > 1, 'got {o.n_step} with memory, expected 1'),
        *excluded(('prioritized', 'her', 'noisy', 'conservative'), 'with memory', lambda o: True),
    )
    rules: ClassVar[Rules] = (
        *(_of_distribution(form, name) for form, names in _FORM_OPTIONS.items() for name in names),
        Rule(
            'value_min',
            lambda o: o.distribution == 'categorical' and o.value_min >= o.value_max,
            'got {o.value_min:g}, expected less than the {o.value_max:g} of --value-max',
        ),
        *excluded(('prioritized',), 'with --her, which samples uniformly', lambda o: o.her),
        *excluded(('huber', 'munchausen'), 'with --distribution {o.distribution}', lambda o: o.distribution),
        needs('epsilon_ladder', '--no-noisy or --epsilon-end', lambda o: any(o.epsilon)),
        needs(
            'epsilon_decay_steps', '--no-noisy or --epsilon-start', lambda o: not o.noisy or o.epsilon_start is not None
        ),
        *(needs(name, '--munchausen', lambda o: o.munchausen) for name in _MUNCHAUSEN_OPTIONS),
        Rule(
            'munchausen',
            lambda o: o.munchausen and o.double,
            'cannot be used with --double, expected one of the two',
        ),
        Rule('n_step', lambda o: o.munchausen and o.n_step > 1, 'got {o.n_step} with --munchausen, expected 1'),
    )
