"""The reliability benchmark's comparisons, clocks, counts and tables; and some hundreds of its random lines."""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    parts,
    reliability,
    reliability_cost,
    reliability_exact,
    reliability_fuzz,
    reliability_kills,
    reliability_overlap,
)
from benchmarks.comparing import differences, row_differences, seeded
from benchmarks.harness import Failed
from benchmarks.reliability_fuzz import Tally, furnish, furnished, wrong
from benchmarks.reliability_kills import MOMENTS, Kill, Raid, examine, last_steps, measure_loss, shares
from benchmarks.reliability_lines import GOOD_PATHS, PATH_OPTIONS, TEXTS, Line, example
from benchmarks.reliability_runs import SETTINGS, Run, resume, running, stopped_at, to_end, train
from benchmarks.reliability_worker import COSTS, Stopwatch
from xagents.cli.commands import commands, find_command
from xagents.cli.dispatch import parse
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.registry.agents import agents
from xagents.runs.checkpoints import write_state
from xagents.runs.state import State

MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}


def python(body: str) -> list[str]:
    return [sys.executable, '-c', body]


def cells(text: str, beginning: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f'| {beginning}'))
    return [cell.strip() for cell in line.split('|')[1:-1]]


# --------------------------------------------------------------------------------------------------------- comparisons


def record(steps=100, **others):
    counters = {'steps': steps, 'mean_reward': float('nan'), 'seconds': random.random()}
    known = {
        'agent': 'ppo',
        'options': {},
        'counters': counters,
        'rewards': [1.0],
        'rngs': {'a': 1},
        'restarted': False,
    }
    return {**known, 'environments': None, **others}


@pytest.fixture
def folder(tmp_path):
    """Makes a run's folder as a training leaves it."""

    def make(name, steps=100, rows=3):
        run_dir = tmp_path / name
        (run_dir / 'checkpoints').mkdir(parents=True)
        (run_dir / 'config.yaml').write_text('agent: ppo\nenv: CartPole-v1\n')
        status = {'state': 'finished', 'pid': 1, 'host': 'x', 'updated': '2026-01-02T00:00:00+00:00'}
        (run_dir / 'status.json').write_text(json.dumps(status))
        state = State([[np.arange(3.0)], [np.ones(2)]], {'replay/rows': np.arange(4)}, record(steps))
        write_state(run_dir / 'checkpoints' / f'last-{steps}', state)
        (run_dir / 'checkpoints' / 'last').symlink_to(f'last-{steps}')
        with HistoryWriter(run_dir / 'history.parquet') as history:
            history.append([(float(i), 0.0, float(i), 10 * i, random.random()) for i in range(rows)])
        metrics = MetricsWriter(run_dir / 'metrics.parquet')
        for i in range(rows):
            metrics.write(10 * i, {'loss': i / 3, 'seconds/env': random.random()})
        metrics.close()
        return run_dir

    return make


def change(run_dir, **changes):
    """Writes the last checkpoint anew."""
    path = run_dir / 'checkpoints' / os.readlink(run_dir / 'checkpoints' / 'last')
    known = {'weights': [[np.arange(3.0)], [np.ones(2)]], 'arrays': {'replay/rows': np.arange(4)}, 'record': record()}
    shutil.rmtree(path)
    write_state(path, State(**{**known, **changes}))


def test_equal_runs_have_no_differences_though_their_times_differ(folder):
    one, other = folder('one'), folder('other')
    assert differences(one, other) == [] and row_differences(one, other) == []


@pytest.mark.parametrize(
    ('changes', 'found'),
    [
        ({'weights': [[np.arange(3.0)], [np.array([1.0, 1.0 + 1e-16, 1.0])]]}, ['weights 1 0']),
        ({'weights': [[np.arange(3.0)]]}, ['weights: [1, 1] arrays beside [1]']),
        ({'weights': [[np.arange(3.0)], [np.array([1.0, np.nextafter(1.0, 2.0)])]]}, ['weights 1 0']),
        ({'arrays': {'replay/rows': np.array([0, 1, 2, 4])}}, ['replay/rows']),
        ({'arrays': {'replay/next': np.arange(4)}}, ['replay/next', 'replay/rows']),
        ({'record': record(steps=101)}, ['steps']),
        ({'record': record(rngs={'a': 2})}, ['rngs']),
        ({'record': record(environments={'nodes': [['list', 1]]})}, ['environments']),
    ],
)
def test_the_smallest_difference_of_a_checkpoint_is_found(changes, found, folder):
    one, other = folder('one'), folder('other')
    change(other, **changes)
    assert differences(one, other) == found


def test_best_weights_are_compared_too(folder):
    one, other = folder('one'), folder('other')
    (one / 'checkpoints' / 'best').symlink_to('last-100')
    assert differences(one, other) == ['best: only one of them has it']
    write_state(other / 'checkpoints' / 'best-9', State([[np.zeros(3)], [np.ones(2)]], {}, record()))
    (other / 'checkpoints' / 'best').symlink_to('best-9')
    assert differences(one, other) == ['best 0 0']


def test_rows_that_are_missing_or_others_are_found(folder):
    one, other = folder('one'), folder('other', rows=4)
    assert row_differences(one, other) == ['history: 3 rows beside 4']
    metrics = MetricsWriter(other / 'metrics.parquet', resume=True)
    metrics.cut(10)
    metrics.write(20, {'loss': 0.6667})
    metrics.close()
    assert row_differences(one, other) == ['history: 3 rows beside 4', 'metrics: loss']
    (other / 'history.parquet').unlink()
    with HistoryWriter(other / 'history.parquet') as history:
        history.append([(float(i), 0.0, float(i + (i == 2)), 10 * i, 0.0) for i in range(3)])
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


def test_what_a_run_says_is_read_with_its_time(tmp_path):
    before = time.time()
    run = to_end([*python(STANDS_IN), '300'], tmp_path)
    assert [said['steps'] for _, said in run.events('status')] == [0, 100, 200]
    assert run.steps == 200 and len(run.events('torn')) == 1
    times = [when for when, _ in run.lines]
    assert times == sorted(times) and before < times[0] <= times[-1] <= time.time()


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_is_ended_after_so_many_steps(number, code, tmp_path):
    class Soon(random.Random):
        def uniform(self, a, b):
            return a

    run = stopped_at([*python(STANDS_IN), '1000000'], tmp_path, 300, number, Soon())
    assert run.process.returncode == code and 300 <= run.steps < 1_000_000
    whole = stopped_at([*python(STANDS_IN), '200'], tmp_path, 300, number, Soon())
    assert whole.process.returncode == 0


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
    for count in (1, 5, 7, 100):
        drawn = list(shares(['a2c', 'ppo', 'td3'], count))
        assert sum(share for _, share in drawn) == count and all(0 < share <= 5 for _, share in drawn)
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


def test_steps_that_stand_twice_are_told(folder):
    run_dir = folder('run')
    metrics = MetricsWriter(run_dir / 'metrics.parquet', resume=True)
    metrics.write(20, {'loss': 1.0})
    metrics.close()
    examine(run_dir, kill := Kill('ppo', 'any'))
    assert kill.unreadable == ['metrics.parquet: a step stands twice']


# in the place of a training with a run folder: writes a checkpoint of its steps every 30 ms, whole and then linked
TRAINS = """
import json, os, sys, time
run, last = sys.argv[1], None
os.makedirs(run + '/checkpoints', exist_ok=True)
say = lambda **facts: print(json.dumps(facts), flush=True)
say(event='start')
open(run + '/config.yaml', 'w').write('agent: ppo')
steps = 0
if os.path.islink(run + '/checkpoints/last'):
    steps = json.load(open(run + '/checkpoints/last/state.json'))['counters']['steps']
say(event='message', text=f'Resumed run at step {steps}')
until = int(sys.argv[2])
while steps < until:
    steps += 10
    say(event='status', steps=steps)
    time.sleep(0.01)
    if steps % 30 == 0 or steps >= until:
        new = f'{run}/checkpoints/.{steps}.new'
        os.makedirs(new, exist_ok=True)
        json.dump({'agent': 'ppo', 'options': {}, 'counters': {'steps': steps}}, open(new + '/state.json', 'w'))
        open(new + '/state.npz', 'w').close()
        os.rename(new, f'{run}/checkpoints/last-{steps}')
        os.symlink(f'last-{steps}', run + '/checkpoints/.last')
        os.replace(run + '/checkpoints/.last', run + '/checkpoints/last')
"""


class Pretended(Raid):
    """Kills what stands in for a training."""

    wrong = 0

    def command(self, until=False):
        super().command()
        end = last_steps(self.run_dir) + 10 if until else 10**9
        (self.run_dir / 'checkpoints' / '.last').unlink(missing_ok=True)
        script = TRAINS.replace('at step {steps}', f'at step {{steps + {self.wrong}}}')
        return [*python(script), str(self.run_dir), str(end)]


def test_a_run_is_killed_again_and_again_and_goes_on_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(reliability_kills, 'examine', lambda run_dir, kill: None)
    seen = set()
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        raid = Pretended('ppo', folder, 0.05, random.Random(seed), lambda text: None)
        raid.start_seconds = 0.1
        raid.strike(3)
        assert [kill.resumed for kill in raid.kills] == [kill.saved for kill in raid.kills]
        assert all(kill.lost <= 30 + 10 for kill in raid.kills)
        seen |= {kill.moment for kill in raid.kills}
    assert len(seen) >= 3 and seen <= set(MOMENTS)


def test_a_run_that_goes_on_from_elsewhere_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(reliability_kills, 'examine', lambda run_dir, kill: None)

    class Saved(random.Random):
        def choice(self, options):
            return 'saved' if 'saved' in options else 'first save'

    raid = Pretended('ppo', tmp_path, 0.05, Saved(1), lambda text: None)
    raid.wrong = 30
    with pytest.raises(Failed, match='went on from step'):
        raid.strike(2)


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
    assert [line.split('|')[2].strip() for line in text.splitlines() if '| DQN' in line] == [
        '100 000 transitions are filled in',
        'buffer full',
    ]
    assert text.endswith('- TD3, Pendulum-v1, 8 environments: no')
    samples = [[n * 100_000, 400 + n] for n in range(1, 101)]
    text = reliability_cost.render_memory({'steps': 10_000_000, 'samples': samples, 'seconds': 90.0})
    assert '| 5 000 000 | 450 |' in text and '+10.00 MB a million steps (81 samples, from 420 to 500 MB)' in text
    row = {'beside': [100.0, 200.0], 'overlap': [150.0, 320.0], 'parts': [{'learn': 0.5}, {'learn': 0.7}]}
    text = reliability_overlap.render_overlap({'pairs': {'cartpole': row, 'float32': {**row, 'problem': 'the reason'}}})
    assert cells(text, 'PPO, CartPole-v1, 16 x 128')[1:] == [
        '150 (100 to 200)',
        '235 (150 to 320)',
        '1.55 (1.50 to 1.60)',
        '1.15',
        'learn 60 %',
    ]
    assert text.endswith('float32: the reason')


def test_a_pair_that_takes_long_is_measured_no_more_often_than_it_says(tmp_path, monkeypatch):
    def ours(settings, pair, overlap, options):
        return {'steps': 100, 'seconds': 1.0 if overlap else 2.0}

    monkeypatch.setattr(reliability_overlap, 'ours', ours)
    options = argparse.Namespace(quick=False, repeats=3)
    rows = reliability_overlap.measure_pong(tmp_path, options, lambda text: None)['pairs']
    assert {name: row['overlap'] for name, row in rows.items()} == {'float32': [100.0] * 3, 'bfloat16': [100.0]}
    assert rows['float32']['beside'] == [50.0] * 3


def test_tables_show_what_was_wrong():
    cases = {
        'ppo': {'steps': 9, 'found': {'stop': [], 'ctrl-c': [], 'kill': []}, 'breaks': {'ctrl-c': 3, 'kill': 1}},
        'dqn': {'steps': 9, 'found': {'stop': ['a'], 'ctrl-c': [], 'kill': []}, 'breaks': {'ctrl-c': 2, 'kill': 0}},
        'td3': {'steps': 9, 'problem': 'no'},
    }
    text = reliability_exact.render_exact({'cases': cases})
    assert cells(text, 'ppo') == ['ppo', '9', 'equal', 'equal, 3 times broken off', 'equal, 1 times broken off']
    assert cells(text, 'dqn')[2:4] == ['not equal', 'equal, 2 times broken off'] and cells(text, 'td3')[2] == 'failed'
    assert '- td3: no' in text and '- dqn, stop: not equal: a' in text
    kill = {
        'agent': 'ppo',
        'moment': 'any',
        'lost': 0,
        'seconds': 9.0,
        'told': 8.0,
        'beyond': 0.0,
        'files': 5,
        'unreadable': [],
    }
    kills = [
        {**kill, 'resumed': 7},
        {**kill, 'lost': 30, 'seconds': 2.5, 'told': 2.25, 'beyond': 0.25, 'resumed': None},
    ]
    kills[1]['unreadable'] = ['last: torn']
    text = reliability_kills.render_kills({'kills': kills, 'problems': ['hangs'], 'save_seconds': 2.0})
    assert (
        cells(text, 'ppo')
        == ['ppo', '2', '1', '10', '1', '2.50', '30', '2.25', '0.25']
        == ['ppo', *cells(text, 'all')[1:]]
    )
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


def test_a_folder_is_left_as_it_was(tmp_path):
    (tmp_path / 'kept').mkdir()
    with furnished(tmp_path, {'a': b'1'}):
        assert (tmp_path / 'a').read_bytes() == b'1'
        (tmp_path / 'kept' / 'new').mkdir()
        (tmp_path / 'kept' / 'new' / 'file').write_text('')
        (tmp_path / 'link').symlink_to('nowhere')
    assert [path.name for path in tmp_path.rglob('*')] == ['kept']


# environments and networks cost the most, and see only what passed everything before
@pytest.mark.parametrize(('number', 'earlier'), [(250, ['xagents.factory.make._environments']), (40, [])])
def test_hundreds_of_random_lines_end_well(number, earlier, tmp_path, monkeypatch):
    from xagents.cli import dispatch as cli

    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path, trained=False)
    tally = Tally()
    reliability_fuzz.count(number, 7, tally, *earlier)
    assert sum(tally.codes.values()) == number
    assert tally.problems == {}
    # they are no good where none of them gets through, or none is refused
    for kind in ('line', 'cfg', 'yaml'):
        assert tally.codes.get(f'{kind} begun', 0) >= number / 100 and tally.codes[f'{kind} 2'] >= number / 20


# ---------------------------------------------------------------------------------------------------------------- page


def files(tmp_path: Path) -> list[str]:
    page = tmp_path / 'page.md'
    page.write_text('<!-- benchmark reliability -->\n<!-- end of benchmark reliability -->\n')
    return ['--results', str(tmp_path / 'folder' / 'reliability.json'), '--page', str(page)]


def test_each_part_is_kept_and_written_beside_the_others(tmp_path, monkeypatch):
    arguments = files(tmp_path)

    def part(name, result):
        def measure(folder, options, log):
            assert list(folder.iterdir()) == []
            if result is None:
                raise Failed('the reason')
            return {'value': options.steps or result}

        return reliability.Part(f'Part {name}', measure, lambda kept: f'{name} is {kept["value"]}', ('steps', 'agents'))

    made = {name: part(name, result) for name, result in (('exact', 1), ('kills', 2), ('fuzz', None))}
    monkeypatch.setattr(reliability, 'PARTS', made)
    monkeypatch.setattr(parts.tables, 'machine', lambda: MACHINE)
    monkeypatch.setattr(parts.signal, 'signal', lambda *_: None)
    page = tmp_path / 'page.md'
    assert reliability.main(['--only', 'exact', '--quick', *arguments]) == 0
    assert 'exact' not in page.read_text() and not (tmp_path / 'folder').exists()
    assert reliability.main(['--only', 'kills', '--folder', str(tmp_path / 'kept'), *arguments]) == 0
    assert (tmp_path / 'kept' / 'kills').is_dir()
    # one that fails takes nothing away
    assert reliability.main(['--steps', '5', '--agents', 'ppo', 'dqn', *arguments]) == 1
    text = page.read_text()
    assert '### Part exact\n\nexact is 5\n\n2026-01-02, a CPU, 2 cores, Linux x86_64, load 0.1' in text
    assert '`python benchmarks/reliability.py --only exact --steps 5 --agents ppo dqn`' in text
    assert text.index('kills is 5') > text.index('exact is 5') and 'fuzz' not in text
    files(tmp_path)
    assert reliability.main(['--docs', *arguments]) == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    'words', [['--only', 'speed'], ['--kills', '0'], ['--repeats', '-1'], ['--python', 'x'], ['--agents', 'sac']]
)
def test_what_is_wrong_is_refused(words, capsys):
    with pytest.raises(SystemExit) as error:
        reliability.main(words)
    assert error.value.code == 2 and words[-1] in capsys.readouterr().err


def test_the_page_has_a_place_for_the_tables():
    assert (
        '<!-- benchmark reliability -->' in parts.PAGE.read_text().partition('<!-- end of benchmark reliability -->')[0]
    )
