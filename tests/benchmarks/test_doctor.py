"""The benchmark of the doctor: commands of the set-ups, and verdicts about findings."""

import gymnasium
import numpy as np
import pytest

from benchmarks.learning.doctor import BROKEN, SETUPS, parse_key, render
from tests.benchmarks.common import MACHINE, cells, trial_options


@pytest.mark.parametrize('name', SETUPS)
def test_set_ups_have_valid_commands(name):
    options = trial_options(['train', *SETUPS[name].command.split()])
    assert bool(SETUPS[name].cause) == bool(SETUPS[name].named) == (name in BROKEN)
    assert options['env']


def row(name, *findings, seed=1, **further):
    parts = [dict(zip(('name', 'seen', 'meaning', 'remedy'), finding, strict=True)) for finding in findings]
    about = {'name': name, 'command': SETUPS[name].command, 'seed': seed, 'mean': 1.0, 'findings': parts}
    return {**about, 'machine': MACHINE, 'versions': {'python': '3.11'}, **further}


def test_table_says_which_causes_are_named_and_which_healthy_runs_are_silent():
    gamma, other = ('discount', '--gamma is 0.5', 'too short', 'Raise it'), ('critic', 'noise', 'noise', 'Add a layer')
    text = render(
        [
            row('γ too small', gamma, seed=2),
            row('γ too small', other, seed=1),
            row('γ too small', gamma, gamma, seed=3, command='another command'),
            row('PPO, Acrobot'),
            row('PPO, CartPole', other),
        ]
    )
    assert cells(text, 'γ too small')[2:5] == ['no, yes', 'critic; **discount**', '1, 1']
    assert cells(text, 'PPO, Acrobot')[1:3] == ['yes', 'none']
    assert cells(text, 'PPO, CartPole')[1:3] == ['no', 'critic']
    assert 'Named: 1 of 2 runs.' in text
    assert 'Silent: 1 of 2 runs.' in text
    assert parse_key(row('PPO, Acrobot')) != parse_key(row('PPO, Acrobot', seed=2))


def test_faulty_environments():
    cents, goal = (gymnasium.make(f'benchmarks.envs.faulty:{name}-v0') for name in ('Cents', 'Goal'))
    for env in (cents, goal):
        env.reset(seed=0)
    assert cents.step(cents.action_space.sample())[1] < -1e4
    assert goal.step(0)[1] == 0.0
    goal.unwrapped.state = np.array([0.49, 0.07])
    assert goal.step(2)[1:3] == (1.0, True)
