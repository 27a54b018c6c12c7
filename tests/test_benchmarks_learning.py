"""The learning benchmark's settings, kept results, processes and table; nothing is trained."""

import json
import sys
import time

import pytest

from benchmarks import learning
from benchmarks.learning_cases import CASES, LearningCase, find_cases, translate
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


def test_images_keep_the_shipped_network_and_no_name_is_lost():
    assert not {'net', 'activation'} & translate('dqn', 1000, {}, images=True).keys()
    with pytest.raises(ValueError, match='dqn: no translation of use_sde'):
        translate('dqn', 1000, {'use_sde': True})


def test_the_cases_that_are_promised():
    asked = {case.name: (case.steps, case.floor, case.goal) for case in CASES if not case.listed}
    assert asked == {
        'dqn-cartpole': (50_000, 475, 500),
        'dqn-mountaincar': (120_000, -130, -101),
        'dqn-lunarlander': (100_000, 110, 154),
        'dqn-lunarlander-linear': (100_000, 110, 154),
        'td3-pendulum': (20_000, -145, -152),
        'ddpg-pendulum': (20_000, -145, -152),
    }
    assert len(BY_NAME) == len(CASES)
    assert find_cases(None) == find_cases(['dqn', 'td3', 'ddpg']) == [case for case in CASES if not case.listed]
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
