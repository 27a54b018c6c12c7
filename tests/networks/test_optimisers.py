"""RMSProp, AdamW and Muon: their steps, the parameters to which each rule applies, and refused steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.networks.test_networks import CNN_CRITIC
from tests.reference import D, flat, network
from xagents.networks.cfg import dense_network
from xagents.networks.models import ModelReader, make_optimizer, outer_matrices, with_logits
from xagents.networks.optimisation.gradient_steps import GradientStep
from xagents.networks.programs import Program
from xagents.networks.state_dependent import with_state_dependent_std
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import OPTIMIZERS, AgentOptions, OnPolicyOptions
from xagents.options.errors import OptionError
from xagents.sac.cli import SACOptions
from xagents.sac.temperature import Temperature
from xagents.teams.cli import TeamOptions

RATES = (0.1, 0.05, 0.02, 0.02, 0.01)
NUMBERS = {'lr': RATES[0], 'beta1': 0.8, 'beta2': 0.95, 'opt_epsilon': 1e-4}


def model_of(seed=1, optimizer=None):
    """A network with two hidden layers and two outputs."""
    entry = keras.Input((D,))
    hidden = keras.layers.Dense(6, 'tanh', name='second')(keras.layers.Dense(4, 'tanh', name='first')(entry))
    model = keras.Model(entry, [keras.layers.Dense(n, name=f'head-{n}')(hidden) for n in (2, 1)])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=v.shape) for v in model.weights])
    if optimizer is not None:
        model.compile(optimizer)
    return model


def gradients_of_run(model):
    """One list of gradients for each learning rate."""
    rng = np.random.default_rng(3)
    return [[rng.normal(size=v.shape).astype(np.float32) for v in model.trainable_variables] for _ in RATES]


def run(model, options, clip=False, finite=True):
    """Make a compiled step with each of the gradients."""
    step = GradientStep(model, TracedOptions(options), clip)

    def once(gradients, rate, enabled):
        step.set_rate(rate)
        norm = tf.linalg.global_norm(gradients)
        return step.apply(gradients, norm, enabled)

    program = Program(once, jit=True)
    for gradients, rate in zip(gradients_of_run(model), RATES, strict=True):
        program(gradients, rate, finite)
    return step


def run_keras(model, optimizer, factor=lambda gradients: 1.0):
    """Make the same steps with an optimizer of Keras."""
    for gradients, rate in zip(gradients_of_run(model), RATES, strict=True):
        optimizer.learning_rate.assign(rate)
        optimizer.apply([tf.constant(g * factor(gradients)) for g in gradients], model.trainable_variables)


def test_adamw_equals_its_definition_and_that_of_keras():
    options = AgentOptions(optimizer='adamw', weight_decay=0.3, **NUMBERS)
    model, same = model_of(), model_of()
    expected = flat(model).astype(np.float64)
    m = v = np.zeros_like(expected)
    for t, (gradients, rate) in enumerate(zip(gradients_of_run(model), RATES, strict=True), 1):
        g = np.concatenate([np.ravel(x) for x in gradients]).astype(np.float64)
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        # ε is added to the root of v without its correction, as in section 2 of the paper on Adam
        step = np.sqrt(1 - 0.95**t) / (1 - 0.8**t) * m / (np.sqrt(v) + 1e-4)
        expected = expected - rate * (step + 0.3 * expected)
    step = run(model, options)
    assert type(step.optimizer) is keras.optimizers.AdamW and step.optimizer.weight_decay == 0.3
    np.testing.assert_allclose(flat(model), expected, rtol=2e-5, atol=2e-6)
    run_keras(same, make_optimizer('adamw', 0.1, 0.8, 0.95, 1e-4, 0.3))
    np.testing.assert_allclose(flat(model), flat(same), rtol=2e-5, atol=2e-6)


def test_rmsprop_equals_its_definition():
    model = model_of()
    expected = flat(model).astype(np.float64)
    mean = np.zeros_like(expected)
    for gradients, rate in zip(gradients_of_run(model), RATES, strict=True):
        g = np.concatenate([np.ravel(x) for x in gradients]).astype(np.float64)
        mean = 0.99 * mean + 0.01 * g**2
        # ε is added to the root; it is large enough here to differ from ε inside of the root
        expected = expected - rate * g / (np.sqrt(mean) + 0.05)
    run(model, AgentOptions(optimizer='rmsprop', **{**NUMBERS, 'opt_epsilon': 0.05}))
    np.testing.assert_allclose(flat(model), expected, rtol=2e-5, atol=2e-6)


def test_adamw_without_decay_is_adam():
    model, same = model_of(), model_of()
    run(model, AgentOptions(optimizer='adamw', weight_decay=0.0, **NUMBERS))
    run(same, AgentOptions(optimizer='adam', **NUMBERS))
    np.testing.assert_array_equal(flat(model), flat(same))


@pytest.mark.parametrize('clip', [False, True])
def test_muon_equals_that_of_keras(clip):
    options = OnPolicyOptions(optimizer='muon', weight_decay=0.3, grad_norm=0.5, **NUMBERS)
    model, same, adam = model_of(), model_of(), model_of()
    step = run(model, options, clip)
    optimizer = keras.optimizers.Muon(
        *(0.1, 0.8, 0.95), epsilon=1e-4, weight_decay=0.3, adam_weight_decay=0.3, exclude_layers=['first', 'head']
    )
    run_keras(same, optimizer, lambda gradients: 0.5 / np.sqrt(sum((g**2).sum() for g in gradients)) if clip else 1.0)
    np.testing.assert_allclose(flat(model), flat(same), rtol=1e-4, atol=1e-5)
    assert len(step.optimizer.variables) == len(optimizer.variables)
    for one, other in zip(step.optimizer.variables, optimizer.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    # the numbers of the options are not tensors of the program
    assert step.optimizer.get_config()['adam_beta_1'] == 0.8
    # the matrices of hidden layers have steps of their own, all other parameters those of AdamW
    run(adam, OnPolicyOptions(optimizer='adamw', weight_decay=0.3, grad_norm=0.5, **NUMBERS), clip)
    for one, other in zip(model.trainable_variables, adam.trainable_variables, strict=True):
        hidden = one.path == 'second/kernel'
        assert np.allclose(one, other, rtol=1e-4, atol=1e-5) != hidden, one.path


def test_a_muon_of_a_compiled_model_updates_its_matrices():
    model, same = model_of(optimizer=keras.optimizers.Muon(0.1, exclude_layers=['head'])), model_of()
    run(model, AgentOptions())
    run_keras(same, keras.optimizers.Muon(0.1, exclude_layers=['head']))
    np.testing.assert_allclose(flat(model), flat(same), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_a_refused_step_changes_nothing(optimizer):
    model = model_of()
    step = run(model, AgentOptions(optimizer=optimizer))
    before = [v.numpy() for v in (*model.variables, *step.optimizer.variables)]

    def once(observations, factor):
        with tf.GradientTape() as tape:
            loss = factor * sum(tf.reduce_sum(output) for output in model(observations))
        return tf.stack(step(tape, loss))

    program = Program(once, jit=True)
    for factor in (np.nan, np.inf):
        assert program(np.ones((2, D), np.float32), factor).numpy()[1:].tolist() == [0, 1]
        for variable, value in zip((*model.variables, *step.optimizer.variables), before, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert program(np.ones((2, D), np.float32), 1.0).numpy()[1:].tolist() == [1, 0]
    assert not np.array_equal(model.variables[0], before[0])


def dense(n, name, activation=None):
    return keras.layers.Dense(n, activation, name=name)


def test_muon_is_for_the_matrices_between_the_first_and_the_last_layers():
    assert outer_matrices(model_of()) == ['first/kernel', 'head-2/kernel', 'head-1/kernel']
    read = ModelReader(dense_network([8, 8], 'tanh'), [3, 1], (4,), log_std=-0.5).build_model()
    left = {v.path for v in read.trainable_variables if len(v.shape) == 2} - {*outer_matrices(read)}
    assert left == {'dense-actor-1/kernel', 'dense-critic-1/kernel'}
    sde = with_state_dependent_std(network([2, 1], 1, plain=False), -1.0, False)
    assert len(outer_matrices(sde)) == 4 and 'deviations/log_std' in outer_matrices(sde)
    images = ModelReader(CNN_CRITIC, [1], (84, 84, 4), action_units=2).build_model()
    assert outer_matrices(images) == ['dense-0/kernel', 'dense-critic/kernel'], 'the actions enter after convolutions'
    noisy = ModelReader(dense_network([8, 8], outputs=('q',)), [3], (4,), noisy=True).build_model()
    left = {v.path for v in noisy.trainable_variables if len(v.shape) == 2} - {*outer_matrices(noisy)}
    assert left == {'dense-q-1/kernel', 'dense-q-1/kernel_std'}, 'the noise enters every layer'


def test_outer_matrices_of_other_models():
    entry = keras.Input((D,))
    scaled = keras.layers.Rescaling(0.5)(entry)
    hidden = dense(4, 'hidden')(dense(4, 'first')(scaled))
    softmax = keras.Model(entry, keras.layers.Softmax()(dense(2, 'chosen')(hidden)))
    assert outer_matrices(with_logits(softmax)) == ['first/kernel', 'chosen/kernel']
    value, advantages = (dense(n, f'units-{n}')(hidden) for n in (1, 2))
    dueling = keras.Model(entry, value + advantages - keras.ops.mean(advantages, -1, True))
    assert sorted(outer_matrices(dueling)) == ['first/kernel', 'units-1/kernel', 'units-2/kernel']
    other = keras.Input((D,))
    nested = keras.Model(other, keras.layers.Activation('tanh')(dueling(other)))
    assert sorted(path.split('/')[-2] for path in outer_matrices(nested)) == ['first', 'units-1', 'units-2']
    sequential = keras.Sequential([entry, dense(4, 'one'), dense(4, 'two'), keras.layers.ReLU(), dense(4, 'three')])
    assert [path.split('/')[-2] for path in outer_matrices(sequential)] == ['one', 'three']
    subclassed = type('Subclassed', (keras.Model,), {'call': lambda self, x: x})()
    assert outer_matrices(subclassed) == []


@pytest.mark.parametrize('optimizer', ['adamw', 'muon'])
def test_a_temperature_does_not_decay(optimizer):
    same, decaying = (
        Temperature(TracedOptions(SACOptions(optimizer=name, weight_decay=0.5)), -1.0) for name in ('adam', optimizer)
    )
    for temperature in (same, decaying):
        for entropy in (1.0, -3.0, 2.0):
            temperature.update(tf.constant(entropy), tf.constant(0.1), tf.ones(()))
    np.testing.assert_array_equal(decaying(), same())
    assert same() != 1


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
def test_weight_decay_requires_an_optimizer_that_uses_it(optimizer):
    with pytest.raises(OptionError) as caught:
        AgentOptions.resolve({'optimizer': optimizer, 'weight_decay': 0.1})
    assert str(caught.value) == 'weight_decay: got 0.1, which requires --optimizer adamw or muon'
    AgentOptions.resolve({'optimizer': optimizer, 'weight_decay': 0.01})
    with pytest.raises(OptionError, match=r'^weight_decay: got -1.0, expected a number at least 0$'):
        AgentOptions.resolve({'optimizer': 'adamw', 'weight_decay': -1})


def test_policies_of_a_team_may_have_other_optimizers():
    assert TeamOptions.resolve({'weight_decay': 0.1}).weight_decay == 0.1
