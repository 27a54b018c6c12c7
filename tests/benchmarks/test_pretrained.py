"""The choice of the policies of the package among kept runs."""

import json
import shlex
import shutil

import numpy as np
import pytest

import xagents
from benchmarks.learning import pretrained
from tests.commands import execute
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN
from xagents.factory.presets import find_preset
from xagents.factory.pretrained import read_pretrained
from xagents.system.file_names import CONFIG, STATE_FILE
from xagents.teams.cli import parse_policy

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


@pytest.mark.parametrize(
    ('changed', 'words'),
    [
        ({}, '--seed 1 --tuned'),
        ({'max_steps': 9}, '--seed 1 --max-steps 9 --tuned'),
        # the activation of a preset belongs to its widths
        ({'net': [64, 64], 'activation': None}, '--seed 1 --net 64 64 --tuned'),
        ({'activation': None}, None),
        ({'schedule_steps': 20_000}, '--seed 1 --tuned'),
        ({'buffer_max_size': 10_000}, '--seed 1 --buffer-max-size 10000 --tuned'),
        ({'env_kwargs': {'g': 9.0, 'name': 'x'}}, '--seed 1 --env-kwargs g=9.0 name=x --tuned'),
        # no flag resets an option of the preset, and none is better than all of them
        ({name: None for name in ('n_quantiles', 'dropped_quantiles')}, None),
    ],
)
def test_a_command_is_that_of_the_preset_with_what_differs(changed, words):
    preset = find_preset('tqc', 'Pendulum-v1')
    options = {'env': 'Pendulum-v1', 'seed': 1, 'quiet': True, **preset.options, 'max_steps': preset.max_steps}
    command = pretrained.command_of('tqc', {**options, **changed})
    if words is None:
        assert command.startswith('xagents train tqc --env Pendulum-v1 --seed 1 --lr 0.001 ') and 'tuned' not in command
    else:
        assert command == f'xagents train tqc --env Pendulum-v1 {words}'


def test_a_command_names_policies_as_they_are_typed():
    policies = {'hunter': {'agent': 'ppo', 'agents': ['adversary_0', 'adversary_1']}, 'prey': 'ppo:agent_0'}
    command = pretrained.command_of('team', {'env': 'pettingzoo:mpe2.simple_tag_v3', 'policies': policies})
    words = shlex.split(command)
    assert words[5:] == ['--policies', 'hunter=ppo:adversary_0,adversary_1', 'prey=ppo:agent_0']
    given = parse(find_command('train'), 'team', words[3:])[1]
    read = {name: parse_policy(name, one) for name, one in given['policies'].items()}
    assert read == {name: parse_policy(name, one) for name, one in policies.items()}
    # options of a policy itself are typed as JSON
    policies['prey'] = {'agent': 'ppo', 'agents': ['agent_0'], 'lr': 0.001}
    command = pretrained.command_of('team', {'env': 'pettingzoo:mpe2.simple_tag_v3', 'policies': policies})
    given = parse(find_command('train'), 'team', shlex.split(command)[3:])[1]
    assert parse_policy('prey', given['policies']['prey']) == policies['prey']


def test_runs_with_memory_or_a_wrapper_do_not_ship(runs, tmp_path, monkeypatch, capsys):
    for name in ('memory', 'wrapper'):
        shutil.copytree(runs / 'seed-1', tmp_path / 'runs' / name, symlinks=True)
        config = (tmp_path / 'runs' / name / CONFIG).read_text()
        value = '8' if name == 'memory' else '[gymnasium.wrappers:TimeAwareObservation]'
        assert f'\n{name}: null\n' in config
        (tmp_path / 'runs' / name / CONFIG).write_text(config.replace(f'\n{name}: null\n', f'\n{name}: {value}\n'))
    found = pretrained.runs_of([tmp_path / 'runs'])
    assert [(key, [run.name for run in some]) for key, some in found.items()] == [
        (('ppo with memory', 'CartPole-v1'), ['memory']),
        (('ppo', 'CartPole-v1'), ['wrapper']),
    ]
    assert make(tmp_path / 'runs', tmp_path / 'out', monkeypatch, capsys) == 'ppo CartPole-v1: no self-contained policy'
