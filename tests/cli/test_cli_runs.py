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
from tests.small_agents import ENV, Trouble
from xagents.checkpoints.status import read_status
from xagents.logs.history import read_history

ROOT = Path(xagents.__file__).parents[1]
ENVIRONMENT = {**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONUNBUFFERED': '1'}
TRAIN = [
    *('train', 'ppo', '--env', 'CartPole-v1', '--target-reward', '25', '--n-envs', '8', '--n-steps', '32'),
    *('--checkpoints', 'ppo.tf', '--history-checkpoint', 'ppo.parquet', '--seed', '123', '--reward-buffer-size', '20'),
]
# imported by a process because its environment is named after it: compiling takes a fraction of XLA's time
QUICK = """
from xagents.networks.programs import Program

compiled = Program.__init__
Program.__init__ = lambda self, function, jit: compiled(self, function, False)
"""


@pytest.fixture(scope='module')
def session(tmp_path_factory, without_xla_in_module):
    """A folder in which the seed command ran once, and what it said."""
    folder = tmp_path_factory.mktemp('session')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr('xagents.cli.dispatch.prepare_process', lambda: None)
        return folder, *execute(*TRAIN)


@pytest.fixture
def there(session, folder, monkeypatch):
    """Runs one command in the session's folder, in this process; returns its exit code, stdout and stderr."""
    monkeypatch.chdir(session[0])
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


def test_what_only_libraries_know_is_refused_without_tensorflow(session):
    refused = {
        'train ppo --env CartPol-v1 --max-steps 10':
            r"xagents train: --env: no environment 'CartPol-v1' \(did you mean CartPole-v1\?\)",
        'evaluate ppo --weights pp.tf':
            r'xagents evaluate: --weights: there is no weight file pp.tf \(did you mean ppo.tf\?\)',
        'train ppo --env CartPole-v0 --tuned':
            r'xagents train: --tuned: ppo has no preset for CartPole-v0, .* Cart.*\(did you mean CartPole-v1\?\)',
        'train ppo --tuned': 'xagents train: --env: got nothing.*',
        'train ppo --tuned --weights none.tf': 'xagents train: --weights: there is no weight file.*',
    }  # fmt: skip
    code = (
        'import sys\nfrom xagents.cli import execute\nfor line in sys.argv[1:]:\n    try:\n'
        '        execute(line.split())\n    except SystemExit as end:\n        print(end.code)\n'
        'print("tensorflow" in sys.modules)'
    )
    before = sorted(session[0].rglob('*'))
    words = [sys.executable, '-c', code, *refused]
    done = subprocess.run(words, cwd=session[0], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert re.findall(r'^(?:2|True|False)$', done.stdout, re.MULTILINE) == ['2'] * len(refused) + ['False'], done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith('xagents ')]
    for line, message in zip(said, refused.values(), strict=True):
        assert re.fullmatch(message, line)
    assert sorted(session[0].rglob('*')) == before


@pytest.mark.usefixtures('small_agents')
def test_ctrl_c_ends_a_run_cleanly(folder, monkeypatch):
    step = Trouble.step

    def interrupts(self, action):
        if self.taken == 150:
            signal.raise_signal(signal.SIGINT)
        return step(self, action)

    monkeypatch.setattr(Trouble, 'step', interrupts)
    line = f'train small --env {ENV} --n-steps 4 --mini-batches 1 --net 4 --max-steps 1e9 --run-dir run'
    code, stdout, stderr = execute(*line.split())
    assert (code, stderr) == (130, '')
    assert 'xagents train --resume run' in stdout.splitlines()[-1]
    assert read_status(folder / 'run')['state'] == 'interrupted'


@pytest.mark.skipif(os.name != 'posix', reason='signals')
def test_a_signal_ends_a_process_cleanly(tmp_path):
    (tmp_path / 'quick.py').write_text(QUICK)
    words = ['train', 'a2c', '--env', 'quick:CartPole-v1', '--max-steps', '1e9', '--checkpoints', 'a.tf', '--n-envs']
    words += ['4', '--history-checkpoint', 'a.parquet']
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    command = [sys.executable, '-m', 'xagents', *words]
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, encoding='utf-8', **pipes) as process:
        try:
            said = any(line.startswith('Best reward') for line in iter(process.stdout.readline, ''))
            process.send_signal(signal.SIGTERM)
            rest, stderr = process.communicate(timeout=300)
        finally:
            process.kill()
    assert said
    assert (process.returncode, stderr) == (143, '')
    assert f'xagents {" ".join(words)} --weights a.tf' in rest.splitlines()[-1]  # the command that goes on
    assert (tmp_path / 'a.tf.index').exists() and len(read_history(tmp_path / 'a.parquet')) > 10
