"""Entries that xagents imports first. This module has no heavy imports, so lists and help pages stay fast."""

from pathlib import Path

from xagents.registry import Entry

# an agent like A2C: the same networks, another class and one additional option
awr = Entry.derived_from(
    'a2c',
    'own-awr',
    'own_parts.awr:AWR',
    'advantage-weighted regression: imitates what went better than expected',
    declaration='own_parts.options:AWROptions',
)
# a network may also be a .cfg file
SMALL = Path(__file__).with_name('small.cfg')
