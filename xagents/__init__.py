"""xagents: deep reinforcement learning for TensorFlow and Keras.

Names are resolved when they are used: `import xagents` loads no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xagents.version import __version__ as __version__

if TYPE_CHECKING:
    from xagents.a2c.agent import A2C as A2C
    from xagents.acer.agent import ACER as ACER
    from xagents.ddpg.agent import DDPG as DDPG
    from xagents.dqn.agent import DQN as DQN
    from xagents.envs import create_envs as create_envs
    from xagents.extensions import register as register
    from xagents.extensions import register_env as register_env
    from xagents.extensions import register_network as register_network
    from xagents.extensions import register_stage as register_stage
    from xagents.factory import make as make
    from xagents.plotting import plot_history as plot_history
    from xagents.ppo.agent import PPO as PPO
    from xagents.registry import agents as agents
    from xagents.runs import load as load
    from xagents.runs import resume as resume
    from xagents.td3.agent import TD3 as TD3
    from xagents.trpo.agent import TRPO as TRPO
    from xagents.tuning import tune as tune

_HOMES = {
    'A2C': 'xagents.a2c.agent',
    'ACER': 'xagents.acer.agent',
    'DDPG': 'xagents.ddpg.agent',
    'DQN': 'xagents.dqn.agent',
    'PPO': 'xagents.ppo.agent',
    'TD3': 'xagents.td3.agent',
    'TRPO': 'xagents.trpo.agent',
    'agents': 'xagents.registry',
    'create_envs': 'xagents.envs',
    'load': 'xagents.runs',
    'resume': 'xagents.runs',
    'make': 'xagents.factory',
    'plot_history': 'xagents.plotting',
    'register': 'xagents.extensions',
    'register_env': 'xagents.extensions',
    'register_network': 'xagents.extensions',
    'register_stage': 'xagents.extensions',
    'tune': 'xagents.tuning',
}
__all__ = sorted([*_HOMES, '__version__'])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from xagents.startup import hush_tensorflow

    hush_tensorflow()
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
