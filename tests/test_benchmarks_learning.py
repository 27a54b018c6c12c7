"""The learning benchmark's settings, kept results, processes and table; nothing is trained."""

import json
import sys
import time

import pytest

from benchmarks import learning
from benchmarks.learning_cases import CASES, LearningCase, find_cases
from benchmarks.translation import left_out, translate
from xagents.cli import parse
from xagents.commands import find_command
from xagents.options import describe
from xagents.registry import find_agent

BY_NAME = {case.name: case for case in CASES}
RUN = {
    'mean': 100.0, 'seconds': 120.0, 'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'jobs': 2,
    'versions': {'xagents': '2.0'},
}  # fmt: skip
TINY = LearningCase('dqn-tiny', 'dqn', 'Tiny-v0', 1000, {'lr': 0.1, 'net': [8, 4], 'huber': True}, 90, 110)


def kept(case: LearningCase, **means: float) -> dict:
    runs = {seed.removeprefix('seed'): {**RUN, 'mean': mean} for seed, mean in means.items()}
    return {case.name: {'settings': learning.settings_of(case), 'runs': runs}}


def cells(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.split('|')[1:-1]]


def test_a_dqn_entry_becomes_options():
    entry = {
        'learning_rate': 0.01, 'batch_size': 64, 'buffer_size': 700, 'learning_starts': 0, 'gamma': 0.9,
        'target_update_interval': 250, 'train_freq': 4, 'gradient_steps': -1, 'exploration_fraction': 0.12,
        'exploration_final_eps': 0.1, 'net_arch': (256, 128),
    }  # fmt: skip
    assert translate('dqn', 100_000, entry) == {
        'lr': 0.01, 'buffer_batch_size': 64, 'buffer_max_size': 700, 'buffer_initial_size': 64, 'gamma': 0.9,
        'target_sync_steps': 250, 'train_frequency': 4, 'gradient_steps': -1, 'epsilon_decay_steps': 12_000,
        'epsilon_start': 1.0, 'epsilon_end': 0.1, 'grad_norm': 10.0, 'huber': True, 'opt_epsilon': 1e-8,
        'net': [256, 128], 'activation': 'relu',
    }  # fmt: skip


def test_an_actor_critic_entry_becomes_options_with_the_defaults_of_its_source():
    options = translate('td3', 300_000, {'noise_type': 'ornstein-uhlenbeck', 'noise_std': 0.5})
    assert options == {
        'lr': 1e-3, 'buffer_batch_size': 256, 'buffer_max_size': 1_000_000, 'buffer_initial_size': 256, 'gamma': 0.99,
        'train_frequency': 1, 'gradient_steps': 1, 'tau': 0.005, 'policy_delay': 2, 'policy_noise_coef': 0.2,
        'noise_clip': 0.5, 'noise': 'ornstein-uhlenbeck', 'step_noise_coef': 0.5, 'opt_epsilon': 1e-8,
        'net': [400, 300], 'activation': 'relu',
    }  # fmt: skip
    ddpg = translate('ddpg', 20_000, {'learning_starts': 10_000})
    assert ddpg['buffer_initial_size'] == 10_000 and ddpg['noise'] == 'gaussian'
    assert not {'policy_delay', 'policy_noise_coef', 'noise_clip'} & ddpg.keys()


def test_a_trpo_entry_becomes_options_with_the_defaults_of_its_source():
    assert translate('trpo', 1000, {}) == {
        'n_envs': 1, 'n_steps': 2048, 'gamma': 0.99, 'lam': 0.95, 'normalize_advantage': True, 'minibatch_size': 128,
        'critic_iterations': 10, 'cg_iterations': 15, 'cg_damping': 0.1, 'actor_iterations': 10, 'max_kl': 0.01,
        'fvp_n_steps': 1, 'lr': 1e-3, 'optimizer': 'adam', 'opt_epsilon': 1e-5, 'net': [64, 64], 'activation': 'tanh',
    }  # fmt: skip
    entry = {
        'n_envs': 2, 'n_steps': 64, 'gamma': 0.9, 'gae_lambda': 0.8, 'normalize_advantage': False, 'batch_size': 32,
        'n_critic_updates': 3, 'cg_max_steps': 25, 'cg_damping': 0.01, 'line_search_max_iter': 5, 'target_kl': 0.04,
        'sub_sampling_factor': 2, 'learning_rate': 0.01, 'net_arch': (32, 16), 'activation': 'relu', 'log_std_init': -2,
    }  # fmt: skip
    assert translate('trpo', 1000, entry) == {
        'n_envs': 2, 'n_steps': 64, 'gamma': 0.9, 'lam': 0.8, 'normalize_advantage': False, 'minibatch_size': 32,
        'critic_iterations': 3, 'cg_iterations': 25, 'cg_damping': 0.01, 'actor_iterations': 5, 'max_kl': 0.04,
        'fvp_n_steps': 2, 'lr': 0.01, 'optimizer': 'adam', 'opt_epsilon': 1e-5, 'net': [32, 16], 'activation': 'relu',
        'log_std_init': -2,
    }  # fmt: skip


def test_an_a2c_entry_becomes_options_with_the_defaults_of_its_source():
    plain = {
        'n_envs': 1, 'n_steps': 5, 'gamma': 0.99, 'lam': 1.0, 'entropy_coef': 0.0, 'value_loss_coef': 0.5,
        'grad_norm': 0.5, 'normalize_advantage': False, 'lr': 7e-4, 'optimizer': 'rmsprop', 'opt_epsilon': 1e-10,
        'net': [64, 64], 'activation': 'tanh',
    }  # fmt: skip
    assert translate('a2c', 1000, {}) == plain
    entry = {'n_envs': 8, 'learning_rate': 'lin_7e-4', 'normalize': True, 'use_rms_prop': False, 'vf_coef': 0.4}
    assert translate('a2c', 1000, entry) == {
        **plain, 'n_envs': 8, 'lr': 7e-4, 'lr_schedule': 'linear', 'normalize_obs': True, 'normalize_reward': True,
        'optimizer': 'adam', 'opt_epsilon': 1e-5, 'value_loss_coef': 0.4,
    }  # fmt: skip


def test_what_xagents_does_not_have_is_left_out_and_the_table_says_so():
    entry = {'use_sde': True, 'sde_sample_freq': 4}
    assert translate('trpo', 1000, entry) == translate('trpo', 1000, {})
    assert left_out('trpo', entry) == 'no gSDE'
    assert left_out('a2c', {**entry, 'ortho_init': False}) == 'no gSDE, orthogonal initial weights'
    assert left_out('a2c', {'use_sde': False, 'ortho_init': True, 'n_steps': 8}) == ''
    assert BY_NAME['trpo-pendulum'].changed == BY_NAME['trpo-mountaincarcontinuous'].changed == 'no gSDE'
    assert BY_NAME['trpo-lunarlander'].changed == ''


def test_images_keep_the_shipped_network_and_no_name_is_lost():
    assert not {'net', 'activation'} & translate('dqn', 1000, {}, images=True).keys()
    assert not {'net', 'activation'} & translate('a2c', 1000, {}, images=True).keys()
    with pytest.raises(ValueError, match='dqn: no translation of use_sde'):
        translate('dqn', 1000, {'use_sde': True})
    with pytest.raises(ValueError, match='trpo: no translation of line_search_shrinking_factor, vf_coef'):
        translate('trpo', 1000, {'vf_coef': 0.5, 'line_search_shrinking_factor': 0.5})


def test_the_cases_that_are_promised():
    asked = {case.name: (case.steps, case.floor, case.goal) for case in CASES if not case.listed}
    assert asked == {
        'dqn-cartpole': (50_000, 475, 500),
        'dqn-mountaincar': (120_000, -130, -101),
        'dqn-lunarlander': (100_000, 110, 154),
        'dqn-lunarlander-linear': (100_000, 110, 154),
        'td3-pendulum': (20_000, -145, -152),
        'ddpg-pendulum': (20_000, -145, -152),
        'trpo-cartpole': (100_000, 475, 500),
        'trpo-mountaincarcontinuous': (50_000, 88, 92.5),
        'trpo-mountaincarcontinuous-noise': (50_000, 88, 92.5),
        'trpo-pendulum': (100_000, -200, -174.6),
        'trpo-lunarlander': (200_000, 100, 133.2),
        'trpo-lunarlander-normalized': (200_000, 100, 133.2),
        'trpo-halfcheetah': (1_000_000, 1500, 1785.5),
        'a2c-cartpole': (500_000, None, 500),
        'a2c-acrobot': (500_000, None, -83.4),
        'a2c-lunarlander': (200_000, None, 155.8),
        'acer-cartpole': (200_000, 475, None),
        'acer-acrobot': (500_000, -90, -83),
        'acer-lunarlander': (200_000, None, None),
    }
    assert len(BY_NAME) == len(CASES)
    every = [case for case in CASES if not case.listed]
    assert find_cases(None) == find_cases(['dqn', 'td3', 'ddpg', 'trpo', 'a2c', 'acer']) == every
    # ACER is compared with A2C after as many steps
    assert BY_NAME['acer-lunarlander'].steps == BY_NAME['a2c-lunarlander'].steps
    assert BY_NAME['trpo-halfcheetah'].seeds == (1,)
    assert find_cases(['td3-mountaincarcontinuous'])[0].seeds == (1,)
    with pytest.raises(ValueError, match='got ppo, admits dqn-cartpole'):
        find_cases(['ppo'])


@pytest.mark.parametrize('name', BY_NAME)
def test_a_command_says_what_is_trained(name):
    case = BY_NAME[name]
    agent = describe(find_agent(case.agent).options)
    for option in case.options.keys() & agent.keys():
        assert agent[option].check(case.options[option]) == case.options[option]
    words = case.command(3).split()
    assert words[:3] == ['xagents', 'train', case.agent]
    _, given = parse(find_command('train'), case.agent, words[3:])
    assert given == {**case.options, 'env': case.env, 'max_steps': case.steps, 'seed': 3}


@pytest.mark.parametrize('name', ['dqn-cartpole', 'trpo-cartpole', 'acer-cartpole'])
def test_a_smoke_run_learns_within_its_few_steps(name):
    short = learning.shortened(BY_NAME[name])
    assert short.steps > short.options.get('buffer_initial_size', 0)
    assert short.options.keys() == BY_NAME[name].options.keys()


def test_a_switch_that_is_off_is_typed_as_no():
    assert '--no-huber' in LearningCase('a', 'dqn', 'b', 1, {'huber': False}).command(1)


def test_the_table(monkeypatch):
    other = LearningCase('td3-other', 'td3', 'Other-v3', 20_000, floor=-145, goal=-152, scored_on='Other-v2')
    waiting = LearningCase('td3-waiting', 'td3', 'Waiting-v0', 10)
    monkeypatch.setattr(learning, 'CASES', (TINY, other, waiting))
    # as JSON gives it back, seeds in no order
    results = json.loads(json.dumps({**kept(TINY, seed10=80, seed2=100, seed1=120), **kept(other, seed1=-150)}))
    text = learning.render(results)
    assert cells(text, '| DQN') == [
        'DQN', 'Tiny-v0', '1 000', '120.0, 100.0, 80.0', '100.0', '90', '110', 'asked yes, goal no', '2.0'
    ]  # fmt: skip
    assert cells(text, '| TD3')[4:8] == ['-150.0', '-145', '-152 (Other-v2)', 'asked no, goal yes']
    assert (
        '- DQN, Tiny-v0: `xagents train dqn --env Tiny-v0 --max-steps 1000 --lr 0.1 --net 8 4 --huber --seed 1`, '
        'and with --seed 2, 10'
    ) in text
    assert 'Waiting' not in text
    assert text.count('2026-01-02, a CPU, 2 cores, 2 runs at a time') == 1
    assert learning.render({}) == 'Nothing has been measured yet.'


def test_results_are_kept_one_by_one_and_those_of_other_settings_are_not_mixed_in(tmp_path):
    path = tmp_path / 'folder' / 'learning.json'
    learning.keep(path, TINY, 1, RUN)
    learning.keep(path, TINY, 2, RUN)
    assert sorted(learning.runs_of(TINY, learning.read(path))) == ['1', '2']
    longer = LearningCase(TINY.name, TINY.agent, TINY.env, 2000, TINY.options)
    assert learning.runs_of(longer, learning.read(path)) == {}
    learning.keep(path, longer, 3, RUN)
    assert sorted(learning.runs_of(longer, learning.read(path))) == ['3']


def script(tmp_path, body: str) -> str:
    """A program that takes the place of Python: it gets `-m MODULE JOB`."""
    path = tmp_path / 'python'
    path.write_text(f'#!{sys.executable}\nimport json, os, sys, time\njob = json.loads(sys.argv[3])\n{body}\n')
    path.chmod(0o755)
    return str(path)


def test_trainings_run_side_by_side_and_one_that_fails_stops_no_other(tmp_path):
    python = script(
        tmp_path,
        "if job['seed'] == 2:\n    sys.exit('the reason')\nprint('noise')\nprint(json.dumps({'mean': job['seed']}))\n"
        "print('a warning', file=sys.stderr)",
    )
    trainings = [learning.Training(TINY, seed) for seed in (1, 2, 3)]
    found = {training.seed: result for training, result in learning.train_all(trainings, 2, python)}
    assert found == {1: {'mean': 1}, 2: 'exit code 1: the reason', 3: {'mean': 3}}


def test_a_stop_ends_the_trainings_under_way(tmp_path):
    python = script(tmp_path, "if job['seed'] == 2:\n    time.sleep(60)\nprint(json.dumps({'mean': 1}))")
    trainings = [learning.Training(TINY, seed) for seed in (1, 2)]
    both, start = list(trainings), time.perf_counter()
    stream = learning.train_all(trainings, 2, python)
    assert next(stream)[0].seed == 1
    stream.close()
    assert time.perf_counter() - start < 30
    assert all(training.process.poll() is not None for training in both)
    assert not any(learning.Path(training.folder.name).exists() for training in both)


def test_what_is_kept_is_not_trained_again_and_the_page_is_written(tmp_path, monkeypatch):
    page, results = tmp_path / 'page.md', tmp_path / 'learning.json'
    page.write_text('<!-- benchmark learning -->\n<!-- end of benchmark learning -->\n')
    case = BY_NAME['dqn-cartpole']
    learning.keep(results, case, 2, RUN)
    asked = []

    def train_all(waiting, jobs, python):
        for training in waiting:
            asked.append((training.case.name, training.seed))
            yield training, 'broken' if training.seed == 3 else {**RUN, 'mean': 500.0}

    monkeypatch.setattr(learning, 'train_all', train_all)
    monkeypatch.setattr(learning.signal, 'signal', lambda *_: None)
    files = ['--results', str(results), '--page', str(page)]
    assert learning.main(['--only', 'dqn-cartpole', *files]) == 1
    assert asked == [('dqn-cartpole', 1), ('dqn-cartpole', 3)]
    assert '500.0, 100.0' in page.read_text()
    assert sorted(learning.runs_of(case, learning.read(results))) == ['1', '2']
    page.write_text('<!-- benchmark learning -->\n<!-- end of benchmark learning -->\n')
    assert learning.main(['--docs', *files]) == 0
    assert '500.0, 100.0' in page.read_text()
    assert len(asked) == 2


def test_the_page_has_a_place_for_the_table():
    page = learning.PAGE.read_text()
    assert '<!-- benchmark learning -->' in page.partition('<!-- end of benchmark learning -->')[0]
