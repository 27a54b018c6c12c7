"""Exported policies and explorers of every agent act as the agent does."""

import contextlib

import numpy as np
import pytest

from tests.agents.contract import assert_same, clause, everything
from tests.export.policies import FORMATS, agent_of, assert_acts_alike, sample


@clause('exports')
def test_exported_policies_of_every_format_act_as_the_agent(case, tmp_path, capsys):
    """Agents have different kinds of spaces, so that every kind is tested. Statistics come from one rollout."""
    observation_space, action_space, options = case.deployed
    agent = agent_of(case.id, observation_space, action_space, normalize_obs=True, **options)
    agent.collector.collect(7)
    encoded = agent.envs.encoder(sample(agent)).astype(np.float32)
    scaled = agent.statistics.prepare(encoded)
    assert agent.statistics.observations.statistics.count and not np.allclose(scaled, encoded, atol=0.1)
    assert_acts_alike(agent, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    files = {'litert': 'policy.tflite', 'onnx': 'policy.onnx', 'c': 'policy.h'}
    paths = [str(tmp_path / format / files.get(format, '')) for format in FORMATS]
    assert [line.partition(': ')[0] for line in lines] == paths
    assert all('on 128 of 128 observations' in line for line in lines)


@pytest.mark.usefixtures('eager')
@clause('explorers')
def test_explorers_lead_to_the_same_weights_as_none(case):
    results = []
    for explorers in (None, 1):
        with contextlib.closing(case.make()) as agent:
            agent.fit(max_steps=case.steps, explorers=explorers)
            assert agent.context.updates > 0
            results.append((everything(agent), agent.steps, agent.games, list(agent.progress.rewards)))
    (state, *counts), (explorer_state, *explorer_counts) = results
    assert_same(state, explorer_state)
    assert counts == explorer_counts
