"""Explorers that Ray places. It calls others when it starts, so it runs in a network namespace of its own, or not."""

import contextlib
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import xagents
from tests.explorers.test_explorers import COMMON
from xagents.options.errors import OptionError

APART = ['unshare', '-n', '-p', '-f', '--mount-proc', '--kill-child']
TRAIN = 'train ppo --env CartPole-v1 --n-envs 8 --n-steps 16 --max-steps 3000 --seed 1 --explorers 2 --net 8'


def may_be_apart():
    """Whether a network namespace can be made here."""
    with contextlib.suppress(OSError):
        return subprocess.run([*APART, 'ip', 'link', 'set', 'lo', 'up'], capture_output=True).returncode == 0
    return False


@pytest.mark.slow
def test_ray_places_explorers_and_the_weights_are_the_same(tmp_path):
    if importlib.util.find_spec('ray') is None:
        pytest.skip('ray is an extra')
    if not may_be_apart():
        pytest.skip('no network namespace can be made here (unshare -n), and Ray runs in no other')
    command = f'ip link set lo up; exec "$0" -m xagents {TRAIN} --run-dir ray --cluster ray'
    placed = subprocess.run(
        [*APART, 'bash', '-c', command, sys.executable], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert placed.returncode == 0, placed.stderr
    here = [sys.executable, '-m', 'xagents', *TRAIN.split(), '--run-dir', 'here']
    subprocess.run(here, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    weights = [np.load(tmp_path / run / 'checkpoints' / 'last' / 'policy.npz')['weights'] for run in ('ray', 'here')]
    assert np.array_equal(*weights)
    assert os.stat(tmp_path / 'ray' / 'cluster.pem').st_mode & 0o777 == 0o600


def test_ray_is_an_extra(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None if name == 'ray' else found(name))
    agent = xagents.make('ppo', 'CartPole-v1', **COMMON, n_steps=16)
    with contextlib.closing(agent), pytest.raises(OptionError, match=r'\.\[ray\]'):
        agent.fit(max_steps=100, explorers=2, cluster='ray', run_dir=str(tmp_path / 'run'))
    assert not list(tmp_path.iterdir())
