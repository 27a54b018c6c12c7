"""`xagents runs`: every run with how it stands, groups with their statistics, and nothing heavy loaded for it."""

import contextlib
import json
import os
import socket
import sys
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import trim_mean

from xagents.checkpoints.status import take_lock
from xagents.reports.runs_page import runs_page
from xagents.reports.statistics import (
    bootstrap_interval,
    compute_average,
    interquartile_mean,
    setting_label,
    summarise,
    varying_options,
)

UPDATED = '2026-11-22T04:31:00'


def make_run(folder, agent='ppo', *, status=None, **options):
    folder.mkdir(parents=True)
    given = {'env': 'CartPole-v1', 'seed': 1, 'run-dir': str(folder), **options}
    lines = [f'agent: {agent}', *(f'{name}: {json.dumps(value)}' for name, value in given.items())]
    (folder / 'config.yaml').write_text('\n'.join(lines) + '\n')
    known = {
        **{'state': 'finished', 'why': 'target', 'steps': 5000, 'games': 70, 'seconds': 3.5, 'mean_reward': 250.0},
        **{'best_reward': 260.0, 'pid': os.getpid(), 'host': socket.gethostname(), 'updated': UPDATED},
    }
    (folder / 'status.json').write_text(json.dumps({**known, **(status or {})}))
    return folder


def make_group(folder, scores):
    """A group of runs by what varies, each with its best reward; a mean is 10 below."""
    for name, best in scores.items():
        varied = dict(pair.split('=') for pair in name.split(','))
        options = {key: float(value) if key == 'lr' else int(value) for key, value in varied.items()}
        make_run(folder / name, **options, status={'best_reward': best, 'mean_reward': best - 10})
    (folder / 'group.yaml').write_text('agent: ppo\nenv: CartPole-v1\nseeds: [1, 2, 3, 10]\n')
    return folder


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / 'runs'


def row(page, start):
    (line,) = [line for line in page.splitlines() if line.strip().startswith(start)]
    return line.split()


def test_a_run_is_a_row(root):
    make_run(root / 'cartpole', seed=7)
    page = runs_page(['runs'])
    local = datetime.fromisoformat(UPDATED).strftime('%Y-%m-%d %H:%M').split()
    expected = ['runs/cartpole', 'ppo', 'CartPole-v1', '7', '5000', '70', '250.00', '260.00', 'finished:', 'target']
    assert row(page, 'runs/cartpole') == [*expected, *local]
    assert runs_page(['runs/cartpole']).splitlines() == page.splitlines()


@pytest.mark.parametrize(
    ('status', 'locked', 'words'),
    [
        ({'state': 'running', 'why': ''}, True, ['running']),
        ({'state': 'running', 'why': ''}, False, ['killed']),  # its process is gone
        ({'state': 'interrupted', 'why': 'interrupted'}, False, ['interrupted']),
        ({'state': 'finished', 'why': 'steps'}, False, ['finished:', 'steps']),
    ],
)
def test_how_a_run_stands(root, status, locked, words):
    make_run(root / 'a', status=status)
    with take_lock(root / 'a') if locked else contextlib.nullcontext():
        assert row(runs_page(['runs']), 'runs/a')[8:-2] == words


def test_what_is_not_known_is_a_dash(root):
    make_run(root / 'a', status={'mean_reward': None, 'best_reward': float('nan'), 'updated': None})
    assert row(runs_page(['runs']), 'runs/a')[6:] == ['-', '-', 'finished:', 'target', '-']
    record = json.loads(runs_page(['runs'], as_json=True))
    assert (record['mean_reward'], record['best_reward']) == (None, None)


def test_json_is_an_object_a_line(root):
    make_run(root / 'alone')
    make_group(root / 'seeds', {'seed=1': 100.0, 'seed=2': 200.0})
    records = [json.loads(line) for line in runs_page(['runs'], as_json=True).splitlines()]
    assert [(r['run'], r['group'], r['seed'], r['best_reward']) for r in records[:3]] == [
        ('runs/alone', None, 1, 260.0),
        ('runs/seeds/seed=1', 'runs/seeds', 1, 100.0),
        ('runs/seeds/seed=2', 'runs/seeds', 2, 200.0),
    ]
    first = {'agent': 'ppo', 'env': 'CartPole-v1', 'steps': 5000, 'games': 70, 'seconds': 3.5, 'mean_reward': 250.0}
    first |= {'state': 'finished', 'why': 'target', 'updated': UPDATED, 'problem': None}
    assert first.items() <= records[0].items()
    summary = {'n': 2, 'mean': 150.0, 'iqm': 150.0, 'low': 100.0, 'high': 200.0}
    statistics = {'run': None, 'group': 'runs/seeds', 'setting': '', 'reward': 'best_reward', **summary}
    assert len(records) == 5 and records[3] == statistics and records[4]['reward'] == 'mean_reward'


def test_a_group_stands_together_with_statistics_for_each_setting(root):
    low = {f'lr=0.001,seed={seed}': best for seed, best in ((1, 10.0), (2, 20.0), (3, 40.0), (10, 1000.0))}
    make_group(root / 'grid', {**low, 'lr=0.01,seed=1': 7.0})
    lines = runs_page(['runs']).splitlines()
    assert lines[1] == 'runs/grid (5 runs: 5 finished)'
    assert [line.split()[0] for line in lines[2:7]] == [*low, 'lr=0.01,seed=1']  # seed=10 last
    statistics = [line.strip() for line in lines[7:11]]
    _, _, _, least, most = summarise([10, 20, 40, 1000])
    assert statistics[0] == f'lr=0.001: best reward: mean 267.50, IQM 30.00 [{least:.2f}, {most:.2f}], 4 runs'
    assert statistics[1].startswith('lr=0.001: mean reward: mean 257.50, IQM 20.00 [')
    assert statistics[2] == 'lr=0.01: best reward: mean 7.00, IQM 7.00, 1 run'


def test_runs_are_found_a_few_levels_deep_and_named_once(root):
    make_run(root / 'b' / 'c' / 'd')
    make_run(root / 'a')
    make_run(root / 'a' / 'inside')  # part of a run, and no run
    make_run(root / '.hidden')
    os.symlink(root, root / 'circle')
    page = runs_page(['runs', 'runs/a'])
    assert [line.split()[0] for line in page.splitlines()[1:]] == ['runs/a', 'runs/b/c/d']


@pytest.mark.parametrize('file', ['config.yaml', 'status.json'])
@pytest.mark.parametrize('content', [None, '', '{', '[1]', '\x00\x01'])
def test_a_run_that_cannot_be_read_is_listed_with_its_problem(root, file, content):
    make_run(root / 'good')
    bad = make_run(root / 'bad')
    if content is None and file == 'config.yaml':
        return  # then it is no run
    (bad / file).unlink() if content is None else (bad / file).write_text(content)
    lines = runs_page(['runs']).splitlines()
    assert 'unreadable' in lines[1] and file in lines[2]
    assert lines[3].split()[0] == 'runs/good'
    record = json.loads(runs_page(['runs'], as_json=True).splitlines()[0])
    assert file in record['problem'] and record['state'] is None


def test_a_missing_or_empty_folder_is_refused_in_one_line(root, tmp_path):
    make_run(root / 'a')
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'file').write_text('')
    for folder, words in (('rums', 'did you mean runs'), ('empty', 'no run'), ('file', 'is a file')):
        with pytest.raises(ValueError, match=words) as error:
            runs_page(['runs', folder])
        assert folder in str(error.value) and '\n' not in str(error.value)


def test_the_list_loads_nothing_heavy_and_has_no_colours_in_a_file(root, monkeypatch):
    make_run(root / 'a')
    make_group(root / 'g', {'seed=1': 10.0, 'seed=2': 20.0})
    for name in ('tensorflow', 'keras', 'pandas', 'pyarrow', 'matplotlib', 'gymnasium'):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error now
    assert '\x1b' not in runs_page(['runs'])


# statistics


@given(arrays.arrays(float, st.tuples(st.integers(1, 15), st.integers(1, 3)), elements=st.floats(-1e3, 1e3)))
def test_the_interquartile_mean_is_the_trimmed_mean_of_four_copies_of_each_value(values):
    """Four copies make quarters whole and change no quantile."""
    trimmed = trim_mean(np.repeat(values, 4, axis=0), 0.25, axis=0)
    np.testing.assert_allclose(interquartile_mean(values), trimmed, atol=1e-9)


def test_a_bootstrap_interval_is_the_quantiles_of_all_possible_samples():
    """Of three runs there are 27 samples of three; the drawn ones must be spread over them evenly."""
    runs = np.array([0.0, 10.0, 100.0])
    everything = [compute_average(runs[[i, j, k]], 'iqm') for i in range(3) for j in range(3) for k in range(3)]
    low, high = bootstrap_interval(runs, 'iqm', level=0.5, resamples=20_000)
    # sums of equal numbers in another order may round differently
    expected = np.quantile(everything, [0.25, 0.75], method='inverted_cdf')
    np.testing.assert_allclose((low, high), expected, rtol=1e-12)


def test_what_varies_besides_seed_and_place():
    one = {'agent': 'ppo', 'env': 'A', 'seed': 1, 'run_dir': 'x', 'lr': 1e-3, 'net': [64, 64], 'huber': True}
    other = {**one, 'seed': 2, 'run_dir': 'y', 'net': [8], 'huber': False, 'agent': 'dqn'}
    assert varying_options([one, {**one, 'seed': 5, 'run_dir': 'z'}]) == []
    assert varying_options([one, other]) == ['agent', 'net', 'huber']
    assert setting_label(one, ['agent', 'net', 'huber']) == 'ppo, net=64 64, huber=on'
    assert varying_options([one, {**one, 'ppo_epochs': 4}]) == ['ppo_epochs']
    assert setting_label(one, ['ppo_epochs']) == 'ppo-epochs=-'


def test_lists_and_curves_import_no_module_of_a_run(tmp_path, monkeypatch):
    (tmp_path / 'own_parts.py').write_text('raise AssertionError("imported")')
    monkeypatch.chdir(tmp_path)
    for name, agent in (('a', 'ppo'), ('b', 'own_parts:Own')):
        folder = tmp_path / 'runs' / name
        folder.mkdir(parents=True)
        (folder / 'config.yaml').write_text(f'agent: {agent}\nenv: own_parts:Own-v0\nimports: [own_parts]\nseed: 1\n')
        (folder / 'status.json').write_text('{"state": "finished", "steps": 3, "mean_reward": 1.0}')
    page = runs_page(['runs'])
    assert 'own_parts:Own' in page and page.count('finished') == 2 and 'unreadable' not in page
