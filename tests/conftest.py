"""Tests of the process around an agent run without XLA, whose compilation takes seconds an agent."""

import contextlib
import gc
import os

import pytest
from hypothesis import settings

from tests.browser import ARGUMENTS, CHROMIUM
from xagents.system.startup import silence_tensorflow

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
# programs run a few times: compiling them well costs more than it saves
os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
# two workers share two cores
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
os.environ.setdefault('TF_NUM_INTEROP_THREADS', '1')
os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
# compiled programs are kept from test to test, and from one run of the tests to the next, but not among the user's own
os.environ['XAGENTS_CACHE'] = os.path.join(os.getcwd(), '.pytest_cache', 'xagents')
# the command line is tested in processes of its own, wherever they run
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get('PYTHONPATH')]))
silence_tensorflow()  # whichever test imports it first


# how long an example takes depends on what else the machine does
settings.register_profile('xagents', deadline=None)
settings.load_profile('xagents')


def pytest_collection_finish():
    """Exclude what imports have left in memory, mostly TensorFlow, from every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope='module')
def small_agents():
    """Let the agents of `tests.small_agents` be known: what is tested is not an update but what is around it."""
    from tests.small_agents import registered

    with registered():
        yield


@pytest.fixture
def empty_registries(monkeypatch):
    """Empty all registries of agents, networks, environments and stages for one test."""
    from xagents.envs.registry import env_registry
    from xagents.networks.registry import network_registry
    from xagents.registry.agents import parts
    from xagents.registry.parts import REGISTERED_MODULES
    from xagents.runs.registry import stage_registry

    monkeypatch.setenv(REGISTERED_MODULES, '')
    for registry in (parts, network_registry, env_registry, stage_registry):
        for attribute in ('registered', '_objects', 'located'):
            monkeypatch.setattr(registry, attribute, {})


@pytest.fixture
def eager(monkeypatch):
    """Run updates as they stand: a few of them cost less than tracing and compiling them."""
    from tests.reference import run_eagerly
    from xagents.networks.programs import Program

    monkeypatch.setattr(Program, '__call__', run_eagerly)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Let the command line run in this process, and in an empty folder."""
    from xagents.cli import dispatch

    monkeypatch.setattr(dispatch, 'prepare_process', lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def plain_graphs():
    import tensorflow as tf

    from xagents.networks.programs import Program

    real = Program.__init__
    # for a few updates, optimising a graph costs more than it saves
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, '__init__', lambda self, function, jit: real(self, function, False))
        yield
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': False})


@pytest.fixture
def without_xla():
    """Compile updates as plain graphs."""
    with plain_graphs():
        yield


@pytest.fixture(scope='module')
def without_xla_in_module():
    """Compile updates as plain graphs in all tests of a module that come from then on."""
    with plain_graphs():
        yield


@pytest.fixture
def shared_programs(monkeypatch):
    """Let agents of equal structure share compiled programs, as in a worker of a study."""
    from xagents.factory.make import AgentPlan
    from xagents.networks.program_cache import share_programs

    build = AgentPlan.build

    def shared(plan):
        agents.close()  # stores what the agents before have compiled
        options = {**plan.settings.environment.asdict(), **plan.settings.network.asdict(), **plan.settings.models}
        return agents.enter_context(share_programs(lambda: build(plan), options))

    with contextlib.ExitStack() as agents:
        monkeypatch.setattr(AgentPlan, 'build', shared)
        yield


@pytest.fixture(scope='module')
def browser():
    """A browser without a window, for tests of pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
