"""The tuning benchmark's commands, clocks, kills, counts and tables; nothing is trained."""

import io
import random
import re
import sys
import time
from datetime import datetime
from pathlib import Path

import gymnasium
import optuna
import pytest
from rich.console import Console

from benchmarks import parts, tuning, tuning_kills, tuning_search, tuning_speed
from benchmarks.harness import Failed
from benchmarks.tuning_kills import Call, Raid, account, instants
from benchmarks.tuning_runs import XAGENTS, ending, processes_in, seconds_beside, seconds_in_turn, start
from benchmarks.workers.first_step import FILE, FirstStep
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.tuning.table import TrialTable

MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}
FIRST, SECOND = 1_000.0, 2_000.0


def python(body: str) -> list[str]:
    return [sys.executable, '-c', body]


def cells(text: str, beginning: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f'| {beginning}'))
    return [cell.strip() for cell in line.split('|')[1:-1]]


# ------------------------------------------------------------------------------------------------------------ commands


def test_what_is_typed_is_what_is_asked():
    def options(command):
        assert tuple(command[: len(XAGENTS)]) == XAGENTS
        name, agent, *words = command[len(XAGENTS) :]
        return parse(find_command(name), agent, words)[1]

    one, two = (options(tuning_speed.study(16, 20_000, jobs)) for jobs in (1, 2))
    assert (one['n_trials'], one['trial_steps'], one['sampler'], one['pruner']) == (16, 20_000, 'random', 'none')
    assert {**one, 'n_jobs': 2} == two
    trains = [options(command) for command in tuning_speed.independent(160_000, 1)['train']]
    assert [train['seed'] for train in trains] == [1, 2]
    assert all((train['max_steps'], [train['n_envs']]) == (160_000, one['n_envs']) for train in trains)
    search = options(tuning_search.search(40, 20_000, 3, 'sqlite:///a.db'))
    assert (search['search'], search['n_trials'], search['objective'], search['seed']) == (True, 40, 'evaluation', 3)
    # what they are judged by is new to all studies
    assert not set(tuning_search.FRESH) & set(tuning_search.STUDIES)


def test_commands_run_beside_each_other_or_in_turn(tmp_path):
    naps = [python('import time; time.sleep(0.6)')] * 2
    beside, in_turn = seconds_beside(naps, tmp_path), seconds_in_turn(naps, tmp_path)
    assert 0.6 <= beside < in_turn and in_turn >= 1.2


def test_a_command_that_fails_says_why_and_ends_no_later_than_the_others(tmp_path):
    with pytest.raises(Failed, match='exit code 3: the reason'):
        seconds_beside([python("import sys; print('the reason', file=sys.stderr); sys.exit(3)"), python('')], tmp_path)


def test_what_still_runs_is_ended_and_what_was_started_in_a_folder_is_found(tmp_path):
    assert processes_in(tmp_path) == []
    with pytest.raises(KeyError):
        running = []
        with ending(running):
            running.append(start(python('import time; time.sleep(60)'), tmp_path, 'nap'))
            assert [process.pid for process in processes_in(tmp_path)] == [running[0].process.pid]
            raise KeyError
    assert running[0].process.returncode == -9
    assert processes_in(tmp_path) == []


# --------------------------------------------------------------------------------------------------------- first steps


def test_an_environment_writes_its_first_step_once(tmp_path, monkeypatch):
    monkeypatch.setenv(FILE, str(tmp_path / 'steps'))
    env = FirstStep(gymnasium.make('CartPole-v1'))
    before = time.time()
    for _ in range(2):
        env.reset(seed=1)
        env.step(0)
    assert len((tmp_path / 'steps').read_text().split()) == 1
    assert before <= float((tmp_path / 'steps').read_text()) <= time.time()


def test_the_first_step_of_a_trial_is_the_first_one_after_its_beginning():
    begun = [datetime.fromtimestamp(moment) for moment in (100, 110, 120)]
    stepped = [104.5, 104.0, 104.25, 110.5, 110.75, 125.0]
    assert tuning_speed.first_steps(begun, stepped) == [4.0, 0.5, 5.0]
    with pytest.raises(ValueError):  # one that made none
        tuning_speed.first_steps(begun, stepped[:-1])


# ---------------------------------------------------------------------------------------------------------------- kills


def test_a_console_is_read_as_the_table_writes_it():
    console = io.StringIO()
    table = TrialTable(3, 2, False, live=False, terminal=Console(file=console, highlight=False, soft_wrap=True))
    table.say('Study kills in sqlite:///a.db: new')
    for number, state, value, reason in [
        (0, 'complete', 12.5, ''),
        (1, 'killed', None, 'its worker died (SIGKILL), complete nonsense'),
        (2, 'pruned', -1e-9, ''),
        (3, 'failed', None, 'ValueError: a, complete, b'),
        (12, 'complete', 1e9, ''),
    ]:
        table.started(number, {'lr': 1e-4})
        table.finished(number, state, value, (0, 12.5), 1.0, reason)
    call = Call(1, FIRST)
    call.read(console.getvalue() + 'Finished: 4 trials in this call; the study has 7 complete\n')
    assert call.reported == {0: 'COMPLETE', 2: 'PRUNED', 12: 'COMPLETE'}
    assert call.said == 4
    call.read('trial 5: val')
    assert (call.reported, call.said) == ({}, None)


def trial(number: int, state: str, pid: int = 1, born: float = FIRST, **attributes):
    frozen = optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        value=1.0 if state in ('COMPLETE', 'PRUNED') else None,
        user_attrs={'host': 'here', 'pid': pid, 'process_started': born, **attributes},
    )
    frozen.number = number
    return frozen


def sound():
    """A call that was killed in trial 2, before it had reported trial 1, and one that ended."""
    calls = [
        Call(1, FIRST, 'killed', {0: 'COMPLETE'}),
        # numbers of processes come again
        Call(1, SECOND, 'normally', {3: 'COMPLETE', 4: 'PRUNED'}, 2),
    ]
    trials = [
        trial(0, 'COMPLETE'),
        trial(1, 'PRUNED'),
        trial(2, 'FAIL'),
        trial(3, 'COMPLETE', born=SECOND, retry_of=2),
        trial(4, 'PRUNED', born=SECOND),
    ]
    return calls, trials


def test_a_study_that_counts_right_has_no_problem():
    result = account(*sound(), 2)
    assert result == {
        'calls': 2, 'normal': 1, 'reported': 3, 'finished': 4, 'broken_off': 1, 'running': 0, 'problems': []
    }  # fmt: skip


def lose(calls, trials):
    trials[0] = trial(0, 'FAIL', reason='lost')


def change(calls, trials):
    trials[4] = trial(4, 'COMPLETE', born=SECOND)


def leave_running(calls, trials):
    trials.append(trial(5, 'RUNNING', born=SECOND))


def forget(calls, trials):
    del trials[3].user_attrs['retry_of']


def repeat(calls, trials):
    trials.append(trial(5, 'WAITING', retry_of=2))


def finish_too_many(calls, trials):
    trials.append(trial(5, 'COMPLETE', born=SECOND))


def say_too_few(calls, trials):
    calls[1].said = 1


def finish_without_a_word(calls, trials):
    trials.append(trial(5, 'COMPLETE'))


def finish_for_a_stranger(calls, trials):
    trials.append(trial(5, 'COMPLETE', pid=2))


def report_another_ones(calls, trials):
    calls[0].reported[3] = 'COMPLETE'


def end_by_itself(calls, trials):
    calls[0].ended = 'exit code 1: the database is locked'


@pytest.mark.parametrize(
    ('ruin', 'said'),
    [
        (lose, 'call 0: reported trial 0 as COMPLETE, which is FAIL'),
        (change, 'call 1: reported trial 4 as PRUNED, which is COMPLETE'),
        (leave_running, r'still RUNNING: \[5\]'),
        (forget, 'trial 2 was broken off and tried again 0 times'),
        (repeat, 'trial 2 was broken off and tried again 2 times'),
        (finish_too_many, 'call 1: said 2, reported 2, kept 3, asked for 2'),
        (say_too_few, 'call 1: said 1, reported 2, kept 2, asked for 2'),
        (finish_without_a_word, 'call 0: kept 3 trials and reported 1'),
        (finish_for_a_stranger, 'trial 5 is of no call'),
        (report_another_ones, 'call 0: reported trial 3, which is not its own'),
        (end_by_itself, 'call 0 ended: exit code 1: the database is locked'),
    ],
)
def test_what_is_wrong_is_found(ruin, said):
    calls, trials = sound()
    ruin(calls, trials)
    problems = account(calls, trials, 2)['problems']
    assert any(re.fullmatch(said, problem) for problem in problems), problems


def test_instants_are_as_many_as_kills_and_the_same_each_time():
    drawn = instants({'worker': 20, 'parent': 5}, 10.0, random.Random(1))
    assert drawn == instants({'worker': 20, 'parent': 5}, 10.0, random.Random(1))
    assert drawn == sorted(drawn) and all(0 <= moment <= 250 for moment, _ in drawn)
    assert [victim for _, victim in drawn].count('parent') == 5 and len(drawn) == 25


# in the place of `xagents tune`: two workers, which it starts again when they die, and a second of work
STANDS_IN = """
import subprocess, sys, time
nap = [sys.executable, '-c', 'import sys; sys.stdin.read()', 'xagents.tuning.worker']
workers = []
end = time.monotonic() + 1.0
while time.monotonic() < end:
    workers = [worker for worker in workers if worker.poll() is None]
    while len(workers) < 2:
        workers.append(subprocess.Popen(nap, stdin=subprocess.PIPE))
    time.sleep(0.02)
print('trial 0: value 1, best 1 (trial 0), complete, 1 s', flush=True)
for worker in workers:
    worker.kill()
    worker.wait()
"""


def test_the_same_command_runs_again_until_all_kills_are_done_and_one_call_has_ended(tmp_path):
    said = []
    due = [(0.5, 'worker'), (0.6, 'parent'), (0.9, 'worker'), (1.3, 'parent')]
    raid = Raid(python(STANDS_IN), tmp_path, list(due), 0.3, random.Random(1), said.append)
    calls = raid.go_on()
    assert raid.due == []
    kills = [text.split()[-1] for text in said if 'killed a' in text]
    assert sorted(kills) == ['parent', 'parent', 'worker', 'worker']
    ends = [call.ended for call in calls]
    assert ends.count('killed') == 2 and set(ends) == {'killed', 'normally'} and ends[-1] == 'normally'
    assert [bool(call.reported) for call in calls] == [end == 'normally' for end in ends]
    deadline = time.monotonic() + 10
    while processes_in(tmp_path) and time.monotonic() < deadline:  # those of killed parents go by themselves
        time.sleep(0.05)
    assert processes_in(tmp_path) == []


def test_a_command_that_fails_without_a_kill_is_given_up(tmp_path):
    raid = Raid(
        python("raise SystemExit('no')"), tmp_path, [(100.0, 'parent')], 1.0, random.Random(1), lambda text: None
    )
    with pytest.raises(Failed, match='1 calls ended by themselves after 0 kills; the last one: exit code 1: no'):
        raid.go_on()


# -------------------------------------------------------------------------------------------------------------- tables

JOBS = {
    'trials': 16,
    'work': 160_000,
    'pairs': {'20000': [[80, 50], [90, 50]], 'train': [[20.0, 16.0]], 'spin': [[9.0, 6.0], [12.0, 6.0]]},
}
SEARCH = {
    'trials': 40,
    'steps': 20_000,
    'default': [100.0, 200.0],
    'studies': [
        {
            'seed': seed, 'seconds': 120, 'options': {'lr': 0.01}, 'number': 7, 'value': 500.0, 'means': means,
            'counts': {'complete': 30, 'pruned': 10, 'fail': 0},
        }
        for seed, means in [(1, [150.0, 150.0]), (2, [500.0, -300.0])]
    ],
}  # fmt: skip
KILLS = {
    'trials': 15,
    'storages': {
        'journal': {
            'kills': {'worker': 20, 'parent': 5}, 'seconds': 90.0, 'apart': 1.5, 'left': 3, 'calls': 9,
            'normal': 4, 'reported': 70, 'finished': 72, 'broken_off': 15, 'running': 1,
            'problems': ['still RUNNING: [5]'],
        }
    },
}  # fmt: skip


def test_the_ratio_of_two_workers_stands_beside_the_machines_own():
    text = tuning_speed.render_jobs(JOBS)
    assert cells(text, '`xagents tune')[1:] == [
        '85.0 (80.0 to 90.0)',
        '50.0 (50.0 to 50.0)',
        '1.70 (1.60 to 1.80)',
        '1.6',
    ]
    assert cells(text, 'the machine: two `xagents train')[1:] == ['20.0', '16.0', '1.25', '']
    assert cells(text, 'the machine: two loops')[3] == '1.75 (1.50 to 2.00)'


def test_the_first_trial_of_a_worker_stands_apart():
    text = tuning_speed.render_overhead({'seconds': {'ppo': [9.0, 0.25, 0.5, 0.75]}})
    assert cells(text, 'PPO on CartPole-v1')[1:] == ['9.00', '0.50 (at most 0.75 of 3)', 'under 1']


def test_found_settings_stand_beside_the_defaults():
    text = tuning_search.render_search(SEARCH)
    assert cells(text, 'the defaults')[3:] == ['100.0, 200.0', '150.0', '']
    assert cells(text, 'study 1')[1:] == ['7', '500.0', '150.0, 150.0', '150.0', 'yes']
    assert cells(text, 'study 2')[4:] == ['100.0', 'no']
    command = 'xagents train ppo --env CartPole-v1 --max-steps 20000 --lr 0.01 --seed 101'
    assert f'- study 1 (2.0 minutes; 30 complete, 10 pruned, 0 fail): `{command}`' in text


def test_problems_stand_below_the_counts():
    text = tuning_kills.render_kills(KILLS)
    assert cells(text, 'journal') == ['journal', *map(str, [20, 5, 9, 4, 70, 72, 15, 1, 3, 1]), '1.5']
    assert text.endswith('- journal: still RUNNING: [5]')
    assert len(cells(text, 'journal')) == len(text.splitlines()[0].split('|')) - 2


def files(tmp_path: Path) -> list[str]:
    page = tmp_path / 'page.md'
    page.write_text('<!-- benchmark tuning -->\n<!-- end of benchmark tuning -->\n')
    return ['--results', str(tmp_path / 'folder' / 'tuning.json'), '--page', str(page)]


def test_each_part_is_kept_and_written_beside_the_others(tmp_path, monkeypatch):
    arguments, asked = files(tmp_path), []

    def part(name, result):
        def measure(folder, options, log):
            assert list(folder.iterdir()) == []
            asked.append((name, options.repeats, options.quick))
            if result is None:
                raise Failed('the reason')
            return result

        heeded = ('repeats',) if name == 'jobs' else ()
        return tuning.Part(f'Part {name}', measure, lambda kept: f'{name} is {kept["value"]}', heeded)

    made = {'jobs': part('jobs', {'value': 1}), 'kills': part('kills', {'value': 2}), 'search': part('search', None)}
    monkeypatch.setattr(tuning, 'PARTS', made)
    monkeypatch.setattr(parts.tables, 'machine', lambda: MACHINE)
    monkeypatch.setattr(parts.signal, 'signal', lambda *_: None)
    page = tmp_path / 'page.md'
    assert tuning.main(['--only', 'jobs', '--quick', *arguments]) == 0
    assert 'jobs' not in page.read_text() and not (tmp_path / 'folder').exists()
    assert tuning.main(['--only', 'kills', '--folder', str(tmp_path / 'kept'), *arguments]) == 0
    assert (tmp_path / 'kept' / 'kills').is_dir()
    # one that fails takes nothing away
    assert tuning.main(['--repeats', '2', *arguments]) == 1
    assert asked == [
        ('jobs', 3, True),
        ('kills', 3, False),
        ('jobs', 2, False),
        ('kills', 2, False),
        ('search', 2, False),
    ]
    text = page.read_text()
    assert '### Part jobs\n\njobs is 1\n\n2026-01-02, a CPU, 2 cores, Linux x86_64, load 0.1' in text
    assert '`python benchmarks/tuning.py --only jobs --repeats 2`' in text
    assert '`python benchmarks/tuning.py --only kills`' in text
    assert text.index('kills is 2') > text.index('jobs is 1') and 'search' not in text
    files(tmp_path)
    assert tuning.main(['--docs', *arguments]) == 0
    assert page.read_text() == text and len(asked) == 5


def test_a_part_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit) as error:
        tuning.main(['--only', 'speed'])
    assert error.value.code == 2 and "'speed'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        tuning.main(['--repeats', '0'])


def test_the_page_has_a_place_for_the_tables():
    assert '<!-- benchmark tuning -->' in parts.PAGE.read_text().partition('<!-- end of benchmark tuning -->')[0]
