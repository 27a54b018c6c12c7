"""A study by itself: samplers and pruners, continuing one that fits, and trials that nobody runs any more."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import optuna
import psutil
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from xagents.cli.settle import best_of_study
from xagents.options.errors import OptionError
from xagents.tuning import studies
from xagents.tuning.search import Bounds, Choices
from xagents.tuning.storages import open_storage

RANGES = {'lr': Bounds(1e-5, 1e-2, True), 'n_steps': Choices((16, 32)), 'critic_iterations': Bounds(3, 20, False)}
FACTS = {
    'agent': 'ppo',
    'env': 'CartPole-v1',
    'fixed': {'n_envs': 4, 'net': [8, 8]},
    'trial_steps': 500,
    'objective': 'reward',
    'trial_seeds': 1,
}
FIRST = {'lr': 7e-4, 'n_steps': 16, 'critic_iterations': 3}
SPACE = {name: r.distribution() for name, r in RANGES.items()}


@pytest.fixture(autouse=True)
def _quiet():
    studies.hush_optuna()


def opened(storage=None, facts=FACTS, ranges=RANGES, name='s', sampler='random', pruner='none', seed=1):
    storage = storage or optuna.storages.InMemoryStorage()
    made = studies.make_sampler(sampler, seed), studies.make_pruner(pruner, 5, 20)
    return studies.open_study(name, storage, facts, ranges, FIRST, *made)


def ask(study, seed=1, **attributes):
    trial = study.ask(SPACE)
    studies.claim(trial, seed)
    for name, value in attributes.items():
        trial.set_user_attr(name, value)
    return trial


def finish(study, count=1, worth=lambda parameters: parameters['lr']):
    for _ in range(count):
        trial = ask(study)
        study.tell(trial, worth(trial.params))
    return study


def parameters(study):
    return [trial.params for trial in study.trials]


# samplers


@pytest.mark.parametrize('sampler', ['random', 'tpe'])
@pytest.mark.parametrize('stop', [1, 7, 13])
def test_a_stopped_and_continued_study_chooses_as_one_that_was_not(sampler, stop, tmp_path):
    whole = finish(opened(sampler=sampler), 16)
    storage = f'journal:{tmp_path / "s.log"}'
    finish(opened(open_storage(storage), sampler=sampler), stop)
    continued = finish(opened(open_storage(storage), sampler=sampler), 16 - stop)
    assert parameters(continued) == parameters(whole)
    assert len({trial['lr'] for trial in parameters(whole)}) == 16


@pytest.mark.parametrize('sampler', ['random', 'tpe'])
def test_equal_seeds_choose_equally_and_others_do_not(sampler):
    one, same, other = (parameters(finish(opened(sampler=sampler, seed=seed), 4)) for seed in (1, 1, 2))
    assert one == same
    assert one[0] == other[0] == FIRST
    assert [trial['lr'] for trial in one[1:]] != [trial['lr'] for trial in other[1:]]


def test_tpe_learns_from_what_was_finished_where_random_does_not():
    def distances(sampler):
        study = finish(opened(sampler=sampler), 60, lambda p: -abs(p['lr'] - 1e-3))
        return sorted(abs(trial.params['lr'] - 1e-3) for trial in study.trials[20:])

    tpe, by_chance = distances('tpe'), distances('random')
    assert tpe[len(tpe) // 2] < by_chance[len(by_chance) // 2] / 2


@pytest.mark.parametrize(('sampler', 'package'), [('cmaes', 'cmaes'), ('gp', 'torch')])
def test_a_sampler_whose_package_is_missing_is_refused_and_says_what_to_install(sampler, package):
    if importlib.util.find_spec(package):
        pytest.skip(f'{package} is there')
    with pytest.raises(OptionError) as refused:
        studies.make_sampler(sampler, 1)
    assert refused.value.name == 'sampler'
    assert str(refused.value).startswith(f'sampler: got {sampler}, which needs {package}: pip install ')
    assert '\n' not in str(refused.value)


# pruners


def reported(study, values):
    """A trial that reports these values and stops where the pruner says so; returns how many it reported."""
    trial = ask(study)
    for part, value in enumerate(values, 1):
        trial.report(value, part)
        if trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return part
    study.tell(trial, values[-1])
    return len(values)


@pytest.mark.parametrize('warmup', [0, 3])
def test_the_median_pruner_stops_the_worse_half_after_its_trials_and_a_fifth_of_the_steps(warmup):
    study = opened()
    study.pruner = studies.make_pruner('median', warmup, 20)
    counts = [reported(study, [value] * 20) for value in (10, 9, 8, 7, 6)]
    # Optuna compares from one trial on, whatever the warm-up is
    whole = max(warmup, 1)
    assert counts == [20] * whole + [studies.REPORTS_FIRST] * (5 - whole)
    assert reported(study, [11.0] * 20) == 20


def test_no_pruner_never_prunes():
    study = opened()
    study.pruner = studies.make_pruner('none', 0, 20)
    assert [reported(study, [value] * 20) for value in range(10, 0, -1)] == [20] * 10


def test_hyperband_prunes_bad_trials_and_never_before_a_fifth():
    study = opened()
    study.pruner = studies.make_pruner('hyperband', 0, 20)
    counts = [reported(study, [float(value)] * 20) for value in range(40, 0, -1)]
    assert min(counts) >= studies.REPORTS_FIRST
    assert 5 < sum(count < 20 for count in counts) < 40


# a study is opened, and continued where it fits


def test_a_new_study_has_its_facts_and_begins_with_the_first_values():
    study = opened()
    assert study.user_attrs == FACTS
    assert study.direction.name == 'MAXIMIZE'
    assert ask(study).params == FIRST
    assert ask(study).params['lr'] != FIRST['lr']


def test_opening_a_study_again_repeats_nothing():
    storage = optuna.storages.InMemoryStorage()
    assert opened(storage).trials[0].state == TrialState.WAITING
    study = opened(storage)
    assert len(study.trials) == 1  # the first one waits once
    finish(study, 2)
    again = opened(storage)
    assert [trial.state for trial in again.trials] == [TrialState.COMPLETE] * 2
    assert again.user_attrs == FACTS


def test_other_bounds_of_the_same_kind_continue_a_study():
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage), 2)
    narrower = {**RANGES, 'lr': Bounds(1e-4, 1e-3, True)}
    assert len(opened(storage, ranges=narrower).trials) == 2


@pytest.mark.parametrize(
    ('change', 'name', 'said'),
    [
        ({'facts': {'agent': 'a2c'}}, 'agent', ['got a2c', 'has ppo']),
        ({'facts': {'env': 'Acrobot-v1'}}, 'env', ['got Acrobot-v1', 'has CartPole-v1']),
        ({'facts': {'trial_steps': 600}}, 'trial_steps', ['got 600', 'has 500']),
        ({'facts': {'objective': 'evaluation'}}, 'objective', ['got evaluation', 'has reward']),
        ({'facts': {'trial_seeds': 2}}, 'trial_seeds', ['got 2', 'has 1']),
        ({'facts': {'fixed': {'n_envs': 8, 'net': [8, 8]}}}, 'n_envs', ['got 8', 'has 4']),
        ({'facts': {'fixed': {'n_envs': 4}}}, 'net', ['got the default', 'has [8, 8]']),
        ({'facts': {'fixed': {**FACTS['fixed'], 'gamma': 0.9}}}, 'gamma', ['got 0.9', 'has the default']),
        ({'ranges': {**RANGES, 'n_steps': Choices((16, 64))}}, 'n_steps', ['one of 16, 64', 'one of 16, 32']),
        ({'ranges': {**RANGES, 'n_steps': Choices((32, 16))}}, 'n_steps', ['one of 32, 16', 'one of 16, 32']),
        (
            {'ranges': {**RANGES, 'critic_iterations': Bounds(3, 900, True)}},
            'critic_iterations',
            ['3 to 900', '3 to 20'],
        ),
        ({'ranges': {**RANGES, 'gamma': Bounds(0.9, 0.99, True)}}, 'gamma', ['is searched here']),
        ({'ranges': {'lr': RANGES['lr'], 'n_steps': RANGES['n_steps']}}, 'critic_iterations', ['is not searched here']),
        ({'ranges': {}}, None, ['is not searched here']),
    ],
)
def test_a_study_that_does_not_fit_is_refused_by_name_and_left_as_it_was(change, name, said):
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage), 2)
    with pytest.raises(OptionError) as refused:
        opened(storage, facts={**FACTS, **change.get('facts', {})}, ranges=change.get('ranges', RANGES))
    assert name is None or refused.value.name == name
    message = str(refused.value)
    assert all(words in message for words in [*said, 'the study s', 'another --study']), message
    assert '\n' not in message
    study = optuna.load_study(study_name='s', storage=storage)
    assert (study.user_attrs, len(study.trials)) == (FACTS, 2)


def test_a_range_is_refused_by_a_study_that_searched_nothing():
    storage = optuna.storages.InMemoryStorage()
    study = opened(storage, ranges={})
    study.tell(study.ask(), 1.0)
    with pytest.raises(OptionError) as refused:
        opened(storage)
    assert refused.value.name in RANGES


def test_a_fixed_option_that_was_searched_is_refused_by_name():
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage), 1)
    ranges = {name: r for name, r in RANGES.items() if name != 'lr'}
    with pytest.raises(OptionError) as refused:
        opened(storage, facts={**FACTS, 'fixed': {**FACTS['fixed'], 'lr': 1e-3}}, ranges=ranges)
    assert refused.value.name == 'lr'


@pytest.mark.parametrize('directions', [['minimize'], ['maximize', 'maximize']])
def test_a_study_of_another_direction_is_refused(directions):
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name='s', storage=storage, directions=directions)
    with pytest.raises(OptionError, match=r'^study: got s, which was made to (minimize|maximize, maximize)'):
        opened(storage)


def test_a_study_of_somebody_elses_trials_is_refused():
    storage = optuna.storages.InMemoryStorage()
    theirs = optuna.create_study(study_name='s', storage=storage, direction='maximize')
    theirs.optimize(lambda trial: trial.suggest_float('x', 0, 1), n_trials=1)
    with pytest.raises(OptionError, match=r'^study: got s, whose trials are none of xagents tune'):
        opened(storage)
    assert theirs.user_attrs == {}


# trials and who runs them


@pytest.fixture
def gone():
    """The attributes of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)
    attributes = {**studies._this_process(), 'pid': process.pid}
    attributes['process_started'] = psutil.Process(process.pid).create_time()
    process.kill()
    process.wait()
    return attributes


def frozen(study, trial):
    return study.trials[trial.number]


def test_a_trial_says_who_runs_it_and_since_when():
    before = time.time()
    study = opened()
    ask(study, seed=7)
    attributes = study.trials[0].user_attrs
    assert attributes['pid'] == os.getpid()
    assert abs(attributes['process_started'] - psutil.Process().create_time()) < 1
    assert before <= attributes['beat'] <= time.time()
    assert attributes['started'][:4] == time.strftime('%Y')
    assert attributes['seed'] == 7
    assert attributes['host']


def test_each_trial_has_a_seed_of_its_own_when_none_is_given():
    study = opened()
    seeds = [studies.claim(study.ask(SPACE), None) for _ in range(4)]
    assert seeds == [trial.user_attrs['seed'] for trial in study.trials]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_trial_of_a_living_process_of_this_host_is_never_abandoned():
    study = opened()
    trial = ask(study, beat=time.time() - 10_000)
    assert not studies.is_abandoned(frozen(study, trial))
    assert studies.reap(study, ()) == []


def test_a_trial_of_a_dead_process_of_this_host_is_abandoned_at_once(gone):
    study = opened()
    trial = ask(study, **gone)
    assert studies.is_abandoned(frozen(study, trial))


def test_another_process_with_the_number_of_a_dead_one_does_not_run_its_trial(gone):
    study = opened()
    trial = ask(study, process_started=psutil.Process().create_time() - 1000)
    assert studies.is_abandoned(frozen(study, trial))


def test_a_process_that_nobody_has_waited_for_is_dead():
    process = subprocess.Popen([sys.executable, '-c', ''])
    try:
        started = psutil.Process(process.pid).create_time()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        study = opened()
        assert studies.is_abandoned(frozen(study, ask(study, pid=process.pid, process_started=started)))
    finally:
        process.wait()


@pytest.mark.parametrize(('seconds', 'abandoned'), [(0, False), (50, False), (70, True)])
def test_a_trial_of_another_host_is_abandoned_after_a_minute_without_a_beat(seconds, abandoned, gone):
    study = opened()
    trial = ask(study, **{**gone, 'host': 'elsewhere', 'beat': time.time() - seconds})
    assert studies.is_abandoned(frozen(study, trial)) == abandoned
    assert studies.reap(study, ()) == [trial.number] * abandoned
    # one that goes on is left alone again
    trial = ask(study, **{**gone, 'host': 'elsewhere', 'beat': time.time() - seconds})
    studies.beat(trial)
    assert not studies.is_abandoned(frozen(study, trial))


def test_a_trial_that_says_nothing_of_its_process_is_given_some_seconds(monkeypatch):
    study = opened()
    study.sampler = optuna.samplers.RandomSampler()  # which does not sign it
    trial = study.ask(SPACE)
    assert studies.reap(study, ()) == []
    now = time.time()
    monkeypatch.setattr(studies.time, 'time', lambda: now + 6)
    assert studies.reap(study, ()) == [trial.number]


def test_a_trial_is_signed_before_its_settings_are_chosen(monkeypatch):
    study = opened()
    signed = []
    sample = studies.RepeatableSampler.sample_independent

    def look(self, study, trial, *what):
        signed.append(study.trials[trial.number].user_attrs.keys() >= {'host', 'pid', 'process_started', 'beat'})
        return sample(self, study, trial, *what)

    monkeypatch.setattr(studies.RepeatableSampler, 'sample_independent', look)
    study.ask(SPACE)  # the defaults: nothing is chosen
    assert signed == []
    study.ask({'lr': SPACE['lr']})
    assert signed == [True]


def test_only_what_nobody_runs_is_reaped(gone):
    study = opened()
    mine, running, dead = ask(study, **gone), ask(study), ask(study, **gone)
    finish(study)
    assert studies.reap(study, [mine.number]) == [dead.number]
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.RUNNING] * 2 + [TrialState.FAIL, TrialState.COMPLETE, TrialState.WAITING]
    assert running.number == 1
    assert studies.reap(study, [mine.number]) == []
    assert len(study.trials) == 5


def test_what_was_broken_off_is_tried_again_once_with_its_parameters_and_seed(gone):
    study = opened()
    ask(study)
    dead = ask(study, seed=11, **gone)
    for _ in range(3):
        studies.reap(study, ())
    waiting = [trial for trial in study.trials if trial.state == TrialState.WAITING]
    assert len(waiting) == 1
    retry = study.ask(SPACE)
    assert retry.number == waiting[0].number
    assert retry.params == dead.params
    assert studies.claim(retry, None) == 11
    assert (retry.user_attrs['retry_of'], retry.user_attrs['attempt']) == (dead.number, 2)


def test_what_failed_by_itself_is_not_tried_again(monkeypatch):
    study = opened()
    trial = ask(study, reason='ValueError: no')
    study.tell(trial, state=TrialState.FAIL)
    now = time.time()
    monkeypatch.setattr(studies.time, 'time', lambda: now + 1000)
    studies.reap(study, ())
    assert len(study.trials) == 1


def test_what_was_failed_by_a_call_that_died_over_it_is_tried_again_by_another_one(monkeypatch):
    study = opened()
    trial = ask(study)
    study.tell(trial, state=TrialState.FAIL)  # and then that call was killed
    now = time.time()
    monkeypatch.setattr(studies.time, 'time', lambda: now + 61)
    for _ in range(2):
        studies.reap(study, ())
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]
    assert study.trials[1].user_attrs['retry_of'] == 0


def test_what_kills_its_process_each_time_is_given_up(gone):
    study = opened()
    ask(study, **gone)
    for _ in range(30):
        if not studies.reap(study, ()):
            break
        if any(trial.state == TrialState.WAITING for trial in study.trials):
            ask(study, **gone)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * studies.ATTEMPTS
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 1


def test_a_trial_is_broken_off_once_though_two_calls_see_it(gone):
    study = opened()
    trial = ask(study, **gone)
    assert studies.break_off(study, trial.number)
    assert not studies.break_off(study, trial.number)
    assert len(study.trials) == 2
    finish(study)
    assert not studies.break_off(study, 1)
    assert study.trials[1].state == TrialState.COMPLETE


def test_a_process_that_is_killed_is_seen_by_another_call_of_its_storage(tmp_path):
    """The same through a storage and a real SIGKILL."""
    url = f'sqlite:///{tmp_path / "s.db"}'
    study = opened(open_storage(url))
    code = f"""
import optuna, time
from xagents.tuning import studies
from xagents.tuning.storages import open_storage
study = optuna.load_study(study_name='s', storage=open_storage({url!r}), sampler=studies.make_sampler('random', 1))
studies.claim(study.ask(), 3)
print('begun', flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, encoding='utf-8')
    try:
        assert process.stdout.readline() == 'begun\n'
        assert studies.reap(study, ()) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert studies.reap(study, ()) == [0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# what is taken from a study


def test_the_best_trial_is_the_completed_one_with_the_highest_value():
    study = opened()
    assert studies.best_trial(study) is None
    for value in (3.0, 5.0, 4.0):
        study.tell(ask(study), value)
    pruned = ask(study)
    pruned.report(99.0, 1)
    study.tell(pruned, state=TrialState.PRUNED)
    study.tell(ask(study), state=TrialState.FAIL)
    assert studies.best_trial(study).number == 1


def test_the_options_of_a_trial_are_all_that_its_run_was_given():
    study = finish(opened())
    options = studies.options_of(study, study.trials[0])
    assert options == {'env': 'CartPole-v1', 'n_envs': 4, 'net': [8, 8], **FIRST, 'max_steps': 500, 'seed': 1}
    taken = studies.load_best('s', study._storage, 'ppo')[1]
    assert taken == {name: value for name, value in options.items() if name != 'seed'}


@pytest.mark.parametrize(
    ('agent_id', 'name', 'said'),
    [
        ('ppo', 'study-on', 'got study-on, the storage has .*study-one.*did you mean study-one'),
        ('a2c', 'study-one', 'got study-one, which is one of ppo, admits one of a2c'),
        ('ppo', 'empty', 'got empty, of which no trial has been completed'),
        ('ppo', 'theirs', 'got theirs, which was not made by xagents tune'),
    ],
)
def test_a_study_with_nothing_to_take_is_refused(agent_id, name, said):
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage, name='study-one'))
    opened(storage, name='empty')
    optuna.create_study(study_name='theirs', storage=storage)
    with pytest.raises(OptionError, match=f'^from_study: {said}'):
        studies.load_best(name, storage, agent_id)


def test_a_storage_that_is_not_there_is_not_made_to_be_read(tmp_path):
    with pytest.raises(OptionError) as refused:
        best_of_study('ppo', {}, 's', f'sqlite:///{tmp_path / "missing.db"}')
    assert refused.value.name == 'storage'
    assert not list(tmp_path.iterdir())


def test_a_float_range_that_became_whole_numbers_is_refused():
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage))
    with pytest.raises(OptionError, match=r'^lr: got 1 to 5.*numbers from 1e-05 to 0.01'):
        opened(storage, ranges={**RANGES, 'lr': Bounds(1, 5, False)})
    fake = SimpleNamespace(distribution=lambda: FloatDistribution(0, 1))
    with pytest.raises(OptionError, match=r'^lr: '):
        opened(storage, ranges={**RANGES, 'lr': fake})
