"""Populations: who copies whom, that neither jobs nor kills change anything, and what is refused."""

import contextlib
import dataclasses
import errno
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import types
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests.commands import execute
from xagents.checkpoints.progress import Progress
from xagents.checkpoints.run_directory import copy_run
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context
from xagents.processes import launch
from xagents.processes.child_process import ManagedProcess
from xagents.processes.serving import answer
from xagents.reports.population_files import Member, Population, lock_population, read_population
from xagents.tuning.evolution import Evolution, exploit, perturbed_value
from xagents.tuning.member import round_mean
from xagents.tuning.search import Bounds, Choices
from xagents.tuning.worker import HANDLERS

SCORES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(math.nan)), min_size=2, max_size=20)


@given(SCORES, st.floats(0, 0.5), st.integers(0, 99))
def test_the_worst_go_on_from_the_best_and_the_others_from_themselves(scores, share, seed):
    known = [s for s in scores if s is not None and not math.isnan(s)]
    if not known:
        with pytest.raises(ValueError, match='no member has a score'):
            exploit(scores, share, np.random.default_rng(seed))
        return
    parents = exploit(scores, share, np.random.default_rng(seed))
    count = min(max(1, round(share * len(scores))), len(scores) // 2) if share else 0
    copied = {i: parent for i, parent in enumerate(parents) if parent != i}
    failed = {i for i, s in enumerate(scores) if s is None or math.isnan(s)}
    assert failed <= copied.keys() and len(copied.keys() - failed) <= count
    for i, parent in copied.items():
        assert parent not in failed and parent not in copied
        assert sum(s > scores[parent] for s in known) < max(count, 1), 'a parent is among the best'
        if i not in failed:
            assert scores[i] <= scores[parent]


def test_settings_change_within_their_ranges():
    ranges = {'lr': Bounds(1e-4, 1e-2, True), 'epochs': Bounds(1, 20, False), 'net': Choices((8, 16, 32))}
    rng = np.random.default_rng(0)
    settings = {'lr': 1e-3, 'epochs': 10, 'net': 16}
    near = [Evolution(ranges, resample=0.0).explore(settings, rng) for _ in range(200)]
    assert {round(n['lr'], 9) for n in near} == {8e-4, 1.2e-3}
    assert {n['epochs'] for n in near} == {8, 12} and {n['net'] for n in near} == {8, 32}
    anew = [Evolution(ranges, resample=1.0).explore(settings, rng) for _ in range(400)]
    assert all(1e-4 <= n['lr'] <= 1e-2 and 1 <= n['epochs'] <= 20 for n in anew)
    assert sum(n['lr'] < 1e-3 for n in anew) == pytest.approx(200, abs=50), 'orders of magnitude are equally likely'
    some = [Evolution(ranges, resample=0.25).explore(settings, rng)['lr'] for _ in range(1000)]
    assert np.mean([round(lr, 9) in (8e-4, 1.2e-3) for lr in some]) == pytest.approx(0.75, abs=0.05)
    assert perturbed_value(ranges['lr'], 9e-3, 1.2) == 1e-2 and perturbed_value(ranges['net'], 32, 1.2) == 32
    assert type(perturbed_value(ranges['epochs'], 3, 1.2)) is int


def toy(share, seed, rounds=100, steps=4, rate=0.01):
    """The experiment of section 4.1 of the paper: Q = 1.2 - |θ|² is climbed by a surrogate, 1.2 - Σ h θ²."""
    rng = np.random.default_rng(seed)
    ranges = {'h0': Bounds(1e-9, 1.0, False), 'h1': Bounds(1e-9, 1.0, False)}
    evolution = Evolution(ranges, share, resample=0.25)
    members = [Member({'h0': 1.0, 'h1': 1e-9}), Member({'h0': 1e-9, 'h1': 1.0})]
    thetas = [np.full(2, 0.9), np.full(2, 0.9)]
    for _ in range(rounds):
        for theta, member in zip(thetas, members, strict=True):
            for _ in range(steps):
                theta -= rate * 2 * np.array([member.settings['h0'], member.settings['h1']]) * theta
        scored = [Member(m.settings, m.parent, 1.2 - float((t**2).sum())) for m, t in zip(members, thetas, strict=True)]
        members = evolution.next(scored, rng)
        thetas = [thetas[member.parent].copy() for member in members]
    return max(1.2 - float((theta**2).sum()) for theta in thetas)


def test_a_population_finds_what_no_member_finds_alone():
    assert toy(0.0, 0) == pytest.approx(1.2 - 0.81, abs=0.01)
    assert all(toy(0.5, seed) > 1.15 for seed in range(5))


# whole populations

OPTIONS = {'n_envs': 4, 'n_steps': 16, 'net': [8], 'lr': [1e-5, 1e-1], 'seed': 3, 'quiet': True}
OPTIONS |= {'population': 4, 'exploit_steps': 400, 'trial_steps': 1200, 'exploit': 0.25, 'final_episodes': 6}
# the same on a command line
FLAGS = '--n-envs 4 --n-steps 16 --net 8 --lr 1e-5 1e-1 --seed 3 '
FLAGS += '--population 4 --exploit-steps 400 --trial-steps 1200 --exploit 0.25 --final-episodes 6'


class WorkerHere(ManagedProcess):
    """Stands for a worker process, and does its jobs in this process."""

    code = 0

    def __init__(self, arguments, output, *_):
        self.say = lambda **message: output((self, json.dumps(message)))
        self.say(kind='ready')

    def write(self, line):
        answer(types.SimpleNamespace(send=self.say), HANDLERS, json.loads(line))

    def end(self, *_): ...

    request_exit = send_signal = end


@pytest.fixture(scope='module', autouse=True)
def here(small_agents):
    """Let members train in this process: no other knows these agents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, 'ChildProcess', WorkerHere)
        patch.setattr('keras.backend.clear_session', lambda: None)  # what frees memory takes a second a member
        patch.setattr('gc.collect', lambda: None)
        yield


def table(folder):
    """What rounds have come to, whether or not they are the last: no durations, and no episodes after the last one."""
    left_out = {'seconds': 0, 'final_mean': None}
    return [[{**dataclasses.asdict(m), **left_out} for m in members] for members in read_population(folder).rounds]


def final_means(folder):
    """The greedy means of the members after each round."""
    return [[member.final_mean for member in members] for members in read_population(folder).rounds]


def weights(folder):
    with contextlib.closing(xagents.load(folder, quiet=True)) as agent:
        return [w for model in agent.output_models for w in model.get_weights()]


@pytest.fixture(scope='module')
def evolved(tmp_path_factory):
    """A population that was left alone, and the folder of its best member."""
    folder = tmp_path_factory.mktemp('population') / 'whole'
    return folder, xagents.evolve('small', 'CartPole-v1', out=str(folder), n_jobs=2, **OPTIONS)


def test_it_is_the_same_for_any_number_of_jobs(evolved, tmp_path):
    folder, best = evolved
    other = xagents.evolve('small', 'CartPole-v1', out=str(tmp_path / 'one'), **OPTIONS)
    assert table(tmp_path / 'one') == table(folder) and final_means(tmp_path / 'one') == final_means(folder)
    np.testing.assert_equal(weights(other), weights(best))


def test_members_copy_change_and_go_on(evolved):
    folder, best = evolved
    rounds = table(folder)
    assert len(rounds) == 3 and all(len(members) == 4 for members in rounds)
    for before, after in itertools.pairwise(rounds):
        for i, member in enumerate(after):
            parent = before[member['parent']]
            if member['parent'] == i:
                assert member['settings'] == parent['settings']
            else:
                assert parent['score'] == max(m['score'] for m in before)
                assert member['settings'] != parent['settings']
    last, finals = rounds[-1], final_means(folder)
    assert finals[:-1] == [[None] * 4] * 2 and Path(best).name == f'member-{int(np.argmax(finals[-1])):02}'
    assert (folder / 'best').resolve() == Path(best).resolve()
    assert sorted(p.name for p in folder.glob('round-*')) == ['round-0003'], 'what is not needed is removed'
    with contextlib.closing(xagents.load(str(folder / 'best'), quiet=True)) as agent:
        assert agent.progress.context.steps >= 1200
        assert agent.options.lr == last[int(Path(best).name[-2:])]['settings']['lr']
    assert xagents.policy(best) is not None


def test_what_is_played_is_what_was_scored(tmp_path):
    options = {**OPTIONS, 'objective': 'evaluation', 'eval_episodes': 5, 'lr': [1e-4, 1e-1], 'population': 2}
    best = xagents.evolve('small', 'CartPole-v1', out=str(tmp_path / 'p'), **options)
    member = read_population(tmp_path / 'p').rounds[-1][int(best[-2:])]
    with contextlib.closing(xagents.resume(best, quiet=True)) as agent:  # as it stood, with its streams
        assert agent.evaluate(5)['mean'] == member.score and agent.evaluate(6)['mean'] == member.final_mean
        expected = [w for model in agent.output_models for w in model.get_weights()]
    np.testing.assert_equal(weights(best), expected)


def test_a_score_is_that_of_the_episodes_of_its_round(evolved):
    folder, _ = evolved
    rounds = read_population(folder).rounds
    for i, member in enumerate(rounds[-1]):
        record = json.loads((folder / 'round-0003' / f'member-{i:02}' / 'checkpoints/last/state.json').read_text())
        rewards = record['rewards']  # of the member and its ancestors, from the first round on
        assert len(rewards) == record['counters']['games']
        counts = [n for n in range(1, len(rewards)) if np.mean(rewards[-n:]) == member.score]
        before = rounds[-2][member.parent].score
        assert any(np.mean(rewards[-m:-n]) == before for n in counts for m in range(n + 1, len(rewards)))


def test_without_an_episode_in_a_round_those_before_count():
    progress = Progress(deque([1.0, 2.0, 6.0], maxlen=3), Context(games=9))
    means = [round_mean(progress, games) for games in (0, 6, 7, 8, 9)]
    assert means == [3.0, 3.0, 4.0, 6.0, 3.0] and math.isnan(round_mean(Progress(deque()), 0))


def test_the_best_has_the_highest_mean_after_the_last_round():
    worse, better, failed = Member({}, score=9.0, final_mean=1.0), Member({}, score=2.0, final_mean=5.0), Member({})
    assert Population(Path(), {}, [[worse, failed, better, better]]).best() == 2
    # a member that ended the round in a call for which it was not the last one
    assert Population(Path(), {}, [[better, worse, Member({}, score=3.0), failed]]).best() == 1
    assert Population(Path(), {}, [[failed, Member({}, score=-2.0), Member({}, score=-1.0)]]).best() == 2


def test_no_member_plays_after_the_last_round_if_no_episodes_are_asked_for(tmp_path):
    options = {**OPTIONS, 'trial_steps': 400, 'population': 2, 'final_episodes': 0}
    best = xagents.evolve('small', 'CartPole-v1', out=str(tmp_path / 'p'), **options)
    members = read_population(tmp_path / 'p').rounds[-1]
    assert [member.final_mean for member in members] == [None, None]
    assert int(best[-2:]) == int(np.argmax([member.score for member in members]))


def test_a_second_call_is_refused_while_one_is_at_work(tmp_path):
    with lock_population(tmp_path / 'p'), pytest.raises(OptionError, match='which another call is using'):
        lock_population(tmp_path / 'p')
    assert lock_population(tmp_path / 'p') is not None


@pytest.mark.slow
def test_it_goes_on_further(evolved, tmp_path):
    folder, _ = evolved
    part = tmp_path / 'part'
    xagents.evolve('small', 'CartPole-v1', out=str(part), **{**OPTIONS, 'trial_steps': 800})
    # schedules are as long as the first call said, and there are none here
    xagents.evolve('small', 'CartPole-v1', out=str(part), **OPTIONS)
    assert table(part) == table(folder)


@pytest.mark.slow
def test_neither_kills_nor_the_number_of_processes_change_anything(tmp_path):
    command = [sys.executable, '-m', 'xagents', 'tune', 'ppo', '--env', 'CartPole-v1', *FLAGS.split()]
    subprocess.run([*command, '--out', str(tmp_path / 'whole')], check=True)
    command += ['--n-jobs', '2', '--out', str(tmp_path / 'killed')]
    rng, kills = random.Random(1), 0
    for _ in range(20):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            _, errors = process.communicate(timeout=rng.uniform(6, 12) if kills < 3 else 200)
            assert process.returncode == 0, errors
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            time.sleep(0.1)
    assert kills and table(tmp_path / 'killed') == table(tmp_path / 'whole')
    np.testing.assert_equal(*(weights(str(tmp_path / name / 'best')) for name in ('killed', 'whole')))


def test_a_full_disk_stops_it_and_it_goes_on_later_to_the_same(evolved, tmp_path):
    folder = tmp_path / 'p'
    words = ['tune', 'small', '--env', 'CartPole-v1', *FLAGS.split(), '--trial-steps', '800', '--out', str(folder)]

    def full(*arguments, **others):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    places = {
        'numpy.savez': 'round-0001/.member-00/.*',
        'xagents.tuning.member.atomic_write': 'round-0001/.member-00/member.json',
        'xagents.reports.population_files.atomic_write': 'rounds/0001.json',
        'shutil.copy2': 'round-0002/.member-00/.*',
    }
    for writer, file in places.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, full)
            code, _, stderr = execute(*words)
        expected = rf': {folder}/{file}: cannot be written \(No space left on device\); free disk space, and the same '
        assert code == 1 and len(stderr.splitlines()) == 1 and re.search(expected, stderr), stderr
    assert execute(*words)[::2] == (0, '')
    assert table(folder) == table(evolved[0])[:2]


def test_a_copy_goes_on_as_the_run_does(small_agents, tmp_path):
    options = {'n_envs': 2, 'net': [8], 'seed': 1, 'quiet': True, 'learning_starts': 100, 'buffer_max_size': 400}
    options['run_dir'] = str(tmp_path / 'a')
    with contextlib.closing(xagents.make('small-replay', 'CartPole-v1', **options)) as agent:
        agent.fit(max_steps=300, final_episodes=0)
    copy_run(tmp_path / 'a', tmp_path / 'b')
    (tmp_path / 'b' / 'left').write_text('by a killed copy')
    copy_run(tmp_path / 'a', tmp_path / 'b')
    assert not (tmp_path / 'b' / 'left').exists()
    for folder in 'ab':
        with contextlib.closing(xagents.resume(str(tmp_path / folder), quiet=True)) as agent:
            agent.fit(max_steps=600)
    np.testing.assert_equal(weights(str(tmp_path / 'a')), weights(str(tmp_path / 'b')))


def test_a_person_sees_rounds_and_the_lineage(evolved, tmp_path):
    folder, _ = evolved
    words = [*FLAGS.split(), '--out', str(folder)]
    code, stdout, stderr = execute('tune', 'small', '--env', 'CartPole-v1', *words)
    lines = stdout.splitlines()
    assert (code, stderr) == (0, ''), stderr
    assert lines[0] == f'Population of 4 in {folder}: resumes after round 3 of 3 rounds of 400 steps'
    assert lines[1].startswith('Best: member 0') and lines[3].startswith('xagents train small --env CartPole-v1')
    code, stdout, _ = execute('plot', '--run-dir', str(folder), '--out', str(tmp_path / 'lineage.png'))
    assert code == 0 and (tmp_path / 'lineage.png').stat().st_size > 10_000
    code, stdout, _ = execute('runs', str(folder))
    assert code == 0 and stdout.count('member-') == 4
    code, _, stderr = execute('plot', '--run-dir', str(folder), '--smooth', '3', '--out', str(tmp_path / 'l.png'))
    assert (code, stderr) == (2, 'xagents plot: --smooth: cannot be used with a population, expected histories\n')
    # a round is as long as it was, also where its length is not given and the whole is another
    longer = [word for word in words if word != '--exploit-steps' and word != '400']
    longer[longer.index('1200')] = '800'
    assert execute('tune', 'small', '--env', 'CartPole-v1', *longer)[0] == 0
    # another one is not mixed with it
    words[words.index('1e-5')] = '1e-4'
    code, _, stderr = execute('tune', 'small', '--env', 'CartPole-v1', *words)
    assert code == 2 and 'contains another population (searched ' in stderr and len(stderr.splitlines()) == 1


@pytest.mark.parametrize(
    'words, expected',
    [
        ('--population 1 --lr 1e-4 1e-2 --out o', '--population: got 1, expected'),
        ('--population 4 --lr 1e-4 1e-2', '--out: got nothing with --population'),
        ('--population 4 --out o', '--population: nothing is searched'),
        ('--population 4 --lr 1e-4 1e-2 --n-trials 3 --out o', '--n-trials: applies to trials'),
        ('--exploit 0.3 --lr 1e-4 1e-2', '--exploit: got 0.3, which requires --population'),
        ('--population 4 --lr 1e-4 1e-2 --exploit 0.6 --out o', '--exploit: got 0.6, expected'),
        ('--population 4 --optimizer adam rmsprop --out o', '--optimizer: got several values'),
        (
            '--population 4 --lr 1e-4 1e-2 --trial-steps 9 --exploit-steps 10 --out o',
            '--exploit-steps: got 10, expected at most --trial-steps, 9',
        ),
        (
            '--population 4 --lr 1e-4 1e-2 --n-envs 2 --n-steps 16 64 --exploit-steps 100 --out o',
            '--exploit-steps: got 100, expected at least 128, the steps of an iteration',
        ),
        ('--population 4 --lr 1e-4 1e-2 --checkpoints a.tf --out o', '--checkpoints: is for single runs'),
        ('--population 4 --lr 1e-4 1e-2 --out taken', '--out: got taken, which contains other files'),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'taken').mkdir()
    (tmp_path / 'taken' / 'file').write_text('')
    code, stdout, stderr = execute('tune', 'small', '--env', 'CartPole-v1', '--net', '8', *words.split())
    assert (code, stdout) == (2, '') and f'xagents tune: {expected}' in stderr and len(stderr.splitlines()) == 1
    assert not (tmp_path / 'o').exists(), 'nothing is written'


def test_a_damaged_population_is_said_in_a_line(evolved, tmp_path):
    copy_run(evolved[0], tmp_path / 'p')
    (tmp_path / 'p' / 'rounds' / '0002.json').write_text(json.dumps({'members': [{'setting': 1}]}))
    code, _, stderr = execute('plot', '--run-dir', str(tmp_path / 'p'), '--out', str(tmp_path / 'l.png'))
    assert code == 2 and 'the files of the population cannot be read' in stderr and len(stderr.splitlines()) == 1
    words = ['--lr', '1e-4', '1e-2', '--population', '2', '--n-envs', '2', '--n-steps', '8', '--net', '8']
    for content in ('{', '[]', '{}'):
        (tmp_path / 'p' / 'population.json').write_text(content)
        code, _, stderr = execute('tune', 'small', '--env', 'CartPole-v1', *words, '--out', str(tmp_path / 'p'))
        assert code == 2 and 'cannot be read' in stderr and len(stderr.splitlines()) == 1
