"""ε by environment: the share of random actions is that of the paper, and explorers need not know of it."""

import numpy as np
import pytest

from xagents.collecting.policies import EpsilonGreedyPolicy


class Zero:
    """Says that action 0 is best."""

    def __call__(self, observations):
        return [np.tile(np.float32([1, 0, 0, 0, 0]), (len(observations), 1))]


@pytest.mark.parametrize(('n_envs', 'epsilon'), [(1, 0.4), (4, 0.4), (8, 0.7), (8, 1.0), (4, 0.0)])
def test_each_environment_has_an_epsilon_of_its_own(n_envs, epsilon):
    policy = EpsilonGreedyPolicy(Zero(), 5, 0.02, ladder=True)
    noise = policy.draw_exploration(np.random.default_rng(0), (10_000, n_envs))
    actions = np.stack([policy(np.zeros((n_envs, 1)), row, epsilon=epsilon)['actions'] for row in noise])
    found = (actions != 0).mean(0) * 5 / 4  # a fifth of the random ones are action 0
    wanted = [epsilon ** (1 + 7 * i / (n_envs - 1)) if n_envs > 1 else epsilon for i in range(n_envs)]
    np.testing.assert_allclose(found, wanted, atol=0.025)


def test_without_a_ladder_the_noise_is_as_it_was():
    plain, ladder = (EpsilonGreedyPolicy(Zero(), 5, 0.02, ladder) for ladder in (False, True))
    drawn = [p.draw_exploration(np.random.default_rng(3), (7, 4)) for p in (plain, ladder)]
    np.testing.assert_array_equal(drawn[0], plain.draw_noise(np.random.default_rng(3), (7, 4)))
    np.testing.assert_array_equal(drawn[0][:, 0], drawn[1][:, 0])  # the first environment has ε itself
    np.testing.assert_array_equal(drawn[0][..., 1], drawn[1][..., 1])
    assert (drawn[1][:, 1:, 0] > drawn[0][:, 1:, 0]).all()
