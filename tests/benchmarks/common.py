"""What the benchmarks' tests share: a machine, a command, and the cells of a table."""

import sys

MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}


def python(body: str) -> list[str]:
    return [sys.executable, '-c', body]


def cells(text: str, beginning: str) -> list[str]:
    """Return the cells of the first row that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f'| {beginning}'))
    return [cell.strip() for cell in line.split('|')[1:-1]]
