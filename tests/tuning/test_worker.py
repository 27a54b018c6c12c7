"""A worker of `xagents tune`: what a trial reports and is worth, its paths, its answers, and its end."""

import contextlib
import dataclasses
import json
import math
import subprocess
import sys
import time
import types

import pytest

from xagents.options.errors import OptionError
from xagents.processes.serving import answer
from xagents.tuning import temporary_agents
from xagents.tuning.worker import HANDLERS, REPORTS, TrialJob, TrialPruned, run_trial

COMMAND = [sys.executable, '-P', '-m', 'xagents.tuning.worker', '1']


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

    def begin(self, max_steps):
        self.calls.append(('prepared', max_steps))
        if self.calls.refuses is not None:
            raise self.calls.refuses
        return self

    def schedule_notices(self):
        return ['a notice']

    def evaluate(self, episodes):
        self.calls.append(('evaluated', episodes, self.steps))
        return {'mean': 1000.0 + self.steps}

    def close(self):
        self.calls.append(('closed', self.options.get('seed')))


class Calls(list):
    """What is asked of agents; `refuses` is the error of their preparation."""

    refuses = None


@pytest.fixture
def calls(monkeypatch):
    """What is asked of stand-ins for agents; TensorFlow is not there."""
    said = Calls()

    def make(agent_id, env, **options):
        said.append(('made', agent_id, env, options))
        return Agent(said, options)

    factory, keras = types.ModuleType('xagents.factory.make'), types.ModuleType('keras')
    factory.make = make
    keras.backend = types.SimpleNamespace(clear_session=lambda: said.append(('cleared',)))
    monkeypatch.setitem(sys.modules, 'xagents.factory.make', factory)
    monkeypatch.setitem(sys.modules, 'keras', keras)
    programs = types.ModuleType('xagents.networks.program_cache')  # the true one loads TensorFlow and the true Keras
    programs.share_programs = contextlib.contextmanager(lambda make, options: (yield make()))
    monkeypatch.setitem(sys.modules, 'xagents.networks.program_cache', programs)
    monkeypatch.setattr(temporary_agents.gc, 'collect', lambda: said.append(('collected',)))
    return said


def asked(calls, what):
    return [call[1:] for call in calls if call[0] == what]


def job(steps=200, seeds=(5,), objective='reward', paths=(), number=3, **options):
    options = {'env': 'Any-v0', 'reward': 0.0, **options}
    return TrialJob(number, 'ppo', options, steps, list(seeds), objective, episodes=7, paths=dict(paths))


def run(job):
    """Runs a trial; returns its value and its reports."""
    reports = []
    return run_trial(job, lambda *report: reports.append(report) or True), reports


def pruned_at(number, job):
    """Runs a trial of which one report is refused; returns the numbers of its reports."""
    parts = []
    with pytest.raises(TrialPruned):
        run_trial(job, lambda part, value, done: parts.append(part) or part != number)
    return parts


# reports and values


@pytest.mark.parametrize('steps, chunk', [(200, 10), (200, 7), (200, 64), (100, 1), (1, 1), (7, 2), (2000, 128)])
def test_a_trial_reports_every_twentieth_of_its_steps_whatever_the_size_of_an_iteration(steps, chunk, calls):
    value, reports = run(job(steps=steps, chunk=chunk))
    assert [part for part, _, _ in reports] == list(range(1, REPORTS + 1))
    # each says how it stood after the first iteration that reached its share
    for part, said, done in reports:
        assert said == math.ceil(part * steps / REPORTS / chunk) * chunk
        assert done == pytest.approx(said / steps)
    assert value == math.ceil(steps / chunk) * chunk


def test_reports_of_several_seeds_go_on_counting_and_a_trial_is_worth_the_mean_of_its_runs(calls, monkeypatch):
    value, reports = run(job(steps=40, seeds=(5, 6, 7), chunk=20, reward=3.0))
    assert [options['seed'] for _, _, options in asked(calls, 'made')] == [5, 6, 7]
    assert [part for part, _, _ in reports] == list(range(1, 3 * REPORTS + 1))
    assert reports[-1][2] == 1.0
    assert [done for _, _, done in reports] == sorted(done for _, _, done in reports)
    # of the second run's first half: the whole first run, and this one as it stands
    assert reports[REPORTS][1] == (43.0 + 23.0) / 2
    assert value == 43.0
    monkeypatch.setattr(Agent, 'mean_reward', property(lambda agent: float(agent.options['seed'] ** 2)))
    assert run(job(seeds=(2, 3, 4)))[0] == (4 + 9 + 16) / 3


@pytest.mark.parametrize('chunk', [10, 70])  # of one iteration several reports, and hyperband may refuse any of them
def test_a_pruned_trial_stops_with_the_report_that_was_refused(chunk, calls):
    assert pruned_at(4, job(chunk=chunk)) == [1, 2, 3, 4]
    assert calls[-3:] == [('closed', 5), ('cleared',), ('collected',)]
    pruned_at(REPORTS + 2, job(seeds=(1, 2, 3)))
    assert [options['seed'] for _, _, options in asked(calls, 'made')][1:] == [1, 2]


def test_every_run_is_closed_whatever_happens(calls):
    run(job(seeds=(1, 2)))
    assert [call[0] for call in calls] == ['made', 'closed', 'cleared', 'collected'] * 2
    with pytest.raises(ArithmeticError):
        run(job(raises=100))
    assert calls[-3:] == [('closed', 5), ('cleared',), ('collected',)]


def test_evaluations_are_played_at_every_report_and_once_at_an_end_before_them(calls):
    value, reports = run(job(objective='evaluation'))
    assert asked(calls, 'evaluated') == [(7, 10 * part) for part in range(1, 21)]
    assert (reports[-1][1], value) == (1200.0, 1200.0)
    calls.clear()
    value, reports = run(job(stops=100))
    assert (len(reports), value) == (10, 100.0), 'a run that stops early is worth what it was'
    value, reports = run(job(objective='evaluation', stops=95, chunk=5))
    assert (len(reports), value) == (9, 1095.0)
    assert asked(calls, 'evaluated')[-2:] == [(7, 90), (7, 95)]


def test_before_the_first_episode_ends_there_is_nothing_to_report_and_without_one_no_value(calls):
    value, reports = run(job(blind=100))
    assert [part for part, said, _ in reports if not math.isnan(said)] == list(range(10, 21))
    assert value == 200.0
    with pytest.raises(ValueError, match=r'^no episode ended within 200 steps: increase --trial-steps$'):
        run(job(blind=1000))


def test_an_agent_is_made_of_the_options_with_the_seed_and_paths_of_its_own(calls):
    paths = {'checkpoints': ['a/actor.tf', 'a/critic.tf'], 'history_checkpoint': 'h.parquet'}
    run(job(number=12, seeds=(8,), paths=paths, lr=0.1))
    options = {'reward': 0.0, 'lr': 0.1, 'seed': 8, 'history_checkpoint': 'h-trial-12.parquet'}
    options['checkpoints'] = ['a/actor-trial-12.tf', 'a/critic-trial-12.tf']
    assert asked(calls, 'made') == [('ppo', 'Any-v0', options)]
    # the runs of a trial do not overwrite each other
    run(job(number=1, seeds=(8, 9), paths={'history_checkpoint': 'h.parquet'}))
    written = [options['history_checkpoint'] for _, _, options in asked(calls, 'made')[1:]]
    assert written == ['h-trial-1-seed-8.parquet', 'h-trial-1-seed-9.parquet']


# answers


class Parent:
    """A parent that says a few times whether to prune, and keeps the answers."""

    def __init__(self, prunes):
        self.prunes, self.answers = list(prunes), []

    def send(self, **message):
        self.answers.append(json.loads(json.dumps(message)))

    def receive(self):
        return {'prune': self.prunes.pop(0)}


def answers_of(kind, job, *prunes):
    """Return the answers of a worker to a request, if the parent says so many times whether to prune."""
    parent = Parent(prunes)
    answer(parent, HANDLERS, {'kind': kind, **json.loads(json.dumps(dataclasses.asdict(job)))})
    assert not parent.prunes
    return parent.answers


def test_reports_are_answered_one_by_one_until_the_parent_stops_the_trial(calls):
    said = answers_of('trial', job(blind=100), *[False] * REPORTS)
    assert [answer['kind'] for answer in said] == ['report'] * REPORTS + ['done']
    # a mean that is no number is none on the line
    assert [answer['value'] for answer in said] == [None] * 9 + [10.0 * part for part in range(10, 21)] + [200.0]
    assert [answer['part'] for answer in said[:-1]] == list(range(1, 21))
    said = answers_of('trial', job(), False, True)
    assert [answer['kind'] for answer in said] == ['report', 'report', 'pruned']


def test_a_check_prepares_a_run_and_trains_nothing(calls):
    assert answers_of('check', job()) == [{'kind': 'checked', 'notices': ['a notice']}]
    assert calls[1:] == [('prepared', 200), ('closed', 5), ('cleared',), ('collected',)]


@pytest.mark.parametrize(
    ('error', 'expected'),
    [
        (OptionError('env', 'got x'), {'kind': 'refused', 'name': 'env', 'reason': 'got x'}),
        (ValueError('a\n b'), {'kind': 'refused', 'name': '', 'reason': 'a b'}),
        (FileNotFoundError(2, 'gone', 'x.cfg'), {'kind': 'refused', 'name': '', 'reason': "[Errno 2] gone: 'x.cfg'"}),
        (ZeroDivisionError('oh'), {'kind': 'broken', 'reason': 'ZeroDivisionError: oh'}),
    ],
)
def test_a_check_says_whose_mistake_it_is(error, expected, calls):
    calls.refuses = error
    assert answers_of('check', job()) == [expected]
    assert calls[-3:-1] == [('closed', 5), ('cleared',)]


# the process


@pytest.fixture
def process(stand_in):
    """A worker process."""
    pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
    with subprocess.Popen(COMMAND, encoding='utf-8', **pipes) as process:
        yield process
        process.kill()


def tell(process, **message):
    process.stdin.write(json.dumps(message) + '\n')
    process.stdin.flush()


def test_a_worker_has_one_thread_and_ends_at_once_with_its_parent_in_the_midst_of_a_trial(process, tmp_path):
    options = {'env': 'Any-v0', 'env_kwargs': {'hangs': str(tmp_path / 'hangs')}}
    # whatever is printed does not get between the answers
    assert json.loads(process.stdout.readline()) == {'kind': 'ready'}
    assert process.stderr.readline() == 'threads 1\n'
    tell(process, kind='trial', number=0, agent='ppo', options=options, steps=100, seeds=[1])
    for _ in range(9):
        assert json.loads(process.stdout.readline())['kind'] == 'report'
        tell(process, prune=False)
    end = time.monotonic() + 20
    while not (tmp_path / 'hangs').exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    begun = time.monotonic()
    process.stdin.close()  # as the kernel does for a parent that is killed
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 10
    assert process.stdout.read() == ''
