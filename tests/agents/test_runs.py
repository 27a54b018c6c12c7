"""Runs of every agent: seeds, resuming, weight files, the command line and error messages."""

import contextlib
import json
import shlex

import numpy as np
import pytest

import xagents
from tests.agents.contract import (
    CASES,
    CLAUSES,
    ENV,
    TESTED,
    assert_same,
    clause,
    everything,
    lesson,
    observations,
    recorded,
    table,
)
from tests.commands import execute
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.networks.models import ModelReader
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.runs.saving import write_weights
from xagents.tuning.report import train_command

pytestmark = pytest.mark.usefixtures('eager')


def test_every_agent_has_a_case_and_refuses_only_clauses_that_exist():
    lines = table()
    cells = sum(map(len, TESTED.values())) + sum(len(case.refused - {''}) for case in CASES.values())
    assert set(CASES) == set(BUILTIN_AGENTS) and cells == len(CASES) * len(CLAUSES)
    assert len(lines) > 2 * len(CLAUSES) > 30
    for case in CASES.values():
        assert case.refused - {''} <= CLAUSES.keys()


@clause('equal seeds')
def test_equal_seeds_give_equal_runs(case):
    agents = [case.make(seed=seed) for seed in (1, 1, 2)]
    batches = [lesson(agent)[0] for agent in agents]
    np.testing.assert_equal(batches[0], batches[1])
    assert not np.array_equal(batches[0]['observations'], batches[2]['observations'])
    logs, clock = [], ('seconds/', 'steps_per_second')
    for agent in agents[:2]:
        run = agent.train_iter(max_steps=agent.steps + case.steps)
        logs.append([{k: v for k, v in log.items() if not k.startswith(clock)} for log in run])
        assert agent.context.updates > 0
    np.testing.assert_equal(logs[0], logs[1])
    assert_same(everything(agents[0]), everything(agents[1]))
    purposes = agents[0].streams.state().keys()
    assert purposes
    for agent in agents:  # the third agent has not trained, so compare the first draw of each generator
        agent.streams.restart(agent.streams.seed)
    for purpose in purposes:
        first, same, other = (agent.rng(purpose).random() for agent in agents)
        assert first == same != other, purpose


def check_resume(case, tmp_path, steps, **options):
    """Train 2N steps, resume from the checkpoint after N steps, and compare files and state."""
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    run = {'checkpoint_frequency': steps, 'save_seconds': 0.0, 'final_episodes': 0}
    with contextlib.closing(case.make(run_dir=str(whole), schedule_steps=3 * steps, **options)) as agent:
        agent.fit(max_steps=2 * steps, **run)
        assert agent.context.updates > 0
    step = stopped_in_the_middle(whole, killed)
    with contextlib.closing(xagents.resume(killed)) as agent:
        assert agent.steps == step < 2 * steps
        agent.fit()
        assert agent.steps >= 2 * steps
    assert_same_run(whole, killed)


@clause('resumes')
def test_a_killed_run_resumes_exactly(case, tmp_path):
    check_resume(case, tmp_path, case.steps, lr_schedule='linear')


@clause('one ahead')
def test_a_killed_run_that_collects_one_iteration_ahead_resumes_exactly(case, tmp_path):
    check_resume(case, tmp_path, case.steps, overlap=True)


@clause('data set')
def test_a_killed_run_that_learns_from_a_data_set_resumes_exactly(case, tmp_path):
    check_resume(case, tmp_path, 5, dataset=True, eval_frequency=5, eval_episodes=1)


@clause('weight files')
def test_weight_files_of_every_format_restore_the_agent_and_load_without_its_state(case, tmp_path):
    agent = case.make(final_episodes=0)
    agent.fit(max_steps=case.steps)
    whole, inputs = everything(agent), observations(agent)
    for ending in ('.tf', '.weights.h5', '.keras'):
        paths = [str(tmp_path / f'{i}{ending}') for i in range(len(agent.output_models))]
        write_weights(paths, agent, agent.state())
        assert_same(whole, everything(agent))  # `write_weights` loads weights into the agent for a while
        other = xagents.make(case.id, weights=paths, seed=5, quiet=True)
        assert_same(whole, everything(other))
        np.testing.assert_array_equal(agent.act(inputs), other.act(inputs))
        assert (other.steps, other.games, other.context.updates) == (agent.steps, agent.games, agent.context.updates)
        (tmp_path / f'0{ending}.state.npz').unlink()
        partial = case.make(weights=paths, seed=5)
        for model, same in zip(partial.output_models, agent.output_models, strict=True):
            np.testing.assert_equal(model.get_weights(), same.get_weights())
        for name, part in partial.parts().items():
            if hasattr(part, 'soft_update'):  # a target network starts as a copy
                parameters = part.state()['parameters']
                part.copy()
                np.testing.assert_array_equal(part.state()['parameters'], parameters, name)


@clause('command line')
def test_the_command_line_trains_evaluates_and_resumes(case, folder):
    options = {name: x for name, x in case.small_options().items() if name != 'quiet'}
    words = shlex.split(train_command(case.id, {'max_steps': case.steps, **options, 'run_dir': 'run'}))[1:]
    code, stdout, stderr = execute(*words)
    assert (code, stderr) == (0, '') and 'Maximum steps exceeded' in stdout and 'without effect' not in stdout
    code, stdout, stderr = execute('evaluate', case.id, '--run-dir', 'run', '--episodes', '2', '--json')
    assert (code, stderr) == (0, '') and json.loads(stdout.splitlines()[-1])['length'] == 5
    code, stdout, stderr = execute('train', '--resume', 'run', '--max-steps', str(case.steps + 20))
    assert (code, stderr) == (0, '') and 'Resumed run at step' in stdout


REFUSALS = [(case, refusal) for case in CASES.values() for refusal in case.refusals]


@pytest.mark.parametrize(
    ('case', 'refusal'), REFUSALS, ids=[f'{case.id}{refusal.flags or " actions"}' for case, refusal in REFUSALS]
)
def test_an_error_is_one_line_before_networks_are_built(case, refusal, folder, monkeypatch):
    kinds = {None: case.actions[0], True: 'continuous', False: 'discrete'}
    actions = kinds[refusal.continuous if 'sde' not in refusal.flags else bool(refusal.continuous)]
    data = recorded(shown='vector', actions=actions) if case.offline or '{data}' in refusal.flags else ''
    line = f'--env {ENV} --env-kwargs actions={actions} --net 4 --max-steps 10 --run-dir run '
    line += f'--dataset {data} ' * case.offline + refusal.flags.format(data=data)
    message = refusal.expected_message(case, data)
    if message.startswith('--') and not refusal.late:
        monkeypatch.setattr(ModelReader, 'build_model', lambda self: pytest.fail('networks were built'))
    code, stdout, stderr = execute('train', case.id, *line.split())
    if message.startswith('--'):
        assert (code, stdout, stderr.count('\n')) == (2, '', 1)
        assert stderr.startswith(f'xagents train: {message}') and not list(folder.iterdir())
    else:  # the option has no effect, and the output contains a note
        assert (code, stderr) == (0, '') and message in ' '.join(stdout.split())
