"""Environments whose observations have images beside vectors."""

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 10


class TwoClues(gymnasium.Env):
    """The right one of four actions needs both parts: which half of the image is bright, and the sign of a number.

    The best return is 10; with one part alone it is 5 on average.

    Args:
        size: height and width of the image.
        images: number of images; only the first one is a clue.
        mask: whether two actions are masked, of which one is right.
        continuous: whether the action is a number, of which the quarter between -1 and 1 counts.
    """

    def __init__(self, size=12, images=1, mask=False, continuous=False):
        self.size, self.mask, self.continuous = size, mask, continuous
        parts = {f'camera{i or ""}': spaces.Box(0, 255, (size, size, 1), np.uint8) for i in range(images)}
        parts |= {'number': spaces.Box(-1, 1, (2,), np.float32), 'which': spaces.Discrete(3)}
        parts |= {'action_mask': spaces.MultiBinary(4)} if mask else {}
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(4)

    def draw(self):
        """Draw both clues."""
        self.bright, self.positive = (int(bit) for bit in self.np_random.integers(2, size=2))
        seen = {}
        for key, space in self.observation_space.spaces.items():
            if key.startswith('camera'):
                seen[key] = self.np_random.integers(0, 100, space.shape, np.uint8)
        half = slice(self.size // 2, None) if self.bright else slice(self.size // 2)
        seen['camera'][half] += 150
        number = self.np_random.uniform(0.2, 1) * (1 if self.positive else -1)
        seen['number'] = np.array([number, self.np_random.uniform(-1, 1)], np.float32)
        seen['which'] = int(self.np_random.integers(3))
        self.right = 2 * self.bright + self.positive
        if self.mask:
            seen['action_mask'] = np.zeros(4, np.int8)
            seen['action_mask'][[self.right, (self.right + 2) % 4]] = 1
            self.legal = seen['action_mask']
        return seen

    def reset(self, *, seed=None, options=None):
        """Start an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        """Reward the right action."""
        chosen = min(int((float(action[0]) + 1) * 2), 3) if self.continuous else int(action)
        if self.mask and not self.legal[chosen]:
            raise RuntimeError(f'{chosen} is illegal')
        self.t += 1
        reward = float(chosen == self.right)
        return self.draw(), reward, False, self.t >= STEPS, {}


gymnasium.register('TwoClues-v0', TwoClues)
