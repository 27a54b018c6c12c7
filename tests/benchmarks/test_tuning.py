"""The tuning benchmark: its commands."""

from benchmarks.tuning import populations, search, speed
from benchmarks.venvs import XAGENTS
from tests.benchmarks.common import trial_options
from xagents.tuning.plan import plan


def test_commands_are_valid():
    one, two = (trial_options(speed.study(16, 20_000, jobs)[len(XAGENTS) :]) for jobs in (1, 2))
    assert (one['n_trials'], one['trial_steps'], one['pruner']) == (16, 20_000, 'none') and {**one, 'n_jobs': 2} == two
    trains = [trial_options(command[len(XAGENTS) :]) for command in speed.independent(160_000, 1)['train']]
    assert [train['seed'] for train in trains] == [1, 2]
    found = trial_options(search.search(40, 20_000, 3, 'sqlite:///a.db')[len(XAGENTS) :])
    assert (found['search'], found['objective'], found['seed']) == (True, 'evaluation', 3)
    assert not set(search.NEW_SEEDS) & set(search.STUDIES)
    lunar = {name: value for name, value in populations.LUNAR.items() if name != 'agent_id'}
    for steps in (populations.STEPS, populations.QUICK_STEPS):
        assert plan('ppo', {**lunar, **populations.rounds(0.0, steps), 'out': 'o'}).tune.exploit == 0.0
    assert plan('ppo', {'env': 'CartPole-v1', 'out': 'o', **populations.SMALL}).tune.population == 4
