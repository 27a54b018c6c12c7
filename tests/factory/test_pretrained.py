"""The policies that ship: each plays as well as its record says, from plain data, and loads nothing heavy."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import xagents
from benchmarks.learning.pretrained import LARGEST, SHIPPED
from tests.commands import execute
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.cli.presets_page import presets_page
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN
from xagents.factory import players, pretrained
from xagents.factory.presets import list_presets
from xagents.factory.pretrained import FOLDER, find_pretrained, list_pretrained
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.system.file_names import STATE_FILE

ROOT = Path(xagents.__file__).parents[1]
EVERY = [one for agent_id in BUILTIN_AGENTS for one in list_pretrained(agent_id)]
each = pytest.mark.parametrize('one', EVERY, ids=lambda one: f'{one.agent} {one.env}')
# whose episodes take seconds
LONG = ('BipedalWalker-v3', 'Hopper-v5', 'Walker2d-v5')
# whose steps are NumPy alone: the same everywhere
EXACT = ('CartPole-v1', 'Acrobot-v1', 'MountainCar-v0', 'MountainCarContinuous-v0', 'Pendulum-v1')
PLAIN = """
import sys
for name in ('tensorflow', 'keras', 'pandas', 'matplotlib'):
    sys.modules[name] = None
from xagents.cli import execute
execute(['evaluate', 'ppo', '--pretrained', 'CartPole-v1', '--episodes', '2', '--json'])
execute(['play', 'ppo', '--pretrained', 'CartPole-v1', '--max-steps', '9', '--video-dir', sys.argv[1]])
"""


# ------------------------------------------------------------------------------------------------------- what they do


@pytest.mark.parametrize(
    'one',
    [pytest.param(one, marks=[pytest.mark.slow] if one.env in LONG else []) for one in EVERY],
    ids=[f'{one.agent} {one.env}' for one in EVERY],
)
def test_it_plays_as_its_record_says(one):
    player = players.load_pretrained_player(one.agent, one.env, {'seed': one.first['seed']})
    episodes = one.first['episodes']
    result = player.evaluate(episodes=episodes)
    player.close()
    assert one.score['mean'] >= SHIPPED[one.agent, one.env] and (one.score['episodes'], episodes) == (100, 10)
    if one.env in EXACT:
        assert result == pytest.approx({name: one.first[name] for name in result}, abs=2e-3)
    # physics of other versions leads elsewhere, though not to worse play
    margin = 4 * one.score['std'] / episodes**0.5 + 1
    assert abs(result['mean'] - one.score['mean']) <= margin


def test_a_policy_with_other_weights_does_not():
    one = find_pretrained('ppo', 'CartPole-v1')
    player = players.load_pretrained_player(one.agent, one.env, {'seed': 0})
    network = player.acting_policy.network
    network.refresh(np.random.default_rng(0).normal(size=network.plan.n_parameters).astype(np.float32))
    assert player.evaluate(episodes=10)['mean'] < one.score['mean'] / 2
    player.close()


@each
def test_the_command_that_trained_it_is_one(one):
    words = one.command.split()
    assert words[:3] == ['xagents', 'train', one.agent]
    given = parse(find_command('train'), one.agent, words[3:])[1]
    assert given['env'] == one.env and given['seed'] == one.seed and one.steps > 0
    if 'tuned' in given:
        (preset,) = (p for p in list_presets(one.agent) if p.name == one.env)
        assert one.steps >= preset.max_steps
    assert one.versions.keys() >= {'xagents', 'gymnasium'} and re.fullmatch(r'\d{4}-\d\d-\d\d', one.date)


# --------------------------------------------------------------------------------------------------------- their files


@each
def test_its_files_are_json_and_numbers(one):
    assert sorted(path.name for path in one.folder.iterdir()) == sorted((POLICY_PLAN, POLICY_ARRAYS, STATE_FILE))
    with np.load(one.folder / POLICY_ARRAYS, allow_pickle=False) as file:
        assert all(file[name].dtype.kind in 'fiu' for name in file.files)
    assert json.loads((one.folder / POLICY_PLAN).read_text())['agent'] == one.agent == one.folder.parent.name
    assert one.folder.name == one.env
    assert sum(path.stat().st_size for path in one.folder.iterdir()) <= LARGEST


def test_all_of_them_are_small_and_in_the_package():
    files = {path for path in FOLDER.rglob('*') if path.is_file()}
    assert len(EVERY) >= 8 and len(files) == 3 * len(EVERY)
    assert sum(path.stat().st_size for path in files) < 1_000_000
    # setuptools takes these patterns from the package's folder
    patterns = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['setuptools']['package-data']['xagents']
    packed = {path for pattern in patterns for path in (ROOT / 'xagents').glob(pattern)}
    assert files <= packed


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_what_is_pickled_is_refused_and_not_run(tmp_path, monkeypatch):
    found = find_pretrained('ppo', 'CartPole-v1')
    folder = tmp_path / 'ppo' / 'CartPole-v1'
    folder.mkdir(parents=True)
    for name in (POLICY_PLAN, STATE_FILE):
        (folder / name).write_bytes((found.folder / name).read_bytes())
    np.savez(folder / POLICY_ARRAYS, weights=np.array([Bomb(tmp_path / 'bang')], object))
    with pytest.raises(FileExistsError):  # it would be run
        (tmp_path / 'bang').mkdir()
        np.load(folder / POLICY_ARRAYS, allow_pickle=True)['weights']
    (tmp_path / 'bang').rmdir()
    monkeypatch.setattr(pretrained, 'FOLDER', tmp_path)
    with pytest.raises(ValueError, match=r'policy\.npz is damaged .*allow_pickle=False'):
        players.load_pretrained_player('ppo', 'CartPole-v1', {})
    assert not (tmp_path / 'bang').exists()


# ---------------------------------------------------------------------------------------------------- the command line


def test_the_command_line_plays_without_tensorflow(tmp_path):
    done = subprocess.run(
        [sys.executable, '-c', PLAIN, tmp_path / 'video'], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result, played, video = done.stdout.splitlines()
    assert json.loads(result)['mean'] == 500 and played == 'Episode reward: 9, steps: 9'
    assert Path(video.removeprefix('Video: ')).stat().st_size > 1000


def test_options_of_the_environment_win(folder):
    words = ('evaluate', 'ppo', '--pretrained', 'CartPole-v1', '--episodes', '2', '--json')
    code, out, _ = execute(*words, '--max-episode-steps', '30')
    assert code == 0 and json.loads(out)['mean'] == 30


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        ('play ppo --pretrained CartPole-v0', r'--pretrained: got CartPole-v0, .*\(did you mean CartPole-v1\?\)$'),
        (
            'record td3 --pretrained Pendulum-v1',
            '--pretrained: got Pendulum-v1, .* td3 has no pretrained policy .but ppo and tqc have one',
        ),
        ('evaluate ppo --pretrained ../ppo/CartPole-v1', r'--pretrained: got \.\./ppo/CartPole-v1, for which'),
        ('play ppo --pretrained CartPole-v1 --run-dir x', '--run-dir: got x with --pretrained, expected one'),
        ('record ppo --pretrained CartPole-v1 --weights a b', '--weights: got a b with --pretrained'),
        ('evaluate ppo --pretrained CartPole-v1 --checkpoint last', '--checkpoint: got last with --pretrained'),
        ('play ppo --pretrained CartPole-v1 --gamma 0.5', '--gamma: cannot be used with --pretrained CartPole-v1'),
        ('record ppo --pretrained CartPole-v1 --net 8', '--net: cannot be used with --pretrained CartPole-v1'),
        (
            'evaluate ppo --pretrained CartPole-v1 --env Pendulum-v1',
            '--env: got Pendulum-v1, expected an environment that fits the networks of --pretrained CartPole-v1: obser',
        ),
        ('record ppo --seed 1', '--weights: got nothing, expected .* or --pretrained'),
    ],
)
def test_a_wrong_line_is_refused_in_one(words, said, folder, monkeypatch):
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(folder))
    dataset = ['--dataset', 'a/b-v0'] if words.startswith('record') else []
    code, out, err = execute(*words.split(), *dataset)
    (line,) = err.splitlines()
    assert (code, out) == (2, '') and re.search(said, line), line
    assert not list(folder.iterdir())


def test_an_index_into_outputs_takes_an_agent(folder):
    code, _, err = execute('play', 'ppo', '--pretrained', 'CartPole-v1', '--action-idx', '1')
    assert code == 2 and '--action-idx: got 1 with --pretrained' in err


def test_the_list_of_settings_marks_them():
    marked = set()
    for agent_id in BUILTIN_AGENTS:
        table = presets_page(agent_id, 72).partition('Settings are those of')[0]
        for line in table.splitlines():
            env, _, rest = line.partition(' ')
            marked |= {(agent_id, env)} if rest.startswith('* ') else set()
    assert marked == {(one.agent, one.env) for one in EVERY}
    assert '--pretrained' in presets_page()
