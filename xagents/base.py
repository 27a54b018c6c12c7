"""The classes that agents are made of; a subclass of one's own begins with one of them."""

from xagents.agent import BaseAgent as BaseAgent
from xagents.off_policy import OffPolicy as OffPolicy
from xagents.on_policy import OnPolicy as OnPolicy
