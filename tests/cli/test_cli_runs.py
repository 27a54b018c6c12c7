"""The seed session as it is typed, with small budgets: train, train again, evaluate, play, plot, and being stopped."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import xagents
from tests.commands import execute
from xagents.cli import dispatch
from xagents.logs.history import read_history

ROOT = Path(xagents.__file__).parents[1]
ENVIRONMENT = {**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONUNBUFFERED': '1'}
TRAIN = [
    *('train', 'ppo', '--env', 'CartPole-v1', '--target-reward', '25', '--n-envs', '8', '--n-steps', '32'),
    *('--checkpoints', 'ppo.tf', '--history-checkpoint', 'ppo.parquet', '--seed', '123', '--reward-buffer-size', '20'),
]


def xagents_process(words, cwd):
    """Starts `xagents` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, '-m', 'xagents', *words],
        **{'cwd': cwd, 'env': ENVIRONMENT, 'encoding': 'utf-8', 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE},
    )


@pytest.fixture(scope='module')
def session(tmp_path_factory):
    """A folder in which the seed command ran once, as a process, and what it said."""
    folder = tmp_path_factory.mktemp('session')
    with xagents_process(TRAIN, folder) as process:
        stdout, stderr = process.communicate(timeout=300)
    return folder, process.returncode, stdout, stderr


@pytest.fixture
def there(session, monkeypatch):
    """Runs one command in the session's folder, in this process; returns its exit code, stdout and stderr."""
    monkeypatch.chdir(session[0])
    monkeypatch.setattr(dispatch, 'prepare_process', lambda: None)
    return execute


def test_training_ends_with_the_target_and_says_nothing_but_its_own_lines(session):
    folder, code, stdout, stderr = session
    assert (code, stderr) == (0, '')
    assert re.fullmatch(r'Reward achieved in \d+ steps', stdout.splitlines()[-1])
    assert {'ppo.parquet', 'ppo.tf.index', 'ppo.tf.state.npz'} <= {path.name for path in folder.iterdir()}


def test_the_same_command_twice_trains_twice(session, there):
    import pandas as pd

    before = pd.read_parquet(session[0] / 'ppo.parquet')
    code, stdout, _ = there(*TRAIN)
    assert code == 0
    assert stdout.splitlines()[-1] == session[2].splitlines()[-1]  # equal seeds give equal runs
    (aside,) = session[0].glob('ppo.*.parquet')
    assert aside.name in stdout
    pd.testing.assert_frame_equal(pd.read_parquet(aside), before)
    again = pd.read_parquet(session[0] / 'ppo.parquet')
    assert again['episode_reward'].tolist() == before['episode_reward'].tolist()


def test_a_budget_that_is_spent_is_a_success(there):
    code, stdout, _ = there('train', 'a2c', '--env', 'CartPole-v1', '--max-steps', '20', '--seed', '1')
    assert code == 0
    assert stdout.splitlines()[-1] == 'Maximum steps exceeded'


def test_evaluate_for_people_and_for_scripts(there):
    # neither the environment nor the network is typed again: they stand beside the weights
    line = ('evaluate', 'ppo', '--weights', 'ppo.tf', '--episodes', '3', '--seed', '5')
    code, stdout, _ = there(*line)
    assert code == 0
    people = stdout.splitlines()[-1]
    code, stdout, _ = there(*line, '--json')
    result = json.loads(stdout.splitlines()[-1])
    assert code == 0
    assert list(result) == ['mean', 'std', 'min', 'max', 'length']
    assert result['min'] <= result['mean'] <= result['max']
    assert people.startswith(f'Reward {result["mean"]:.2f} ± {result["std"]:.2f}, ') and people.endswith('3 episodes')


def test_play_records_a_video(session, there):
    line = ('play', 'ppo', '--env', 'CartPole-v1', '--weights', 'ppo.tf', '--video-dir', 'video', '--max-steps', '20')
    code, stdout, _ = there(*line)
    (video,) = (session[0] / 'video').glob('*.mp4')
    assert code == 0
    assert video.stat().st_size > 1000
    assert video.name in stdout


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['train', 'ppo', '--env', 'CartPol-v1', '--max-steps', '10'],
         "xagents train: --env: no environment 'CartPol-v1' (did you mean CartPole-v1?)"),
        (['evaluate', 'ppo', '--weights', 'pp.tf'],
         'xagents evaluate: --weights: there is no checkpoint pp.tf (did you mean ppo.tf?)'),
    ],
)  # fmt: skip
def test_what_only_libraries_know_is_refused_without_tensorflow(session, words, message):
    code = (
        'import sys\nfrom xagents.cli import main\ntry:\n    main()\nfinally:\n    print("tensorflow" in sys.modules)'
    )
    before = sorted(session[0].rglob('*'))
    done = subprocess.run(
        [sys.executable, '-c', code, *words],
        cwd=session[0],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, 'False\n', message)
    assert sorted(session[0].rglob('*')) == before


@pytest.mark.skipif(os.name != 'posix', reason='signals')
@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_cleanly(number, code, tmp_path):
    words = ['train', 'a2c', '--env', 'CartPole-v1', '--max-steps', '1e9', '--checkpoints', 'a.tf', '--n-envs', '4']
    words += ['--history-checkpoint', 'a.parquet']
    with xagents_process(words, tmp_path) as process:
        try:
            said = any(line.startswith('Best reward updated') for line in iter(process.stdout.readline, ''))
            process.send_signal(number)
            rest, stderr = process.communicate(timeout=300)
        finally:
            process.kill()
    assert said
    assert (process.returncode, stderr) == (code, '')
    assert f'xagents {" ".join(words)} --weights a.tf' in rest.splitlines()[-1]  # the command that goes on
    assert (tmp_path / 'a.tf.index').exists() and len(read_history(tmp_path / 'a.parquet')) > 10
