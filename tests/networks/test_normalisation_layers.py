"""Normalisation of layers: against NumPy, in the plan, in updates and in the agents that admit it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import xagents
from tests.commands import execute
from tests.networks.test_forward import assert_mirrors, numpy_of, randomize
from xagents.networks.cfg import dense_network, parse_text, to_text
from xagents.networks.keras_to_plan import flat_parameters, has_plan, plan_from_model
from xagents.networks.layers import BATCH_EPSILON, LAYER_EPSILON, BatchRenorm
from xagents.networks.models import ModelReader, reinitialise
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.plan import NetworkPlan
from xagents.options.errors import OptionError

IMAGES = """
[convolutional-0]
filters=5
size=3
stride=2
[{0}norm-0]
activation=relu
[flatten-0]
[dense-0]
units=6
[{0}norm-1]
activation=tanh
[dense-q]
output=1
"""


def model_of(normalise, net=(7, 5), units=(3, 1), inputs=4):
    return ModelReader(dense_network(net, 'relu', True, normalise=normalise), units, (inputs,), seed=1).build_model()


def spread(model, seed=1):
    """Give every weight a value of its own; variances stay positive."""
    rng = np.random.default_rng(seed)
    randomize(model, rng)
    for variable in model.weights:
        if 'variance' in variable.path:
            variable.assign(rng.uniform(0.2, 3.0, variable.shape))


@pytest.mark.parametrize('normalise', ['layer', 'batch'])
def test_the_plan_equals_keras_and_rows_do_not_depend_on_others(normalise):
    model, rng = model_of(normalise), np.random.default_rng(2)
    spread(model)
    mirror = assert_mirrors(model, rng.normal(size=(9, 4)))
    x = rng.normal(size=(40, 4)).astype(np.float32)
    whole = [output.copy() for output in mirror(x)]
    for n in (1, 2, 7, 33):
        for one, other in zip(mirror(x[3 : 3 + n]), whole, strict=True):
            np.testing.assert_array_equal(one, other[3 : 3 + n])


@pytest.mark.parametrize('normalise', ['layer', 'batch'])
def test_images_are_normalised_over_their_channels(normalise):
    model = ModelReader(parse_text(IMAGES.format(normalise)), [3], (9, 8, 2), seed=1).build_model()
    spread(model)
    rng = np.random.default_rng(3)
    mirror = assert_mirrors(model, rng.normal(size=(5, 9, 8, 2)))
    x = rng.normal(size=(6, 9, 8, 2)).astype(np.float32)
    whole = mirror(x)[0].copy()
    np.testing.assert_array_equal(mirror(x[2:3])[0], whole[2:3])


def test_layer_normalisation_is_that_of_the_paper():
    layer, x = keras.layers.LayerNormalization(epsilon=LAYER_EPSILON), np.random.default_rng(1).normal(3, 2, (6, 8))
    x = x.astype(np.float32)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + LAYER_EPSILON)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)


def renorm(x, mean, variance, max_ratio, max_shift):
    """Algorithm 1 of Ioffe 2017 in float64."""
    batch_mean, batch_deviation = x.mean(0), np.sqrt(x.var(0) + BATCH_EPSILON)
    deviation = np.sqrt(variance + BATCH_EPSILON)
    ratio = np.clip(batch_deviation / deviation, 1 / max_ratio, max_ratio)
    shift = np.clip((batch_mean - mean) / deviation, -max_shift, max_shift)
    return (x - batch_mean) / batch_deviation * ratio + shift


@pytest.mark.parametrize('warm_up', [0, 100])
def test_batch_renormalisation_is_that_of_the_paper(warm_up):
    layer, rng = (
        BatchRenorm(momentum=0.9, max_ratio=1.5, max_shift=0.5, warm_up_steps=warm_up),
        np.random.default_rng(4),
    )
    mean, variance = np.zeros(3), np.ones(3)
    for _ in range(3):
        x = rng.normal([0.2, 2.0, -3.0], [1.1, 4.0, 0.2], (32, 3))
        limits = (1.0, 0.0) if warm_up else (1.5, 0.5)
        expected = renorm(x, mean, variance, *limits)
        np.testing.assert_allclose(layer(x.astype(np.float32), training=True), expected, rtol=1e-4, atol=1e-4)
        mean, variance = mean + 0.1 * (x.mean(0) - mean), variance + 0.1 * (x.var(0) - variance)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-4, atol=1e-5)
    x = rng.normal(size=(4, 3))
    expected = (x - mean) / np.sqrt(variance + BATCH_EPSILON)
    np.testing.assert_allclose(layer(x.astype(np.float32)), expected, rtol=1e-4, atol=1e-5)
    assert float(layer.steps.numpy()) == 3.0


def test_the_correction_gets_no_gradient():
    """Without bounds, the output is that of the moving statistics; its gradient is that of the batch's."""
    layer = BatchRenorm(max_ratio=1e9, max_shift=1e9, warm_up_steps=0)
    layer.build((None, 2))
    x = tf.constant(np.random.default_rng(5).normal(2, 3, (16, 2)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_allclose(y, x / np.sqrt(1 + BATCH_EPSILON), rtol=1e-4, atol=1e-5)
    # a shift of the whole batch changes nothing, because the mean of the batch is part of the gradient
    np.testing.assert_allclose(tf.reduce_sum(tape.gradient(y, x), 0), [0.0, 0.0], atol=1e-4)


def test_descriptions_of_net_and_files():
    layers = dense_network([8, 6], 'relu', True, ('q',), normalise='layer').layers
    kinds = [(layer.kind, layer.activation) for layer in layers]
    assert kinds == [*[('dense', 'linear'), ('layernorm', 'relu')] * 2, ('dense', 'linear')]
    layers = dense_network([8], 'relu', True, ('q',), normalise='batch').layers
    assert [layer.kind for layer in layers] == ['batchnorm', 'dense', 'batchnorm', 'dense']
    assert [layer.activation for layer in layers] == ['linear', 'relu', 'linear', 'linear']
    for normalise in ('layer', 'batch'):
        network = dense_network([8, 6], 'tanh', False, normalise=normalise)
        assert parse_text(to_text(network)) == network
    with pytest.raises(ValueError, match=r"\[layernorm-0\] key: got 'units', expected activation, common, from"):
        parse_text('[layernorm-0]\nunits=3\n[dense-0]\noutput=1')


def test_what_a_plan_does_not_contain():
    x = keras.Input((4,))
    for layer in (
        keras.layers.LayerNormalization(scale=False),
        keras.layers.BatchNormalization(center=False),
        keras.layers.LayerNormalization(rms_scaling=True),
    ):
        assert not has_plan(keras.Model(x, layer(x)))
    model = keras.Model(x, keras.layers.BatchNormalization()(x))
    spread(model)
    assert_mirrors(model, np.random.default_rng(1).normal(size=(5, 4)))
    record = plan_from_model(model).to_dict()
    for changed in ({'epsilon': -1.0}, {'epsilon': 'a'}, {'kernel': [3]}, {'at': 9}):
        with pytest.raises(ValueError, match='not a network plan'):
            NetworkPlan.from_dict({**record, 'calls': [{**record['calls'][0], **changed}]})


def test_target_networks_copy_parameters_and_share_statistics():
    model = model_of('batch')
    spread(model)
    target, x = TargetNetwork(model), np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    for one, other in zip(target(x), model(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert len(target.state()['parameters']) == sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    copy = reinitialise(model, 3)
    assert [v.shape for v in copy.weights] == [v.shape for v in model.weights]


DENSE = {'net': [8], 'seed': 1, 'quiet': True}
REPLAY = {'buffer_initial_size': 16, 'buffer_batch_size': 8, 'buffer_max_size': 64}


@pytest.mark.parametrize('normalise', ['layer', 'batch'])
@pytest.mark.parametrize(('agent_id', 'env'), [('dqn', 'CartPole-v1'), ('td3', 'Pendulum-v1'), ('sac', 'Pendulum-v1')])
def test_agents_learn_act_and_resume_with_normalised_layers(agent_id, env, normalise, tmp_path, eager):
    options = {**DENSE, **REPLAY, **({'double': True} if agent_id == 'dqn' else {}), 'normalize_layers': normalise}
    agent = xagents.make(agent_id, env, **options)
    agent.fit(max_steps=40, run_dir=str(tmp_path / 'run'), final_episodes=0)
    model, x = agent.actor.model, np.random.default_rng(1).normal(size=(4, *agent.input_shape)).astype(np.float32)
    for one, other in zip(agent.actor(x), tf.nest.flatten(model(x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    statistics = [v.numpy() for v in model.weights if 'moving_mean' in v.path]
    assert len(statistics) == (2 if normalise == 'batch' else 0) and all(np.abs(s).sum() > 0 for s in statistics)
    resumed = xagents.resume(str(tmp_path / 'run'))
    for one, other in zip(resumed.state().weights, agent.state().weights, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    loaded = xagents.policy(tmp_path / 'run', 'last')
    observations = np.stack([agent.envs.encoder.raw_space.sample() for _ in range(5)])
    np.testing.assert_array_equal(loaded(observations), agent.act(observations))


def test_explorers_act_with_the_moving_statistics(tmp_path):
    weights = []
    for explorers in (None, 1):
        options = {**DENSE, **REPLAY, 'normalize_layers': 'batch', 'n_envs': 2, 'vector': 'sync', 'train_frequency': 8}
        agent = xagents.make('dqn', 'CartPole-v1', **options)
        agent.fit(max_steps=80, explorers=explorers)
        weights.append([x.tobytes() for model in agent.state().weights for x in model])
        agent.close()
    assert weights[0] == weights[1]


@pytest.mark.parametrize('agent_id', ['a2c', 'ppo', 'trpo'])
def test_on_policy_agents_refuse_batches_and_learn_with_layers(agent_id, eager, tmp_path):
    with pytest.raises(OptionError, match=r'normalize_layers: got batch normalisation, but .*, expected layer normal'):
        xagents.make(agent_id, 'CartPole-v1', net=[4], normalize_layers='batch')
    path = tmp_path / 'batch.cfg'
    path.write_text('[batchnorm-0]\n[dense-actor]\noutput=1\n[dense-critic]\nfrom=batchnorm-0\noutput=1\n')
    if agent_id != 'trpo':
        with pytest.raises(OptionError, match=r'^model: got batch normalisation'):
            xagents.make(agent_id, 'CartPole-v1', model=str(path))
    agent = xagents.make(agent_id, 'CartPole-v1', net=[4], normalize_layers='layer', n_steps=8, n_envs=2, seed=1)
    before = agent.output_models[-1].get_weights()
    agent.fit(max_steps=16, quiet=True)
    assert not all(np.array_equal(a, b) for a, b in zip(before, agent.output_models[-1].get_weights(), strict=True))


@pytest.mark.parametrize(('agent_id', 'kind'), [('pqn', 'LayerNormalization'), ('crossq', 'BatchRenorm')])
def test_none_turns_the_normalisation_of_an_agent_off(agent_id, kind):
    def kinds(**options):
        env = 'CartPole-v1' if agent_id == 'pqn' else 'Pendulum-v1'
        agent = xagents.make(agent_id, env, net=[4], seed=1, **options)
        return {type(layer).__name__ for layer in agent.output_models[0].layers}

    assert kind in kinds() and kind not in kinds(normalize_layers='none')


def test_a_normalisation_of_batches_keeps_float32_statistics_in_bfloat16():
    options = {**DENSE, **REPLAY, 'normalize_layers': 'batch', 'precision': 'bfloat16'}
    agent = xagents.make('dqn', 'CartPole-v1', **options)
    agent.fit(max_steps=40)
    statistics = [v for v in agent.actor.model.weights if 'moving' in v.path]
    assert statistics and all(v.dtype == 'float32' and np.isfinite(v.numpy()).all() for v in statistics)
    assert all(np.abs(v).sum() > 0 for v in statistics if 'moving_mean' in v.path), 'learning moves them'


def test_the_flag_needs_net():
    code, _, stderr = execute('train', 'dqn', '--env', 'CartPole-v1', '--max-steps', '9', '--normalize-layers', 'layer')
    assert (code, stderr) == (2, 'xagents train: --normalize-layers: got layer, which requires --net\n')


@pytest.mark.parametrize('normalise', ['layer', 'batch'])
def test_the_numpy_export_acts_as_the_agent(normalise, tmp_path, eager):
    agent = xagents.make('dqn', 'CartPole-v1', **DENSE, **REPLAY, normalize_layers=normalise)
    spread(agent.actor.model)
    agent.refresh()
    from xagents.export.write import export

    for format in ('numpy', 'savedmodel'):  # each compares the export with the agent
        export(agent, format, tmp_path / format)
    assert numpy_of(agent.actor.model).plan == agent.actor.plan


# residual blocks


def test_a_residual_block_is_that_of_simba():
    """Section 4 of Lee et al. 2025, by hand."""
    description = dense_network([8, 8], 'relu', True, ['actor'], block='simba')
    assert parse_text(to_text(description)).layers == description.layers
    model = ModelReader(description, [2], (3,), seed=0).build_model()
    rng = np.random.default_rng(0)
    model.set_weights([w + 0.3 * rng.normal(size=w.shape) for w in model.get_weights()])
    x = rng.normal(size=(5, 3)).astype(np.float32)
    weights = iter(w.astype(np.float64) for w in model.get_weights())

    def dense(y):
        return y @ next(weights) + next(weights)

    def layer_norm(y):
        y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
        return y * next(weights) + next(weights)

    y = dense(x.astype(np.float64))
    for _ in range(2):
        y = y + dense(np.maximum(dense(layer_norm(y)), 0))
    np.testing.assert_allclose(model(x), dense(layer_norm(y)), rtol=1e-4, atol=1e-5)
    assert [layer.units for layer in model.layers if isinstance(layer, keras.layers.Dense)] == [8, 32, 8, 32, 8, 2]
    network = NumpyNetwork(plan_from_model(model), flat_parameters(model).numpy())
    values = network(x)[0].copy()
    np.testing.assert_allclose(values, model(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(network(x[:1])[0], values[:1])


@pytest.mark.parametrize(('agent_id', 'env'), [('sac', 'Pendulum-v1'), ('td3', 'Pendulum-v1'), ('ppo', 'CartPole-v1')])
def test_simba_normalises_observations(agent_id, env):
    agent = xagents.make(agent_id, env, net=[4], block='simba', seed=1)
    assert agent.options.normalize_obs and agent.statistics.observations is not None
    assert agent.actor.plan is not None and any(call.kind == 'add' for call in agent.actor.plan.calls)
    assert not xagents.make(agent_id, env, net=[4], block='simba', normalize_obs=False).options.normalize_obs


def test_blocks_have_one_width_and_their_own_normalisation():
    with pytest.raises(ValueError, match='net: got 8 4 with simba blocks, expected equal widths'):
        xagents.make('ppo', 'CartPole-v1', net=[8, 4], block='simba')
    with pytest.raises(OptionError, match=r'block: got simba, .* cannot be used with crossq'):
        xagents.make('crossq', 'Pendulum-v1', net=[8], block='simba')
    with pytest.raises(OptionError, match=r'block: got simba, .* cannot be used with --normalize-layers layer'):
        xagents.make('sac', 'Pendulum-v1', net=[8], block='simba', normalize_layers='layer')
    with pytest.raises(OptionError, match=r'block: got simba, which requires --net'):
        xagents.make('sac', 'Pendulum-v1', block='simba')
    with pytest.raises(ValueError, match=r'\[add-0\] with: got .dense-9., expected input, dense-0'):
        parse_text('[dense-0]\nunits=3\n[add-0]\nwith=dense-9\n[dense-1]\noutput=1')
    with pytest.raises(ValueError, match=r'\[add-0\]: got inputs of shapes \(3,\) and \(2,\), expected equal ones'):
        parse_text('[dense-0]\nunits=3\n[add-0]\nwith=input\n[dense-1]\noutput=1').shapes((2,), [1])
