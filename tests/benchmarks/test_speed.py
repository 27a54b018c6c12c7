"""The speed benchmark: every library gets the same settings, and numbers are worked out as the page says."""

import json
import sys
from dataclasses import asdict, replace

import pytest
from PIL import Image

from benchmarks import tables
from benchmarks import venvs as environments
from benchmarks.speed import run as harness
from benchmarks.speed import summary
from benchmarks.speed.cases import (
    A2C,
    ACER,
    BASELINE,
    CASES,
    DDPG,
    DQN,
    PONG,
    PPO,
    SB3,
    TD3,
    TRPO,
    XAGENTS,
    Case,
    find_cases,
)
from benchmarks.workers import cleanrl_worker, flops, measure, sb3_worker, sbx_worker, xagents_worker
from benchmarks.workers.settings import OffPolicySettings, from_fields
from tests.benchmarks.common import MACHINE, cells, script
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions
from xagents.registry.agents import find_agent

ACER_SETTINGS = replace(A2C, **ACER)
ALL = [PPO, A2C, TRPO, ACER_SETTINGS, PONG, DQN, DDPG, TD3]

# ------------------------------------------------------------------------------------------------------------ settings

# a setting, and how Stable-Baselines3 and xagents name what has its value as it stands
ON_POLICY = """n_steps n_steps n_steps, gamma gamma gamma, lam gae_lambda lam, lr learning_rate lr, seed seed seed,
    normalize_advantage normalize_advantage normalize_advantage"""
OFF_POLICY = """buffer_size buffer_size buffer_max_size, learning_starts learning_starts buffer_initial_size,
    batch_size batch_size buffer_batch_size, gradient_steps gradient_steps gradient_steps, gamma gamma gamma,
    lr learning_rate lr, seed seed seed"""
NAMES = {
    'ppo': f"""{ON_POLICY}, epochs n_epochs ppo_epochs, clip clip_range clip_norm, entropy_coef ent_coef entropy_coef,
        value_coef vf_coef value_loss_coef, grad_norm max_grad_norm grad_norm""",
    'trpo': f"""{ON_POLICY}, epochs n_critic_updates critic_iterations, max_kl target_kl max_kl,
        cg_iterations cg_max_steps cg_iterations, cg_damping cg_damping cg_damping,
        line_search line_search_max_iter actor_iterations, fisher_every sub_sampling_factor fvp_n_steps""",
    'dqn': f"""{OFF_POLICY}, target_sync_steps target_update_interval target_sync_steps,
        epsilon exploration_final_eps epsilon_end, grad_norm max_grad_norm grad_norm""",
    'ddpg': f'{OFF_POLICY}, tau tau tau',
    'td3': f"""{OFF_POLICY}, tau tau tau, policy_delay policy_delay policy_delay,
        policy_noise target_policy_noise policy_noise_coef, noise_clip target_noise_clip noise_clip""",
}
# what reaches every library in another form
ELSEWHERE = {
    'ppo': ['n_envs', 'minibatches'],
    'trpo': ['n_envs', 'minibatches', 'optimizer_epsilon'],
    'dqn': ['n_envs', 'train_frequency', 'units', 'optimizer_epsilon'],
    'ddpg': (other := ['n_envs', 'train_frequency', 'units', 'optimizer_epsilon', 'noise']),
    'td3': other,
}
CLEANRL = {
    'n_envs': '--num-envs', 'n_steps': '--num-steps', 'epochs': '--update-epochs', 'minibatches': '--num-minibatches',
    'gamma': '--gamma', 'lam': '--gae-lambda', 'lr': '--learning-rate', 'clip': '--clip-coef',
    'entropy_coef': '--ent-coef', 'value_coef': '--vf-coef', 'grad_norm': '--max-grad-norm', 'seed': '--seed',
}  # fmt: skip
COMPARED = pytest.mark.parametrize('settings', [PPO, TRPO, DQN, DDPG, TD3], ids=lambda s: s.algorithm)


def names_of(settings):
    return {row.split()[0]: row.split()[1:] for row in NAMES[settings.algorithm].split(',')}


def changed(settings, *names):
    """The settings with other values."""
    values = {name: getattr(settings, name) for name in names}
    return replace(settings, **{k: not v if v is True else v * 2 for k, v in values.items()})


def cleanrl_flags(settings):
    dqn = isinstance(settings, OffPolicySettings)
    words = cleanrl_worker.dqn_arguments(settings) if dqn else cleanrl_worker.arguments(settings)
    return {word: following for word, following in zip(words, [*words[1:], ''], strict=True) if word.startswith('--')}


@COMPARED
def test_every_library_gets_the_same_settings(settings):
    name, names = settings.algorithm, names_of(settings)
    for setting in [*names, *ELSEWHERE[name]]:  # none is dropped on the way
        other = changed(settings, setting)
        assert xagents_worker.arguments(other) != xagents_worker.arguments(settings), setting
        theirs = [(sb3_worker.arguments(s), sb3_worker.policy_arguments(s)) for s in (other, settings)]
        # Stable-Baselines3's off-policy agents have environments, and noise that needs them, elsewhere
        assert theirs[0] != theirs[1] or (setting in ('n_envs', 'noise') and name in ('dqn', 'ddpg', 'td3')), setting
        assert name != 'ppo' or cleanrl_worker.arguments(other) != cleanrl_worker.arguments(settings), setting
    for given in (settings, changed(settings, *names, *ELSEWHERE[name])):
        sb3, ours = sb3_worker.arguments(given), xagents_worker.arguments(given)
        policy = sb3_worker.policy_arguments(given)
        for setting, (theirs, our) in names.items():
            assert sb3[theirs] == ours[our] == getattr(given, setting), setting
        assert policy['optimizer_kwargs'] == {'eps': given.optimizer_epsilon} == {'eps': ours['opt_epsilon']}
        assert ours['n_envs'] == given.n_envs
        if name in ('ppo', 'trpo'):  # as many steps on minibatches of the same size
            assert sb3['batch_size'] * ours['mini_batches'] == given.n_envs * given.n_steps
        else:
            sbx = sbx_worker.arguments(given)
            # SBX has no setting for the gradient's norm; its worker puts the clipping into the optimiser
            assert all(sbx[theirs] == sb3[theirs] for theirs, _ in names.values() if theirs != 'max_grad_norm')
            assert policy['net_arch'] == ours['net'] == list(given.units)
        if name == 'ppo':
            flags = cleanrl_flags(given)
            assert all(flags[flag] == str(getattr(given, setting)) for setting, flag in CLEANRL.items())
            assert ('--norm-adv' if given.normalize_advantage else '--no-norm-adv') in flags
            assert ours['optimizer'] == given.optimizer
        elif name == 'trpo':  # it has no other loss than the surrogate, and its constructor no keywords for one
            assert not {'ent_coef', 'vf_coef', 'max_grad_norm', 'clip_range'} & sb3.keys()
        elif name == 'dqn':
            assert sb3['exploration_initial_eps'] == ours['epsilon_start'] == given.epsilon
            assert ours['huber'] and 'max_grad_norm' not in sbx
        else:
            assert ours['step_noise_coef'] == given.noise and sbx['qf_learning_rate'] == given.lr


def test_acer_has_its_own_defaults_and_its_clock_starts_when_replays_do():
    given = {'n_envs': 16, 'n_steps': 20, 'replay_ratio': 4.0, 'seed': 1, 'quiet': True}
    assert xagents_worker.arguments(ACER_SETTINGS) == given
    options = find_agent('acer').options()
    assert (options.n_steps, options.replay_ratio) == (ACER_SETTINGS.n_steps, ACER_SETTINGS.replay_ratio)
    (case,) = find_cases(['acer-cartpole'])
    filled = options.buffer_initial_size or options.buffer_max_size
    assert min(case.warmup, case.quick[0]) >= filled + ACER_SETTINGS.batch_size
    # ten times what 1.0 made, beside what the baseline made on the same machine
    ours = next(run for run in case.runs if run.peer == 'xagents')
    assert ours.floor == pytest.approx(10 * 1036 / 17_300, abs=0.005)


def test_rows_of_a_case_differ_only_where_their_labels_say_so():
    page = (environments.REPOSITORY / 'docs' / 'benchmarks.md').read_text()
    for case in CASES:
        assert page.index(f'<!-- benchmark {case.name} -->') < page.index(f'<!-- end of benchmark {case.name} -->')
        assert len({run.label for run in case.runs}) == len(case.runs)
        for run in case.runs:
            if run.settings.get('algorithm') == 'acer':
                assert run.settings == ACER and 'ACER' in run.label and case.settings == A2C
            elif 'train_frequency' in run.settings:
                assert run.settings == {'train_frequency': 32} and '32 updates every 32 steps' in run.label
            else:
                assert run.settings.keys() <= {'shared_network', 'precision'}
                assert not run.settings or (run.peer == 'xagents' and run.label != XAGENTS.label)


@pytest.mark.parametrize('settings', ALL, ids=lambda s: f'{s.algorithm} {s.env}')
def test_xagents_admits_what_its_worker_sets_and_a_job_survives_its_way_there(settings, monkeypatch):
    known = {}
    for declaration in (EnvironmentOptions, NetworkOptions, RunOptions, find_agent(settings.algorithm).options):
        known |= describe(declaration)
    for name, value in xagents_worker.arguments(settings).items():
        assert known[name].check(value) == value
    text = json.dumps({'task': 'speed', 'settings': asdict(settings), 'warmup': 10, 'steps': 20})
    monkeypatch.setattr(sys, 'argv', ['worker', text])
    assert measure.Job.from_command_line() == measure.Job('speed', settings, 10, 20)
    assert from_fields(asdict(settings)) == settings


# what one rollout of each takes: epochs x minibatches; the critic's and a step of the policy; itself and its replays
EACH = [(A2C, 1), (PPO, 4 * 4), (TRPO, 10 * 16 + 1), (ACER_SETTINGS, 1 + 4)]


@pytest.mark.parametrize(
    ('settings', 'steps', 'updates', 'wanted'),
    [
        (DQN, 1000, 1000, ''),
        (DQN, 1000, 250, '250 updates in 1000 steps, and 1000 were to be measured'),
        *((s, 300 * s.batch_size, 300 * each, '') for s, each in EACH),
        *((s, 300 * s.batch_size, 150 * each, f'and {300 * each} were to be measured') for s, each in EACH),
        # replays are drawn: within their chance, and none
        (ACER_SETTINGS, 300 * ACER_SETTINGS.batch_size, 1500 - 3 * 39, ''),
        (ACER_SETTINGS, 10 * ACER_SETTINGS.batch_size, 10, '10 updates'),
    ],
    ids=lambda x: getattr(x, 'algorithm', str(x)),
)
def test_a_library_that_makes_too_few_updates_is_not_measured(settings, steps, updates, wanted):
    if not wanted:
        return measure.check_updates(settings, steps, updates)
    with pytest.raises(SystemExit, match=wanted):
        measure.check_updates(settings, steps, updates)


def test_operations_of_the_nature_cnn_by_hand():
    first = 2 * 20 * 20 * 32 * 8 * 8 * 4
    rest = 2 * (9 * 9 * 64 * 4 * 4 * 32 + 7 * 7 * 64 * 3 * 3 * 64 + 3136 * 512 + 512 * 7)
    forward, training = flops.nature_cnn_flops(n_actions=6)
    assert (forward, training) == (first + rest, 2 * first + 3 * rest)
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
    ddpg = replace(tiny, algorithm='ddpg')
    assert flops.update_flops(ddpg, 3, 2) == 500 + critic + actor
    td3 = replace(tiny, algorithm='td3', policy_delay=4)
    assert flops.update_flops(td3, 3, 2) == 500 + 2 * critic + actor / 4
    # 20 updates in half a second, on a machine that could do ten times as much
    peak = 10 * 20 * (500 + critic + actor) / 0.5
    assert flops.update_share(ddpg, 3, 2, updates=20, seconds=0.5, peak=peak) == pytest.approx(0.1)


# ----------------------------------------------------------------------------------------------------------- measuring


def result(steps: float = 1000.0, seconds: float = 1.0, **more: object) -> dict:
    return {'steps': steps, 'seconds': seconds, 'rss_mb': 100.0, **more}


def test_ratios_are_taken_pair_by_pair_and_leave_out_what_is_missing():
    # the machine is three times slower in the second repeat: the ratio does not see it
    ours = tables.rates([result(4000), result(4000, 3.0), None, result(9000)])
    theirs = tables.rates([result(1000), result(1000, 3.0), result(1), None])
    assert tables.ratios(ours, theirs) == pytest.approx([4, 4])


def test_a_speed_table():
    case = Case('c', 'A case', 'speed', PPO, (SB3, replace(XAGENTS, floor=4)), note='The note.')
    # ours has two threads at work
    ours = [result(rate, processor_seconds=2.0, parts={'learn': 0.25, 'env': 0.5}) for rate in (5000, 8000, 6000)]
    rows = {BASELINE: [result(rate, processor_seconds=1.0) for rate in (1000, 1000, 2000)], 'xagents': ours}
    outcome = {label: {'results': row, 'problem': None} for label, row in rows.items()}
    text = tables.render(case, outcome, MACHINE, 'the command')
    # the ratios are 5, 8 and 3; the ratio of the medians would be 6
    assert cells(text, 'xagents') == [
        'xagents', '6 000 (5 000 to 8 000)', '5.00 (3.00 to 8.00)', '2.50 (1.50 to 4.00)', '4',
        'learn 25 %, env 50 %', '100 (100 to 100)'
    ]  # fmt: skip
    assert text.index('| xagents') < text.index('- The note.') < text.index('2026-01-02, a CPU, 2 cores')


def test_the_script_measures_in_turn_and_a_failure_stops_only_its_own_row(tmp_path, monkeypatch):
    """The libraries are programs that say that they are as fast as their seed."""
    page, results, pythons = tmp_path / 'page.md', tmp_path / 'results.json', {}
    page.write_text('# Mine\n<!-- benchmark ppo-cartpole -->\nold\n<!-- end of benchmark ppo-cartpole -->\nbelow\n')
    found = "print(json.dumps({'steps': 1000 * job['settings']['seed'], 'seconds': 1.0, 'rss_mb': 100.0}))"
    for peer, body in {'sb3': found, 'sbx': "sys.exit('the reason')", 'xagents': found}.items():
        pythons[peer] = script(tmp_path / peer, body)
    case = Case(
        'ppo-cartpole', 'A case', 'speed', PPO, (SB3, replace(SB3, label='SBX', peer='sbx'), XAGENTS), seed_step=1
    )
    monkeypatch.setattr(harness, 'find_cases', lambda *_: [case])
    monkeypatch.setattr(harness.signal, 'signal', lambda *_: None)
    quick = ['--cache', str(tmp_path / 'cache'), '--python', *(f'{peer}={path}' for peer, path in pythons.items())]
    words = ['--repeats', '2', '--docs', str(page), '--results', str(results)]
    assert harness.main([*words, *quick]) == 0
    ((_, kept),) = json.loads(results.read_text()).items()
    rows = kept['ppo-cartpole']['rows']
    assert [[row and row['steps'] for row in rows[run.label]['results']] for run in case.runs] == [
        [1000, 2000], [None, None], [1000, 2000]
    ]  # fmt: skip
    assert harness.main(['--quick', *quick]) == 0 and not (tmp_path / 'cache').exists()
    text = page.read_text()
    assert text.startswith('# Mine\n<!--') and text.endswith('-->\nbelow\n') and 'old' not in text
    assert '- SBX: exit code 1: the reason' in text and cells(text, 'xagents')[1].startswith('1 500')


# ------------------------------------------------------------------------------------------------------------ machines

OTHER = {**MACHINE, 'cpu': 'another CPU', 'date': '2026-01-03'}
CASE = Case('c', 'A case', 'speed', PPO, (SB3, XAGENTS))


def table(ours: object, sbx: object = '', date: str = '2026-01-02') -> str:
    return (
        f'|  | steps/s | times {BASELINE} | promised |\n|---|---|---|---|\n| {BASELINE} | 1 000 |  |  |\n'
        f'| SBX | 2 000 (1 to 2) | {sbx} |  |\n| SBX, other | 9 | 9 |  |\n'
        f'| xagents | 5 000 (4 000 to 6 000) | {ours} |  |\n| xagents, x | 9 | 9 |  |\n\n{date}, made somewhere'
    )


def section(case: str, **machines: str) -> str:
    blocks = [f'#### {name}\n\n{text}' for name, text in machines.items()]
    text = '\n\n'.join([f'### Title of {case}', *blocks])
    return f'<!-- benchmark {case} -->\n{text}\n<!-- end of benchmark {case} -->\n'


def test_a_machine_writes_its_own_table_and_leaves_those_of_others(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('above\n<!-- benchmark c -->\n<!-- end of benchmark c -->\nbelow\n')
    for machine, text in ((MACHINE, 'first'), (OTHER, 'second'), ({**MACHINE, 'load': '9.0'}, 'third')):
        tables.write_case(page, CASE, machine, f'| {text} |\n\n- a note')
    assert page.read_text() == (
        'above\n<!-- benchmark c -->\n### A case\n\n#### a CPU, 2 cores\n\n| third |\n\n- a note\n\n'
        '#### another CPU, 2 cores\n\n| second |\n\n- a note\n<!-- end of benchmark c -->\nbelow\n'
    )
    # more cores are another machine
    tables.write_case(page, CASE, {**MACHINE, 'cores': '4'}, '| fourth |')
    assert list(tables.by_machine(tables.sections(page.read_text())['c'])) == [
        'a CPU, 4 cores', 'a CPU, 2 cores', 'another CPU, 2 cores'
    ]  # fmt: skip


def test_measurements_are_kept_by_machine_and_case(tmp_path):
    path = tmp_path / 'results.json'
    for case, machine, rows in (('a', MACHINE, 1), ('b', MACHINE, 2), ('a', OTHER, 3), ('a', MACHINE, 4)):
        harness.keep(path, replace(CASE, name=case), machine, {'rows': rows})
    assert json.loads(path.read_text()) == {
        'a CPU, 2 cores': {'a': {'rows': 4}, 'b': {'rows': 2}},
        'another CPU, 2 cores': {'a': {'rows': 3}},
    }


def test_a_page_in_short(tmp_path):
    page, readme, picture = (tmp_path / name for name in ('page.md', 'README.md', 'img/speed.png'))
    once = table('3.00', date='2026-01-01').replace('made', 'measured once, made')
    page.write_text(
        '<!-- benchmark machines -->\n<!-- end of benchmark machines -->\n'
        + section('a', One=table('5.00 (4.00 to 6.00)', '2.00 (1 to 2)'), Two=table('8.00', date='2026-01-09'))
        + section('b', One=once)
        # without a baseline there is nothing to compare with
        + section('c', Two=table(''))
        + section('empty')
    )
    readme.write_text('<!-- benchmark speed -->\nold\n<!-- end of benchmark speed -->\n')
    summary.write(page, readme, picture)
    shown = readme.read_text()
    # of the machine with most cases, though the other one is newer; the first of ours, beside the first of theirs
    assert cells(shown, 'Title of a') == [
        'Title of a',
        '5 000 steps/s',
        '5.00',
        '2.50',
        "`make bench CASES='--only a'`",
    ]
    assert cells(shown, 'Title of b')[2:4] == ['3.00', '']
    assert '2026-01-01 to 2026-01-02, One; measured once: `b`.' in shown and shown.count('Title of') == 2
    assert cells(page.read_text(), 'Title of a')[1:] == ['5 000 steps/s', '5.00', '2.50', '5 000 steps/s', '8.00', '']
    assert cells(page.read_text(), 'Title of b')[4:] == ['–', '', '']
    # the newest of those with as many cases
    page.write_text(page.read_text() + section('d', Two=table('9.00')))
    summary.write(page, readme, picture)
    assert [line.split(' |')[0] for line in readme.read_text().splitlines() if 'Title' in line] == [
        '| Title of a', '| Title of d'
    ]  # fmt: skip
    with Image.open(picture) as drawn:
        assert 'Title of d' in drawn.text['Description']
    page.write_text(section('empty'))
    picture.unlink()
    summary.write(page, readme, picture)
    assert 'Title of d' in readme.read_text() and not picture.exists()


def test_a_wrong_case_is_refused_before_anything_is_made(tmp_path, capsys):
    page, cache = tmp_path / 'page.md', tmp_path / 'cache'
    page.write_text('as it was')
    with pytest.raises(SystemExit, match='2'):
        harness.main(['--only', 'ppo-cartpol3', '--docs', str(page), '--cache', str(cache)])
    said = capsys.readouterr().err.splitlines()[-1]
    assert '--only: got ppo-cartpol3, admits ppo-cartpole, ' in said and said.endswith('(did you mean ppo-cartpole?)')
    assert page.read_text() == 'as it was' and not cache.exists()
