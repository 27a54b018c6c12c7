"""The options of DQN; loads no TensorFlow."""

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

    model: str | None = option(None, 'a .cfg of the network; chosen by the environment when not given', metavar='CFG')
    double: bool = option(False, 'choose the next action by the online network (double DQN)', tune='categorical')
    dueling: bool = option(False, 'estimate the value and the advantages apart (dueling network)', tune='categorical')
    prioritized: bool = option(
        False, 'replay transitions in proportion to their last TD error (prioritized replay)', tune='categorical'
    )
    priority_alpha: float = option(
        0.6, 'exponent of the priorities; larger replays surprising ones more often', at_least=0, at_most=1
    )
    priority_beta: float = option(
        0.4, 'exponent of the importance weights, which goes to 1; larger corrects more', at_least=0, at_most=1
    )
    conservative: float = option(
        0.0,
        'weight of the loss that keeps actions which the data lack from being valued highly (CQL), for --dataset; '
        'larger stays closer to the data',
        at_least=0,
        tune='log_uniform',
    )
    huber: bool = option(False, 'Huber loss, linear from an error of 1 on, instead of the squared', tune='categorical')
    grad_norm: float = option(10.0, 'largest gradient norm; larger allows larger updates', above=0, tune='log_uniform')
    epsilon_start: float = option(
        1.0, 'probability of a random action at first; larger explores more', at_least=0, at_most=1, tune='log_uniform'
    )
    epsilon_end: float = option(
        0.02, 'the same after the decay; larger goes on exploring more', at_least=0, at_most=1, tune='log_uniform'
    )
    epsilon_decay_steps: int = option(
        150_000, 'environment steps of the decay; more explore for longer', at_least=1, tune='int'
    )
    epsilon_ladder: bool = option(
        False, 'environment i of N takes ε^(1 + 7 i / (N - 1)), as Ape-X does with 0.4', tune='categorical'
    )
    target_sync_steps: int = option(
        1000,
        'environment steps between two copies to the target network; more are slower and steadier',
        at_least=1,
        tune='int',
    )
