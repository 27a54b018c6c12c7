"""The command line: `xagents <command> <agent> [options]`."""

from xagents.cli.dispatch import execute as execute
from xagents.cli.dispatch import main as main
