"""Features of observations and actions with every agent that supports them: seeds, resuming, explorers, exports."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import xagents
from tests.agents.contract import CASES, assert_same, everything
from tests.agents.features import FEATURES
from tests.export.policies import FORMATS, exported
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.export.policy import inputs_of, policy_outputs
from xagents.export.write import export
from xagents.system.trees import leaf_at, stack_trees

# agents whose tests are fast; those of the others are slow tests
FAST = ('ppo', 'dqn', 'bc')


@pytest.fixture(autouse=True)
def _without_compilation(request):
    """Run updates as they stand, except with convolutions, whose last bits then depend on threads."""
    if not request.getfixturevalue('feature').has_images:
        request.getfixturevalue('eager')


def having(attribute):
    """Return the features of which an attribute is true."""
    return {name: feature for name, feature in FEATURES.items() if getattr(feature, attribute)}


def every(*without, features=FEATURES):
    """Parametrise a test over features and the agents that support each."""
    pairs = [(name, agent) for name, feature in features.items() for agent in feature.agents if agent not in without]
    rows = [
        pytest.param(FEATURES[name], agent, id=f'{name}-{agent}', marks=[] if agent in FAST else [pytest.mark.slow])
        for name, agent in pairs
    ]
    return pytest.mark.parametrize(('feature', 'agent_id'), rows)


def steps_of(agent_id):
    """Return the steps of a short run, some of which are updates."""
    return 60 if agent_id == 'acer' else CASES[agent_id].steps


def check_resume(feature, agent_id, tmp_path, **options):
    """Train 2N steps, resume a copy of the run from the checkpoint after N steps, and compare files and state."""
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    steps = 5 if CASES[agent_id].offline else steps_of(agent_id)
    run = {'checkpoint_frequency': steps, 'save_seconds': 0.0, 'final_episodes': 0}
    with contextlib.closing(feature.make(agent_id, run_dir=str(whole), schedule_steps=3 * steps, **options)) as agent:
        agent.fit(max_steps=2 * steps, **run)
        assert agent.context.updates > 0
        state = everything(agent)
    stopped_in_the_middle(whole, killed)
    with contextlib.closing(xagents.resume(killed)) as agent:
        agent.fit()
        assert_same(everything(agent), state)
    assert_same_run(whole, killed)


@every()
def test_a_killed_run_resumes_exactly(feature, agent_id, tmp_path):
    check_resume(feature, agent_id, tmp_path)


@every('a2c', 'bc', 'iql', 'pqn', 'td3-bc', 'trpo', features=having('has_overlap'))
def test_a_killed_run_that_collects_one_iteration_ahead_resumes_exactly(feature, agent_id, tmp_path):
    check_resume(feature, agent_id, tmp_path, overlap=True)


@every('bc', 'iql', 'td3-bc', features=having('has_explorers'))
def test_weights_do_not_depend_on_the_number_of_explorers(feature, agent_id):
    results = []
    for explorers in (None, 1, 3):
        with contextlib.closing(feature.make(agent_id)) as agent:
            agent.fit(max_steps=steps_of(agent_id), explorers=explorers, final_episodes=0)
            assert agent.context.updates > 0
            results.append((everything(agent), agent.steps, agent.games, list(agent.progress.rewards)))
    for state, *counts in results[1:]:
        assert_same(results[0][0], state)
        assert list(results[0][1:]) == counts


@every()
def test_every_export_and_the_policy_without_tensorflow_act_as_the_agent(feature, agent_id, tmp_path):
    with contextlib.closing(feature.make(agent_id)) as agent:
        if not CASES[agent_id].offline:
            agent.collector.collect(7)
        space = agent.envs.encoder.raw_space
        space.seed(3)
        hidden = agent.envs.encoder.encoding.critic_only
        observations = [space.sample() for _ in range(40)]
        for observation in observations:
            if 'action_mask' in observation:
                observation['action_mask'][0] |= not observation['action_mask'].any()
        whole = stack_trees(observations)
        expected = agent.act(whole)
        agent.reset_memory()
        batch = {key: part for key, part in whole.items() if key not in hidden} if hidden else whole
        agent.save(tmp_path / 'run')
        policy = xagents.policy(tmp_path / 'run')
        np.testing.assert_equal(policy(batch), expected)
        np.testing.assert_equal(agent.act(batch), expected)
        arrays = {part.name: part.extract(batch) for part in inputs_of(agent)}
        assert not {*hidden} & arrays.keys()
        memory = {}
        if units := agent.acting_policy.memory_units:
            # rows of 40 episodes at their first steps; the export itself compares whole episodes
            memory = {'memory': np.zeros((40, agent.actor.plan.pruned()[0].memory_units), np.float32)}
            assert units >= memory['memory'].shape[1] > 0
        for format in FORMATS:
            got = exported(export(agent, format, tmp_path / format, whole), format, agent)({**arrays, **memory})
            for output in policy_outputs(agent.envs.action_space):
                own = got[output.name] if isinstance(got, dict) else got
                wanted = leaf_at(expected, output.path)
                np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5, err_msg=format)
                assert own.dtype == wanted.dtype
