"""The learning benchmark's settings, kept results, processes and table; nothing is trained."""

import json
import sys
import time

import pytest
import yaml

from benchmarks import learning
from benchmarks.learning_cases import CASES, LearningCase, find_cases
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.factory import presets
from xagents.options.declaration import describe
from xagents.registry.agents import agents, find_agent

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


def test_the_cases_that_are_promised():
    asked = {case.name: (case.steps, case.floor, case.goal) for case in CASES if not case.listed}
    assert asked == {
        'dqn-cartpole': (50_000, 475, 500),
        'dqn-mountaincar': (120_000, -130, -100.8),
        'dqn-lunarlander': (100_000, 110, 154.4),
        'dqn-lunarlander-published': (100_000, 110, 154.4),
        'td3-pendulum': (20_000, -145, -151.9),
        'ddpg-pendulum': (20_000, -145, -152.1),
        'trpo-cartpole': (100_000, 475, 500),
        'trpo-mountaincarcontinuous': (50_000, 88, 92.5),
        'trpo-mountaincarcontinuous-published': (50_000, 88, 92.5),
        'trpo-pendulum': (100_000, -200, -174.6),
        'trpo-lunarlander': (200_000, 100, 133.2),
        'trpo-lunarlander-published': (200_000, 100, 133.2),
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
    assert find_cases(None) == find_cases(['a2c', 'acer', 'ddpg', 'dqn', 'td3', 'trpo']) == every
    # ACER is compared with A2C after as many steps
    assert BY_NAME['acer-lunarlander'].steps == BY_NAME['a2c-lunarlander'].steps
    assert BY_NAME['trpo-halfcheetah'].seeds == (1,)
    with pytest.raises(ValueError, match='got ppo, admits a2c-cartpole'):
        find_cases(['ppo'])


def test_every_preset_is_a_case_and_each_atari_game_one_of_its_own():
    found = {(case.agent, case.env): case for case in CASES if case.digest}
    for agent_id in agents:
        for preset in presets.list_presets(agent_id):
            for one in map(preset.of_game, preset.games) if preset.games else [preset]:
                case = found.pop((agent_id, one.env))
                assert (case.steps, case.options) == (one.max_steps, one.options)
                # nobody has published ACER's: A2C's stands in
                assert case.goal == one.published or case.name == 'acer-acrobot'
    assert not found


def test_published_settings_stand_beside_those_that_were_found_to_be_better():
    lander, published = BY_NAME['dqn-lunarlander'].options, BY_NAME['dqn-lunarlander-published'].options
    assert lander == {**published, 'lr_schedule': 'linear'}
    lander, published = BY_NAME['trpo-lunarlander'].options, BY_NAME['trpo-lunarlander-published'].options
    assert lander == {**published, 'normalize_obs': True, 'normalize_reward': True, 'max_kl': 0.02}
    assert published['max_kl'] == 0.01
    car, published = (BY_NAME[f'trpo-mountaincarcontinuous{end}'].options for end in ('', '-published'))
    assert car == {**published, 'log_std_init': 1.0, 'n_steps': 1024} and published['n_steps'] == 2048
    assert not any(case.digest for case in CASES if case.name.endswith('-published'))


def test_scores_of_presets_are_written_of_their_kept_results_alone(tmp_path):
    case, other = BY_NAME['dqn-lunarlander'], BY_NAME['dqn-lunarlander-published']
    results = {**kept(case, seed10=200, seed2=260.125, seed1=240), **kept(other, seed1=1)}
    results[case.name]['runs']['2'] |= {'date': '2026-03-04', 'episodes': 50}
    learning.write_scores(tmp_path / 'scores.yaml', json.loads(json.dumps(results)))
    assert yaml.safe_load((tmp_path / 'scores.yaml').read_text()) == {
        'dqn': {
            'LunarLander-v3': {
                'median': 240.0, 'means': [240.0, 260.12, 200.0], 'episodes': 50, 'date': '2026-03-04',
                'version': '2.0', 'digest': presets.find_preset('dqn', 'LunarLander-v3').digest,
            }
        }
    }  # fmt: skip
    # of other settings
    results[case.name]['settings']['options']['lr'] = 1.0
    learning.write_scores(tmp_path / 'others.yaml', results)
    assert not yaml.safe_load((tmp_path / 'others.yaml').read_text())
    # what stands there of the same settings stays
    learning.write_scores(tmp_path / 'scores.yaml', {})
    assert yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['LunarLander-v3']['median'] == 240.0


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
    files = ['--results', str(results), '--page', str(page), '--scores', str(tmp_path / 'scores.yaml')]
    assert learning.main(['--only', 'dqn-cartpole', *files]) == 1
    assert asked == [('dqn-cartpole', 1), ('dqn-cartpole', 3)]
    assert '500.0, 100.0' in page.read_text()
    assert yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['CartPole-v1']['means'] == [500.0, 100.0]
    assert sorted(learning.runs_of(case, learning.read(results))) == ['1', '2']
    page.write_text('<!-- benchmark learning -->\n<!-- end of benchmark learning -->\n')
    assert learning.main(['--docs', *files]) == 0
    assert '500.0, 100.0' in page.read_text()
    assert len(asked) == 2


def test_the_page_has_a_place_for_the_table():
    page = learning.PAGE.read_text()
    assert '<!-- benchmark learning -->' in page.partition('<!-- end of benchmark learning -->')[0]
