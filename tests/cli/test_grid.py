"""A grid of runs: which runs it is, what their folders are called, and the processes that make them."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_cli_runs import ENVIRONMENT, ROOT
from tests.commands import execute
from xagents.checkpoints.status import read_status, take_lock
from xagents.cli.grid import LONGEST_NAME, run_names
from xagents.cli.grid_processes import OutputPrinter, run_all
from xagents.config.configuration import read_config_file
from xagents.processes.process_pool import ProcessPool

POSIX = pytest.mark.skipif(os.name != 'posix', reason='signals')

# stands for `python -m xagents` in a child: makes something like a run folder at once, and does what its seed says
STAND_IN = f"""
import importlib.util, json, os, pathlib, signal, socket, sys, time

spec = importlib.util.spec_from_file_location('parent_exit', {str(ROOT / 'xagents/processes/parent_exit.py')!r})
parent_exit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parent_exit)
parent_exit.exit_with_parent()
words = sys.argv[1:]
value = lambda flag: words[words.index(flag) + 1] if flag in words else None
resumed = pathlib.Path(value('--resume') or '.')
folder = pathlib.Path(value('--run-dir') or resumed)
seed = int(value('--seed') or (resumed / 'seed').read_text())
if seed == 1:
    print('xagents train: --env: no such environment', flush=True)
    os._exit(2)
print('words', json.dumps(words), flush=True)
if seed == 2 and not value('--resume'):
    print('xagents train: --env: no such environment', file=sys.stderr)
    sys.exit(2)
folder.mkdir(parents=True, exist_ok=True)
(folder / 'seed').write_text(str(seed))
(folder / 'config.yaml').write_text(f'agent: ppo\\nenv: CartPole-v1\\nseed: {{seed}}\\n')


def end(state, code):
    status = dict(state=state, why='', steps=1, games=0, seconds=1.0, mean_reward=None, best_reward=None)
    status |= dict(pid=os.getpid(), host=socket.gethostname(), updated='2026-11-22T00:00:00+00:00')
    (folder / 'status.json').write_text(json.dumps(status))
    print(state, flush=True)
    os._exit(code)


signal.signal(signal.SIGINT, lambda *_: end('interrupted', 130))
signal.signal(signal.SIGTERM, lambda *_: end('interrupted', 143))
print('ready', flush=True)
if seed == 3 and not value('--resume'):
    end('failed', 1)
if seed == 0:  # long enough for a signal to come first
    time.sleep(10)
while seed >= 8:
    time.sleep(0.01)
end('finished', 0)
"""


@pytest.fixture
def stand_in(folder, monkeypatch):
    """Lets children run the stand-in; the present folder is an empty one."""
    package = folder / 'stand-in' / 'xagents'
    package.mkdir(parents=True)
    (package / '__init__.py').touch()
    (package / '__main__.py').write_text(STAND_IN)
    (folder / 'here').mkdir()
    monkeypatch.chdir('here')
    monkeypatch.syspath_prepend(str(package.parent))
    return package.parent


def train(*words):
    """Runs a grid of PPO in runs/g; returns the exit code, the lines of stdout, and stderr."""
    code, stdout, stderr = execute('train', *words)
    return code, stdout.splitlines(), stderr


GRID = ('ppo', '--env', 'CartPole-v1', '--max-steps', '10', '--run-dir', 'runs/g', '--seeds')


@pytest.fixture
def started(stand_in, monkeypatch):
    """The processes of the runs that were started so far; `then` is called after each."""

    class Started(list):
        then = staticmethod(lambda: None)

    started = Started()
    start = ProcessPool.start

    def kept(self, *arguments):
        process = start(self, *arguments)
        started.append(process._process)
        started.then()
        return process

    monkeypatch.setattr(ProcessPool, 'start', kept)
    return started


def words_of(lines):
    """What each child was started with, by its name."""
    said = (line.partition('words ') for line in lines if '  words [' in line)
    return {name.strip(): json.loads(words) for name, _, words in said}


# ----------------------------------------------------------------------------------------------------- which runs it is


@pytest.mark.parametrize(
    ('point', 'name'),
    [
        ({'lr': 1e-05, 'double': True}, 'lr=1e-05,double=true'),
        ({'net': [64, 32]}, 'net=64-32'),
        ({'env': '../../etc'}, 'env=..-..-etc'),
        ({'env_kwargs': {'gravity': -9.5, 'name': 'a b'}}, 'env-kwargs=gravity=-9.5+name=a-b'),
        ({'model': 'a,b\n.cfg'}, 'model=a-b-.cfg'),
    ],
)
def test_a_run_is_named_by_what_varies(point, name):
    assert run_names([point]) == [name]


values = st.text(max_size=300) | st.integers() | st.floats() | st.booleans() | st.lists(st.text(max_size=5), max_size=3)


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=5), st.lists(values, min_size=1, max_size=3))
def test_any_names_are_different_and_admitted_by_a_file_system(first, second):
    points = [{'env': a, 'n_envs': b} for a, b in itertools.product(first, second)]
    points = [point for index, point in enumerate(points) if repr(point) not in map(repr, points[:index])]
    names = run_names(points)
    assert len({name.casefold() for name in names}) == len(points)
    for name in names:
        assert len(name.encode()) <= LONGEST_NAME
        assert name.isprintable() and not set('/\\:*?"<>| ') & set(name)


def test_names_do_not_depend_on_the_process():
    names = run_names([{'env': 'a/b'}, {'env': 'a b'}, {'env': 'x' * 500}])
    assert names[:2] == ['env=a-b', 'env=a-b-0a8752d0']
    assert names[2].endswith('x-b2f50903')


# --------------------------------------------------------------------------------------------------------- a whole grid


def test_a_grid_is_a_folder_of_runs(stand_in):
    Path('run.yaml').write_text('agent: ppo\nenv: CartPole-v1\nlr: [1e-3, 0.1]\nmax-steps: 10\n')
    code, lines, stderr = train('--config', 'run.yaml', '--seeds', '4', '5', '--run-dir', 'runs/g', '--gamma', '0.5')
    assert (code, stderr) == (0, '')
    names = [f'lr={lr},seed={seed}' for lr in ('0.001', '0.1') for seed in (4, 5)]
    assert {path.name for path in Path('runs/g').iterdir()} - {'.lock'} == {'group.yaml', *names}
    assert read_config_file('runs/g/group.yaml') == (
        'ppo', {'env': 'CartPole-v1', 'max_steps': 10, 'gamma': 0.5}, {'lr': [0.001, 0.1], 'seed': [4, 5]},
    )  # fmt: skip
    about = yaml.safe_load(Path('runs/g/group.yaml').read_text())['about']
    assert about['command'] == 'xagents train --config run.yaml --seeds 4 5 --run-dir runs/g --gamma 0.5'
    started = words_of(lines)
    assert list(started) == names
    folder = os.path.join('runs/g', names[1])
    expected = f'train ppo --env CartPole-v1 --max-steps 10 --gamma 0.5 --lr 0.001 --seed 5 --run-dir {folder}'
    assert sorted(started[names[1]]) == sorted(expected.split()), 'one run at a time has all threads'


def test_a_folder_that_is_taken_is_refused(stand_in):
    assert train(*GRID, '4')[0] == 0
    before = sorted(Path('runs').rglob('*'))
    hint = 'resume with xagents train --resume runs/g, or choose another directory'
    problem = f'runs/g already contains a group of runs: {hint}'
    assert train(*GRID, '5') == (2, [], f'xagents train: --run-dir: {problem}\n')
    assert sorted(Path('runs').rglob('*')) == before


def test_no_more_run_at_a_time_than_asked_for(started):
    counts = []
    started.then = lambda: counts.append(sum(process.poll() is None for process in started))
    assert train(*GRID, '4', '5', '6', '7', '--grid-jobs', '2')[0] == 0
    assert max(counts) == 2 and len(counts) == 4


def test_a_run_that_fails_takes_no_other_with_it_and_is_named(stand_in):
    code, lines, stderr = train(*GRID, '3', '4', '2', '5')
    assert code == 1
    assert stderr == 'xagents train: 2 of 4 runs failed: seed=3 (exit code 1), seed=2 (exit code 2)\n'
    assert 'seed=2  xagents train: --env: no such environment' in lines, 'what it said stands under its name'
    states = {name: read_status(f'runs/g/seed={name}')['state'] for name in (3, 4, 5)}
    assert states == {3: 'failed', 4: 'finished', 5: 'finished'}


def test_input_that_every_run_refuses_is_told_on_one_line_and_leaves_nothing(stand_in):
    assert train(*GRID, '1') == (2, ['Run directories: runs/g/…'], 'xagents train: --env: no such environment\n')
    assert not Path('runs').exists(), 'folders that were made for it are gone'
    Path('runs').mkdir()
    Path('run.yaml').write_text('lr: [1, 2, 3]\nseed: 2\n')
    code, lines, stderr = train(*GRID[:-1], '--config', 'run.yaml')
    assert (code, stderr) == (2, 'xagents train: --env: no such environment\n')
    assert list(words_of(lines)) == ['lr=1.0'], 'the others would have said the same'
    assert Path('runs').exists() and not Path('runs/g').exists()


@pytest.mark.parametrize('flag', ['--checkpoints a.tf', '--tensorboard t'])
def test_what_each_run_has_in_its_own_folder_cannot_be_shared(flag, stand_in):
    code, _, stderr = train(*GRID, '1', '2', *flag.split())
    assert (code, stderr.count('\n')) == (2, 1)
    assert f'{flag.split()[0]}: got ' in stderr and 'every run of a grid uses its own directory' in stderr
    assert not Path('runs').exists()


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('minibatch-size: [32, 64]\nmini-batches: 2', 'minibatch_size'),
        ('env: [A-v0, B-v0]\ntuned: true', 'A-v0'),
        ('lr: [1, -1]', 'run.yaml: lr: got -1, expected a number above 0'),
    ],
)
def test_every_run_is_checked_before_the_first_begins(text, message, stand_in):
    Path('run.yaml').write_text(f'max-steps: 5\n{text}\n')
    env = () if text.startswith('env') else ('--env', 'CartPole-v1')
    code, lines, stderr = train('ppo', *env, '--config', 'run.yaml', '--run-dir', 'runs/g')
    assert (code, lines, stderr.count('\n')) == (2, [], 1)
    assert message.replace('_', '-') in stderr.replace('_', '-')
    assert not Path('runs').exists()


# ------------------------------------------------------------------------------------------------------------- going on


def test_what_every_run_refuses_on_going_on_is_told_on_one_line(stand_in):
    train(*GRID, '4', '1')
    before = sorted(Path('runs').rglob('*'))
    assert train('--resume', 'runs/g') == (2, [], 'xagents train: --env: no such environment\n')
    assert sorted(Path('runs').rglob('*')) == before


def test_a_group_goes_on_with_what_is_not_finished(stand_in):
    train(*GRID, '3', '4', '2')
    code, lines, _ = train('--resume', 'runs/g', '--n-envs', '2')
    started = words_of(lines)
    # one had failed, one had never begun, and does not now; one was finished
    assert list(started) == ['seed=3', 'seed=2']
    assert started['seed=3'] == ['train', '--resume', os.path.join('runs/g', 'seed=3'), '--n-envs', '2']
    assert started['seed=2'][:2] == ['train', 'ppo']
    assert {'--run-dir', os.path.join('runs/g', 'seed=2'), '--n-envs', '2'} <= set(started['seed=2'])
    assert code == 1


def test_a_finished_group_has_nothing_to_go_on_with_unless_its_end_is_moved(stand_in):
    train(*GRID, '4', '5')
    assert train('--resume', 'runs/g') == (
        0, ['No run of runs/g can be resumed; finished runs can, with a larger --max-steps'], '',
    )  # fmt: skip
    _, lines, _ = train('ppo', '--resume', 'runs/g', '--max-steps', '99')
    assert [words[3:] for words in words_of(lines).values()] == [['--max-steps', '99']] * 2


def test_a_group_that_was_moved_goes_on_where_it_is(stand_in):
    train(*GRID, '3')
    os.rename('runs/g', 'elsewhere')
    _, lines, _ = train('--resume', 'elsewhere')
    assert words_of(lines)['seed=3'] == ['train', '--resume', os.path.join('elsewhere', 'seed=3')]


def test_a_group_that_another_command_is_at_is_left_alone(stand_in):
    train(*GRID, '3', '4')
    with take_lock(Path('runs/g')):
        found = train('--resume', 'runs/g')
    problem = 'another command runs this group; wait for its end, or stop it'
    assert found == (2, [], f'xagents train: runs/g: {problem}\n')
    assert train('--resume', 'runs/g')[0] == 0


def test_a_run_that_another_process_has_is_left_alone(stand_in):
    train(*GRID, '3', '4')
    path = Path('runs/g/seed=3/status.json')
    path.write_text(json.dumps({**json.loads(path.read_text()), 'state': 'running', 'pid': os.getpid()}))
    with take_lock(path.parent):
        code, lines, _ = train('--resume', 'runs/g')
    assert (code, words_of(lines)) == (0, {})
    assert lines[0].startswith(f'seed=3 is skipped: process {os.getpid()} on ')


def test_a_torn_status_does_not_stop_a_run_from_going_on(stand_in):
    train(*GRID, '4')
    Path('runs/g/seed=4/status.json').write_text('{"sta')
    assert list(words_of(train('--resume', 'runs/g')[1])) == ['seed=4']


# ---------------------------------------------------------------------------------------------------- signals and death

PARENT = """
import sys, xagents.cli.grid
sys.path.insert(0, sys.argv[1])
xagents.cli.execute(sys.argv[2:])
"""


@pytest.fixture
def parent(stand_in):
    """Starts a grid whose runs do not end by themselves, in a process; returns it and its children when they run."""
    processes = []

    def start(*words):
        command = [sys.executable, '-c', PARENT, str(stand_in), 'train', *words]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        for _ in range(2):
            assert any(line.rstrip().endswith('  ready') for line in iter(process.stdout.readline, ''))
        return process, psutil.Process(process.pid).children()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def gone(children, seconds=20):
    """Whether processes end in time."""
    _, alive = psutil.wait_procs(children, timeout=seconds)
    return not alive


@POSIX
@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_reaches_every_run_once_and_the_command_says_how_to_go_on(number, code, parent):
    process, children = parent(*GRID, '8', '9', '10', '--grid-jobs', '2')
    # a Ctrl-C in the terminal is the parent's alone
    assert len({os.getpgid(child.pid) for child in children} - {os.getpgid(process.pid)}) == 2
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, '')
    assert stdout.splitlines()[-1] == (
        'Interrupted; 0 of 3 runs ended by themselves. To resume: xagents train --resume runs/g --grid-jobs 2'
    )
    assert gone(children) and not Path('runs/g/seed=10').exists()
    assert [read_status(f'runs/g/seed={seed}')['state'] for seed in (8, 9)] == ['interrupted'] * 2


@POSIX
def test_a_signal_that_comes_while_a_run_is_started_reaches_it(started):
    started.then = lambda: os.kill(os.getpid(), signal.SIGINT)
    ended = run_all({name: ['train', '--seed', '0', '--run-dir', name] for name in 'ab'}, 1, list)
    assert (ended.signal, ended.not_started) == (signal.SIGINT, ['b'])
    assert ended.codes['a'] != 0, 'without the interruption it would have finished'


@POSIX
def test_runs_save_and_end_when_their_parent_is_killed(parent):
    process, children = parent(*GRID, '8', '9', '--grid-jobs', '2')
    assert len(children) == 2
    process.kill()
    assert gone(children)
    assert [read_status(f'runs/g/seed={seed}')['state'] for seed in (8, 9)] == ['interrupted'] * 2


@POSIX
def test_no_run_is_left_behind_by_an_error_of_the_parent(started, monkeypatch):
    children = []
    started.then = lambda: children.append(psutil.Process(started[-1].pid))

    def broken(lines, name, line):
        if line == 'ready':
            raise BrokenPipeError

    monkeypatch.setattr(OutputPrinter, 'print_line', broken)
    with pytest.raises(BrokenPipeError):
        run_all(
            {name: ['train', '--seed', seed, '--run-dir', name] for name, seed in zip('ab', '89', strict=True)}, 2, list
        )
    assert gone(children, 1)


def test_a_process_that_follows_nobody_reads_no_input(monkeypatch):
    from xagents.processes import parent_exit

    monkeypatch.delenv(parent_exit.FOLLOW_PARENT_VARIABLE, raising=False)
    monkeypatch.setattr(parent_exit.threading, 'Thread', lambda **_: pytest.fail('a thread was started'))
    parent_exit.exit_with_parent()
