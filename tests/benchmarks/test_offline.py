"""The benchmark of offline learning: commands and settings."""

import shlex

from benchmarks.offline.cases import ALGORITHMS, DATASETS, settings_of
from benchmarks.workers.offline_worker import arguments
from tests.benchmarks.common import trial_options
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
