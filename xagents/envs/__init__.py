"""One interface to all kinds of environments."""

from xagents.envs.create import as_envs as as_envs
from xagents.envs.create import create_envs as create_envs
from xagents.envs.functional.interface import FunctionalEnv as FunctionalEnv
from xagents.envs.interface import Envs as Envs
