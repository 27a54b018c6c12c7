"""Base classes of all agents; a custom agent extends one of them."""

from xagents.base.agent import BaseAgent as BaseAgent
from xagents.base.off_policy import OffPolicy as OffPolicy
from xagents.base.on_policy import OnPolicy as OnPolicy
