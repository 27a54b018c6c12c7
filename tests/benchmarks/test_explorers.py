"""The benchmark of explorers: what is typed, made up, counted and shown; nothing is trained."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from benchmarks.envs import slow
from benchmarks.explorers import learner, machines, messages, namespaces, noise
from benchmarks.explorers import run as explorers
from benchmarks.explorers.attack import refused
from benchmarks.explorers.placement import job_of, render_ray
from benchmarks.explorers.rates import render_pong, render_rates, render_straggler
from benchmarks.reliability.runs import Run
from benchmarks.speed.run import Failed
from benchmarks.venvs import XAGENTS
from tests.benchmarks.common import cells
from tests.explorers.test_fleet import N, fragment
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.explorers.frames import frames_of
from xagents.explorers.messages import WireError, pack, unpack


def test_every_part_can_be_named():
    parser = explorers.make_parser()
    options = parser.parse_args(['--only', *explorers.PARTS, '--quick'])
    assert options.quick and options.messages == 10_000
    for part in explorers.PARTS.values():
        assert all(hasattr(options, name) for name in part.options)


def test_what_is_typed_is_understood():
    for command in (
        machines.train(Path('run'), 2048, '--cluster', machines.ADDRESS),
        machines.explore(Path('key.pem')),
    ):
        assert tuple(command[: len(XAGENTS)]) == XAGENTS
        name, *words = command[len(XAGENTS) :]
        _, options = parse(find_command(name), *(words[:1] if name == 'train' else ['']), words[name == 'train' :])
        assert options['explorers'] in (4, 5)


# ------------------------------------------------------------------------------------------------------- environments


def test_of_the_processes_that_step_the_first_one_is_slow(tmp_path):
    lock = tmp_path / 'lock'
    lock.touch()
    made = gymnasium.make('Straggler-v0', lock=str(lock))
    made.close()  # who only makes one does not count
    ask = f'from benchmarks.envs.slow import is_first; print(is_first({str(lock)!r}), is_first({str(lock)!r}))'
    command = [sys.executable, '-c', ask]
    environment = {**os.environ, 'PYTHONPATH': str(Path(slow.__file__).parents[1])}
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert first.stdout == 'True True\n'  # and it was so until it ended
    assert slow.is_first(str(lock))
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert second.stdout == 'False False\n'


# ---------------------------------------------------------------------------------------------------------- messages


def test_messages_at_random_are_refused_or_read(recwarn):
    rng, honest = random.Random(0), [noise.hello(), pack('fragment', *fragment())]
    read = refusals = 0
    for _ in range(500):
        data = noise.message(rng, honest)
        try:
            unpack(data)
            read += 1
        except WireError:
            refusals += 1
        try:
            list(frames_of(noise.framed(rng, data)))
        except WireError:
            refusals += 1
    assert read > 100 and refusals > 100


def test_what_is_changed_in_a_header_is_one_place():
    held = {'a': 1, 'b': [2, {'c': 3}]}
    places = noise.places_in(held)
    assert len(places) == 5 and all(holder[key] is not None for holder, key in places)


def test_an_answer_to_an_order_is_no_fragment_that_lies():
    rng, honest = random.Random(1), pack('fragment', *fragment())
    from xagents.explorers.fragments import fragment_of

    arrays = unpack(honest).arrays
    wanted = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    for _ in range(100):
        data = refused(rng, honest, 0, N)
        try:
            found = unpack(data)
            fragment_of(found, wanted, range(N), N, False)
            assert found.kind != 'fragment' or found.header['number'] != 1
            assert found.kind != 'error'
        except WireError:
            pass


def test_a_traceback_is_counted(tmp_path):
    crash = ['-c', 'import sys; print("{\\"event\\": \\"result\\", \\"tracebacks\\": 2}"); {}[1]']
    assert messages.outcome(crash_as_module(tmp_path, crash[1]), tmp_path)['tracebacks'] == 3
    found = messages.outcome(crash_as_module(tmp_path, '{}[1]'), tmp_path)
    assert found['tracebacks'] == 1 and 'KeyError' in found['problem']


def crash_as_module(folder, text):
    (folder / 'crashing.py').write_text(text)
    return ['crashing']


# --------------------------------------------------------------------------------------------------------- left over


def test_what_is_left_over_is_found_and_only_ones_own(tmp_path):
    traces = learner.Traces(tmp_path / 'own')
    assert not any(traces.left().values())
    place, foreign = tmp_path / 'xagents-1', tmp_path / 'xagents-2'
    listen = 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()'
    listen += '; print(flush=True); input()'
    begun = []
    for folder, variables in ((place, traces.variables), (foreign, {})):
        folder.mkdir()
        command = [sys.executable, '-c', listen, str(folder / 'explorers')]
        begun.append(subprocess.Popen(command, env={**os.environ, **variables}, stdin=-1, stdout=-1))
    try:
        for process in begun:
            process.stdout.readline()
        traces.look()
        assert [process.pid for process in traces.processes()] == [begun[0].pid]
        assert traces.left() == {'processes': 1, 'sockets': 1, 'folders': 1}
        begun[0].kill()
        begun[0].wait()
        (traces.folder / 'file').touch()
        assert traces.left() == {'processes': 0, 'sockets': 0, 'folders': 2}
        traces.sweep()
        assert not any(traces.left().values()) and foreign.exists()
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def test_without_namespaces_it_is_one_line(monkeypatch):
    monkeypatch.setattr(namespaces, 'ALONE', ('unshare-that-is-not-there',))
    with pytest.raises(Failed, match='they need Linux, root'), namespaces.two_machines():
        pass


def test_a_connection_is_found_in_the_kernels_table():
    head = '  sl  local_address rem_address   st tx_queue\n'
    listening = '   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000\n'
    joined = '   1: 01004D0A:15B3 02004D0A:C35A 01 00000000:00000000\n'
    assert not namespaces.established(head + listening, 5555)
    assert namespaces.established(head + listening + joined, 5555)
    assert not namespaces.established(head + joined, 5556)


def test_the_longest_silence_goes_over_all_runs():
    runs = [Run(None, Path(), [(when, {'event': 'status'}) for when in whens]) for whens in ((1.0, 2.0), (5.5, 6.0))]
    assert machines.longest(runs) == 3.5
    assert machines.longest([Run(None, Path())]) == 0.0


# ------------------------------------------------------------------------------------------------------------ tables


def test_speeds_stand_beside_each_other():
    late = {'0': {'rates': [100, 200], 'lags': [0, 0]}, '4': {'rates': [300, 800], 'lags': [3, 4]}}
    text = render_straggler({'rows': late})
    assert cells(text, 'sync')[1:] == ['150 (100 to 200)', '1.00 (1.00 to 1.00)', '', '0']
    assert cells(text, '`--max-lag 4`')[2:] == ['3.50 (3.00 to 4.00)', '3', '4']
    text = render_pong({'rows': {'none': [100], '`--overlap`': [120], '2, `--overlap`': [150]}})
    assert cells(text, '2, `--overlap`') == ['2, `--overlap`', '150', '1.50', '1.25']
    text = render_ray({'rows': {'sync': {'local': [6000], 'ray': [5400]}}})
    assert cells(text, 'sync') == ['sync', '6 000', '5 400', '0.90']
    text = render_rates({'rates': {'none': [90], '1': [100], '4': [380]}})
    assert cells(text, '4') == ['4', '380', '3.80', '0.95']


def test_ray_is_asked_for_as_many_as_there_are_explorers():
    local, ray = (job_of('`--overlap`', who, 1, False) for who in ('local', 'ray'))
    assert ray['ray'] == ray['make']['explorers'] == 8 and 'ray' not in local
    assert ray['make']['run_dir'] == 'overlap-1' and {**ray['make'], **local['make']} == ray['make']
    json.dumps([local, ray])


def test_what_became_of_the_runs_is_shown():
    found = {'nothing': {'unequal': [], 'noticed': None, 'longest': 1.25}}
    found |= {
        'link': {'unequal': ['weights 0 1'], 'noticed': 7.913, 'longest': 12.6},
        'killed': {'problem': 'it broke'},
    }
    text = machines.render_machines({'cases': found})
    assert cells(text, 'nothing')[1:] == ['', '1.2', 'equal']
    assert cells(text, 'the link')[1:] == ['7.91', '12.6', 'not equal']
    assert '- one of five explorers: `kill -9`: it broke' in text and 'not equal: weights 0 1' in text
    left = {'processes': 0, 'sockets': 1, 'folders': 2}
    text = learner.render_learner({'kills': 10, 'slowest': 0.52, 'left': left, 'unequal': []})
    assert cells(text, '10') == ['10', '0.5', '0', '1', '2', 'equal']


def test_what_became_of_the_messages_is_shown():
    learned = {'sent': {'say': 1000, 'take': 30}, 'slots': 7, 'fragments': 5, 'growth': 9.5, 'equal': True}
    lied = {'sent': 5000, 'explorers': 400, 'growth': 100.0, 'killed': ['memory'], 'talkative': 2, 'codes': [-9]}
    rows = {'unix': {**learned, 'tracebacks': 0}, 'tls': {'problem': 'it broke', 'tracebacks': 1}}
    text = messages.render_messages(
        {'rows': {**rows, 'explorers': {**lied, 'tracebacks': 3, 'examples': [['a', 'b']]}}}
    )
    assert cells(text, 'a learner, Unix')[1:4] == ['1 030', '7 slots taken, 5 wrong fragments', '0']
    assert cells(text, 'a learner, TLS')[3:] == ['1', '', 'failed']
    assert cells(text, 'explorers')[1:5] == ['5 000', 'to 400 explorers, one after the other', '3', '100.0']
    for said in (
        'it broke',
        'grew by more than 64 MB',
        '1 were killed for memory',
        '2 did not end with one line',
        'a / b',
    ):
        assert f': {said}' in text
