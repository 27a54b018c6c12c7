"""Environments that are functions of TensorFlow, and so can be compiled into training."""

from xagents.envs.functional.adapter import register as register
from xagents.envs.functional.interface import FunctionalEnv as FunctionalEnv
