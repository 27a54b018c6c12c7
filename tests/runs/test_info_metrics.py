"""`--log-info`: numbers of infos in logs and batches, equal for every way to collect."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest

import xagents
from tests.agents.contract import CASES, assert_same, everything
from tests.commands import execute
from tests.envs.test_infos import CostlyFunctions
from tests.info_problems import CostlyTeam
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.logs.metrics import read_metrics
from xagents.pipeline.context import Context
from xagents.runs import reporting

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla_in_module')
ENV = 'tests.info_problems:Costly-v0'
SMALL = {'env': ENV, 'n_envs': 3, 'n_steps': 4, 'net': [8], 'seed': 1, 'quiet': True, 'vector': 'sync'}
NAMES = ['cost', 'height', 'odd']


def logs_of(steps=60, fit=None, **options):
    """Return the metrics of infos of each iteration, and the columns of infos of each batch."""
    logs, batches = [], []
    with contextlib.closing(xagents.make('small', **{**SMALL, **options})) as agent:
        for log in agent.train_iter(max_steps=steps, **{'log_info': NAMES, **(fit or {})}):
            logs.append({name: x for name, x in log.items() if name.startswith('info/')})
            batch = agent.context.batch
            batches.append({name: x.copy() for name, x in batch.items() if name.startswith('info/')})
        return logs, batches, everything(agent)


def assert_equal(one, other):
    for logs, other_logs in zip(one[0], other[0], strict=True):
        assert logs == other_logs
    for batch, other_batch in zip(one[1], other[1], strict=True):
        assert batch.keys() == other_batch.keys()
        for name, column in batch.items():
            np.testing.assert_array_equal(column, other_batch[name])
    assert_same(one[2], other[2])


def test_metrics_and_columns():
    """Episodes of 5 steps, and one that only resets, in rollouts of 4."""
    logs, batches, _ = logs_of(log_info=None, fit={'log_info': ['cost', 'odd']})
    assert logs[0] == {'info/cost': 2.5, 'info/odd': 0.5}
    assert logs[1] == {'info/cost': 8 / 3, 'info/cost/episode': 15.0, 'info/odd': 0.5, 'info/odd/episode': 1.5}
    assert batches[1]['info/cost'].dtype == np.float32
    np.testing.assert_array_equal(batches[1]['info/cost'][:, 2], [5, np.nan, 1, 2])


def test_sums_of_episodes_span_rollouts_in_worker_processes_too():
    alone = logs_of(log_info=NAMES)
    assert_equal(alone, logs_of(vector='async'))


def test_explorers_lead_to_the_same_columns():
    alone = logs_of()
    for explorers in (1, 3):
        assert_equal(alone, logs_of(fit={'explorers': explorers}))


def test_one_iteration_ahead():
    (logs, batches, _), (ahead, ahead_batches, _) = logs_of(), logs_of(fit={'overlap': True})
    assert [log['info/cost'] for log in logs] == [log['info/cost'] for log in ahead]
    np.testing.assert_array_equal(batches[1]['info/cost'], ahead_batches[1]['info/cost'])


@pytest.mark.parametrize('overlap', [False, True])
def test_a_resumed_run_continues_the_sums(tmp_path, monkeypatch, overlap):
    monkeypatch.setattr(reporting, 'MONITOR_SECONDS', 0)
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    with contextlib.closing(xagents.make('small', **SMALL, log_info=NAMES, schedule_steps=96)) as agent:
        options = {'checkpoint_frequency': 48, 'save_seconds': 1.0, 'overlap': overlap}
        agent.fit(max_steps=96, run_dir=str(whole), **options)
    step = stopped_in_the_middle(whole, killed)
    with contextlib.closing(xagents.resume(killed)) as agent:
        assert agent.steps == step < 96
        sums = [log['info/cost/episode'] for log in agent.train_iter() if 'info/cost/episode' in log]
        assert {*sums} == {15.0}  # the first of these episodes began before the checkpoint
    assert_same_run(whole, killed)
    tables = [read_metrics(folder / 'metrics.parquet').filter(like='info/') for folder in (whole, killed)]
    assert len(tables[0].columns) == 6
    pd.testing.assert_frame_equal(*tables, check_exact=True)  # one row per iteration


@pytest.mark.parametrize('agent_id', [name for name, case in CASES.items() if not case.offline])
@pytest.mark.usefixtures('eager')
def test_no_agent_learns_from_the_columns(agent_id):
    """Weights are equal with and without the option, and with a column that is NaN everywhere."""
    case = CASES[agent_id]
    env = 'Costly-v0' if case.actions[0] == 'discrete' else 'CostlyContinuous-v0'
    found = []
    for names in ([], [*NAMES, 'none']):
        options = {**case.small_options(), 'env': f'tests.info_problems:{env}', 'env_kwargs': {}}
        with contextlib.closing(xagents.make(agent_id, **options)) as agent:
            agent.fit(max_steps=case.steps, log_info=names, final_episodes=0)
            assert agent.context.updates > 0
            found.append(everything(agent))
    assert_same(*found)


def test_compiled_functions():
    logs = []
    options = {**SMALL, 'env': CostlyFunctions, 'vector': 'compiled', 'log_info': ['cost']}
    with contextlib.closing(xagents.make('ppo', **options)) as agent:
        for log in agent.train_iter(max_steps=60):
            logs.append({name: x for name, x in log.items() if name.startswith('info/')})
        assert agent.envs.functional_vector is not None
    assert logs[0] == {'info/cost': 2.5}
    assert logs[1] == {'info/cost': 8 / 3, 'info/cost/episode': 15.0}


def test_rows_have_the_means_since_the_last_row(folder, monkeypatch):
    """DQN collects a few steps per iteration, and few iterations end an episode."""
    monkeypatch.setattr(reporting, 'MONITOR_SECONDS', 1e9)  # rows of the first and last iteration, and of evaluations
    found = []

    def keep(ctx):
        found.append((ctx.steps, ctx.batch['info/cost'].astype(float), [episode.info for episode in ctx.episodes]))

    options = {**CASES['dqn'].small_options(), 'env': ENV, 'env_kwargs': {}, 'log_info': ['cost']}
    with contextlib.closing(xagents.make('dqn', **options)) as agent:
        recipe = agent.recipe().after('collect', keep)
        agent.fit(max_steps=150, run_dir='run', eval_frequency=50, eval_episodes=1, recipe=recipe)
        assert agent.context.updates > 10
    rows, before = read_metrics('run/metrics.parquet').to_dict('records'), 0
    assert 3 <= len(rows) < len(found) / 5
    for row in rows:
        own = [one for one in found if before < one[0] <= row['steps']]
        before = row['steps']
        numbers, sums = np.concatenate([one[1].ravel() for one in own]), [i['cost'] for one in own for i in one[2]]
        assert row['info/cost'] == pytest.approx(np.nanmean(numbers))
        assert row['info/cost/episode'] == pytest.approx(np.mean(sums)) if sums else np.isnan(row['info/cost/episode'])
        assert not sums or row['episode_length'] == 5.0
    assert rows[-1]['info/cost/episode'] == 15.0


def test_rows_have_the_refused_updates_since_the_last_row():
    row = reporting._MonitorRow()
    for refused, mean, count in ((2.0, 1.0, 1), (0.0, 4.0, 2), (1.0, np.nan, 0)):
        ctx = Context(logs={'stats/refused': refused, 'loss': refused})
        if count:
            ctx.logs['episode_length'], ctx.counts['episode_length'] = mean, count
        row.add(ctx)
    assert row.take(ctx) == {'stats/refused': 3.0, 'loss': 1.0, 'episode_length': 3.0}
    ctx = Context(logs={'stats/refused': 0.0})
    row.add(ctx)
    assert row.take(ctx) == {'stats/refused': 0.0}


def test_several_policies():
    policies = {name: {'agent': 'a2c', 'agents': agent, 'n_steps': 4} for name, agent in (('one', 'a'), ('two', 'b'))}
    team = xagents.team(CostlyTeam, **policies, n_envs=2, net=[8], quiet=True, seed=1)
    with contextlib.closing(team):
        log = next(team.train_iter(max_steps=16, log_info=['cost']))
        assert log['info/cost'] == pytest.approx((3 * 1 + 4 * 2) / 7) and log['info/cost/episode'] == 3.0
        assert team.context.batch['two']['info/cost'].shape == (4, 2)


def test_a_name_that_never_appears_is_a_warning(capsys):
    with contextlib.closing(xagents.make('small', **{**SMALL, 'quiet': False})) as agent:
        agent.fit(max_steps=60, log_info=['cost', 'hight'], final_episodes=0)
    out = capsys.readouterr().out
    assert out.count('--log-info hight has not appeared') == 1 and '(did you mean height?)' in out
    with contextlib.closing(xagents.make('small', **{**SMALL, 'quiet': False})) as agent:
        agent.fit(max_steps=60, log_info=['hight'], explorers=1, final_episodes=0)
    assert '(did you mean height?)' in capsys.readouterr().out


def test_the_command_line(folder):
    line = 'train ppo --import tests.info_problems --env Costly-v0 --n-envs 2 --n-steps 8 --net 8 --seed 1'
    more = '--max-steps 48 --log-info cost odd --run-dir run --log-format json --final-episodes 0'
    code, stdout, stderr = execute(*line.split(), *more.split())
    assert (code, stderr) == (0, '')
    rows = [json.loads(row) for row in stdout.splitlines()]
    assert any('info/cost' in row for row in rows)
    assert 'log-info:' in (folder / 'run' / 'config.yaml').read_text()
    table = pd.read_parquet(folder / 'run' / 'metrics.parquet')
    assert {'info/cost', 'info/cost/episode', 'info/odd', 'info/odd/episode'} <= {*table}


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ('--env Costly-v0 --log-info cost cost', '--log-info: got cost twice, expected each name once'),
        (
            '--env Costly-v0 --log-info cost cost/episode',
            '--log-info: got cost with cost/episode, which share the metric info/cost/episode; expected one of the two',
        ),
        (
            '--env CartPole-v1 --vector compiled --log-info cost',
            '--vector: got compiled, but CartPole-v1 has no infos as functions (see --log-info); expected',
        ),
        ('--env Costly-v0 --log-info cost --dataset x-v0', '--log-info: got cost with --dataset, which replaces'),
        ('--env Costly-v0 --log-info name', '--log-info: Costly-v0: name in its infos is str, expected a number'),
    ],
)
def test_wrong_input(folder, flags, message):
    line = f'train ppo --import tests.info_problems {flags} --n-steps 8 --net 8 --max-steps 20'
    code, _, stderr = execute(*line.split())
    assert code == 2 and message in stderr and stderr.count('\n') == 1
    assert ' in its infos' in message or not [*folder.iterdir()]  # a step shows the value, after the start
