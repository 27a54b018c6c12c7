"""Which agents and other parts there are, by name; loads none of them."""

from xagents.registry.agents import Entry as Entry
from xagents.registry.agents import NetworkRole as NetworkRole
from xagents.registry.agents import Variant as Variant
