"""A machine, a program in the place of Python, and the cells of a table, for tests of benchmarks."""

import sys
from pathlib import Path

from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse

MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}


def script(path: Path, body: str) -> str:
    """Write a program that is called as Python is: with `-m MODULE JOB`."""
    path.write_text(f'#!{sys.executable}\nimport json, sys\njob = json.loads(sys.argv[3])\n{body}\n')
    path.chmod(0o755)
    return str(path)


def cells(text: str, beginning: str) -> list[str]:
    """Return the cells of the first row with this beginning."""
    line = next(line for line in text.splitlines() if line.startswith(f'| {beginning}'))
    return [cell.strip() for cell in line.split('|')[1:-1]]


def markers(name: str) -> str:
    """Return an empty section of a page."""
    return f'<!-- benchmark {name} -->\n<!-- end of benchmark {name} -->\n'


def trial_options(words: list[str]) -> dict:
    """Return the options of a command of xagents, which fails if they are not valid."""
    name, *rest = words
    agent = rest.pop(0) if not rest[0].startswith('-') else None
    return parse(find_command(name), agent, rest)[1]
