"""Commands that are typed in this process, and a run to go on with."""

import os
import shutil

import pytest

from tests.commands import execute
from tests.small_agents import Trouble, make


@pytest.fixture
def typed(folder):
    """Runs one command, in environments with faults; returns its exit code, and the lines on stdout and on stderr."""

    def run(words, *faults):
        Trouble.made, Trouble.faults = 0, faults
        code, stdout, stderr = execute(*words.split())
        return code, stdout.splitlines(), stderr.splitlines()

    return run


@pytest.fixture
def refused(typed):
    """Types a command that must be refused with code 2 and one line, which has some words and is returned."""

    def run(words, *parts):
        code, _, said = typed(words)
        assert code == 2 and len(said) == 1 and all(str(part) in said[0] for part in parts), said
        return said[0]

    return run


@pytest.fixture(scope='module')
def disks_are_not_waited_for():
    """What is in files is looked at, and not what a power cut would leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda file: None)
        yield


@pytest.fixture(scope='module')
def finished(tmp_path_factory, small_agents):
    """A run of 200 steps that has ended, and its agent."""
    folder = tmp_path_factory.mktemp('finished') / 'run'
    agent = make()
    agent.fit(max_steps=200, run_dir=str(folder), save_seconds=0, final_episodes=2)
    return folder, agent


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished[0], tmp_path / 'copied', symlinks=True)
