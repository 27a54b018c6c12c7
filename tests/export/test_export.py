"""Exported policies act as their agents do, whatever they normalise and clip, and nothing is half-made.

`tests/agents` has every agent, format and kind of space.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.agents.contract import NESTED
from tests.export.policies import EXAMPLES, FORMATS, VECTOR, agent_of, arrays_of, assert_acts_alike, exported, sample
from xagents.export import formats as export_formats
from xagents.export import policy as exported_policy
from xagents.export.check import Agreement, Observations, check_agreement, collect_observations
from xagents.export.policy import policy_inputs
from xagents.export.write import export
from xagents.options.errors import OptionError

NOTHING_LEFT: list[str] = []


def small_convolutions(folder):
    path = folder / 'small.cfg'
    path.write_text(
        '[convolutional-0]\nfilters=4\nsize=3\nstride=2\nactivation=relu\n[flatten-0]\n'
        '[dense-actor]\noutput=1\n[dense-critic]\noutput=1\n'
    )
    return str(path)


def test_bytes_within_a_vector_are_encoded_to_the_same_bits():
    space = spaces.Dict({'camera': spaces.Box(0, 255, (16, 16), np.uint8), 'speed': VECTOR})
    agent = agent_of('a2c', space, flatten=True)
    batch = {
        'camera': np.arange(512, dtype=np.uint8).reshape(2, 16, 16),
        'speed': np.zeros((2, *VECTOR.shape), np.float32),
    }
    encode = tf.function(exported_policy._make_encoder(agent, policy_inputs(space)))
    np.testing.assert_array_equal(encode(batch), agent.envs.encoder(batch))


def test_what_the_normaliser_knows_is_inside(tmp_path):
    shown, taken = spaces.Box(-1000, 1000, (3,), np.float64), spaces.Box(-1, 3, (2,), np.float16)
    agent = agent_of('a2c', shown, taken, normalize_obs=True, scale=1.0)
    agent.statistics.observations.update(np.random.default_rng(0).normal([300, -7, 0.1], [100, 0.5, 1e-3], (200, 3)))
    # most of what is sampled lies beyond ten standard deviations: what is clipped is tested, too
    assert (np.abs(agent.statistics.prepare(agent.envs.encoder(sample(agent)))) == 10).any()
    assert_acts_alike(agent, tmp_path)


BOUNDS = spaces.Box(
    np.array([-2, 0.5, -np.inf, -np.inf, 3], np.float32), np.array([7, np.inf, np.inf, 0.25, 3], np.float32)
)


def test_bounds_that_are_not_symmetric_or_not_there(tmp_path):
    got = assert_acts_alike(agent_of('ppo', taken=BOUNDS), tmp_path)
    assert {-2.0, 7.0} <= set(got[:, 0]) and got[:, 1].min() == 0.5 and got[:, 3].max() == 0.25
    assert got[:, 2].min() < -1 and got[:, 2].max() > 1 and (got[:, 4] == 3).all()


@pytest.mark.parametrize('shape', [(3, 10, 12), pytest.param((2, 10, 12, 1), marks=pytest.mark.slow)], ids=str)
def test_images_and_stacks_of_them(shape, tmp_path):
    agent = agent_of('a2c', spaces.Box(0, 255, shape, np.uint8), model=small_convolutions(tmp_path))
    assert agent.input_shape in ((10, 12, 3), (10, 12, 2))
    assert_acts_alike(agent, tmp_path)


def test_inputs_have_names_that_every_format_admits_and_no_two_the_same():
    assert [part.name for part in policy_inputs(VECTOR)] == ['observations']
    clash = spaces.Dict({'a b': VECTOR, 'a_b': VECTOR, '0': VECTOR, 'observations_0': VECTOR, 'é': VECTOR})
    names = [part.name for part in policy_inputs(clash)]
    assert len(set(names)) == 5 and all(name.isidentifier() and name.isascii() for name in names)
    nested = {part.path: part.name for part in policy_inputs(NESTED)}
    assert nested[('camera 1',)] == 'camera_1' and nested[('inner', 1)] == 'inner_1'
    assert nested[('actions',)] == 'observations_actions' and nested[('self',)] == 'observations_self'


def test_bfloat16_networks(tmp_path):
    shown, taken = spaces.Box(0, 255, (10, 12, 1), np.uint8), spaces.Box(-2, 5, (2,), np.float32)
    agent = agent_of('ppo', shown, taken, precision='bfloat16', scale=2.0, model=small_convolutions(tmp_path))
    batch = sample(agent)
    expected = agent.act(batch)
    for format in FORMATS:
        got = exported(export(agent, format, tmp_path / format), format, agent)(arrays_of(agent, batch))
        assert got.dtype == np.float32
        # the others have no bfloat16 and are more precise than the agent
        np.testing.assert_allclose(got, expected, atol=1e-5 if format == 'savedmodel' else 0.1)
        assert format == 'savedmodel' or np.abs(got - expected).max() > 1e-5
    assert agent.actor.model.layers[1].compute_dtype == 'bfloat16', 'the agent itself stays as it was'


# ------------------------------------------------------------------------------------------------------- the check


def check_run(agent, run, n=20):
    batch = sample(agent, n)

    def by_name(arrays):
        return {'actions': run(arrays)}

    seen = Observations(batch, np.arange(n) == 0)
    return check_agreement(agent, by_name, seen, arrays_of(agent, batch), 1e-5, agent.acting_policy)


def tied(gap):
    """An agent with two actions, of which the second is better by `gap` everywhere."""
    agent = agent_of('a2c', taken=spaces.Discrete(2))
    kernel, bias = agent.actor.model.layers[-1].weights
    kernel.assign(np.zeros(kernel.shape))
    bias.assign([0, gap])
    return agent


def test_a_tie_is_counted_and_anything_beyond_is_refused():
    agent = tied(5e-6)
    assert check_run(agent, lambda x: agent.act(x['observations'])) == Agreement(20, 0, 0.0, 1e-5)
    assert check_run(agent, lambda x: 1 - agent.act(x['observations'])).ties == 20
    agent = tied(5e-5)
    with pytest.raises(RuntimeError, match=r'on 20 of 20 observations, with logits 5e-05 apart'):
        check_run(agent, lambda x: 1 - agent.act(x['observations']))


def test_one_wrong_answer_in_a_batch_of_seven_is_found():
    agent = tied(1.0)

    def run(arrays):
        actions = np.array(agent.act(arrays['observations']))
        actions[3:] ^= len(actions) == 7
        return actions

    with pytest.raises(RuntimeError, match='on 4 of 7 observations'):
        check_run(agent, run)


WRONG = {
    'another dtype': (spaces.Discrete(3), lambda a: a.astype(np.int32)),
    'another shape': (spaces.Discrete(3), lambda a: a[:, None]),
    'no action': (spaces.Discrete(3), lambda a: a + 7),
    'one switch of six': (spaces.MultiBinary((2, 3)), lambda a: a ^ np.eye(6, dtype=np.int8)[4].reshape(2, 3)),
    'one choice of two': (spaces.MultiDiscrete([3, 4]), lambda a: np.stack([a[:, 0], (a[:, 1] + 1) % 4], 1)),
    'not quite': (BOUNDS, lambda a: a + np.float32([1e-4, 0, 0, 0, 0])),
    'not a number': (BOUNDS, lambda a: a * np.float32(np.nan)),
    'another whole number': (spaces.Box(-3, 9, (2,), np.int16), lambda a: a + np.int16(1)),
}


@pytest.mark.parametrize('taken, change', WRONG.values(), ids=WRONG)
def test_what_differs_from_the_agent_is_refused(taken, change):
    agent = agent_of('ddpg' if taken.dtype == np.int16 else 'ppo', taken=taken)
    assert check_run(agent, lambda x: np.array(agent.act(x['observations']))).ties == 0
    with pytest.raises(RuntimeError, match='nothing is written'):
        check_run(agent, lambda x: change(np.array(agent.act(x['observations']))))


def test_a_policy_that_acts_otherwise_leaves_nothing(tmp_path, monkeypatch, capsys):
    agent = agent_of('ppo', taken=BOUNDS, normalize_obs=True)
    agent.statistics.observations.update(np.full((9, 3), 4.0) + np.eye(9, 3))
    monkeypatch.setattr(exported_policy, '_make_normalizer', lambda agent: lambda x: x)
    with pytest.raises(RuntimeError, match=r'differently from the agent on \d+ of 128 observations, by up to [\d.]+'):
        export(agent, 'litert', tmp_path / 'policy')
    assert os.listdir(tmp_path) == NOTHING_LEFT and not capsys.readouterr().out


def test_what_is_compared_on_comes_from_the_environment_and_leaves_the_agent_as_it_was():
    agent = xagents.make('ppo', 'CartPole-v1', n_envs=2, seed=1, net=[8])
    before = agent.state()
    batch, starts = collect_observations(agent)
    assert len(starts) == 128 and 2 <= starts.sum() < 30 and starts[0]
    assert batch.shape == (128, 4) and batch.dtype == np.float32 and len(np.unique(batch, axis=0)) == 128
    assert (np.abs(batch[:, 2]) > 0.1).any(), 'a pole that never moves shows nothing'
    np.testing.assert_array_equal(batch, collect_observations(agent).batch)
    assert agent.state().record == before.record


# ----------------------------------------------------------------------------------------------------- the folder


def test_who_receives_a_policy_is_told_what_to_feed(tmp_path):
    agent = agent_of('ppo', NESTED, BOUNDS, normalize_obs=True, flatten=True)
    export(agent, 'savedmodel', tmp_path / 'policy', observations=sample(agent))
    told = json.loads((tmp_path / 'policy' / 'policy.json').read_text())
    assert (told['format'], told['file'], told['agent'], told['normalized']) == ('savedmodel', '.', 'ppo', True)
    assert told['xagents'] == xagents.__version__ and told['env'] == agent.envs.id
    assert {'name': 'inner_1', 'path': ['inner', 1], 'shape': [None, 2, 2], 'dtype': 'float64'} in told['inputs']
    assert told['output'] == {'name': 'actions', 'shape': [None, 5], 'dtype': 'float32'}
    assert told['action_space']['low'] == [-2.0, 0.5, None, None, 3.0]
    assert dict(told['observation_space']['parts'])['camera 1']['high'] == 255
    assert told['checked']['observations'] == 50


def test_a_folder_that_holds_something_is_refused_and_stays(tmp_path):
    agent = agent_of('a2c')
    (tmp_path / 'taken').mkdir()
    (tmp_path / 'taken' / 'file').write_text('mine')
    with pytest.raises(
        OptionError, match=r'^out: got .*taken, which contains files, expected a directory that does not exist'
    ):
        export(agent, 'litert', tmp_path / 'taken')
    assert (tmp_path / 'taken' / 'file').read_text() == 'mine' and os.listdir(tmp_path) == ['taken']
    with pytest.raises(OptionError, match='is a file, expected a directory'):
        export(agent, 'litert', tmp_path / 'taken' / 'file')
    with pytest.raises(OptionError, match='out: got nothing'):
        export(agent, 'litert')


def test_an_empty_folder_and_one_that_a_killed_export_left_are_taken(tmp_path):
    agent = agent_of('a2c')
    (tmp_path / 'empty').mkdir()
    (tmp_path / '.empty.new').mkdir()
    (tmp_path / '.empty.new' / 'half').write_text('')
    for folder in ('empty', 'in/folders/that/are/made'):
        path = export(agent, 'litert', tmp_path / folder)
        assert path == tmp_path / folder / 'policy.tflite' and path.stat().st_size > 0
        assert sorted(os.listdir(tmp_path / folder)) == ['contract.json', 'policy.json', 'policy.tflite']
    assert sorted(os.listdir(tmp_path)) == ['empty', 'in']


# ------------------------------------------------------------------------------------------------- what is refused


def test_unknown_formats_and_missing_packages(tmp_path, monkeypatch):
    agent = agent_of('a2c')
    with pytest.raises(
        OptionError, match=r"format: got 'lite', expected savedmodel, litert, onnx, numpy, c \(did you mean litert"
    ):
        export(agent, 'lite', tmp_path / 'policy')
    monkeypatch.setitem(export_formats.FORMATS, 'onnx', export_formats.FORMATS['onnx']._replace(packages=('not_here',)))
    with pytest.raises(OptionError, match=r"^format: onnx needs not_here: pip install '\.\[export\]'$"):
        export(agent, 'onnx', tmp_path / 'policy')
    assert os.listdir(tmp_path) == NOTHING_LEFT


def test_environments_that_cannot_be_made_again_need_observations(tmp_path):
    agent = agent_of('a2c')
    agent.envs.factory = None
    with pytest.raises(ValueError, match=r'cannot be created again for the comparison; give observations='):
        export(agent, 'savedmodel', tmp_path / 'policy')
    with pytest.raises(ValueError, match='observations: got none'):
        export(agent, 'savedmodel', tmp_path / 'policy', observations=np.zeros((0, 3), np.float32))
    with pytest.raises(
        ValueError, match=r'observations have the shape \[5, 2\]; expected \[3\] for one observation, \[N, 3\]'
    ):
        export(agent, 'savedmodel', tmp_path / 'policy', observations=np.zeros((5, 2)))
    assert os.listdir(tmp_path) == NOTHING_LEFT
    assert export(agent, 'savedmodel', tmp_path / 'policy', observations=[[0, 1, 2]]) == tmp_path / 'policy'


def test_what_a_format_cannot_hold_is_one_line_and_leaves_nothing(tmp_path, capfd):
    agent = agent_of('a2c', spaces.Box(0, 9, (3,), np.uint64))
    with pytest.raises(OptionError, match=r'^format: got litert, which does not support this policy: ') as raised:
        export(agent, 'litert', tmp_path / 'policy')
    assert '\n' not in str(raised.value) and os.listdir(tmp_path) == NOTHING_LEFT
    assert capfd.readouterr().err == '', 'what converters say is held back'


# ---------------------------------------------------------------------------------------------------- the examples


@pytest.mark.slow
def test_the_examples_run_without_xagents(tmp_path):
    agent = agent_of('ppo', spaces.Dict({'age': spaces.Discrete(5), 'rest': VECTOR}), BOUNDS)
    batch = sample(agent, 9)
    np.savez(tmp_path / 'observations.npz', **arrays_of(agent, batch))
    # the other tests load SavedModels by the example; policies in NumPy and C bring their own code
    for format in FORMATS[FORMATS.index('litert') :]:
        export(agent, format, tmp_path / format)
        # -I: neither this folder nor PYTHONPATH is searched
        command = [sys.executable, '-I', EXAMPLES / f'run_{format}.py', format, 'observations.npz']
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
        np.testing.assert_allclose(json.loads(done.stdout), agent.act(batch), rtol=1e-5, atol=1e-5)
    for example in EXAMPLES.glob('*.py'):
        assert not re.search('^(import|from) xagents', example.read_text(), re.MULTILINE)
