"""The options of DQN. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OffPolicyOptions
from xagents.options.declaration import option


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

    model: str | None = option(None, '.cfg file of the network; the default depends on the environment', metavar='CFG')
    double: bool = option(
        False, 'choose the next action of the target with the online network (double DQN)', tune='categorical'
    )
    dueling: bool = option(False, 'estimate value and advantages separately (dueling network)', tune='categorical')
    prioritized: bool = option(
        False, 'sample transitions in proportion to their last TD error (prioritized replay)', tune='categorical'
    )
    priority_alpha: float = option(
        0.6,
        '--prioritized: exponent of the priorities; larger values sample large errors more often',
        at_least=0,
        at_most=1,
    )
    priority_beta: float = option(
        0.4,
        '--prioritized: initial exponent of the importance weights, which rises to 1; larger values correct more',
        at_least=0,
        at_most=1,
    )
    conservative: float = option(
        0.0,
        '--dataset: weight of the loss against high values of actions that are not in the data (CQL); '
        'larger values stay closer to the data',
        at_least=0,
        tune='log_uniform',
    )
    huber: bool = option(
        False,
        'use the Huber loss, which is linear above an error of 1, instead of the squared error',
        tune='categorical',
    )
    grad_norm: float = option(
        10.0, 'norm to which gradients are clipped; larger values allow larger updates', above=0, tune='log_uniform'
    )
    epsilon_start: float = option(
        1.0,
        'initial probability of a random action; larger values explore more',
        at_least=0,
        at_most=1,
        tune='log_uniform',
    )
    epsilon_end: float = option(
        0.02,
        'probability of a random action after the decay; larger values explore more',
        at_least=0,
        at_most=1,
        tune='log_uniform',
    )
    epsilon_decay_steps: int = option(
        150_000,
        'environment steps until ε has fallen to --epsilon-end; larger values explore for longer',
        at_least=1,
        tune='int',
    )
    epsilon_ladder: bool = option(
        False,
        'give environment i of N (from 0) the probability ε^(1 + 7 i / (N - 1)) of random actions (Ape-X: ε = 0.4)',
        tune='categorical',
    )
    target_sync_steps: int = option(
        1000,
        'environment steps between two copies of the network to the target network; larger values are slower and more '
        'stable',
        at_least=1,
        tune='int',
    )
