"""The choice of the policies of the package among kept runs, and the gallery."""

import json

import numpy as np
import pytest
from PIL import Image

import xagents
from benchmarks.learning import pretrained
from tests.commands import execute
from tests.docs.test_docs import ROOT
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN
from xagents.factory.pretrained import list_pretrained, read_pretrained
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.system.file_names import STATE_FILE

PICTURES = ROOT / 'img' / 'gallery'
KNOWN = json.loads((PICTURES / 'pictures.json').read_text())
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


# --------------------------------------------------------------------------------------------------------- the gallery


def test_the_gallery_shows_the_policies_of_the_package():
    shipped = {f'{one.agent}-{one.env}': one for agent_id in BUILTIN_AGENTS for one in list_pretrained(agent_id)}
    assert {name for name, one in KNOWN.items() if 'play' in one} == set(shipped)
    page = (ROOT / 'docs' / 'gallery.md').read_text()
    for name, one in shipped.items():
        assert KNOWN[name]['score'] == one.score and KNOWN[name]['train'] == one.command, f'{name}: make gallery'
        assert f'gallery/{name}.gif' in page and f'`{KNOWN[name]["play"]}`' in page
        assert f'{one.score["mean"]:.1f} ± {one.score["std"]:.1f}' in page
    assert page.count('.gif)') == len(KNOWN)


@pytest.mark.parametrize('name', KNOWN)
def test_a_picture_is_small_and_takes_some_seconds(name):
    path = PICTURES / f'{name}.gif'
    assert path.stat().st_size < 1_000_000
    with Image.open(path) as gif:
        lengths = []
        for index in range(gif.n_frames):
            gif.seek(index)
            lengths.append(gif.info['duration'])
        assert max(gif.size) <= 320 and gif.info['loop'] == 0
    # equal frames are merged
    assert len(lengths) >= 20 and 5_900 <= sum(lengths) <= 12_000
