"""Exported C headers compile without a warning in gcc and clang, and act as their agents do."""

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys

import gymnasium
import keras
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.export.policies import VECTOR, agent_of, arrays_of, exported, sample, spread
from tests.export.test_export import BOUNDS, NOTHING_LEFT, small_convolutions
from tests.masked_problems import TwoLegal
from tests.mixed_problems import NESTINGS
from xagents.export import formats as export_formats
from xagents.export.c_network import NetworkCode, c_number
from xagents.export.c_program import find_compiler
from xagents.export.c_source import TEST_COMMAND, c_functions
from xagents.export.write import export
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import ACTIVATIONS, LayerCall, NetworkPlan
from xagents.options.errors import OptionError

STRICT = ('-std=c99', '-Wall', '-Wextra', '-pedantic', '-Werror')
CLANG = [shutil.which('clang')] if shutil.which('clang') else [sys.executable, '-m', 'ziglang', 'cc']
HAS_CLANG = len(CLANG) == 1 or importlib.util.find_spec('ziglang') is not None
COMPILERS = {'gcc': ['gcc'], **({'clang': CLANG} if HAS_CLANG else {})}
MIXED_OBSERVATIONS = spaces.Dict(
    {
        'double': spaces.Discrete(4, start=-2),
        'double_': spaces.Box(-9, 9, (2, 2), np.float64),
        'x': spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 255, (3,), np.uint8))),
        'flags': spaces.MultiBinary(3),
        'whole': spaces.Box(-1000, 1000, (2,), np.int16),
    }
)
POLICIES = {
    'discrete': ('ppo', {}),
    'box with bounds': ('ppo', {'taken': BOUNDS, 'normalize_obs': True}),
    'whole numbers': ('ddpg', {'taken': spaces.Box(-3, 9, (2,), np.int16)}),
    'several choices': ('a2c', {'taken': spaces.MultiDiscrete([[3, 4], [2, 5]], start=[[0, 7], [-1, 2]])}),
    'switches': ('trpo', {'taken': spaces.MultiBinary((2, 3))}),
    'dueling': ('dqn', {'dueling': True}),
    'categorical': ('rainbow', {'distribution': 'categorical', 'n_atoms': 5}),
    'quantiles': ('dqn', {'distribution': 'quantile', 'n_quantiles': 5}),
    'squashed': ('sac', {'normalize_obs': True}),
    'batch norm': ('crossq', {}),
    'layer norm': ('ppo', {'normalize_layers': 'layer', 'taken': BOUNDS}),
    'gru': ('ppo', {'memory': 7, 'taken': BOUNDS}),
    'lstm': ('a2c', {'memory': 5, 'memory_kind': 'lstm', 'normalize_obs': True}),
    'mixed actions': ('ppo', {'taken': NESTINGS['nested']}),
    'mixed observations': ('ppo', {'shown': MIXED_OBSERVATIONS, 'normalize_obs': True, 'flatten': True}),
}


def run(*command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def assert_vectors_agree(folder, compiler):
    """Compile the header alone with all warnings as errors, and run its test vectors."""
    built = run(
        *COMPILERS[compiler], *STRICT, '-DXAGENTS_TEST', '-x', 'c', 'policy.h', '-lm', '-o', 'test', folder=folder
    )
    assert (built.returncode, built.stderr) == (0, '')
    done = run('./test', folder=folder)
    assert done.returncode == 0 and re.fullmatch(r'(\d+) of \1 test vectors agree\n', done.stdout)


def strictly_compiled(folder, agent, compiler):
    """Compile the header as a part of a program with all warnings as errors."""
    script = folder / compiler
    script.write_text(f'#!/bin/sh\nexec {" ".join(COMPILERS[compiler])} {" ".join(STRICT)} "$@"\n')
    script.chmod(stat.S_IRWXU)
    return exported(folder / 'policy.h', 'c', agent, str(script))


@pytest.mark.parametrize('name, options', POLICIES.values(), ids=POLICIES)
def test_headers_compile_without_warnings_and_act_as_the_agent(name, options, tmp_path):
    with contextlib.closing(agent_of(name, **options)) as agent:
        agent.collector.collect(7)
        path = export(agent, 'c', tmp_path / 'out')
        batch = sample(agent)
        agent.reset_memory()
        expected = agent.act(batch)
        units = agent.actor.plan.pruned()[0].memory_units
        arrays = arrays_of(agent, batch)
        arrays |= {'memory': np.zeros((50, units), np.float32)} if units else {}
        for compiler in COMPILERS:
            assert_vectors_agree(path.parent, compiler)
            got = strictly_compiled(path.parent, agent, compiler)(arrays)
            assert_actions_equal(agent, got, expected)


def assert_actions_equal(agent, got, expected):
    got = got if isinstance(got, dict) else {'actions': got}
    outputs = [output for output in got if output != 'next_memory']
    wanted = (
        {'actions': expected}
        if outputs == ['actions']
        else {
            'actions_arm_0': expected['arm'][0],
            'actions_arm_1_grip': expected['arm'][1]['grip'],
            'actions_base': expected['base'],
            'actions_lamp': expected['lamp'],
        }
    )
    assert sorted(outputs) == sorted(wanted)
    for name, actions in wanted.items():
        assert got[name].dtype == actions.dtype and got[name].shape == actions.shape
        assert len(np.unique(actions, axis=0)) > 1, 'the agent does always the same: nothing would be tested'
        np.testing.assert_allclose(got[name], actions, rtol=1e-5, atol=1e-5)


def test_masked_actions(tmp_path):
    with contextlib.closing(xagents.make('dqn', lambda: TwoLegal(n=6), n_envs=2, seed=1, net=[16])) as agent:
        spread(agent, 4)
        agent.refresh()
        masks = np.eye(6, dtype=np.int8)[np.arange(12) % 6]
        arrays = {'action_mask': masks, 'bit': np.linspace(-1, 1, 12, dtype=np.float32)[:, None]}
        path = export(agent, 'c', tmp_path / 'out', arrays)
        for compiler in COMPILERS:
            assert_vectors_agree(path.parent, compiler)
            got = strictly_compiled(path.parent, agent, compiler)(arrays)
            np.testing.assert_array_equal(got, np.arange(12) % 6)
            np.testing.assert_array_equal(got, agent.act(arrays))


@pytest.mark.parametrize('kind', ['gru', 'lstm'])
def test_the_memory_over_an_episode(kind, tmp_path):
    with contextlib.closing(agent_of('ppo', taken=BOUNDS, memory=6, memory_kind=kind, scale=2.0)) as agent:
        policy = exported(export(agent, 'c', tmp_path / 'out'), 'c', agent)
        batch = sample(agent, 40)
        memory = np.zeros((1, agent.actor.plan.pruned()[0].memory_units), np.float32)
        agent.reset_memory()
        for row in batch:
            expected = agent.act(row[None])
            got = policy({'observations': row[None], 'memory': memory})
            np.testing.assert_allclose(got['actions'], expected, rtol=1e-5, atol=1e-5)
            memory = got['next_memory']
        told = json.loads((tmp_path / 'out' / 'policy.json').read_text())
        assert told['memory']['shape'] == [None, memory.shape[1]] and (memory != 0).all()


def test_images(tmp_path):
    """`tests/agents/test_features.py` has images that are parts of observations."""
    agent = agent_of('a2c', spaces.Box(0, 255, (3, 10, 12), np.uint8), model=small_convolutions(tmp_path))
    path = export(agent, 'c', tmp_path / 'out')
    for compiler in COMPILERS:
        assert_vectors_agree(path.parent, compiler)
        got = strictly_compiled(path.parent, agent, compiler)(arrays_of(agent, sample(agent)))
        np.testing.assert_array_equal(got, agent.act(sample(agent)))


def test_the_documented_command_and_a_changed_weight(tmp_path):
    path = export(agent_of('ppo', taken=BOUNDS), 'c', tmp_path / 'out')
    assert run('sh', '-c', TEST_COMMAND, folder=path.parent).stdout == '32 of 32 test vectors agree\n'
    assert f'    {TEST_COMMAND}\n' in path.read_text()
    begin, weights, rest = path.read_text().partition('policy_w0[64] = {')
    path.write_text(begin + weights + '9.0f, ' + rest.partition(', ')[2])
    done = run('sh', '-c', TEST_COMMAND, folder=path.parent)
    assert done.returncode == 1 and re.fullmatch(r'\d+ of 32 test vectors agree\n', done.stdout)


def test_a_static_scratch_array_and_two_policies_in_one_program(tmp_path):
    main = 'int act_{0}(void);\nint act_{0}(void)\n{{\n    return xagents_test();\n}}\n'
    for name, agent in (('a', agent_of('ppo', taken=BOUNDS)), ('b', agent_of('dqn'))):
        export(agent, 'c', tmp_path / name)
        (tmp_path / f'{name}.c').write_text(f'#include "{name}/policy.h"\n' + main.format(name))
    (tmp_path / 'main.c').write_text(
        'int act_a(void);\nint act_b(void);\nint main(void)\n{\n    return act_a() + act_b();\n}\n'
    )
    flags = [*STRICT, '-DXAGENTS_TEST', '-DXAGENTS_NO_MAIN', '-DPOLICY_SCRATCH=static']
    built = run('gcc', *flags, 'main.c', 'a.c', 'b.c', '-lm', '-o', 'both', folder=tmp_path)
    assert (built.returncode, built.stderr) == (0, '')
    assert run('./both', folder=tmp_path).returncode == 0


# -------------------------------------------------------------------------------------------------------- the network


def compiled_network(code, folder):
    """Return a function from inputs [D] to outputs [units]."""
    lines = ['#include <math.h>', '#include <stdint.h>', *code.constants]
    body = [*code.statements, f'policy_copy({code.output}, outputs, {code.output_units});']
    lines += [*c_functions('\n'.join(body)), 'void act(const float *inputs, float *outputs);']
    lines += ['void act(const float *inputs, float *outputs)', '{', f'float scratch[{code.scratch_floats}];']
    lines += [f'policy_copy(inputs, scratch, {code.input_units});', *body, '}']
    (folder / 'network.c').write_text('\n'.join(lines))
    built = run('gcc', *STRICT, '-shared', '-fPIC', 'network.c', '-lm', '-o', 'network.so', folder=folder)
    assert (built.returncode, built.stderr) == (0, '')
    act = ctypes.CDLL(str(folder / 'network.so')).act

    def call(inputs):
        outputs = np.zeros(code.output_units, np.float32)
        act(*(array.ctypes.data_as(ctypes.c_void_p) for array in (np.float32(inputs), outputs)))
        return outputs

    return call


def test_every_activation(tmp_path):
    calls = [LayerCall('activation', 0, 1, activation=ACTIVATIONS[0])]
    for activation in ACTIVATIONS[1:]:
        n = 2 * len(calls)
        calls += [LayerCall('activation', 0, n, activation=activation)]
        calls += [LayerCall('concatenate', calls[-2].target, n + 1, second=n)]
    calls += [LayerCall('log-probabilities', 0, 100), LayerCall('concatenate', calls[-1].target, 101, second=100)]
    plan = NetworkPlan((7,), tuple(calls), (101,), 0)
    inputs = np.array([-88, -3.5, -0.1, 0, 0.2, 4, 60], np.float32)
    got = compiled_network(NetworkCode(plan, np.zeros(0, np.float32), 7), tmp_path)(inputs)
    expected = NumpyNetwork(plan, np.zeros(0, np.float32))(inputs[None])[0][0]
    assert len(got) == 7 * (len(ACTIVATIONS) + 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_tensors_share_the_scratch_array_only_if_none_is_used_later(tmp_path):
    """A residual network: the first tensor is used by the last addition, so its numbers must stay."""
    rng = np.random.default_rng(0)
    calls = [LayerCall('dense', k, k + 1, at=72 * k, kernel=(8, 8), bias=True, activation='tanh') for k in range(5)]
    calls += [LayerCall('add', 5, 6, second=1), LayerCall('part', 6, 7, kernel=(3,), start=4)]
    plan = NetworkPlan((8,), tuple(calls), (7,), 5 * 72)
    weights, inputs = rng.standard_normal(5 * 72).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    code = NetworkCode(plan, weights, 8)
    assert code.scratch_floats == 24, 'the first tensor, and two that alternate'
    np.testing.assert_allclose(
        compiled_network(code, tmp_path)(inputs), NumpyNetwork(plan, weights)(inputs[None])[0][0], rtol=1e-5, atol=1e-6
    )


def test_constants_have_the_bits_of_the_weights():
    values = np.array([0, -0.0, 1e-45, 1.17549435e-38, 0.1, 1 / 3, 16777217, 3.4e38], np.float32)
    for value in values:
        assert np.float32(c_number(value).removesuffix('f')).tobytes() == value.tobytes()
    assert [c_number(x) for x in (np.inf, -np.inf, np.nan)] == ['INFINITY', '-INFINITY', 'NAN']
    assert c_number(-(2**63)) == '(-9223372036854775807LL - 1)' and c_number(2**63) == '9223372036854775808ULL'


# -------------------------------------------------------------------------------------------------- what is written


def test_size_and_time_are_printed_and_in_policy_json(tmp_path, capsys):
    agent = xagents.make('ppo', 'CartPole-v1', n_envs=2, seed=1, net=[64, 64])
    export(agent, 'c', tmp_path / 'out')
    line = capsys.readouterr().out
    pattern = (
        r'.*/policy\.h: [\d.]+ kB; ([\d.]+) kB compiled with -Os, (\d+) ns per call; acts as the agent does on 128 '
    )
    size, nanoseconds = map(float, re.match(pattern, line).groups())
    assert 4 * (4 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2) < 1e3 * size < 40e3 and 50 < nanoseconds < 1e6
    compiled = json.loads((tmp_path / 'out' / 'policy.json').read_text())['compiled']
    assert compiled['nanoseconds'] == nanoseconds and abs(compiled['bytes'] - 1e3 * size) <= 50
    assert sorted(os.listdir(tmp_path / 'out')) == ['contract.json', 'policy.h', 'policy.json']


def test_without_a_compiler_the_line_says_that_the_header_was_not_compiled(tmp_path, monkeypatch, capsys):
    agent = agent_of('ppo', taken=BOUNDS, memory=4)
    monkeypatch.setattr(export_formats, 'find_compiler', lambda: None)
    export(agent, 'c', tmp_path / 'out')
    line = capsys.readouterr().out
    assert (
        '; not compiled, because no C compiler (cc, gcc, clang) is installed; its network in NumPy acts as the' in line
    )
    assert json.loads((tmp_path / 'out' / 'policy.json').read_text())['compiled'] is None
    assert_vectors_agree(tmp_path / 'out', 'gcc')


def test_a_compiler_that_fails_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capfd):
    agent = agent_of('a2c')
    (tmp_path / 'cc').write_text('#!/bin/sh\necho "/some/where/policy.h:3:1: error: no headers here" >&2\nexit 1\n')
    (tmp_path / 'cc').chmod(stat.S_IRWXU)
    monkeypatch.setattr(export_formats, 'find_compiler', lambda: str(tmp_path / 'cc'))
    expected = '^format: got c, which does not support this policy: cc failed: policy.h:3:1: error: no headers here$'
    with pytest.raises(OptionError, match=expected):
        export(agent, 'c', tmp_path / 'out' / 'policy')
    assert os.listdir(tmp_path / 'out') == NOTHING_LEFT and not capfd.readouterr().out


def unplanned(input_shape, output_units):
    inputs = keras.Input(input_shape)
    hidden = keras.layers.Dense(4, activation='mish', name='hidden')(inputs)
    return keras.Model(inputs, [keras.layers.Dense(units)(hidden) for units in output_units])


def test_networks_without_a_plan_are_one_line(tmp_path):
    xagents.register_network('unplanned', unplanned)
    agent = agent_of('a2c', model='unplanned')
    with pytest.raises(
        OptionError, match=r"^format: got c, which does not support this policy: model: layer 'hidden' has the"
    ):
        export(agent, 'c', tmp_path / 'out' / 'policy')
    assert os.listdir(tmp_path / 'out') == NOTHING_LEFT


def test_weights_that_are_not_finite_are_one_line(tmp_path):
    agent = agent_of('a2c')
    kernel = agent.actor.model.weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(OptionError, match=r'format: got c, .*: a weight of the network is not finite$'):
        export(agent, 'c', tmp_path / 'policy')


def test_names_of_environments_cannot_end_the_comment(tmp_path):
    class Odd(gymnasium.Env):
        observation_space, action_space = VECTOR, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.zeros(3, np.float32), 0.0, True, False, {}

    agent = xagents.make('ppo', Odd, n_envs=1, seed=1, net=[4])
    agent.envs.id = 'odd */ #error \\ é ??/'
    export(agent, 'c', tmp_path / 'out', observations=np.eye(3, dtype=np.float32))
    assert 'odd _/ #error _ _ __/' in (tmp_path / 'out' / 'policy.h').read_text()
    assert_vectors_agree(tmp_path / 'out', 'gcc')


def test_the_compilers_of_these_tests_are_installed():
    assert find_compiler() and shutil.which('gcc')
    if not HAS_CLANG:
        pytest.skip('neither clang nor the package ziglang is installed: headers were compiled by gcc only')
    assert 'clang' in run(*CLANG, '--version', folder='.').stdout
