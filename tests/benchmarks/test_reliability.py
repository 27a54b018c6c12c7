"""The reliability benchmark's comparisons, clocks, counts and tables; and some hundreds of its random lines."""

import contextlib
import json
import os
import random
import signal
import time

import numpy as np
import pytest

from benchmarks import reliability_cost, reliability_exact, reliability_fuzz, reliability_kills, reliability_overlap
from benchmarks.comparing import differences, row_differences, seeded
from benchmarks.harness import Failed
from benchmarks.reliability_fuzz import furnish
from benchmarks.reliability_fuzz_worker import Tally, count, wrong
from benchmarks.reliability_kills import Raid, shares
from benchmarks.reliability_left import Kill, examine, measure_loss
from benchmarks.reliability_lines import GOOD_PATHS, PATH_OPTIONS, TEXTS, Line, example
from benchmarks.reliability_runs import SETTINGS, Run, resume, running, stopped_at, to_end, train
from benchmarks.reliability_worker import COSTS, Stopwatch
from tests.benchmarks.common import cells, python
from xagents.cli.commands import commands, find_command
from xagents.cli.dispatch import parse
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.registry.agents import agents
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
        ({'arrays': {'replay/next': np.arange(4)}}, ['replay/next', 'replay/rows']),
        ({'steps': 101}, ['steps']),
        ({'rngs': {'a': 2}}, ['rngs']),
        ({'environments': {'nodes': [['list', 1]]}}, ['environments']),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_smallest_difference_of_a_checkpoint_is_found(changes, found, folder):
    assert differences(folder('one'), folder('other', **changes)) == found


def test_rows_that_are_missing_or_others_are_found(folder):
    one, other = folder('one'), folder('other', rows=4)
    assert row_differences(one, other) == ['history: 3 rows beside 4']
    metrics = MetricsWriter(other / 'metrics.parquet', resume=True)
    metrics.cut(10)
    metrics.write(20, {'loss': 0.6667})
    metrics.close()
    assert row_differences(one, other) == ['history: 3 rows beside 4', 'metrics: loss']
    (other / 'history.parquet').unlink()
    write_history(other, [0, 1, 3])
    assert row_differences(one, other)[0] == 'history: row 2'


def test_only_the_generators_of_spaces_are_left_out():
    def nodes(space, own):
        return {'nodes': [
            ['env', 'C', {'a': 1}, ['node', 4]], ['space', 'D', ['node', 2]], ['generator', ['node', 3]],
            ['bits', 'PCG64', {'state': space}], ['bits', 'PCG64', {'state': own}],
        ]}  # fmt: skip

    assert seeded(nodes(1, 7)) == seeded(nodes(2, 7)) != seeded(nodes(1, 8))
    assert seeded(None) is None


# ----------------------------------------------------------------------------------------------------------- processes

# in the place of a training: a status line every 20 ms, and an end that a Ctrl-C brings forward
STANDS_IN = """
import json, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # as a training does; a shell's background jobs ignore it
say = lambda **facts: print(json.dumps(facts), flush=True)
say(event='start')
say(event='message', text='Resumed run at step 40; changed: nothing')
print('{"event": "sta', flush=True)
try:
    for steps in range(0, int(sys.argv[1]), 100):
        say(event='status', steps=steps)
        time.sleep(0.02)
except KeyboardInterrupt:
    sys.exit(130)
say(event='end')
"""


class Soon(random.Random):
    def uniform(self, a, b):
        return a


def test_what_a_run_says_is_read_with_its_time(tmp_path):
    before = time.time()
    run = to_end([*python(STANDS_IN), '300'], tmp_path)
    assert [said['steps'] for _, said in run.events('status')] == [0, 100, 200]
    assert run.steps == 200 and len(run.events('torn')) == 1
    times = [when for when, _ in run.lines]
    assert times == sorted(times) and before < times[0] <= times[-1] <= time.time()


@pytest.mark.parametrize(
    ('steps', 'number', 'code'), [(10**6, signal.SIGINT, 130), (10**6, signal.SIGKILL, -9), (200, signal.SIGKILL, 0)]
)
def test_a_run_is_ended_after_so_many_steps_where_it_has_not_ended_before(steps, number, code, tmp_path):
    run = stopped_at([*python(STANDS_IN), str(steps)], tmp_path, 300, number, Soon())
    assert run.process.returncode == code and (300 <= run.steps < steps or not code)


def test_a_command_that_fails_or_hangs_is_no_result(tmp_path):
    with pytest.raises(Failed, match=r'exit code 1: no$'):
        to_end(python("raise SystemExit('no')"), tmp_path)
    with pytest.raises(Failed, match='exit code 3'):
        stopped_at(python('raise SystemExit(3)'), tmp_path, 10, signal.SIGINT, random.Random(1))
    with running(python('import time; time.sleep(60)'), tmp_path) as run, pytest.raises(Failed, match='nothing has'):
        run.wait_until(lambda: False, 0.05)
    assert run.process.returncode == -signal.SIGKILL


def test_the_commands_are_ones_that_xagents_takes(tmp_path):
    for agent_id in SETTINGS:
        words = train(agent_id, tmp_path / 'run', '--max-steps', 5, overlap=False, seed=3, save_seconds=1.0)
        _, given = parse(find_command('train'), agent_id, words[5:])
        assert words[3:5] == ['train', agent_id] and given['log_format'] == 'json' and given['seed'] == 3
        assert given['max_steps'] == 5 and given.items() >= SETTINGS[agent_id].items()
    parse(find_command('train'), 'ppo', resume(tmp_path, '--max-steps', 9)[4:])
    assert set(SETTINGS) == set(agents) == set(reliability_exact.STEPS)
    assert COSTS.keys() == reliability_cost.LABELS.keys()


def test_a_run_is_broken_off_once_in_each_part_of_it():
    for seed in range(20):
        drawn = reliability_exact.targets(3000, 3, random.Random(seed))
        assert [target // 1000 for target in drawn] == [0, 1, 2] and all(target % 1000 <= 700 for target in drawn)


# --------------------------------------------------------------------------------------------------------------- kills


def test_every_agent_gets_kills_and_they_are_as_many_as_asked():
    for asked in (1, 5, 7, 100):
        drawn = list(shares(['a2c', 'ppo', 'td3'], asked))
        assert sum(share for _, share in drawn) == asked and all(0 < share <= 5 for _, share in drawn)
    assert [agent_id for agent_id, _ in shares(['a2c', 'ppo'], 20)] == ['a2c', 'ppo', 'a2c', 'ppo']


def said(*moments, start=1000.0):
    run = Run(None, None)  # type: ignore[arg-type]
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
    # a run that had not begun has nothing to lose, nor one whose checkpoint has all that it told of
    kill = Kill('ppo', 'start', reported=700)
    measure_loss(run_dir, kill, said(), None, 1013.0)
    assert kill.lost == 0 and kill.beyond(0.0) == 0.0
    kill = Kill('ppo', 'start')
    measure_loss(run_dir, kill, said((1012.0, 500)), 1011.0, 1030.0)
    assert kill.lost == 0 and kill.seconds == 19.0 and kill.beyond(2.0) == 0.0


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


@pytest.mark.parametrize(('resumed', 'wrong'), [(500, False), (470, True)])
def test_a_run_has_to_go_on_from_its_last_checkpoint(resumed, wrong, tmp_path):
    raid = Raid('ppo', tmp_path, 2.0, random.Random(1), lambda text: None)
    raid.kills, raid.resuming = [Kill('ppo', 'any', saved=300), Kill('ppo', 'any', saved=500)], True
    raid.note_resumed(said())  # killed before it had said so: proves nothing
    assert [kill.resumed for kill in raid.kills] == [None, None]
    run = said()
    run.lines.append((1001.0, {'event': 'message', 'text': f'Resumed run at step {resumed}; changed: nothing'}))
    with pytest.raises(Failed, match='went on from step 470, and 500 was') if wrong else contextlib.nullcontext():
        raid.note_resumed(run)
        assert [kill.resumed for kill in raid.kills] == [500, 500]


# ------------------------------------------------------------------------------------------------------- cost, overlap


def test_time_inside_nested_functions_is_counted_once():
    watch = Stopwatch()
    inner = watch.around(lambda: time.sleep(0.02), 'inner')
    outer = watch.around(lambda: (inner(), inner()), 'outer')
    outer()
    inner()
    (first, both), (second, one) = watch.calls
    assert (first, second) == ('outer', 'inner') and both > 0.039 and one > 0.019


def test_the_slope_of_memory_is_that_of_the_line_through_it():
    samples = [(n * 100_000, 400 + 3 * n / 10) for n in range(50)]
    assert reliability_cost.slope(samples) == pytest.approx(3)
    assert np.isnan(reliability_cost.slope(samples[:1]))


PHASE = {'seconds': 60.0, 'saving': 0.6, 'saves': 6, 'longest': 0.2, 'copies': 4, 'steps': 120_000, 'megabytes': 30.0}


def test_tables_show_what_was_found():
    cases = {'ppo': {'phases': [PHASE]}, 'dqn': {'phases': [PHASE, PHASE]}, 'td3': {'problem': 'no', 'phases': []}}
    text = reliability_cost.render_cost({'cases': cases, 'buffer': 100_000})
    assert cells(text, 'PPO')[1:] == ['', '60', '2 000', '6', '0.20', '4', '30', '1.00 %', 'under 2 %']
    assert [line.split('|')[2].strip() for line in text.splitlines() if '| DQN' in line][1:] == ['buffer full']
    assert text.endswith('- TD3, Pendulum-v1, 8 environments: no')
    samples = [[n * 100_000, 400 + n] for n in range(1, 101)]
    text = reliability_cost.render_memory({'steps': 10_000_000, 'samples': samples, 'seconds': 90.0})
    assert '| 5 000 000 | 450 |' in text and '+10.00 MB a million steps (81 samples, from 420 to 500 MB)' in text
    row = {'beside': [100.0, 200.0], 'overlap': [150.0, 320.0], 'parts': [{'learn': 0.5}, {'learn': 0.7}]}
    text = reliability_overlap.render_overlap({'pairs': {'cartpole': row, 'float32': {**row, 'problem': 'the reason'}}})
    found = ['150 (100 to 200)', '235 (150 to 320)', '1.55 (1.50 to 1.60)', '1.15', 'learn 60 %']
    assert cells(text, 'PPO, CartPole-v1, 16 x 128')[1:] == found
    assert text.endswith('float32: the reason')


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
    kills = [
        {**kill, 'resumed': 7, 'unreadable': []},
        {
            **kill,
            'resumed': None,
            'unreadable': ['last: torn'],
            'lost': 30,
            'seconds': 2.5,
            'told': 2.25,
            'beyond': 0.25,
        },
    ]
    text = reliability_kills.render_kills({'kills': kills, 'problems': ['hangs'], 'save_seconds': 2.0})
    assert cells(text, 'ppo') == ['ppo', '2', '1', '10', '1', '2.50', '30', '2.25', '0.25']
    assert cells(text, 'ppo')[1:] == cells(text, 'all')[1:]
    assert text.endswith('- hangs\n- ppo, any: last: torn')


# ---------------------------------------------------------------------------------------------------------------- fuzz


def test_pools_of_values_belong_to_options():
    known = {name for command in commands.values() for name in command.options()}
    known |= {name for agent_id in agents for name in find_command('train').options(agent_id)}
    assert {*PATH_OPTIONS, *TEXTS, *GOOD_PATHS} <= known


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
        ('begun', '', 'a warning', ''),
        ('2', '', 'a warning\nxagents train: --lr: got x\n', ''),
        ('2', '', 'xagents: command: got x', ''),
        ('2', '', 'xagents train: two\nlines', "its last line is no whole message: 'lines'"),
        ('2', '', '', "its last line is no whole message: ''"),
        ('1', '', 'xagents train: KeyError: x', 'exit 1: xagents train: KeyError: x'),
        ('KeyError: 1', '', '', 'exit KeyError: 1: '),
        ('2', '', 'Traceback (most recent call last)\n  x\nKeyError: 1', 'traceback: KeyError: 1'),
    ],
)
def test_what_is_wrong_with_an_end_is_found(end, stdout, stderr, problem):
    assert wrong(end, stdout, stderr) == problem


def test_equal_problems_are_counted_together_with_the_shortest_example():
    tally, other = Tally(), Tally()
    tally.add(Line(['train', 'long']), '1', "exit 1: KeyError: 'a' in line 3")
    tally.add(Line(['x']), '1', "exit 1: KeyError: 'b' in line 7")
    tally.add(Line(['runs'], kind='cfg'), '2', '')
    other.join(json.loads(json.dumps(vars(tally))))
    other.join(json.loads(json.dumps(vars(tally))))
    assert other.codes == {'line 1': 4, 'cfg 2': 2}
    (problem,) = other.problems.values()
    assert problem['count'] == 4 and problem['example'] == "['x']"
    text = reliability_fuzz.render_fuzz(vars(other))
    assert cells(text, 'command lines') == ['command lines', '0', '0', '0', '4', '4']
    assert cells(text, 'all')[3:] == ['2', '4', '6'] and "- 4 times: exit 1: KeyError: 'b' in line 7: `['x']`" in text


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
