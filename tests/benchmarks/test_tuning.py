"""The tuning benchmark's commands, clocks, kills, counts and tables; nothing is trained."""

import argparse
import io
import random
import re
import time
from datetime import datetime

import gymnasium
import optuna
import pytest
from rich.console import Console

from benchmarks import tuning_kills, tuning_search, tuning_speed
from benchmarks.harness import Failed
from benchmarks.tuning_kills import Call, Raid, account, instants
from benchmarks.tuning_runs import XAGENTS, ending, processes_in, seconds_beside, seconds_in_turn, start
from benchmarks.workers.first_step import FILE, FirstStep
from tests.benchmarks.common import cells, python
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.tuning.table import TrialTable

FIRST, SECOND = 1_000.0, 2_000.0


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


def test_commands_run_beside_each_other_or_in_turn_and_one_that_fails_says_why(tmp_path):
    naps = [python('import time; time.sleep(0.6)')] * 2
    beside, in_turn = seconds_beside(naps, tmp_path), seconds_in_turn(naps, tmp_path)
    assert 0.6 <= beside < in_turn and in_turn >= 1.2
    with pytest.raises(Failed, match='exit code 3: the reason'):
        seconds_beside([python("import sys; print('the reason', file=sys.stderr); sys.exit(3)"), python('')], tmp_path)


def test_what_still_runs_is_ended_and_what_was_started_in_a_folder_is_found(tmp_path):
    assert processes_in(tmp_path) == []
    running = []
    with pytest.raises(KeyError), ending(running):
        running.append(start(python('import time; time.sleep(60)'), tmp_path, 'nap'))
        assert [process.pid for process in processes_in(tmp_path)] == [running[0].process.pid]
        raise KeyError
    assert running[0].process.returncode == -9 and processes_in(tmp_path) == []


def test_an_environment_writes_its_first_step_once(tmp_path, monkeypatch):
    monkeypatch.setenv(FILE, str(tmp_path / 'steps'))
    env, before = FirstStep(gymnasium.make('CartPole-v1')), time.time()
    for _ in range(2):
        env.reset(seed=1)
        env.step(0)
    (step,) = (tmp_path / 'steps').read_text().split()
    assert before <= float(step) <= time.time()


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
    assert call.reported == {0: 'COMPLETE', 2: 'PRUNED', 12: 'COMPLETE'} and call.said == 4
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
    # numbers of processes come again
    calls = [
        Call(1, FIRST, 'killed', {0: 'COMPLETE'}),
        Call(1, SECOND, 'normally', {3: 'COMPLETE', 4: 'PRUNED'}, 2),
    ]
    trials = [trial(0, 'COMPLETE'), trial(1, 'PRUNED'), trial(2, 'FAIL')]
    trials += [trial(3, 'COMPLETE', born=SECOND, retry_of=2), trial(4, 'PRUNED', born=SECOND)]
    return calls, trials


def test_a_study_that_counts_right_has_no_problem():
    assert account(*sound(), 2) == {
        'calls': 2, 'normal': 1, 'reported': 3, 'finished': 4, 'broken_off': 1, 'running': 0, 'problems': []
    }  # fmt: skip


def put(number, state, **others):
    """Let a trial be another one."""
    return lambda calls, trials: trials.__setitem__(slice(number, number + 1), [trial(number, state, **others)])


@pytest.mark.parametrize(
    ('ruin', 'said'),
    [
        (put(0, 'FAIL', reason='lost'), 'call 0: reported trial 0 as COMPLETE, which is FAIL'),
        (put(4, 'COMPLETE', born=SECOND), 'call 1: reported trial 4 as PRUNED, which is COMPLETE'),
        (put(5, 'RUNNING', born=SECOND), r'still RUNNING: \[5\]'),
        (lambda _, t: t[3].user_attrs.pop('retry_of'), 'trial 2 was broken off and tried again 0 times'),
        (put(5, 'WAITING', retry_of=2), 'trial 2 was broken off and tried again 2 times'),
        (put(5, 'COMPLETE', born=SECOND), 'call 1: said 2, reported 2, kept 3, asked for 2'),
        (lambda c, _: setattr(c[1], 'said', 1), 'call 1: said 1, reported 2, kept 2, asked for 2'),
        (put(5, 'COMPLETE'), 'call 0: kept 3 trials and reported 1'),
        (put(5, 'COMPLETE', pid=2), 'trial 5 is of no call'),
        (lambda c, _: c[0].reported.update({3: 'COMPLETE'}), 'call 0: reported trial 3, which is not its own'),
        (lambda c, _: setattr(c[0], 'ended', 'exit code 1: locked'), 'call 0 ended: exit code 1: locked'),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)  # fmt: skip
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


def test_a_command_that_fails_without_a_kill_is_given_up(tmp_path):
    failing = python("raise SystemExit('no')")
    raid = Raid(failing, tmp_path, [(100.0, 'parent')], 1.0, random.Random(1), lambda text: None)
    with pytest.raises(Failed, match='1 calls ended by themselves after 0 kills; the last one: exit code 1: no'):
        raid.go_on()


# -------------------------------------------------------------------------------------------------------------- tables


def test_the_ratio_of_two_workers_stands_beside_the_machines_own():
    pairs = {'20000': [[80, 50], [90, 50]], 'train': [[20.0, 16.0]], 'spin': [[9.0, 6.0], [12.0, 6.0]]}
    text = tuning_speed.render_jobs({'trials': 16, 'work': 160_000, 'pairs': pairs})
    tuned = ['85.0 (80.0 to 90.0)', '50.0 (50.0 to 50.0)', '1.70 (1.60 to 1.80)', '1.6']
    assert cells(text, '`xagents tune')[1:] == tuned
    assert cells(text, 'the machine: two `xagents train')[1:] == ['20.0', '16.0', '1.25', '']
    assert cells(text, 'the machine: two loops')[3] == '1.75 (1.50 to 2.00)'


def test_the_first_trial_of_a_worker_stands_apart():
    text = tuning_speed.render_overhead({'seconds': {'ppo': [9.0, 0.25, 0.5, 0.75]}})
    assert cells(text, 'PPO on CartPole-v1')[1:] == ['9.00', '0.50 (at most 0.75 of 3)', 'under 1']


def test_found_settings_stand_beside_the_defaults():
    counts = {'complete': 30, 'pruned': 10, 'fail': 0}
    study = {'seconds': 120, 'options': {'lr': 0.01}, 'number': 7, 'value': 500.0, 'counts': counts}
    studies = [{**study, 'seed': 1, 'means': [150.0, 150.0]}, {**study, 'seed': 2, 'means': [500.0, -300.0]}]
    text = tuning_search.render_search({'steps': 20_000, 'default': [100.0, 200.0], 'studies': studies})
    assert cells(text, 'the defaults')[3:] == ['100.0, 200.0', '150.0', '']
    assert cells(text, 'study 1')[1:] == ['7', '500.0', '150.0, 150.0', '150.0', 'yes']
    assert cells(text, 'study 2')[4:] == ['100.0', 'no']
    command = 'xagents train ppo --env CartPole-v1 --max-steps 20000 --lr 0.01 --seed 101'
    assert f'- study 1 (2.0 minutes; 30 complete, 10 pruned, 0 fail): `{command}`' in text


def test_a_search_is_judged_by_fresh_seeds_beside_the_defaults(tmp_path, monkeypatch):
    best = {'number': 2, 'value': 9.0, 'counts': {}, 'options': {'lr': 0.01}}
    monkeypatch.setattr(tuning_search, 'seconds_beside', lambda commands, folder: 60.0)
    monkeypatch.setattr(tuning_search, 'best_of', lambda name, url: best)

    def train_all(waiting, jobs, python):
        for training in reversed(waiting):  # they end in any order
            yield training, {'mean': training.seed + len(training.case.options)}

    monkeypatch.setattr(tuning_search, 'train_all', train_all)
    options = argparse.Namespace(quick=False)
    result = tuning_search.measure_search(tmp_path, options, lambda text: None)
    assert result['default'] == [101, 102, 103]
    assert result['studies'] == [{'seed': n, 'seconds': 60.0, **best, 'means': [102, 103, 104]} for n in (1, 2, 3)]


def test_problems_stand_below_the_counts():
    counts = {'left': 3, 'calls': 9, 'normal': 4, 'reported': 70, 'finished': 72, 'broken_off': 15, 'running': 1}
    found = {'kills': {'worker': 20, 'parent': 5}, 'apart': 1.5, 'problems': ['still RUNNING: [5]'], **counts}
    text = tuning_kills.render_kills({'trials': 15, 'storages': {'journal': found}})
    assert cells(text, 'journal') == ['journal', *map(str, [20, 5, 9, 4, 70, 72, 15, 1, 3, 1]), '1.5']
    assert text.endswith('- journal: still RUNNING: [5]')
    assert len(cells(text, 'journal')) == len(cells(text, ''))
