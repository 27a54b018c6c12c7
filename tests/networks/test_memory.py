"""Recurrent layers against float64 NumPy: steps, sequences, and back-propagation through time."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from xagents.networks.cfg import dense_network, parse_text, to_text
from xagents.networks.description import with_memory
from xagents.networks.keras_to_plan import flat_parameters, plan_from_model
from xagents.networks.memory import memory_units, sequence_outputs, step_outputs, with_memory_of
from xagents.networks.models import ModelReader
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.networks.programs import KerasNetwork
from xagents.networks.recurrent import GRU, LSTM

L, B, F, U = 7, 3, 4, 5
KINDS = {'gru': GRU, 'lstm': LSTM}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_step(p, q, h):
    """Return the new state and what the gradient needs, from the definition."""
    (pz, pr, pn), (qz, qr, qn) = np.split(p, 3, 1), np.split(q, 3, 1)
    z, r = sigmoid(pz + qz), sigmoid(pr + qr)
    n = np.tanh(pn + r * qn)
    return z * h + (1 - z) * n


def lstm_step(p, q, state):
    i, f, g, o = np.split(p + q, 4, 1)
    cell = sigmoid(f) * state[:, U:] + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(cell), cell], 1)


STEPS = {'gru': gru_step, 'lstm': lstm_step}


def reference(kind, weights, x, state, keep):
    """Return the outputs [L, B, U] in float64, one step after the other."""
    kernel, bias, recurrent, *rest = weights
    outputs = []
    for t in range(len(x)):
        q = state[:, :U] @ recurrent + (rest[0] if rest else 0)
        state = STEPS[kind](x[t] @ kernel + bias, q, state)
        outputs.append(state[:, :U])
        state = state * keep[t][:, None]
    return np.array(outputs)


def through_time(kind, weights, x, state, keep, d_outputs):
    """Return the gradients of the weights, by back-propagation through time in float64, step by step."""
    kernel, bias, recurrent, *rest = weights
    before, inputs = [], []
    for t in range(len(x)):
        before.append(state)
        p, q = x[t] @ kernel + bias, state[:, :U] @ recurrent + (rest[0] if rest else 0)
        inputs.append((p, q))
        state = STEPS[kind](p, q, state) * keep[t][:, None]
    gradients = [np.zeros_like(w) for w in weights]
    d_state = np.zeros_like(state)
    for t in reversed(range(len(x))):
        p, q = inputs[t]
        d_after = d_state * keep[t][:, None]
        d_after[:, :U] += d_outputs[t]
        # the derivative of one step, by differences in float64: rows do not depend on each other
        d_p, d_q, d_state = (derivative(kind, (p, q, before[t]), i, d_after) for i in range(3))
        gradients[0] += x[t].T @ d_p
        gradients[1] += d_p.sum(0)
        gradients[2] += before[t][:, :U].T @ d_q
        if rest:
            gradients[3] += d_q.sum(0)
        d_state[:, :U] += d_q @ recurrent.T
    return gradients


def derivative(kind, arguments, i, d_after, epsilon=1e-6):
    """Return the product of `d_after` and the Jacobian of a step with respect to one of its arguments."""
    found = np.zeros_like(arguments[i])
    for j in range(found.shape[1]):
        changed = [[np.array(a) for a in arguments] for _ in range(2)]
        for one, sign in zip(changed, (1, -1), strict=True):
            one[i][:, j] += sign * epsilon
        after = [STEPS[kind](*one) for one in changed]
        found[:, j] = ((after[0] - after[1]) / (2 * epsilon) * d_after).sum(1)
    return found


def drawn(kind, seed=0):
    """Return a layer with random weights, and features, a state, `keep` and gradients of the outputs."""
    rng = np.random.default_rng(seed)
    layer = KINDS[kind](U)
    layer.build((None, F))
    layer.set_weights([rng.normal(size=v.shape) for v in layer.weights])
    x, state = rng.normal(size=(L, B, F)), rng.normal(size=(B, layer.state_units))
    keep, d_outputs = (rng.random((L, B)) > 0.3).astype(float), rng.normal(size=(L, B, U))
    weights = [np.array(w, np.float64) for w in layer.get_weights()]
    return layer, weights, x, state, keep, d_outputs


def as_float32(*arrays):
    return [tf.constant(a, tf.float32) for a in arrays]


@pytest.mark.parametrize('kind', KINDS)
def test_a_sequence_equals_its_steps_in_float64(kind):
    layer, weights, x, state, keep, _ = drawn(kind)
    states = layer.sequence(*as_float32(x, state, keep))
    np.testing.assert_allclose(states[..., :U], reference(kind, weights, x, state, keep), atol=1e-5)


@pytest.mark.parametrize('compiled', [False, True])
@pytest.mark.parametrize('kind', KINDS)
def test_gradients_equal_back_propagation_through_time_in_float64(kind, compiled):
    layer, weights, x, state, keep, d_outputs = drawn(kind)
    x, state, keep, d_outputs = (np.asarray(a, np.float32).astype(float) for a in (x, state, keep, d_outputs))
    expected = through_time(kind, weights, x, state, keep, d_outputs)

    def gradients():
        features, given = tf.constant(x, tf.float32), as_float32(state, keep)
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = tf.reduce_sum(layer.sequence(features, *given)[..., :U] * tf.constant(d_outputs, tf.float32))
        return tape.gradient(loss, [*[v.value for v in layer.weights], features])

    *found, d_features = tf.function(gradients, jit_compile=True)() if compiled else gradients()
    for gradient, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)
    changed = np.array(x)
    changed[1, 2, 3] += 1e-5
    losses = [(reference(kind, weights, one, state, keep) * d_outputs).sum() for one in (changed, x)]
    assert float(d_features[1, 2, 3]) == pytest.approx((losses[0] - losses[1]) / 1e-5, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize('kind', KINDS)
def test_layers_equal_those_of_keras(kind):
    layer, _, x, *_ = drawn(kind)
    other = (keras.layers.GRU if kind == 'gru' else keras.layers.LSTM)(U, return_sequences=True)
    other.build((None, L, F))
    kernel, bias, recurrent, *rest = layer.get_weights()
    other.set_weights([kernel, recurrent, np.stack([bias, *rest]) if rest else bias])
    states = layer.sequence(*as_float32(x, np.zeros((B, layer.state_units)), np.ones((L, B))))
    np.testing.assert_allclose(
        states[..., :U], np.swapaxes(other(np.swapaxes(x, 0, 1).astype(np.float32)), 0, 1), atol=1e-5
    )


@pytest.mark.parametrize('kind', KINDS)
def test_units_remember_for_different_times_at_first(kind):
    layer = KINDS[kind](U)
    layer.build((None, F))
    gates = np.split(layer.get_weights()[1], layer.n_gates)
    times = np.exp(gates[0] if kind == 'gru' else gates[1])
    expected = [1, 1, 1, 1, 64] if kind == 'gru' else 64 ** (np.arange(5) / 4)
    np.testing.assert_allclose(times, expected, rtol=1e-4)
    shares = sigmoid(np.log(times))
    np.testing.assert_allclose(shares, times / (1 + times), rtol=1e-4)
    assert kind == 'gru' or (gates[0] == -gates[1]).all()


# models


def model_of(kind='gru', seed=1, **options):
    description = with_memory(dense_network([8], **options), U, kind)
    model = ModelReader(description, [3, 1], (F,), seed=seed).build_model()
    rng = np.random.default_rng(seed)
    for v in model.trainable_variables:
        v.assign(rng.normal(size=v.shape) * 0.5)
    return model


def steps_of(model, seed=2):
    rng = np.random.default_rng(seed)
    keep = (rng.random((L, B)) > 0.3).astype(np.float32)
    memory = rng.normal(size=(B, memory_units(model))).astype(np.float32)
    return rng.normal(size=(L, B, F)).astype(np.float32), memory, keep


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('shared', [False, True])
def test_acting_step_by_step_equals_the_sequence(kind, shared):
    model = model_of(kind, shared=shared)
    observations, memory, keep = steps_of(model)
    actor = KerasNetwork(keras.Model(model.input, model.outputs[0]), np.float32, model)
    assert actor.memory_units == memory_units(model) == (1 if shared else 2) * (1 if kind == 'gru' else 2) * U
    sequence = observations.reshape(-1, F), tf.constant(memory), keep.reshape(-1)
    (policy, values), at_end = sequence_outputs(model, *sequence)
    for t in range(L):
        rows = slice(t * B, (t + 1) * B)
        outputs, after = step_outputs(model, observations[t], memory)
        acted, remembered = actor(observations[t], None, memory)
        np.testing.assert_allclose(acted, policy[rows], atol=1e-6)
        np.testing.assert_allclose(outputs[1], values[rows], atol=1e-6)
        np.testing.assert_allclose(remembered, after, atol=1e-6)
        memory = np.array(remembered) * keep[t][:, None]
    np.testing.assert_allclose(memory, at_end, atol=1e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_a_row_does_not_depend_on_the_others(kind):
    model = model_of(kind)
    observations, memory, _ = steps_of(model)
    network = NumpyNetwork(plan_from_model(model), flat_parameters(model).numpy())
    whole = [np.array(x) for x in network(observations[0], None, memory)]
    for row in range(B):
        one = network(observations[0, row : row + 1], None, memory[row : row + 1])
        for got, expected in zip(one, whole, strict=True):
            np.testing.assert_array_equal(got[0], expected[row])


def test_a_plan_for_deployment_has_no_memory_of_the_critic():
    model = model_of()
    actor = KerasNetwork(keras.Model(model.input, model.outputs[0]), np.float32, model)
    plan, parts = actor.plan.pruned()
    pruned = NetworkPlan.from_dict(plan.to_dict())
    assert (actor.plan.memory_units, pruned.memory_units) == (2 * U, U)
    observations, memory, _ = steps_of(model)
    weights = np.concatenate([actor.published_weights.weights[part] for part in parts])
    assert len(weights) == pruned.n_parameters < actor.plan.n_parameters
    deployed = NumpyNetwork(pruned, weights)
    expected, after = (np.array(x) for x in actor(observations[0], None, memory))
    got, remembered = deployed(observations[0], None, memory[:, :U])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(remembered, after[:, :U])


def test_a_model_is_that_of_the_first_step_of_an_episode():
    model = model_of()
    observations, memory, _ = steps_of(model)
    outputs, _ = step_outputs(model, observations[0], np.zeros_like(memory))
    for got, expected in zip(model(observations[0]), outputs, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(observations[0])[0], model(observations[0])[0])


@pytest.mark.parametrize('kind', KINDS)
def test_the_burn_in_gets_no_gradient(kind):
    model = model_of(kind)
    observations, memory, keep = steps_of(model)
    keep[:] = 1
    flat = tf.constant(observations.reshape(-1, F))

    def gradient(burn_in):
        with tf.GradientTape() as tape:
            tape.watch(flat)
            given = tf.constant(memory), tf.constant(keep.reshape(-1))
            outputs, _ = sequence_outputs(model, flat, *given, True, burn_in)
            loss = tf.reduce_sum(outputs[0][3 * B :])
        return outputs[0], tape.gradient(loss, flat).numpy().reshape(L, B, F)

    plain, burnt = gradient(0), gradient(3)
    np.testing.assert_allclose(plain[0], burnt[0], atol=1e-6)
    assert (burnt[1][:3] == 0).all() and (np.abs(plain[1][:3]).max((1, 2)) > 0).all()
    assert np.abs(burnt[1][3:]).max() > 0


def test_layers_in_files():
    text = (
        '[gru-0]\nunits=3\ncommon=1\n[lstm-1]\nunits=2\n[dense-actor]\noutput=1\nfrom=lstm-1\n[dense-critic]\noutput=1'
    )
    description = parse_text(text)
    assert description.has_memory and parse_text(to_text(description)) == description
    model = ModelReader(description, [2, 1], (F,), seed=1).build_model()
    assert memory_units(model) == 3 + 2 * 2
    again = ModelReader(description, [2, 1], (F,), seed=1).build_model()
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r'\[gru-0\] units: is missing'):
        parse_text('[gru-0]\n[dense-actor]\noutput=1')
    with pytest.raises(ValueError, match='expected a vector: add a flatten'):
        ModelReader(description, [2, 1], (8, 8, 1))


def test_outputs_with_the_same_input_share_a_recurrent_layer():
    names = [layer.name for layer in with_memory(dense_network([8], shared=True), U, 'gru').layers]
    assert names == ['dense-0', 'gru', 'dense-actor', 'dense-critic']
    own = with_memory(dense_network([8]), U, 'lstm')
    assert [layer.name for layer in own.layers if layer.kind == 'lstm'] == ['lstm-actor', 'lstm-critic']


def test_memory_needs_layers_that_have_a_plan():
    entry = keras.Input((F,))
    model = keras.Model(entry, GRU(2)(keras.layers.Dropout(0.5)(entry)))
    assert with_memory_of(model, None) is model
    with pytest.raises(ValueError, match='got recurrent layers with layers that have no plan'):
        KerasNetwork(model)
