"""The benchmark of several agents: jobs, kept results, table, what both workers share; nothing is trained."""

import argparse
import json

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from benchmarks.envs import cheap
from benchmarks.teams import run as spread
from benchmarks.teams import tables as spread_tables
from benchmarks.workers.sb3_worker import arguments
from benchmarks.workers.settings import from_fields
from benchmarks.workers.spread_worker import keywords
from benchmarks.workers.teams import TeamJob, binned, judged, make_env, play
from tests.benchmarks.common import MACHINE, cells
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.options.declaration import flags_of


def job(part, row='xagents', seed=1, quick=False):
    fields = json.loads(json.dumps(spread.job_of(spread.PARTS[part], spread.ROWS[row], seed, quick)))
    return TeamJob(**{**fields, 'settings': from_fields(fields['settings'])})


@pytest.mark.parametrize('row', ['xagents', 'async', 'explorers'])
def test_our_settings_are_options_that_the_command_line_admits(row):
    given = keywords(job('speed', row))
    given.pop('env_kwargs')
    words = ['--env', 'pettingzoo:benchmarks.envs.cheap', '--max-steps', '9', *flags_of(given)]
    parsed = parse(find_command('train'), 'ppo', words)[1]
    assert {name: parsed[name] for name in spread.ROWS[row].options} == spread.ROWS[row].options
    assert (parsed['n_envs'], parsed['n_steps'], parsed['ppo_epochs'], parsed['mini_batches']) == (8, 125, 10, 5)


def test_both_libraries_get_the_same_numbers():
    asked = job('learning', seed=3)
    ours, theirs = keywords(asked), arguments(asked.settings)
    pairs = {'n_steps': 'n_steps', 'ppo_epochs': 'n_epochs', 'lr': 'learning_rate', 'clip_norm': 'clip_range'}
    pairs |= {'gamma': 'gamma', 'lam': 'gae_lambda', 'entropy_coef': 'ent_coef', 'grad_norm': 'max_grad_norm'}
    pairs |= {'value_loss_coef': 'vf_coef', 'normalize_advantage': 'normalize_advantage', 'seed': 'seed'}
    assert {name: ours[name] for name in pairs} == {name: theirs[other] for name, other in pairs.items()}
    assert theirs['batch_size'] * asked.agents * ours['mini_batches'] == 8 * 3 * 125


def test_every_policy_plays_the_same_episodes_and_an_agents_return_is_counted():
    seen = []

    def told(observations, greedy):
        seen.append(observations)
        return np.minimum((observations[:, 0] + 1) / 2 * 5, 4).astype(int) if greedy else np.full(3, 9)

    assert judged(job('cheap'), told) == {}
    env = make_env(job('cheap'))
    assert play(env, told, True, 2) == cheap.CYCLES
    assert play(env, told, False, 2) == 0
    np.testing.assert_array_equal(seen[:50], seen[50:])
    assert not np.array_equal(seen[0], seen[25])


def test_the_cheap_environment_is_one_of_pettingzoos():
    parallel_api_test(cheap.parallel_env(), num_cycles=60)


def test_bins_begin_behind_the_last_step_of_those_before():
    assert binned([1, 10, 11, 40], [2.0, 4.0, 7.0, 1.0], 10) == [3.0, 7.0, None, 1.0]


def run(part, row, seed, steps, score=None):
    result = {'steps': steps, 'seconds': 10.0, 'processor_seconds': 5.0, 'parts': {'env': 6.0, 'learn': 3.0}}
    result |= {'greedy': score, 'sampled': score - 1, 'curve': [-30.0] * 29 + [score, 0.0]} if score else {}
    asked = json.loads(json.dumps(spread.job_of(spread.PARTS[part], spread.ROWS[row], seed, False)))
    result['versions'] = {'python': '3'}
    return {'part': part, 'row': row, 'seed': seed, 'job': asked, 'result': result, 'machine': MACHINE}


def test_tables_have_means_each_seed_and_ratios_seed_by_seed():
    runs = [run('learning', 'sb3', 1, 100, -24.0), run('learning', 'sb3', 2, 300, -26.0)]
    runs += [run('learning', 'xagents', 2, 300, -20.0), run('learning', 'xagents', 1, 400, -22.0)]
    runs += [run('speed', 'sb3', 1, 100), run('speed', 'explorers', 1, 250)]
    shown = spread_tables.render(runs, spread.LABELS)
    row = cells(shown, 'xagents |')
    assert row[1:5] == ['1, 2', '-21.00 (-22.00, -20.00)', '-22.00 (-23.00, -21.00)', '-21.00 (-22.00, -20.00)']
    assert row[5:] == ['35 (30 to 40)', '2.50 (1.00 to 4.00)', '2.50 (1.00 to 4.00)', '60 %', '30 %']
    # processor time of other processes is not known
    assert cells(shown, 'xagents, `--explorers')[1:] == ['25', '2.50', '', '60 %', '30 %']
    assert 'Nothing' in spread_tables.render([], spread.LABELS)


def test_what_is_kept_is_not_measured_again_and_other_settings_are_left_out(tmp_path, monkeypatch):
    page = tmp_path / 'page.md'
    page.write_text('<!-- benchmark spread -->\n<!-- end of benchmark spread -->\n')
    words = ['--only', 'learning', '--rows', 'xagents', '--results', str(tmp_path / 'r.json'), '--page', str(page)]
    words += ['--picture', str(tmp_path / 'p.png')]
    asked = []

    def measured(one, python, timeout):
        asked.append(one['seed'])
        return run('learning', 'xagents', one['seed'], 100, -20.0 - one['seed'])['result']

    monkeypatch.setattr(spread, 'measure', measured)
    assert spread.main([*words, '--seeds', '1', '2']) == 0
    assert spread.main([*words, '--seeds', '1', '2', '3']) == 0
    assert asked == [1, 2, 3]
    assert cells(page.read_text(), 'xagents')[2] == '-22.00 (-21.00, -22.00, -23.00)'
    assert (tmp_path / 'p.png').read_bytes().startswith(b'\x89PNG')
    monkeypatch.setattr(spread, 'WIDTH', 50)
    assert spread.main([*words, '--docs']) == 0
    assert 'Nothing' in page.read_text()


def test_a_failed_run_is_told_and_others_go_on(monkeypatch, capsys):
    def measured(one, python, timeout):
        if one['row'] == 'xagents':
            raise spread.Failed('no result')
        return run('cheap', 'sb3', 1, 100)['result']

    monkeypatch.setattr(spread, 'measure', measured)
    monkeypatch.setattr(spread, 'find_pythons', lambda options: dict.fromkeys(spread.WORKERS))
    options = spread.make_parser().parse_args(['--quick', '--only', 'cheap'])
    options.seeds = [1]
    assert isinstance(options, argparse.Namespace) and not spread.measure_all(options)
    output = capsys.readouterr()
    assert 'cheap, xagents, seed 1: no result' in output.err and '| SB3 through SuperSuit | 10 |' in output.out
