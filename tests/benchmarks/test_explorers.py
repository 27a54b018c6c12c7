"""The benchmark of explorers: wrong messages, tracebacks, speeds."""

import contextlib
import random
import sys

from benchmarks.explorers import attackers, messages, rates
from tests.benchmarks.common import cells
from tests.explorers.test_worker_pool import fragment
from xagents.explorers.messages import WireError, pack, unpack


def test_tracebacks_are_counted(tmp_path):
    crash = 'import sys; print("{\\"event\\": \\"result\\", \\"tracebacks\\": 2}", flush=True); {}[1]'
    assert messages.outcome([sys.executable, '-c', crash], tmp_path)['tracebacks'] == 3
    found = messages.outcome([sys.executable, '-c', '{}[1]'], tmp_path)
    assert found['tracebacks'] == 1 and 'KeyError' in found['problem']


def test_tables_of_speeds():
    late = {'0': {'rates': [100, 200], 'lags': [0, 0]}, '4': {'rates': [300, 800], 'lags': [3, 4]}}
    text = rates.render_straggler({'rows': late})
    assert cells(text, '`--max-lag 4`')[2:] == ['3.50 (3.00 to 4.00)', '3', '4']
    text = rates.render_pong({'rows': {'none': [100], '`--overlap`': [120], '2, `--overlap`': [150]}})
    assert cells(text, '2, `--overlap`') == ['2, `--overlap`', '150', '1.50', '1.25']
    text = rates.render_ray({'rows': {'sync': {'local': [6000], 'ray': [5400]}}})
    assert cells(text, 'sync') == ['sync', '6 000', '5 400', '0.90']
    text = rates.render_rates({'rates': {'none': [90], '1': [100], '4': [380]}})
    assert cells(text, '4') == ['4', '380', '3.80', '0.95']


def test_most_wrong_messages_are_refused_and_some_are_read():
    rng, honest, read = random.Random(0), [attackers.hello(), pack('fragment', *fragment())], 0
    for _ in range(500):
        with contextlib.suppress(WireError):
            unpack(attackers.change(rng, honest))
            read += 1
    assert 100 < read < 400
