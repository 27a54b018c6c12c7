"""The contract of an exported policy: names, units, ranges, control rate and reset."""

import contextlib
import json

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.environments import Counter
from tests.export.policies import FORMATS, VECTOR, Sampled
from xagents.export.write import export
from xagents.options.errors import OptionError

NAMED = spaces.Dict(arm=spaces.Box(-1, 1, (2,), np.float32), gear=spaces.Discrete(3, start=-1))


class Described(Sampled):
    metadata = {
        **Counter.metadata,
        'names': {
            'observations': {'arm': ['shoulder', 'elbow'], 'gear': ['back', 'stop', 'ahead']},
            'actions': ['torque'],
        },
        'units': {'observations': {'arm': 'rad'}, 'actions': ['N m']},
        'control_rate': 50,
    }


class Game(Sampled):
    dt = 0.02

    def get_action_meanings(self):
        return ['NOOP', 'LEFT', 'RIGHT']


def contract_of(env, folder, format='numpy', **options):
    with contextlib.closing(xagents.make('ppo', env, n_envs=1, seed=1, net=[4], **options)) as agent:
        export(agent, format, folder / format)
    return json.loads((folder / format / 'contract.json').read_text())


def test_the_contract_of_cartpole_in_every_format(tmp_path):
    contracts = [contract_of('CartPole-v1', tmp_path, format) for format in FORMATS]
    assert all(contract == contracts[0] for contract in contracts)
    (observation,), (action,) = contracts[0].pop('observations'), contracts[0].pop('actions')
    assert contracts[0] == {
        'version': 1,
        'greedy': True,
        'control_rate': None,
        'memory': None,
        'reset': 'nothing: the policy has no memory',
    }
    assert observation['low'][0] == pytest.approx(-4.8) and observation['low'][1] is None
    assert {**observation, 'low': 0, 'high': 0} == {
        **{'name': 'observations', 'path': [], 'shape': [4], 'dtype': 'float32', 'low': 0, 'high': 0},
        **{'names': None, 'units': None},
    }
    assert action == {
        **{'name': 'actions', 'path': [], 'shape': [], 'dtype': 'int64', 'low': 0, 'high': 1},
        **{'names': None, 'units': None},
    }


def test_names_units_and_rate_of_the_metadata(tmp_path):
    taken = spaces.Box(-2, np.inf, (1,), np.float32)
    contract = contract_of(lambda: Described(NAMED, taken), tmp_path)
    arm, gear = contract['observations']
    assert (arm['path'], arm['names'], arm['units'], arm['low'], arm['high']) == (
        *(['arm'], ['shoulder', 'elbow'], 'rad', -1, 1),
    )
    assert (gear['names'], gear['units'], gear['low'], gear['high']) == (['back', 'stop', 'ahead'], None, -1, 1)
    (action,) = contract['actions']
    assert (action['names'], action['units'], action['low'], action['high']) == (['torque'], ['N m'], -2, None)
    assert contract['control_rate'] == 50


def test_time_step_and_meanings_of_the_environment(tmp_path):
    contract = contract_of(lambda: Game(VECTOR, spaces.Discrete(3)), tmp_path, memory=4)
    assert contract['control_rate'] == 50 and contract['actions'][0]['names'] == ['NOOP', 'LEFT', 'RIGHT']
    assert contract['memory'] == {'shape': [4], 'dtype': 'float32'}
    assert contract['reset'] == 'at the first step of an episode, set the memory to zeros'
    skipped = contract_of(lambda: Game(VECTOR, spaces.Discrete(4)), tmp_path / 'skip', frame_skip=2)
    assert skipped['control_rate'] == 25 and skipped['actions'][0]['names'] is None


WRONG = {
    'section': (
        {'units': {'observation': 'm'}},
        r"metadata\['units'\] is .*, expected a dict with the keys observations and",
    ),
    'number': (
        {'names': {'observations': {'arm': ['a']}}},
        r"metadata\['names'\]\['observations'\]\['arm'\] is \['a'\], expected one text, or 2 texts$",
    ),
    'nesting': (
        {'units': {'observations': ['m', 's']}},
        r"which has no metadata\['units'\]\['observations'\]\['arm'\], expec",
    ),
    'rate': ({'control_rate': 0}, r"metadata\['control_rate'\] is 0, expected actions per second, a number above 0$"),
}


@pytest.mark.parametrize('metadata, message', WRONG.values(), ids=WRONG)
def test_wrong_metadata_is_one_line_and_leaves_nothing(metadata, message, tmp_path, capsys):
    class Wrong(Sampled):
        pass

    Wrong.metadata = {**Counter.metadata, **metadata}
    with pytest.raises(OptionError, match=f'^env: got .*{message}'):
        contract_of(lambda: Wrong(NAMED, spaces.Discrete(2)), tmp_path / 'out')
    assert not (tmp_path / 'out').exists() and not capsys.readouterr().out
