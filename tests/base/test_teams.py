"""Agents that learn one policy for several players in one environment."""

import contextlib
import hashlib
import json

import numpy as np
import pytest

import xagents
from tests.commands import execute
from tests.team_problems import Leaving, OwnNumber

HERE = 'pettingzoo:tests.team_problems'
OFF = {'buffer_max_size': 2000, 'learning_starts': 100, 'buffer_batch_size': 16, 'train_frequency': 48}
OFF |= {'gradient_steps': 1}
AGENTS = {
    'acer': {'n_steps': 4, 'buffer_max_size': 2000, 'learning_starts': 100, 'replay_ratio': 1.0},
    **{'ppo': {'n_steps': 8, 'ppo_epochs': 1, 'mini_batches': 2}, 'dqn': OFF, 'td3': OFF},
}


def make(name, problem='Leaving', **options):
    kwargs = {'env_kwargs': {'continuous': True}} if name == 'td3' else {}
    given = {'n_envs': 3, 'net': [8], 'seed': 1, 'quiet': True, **AGENTS[name], **kwargs, **options}
    return xagents.make(name, f'{HERE}:{problem}', **given)


def digest(agent):
    weights = [w.tobytes() for model in agent.output_models for w in model.get_weights()]
    return hashlib.sha256(b''.join(weights)).hexdigest(), agent.steps, agent.games


@pytest.mark.usefixtures('without_xla')
@pytest.mark.parametrize('index, expected', [(True, 19 / 3), pytest.param(False, 8 / 3, marks=pytest.mark.slow)])
def test_each_plays_its_own_number_only_where_it_sees_who_it_is(index, expected):
    agent = xagents.make(
        'ppo', OwnNumber, n_envs=4, agent_index=index, net=[32], n_steps=32, lr=3e-3, seed=1, quiet=True
    )
    with contextlib.closing(agent):
        logs = list(agent.train_iter(max_steps=12_000))
        result = agent.evaluate(episodes=6)
    assert result['mean'] == pytest.approx(expected)
    own = [result[f'reward/a_{i}'] for i in range(3)]
    assert sum(own) == result['team_reward'] == pytest.approx(3 * expected)
    assert own == [8.0, 3.0, 8.0] or not index
    teams = [log['team_reward'] for log in logs if 'team_reward' in log]
    assert len(teams) > 20 and 3 * expected - 1 < np.mean(teams[-10:]) <= 3 * expected + 0.5


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name', AGENTS)
@pytest.mark.slow
def test_an_agent_of_each_kind_goes_on_to_the_bit(name, tmp_path):
    def trained(steps, folder, **more):
        with contextlib.closing(make(name, run_dir=str(tmp_path / folder), final_episodes=0)) as agent:
            agent.fit(max_steps=steps, **more)
            return digest(agent)

    expected = trained(300, 'whole')
    trained(200, 'parts')
    with contextlib.closing(xagents.resume(str(tmp_path / 'parts'), quiet=True)) as agent:
        updates = agent.context.updates
        agent.fit(max_steps=300)
        assert digest(agent) == expected and 0 < updates < agent.context.updates
    if name == 'ppo':
        assert trained(300, 'explorers', explorers=1) == expected


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name, options', [('dqn', {'n_step': 1}), ('dqn', {'n_step': 3}), ('td3', {'n_step': 2})])
def test_what_is_drawn_happened_to_one_agent_within_one_episode(name, options):
    """Agent i of `Leaving` sees (step, i, …) and gets i + 1 a step; it is gone after i + 2 steps, the last is cut."""
    gamma, n_step = 0.5, options['n_step']
    with contextlib.closing(make(name, gamma=gamma, **{**options, 'learning_starts': 1500})) as agent:
        agent.fit(max_steps=1500)
        drawn = {name: np.array(column) for name, column in agent.buffer.sample(40, np.random.default_rng(0)).items()}
    names = ('observations', 'rewards', 'discounts', 'next_observations')
    columns = [drawn[name].reshape(-1, *drawn[name].shape[2:]) for name in names]
    assert len(columns[0]) == 40 * OFF['buffer_batch_size']
    short = 0
    for before, reward, discount, later in zip(*columns, strict=True):
        step, number, m = int(before[0]), int(before[1]), int(later[0] - before[0])
        longest = min(n_step, number + 2 - step)  # until it is gone
        short += m < longest  # the newest ones have no more steps yet
        assert later[1] == number and 1 <= m <= longest
        assert reward == pytest.approx(sum(gamma**k * (number + 1) for k in range(m)))
        gone = number < 3 and step + m == number + 2
        assert discount == (0.0 if gone else pytest.approx(gamma**m))
    assert short < 0.05 * len(columns[0])


def test_agents_in_another_order_are_other_rows():
    class Backwards(Leaving):
        def reset(self, seed=None, options=None):
            seen, infos = super().reset(seed, options)
            return dict(reversed(seen.items())), infos

        def step(self, actions):
            return tuple(dict(reversed(part.items())) for part in super().step(actions))

    rollouts = []
    for env in (Leaving, Backwards):
        with contextlib.closing(xagents.make('a2c', env, n_envs=2, n_steps=12, net=[8], seed=1, quiet=True)) as agent:
            rollouts.append({name: np.array(column) for name, column in agent.collect({}).items()})
    np.testing.assert_equal(rollouts[1], rollouts[0])  # a dict's order says nothing


@pytest.mark.usefixtures('eager')
def test_a_person_trains_plays_evaluates_and_exports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = ['--env', f'{HERE}:OwnNumber']
    words = '--n-envs 4 --agent-index --n-steps 16 --ppo-epochs 1 --max-steps 600 --seed 1 --run-dir run'
    code, stdout, stderr = execute('train', 'ppo', *here, *words.split())
    assert (code, stderr) == (0, '')
    assert '4 environments of 3 agents (a_0, a_1, a_2); steps and episodes are those of agents' in stdout
    code, stdout, _ = execute('evaluate', 'ppo', '--run-dir', 'run', '--episodes', '5')
    assert code == 0 and ', 5 episodes, all agents together ' in stdout and '(a_0 ' in stdout
    result = json.loads(execute('evaluate', 'ppo', '--run-dir', 'run', '--episodes', '5', '--json')[1])
    assert result['team_reward'] == pytest.approx(3 * result['mean'])
    code, stdout, _ = execute('play', 'ppo', '--run-dir', 'run', '--video-dir', 'videos')
    first, second, _ = stdout.splitlines()
    reward, length = first.removeprefix('Episode reward: ').split(', steps: ')
    each = [float(part.split()[1]) for part in second.partition(': ')[2].split(', ')]
    assert code == 0 and length == '8' and float(reward) == sum(each) and len(each) == 3
    assert len(list((tmp_path / 'videos').glob('*.mp4'))) == 1
    code, stdout, stderr = execute('export', 'ppo', '--run-dir', 'run', '--format', 'numpy', '--out', 'policy')
    assert (code, stderr) == (0, ''), stdout
    code, stdout, stderr = execute(
        'play', 'ppo', '--run-dir', 'run', '--env', f'{HERE}:Undrawn', '--video-dir', 'videos'
    )
    assert (code, stdout) == (2, '') and 'Undrawn draws no pictures, expected environments that do' in stderr
