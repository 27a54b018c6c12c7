"""The benchmark of offline learning: commands, settings, evaluation, table."""

import json
import shlex

import numpy as np

from benchmarks.offline import run as offline
from benchmarks.offline.cases import ALGORITHMS, DATASETS, settings_of
from benchmarks.workers.d3rlpy_worker import policy_of
from benchmarks.workers.offline_worker import arguments, play
from tests.benchmarks.common import MACHINE, cells, options_of
from xagents.options.declaration import describe
from xagents.options.environment import NetworkOptions
from xagents.registry.agents import find_agent


def test_commands_and_settings_are_valid():
    for dataset in DATASETS:
        trainings = [options_of(shlex.split(words)) for words in dataset.commands if words.startswith('train')]
        assert trainings[0]['env'] == dataset.env and dataset.name in dataset.commands[-1]
        assert set(dataset.updates) == set(ALGORITHMS)
    for algorithm in ALGORITHMS:
        known = {*describe(find_agent(algorithm).options), *describe(NetworkOptions)}
        assert set(arguments(settings_of(algorithm))) <= known


def test_written_policies_are_networks_of_standardised_observations():
    rng = np.random.default_rng(0)
    policy = {'mean': np.array([1.0, 2.0]), 'deviation': np.array([2.0, 4.0]), 'low': [-2.0], 'high': [4.0]}
    policy |= {'kernel_0': rng.normal(size=(2, 3)), 'bias_0': rng.normal(size=3)}
    policy |= {'kernel_1': rng.normal(size=(3, 1)), 'bias_1': rng.normal(size=1)}
    hidden = np.maximum(np.array([0.5, -0.5]) @ policy['kernel_0'] + policy['bias_0'], 0)
    wanted = 1 + 3 * np.tanh(hidden @ policy['kernel_1'] + policy['bias_1'])
    np.testing.assert_allclose(policy_of(policy)(np.array([[2.0, 0.0]])), wanted[None], rtol=1e-5)


def test_every_policy_starts_from_the_same_states():
    first, second = (play(lambda seen: np.zeros((len(seen), 1)), 'Pendulum-v1', 3) for _ in range(2))
    assert first == second and first['episodes'] == 3 and first['std'] > 0


def result(library, seed, mean, seconds, updates=2_000):
    job = {'dataset': 'pendulum/medium-v0', 'steps': 9, 'data_mean': -700.0, 'updates': updates, 'episodes': 100}
    job |= {'library': library, 'seed': seed, 'settings': settings_of('bc')}
    found = {'mean': mean, 'cpu_seconds': seconds, 'seconds': 99.0, 'updates_timed': updates - 500, 'versions': {}}
    return json.loads(json.dumps({**found, **MACHINE, **job}))


def test_the_table_has_medians_means_errors_and_ratios():
    results = [result('d3rlpy', seed, -10.0 * seed, 15.0) for seed in (1, 2, 6)]
    results += [result('xagents', seed, -20.0, 5.0 / seed) for seed in (6, 1, 2)]
    row = cells(offline.render(results), '`pendulum/medium-v0`')
    assert row[1:6] == ['-700.0', 'bc', '2 000', '-20.0; -30.0 ± 15.3', '-20.0; -20.0 ± 0.0']
    assert row[6:] == ['100 (100 to 100)', '600 (300 to 1 800)', '6.00 (3.00 to 18.00)']
    one = results[0]
    assert offline.key_of(one) == offline.key_of({**one, 'mean': 0.0}) != offline.key_of({**one, 'updates': 4_000})
