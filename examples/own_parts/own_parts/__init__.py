"""What xagents looks at first; it loads nothing heavy, so that lists and help pages stay fast."""

from pathlib import Path

from xagents.registry import Entry

# an agent of the family of A2C: the same networks, another class and one option more
awr = Entry.derived_from(
    'a2c',
    'own-awr',
    'own_parts.awr:AWR',
    'advantage-weighted regression: imitates what went better than expected',
    declaration='own_parts.options:AWROptions',
)
# a network is a file, too
SMALL = Path(__file__).with_name('small.cfg')
