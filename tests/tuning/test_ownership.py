"""Who runs a trial, and what becomes of one that nobody runs any more."""

import os
import subprocess
import sys
import time

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from tests.tuning.test_studies import SPACE, ask, finish, opened
from xagents.tuning import ownership
from xagents.tuning.storages import silence_optuna

COMPLETE, FAIL, RUNNING, WAITING = TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING


@pytest.fixture(autouse=True)
def _quiet():
    silence_optuna()


@pytest.fixture(scope='module')
def gone():
    """The attributes of a process of this host that has ended."""
    with subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE) as process:
        started = psutil.Process(process.pid).create_time()
        process.kill()
    return {**ownership.process_identity(), 'pid': process.pid, 'process_started': started}


@pytest.fixture
def later(monkeypatch):
    """Lets so many seconds pass."""
    now = time.time()
    return lambda seconds: monkeypatch.setattr(ownership.time, 'time', lambda: now + seconds)


def states(study):
    return [trial.state for trial in study.trials]


def is_abandoned(study, trial):
    return ownership.is_abandoned(study.trials[trial.number])


def test_a_trial_says_who_runs_it_before_its_settings_are_chosen(monkeypatch):
    study, before, signed = opened(), time.time(), []
    sample = optuna.samplers.RandomSampler.sample_independent

    def look(self, study, trial, *what):
        signed.append(study.trials[trial.number].user_attrs)
        return sample(self, study, trial, *what)

    monkeypatch.setattr(optuna.samplers.RandomSampler, 'sample_independent', look)
    ask(study, seed=7)  # the defaults: nothing is chosen
    assert signed == []
    study.ask({'lr': SPACE['lr']})
    for attributes in (study.trials[0].user_attrs, *signed):
        assert attributes['pid'] == os.getpid() and attributes['host']
        assert abs(attributes['process_started'] - psutil.Process().create_time()) < 1
        assert before <= attributes['beat'] <= time.time()
    assert len(signed) == 1
    assert study.trials[0].user_attrs['started'][:4] == time.strftime('%Y')
    assert study.trials[0].user_attrs['seed'] == 7


def test_each_trial_has_a_seed_of_its_own_when_none_is_given():
    study = opened()
    seeds = [ownership.claim(study.ask(SPACE), None) for _ in range(4)]
    assert seeds == [trial.user_attrs['seed'] for trial in study.trials]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_trial_of_this_host_is_abandoned_when_its_process_is_dead_and_not_before(gone):
    study = opened()
    assert not is_abandoned(study, ask(study, beat=time.time() - 10_000))
    assert is_abandoned(study, ask(study, **gone))
    # another process has the number of a dead one
    assert is_abandoned(study, ask(study, process_started=psutil.Process().create_time() - 1000))


def test_a_process_that_nobody_has_waited_for_is_dead():
    with subprocess.Popen([sys.executable, '-c', '']) as process:
        started = psutil.Process(process.pid).create_time()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        study = opened()
        assert is_abandoned(study, ask(study, pid=process.pid, process_started=started))


@pytest.mark.parametrize(('seconds', 'abandoned'), [(0, False), (50, False), (70, True)])
def test_a_trial_of_another_host_is_abandoned_after_a_minute_without_a_beat(seconds, abandoned, gone):
    study = opened()
    elsewhere = {**gone, 'host': 'elsewhere', 'beat': time.time() - seconds}
    trial = ask(study, **elsewhere)
    assert is_abandoned(study, trial) == abandoned
    assert ownership.requeue_abandoned(study, ()) == [trial.number] * abandoned
    trial = ask(study, **elsewhere)
    trial.set_user_attr('beat', time.time())
    assert not is_abandoned(study, trial), 'it goes on'


def test_a_trial_that_says_nothing_of_its_process_is_given_some_seconds(later):
    study = opened()
    study.sampler = optuna.samplers.RandomSampler()  # which does not sign it
    trial = study.ask(SPACE)
    assert ownership.requeue_abandoned(study, ()) == []
    later(6)
    assert ownership.requeue_abandoned(study, ()) == [trial.number]


def test_only_what_nobody_runs_is_tried_again_and_once_with_its_parameters_and_seed(gone):
    study = opened()
    mine, _running, dead = ask(study, **gone), ask(study), ask(study, seed=11, **gone)
    finish(study)
    assert ownership.requeue_abandoned(study, [mine.number]) == [dead.number]
    assert ownership.requeue_abandoned(study, [mine.number]) == []
    assert not ownership.fail_and_requeue(study, dead.number), 'another call has done it'
    assert states(study) == [RUNNING, RUNNING, FAIL, COMPLETE, WAITING]
    retry = study.ask(SPACE)
    assert retry.number == 4
    assert retry.params == dead.params
    assert ownership.claim(retry, None) == 11
    assert (retry.user_attrs['retry_of'], retry.user_attrs['attempt']) == (dead.number, 2)
    study.tell(retry, 1.0)
    assert not ownership.fail_and_requeue(study, retry.number)
    assert study.trials[retry.number].state == COMPLETE


def test_settings_that_were_fixed_beforehand_are_tried_again_where_a_trial_was_only_begun():
    study = finish(opened())
    study.enqueue_trial({'lr': 3e-5})
    begun = study.ask()  # nothing is chosen yet
    assert ownership.fail_and_requeue(study, begun.number)
    (again,) = study.get_trials(states=(WAITING,))
    assert again.system_attrs['fixed_params'] == {'lr': 3e-5}


@pytest.mark.parametrize('reason', [{}, {'reason': 'ValueError: no'}])
def test_what_a_call_failed_and_died_over_is_tried_again_and_what_failed_by_itself_is_not(reason, later):
    study = opened()
    study.tell(ask(study, **reason), state=FAIL)
    later(61)
    for _ in range(2):
        ownership.requeue_abandoned(study, ())
    assert states(study) == ([FAIL] if reason else [FAIL, WAITING])
    assert reason or study.trials[1].user_attrs['retry_of'] == 0


def test_what_kills_its_process_each_time_is_given_up(gone):
    study = opened()
    ask(study, **gone)
    for _ in range(30):
        if not ownership.requeue_abandoned(study, ()):
            break
        if WAITING in states(study):
            ask(study, **gone)
    assert states(study) == [FAIL] * ownership.MAX_ATTEMPTS
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 1
