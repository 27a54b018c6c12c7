"""Options of images: stacks of frames, repeated actions, grey and smaller images, and wrappers with arguments."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.commands import execute
from xagents.envs.create import create_envs
from xagents.envs.env_factory import EnvFactory
from xagents.envs.maker import load_wrappers
from xagents.envs.observations.images import ImageOptions, ProcessImages, _resize
from xagents.options.errors import OptionError
from xagents.replay.transitions import ReplayBuffer

MOVIE = 'tests.envs.test_images:Movie-v0'


class Movie(gymnasium.Env):
    """Shows random frames; the reward is the number of the step, and an action outside [0, 1] raises an error.

    Args:
        shape: shape of a frame.
        steps: number of steps of an episode.
        also: whether observations are a Dict of the image, a second image and the time.
    """

    def __init__(self, shape=(6, 8, 3), steps=7, also=False):
        self.steps, self.also = steps, also
        image = spaces.Box(0, 255, tuple(shape), np.uint8)
        other = {'map': spaces.Box(0, 255, (4, 4), np.uint8), 'time': spaces.Box(0, 99, (1,), np.float32)}
        self.observation_space = spaces.Dict(image=image, **other) if also else image
        self.action_space = spaces.Discrete(2)
        self.shown = []

    def draw(self):
        self.space = self.observation_space['image'] if self.also else self.observation_space
        self.shown.append(self.np_random.integers(0, 256, self.space.shape, np.uint8))
        if not self.also:
            return self.shown[-1]
        return {'image': self.shown[-1], 'map': self.shown[-1][:4, :4, 0], 'time': np.array([self.t], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        self.t += 1
        return self.draw(), float(self.t), self.t >= self.steps, False, {}


gymnasium.register('Movie-v0', Movie)


def frames_of(envs):
    """Return the frames that the environment has shown since its last reset."""
    env = envs._vector.envs[0].unwrapped
    return env.shown[-env.t - 1 :]


def test_a_stack_has_the_last_frames_oldest_first_and_begins_with_copies_of_the_first():
    with create_envs(MOVIE, 1, frame_stack=3) as envs:
        assert envs.observation_space.shape == (6, 8, 9) and envs.frame_stack == 3
        observation = envs.reset(1)[0]
        first = frames_of(envs)[0]
        np.testing.assert_array_equal(observation, np.concatenate([first] * 3, -1))
        for t in range(1, 8):
            observation = envs.step(np.array([0]))[0][0]
            shown = frames_of(envs)
            expected = [*[shown[0]] * max(2 - t, 0), *shown[-3:]]
            np.testing.assert_array_equal(observation, np.concatenate(expected[-3:], -1))
        np.testing.assert_array_equal(envs.step(np.array([0]))[0][0], np.concatenate([frames_of(envs)[0]] * 3, -1))


def test_grey_is_the_luma_and_a_smaller_image_the_mean_over_areas():
    pytest.importorskip('cv2')
    with create_envs(MOVIE, 1, grey=True, resize=[3, 4]) as envs:
        assert envs.observation_space.shape == (3, 4, 1)
        observation = envs.reset(1)[0]
        frame = frames_of(envs)[0].astype(float)
        small = np.rint(frame.reshape(3, 2, 4, 2, 3).mean((1, 3)) - 1e-6)
        expected = small @ [0.299, 0.587, 0.114]
        assert np.abs(observation[..., 0] - expected).max() <= 1.01  # rounded twice
    with create_envs(MOVIE, 1, env_kwargs={'shape': [3, 6, 8]}, grey=True, frame_stack=2) as envs:  # channels first
        assert envs.reset(1).shape == (1, 6, 8, 2)
        frame = np.moveaxis(frames_of(envs)[0], 0, -1)
        grey = np.rint(frame @ np.array([0.299, 0.587, 0.114]))
        np.testing.assert_allclose(envs.step(np.array([0]))[0][0, ..., 0], grey, atol=1)
    with create_envs(MOVIE, 1, env_kwargs={'shape': [6, 8]}, resize=5) as envs:
        assert envs.reset(1).shape == (1, 5, 5, 1)


@pytest.mark.parametrize('channels', [1, 3, 4, 9])
@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.int64, np.int8, np.float16, np.float64])
def test_images_of_every_dtype_and_number_of_channels_are_resized(dtype, channels):
    image = np.random.default_rng(1).integers(0, 100, (6, 8, channels)).astype(dtype)
    got = _resize(image, 3, 4)
    assert got.dtype == dtype and got.shape == (3, 4, channels)
    means = image.astype(np.float64).reshape(3, 2, 4, 2, channels).mean((1, 3))
    np.testing.assert_allclose(got, means, atol=0.5 if np.issubdtype(dtype, np.integer) else 0.1)


def test_grey_needs_colours_and_leaves_out_opacity():
    with create_envs(MOVIE, 1, env_kwargs={'shape': [6, 8, 4]}, grey=True) as envs:
        grey = np.rint(envs.reset(1)[0, ..., 0]), frames_of(envs)[0][..., :3] @ np.array([0.299, 0.587, 0.114])
        np.testing.assert_allclose(*grey, atol=1)
    for shape in ([6, 8], [6, 8, 2]):
        with pytest.raises(OptionError, match=r'^grey: .* has images of the shape .*, expected 3 or 4 channels'):
            create_envs(MOVIE, 1, env_kwargs={'shape': shape}, grey=True)


def test_repeated_actions_sum_rewards_and_stop_at_the_end_of_an_episode():
    with create_envs(MOVIE, 1, frame_skip=3) as envs:
        envs.reset(1)
        rewards, ends = [], []
        for _ in range(3):
            _, reward, terminated, _ = envs.step(np.array([0]))
            rewards.append(reward[0])
            ends.append(terminated[0])
        assert rewards == [1 + 2 + 3, 4 + 5 + 6, 7] and ends == [False, False, True]
        (episode,) = envs.pop_episodes()
        assert (episode.reward, episode.length) == (28, 3)
    with create_envs(MOVIE, 1, frame_skip=2, max_episode_steps=2) as envs:  # steps of the agent
        envs.reset(1)
        assert [envs.step(np.array([0]))[3][0] for _ in range(2)] == [False, True]
    with create_envs('CartPole-v1', 8, frame_skip=2) as envs:  # not Gymnasium's native vector
        envs.reset(1)
        assert (envs.step(np.zeros(8, np.int64))[1] == 2).all()


def test_all_images_of_a_dict_are_processed():
    with create_envs(MOVIE, 1, env_kwargs={'also': True}, frame_stack=2, grey=True) as envs:
        space = envs.encoder.raw_space
        assert space['image'].shape == (6, 8, 2) and space['map'].shape == (4, 4, 2) and space['time'].shape == (1,)
        envs.reset(1)


def test_a_replay_buffer_stores_each_coloured_frame_once():
    with create_envs(MOVIE, 2, frame_stack=3) as envs:
        buffer = ReplayBuffer(64, 4, 16, stack=3)
        observations, columns = [envs.reset(1).copy()], {'rewards': [], 'terminated': [], 'truncated': [], 'valid': []}
        for _ in range(20):
            valid = envs.valid.copy()
            observation, *others = envs.step(np.zeros(2, np.int64))
            observations.append(observation.copy())
            for name, column in zip(columns, [*others, valid], strict=True):
                columns[name].append(column.copy())
        batch = {name: np.stack(column) for name, column in columns.items()}
        whole = np.stack(observations)
        buffer.add({'observations': whole, 'actions': np.zeros((20, 2), np.int32), **batch})
        assert buffer.ring.arrays['observations'].shape[2:] == (6, 8, 3)
        got = np.zeros((40, 6, 8, 9), np.uint8)
        buffer.ring.take_observations(np.arange(40), got)
        np.testing.assert_array_equal(
            got[batch['valid'].ravel()], whole[:-1].reshape(40, 6, 8, 9)[batch['valid'].ravel()]
        )


def test_atari_games_take_the_same_options():
    pytest.importorskip('ale_py')
    with create_envs('ALE/Pong-v5', 1, frame_stack=2, resize=[40, 50], frame_skip=2) as envs:
        assert envs.reset(1).shape == (1, 40, 50, 2) and envs.frame_stack == 2
    with create_envs('ALE/Pong-v5', 1) as envs:
        assert envs.reset(1).shape == (1, 84, 84, 4) and envs.frame_stack == 4


def test_wrappers_take_arguments():
    wrappers = ['gymnasium.wrappers:FrameStackObservation', 'stack_size=3', 'padding_type=zero']
    wrappers += ['gymnasium.wrappers:TimeAwareObservation', 'flatten=true']
    assert load_wrappers(wrappers)[0].keywords == {'stack_size': 3, 'padding_type': 'zero'}
    with create_envs('CartPole-v1', 2, wrapper=wrappers[:3]) as envs:
        assert envs.reset(1).shape == (2, 12)
        sent = EnvFactory.from_dict(envs.factory.to_dict())()
        with sent:
            np.testing.assert_array_equal(sent.reset(1), envs.reset(1))


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('--frame-stack 4', '--frame-stack: CartPole-v1 has no images [H, W, C], expected an environment with images'),
        ('--grey', '--grey: CartPole-v1 has no images'),
        ('--resize 64', '--resize: CartPole-v1 has no images'),
        ('--resize 64 64 64', '--resize: got [64, 64, 64], expected height and width, or one number for both'),
        ('--frame-skip 0', '--frame-skip: got 0, expected a whole number at least 1'),
        ('--wrapper stack_size=3', '--wrapper: got stack_size=3, expected module:Class before its arguments'),
        ('--wrapper gymnasium.wrappers:TimeLimit steps=3', '--wrapper: TimeLimit cannot wrap CartPoleEnv: TimeLimit'),
        ('--wrapper gymnasium.wrappers:ClipReward a=1 a=2', '--wrapper: got a twice for gymnasium.wrappers:ClipReward'),
    ],
)
def test_wrong_options_are_one_line(words, expected, folder):
    code, _, stderr = execute(*f'train ppo --env CartPole-v1 --max-steps 100 {words}'.split())
    assert code == 2 and stderr.startswith(f'xagents train: {expected}') and stderr.count('\n') == 1, stderr


def test_several_agents_refuse_image_options():
    from tests.team_problems import Walks

    for option in ({'grey': True}, {'frame_stack': 2}, {'frame_skip': 2}, {'resize': 8}):
        with pytest.raises(OptionError, match=f'{next(iter(option))}: Walks has several agents, expected a wrapper of'):
            create_envs(Walks, 1, **option)


@pytest.mark.usefixtures('eager')
def test_dqn_learns_from_stacks_of_coloured_frames(tmp_path):
    options = {'buffer_max_size': 100, 'buffer_initial_size': 20, 'buffer_batch_size': 4, 'train_frequency': 8}
    options |= {'env_kwargs': {'shape': [12, 12, 3]}, 'frame_stack': 2, 'n_envs': 2, 'seed': 1, 'quiet': True}
    with contextlib.closing(xagents.make('dqn', MOVIE, **options)) as agent:
        agent.fit(max_steps=60, run_dir=str(tmp_path / 'run'), final_episodes=0)
        assert agent.context.updates > 0 and agent.buffer.ring.arrays['observations'].shape[2:] == (12, 12, 3)
        assert agent.buffer_bytes() >= agent.buffer.ring.arrays['observations'].nbytes


class Nested(gymnasium.Env):
    """Shows an image within a Dict within a Tuple."""

    observation_space = spaces.Tuple(
        (spaces.Dict(eye=spaces.Box(0, 255, (6, 8, 3), np.uint8), size=spaces.Discrete(3)), spaces.Box(0, 1, (1,)))
    )
    action_space = spaces.Discrete(2)

    def shown(self):
        self.frame = self.np_random.integers(0, 256, (6, 8, 3), np.uint8)
        return ({'eye': self.frame, 'size': 1}, np.zeros(1, np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action):
        return self.shown(), 0.0, False, False, {}


def test_images_in_nested_parts_are_stacked():
    env = ProcessImages(Nested(), ImageOptions(frame_stack=2), 'nested')
    assert env.observation_space[0]['eye'].shape == (6, 8, 6)
    (first, _), _ = env.reset(seed=1)
    before = env.unwrapped.frame
    seen = env.step(0)[0]
    np.testing.assert_array_equal(seen[0]['eye'], np.concatenate([before, env.unwrapped.frame], -1))
    assert env.observation_space.contains(seen) and first['eye'].shape == (6, 8, 6)
    with create_envs(Nested, 2, frame_stack=2) as envs:
        assert envs.encoder.images[0].shape == (6, 8, 6)
