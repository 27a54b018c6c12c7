"""Commands that are typed in this process."""

import pytest

from tests.small_agents import Trouble
from xagents.cli import dispatch


@pytest.fixture
def typed(monkeypatch, capsys):
    """Runs one command, in environments with faults; returns its exit code, and the lines on stdout and on stderr."""
    monkeypatch.setattr(dispatch, 'prepare_process', lambda: None)

    def run(words, *faults):
        Trouble.made, Trouble.faults = 0, faults
        capsys.readouterr()
        try:
            dispatch.execute(words.split())
            code = 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


@pytest.fixture
def refused(typed):
    """Types a command that must be refused with code 2 and one line, which has some words and is returned."""

    def run(words, *parts):
        code, _, said = typed(words)
        assert code == 2 and len(said) == 1 and all(str(part) in said[0] for part in parts), said
        return said[0]

    return run
