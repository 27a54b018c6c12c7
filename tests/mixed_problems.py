"""Environments whose actions are Dicts and Tuples, and whose best return is known."""

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.system.trees import leaf_at, leaf_spaces

BOX = spaces.Box(-2, 4, (2,), np.float32)
NESTINGS = {
    'tuple': spaces.Tuple((spaces.Discrete(3, start=5), BOX)),
    'dict': spaces.Dict(aim=BOX, fire=spaces.MultiBinary(2)),
    'no numbers': spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 3]))),
    'only numbers': spaces.Dict(a=BOX, b=spaces.Box(0, 1, (1,), np.float64)),
    'nested': spaces.Dict(
        arm=spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Dict(grip=BOX))),
        base=spaces.Discrete(4),
        lamp=spaces.MultiBinary(2),
    ),
}
STEPS = 8


class Mixed(gymnasium.Env):
    """Shows an action and rewards each part of it that the agent repeats. The best return is 8.

    Args:
        nesting: key in `NESTINGS`.
    """

    def __init__(self, nesting='nested'):
        self.action_space = NESTINGS[nesting]
        self.leaves = leaf_spaces(self.action_space)
        self.sizes = [spaces.flatdim(leaf) for _, leaf in self.leaves]
        self.observation_space = spaces.Box(-4, 4, (sum(self.sizes),), np.float32)

    def draw(self):
        """Draw an action and return it as a flat observation."""
        self.action_space.seed(int(self.np_random.integers(2**31)))
        self.wanted = self.action_space.sample()
        flat = [spaces.flatten(leaf, leaf_at(self.wanted, path)) for path, leaf in self.leaves]
        return np.concatenate(flat, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        """Start an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        """Reward the nearness of the action to the one that was shown."""
        assert self.action_space.contains(action), f'{action} is not in {self.action_space}'
        rewards = []
        for path, leaf in self.leaves:
            taken, wanted = np.asarray(leaf_at(action, path), float), np.asarray(leaf_at(self.wanted, path), float)
            if isinstance(leaf, spaces.Box):
                rewards.append(1 - np.abs(taken - wanted).mean() / (leaf.high - leaf.low).max())
            else:
                rewards.append(np.mean(taken == wanted))
        self.t += 1
        return self.draw(), float(np.mean(rewards)), False, self.t >= STEPS, {}


class Tools(gymnasium.Env):
    """Choose the tool for a task and turn it to the angle that this task needs. The best return is 10.

    A wrong tool earns nothing. The right tool earns 0.3, and up to 0.7 more for its angle.

    Args:
        angle: whether the agent chooses the angle; otherwise it is 0.
        tool: whether the agent chooses the tool; otherwise it is the first.
    """

    ANGLES = np.array([-0.6, 0.1, 0.7])

    def __init__(self, angle=True, tool=True):
        parts = {'angle': spaces.Box(-1, 1, (1,), np.float32)} if angle else {}
        parts |= {'tool': spaces.Discrete(3)} if tool else {}
        self.action_space = spaces.Dict(parts)
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)

    def draw(self):
        """Draw a task."""
        self.task = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.task]

    def reset(self, *, seed=None, options=None):
        """Start an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        """Reward the right tool at the right angle."""
        angle, tool = float(action.get('angle', [0.0])[0]), int(action.get('tool', 0))
        near = max(0.0, 1 - abs(angle - self.ANGLES[self.task]))
        reward = (0.3 + 0.7 * near) if tool == self.task else 0.0
        self.t += 1
        return self.draw(), reward, False, self.t >= 10, {}


gymnasium.register('Mixed-v0', Mixed)
gymnasium.register('Tools-v0', Tools)
