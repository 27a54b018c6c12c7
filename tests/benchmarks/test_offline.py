"""The benchmark of offline learning: commands, settings, kept results, table; nothing is trained."""

import json
import shlex

import numpy as np

from benchmarks.offline import run as offline
from benchmarks.offline.cases import ALGORITHMS, DATASETS, settings_of
from benchmarks.workers.d3rlpy_worker import acting
from benchmarks.workers.offline_worker import arguments, play
from tests.benchmarks.common import MACHINE, cells
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.options.declaration import describe
from xagents.options.environment import NetworkOptions
from xagents.registry.agents import find_agent


def parsed(words):
    name, *rest = shlex.split(words)
    command = find_command(name)
    agent = rest.pop(0) if not rest[0].startswith('-') else None
    return parse(command, agent, rest)[1]


def test_commands_make_the_data_sets_that_are_learned_from():
    for dataset in DATASETS:
        options = [parsed(command) for command in dataset.commands if command.startswith('train')]
        assert options[0]['env'] == dataset.env
        assert dataset.name in dataset.commands[-1]
        assert set(dataset.updates) == set(ALGORITHMS)


def test_settings_are_options_of_our_agents():
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
    np.testing.assert_allclose(acting(policy)(np.array([[2.0, 0.0]])), wanted[None], rtol=1e-5)


def test_every_policy_plays_from_the_same_starts():
    seen = []

    def still(observations):
        seen.append(observations)
        return np.zeros((len(observations), 1))

    first, second = (play(still, 'Pendulum-v1', 3) for _ in range(2))
    assert first == second
    assert first['episodes'] == 3
    assert first['std'] > 0
    assert len(seen) == 400
    np.testing.assert_array_equal(seen[0], seen[200])


def result(library, seed, mean, seconds, updates=2_000):
    job = {'dataset': 'pendulum/medium-v0', 'steps': 9, 'data_mean': -700.0, 'updates': updates, 'episodes': 100}
    job |= {'library': library, 'seed': seed, 'settings': settings_of('bc')}
    found = {'mean': mean, 'cpu_seconds': seconds, 'seconds': 99.0, 'updates_timed': updates - 500, 'versions': {}}
    return json.loads(json.dumps({**found, **MACHINE, **job}))


def test_the_table_has_medians_means_and_errors_of_seeds_and_ratios_seed_by_seed():
    results = [result('d3rlpy', seed, -10.0 * seed, 15.0) for seed in (1, 2, 6)]
    results += [result('xagents', seed, -20.0, 5.0 / seed) for seed in (6, 1, 2)]
    row = cells(offline.render(results), '`pendulum/medium-v0`')
    assert row[1:4] == ['-700.0', 'bc', '2 000']
    assert row[4:6] == ['-20.0; -30.0 ± 15.3', '-20.0; -20.0 ± 0.0']
    assert row[6:] == ['100 (100 to 100)', '600 (300 to 1 800)', '6.00 (3.00 to 18.00)']


def test_results_of_other_settings_are_not_mixed():
    one = result('xagents', 1, -20.0, 5.0)
    assert offline.key(one) == offline.key({**one, 'mean': 0.0})
    for name, value in {'seed': 2, 'updates': 4_000, 'data_mean': -1.0, 'settings': settings_of('iql')}.items():
        assert offline.key(one) != offline.key({**one, name: value})
    assert 'Nothing' in offline.render([])
