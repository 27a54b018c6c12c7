"""The options of ACER; loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import ActorCriticOptions
from xagents.options.agents import ReplayOptions
from xagents.options.declaration import changed, option
from xagents.options.errors import OptionError


@dataclass
class ACEROptions(ActorCriticOptions, ReplayOptions):
    """Actor-critic with experience replay."""

    ranges: ClassVar = {
        'n_envs': (1, 4, 8, 16),
        'n_steps': (5, 10, 20, 40),
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'entropy_coef': (1e-5, 0.1),
        'grad_norm': (0.5, 20.0),
        'replay_ratio': (1.0, 2.0, 4.0, 8.0),
        'delta': (0.1, 10.0),
        'buffer_initial_size': (500, 10_000),
        'normalize_obs': (False, True),
        'normalize_reward': (False, True),
    }

    n_steps: int = changed(ActorCriticOptions, 'n_steps', 20)
    lam: float = changed(
        ActorCriticOptions, 'lam', 1.0, help='Retrace lambda; larger trusts rewards more than the Q values'
    )
    grad_norm: float = changed(ActorCriticOptions, 'grad_norm', 10.0)
    log_std_init: float = changed(
        ActorCriticOptions, 'log_std_init', 0.0, ignored=True, help='without effect: actions are discrete'
    )
    buffer_batch_size: int | None = option(None, 'refused: a replay draws one stored rollout, whole', at_least=1)
    replay_ratio: float = option(
        4.0,
        'mean of the Poisson number of replays after each rollout; larger learns more from each step',
        at_least=0,
        at_most=1000,
        tune='categorical',
    )
    trust_region: bool = option(
        True, 'keep each update near the average policy (the projection of section 3.3)', tune='categorical'
    )
    delta: float = option(
        1.0,
        'δ, how fast an update may leave the average policy; larger allows larger policy steps',
        above=0,
        tune='log_uniform',
    )
    ema_alpha: float = option(
        0.99,
        'share of the average policy that an update keeps; larger follows more slowly',
        at_least=0,
        at_most=1,
        tune='log_uniform',
    )
    importance_c: float = option(
        10.0,
        'c, where importance weights are cut; larger has more variance and corrects less by the Q values',
        above=0,
        tune='log_uniform',
    )
    epsilon: float = option(
        1e-6, 'added to probabilities that are divided by; larger damps small ones', above=0, tune='log_uniform'
    )

    def check(self) -> None:
        """Check the sizes against each other, and that nobody expects batches."""
        if self.buffer_batch_size is not None:
            raise OptionError(
                'buffer_batch_size',
                f'got {self.buffer_batch_size}, but a replay of ACER draws one stored rollout of all environments '
                '(see --n-steps and --n-envs)',
            )
        super().check()
