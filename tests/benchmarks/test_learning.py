"""The learning benchmark's cases and the scores of kept results."""

import json

import yaml

from benchmarks.learning import run as learning
from benchmarks.learning.cases import CASES, EARLY, EXPLAINED, LearningCase
from benchmarks.tables import sections
from benchmarks.venvs import PAGE
from benchmarks.workers import peer_worker
from tests.benchmarks.common import trial_options
from xagents.factory import presets
from xagents.registry.agents import agents
from xagents.reports.reference_scores import known_bounds

BY_NAME = {case.name: case for case in CASES}
RUN = {
    'mean': 100.0, 'seconds': 120.0, 'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'jobs': 2,
    'versions': {'xagents': '2.0'},
}  # fmt: skip


def test_every_preset_is_a_case_whose_command_trains_it():
    found = {(case.agent, case.key): case for case in CASES if case.digest}
    for agent_id in agents:
        for preset in presets.list_presets(agent_id):
            for one in map(preset.for_game, preset.games) if preset.games else [preset]:
                case = found.pop((agent_id, one.name))
                assert (case.steps, case.options) == (one.max_steps, one.options)
                assert case.published == one.published or case.name == 'acer-acrobot'
    assert not found
    for case in (*CASES, LearningCase('a', 'dqn', 'CartPole-v1', 1, {'huber': False})):
        given = trial_options(case.command(3).split()[1:])
        assert given == {**case.options, **case.source, 'max_steps': case.steps, 'seed': 3}, case.name
        short = learning.shorten(case)  # still makes updates
        assert short.steps > short.options.get('buffer_initial_size', 0) and short.options.keys() == case.options.keys()


def kept(case: LearningCase, **means: float) -> dict:
    runs = {seed.removeprefix('seed'): {**RUN, 'mean': mean} for seed, mean in means.items()}
    return {case.name: {'settings': learning.settings_of(case), 'runs': runs}}


def test_scores_are_written_from_kept_results_of_the_same_settings(tmp_path):
    case, other = BY_NAME['dqn-lunarlander'], BY_NAME['dqn-lunarlander-published']
    results = {**kept(case, seed10=200, seed2=260.125, seed1=240), **kept(other, seed4=1)}
    results[case.name]['runs']['2'] |= {'date': '2026-03-04', 'episodes': 50}

    def written(results, name='scores.yaml'):
        learning.write_scores(tmp_path / name, json.loads(json.dumps(results)))
        return yaml.safe_load((tmp_path / name).read_text())

    expected = {
        'median': 240.0, 'means': [240.0, 260.12, 200.0], 'episodes': 50, 'date': '2026-03-04', 'version': '2.0',
        'digest': presets.find_preset('dqn', 'LunarLander-v3').digest,
    }  # fmt: skip
    found = written(results)['dqn']
    assert found.keys() == {'LunarLander-v3', 'LunarLander-v3 published'} and found['LunarLander-v3'] == expected
    assert found['LunarLander-v3 published']['means'] == [1.0]
    results[case.name]['settings']['options']['lr'] = 1.0
    assert written({})['dqn']['LunarLander-v3'] == expected
    assert written(results, 'others.yaml')['dqn'].keys() == {'LunarLander-v3 published'}


def test_the_peer_has_its_own_results_a_column_and_a_score(tmp_path):
    case, path = BY_NAME['dqn-lunarlander'], tmp_path / 'learning.json'
    for seed, mean in (('1', 10.0), ('3', 30.0), ('2', 80.0)):
        learning.keep(path, case, seed, {**RUN, 'mean': mean, 'sampled': mean - 5}, peer=True)
    learning.keep(path, case, 1, {**RUN, 'mean': 200.0, 'sampled': 190.0})
    results = json.loads(path.read_text())
    assert learning.runs_of(case, results).keys() == {'1'}
    runs = [learning.runs_of(case, results, peer) for peer in (False, True)]
    cells = dict(zip(learning.HEADING, learning.row(case, *runs), strict=True))
    assert cells['peer here'] == '10.0 (5.0), 80.0 (75.0), 30.0 (25.0)' and cells['sampled'] == '190.0'
    learning.write_scores(tmp_path / 'scores.yaml', results)
    entry = yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['LunarLander-v3']
    assert (entry['median'], entry['peer']) == (200.0, 30.0)
    # another machine, which knows the peer only from the page, adds a seed
    learning.write_scores(tmp_path / 'scores.yaml', kept(case, seed2=100.0))
    entry = yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['LunarLander-v3']
    assert (entry['median'], entry['peer']) == (100.0, 30.0)
    learning.write_scores(path := tmp_path / 'old.yaml', results)
    path.write_text(path.read_text().replace(case.digest, 'other'))
    learning.write_scores(path, kept(case, seed2=100.0))
    assert 'peer' not in yaml.safe_load(path.read_text())['dqn']['LunarLander-v3'], 'of other settings'
    names = {learning.Training(case, 1, tmp_path, peer=peer).folder.name for peer in (False, True)}
    assert len(names) == 2


def test_results_of_other_machines_stay_in_the_table(tmp_path):
    case, other = BY_NAME['ppo-ant'], BY_NAME['bc-pendulum']
    first, second = tmp_path / 'first.json', tmp_path / 'second.json'
    for seed, mean in ((1, 1000.0), (2, -20.5)):
        learning.keep(first, case, seed, {**RUN, 'mean': mean, 'sampled': mean - 5})
    for seed, mean in ((1, 250.0), (3, 75.0)):
        learning.keep(first, case, seed, {**RUN, 'mean': mean, 'sampled': mean - 5}, peer=True)
    learning.keep(first, other, 3, {**RUN, 'mean': -150.0, 'sampled': -160.0})
    for seed, mean in ((2, 7.0), (10, 2000.0)):
        sampled = {'sampled': mean + 1} if seed == 10 else {}
        learning.keep(second, case, seed, {**RUN, 'mean': mean, **sampled, 'date': '2026-05-06'})
    learning.keep(second, case, 2, {**RUN, 'mean': 4000.0, 'sampled': -1234.5}, peer=True)
    page = learning.render(json.loads(first.read_text()))
    merged = learning.render(json.loads(second.read_text()), page)
    line = next(line for line in merged.splitlines() if case.key in line)
    peers = '250.0 (245.0), 4 000.0 (-1 234.5), 75.0 (70.0)'
    assert f'| 1 000.0, 7.0, 2 000.0 | 1 000.0 | 995.0, –, 2 001.0 | {peers} |' in line
    assert f'`{case.command(1)}`, and with --seed 2, 10; peer: --seed 1, 2, 3' in merged and other.command(3) in merged
    assert '2026-01-02' in merged and '2026-05-06' in merged
    assert learning.render({}, merged) == merged

    results = learning.merge(json.loads(second.read_text()), page)
    learning.write_scores(tmp_path / 'scores.yaml', results)
    scores = yaml.safe_load((tmp_path / 'scores.yaml').read_text())
    assert scores['ppo']['Ant-v5']['means'] == [1000.0, 7.0, 2000.0] and 'bc' not in scores
    # a result of other settings is not shown
    assert learning.render({}, merged.replace('--clip-norm 0.2', '--clip-norm 0.3')).count('| PPO |') == 0


def test_the_peer_refuses_options_without_a_counterpart():
    without = {case.name for case in CASES if peer_worker.differences(case.agent, case.options)}
    offline = {case.name for case in CASES if case.agent in ('bc', 'iql', 'td3-bc')}
    assert without >= offline and {'ppo-ant', 'a2c-hopper', 'trpo-ant', 'dqn-lunarlander-quantile'}.isdisjoint(without)
    assert peer_worker.differences('ppo', {'n_steps': 1, 'memory': 64, 'optimizer': 'muon'}) == ['memory', 'optimizer']
    assert peer_worker.differences('a2c', {'optimizer': 'adam'}) == ['optimizer']
    assert peer_worker.differences('dqn', {'huber': False}) == ['huber']


def test_scores_far_below_the_published_ones_are_listed_with_a_reason():
    case = BY_NAME['a2c-lunarlander']
    published, random = case.published, known_bounds(case.env).random
    limit = published - 0.1 * (published - random)

    def listed(mean):
        runs = {'1': {**RUN, 'mean': mean, 'sampled': mean}}
        return learning.gap(case, learning.row(case, runs, {'1': {'mean': 12.0, 'sampled': 13.0}}))

    assert not listed(limit + 0.1) and not learning.gap(BY_NAME['pqn-lunarlander'], [''] * len(learning.HEADING))
    (line,) = listed(limit - 0.1)
    assert 'peer here 12.0 (13.0)' in line and f'{published:g}' in line and line.startswith('* A2C, LunarLander-v3')
    assert EXPLAINED.keys() <= BY_NAME.keys() and all(reason.endswith('.') for reason in EXPLAINED.values())


def test_changes_of_presets_name_presets():
    assert EARLY.keys() <= {case.name for case in CASES if case.digest}


def test_the_reasons_for_low_scores_agree_with_the_page():
    shown = learning.merge({}, sections(PAGE.read_text())['learning'])
    for name, reason in EXPLAINED.items():
        case = BY_NAME[name]
        runs, peers = (learning.runs_of(case, shown, peer) for peer in (False, True))
        if not runs:
            continue
        cells = learning.row(case, runs, peers)
        assert learning.gap(case, cells), f'{name} is not below its published score'
        if 'Stable-Baselines3' in reason:
            assert peers, f'{name}: the peer was not run'
            as_ours = {seed: {**run, 'seconds': 0.0} for seed, run in peers.items()}
            assert learning.gap(case, learning.row(case, as_ours, {})), f'{name}: the peer is not below'
        if 'the preset' in reason:
            preset = learning.runs_of(BY_NAME[name.removesuffix('-published')], shown)
            assert learning.median_of(preset, 'mean', 2) > learning.median_of(runs, 'mean', 2), name
