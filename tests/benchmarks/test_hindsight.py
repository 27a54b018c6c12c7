"""The benchmark of hindsight: what it times and shows; nothing is trained."""

import gymnasium
import pytest

from benchmarks.learning import hindsight
from tests.benchmarks.common import cells
from xagents.factory.make import plan


def test_every_part_can_be_named():
    options = hindsight.make_parser().parse_args(['--only', *hindsight.PARTS, '--quick', '--seeds', '4', '5'])
    assert options.seeds == [4, 5] and options.page.name == 'hindsight.md'


@pytest.mark.parametrize('cases', [hindsight.BIT_CASES, hindsight.REACH_CASES])
def test_settings_are_admitted(cases):
    for _, settings, steps in cases.values():
        made = dict(settings)
        assert plan(made.pop('agent_id'), made).settings.agent.her == ('her' in settings) and steps


def test_draws_are_timed_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(hindsight, 'SIZE', 4000)
    options = hindsight.make_parser().parse_args(['--quick'])
    found = hindsight.measure_draws(tmp_path, options, print)
    assert all(times['plain'] > 0 for times in found.values()) and len(found) == 6
    found['1 16'] = {'plain': 100.0, 'hindsight': 150.0, 'its functions': 260.0}
    assert cells(hindsight.render_draws(found), '1 | 16') == ['1', '16 x 256', '100', '260', '1.50', '2.60', '10']


def test_seeds_stand_beside_each_other():
    runs = [{'seed': s, 'seconds': 10.0 * s, 'success': 1 / s, 'mean': -s, 'length': 9, 'std': 0} for s in (1, 2, 4)]
    shown = hindsight.render_cases({'a case': {'asked': 'success ≥ 1', 'steps': 60_000, 'runs': runs}})
    assert cells(shown, 'a case') == [
        'a case',
        '60 000',
        '1.00, 0.50, 0.25',
        '-1.00, -2.00, -4.00',
        'success ≥ 1',
        '20',
    ]


def test_flipping_the_wrong_bits_once_reaches_the_goal():
    env = gymnasium.make('benchmarks.envs.bits:BitFlip-v0', bits=9)
    observation, _ = env.reset(seed=1)
    wrong = (observation['achieved_goal'] != observation['desired_goal']).nonzero()[0]
    *before, last = [env.step(bit)[1:] for bit in wrong]
    assert all(step == (-1.0, False, False, {'is_success': False}) for step in before)
    assert last == (0.0, True, False, {'is_success': True})
