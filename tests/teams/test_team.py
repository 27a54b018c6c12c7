"""Several policies that learn in one environment, each for its agents."""

import contextlib
import json
import re

import numpy as np
import pytest
import yaml

import xagents
from tests.commands import execute
from tests.team_problems import Walks
from xagents.envs.env_factory import EnvFactory
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.options.errors import OptionError

HERE = 'pettingzoo:tests.team_problems'
PPO = {'agent': 'ppo', 'n_steps': 16, 'lr_schedule': 'linear', 'normalize_reward': True, 'normalize_obs': True}
OFF = {'fragment_steps': 16, 'buffer_max_size': 400, 'learning_starts': 100, 'buffer_batch_size': 8}
OFF |= {'train_frequency': 24, 'gradient_steps': 1}
DQN = {'agent': 'dqn', **OFF, 'epsilon_decay_steps': 300}
TD3 = {'agent': 'td3', **OFF}
ONCE = {**PPO, 'ppo_epochs': 1, 'mini_batches': 1}
EAGER = pytest.mark.usefixtures('eager')
UNLIKE = {'walkers': {**PPO, 'agents': 'a_*'}, 'last': {**TD3, 'agents': 'z'}}


def weights(agent):
    return [w for model in agent.output_models for w in model.get_weights()]


def team(env=f'{HERE}:Unlike', policies=UNLIKE, **options):
    given = {'n_envs': 3, 'net': [8], 'seed': 1, 'quiet': True, **options}
    return xagents.team(env, **policies, **given)


@EAGER
@pytest.mark.parametrize(
    'kinds', [pytest.param((ONCE, ONCE), marks=pytest.mark.slow), (ONCE, DQN)], ids=['two alike', 'two agents']
)
def test_two_policies_learn_as_two_single_runs(kinds):
    named = list(zip('ab', kinds, strict=True))
    policies = {name: {**kind, 'agents': name, 'seed': i} for i, (name, kind) in enumerate(named)}
    with contextlib.closing(team(Walks, policies)) as both:
        logs = list(both.train_iter(max_steps=400))
        together = {name: weights(member) for name, member in both.members.items()}
    for i, (name, kind) in enumerate(named):
        own = {key: value for key, value in kind.items() if key != 'agent'}
        single = xagents.make(
            kind['agent'], Walks, env_kwargs={'agents': [name]}, n_envs=3, net=[8], seed=i, quiet=True, **own
        )
        with contextlib.closing(single):
            alone = list(single.train_iter(max_steps=200))
            np.testing.assert_equal(together[name], weights(single))
        assert len(alone) == len(logs)
        for mine, theirs in zip(alone, logs, strict=True):
            same = {k for k in mine if k.startswith(('loss/', 'stats/', 'replay/', 'learning_rate'))}
            assert len(same) > 3 and [mine[k] for k in sorted(same)] == [theirs[f'{name}/{k}'] for k in sorted(same)]
            assert mine[f'reward/{name}'] == theirs[f'reward/{name}']


@pytest.mark.slow
@pytest.mark.usefixtures('without_xla')
def test_agents_of_other_spaces_learn_side_by_side():
    fast = {'lr': 0.01, 'train_frequency': 1, 'gradient_steps': 2}
    policies = {'walkers': {**UNLIKE['walkers'], 'lr': 0.01}, 'last': {**UNLIKE['last'], **fast}}
    with contextlib.closing(team(policies=policies, vector='async')) as both:
        assert both.map == {'a_0': 'walkers', 'a_1': 'walkers', 'z': 'last'}
        logs = list(both.train_iter(max_steps=3000))
        result = both.evaluate(episodes=6)
    # walking one way for 8 steps is worth 36
    assert result['reward/a_0'] == result['reward/a_1'] == result['reward/z'] == 36.0
    assert result['team_reward'] == 108.0 and 3000 <= logs[-1]['steps'] < 3144
    assert {'walkers/loss/policy', 'last/loss/value', 'last/replay/size', 'team_reward'} <= logs[-1].keys()


@EAGER
def test_a_team_goes_on_to_the_bit(tmp_path):
    def trained(folder, *steps):
        run = str(tmp_path / folder)
        policies = {**UNLIKE, 'walkers': {**ONCE, 'agents': 'a_*'}}
        with contextlib.closing(team(policies=policies, run_dir=run, final_episodes=0, schedule_steps=1000)) as both:
            both.fit(max_steps=steps[0])
            ended = {name: weights(member) for name, member in both.members.items()}
        for further in steps[1:]:
            with contextlib.closing(xagents.resume(run, quiet=True)) as both:
                both.fit(max_steps=further)
                ended = {name: weights(member) for name, member in both.members.items()}
                counted = {name: member.progress.context.updates for name, member in both.members.items()}
                assert all(counted.values())
        return ended

    np.testing.assert_equal(trained('parts', 400, 700), trained('whole', 700))
    tables = [xagents.load(str(tmp_path / folder), quiet=True).evaluate(3) for folder in ('parts', 'whole')]
    assert tables[0] == tables[1]


@EAGER
def test_the_map_changes_while_they_learn():
    policies = {'up': {**ONCE, 'agents': ['a', 'b']}, 'down': {**ONCE, 'agents': 'c'}}
    with contextlib.closing(team(Walks, policies, env_kwargs={'agents': list('abc')}, schedule_steps=800)) as three:
        before = weights(three.members['down'])
        for i, _ in enumerate(three.train_iter(max_steps=800)):
            if i == 1:
                three.map['b'] = 'down'
            if i == 3:
                three.map.update(a='down', b='up', c='down')
        assert three.envs.policy_mapping == {'up': ('b',), 'down': ('a', 'c')}
        assert three.members['down'].envs.n_envs == 6 and three.members['up'].envs.n_envs == 3
        assert three.options.policies['down']['agents'] == ['a', 'c']
        assert not all(map(np.array_equal, before, weights(three.members['down'])))
        three.map['a'] = 'nobody'
        with pytest.raises(OptionError, match='policies: map: got nobody, expected up, down'):
            three.fit(max_steps=1000)
        three.map.update(a='up', c='up')
        with pytest.raises(OptionError, match='map: no agent is assigned to down'):
            three.fit(max_steps=1000)


@EAGER
def test_what_has_a_replay_buffer_keeps_as_many_agents():
    waiting = {**DQN, 'buffer_max_size': 2000, 'learning_starts': 2000}  # nothing is learned
    policies = {'one': {**waiting, 'agents': 'a,b'}, 'other': {**waiting, 'agents': 'c'}}
    with contextlib.closing(team(Walks, policies, env_kwargs={'agents': list('abc')})) as three:
        three.fit(max_steps=150)
        stored = three.members['one'].buffer.stored
        three.map.update(a='other', c='one')
        three.fit(max_steps=300)
        assert three.members['one'].buffer.stored > stored
        three.map['b'] = 'other'
        with pytest.raises(OptionError, match='one has a replay buffer of 6 agents, expected equally many'):
            three.fit(max_steps=450)


def steps(envs, n):
    """Take steps in which every agent walks on, and return the last observations of each policy."""
    for _ in range(n):
        results = envs.step_groups([np.ones(group.n_envs, int) for group in envs.groups.values()])
    return {name: np.array(result[0]) for name, result in zip(envs.groups, results, strict=True)}


def test_episodes_go_on_when_the_map_changes():
    with MultiPolicyEnvs(EnvFactory(lambda **_: Walks('abc'), 2), {'p': ['a'], 'q': ['b', 'c']}) as envs:
        envs.reset(1)
        steps(envs, 1)
        envs.set_policy_mapping({'p': ['a', 'c'], 'q': ['b']})
        steps(envs, 7)
        ended = envs.pop_episodes()
    assert [e.env for e in ended] == list(range(6)) and {(e.reward, e.length) for e in ended} == {(36.0, 8)}
    assert [e.team for e in ended if e.team is not None] == [108.0, 108.0]


@EAGER
def test_a_changed_map_moves_the_observations_of_agents():
    policies = {'p': {**ONCE, 'agents': 'a'}, 'q': {**ONCE, 'agents': ['b', 'c']}}
    with contextlib.closing(team(Walks, policies, n_envs=2, env_kwargs={'agents': list('abc')})) as both:
        both.collect({})
        (a,), (b, c) = (np.split(own.reshape(2, -1, 2), own.shape[0] // 2, 1) for own in both.collector.observations)
        both.map.update(c='p')
        both.apply_map()
        np.testing.assert_array_equal(both.collector.observations[0].reshape(2, 2, 2), np.concatenate([a, c], 1))
        np.testing.assert_array_equal(both.collector.observations[1], b[:, 0])


@EAGER
def test_a_changed_map_moves_the_memory_of_agents_that_keep_their_policy():
    with_memory = {**ONCE, 'memory': 4}
    policies = {'p': {**with_memory, 'agents': 'a'}, 'q': {**with_memory, 'agents': ['b', 'c']}}
    with contextlib.closing(team(Walks, policies, n_envs=2, env_kwargs={'agents': list('abc')})) as both:
        both.collect({})
        before = [own['memory'].copy() for own in both.collector.stepper.row_states]
        assert all(own.any() for own in before)
        both.map.update(c='p')
        both.apply_map()
        after = [own['memory'] for own in both.collector.stepper.row_states]
        np.testing.assert_array_equal(after[0][[0, 2]], before[0])  # a
        assert (after[0][[1, 3]] == 0).all()  # c has another policy
        np.testing.assert_array_equal(after[1], before[1][[0, 2]])  # b
        both.collect({})


def test_the_map_of_restored_environments_changes_as_that_of_the_others():
    found = []
    for restored in (False, True):
        with MultiPolicyEnvs(EnvFactory(lambda **_: Walks('abc'), 2), {'p': ['a'], 'q': ['b', 'c']}) as envs:
            envs.reset(1)
            if restored:
                envs.restore(found[0][0])
            else:
                steps(envs, 1)
                found.append((envs.snapshot(),))
            envs.set_policy_mapping({'p': ['a', 'c'], 'q': ['b']})
            found.append([steps(envs, 1) for _ in range(9)])
    np.testing.assert_equal(found[1], found[2])


def test_snapshots_of_another_policy_mapping_are_refused_by_name():
    factory = EnvFactory(lambda **_: Walks('abc'), 2)
    with MultiPolicyEnvs(factory, {'p': ['a'], 'q': ['b', 'c']}) as envs:
        envs.reset(1)
        snapshot = envs.snapshot()
    with MultiPolicyEnvs(factory, {'p': ['a', 'b'], 'q': ['c']}) as others:
        others.reset(1)
        before = steps(others, 1)
        others.reset(1)
        with pytest.raises(ValueError, match=r'got policy p of a: 2 x .*, expected policy p of a, b: 4 x ') as refused:
            others.restore(snapshot)
        assert '; policy q of b, c: 4 x ' in str(refused.value)
        np.testing.assert_equal(steps(others, 1), before)


def test_each_environment_of_several_policies_can_be_copied():
    factory = EnvFactory(f'{HERE}:Leaving', 3)
    with MultiPolicyEnvs(factory, {'p': ['x', 'w'], 'q': ['y', 'z']}) as envs:
        envs.reset(1)
        steps(envs, 2)
        envs.pop_episodes()
        copies = envs.snapshot_each()
        expected = [steps(envs, 1) for _ in range(7)], envs.pop_episodes()
        envs.reset(5)
        steps(envs, 4)
        envs.restore_each(copies)
        np.testing.assert_equal(([steps(envs, 1) for _ in range(7)], envs.pop_episodes()), expected)


@EAGER
def test_a_person_trains_resumes_and_evaluates_by_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = {'env': f'{HERE}:Unlike', 'n-envs': 2, 'net': [8], 'seed': 1, 'max-steps': 300, 'policies': {
        'walkers': {'agent': 'ppo', 'agents': 'a_*', 'n-steps': 16, 'lr': 3e-4, 'ppo-epochs': 1, 'mini-batches': 1},
        'last': {key.replace('_', '-'): value for key, value in {**TD3, 'agents': 'z'}.items()},
    }}  # fmt: skip
    (tmp_path / 'team.yaml').write_text(yaml.safe_dump(file))
    assert execute('train', '--config', 'team.yaml', '--run-dir', 'run')[::2] == (0, '')
    saved = yaml.safe_load((tmp_path / 'run' / 'config.yaml').read_text())
    assert saved['agent'] == 'team' and saved['policies']['walkers']['lr'] == 3e-4
    assert execute('train', '--resume', 'run', '--max-steps', '600')[0] == 0
    code, stdout, _ = execute('evaluate', '--run-dir', 'run', '--episodes', '2', '--json')
    result = json.loads(stdout.splitlines()[-1])
    assert code == 0 and result['reward/z'] is not None and 'team_reward' in result
    assert execute('train', '--config', 'run/config.yaml', '--run-dir', 'again', '--max-steps', '300')[0] == 0
    rows = [yaml.safe_load((tmp_path / name / 'status.json').read_text())['steps'] for name in ('run', 'again')]
    assert rows[0] == 600 and 300 <= rows[1] < 350


WALKS = ['--env', f'{HERE}:Walks', '--max-steps', '100']
WRONG = {
    'no policy': ([], 'policies: got nothing, expected NAME=AGENT:AGENTS'),
    'nobody': (['--policies', 'x=ppo:c', 'y=ppo:*'], 'x: got c, expected agents of .*: a, b'),
    'both': (
        ['--policies', 'x=ppo:*', 'y=ppo:a'],
        'a of .* has the policies x and y, expected one policy for each of a, b',
    ),
    'left out': (['--policies', 'x=ppo:a'], 'b of .* has no policy, expected one policy for each of a, b'),
    'no such agent': (['--policies', 'x=pbo:*'], 'x: agent: got pbo, expected one of'),
    'no agent': (['--policies', 'x=*'], 'x: got no agents, expected NAME=AGENT'),
    'a path': (['--policies', '../x=ppo:*'], r'got \.\./x=ppo:\*, expected a name of letters, digits and _ before ='),
    'twice': (['--policies', 'x=ppo:a', 'x=ppo:b'], 'policies: got x twice, expected each name once'),
    'two flags': (['--policies', 'x=ppo:a', '--policies', 'x=ppo:b'], 'policies: got x twice'),
    'of data sets': (['--policies', 'x=bc:*'], 'x: agent: got bc, expected an agent that collects its own experience'),
    'a team': (['--policies', 'x=team:*'], 'x: agent: got team, expected an agent'),
    'unequal steps': (
        ['--policies', 'x=ppo:a', 'y=a2c:b'],
        'x collects 128 steps an iteration and y 5, expected equal',
    ),
    'overlap': (['--policies', 'x=ppo:*', '--overlap'], 'overlap: got true, but several policies learn here'),
    'continuous only': (['--policies', 'x=td3:*'], 'x: env: '),
    'one agent': (['--policies', 'x=ppo:*', '--env', 'CartPole-v1'], 'CartPole-v1 has one agent, expected'),
    'spaces': (['--policies', 'x=ppo:*', '--env', f'{HERE}:Unlike'], 'x has the agents a_0 and z, whose spaces differ'),
}


@pytest.mark.parametrize('words, message', WRONG.values(), ids=WRONG)
def test_what_does_not_go_is_refused_in_one_line(words, message, tmp_path):
    code, stdout, stderr = execute('train', 'team', *WALKS, *words, '--run-dir', str(tmp_path / 'run'))
    assert (code, stdout, len(stderr.splitlines())) == (2, '', 1) and not (tmp_path / 'run').exists()
    assert re.search(message, stderr), stderr


def test_an_option_that_a_policy_has_not_is_named():
    with pytest.raises(OptionError, match=r'policies: x: lrr: got 1, expected an option of ppo \(did you mean lr\?\)'):
        team(Walks, {'x': {'agent': 'ppo', 'agents': '*', 'lrr': 1}})


@EAGER
@pytest.mark.slow
def test_a_map_that_was_changed_is_kept_and_gone_on_with(tmp_path):
    policies = {name: {**ONCE, 'agents': own} for name, own in {'up': ['a', 'b'], 'down': 'c', 'alone': 'd'}.items()}

    def trained(folder, changes=True, split=False):
        def play(both, steps):
            for log in both.train_iter(max_steps=steps):
                if changes and log['steps'] == changed:
                    both.map.update(b='down')
            return {name: weights(member) for name, member in both.members.items()}

        given = {'env_kwargs': {'agents': list('abcd')}, 'n_envs': 1, 'schedule_steps': 300, 'final_episodes': 0}
        with contextlib.closing(team(f'{HERE}:Walks', policies, **given, run_dir=str(tmp_path / folder))) as both:
            ended = play(both, changed if split else 200)
        if split:
            with contextlib.closing(xagents.resume(str(tmp_path / folder), quiet=True)) as both:
                assert both.map == dict(zip('abcd', ('up', 'down', 'down', 'alone'), strict=True))
                ended = play(both, 200)
        return ended

    changed = 4 * (15 + 14)  # steps of two iterations: the others only reset
    whole, same = trained('whole'), trained('same', changes=False)
    assert not np.array_equal(whole['up'][0], same['up'][0])
    np.testing.assert_equal(whole['alone'], same['alone'])
    np.testing.assert_equal(trained('parts', split=True), whole)


@EAGER
def test_what_is_given_on_the_line_wins_over_a_policys_own_option(tmp_path):
    policies = {'x': {**ONCE, 'agents': 'a', 'lr': 1e-3}, 'y': {**ONCE, 'agents': 'b'}}
    with contextlib.closing(
        team(f'{HERE}:Walks', policies, schedule_steps=10**6, run_dir=str(tmp_path / 'run'))
    ) as both:
        both.fit(max_steps=90)
    with contextlib.closing(xagents.resume(str(tmp_path / 'run'), lr=5e-5, quiet=True)) as both:
        log = next(both.train_iter(max_steps=200))
    assert log['x/learning_rate'] == log['y/learning_rate'] and 4.9e-5 < log['x/learning_rate'] < 5e-5


@pytest.mark.parametrize(
    'policies, message',
    [
        ({'big-x': 'ppo:*'}, 'got the name big-x, expected letters, digits and _'),
        ({'seconds': 'ppo:*'}, 'got the name seconds'),
        ({1: 'ppo:*'}, 'got the name 1'),
        ({'x': {'agent': 'ppo', 'agents': {'a': 1}}}, 'x: got .*, expected NAME=AGENT:AGENTS'),
        ({'x': {'agent': 'ppo', 'agents': 0}}, 'x: got 0, expected agents of Walks: a, b'),
        ({'x': {'agent': 'ppo', 'agents': 'a, c'}}, 'x: got c, expected agents of Walks'),
        ({'x': 3}, 'x: got 3, expected NAME=AGENT:AGENTS'),
    ],
)
def test_policies_that_are_none_are_refused(policies, message):
    with pytest.raises(OptionError, match=message):
        xagents.make('team', Walks, policies=policies, quiet=True)


def test_a_member_acts_with_its_team_only():
    with contextlib.closing(team(Walks, {'x': {**PPO, 'agents': 'a'}, 'y': {**PPO, 'agents': 'b'}})) as both:
        member = both.members['x']
        with pytest.raises(OptionError, match='x acts with its team only'):
            member.evaluate(2)
        with pytest.raises(RuntimeError, match='no actions are set for b: a policy of a team steps together with its'):
            member.collect({})
        both.map['z'] = 'x'
        with pytest.raises(OptionError, match='map: got z, expected a, b'):
            both.evaluate(2)
        del both.map['z'], both.map['a']
        with pytest.raises(OptionError, match='map: a has no policy, expected one of x, y'):
            both.play()


@EAGER
def test_explorers_serve_a_team_and_change_nothing(tmp_path):
    def trained(n, first=300):
        given = {'explorers': n} if n else {}
        run = str(tmp_path / str(n))
        with contextlib.closing(team(run_dir=run, final_episodes=0, schedule_steps=1000, vector='sync')) as both:
            both.fit(max_steps=first, **given)
        with contextlib.closing(xagents.resume(run, quiet=True)) as both:  # in the midst of episodes
            logs = list(both.train_iter(max_steps=600, **given))
            kept = {name: weights(member) for name, member in both.members.items()}
            return kept, [log['mean_reward'] for log in logs], both.evaluate(2)

    alone = trained(0)
    for n in (1, 3):
        np.testing.assert_equal(trained(n), alone)


@EAGER
def test_the_map_stays_during_a_run_with_explorers():
    policies = {'p': {**ONCE, 'agents': 'a_0'}, 'q': {**ONCE, 'agents': ['a_1', 'z']}}
    kwargs = {'agents': ['a_0', 'a_1', 'z']}
    with contextlib.closing(team(f'{HERE}:Walks', policies, vector='sync', env_kwargs=kwargs)) as both:
        stream = both.train_iter(max_steps=1000, explorers=1)
        next(stream)
        both.map = {**both.map, 'a_1': 'p'}
        with pytest.raises(OptionError, match='cannot change during a run with explorers'):
            list(stream)
