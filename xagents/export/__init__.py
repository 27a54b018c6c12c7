"""A policy as one file for other runtimes."""

from xagents.export.write import export as export
