"""Tests of the process around an agent run without XLA, whose compilation takes seconds an agent."""

import os

import pytest
from hypothesis import settings

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
# the command line is tested in processes of its own, wherever they run
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get('PYTHONPATH')]))


# how long an example takes depends on what else the machine does
settings.register_profile('xagents', deadline=None)
settings.load_profile('xagents')


@pytest.fixture(scope='module')
def small_agents():
    """Let the agents of `tests.small_agents` be known: what is tested is not an update but what is around it."""
    from tests.small_agents import registered

    with registered():
        yield


@pytest.fixture
def without_xla(monkeypatch):
    """Compile updates as plain graphs."""
    from xagents.networks.compiled import Program

    real = Program.__init__
    monkeypatch.setattr(Program, '__init__', lambda self, function, jit: real(self, function, False))
