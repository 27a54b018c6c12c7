"""The benchmark of explorers: wrong messages, tracebacks, tables."""

import contextlib
import random
import sys

from benchmarks.explorers import attackers, kills, machines, messages, rates
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


def test_tables_of_failures():
    found = {'link': {'unequal': ['weights 0 1'], 'noticed': 7.913, 'longest': 12.6}, 'killed': {'problem': 'it broke'}}
    text = machines.render_machines({'cases': found})
    assert cells(text, 'the link')[1:] == ['7.91', '12.6', 'not equal']
    assert '- one of five explorers: `kill -9`: it broke' in text and 'not equal: weights 0 1' in text
    left = {'processes': 0, 'sockets': 1, 'folders': 2}
    text = kills.render_learner({'kills': 10, 'slowest': 0.52, 'left': left, 'unequal': []})
    assert cells(text, '10') == ['10', '0.5', '0', '1', '2', 'equal']
    learned = {'sent': {'messages': 1000, 'take_slot': 30}, 'slots': 7, 'fragments': 5, 'growth': 9.5, 'equal': True}
    sent = {'sent': 5000, 'explorers': 400, 'growth': 100.0, 'killed': ['memory'], 'talkative': 2, 'codes': [-9]}
    rows = {'unix': {**learned, 'tracebacks': 0}, 'explorers': {**sent, 'tracebacks': 3, 'examples': [['a', 'b']]}}
    text = messages.render_messages({'rows': rows})
    assert cells(text, 'a learner, Unix')[1:4] == ['1 030', '7 slots taken, 5 wrong fragments', '0']
    assert cells(text, 'explorers')[1:5] == ['5 000', 'to 400 explorers, one after the other', '3', '100.0']
    assert ': grew by more than 64 MB' in text and ': 1 were killed for memory' in text and ': a / b' in text


def test_most_wrong_messages_are_refused_and_some_are_read():
    rng, honest, read = random.Random(0), [attackers.hello(), pack('fragment', *fragment())], 0
    for _ in range(500):
        with contextlib.suppress(WireError):
            unpack(attackers.change(rng, honest))
            read += 1
    assert 100 < read < 400
