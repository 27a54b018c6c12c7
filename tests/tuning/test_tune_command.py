"""`xagents tune` as it is typed: all seven agents for real, signals, what is written and said, and training from it."""

import contextlib
import json
import os
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

from tests.tuning.test_trials import stand_in  # noqa: F401 (a fixture)
from xagents.cli import dispatch as cli
from xagents.cli.commands import find_command
from xagents.config.configuration import read_config_file
from xagents.options.declaration import describe
from xagents.registry.agents import agents, find_agent
from xagents.tuning import processes as workers
from xagents.tuning import studies
from xagents.tuning.storages import open_storage

COMPLETE, FAIL, RUNNING, WAITING = TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING

# imported by workers because environments are named after it: updates compile in a fraction of XLA's time
MODULE = """
import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.networks.compiled import Program

compiled = Program.__init__
Program.__init__ = lambda self, function, jit: compiled(self, function, False)


class Fragile(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.age, self.last = 0, None
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.last not in (None, action):
            raise ArithmeticError('I do not like changes')
        self.age, self.last = self.age + 1, action
        return np.zeros(1, np.float32), 1.0, self.age == 10, False, {}


gymnasium.register('Fragile-v0', f'{__name__}:Fragile')
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


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'waited in vain'
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Returns the working directory, which is empty."""
    folder = tmp_path / 'work'
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    studies.hush_optuna()
    return folder


# ------------------------------------------------------------------------------- real agents, all in one worker process


@pytest.fixture(scope='module')
def real_worker(tmp_path_factory):
    """One worker that loads TensorFlow once, with what environments of one's own are imported from."""
    folder = tmp_path_factory.mktemp('modules')
    (folder / 'plain.py').write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        pool = workers.Workers(1, None, True)
        yield pool
    pool.end()


@pytest.fixture
def in_real_worker(real_worker, monkeypatch):
    """Studies of this process use that worker, and none of them ends it."""

    def again(*_, **__):
        (worker,) = real_worker.all
        worker.job = None
        if worker.ready:
            real_worker._answers.put((worker, {'kind': 'ready'}))
        return real_worker

    monkeypatch.setattr(workers, 'Workers', again)
    monkeypatch.setattr(real_worker, 'end', lambda: None)


TINY = {
    'a2c': 'CartPole-v1 --trial-steps 100 --n-steps 10 20',
    'ppo': 'CartPole-v1 --trial-steps 100 --n-steps 10 20',
    'trpo': 'CartPole-v1 --trial-steps 100 --n-steps 50 --max-kl 1e-3 1e-2',
    'acer': 'CartPole-v1 --trial-steps 100 --n-steps 10 --buffer-initial-size 20 40 --replay-ratio 1',
    'dqn': 'CartPole-v1 --trial-steps 120 --buffer-initial-size 50 --train-frequency 20 --double false true '
    '--objective evaluation --eval-episodes 2',
    'ddpg': 'Pendulum-v1 --trial-steps 80 --max-episode-steps 20 --buffer-initial-size 50 --train-frequency 20',
    'td3': 'Pendulum-v1 --trial-steps 80 --max-episode-steps 20 --buffer-initial-size 50 --train-frequency 20',
}


@pytest.mark.parametrize('agent_id', agents)
def test_a_study_of_three_tiny_trials(agent_id, in_real_worker, folder, capsys):
    line = f'tune {agent_id} --env plain:{TINY[agent_id]} --lr 1e-4 1e-2 --net 8 --n-trials 3 --seed 1 --pruner none'
    # the worker is shared, and so is its working directory
    paths = f'--history-checkpoint {folder / "h.parquet"} --checkpoints {folder / "p.tf"}' if agent_id == 'ppo' else ''
    assert execute(f'{line} {paths} --study s --storage sqlite:///s.db') == 0
    study = study_in('sqlite:///s.db')
    assert states(study) == [COMPLETE] * 3
    assert all(np.isfinite(trial.value) for trial in study.trials)
    # the first one is the defaults, as near as the ranges admit them; the others are something else
    assert study.trials[0].params['lr'] == describe(find_agent(agent_id).options)['lr'].default
    assert len({trial.params['lr'] for trial in study.trials}) == 3
    for trial in study.trials:
        # of the first ones there is no mean yet
        reported = sorted(trial.intermediate_values)
        assert reported == list(range(reported[0], 21))
        assert len(reported) >= 8
        assert trial.intermediate_values[20] == trial.value
    # the command at the end is one that can be typed, and has all of the best trial's options
    printed = capsys.readouterr()
    words = shlex.split(printed.out.splitlines()[-1])
    assert words[:3] == ['xagents', 'train', agent_id]
    parsed = cli.parse(find_command('train'), agent_id, words[3:])[1]
    assert parsed == studies.options_of(study, study.best_trial)
    assert parsed['lr'] == study.best_params['lr']
    find_command('train').check(agent_id, parsed)
    if agent_id == 'ppo':
        histories = sorted(path.name for path in folder.glob('*.parquet'))
        assert histories == [f'h-trial-{number}.parquet' for number in range(3)]
        assert sorted(path.name for path in folder.glob('*.index')) == [f'p-trial-{n}.tf.index' for n in range(3)]
        rows = [len(pd.read_parquet(folder / name)) for name in histories]
        assert all(1 <= count <= 15 for count in rows)
    else:
        assert [path.name for path in folder.iterdir()] == ['s.db']


def test_an_environment_that_raises_fails_its_trial_and_the_study_goes_on(in_real_worker, folder, capsys):
    line = 'tune dqn --env plain:Fragile-v0 --epsilon-start 1e-9 1 --trial-steps 40 --net 8 --n-trials 3 --seed 1'
    assert execute(f'{line} --sampler random --study s --storage journal:s.log') == 0
    first, *others = study_in('journal:s.log').trials
    # of a network that always says the same, only chance changes the action
    assert (first.params['epsilon_start'], first.state) == (1.0, FAIL)
    assert first.user_attrs['reason'] == 'ArithmeticError: I do not like changes'
    assert [trial.value for trial in others] == [10.0] * 2
    printed = capsys.readouterr().out
    assert 'failed (ArithmeticError: I do not like changes)' in printed
    assert 'Finished: 3 trials in this call; the study has 2 complete, 0 pruned, 1 failed' in printed


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('ppo --env CartPole-v9', "--env: no environment 'CartPole-v9' (did you mean CartPole-v1?)"),
        ('ppo --env CartPoll-v1', "--env: no environment 'CartPoll-v1' (did you mean CartPole-v1?)"),
        ('ppo --env nowhere:CartPole-v1', "--env: cannot import 'nowhere'"),
        ('dqn --env Pendulum-v1', '--env: Pendulum-v1 has Box actions, dqn admits Discrete ones'),
        ('ddpg --env CartPole-v1', '--env: CartPole-v1 has Discrete actions, ddpg admits Box ones'),
        ('ppo --env CartPole-v1 --env-kwargs no=1', "--env-kwargs: CartPole-v1 takes no 'no'"),
        ('ppo --env CartPole-v1 --model none.cfg', '--model: none.cfg: cannot be read'),
        ('ppo --env CartPole-v1 --checkpoints none/ppo.tf', '--checkpoints: the folder of none/'),
        ('ppo --env CartPole-v1 --checkpoints a.tf b.tf', '--checkpoints: got 2 paths'),
        ('ppo --env CartPole-v1 --weights none.tf', '--weights: there is no checkpoint none.tf'),
    ],
)
def test_what_only_a_worker_can_tell_is_refused_before_anything_is_written(line, said, in_real_worker, folder, capsys):
    code = execute(f'tune {line} --lr 1e-4 1e-2 --n-trials 2 --study s --storage sqlite:///s.db --out out')
    printed = capsys.readouterr()
    last = printed.err.splitlines()[-1].removeprefix('xagents tune: ')
    assert (code, printed.out) == (2, ''), last
    assert last.startswith(said)
    assert len(printed.err.splitlines()) == 1
    assert list(folder.iterdir()) == []


# --------------------------------------------------------------------------------------- the rest, with stand-in agents


@pytest.fixture
def stand_ins(stand_in, monkeypatch):  # noqa: F811
    """Workers have stand-ins for agents."""
    monkeypatch.syspath_prepend(str(stand_in))


STUDY = 'tune ppo --env Any-v0 --trial-steps 100 --lr 1e-5 7e-4 --seed 1 --pruner none'
KEPT = f'{STUDY} --study s --storage sqlite:///s.db'


def test_a_study_in_memory_offers_a_file_in_its_last_line(stand_ins, folder, capsys):
    assert execute(f'{STUDY} --n-trials 2') == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith('xagents train ppo --env Any-v0 ')
    offered = lines[-1].partition(': ')[2]
    assert '--storage sqlite:///' in offered
    assert list(folder.iterdir()) == []
    # what is offered can be typed
    assert execute(f'{STUDY} {offered}') == 0
    assert [path.suffix for path in folder.iterdir()] == ['.db']


def test_each_finished_trial_is_a_line_and_the_last_lines_are_the_result(stand_ins, capsys):
    assert execute(f'{KEPT} --n-trials 3') == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(':')[0] for line in lines[1:4]] == ['trial 0', 'trial 1', 'trial 2']
    assert lines[-3] == 'Finished: 3 trials in this call; the study has 3 complete, 0 pruned, 0 failed'
    assert lines[-2].startswith('Best: trial 0, 0.0007')
    assert lines[-1] == 'xagents train ppo --env Any-v0 --max-steps 100 --lr 0.0007 --seed 1'


def test_the_table_is_not_shown_where_nobody_wants_it(stand_ins, capsys):
    assert execute(f'{KEPT} --n-trials 1 --quiet') == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.startswith(('trial', 'Study'))]
    assert lines[-1].startswith('xagents train ppo')


def test_results_are_written_to_a_folder_and_can_be_read_back(stand_ins, folder, capsys):
    assert execute(f'{KEPT} --n-trials 3 --out results') == 0
    study = study_in('sqlite:///s.db')
    written = {path.name for path in (folder / 'results').iterdir()}
    assert {'best.yaml', 'trials.parquet', 'history.png', 'slices.png', 'parallel.png'} <= written
    best = {'agent': 'ppo', **studies.options_of(study, study.best_trial)}
    file = read_config_file(folder / 'results/best.yaml')
    assert (file.agent, file.options, file.grid) == (best.pop('agent'), best, {})
    assert len(pd.read_parquet(folder / 'results/trials.parquet')) == 3


@pytest.mark.parametrize('storage', ['sqlite:///s.db', 'journal:s.log'])
def test_a_study_that_exists_is_continued(storage, stand_ins, capsys):
    line = f'{STUDY} --storage {storage} --n-trials 2'  # without --study: by agent and environment
    assert execute(line) == 0
    assert execute(line) == 0
    assert 'continued after 2 trials' in capsys.readouterr().out
    study = study_in(storage, 'ppo-Any-v0')
    assert states(study) == [COMPLETE] * 4
    assert len({trial.params['lr'] for trial in study.trials}) == 4


def test_a_study_that_does_not_fit_is_refused_on_one_line_and_left_alone(stand_ins, capsys):
    assert execute(f'{KEPT} --gamma 0.9 --n-steps 16 32') == 0
    optuna.create_study(study_name='down', storage=open_storage('sqlite:///s.db'), direction='minimize')
    capsys.readouterr()
    fits = 'tune ppo --env Any-v0 --trial-steps 100 --lr 1e-5 7e-4 --gamma 0.9 --n-steps 16 32 --study s'
    wrong = {
        fits.replace('tune ppo', 'tune a2c'): 'agent: got a2c',
        fits.replace('Any', 'Other'): '--env: got Other-v0',
        fits.replace('100', '200'): '--trial-steps: got 200',
        f'{fits} --objective evaluation': '--objective: got evaluation',
        f'{fits} --trial-seeds 2': '--trial-seeds: got 2',
        fits.replace('16 32', '16 64'): '--n-steps: got one of 16, 64',
        fits.replace('0.9', '0.8'): '--gamma: got 0.8',
        fits.replace('--gamma 0.9', ''): '--gamma: got the default',
        f'{fits} --lam 0.8 0.9': '--lam: is searched here',
        fits.replace('--lr 1e-5 7e-4', '--lr 1e-5'): '--lr: is not searched here',
        fits.replace('--study s', '--study down'): '--study: got down, which was made to minimize',
    }
    for line, said in wrong.items():
        assert execute(f'{line} --storage sqlite:///s.db') == 2, line
        printed = capsys.readouterr()
        (refusal,) = printed.err.splitlines()
        assert refusal.startswith(f'xagents tune: {said}'), refusal
    assert states(study_in('sqlite:///s.db')) == [COMPLETE]
    assert execute(f'{fits} --storage sqlite:///s.db') == 0


def test_a_study_in_which_every_trial_fails_ends_with_the_reason(stand_ins, capsys):
    code = execute(f'{STUDY} --n-trials 2 --env-kwargs most=1e-9')
    assert code == 1
    assert 'no trial was completed; the last one said: ArithmeticError' in capsys.readouterr().err.splitlines()[-1]


# signals, to a process of its own


@pytest.fixture
def start(stand_in, folder):  # noqa: F811
    """Starts `xagents` in a process; gives it once the file `hangs` is there, with what it and its workers are."""
    begun = []

    def start(line, code='from xagents.cli import main; main()', until='hangs'):
        words = [sys.executable, '-c', code, *shlex.split(line)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding='utf-8')
        begun.append(process)
        if until:
            wait_until(lambda: (folder / until).exists() or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            begun.extend(psutil.Process(process.pid).children(recursive=True))
        return process, begun[begun.index(process) + 1 :]

    yield start
    for process in begun:
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(10)


def check_next_call(trial_of):
    """Checks what the same command does after a call that was broken off in trial `trial_of`."""
    before = study_in('sqlite:///s.db').trials
    finished = [trial.number for trial in before if trial.state == COMPLETE]
    begun = time.monotonic()
    assert execute(f'{HANGS} --n-trials 2') == 0
    assert time.monotonic() - begun < 45  # nothing waits for a beat or a lock
    trials = study_in('sqlite:///s.db').trials
    assert [trial.number for trial in trials if trial.state == COMPLETE][: len(finished)] == finished
    assert [trial.state for trial in trials].count(COMPLETE) == len(finished) + 2
    assert {trial.state for trial in trials} == {COMPLETE, FAIL}
    (retry,) = [trial for trial in trials if 'retry_of' in trial.user_attrs]
    assert (retry.user_attrs['retry_of'], retry.state) == (trial_of, COMPLETE)
    assert retry.params == trials[trial_of].params


HANGS = f'{KEPT} --env-kwargs \'hangs="hangs"\' below=7e-4'


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_study_keeps_what_was_finished_and_says_how_to_go_on(number, code, start, stand_ins):
    process, workers_of = start(f'{HANGS} --n-trials 4')
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, '')
    lines = out.splitlines()
    assert any(line.startswith('Interrupted: 1 trial') for line in lines), out
    assert any(line.startswith('xagents train ppo --env Any-v0 ') for line in lines)
    assert 'xagents tune ppo' in lines[-1]
    assert not psutil.wait_procs(workers_of, timeout=10)[1]
    trials = study_in('sqlite:///s.db').trials
    assert [trial.state for trial in trials][:2] == [COMPLETE, FAIL]
    assert RUNNING not in [trial.state for trial in trials]
    check_next_call(1)


def test_an_interrupted_study_without_a_finished_trial_is_no_error(start, stand_ins):
    process, workers_of = start(f'{STUDY} --env-kwargs \'hangs="hangs"\'')
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, '')
    assert any(line.startswith('Interrupted: 0 trials') for line in out.splitlines()), out
    assert not psutil.wait_procs(workers_of, timeout=10)[1]


def test_after_the_parent_was_killed_its_workers_end_and_the_next_call_takes_over(start, stand_ins):
    process, workers_of = start(f'{HANGS} --n-trials 4 --n-jobs 2')
    assert len(workers_of) == 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(workers_of, timeout=30)[1]
    trials = study_in('sqlite:///s.db').trials
    broken_off = [trial.number for trial in trials if trial.state == RUNNING]
    assert broken_off
    finished = {trial.number: trial.value for trial in trials if trial.state == COMPLETE}
    assert execute(f'{HANGS} --n-trials 3') == 0
    trials = study_in('sqlite:///s.db').trials
    assert {n: trials[n].value for n in finished} == finished
    assert {trial.state for trial in trials} == {COMPLETE, FAIL}
    assert [trial.state for trial in trials].count(COMPLETE) == len(finished) + 3
    assert sorted(t.user_attrs['retry_of'] for t in trials if 'retry_of' in t.user_attrs) == broken_off


KILLED_AS_IT_ASKS = """
import os, signal, sys
import optuna
ask = optuna.Study.ask


def ask_and_die(study, *arguments, **options):
    trial = ask(study, *arguments, **options)
    if trial.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return trial


optuna.Study.ask = ask_and_die
from xagents.cli.dispatch import main
main()
"""


def test_a_parent_that_is_killed_as_it_asks_for_a_trial_leaves_none_running(start, stand_ins):
    """Between the moment that a trial exists and the one at which it says whose it is."""
    process, _ = start(f'{KEPT} --n-trials 3', code=KILLED_AS_IT_ASKS, until=None)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert states(study_in('sqlite:///s.db'))[0] == COMPLETE
    assert execute(f'{KEPT} --n-trials 2') == 0
    found = states(study_in('sqlite:///s.db'))
    assert RUNNING not in found
    assert found.count(COMPLETE) == 3


def test_two_calls_of_one_study_at_once_finish_each_its_own(start, stand_ins):
    line = f'{STUDY} --study s --storage journal:s.log --n-trials 4 --env-kwargs seconds=0.1'
    calls = [start(line, until=None)[0] for _ in range(2)]
    outputs = [call.communicate(timeout=120) for call in calls]
    assert [call.returncode for call in calls] == [0, 0], outputs
    study = study_in('journal:s.log')
    assert states(study) == [COMPLETE] * 8
    by_process = [trial.user_attrs['pid'] for trial in study.trials]
    assert sorted(by_process.count(pid) for pid in set(by_process)) == [4, 4]


# --------------------------------------------------------------------------------------------- training from a study


@pytest.fixture
def study_of_a2c(folder):
    """The URL of a study with a best trial, made without training anything."""
    url = 'sqlite:///s.db'
    study = optuna.create_study(study_name='s', storage=open_storage(url), direction='maximize')
    facts = {'env': 'CartPole-v1', 'fixed': {'n_envs': 2, 'net': [8]}, 'trial_steps': 60, 'agent': 'a2c'}
    for name, value in {**facts, 'objective': 'reward', 'trial_seeds': 1}.items():
        study.set_user_attr(name, value)
    space = {
        'lr': optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True),
        'normalize_obs': optuna.distributions.CategoricalDistribution((False, True)),
    }
    for lr, normalize, value in ((1e-3, False, 10.0), (2e-3, True, 30.0), (3e-3, False, 20.0)):
        study.enqueue_trial({'lr': lr, 'normalize_obs': normalize})
        study.tell(study.ask(space), value)
    return url


def test_training_takes_the_best_trial_of_a_study(study_of_a2c, folder, without_xla, monkeypatch, capsys):
    from xagents.factory import make as factory

    made = []
    real = factory.make

    def make(*names, **options):
        made.append((names, options))
        return real(*names, **options)

    monkeypatch.setattr(factory, 'make', make)
    line = f'train a2c --from-study s --storage {study_of_a2c}'
    assert execute(f'{line} --seed 3 --checkpoints a.tf --final-episodes 0') == 0
    (names, options) = made.pop()
    expected = {'n_envs': 2, 'net': [8], 'lr': 2e-3, 'normalize_obs': True, 'max_steps': 60, 'seed': 3}
    assert names == ('a2c', 'CartPole-v1')
    assert {name: options[name] for name in expected} == expected
    printed = capsys.readouterr().out.splitlines()
    said = 'Trial 1 of study s (30): --env CartPole-v1 --n-envs 2 --net 8 --lr 0.002 --normalize-obs --max-steps 60'
    assert sorted(printed[0].split()) == sorted(said.split())
    assert any(line.startswith('Maximum steps exceeded') for line in printed)
    assert (folder / 'a.tf.index').exists()
    # flags win
    assert execute(f'{line} --seed 3 --lr 0.1 --no-normalize-obs --max-steps 20 --final-episodes 0 --quiet') == 0
    options = made.pop()[1]
    assert (options['lr'], options['normalize_obs'], options['max_steps']) == (0.1, False, 20)


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('ppo --from-study s --storage sqlite:///s.db', '--from-study: got s, which is one of a2c'),
        ('a2c --from-study t --storage sqlite:///s.db', '--from-study: got t, the storage has s'),
        ('a2c --from-study s --storage sqlite:///none.db', '--storage: '),
        ('a2c --from-study s --storage journal:none.log', '--storage: '),
        ('a2c --from-study s --storage sqllite:///s.db', '--storage: '),
        ('a2c --from-study s', '--from-study and --storage: got one of them'),
        ('a2c --env CartPole-v1 --max-steps 5 --storage sqlite:///s.db', '--from-study and --storage: got one'),
        ('a2c --from-study s --storage sqlite:///s.db --tuned', '--from-study: got s beside --tuned'),
    ],
)
def test_a_study_that_gives_nothing_is_refused_before_anything_is_written(line, said, study_of_a2c, folder, capsys):
    assert execute(f'train {line} --checkpoints a.tf') == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1].startswith(f'xagents train: {said}'), printed.err
    assert [path.name for path in folder.iterdir()] == ['s.db']


def test_what_tune_prints_and_what_train_takes_are_the_same(stand_ins, capsys):
    assert execute(f'{KEPT} --n-trials 2 --n-steps 16 32 --normalize-obs --net 8 4 --env-kwargs worth="lr" most=1') == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    typed = cli.parse(find_command('train'), 'ppo', words[3:])[1]
    from xagents.cli.settle import best_of_study

    taken, _ = best_of_study('ppo', {}, 's', 'sqlite:///s.db')
    assert {name: value for name, value in typed.items() if name != 'seed'} == taken
    assert json.loads(json.dumps(typed['env_kwargs'])) == {'worth': 'lr', 'most': 1}
    assert typed['normalize_obs'] is True and typed['net'] == [8, 4]
    assert not os.path.exists('out')
