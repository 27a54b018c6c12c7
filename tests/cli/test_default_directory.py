"""What a run prints around training, and where it is saved without `--run-dir`."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.commands import execute
from tests.small_agents import on_cartpole
from xagents.cli import dispatch
from xagents.cli.default_directory import new_directory
from xagents.cli.resolve import ResolvedOptions
from xagents.cli.train import preset_hint

LINE = 'train small --env CartPole-v1 --n-envs 2 --n-steps 16 --max-steps 100 --seed 1'


@pytest.mark.usefixtures('small_agents')
def test_a_run_without_files_is_saved_in_the_next_directory(folder):
    assert execute('runs')[2].startswith('xagents runs: got no directory, and there is no runs here; expected direc')
    for number in (1, 2):
        code, stdout, stderr = execute(*LINE.split())
        path = f'runs/CartPole-v1/small-{number}'
        assert (code, stderr) == (0, '') and (folder / path / 'config.yaml').is_file()
        assert (
            f'Run directory: {path}\n' in stdout
            and f'Next: xagents play --run-dir {path} --video-dir video\n' in stdout
        )
    shown = stdout.splitlines()
    assert shown[:3] == ['small on CartPole-v1, 2 environments, seed 1', f'Run directory: {path}', 'Stops at 100 steps']
    assert shown[3] == 'Observations: Box(4,) float32, actions: Discrete(2)'
    assert shown[-1] == 'Maximum steps exceeded' and max(map(len, filter(is_status, shown))) <= 80
    assert 'Nothing will be saved' in execute(*LINE.split(), '--run-dir', 'none')[1]
    assert execute(*LINE.split(), '--checkpoints', 'a.tf')[0] == 0
    assert execute(*LINE.split(), '--model', 'none.cfg')[0] == 2  # its directory is removed
    assert sorted(path.name for path in (folder / 'runs' / 'CartPole-v1').iterdir()) == ['small-1', 'small-2']
    assert 'small-2' in execute('runs')[1]  # without a directory, that of all runs


@pytest.mark.parametrize(
    ('words', 'problem'),
    [
        ('ppo --env CartPole-v1 --stages nothing', '--stages: got nothing, expected a name of registered stages'),
        ('ppo --env CartPole-v1 --model none.cfg', '--model: there is no file none.cfg'),
        ('ppo --env CartPole-v1 --model none.cfg --seeds 1 2', '--model: there is no file none.cfg'),
        ('ppo --env CartPol-v1', "--env: no environment 'CartPol-v1' (did you mean CartPole-v1?)"),
        ('bc --dataset a/b-v0', "--dataset: no data set a/b-v0 in {root}, expected --download, from Minari's server"),
        ('ppo --env CartPole-v1 --explorers 1 --cluster nowhere', '--cluster: got nowhere, expected HOST:PORT'),
    ],
)
def test_wrong_names_and_files_are_refused_before_anything_is_printed(words, problem, folder, monkeypatch):
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(folder / 'data'))
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), pytest.raises(SystemExit) as end:
        dispatch.execute(['train', *words.split(), '--max-steps', '10'])
    assert (end.value.code, output.getvalue(), list(folder.iterdir())) == (2, '', [])
    assert errors.getvalue().startswith(f'xagents train: {problem.format(root=folder / "data")}')


def is_status(line):
    return line.startswith('steps: ')


@pytest.mark.parametrize('name', ['ALE/Pong-v5', 'module:Own-v0', '../..', ''])
def test_directories_of_runs_get_names_of_files(name, folder):
    with new_directory('ppo', name) as path:
        assert Path(path).resolve().parent.parent == folder / 'runs' and Path(path).name == 'ppo-1'
        with new_directory('ppo', name) as other:
            assert Path(other).name == 'ppo-2'
    assert list(folder.iterdir()) == []  # they were empty


def test_default_settings_name_the_tuned_ones():
    def hint(messages=(), **options):
        return preset_hint('ppo', ResolvedOptions({'env': 'CartPole-v1', **options}, {}, [*messages]))

    (line,) = hint(n_envs=4)
    assert line.startswith('Default settings; --tuned reached ') and ' on CartPole-v1 in 100000 steps' in line
    assert hint(lam=0.9) == hint(env='Own-v0') == hint(messages=['Preset: …']) == []


@pytest.mark.usefixtures('small_agents')
def test_none_saves_nothing_in_python_too_and_a_folder_of_runs_names_one(folder, capsys):
    agent = on_cartpole(n_envs=1, run_dir='none', quiet=False)
    agent.fit(max_steps=20)
    assert list(folder.iterdir()) == [] and 'Nothing will be saved' in capsys.readouterr().out
    agent.fit(max_steps=40, run_dir='runs/CartPole-v1/small-1')
    agent.save('saved')
    assert "'saved' contains no history" in execute('plot', '--run-dir', 'saved')[2]
    assert 'such as runs/CartPole-v1/small-1' in execute('evaluate', '--run-dir', 'runs/CartPole-v1')[2]
