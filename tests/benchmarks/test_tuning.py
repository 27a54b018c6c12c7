"""The tuning benchmark's commands, clocks, kills, counts and tables; nothing is trained."""

import re

import optuna
import pytest

from benchmarks.tuning import search as tuning_search
from benchmarks.tuning import speed as tuning_speed
from benchmarks.tuning.commands import XAGENTS
from benchmarks.tuning.kills import Call, account
from tests.benchmarks.common import cells
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse

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


# ---------------------------------------------------------------------------------------------------------------- kills


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
        (lambda c, _: setattr(c[1], 'said', 1), 'call 1: said 1, reported 2, kept 2, asked for 2'),
        (lambda c, _: c[0].reported.update({3: 'COMPLETE'}), 'call 0: reported trial 3, which is not its own'),
        (put(5, 'COMPLETE', born=SECOND), 'call 1: said 2, reported 2, kept 3, asked for 2'),
        (put(5, 'COMPLETE'), 'call 0: kept 3 trials and reported 1'),
        (put(5, 'COMPLETE', pid=2), 'trial 5 is of no call'),
        (lambda c, _: setattr(c[0], 'ended', 'exit code 1: locked'), 'call 0 ended: exit code 1: locked'),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)  # fmt: skip
def test_what_is_wrong_is_found(ruin, said):
    calls, trials = sound()
    ruin(calls, trials)
    problems = account(calls, trials, 2)['problems']
    assert any(re.fullmatch(said, problem) for problem in problems), problems


# -------------------------------------------------------------------------------------------------------------- tables


def test_the_ratio_of_two_workers_stands_beside_the_machines_own():
    pairs = {'20000': [[80, 50], [90, 50]], 'train': [[20.0, 16.0]], 'spin': [[9.0, 6.0], [12.0, 6.0]]}
    text = tuning_speed.render_jobs({'trials': 16, 'work': 160_000, 'pairs': pairs})
    tuned = ['85.0 (80.0 to 90.0)', '50.0 (50.0 to 50.0)', '1.70 (1.60 to 1.80)', '1.8']
    assert cells(text, '`xagents tune')[1:] == tuned
    assert cells(text, 'the machine: two `xagents train')[1:] == ['20.0', '16.0', '1.25', '']
    assert cells(text, 'the machine: two loops')[3] == '1.75 (1.50 to 2.00)'
