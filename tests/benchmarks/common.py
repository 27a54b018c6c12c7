"""What the benchmarks' tests share: a machine, a command, and the cells of a table."""

import sys
from pathlib import Path

MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}


def script(path: Path, body: str) -> str:
    """A program that takes the place of Python: it gets `-m MODULE JOB`."""
    path.write_text(f'#!{sys.executable}\nimport json, sys\njob = json.loads(sys.argv[3])\n{body}\n')
    path.chmod(0o755)
    return str(path)


def cells(text: str, beginning: str) -> list[str]:
    """Return the cells of the first row that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f'| {beginning}'))
    return [cell.strip() for cell in line.split('|')[1:-1]]
