"""The classes that agents are made of; a subclass of one's own begins with one of them."""

from xagents.base.agent import BaseAgent as BaseAgent
from xagents.base.off_policy import OffPolicy as OffPolicy
from xagents.base.on_policy import OnPolicy as OnPolicy
