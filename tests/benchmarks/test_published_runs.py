"""What the learning benchmark knows of the runs with published scores."""

import subprocess

import numpy as np
import pytest
import yaml

from benchmarks.learning import published_runs
from benchmarks.learning.cases import CASES, PUBLISHED_RUNS


def test_published_scores_of_early_rows_are_means_of_the_evaluations_there():
    early = [case for case in CASES if case.key.endswith('early') and case.published is not None]
    assert len(early) > 10
    for case in early:
        assert case.published == pytest.approx(np.mean(case.published_run['early']), abs=0.06), case.name


def test_all_published_scores_of_stable_baselines_have_a_run():
    published = [case for case in CASES if case.digest and case.published is not None]
    for case in published:
        if case.agent not in ('acer', 'pqn') and 'Frameskip' not in case.env:
            run = case.published_run
            assert 1 <= len(run['last']) <= published_runs.N_LAST and 0 < run['steps'] <= 1.02 * 5_000_000, case.name


def test_entries_are_read_from_a_clone(tmp_path):
    clone, run = tmp_path / 'clone', tmp_path / 'clone' / 'td3' / 'Hopper-v3_1'
    run.mkdir(parents=True)
    for number in range(2):
        (run / f'{number}.monitor.csv').write_text('#{"t_start": 1.5}\nr,l,t\n-3.5,200,1.1\n7.25,1000,2.2\n')
    steps = np.arange(100_000, 400_001, 50_000)
    # the mean of each evaluation is its number of steps / 1000
    results = steps[:, None] / 1000 + np.array([-1.0, 0.0, 1.0])
    np.savez(run / 'evaluations.npz', timesteps=steps, results=results)
    for words in (['init', '-q'], ['add', '.'], ['-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'Add']):
        subprocess.run(['git', '-C', clone, *words], check=True)
    published_runs.main([str(clone), '--out', str(tmp_path / 'runs.yaml')])
    assert yaml.safe_load((tmp_path / 'runs.yaml').read_text()) == {
        'td3/Hopper-v3': {'steps': 2400, 'last': [200, 250, 300, 350, 400], 'early': [250, 300, 350]}
    }
    assert PUBLISHED_RUNS['td3/Hopper-v3'].keys() == {'steps', 'last', 'early'}


@pytest.mark.parametrize('is_repository', [False, True])
def test_another_folder_changes_nothing(is_repository, tmp_path, capsys):
    out = tmp_path / 'runs.yaml'
    out.write_text('kept')
    if is_repository:
        subprocess.run(['git', 'init', '-q', tmp_path], check=True)
    with pytest.raises(SystemExit, match='2'):
        published_runs.main([str(tmp_path), '--out', str(out)])
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.endswith(f'CLONE: got {tmp_path}, expected a clone of https://github.com/DLR-RM/rl-trained-agents')
    assert out.read_text() == 'kept'
