"""Steps of an optimiser: a loss that cannot teach anything is an error when the update is traced."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import D, flat, network
from xagents.networks.optimisation.gradient_steps import GradientStep, adopt_model_optimizer, flat_gradient
from xagents.networks.programs import Program
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError

MESSAGE = 'critic_model: the loss has no gradient with respect to its parameters, which would never change'


def update(model, inside, **options):
    """A program that makes one step; the outputs are computed within the tape, or before it."""
    step = GradientStep(model, TracedOptions(AgentOptions()), name='critic_model', **options)

    def once(observations):
        before = model(observations)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(observations) if inside else before) ** 2)
        return tf.stack(step(tape, loss))

    return Program(once, jit=False)


@pytest.mark.parametrize('eagerly', [False, True])
def test_a_loss_outside_of_the_tape_is_an_error_that_names_the_network(eagerly, request):
    if eagerly:
        request.getfixturevalue('eager')
    model = network([1], 1)
    before = flat(model)
    with pytest.raises(ValueError, match=MESSAGE):
        update(model, inside=False)(np.ones((2, D), np.float32))
    np.testing.assert_array_equal(flat(model), before)
    norm, applied, refused = update(model, inside=True)(np.ones((2, D), np.float32)).numpy()
    assert (applied, refused) == (1, 0) and norm > 0 and not np.array_equal(flat(model), before)


def test_an_idle_network_may_be_left_alone():
    model = network([1], 1)
    before = flat(model)
    norm, applied, refused = update(model, inside=False, may_be_unused=True)(np.ones((2, D), np.float32)).numpy()
    assert (norm, applied, refused) == (0, 1, 0)
    np.testing.assert_array_equal(flat(model), before)


def test_a_head_without_a_share_in_the_loss_has_the_gradient_0_or_is_an_error_that_names_it():
    model = network([1, 1], 1)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(model(np.ones((1, D), np.float32))[0])
    gradient = flat_gradient(tape, loss, model.trainable_variables).numpy()
    assert gradient[-8:-4].all() and not gradient[-4:].any(), 'of the second of two outputs'
    head = model.trainable_variables[-2].path
    with pytest.raises(ValueError, match=f'^model: the loss has no gradient with respect to {head}, '):
        flat_gradient(tape, loss, model.trainable_variables, 'model')


def test_what_a_model_was_compiled_with_stands_in_the_options():
    options, model = AgentOptions(), network([1], 1, plain=False)
    assert adopt_model_optimizer(model, options) == (options, None)
    model.compile(keras.optimizers.SGD(0.25))
    assert adopt_model_optimizer(model, options) == (options.changed(lr=0.25), 0.25)
    given = AgentOptions.resolve({'lr': 0.5})
    assert adopt_model_optimizer(model, given) == (given, None), 'what was given counts'


@pytest.mark.parametrize('name, value', [('optimizer', 'muon'), ('beta1', 0.5), ('precision', 'bfloat16')])
def test_an_option_that_a_model_contradicts_is_refused(name, value):
    model = network([1], 1)
    model.compile(keras.optimizers.SGD(0.25))
    with pytest.raises(OptionError, match=f'^{name}: got {value}'):
        adopt_model_optimizer(model, AgentOptions.resolve({name: value}))
