"""The memory of policies while collecting, evaluating and acting: carried within episodes, forgotten between them."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.memory_problems import Recall
from xagents.base import OnPolicy
from xagents.ppo.agent import PPO


class Walk(gymnasium.Env):
    """Shows the step of the episode; episodes end after 4 steps, terminated or truncated in turn."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.t += 1
        done = self.t == 4
        even = self.episode % 2 == 0
        return np.array([self.t + 1], np.float32), 1.0, done and even, done and not even, {}


def make(env=Walk, **options):
    return xagents.make('ppo', env, **{'n_envs': 3, 'n_steps': 13, 'net': [4], 'memory': 4, 'seed': 1, **options})


@pytest.mark.parametrize('kind', ['gru', 'lstm'])
def test_rollouts_contain_the_memory_before_each_step(kind):
    with contextlib.closing(make(memory_kind=kind)) as agent:
        memory = np.zeros((3, agent.acting_policy.memory_units), np.float32)
        for _ in range(3):
            rollout = {name: np.array(x) for name, x in agent.collector.collect(13).items()}
            assert not rollout['valid'].all()
            for t in range(13):
                np.testing.assert_array_equal(rollout['memory'][t], memory)
                memory = np.array(agent.actor(rollout['observations'][t], None, memory)[-1])
                memory = memory * rollout['valid'][t][:, None]
                starts = ~rollout['valid'][t]
                assert (memory[starts] == 0).all() and (memory[~starts] != 0).any(1).all()
            np.testing.assert_array_equal(rollout['memory'][13], memory)


def test_rollouts_without_memory_have_no_such_column():
    with contextlib.closing(make(memory=None)) as agent:
        assert 'memory' not in agent.collector.collect(5)


def test_a_state_contains_the_memory():
    with contextlib.closing(make()) as agent, contextlib.closing(make(seed=2)) as other:
        agent.collector.collect(6)
        arrays, record = agent.collector.state()
        assert np.abs(arrays['memory']).max() > 0
        assert other.collector.load(arrays, record)
        for own in (agent, other):
            own.actor.sync(agent.actor.published_weights)
        expected = {name: np.array(x) for name, x in agent.collector.collect(7).items()}
        for name, x in other.collector.collect(7).items():
            np.testing.assert_array_equal(x, expected[name])


def episodes(act, reset, n=6):
    """Return the actions of episodes of `Recall` with a policy of single observations."""
    env, found = Recall(3), []
    for seed in range(n):
        observation, _ = env.reset(seed=seed)
        reset()
        done = False
        while not done:
            found.append(int(act(observation)))
            observation, _, done, *_ = env.step(found[-1])
    return found


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Return an agent that has learned a little, and its run directory."""
    folder = tmp_path_factory.mktemp('runs') / 'run'
    agent = make('tests.memory_problems:Recall-v0', env_kwargs={'delay': 3}, lr=0.02, n_envs=8)
    agent.fit(max_steps=1500, quiet=True, run_dir=str(folder), final_episodes=0)
    yield agent, folder
    agent.close()


def test_agents_and_their_policies_act_alike_over_episodes(trained):
    agent, folder = trained
    policy = xagents.policy(folder, checkpoint='last')
    expected = episodes(agent.act, agent.reset_memory)
    assert episodes(policy, policy.reset) == expected
    assert len({*expected}) == 2
    for actor in (agent, policy):
        memory = {}

        def act(observation, actor=actor, memory=memory):
            starts = np.array([memory.pop('starts', False)])
            actions, memory['state'] = actor.predict(observation[None], memory.get('state'), starts, deterministic=True)
            return actions[0]

        assert episodes(act, lambda memory=memory: memory.update(starts=True)) == expected


def test_rows_are_reset_one_by_one(trained):
    agent, folder = trained
    policy = xagents.policy(folder, checkpoint='last')
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    for t in range(2):
        policy(seen[t])
    before = policy._memory.state.copy()
    policy.reset(rows=[1])
    np.testing.assert_array_equal(policy._memory.state[[0, 2]], before[[0, 2]])
    assert (policy._memory.state[1] == 0).all()
    policy.reset(rows=np.array([True, False, False]))
    assert (policy._memory.state[:2] == 0).all()
    with pytest.raises(ValueError, match='got 2 rows, expected the 3 rows of the calls since the last reset'):
        policy(seen[0, :2])
    policy.reset()
    policy(seen[0, :2])
    with pytest.raises(ValueError, match='got 3 rows'):
        agent.reset_memory()
        agent.act(seen[0, :2])
        agent.act(seen[0])
    agent.reset_memory()


def test_evaluations_begin_each_episode_without_memory(trained):
    agent, folder = trained
    results = [agent.evaluate(episodes=16, seed=5, n_envs=n) for n in (16, 16, 4)]
    assert results[0] == results[1]
    # rows in the middle of episodes, and the memory of `act`, do not change evaluations
    agent.collector.collect(3)
    agent.act(np.zeros((8, 3), np.float32))
    assert agent.evaluate(episodes=16, seed=5, n_envs=16) == results[0]
    agent.reset_memory()
    policy = xagents.policy(folder, checkpoint='last')
    envs = agent.envs.recreate(4)
    with envs:
        observations, rewards = envs.reset(5), []
        while len(rewards) < 8:
            valid = np.array(envs.valid)
            observations = envs.step(policy(observations))[0]
            policy.reset(rows=~valid)
            rewards += [episode.reward for episode in envs.pop_episodes()]
    assert np.mean(rewards) == agent.evaluate(episodes=8, seed=5, n_envs=4)['mean']


def test_a_policy_of_a_method_returns_its_memory():
    class Remembers(PPO):
        def policy(self, observations, noise, memory=None, **schedule):
            return super().policy(observations, noise, memory=memory, **schedule)

    class Forgets(PPO):
        def policy(self, observations, noise):
            columns = dict(super().policy(observations, noise))
            columns.pop('memory')
            return columns

    assert issubclass(Remembers, OnPolicy)
    results = []
    for cls in (PPO, Remembers, Forgets):
        with contextlib.closing(make()) as source:
            agent = cls(source.envs, source.model, n_steps=8, seed=1)
            if cls is Forgets:
                with pytest.raises(
                    TypeError, match=r'Forgets\.policy returned no memory, expected an argument `memory`'
                ):
                    agent.fit(max_steps=24, quiet=True, run_dir='none')
                continue
            agent.fit(max_steps=48, quiet=True, run_dir='none', final_episodes=0)
            results.append([w.tobytes() for w in agent.model.get_weights()])
    assert results[0] == results[1]


def test_steps_without_acting_keep_the_memory_within_episodes():
    with contextlib.closing(make()) as agent:
        collector = agent.collector
        collector.collect(2)
        before = collector.stepper.row_states[0]['memory'].copy()
        collector.step(np.zeros(3, np.int64))
        np.testing.assert_array_equal(collector.stepper.row_states[0]['memory'], before)
        collector.step(np.zeros(3, np.int64))  # the last step of the episode
        collector.step(np.zeros(3, np.int64))
        assert (collector.stepper.row_states[0]['memory'] == 0).all()


def test_exports_are_compared_over_whole_episodes_and_keep_the_memory_of_act():
    from xagents.export.check import collect_observations

    with contextlib.closing(make('Pendulum-v1')) as agent:
        agent.act(np.zeros((2, 3), np.float32))
        before = agent._memory.state.copy()
        batch, starts = collect_observations(agent)
        assert len(batch) == len(starts) > 200 and starts[0] and starts[1:].any()
        np.testing.assert_array_equal(agent._memory.state, before)
