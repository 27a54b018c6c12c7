"""Agents of equal structure share compiled programs, because options that are numbers are variables of a program."""

import functools

import numpy as np
import pytest

from tests.agents.contract import CASES, clause
from xagents.networks.program_cache import SharedPrograms, record_resources, share_programs, structure_of
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import WITH_WEIGHT_DECAY, AgentOptions
from xagents.options.declaration import declared_options
from xagents.registry.agents import find_agent

WHOLE = {'policy_delay': 3, 'cg_iterations': 3, 'actor_iterations': 4}


def make_recorded(agent_id, **options):
    with record_resources() as programs:
        agent = CASES[agent_id].make(**options)
    return agent, programs


def trained(agent):
    agent.fit(max_steps=40)
    return np.concatenate([np.ravel(w) for model in agent.output_models for w in model.get_weights()])


def changed_options(case):
    """Return other values of the options that are numbers and do not change a shape."""
    known, changed = declared_options(find_agent(case.id).options), {}
    # options that are refused without another one
    without_effect = ('her_', 'munchausen_')
    if case.options.get('optimizer') not in WITH_WEIGHT_DECAY:
        without_effect += ('weight_decay',)
    if case.options.get('distribution') != 'categorical':
        without_effect += ('value_m',)
    if 'noisy' in known and case.options.get('noisy', known['noisy'].default):
        without_effect += ('epsilon_',)
    for name, option in known.items():
        value = case.options.get(name, option.default)
        if option.type is float and value and not name.startswith(without_effect):
            changed[name] = option.check(value * 0.8)
    return changed | {name: value for name, value in WHOLE.items() if name in known}


@clause('shares programs')
def test_one_program_serves_all_values(case, without_xla, request):
    case.make()  # records the data set, so that the programs of the recording agent are not counted below
    programs, changed = SharedPrograms(), changed_options(case)
    assert {'gamma', 'opt_epsilon', 'beta1'} <= set(changed)
    first, of_first = make_recorded(case.id)
    before = trained(first)
    programs.store('equal', of_first)
    second, of_second = make_recorded(case.id, **changed)
    programs.reuse('equal', of_second)
    second_weights = trained(second)
    assert second._update.traces == second.actor.traces == 0
    # a third agent reuses the programs of the second agent, with the values of the first one
    programs.store('equal', of_second)
    repeat, of_repeat = make_recorded(case.id)
    programs.reuse('equal', of_repeat)
    np.testing.assert_array_equal(trained(repeat), before)
    assert repeat._update.traces == 0
    request.getfixturevalue('eager')
    expected = trained(make_recorded(case.id, **changed)[0])
    np.testing.assert_allclose(second_weights, expected, rtol=1e-3, atol=1e-4)
    assert not np.allclose(second_weights, before, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ('agent_id', 'options', 'other_options'),
    [('a2c', {}, {'net': [5]}), pytest.param('trpo', {'fvp_n_steps': 1}, {'fvp_n_steps': 4}, marks=pytest.mark.slow)],
)
def test_another_structure_is_another_program(agent_id, options, other_options, without_xla):
    programs = SharedPrograms()
    first, of_first = make_recorded(agent_id, **options)
    trained(first)
    programs.store('equal', of_first)
    other, of_other = make_recorded(agent_id, **other_options)
    programs.reuse('equal', of_other)
    trained(other)
    assert other._update.traces == 1


def test_a_number_that_a_program_contains_changes_the_structure(without_xla):
    traces = []
    for dropped in (1, 2, 2):
        make = functools.partial(CASES['tqc'].make, dropped_quantiles=dropped)
        with share_programs(make, {}) as agent:
            trained(agent)
            traces.append(agent._update.traces)
    assert traces == [1, 1, 0]


def test_a_shared_program_has_the_own_target_of_the_entropy(without_xla):
    programs, temperatures = SharedPrograms(), []
    for target in (-10.0, 0.69):
        agent, resources = make_recorded('sac', target_entropy=target)
        programs.reuse('equal', resources)
        trained(agent)
        programs.store('equal', resources)
        temperatures.append(float(agent.temperature()))
    assert agent._update.traces == 0
    assert temperatures[0] < temperatures[1], 'with the target of the first agent, both would be equal'


def test_options_that_change_a_program_change_the_structure():
    options = {'gamma': 0.9, 'huber': True, 'conservative': 0.0, 'target_kl': None, 'optimizer': 'adam'}
    same = structure_of(options)
    assert structure_of({**options, 'gamma': 0.5}) == same
    for changed in ({'huber': False}, {'conservative': 0.1}, {'target_kl': 0.1}, {'optimizer': 'muon'}):
        assert structure_of({**options, **changed}) != same


def test_the_programs_that_were_used_least_recently_are_removed(without_xla):
    programs = SharedPrograms()
    _, of_agent = make_recorded('a2c')
    for structure in range(6):
        programs.store(structure, of_agent)
    programs.store(None, of_agent)
    assert list(programs._stored) == [2, 3, 4, 5]


def test_outside_of_a_program_numbers_are_numbers():
    traced_options = TracedOptions(AgentOptions(gamma=0.5))
    assert (traced_options.gamma, traced_options.optimizer, traced_options.seed) == (0.5, 'adam', None)
    with pytest.raises(AttributeError):
        _ = traced_options.gama
