"""The speed benchmark: equal settings for every library, computed ratios, and measurements in turn."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

import xagents
from benchmarks import tables
from benchmarks.speed import functional_envs, summary
from benchmarks.speed import run as speed
from benchmarks.speed.cases import CLEANRL, CROSSQ, DDPG, DQN, PPO, PQN, SAC, SB3, SBX, TD3, TQC, TRPO, XAGENTS, Case
from benchmarks.speed.tables import rates, render
from benchmarks.workers import cleanrl_worker, sb3_worker, sbx_worker, xagents_worker
from benchmarks.workers.flops import update_flops
from benchmarks.workers.functional_worker import EnvJob, measure, valid_rows
from benchmarks.workers.measure import Job
from benchmarks.workers.settings import OffPolicySettings, from_fields
from tests.benchmarks.common import MACHINE, cells, script

# settings that reach every library under other names or in another form
ON_POLICY = ['n_envs', 'n_steps', 'gamma', 'lam', 'lr', 'seed', 'normalize_advantage', 'epochs', 'minibatches']
OFF_POLICY = [
    'n_envs', 'buffer_size', 'learning_starts', 'batch_size', 'gradient_steps', 'gamma', 'lr', 'seed', 'units',
    'train_frequency', 'optimizer_epsilon',
]  # fmt: skip
SETTINGS = {
    'ppo': [*ON_POLICY, 'clip', 'entropy_coef', 'value_coef', 'grad_norm'],
    'trpo': [*ON_POLICY, 'max_kl', 'cg_iterations', 'cg_damping', 'line_search', 'fisher_every', 'optimizer_epsilon'],
    'dqn': [*OFF_POLICY, 'target_sync_steps', 'epsilon', 'grad_norm'],
    'ddpg': [*OFF_POLICY, 'tau', 'noise'],
    'td3': [*OFF_POLICY, 'tau', 'policy_delay', 'policy_noise', 'noise_clip', 'noise'],
    'sac': [*OFF_POLICY, 'tau', 'target_entropy'],
    'tqc': [*OFF_POLICY, 'tau', 'target_entropy', 'n_quantiles', 'dropped_quantiles'],
    'crossq': [*OFF_POLICY, 'target_entropy', 'policy_delay', 'beta1'],
}


@pytest.mark.parametrize('settings', [PPO, TRPO, DQN, DDPG, TD3, SAC, TQC, CROSSQ], ids=lambda s: s.algorithm)
def test_every_setting_reaches_every_library(settings):
    for name in SETTINGS[settings.algorithm]:
        value = getattr(settings, name)
        other = replace(settings, **{name: not value if value is True else value * 2})
        assert xagents_worker.arguments(other) != xagents_worker.arguments(settings), name
        theirs = [(sb3_worker.arguments(s), sb3_worker.policy_arguments(s)) for s in (other, settings)]
        # the environments and the noise of its off-policy agents are made elsewhere
        elsewhere = name in ('n_envs', 'noise') and isinstance(settings, OffPolicySettings)
        assert theirs[0] != theirs[1] or elsewhere, name
        if settings.algorithm == 'ppo':
            assert cleanrl_worker.arguments(other) != cleanrl_worker.arguments(settings), name
    sb3, ours = sb3_worker.arguments(settings), xagents_worker.arguments(settings)
    assert (sb3['gamma'], sb3['learning_rate'], sb3['seed']) == (ours['gamma'], ours['lr'], ours['seed'])
    if isinstance(settings, OffPolicySettings):
        sbx = sbx_worker.arguments(settings)
        # the optimiser of SBX clips gradients
        assert {**sb3, **sbx} == ({**sb3, 'qf_learning_rate': settings.lr} if settings.algorithm != 'dqn' else sb3)
        assert sb3_worker.policy_arguments(settings)['net_arch'] == ours['net'] == list(settings.units)
    else:
        assert sb3['batch_size'] * ours['mini_batches'] == settings.n_envs * settings.n_steps


def test_every_setting_of_pqn_reaches_xagents_and_cleanrl():
    for name in ('n_envs', 'n_steps', 'gamma', 'lam', 'lr', 'seed', 'epochs', 'minibatches', 'grad_norm', 'epsilon'):
        other = replace(PQN, **{name: getattr(PQN, name) * 2})
        for worker in (xagents_worker, cleanrl_worker):
            assert worker.arguments(other) != worker.arguments(PQN), (worker, name)
    # the network of the script
    assert (xagents_worker.arguments(PQN)['net'], PQN.activation) == ([120, 84], 'relu')
    plan = cleanrl_worker.plan(PQN, 1_000, 2_000)
    assert (plan.script, plan.total, plan.lines, plan.first) == ('pqn.py', 3_072, 6, (1_024, 1))


def test_sbx_gets_the_factors_of_adam_under_its_names():
    assert sbx_worker.policy_arguments(CROSSQ)['optimizer_kwargs'] == {'eps': 1e-8, 'b1': 0.5, 'b2': 0.999}
    assert sb3_worker.policy_arguments(CROSSQ)['optimizer_kwargs'] == {'eps': 1e-8, 'betas': (0.5, 0.999)}
    assert sb3_worker.class_name(CROSSQ) == 'CrossQ' and sb3_worker.class_name(TQC) == 'TQC'


@pytest.mark.parametrize('settings', [PPO, PQN, DQN, SAC, TQC, CROSSQ], ids=lambda s: s.algorithm)
def test_settings_are_equal_after_their_way_through_json(settings):
    assert from_fields(json.loads(json.dumps(asdict(settings)))) == settings


def test_the_operations_of_an_update_are_those_counted_by_hand():
    # actor 1-1-2: 6 forward, 10 backward; critic 2-1-1: 6 forward, 8 backward; with a batch of 1
    tiny = {'units': (1,), 'batch_size': 1}
    actor_step = 6 + 10 + 2 * 2 * 6
    assert update_flops(replace(SAC, **tiny), 1, 1) == 6 + 2 * (6 + 6 + 8) + actor_step
    # the last layer has 3 outputs: 10 forward, 16 backward
    quantiles = 6 + 2 * (10 + 10 + 16) + 6 + 10 + 2 * 2 * 10
    assert update_flops(replace(TQC, **tiny, n_quantiles=3), 1, 1) == quantiles
    # the critics get a batch of 2, and the actor makes one step in 4
    assert update_flops(replace(CROSSQ, **tiny, policy_delay=4), 1, 1) == 6 + 2 * (12 + 16) + actor_step / 4
    # PPO: critic 1-1-1: 4 forward, 6 backward; both heads 1-1-3: 8 forward, 14 backward
    ppo = replace(PPO, units=(1,), epochs=2, n_envs=1, n_steps=3)
    assert update_flops(ppo, 1, 2) == 2 * 3 * (6 + 10 + 4 + 6)
    assert update_flops(replace(ppo, shared_network=True), 1, 2) == 2 * 3 * (8 + 14)


def test_gymnasiums_environments_are_its_native_vector_or_a_loop(monkeypatch):
    monkeypatch.setattr(xagents, 'make', lambda algorithm, env, **keywords: (env, keywords))
    env, keywords = xagents_worker.make_agent(Job('speed', PPO, options={'overlap': True}, gymnasium=True))
    assert (env, keywords['n_envs'], keywords['vector']) == ('CartPole-v1', 16, 'native') and keywords['overlap']
    env, keywords = xagents_worker.make_agent(Job('speed', TD3, gymnasium=True))
    assert (env, keywords['n_envs'], keywords['vector']) == ('Pendulum-v1', 1, 'sync')
    env, keywords = xagents_worker.make_agent(Job('speed', PPO))
    assert (env, keywords['n_envs']) == ('CartPole-v1', 16) and 'vector' not in keywords


# -------------------------------------------------------------------------------------------------------------- tables


def result(steps: float, seconds: float = 1.0) -> dict:
    return {'steps': steps, 'seconds': seconds, 'rss_mb': 100.0}


def test_ratios_are_taken_within_each_repeat():
    # the machine is three times slower in the second repeat, which does not change the ratio
    ours = rates([result(4000), result(4000, 3.0), None, result(9000)])
    theirs = rates([result(1000), result(1000, 3.0), result(1), None])
    assert tables.ratios(ours, theirs) == pytest.approx([4, 4])


def test_a_table_has_the_ratios_to_each_baseline():
    labels = {SB3.label: 100, SBX.label: 200, XAGENTS.label: 300}
    outcome = {label: {'results': [result(rate)], 'problem': None} for label, rate in labels.items()}
    ours = replace(XAGENTS, required=3, goal=4, second_required=1.05)
    case = Case('sac', 'A case', 'speed', SAC, (SB3, SBX, ours), baselines=(SB3.label, SBX.label))
    text = render(case, outcome, MACHINE, 'a command')
    heading = '|  | steps/s | times Stable-Baselines3 | in processor time | times SBX | in processor time | required |'
    assert text.startswith(heading)
    assert cells(text, 'xagents')[2:7] == ['3.00', '', '1.50', '', '3, goal 4, 1.05 times SBX']
    assert cells(text, 'SBX')[2:6] == ['2.00', '', '', '']
    # the median of the ratios of each repeat, not the ratio of the medians
    row = summary.read_row('sac', 'A case', 'a CPU', text.replace('1.50', '1.60'))
    assert (row.times, row.sbx, row.times_sbx) == (3.0, 2.0, '1.60')


def test_summaries_leave_out_tables_without_stable_baselines3():
    outcome = {label: {'results': [result(rate)], 'problem': None} for label, rate in (('CleanRL', 1), ('xagents', 5))}
    case = Case('pqn', 'A case', 'speed', PQN, (CLEANRL, XAGENTS), baselines=(CLEANRL.label,))
    assert summary.read_row('pqn', 'A case', 'a CPU', render(case, outcome, MACHINE, 'a command')) is None


def test_the_readme_leaves_out_variants_of_cases():
    rows = [summary.Row(name, '', '', '', '', 1.0, None, False) for name in ('td3-pendulum', 'td3-pendulum-8', 'td3')]
    assert [row.case for row in summary.without_variants(rows[:2])] == ['td3-pendulum']
    assert summary.without_variants(rows[1:2]) == rows[1:2]


def test_libraries_are_measured_in_turn_and_a_failure_stops_only_its_row(tmp_path, monkeypatch):
    """The libraries are programs whose speed is their seed."""
    page, results, pythons = tmp_path / 'page.md', tmp_path / 'results.json', {}
    page.write_text('# Mine\n<!-- benchmark ppo-cartpole -->\nold\n<!-- end of benchmark ppo-cartpole -->\nbelow\n')
    found = "print(json.dumps({'steps': 1000 * job['settings']['seed'], 'seconds': 1.0, 'rss_mb': 100.0}))"
    for peer, body in {'sb3': found, 'sbx': "sys.exit('the reason')", 'xagents': found}.items():
        pythons[peer] = script(tmp_path / peer, body)
    runs = (SB3, replace(SB3, label='SBX', peer='sbx'), XAGENTS)
    case = Case('ppo-cartpole', 'A case', 'speed', PPO, runs, seed_step=1)
    monkeypatch.setattr(speed, 'find_cases', lambda *_: [case])
    quick = ['--cache', str(tmp_path / 'cache'), '--python', *(f'{peer}={path}' for peer, path in pythons.items())]
    assert speed.main(['--repeats', '2', '--docs', str(page), '--results', str(results), *quick]) == 0
    ((_, kept),) = json.loads(results.read_text()).items()
    rows = kept['ppo-cartpole']['rows']
    assert [[row and row['steps'] for row in rows[run.label]['results']] for run in case.runs] == [
        [1000, 2000], [None, None], [1000, 2000]
    ]  # fmt: skip
    assert speed.main(['--quick', *quick]) == 0 and not (tmp_path / 'cache').exists()
    text = page.read_text()
    assert text.startswith('# Mine\n<!--') and text.endswith('-->\nbelow\n') and 'old' not in text
    assert '- SBX: exit code 1: the reason' in text and cells(text, 'xagents')[1].startswith('1 500')


# ---------------------------------------------------------------------------------------------- functional environments


def test_rows_that_only_reset_are_no_transitions():
    ended = np.zeros((3, 2), bool)
    ended[0, 0] = ended[2, 1] = True
    assert valid_rows(ended) == 5
    found = measure(EnvJob('', 2, 3, 1e-9, 'xagents'), lambda: ended, valid_rows)
    assert found['steps'] % 5 == 0 and found['steps'] > 0 < found['seconds']


def test_environments_are_compared_within_each_repeat(tmp_path):
    rows = [
        {
            'repeat': repeat,
            'job': EnvJob('CartPole-v1', 16, 128, 1.0, library)._asdict(),
            'result': {**result(rate, seconds), 'versions': {library: '1.0'}},
            'machine': MACHINE,
        }
        for repeat, seconds in enumerate((1.0, 2.0))
        for library, rate in {'gymnasium': 100, 'gymnax': 400, 'xagents': 800}.items()
    ]
    text = functional_envs.render(rows)
    ratios = ['8.00 (8.00 to 8.00)', '2.00 (2.00 to 2.00)']
    assert cells(text, 'CartPole-v1') == [
        'CartPole-v1',
        '16',
        '75 (50 to 100)',
        '300 (200 to 400)',
        '600 (400 to 800)',
        *ratios,
    ]
    gymnax = script(tmp_path / 'gymnax', "print(json.dumps({'steps': job['n_envs'], 'seconds': 1.0, 'versions': {}}))")
    assert functional_envs.main(['--quick', '--libraries', 'gymnax', '--python', gymnax]) == 0
