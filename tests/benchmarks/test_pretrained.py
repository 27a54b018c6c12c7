"""The choice of the policies of the package among kept runs."""

import json

import numpy as np
import pytest

import xagents
from benchmarks.learning import pretrained
from tests.commands import execute
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN
from xagents.factory.pretrained import read_pretrained
from xagents.system.file_names import STATE_FILE

OPTIONS = {'n_envs': 2, 'n_steps': 16, 'net': [8], 'max_episode_steps': 60}


@pytest.fixture(scope='module')
def runs(tmp_path_factory, without_xla_in_module):
    """Two runs with the same settings; the second plays worse."""
    folder = tmp_path_factory.mktemp('runs')
    for seed in (1, 2):
        agent = xagents.make('ppo', 'CartPole-v1', seed=seed, **OPTIONS)
        agent.fit(max_steps=64, final_episodes=0, quiet=True, run_dir=folder / f'seed-{seed}')
        agent.close()
    # one pushes in the direction of the pole, the other always in the same direction
    set_weights(folder / 'seed-1', {2 * 8: 1, 3 * 8: 1, 40: -1, 41: 1})
    set_weights(folder / 'seed-2', {})
    return folder


def set_weights(run, values):
    """Set the weights of a policy to 0 except for some."""
    path = run / 'checkpoints' / 'last' / POLICY_ARRAYS
    with np.load(path) as file:
        arrays = dict(file)
    arrays['weights'][:] = 0
    arrays['weights'][list(values)] = list(values.values())
    np.savez(path, **arrays)


def make(runs, out, monkeypatch, capsys, required=0):
    monkeypatch.setattr(pretrained, 'SHIPPED', {('ppo', 'CartPole-v1'): required, ('dqn', 'CartPole-v1'): 0})
    assert pretrained.main(['--runs', str(runs), '--out', str(out), '--episodes', '4']) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return line


def test_the_best_run_is_written_with_its_score(runs, tmp_path, monkeypatch, capsys):
    line = make(runs, tmp_path, monkeypatch, capsys)
    folder = tmp_path / 'ppo' / 'CartPole-v1'
    found = read_pretrained(folder)
    assert line.startswith('ppo CartPole-v1: 60.0, ') and found.score['mean'] == 60
    assert found.seed == 1 and found.steps >= 64
    last = runs / 'seed-1' / 'checkpoints' / 'last'
    assert all((folder / name).read_bytes() == (last / name).read_bytes() for name in (POLICY_PLAN, POLICY_ARRAYS))
    record = json.loads((folder / STATE_FILE).read_text())
    assert record['options'] == {'env': 'CartPole-v1', 'max_episode_steps': 60}
    # the command line plays the written policy
    monkeypatch.setattr('xagents.factory.pretrained.FOLDER', tmp_path)
    words = 'evaluate ppo --pretrained CartPole-v1 --episodes 4 --seed 0 --json'
    result = json.loads(execute(*words.split())[1])
    assert result == pytest.approx({name: found.score[name] for name in result}, abs=1e-3)
    # equal and worse policies do not replace it
    assert 'not better than' in make(runs, tmp_path, monkeypatch, capsys)
    assert 'not better than' in make(runs / 'seed-2', tmp_path, monkeypatch, capsys)
    record['score']['mean'] = 1.0
    (folder / STATE_FILE).write_text(json.dumps(record))
    assert 'not better' not in make(runs / 'seed-2', tmp_path, monkeypatch, capsys)
    assert read_pretrained(folder).seed == 2
