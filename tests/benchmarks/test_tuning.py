"""The tuning benchmark: commands and counts of kills."""

import re

import optuna
import pytest

from benchmarks.tuning import populations, search, speed
from benchmarks.tuning.kills import Call, account
from benchmarks.venvs import XAGENTS
from tests.benchmarks.common import trial_options
from xagents.tuning.plan import plan

FIRST, SECOND = 1_000.0, 2_000.0


def test_commands_are_valid():
    one, two = (trial_options(speed.study(16, 20_000, jobs)[len(XAGENTS) :]) for jobs in (1, 2))
    assert (one['n_trials'], one['trial_steps'], one['pruner']) == (16, 20_000, 'none') and {**one, 'n_jobs': 2} == two
    trains = [trial_options(command[len(XAGENTS) :]) for command in speed.independent(160_000, 1)['train']]
    assert [train['seed'] for train in trains] == [1, 2]
    found = trial_options(search.search(40, 20_000, 3, 'sqlite:///a.db')[len(XAGENTS) :])
    assert (found['search'], found['objective'], found['seed']) == (True, 'evaluation', 3)
    assert not set(search.NEW_SEEDS) & set(search.STUDIES)
    given = {'population': 8, 'exploit_steps': 5000, 'trial_steps': 10_000, 'out': 'o', 'exploit': 0.0}
    lunar = {name: value for name, value in populations.LUNAR.items() if name != 'agent_id'}
    assert plan('ppo', {**lunar, **given}).tune.exploit == 0.0
    assert plan('ppo', {'env': 'CartPole-v1', 'out': 'o', **populations.SMALL}).tune.population == 4


# ---------------------------------------------------------------------------------------------------------------- kills


def trial(number: int, state: str, pid: int = 1, born: float = FIRST, **attributes):
    frozen = optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        value=1.0 if state in ('COMPLETE', 'PRUNED') else None,
        user_attrs={'host': 'here', 'pid': pid, 'process_started': born, **attributes},
    )
    frozen.number = number
    return frozen


def correct():
    """A call that was killed in trial 2, before it had reported trial 1, and one that ended; both have the same pid."""
    calls = [Call(1, FIRST, 'killed', {0: 'COMPLETE'}), Call(1, SECOND, 'normally', {3: 'COMPLETE', 4: 'PRUNED'}, 2)]
    trials = [trial(0, 'COMPLETE'), trial(1, 'PRUNED'), trial(2, 'FAIL')]
    return calls, [*trials, trial(3, 'COMPLETE', born=SECOND, retry_of=2), trial(4, 'PRUNED', born=SECOND)]


def put(number, state, **others):
    """Replace a trial."""
    return lambda calls, trials: trials.__setitem__(slice(number, number + 1), [trial(number, state, **others)])


@pytest.mark.parametrize(
    ('change', 'problem'),
    [
        (put(0, 'FAIL', reason='lost'), 'call 0: reported trial 0 as COMPLETE, which is FAIL'),
        (put(5, 'RUNNING', born=SECOND), r'still RUNNING: \[5\]'),
        (lambda _, t: t[3].user_attrs.pop('retry_of'), 'trial 2 was interrupted and retried 0 times'),
        (lambda c, _: setattr(c[1], 'total', 1), 'call 1: total 1, reported 2, kept 2, requested 2'),
        (lambda c, _: c[0].reported.update({3: 'COMPLETE'}), 'call 0: reported trial 3 of another call'),
        (put(5, 'COMPLETE'), 'call 0: kept 3 trials and reported 1'),
        (lambda c, _: setattr(c[0], 'ended', 'exit code 1: locked'), 'call 0 ended: exit code 1: locked'),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)
def test_wrong_counts_are_found(change, problem):
    calls, trials = correct()
    assert account(calls, trials, 2) == {
        'calls': 2, 'normal': 1, 'reported': 3, 'finished': 4, 'interrupted': 1, 'running': 0, 'problems': []
    }  # fmt: skip
    change(calls, trials)
    problems = account(calls, trials, 2)['problems']
    assert any(re.fullmatch(problem, found) for found in problems), problems
