"""Export of a greedy policy for other runtimes."""

from xagents.export.write import export as export
