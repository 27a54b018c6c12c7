"""Every agent outside of its process: exported policies and explorers act as it does, to the bit or nearly so."""

import contextlib

import pytest

from tests.agents.contract import assert_same, clause, everything
from tests.export.policies import FORMATS, agent_of, assert_acts_alike


@clause('exports')
def test_exported_policies_of_every_format_act_as_the_agent(case, tmp_path, capsys):
    """Each agent has spaces of other kinds, so that every kind is tested."""
    shown, taken, options = case.deployed
    assert_acts_alike(agent_of(case.id, shown, taken, **options), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    files = {'litert': 'policy.tflite', 'onnx': 'policy.onnx'}
    paths = [str(tmp_path / format / files.get(format, '')) for format in FORMATS]
    assert [line.partition(': ')[0] for line in lines] == paths
    assert all('on 128 of 128 observations' in line for line in lines)


@pytest.mark.usefixtures('eager')
@clause('explorers')
def test_explorers_lead_to_the_same_weights_as_none(case):
    found = []
    for explorers in (None, 1):
        with contextlib.closing(case.make()) as agent:
            agent.fit(max_steps=case.steps, explorers=explorers)
            assert agent.context.updates > 0
            found.append((everything(agent), agent.steps, agent.games, list(agent.progress.rewards)))
    (alone, *counted), (explored, *counted_too) = found
    assert_same(alone, explored)
    assert counted == counted_too
