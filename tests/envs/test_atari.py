"""The Atari wrappers on a game whose every frame is known, and the whole preprocessing on Pong."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from xagents.envs.create import create_envs
from xagents.envs.wrappers import ClipReward, EpisodeReport, EpisodicLife, FireReset, FrameStack, RawReward
from xagents.options.errors import OptionError

FIRE = 1


class Game(gymnasium.Env):
    """Three lives of four steps each; a frame shows how many steps were taken in all, a step is worth 5.

    Attributes:
        taken: every action since the game was reset.
        games: how many games were started.
    """

    observation_space = spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = spaces.Discrete(3)

    def __init__(self, life=4, limit=None):
        self.life, self.limit, self.games = life, limit, 0
        self.ale = self

    def get_action_meanings(self):
        return ['NOOP', 'FIRE', 'UP']

    def lives(self):
        return 3 - len(self.taken) // self.life

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games += 1
        self.taken = []
        return self.frame(), {}

    def step(self, action):
        self.taken.append(int(action))
        truncated = len(self.taken) == self.limit
        return self.frame(), 5.0, self.lives() == 0, truncated, {}

    def frame(self):
        return np.full((2, 3), len(self.taken), np.uint8)


class Forgetful(gymnasium.Wrapper):
    """Truncates on its fourth step."""

    steps = 0

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        return observation, reward, terminated, truncated or self.steps == 4, info


def reported(env, steps):
    """Steps with action 2, resetting as a vector would; returns the reports and the rows that ended."""
    reports, ended = [], []
    over = False
    for step in range(steps):
        if over:
            (_, info), over = env.reset(), False
        else:
            *_, terminated, truncated, info = env.step(2)
            if over := terminated or truncated:
                ended.append((step, terminated, truncated))
        if info:
            (report,) = info.values()
            reports.append((step, *report[:2].tolist()))
    return reports, ended


def test_a_lost_life_terminates_and_the_next_reset_goes_on_with_the_game():
    game = Game()
    env = EpisodeReport(ClipReward(EpisodicLife(RawReward(game))))
    env.reset(seed=0)
    reports, ended = reported(env, 12)
    assert game.games == 1
    # A life takes four steps of the game; the second and third begin with one step of doing nothing.
    assert ended == [(3, True, False), (7, True, False), (11, True, False)]
    assert game.taken == [2, 2, 2, 2, 0, 2, 2, 2, 0, 2, 2, 2]
    # One episode of all three lives; the agent took 10 steps, the rewards of the other two belong to the game.
    assert reports == [(11, 60.0, 10.0)]
    whole = EpisodeReport(RawReward(Game()))  # without EpisodicLife only the game ends
    whole.reset(seed=0)
    assert reported(whole, 12) == ([(11, 60.0, 12.0)], [(11, True, False)])


def test_rewards_are_clipped_after_the_statistics():
    env = EpisodeReport(ClipReward(RawReward(Game(life=1))))
    env.reset(seed=0)
    assert env.step(0)[1] == 1.0
    env.step(0)
    assert env.step(0)[4]['xagents_episode'][0] == 15
    assert [ClipReward(Game()).reward(reward) for reward in (-7, 0, 0.5)] == [-1.0, 0.0, 1.0]


def test_a_seed_resets_the_game_even_after_a_lost_life():
    game = Game()
    env = EpisodeReport(EpisodicLife(RawReward(game)))
    env.reset(seed=0)
    reported(env, 4)
    env.reset(seed=1)
    assert game.games == 2 and game.taken == []
    assert reported(env, 12)[0] == [(11, 60.0, 10.0)]  # nothing is left of the game that was cut


def test_a_truncation_on_the_step_that_loses_a_life_resets_the_game():
    game = Game()
    env = EpisodeReport(Forgetful(EpisodicLife(RawReward(game))))
    env.reset(seed=0)
    assert reported(env, 5)[0] == [(3, 20.0, 4.0)]
    assert game.games == 2


def test_a_game_that_is_over_with_the_first_step_of_a_life_is_reported():
    game = Game(limit=5)
    env = EpisodeReport(EpisodicLife(RawReward(game)))
    env.reset(seed=0)
    assert reported(env, 6) == ([(4, 25.0, 4.0)], [(3, True, False)])
    assert game.games == 2 and game.taken == [2]


def test_fire_is_pressed_at_the_start_of_each_life():
    game = Game()
    env = FireReset(EpisodicLife(game))
    observation, _ = env.reset(seed=0)
    assert game.taken == [FIRE] and (observation == 1).all()
    assert [env.step(2)[2] for _ in range(3)] == [False, False, True]
    env.reset()
    assert game.taken[4:] == [0, FIRE]
    game = Game(limit=1)  # over with the shot: it starts anew
    FireReset(game).reset(seed=0)
    assert game.games == 2


def test_fire_is_pressed_within_an_episode_of_several_lives():
    game = Game()
    env = FireReset(game)
    env.reset(seed=0)
    observation, *rest, _ = [env.step(2) for _ in range(3)][-1]
    assert game.taken == [FIRE, 2, 2, 2, FIRE]
    assert (observation == 5).all() and rest == [10.0, False, False]


def test_the_stack_holds_the_last_frames_newest_last_and_starts_full_of_the_first():
    env = FrameStack(Game(), 3)
    assert env.observation_space == spaces.Box(0, 255, (2, 3, 3), np.uint8)
    first, _ = env.reset(seed=0)
    assert (first == 0).all() and first.shape == (2, 3, 3) and first.dtype == np.uint8
    seen = [env.step(0)[0] for _ in range(4)]
    assert [stack[1, 2].tolist() for stack in seen] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    restarted, _ = env.reset()
    assert (restarted == 0).all()
    assert seen[3][0, 0].tolist() == [2, 3, 4]  # what was handed out stays as it was


ale = pytest.importorskip('ale_py')
pytest.importorskip('cv2')


@pytest.fixture(scope='module')
def pong():
    with create_envs('ALE/Pong-v5', 2, fire_reset=True) as envs:
        yield envs


def test_pong_is_recognised_and_preprocessed(pong):
    assert pong.observation_space == spaces.Box(0, 255, (84, 84, 4), np.uint8)
    assert pong.is_image and pong.action_space.n == 6
    frames = pong.reset(0)
    assert frames.shape == (2, 84, 84, 4) and frames.dtype == np.uint8
    for channel in range(1, 4):
        np.testing.assert_array_equal(frames[..., channel], frames[..., 0])
    assert len(np.unique(frames)) > 2
    before = frames.copy()
    for _ in range(12):
        after, rewards, _, _ = pong.step(np.array([2, 3]))
        np.testing.assert_array_equal(after[..., :3], before[..., 1:])
        assert not np.array_equal(after[..., 3], after[..., 2])
        assert np.isin(rewards, (-1, 0, 1)).all()
        before = after.copy()
    assert not np.array_equal(after[0], after[1])


def test_pongs_chain_of_wrappers(pong):
    names = []
    env = pong._vector.envs[0]
    while isinstance(env, gymnasium.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    ours = ['EpisodeReport', 'ClipReward', 'FrameStack', 'FireReset', 'EpisodicLife', 'RawReward', 'AtariPreprocessing']
    assert names[: len(ours)] == ours
    inner = pong._vector.envs[0].unwrapped
    assert inner._frameskip == 1
    assert inner.ale.getFloat('repeat_action_probability') == 0


def test_playing_ends_no_episode_with_a_life_and_keeps_the_shot(pong):
    with pong.recreate(1) as other:
        names = str(other._vector.envs[0])
        assert 'EpisodicLife' not in names and 'ClipReward' not in names and 'FireReset' in names
    with pong.recreate(1, training=True) as other:
        assert 'EpisodicLife' in str(other._vector.envs[0])
    with create_envs('ALE/Freeway-v5') as without_fire:
        assert 'FireReset' not in str(without_fire._vector.envs[0])


def test_switches_of_the_preprocessing():
    settings = {'clip_rewards': False, 'episodic_life': False, 'fire_reset': False, 'sticky_actions': True}
    with create_envs('PongNoFrameskip-v4', 1, frame_stack=2, max_episode_steps=3, **settings) as envs:
        assert envs.observation_space.shape == (84, 84, 2)
        names = str(envs._vector.envs[0])
        assert not any(name in names for name in ('ClipReward', 'EpisodicLife', 'FireReset'))
        inner = envs._vector.envs[0].unwrapped
        assert 'StickyActions' in names and inner.ale.getFloat('repeat_action_probability') == 0.0
        envs.reset(0)
        frame = inner.ale.getEpisodeFrameNumber()
        ends = [envs.step(np.array([0]))[3][0] for _ in range(3)]
        assert ends == [False, False, True]  # the limit counts steps, not frames
        assert inner.ale.getEpisodeFrameNumber() - frame == 12
        (episode,) = envs.pop_episodes()
        assert episode.length == 3


def test_breakout_reports_whole_games_of_raw_rewards():
    with create_envs('ALE/Breakout-v5', 1) as envs:
        envs.reset(1)
        rng = np.random.default_rng(0)
        lives = clipped = 0
        for _ in range(800):
            _, rewards, terminated, _ = envs.step(rng.integers(0, 4, 1))
            clipped += rewards[0]
            lives += terminated[0]
            if episodes := envs.pop_episodes():
                break
        assert lives == 5
        assert episodes[0].reward >= clipped > 0


def test_raw_screens_where_preprocessing_is_declined(monkeypatch):
    monkeypatch.setattr('xagents.envs.vectors.NATIVE_FROM', 1)  # ale_py's own vector would preprocess all the same
    ram = {'obs_type': 'ram'}  # no screen, nothing to preprocess
    for preprocess, kwargs, shape in ((False, {}, (210, 160, 3)), (False, ram, (128,)), (None, ram, (128,))):
        with create_envs('ALE/Pong-v5', 1, preprocess=preprocess, env_kwargs=kwargs) as envs:
            assert envs.observation_space.shape == shape


skips = partial(gymnasium.make, 'ALE/Pong-v5')


@pytest.mark.parametrize(('preprocess', 'shape'), [(True, (84, 84, 4)), (None, (210, 160, 3))])
def test_a_function_that_makes_a_game_is_preprocessed_when_asked(preprocess, shape):
    with create_envs(partial(skips, frameskip=1), 1, preprocess=preprocess) as envs:
        assert envs.observation_space.shape == shape


@pytest.mark.parametrize(
    ('arguments', 'problem'),
    [
        ({'env': skips, 'preprocess': True}, 'skips frames itself; make it with frameskip=1'),
        (
            {'env': 'ALE/Pong-v5', 'preprocess': True, 'env_kwargs': {'obs_type': 'ram'}},
            'not an Atari game with screen',
        ),
        ({'env': 'ALE/Pnog-v5'}, r'did you mean ALE/Pong-v5\?'),
        ({'env': 'PongNoFrameSkip-v4'}, r'did you mean PongNoFrameskip-v4\?'),
    ],
)
def test_wrong_input_is_one_line(arguments, problem):
    with pytest.raises(OptionError, match=problem) as refused:
        create_envs(**arguments)
    assert '\n' not in str(refused.value)
