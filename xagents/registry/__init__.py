"""Registries of agents and other parts by name. Importing this package loads none of them."""

from xagents.registry.agents import Entry as Entry
from xagents.registry.agents import NetworkRole as NetworkRole
from xagents.registry.agents import Variant as Variant
from xagents.registry.traits import Traits as Traits
