"""The Python function behind `xagents tune`, with real worker processes whose agents are stand-ins."""

import contextlib
import json
import os
import sys
import time
import types
from pathlib import Path

import numpy as np
import optuna
import psutil
import pytest
from optuna.trial import TrialState

from xagents.options.errors import OptionError
from xagents.tuning import ownership, studies, trial_runner
from xagents.tuning import tune as tuning
from xagents.tuning.storages import open_storage
from xagents.tuning.tune import TuningError, tune

RUNNING, COMPLETE, PRUNED, FAIL, WAITING = TrialState
SEARCHED = [1e-5, 7e-4]
KEPT = {'storage': 'journal:s.log', 'study': 's'}


@pytest.fixture(autouse=True)
def _nothing_is_left_running(stand_in, work):
    yield
    assert not workers_alive()


def workers_alive():
    alive = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            alive += [child] if 'xagents.tuning.worker' in child.cmdline() else []
    return alive


def study_of(n_trials=3, agent='ppo', **options):
    given = {'env': 'Any-v0', 'trial_steps': 100, 'quiet': True, 'seed': 1, 'pruner': 'none', 'lr': SEARCHED}
    return tune(agent, n_trials=n_trials, **{**given, **options})


def loaded():
    storage = open_storage(KEPT['storage'])
    return optuna.load_study(study_name='s', storage=storage, sampler=studies.make_sampler('random', 1))


def states(study):
    return [trial.state for trial in study.trials]


def made(log='log'):
    """Returns what the agents of a study were made with, the check before it left out."""
    return [json.loads(line) for line in Path(log).read_text().splitlines()][1:]


# counts, first trials, repetition


@pytest.mark.parametrize(('n_trials', 'n_jobs'), [(4, 2), (1, 3)])
def test_exactly_as_many_trials_are_finished_as_were_asked_for(n_trials, n_jobs):
    study = study_of(n_trials, n_jobs=n_jobs, env_kwargs={'log': 'log', 'seconds': 0.05})
    assert states(study) == [COMPLETE] * n_trials
    assert [trial.value for trial in study.trials] == [trial.params['lr'] for trial in study.trials]
    # nobody starts a worker that would have nothing to do; each has a share
    assert len({agent['pid'] for agent in made()}) == min(n_jobs, n_trials)
    assert {trial.user_attrs['pid'] for trial in study.trials} == {os.getpid()}


def test_equal_seeds_give_equal_studies_and_a_study_may_be_stopped_and_continued():
    whole, other = study_of(3), study_of(3, seed=2)
    study_of(1, **KEPT)
    found, again = ([(one.params, one.value) for one in study.trials] for study in (whole, study_of(2, **KEPT)))
    assert found == again
    assert [trial.params for trial in other.trials[1:]] != [trial.params for trial in whole.trials[1:]]
    assert whole.best_params == whole.trials[0].params == {'lr': whole.best_value}


# what goes wrong in a trial


def test_a_trial_that_raises_is_failed_with_its_reason_and_the_study_goes_on():
    study = study_of(8, lr=[1e-5, 1.0], env_kwargs={'most': 0.01, 'log': 'log'})
    failed = [trial for trial in study.trials if trial.params['lr'] > 0.01]
    assert 0 < len(failed) < 8
    assert [trial.state for trial in study.trials] == [FAIL if trial in failed else COMPLETE for trial in study.trials]
    assert {trial.user_attrs['reason'] for trial in failed} == {'ArithmeticError: lr is too large'}
    assert len({agent['pid'] for agent in made()}) == 1  # the worker is none the worse for it


def test_a_trial_whose_worker_kills_itself_is_tried_again_in_its_place():
    trials = study_of(4, n_jobs=2, seed=None, env_kwargs={'kills': 'killed'}).trials
    (killed,) = [trial for trial in trials if trial.state == FAIL]
    assert 'SIGKILL' in killed.user_attrs['killed']
    assert 'reason' not in killed.user_attrs
    assert len(trials) == 5
    assert [trial.state for trial in trials].count(COMPLETE) == 4
    retry = next(trial for trial in trials if trial.user_attrs.get('retry_of') == killed.number)
    assert retry.params == killed.params
    assert retry.user_attrs['seed'] == killed.user_attrs['seed']


def test_settings_that_kill_every_worker_are_given_up(monkeypatch):
    monkeypatch.setattr(ownership, 'MAX_ATTEMPTS', 3)
    with pytest.raises(TuningError):
        study_of(1, env_kwargs={'kills': 'always'}, **KEPT)
    assert states(loaded()) == [FAIL] * 3
    assert [trial.user_attrs.get('retry_of') for trial in loaded().trials] == [None, 0, 1]


def test_workers_that_never_start_end_the_study_with_their_last_words(stand_in):
    (stand_in / 'sitecustomize.py').write_text('import sys\nsys.exit("no room left")\n')
    with pytest.raises(TuningError, match=r'^worker processes exit before .*\(exit code 1: .*no room left'):
        study_of(1, storage='sqlite:///s.db')
    assert not os.listdir()


# pruning


def test_trials_of_the_warm_up_are_not_pruned_and_later_ones_by_the_median_of_those_completed():
    study = study_of(12, pruner='median', warmup_trials=4)
    completed = []
    for trial in study.trials:
        worse = len(completed) >= 4 and trial.params['lr'] < np.median(completed)
        assert trial.state == (PRUNED if worse else COMPLETE)
        assert len(trial.intermediate_values) == (4 if worse else 20), 'a fifth of its steps'
        if not worse:
            completed.append(trial.value)
    assert 4 < len(completed) < 12


# the clock


def test_a_timeout_ends_the_call_and_keeps_what_was_finished(monkeypatch, capsys):
    # an hour passes as soon as the second trial has begun to hang
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * os.path.exists('hangs'))
    monkeypatch.setattr(trial_runner, 'time', clock)
    options = {**KEPT, 'env_kwargs': {'hangs': 'hangs', 'below': 7e-4}}
    study = tune('ppo', 'Any-v0', timeout=3000, trial_steps=100, lr=SEARCHED, seed=1, **options)
    assert states(study) == [COMPLETE, FAIL, WAITING]
    assert 'reason' not in study.trials[1].user_attrs
    said = 'Time is over: 1 trial in this call; the study has 1 complete, 0 pruned, 0 failed, 1 interrupted'
    assert said in capsys.readouterr().out.splitlines()
    # the next call begins with what was broken off, and is bounded by its trials where it has time left
    monkeypatch.setattr(trial_runner, 'time', time)
    study = study_of(1, timeout=60.0, **options)
    assert states(study) == [COMPLETE, FAIL, COMPLETE]
    assert study.trials[2].user_attrs['retry_of'] == 1
    assert study.trials[2].params == study.trials[1].params


# other calls' trials


@pytest.mark.parametrize('when', ['report', 'claim'])
def test_a_trial_that_another_call_has_taken_over_is_given_up(when, monkeypatch):
    """It was not seen for a minute, and is tried again by whoever took it: this call goes on with others."""
    taken = []
    owner = trial_runner.TrialRunner if when == 'report' else ownership
    real = getattr(owner, when)

    def late(*given):
        number = given[1].job.number if when == 'report' else given[0].number
        if number == 1 and not taken:
            taken.append(ownership.fail_and_requeue(loaded(), number))
        return real(*given)

    monkeypatch.setattr(owner, when, late)
    study = study_of(3, **KEPT)
    assert taken == [True]
    assert states(study) == [COMPLETE, FAIL, COMPLETE, COMPLETE]
    assert study.trials[2].user_attrs['retry_of'] == 1
    assert study.trials[2].params == study.trials[1].params


# refusals, and what is left behind


@pytest.mark.parametrize(
    ('options', 'name', 'works'),
    [
        ({'env': 'Unknown-v0'}, 'env', True),
        ({'storage': 'sqlite:///file'}, 'storage', True),
        ({'storage': 'postgresql://127.0.0.1:1/none'}, 'storage', True),
        ({'storage': 'sqlite:///none/s.db'}, 'storage', False),
        ({'unknown': 1}, 'unknown', False),
        ({'lr': [1.0, 0.1]}, 'lr', False),
        ({'sampler': 'gp'}, 'sampler', False),
        ({'out': 'file'}, 'out', False),
    ],
)
def test_wrong_input_is_refused_by_name_and_writes_nothing(options, name, works, monkeypatch):
    """And what can be told without a worker starts none."""
    if not works:
        monkeypatch.setattr(tuning, 'ProcessPool', lambda *_, **__: pytest.fail('a worker was started'))
    if options.get('sampler') and 'torch' in sys.modules:
        pytest.skip('its package is there')
    Path('file').write_text('something else\n')
    with pytest.raises(OptionError) as refused:
        study_of(1, **{'storage': 'sqlite:///s.db', 'out': 'out', **options})
    assert refused.value.name == name
    assert '\n' not in str(refused.value)
    assert os.listdir() == ['file']
    assert Path('file').read_text() == 'something else\n'


def test_workers_end_with_a_call_that_breaks(monkeypatch):
    def broken(*_):
        raise RuntimeError('in the midst')

    monkeypatch.setattr(trial_runner.TrialRunner, 'report', broken)
    with pytest.raises(RuntimeError, match='in the midst'):
        study_of(2, n_jobs=2, **KEPT)
    assert not workers_alive()
    assert RUNNING not in states(loaded())


# what is said
