"""Wrong results of methods that a user overrides: each is one line with the name of the method."""

import dataclasses
import decimal
import functools

import numpy as np
import pytest
import tensorflow as tf

import xagents
from xagents.a2c.agent import A2C
from xagents.a2c.cli import A2COptions
from xagents.base.method_checks import check_results
from xagents.dqn.agent import DQN
from xagents.options.declaration import option
from xagents.options.errors import OptionError
from xagents.ppo.agent import PPO
from xagents.registry.agents import parts
from xagents.registry.parts import REGISTERED_MODULES


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Forget the agents that a test registers."""
    monkeypatch.setattr(parts, 'registered', dict(parts.registered))
    monkeypatch.setenv(REGISTERED_MODULES, '')


OBSERVATIONS = np.zeros((3, 4), np.float32)
METHODS = {
    'advantages': (np.zeros(3), (np.zeros(4), np.zeros(3)), r'expected the values \[T \+ 1, N\] and the advantages'),
    'collect': (None, {'rewards': OBSERVATIONS}, 'returned None, expected a rollout'),
    'learn': (3, {}, 'returned int, expected a dict of metrics'),
    'next_atoms': (np.zeros(3), np.zeros((3, 2)), r'of shape \[3\], expected distributions of shape \[B, K\]'),
    'next_values': (np.zeros((3, 1)), np.zeros(3), r'of shape \[3, 1\], expected one float for each .* \[3\]'),
    'output_units': ([1], {'q': 1}, 'returned list, expected a dict'),
    'parts': ({'n': 3}, {'n': np.zeros(3)}, "expected a NumPy array, or an object with .* name 'n'"),
    'policy': (np.zeros(3), {'actions': np.zeros(3)}, r'returned ndarray of shape \[3\], expected a dict with'),
    'q_values': (np.zeros(3), np.zeros((3, 2)), r'of shape \[3\], expected action values of shape \[B, n\]'),
    'policy_loss': (np.zeros(3), np.zeros(()), r'of shape \[3\], expected a scalar loss'),
}


@pytest.mark.parametrize('name', METHODS)
def test_a_wrong_result_names_its_method(name):
    wrong, right, message = METHODS[name]

    def made(result):
        owner = type('Mine', (), {name: lambda self, observations: result})
        check_results(owner)
        return getattr(owner(), name)

    with pytest.raises(TypeError, match=f'^Mine.{name} .*{message}'):
        made(wrong)(OBSERVATIONS)
    assert made(right)(OBSERVATIONS) is right


def test_a_metric_that_is_no_number_names_learn():
    owner = type('Mine', (), {'learn': lambda self, batch: batch})
    check_results(owner)
    for wrong in ([1, 2], None, 'abc', np.array('abc'), np.zeros(1)):
        with pytest.raises(TypeError, match=r"Mine\.learn returned dict, expected a number as 'a', not"):
            owner().learn({'a': wrong})
    right = {'a': 1, 'b': np.float32(2), 'c': tf.zeros(()), 'd': decimal.Decimal(1), 'e': tf.Variable(1.0)}
    assert owner().learn(right) is right and owner().learn(None) is None


def test_whole_numbers_are_no_values():
    owner = type('Mine', (), {'next_values': lambda self, x: tf.zeros(3, tf.int64)})
    check_results(owner)
    with pytest.raises(TypeError, match=r'returned tensor of shape \[3\], expected one float for each'):
        owner().next_values(OBSERVATIONS)


def test_values_of_unknown_shape_are_accepted():
    owner = type(
        'Mine', (), {'next_values': lambda self, x: tf.numpy_function(lambda: np.zeros(3, np.float32), [], tf.float32)}
    )
    check_results(owner)
    tf.function(owner().next_values).get_concrete_function(OBSERVATIONS)


def test_a_class_method_stays_one():
    class Mine:
        @classmethod
        def output_units(cls, envs):
            return cls.__name__

    check_results(Mine)
    with pytest.raises(TypeError, match=r'Mine\.output_units returned str, expected a dict'):
        Mine.output_units(None)


def make(agent, **options):
    entry = agent.__mro__[1].__name__.lower()
    xagents.register(f'mine-{entry}-{agent.__name__.lower()}')(agent)
    more = {'buffer_initial_size': 8, 'buffer_batch_size': 4} if entry == 'dqn' else {'n_steps': 4}
    name = f'mine-{entry}-{agent.__name__.lower()}'
    return xagents.make(name, 'CartPole-v1', net=[4], seed=1, quiet=True, **more, **options)


class Columns(DQN):
    def next_values(self, observations):
        return tf.reduce_max(self.target(observations)[0], 1, keepdims=True)


class NoErrors(DQN):
    def update_once(self, batch):
        return super().update_once(batch)[0]


class MoreMetrics(DQN):
    def update_once(self, batch):
        metrics, errors = super().update_once(batch)
        return {**metrics, 'stats/mine': tf.zeros(())}, errors


class LessMetrics(A2C):
    def update(self, steps, learning_rate):
        return {'updates': tf.ones(())}


class Fractions(A2C):
    def policy(self, observations, noise):
        return {'actions': np.full(len(observations), 0.5)}


class Forgetful(A2C):
    def __init__(self, envs, model, **options):
        pass


class Nameless(A2C):
    @classmethod
    def output_units(cls, envs):
        return {'actor': 2}


@pytest.mark.parametrize(
    ('agent', 'message'),
    [
        (Columns, r'Columns.next_values returned tensor of shape \[4, 1\]'),
        (NoErrors, r'update_once returned dict, expected the metrics by name and the TD errors \[B\]'),
        (MoreMetrics, 'metrics with stats/mine, expected updates, stats/refused and the declared loss/value'),
        (LessMetrics, 'metrics without stats/refused, .*, expected updates, stats/refused and the declared'),
        (Fractions, r'Fractions.policy returned actions \[1\] of float64, expected \[1\] of int32'),
        (Forgetful, r'Forgetful has no attribute .*: its __init__ has not called super'),
        (Nameless, "Nameless.output_units returned no 'critic', expected the sizes of actor, critic"),
    ],
)
def test_an_agent_with_a_wrong_method_ends_with_its_name(agent, message, eager):
    with pytest.raises((TypeError, AttributeError), match=message):
        make(agent).fit(max_steps=40)


def test_an_option_of_every_agent_keeps_its_type():
    @dataclasses.dataclass
    class Wrong(A2COptions):
        seed: float = option(0.5, 'strength')

    with pytest.raises(OptionError, match='seed is an option of every agent: expected a whole number'):
        xagents.register('mine-seed')(type('Seeded', (A2C,), {'Options': Wrong}))
    for declaration, message in (({'at_last': 0}, 'at_last=, .*at_least'), ({'tune': 'uniform'}, 'tune: got uniform')):
        with pytest.raises(TypeError, match=message):
            option(1, 'help', **declaration)


class Entropic(PPO):
    MINIBATCH_METRICS = (*PPO.MINIBATCH_METRICS, 'stats/ratio')
    METRICS = (*PPO.METRICS, 'stats/ratio')

    def minibatch_step(self, data, clip_norm):
        return {**super().minibatch_step(data, clip_norm), 'stats/ratio': tf.constant(0.5)}


def test_a_subclass_logs_a_metric_of_its_own(eager):
    (log,) = make(Entropic).train_iter(max_steps=4)
    assert log['stats/ratio'] == 0.5


@pytest.mark.parametrize(
    ('method', 'message'),
    [
        (
            {'learn': lambda self, batch, learning_rate: None},
            r"Mine\.learn: got the parameters batch, learning_rate, expected \(self, batch, schedule\): schedule\['lea",
        ),
        ({'collect': lambda self: {}}, r'Mine\.collect: got the parameters \(\), expected \(self, schedule\)'),
    ],
)
def test_a_method_with_other_parameters_is_refused_at_once(method, message):
    with pytest.raises(TypeError, match=message):
        type('Mine', (A2C,), method)


def test_counts_are_no_metrics_of_an_algorithm():
    with pytest.raises(TypeError, match=r'Mine\.METRICS: got stats/refused, expected only the other metrics'):
        type('Mine', (A2C,), {'METRICS': ('stats/refused', 'loss/policy')})


def test_forms_of_methods_that_are_no_functions_stay_as_they_are():
    class Mine:
        @staticmethod
        def policy_loss(ratio):
            return ratio

        next_values = functools.partialmethod(lambda self, sign, observations: sign * observations, -1.0)

    check_results(Mine)
    assert Mine().policy_loss(2.0) == 2.0 and Mine().next_values(2.0) == -2.0


class Masked(DQN):
    def update_once(self, batch):
        metrics, errors = super().update_once(batch)
        return [metrics, tf.boolean_mask(errors, batch.rewards > -9.0)]


def test_td_errors_of_a_shape_that_is_known_later_are_accepted(eager):
    make(Masked).fit(max_steps=40)
