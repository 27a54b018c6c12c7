"""Environments with action masks, whose best return is known."""

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 10


class TwoLegal(gymnasium.Env):
    """Of n actions, two are legal in each state; a bit of the observation names the better one. The best return is 10.

    An illegal action raises an error, except in the step after the last one, which no environment takes.

    Args:
        n: number of actions.
        where: 'observation' or 'info', the place of the mask; 'nowhere' for no mask.
        several: whether an action consists of two choices with a mask each.
        key: the key of the mask.
        dtype: the dtype of the mask.
        none_at: the step after which no action is legal.
    """

    def __init__(self, n=40, where='observation', several=False, key='action_mask', dtype=np.int8, none_at=None):
        self.n, self.where, self.key, self.none_at = n, where, key, none_at
        self.k = 2 if several else 1
        bit = spaces.Box(0, 1, (self.k,), np.float32)
        mask = spaces.Box(0, 1, (n * self.k,), dtype)
        self.observation_space = spaces.Dict({key: mask, 'bit': bit}) if where == 'observation' else bit
        self.action_space = spaces.MultiDiscrete([n, n]) if several else spaces.Discrete(n)

    def state(self):
        """Draw the legal actions and return observation and info."""
        self.legal = [np.sort(self.np_random.choice(self.n, 2, replace=False)) for _ in range(self.k)]
        self.bits = self.np_random.integers(2, size=self.k)
        masks = np.zeros((self.k, self.n), np.int8)
        if self.t not in (STEPS, self.none_at):
            for mask, legal in zip(masks, self.legal, strict=True):
                mask[legal] = 1
        bits, mask = self.bits.astype(np.float32), masks.ravel()
        if self.where == 'observation':
            return {self.key: mask.astype(self.observation_space[self.key].dtype), 'bit': bits}, {}
        return bits, {self.key: mask} if self.where == 'info' else {}

    def reset(self, *, seed=None, options=None):
        """Start an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self.state()

    def step(self, action):
        """Reward a choice of the better legal action."""
        choices = np.atleast_1d(action)
        for choice, legal in zip(choices, self.legal, strict=True):
            if choice not in legal:
                raise RuntimeError(f'{choice} is illegal, expected one of {legal}')
        pairs = zip(choices, self.legal, self.bits, strict=True)
        reward = float(np.mean([choice == legal[bit] for choice, legal, bit in pairs]))
        self.t += 1
        observation, info = self.state()
        return observation, reward, False, self.t >= STEPS, info


gymnasium.register('TwoLegal-v0', TwoLegal)
