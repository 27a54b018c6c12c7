"""The benchmark of several agents: settings, kept results, tables."""

import json

from benchmarks.teams import run as teams
from benchmarks.teams.tables import render
from benchmarks.workers.sb3_worker import arguments
from benchmarks.workers.settings import from_fields
from benchmarks.workers.spread_worker import keywords
from benchmarks.workers.teams import TeamJob
from tests.benchmarks.common import MACHINE, cells, markers, trial_options
from xagents.options.declaration import to_flags


def job(part, row='xagents', seed=1):
    fields = teams.request(teams.PARTS[part], teams.ROWS[row], seed, False)
    return TeamJob(**{**fields, 'settings': from_fields(fields['settings'])})


def test_both_libraries_get_the_same_settings_and_ours_are_valid():
    given = job('learning', seed=3)
    ours, theirs = keywords(given), arguments(given.settings)
    pairs = {'n_steps': 'n_steps', 'ppo_epochs': 'n_epochs', 'lr': 'learning_rate', 'clip_norm': 'clip_range'}
    pairs |= {'gamma': 'gamma', 'lam': 'gae_lambda', 'entropy_coef': 'ent_coef', 'grad_norm': 'max_grad_norm'}
    pairs |= {'value_loss_coef': 'vf_coef', 'normalize_advantage': 'normalize_advantage', 'seed': 'seed'}
    assert {name: ours[name] for name in pairs} == {name: theirs[other] for name, other in pairs.items()}
    assert theirs['batch_size'] * given.agents * ours['mini_batches'] == 8 * 3 * 125
    for row in ('async', 'explorers'):
        options = {name: value for name, value in keywords(job('speed', row)).items() if name != 'env_kwargs'}
        words = ['train', 'ppo', '--env', 'pettingzoo:benchmarks.envs.cheap', '--max-steps', '9', *to_flags(options)]
        assert teams.ROWS[row].options.items() <= trial_options(words).items()


def run(part, row, seed, steps, score=None):
    result = {'steps': steps, 'seconds': 10.0, 'processor_seconds': 5.0, 'parts': {'env': 6.0, 'learn': 3.0}}
    result |= {'greedy': score, 'sampled': score - 1, 'curve': [-30.0] * 29 + [score, 0.0]} if score else {}
    result['versions'] = {'python': '3'}
    about = {'job': teams.request(teams.PARTS[part], teams.ROWS[row], seed, False), 'machine': MACHINE}
    return {'part': part, 'row': row, 'seed': seed, 'result': result, **about}


def test_tables_and_the_picture_are_made_from_current_results(tmp_path):
    runs = [run('learning', 'sb3', 1, 100, -24.0), run('learning', 'sb3', 2, 300, -26.0)]
    runs += [run('learning', 'xagents', 2, 300, -20.0), run('learning', 'xagents', 1, 400, -22.0)]
    runs += [run('speed', 'sb3', 1, 100), run('speed', 'explorers', 1, 250)]
    page, results, picture = tmp_path / 'page.md', tmp_path / 'r.json', tmp_path / 'p.png'
    page.write_text(markers('spread'))
    results.write_text(json.dumps([*runs, {**runs[0], 'job': {}}]))
    words = ['--docs', '--results', str(results), '--page', str(page), '--picture', str(picture)]
    assert teams.main(words) == 0 and picture.read_bytes().startswith(b'\x89PNG')
    shown = page.read_text()
    row = cells(shown, 'xagents |')
    assert row[1:5] == ['1, 2', '-21.00 (-22.00, -20.00)', '-22.00 (-23.00, -21.00)', '-21.00 (-22.00, -20.00)']
    assert row[5:] == ['35 (30 to 40)', '2.50 (1.00 to 4.00)', '2.50 (1.00 to 4.00)', '60 %', '30 %']
    # the processor time of other processes is not known
    assert cells(shown, 'xagents, `--explorers')[1:] == ['25', '2.50', '', '60 %', '30 %']
    # tables of parts without results stay
    assert render([], teams.LABELS, 'x\n### An environment with negligible cost\n\n| a |') == (
        '### An environment with negligible cost\n\n| a |'
    )
    assert 'Nothing' in render([], teams.LABELS)
