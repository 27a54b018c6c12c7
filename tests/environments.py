"""Tiny environments of known behaviour; `--env tests.environments:Counter-v0` registers and makes one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Shows how many steps the episode is old, and ends after `length` of them.

    Args:
        length: steps an episode.
        end: 'terminate' or 'truncate'.
        reward: of each step.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 30}
    observation_space: spaces.Space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, length: int = 5, end: str = 'terminate', reward: float = 1.0, render_mode: str | None = None):
        self.length, self.end, self.rewarded, self.render_mode = length, end, reward, render_mode
        self.age = 0
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.age = 0
        return self.observation(), {}

    def step(self, action):
        self.actions.append(action)
        self.age += 1
        over = self.age >= self.length
        terminate = self.end == 'terminate'
        return self.observation(), self.rewarded, over and terminate, over and not terminate, self.info()

    def observation(self) -> Any:
        return np.array([self.age], np.float32)

    def info(self) -> dict[str, Any]:
        return {}

    def render(self):
        return np.full((32, 32, 3), self.age, np.uint8)


class Drawn(Counter):
    """A Counter whose observations are random numbers: equal streams mean equal seeds."""

    def observation(self):
        return self.np_random.random(1).astype(np.float32)


class Composite(Counter):
    """A Counter that shows a Dict: its age one-hot, and its age and half of it."""

    observation_space = spaces.Dict({'age': spaces.Discrete(100), 'both': spaces.Box(0, 100, (2,), np.float64)})

    def observation(self):
        return {'age': self.age, 'both': np.array([self.age, self.age / 2])}


class Tuples(Counter):
    """A Counter that shows a Tuple of its age and its parity."""

    observation_space = spaces.Tuple((spaces.Box(0, 100, (1,), np.float32), spaces.MultiBinary(1)))

    def observation(self):
        return np.array([self.age], np.float32), np.array([self.age % 2], np.int8)


class Image(Counter):
    """A Counter that shows its age as the brightness of an image, channels last or first, or grey."""

    def __init__(self, shape: tuple[int, ...] = (12, 10, 3), **options: Any):
        super().__init__(**options)
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)

    def observation(self):
        return np.full(self.observation_space.shape, self.age, np.uint8)


class OddBox(Counter):
    """A Counter whose actions have odd bounds: ordinary, one-sided, none; it keeps them in `actions`."""

    action_space = spaces.Box(
        np.array([-2, 0.5, -np.inf], np.float32), np.array([7, np.inf, np.inf], np.float32), dtype=np.float32
    )


class Success(Counter):
    """A Counter that says in its last info whether its seed's first number was above a half."""

    def observation(self):
        if not self.age:
            self.won = bool(self.np_random.random() > 0.5)
        return super().observation()

    def info(self):
        return {'is_success': self.won}


class Achieved(Success):
    """A Success under the other name; `is_success` is no truth value."""

    def info(self):
        return {'is_success': 'nobody knows', 'success': self.won}


class Worded(Counter):
    """A Counter that shows a text, which nobody can encode."""

    observation_space = spaces.Text(5)

    def observation(self):
        return 'abc'


class Scaled(gymnasium.RewardWrapper):
    """Multiplies rewards by 100."""

    def reward(self, reward):
        return 100 * reward


class Impatient(gymnasium.Wrapper):
    """Truncates after two steps by itself."""

    def reset(self, **arguments):
        self.age = 0
        return self.env.reset(**arguments)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.age += 1
        return observation, reward, terminated, truncated or self.age == 2, info


class Endless(Impatient):
    """Truncates after two steps, and never resets what it wraps: the game goes on below it."""

    started = False

    def reset(self, **arguments):
        self.age = 0
        if not self.started:
            self.started = True
            return self.env.reset(**arguments)
        return self.env.unwrapped.observation(), {}


def register() -> None:
    """Registers all of them with Gymnasium, once."""
    classes = (Counter, Drawn, Composite, Tuples, Image, OddBox, Success, Achieved, Worded)
    for environment in classes:
        id = f'{environment.__name__}-v0'
        if id not in gymnasium.registry:
            gymnasium.register(id, f'{__name__}:{environment.__name__}')


register()
