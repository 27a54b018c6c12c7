"""Options that are numbers are no constants of a program: agents of equal structure share what one has compiled."""

import numpy as np
import pytest

from tests.agents.contract import CASES, clause
from xagents.networks.program_cache import SharedPrograms, record_resources, structure_of
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions
from xagents.options.declaration import declared_options
from xagents.registry.agents import find_agent

WHOLE = {'policy_delay': 3, 'cg_iterations': 3, 'actor_iterations': 4}


def made(agent_id, **options):
    with record_resources() as programs:
        agent = CASES[agent_id].make(**options)
    return agent, programs


def trained(agent):
    agent.fit(max_steps=40)
    return np.concatenate([np.ravel(w) for model in agent.output_models for w in model.get_weights()])


def others(case):
    """Other values of the options that are numbers and decide no shape."""
    known, changed = declared_options(find_agent(case.id).options), {}
    for name, option in known.items():
        value = case.options.get(name, option.default)
        if option.type is float and value and not name.startswith('her_'):
            changed[name] = option.check(value * 0.8)
    return changed | {name: value for name, value in WHOLE.items() if name in known}


@clause('shares programs')
def test_one_program_serves_all_values(case, without_xla, request):
    case.make()  # records the data set of the case, with an agent whose programs do not count here
    programs, changed = SharedPrograms(), others(case)
    assert {'gamma', 'opt_epsilon', 'beta1'} <= set(changed)
    first, of_first = made(case.id)
    before = trained(first)
    programs.store('equal', of_first)
    lent, of_lent = made(case.id, **changed)
    programs.reuse('equal', of_lent)
    lent_weights = trained(lent)
    assert lent._update.traces == lent.actor.traces == 0
    # what was lent is lent on, and the first agent has kept its own
    programs.store('equal', of_lent)
    repeat, of_repeat = made(case.id)
    programs.reuse('equal', of_repeat)
    np.testing.assert_array_equal(trained(repeat), before)
    assert repeat._update.traces == 0
    request.getfixturevalue('eager')
    expected = trained(made(case.id, **changed)[0])
    np.testing.assert_allclose(lent_weights, expected, rtol=1e-3, atol=1e-4)
    assert not np.allclose(lent_weights, before, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ('agent_id', 'options', 'other_options'),
    [('a2c', {}, {'net': [5]}), ('trpo', {'fvp_n_steps': 1}, {'fvp_n_steps': 4})],
)
def test_another_structure_is_another_program(agent_id, options, other_options, without_xla):
    programs = SharedPrograms()
    first, of_first = made(agent_id, **options)
    trained(first)
    programs.store('equal', of_first)
    other, of_other = made(agent_id, **other_options)
    programs.reuse('equal', of_other)
    trained(other)
    assert other._update.traces == 1


def test_what_decides_a_program_is_part_of_the_structure():
    options = {'gamma': 0.9, 'huber': True, 'conservative': 0.0, 'target_kl': None, 'optimizer': 'adam'}
    same = structure_of(options)
    assert structure_of({**options, 'gamma': 0.5}) == same
    for changed in ({'huber': False}, {'conservative': 0.1}, {'target_kl': 0.1}, {'optimizer': 'rmsprop'}):
        assert structure_of({**options, **changed}) != same


def test_programs_that_were_not_used_for_long_go(without_xla):
    programs = SharedPrograms()
    _, of_agent = made('a2c')
    for structure in range(6):
        programs.store(structure, of_agent)
    programs.store(None, of_agent)
    assert list(programs._stored) == [2, 3, 4, 5]


def test_outside_of_a_program_numbers_are_numbers():
    traced_options = TracedOptions(AgentOptions(gamma=0.5))
    assert (traced_options.gamma, traced_options.optimizer, traced_options.seed) == (0.5, 'adam', None)
    with pytest.raises(AttributeError):
        _ = traced_options.gama
