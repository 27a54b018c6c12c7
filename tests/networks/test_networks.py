"""The .cfg grammar, its errors, and the models that it describes."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from xagents.networks.cfg import dense_network, parse_network, parse_text, to_text
from xagents.networks.description import fit_small_images
from xagents.networks.keras_to_plan import plan_from_model
from xagents.networks.models import (
    OPTIMIZERS,
    LogStd,
    ModelReader,
    make_optimizer,
    reinitialise,
    with_log_std,
    with_logits,
)
from xagents.registry.agents import BUILTIN_AGENTS

PACKAGE = Path(xagents.__file__).parent
SHIPPED = sorted(PACKAGE.glob('**/models/*.cfg'))
SEPARATE = PACKAGE / 'a2c/models/ann-actor-critic.cfg'
SHARED = PACKAGE / 'a2c/models/ann-shared-actor-critic.cfg'
CNN = PACKAGE / 'a2c/models/cnn-actor-critic.cfg'
DQN = PACKAGE / 'dqn/models'
CNN_CRITIC = PACKAGE / 'td3/models/cnn-critic.cfg'


def build(text, units, shape, **options):
    return ModelReader(parse_text(text), units, shape, **options).build_model()


def refusal(text, units=None, shape=(4,), action_units=None):
    """Return the message with which a text is refused, alone or for given outputs and observations."""
    with pytest.raises(ValueError) as error:
        network = parse_text(text, 'a.cfg')
        assert units is not None, 'the text itself was to be refused'
        network.shapes(shape, units, action_units)
    message = str(error.value)
    assert message.startswith('a.cfg: ')
    assert len(message.splitlines()) == 1
    return message


# From the kind of a shipped file to the sizes that its agent gives, and the activations of its outputs.
KINDS = {
    'actor-critic': ([3, 1], ['linear', 'linear']),
    'shared-actor-critic': ([3, 1], ['linear', 'linear']),
    'acer/actor-critic': ([3, 3], ['softmax', 'linear']),
    'acer/shared-actor-critic': ([3, 3], ['softmax', 'linear']),
    'trpo/actor': ([3], ['linear']),
    'sac/actor': ([3, 3], ['linear', 'linear']),
    'tqc/actor': ([3, 3], ['linear', 'linear']),
    'tqc/critic': ([25], ['linear']),
    'crossq/actor': ([3, 3], ['linear', 'linear']),
    'discrete/actor': ([3], ['linear']),
    'discrete/critic': ([3], ['linear']),
    'trpo/critic': ([1], ['linear']),
    '': ([3], ['linear']),
    'dueling': ([3, 1], ['linear', 'linear']),
    'actor': ([3], ['tanh']),
    'critic': ([1], ['linear']),
    'value': ([1], ['linear']),
}


@pytest.mark.parametrize('path', SHIPPED, ids=lambda path: '/'.join(path.parts[-3::2]))
def test_shipped_files_build_and_read_back(path):
    network = parse_network(path)
    assert parse_text(to_text(network)) == network
    observations, _, kind = path.stem.partition('-')
    agent = path.parts[-3]
    units, activations = KINDS.get(f'{agent}/{kind}', KINDS.get(kind))
    shape, inputs = ((84, 84, 4), [(None, 84, 84, 4)]) if observations == 'cnn' else ((4,), [(None, 4)])
    action_units = 2 if (observations, kind) == ('cnn', 'critic') and agent not in ('trpo', 'discrete') else None
    model = ModelReader(path, units, shape, action_units=action_units).build_model()
    assert [tensor.shape for tensor in model.inputs] == inputs + [(None, 2)] * (action_units is not None)
    assert [output.shape for output in model.outputs] == [(None, n) for n in units]
    assert [layer.activation for layer in network.outputs] == activations
    assert all(layer.units is None for layer in network.outputs)
    assert len(model.inputs) == 2 or plan_from_model(model).has_convolutions == (observations == 'cnn')


def test_net_options_describe_the_shipped_files():
    def described(network):
        return [(e.units, e.activation, e.initializer, e.gain, e.output) for e in network.layers]

    assert dense_network([64, 64]) == parse_network(SEPARATE)
    assert dense_network([64, 64], shared=True) == parse_network(SHARED)
    assert dense_network([64, 64], 'relu') != parse_network(SEPARATE)
    uniform = {'activation': 'relu', 'initializer': 'fan_in_uniform'}
    q = dense_network([64, 64], outputs=('q',), **uniform)
    assert described(q) == described(parse_network(DQN / 'ann.cfg'))
    actor = dense_network([400, 300], outputs=('actor',), output_activation='tanh', **uniform)
    assert described(actor) == described(parse_network(PACKAGE / 'td3/models/ann-actor.cfg'))


@pytest.mark.parametrize('agent_id', BUILTIN_AGENTS)
def test_shipped_files_have_the_initial_weights_of_net(agent_id):
    entry = BUILTIN_AGENTS[agent_id]
    for form in filter(None, (entry, entry.for_discrete)):
        for path in (path for model in form.models for paths in form.files(model).values() for path in paths):
            layers = [layer for layer in parse_network(path).layers if layer.kind in ('dense', 'convolutional')]
            assert {layer.initializer for layer in layers} == {form.initializer}, path


def test_kernels_and_biases_are_uniform_within_the_root_of_the_inputs():
    text = '[dense-0]\noutput=1\ninitializer=fan_in_uniform\nunits=500'
    first, repeat, other = (build(text, [500], (9,), seed=s) for s in (1, 1, 2))
    for variable, same, another in zip(first.weights, repeat.weights, other.weights, strict=True):
        values = variable.numpy()
        assert 0.32 < np.abs(values).max() <= 1 / 3  # uniform in ±1/√9
        assert abs(values.std() - 1 / 3 / np.sqrt(3)) < 0.02
        assert np.array_equal(values, same.numpy()) and not np.array_equal(values, another.numpy())
    # a convolution counts its whole kernel as inputs
    text = '[convolutional-0]\nfilters=40\nsize=5\nstride=1\ninitializer=fan_in_uniform\n'
    kernel, bias, *_ = build(text + '[flatten-0]\n[dense-0]\noutput=1', [2], (8, 8, 4), seed=1).weights
    assert 0.09 < np.abs(kernel.numpy()).max() <= 0.1 and 0.08 < np.abs(bias.numpy()).max() <= 0.1  # ±1/√(5·5·4)


@pytest.mark.parametrize(
    ('image', 'side'), [((1, 1, 3), 1), ((7, 7, 3), 4), ((10, 10, 4), 7), ((32, 32, 3), 6), ((35, 35, 1), 7)]
)
def test_every_default_network_fits_a_small_image(image, side):
    for path in PACKAGE.glob('*/models/cnn*.cfg'):
        network = parse_network(path)
        small, takes = fit_small_images(network, image), 2 if network.action else None
        shapes = small.shapes(image, [3] * len(network.outputs), takes)
        if network.smallest_image == 36:  # those of Mnih et al. 2015
            last = [layer.name for layer in small.layers if layer.kind == 'convolutional'][-1]
            assert shapes[last] == (side, side, 64)
        assert fit_small_images(network, (84, 84, 4)) is network is fit_small_images(network, (36, 40, 1))


def test_networks_of_images_have_their_known_sizes():
    convolutions = 8 * 8 * 4 * 32 + 32 + 4 * 4 * 32 * 64 + 64 + 3 * 3 * 64 * 64 + 64
    features = 7 * 7 * 64
    stream = (features + 1) * 512
    hidden = (features + 3 + 1) * 256  # the three numbers of an action stand behind the features
    for path, units, parameters in (
        (str(CNN), [4, 1], stream + 513 * 5),
        (DQN / 'cnn.cfg', [6], stream + 513 * 6),
        (DQN / 'cnn-dueling.cfg', [6, 1], 2 * stream + 513 * 7),
        (CNN_CRITIC, [1], hidden + 257),
    ):
        actions = {'action_units': 3} if path == CNN_CRITIC else {}
        model = ModelReader(path, units, (84, 84, 4), **actions).build_model()
        assert model.count_params() == convolutions + parameters
        if units == [4, 1]:
            activations = [layer.activation.__name__ for layer in model.layers if hasattr(layer, 'activation')]
            assert activations == 4 * ['relu'] + 2 * ['linear']


@pytest.mark.parametrize('path', [SEPARATE, SHARED])
def test_initial_weights_are_orthogonal_with_the_files_gains(path):
    model = ModelReader(path, [2, 1], (4,), seed=3).build_model()
    gains = {layer.name: layer.gain for layer in parse_network(path).layers}
    for layer in model.layers[1:]:
        kernel, bias = layer.get_weights()
        small = kernel if kernel.shape[0] >= kernel.shape[1] else kernel.T
        np.testing.assert_allclose(small.T @ small, gains[layer.name] ** 2 * np.eye(small.shape[1]), atol=1e-5)
        assert not bias.any()
    assert sorted(set(gains.values())) == [0.01, 1.0, pytest.approx(2**0.5)]


@pytest.mark.parametrize(('path', 'shared'), [(SEPARATE, set()), (SHARED, {'dense-0', 'dense-1'})])
def test_separate_trunks_share_nothing_and_a_shared_one_is_shared(path, shared):
    model = ModelReader(path, [2, 1], (4,), seed=1).build_model()
    with tf.GradientTape(persistent=True) as tape:
        heads = [tf.reduce_sum(output) for output in model(tf.random.stateless_normal((8, 4), (1, 2)))]
    variables = [v.value for v in model.trainable_variables]
    layers = [v.path.split('/')[0] for v in model.trainable_variables]
    policy, value = (
        {layer for layer, g in zip(layers, tape.gradient(head, variables), strict=True) if g is not None}
        for head in heads
    )
    assert policy & value == shared and policy | value == {*layers}


@pytest.mark.parametrize(('name', 'shape', 'common'), [('ann', (4,), 'dense-0'), ('cnn', (84, 84, 4), 'flatten-0')])
def test_dueling_streams_part_after_their_common_layer(name, shape, common):
    model = ModelReader(DQN / f'{name}-dueling.cfg', [6, 1], shape, seed=2).build_model()
    layers = {layer.name: layer for layer in model.layers}
    x = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    features = keras.Model(model.input, layers[common].output)(x)
    advantages, value = model(x)
    expected = layers['dense-advantage'](layers['dense-advantage-0'](features))
    np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, layers['dense-value'](layers['dense-value-0'](features)), rtol=1e-5, atol=1e-6)


def test_an_action_section_joins_a_second_input_to_the_vector_before_it():
    text = '[dense-0]\nunits=3\n[action-0]\n[dense-1]\nunits=2\n[dense-2]\noutput=1\n'
    assert [layer.source for layer in parse_text(text).layers] == ['input', 'dense-0', 'action-0', 'dense-1']
    assert parse_text(text).shapes((4,), [1], 2)['action-0'] == (5,)
    model = build(text, [1], (4,), seed=1, action_units=np.int64(2))
    inputs = [(tensor.name, tensor.shape, tensor.dtype) for tensor in model.inputs]
    assert inputs == [('observations', (None, 4), 'float32'), ('actions', (None, 2), 'float32')]
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    first, second, last = (model.get_layer(f'dense-{i}').get_weights()[0] for i in range(3))
    expected = np.concatenate([x @ first, actions], 1) @ second @ last
    np.testing.assert_allclose(model([x, actions]), expected, rtol=1e-5, atol=1e-6)


def test_an_action_section_obeys_common_and_from():
    text = '[flatten-0]\ncommon=1\n[dense-0]\nunits=3\n[action-0]\nfrom=flatten-0\ncommon=1\n[dense-1]\noutput=1\n'
    network = parse_text(text + '[dense-2]\noutput=1\nfrom=dense-0\n')
    assert [layer.source for layer in network.layers] == ['input', 'flatten-0', 'flatten-0', 'action-0', 'dense-0']
    assert network.shapes((2, 3, 1), [1, 1], 5)['action-0'] == (11,)


def test_files_of_1_0_mean_what_they_meant():
    common = '[dense-0]\nunits=8\ncommon=1\n[dense-1]\noutput=1\n[dense-2]\noutput=1\n'
    assert [layer.source for layer in parse_text(common).layers] == ['input', 'dense-0', 'dense-0']
    chain = '[dense-0]\nunits=8\n[dense-1]\nunits=9\nactivation=relu\n[dense-2]\noutput=1\n'
    assert [layer.source for layer in parse_text(chain).layers] == ['input', 'dense-0', 'dense-1']
    # An image network whose flattened features are the common layer; convolutions follow the section before.
    image = '[convolutional-0]\nfilters=2\nsize=3\nstride=2\n[flatten-0]\ncommon=1\n'
    image += '[dense-0]\noutput=1\n[dense-1]\noutput=1'
    sources = [layer.source for layer in parse_text(image).layers]
    assert sources == ['input', 'convolutional-0', 'flatten-0', 'flatten-0']
    # An output that is itself marked as common, and output sizes that name every output, as 1.0 admitted.
    fixed = '[dense-0]\nunits=8\ncommon=1\n[dense-1]\noutput=1\n[dense-2]\nunits=1\noutput=1\n'
    assert [o.shape[-1] for o in build(fixed, [5, 1], (3,)).outputs] == [5, 1]
    assert [o.shape[-1] for o in build(fixed, [5], (3,)).outputs] == [5, 1]


def test_keys_are_case_insensitive_and_comments_are_skipped():
    text = '# a network\n[dense-0]\nUNITS: 8  ; eight\nActivation = tanh\n\n[dense-1]\nOutput = Yes\n'
    hidden, output = parse_text(text).layers
    assert (hidden.units, hidden.activation, output.output) == (8, 'tanh', True)


WRONG = {
    '[dense-0]\nunits=4\n': 'has no output, expected one or more dense-* sections with output=1',
    '[dense-0]\nunits\n': 'is not an INI file',
    '[dense-0]\noutput=1\n[dense-0]\noutput=1': '[dense-0]: occurs twice (line 3)',
    '[dense-0]\noutput=1\nOUTPUT=1': '[dense-0] output: occurs twice (line 3)',
    '[DEFAULT]\nunits=4\n[dense-0]\noutput=1': "section: got 'DEFAULT', expected ",
    '[dens-0]\noutput=1': 'concatenate-*, dense-*, gru-*, lstm-*, action-*, log-std-* (did you mean dense?)',
    '[action-0]\n[action-1]\n[dense-0]\noutput=1': '[action-1]: is a second action section, expected one',
    '[dense-a/b]\noutput=1': "section: got 'dense-a/b'",
    '[dense-0]\noutput=1\nunit=4': 'initializer, gain, output, common, from (did you mean units?)',
    '[flatten-0]\noutput=1': "[flatten-0] key: got 'output', expected common, from",
    '[dense-0]\nunits=0\noutput=1': "[dense-0] units: got '0', expected a whole number from 1 to 1000000",
    '[dense-0]\nunits=6.5\noutput=1': "[dense-0] units: got '6.5'",
    '[dense-0]\nunits=99999999999999999999\noutput=1': "[dense-0] units: got '99999999999999999999'",
    '[dense-0]\nunits=٣\noutput=1': "[dense-0] units: got '٣'",
    '[dense-0]\nunits=6\n 4\noutput=1': "[dense-0] units: got '6\\n4'",
    '[dense-0]\nactivation=tahn\noutput=1': "[dense-0] activation: got 'tahn', expected linear, relu, tanh, ",
    '[dense-0]\ninitializer=orthogonal\ngain=0\noutput=1': "[dense-0] gain: got '0', expected a number above 0",
    '[dense-0]\ninitializer=orthogonal\ngain=inf\noutput=1': "[dense-0] gain: got 'inf', expected a number above 0",
    '[dense-0]\ninitializer=orthogonal\ngain=__import__("os")\noutput=1': '[dense-0] gain: got',
    '[dense-0]\ngain=2\noutput=1': '[dense-0] gain: got 2.0, expected a gain only with initializer=orthogonal',
    '[dense-0]\ncommon=maybe\noutput=1': "[dense-0] common: got 'maybe', expected 1 or 0",
    '[dense-0]\n[dense-1]\noutput=1': '[dense-0] units: is missing, expected a whole number from 1 to 1000000 (the',
    '[convolutional-0]\nfilters=2\nsize=3\n[flatten-0]\n[dense-0]\noutput=1': '[convolutional-0] stride: is missing',
    '[dense-trunk]\nunits=3\n[dense-1]\noutput=1\nfrom=dense-trunc': 'expected input, dense-trunk (did you mean dense-',
    '[dense-0]\noutput=1\nfrom=dense-0': "[dense-0] from: got 'dense-0', expected input",
    '[dense-0]\noutput=1\nfrom=dense-1\n[dense-1]\noutput=1': "from: got 'dense-1', expected input (it is a later sec",
    '[dense-0]\nunits=3\n[dense-1]\noutput=1\nfrom=input': 'mark it output=1 or write from=dense-0 in a later section',
    '[log-std-0]\n[dense-0]\noutput=1': '[log-std-0]: is before any output',
    '[dense-0]\nunits=3\n[dense-1]\noutput=1\n[log-std-0]\nfrom=dense-0': "from: got 'dense-0', expected dense-1",
    '[dense-1]\noutput=1\n[log-std-0]\ninit=nan': "[log-std-0] init: got 'nan', expected a number",
    '[dense-1]\noutput=1\n[log-std-0]\n[log-std-1]': '[log-std-1]: is a second log-std section',
    '[dense-1]\noutput=1\n[log-std-0]\n[dense-2]\noutput=1\nfrom=log-std-0': "got 'log-std-0', expected no log-std",
}


@pytest.mark.parametrize(('text', 'message'), WRONG.items(), ids=lambda x: ascii(x)[:50])
def test_wrong_files_are_refused_by_section_and_key(text, message):
    assert message in refusal(text)


CONVOLUTION = '[convolutional-0]\nfilters=2\nsize={}\nstride=1\n[flatten-0]\n[dense-0]\noutput=1\n'
TWO = '[dense-0]\nunits=8\ncommon=1\n[dense-1]\noutput=1\n[dense-2]\noutput=1\n'
ACTION = '[action-0]\n[dense-0]\noutput=1\n'
IMAGE = 'shape (8, 8, 3), expected a vector: add a flatten-* section'


@pytest.mark.parametrize(
    ('text', 'units', 'shape', 'action_units', 'message'),
    [
        (CONVOLUTION.format(3), [2], (4,), None, '[convolutional-0]: got an input of shape (4,), expected an image'),
        (CONVOLUTION.format(9), [2], (10, 8, 3), None, '0] size: got 9, expected at most 8 for its input of 10x8'),
        (TWO, [2, 1], (8, 8, 3), None, f'[dense-0]: got an input of {IMAGE}'),
        (TWO, [2], (4,), None, 'outputs: got 2 ([dense-1], [dense-2]), expected 1, of sizes [2], for this agent'),
        ('[dense-0]\nunits=3\noutput=1', [4], (4,), None, '[dense-0] units: got 3, expected 4 for this agent and env'),
        (ACTION, [1], (4,), None, '[action-0]: is only for the network of a critic: this model has no actions'),
        (ACTION, [1], (8, 8, 3), 2, f'[action-0]: got an input of {IMAGE}'),
        ('[dense-0]\noutput=1\n', [1], (4,), 2, 'has no action-* section, expected no action_units (got 2)'),
    ],
)
def test_networks_that_do_not_fit_are_refused(text, units, shape, action_units, message):
    assert message in refusal(text, units, shape, action_units)
    with pytest.raises(ValueError):
        ModelReader(parse_text(text), units, shape, action_units=action_units)


WHOLE = 'expected a whole number from 1 to 1000000'
IMAGES = {'cfg': CNN_CRITIC, 'output_units': [1], 'input_shape': (84, 84, 4)}


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'output_units': [0, 1]}, 'output_units: got [0, 1], expected'),
        ({'input_shape': ()}, 'input_shape: got (), expected'),
        ({'optimizer': 'adm'}, "optimizer: got 'adm', expected adam, rmsprop, adamw, muon (did you mean adam?)"),
        ({'seed': -1}, 'seed: got -1, expected'),
        ({'log_std': float('nan')}, 'log_std: got nan, expected'),
        ({'net': []}, 'net: got [], expected one or more whole numbers'),
        ({'net': '64'}, "net: got '64', expected"),
        ({'net': [64], 'activation': 'rellu'}, "activation: got 'rellu', expected"),
        ({'net': [64], 'outputs': ('a', 'a')}, "outputs: got ('a', 'a')"),
        *[({**IMAGES, 'action_units': n}, f'action_units: got [{n}], {WHOLE}') for n in (0, -1, 2.0, (2,))],
    ],
)
def test_wrong_arguments_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        if 'net' in options:
            dense_network(**options)
        else:
            ModelReader(**{'cfg': SHARED, 'output_units': [2, 1], 'input_shape': (4,)} | options)
    assert str(error.value).startswith(message)


def test_unreadable_files_are_refused_in_one_line(tmp_path):
    (tmp_path / 'latin.cfg').write_bytes(b'[dense-0]\nunits=\xff')
    for path in (tmp_path / 'none.cfg', tmp_path, tmp_path / 'latin.cfg', 'a\0b'):
        with pytest.raises(ValueError) as error:
            parse_network(path)
        assert len(str(error.value).splitlines()) == 1
    (tmp_path / 'bom.cfg').write_text('[dense-0]\noutput=1', encoding='utf-8-sig')
    assert parse_network(tmp_path / 'bom.cfg').outputs[0].name == 'dense-0'


SECTIONS = ['[dense-0]', '[dense-1]', '[flatten-0]', '[convolutional-0]', '[action]', '[log-std]', '[DEFAULT]']
WORDS = ['units', 'from', 'output', 'size', 'stride', 'filters', 'gain', 'input', 'dense-0', '%(units)s']
SIGNS = ['[', ']', '=', ':', '1', '0', '-1', '1e400', '\n', ' ', '\t', '\x85', ';']
FRAGMENTS = st.sampled_from([*SECTIONS, *WORDS, *SIGNS])


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=25).map(''.join)))
def test_garbage_is_a_network_or_a_value_error_of_one_line(text):
    try:
        network = parse_text(text)
    except ValueError as error:
        assert type(error) is ValueError
        assert len(str(error).splitlines()) == 1
    else:
        assert parse_text(to_text(network)) == network


def test_equal_seeds_give_equal_weights_and_layers_differ():
    def weights(seed):
        return ModelReader(SEPARATE, [2, 1], (64,), seed=seed).build_model().get_weights()

    first, repeat, other = weights(5), weights(np.int64(5)), weights(6)
    for a, b in zip(first, repeat, strict=True):
        np.testing.assert_array_equal(a, b)
    everything = [kernel for kernel in first + other if kernel.shape == (64, 64)]
    assert len(everything) == 8
    for i, a in enumerate(everything):
        assert not any(np.allclose(a, b) for b in everything[:i])
    a, b = (ModelReader(SHARED, [2, 1], (4,)).build_model().get_weights() for _ in range(2))
    assert not np.allclose(a[0], b[0]), 'without a seed they follow Keras'


def small_critic(seed):
    text = '[convolutional-0]\nfilters=4\nsize=3\nstride=2\ninitializer=orthogonal\ngain=2\n[flatten-0]\n[action-0]\n'
    text += '[dense-0]\nunits=8\n[dense-1]\noutput=1\ninitializer=orthogonal\n'
    return build(text, [1], (9, 9, 2), optimizer='adam', seed=seed, action_units=3)


def plain_model():
    x = keras.Input((5, 3))
    repeat = keras.layers.Dense(8, 'relu', kernel_initializer=keras.initializers.HeNormal(seed=3))
    hidden = repeat(repeat(keras.layers.Bidirectional(keras.layers.GRU(4))(x)))  # one layer, called twice
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, bias_initializer='ones')])
    return keras.Model(x, inner(hidden * 2))


@pytest.mark.parametrize('make', [lambda: small_critic(5), lambda: small_critic(None), plain_model])
def test_a_reinitialised_model_has_the_layers_and_no_kernel_of_the_old_one(make):
    model = make()
    before = model.get_weights()
    models = [model, *(reinitialise(model, seed) for seed in (5, np.int64(5), 6))]
    for old, a, b, other in zip(*(m.weights for m in models), strict=True):
        assert (a.name, a.shape) == (old.name, old.shape)
        np.testing.assert_array_equal(a, b)
        if len(old.shape) > 1 and 'bias' not in old.name:
            assert not any(np.isclose(x, y).mean() > 0.1 for x, y in [(a, old), (other, old), (a, other)])
            # drawn by the same initializer: of the same size
            assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(old), rel=0.5)
        else:
            np.testing.assert_array_equal(a, old)
    inputs = [np.ones((2, *tensor.shape[1:]), np.float32) for tensor in model.inputs]
    outputs = [np.asarray(m(inputs if len(inputs) > 1 else inputs[0])) for m in models]
    assert [tensor.name for tensor in models[1].inputs] == [tensor.name for tensor in model.inputs]
    assert outputs[0].shape == outputs[1].shape
    assert not np.allclose(outputs[0], outputs[1])
    models[1].set_weights([np.zeros(weight.shape) for weight in before])
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_reinitialised_kernel_is_orthogonal_with_its_gain():
    kernel = reinitialise(small_critic(1), 2).get_layer('convolutional-0').get_weights()[0].reshape(-1, 4)
    np.testing.assert_allclose(kernel.T @ kernel, 4 * np.eye(4), atol=1e-5)


def test_a_reinitialised_model_has_an_optimizer_of_its_own():
    model = build(TWO, [2, 1], (4,), optimizer=make_optimizer('rmsprop', 0.02))
    model.optimizer.apply([keras.ops.ones(v.shape) for v in model.trainable_variables])
    before = model.get_weights()
    other = reinitialise(model, 1)
    assert other.optimizer.get_config() == model.optimizer.get_config()
    assert len(other.optimizer.variables) == len(model.optimizer.variables)
    assert not any(np.any(slot) for slot in other.optimizer.variables[2:])
    other.optimizer.apply([keras.ops.ones(v.shape) for v in other.trainable_variables])
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_reinitialised_says_so():
    subclassed = type('Subclassed', (keras.Model,), {'call': lambda self, x: x})()
    for model in (subclassed, keras.Sequential([keras.layers.Dense(2)])):
        with pytest.raises(ValueError, match=r'^model: got a (Subclassed|Sequential), expected a functional or built'):
            reinitialise(model, 1)
    for seed in (-1, 1.0, True):
        with pytest.raises(ValueError, match=r'^seed: got .*, expected a whole number from 0$'):
            reinitialise(plain_model(), seed)


@pytest.mark.parametrize('name', OPTIMIZERS)
def test_optimizers_are_built_and_each_model_has_its_own(name):
    optimizer = make_optimizer(name, 0.02, 0.8, 0.95, 1e-5)
    assert float(optimizer.learning_rate) == pytest.approx(0.02)
    expected = {
        'adam': {'beta_1': 0.8, 'beta_2': 0.95, 'weight_decay': None},
        'rmsprop': {'rho': 0.99, 'momentum': 0},
        'adamw': {'beta_1': 0.8, 'beta_2': 0.95, 'weight_decay': 0.01},
        'muon': {'adam_beta_1': 0.8, 'adam_beta_2': 0.95, 'weight_decay': 0.01, 'adam_weight_decay': 0.01},
    }[name]
    assert {attribute: getattr(optimizer, attribute) for attribute in expected} == expected
    reader = ModelReader(SHARED, [2, 1], (4,), optimizer)
    models = [reader.build_model(), reader.build_model()]
    assert models[0].optimizer is optimizer
    for model in models:
        assert model.optimizer.built
        assert model.optimizer.epsilon == 1e-5
        model.optimizer.apply([keras.ops.ones(v.shape) for v in model.trainable_variables])
    assert ModelReader(SHARED, [2, 1], (4,), name).build_model().optimizer.built
    with pytest.raises(ValueError, match=r'did you mean adam\?'):
        make_optimizer('adan')


def gaussian_model(seed=1):
    return ModelReader(SEPARATE, [3, 1], (4,), 'adam', seed, log_std=-0.5).build_model()


def test_log_std_is_the_last_output_and_trains():
    model = gaussian_model()
    assert [output.shape[-1] for output in model.outputs] == [3, 1, 3]
    layer = model.get_layer('log-std')
    assert isinstance(layer, LogStd) and layer.log_std.shape == (3,)
    x = tf.ones((5, 4))
    np.testing.assert_array_equal(model(x)[-1], np.full((5, 3), -0.5, np.float32))
    before = model.get_layer('dense-actor').get_weights()[0]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x)[-1] * tf.constant([1.0, 0.0, -1.0]))
    variables = [v.value for v in model.trainable_variables]
    gradients = tape.gradient(loss, variables, unconnected_gradients='zero')
    model.optimizer.apply(gradients, model.trainable_variables)
    moved = layer.log_std.numpy() + 0.5
    assert moved[0] < 0 and moved[1] == 0 and moved[2] > 0
    np.testing.assert_array_equal(model.get_layer('dense-actor').get_weights()[0], before)


def test_log_std_is_added_to_a_model_that_was_compiled_without_it():
    model = ModelReader(SEPARATE, [3, 1], (4,), make_optimizer('adam', 0.02), 1).build_model()
    extended = with_log_std(model, -0.5)
    assert with_log_std(extended, 3.0) is extended
    assert float(extended.optimizer.learning_rate) == pytest.approx(0.02)
    x = np.ones((2, 4), np.float32)
    for expected, got in zip(gaussian_model()(x), extended(x), strict=True):
        np.testing.assert_array_equal(expected, got)
    extended.optimizer.apply([keras.ops.ones(v.shape) for v in extended.trainable_variables])
    assert (extended(x)[-1].numpy() < -0.5).all()


def test_a_file_may_have_its_own_log_std():
    text = '[dense-0]\noutput=1\n[log-std-0]\ninit=-2\n[dense-1]\noutput=1\nfrom=input\n'
    model = build(text, [2, 1], (4,), log_std=0.0)
    outputs = model(np.ones((1, 4), np.float32))
    assert [output.shape[-1] for output in outputs] == [2, 1, 2]
    np.testing.assert_array_equal(outputs[-1], [[-2, -2]])


def test_log_std_is_saved_and_restored(tmp_path):
    model = gaussian_model()
    model.get_layer('log-std').log_std.assign([0.1, 0.2, 0.3])
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    model.save(tmp_path / 'a.keras')
    for expected, got in zip(model(x), keras.models.load_model(tmp_path / 'a.keras')(x), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_outputs_are_float32_under_mixed_precision():
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        model = ModelReader(SHARED, [2, 1], (4,), log_std=0.0).build_model()
    finally:
        keras.config.set_dtype_policy('float32')
    assert model.get_layer('dense-0').compute_dtype == 'bfloat16'
    assert {output.dtype for output in model(np.ones((1, 4), np.float32))} == {tf.float32}


@pytest.mark.parametrize(
    'softmax', [keras.layers.Softmax, lambda: keras.layers.Activation('softmax'), lambda: keras.ops.softmax, None]
)
def test_softmax_is_taken_back_without_a_change_of_the_model(softmax):
    entry = keras.Input((4,))
    head = keras.layers.Dense(2, None if softmax else 'softmax')(keras.layers.Dense(3, 'tanh')(entry))
    head = softmax()(head) if softmax else head
    model = keras.Model(entry, [head, keras.layers.Dense(2)(head)])  # the second head reads probabilities, too
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    before = [output.numpy() for output in model(x)]
    logits, other = (output.numpy() for output in with_logits(model)(x))
    np.testing.assert_allclose(np.exp(logits), before[0], rtol=1e-5)
    np.testing.assert_array_equal(other, before[1])
    for now, then in zip(model(x), before, strict=True):
        np.testing.assert_array_equal(now.numpy(), then)


@pytest.mark.parametrize('head', [lambda x: x * 0.5, lambda x: keras.ops.clip(x, -5, 5), lambda x: x])
def test_a_policy_that_ends_otherwise_stays_as_it_is(head):
    entry = keras.Input((4,))
    model = keras.Model(entry, [head(keras.layers.Dense(2)(entry)), keras.layers.Dense(1)(entry)])
    assert with_logits(model) is model
