"""The benchmarks' own arithmetic, tables and settings; no other library is needed, and nothing is measured."""

import dataclasses
import json
import os
import sys

import pytest

from benchmarks import environments, harness, tables
from benchmarks.cases import A2C, BASELINE, CASES, DDPG, DQN, PONG, PPO, SB3, TD3, TRPO, XAGENTS, Case, find_cases
from benchmarks.cases import ACER as ACER_SETTINGS
from benchmarks.settings import OffPolicySettings, Settings, from_fields
from benchmarks.workers import cleanrl_worker, flops, measure, sb3_worker, sbx_worker, xagents_worker
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions
from xagents.registry.agents import find_agent

ACER = dataclasses.replace(A2C, **ACER_SETTINGS)
MACHINE = {'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'system': 'Linux x86_64', 'load': '0.1'}
# another value for each setting that reaches every library
OTHER = {
    'n_envs': 32,
    'n_steps': 64,
    'epochs': 3,
    'minibatches': 8,
    'gamma': 0.9,
    'lam': 0.8,
    'lr': 1e-3,
    'clip': 0.3,
    'entropy_coef': 0.02,
    'value_coef': 0.25,
    'grad_norm': 1.5,
    'normalize_advantage': False,
    'seed': 7,
}
# how each library names them; the value is found under that name as it stands
NAMES = {
    'sb3': {
        'n_steps': 'n_steps', 'epochs': 'n_epochs', 'gamma': 'gamma', 'lam': 'gae_lambda', 'lr': 'learning_rate',
        'clip': 'clip_range', 'entropy_coef': 'ent_coef', 'value_coef': 'vf_coef', 'grad_norm': 'max_grad_norm',
        'normalize_advantage': 'normalize_advantage', 'seed': 'seed', 'minibatch_size': 'batch_size',
    },
    'xagents': {
        'n_envs': 'n_envs', 'n_steps': 'n_steps', 'epochs': 'ppo_epochs', 'minibatches': 'mini_batches',
        'gamma': 'gamma', 'lam': 'lam', 'lr': 'lr', 'clip': 'clip_norm', 'entropy_coef': 'entropy_coef',
        'value_coef': 'value_loss_coef', 'grad_norm': 'grad_norm', 'normalize_advantage': 'normalize_advantage',
        'seed': 'seed', 'optimizer_epsilon': 'opt_epsilon', 'optimizer': 'optimizer',
    },
    'cleanrl': {
        'n_envs': '--num-envs', 'n_steps': '--num-steps', 'epochs': '--update-epochs',
        'minibatches': '--num-minibatches', 'gamma': '--gamma', 'lam': '--gae-lambda', 'lr': '--learning-rate',
        'clip': '--clip-coef', 'entropy_coef': '--ent-coef', 'value_coef': '--vf-coef',
        'grad_norm': '--max-grad-norm', 'seed': '--seed',
    },
}  # fmt: skip


# another value for each setting of TRPO, and how Stable-Baselines3's contributions and xagents name it
TRPO_OTHER = {
    'n_envs': 32, 'n_steps': 64, 'epochs': 3, 'minibatches': 8, 'gamma': 0.9, 'lam': 0.8, 'lr': 2e-4, 'max_kl': 0.02,
    'cg_iterations': 7, 'cg_damping': 0.05, 'line_search': 6, 'fisher_every': 4, 'normalize_advantage': False,
    'optimizer_epsilon': 1e-7, 'seed': 7,
}  # fmt: skip
TRPO_NAMES = {
    'n_steps': ('n_steps', 'n_steps'), 'gamma': ('gamma', 'gamma'), 'lam': ('gae_lambda', 'lam'),
    'lr': ('learning_rate', 'lr'), 'epochs': ('n_critic_updates', 'critic_iterations'),
    'max_kl': ('target_kl', 'max_kl'), 'cg_iterations': ('cg_max_steps', 'cg_iterations'),
    'cg_damping': ('cg_damping', 'cg_damping'), 'line_search': ('line_search_max_iter', 'actor_iterations'),
    'fisher_every': ('sub_sampling_factor', 'fvp_n_steps'),
    'normalize_advantage': ('normalize_advantage', 'normalize_advantage'), 'seed': ('seed', 'seed'),
}  # fmt: skip
# another value for each off-policy setting, and how the libraries name it; they mean the same by it
OFF_POLICY_OTHER = {
    'n_envs': 4, 'buffer_size': 5000, 'learning_starts': 700, 'batch_size': 32, 'train_frequency': 8,
    'gradient_steps': 5, 'gamma': 0.9, 'lr': 2e-4, 'units': (32, 16), 'optimizer_epsilon': 1e-5,
    'target_sync_steps': 50, 'epsilon': 0.2, 'grad_norm': 2.0, 'tau': 0.01, 'noise': 0.3, 'policy_delay': 3,
    'policy_noise': 0.4, 'noise_clip': 0.7, 'seed': 7,
}  # fmt: skip
EVERY = {
    'buffer_size': ('buffer_size', 'buffer_max_size'), 'learning_starts': ('learning_starts', 'buffer_initial_size'),
    'batch_size': ('batch_size', 'buffer_batch_size'), 'gradient_steps': ('gradient_steps', 'gradient_steps'),
    'gamma': ('gamma', 'gamma'), 'lr': ('learning_rate', 'lr'), 'seed': ('seed', 'seed'),
}  # fmt: skip
ACTOR_CRITIC = {**EVERY, 'tau': ('tau', 'tau')}
OWN = {
    'dqn': {
        **EVERY,
        'target_sync_steps': ('target_update_interval', 'target_sync_steps'),
        'epsilon': ('exploration_final_eps', 'epsilon_end'),
        'grad_norm': ('max_grad_norm', 'grad_norm'),
    },
    'ddpg': ACTOR_CRITIC,
    'td3': {
        **ACTOR_CRITIC,
        'policy_delay': ('policy_delay', 'policy_delay'),
        'policy_noise': ('target_policy_noise', 'policy_noise_coef'),
        'noise_clip': ('target_noise_clip', 'noise_clip'),
    },
}


def cleanrl_flags(settings: Settings | OffPolicySettings) -> dict[str, str]:
    dqn = isinstance(settings, OffPolicySettings)
    words = cleanrl_worker.dqn_arguments(settings) if dqn else cleanrl_worker.arguments(settings)
    return {word: following for word, following in zip(words, [*words[1:], ''], strict=True) if word.startswith('--')}


def result(steps: float = 1000.0, seconds: float = 1.0, **more: object) -> dict:
    return {'steps': steps, 'seconds': seconds, 'rss_mb': 100.0, **more}


def outcome(**results: list) -> dict:
    return {label.replace('_', '-'): {'results': r, 'problem': None} for label, r in results.items()}


@pytest.mark.parametrize('settings', [PPO, dataclasses.replace(PPO, **OTHER)], ids=['ppo', 'other values'])
def test_every_library_gets_the_same_settings(settings):
    translated = {
        'sb3': sb3_worker.arguments(settings),
        'xagents': xagents_worker.arguments(settings),
        'cleanrl': cleanrl_flags(settings),
    }
    for library, names in NAMES.items():
        for ours, theirs in names.items():
            value = getattr(settings, ours)
            assert translated[library][theirs] == (str(value) if library == 'cleanrl' else value), (library, ours)
    normalise = '--norm-adv' if settings.normalize_advantage else '--no-norm-adv'
    assert normalise in translated['cleanrl']


@pytest.mark.parametrize('name', OTHER)
def test_no_worker_drops_a_setting(name):
    other = dataclasses.replace(PPO, **{name: OTHER[name]})
    assert xagents_worker.arguments(other) != xagents_worker.arguments(PPO)
    assert cleanrl_worker.arguments(other) != cleanrl_worker.arguments(PPO)
    assert sb3_worker.arguments(other) != sb3_worker.arguments(PPO)  # its environments' number shows in batch_size


@pytest.mark.parametrize('settings', [TRPO, dataclasses.replace(TRPO, **TRPO_OTHER)], ids=['trpo', 'other values'])
def test_both_libraries_get_the_same_settings_of_trpo(settings):
    sb3, ours = sb3_worker.arguments(settings), xagents_worker.arguments(settings)
    for name, (theirs, our) in TRPO_NAMES.items():
        assert sb3[theirs] == ours[our] == getattr(settings, name), name
    # as many steps of the critic on minibatches of the same size
    assert sb3['batch_size'] * ours['mini_batches'] == settings.n_envs * settings.n_steps
    assert sb3_worker.policy_arguments(settings)['optimizer_kwargs'] == {'eps': ours['opt_epsilon']}
    # TRPO has no other loss than the surrogate, and its constructor no keywords for one
    assert not {'ent_coef', 'vf_coef', 'max_grad_norm', 'clip_range'} & sb3.keys()


@pytest.mark.parametrize('name', TRPO_OTHER)
def test_no_worker_drops_a_setting_of_trpo(name):
    other = dataclasses.replace(TRPO, **{name: TRPO_OTHER[name]})
    assert xagents_worker.arguments(other) != xagents_worker.arguments(TRPO)
    theirs = [(sb3_worker.arguments(s), sb3_worker.policy_arguments(s)) for s in (other, TRPO)]
    assert theirs[0] != theirs[1]  # its environments' number shows in batch_size


def test_acer_has_its_own_defaults():
    assert xagents_worker.arguments(ACER) == {
        'n_envs': 16, 'n_steps': 20, 'replay_ratio': 4.0, 'seed': 1, 'quiet': True
    }  # fmt: skip
    options = find_agent('acer').options()
    assert (options.n_steps, options.replay_ratio) == (ACER.n_steps, ACER.replay_ratio)


def test_the_clock_of_acer_starts_when_replays_do():
    case = next(case for case in CASES if case.name == 'acer-cartpole')
    options = find_agent('acer').options()
    filled = options.buffer_initial_size or options.buffer_max_size
    assert min(case.warmup, case.quick[0]) >= filled + ACER.batch_size


def test_rows_of_a_case_differ_only_where_the_table_says_so():
    for case in CASES:
        for run in case.runs:
            if run.settings.get('algorithm') == 'acer':
                assert run.settings == {'algorithm': 'acer', 'n_steps': 20} and run.label == 'xagents, ACER'
                assert 'ACER' in case.title and '16 environments x 20 steps, 4 replays' in case.title
                assert "Stable-Baselines3's A2C, 16 x 5" in case.title and case.settings == A2C
            elif 'train_frequency' in run.settings:
                assert run.settings == {'train_frequency': 32} and '32 updates every 32 steps' in run.label
            else:
                assert set(run.settings) <= {'shared_network', 'precision'}
                assert not run.settings or (run.peer == 'xagents' and run.label != XAGENTS.label)


ALL = [PPO, A2C, TRPO, ACER, PONG, DQN, DDPG, TD3]


@pytest.mark.parametrize('settings', ALL, ids=lambda s: f'{s.algorithm} {s.env}')
def test_xagents_has_the_options_that_its_worker_sets_and_admits_their_values(settings):
    known = {}
    for declaration in (EnvironmentOptions, NetworkOptions, RunOptions, find_agent(settings.algorithm).options):
        known |= describe(declaration)
    for name, value in xagents_worker.arguments(settings).items():
        assert known[name].check(value) == value


@pytest.mark.parametrize('case', [DQN, DDPG, TD3], ids=lambda s: s.algorithm)
def test_every_library_gets_the_same_off_policy_settings(case):
    for settings in (case, dataclasses.replace(case, **OFF_POLICY_OTHER)):
        sb3, sbx, ours = (w.arguments(settings) for w in (sb3_worker, sbx_worker, xagents_worker))
        for name, (theirs, our) in OWN[case.algorithm].items():
            assert sb3[theirs] == ours[our] == getattr(settings, name), name
            # SBX has no setting for the gradient's norm; its worker puts the clipping into the optimiser
            assert name == 'grad_norm' or sbx[theirs] == sb3[theirs]
        policy = sb3_worker.policy_arguments(settings)
        assert policy['net_arch'] == ours['net'] == list(settings.units)
        assert policy['optimizer_kwargs']['eps'] == ours['opt_epsilon'] == settings.optimizer_epsilon
    if case is DQN:
        assert sb3['exploration_initial_eps'] == ours['epsilon_start'] == 0.2
        assert ours['huber'] and 'max_grad_norm' not in sbx
    else:
        assert ours['step_noise_coef'] == 0.3 and sbx['qf_learning_rate'] == 2e-4


@pytest.mark.parametrize('case', [DQN, DDPG, TD3], ids=lambda s: s.algorithm)
def test_no_worker_drops_an_off_policy_setting(case):
    elsewhere = {'n_envs', 'units', 'optimizer_epsilon', 'noise'}  # of Stable-Baselines3's: environments, policy, noise
    others = {name for names in OWN.values() for name in names} - set(OWN[case.algorithm])
    for name in OFF_POLICY_OTHER.keys() - others - ({'noise'} if case is DQN else set()):
        other = dataclasses.replace(case, **{name: OFF_POLICY_OTHER[name]})
        assert xagents_worker.arguments(other) != xagents_worker.arguments(case), name
        if name not in elsewhere:
            assert sb3_worker.arguments(other) != sb3_worker.arguments(case), name


def test_training_frequency_counts_vector_steps_in_stable_baselines3_and_environment_steps_in_xagents():
    settings = dataclasses.replace(TD3, n_envs=8, train_frequency=8)
    assert sb3_worker.arguments(settings)['train_freq'] == 1
    assert xagents_worker.arguments(settings)['train_frequency'] == 8
    assert settings.updates_per_call == 8
    assert settings.updates(800) == 800
    assert dataclasses.replace(DQN, train_frequency=4, gradient_steps=2).updates(402) == 200


def test_cleanrl_gets_its_flags_and_prints_a_line_at_the_end_of_the_warmup():
    flags = cleanrl_flags(DQN)
    assert flags['--batch-size'] == '64' and flags['--target-network-frequency'] == '500'
    assert flags['--start-e'] == flags['--end-e'] == '0.05'
    todo = cleanrl_worker.plan(DQN, warmup=2000, steps=3000)
    # its script prints after each hundredth step that is larger than the 1000 that learning starts with
    printed = [step for step in range(todo.total) if step > DQN.learning_starts and step % 100 == 0]
    assert todo.lines == len(printed)
    assert todo.first == (2000, printed.index(2000))
    assert todo.last == printed[-1] == 5000
    with pytest.raises(SystemExit, match='no script'):
        cleanrl_worker.plan(TD3, 100, 100)
    with pytest.raises(SystemExit, match='no script'):
        cleanrl_worker.plan(dataclasses.replace(DQN, train_frequency=4), 100, 100)


def test_a_library_that_makes_too_few_updates_is_not_measured():
    measure.check_updates(DQN, steps=1000, updates=1000)
    with pytest.raises(SystemExit, match='250 updates in 1000 steps, and 1000 were to be measured'):
        measure.check_updates(DQN, steps=1000, updates=250)


# what one rollout of each takes: epochs x minibatches; the critic's and a step of the policy; itself and its replays
@pytest.mark.parametrize(
    ('settings', 'each'), [(A2C, 1), (PPO, 4 * 4), (TRPO, 10 * 16 + 1), (ACER, 1 + 4)], ids=lambda x: str(x)[:40]
)
def test_a_run_that_makes_too_few_updates_on_rollouts_is_not_measured(settings, each):
    steps = 300 * settings.batch_size
    measure.check_updates(settings, steps, 300 * each)
    # rows that only reset are not among the steps
    measure.check_updates(settings, round(0.95 * steps), 300 * each)
    with pytest.raises(SystemExit, match=f'and {300 * each} were to be measured'):
        measure.check_updates(settings, steps, 300 * each // 2)


def test_updates_that_are_counted_or_left_out_by_chance():
    # a policy step that the line search refused every time; replays within the chance of their draws, and no replays
    measure.check_updates(TRPO, 10 * TRPO.batch_size, 10 * 160)
    measure.check_updates(ACER, 10 * ACER.batch_size, 50 + 3 * 7)
    measure.check_updates(ACER, 300 * ACER.batch_size, 1500 - 3 * 39)
    with pytest.raises(SystemExit, match='10 updates'):
        measure.check_updates(ACER, 10 * ACER.batch_size, 10)
    # a worker that makes the default number of minibatches, 4
    with pytest.raises(SystemExit, match='410 updates'):
        measure.check_updates(TRPO, 10 * TRPO.batch_size, 10 * 41)


def test_a_process_is_held_to_one_core_in_off_policy_cases_only():
    code = (
        'import os; from benchmarks.cases import DQN, PPO; from benchmarks.workers.measure import hold_to_one_core\n'
        'before = os.sched_getaffinity(0); hold_to_one_core(PPO); assert os.sched_getaffinity(0) == before\n'
        'hold_to_one_core(DQN); print(len(os.sched_getaffinity(0)))'
    )
    if not hasattr(os, 'sched_setaffinity'):
        pytest.skip('the system cannot')
    assert harness.launch([sys.executable, '-c', code], timeout=30)[0].strip() == '1'


def test_the_seed_command_is_the_one_that_people_type():
    case = next(case for case in CASES if case.name == 'seed-command')
    assert ' '.join(xagents_worker.command(case.settings)) == (
        'train ppo --env CartPole-v1 --target-reward 250 --n-envs 16 --n-steps 1024 --checkpoints ppo-cartpole.tf '
        '--history-checkpoint ppo-cartpole.parquet --seed 123'
    )


@pytest.mark.parametrize('settings', [PONG, TRPO, ACER, TD3], ids=lambda s: s.algorithm)
def test_a_job_survives_its_way_to_the_worker(monkeypatch, settings):
    text = json.dumps({'task': 'speed', 'settings': dataclasses.asdict(settings), 'warmup': 10, 'steps': 20})
    monkeypatch.setattr(sys, 'argv', ['worker', text])
    assert measure.Job.from_command_line() == measure.Job('speed', settings, 10, 20)
    assert from_fields(dataclasses.asdict(settings)) == settings


def test_ratios_are_taken_pair_by_pair_and_leave_out_what_is_missing():
    # the machine is three times slower in the second repeat: the ratio does not see it
    ours = tables.rates([result(4000), result(4000, 3.0), None, result(9000)])
    theirs = tables.rates([result(1000), result(1000, 3.0), result(1), None])
    assert tables.ratios(ours, theirs) == pytest.approx([4, 4])


def test_a_speed_table():
    case = Case('c', 'A case', 'speed', PPO, (SB3, dataclasses.replace(XAGENTS, floor=4)))
    measured = outcome(xagents=[result(r, parts={'learn': 0.25, 'env': 0.5}) for r in (5000, 8000, 6000)])
    measured[BASELINE] = {'results': [result(r) for r in (1000, 1000, 2000)], 'problem': None}
    text = tables.render(case, measured, MACHINE, 'the command')
    row = next(line for line in text.splitlines() if line.startswith('| xagents'))
    # the ratios are 5, 8 and 3; the ratio of the medians would be 6
    assert [cell.strip() for cell in row.split('|')[1:-1]] == [
        'xagents', '6 000 (5 000 to 8 000)', '5.00 (3.00 to 8.00)', '4', 'learn 25 %, env 50 %', '100 (100 to 100)'
    ]  # fmt: skip
    assert '2026-01-02, a CPU, 2 cores' in text
    assert '`the command`' in text


def test_a_target_table_says_how_many_times_sooner():
    case = Case('c', 'A case', 'target', PPO, (SB3, XAGENTS))
    measured = {
        BASELINE: {'results': [result(seconds=40.0), result(seconds=90.0)], 'problem': None},
        'xagents': {'results': [result(seconds=10.0), result(seconds=10.0)], 'problem': None},
    }
    assert '6.50 (4.00 to 9.00)' in tables.render(case, measured, MACHINE, '')


def test_a_library_that_does_not_install_is_named_and_is_no_error():
    case = Case('c', 'A case', 'speed', PPO, (SB3, XAGENTS))
    measured = {
        BASELINE: {'results': [], 'problem': 'not installed: no wheel\nfor this machine'},
        'xagents': {'results': [result(5000)], 'problem': None},
    }
    text = tables.render(case, measured, MACHINE, '')
    assert f'- {BASELINE}: not installed: no wheel for this machine' in text
    assert '| xagents | 5 000 |' in text


def test_what_a_reader_has_to_know_of_a_case_stands_below_its_table():
    case = next(case for case in CASES if case.name == 'acer-cartpole')
    measured = outcome(**{'xagents, ACER': [result(900)], BASELINE: [result(1000)]})
    measured[BASELINE] = measured.pop(BASELINE.replace('_', '-'))
    text = tables.render(case, measured, MACHINE, '')
    table, note = text.index('| xagents, ACER | 900 | 0.90 | 0.6 |'), text.index('- No living library has ACER.')
    assert table < note < text.index('2026-01-02')
    # ten times what 1.0 made, beside what the baseline made on the same machine
    ours = next(run for run in case.runs if run.peer == 'xagents')
    assert ours.floor == pytest.approx(10 * 1036 / 17_300, abs=0.005)


def test_measuring_goes_in_turn_and_a_failure_stops_only_its_own_row(monkeypatch):
    order = []

    def measure_one(case, run, settings, python, options):
        order.append((run.label, settings.seed))
        if run.label == 'SBX':
            raise harness.Failed('broken')
        return result()

    monkeypatch.setattr(harness, 'measure', measure_one)
    sbx = dataclasses.replace(SB3, label='SBX', peer='sbx')
    case = Case('c', 'A case', 'speed', PPO, (SB3, sbx, XAGENTS), seed_step=1)
    options = harness.make_parser().parse_args(['--repeats', '2'])
    pythons = {'sb3': measure.Path('a'), 'sbx': measure.Path('b'), 'xagents': measure.Path('c')}
    measured = harness.measure_case(case, pythons, options)
    assert order == [(BASELINE, 1), ('SBX', 1), ('xagents', 1), (BASELINE, 2), ('xagents', 2)]
    assert measured['SBX'] == {'results': [None, None], 'problem': 'broken'}
    assert len(measured['xagents']['results']) == 2


def test_sections_are_replaced_between_their_markers_only(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('# Mine\n<!-- benchmark a -->\nold\n<!-- end of benchmark a -->\nbetween\n')
    tables.write_section(page, 'a', 'new')
    tables.write_section(page, 'a', 'newer')
    tables.write_section(page, 'not there', 'lost')
    assert page.read_text() == '# Mine\n<!-- benchmark a -->\nnewer\n<!-- end of benchmark a -->\nbetween\n'
    assert [path.name for path in tmp_path.iterdir()] == ['page.md']


def test_the_page_has_a_place_for_every_case():
    page = (environments.REPOSITORY / 'docs' / 'benchmarks.md').read_text()
    for case in CASES:
        before, found, _ = page.partition(f'<!-- end of benchmark {case.name} -->')
        assert found and f'<!-- benchmark {case.name} -->' in before


def test_a_process_that_fails_or_hangs_is_reported_and_ended():
    with pytest.raises(harness.Failed, match='exit code 1: ValueError: the reason'):
        harness.launch([sys.executable, '-c', 'raise ValueError("the reason")'], timeout=30)
    with pytest.raises(harness.Failed, match='no result in'):
        harness.launch([sys.executable, '-c', 'import time; time.sleep(60)'], timeout=0.5)


def test_time_after_the_warmup_comes_from_two_mean_speeds():
    # three updates of 100 steps, the first in 4 s, the others in 1 s each
    assert cleanrl_worker.seconds_between(100, 25, 300, 50) == pytest.approx(2)
    todo = cleanrl_worker.plan(dataclasses.replace(PPO, n_envs=10, n_steps=10), warmup=90, steps=200)
    assert (todo.script, todo.lines, todo.first, todo.last) == ('ppo.py', 3, (100, 0), 300)


def test_operations_of_the_nature_cnn_by_hand():
    first = 2 * 20 * 20 * 32 * 8 * 8 * 4
    rest = 2 * (9 * 9 * 64 * 4 * 4 * 32 + 7 * 7 * 64 * 3 * 3 * 64 + 3136 * 512 + 512 * 7)
    forward, training = flops.nature_cnn_flops(n_actions=6)
    assert forward == first + rest
    assert training == 2 * first + 3 * rest
    # one update in a second on a machine that could do twice as much
    peak = 2 * PONG.epochs * PONG.batch_size * training
    assert flops.update_share(PONG, 84, 6, updates=1, seconds=1.0, peak=peak) == pytest.approx(0.5)


def test_operations_of_dense_updates_by_hand():
    tiny = OffPolicySettings(units=(5,), batch_size=10)
    # DQN, 3 -> 5 -> 2: a product costs 2 * 10 * in * out, that is 300 and 200
    target, online = 300 + 200, 300 + 200
    weights, inputs = 300 + 200, 200  # the observations need no gradient
    assert flops.update_flops(tiny, 3, 2) == target + online + weights + inputs
    # actor 3 -> 5 -> 2 as before; critic 5 -> 5 -> 1: 500 and 100
    critic = (500 + 100) + (500 + 100) + (500 + 100) + 100  # target, forward, weights, inputs
    actor = 500 + (500 + 200) + (500 + 100) + (500 + 100)  # forward, backward; critic forward and to its inputs
    ddpg = dataclasses.replace(tiny, algorithm='ddpg')
    assert flops.update_flops(ddpg, 3, 2) == 500 + critic + actor
    td3 = dataclasses.replace(tiny, algorithm='td3', policy_delay=4)
    assert flops.update_flops(td3, 3, 2) == 500 + 2 * critic + actor / 4
    # 20 updates in half a second, on a machine that could do ten times as much
    peak = 10 * 20 * (500 + critic + actor) / 0.5
    assert flops.update_share(ddpg, 3, 2, updates=20, seconds=0.5, peak=peak) == pytest.approx(0.1)


def test_a_changed_pin_makes_the_environment_anew(tmp_path):
    pins = tmp_path / 'pins.txt'
    pins.write_text('a==1\n')
    requirements = tmp_path / 'peer.txt'
    requirements.write_text('-r pins.txt\nb==1\n')
    first = environments.fingerprint(requirements)
    assert environments.fingerprint(requirements) == first
    pins.write_text('a==2\n')
    assert environments.fingerprint(requirements) != first


def test_cases_are_found_by_name_or_its_beginning():
    assert [case.name for case in find_cases(['a2c', 'ppo-cartpole'])] == ['a2c-cartpole', 'ppo-cartpole']
    assert 'memory' not in [case.name for case in find_cases(None)]
    with pytest.raises(ValueError, match='got sac, admits ppo-cartpole'):
        find_cases(['sac'])
