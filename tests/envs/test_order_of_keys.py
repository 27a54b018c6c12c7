"""Dicts whose keys have another order: Gymnasium regards them as equal, and agents encode them alike."""

import gymnasium
import numpy as np
from gymnasium import spaces

import xagents
from xagents.envs.create import create_envs
from xagents.envs.spaces import ActionDecoder

NUMBER, PAIR = spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-1, 1, (2,), np.float32)


class Ordered(gymnasium.Env):
    """Shows three numbers in a Dict of an own order; actions are Dicts, too."""

    def __init__(self, keys='zam'):
        parts = {'z': NUMBER, 'a': PAIR, 'm': spaces.Dict([(key, NUMBER) for key in keys if key != 'm'])}
        self.observation_space = spaces.Dict([(key, parts[key]) for key in keys])
        acts = {'z': spaces.Discrete(2), 'a': NUMBER, 'm': spaces.MultiBinary(2)}
        self.action_space = spaces.Dict([(key, acts[key]) for key in keys])

    def shown(self):
        inner = {key: np.float32([5]) for key in self.observation_space['m']}
        values = {'z': np.float32([1]), 'a': np.float32([2, 3]), 'm': inner}
        return {key: values[key] for key in self.observation_space}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.shown(), 0.0, True, False, {}


def test_observations_and_actions_do_not_depend_on_the_order_of_keys():
    encoded, decoded = [], []
    for keys in ('zam', 'maz'):
        with create_envs(lambda keys=keys: Ordered(keys), 2) as envs:
            encoded.append(envs.reset(0))
            decoded.append(ActionDecoder(envs.action_space)(np.float32([[0.5, 1, 0, 1]])))
    np.testing.assert_array_equal(*encoded)
    assert encoded[0][0].tolist()[:2] == [2, 3] and encoded[0][0][-1] == 1
    assert decoded[0]['m'].tolist() == decoded[1]['m'].tolist() == [[1, 0]] and decoded[0]['z'].tolist() == [1]
    for one in decoded:
        np.testing.assert_allclose(one['a'], [[0.5]])


def test_a_policy_acts_alike_in_an_environment_of_another_order(tmp_path):
    agent = xagents.make('ppo', lambda: Ordered('zam'), net=[8], n_envs=2, n_steps=8, seed=1, quiet=True)
    agent.fit(max_steps=32, final_episodes=0)
    agent.save(tmp_path / 'run')
    other = xagents.load(tmp_path / 'run', env=lambda: Ordered('maz'))
    seen = agent.envs.encoder.raw_space.sample()
    for own, loaded in zip(agent.act(seen).items(), other.act(dict(reversed(seen.items()))).items(), strict=True):
        np.testing.assert_equal(own, loaded)
    agent.close()
    other.close()
