"""What the tests of tuning share: a PostgreSQL server, and workers whose agents are stand-ins."""

import os

import pytest

from tests.postgresql import postgresql, postgresql_server  # noqa: F401 (fixtures)

# Stands in for TensorFlow and the agents in worker processes, which load it as they start: so a worker is there in a
# fraction of a second, and what a trial is worth is known. The environment's arguments say what happens.
STAND_IN = """
import contextlib, json, os, signal, sys, time, types
from pathlib import Path

threads, factory = types.ModuleType('xagents.system.threads'), types.ModuleType('xagents.factory.make')
keras = types.ModuleType('keras')
keras.backend = types.SimpleNamespace(clear_session=lambda: None)
threads.set_threads = lambda threads: print('threads', threads, file=sys.stderr, flush=True)


class Agent:
    def __init__(self, agent_id, env, seed, lr=7e-4, env_kwargs=None, **options):
        from xagents.options.errors import OptionError

        self.seed, self.lr, self.does = seed, lr, env_kwargs or {}
        if env == 'Unknown-v0':
            raise OptionError('env', 'no environment Unknown-v0 (did you mean Known-v0?)')
        made = {'pid': os.getpid(), 'agent': agent_id, 'env': env, 'seed': seed, 'lr': lr, **options}
        if 'log' in self.does:
            with open(self.does['log'], 'a') as log:
                log.write(json.dumps(made) + chr(10))

    def begin(self, max_steps):
        return self

    def schedule_notices(self):
        return []

    @property
    def mean_reward(self):
        return float({'seed': self.seed, 'lr': self.lr}[self.does.get('worth', 'lr')])

    def evaluate(self, episodes):
        return {'mean': 100.0 * episodes + self.lr}

    def once(self, name):
        # whether this is the first time in the study, or every time
        path = Path(self.does[name])
        if path.exists() and path.name != 'always':
            return False
        path.touch()
        return True

    def train_iter(self, max_steps, final_episodes):
        for part in range(1, 21):
            if part == 10:
                if 'kills' in self.does and self.once('kills'):
                    os.kill(os.getpid(), signal.SIGKILL)
                if 'hangs' in self.does and self.lr < self.does.get('below', 1e9) and self.once('hangs'):
                    time.sleep(60)
                if self.lr > self.does.get('most', 1e9):
                    raise ArithmeticError('lr is too large')
            time.sleep(self.does.get('seconds', 0) / 20)
            yield {'steps': max_steps * part / 20}

    def close(self):
        pass


factory.make = lambda agent_id, env, **options: Agent(agent_id, env, **options)
sharing = types.ModuleType('xagents.networks.program_cache')
sharing.share_programs = contextlib.contextmanager(lambda make, options: (yield make()))
sys.modules |= {'xagents.system.threads': threads, 'xagents.factory.make': factory, 'keras': keras}
sys.modules['xagents.networks.program_cache'] = sharing
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A folder with what stands in for agents; workers that are started from here use it."""
    folder = tmp_path / 'stand-in'
    folder.mkdir()
    (folder / 'sitecustomize.py').write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(folder))  # workers import what can be imported here
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(folder), os.environ['PYTHONPATH']]))
    return folder


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The working directory, which is empty."""
    folder = tmp_path / 'work'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
