"""The reliability benchmark's comparisons, clocks, counts and tables; and some hundreds of its random lines."""

import json
import os
import random

import numpy as np
import pytest

from benchmarks.reliability import exact as reliability_exact
from benchmarks.reliability import kills as reliability_kills
from benchmarks.reliability.compare import differences, row_differences, seeded
from benchmarks.reliability.fuzz import furnish
from benchmarks.reliability.fuzz_worker import Tally, count, wrong
from benchmarks.reliability.left import Kill, examine, measure_loss
from benchmarks.reliability.lines import example
from benchmarks.reliability.runs import Run
from tests.benchmarks.common import cells
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.runs.checkpoints import State, write_state

# --------------------------------------------------------------------------------------------------------- comparisons


def state(weights=(1.0, 1.0), arrays=None, steps=100, **others):
    """A checkpoint; its times differ from those of any other."""
    counters = {'steps': steps, 'mean_reward': float('nan'), 'seconds': random.random()}
    record = {'agent': 'ppo', 'options': {}, 'counters': counters, 'rewards': [1.0], 'rngs': {'a': 1}}
    arrays = {'replay/rows': np.arange(4)} if arrays is None else arrays
    models = [[np.arange(3.0)], [np.array(weights)]] if weights else [[np.arange(3.0)]]
    return State(models, arrays, {**record, 'restarted': False, 'environments': None, **others})


def write_history(run_dir, values):
    with HistoryWriter(run_dir / 'history.parquet') as history:
        history.append([(float(i), 0.0, float(value), 10 * i, random.random()) for i, value in enumerate(values)])


@pytest.fixture
def folder(tmp_path):
    """Makes a run's folder as a training leaves it."""

    def make(name, steps=100, rows=3, **changes):
        run_dir = tmp_path / name
        (run_dir / 'checkpoints').mkdir(parents=True)
        (run_dir / 'config.yaml').write_text('agent: ppo\nenv: CartPole-v1\n')
        status = {'state': 'finished', 'pid': 1, 'host': 'x', 'updated': '2026-01-02T00:00:00+00:00'}
        (run_dir / 'status.json').write_text(json.dumps(status))
        write_state(run_dir / 'checkpoints' / f'last-{steps}', state(**{'steps': steps, **changes}))
        (run_dir / 'checkpoints' / 'last').symlink_to(f'last-{steps}')
        write_history(run_dir, range(rows))
        metrics = MetricsWriter(run_dir / 'metrics.parquet')
        for i in range(rows):
            metrics.write(10 * i, {'loss': i / 3, 'seconds/env': random.random()})
        metrics.close()
        return run_dir

    return make


def test_equal_runs_have_no_differences_though_their_times_differ(folder):
    one, other = folder('one'), folder('other')
    assert differences(one, other) == [] and row_differences(one, other) == []
    assert row_differences(one, folder('longer', rows=4)) == ['history: 3 rows beside 4']
    write_history(one, [0, 1, 3])
    metrics = MetricsWriter(one / 'metrics.parquet', resume=True)
    metrics.cut(10)
    metrics.write(20, {'loss': 0.6667})
    metrics.close()
    assert row_differences(one, other) == ['history: row 2', 'metrics: loss']
    # best weights are compared too
    (one / 'checkpoints' / 'best').symlink_to('last-100')
    assert differences(one, other) == ['best: only one of them has it']
    write_state(other / 'checkpoints' / 'best-9', state(weights=(1.0, 0.0)))
    (other / 'checkpoints' / 'best').symlink_to('best-9')
    assert differences(one, other) == ['best 1 0']


@pytest.mark.parametrize(
    ('changes', 'found'),
    [
        ({'weights': (1.0, np.nextafter(1.0, 2.0))}, ['weights 1 0']),
        ({'weights': (1.0, 1.0, 1.0)}, ['weights 1 0']),
        ({'weights': ()}, ['weights: [1, 1] arrays beside [1]']),
        ({'arrays': {'replay/rows': np.array([0, 1, 2, 4])}}, ['replay/rows']),
        ({'steps': 101}, ['steps']),
        ({'rngs': {'a': 2}}, ['rngs']),
        ({'environments': {'nodes': [['list', 1]]}}, ['environments']),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_smallest_difference_of_a_checkpoint_is_found(changes, found, folder):
    assert differences(folder('one'), folder('other', **changes)) == found


def test_only_the_generators_of_spaces_are_left_out():
    def nodes(space, own):
        return {'nodes': [
            ['env', 'C', {'a': 1}, ['node', 4]], ['space', 'D', ['node', 2]], ['generator', ['node', 3]],
            ['bits', 'PCG64', {'state': space}], ['bits', 'PCG64', {'state': own}],
        ]}  # fmt: skip

    assert seeded(nodes(1, 7)) == seeded(nodes(2, 7)) != seeded(nodes(1, 8))
    assert seeded(None) is None


# --------------------------------------------------------------------------------------------------------------- kills


def said(*moments, start=1000.0):
    run = Run(None, None)
    run.lines = [(start, {'event': 'start'}), *((when, {'event': 'status', 'steps': n}) for when, n in moments)]
    return run


def test_the_loss_is_what_the_run_had_told_of_since_the_last_whole_checkpoint(folder):
    run_dir = folder('run', steps=500)
    os.utime(run_dir / 'checkpoints' / 'last' / 'state.npz', (1010.0, 1010.0))
    kill = Kill('ppo', 'any')
    measure_loss(run_dir, kill, said((1005.0, 300), (1006.0, 400), (1012.5, 900)), 1000.0, 1013.0)
    assert (kill.saved, kill.reported, kill.lost, kill.seconds, kill.silence) == (500, 900, 400, 3.0, 6.5)
    assert kill.beyond(2.0) == 0.0 and kill.told == 2.5
    kill.silence = 0.25
    assert kill.beyond(2.0) == 0.75
    # a first iteration, which compiles, is an iteration, where nothing was saved after it
    measure_loss(run_dir, kill := Kill('ppo', 'first save'), said((1035.0, 700)), 1015.0, 1035.5)
    assert (kill.seconds, kill.told, kill.silence) == (20.5, 20.0, 20.0) and kill.beyond(2.0) == 0.0
    # a run that had not begun has nothing to lose
    kill = Kill('ppo', 'start', reported=700)
    measure_loss(run_dir, kill, said(), None, 1013.0)
    assert kill.lost == 0 and kill.beyond(0.0) == 0.0


def test_what_a_kill_left_is_read_and_what_does_not_read_is_told(folder):
    run_dir = folder('run')
    kill = Kill('ppo', 'any')
    examine(run_dir, kill)
    assert kill.unreadable == [] and kill.files == 6 and kill.reported == 20
    # what is not there yet, and what is half written beside it, is nothing wrong
    (run_dir / 'status.json').unlink()
    (run_dir / 'checkpoints' / '.last-200.new').mkdir()
    examine(run_dir, again := Kill('ppo', 'any'))
    assert again.unreadable == [] and again.files == 5
    (run_dir / 'status.json').write_text('{"state": "runn')
    (run_dir / 'checkpoints' / 'last-100' / 'state.npz').write_bytes(b'PK')
    (run_dir / 'history.parquet').write_bytes(b'PAR1')
    (run_dir / 'checkpoints' / 'best').symlink_to('gone')
    examine(run_dir, torn := Kill('ppo', 'any'))
    names = {text.partition(':')[0] for text in torn.unreadable}
    assert names == {'status.json', 'last-100', 'last', 'history.parquet', 'best'}
    metrics = MetricsWriter(run_dir / 'metrics.parquet', resume=True)
    metrics.write(20, {'loss': 1.0})
    metrics.close()
    examine(run_dir, twice := Kill('ppo', 'any'))
    assert 'metrics.parquet: a step stands twice' in twice.unreadable


# ------------------------------------------------------------------------------------------------------- cost, overlap


def test_tables_show_what_was_wrong():
    equal = {'stop': [], 'ctrl-c': [], 'kill': []}
    cases = {
        'ppo': {'steps': 9, 'found': equal, 'breaks': {'ctrl-c': 3, 'kill': 1}},
        'dqn': {'steps': 9, 'found': {**equal, 'stop': ['a']}, 'breaks': {'ctrl-c': 2, 'kill': 0}},
        'td3': {'steps': 9, 'problem': 'no'},
    }
    text = reliability_exact.render_exact({'cases': cases})
    assert cells(text, 'ppo') == ['ppo', '9', 'equal', 'equal, 3 times broken off', 'equal, 1 times broken off']
    assert cells(text, 'dqn')[2:4] == ['not equal', 'equal, 2 times broken off'] and cells(text, 'td3')[2] == 'failed'
    assert '- td3: no' in text and '- dqn, stop: not equal: a' in text
    kill = {'agent': 'ppo', 'moment': 'any', 'lost': 0, 'seconds': 9.0, 'told': 8.0, 'beyond': 0.0, 'files': 5}
    torn = {'unreadable': ['last: torn'], 'lost': 30, 'seconds': 2.5, 'told': 2.25, 'beyond': 0.25}
    kills = [{**kill, 'resumed': 7, 'unreadable': []}, {**kill, 'resumed': None, **torn}]
    text = reliability_kills.render_kills({'kills': kills, 'problems': ['hangs'], 'save_seconds': 2.0})
    assert cells(text, 'ppo') == ['ppo', '2', '1', '10', '1', '2.50', '30', '2.25', '0.25']
    assert cells(text, 'ppo')[1:] == cells(text, 'all')[1:]
    assert text.endswith('- hangs\n- ppo, any: last: torn')


# ---------------------------------------------------------------------------------------------------------------- fuzz


def test_equal_seeds_give_equal_lines_of_all_kinds():
    drawn = [example(random.Random(seed)) for seed in range(300)]
    assert drawn == [example(random.Random(seed)) for seed in range(300)]
    assert {line.kind for line in drawn} == {'line', 'cfg', 'yaml'}
    assert len({str(line) for line in drawn}) > 280
    # a NUL cannot be typed, and nothing leads out of the folder
    words = [word for line in drawn for word in line.words]
    assert not any('\0' in word or word.startswith('/') or '..' in word.split('/') for word in words)
    assert '--debug' not in words


@pytest.mark.parametrize(
    ('end', 'stdout', 'stderr', 'problem'),
    [
        ('0', 'page', '', ''),
        ('2', '', 'a warning\nxagents train: --lr: got x\n', ''),
        ('2', '', 'xagents train: two\nlines', "its last line is no whole message: 'lines'"),
        ('2', '', '', "its last line is no whole message: ''"),
        ('1', '', 'xagents train: KeyError: x', 'exit 1: xagents train: KeyError: x'),
        ('KeyError: 1', '', '', 'exit KeyError: 1: '),
        ('2', '', 'Traceback (most recent call last)\n  x\nKeyError: 1', 'traceback: KeyError: 1'),
    ],
)
def test_what_is_wrong_with_an_end_is_found(end, stdout, stderr, problem):
    assert wrong(end, stdout, stderr) == problem


# environments and networks cost the most, and see only what passed everything before
@pytest.mark.parametrize(('number', 'earlier'), [(250, ['xagents.factory.make.create_envs']), (40, [])])
def test_hundreds_of_random_lines_end_well(number, earlier, tmp_path, monkeypatch):
    from xagents.cli import dispatch as cli

    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path, trained=False)
    tally = Tally()
    count(number, 7, tally, *earlier)
    assert sum(tally.codes.values()) == number
    assert tally.problems == {}
    # they are no good where none of them gets through, or none is refused
    for kind in ('line', 'cfg', 'yaml'):
        assert tally.codes.get(f'{kind} begun', 0) >= number / 100 and tally.codes[f'{kind} 2'] >= number / 20
