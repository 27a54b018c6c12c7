"""Observations with images beside vectors: their bytes, networks, memory and errors."""

import contextlib

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

import xagents
from tests.commands import execute
from xagents.envs.create import create_envs
from xagents.envs.normalisation import ObservationNormalizer
from xagents.envs.observations.composite import vector_of
from xagents.envs.spaces import Encoding, ObservationEncoder
from xagents.networks.cfg import parse_text, to_text
from xagents.networks.description import joined_inputs
from xagents.networks.keras_to_plan import flat_parameters, plan_from_model
from xagents.networks.models import ByteParts, ModelReader
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.replay.frames import ByteImage, StackedFrames

PICTURES = 'tests.picture_problems:TwoClues-v0'
WHOLE = spaces.Dict(
    {
        'action_mask': spaces.MultiBinary(3),
        'camera 1': spaces.Box(0, 255, (5, 6), np.uint8),
        'deep': spaces.Dict(depth=spaces.Box(0, 1, (3, 8, 9), np.float32), speed=spaces.Box(-1, 1, (2,), np.float64)),
        'place': spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(0, 255, (4,), np.uint8))),
    }
)


def batch_of(space, n=5):
    space.seed(1)
    return concatenate(space, [space.sample() for _ in range(n)], create_empty_array(space, n=n))


def test_bytes_are_those_of_the_vector_and_of_each_image():
    encoder = ObservationEncoder(WHOLE, Encoding())
    batch = batch_of(WHOLE)
    encoded = encoder(batch)
    assert encoded.dtype == np.int8 and encoded.shape == (5, *encoder.space.shape)
    one_hot = np.eye(3, dtype=np.float32)[batch['place'][0] - 1]
    expected = [batch['deep']['speed'], one_hot, batch['place'][1] / np.float32(255), batch['action_mask']]
    np.testing.assert_allclose(vector_of(encoded, encoder.n_floats), np.concatenate(expected, 1), rtol=1e-6)
    grey, depth = encoder.images
    assert (grey.name, depth.name) == ('camera 1', 'deep.depth') and (grey.shape, depth.shape) == ((5, 6, 1), (8, 9, 3))
    pixels = encoded[:, grey.start : grey.start + 30].view(np.uint8).reshape(5, 5, 6, 1)
    np.testing.assert_array_equal(pixels[..., 0], batch['camera 1'])
    floats = np.ascontiguousarray(encoded[:, depth.start : depth.start + depth.n_bytes]).view(np.float32)
    np.testing.assert_array_equal(floats.reshape(5, 8, 9, 3), np.moveaxis(batch['deep']['depth'], 1, -1))
    one = encoder([{key: _first(part) for key, part in batch.items()}])
    np.testing.assert_array_equal(one, encoded[:1])
    np.testing.assert_array_equal(encoder(encoded), encoded)
    assert encoder.space.shape[0] % 4 == 0


def _first(part):
    if isinstance(part, dict):
        return {key: _first(one) for key, one in part.items()}
    return tuple(map(_first, part)) if isinstance(part, tuple) else part[0]


def test_flatten_makes_images_elements_of_the_vector():
    encoder = ObservationEncoder(WHOLE, Encoding(flatten=True))
    assert encoder.space.dtype == np.float32 and encoder.space.shape == (30 + 216 + 2 + 3 + 4 + 3,)
    assert encoder.images == () and encoder.n_mask == 3


def test_scaling_changes_the_vector_only():
    encoder = ObservationEncoder(WHOLE)
    encoded = encoder(batch_of(WHOLE, 9))
    normalizer = ObservationNormalizer((encoder.n_floats,), encoder.n_mask, has_images=True)
    normalizer.update(encoded)
    scaled = normalizer(encoded)
    vectors, before = vector_of(scaled, encoder.n_floats), vector_of(encoded, encoder.n_floats)
    n = encoder.n_floats - 3
    assert normalizer.statistics.mean.shape == (n,)
    np.testing.assert_allclose(vectors[:, :n].mean(0), 0, atol=1e-5)
    np.testing.assert_array_equal(vectors[:, n:], before[:, n:])
    np.testing.assert_array_equal(scaled[:, 4 * encoder.n_floats :], encoded[:, 4 * encoder.n_floats :])


@pytest.mark.parametrize('mask', [False, True])
def test_networks_receive_each_part_and_numpy_computes_the_same(mask):
    agent = xagents.make('ppo', PICTURES, env_kwargs={'images': 2, 'mask': mask}, n_envs=2, seed=1, quiet=True)
    assert agent.envs.input_parts() == {'vector': (5,), 'camera': (12, 12, 1), 'camera1': (12, 12, 1)}
    observations = agent.envs.reset(3)
    network = NumpyNetwork(plan_from_model(agent.actor.model), flat_parameters(agent.actor.model).numpy())
    got, expected = np.array(network(observations)[0]), agent.actor.model(observations)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    alone = np.concatenate([np.array(network(observations[i : i + 1])[0]) for i in range(2)])
    np.testing.assert_array_equal(np.array(network(observations)[0]), alone)
    camera = agent.envs.encoder.images[0]
    for start, stop in ((0, 4), (camera.start, camera.start + camera.n_bytes)):
        other = observations.copy()
        other[:, start:stop] = np.frombuffer(np.float32(0.77).tobytes() * ((stop - start) // 4), np.int8)
        assert np.abs(np.array(network(other)[0]) - got).max() > 0, 'the network does not see a part'
    if mask:
        assert (got < -1e29).sum(1).tolist() == [2, 2]


def test_bytes_become_numbers_from_0_to_1_once():
    text = '[flatten-0]\nfrom=input:camera\n[dense-0]\noutput=1\n'
    parts = ByteParts(8 + 36, 2, {'camera': (6, 6, 1)}, {'camera': (8, 'uint8')})
    model = ModelReader(parse_text(text), [1], parts, seed=1).build_model()
    kernel = model.layers[-1].kernel.numpy()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 36), np.uint8)
    encoded = np.concatenate([np.zeros((3, 8), np.int8), pixels.view(np.int8)], 1)
    expected = (pixels / 255) @ kernel
    np.testing.assert_allclose(model(tf.constant(encoded)), expected, rtol=1e-5)


def test_a_file_names_the_parts_by_key(tmp_path, folder):
    text = (
        '[convolutional-0]\nfrom=input:camera\nfilters=4\nsize=3\nstride=2\nactivation=relu\n[flatten-0]\n'
        '[concatenate-0]\nwith=input:vector\ncommon=1\n[dense-0]\nunits=8\ncommon=1\n'
        '[dense-actor]\noutput=1\n[dense-critic]\noutput=1\n'
    )
    assert parse_text(to_text(parse_text(text))) == parse_text(text)
    (tmp_path / 'own.cfg').write_text(text)
    agent = xagents.make('ppo', PICTURES, model=str(tmp_path / 'own.cfg'), n_envs=2, seed=1, n_steps=8, quiet=True)
    with contextlib.closing(agent):
        agent.fit(max_steps=40, final_episodes=0, run_dir=str(tmp_path / 'run'))
        concatenated = agent.model.get_layer('concatenate-0')
        assert concatenated.output.shape[1] == 5 * 5 * 4 + 5
    loaded = xagents.load(tmp_path / 'run')
    loaded.close()
    for wrong, expected in (
        (text.replace('camera', 'kamera'), "from: got 'input:kamera', expected input:vector, input:camera: the obs"),
        (
            text.replace('from=input:camera\n', ''),
            "from: got 'input', expected input:vector, input:camera: the observation",
        ),
    ):
        (tmp_path / 'own.cfg').write_text(wrong)
        code, _, stderr = execute(*f'train ppo --env {PICTURES} --model {tmp_path}/own.cfg --max-steps 99'.split())
        assert code == 2 and expected in stderr and stderr.count('\n') == 1, stderr


def test_the_default_network_fits_each_image():
    text = '[convolutional-0]\nfilters=4\nsize=8\nstride=4\n[flatten-0]\n'
    text += '[dense-0]\nunits=8\ncommon=1\n[dense-a]\noutput=1\n'
    parts = {'vector': (3,), 'large': (40, 40, 3), 'small': (7, 7, 1)}
    network = joined_inputs(parse_text(text), parts, 'vector')
    shapes = network.shapes(parts, [2])
    sizes = [shapes[layer.name] for layer in network.layers if layer.kind == 'flatten']
    assert sizes == [(9 * 9 * 4,), (6 * 6 * 4,)] and shapes['dense-0'] == (8,)
    joined = [shapes[layer.name] for layer in network.layers if layer.kind == 'concatenate']
    assert joined == [(64 + 324,), (64 + 324 + 144,)]


def test_stacked_frames_among_bytes_are_stored_once_and_memory_is_as_computed():
    options = {'buffer_max_size': 200, 'buffer_initial_size': 20, 'buffer_batch_size': 4, 'train_frequency': 10}
    agent = xagents.make('dqn', PICTURES, env_kwargs={'images': 2}, frame_stack=3, n_envs=2, seed=1, **options)
    with contextlib.closing(agent):
        batches = [{name: x.copy() for name, x in agent.collector.collect(25).items()} for _ in range(3)]
        for batch in batches:
            agent.buffer.add(batch)
        ring = agent.buffer.ring
        n_bytes = agent.envs.observation_space.shape[0]
        assert ring.arrays['observations'].shape[2:] == (n_bytes - 2 * 2 * 144,)
        assert sum(x.nbytes for x in ring.arrays.values()) == agent.buffer_bytes()
        observations = np.concatenate([batch['observations'][:-1] for batch in batches])
        valid = np.concatenate([batch['valid'] for batch in batches]).ravel()
        got = np.zeros((150, n_bytes), np.int8)
        ring.take_observations(np.arange(150), got)
        np.testing.assert_array_equal(got[valid], observations.reshape(150, -1)[valid])


def test_frames_among_bytes():
    frames = StackedFrames((4 + 8 + 12,), 2, [ByteImage(4, 4, 1), ByteImage(12, 2, 3)])
    assert frames.stored_shape == (4 + 4 + 6,)
    first, second = np.arange(24, dtype=np.int8), np.arange(24, dtype=np.int8)
    assert not frames.repeats_one(first)
    second[[4, 6, 8, 10]] = first[[5, 7, 9, 11]]
    second[[12, 13, 14, 18, 19, 20]] = first[[15, 16, 17, 21, 22, 23]]
    assert frames.continues(first, second) and not frames.continues(second, first)
    out = np.zeros((1, 24), np.int8)
    frames.write(out, 0, frames.newest(first)[None])
    frames.write(out, 1, frames.newest(second)[None])
    np.testing.assert_array_equal(out[0], second)


def test_minigrids_dict_with_an_image_and_a_direction():
    pytest.importorskip('minigrid.envs')
    wrapper = ['gymnasium.wrappers:FilterObservation', 'filter_keys=["image","direction"]']
    with create_envs('minigrid:MiniGrid-Empty-5x5-v0', 2, wrapper=wrapper) as envs:
        assert envs.input_parts() == {'vector': (4,), 'image': (7, 7, 3)}
        envs.reset(1)


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('ppo --net 64', '--net: tests.picture_problems:TwoClues-v0 has image observations, expected --flatten, or a'),
        ('ppo --critic-only number', '--critic-only: cannot be used with one network for images that is actor and'),
    ],
)
def test_wrong_options_are_one_line(words, expected, folder):
    code, _, stderr = execute('train', *words.split(), '--env', PICTURES, '--max-steps', '99')
    assert code == 2 and stderr.startswith(f'xagents train: {expected}') and stderr.count('\n') == 1, stderr


@pytest.mark.usefixtures('eager')
def test_an_actor_does_not_receive_an_image_for_the_critic():
    options = {'env_kwargs': {'continuous': True, 'images': 2}, 'critic_only': ['camera1', 'which'], 'n_envs': 2}
    options |= {'buffer_initial_size': 20, 'buffer_max_size': 100, 'buffer_batch_size': 4, 'train_frequency': 10}
    with contextlib.closing(xagents.make('sac', PICTURES, seed=1, quiet=True, **options)) as agent:
        assert agent.envs.input_parts(acts=True) == {'vector': (2,), 'camera': (12, 12, 1)}
        assert agent.envs.input_parts() == {'vector': (5,), 'camera': (12, 12, 1), 'camera1': (12, 12, 1)}
        agent.fit(max_steps=40, final_episodes=0)
        space = agent.envs.encoder.raw_space
        whole = [space.sample() for _ in range(4)]
        seen = [{key: one[key] for key in ('camera', 'number')} for one in whole]
        np.testing.assert_array_equal(agent.act(whole), agent.act(seen))


class OnlyImages(gymnasium.Env):
    """Two images and nothing else."""

    observation_space = spaces.Tuple((spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Box(0, 255, (9, 9), np.uint8)))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, True, {}


@pytest.mark.usefixtures('eager')
def test_a_tuple_of_images_without_a_vector():
    with contextlib.closing(xagents.make('a2c', OnlyImages, n_envs=2, n_steps=4, seed=1, quiet=True)) as agent:
        assert agent.envs.input_parts() == {'0': (8, 8, 3), '1': (9, 9, 1)}
        agent.fit(max_steps=20, final_episodes=0)
        assert agent.evaluate(episodes=2)['mean'] == 1


def test_ppo_learns_what_needs_both_parts():
    options = {'n_envs': 8, 'n_steps': 32, 'lr': 1e-3, 'gamma': 0.5, 'seed': 1, 'quiet': True}
    with contextlib.closing(xagents.make('ppo', PICTURES, **options)) as agent:
        agent.fit(max_steps=5000, final_episodes=0)
        assert agent.evaluate(episodes=20)['mean'] > 9  # with one part alone, the best return is 5
