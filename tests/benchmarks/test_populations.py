"""The benchmark of populations: what it shows; nothing is trained."""

import pytest

from benchmarks.speed.run import Failed
from benchmarks.tuning import populations
from tests.benchmarks.common import cells
from xagents.tuning.plan import plan


def test_every_part_can_be_named_and_its_settings_are_admitted():
    options = populations.make_parser().parse_args(['--only', *populations.PARTS, '--repeats', '3'])
    assert options.repeats == 3 and options.page.name == 'populations.md'
    lunar = dict(populations.LUNAR)
    given = {'population': 8, 'exploit_steps': 5000, 'trial_steps': 10_000, 'out': 'o', 'exploit': 0.0}
    assert plan(lunar.pop('agent_id'), {**lunar, **given}).tune.exploit == 0.0
    assert plan('ppo', {'env': 'CartPole-v1', 'out': 'o', **populations.SMALL}).tune.population == 4


def test_the_best_stand_beside_each_other():
    row = {'seed': 2, 'population': {'mean': 200.0, 'seconds': 90.0}, 'alone': {'mean': 150.0, 'seconds': 60.0}}
    shown = populations.render_lunar({'repeats': [row]})
    assert cells(shown, '2 | 200.0') == ['2', '200.0', '150.0', 'yes', '90', '60']


def test_another_table_after_kills_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(populations, '_call', lambda command, seconds: False)
    tables = iter([1, 2])
    monkeypatch.setattr(populations, '_table', lambda folder: next(tables))
    with pytest.raises(Failed, match='another table'):
        populations.measure_kills(tmp_path, populations.make_parser().parse_args(['--quick']), print)
