"""Evaluations beside a run: the same results as within it, at the same iterations, however fast they come."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

import xagents
from tests.commands import execute
from tests.problems import Identity
from tests.runs.folders import differences, rows, stopped_in_the_middle
from tests.small_agents import weights
from xagents.base import BaseAgent
from xagents.checkpoints.state_files import read_state
from xagents.envs import create_envs
from xagents.evaluation import remote
from xagents.evaluation.remote import EvaluationError, EvaluationProcess
from xagents.factory.load import resume
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla_in_module')

OPTIONS = {'n_steps': 8, 'net': [4], 'normalize_obs': True}
BESIDE = {'eval_frequency': 60, 'eval_episodes': 2, 'eval_async': True}
RESULTS = ('evaluate/mean', 'evaluate/std', 'evaluate/length')


def cartpole(seconds=0.0, fault=False):
    """A function that makes CartPole; in other processes than this one its steps take time, or fail."""
    here = os.getpid()

    def made():
        env = gymnasium.make('CartPole-v1')
        step = env.step

        def elsewhere(action):
            time.sleep(seconds)
            if fault:
                raise ArithmeticError('broken elsewhere')
            return step(action)

        if os.getpid() != here:
            env.step = elsewhere
        return env

    return made


def small(env=None, **options):
    envs = create_envs(env or cartpole(), 4, max_episode_steps=30)
    return xagents.make('small', envs, **{'seed': 1, 'quiet': True, **OPTIONS, **options})


def logged(agent, steps=600, **run):
    """The logs of a run, without what the clock makes."""
    with_clock = list(agent.train_iter(max_steps=steps, **run))
    agent.close()
    return [{k: v for k, v in log.items() if not k.startswith(('seconds/', 'steps_per'))} for log in with_clock]


def results(logs):
    """What evaluations said, by the steps of their weights."""
    return {
        log.get('evaluate/steps', log['steps']): [log[name] for name in RESULTS] for log in logs if RESULTS[0] in log
    }


def evaluator_of(parent):
    """Wait for the process that evaluates."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in psutil.Process(parent).children():
            with contextlib.suppress(psutil.Error):  # one that has just begun, or ended
                if 'xagents.evaluation.process' in child.cmdline():
                    return child
        time.sleep(0.02)
    raise AssertionError('no process evaluates')


@pytest.mark.parametrize('delay', [5, pytest.param(None, marks=pytest.mark.slow)])
def test_a_result_is_that_of_the_run_itself_and_comes_when_it_is_due_however_slow(delay):
    within = logged(small(), **{**BESIDE, 'eval_async': False})
    fast = logged(small(), **BESIDE, eval_delay=delay)
    slow = logged(small(cartpole(0.005)), **BESIDE, eval_delay=delay)
    np.testing.assert_equal(fast, slow)
    asked, taken = results(within), results(fast)
    assert len(taken) >= 3 and list(asked.items())[: len(taken)] == list(taken.items())
    steps = [log['steps'] for log in within]
    for i, log in enumerate(fast):
        if 'evaluate/steps' in log:
            later = i - steps.index(log['evaluate/steps'])
            assert later == delay if delay else log['steps'] in asked, 'taken in the iteration that asks for the next'
            assert log['mean_reward'] == log['evaluate/mean']


def test_best_weights_are_those_that_were_evaluated(tmp_path):
    agent, then = small(), {}

    def remember(ctx):
        then[ctx.steps] = weights(agent)

    recipe = agent.recipe().before('evaluate', remember)
    logs = list(agent.train_iter(max_steps=600, recipe=recipe, run_dir=str(tmp_path / 'run'), **BESIDE, eval_delay=2))
    best = max((log for log in logs if 'evaluate/mean' in log), key=lambda log: log['evaluate/mean'])
    state = agent.progress.best
    counters = state.record['counters']
    assert counters['steps'] == best['evaluate/steps'] < best['steps']
    assert counters['mean_reward'] == counters['best_reward'] == best['evaluate/mean'] == agent.best_reward
    assert [array.tobytes() for array in state.weights[0][: len(then[counters['steps']])]] == then[counters['steps']]
    agent.close()


def test_the_target_is_reached_by_the_result_and_its_weights_are_kept(tmp_path):
    path = str(tmp_path / 'a.tf')
    agent = small(checkpoints=[path])
    agent.fit(target_reward=1.0, max_steps=100_000, **BESIDE, eval_delay=3)
    reached = agent.progress.best.record['counters']['steps']
    assert agent.run.stop_reason == 'target' and 60 <= reached < agent.steps < 300
    again = small()
    again.load_weights([path])
    assert weights(again) == [array.tobytes() for array in agent.progress.best.weights[0][: len(weights(again))]]
    agent.close()


ON_POLICY = {'agent_id': 'small', 'n_envs': 4, **OPTIONS}
OFF_POLICY = {'agent_id': 'small-replay', 'n_envs': 2, 'train_frequency': 16, 'net': [4]}
OFF_POLICY |= {'buffer_initial_size': 40, 'buffer_max_size': 120}
CASES = {
    'until-the-next': ON_POLICY,
    'several': {**ON_POLICY, 'eval_delay': 6},
    'overlap': {**ON_POLICY, 'eval_delay': 3, 'overlap': True},
    'explorers': {**ON_POLICY, 'eval_delay': 3, 'explorers': 2, 'vector': 'sync'},
    'off-policy': {**OFF_POLICY, 'eval_delay': 4},
}


def trained(folder, case, **run):
    """A run of 400 steps, and of which a checkpoint stays at the half."""
    agent = xagents.make(env='CartPole-v1', seed=7, quiet=True, **CASES[case], **BESIDE)
    try:
        agent.fit(max_steps=400, run_dir=str(folder), checkpoint_frequency=200, save_seconds=1, **run)
    finally:
        agent.close()


def go_on(folder, **options):
    agent = resume(folder)
    under_way = agent.progress.evaluations
    assert under_way and all(asked.state.policy is None for asked in under_way)
    agent.fit(quiet=True, **options)
    agent.close()


def assert_equal(whole, other):
    """Nothing tells two runs apart but the clock, and generators of spaces, which nobody seeds or draws from."""
    assert differences(whole, other) in ([], ['environments'])
    (history, metrics), (history_again, metrics_again) = rows(whole), rows(other)
    assert history.equals(history_again)
    evaluated, again = (m.dropna(subset='evaluate/mean').reset_index(drop=True) for m in (metrics, metrics_again))
    told = [name for name in evaluated if not name.startswith('explorers/')]
    assert len(evaluated) > 1 and evaluated[told].equals(again[told])
    ages = [[asked['age'] for asked in record_of(folder)['evaluations']] for folder in (whole, other)]
    assert ages[0] == ages[1] and ages[0]


def record_of(folder):
    return read_state(folder / 'checkpoints' / 'last').record


@pytest.fixture(scope='module')
def several(tmp_path_factory, small_agents, without_xla_in_module):
    """The run directory of the case `several`."""
    folder = tmp_path_factory.mktemp('several') / 'whole'
    trained(folder, 'several')
    return folder


RARE = [pytest.param(case, marks=pytest.mark.slow) for case in ('until-the-next', 'overlap', 'explorers', 'off-policy')]


@pytest.mark.parametrize('case', ['several', *RARE])
def test_a_run_killed_while_evaluations_are_under_way_goes_on_as_if_it_had_never_stopped(case, several, tmp_path):
    whole, killed = several if case == 'several' else tmp_path / 'whole', tmp_path / 'killed'
    if case != 'several':
        trained(whole, case)
    stopped_in_the_middle(whole, killed)
    go_on(killed)
    assert_equal(whole, killed)


def interrupting(agent, name, iteration):
    """A recipe with a Ctrl-C before one of its stages."""

    def press(ctx):
        if ctx.iteration == iteration:
            os.kill(os.getpid(), signal.SIGINT)

    return agent.recipe().before(name, press)


@pytest.mark.parametrize('iteration', [5, pytest.param(7, marks=pytest.mark.slow)])
def test_a_ctrl_c_loses_no_evaluation(iteration, several, tmp_path):
    stopped = tmp_path / 'stopped'
    agent = xagents.make(env='CartPole-v1', seed=7, quiet=True, **CASES['several'], **BESIDE)
    with pytest.raises(KeyboardInterrupt):
        agent.fit(max_steps=400, run_dir=str(stopped), recipe=interrupting(agent, 'evaluate', iteration))
    agent.close()
    go_on(stopped)
    assert_equal(several, stopped)


def test_an_iteration_that_was_broken_off_is_none_for_evaluations():
    agent = small()

    def broken_off(ctx):
        if ctx.iteration == 4:
            ctx.idle, ctx.batch, ctx.stop = True, {}, 'interrupted'

    logged(agent, recipe=agent.recipe().after('collect', broken_off), **BESIDE, eval_delay=9)
    assert agent.context.iteration == 4 and [asked.age for asked in agent.progress.evaluations] == [1]


@pytest.mark.parametrize('mean', [1e6, -1e6])
def test_a_late_result_that_is_better_is_the_best_of_those_who_load_it(mean, tmp_path, monkeypatch):
    agent, folder = small(), tmp_path / 'run'
    paths = [str(tmp_path / 'a.tf')]
    result = {'mean': mean, 'std': 0.0, 'length': 1.0}
    recipe = agent.recipe().use(
        lambda ctx: ctx.steps < 500 or monkeypatch.setattr(EvaluationProcess, 'take_result', lambda _: result)
    )
    agent.fit(max_steps=500, run_dir=str(folder), checkpoints=paths, recipe=recipe, quiet=True, **BESIDE)
    (asked,) = agent.progress.evaluations
    best = read_state(folder / 'checkpoints' / 'best').record['counters']
    assert (best['steps'] == asked.steps) == (mean > 0) == (best['best_reward'] == mean)
    assert agent.best_reward != mean and agent.progress.best.record['counters']['steps'] < asked.steps
    agent.load_weights(paths)
    kept = asked.state if mean > 0 else read_state(folder / 'checkpoints' / 'best')
    assert weights(agent) == [array.tobytes() for array in kept.weights[0][: len(weights(agent))]]
    agent.close()


def test_a_run_that_evaluates_within_itself_gives_up_what_is_under_way(capsys):
    agent = small(quiet=False)
    agent.fit(max_steps=200, **BESIDE)
    assert agent.progress.evaluations
    agent.fit(max_steps=300, **{**BESIDE, 'eval_async': False})
    assert 'Pending evaluations are dropped: this run has no --eval-async' in capsys.readouterr().out
    assert not agent.progress.evaluations
    agent.close()


def killing(agent, times):
    """A recipe that kills the process that evaluates, in the first iterations."""

    def kill(ctx):
        if ctx.iteration <= times:
            evaluator_of(os.getpid()).kill()

    return agent.recipe().use(kill)


def test_a_process_that_is_killed_is_begun_again(capsys):
    undisturbed = logged(small(), **BESIDE, eval_delay=2)
    agent = small(quiet=False)
    np.testing.assert_equal(logged(agent, **BESIDE, eval_delay=2, recipe=killing(agent, 1)), undisturbed)
    assert capsys.readouterr().out.count('The process of the evaluations died (SIGKILL): another one plays') == 1


def test_a_process_that_dies_whenever_it_begins_ends_the_run_in_one_line(monkeypatch):
    monkeypatch.setattr(remote, 'ONE_THREAD', {'PYTHONHASHSEED': 'wrong'})  # Python refuses to begin
    agent = small()
    with pytest.raises(EvaluationError, match=r'^eval_async: .* died 2 times in a row \(exit code 1: .*\)$'):
        agent.fit(max_steps=300, **BESIDE)
    agent.close()


def test_an_environment_that_fails_elsewhere_ends_the_run_in_one_line(tmp_path):
    agent = small(cartpole(fault=True))
    message = '^eval_async: an evaluation failed: ArithmeticError: broken elsewhere$'
    with pytest.raises(EvaluationError, match=message):
        agent.fit(max_steps=300, **BESIDE)
    agent.close()


SCRIPT = """
from tests.small_agents import on_cartpole, registered
with registered(): agent = on_cartpole(n_envs=2, n_steps=8, net=[4], normalize_obs=True)
agent.fit(max_steps=10**9, eval_frequency=100, eval_episodes=5, eval_async=True)
"""


@pytest.mark.slow
def test_the_process_is_small_and_ends_with_its_parent_whatever_ends_that():
    with subprocess.Popen([sys.executable, '-c', SCRIPT], stderr=subprocess.DEVNULL) as parent:
        try:
            child = evaluator_of(parent.pid)
            folder = Path(child.cmdline()[-1])
            deadline = time.monotonic() + 120
            while child.cpu_times().user < 1 and time.monotonic() < deadline:  # it plays
                time.sleep(0.05)
            libraries = [file.path for file in child.memory_maps() if file.path.endswith('.so')]
            assert any('numpy' in path for path in libraries) and not any('tensorflow' in path for path in libraries)
            assert child.environ()['OPENBLAS_NUM_THREADS'] == '1'
            assert os.getsid(child.pid) != os.getsid(parent.pid), 'a Ctrl-C in the terminal does not reach it'
            assert folder.is_dir()
        finally:
            parent.kill()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() and not folder.exists()


def test_nothing_is_left_of_a_run_that_ends():
    agent, seen = small(), []

    def look(ctx):
        seen.append(evaluator_of(os.getpid()))

    agent.fit(max_steps=100, recipe=agent.recipe().use(look), **BESIDE)
    assert not seen[0].is_running() and agent.run.evaluations is None
    agent.close()


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        ('--eval-async', '--eval-async: requires --eval-frequency'),
        ('--eval-delay 3', '--eval-delay: got 3, which requires --eval-async'),
        ('--eval-frequency 9 --eval-async --eval-delay 0', '--eval-delay: got 0, expected a whole number at least 1'),
    ],
)
def test_options_that_do_not_go_together_are_refused_and_nothing_is_written(words, message, folder):
    line = f'train ppo --env CartPole-v1 --max-steps 100 --run-dir run {words}'
    assert execute(*line.split()) == (2, '', f'xagents train: {message}\n')
    assert list(folder.iterdir()) == []


class MethodPolicy(BaseAgent):
    def policy(self, observations, noise):
        return {'actions': np.zeros(len(observations), int)}

    def learn(self, batch, schedule):
        return {}


def unsendable():
    lock = threading.Lock()
    return create_envs(lambda: lock and Identity(), 2)


@pytest.mark.parametrize(
    ('made', 'message'),
    [
        (lambda: xagents.make('small', unsendable(), **OPTIONS), r'cannot be sent to another process \(cannot pickle'),
        (lambda: xagents.make('small', Identity(), **OPTIONS), 'cannot be created again'),
        (lambda: MethodPolicy(create_envs('CartPole-v1', 2)), 'has no plan'),
    ],
)
def test_what_no_other_process_can_play_is_refused_before_anything_is_written(made, message, tmp_path):
    agent = made()
    with pytest.raises(OptionError, match=message) as error:
        agent.fit(max_steps=100, run_dir=str(tmp_path / 'run'), **BESIDE)
    assert error.value.name in ('eval_async', 'eval_frequency') and '\n' not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_several_agents_in_one_environment_are_evaluated_alike():
    env = {'env': 'pettingzoo:tests.team_problems:OwnNumber', 'n_envs': 2}
    within, beside = (
        logged(xagents.make('small', **env, **OPTIONS, seed=1, quiet=True), 300, **{**BESIDE, 'eval_async': own})
        for own in (False, True)
    )
    asked, taken = results(within), results(beside)
    assert len(taken) > 1 and list(asked.items())[: len(taken)] == list(taken.items())
