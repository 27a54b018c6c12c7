"""Fixtures of the tests of benchmarks."""

import pytest


@pytest.fixture(autouse=True)
def no_signal_handler(monkeypatch):
    """Keep the signal handlers of the test process."""
    monkeypatch.setattr('benchmarks.jobs.stop_on_sigterm', lambda: None)
