"""Distributed tuning: the same command, run twice at the same time with the URL of one PostgreSQL server."""

import subprocess
import sys
from collections import Counter

import optuna
import pytest

from xagents.tuning.storages import open_storage

TRIALS = 3
COMMAND = (
    f'tune a2c --env CartPole-v1 --study s --n-trials {TRIALS} --trial-steps 500 --lr 1e-4 1e-2 --seed 1 --storage'
)


@pytest.fixture
def tune(tmp_path):
    """Starts `xagents tune` in a process of its own; none of them survives the test."""
    processes = []

    def start(url):
        words = [sys.executable, '-m', 'xagents', *COMMAND.split(), url]
        with open(tmp_path / f'output-{len(processes)}', 'w') as output:
            processes.append(subprocess.Popen(words, stdout=output, stderr=output))
        return processes[-1]

    yield start
    for process in processes:
        process.terminate()  # it ends its workers
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_two_processes_share_a_study_and_each_finishes_its_own_trials(postgresql, tune, tmp_path):
    commands = [tune(postgresql) for _ in range(2)]
    codes = [command.wait(240) for command in commands]
    assert codes == [0, 0], [path.read_text() for path in sorted(tmp_path.glob('output-*'))]

    study = optuna.load_study(study_name='s', storage=open_storage(postgresql))
    assert [trial.number for trial in study.trials] == list(range(2 * TRIALS))
    assert {trial.state.name for trial in study.trials} <= {'COMPLETE', 'PRUNED'}
    # the count of each call is exact, whatever the other one does
    assert Counter(trial.user_attrs['pid'] for trial in study.trials) == {command.pid: TRIALS for command in commands}
    # the defaults come first, and nothing is tried twice, though both were given the same seed
    assert study.trials[0].params == {'lr': 7e-4}
    assert len({trial.params['lr'] for trial in study.trials}) == 2 * TRIALS
    assert study.user_attrs['agent'] == 'a2c'
