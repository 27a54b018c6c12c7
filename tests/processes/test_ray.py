"""Processes on two Ray nodes, one of which is killed. Ray calls others at its start: it needs a network namespace."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.explorers.test_ray import APART, may_be_apart
from xagents.options.errors import OptionError
from xagents.processes.launch import check_launch

# two nodes with one processor each; the second one is killed when a file exists, and another one joins
TWO_NODES = """
import os, subprocess, sys, time
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})
second = cluster.add_node(num_cpus=1)
command = [sys.executable, '-m', 'xagents', *sys.argv[2:]]
with subprocess.Popen(command, env={**os.environ, 'RAY_ADDRESS': cluster.address}) as process:
    while process.poll() is None and not os.path.exists(sys.argv[1]):
        time.sleep(0.1)
    assert process.poll() is None, 'the command has ended too early'
    cluster.remove_node(second, allow_graceful=False)
    cluster.add_node(num_cpus=1)
sys.exit(process.returncode)
"""
TRAIN = '--env CartPole-v1 --n-envs 4 --n-steps 64 --net 8'
GRID = f'train ppo {TRAIN} --max-steps 20000 --seeds 1 2 3 --grid-jobs 2 --save-seconds 0 --final-episodes 0 --run-dir'
POPULATION = f'tune ppo {TRAIN} --population 3 --exploit-steps 4096 --trial-steps 12288 --lr 1e-4 1e-2 --seed 3'
POPULATION += ' --n-jobs 2 --out'


def weights(folder):
    """Return the weights of all runs below a folder, by path."""
    files = sorted(folder.glob('**/checkpoints/last/state.npz'))
    return {str(file.relative_to(folder)): dict(np.load(file)) for file in files}


@pytest.mark.slow
@pytest.mark.parametrize(
    ('command', 'until'), [(GRID, 'seed=1/metrics.parquet'), (POPULATION, 'round-0002')], ids=['grid', 'population']
)
def test_results_are_those_of_local_processes_if_a_node_is_killed(command, until, tmp_path):
    if importlib.util.find_spec('ray') is None:
        pytest.skip('ray is an extra')
    if not may_be_apart():
        pytest.skip('no network namespace can be made here (unshare -n), and Ray runs in no other')
    (tmp_path / 'two_nodes.py').write_text(TWO_NODES)
    words = f'ip link set lo up; exec "$0" two_nodes.py placed/{until} {command} placed --cluster ray'
    placed = [*APART, 'bash', '-c', words, sys.executable]
    done = subprocess.run(placed, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    here = [sys.executable, '-m', 'xagents', *command.split(), 'here']
    subprocess.run(here, cwd=tmp_path, capture_output=True, check=True, timeout=400)
    expected = weights(Path(tmp_path / 'here'))
    assert len(expected) == 3
    np.testing.assert_equal(weights(Path(tmp_path / 'placed')), expected)


@pytest.mark.parametrize('cluster', ['10.0.0.1:5555', 'rays', ''])
def test_processes_run_here_or_with_ray(cluster):
    with pytest.raises(OptionError, match=r'expected here, ray or ray://HOST:PORT'):
        check_launch(cluster)


def test_ray_is_an_extra(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None if name == 'ray' else found(name))
    check_launch(None)
    with pytest.raises(OptionError, match=r'\.\[ray\]'):
        check_launch('ray')
