"""What is written of a study: settings that can be read back, every trial, and pictures of the right numbers."""

import itertools
import math
import os
from datetime import datetime

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from xagents.tuning import plots as study_pictures
from xagents.tuning import report as study_report
from xagents.tuning.report import write_report

BEST_PREFIX = {'lr': 1e-5, 'max_steps': 20_000, 'net': [64, 64], 'env': 'CartPole-v1', 'double': False, 'model': None}
SPACE = {
    'lr': FloatDistribution(1e-5, 1e-2, log=True),
    'normalize_advantage': CategoricalDistribution([True, False]),
    'epsilon_decay_steps': IntDistribution(1000, 150_000),
    'n_steps': CategoricalDistribution([16, 32, 64, 128, 256, 512, 1024, 2048]),
    'kind': CategoricalDistribution([True, 'a', 3, '3']),
    'model': CategoricalDistribution(['a/folder/with/a/network-of-many-layers.cfg', 'another/network.cfg']),
}


def trial_of(space, number, rng, state=TrialState.COMPLETE, value=None, attributes=()):
    parameters = {}
    for name, distribution in space.items():
        if isinstance(distribution, CategoricalDistribution):
            parameters[name] = distribution.choices[rng.integers(len(distribution.choices))]
        else:
            low, high = distribution.low, distribution.high
            share = rng.random()
            drawn = low * (high / low) ** share if distribution.log else low + (high - low) * share
            parameters[name] = int(drawn) if isinstance(distribution, IntDistribution) else drawn
    end = None if state == TrialState.RUNNING else datetime(2026, 11, 22, 10, number % 60, 30, 250_000)
    start = datetime(2026, 11, 22, 10, number % 60)
    return FrozenTrial(number, state, value, start, end, parameters, dict(space), dict(attributes), {}, {}, 0)


def study_of(space=(), states=20 * (TrialState.COMPLETE,), name='s', values=None):
    """A study with a trial in each of `states`, whose complete ones are worth more the later they are."""
    study = optuna.create_study(direction='maximize', study_name=name)
    for key, attribute in {'agent': 'ppo', 'env': 'CartPole-v1', 'objective': 'reward'}.items():
        study.set_user_attr(key, attribute)
    rng = np.random.default_rng(0)
    for number, state in enumerate(states):
        valued = state in (TrialState.COMPLETE, TrialState.PRUNED)
        value = (values[number] if values else number + 0.5) if valued else None
        study.add_trial(trial_of(dict(space), number, rng, state, value))
    return study


def of_size(count):
    return dict(itertools.islice(SPACE.items(), count))


@pytest.fixture
def without_pictures(monkeypatch):
    monkeypatch.setattr(study_report, 'PLOTS', {})


def test_the_best_settings_are_a_flat_mapping_under_two_lines_that_say_where_they_come_from(tmp_path, without_pictures):
    states = [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    study = study_of(of_size(1), states, name='a\nstudy', values=[300.25, None, 2.0, 900.0])
    write_report(tmp_path, study, BEST_PREFIX, 'xagents train ppo --env "a\nb"')
    text = (tmp_path / 'best.yaml').read_text()
    assert text.splitlines()[:2] == [
        "# trial 0 of study 'a\\nstudy': mean reward 300.25, 2026-11-22",
        '# xagents train ppo --env "a\\nb"',
    ]
    best = yaml.safe_load(text)
    assert list(best) == ['agent', 'env', 'max-steps', 'lr', 'net', 'double'], 'what is not given is not there'
    given = {name: value for name, value in BEST_PREFIX.items() if value is not None}
    assert best == {'agent': 'ppo'} | {name.replace('_', '-'): value for name, value in given.items()}
    assert isinstance(best['lr'], float) and 'lr: 1.0e-05' in text


scalars = st.one_of(
    st.floats(allow_nan=False), st.integers(), st.booleans(), st.text(),
    st.sampled_from(['1e5', 'yes', 'null', '0x10', '1:30', '~', '2026-11-22', '- a', '# a', 'a: b']),
    st.sampled_from(['\x1b[1m', '\ufeff', '\x85']),
)  # fmt: skip


STUDY = study_of()


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(list(SPACE)), scalars | st.lists(scalars) | st.dictionaries(st.text(), scalars)))
def test_settings_of_every_kind_are_read_back_as_they_were(options):
    text = study_report._best_text(STUDY, options, 'xagents train ' + ' '.join(map(str, options.values())))
    read = yaml.safe_load(text.encode())
    expected = {'agent': 'ppo', **{name.replace('_', '-'): value for name, value in options.items()}}
    assert read == expected
    assert all(type(read[name]) is type(value) for name, value in expected.items())


def test_every_trial_is_a_row_of_the_table(tmp_path, without_pictures):
    states = [TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING, TrialState.COMPLETE]
    study = study_of(SPACE, states)
    rng = np.random.default_rng(1)
    attributes = {'host': 'a', 'pid': 12, 'seed': 3, 'retry_of': 1, 'reason': 'killed', 'beat': 1.5, 'value': 'mine'}
    study.add_trial(trial_of(of_size(2), 5, rng, value=7.0, attributes=attributes | {'list': [1, 2], 'huge': 2**70}))
    study.enqueue_trial({'lr': 1e-4})
    assert write_report(tmp_path, study, BEST_PREFIX, '') == [f'Written to {tmp_path}: best.yaml, trials.parquet']
    table = pd.read_parquet(tmp_path / 'trials.parquet')
    trials = study.get_trials()
    assert list(table['number']) == [0, 1, 2, 3, 4, 5, 6]
    assert list(table['state']) == ['complete', 'failed', 'pruned', 'running', 'complete', 'complete', 'waiting']
    for row, trial in zip(table.to_dict('records'), trials, strict=True):
        assert row['value'] == trial.value or (trial.value is None and math.isnan(row['value']))
        for name in SPACE:
            value = row[f'params_{name}']
            if name not in trial.params:
                assert pd.isna(value)
            elif name == 'kind':  # of several kinds, hence text
                assert value == str(trial.params[name])
            else:
                assert value == trial.params[name] and type(value) is type(trial.params[name])
        for name in ('datetime_start', 'datetime_complete'):
            stamp = getattr(trial, name)
            assert pd.isna(row[name]) if stamp is None else row[name] == stamp
        ended = trial.datetime_complete is not None
        assert row['duration'] == 30.25 if ended else math.isnan(row['duration'])
    last = table.iloc[5]
    for name, value in attributes.items():
        assert last['user_value' if name == 'value' else name] == value
    assert last['list'] == '[1, 2]' and last['huge'] == str(2**70)
    assert table['pid'].isna().sum() == 6


def test_the_importances_are_those_of_the_study():
    space = {'kind': CategoricalDistribution(['a', 'b']), 'noise': FloatDistribution(0, 1), 'lr': SPACE['lr']}
    study = optuna.create_study(direction='maximize')
    rng = np.random.default_rng(0)
    for number in range(60):
        trial = trial_of(space, number, rng)
        trial.values = [-abs(math.log10(trial.params['lr']) + 4)]
        study.add_trial(trial)
    with study_report._warnings_off():
        figure = study_pictures.PLOTS['importances.png'](study, study.get_trials())
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert names[-1] == 'lr' and widths == sorted(widths), 'the one that matters is at the top'
    assert sum(widths) == pytest.approx(100) and widths[-1] > 80


def test_the_history_shows_the_best_until_the_last_trial_that_ended():
    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    study = study_of(of_size(1), [*states, TrialState.RUNNING], values=[1.0, 9.0, 3.0, 2.0])
    axes = study_pictures.PLOTS['history.png'](study, study.get_trials()).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[0, 1], [2, 3], [3, 3], [4, 3]]
    pruned, complete = (points.get_offsets().tolist() for points in axes.collections)
    assert pruned == [[1, 9]] and complete == [[0, 1], [2, 3], [3, 2]]


def test_a_file_that_cannot_be_written_takes_no_other_with_it(tmp_path, monkeypatch):
    def broken(study, trials):
        raise RuntimeError('it is\nbroken')

    monkeypatch.setattr(
        study_report, 'PLOTS', {'history.png': broken, 'importances.png': study_pictures._draw_importances}
    )
    (tmp_path / 'trials.parquet').mkdir()
    lines = write_report(tmp_path, study_of(of_size(2)), BEST_PREFIX, '')
    assert lines == [
        f'Written to {tmp_path}: best.yaml, importances.png',
        "Left out: trials.parquet (Is a directory; the one there is older), history.png ('it is\\nbroken')",
    ]
    assert not [name for name in os.listdir(tmp_path) if name.endswith('.tmp')]
