"""A study by itself: samplers and pruners, continuing one that fits, and what is taken from it."""

import importlib.util
from types import SimpleNamespace

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from xagents.options.errors import OptionError
from xagents.tuning import ownership, studies
from xagents.tuning.search import Bounds, Choices
from xagents.tuning.storages import open_storage, silence_optuna

RANGES = {'lr': Bounds(1e-5, 1e-2, True), 'n_steps': Choices((16, 32)), 'critic_iterations': Bounds(3, 20, False)}
FIXED = {'n_envs': 4, 'net': [8, 8]}
FACTS = {'agent': 'ppo', 'env': 'CartPole-v1', 'fixed': FIXED, 'trial_steps': 500, 'objective': 'reward'}
FACTS['trial_seeds'] = 1
FIRST = {'lr': 7e-4, 'n_steps': 16, 'critic_iterations': 3}
SPACE = {name: r.distribution() for name, r in RANGES.items()}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    silence_optuna()
    monkeypatch.setattr(studies, 'CREATION_SECONDS', 0.2)


def opened(storage=None, study_attributes=FACTS, ranges=RANGES, name='s', sampler='random', pruner=('none', 0), seed=1):
    storage = storage or optuna.storages.InMemoryStorage()
    planned = SimpleNamespace(study_name=name, study_attributes=study_attributes, ranges=ranges, first=FIRST)
    return studies.open_study(planned, storage, studies.make_sampler(sampler, seed), studies.make_pruner(*pruner, 20))


def ask(study, seed=1, **attributes):
    trial = study.ask(SPACE)
    ownership.claim(trial, seed)
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
@pytest.mark.parametrize('stop', [1, 13])
def test_a_stopped_and_continued_study_chooses_as_one_that_was_not(sampler, stop, tmp_path):
    whole = finish(opened(sampler=sampler), 16)
    storage = f'journal:{tmp_path / "s.log"}'
    finish(opened(open_storage(storage), sampler=sampler), stop)
    continued = finish(opened(open_storage(storage), sampler=sampler), 16 - stop)
    assert parameters(continued) == parameters(whole)
    assert len({trial['lr'] for trial in parameters(whole)}) == 16


@pytest.mark.parametrize(('sampler', 'package'), [('cmaes', 'cmaes'), ('gp', 'torch')])
def test_a_sampler_whose_package_is_missing_is_refused_and_says_what_to_install(sampler, package):
    if importlib.util.find_spec(package):
        pytest.skip(f'{package} is there')
    with pytest.raises(OptionError, match=rf'^sampler: got {sampler}, which needs {package}: pip install .*$'):
        studies.make_sampler(sampler, 1)


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


def test_hyperband_prunes_bad_trials_and_never_before_a_fifth_and_no_pruner_prunes_none():
    study = opened(pruner=('hyperband', 0))
    counts = [reported(study, [float(value)] * 20) for value in range(40, 0, -1)]
    assert min(counts) >= studies.MIN_REPORTS
    assert 5 < sum(count < 20 for count in counts) < 40
    study = opened()
    assert [reported(study, [value] * 20) for value in range(10, 0, -1)] == [20] * 10


# a study is opened, and continued where it fits


def test_a_new_study_has_its_facts_and_begins_once_with_the_first_values():
    storage = optuna.storages.InMemoryStorage()
    assert opened(storage).user_attrs == FACTS
    study = opened(storage)
    assert study.direction.name == 'MAXIMIZE'
    assert [trial.state for trial in study.trials] == [TrialState.WAITING]
    finish(study, 2)
    assert study.trials[0].params == FIRST
    assert study.trials[1].params['lr'] != FIRST['lr']
    again = opened(storage, ranges={**RANGES, 'lr': Bounds(1e-4, 1e-3, True)})  # other bounds of the same kind
    assert [trial.state for trial in again.trials] == [TrialState.COMPLETE] * 2
    assert again.user_attrs == FACTS


def test_a_study_whose_maker_died_before_it_said_what_it_is_about_is_completed():
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(study_name='s', storage=storage, direction='maximize')
    study.enqueue_trial(FIRST)
    study.set_user_attr('agent', 'ppo')
    study = finish(opened(storage))
    assert (parameters(study), study.user_attrs) == ([FIRST], FACTS)


@pytest.mark.parametrize(
    ('change', 'name', 'said'),
    [
        ({'facts': {'agent': 'a2c'}}, 'agent', ['got a2c', 'has ppo']),
        ({'facts': {'fixed': {'n_envs': 8, 'net': [8, 8]}}}, 'n_envs', ['got 8', 'has 4']),
        ({'facts': {'fixed': {'n_envs': 4}}}, 'net', ['got the default', 'has [8, 8]']),
        ({'facts': {'fixed': {**FIXED, 'gamma': 0.9}}}, 'gamma', ['got 0.9', 'has the default']),
        ({'ranges': {**RANGES, 'n_steps': Choices((32, 16))}}, 'n_steps', ['one of 32, 16', 'one of 16, 32']),
        ({'ranges': {**RANGES, 'critic_iterations': Bounds(3, 900, True)}}, 'critic_iterations', ['to 900', 'to 20']),
        ({'ranges': {**RANGES, 'lr': Bounds(1, 5, False)}}, 'lr', ['got 1 to 5', 'numbers from 1e-05 to 0.01']),
        ({'ranges': {**RANGES, 'gamma': Bounds(0.9, 0.99, True)}}, 'gamma', ['is searched here']),
        ({'ranges': {'lr': RANGES['lr'], 'n_steps': RANGES['n_steps']}}, 'critic_iterations', ['is not searched here']),
    ],
)
def test_a_study_that_does_not_fit_is_refused_by_name_and_left_as_it_was(change, name, said):
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage), 2)
    with pytest.raises(OptionError) as refused:
        opened(storage, study_attributes={**FACTS, **change.get('facts', {})}, ranges=change.get('ranges', RANGES))
    assert refused.value.name == name
    message = str(refused.value)
    assert all(words in message for words in [*said, 'the study s', 'another --study']), message
    assert '\n' not in message
    study = optuna.load_study(study_name='s', storage=storage)
    assert (study.user_attrs, len(study.trials)) == (FACTS, 2)


@pytest.mark.parametrize(
    ('make', 'said'),
    [
        (lambda storage: opened(storage, ranges={}), f'({"|".join(RANGES)}): '),
        (lambda storage: made_elsewhere(storage, 'minimize'), 'study: got s with the directions minimize'),
        (lambda storage: made_elsewhere(storage, 'maximize'), 'study: got s, whose trials are not from xagents tune'),
    ],
)
def test_a_study_that_searched_nothing_or_was_made_elsewhere_is_refused_and_left_as_it_was(make, said):
    storage = optuna.storages.InMemoryStorage()
    study = make(storage)
    space = {} if study.user_attrs else {'x': FloatDistribution(0, 1)}
    study.tell(study.ask(space), [1.0] * len(study.directions))
    before = study.user_attrs
    with pytest.raises(OptionError, match=f'^{said}'):
        opened(storage)
    assert study.user_attrs == before


def made_elsewhere(storage, *directions):
    return optuna.create_study(study_name='s', storage=storage, directions=directions)


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
    options = studies.trial_options(study, study.trials[0])
    assert options == {'env': 'CartPole-v1', 'n_envs': 4, 'net': [8, 8], **FIRST, 'max_steps': 500, 'seed': 1}
    taken = studies.load_best('s', study._storage, 'ppo')[1]
    assert taken == {name: value for name, value in options.items() if name != 'seed'}


@pytest.mark.parametrize(
    ('agent_id', 'name', 'said'),
    [
        ('ppo', 'study-on', 'got study-on, expected .*study-one.*did you mean study-one'),
        ('a2c', 'study-one', 'got study-one, which is a study of ppo, expected a study of a2c'),
        ('ppo', 'empty', 'got empty, which has no complete trial'),
        ('ppo', 'theirs', 'got theirs, which was not created by xagents tune'),
    ],
)
def test_a_study_with_nothing_to_take_is_refused(agent_id, name, said):
    storage = optuna.storages.InMemoryStorage()
    finish(opened(storage, name='study-one'))
    opened(storage, name='empty')
    optuna.create_study(study_name='theirs', storage=storage)
    with pytest.raises(OptionError, match=f'^from_study: {said}'):
        studies.load_best(name, storage, agent_id)
