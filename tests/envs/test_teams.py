"""Several agents in one environment: who is there, what they earn, and what is drawn from it to learn."""

import numpy as np
import pytest

from tests.team_problems import Leaving, OwnNumber, Returning, Silent
from xagents.envs.create import as_envs, create_envs
from xagents.evaluation.playing import mean_rewards_per_agent
from xagents.options.errors import OptionError

HERE = 'pettingzoo:tests.team_problems'
M = 4


def steps(envs, n, seed=0):
    """Take n random steps; yield valid beforehand, what came of it, and the episodes that ended."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        valid = envs.valid.copy()
        seen = envs.step(rng.integers(0, 2, envs.n_envs))
        yield valid, *(np.array(part) for part in seen), envs.pop_episodes()


@pytest.mark.parametrize('vector', ['sync', 'async'])
def test_agents_that_leave_get_the_returns_they_must(vector):
    with create_envs(f'{HERE}:Leaving', 2, vector=vector) as envs:
        assert (envs.n_envs, envs.agents, envs.agents_per_env) == (2 * M, ('x', 'y', 'z', 'w'), M)
        envs.reset(1)
        taken = list(steps(envs, 12))
    episodes = [(e.env, e.reward, e.length, e.success) for *_, ended in taken for e in ended]
    # agent i stays for i + 2 steps and gets i + 1 for each
    each = [(0, 2.0, 2, False), (1, 6.0, 3, True), (2, 12.0, 4, False), (3, 20.0, 5, None)]
    for env in range(2):
        own = [(e[0] % M, *e[1:]) for e in episodes if e[0] // M == env]
        assert own == each * 2, 'once an episode, not once for each step that it is gone'
    for t, (valid, observations, rewards, terminated, truncated, _) in enumerate(taken):
        u = t % 6  # five steps, and one that resets
        there = [u < 5 and u < i + 2 for i in range(M)] * 2
        np.testing.assert_array_equal(valid, there)
        np.testing.assert_array_equal(rewards, np.where(there, [1.0, 2.0, 3.0, 4.0] * 2, 0.0))
        np.testing.assert_array_equal(terminated, [u < 5 and i < 3 and u >= i + 1 for i in range(M)] * 2)
        np.testing.assert_array_equal(truncated, [u == 4 and i == 3 for i in range(M)] * 2)
        shown = 0 if u == 5 else np.minimum(u + 1, [2, 3, 4, 5] * 2)  # who is gone shows what it saw last
        np.testing.assert_array_equal(observations[:, 0], np.broadcast_to(shown, 2 * M))
        np.testing.assert_array_equal(observations[:, 1], [0, 1, 2, 3] * 2)


def test_who_comes_back_begins_an_episode():
    with create_envs(lambda **_: Returning(), 1) as envs:
        envs.reset(1)
        taken = list(steps(envs, 8))
    valid = np.array([valid for valid, *_ in taken]).astype(int)
    np.testing.assert_array_equal(valid[:, 0], [1, 1, 0, 0, 1, 1, 1, 0])
    assert [(e.env, e.length) for *_, ended in taken for e in ended] == [(0, 2), (0, 3), (1, 7)]


def test_what_a_team_gets_is_told_with_the_last_of_its_agents():
    with create_envs(lambda **_: Returning(), 2) as envs:
        envs.reset(1)
        ended = [e for *_, episodes in steps(envs, 16) for e in episodes]
    # one of them is there for 5 of the 7 steps, in two episodes
    assert [e.team for e in ended if e.env < 2] == [None, None, 12.0] * 2
    assert mean_rewards_per_agent(('x', 'y'), ended) == {'reward/x': 2.5, 'reward/y': 7.0, 'team_reward': 12.0}


def test_a_team_gets_what_its_agents_get_if_one_comes_back_in_the_step_in_which_it_leaves():
    with create_envs(lambda **_: Returning(back=2), 1) as envs:
        envs.reset(1)
        taken = list(steps(envs, 16))
    valid = np.array([valid for valid, *_ in taken]).astype(int)
    np.testing.assert_array_equal(valid[:, 0], [1, 1, 0, 1, 1, 1, 1, 0] * 2)
    ended = [(e.env, e.reward, e.length, e.team) for *_, episodes in taken for e in episodes]
    assert ended == [(0, 2.0, 2, None), (0, 4.0, 4, None), (1, 7.0, 7, 13.0)] * 2
    with create_envs(lambda **_: Returning(back=2), 1, max_episode_steps=3) as envs:
        envs.reset(1)
        ended = [(t, e.env, e.reward, e.team) for t, (*_, episodes) in enumerate(steps(envs, 8)) for e in episodes]
    assert ended == [(1, 0, 2.0, None), (2, 1, 3.0, 5.0), (5, 0, 2.0, None), (6, 1, 3.0, 5.0)]


def test_who_leaves_without_a_word_is_terminated():
    with create_envs(lambda **_: Silent(), 1) as envs:
        envs.reset(1)
        taken = list(steps(envs, 12))
    assert [e.length for *_, ended in taken for e in ended] == [5, 5, 5, 5, 5, 5]
    np.testing.assert_array_equal([valid.all() for valid, *_ in taken], [True] * 5 + [False] + [True] * 5 + [False])


def test_a_time_limit_truncates_who_is_there():
    with create_envs(f'{HERE}:Leaving', 1, max_episode_steps=3) as envs:
        envs.reset(1)
        taken = list(steps(envs, 4))
    *_, terminated, truncated, episodes = taken[2]
    np.testing.assert_array_equal(terminated, [True, True, False, False])
    np.testing.assert_array_equal(truncated, [False, False, True, True])
    assert [e.reward for e in episodes] == [6.0, 9.0, 12.0]
    np.testing.assert_array_equal(taken[3][0], [False] * M)


def test_each_environment_has_a_seed_of_its_own_and_the_same_for_any_number():
    few, many = create_envs(f'{HERE}:Leaving', 1), create_envs(f'{HERE}:Leaving', 3)
    first, all_of_them = few.reset(5), many.reset(5)
    np.testing.assert_array_equal(first, all_of_them[:M])
    assert len(np.unique(all_of_them[:, 2])) == 3 * M
    # some of many, as an explorer has them
    np.testing.assert_array_equal(create_envs(f'{HERE}:Leaving', 2).reset(5, first=1), all_of_them[M:])


def test_an_agent_may_see_who_it_is():
    envs = create_envs(f'{HERE}:Leaving', 2, agent_index=True)
    seen = envs.reset(1)
    assert envs.observation_space.shape == (3 + M,)
    np.testing.assert_array_equal(seen[:, 3:], np.tile(np.eye(M), (2, 1)))
    images = create_envs(f'{HERE}:Leaving', 2, agent_index=True, env_kwargs={'image': True})
    seen = images.reset(1)
    assert (seen.shape, seen.dtype) == ((2 * M, 40, 40, 3 + M), np.uint8)
    np.testing.assert_array_equal(seen[:, 7, 9, 3:], 255 * np.tile(np.eye(M), (2, 1)))
    assert images.observation_space.contains(seen[1])


@pytest.mark.parametrize('name', ['tests.team_problems:Leaving', 'mpe2.simple_spread_v3'])
def test_they_go_on_from_a_copy(name):
    def given(envs, n):
        return [part for step in steps(envs, n) for part in step[:-1]]

    with create_envs(f'pettingzoo:{name}', 2) as envs, create_envs(f'pettingzoo:{name}', 2) as others:
        envs.reset(1)
        given(envs, 3)
        copy, copies = envs.snapshot(), envs.snapshot_each()
        assert len(copies) == 2
        expected = given(envs, 30)
        others.reset(2)
        others.restore(copy)
        np.testing.assert_equal(given(others, 30), expected)
        others.reset(3)
        others.restore_each(copies)
        np.testing.assert_equal(given(others, 30), expected)


def test_ready_made_ones_are_taken_as_they_are():
    envs = as_envs([Leaving(), Leaving()])
    assert (envs.id, envs.n_envs, envs.agents_per_env) == ('leaving', 8, 4)
    assert as_envs(OwnNumber()).n_envs == 3
    with pytest.raises(ValueError, match='different spaces'):
        as_envs([Leaving(), OwnNumber()])


def test_a_video_is_of_the_environment():
    with create_envs(f'{HERE}:Leaving', 1, render_mode='rgb_array') as envs:
        envs.reset(1)
        (frame,) = envs.render()
        assert (frame.shape, envs.frames_per_second) == ((16, 16, 3), 7)


@pytest.mark.parametrize(
    'name, arguments, expected',
    [
        (f'{HERE}:Different', {}, 'x has observations of .*, z of .*; expected equal spaces for one policy'),
        (f'{HERE}:Leavin', {}, r'tests.team_problems has no Leavin \(did you mean Leaving\?\)'),
        (f'{HERE}:Leaving', {'env_kwargs': {'img': 1}}, "takes no 'img', expected .*image"),
        ('pettingzoo:subprocess:Popen', {'env_kwargs': {'args': ''}}, 'is a type, expected a class of'),
        ('pettingzoo:os:system', {'env_kwargs': {'command': ''}}, 'expected a class of environments or a function'),
        (f'{HERE}:Leaving', {'preprocess': True}, 'preprocess: .* not an Atari game'),
        (f'{HERE}:Leaving', {'vector': 'envpool'}, 'vector: got envpool'),
        (f'{HERE}:Leaving', {'wrapper': 'gymnasium.wrappers:TimeAwareObservation'}, 'wrapper: .* cannot wrap'),
        ('pettingzoo:', {}, 'no environment pettingzoo:'),
        ('pettingzoo:mpe2', {}, 'mpe2 has no parallel_env, expected mpe2.*_v. or another'),
        ('pettingzoo:mpe2.simple_sprad_v3', {}, r'did you mean simple_spread_v3\?'),
        (f'{HERE}:Late', {}, 'starts an episode without w, expected all agents'),
        (f'{HERE}:Late', {'vector': 'async'}, 'starts an episode without w, expected all agents'),
        (f'{HERE}:Alone', {'agent_index': True}, 'agent_index: .* has one agent, expected an environment with several'),
        (f'{HERE}:Nobody', {}, 'has no agents'),
        ('pettingzoo:mpe2.simple_spread_v3', {'env_kwargs': {'N': 'three'}}, 'cannot be made: '),
        ('pettingzoo:json:loads', {}, 'is a function, expected a class of environments or a function named parallel'),
        ('CartPole-v1', {'agent_index': True}, 'agent_index: CartPole-v1 has one agent'),
    ],
)
def test_what_cannot_be_is_said_in_a_line(name, arguments, expected):
    with pytest.raises(OptionError, match=expected) as refusal:
        create_envs(name, 2, **arguments)
    assert '\n' not in str(refusal.value)
