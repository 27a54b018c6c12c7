"""The benchmark of several agents: settings."""

from benchmarks.teams import run as teams
from benchmarks.workers.sb3_worker import arguments
from benchmarks.workers.settings import from_fields
from benchmarks.workers.spread_worker import keywords
from benchmarks.workers.teams import TeamJob
from tests.benchmarks.common import trial_options
from xagents.options.declaration import to_flags


def job(part, row='xagents', seed=1):
    fields = teams.request(teams.PARTS[part], teams.ROWS[row], seed, False)
    return TeamJob(**{**fields, 'settings': from_fields(fields['settings'])})


def test_both_libraries_get_the_same_settings_and_ours_are_valid():
    given = job('learning', seed=3)
    ours, theirs = keywords(given), arguments(given.settings)
    pairs = {'n_steps': 'n_steps', 'ppo_epochs': 'n_epochs', 'lr': 'learning_rate', 'clip_norm': 'clip_range'}
    pairs |= {'gamma': 'gamma', 'lam': 'gae_lambda', 'entropy_coef': 'ent_coef', 'grad_norm': 'max_grad_norm'}
    pairs |= {'value_loss_coef': 'vf_coef', 'normalize_advantage': 'normalize_advantage', 'seed': 'seed'}
    assert {name: ours[name] for name in pairs} == {name: theirs[other] for name, other in pairs.items()}
    assert theirs['batch_size'] * given.agents * ours['mini_batches'] == 8 * 3 * 125
    for row in ('async', 'explorers'):
        options = {name: value for name, value in keywords(job('speed', row)).items() if name != 'env_kwargs'}
        words = ['train', 'ppo', '--env', 'pettingzoo:benchmarks.envs.cheap', '--max-steps', '9', *to_flags(options)]
        assert teams.ROWS[row].options.items() <= trial_options(words).items()
