"""The options of SAC. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.ddpg.cli import DDPGOptions
from xagents.options.agents import OffPolicyOptions, OnPolicyOptions, SDEOptions
from xagents.options.declaration import changed, option
from xagents.options.rules import Rule, Rules, needs

INITIAL_SIZE = 1_000


@dataclass
class SACOptions(SDEOptions, OffPolicyOptions):
    """Soft actor-critic."""

    ranges: ClassVar = {
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'tau': (1e-3, 0.1),
        'buffer_batch_size': (64, 128, 256, 512),
        'buffer_initial_size': (100, 10_000),
        'train_frequency': (1, 4, 16, 64),
    }

    forms: ClassVar[tuple[str, ...]] = ('sde', 'sde_expln')

    actor_model: str | None = changed(DDPGOptions, 'actor_model', None)
    critic_model: str | None = changed(DDPGOptions, 'critic_model', None)
    lr: float = changed(OffPolicyOptions, 'lr', 3e-4)
    buffer_max_size: int = changed(OffPolicyOptions, 'buffer_max_size', 1_000_000)
    buffer_initial_size: int | None = changed(
        OffPolicyOptions,
        'buffer_initial_size',
        INITIAL_SIZE,
        help='transitions stored before learning starts; larger values start later',
    )
    buffer_batch_size: int = changed(OffPolicyOptions, 'buffer_batch_size', 256)
    tau: float = changed(DDPGOptions, 'tau', 0.005)
    entropy_coef: float | None = option(
        None,
        'temperature, the weight of the entropy, or auto to learn it; larger values explore more',
        at_least=0,
        none_word='auto',
    )
    target_entropy: float | None = option(
        None,
        'entropy in nats that a learned temperature aims at, auto: minus the length of an action, or for discrete '
        'actions half of the largest entropy; larger values explore more',
        none_word='auto',
    )
    log_std_init: float = changed(
        OnPolicyOptions,
        'log_std_init',
        -3.0,
        help='gSDE: initial log standard deviation of the noise for each feature; larger values explore more',
    )

    rules: ClassVar[Rules] = (
        needs('log_std_init', '--sde', lambda o: o.sde),
        Rule(
            'target_entropy',
            lambda o: o.entropy_coef is not None and o.target_entropy is not None,
            'got {o.target_entropy:g} with a fixed temperature, expected --entropy-coef auto',
        ),
    )

    def complete(self) -> None:
        """Shorten the default of `buffer_initial_size` for a small buffer."""
        super().complete()
        if 'buffer_initial_size' not in self.given_names:
            self.buffer_initial_size = min(INITIAL_SIZE, self.buffer_max_size)
