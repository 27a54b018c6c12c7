"""The benchmark of explorers: wrong messages, tracebacks, speeds."""

import contextlib
import random
import sys

from benchmarks.explorers import attackers, messages
from tests.explorers.test_worker_pool import fragment
from xagents.explorers.messages import WireError, pack, unpack


def test_tracebacks_are_counted(tmp_path):
    crash = 'import sys; print("{\\"event\\": \\"result\\", \\"tracebacks\\": 2}", flush=True); {}[1]'
    assert messages.outcome([sys.executable, '-c', crash], tmp_path)['tracebacks'] == 3
    found = messages.outcome([sys.executable, '-c', '{}[1]'], tmp_path)
    assert found['tracebacks'] == 1 and 'KeyError' in found['problem']


def test_most_wrong_messages_are_refused_and_some_are_read():
    rng, honest, read = random.Random(0), [attackers.hello(), pack('fragment', *fragment())], 0
    for _ in range(500):
        with contextlib.suppress(WireError):
            unpack(attackers.change(rng, honest))
            read += 1
    assert 100 < read < 400
