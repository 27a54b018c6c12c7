"""The benchmark of explorers: commands, wrong messages, remains of killed learners, tables."""

import contextlib
import random
import sys

from benchmarks.explorers import attackers, kills, machines, messages, namespaces, rates
from benchmarks.processes import Process
from tests.benchmarks.common import cells
from tests.explorers.test_fleet import N, fragment
from xagents.explorers.fragments import fragment_of
from xagents.explorers.frames import frames_of
from xagents.explorers.messages import WireError, pack, unpack


def test_wrong_messages_are_refused_or_read():
    rng, honest = random.Random(0), [attackers.hello(), pack('fragment', *fragment())]
    read = refusals = 0
    for _ in range(500):
        data = attackers.change(rng, honest)
        try:
            unpack(data)
            read += 1
        except WireError:
            refusals += 1
        with contextlib.suppress(WireError):
            list(frames_of(attackers.random_frame(rng, data)))
    assert read > 100 and refusals > 100
    # an attacker with a slot sends neither a valid fragment nor an error
    arrays = unpack(honest[1]).arrays
    wanted = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    for _ in range(100):
        with contextlib.suppress(WireError):
            found = unpack(attackers.refused(rng, honest[1], 0, N))
            assert found.kind != 'error'
            fragment_of(found, wanted, range(N), N, False)
            assert found.kind != 'fragment' or found.header['number'] != 1


def test_tracebacks_are_counted(tmp_path):
    crash = 'import sys; print("{\\"event\\": \\"result\\", \\"tracebacks\\": 2}", flush=True); {}[1]'
    assert messages.outcome([sys.executable, '-c', crash], tmp_path)['tracebacks'] == 3
    found = messages.outcome([sys.executable, '-c', '{}[1]'], tmp_path)
    assert found['tracebacks'] == 1 and 'KeyError' in found['problem']


def test_connections_and_silence_are_found():
    head = '  sl  local_address rem_address   st tx_queue\n'
    listening = '   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000\n'
    joined = '   1: 01004D0A:15B3 02004D0A:C35A 01 00000000:00000000\n'
    assert not namespaces.established(head + listening, 5555)
    assert namespaces.established(head + listening + joined, 5555)
    assert not namespaces.established(head + joined, 5556)
    whens = ((1.0, 2.0), (5.5, 6.0))
    assert (
        machines.longest([Process(None, None, None, [(w, {'event': 'status'}) for w in run]) for run in whens]) == 3.5
    )


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
