"""The learning benchmark's settings, kept results and runs, processes and table."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import yaml

from benchmarks.learning import run as learning
from benchmarks.learning.cases import CASES, LearningCase
from benchmarks.workers import learning_worker
from tests.benchmarks.common import cells, script
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.factory import presets
from xagents.factory.load import load
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
    # no score of a preset is written of settings as they were published
    assert not any(case.digest for case in CASES if case.name.endswith('-published'))
    # ACER is compared with A2C after as many steps
    assert BY_NAME['acer-lunarlander'].steps == BY_NAME['a2c-lunarlander'].steps


def test_scores_of_presets_are_written_of_their_kept_results_alone(tmp_path):
    case, other = BY_NAME['dqn-lunarlander'], BY_NAME['dqn-lunarlander-published']
    results = {**kept(case, seed10=200, seed2=260.125, seed1=240), **kept(other, seed1=1)}
    results[case.name]['runs']['2'] |= {'date': '2026-03-04', 'episodes': 50}

    def written(results, name='scores.yaml'):
        learning.write_scores(tmp_path / name, json.loads(json.dumps(results)))
        return yaml.safe_load((tmp_path / name).read_text())

    expected = {
        'median': 240.0, 'means': [240.0, 260.12, 200.0], 'episodes': 50, 'date': '2026-03-04', 'version': '2.0',
        'digest': presets.find_preset('dqn', 'LunarLander-v3').digest,
    }  # fmt: skip
    assert written(results) == {'dqn': {'LunarLander-v3': expected}}
    # what stands there of the same settings stays, and nothing is written of others
    results[case.name]['settings']['options']['lr'] = 1.0
    assert written({})['dqn']['LunarLander-v3'] == expected and not written(results, 'others.yaml')


def test_a_command_says_what_is_trained():
    switched_off = LearningCase('a', 'dqn', 'CartPole-v1', 1, {'huber': False})
    assert '--no-huber' in switched_off.command(1)
    for case in (*CASES, switched_off):
        agent = describe(find_agent(case.agent).options)
        for option in case.options.keys() & agent.keys():
            assert agent[option].check(case.options[option]) == case.options[option]
        *start, agent_id = case.command(3).split()[:3]
        assert (start, agent_id) == (['xagents', 'train'], case.agent)
        _, given = parse(find_command('train'), case.agent, case.command(3).split()[3:])
        assert given == {**case.options, 'env': case.env, 'max_steps': case.steps, 'seed': 3}, case.name
        short = learning.shortened(case)  # a smoke run learns within its few steps
        assert short.steps > short.options.get('buffer_initial_size', 0)
        assert short.options.keys() == case.options.keys()


def test_the_table(monkeypatch):
    other = LearningCase('td3-other', 'td3', 'Other-v3', 20_000, floor=-145, goal=-152, scored_on='Other-v2')
    waiting = LearningCase('td3-waiting', 'td3', 'Waiting-v0', 10)
    monkeypatch.setattr(learning, 'CASES', (TINY, other, waiting))
    # as JSON gives it back, seeds in no order
    results = json.loads(json.dumps({**kept(TINY, seed10=80, seed2=100, seed1=120), **kept(other, seed1=-150)}))
    text = learning.render(results)
    assert cells(text, 'DQN') == [
        'DQN', 'Tiny-v0', '1 000', '120.0, 100.0, 80.0', '100.0', '90', '110', 'asked yes, goal no', '2.0'
    ]  # fmt: skip
    assert cells(text, 'TD3')[4:8] == ['-150.0', '-145', '-152 (Other-v2)', 'asked no, goal yes']
    assert f'`{TINY.command(1)}`, and with --seed 2, 10' in text
    assert 'Waiting' not in text and text.count('2026-01-02, a CPU, 2 cores, 2 runs at a time') == 1
    assert learning.render({}) == 'Nothing has been measured yet.'
    # rows of results that are kept elsewhere stay, as long as their settings ship
    assert learning.render({}, text) == text
    newer = learning.render(kept(other, seed1=-140), text)
    assert cells(newer, 'TD3')[3] == '-140.0' and cells(newer, 'DQN') == cells(text, 'DQN')
    assert newer.count('2026-01-02, a CPU') == 1
    monkeypatch.setattr(learning, 'CASES', (replace(TINY, options={**TINY.options, 'gamma': 0.5}), other))
    assert 'Tiny' not in learning.render({}, text) and 'Other' in learning.render({}, text)


def test_what_is_kept_is_not_trained_again_and_the_page_is_written(tmp_path, monkeypatch):
    page, results = tmp_path / 'page.md', tmp_path / 'learning.json'
    empty = '<!-- benchmark learning -->\n<!-- end of benchmark learning -->\n'
    page.write_text(empty)
    case = BY_NAME['dqn-cartpole']
    learning.keep(results, replace(case, steps=1), 1, RUN)  # of other settings: not mixed with these
    learning.keep(results, case, 2, RUN)
    asked = []

    def train_all(waiting, jobs, python):
        for training in waiting:
            asked.append((training.case.name, training.seed))
            yield training, 'broken' if training.seed == 3 else {**RUN, 'mean': 500.0}

    monkeypatch.setattr(learning, 'train_all', train_all)
    files = ['--results', str(results), '--page', str(page), '--scores', str(tmp_path / 'scores.yaml')]
    files += ['--runs', str(tmp_path / 'runs')]
    assert learning.main(['--only', 'dqn-cartpole', *files]) == 1
    assert asked == [('dqn-cartpole', 1), ('dqn-cartpole', 3)]
    assert '500.0, 100.0' in page.read_text()
    assert yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['CartPole-v1']['means'] == [500.0, 100.0]
    assert sorted(learning.runs_of(case, learning.read(results))) == ['1', '2']
    page.write_text(empty)
    assert learning.main(['--docs', *files]) == 0
    assert '500.0, 100.0' in page.read_text() and len(asked) == 2
    # what is to be learned anew is forgotten first, so that a stop leaves nothing of it to be taken for a result
    folder = learning.Training(case, 3, tmp_path / 'runs').folder
    folder.mkdir(parents=True)
    assert learning.main(['--only', 'dqn-cartpole', '--seeds', '2', '3', '--again', *files]) == 1
    assert asked[2:] == [('dqn-cartpole', 2), ('dqn-cartpole', 3)] and not folder.exists()
    assert learning.runs_of(case, learning.read(results))['2']['mean'] == 500.0


def waited_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_a_training_that_is_killed_goes_on_in_its_folder(tmp_path):
    options = {'n_envs': 4, 'n_steps': 64, 'minibatch_size': 64, 'net': [8], 'normalize_obs': True}
    case = LearningCase('ppo-tiny', 'ppo', 'CartPole-v1', 20_000, options)
    training = learning.Training(case, 1, tmp_path, 5)
    other = learning.Training(replace(case, options={**options, 'lr': 0.1}), 1, tmp_path)
    assert training.folder != other.folder != learning.Training(other.case, 2, tmp_path).folder
    training.start(sys.executable)
    waited_for((training.folder / 'checkpoints/last').exists)
    os.kill(training.process.pid, signal.SIGKILL)
    assert waited_for(training.result).startswith('exit code -9')
    training.start(sys.executable)
    found = waited_for(training.result)
    assert 20_000 <= found['steps'] < 20_000 + 4 * 64
    (resumed,) = yaml.safe_load((training.folder / 'config.yaml').read_text())['about']['resumed']
    assert 0 < resumed['step'] < 20_000
    # the score is the last weights'; beside it stand the same weights sampling, and the best ones
    for checkpoint, stochastic, name in (('last', False, 'mean'), ('last', True, 'sampled'), ('best', False, 'best')):
        played = load(training.folder, checkpoint).evaluate(5, stochastic, seed=learning_worker.EVALUATION_SEED)
        assert found[name] == played['mean']


def test_a_training_ends_with_its_driver_however_that_ends(tmp_path):
    python = script(tmp_path / 'python', "sys.stdin.read()\nopen(job['folder'], 'w').write(str(job['seed']))")
    lines = [
        'import pathlib, sys, time',
        'from benchmarks.learning.run import CASES, Training',
        'training = Training(CASES[0], 7, pathlib.Path(sys.argv[1]))',
        'training.start(sys.argv[2])',
        'print(training.folder, flush=True)',
        'time.sleep(60)',
    ]
    driver = subprocess.Popen(
        [sys.executable, '-c', '\n'.join(lines), str(tmp_path / 'runs'), python],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    folder = learning.Path(driver.stdout.readline().strip())
    assert not folder.exists()
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert waited_for(lambda: folder.exists() and folder.read_text()) == '7'
