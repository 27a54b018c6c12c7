"""Acting and learning see the same numbers, whatever observations are and however they are normalised."""

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.problems import Arbitrary

pytestmark = pytest.mark.usefixtures('eager')


@pytest.mark.parametrize(
    ('shape', 'dtype', 'normalised'),
    [
        ((5,), np.float64, True),
        ((5,), np.uint8, False),
        ((36, 36, 1), np.uint8, False),
        ((36, 36, 1), np.uint8, True),
    ],
)
def test_the_actor_and_the_critic_agree_with_the_model(shape, dtype, normalised):
    space = spaces.Box(0, 255 if dtype == np.uint8 else 1.0, shape, dtype)
    agent = xagents.make(
        'ppo', lambda: Arbitrary(space, spaces.Discrete(2)), n_envs=2, n_steps=4, seed=1, normalize_obs=normalised,
        ppo_epochs=1, mini_batches=1,
    )  # fmt: skip
    agent.fit(max_steps=16, quiet=True)
    raw = np.stack([space.sample() for _ in range(6)])
    prepared = agent.statistics.prepare(agent.envs.encoder(raw))
    outputs, values = agent.evaluate_actions(prepared)
    np.testing.assert_allclose(agent.actor(prepared)[0], outputs[0], atol=1e-5)
    critic = agent.values(prepared.reshape(3, 2, *prepared.shape[1:]))
    np.testing.assert_allclose(critic, np.reshape(values, (3, 2)), atol=1e-4, rtol=1e-4)
    np.testing.assert_array_equal(agent.act(raw), np.argmax(outputs[0], -1))
    if dtype == np.uint8 and not normalised:
        scaled = agent.model(prepared.astype(np.float32) / 255)[0]
        np.testing.assert_allclose(outputs[0], scaled, atol=1e-5)
