"""A worker of `xagents tune`: what a trial reports and is worth, its paths, its answers, and its end."""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import time
import types
from io import StringIO

import psutil
import pytest

from xagents.options.errors import OptionError
from xagents.tuning import worker as trials
from xagents.tuning.worker import REPORTS, Job, Pruned, Worker, numbered, run_trial


class Agent:
    """Stands in for an agent: its mean after s steps is reward + s, and what is asked of it is kept in `calls`."""

    def __init__(self, calls, options):
        self.calls, self.options = calls, options
        self.steps = 0

    @property
    def mean_reward(self):
        return self.options['reward'] + self.steps if self.steps >= self.options.get('blind', 0) else math.nan

    def train_iter(self, max_steps, final_episodes):
        assert final_episodes == 0  # nobody asks what the best weights of a trial would play
        while self.steps < min(max_steps, self.options.get('stops', max_steps)):
            self.steps += self.options.get('chunk', 10)
            if 'raises' in self.options and self.steps >= self.options['raises']:
                raise ArithmeticError('two lines\nof what was wrong')
            yield {'steps': float(self.steps)}

    def prepare_run(self, max_steps):
        self.calls.append(('prepared', max_steps))
        if 'refuses' in self.options:
            raise self.options['refuses']

    def evaluate(self, episodes):
        self.calls.append(('evaluated', episodes, self.steps))
        return {'mean': 1000.0 + self.steps}

    def close(self):
        self.calls.append(('closed', self.options.get('seed')))


@pytest.fixture
def calls(monkeypatch):
    """What is asked of stand-ins for agents; TensorFlow is not there."""
    said = []

    def make(agent_id, env, **options):
        said.append(('made', agent_id, env, options))
        return Agent(said, options)

    factory, keras = types.ModuleType('xagents.factory.make'), types.ModuleType('keras')
    factory.make = make
    keras.backend = types.SimpleNamespace(clear_session=lambda: said.append(('cleared',)))
    monkeypatch.setitem(sys.modules, 'xagents.factory.make', factory)
    monkeypatch.setitem(sys.modules, 'keras', keras)
    return said


def job(steps=200, seeds=(5,), objective='reward', paths=(), number=3, **options):
    options = {'env': 'Any-v0', 'reward': 0.0, **options}
    return Job(number, 'ppo', options, steps, list(seeds), objective, episodes=7, paths=dict(paths))


def run(job, stop=None):
    """Runs a trial; returns its value and its reports. `stop` is the number of the report after which it is pruned."""
    reports = []

    def report(part, value, done):
        reports.append((part, value, done))
        return stop is None or part < stop

    return run_trial(job, report), reports


# reports and values


def test_a_trial_reports_every_twentieth_of_its_steps(calls):
    value, reports = run(job(steps=200))
    assert [part for part, _, _ in reports] == list(range(1, 21))
    assert [value for _, value, _ in reports] == [10.0 * part for part in range(1, 21)]
    assert [done for _, _, done in reports] == pytest.approx([part / 20 for part in range(1, 21)])
    assert value == 200.0


@pytest.mark.parametrize('steps, chunk', [(200, 7), (200, 64), (100, 1), (30, 30), (1, 1), (7, 2), (2000, 128)])
def test_there_are_as_many_reports_whatever_the_size_of_an_iteration(steps, chunk, calls):
    value, reports = run(job(steps=steps, chunk=chunk))
    assert [part for part, _, _ in reports] == list(range(1, REPORTS + 1))
    # each says how it stood after the first iteration that reached its share
    for part, said, _ in reports:
        assert said == math.ceil(part * steps / REPORTS / chunk) * chunk
    assert value == math.ceil(steps / chunk) * chunk


def test_reports_of_several_seeds_go_on_counting_and_are_worth_their_mean(calls):
    value, reports = run(job(steps=40, seeds=(5, 6, 7), chunk=20, reward=3.0))
    made = [call[3]['seed'] for call in calls if call[0] == 'made']
    assert made == [5, 6, 7]
    assert [part for part, _, _ in reports] == list(range(1, 3 * REPORTS + 1))
    assert reports[-1][2] == 1.0
    assert [done for _, _, done in reports] == sorted(done for _, _, done in reports)
    # of the second run's first half: the whole first run, and this one as it stands
    assert reports[REPORTS][1] == (43.0 + 23.0) / 2
    assert value == 43.0


def test_a_trial_is_worth_the_mean_of_its_runs(calls, monkeypatch):
    monkeypatch.setattr(Agent, 'mean_reward', property(lambda agent: float(agent.options['seed'] ** 2)))
    assert run(job(seeds=(2, 3, 4)))[0] == (4 + 9 + 16) / 3


def test_a_pruned_trial_stops_with_the_report_that_was_refused(calls):
    reports = []
    with pytest.raises(Pruned):
        run_trial(job(), lambda part, value, done: reports.append(part) or part < 4)
    assert reports == [1, 2, 3, 4]
    assert calls[-2:] == [('closed', 5), ('cleared',)]
    with pytest.raises(Pruned):
        run(job(seeds=(1, 2, 3)), stop=REPORTS + 2)
    assert [call[3]['seed'] for call in calls if call[0] == 'made'][1:] == [1, 2]


def test_a_refused_report_stops_a_trial_also_where_an_iteration_passes_several(calls):
    # hyperband refuses at its rungs only, whichever report of an iteration that is
    reports = []
    with pytest.raises(Pruned):
        run_trial(job(steps=200, chunk=70), lambda part, value, done: reports.append(part) or part != 4)
    assert reports == [1, 2, 3, 4]


def test_every_run_is_closed_whatever_happens(calls):
    run(job(seeds=(1, 2)))
    assert [call[0] for call in calls] == ['made', 'closed', 'cleared'] * 2
    with pytest.raises(ArithmeticError):
        run(job(raises=100))
    assert calls[-2:] == [('closed', 5), ('cleared',)]


def test_evaluations_are_played_at_every_report_and_once_at_an_end_before_them(calls):
    value, reports = run(job(steps=200, objective='evaluation'))
    assert [call[1:] for call in calls if call[0] == 'evaluated'] == [(7, 10 * part) for part in range(1, 21)]
    assert (reports[-1][1], value) == (1200.0, 1200.0)
    calls.clear()
    value, reports = run(job(steps=200, objective='evaluation', stops=95, chunk=5))
    assert (len(reports), value) == (9, 1095.0)
    assert [call[2] for call in calls if call[0] == 'evaluated'][-2:] == [90, 95]


def test_a_run_that_stops_early_is_worth_what_it_was(calls):
    value, reports = run(job(steps=200, stops=100))
    assert (value, len(reports)) == (100.0, 10)


def test_before_the_first_episode_ends_there_is_nothing_to_report_and_without_one_no_value(calls):
    value, reports = run(job(steps=200, blind=100))
    assert [part for part, said, _ in reports if not math.isnan(said)] == list(range(10, 21))
    assert value == 200.0
    with pytest.raises(ValueError, match=r'^no episode ended within 200 steps: give more --trial-steps$'):
        run(job(steps=200, blind=1000))


def test_an_agent_is_made_of_the_options_with_the_seed_and_paths_of_its_own(calls):
    paths = {'checkpoints': ['a/actor.tf', 'a/critic.tf'], 'history_checkpoint': 'h.parquet'}
    run(job(number=12, seeds=(8,), paths=paths, lr=0.1))
    _, agent_id, env, options = calls[0]
    assert (agent_id, env) == ('ppo', 'Any-v0')
    assert options == {
        'reward': 0.0,
        'lr': 0.1,
        'seed': 8,
        'checkpoints': ['a/actor-trial-12.tf', 'a/critic-trial-12.tf'],
        'history_checkpoint': 'h-trial-12.parquet',
    }


def test_runs_of_one_trial_overwrite_each_other_nowhere(calls):
    run(job(number=1, seeds=(8, 9), paths={'history_checkpoint': 'h.parquet'}))
    made = [call[3]['history_checkpoint'] for call in calls if call[0] == 'made']
    assert made == ['h-trial-1-seed-8.parquet', 'h-trial-1-seed-9.parquet']


@pytest.mark.parametrize(
    ('path', 'expected'),
    [
        ('ppo.tf', 'ppo-trial-3.tf'),
        ('a.weights.h5', 'a-trial-3.weights.h5'),
        ('/x/y.z/a.keras', '/x/y.z/a-trial-3.keras'),
        ('x.y/name', 'x.y/name-trial-3'),
    ],
)
def test_a_path_gets_the_number_before_its_suffixes(path, expected):
    assert numbered(path, 'trial-3') == expected


# answers


def serving(*messages):
    """A worker that has these lines to read; returns it and a function that returns its answers."""
    lines, answers = queue.Queue(), StringIO()
    for message in messages:
        lines.put(message)
    worker = Worker(answers, lines)
    return worker, lambda: [json.loads(line) for line in answers.getvalue().splitlines()]


def test_reports_are_answered_one_by_one(calls):
    worker, answers = serving(*[{'prune': False}] * REPORTS)
    worker.run(job(steps=200))
    said = answers()
    assert [answer['kind'] for answer in said] == ['report'] * REPORTS + ['done']
    assert (said[0]['part'], said[0]['value'], said[-1]['value']) == (1, 10.0, 200.0)
    assert worker.lines.empty()


def test_a_trial_ends_when_the_parent_says_so(calls):
    worker, answers = serving({'prune': False}, {'prune': True})
    worker.run(job())
    assert [answer['kind'] for answer in answers()] == ['report', 'report', 'pruned']


def test_a_mean_that_is_no_number_is_none_on_the_line(calls):
    worker, answers = serving(*[{'prune': False}] * REPORTS)
    worker.run(job(blind=100))
    assert [answer['value'] for answer in answers()[:9]] == [None] * 9


def test_what_a_trial_raises_is_said_on_one_line_and_the_next_one_runs(calls):
    worker, answers = serving(*[{'prune': False}] * 2 * REPORTS)
    worker.run(job(raises=60))
    assert answers()[-1]['kind'] == 'failed'
    assert answers()[-1]['reason'] == 'ArithmeticError: two lines of what was wrong'
    before = len(answers())
    while not worker.lines.empty():
        worker.lines.get()
    for _ in range(REPORTS):
        worker.lines.put({'prune': False})
    worker.run(job())
    assert [answer['kind'] for answer in answers()[before:]] == ['report'] * REPORTS + ['done']


def test_a_check_prepares_a_run_and_trains_nothing(calls):
    worker, answers = serving()
    worker.check(job(steps=200))
    assert answers() == [{'kind': 'checked'}]
    assert calls[1:] == [('prepared', 200), ('closed', 5), ('cleared',)]


@pytest.mark.parametrize(
    ('error', 'answer'),
    [
        (OptionError('env', 'got x'), {'kind': 'refused', 'name': 'env', 'reason': 'got x'}),
        (ValueError('a\n b'), {'kind': 'refused', 'name': '', 'reason': 'a b'}),
        (FileNotFoundError(2, 'gone', 'x.cfg'), {'kind': 'refused', 'name': '', 'reason': "[Errno 2] gone: 'x.cfg'"}),
        (ZeroDivisionError('oh'), {'kind': 'broken', 'reason': 'ZeroDivisionError: oh'}),
    ],
)
def test_a_check_says_whose_mistake_it_is(error, answer, calls):
    worker, answers = serving()
    worker.check(job(refuses=error))
    assert answers() == [answer]
    assert calls[-2:] == [('closed', 5), ('cleared',)]


def test_a_long_reason_is_cut():
    assert len(trials.describe_error(ValueError('x' * 10_000))) <= 500


# the process


# Stands in for TensorFlow and the agents in worker processes, which load it as they start: so a worker is there in a
# fraction of a second, and what a trial is worth is known. The environment's arguments say what happens.
STAND_IN = """
import json, os, signal, sys, time, types
from pathlib import Path

compiling, factory = types.ModuleType('xagents.system.threads'), types.ModuleType('xagents.factory.make')
keras = types.ModuleType('keras')
keras.backend = types.SimpleNamespace(clear_session=lambda: None)
compiling.set_threads = lambda threads: print('threads', threads, file=sys.stderr, flush=True)


class Agent:
    def __init__(self, agent_id, env, seed, lr=7e-4, env_kwargs=None, **options):
        from xagents.options.errors import OptionError

        self.seed, self.lr, self.does = seed, lr, env_kwargs or {}
        if env == 'Unknown-v0':
            raise OptionError('env', 'no environment Unknown-v0 (did you mean Known-v0?)')
        made = {'pid': os.getpid(), 'agent': agent_id, 'env': env, 'seed': seed, 'lr': lr, **options}
        if 'log' in self.does:
            with open(self.does['log'], 'a') as log:
                log.write(json.dumps(made) + chr(10))

    def prepare_run(self, max_steps):
        pass

    @property
    def mean_reward(self):
        return float({'seed': self.seed, 'lr': self.lr}[self.does.get('worth', 'lr')])

    def evaluate(self, episodes):
        return {'mean': 100.0 * episodes + self.lr}

    def once(self, name):
        # whether this is the first time in the study, or every time
        path = Path(self.does[name])
        if path.exists() and path.name != 'always':
            return False
        path.touch()
        return True

    def train_iter(self, max_steps, final_episodes):
        for part in range(1, 21):
            if part == 10:
                if 'kills' in self.does and self.once('kills'):
                    os.kill(os.getpid(), signal.SIGKILL)
                if 'hangs' in self.does and self.lr < self.does.get('below', 1e9) and self.once('hangs'):
                    time.sleep(60)
                if self.lr > self.does.get('most', 1e9):
                    raise ArithmeticError('lr is too large')
            time.sleep(self.does.get('seconds', 0) / 20)
            yield {'steps': max_steps * part / 20}

    def close(self):
        pass


factory.make = lambda agent_id, env, **options: Agent(agent_id, env, **options)
sys.modules |= {'xagents.system.threads': compiling, 'xagents.factory.make': factory, 'keras': keras}
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A folder with what stands in for agents; processes that are started from here use it."""
    folder = tmp_path / 'stand-in'
    folder.mkdir()
    (folder / 'sitecustomize.py').write_text(STAND_IN)
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(folder), os.environ['PYTHONPATH']]))
    return folder


@pytest.fixture
def process(stand_in):
    """A worker process."""
    process = subprocess.Popen(
        [sys.executable, '-P', '-m', 'xagents.tuning.worker'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding='utf-8',
    )
    yield process
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def tell(process, **message):
    process.stdin.write(json.dumps(message) + '\n')
    process.stdin.flush()


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_worker_has_one_thread_and_ends_at_once_with_its_parent_in_the_midst_of_a_trial(process, tmp_path):
    options = {'env': 'Any-v0', 'env_kwargs': {'hangs': str(tmp_path / 'hangs')}}
    tell(process, threads=None)
    # whatever is printed does not get between the answers
    assert json.loads(process.stdout.readline()) == {'kind': 'ready'}
    assert process.stderr.readline() == 'threads 1\n'
    tell(process, kind='trial', number=0, agent='ppo', options=options, steps=100, seeds=[1])
    for _ in range(9):
        assert json.loads(process.stdout.readline())['kind'] == 'report'
        tell(process, prune=False)
    wait_until((tmp_path / 'hangs').exists)
    begun = time.monotonic()
    process.stdin.close()  # as the kernel does for a parent that is killed
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 10
    assert process.stdout.read() == ''


def test_a_worker_has_the_threads_that_it_is_told(process):
    tell(process, threads=3)
    assert process.stderr.readline() == 'threads 3\n'


def test_a_worker_whose_parent_is_killed_ends_by_itself(stand_in):
    """The parent here is a process of its own, between this one and the worker."""
    code = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, '-P', '-m', 'xagents.tuning.worker'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdin.write(b'{"threads": null}\\n')
worker.stdin.flush()
worker.stdout.readline()
print(worker.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, encoding='utf-8')
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    gone, alive = psutil.wait_procs([worker], timeout=20)
    for one in alive:
        one.kill()
    assert gone and not alive
