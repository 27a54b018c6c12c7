"""Options that are numbers are no constants of a program: agents of equal structure share what one has compiled."""

import numpy as np
import pytest

import xagents
from xagents.networks.numbers import Numbers
from xagents.networks.sharing import SharedPrograms, recording, structure_of
from xagents.options.agents import AgentOptions
from xagents.options.declaration import describe
from xagents.registry.agents import find_agent

SMALL = {'net': [4], 'n_envs': 2, 'quiet': True, 'seed': 3}
OFF_POLICY = {'buffer_max_size': 64, 'learning_starts': 16, 'buffer_batch_size': 8}
AGENTS = {
    'a2c': ('CartPole-v1', {}),
    'acer': ('CartPole-v1', {'n_steps': 8, 'buffer_max_size': 64, 'learning_starts': 16}),
    'ddpg': ('Pendulum-v1', OFF_POLICY),
    'dqn': ('CartPole-v1', {**OFF_POLICY, 'conservative': 0.5, 'target_sync_steps': 8}),
    'ppo': ('Pendulum-v1', {'n_steps': 8, 'mini_batches': 2, 'target_kl': 0.5, 'value_clip': 0.3}),
    'td3': ('Pendulum-v1', {**OFF_POLICY, 'policy_delay': 2}),
    'trpo': ('CartPole-v1', {'n_steps': 16, 'fvp_n_steps': 2}),
}
# whole numbers that decide no shape
WHOLE = {'policy_delay': 3, 'cg_iterations': 3, 'actor_iterations': 4}


def made(agent_id, **options):
    env, own = AGENTS[agent_id]
    with recording() as made:
        agent = xagents.make(agent_id, env, **{**SMALL, **own, **options})
    return agent, made


def trained(agent):
    agent.fit(max_steps=48)
    return np.concatenate([np.ravel(w) for model in agent.output_models for w in model.get_weights()])


def others(agent_id):
    """Another value of every option that is a number, wherever it is read."""
    known, own = describe(find_agent(agent_id).options), AGENTS[agent_id][1]
    changed = {}
    for name, option in known.items():
        value = own.get(name, option.default)
        if option.type is float and value and not name.startswith('her_'):
            changed[name] = option.check(value * 0.8)
    return changed | {name: value for name, value in WHOLE.items() if name in known}


@pytest.mark.parametrize('agent_id', AGENTS)
def test_one_program_serves_all_values(agent_id, without_xla):
    programs, changed = SharedPrograms(), others(agent_id)
    assert {'gamma', 'opt_epsilon', 'beta1'} <= set(changed)
    first, of_first = made(agent_id)
    before = trained(first)
    programs.keep('equal', of_first)
    fresh, _ = made(agent_id, **changed)
    expected = trained(fresh)
    assert fresh._update.traces == 1 and not np.array_equal(expected, before)
    lent, of_lent = made(agent_id, **changed)
    programs.lend('equal', of_lent)
    np.testing.assert_array_equal(trained(lent), expected)
    assert lent._update.traces == lent.actor.traces == 0
    # what was lent is lent on, and the first agent has kept its own
    programs.keep('equal', of_lent)
    again, of_again = made(agent_id)
    programs.lend('equal', of_again)
    np.testing.assert_array_equal(trained(again), before)
    assert again._update.traces == 0


def test_another_network_is_another_structure(without_xla):
    programs = SharedPrograms()
    first, of_first = made('a2c')
    trained(first)
    programs.keep('equal', of_first)
    other, of_other = made('a2c', net=[5])
    programs.lend('equal', of_other)
    trained(other)
    assert other._update.traces == 1


def test_other_rows_of_the_fisher_matrix_are_another_program(without_xla):
    programs = SharedPrograms()
    first, of_first = made('trpo', fvp_n_steps=1)
    trained(first)
    programs.keep('equal', of_first)
    expected = trained(made('trpo', fvp_n_steps=4)[0])
    other, of_other = made('trpo', fvp_n_steps=4)
    programs.lend('equal', of_other)
    np.testing.assert_array_equal(trained(other), expected)


def test_what_decides_a_program_is_part_of_the_structure():
    options = {'gamma': 0.9, 'huber': True, 'conservative': 0.0, 'target_kl': None, 'optimizer': 'adam'}
    same = structure_of(options)
    assert structure_of({**options, 'gamma': 0.5}) == same
    for changed in ({'huber': False}, {'conservative': 0.1}, {'target_kl': 0.1}, {'optimizer': 'rmsprop'}):
        assert structure_of({**options, **changed}) != same


def test_programs_that_were_not_used_for_long_go(without_xla):
    programs = SharedPrograms()
    agent, of_agent = made('a2c')
    trained(agent)
    for structure in range(6):
        programs.keep(structure, of_agent)
    programs.keep(None, of_agent)
    assert list(programs._known) == [2, 3, 4, 5]


def test_outside_of_a_program_numbers_are_numbers():
    numbers = Numbers(AgentOptions(gamma=0.5))
    assert (numbers.gamma, numbers.optimizer, numbers.seed) == (0.5, 'adam', None)
    with pytest.raises(AttributeError):
        _ = numbers.gama
