"""The benchmark of explorers: counts of tracebacks."""

import sys

from benchmarks.explorers import messages


def test_tracebacks_are_counted(tmp_path):
    crash = 'import sys; print("{\\"event\\": \\"result\\", \\"tracebacks\\": 2}", flush=True); {}[1]'
    assert messages.outcome([sys.executable, '-c', crash], tmp_path)['tracebacks'] == 3
