"""Fixtures: a folder for recorded data sets, and few updates in each iteration on a data set."""

import pytest

from xagents.base import sampled_batches
from xagents.datasets import dataset_names


@pytest.fixture(scope='session', autouse=True)
def data_sets(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(dataset_names.ROOT, str(tmp_path_factory.mktemp('datasets')))
        yield


@pytest.fixture(autouse=True)
def few_updates(monkeypatch):
    monkeypatch.setattr(sampled_batches, 'DATASET_UPDATES', 5)
    monkeypatch.setattr(sampled_batches, 'DATASET_UPDATES_OF_IMAGES', 1)
