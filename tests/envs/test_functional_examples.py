"""The examples of functional environments: their dynamics, step by step, in a compiled vector."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

import xagents

FOLDER = Path(__file__).parents[2] / 'examples' / 'functional'


def loaded(name):
    """Return a module of the examples."""
    spec = importlib.util.spec_from_file_location(f'functional_{name}', FOLDER / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def breakout():
    return loaded('breakout').Breakout


@pytest.fixture(scope='module')
def queueing():
    return loaded('queueing').Queueing


class Game:
    """Breakout without sticky actions, cell by cell, from planes, a velocity and whether the ball is in a brick."""

    def __init__(self, planes, velocity, inside):
        (self.paddle,) = np.flatnonzero(planes[9, :, 0])
        self.y, self.x = np.argwhere(planes[:, :, 1])[0].tolist()
        self.dy, self.dx = velocity.tolist()
        self.bricks = {(y, x) for y, x in np.argwhere(planes[:, :, 3]).tolist()}
        self.inside = bool(inside)

    def step(self, action):
        """Return the next planes, the reward and whether the game is over."""
        self.paddle = min(max(self.paddle + (0, -1, 1)[action], 0), 9)
        old_y, old_x, reward, lost, was_inside = self.y, self.x, 0, False, self.inside
        self.inside = False
        y, x = old_y + self.dy, old_x + self.dx
        if not 0 <= x < 10:
            x, self.dx = old_x, -self.dx
        if y < 0:
            y, self.dy = 0, 1
        elif (y, x) in self.bricks:
            self.inside = True
            if not was_inside:
                self.bricks.remove((y, x))
                reward, y, self.dy = 1, old_y, -self.dy
        elif y == 9:
            if not self.bricks:
                self.bricks = set(itertools.product((1, 2, 3), range(10)))
            if old_x == self.paddle:
                y, self.dy = old_y, -1
            elif x == self.paddle:
                y, self.dy, self.dx = old_y, -1, -self.dx
            else:
                lost = True
        self.y, self.x = y, x
        planes = np.zeros((10, 10, 4), np.uint8)
        cells = [{(9, self.paddle)}, {(y, x)}, {(old_y, old_x)}, self.bricks]
        for channel, marked in enumerate(cells):
            for cell in marked:
                planes[(*cell, channel)] = 255
        return planes, reward, lost


def test_breakout_is_the_game_of_the_rules(breakout):
    n, generator, counts = 32, np.random.default_rng(0), np.zeros(3, int)
    with xagents.create_envs(breakout, n, env_kwargs={'sticky': 0}, vector='compiled') as envs:
        observations, vector = envs.reset(0).copy(), envs.functional_vector
        for t in range(120):
            state = vector.batch.env
            if t % 10 == 0:  # walls without bricks, or with few, so that some are rebuilt and the ball passes
                density = generator.choice([0, 0.2, 1], (n, 1, 1))
                bricks = (state.bricks * (generator.random((n, 10, 10)) < density)).astype(np.float32)
                state = state._replace(bricks=bricks)
                vector.batch = vector.batch._replace(env=state)
                observations[..., 3] = 255 * bricks
            follow = np.where(state.ball[:, 1] > state.paddle, 2, state.ball[:, 1] < state.paddle)
            actions = np.where(generator.random(n) < 0.8, follow, generator.integers(3, size=n))
            games = [Game(*each) for each in zip(observations, state.velocity, state.inside, strict=True)]
            valid, before = envs.valid.copy(), observations
            observations, rewards, terminated, _ = (x.copy() for x in envs.step(actions))
            for i in np.flatnonzero(valid):
                planes, reward, lost = games[i].step(actions[i])
                np.testing.assert_array_equal(observations[i], planes)
                assert (rewards[i], terminated[i]) == (reward, lost)
                more = np.count_nonzero(planes[..., 3]) > np.count_nonzero(before[i][..., 3])
                counts += reward, lost, more
            for i in np.flatnonzero(~valid):
                assert np.count_nonzero(observations[i][..., 3]) == 30
                assert np.argwhere(observations[i][..., 1]).tolist() in ([[3, 0]], [[3, 9]])
    assert (counts > 10).all(), counts


def test_sticky_actions_of_breakout_repeat_the_last_action(breakout):
    n, generator = 4096, np.random.default_rng(0)
    with xagents.create_envs(breakout, n, env_kwargs={'sticky': 0.25}, vector='compiled') as envs:
        envs.reset(0)
        envs.step(np.ones(n, int))
        executed = envs.functional_vector.batch.env.action.copy()
        assert np.mean(executed == 0) == pytest.approx(0.25, abs=0.03)
        actions = generator.integers(3, size=n)
        envs.step(actions)
        after = envs.functional_vector.batch.env.action
        differs = actions != executed
        np.testing.assert_array_equal(after[~differs], actions[~differs])
        assert np.mean((after == executed)[differs]) == pytest.approx(0.25, abs=0.04)


def test_breakout_draws_its_cells(breakout):
    with xagents.create_envs(breakout, render_mode='rgb_array') as envs:
        envs.reset(0)
        (frame,) = envs.render()
    assert (frame.shape, frame.dtype) == ((160, 160, 3), np.uint8)
    cells = frame[::16, ::16]
    assert np.count_nonzero(cells.any(2)) == 31  # bricks, one of which the ball covers, and the paddle
    assert (cells[3, [0, 9]] == 255).all(1).sum() == 1


def outcomes(lengths, action, arrival, service):
    """Return the probabilities of the next lengths, by enumeration of services and arrivals."""
    found = {}
    for done, *arrived in itertools.product((0, 1), repeat=4):
        probability = service[action] if done else 1 - service[action]
        for came, rate in zip(arrived, arrival, strict=True):
            probability *= rate if came else 1 - rate
        after = list(lengths)
        after[action] -= done and after[action] > 0
        key = tuple(int(x + came) for x, came in zip(after, arrived, strict=True))
        found[key] = found.get(key, 0) + probability
    return found


def test_queues_change_with_the_probabilities_of_services_and_arrivals(queueing):
    n, cost = 4096, np.array([1.0, 4.0, 2.0], np.float32)
    params = {'arrival': (0.3, 0.5, 0.2), 'service': (0.4, 0.7, 0.9)}
    starts = np.array([(0, 0, 0), (1, 0, 2), (0, 3, 1), (5, 5, 0)], np.float32)
    with xagents.create_envs(queueing, n, env_kwargs={**params, 'cost': cost}, vector='compiled') as envs:
        assert not envs.reset(0).any()
        vector = envs.functional_vector
        state = np.repeat(starts, n // len(starts), 0)
        for action in range(3):
            vector.batch = vector.batch._replace(env=state)
            observations, rewards, terminated, _ = envs.step(np.full(n, action))
            np.testing.assert_allclose(rewards, -observations @ cost, rtol=1e-6)
            assert not terminated.any()
            for start, after in zip(starts, np.split(observations, len(starts)), strict=True):
                keys, counts = np.unique(after.astype(int), axis=0, return_counts=True)
                seen = {tuple(key): count / len(after) for key, count in zip(keys.tolist(), counts, strict=True)}
                expected = outcomes(start, action, **params)
                assert set(seen) <= set(expected)
                for key, probability in expected.items():
                    deviation = (probability * (1 - probability) / len(after)) ** 0.5
                    assert seen.get(key, 0) == pytest.approx(probability, abs=5 * deviation)


def test_parameters_of_queues_change_the_costs_from_the_next_step_on(queueing):
    with xagents.create_envs(queueing, 8, env_kwargs={'arrival': (1, 1, 1)}, vector='compiled') as envs:
        envs.reset(0)
        vector, serve_first = envs.functional_vector, np.zeros(8, int)
        assert set(envs.step(serve_first)[1]) == {-6}
        vector.set_params(cost=(0, 5, 0), service=(0, 0, 0))
        assert set(envs.step(serve_first)[1]) == {-10}
        for _ in range(198):
            truncated = envs.step(serve_first)[3]
        assert truncated.all()
        assert [episode.length for episode in envs.pop_episodes()] == [200] * 8
