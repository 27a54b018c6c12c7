"""The benchmark of offline learning: commands, settings, table."""

import json
import shlex

from benchmarks.offline import run as offline
from benchmarks.offline.cases import ALGORITHMS, DATASETS, settings_of
from benchmarks.workers.offline_worker import arguments
from tests.benchmarks.common import MACHINE, cells, trial_options
from xagents.options.declaration import declared_options
from xagents.options.environment import NetworkOptions
from xagents.registry.agents import find_agent


def test_commands_and_settings_are_valid():
    for dataset in DATASETS:
        trainings = [trial_options(shlex.split(words)) for words in dataset.commands if words.startswith('train')]
        assert trainings[0]['env'] == dataset.env and dataset.name in dataset.commands[-1]
        assert set(dataset.updates) == set(ALGORITHMS)
    for algorithm in ALGORITHMS:
        known = {*declared_options(find_agent(algorithm).options), *declared_options(NetworkOptions)}
        assert set(arguments(settings_of(algorithm))) <= known


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
    assert (
        offline.parse_key(one)
        == offline.parse_key({**one, 'mean': 0.0})
        != offline.parse_key({**one, 'updates': 4_000})
    )
