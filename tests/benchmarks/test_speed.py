"""The speed benchmark: equal settings for every library, computed ratios, and measurements in turn."""

import json
from dataclasses import replace

import pytest

from benchmarks import tables
from benchmarks.speed import run as speed
from benchmarks.speed.cases import DDPG, DQN, PPO, SB3, TD3, TRPO, XAGENTS, Case
from benchmarks.speed.tables import rates
from benchmarks.workers import cleanrl_worker, sb3_worker, sbx_worker, xagents_worker
from benchmarks.workers.settings import OffPolicySettings
from tests.benchmarks.common import cells, script

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
}


@pytest.mark.parametrize('settings', [PPO, TRPO, DQN, DDPG, TD3], ids=lambda s: s.algorithm)
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


# -------------------------------------------------------------------------------------------------------------- tables


def result(steps: float, seconds: float = 1.0) -> dict:
    return {'steps': steps, 'seconds': seconds, 'rss_mb': 100.0}


def test_ratios_are_taken_within_each_repeat():
    # the machine is three times slower in the second repeat, which does not change the ratio
    ours = rates([result(4000), result(4000, 3.0), None, result(9000)])
    theirs = rates([result(1000), result(1000, 3.0), result(1), None])
    assert tables.ratios(ours, theirs) == pytest.approx([4, 4])


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
