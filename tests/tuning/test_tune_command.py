"""`xagents tune` as it is typed: agents for real, signals, what is written and said, and training from it."""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import optuna
import pandas as pd
import psutil
import pytest
from optuna.trial import TrialState

from xagents.cli import dispatch as cli
from xagents.cli import train as training
from xagents.cli.commands import find_command
from xagents.cli.resolve import best_of_study
from xagents.config.configuration import read_config_file
from xagents.options.declaration import declared_options
from xagents.processes.process_pool import ProcessPool
from xagents.registry.agents import find_agent
from xagents.tuning import studies
from xagents.tuning import tune as tuning
from xagents.tuning.plan import TuningError, plan
from xagents.tuning.report import train_command
from xagents.tuning.storages import open_storage
from xagents.tuning.trial_table import format_short

COMPLETE, FAIL, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING

# imported by workers because environments are named after it: updates compile in a fraction of XLA's time
MODULE = """
from xagents.networks.programs import Program

compiled = Program.__init__
Program.__init__ = lambda self, function, jit: compiled(self, function, False)
"""


def execute(line):
    """Runs a line of `xagents` in this process and returns its exit code."""
    try:
        cli.execute(shlex.split(line))
    except SystemExit as end:
        return end.code
    return 0


def study_in(storage, name='s'):
    return optuna.load_study(study_name=name, storage=open_storage(storage))


def states(study):
    return [trial.state for trial in study.trials]


def check_command(agent_id, words, options):
    """Checks that a command can be typed and has all of a trial's options."""
    assert words[:3] == ['xagents', 'train', agent_id]
    parsed = cli.parse(find_command('train'), agent_id, words[3:])[1]
    assert parsed == options
    find_command('train').check(agent_id, parsed)


@pytest.fixture(autouse=True)
def _here(work, monkeypatch):
    monkeypatch.setattr(cli, 'prepare_process', lambda: None)


# ---------------------------------------------------------------------------------------------------------- real agents

TINY = {
    'ppo': 'CartPole-v1 --trial-steps 100 --n-steps 10 20',
    'acer': 'CartPole-v1 --trial-steps 100 --n-steps 10 --buffer-initial-size 20 40 --replay-ratio 1',
    'dqn': 'CartPole-v1 --trial-steps 120 --buffer-initial-size 50 --train-frequency 20 --double false true '
    '--objective evaluation --eval-episodes 2',
    'td3': 'Pendulum-v1 --trial-steps 80 --max-episode-steps 20 --buffer-initial-size 50 --train-frequency 20',
}


def line_of(agent_id, prefix=''):
    return f'{agent_id} --env {prefix}{TINY[agent_id]} --lr 1e-4 1e-2 --net 8'


def planned(agent_id):
    return plan(agent_id, cli.parse(find_command('tune'), agent_id, line_of(agent_id).split()[1:])[1])


@pytest.mark.parametrize('agent_id', TINY)
def test_a_trial_of_every_agent_begins_with_its_defaults_and_can_be_typed(agent_id):
    call = planned(agent_id)
    # as near as the ranges admit them
    assert call.first['lr'] == declared_options(find_agent(agent_id).options)['lr'].default
    options = {**call.fixed, **call.first, 'max_steps': call.tune.trial_steps, 'seed': 1}
    check_command(agent_id, shlex.split(train_command(agent_id, options)), options)


def test_none_is_a_choice_and_can_be_typed():
    line = '--env CartPole-v1 --distribution none quantile --n-step 1 --trial-steps 9 --n-trials 1'
    for agent_id in ('dqn', 'rainbow'):
        call = plan(agent_id, cli.parse(find_command('tune'), agent_id, line.split())[1])
        assert call.ranges['distribution'].values == (None, 'quantile')
        typed = {**call.fixed, 'max_steps': 9} | ({'distribution': None} if agent_id == 'rainbow' else {})
        check_command(agent_id, shlex.split(train_command(agent_id, {**typed, 'distribution': None})), typed)
    assert format_short(None) == 'none'


@pytest.fixture(scope='module', autouse=True)
def real_worker(tmp_path_factory):
    """One worker that loads TensorFlow once, while this process does, too; it can import environments of one's own."""
    folder = tmp_path_factory.mktemp('modules')
    (folder / 'plain.py').write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        pool = ProcessPool(['xagents.tuning.worker', '1'], 1, max_jobs=50, error=TuningError)
        yield pool
    pool.close()


@pytest.fixture
def in_real_worker(real_worker, monkeypatch):
    """Studies of this process use that worker, and none of them ends it."""

    def again(*_, **__):
        (worker,) = real_worker.processes
        worker.job = None
        if worker.ready:
            real_worker._output.put((worker, '{"kind": "ready"}'))
        return real_worker

    monkeypatch.setattr(tuning, 'ProcessPool', again)
    monkeypatch.setattr(real_worker, 'close', lambda: None)


def test_a_study_of_two_tiny_trials(in_real_worker, work, capsys):
    # the worker is shared, and so is its working directory
    paths = f'--history-checkpoint {work / "h.parquet"} --checkpoints {work / "p.tf"}'
    line = f'tune {line_of("ppo", "plain:")} --n-trials 2 --seed 1 --pruner none {paths}'
    assert execute(f'{line} --study s --storage journal:s.log') == 0
    study = study_in('journal:s.log')
    assert states(study) == [COMPLETE] * 2
    assert all(np.isfinite(trial.value) for trial in study.trials)
    assert study.trials[0].params['lr'] == 7e-4
    assert study.trials[1].params['lr'] != 7e-4
    for trial in study.trials:
        reported = sorted(trial.intermediate_values)
        assert reported == list(range(reported[0], 21))
        assert len(reported) >= 8
        assert trial.intermediate_values[20] == trial.value
    options = studies.trial_options(study, study.best_trial)
    check_command('ppo', shlex.split(capsys.readouterr().out.splitlines()[-1]), options)
    histories = sorted(work.glob('*.parquet'))
    assert [path.name for path in histories] == [f'h-trial-{number}.parquet' for number in range(2)]
    assert sorted(path.name for path in work.glob('*.index')) == [f'p-trial-{n}.tf.index' for n in range(2)]
    assert all(1 <= len(pd.read_parquet(path)) <= 15 for path in histories)


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('ppo --env CartPole-v9', "--env: no environment 'CartPole-v9' (did you mean CartPole-v1?)"),
        ('ppo --env nowhere:CartPole-v1', "--env: cannot import 'nowhere'"),
        ('dqn --env Pendulum-v1', '--env: Pendulum-v1 has Box actions, dqn accepts Discrete ones'),
        ('ppo --env CartPole-v1 --env-kwargs no=1', "--env-kwargs: CartPole-v1 takes no 'no'"),
        ('ppo --env CartPole-v1 --sde false true', '--sde: got true, but CartPole-v1 has actions of Discrete(2)'),
        ('ppo --env CartPole-v1 --model none.cfg', '--model: there is no file none.cfg'),
        ('ppo --env CartPole-v1 --checkpoints none/ppo.tf', '--checkpoints: there is no directory '),
        ('ppo --env CartPole-v1 --checkpoints a.tf b.tf', '--checkpoints: got 2 paths'),
        ('ppo --env CartPole-v1 --weights none.tf', '--weights: there is no weight file none.tf'),
    ],
)
def test_what_only_a_worker_can_tell_is_refused_before_anything_is_written(line, said, in_real_worker, work, capsys):
    code = execute(f'tune {line} --lr 1e-4 1e-2 --n-trials 2 --study s --storage sqlite:///s.db --out out')
    printed = capsys.readouterr()
    (last,) = printed.err.splitlines()
    assert (code, printed.out) == (2, ''), last
    assert last.startswith(f'xagents tune: {said}')
    assert list(work.iterdir()) == []


# --------------------------------------------------------------------------------------- the rest, with stand-in agents

STUDY = 'tune ppo --env Any-v0 --trial-steps 100 --lr 1e-5 7e-4 --seed 1 --pruner none'
KEPT = f'{STUDY} --study s --storage journal:s.log'


def test_a_study_in_memory_offers_a_file_in_its_last_line_and_one_that_exists_is_continued(stand_in, work, capsys):
    assert execute(STUDY) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith('xagents train ppo --env Any-v0 ')
    assert list(work.iterdir()) == []
    # what is offered can be typed
    _, _, words = lines[-1].partition(': ')[2].partition('--study ppo-Any-v0 ')
    assert words == '--storage sqlite:///ppo-Any-v0.db'
    assert execute(f'{STUDY} {words}') == 0
    assert [path.name for path in work.iterdir()] == ['ppo-Any-v0.db']
    assert execute(f'{STUDY} {words} --n-trials 2') == 0
    assert 'continued after 1 trial' in capsys.readouterr().out
    study = study_in('sqlite:///ppo-Any-v0.db', 'ppo-Any-v0')  # without --study: by agent and environment
    assert states(study) == [COMPLETE] * 3
    assert len({trial.params['lr'] for trial in study.trials}) == 3


def test_each_finished_trial_is_a_line_and_the_last_lines_are_the_result(stand_in, work, capsys):
    assert execute(f'{KEPT} --n-trials 3 --out results') == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(':')[0] for line in lines[1:4]] == ['trial 0', 'trial 1', 'trial 2']
    assert lines[-4] == 'Finished: 3 trials in this call; the study has 3 complete, 0 pruned, 0 failed'
    assert lines[-2].startswith('Best: trial 0, 0.0007')
    assert lines[-1] == 'xagents train ppo --env Any-v0 --max-steps 100 --lr 0.0007 --seed 1'
    # results are written to a folder and can be read back
    study = study_in('journal:s.log')
    written = {path.name for path in (work / 'results').iterdir()}
    assert {'best.yaml', 'trials.parquet', 'history.png', 'importances.png'} <= written
    file = read_config_file(work / 'results/best.yaml')
    assert (file.agent, file.options, file.grid) == ('ppo', studies.trial_options(study, study.best_trial), {})
    assert len(pd.read_parquet(work / 'results/trials.parquet')) == 3


# signals, to a process of its own


@pytest.fixture
def start(stand_in, work):
    """Starts `xagents` in a process; gives it once the file `hangs` is there, with what it and its workers are."""
    begun = []

    def start(line, until='hangs'):
        words = [sys.executable, '-m', 'xagents', *shlex.split(line)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding='utf-8')
        begun.append(process)
        end = time.monotonic() + 60
        while until and not (work / until).exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, 'waited in vain'
            time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True) if until else []
        begun.extend(workers)
        return process, workers

    yield start
    for process in begun:
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(10)


HANGS = f'{KEPT} --env-kwargs \'hangs="hangs"\' below=7e-4'


@pytest.mark.parametrize(
    ('number', 'code', 'finished'),
    [(signal.SIGINT, 130, 1), pytest.param(signal.SIGTERM, 143, 0, marks=pytest.mark.slow)],
)
def test_an_interrupted_study_keeps_what_was_finished_and_says_how_to_go_on(number, code, finished, start):
    line = HANGS if finished else HANGS.replace('below=7e-4', '')
    process, workers_of = start(f'{line} --n-trials 4')
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, '')
    lines = out.splitlines()
    assert any(line.startswith(f'Interrupted: {finished} trial') for line in lines), out
    assert any(line.startswith('xagents train ppo --env Any-v0 ') for line in lines) == bool(finished)
    assert 'xagents tune ppo' in lines[-1]
    assert not psutil.wait_procs(workers_of, timeout=10)[1]
    before = states(study_in('journal:s.log'))
    assert before[: finished + 1] == [COMPLETE] * finished + [FAIL]
    assert RUNNING not in before
    # the next call begins with what was interrupted, and waits neither for a beat nor for a lock
    begun = time.monotonic()
    assert execute(f'{line} --n-trials 2') == 0
    assert time.monotonic() - begun < 45
    trials = study_in('journal:s.log').trials
    assert [trial.state for trial in trials] == [*before[: finished + 1], COMPLETE, COMPLETE]
    assert trials[finished + 1].user_attrs['retry_of'] == finished
    assert trials[finished + 1].params == trials[finished].params


def test_after_the_parent_was_killed_its_workers_end_and_the_next_call_takes_over(start):
    line = HANGS.replace('journal:s.log', 'sqlite:///s.db')
    process, workers_of = start(f'{line} --n-trials 4 --n-jobs 2')
    assert len(workers_of) == 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(workers_of, timeout=30)[1]
    trials = study_in('sqlite:///s.db').trials
    broken_off = [trial.number for trial in trials if trial.state == RUNNING]
    assert broken_off
    finished = {trial.number: trial.value for trial in trials if trial.state == COMPLETE}
    assert execute(f'{line} --n-trials 3') == 0
    trials = study_in('sqlite:///s.db').trials
    assert {n: trials[n].value for n in finished} == finished
    assert {trial.state for trial in trials} == {COMPLETE, FAIL}
    assert [trial.state for trial in trials].count(COMPLETE) == len(finished) + 3
    assert sorted(t.user_attrs['retry_of'] for t in trials if 'retry_of' in t.user_attrs) == broken_off


# --------------------------------------------------------------------------------------------- training from a study


@pytest.fixture
def study_of_a2c(work):
    """The URL of a study with a best trial, made without training anything."""
    study = optuna.create_study(study_name='s', storage=open_storage('journal:s.log'), direction='maximize')
    study_attributes = {'env': 'CartPole-v1', 'fixed': {'n_envs': 2, 'net': [8]}, 'trial_steps': 60, 'agent': 'a2c'}
    for name, value in {**study_attributes, 'objective': 'reward', 'trial_seeds': 1}.items():
        study.set_user_attr(name, value)
    space = {
        'lr': optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True),
        'normalize_obs': optuna.distributions.CategoricalDistribution((False, True)),
    }
    for lr, normalize, value in ((1e-3, False, 10.0), (2e-3, True, 30.0), (3e-3, False, 20.0)):
        study.enqueue_trial({'lr': lr, 'normalize_obs': normalize})
        study.tell(study.ask(space), value)
    return 'journal:s.log'


def test_training_takes_the_best_trial_of_a_study(study_of_a2c, work, eager, monkeypatch, capsys):
    made = []
    real = training.plan_agent

    def planned(agent_id, options, weights=None):
        made.append((agent_id, options))
        return real(agent_id, options, weights)

    monkeypatch.setattr(training, 'plan_agent', planned)
    line = f'train a2c --from-study s --storage {study_of_a2c} --seed 3 --final-episodes 0'
    assert execute(f'{line} --checkpoints a.tf') == 0
    agent_id, options = made.pop()
    expected = {'n_envs': 2, 'net': [8], 'lr': 2e-3, 'normalize_obs': True, 'max_steps': 60, 'seed': 3}
    assert (agent_id, options['env']) == ('a2c', 'CartPole-v1')
    assert {name: options[name] for name in expected} == expected
    printed = capsys.readouterr().out.splitlines()
    said = 'Trial 1 of study s (30): --env CartPole-v1 --n-envs 2 --net 8 --lr 0.002 --normalize-obs --max-steps 60'
    assert sorted(printed[0].split()) == sorted(said.split())
    assert any(line.startswith('Maximum steps exceeded') for line in printed)
    assert (work / 'a.tf.index').exists()
    # flags win
    assert execute(f'{line} --lr 0.1 --no-normalize-obs --max-steps 20 --quiet') == 0
    options = made.pop()[1]
    assert (options['lr'], options['normalize_obs'], options['max_steps']) == (0.1, False, 20)


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('ppo --from-study s --storage journal:s.log', '--from-study: got s, which is a study of a2c'),
        ('a2c --from-study t --storage journal:s.log', '--from-study: got t, expected s'),
        ('a2c --from-study s --storage journal:none.log', '--storage: '),
        ('a2c --from-study s', '--from-study: got s, which requires --storage'),
        ('a2c --env CartPole-v1 --max-steps 5 --storage journal:s.log', '--storage: got journal:s.log, which requires'),
        ('a2c --from-study s --storage journal:s.log --tuned', '--from-study: got s with --tuned'),
    ],
)
def test_a_study_that_gives_nothing_is_refused_before_anything_is_written(line, said, study_of_a2c, work, capsys):
    assert execute(f'train {line} --checkpoints a.tf') == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1].startswith(f'xagents train: {said}'), printed.err
    assert [path.name for path in work.iterdir()] == ['s.log']


def test_what_tune_prints_and_what_train_takes_are_the_same(stand_in, capsys):
    assert execute(f'{KEPT} --n-trials 2 --n-steps 16 32 --normalize-obs --net 8 4 --env-kwargs worth="lr" most=1') == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    typed = cli.parse(find_command('train'), 'ppo', words[3:])[1]
    taken, _ = best_of_study('ppo', {}, 's', 'journal:s.log')
    assert {name: value for name, value in typed.items() if name != 'seed'} == taken
    assert json.loads(json.dumps(typed['env_kwargs'])) == {'worth': 'lr', 'most': 1}
    assert typed['normalize_obs'] is True and typed['net'] == [8, 4]
