"""The options of ACER. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import ActorCriticOptions
from xagents.options.agents import ReplayOptions
from xagents.options.declaration import changed, choice, count, option, positive, tuned_fraction
from xagents.options.rules import Rule, Rules


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
        ActorCriticOptions, 'lam', 1.0, help='Retrace lambda; larger values rely more on rewards than on Q values'
    )
    grad_norm: float = changed(ActorCriticOptions, 'grad_norm', 10.0)
    log_std_init: float = changed(
        ActorCriticOptions, 'log_std_init', 0.0, ignored=True, help='without effect: actions are discrete'
    )
    buffer_batch_size: int | None = count(None, 'not supported: a replay uses one whole stored rollout')
    replay_ratio: float = option(
        4.0,
        'mean number of replayed rollouts after each rollout (Poisson); larger values learn more from each step',
        at_least=0,
        at_most=1000,
        tune='categorical',
    )
    trust_region: bool = choice(True, 'limit how far an update moves from the average policy (section 3.3)')
    delta: float = positive(1.0, 'δ, bound on the distance from the average policy; larger values allow larger steps')
    ema_alpha: float = tuned_fraction(0.99, 'decay of the average policy; larger values average over more updates')
    importance_c: float = positive(
        10.0, 'c, the largest importance weight; larger values have more variance and less bias correction by Q values'
    )
    epsilon: float = positive(1e-6, 'added to probabilities in denominators; larger values damp small ones')

    rules: ClassVar[Rules] = (
        Rule(
            'buffer_batch_size',
            lambda o: o.buffer_batch_size is not None,
            'got {o.buffer_batch_size}, but a replay of ACER draws one stored rollout of all environments '
            '(see --n-steps and --n-envs)',
        ),
    )
