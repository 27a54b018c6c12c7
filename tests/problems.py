"""Environments whose best policy, or whose value, is known."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Identity(gymnasium.Env):
    """The best action repeats what is shown; the best episode of 10 steps earns 10 (Box: nearly 0).

    Args:
        kind: Discrete, MultiDiscrete, MultiBinary or Box.
        image: show it as a column of an image.
    """

    def __init__(self, kind='Discrete', image=False):
        self.kind, self.image = kind, image
        self.action_space = {
            'Discrete': spaces.Discrete(3, start=1),
            'MultiDiscrete': spaces.MultiDiscrete([3, 2]),
            'MultiBinary': spaces.MultiBinary(3),
            'Box': spaces.Box(np.float32([-2.0]), np.float32([6.0])),
        }[kind]
        self.observation_space = spaces.Box(-2, 6, (3,), np.float32)
        if image:
            self.observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self._show(), {}

    def step(self, action):
        self.age += 1
        if self.kind == 'Box':
            reward = -float(np.abs(action - self.target).sum()) / 4
        else:
            reward = float(np.all(action == self.target))
        return self._show(), reward, False, self.age == 10, {}

    def _show(self):
        rng = self.np_random
        shown = np.zeros(3, np.float32)
        if self.kind == 'Discrete':
            self.target = 1 + rng.integers(3)
            shown[self.target - 1] = 1
        elif self.kind == 'MultiDiscrete':
            self.target = rng.integers([3, 2])
            shown[:2] = self.target - 1
        elif self.kind == 'MultiBinary':
            self.target = rng.integers(0, 2, 3).astype(np.int8)
            shown[:] = self.target
        else:
            self.target = rng.uniform(-1, 5, 1).astype(np.float32)
            shown[:1] = (self.target - 2) / 3
        if not self.image:
            return shown
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[:, 12 * int(self.target - 1) : 12 * int(self.target)] = 255
        return picture


class Constant(gymnasium.Env):
    """Reward 1 a step, and one observation for ever.

    Truncated after `length` steps, its value is 1 / (1 − γ); terminated with probability `p`, 1 / (1 − γ (1 − p)).
    """

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=5, p=0.0):
        self.length, self.p = length, p

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.age += 1
        terminated = self.p > 0 and self.np_random.random() < self.p
        return np.ones(1, np.float32), 1.0, terminated, self.age == self.length and not terminated, {}


class ConstantVector(gymnasium.vector.VectorEnv):
    """Constant as a vector environment of its own, in NEXT_STEP mode."""

    metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs, length=5):
        self.num_envs, self.length = num_envs, length
        self.single_observation_space, self.single_action_space = Constant.observation_space, Constant.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.ages = np.zeros(self.num_envs, int)
        return np.ones((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        over = self.ages == self.length  # this step only resets
        self.ages = np.where(over, 0, self.ages + 1)
        truncated = self.ages == self.length
        none = np.zeros(self.num_envs, bool)
        return np.ones((self.num_envs, 1), np.float32), np.where(over, 0.0, 1.0), none, truncated, {}


gymnasium.register('Identity-v0', entry_point='tests.problems:Identity')
gymnasium.register('Constant-v0', entry_point='tests.problems:Constant')


class Arbitrary(gymnasium.Env):
    """Observations and rewards are drawn, of any spaces; a reward has the sum of the action in it.

    Args:
        observation_space: from which observations are drawn.
        action_space: of any kind.
        length: steps of an episode, which is then truncated.
    """

    def __init__(self, observation_space, action_space, length=7):
        self.observation_space, self.action_space, self.length = observation_space, action_space, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.age += 1
        reward = float(self.np_random.normal() + np.sum(action))
        return self.observation_space.sample(), reward, False, self.age == self.length, {}


class Patience(gymnasium.Env):
    """One state. To wait earns 1 and goes on, but not beyond `limit` steps; to stop earns 6 and terminates.

    With a Box, an action a from −1 to 1 stops with probability (1 + a) / 2.

    With γ = 0.9, to wait for ever is worth 1 / (1 − γ) = 10, more than the 6 of stopping, and a limit that truncates
    changes nothing of that: Q(wait) = 1 + γ max(10, 6) = 10. Where the limit terminates, a wait is the last one with
    probability e, and Q(wait) = 1 + γ (1 − e) max(Q(wait), 6) = 1 + 5.4 (1 − e). With a limit of 1, e = 1 and it is 1.
    With a limit of 2 and actions drawn evenly, two waits of three are the first of their episode, e = 1/3 and it is
    4.6. Both are less than 6: to stop is right then. What a truncation is taken for decides the action.

    Args:
        end: what the limit does: 'truncate' or 'terminate'.
        limit: steps.
        kind: of the actions: Discrete (0 waits, 1 stops) or Box.
    """

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, end='truncate', limit=2, kind='Discrete'):
        self.end, self.limit = end, limit
        self.action_space = spaces.Discrete(2) if kind == 'Discrete' else spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.age += 1
        discrete = isinstance(self.action_space, spaces.Discrete)
        stops = bool(action == 1 if discrete else self.np_random.random() < (1 + float(action[0])) / 2)
        over = self.age == self.limit and not stops
        terminated = stops or (over and self.end == 'terminate')
        return np.ones(1, np.float32), 6.0 if stops else 1.0, terminated, over and not terminated, {}


gymnasium.register('Patience-v0', entry_point='tests.problems:Patience')


class Anything(gymnasium.Env):
    """Shows random numbers or images; a reward is 1, and with `noise` also depends on the action and on chance.

    Args:
        shown: 'vector' [3], or 'image' [36, 36, 1].
        actions: 'discrete', of three, 'continuous', of two numbers, or 'binary', of three choices.
        length: steps of an episode.
        end: of an episode: 'terminate', 'truncate', or 'either' at random.
        noise: factor on the part of the reward that varies.
    """

    def __init__(self, shown='vector', actions='discrete', length=5, end='either', noise=1.0):
        self.length, self.end, self.noise = length, end, noise
        self.observation_space = (
            spaces.Box(-5, 5, (3,), np.float32) if shown == 'vector' else spaces.Box(0, 255, (36, 36, 1), np.uint8)
        )
        low, high = np.float32([-2, 0.5]), np.float32([6, 1.25])
        kinds = {'discrete': spaces.Discrete(3), 'continuous': spaces.Box(low, high), 'binary': spaces.MultiBinary(3)}
        self.action_space = kinds[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.age += 1
        over = self.age == self.length
        terminated = over and (self.np_random.random() < 0.5 if self.end == 'either' else self.end == 'terminate')
        reward = 1.0 + self.noise * (float(np.sum(action)) + self.np_random.normal())
        return self._show(), reward, terminated, over and not terminated, {}

    def _show(self):
        space = self.observation_space
        if space.dtype == np.uint8:
            return self.np_random.integers(0, 256, space.shape, np.uint8)
        return self.np_random.normal(size=space.shape).clip(-5, 5).astype(np.float32)


gymnasium.register('Anything-v0', entry_point='tests.problems:Anything')
