"""Agents whose actions differ, their exported policies, and how the two are compared."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from gymnasium import spaces

import xagents
from tests.environments import Counter
from xagents.export import formats as export_formats
from xagents.export.c_program import CompiledPolicy, find_compiler
from xagents.export.check import as_batch
from xagents.export.policy import inputs_of, policy_inputs, policy_outputs
from xagents.export.write import export

EXAMPLES = Path(xagents.__file__).parents[1] / 'examples' / 'deploy'
HAS_ONNX = all(importlib.util.find_spec(name) for name in export_formats.FORMATS['onnx'].packages)
# one agent is tested in all of them: making it takes longer than exporting it
FORMATS = ('savedmodel', 'numpy', *(['c'] if find_compiler() else []), 'litert', *(['onnx'] if HAS_ONNX else []))
VECTOR = spaces.Box(-5, 5, (3,), np.float32)


class Sampled(Counter):
    """Shows random observations of a space and takes actions of another."""

    def __init__(self, shown, taken, **options):
        super().__init__(**options)
        self.observation_space, self.action_space = shown, taken

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        return super().reset(seed=seed)

    def observation(self):
        return self.observation_space.sample()


def agent_of(name, shown=VECTOR, taken=None, *, scale=4.0, **options):
    """An agent whose weights are large enough for its actions to differ, and to go beyond their bounds."""
    taken = taken or (
        spaces.Box(-2, 2, (2,), np.float32)
        if name in ('ddpg', 'td3', 'td3-bc', 'iql', 'sac', 'tqc', 'crossq')
        else spaces.Discrete(3)
    )
    if 'model' not in options:
        options['net'] = [16]
    agent = xagents.make(name, lambda: Sampled(shown, taken), n_envs=2, seed=1, **options)
    spread(agent, scale)
    return agent


def spread(agent, scale):
    rng = np.random.default_rng(5)
    for weights in agent.actor.model.weights:
        value = weights.numpy()
        inputs = value.size / value.shape[-1] if value.ndim > 1 else 9
        drawn = scale * rng.standard_normal(value.shape) / np.sqrt(inputs)
        weights.assign(np.abs(drawn) if 'variance' in weights.path else drawn)


def exported(path, format, agent, compiler=None):
    """Load an exported policy by its runtime alone, as the example for its users does; compile a header."""
    if format == 'c':
        inputs, outputs = inputs_of(agent), policy_outputs(agent.envs.action_space)
        described = SimpleNamespace(inputs=inputs, outputs=outputs, memory_units=agent.acting_policy.memory_units)
        policy = CompiledPolicy(path, described, compiler or find_compiler())
        return lambda arrays: next(iter(got.values())) if len(got := policy(arrays)) == 1 else got
    name = f'run_{format}'
    page = path / 'policy.py' if format == 'numpy' else EXAMPLES / f'{name}.py'
    specification = importlib.util.spec_from_file_location(name, page)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.load(path if format in ('numpy', 'savedmodel') else path.parent)


def arrays_of(agent, batch):
    return {part.name: part.extract(batch) for part in policy_inputs(agent.envs.encoder.raw_space)}


def sample(agent, n=50, seed=3):
    space = agent.envs.encoder.raw_space
    space.seed(seed)
    return as_batch(space, [space.sample() for _ in range(n)])


def assert_acts_alike(agent, folder):
    """Export in every format, and compare on observations that the export did not see, in one batch and alone.

    Returns:
        The actions.
    """
    batch = sample(agent)
    expected, arrays = agent.act(batch), arrays_of(agent, batch)
    assert len(np.unique(expected, axis=0)) > 1, 'the agent does always the same: nothing would be tested'
    tolerance = 1e-3 if expected.dtype == np.float16 else 1e-5
    for format in FORMATS:
        policy = exported(export(agent, format, folder / format), format, agent)
        got = policy(arrays)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=format)
        one = policy({name: array[:1] for name, array in arrays.items()})
        np.testing.assert_allclose(one, expected[:1], rtol=tolerance, atol=tolerance, err_msg=format)
        assert all(agent.envs.action_space.contains(a if got.ndim > 1 else a[()]) for a in got), format
    return got
