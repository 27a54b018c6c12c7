"""xagents: deep reinforcement learning for TensorFlow and Keras.

`import xagents` does not import TensorFlow. Each public name is imported at its first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from xagents.version import __version__ as __version__

if TYPE_CHECKING:
    from xagents.a2c.agent import A2C as A2C
    from xagents.acer.agent import ACER as ACER
    from xagents.bc.agent import BC as BC
    from xagents.crossq.agent import CrossQ as CrossQ
    from xagents.datasets.reading import open_dataset as open_dataset
    from xagents.ddpg.agent import DDPG as DDPG
    from xagents.dqn.agent import DQN as DQN
    from xagents.envs.create import create_envs as create_envs
    from xagents.envs.registry import register_env as register_env
    from xagents.factory.load import load as load
    from xagents.factory.load import resume as resume
    from xagents.factory.make import make as make
    from xagents.factory.make import team as team
    from xagents.factory.policy import policy as policy
    from xagents.iql.agent import IQL as IQL
    from xagents.networks.registry import register_network as register_network
    from xagents.ppo.agent import PPO as PPO
    from xagents.pqn.agent import PQN as PQN
    from xagents.rainbow.agent import Rainbow as Rainbow
    from xagents.registry.agents import agents as agents
    from xagents.registry.agents import register as register
    from xagents.reports.comparison import compare as compare
    from xagents.reports.plotting import plot_history as plot_history
    from xagents.runs.record_dataset import record as record
    from xagents.runs.registry import register_stage as register_stage
    from xagents.sac.agent import SAC as SAC
    from xagents.td3.agent import TD3 as TD3
    from xagents.td3_bc.agent import TD3BC as TD3BC
    from xagents.tqc.agent import TQC as TQC
    from xagents.trpo.agent import TRPO as TRPO
    from xagents.tuning.evolve import evolve as evolve
    from xagents.tuning.tune import tune as tune

_MODULES = {
    'A2C': 'xagents.a2c.agent',
    'ACER': 'xagents.acer.agent',
    'BC': 'xagents.bc.agent',
    'CrossQ': 'xagents.crossq.agent',
    'DDPG': 'xagents.ddpg.agent',
    'DQN': 'xagents.dqn.agent',
    'IQL': 'xagents.iql.agent',
    'PPO': 'xagents.ppo.agent',
    'PQN': 'xagents.pqn.agent',
    'Rainbow': 'xagents.rainbow.agent',
    'SAC': 'xagents.sac.agent',
    'TD3': 'xagents.td3.agent',
    'TD3BC': 'xagents.td3_bc.agent',
    'TQC': 'xagents.tqc.agent',
    'TRPO': 'xagents.trpo.agent',
    'agents': 'xagents.registry.agents',
    'compare': 'xagents.reports.comparison',
    'create_envs': 'xagents.envs.create',
    'evolve': 'xagents.tuning.evolve',
    'load': 'xagents.factory.load',
    'resume': 'xagents.factory.load',
    'make': 'xagents.factory.make',
    'open_dataset': 'xagents.datasets.reading',
    'policy': 'xagents.factory.policy',
    'plot_history': 'xagents.reports.plotting',
    'record': 'xagents.runs.record_dataset',
    'register': 'xagents.registry.agents',
    'register_env': 'xagents.envs.registry',
    'register_network': 'xagents.networks.registry',
    'register_stage': 'xagents.runs.registry',
    'team': 'xagents.factory.make',
    'tune': 'xagents.tuning.tune',
}
__all__ = sorted([*_MODULES, '__version__'])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        problem = f'module {__name__!r} has no attribute {name!r}'
        if not name.startswith('_'):
            from xagents.options.foreign_names import attribute_hint

            problem += attribute_hint(name)
            # `from xagents import name` hides the text of an AttributeError
            if sys._getframe(1).f_code.co_name == '_handle_fromlist' and attribute_hint(name):
                raise ImportError(problem)
        raise AttributeError(problem)
    from xagents.system.startup import silence_tensorflow

    silence_tensorflow()
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
