"""The command line: pages, wrong input, exit codes, and what reaches the functions behind it."""

import gc
import json
import os
import re
import subprocess
import sys
import types
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests.commands import execute
from xagents.cli import dispatch
from xagents.cli.agent_commands import json_line
from xagents.cli.command import Command
from xagents.cli.commands import commands
from xagents.cli.usage import format_default
from xagents.options.errors import OptionError
from xagents.registry.agents import agents
from xagents.system.startup import prepare_process

ROOT = Path(xagents.__file__).parents[1]
HEAVY = {'tensorflow', 'keras', 'pandas', 'pyarrow', 'matplotlib', 'gymnasium', 'numpy', 'PIL', 'shtab', 'wandb'}
HEAVY |= {'trackio', 'tensorboard', 'optuna', 'sqlalchemy', 'alembic'}
SEED_LINE = ['train', 'ppo', '--env', 'CartPole-v1', '--target-reward', '250']


def shell(*words, cwd=None, code='from xagents.cli import main; main()', **environment):
    """Runs `xagents` in a process of its own."""
    env = {**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONIOENCODING': 'utf-8', **environment}
    command = [sys.executable, '-c', code, *words]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, encoding='utf-8', timeout=120)


# ---------------------------------------------------------------------------------------------------------------- pages


def test_the_usage_page_names_every_command():
    code, usage, stderr = execute()
    assert (code, stderr) == (0, '') and execute('--help') == execute('-h') == (0, usage, '')
    assert all(f'    {name} ' in usage for name in commands)


def test_the_version_and_an_argument_with_a_line_break_are_one_line():
    assert execute('--version') == (0, f'xagents {xagents.__version__}\n', '')
    code, _, stderr = execute('train', 'ppo', '--vector', 'a\nb')
    assert (code, stderr.count('\n')) == (2, 1)


PAGES = [(command,) for command in commands] + [
    (command, agent) for command in commands if commands[command].takes_agent for agent in agents
]


def row_of(page, flag):
    """The line of the table that tells of a flag: where a long flag stands alone, the line after it."""
    lines = page.splitlines()
    (index,) = (i for i, line in enumerate(lines) if re.match(rf'{flag}(,|\s|$)', line))
    alone = all(word.rstrip(',').startswith('--') or word == '…' for word in lines[index].split())
    return lines[index + alone]


@pytest.mark.parametrize(('words', 'width'), [*((words, 80) for words in PAGES), *((PAGES[-1], n) for n in (20, 120))])
def test_a_page_shows_every_option_whole(words, width, monkeypatch):
    monkeypatch.setenv('COLUMNS', str(width))
    code, page, stderr = execute(*words, '--help-all')
    assert (code, stderr) == (0, '')
    assert '\x1b' not in page  # not a terminal: no colours
    assert max(map(len, page.splitlines())) <= max(width, 80)
    for section in commands[words[0]].sections(*words[1:]).values():
        for option in section.values():
            row = row_of(page, option.flag)
            assert format_default(option) in row.split()
            assert option.tune is None or row.split()[-1] == option.tune


@pytest.mark.parametrize('command', ['evaluate', 'play', 'record', 'export'])
def test_options_of_training_stand_behind_help_all(command):
    page = execute(command, 'ppo')[1]
    shown = set(re.findall(r'^--[a-z-]+', page, re.MULTILINE))
    assert {'--run-dir', '--env', '--seed', '--threads'} <= shown
    assert not {'--ppo-epochs', '--gamma', '--net'} & shown and 'Tuned as' not in page
    assert f'xagents {command} ppo --help-all also lists' in page
    assert 'help-all' not in execute('train', 'ppo')[1] + execute('runs')[1]


@pytest.mark.parametrize(
    ('words', 'page'),
    [
        ('train --help', 'train'),
        ('-h train', 'train'),
        ('train ppo --gamma 2 -h', 'train ppo'),
        ('train --help ppo --no-such-flag', 'train ppo'),
    ],
)
def test_help_is_answered_anywhere(words, page):
    assert execute(*words.split()) == execute(*page.split())


# ---------------------------------------------------------------------------------------------- nothing heavy is loaded

LIGHT = """
import contextlib, sys, xagents
from xagents.cli import execute

def check(what, *allowed):
    loaded = HEAVY & sys.modules.keys() - {*allowed}
    assert not loaded, (what, loaded)

xagents.agents['ppo'].options
check('import')
for line in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        execute(line.split())
    check(line, *(['numpy'] if line.startswith('tune ') else []))
import xagents.logs.history, xagents.logs.metrics, xagents.logs.monitors, xagents.logs.video
import xagents.reports.plotting, xagents.reports.runs_page
import xagents.tuning.report, xagents.tuning.storages, xagents.tuning.trial_table
check('modules', 'numpy')
execute(['completion', 'zsh'])
check('completion', 'numpy', 'gymnasium', 'shtab')
"""


def test_imports_pages_and_refusals_load_nothing_heavy(tmp_path):
    lines = ['', '--help', 'train', 'train ppo', 'plot', '--version', 'train ppo --gama 2']
    lines += ['train ppo --env X --max-steps 0']
    lines += ['report', 'report a --out b.txt', 'report a --study s']
    lines += ['play ppo --env X', 'tran', 'train poo', 'plot --by step', 'plot a b --labels c']
    lines += ['compare', 'compare a b --labels c', 'compare a b --score x']
    lines += ['tune ppo --print-search --lr 1e-4 1e-2', 'tune ppo --env X --lr 2 1', 'tune ppo']
    done = shell(*lines, code=f'HEAVY = {HEAVY}\n{LIGHT}', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------------- wrong input

NO_WEIGHTS = 'got nothing, expected the paths of --checkpoints of a training run, or --run-dir'
AGENTS = 'a2c, acer, bc, crossq, ddpg, dqn, iql, ppo, pqn, rainbow, sac, td3, td3-bc, tqc, trpo'
GOAL = '--env CartPole-v1 --max-steps 100'


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        ('--lr -.5E+2', '--lr: got -.5E+2, expected a number above 0'),
        ('--lr 0.1 --lr 0', '--lr: got 0, expected a number above 0'),
        ('--lam=--', '--lam: got --, expected a number at least 0 and at most 1'),
        ('--gamma', '--gamma: got nothing, expected a number at least 0 and at most 1'),
        ('--quiet=true', '--quiet: got a value, expected none: it is --quiet or --no-quiet'),
        ('--gama 0.9', '--gama: is no option of xagents train ppo (did you mean --gamma?)'),
        ('--seed 1 2', '2: belongs to no option, expected only flags and their values'),
    ],
)
def test_wrong_words_behind_a_training_are_refused_on_one_line(words, message, folder):
    assert execute(*f'train ppo {GOAL} {words}'.split()) == (2, '', f'xagents train: {message}\n')
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('tran ppo', 'command: got tran, expected one of train, play, tune, evaluate, record, datasets, explore, '
         'export, runs, plot, report, compare, doctor, presets, completion (did you mean train?)'),
        ('train poo --env X', f'agent: got poo, expected one of {AGENTS} (did you mean ppo?)'),
        (f'train a2c {GOAL} --ppo-epochs 3', '--ppo-epochs: is no option of xagents train a2c, but of ppo'),
        ('train ppo --env CartPole-v1',
         'got none of --target-reward, --max-steps and --max-time, expected one or more of them'),
        ('play ppo --env X', f"--weights: {NO_WEIGHTS}, or --pretrained an environment's id"),
        ('play ppo --weights a --target-reward 5',
         '--target-reward: is no option of xagents play ppo, but of xagents train'),
        ('presets --episodes 3',
         '--episodes: is no option of xagents presets, but of xagents evaluate, xagents record and xagents doctor'),
        ('play ppo --weights a --plateau-reduce-factor 3',
         '--plateau-reduce-factor: got 3, expected a number above 0 and below 1'),
        ('plot a b --labels c', '--labels: got 1, expected 2, one for each history'),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_on_one_line(line, message, folder):
    command = line.split()[0]
    who = f'xagents {command}' if command in commands else 'xagents'
    assert execute(*line.split()) == (2, '', f'{who}: {message}\n')
    assert not list(folder.iterdir())


# -------------------------------------------------------------------------- what reaches the functions behind a command


class FakeAgent:
    """Records what is called."""

    def __init__(self):
        self.calls = []

    def begin(self, command):
        self.command = command
        return self

    def recipe(self):
        return 'recipe'

    def play(self, **arguments):
        self.calls.append(('play', arguments))

    def evaluate(self, **arguments):
        self.calls.append(('evaluate', arguments))
        return {'mean': 487.333, 'std': 12.5, 'min': 450, 'max': 500.0, 'length': 487.333}

    def close(self):
        self.calls.append('close')


class FakeFactory:
    """Stands for what makes an agent, which may be refused, and what trains it, which may end with an error."""

    refuse = end = None

    def __init__(self):
        self.agent = FakeAgent()

    def make(self, agent_id, env=None, **options):
        self.made = (agent_id, env, options)
        if self.refuse is not None:
            raise self.refuse
        return self.agent

    def plan(self, agent_id, options, weights=None):
        given = {**options, **({} if weights is None else {'weights': weights})}
        if str(given.get('run_dir')).startswith('runs'):
            del given['run_dir']  # the default
        return self.plan_of(lambda: self.make(agent_id, **given), given.get('env'))

    @staticmethod
    def plan_of(build, env=None):
        """Return a plan that prints no header."""
        run = types.SimpleNamespace(quiet=True, dataset=None)
        settings = types.SimpleNamespace(run=run, environment=types.SimpleNamespace(env=env))
        return types.SimpleNamespace(build=build, settings=settings, check=lambda: None)

    def fit(self, run, recipe):
        assert (run, recipe) == (self.agent, 'recipe')
        self.agent.calls.append('fit')
        if self.end is not None:
            raise self.end


@pytest.fixture
def factory(monkeypatch):
    fake = FakeFactory()
    monkeypatch.setattr('xagents.cli.train.plan_agent', fake.plan)
    monkeypatch.setattr('xagents.cli.train.training', fake)
    monkeypatch.setattr('xagents.cli.agent_commands.make', fake.make)
    monkeypatch.setattr('xagents.factory.players.load_player_from_weights', lambda *arguments: None)
    return fake


def test_train_passes_on_what_was_given_and_nothing_else(factory):
    files = '--checkpoints ppo-cartpole.tf --history-checkpoint ppo-cartpole.parquet'
    assert execute(*SEED_LINE, *f'--n-envs 16 --n-steps 1024 {files} --seed 123'.split()) == (0, '', '')
    files = {'checkpoints': ['ppo-cartpole.tf'], 'history_checkpoint': 'ppo-cartpole.parquet'}
    numbers = {'target_reward': 250.0, 'n_envs': 16, 'n_steps': 1024, 'seed': 123}
    assert factory.made == ('ppo', 'CartPole-v1', {**numbers, **files})
    assert factory.agent.calls == ['fit', 'close']


def test_training_knows_the_line_that_goes_on(factory):
    execute(*SEED_LINE, '--env-kwargs', 'name=a b')
    assert factory.agent.command == f"xagents {' '.join(SEED_LINE)} --env-kwargs 'name=a b'"


def test_values_of_every_kind(factory):
    words = (
        '--net 32 16 --env-kwargs gravity=-9.5 name=x on=true --no-max-frame --normalize-obs --max-steps 1e5 '
        '--max-time=1e3 --log-std-init -1e-1 --lr 1 --lr 2 --quiet --no-quiet'
    )
    assert execute(*SEED_LINE, *words.split())[0] == 0
    assert factory.made[2] == {
        'target_reward': 250.0, 'net': [32, 16], 'env_kwargs': {'gravity': -9.5, 'name': 'x', 'on': True},
        'max_frame': False, 'normalize_obs': True, 'max_steps': 100_000, 'max_time': 1000.0, 'log_std_init': -0.1,
        'lr': 2.0, 'quiet': False,
    }  # fmt: skip
    assert execute('train', 'ppo', '--weights', 'a.tf', '--max-steps', '10')[0] == 0
    assert factory.made == ('ppo', None, {'weights': ['a.tf'], 'max_steps': 10})


def test_session_options_stay_with_the_command(factory, monkeypatch):
    threads = []
    monkeypatch.setattr('xagents.cli.train.set_threads', threads.append)
    execute(*SEED_LINE, '--threads', '3', '--debug')
    assert (threads, factory.made[2]) == ([3], {'target_reward': 250.0})


def test_play_splits_its_options_from_the_agents(factory):
    line = (
        'play ppo --env CartPole-v1 --weights a.tf --render --video-dir video --max-steps 7 --seed 3 --n-steps 9 '
        '--checkpoints b.tf --history-checkpoint h.parquet --log-frequency 4'
    )
    assert execute(*line.split())[0] == 0
    # what 1.0 took here and has no effect is checked and dropped: playing must not touch a training's files
    assert factory.made == ('ppo', 'CartPole-v1', {'weights': ['a.tf'], 'seed': 3, 'n_steps': 9})
    assert factory.agent.calls == [('play', {'render': True, 'video_dir': 'video', 'max_steps': 7}), 'close']


@pytest.mark.parametrize(
    ('flags', 'arguments'),
    [('--episodes 3 --stochastic', {'episodes': 3, 'stochastic': True}), ('--json', {'episodes': 20})],
)
def test_evaluate_prints_one_line(flags, arguments, factory):
    code, stdout, stderr = execute(*f'evaluate ppo --weights a.tf {flags}'.split())
    assert (code, stderr) == (0, '')
    assert factory.agent.calls == [('evaluate', {**arguments, 'n_envs': None}), 'close']
    if flags == '--json':
        assert json.loads(stdout.splitlines()[-1]) == factory.agent.evaluate()
    else:
        assert stdout == 'Reward 487.33 ± 12.50, min 450.00, max 500.00, length 487.33, 3 episodes\n'


def test_what_is_not_finite_is_null_in_json():
    line = json_line({'mean': float('nan'), 'max': float('inf'), 'min': 1})
    assert line == '{"mean": null, "max": null, "min": 1.0}', 'it is valid JSON'


def test_plot_draws_the_histories(folder):
    from xagents.logs.history import write_from_dict

    rows = {'mean_reward': [1.0, 2.0], 'best_reward': [1.0, 2.0], 'episode_reward': [1.0, 3.0]}
    for name in ('a.parquet', 'b.parquet'):
        write_from_dict({**rows, 'step': [10, 20], 'time': [0.5, 1.0]}, name)
    # the paths may stand anywhere that no option takes them
    line = 'plot a.parquet --by time --column episode_reward --title T b.parquet --labels PPO A2C --out c.png'
    code, stdout, stderr = execute(*line.split())
    assert (code, stderr) == (0, '')
    assert stdout == 'Plot saved to c.png\n'
    assert (folder / 'c.png').read_bytes().startswith(b'\x89PNG')


# ----------------------------------------------------------------------------------------------------------- exit codes


def without_line(result):
    """Return exit code, output and error without the line of this file that raised the error, which a crash names."""
    code, out, error = result
    without, found = re.subn(rf'{os.path.basename(__file__)}, line \d+; ', '', error)
    assert found == (code == 1), error
    return code, out, without


@pytest.mark.parametrize(
    ('end', 'code', 'message'),
    [
        (None, 0, ''),
        (SystemExit(143), 143, ''),
        (RuntimeError('lost\n  it'), 1, 'xagents train: RuntimeError: lost it (--debug shows the traceback)\n'),
        # in the midst of a run that is a crash and no wrong input
        (ValueError('shapes'), 1, 'xagents train: ValueError: shapes (--debug shows the traceback)\n'),
        (OptionError('n_envs', 'got 3, expected 2'), 2, 'xagents train: --n-envs: got 3, expected 2\n'),
    ],
)
def test_the_end_of_a_run_is_its_exit_code(factory, end, code, message):
    factory.end = end
    assert without_line(execute(*SEED_LINE)) == (code, '', message)
    assert factory.agent.calls == ['fit', 'close']


@pytest.mark.parametrize(
    ('end', 'code'), [(KeyboardInterrupt('closed'), 130), (SystemExit(143), 143), (RuntimeError('lost'), 1)]
)
def test_the_exit_keeps_no_object_of_the_run(end, code, monkeypatch):
    """At the end of Python, the library of Atari prints its objects that an exception still keeps."""
    kept = []

    class Environment:
        pass

    def run(arguments):
        environment = Environment()
        kept.append(weakref.ref(environment))
        raise type(end)(*end.args)

    monkeypatch.setattr(dispatch, '_dispatch', run)
    with pytest.raises(SystemExit) as stop:
        dispatch.execute(['train'])
    gc.collect()
    assert stop.value.code == code and stop.value.__context__ is None and kept[0]() is None


@pytest.mark.parametrize(
    ('error', 'code', 'message'),
    [
        (OptionError('ppo_epochs', 'got 9, expected 1'), 2, 'xagents train: --ppo-epochs: got 9, expected 1\n'),
        (OptionError('buffers', 'got 9, expected 1'), 2, 'xagents train: buffers: got 9, expected 1\n'),
        (ValueError('section [dense-1]:\nunits'), 2, 'xagents train: section [dense-1]: units\n'),
        (FileNotFoundError(2, 'No such file', 'a.tf'), 2, "xagents train: [Errno 2] No such file: 'a.tf'\n"),
        (TypeError('a bug'), 1, 'xagents train: TypeError: a bug (--debug shows the traceback)\n'),
        (KeyboardInterrupt(), 130, 'xagents train: interrupted\n'),
        # the pipe of another process, and not the reader of the output
        (BrokenPipeError('worker'), 1, 'xagents train: BrokenPipeError: worker (--debug shows the traceback)\n'),
    ],
)
def test_what_cannot_be_made_was_wrong_input(factory, error, code, message):
    factory.refuse = error
    assert without_line(execute(*SEED_LINE)) == (code, '', message)
    assert factory.agent.calls == []


def test_debug_shows_the_traceback_and_a_message_of_pages_is_cut(factory):
    for line, code, place, last in (
        ([*SEED_LINE, '--debug'], 1, 'in fit', 'RuntimeError: lost'),
        (['train', 'ppo', '--gamma', '2', '--debug'], 2, 'in parse', '--gamma: got 2, expected a number at least 0'),
    ):
        factory.end = RuntimeError('lost')
        found, _, stderr = execute(*line)
        assert found == code and stderr.startswith('Traceback') and place in stderr
        assert stderr.splitlines()[-1].startswith(f'xagents train: {last}')
    factory.end = RuntimeError('word ' * 10_000)
    assert len(execute(*SEED_LINE)[2]) < 600


@pytest.mark.skipif(os.name != 'posix', reason='pipes')
@pytest.mark.parametrize(('words', 'unbuffered'), [(('train', 'ppo'), ''), (('--version',), '1')])
def test_a_reader_that_leaves_is_no_traceback(words, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    env = {**os.environ, 'PYTHONUNBUFFERED': unbuffered}
    command = [sys.executable, '-m', 'xagents', *words]
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, '')


@pytest.mark.skipif(os.name != 'posix', reason='pipes')
def test_a_reader_that_leaves_in_the_midst_of_a_command_is_no_error():
    code = (
        'import xagents.cli.dispatch as d; d._dispatch = lambda words: [print("x" * 99) for _ in range(9999)]; d.main()'
    )
    process = subprocess.Popen([sys.executable, '-c', code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(20)) == (b'', 1)


# ---------------------------------------------------------------------------------------------- before TensorFlow loads

IMPORT = (
    'from xagents.system.startup import prepare_process as p; p(); p(); import tensorflow; '
    'import os; os.write(2, b"after")'
)


@pytest.mark.parametrize(
    ('module', 'code', 'stdout', 'stderr'),
    [
        ('import os, sys\nos.write(2, b"noise")\nprint("noise", file=sys.stderr)\nprint("out", flush=True)', IMPORT,
         'out\n', 'after'),
        # a failing import shows what it printed
        ('import os\nos.write(2, b"no libcuda\\n")\nraise ImportError("broken")',
         f'try:\n    {IMPORT}\nexcept ImportError as e:\n    import os; os.write(2, str(e).encode())',
         '', 'no libcuda\nbroken'),
        # a process without stderr imports, too
        ('print("loaded")', f'import os; os.close(2)\n{IMPORT.split("; import os")[0]}', 'loaded\n', ''),
    ],
)  # fmt: skip
def test_importing_tensorflow_is_quiet_and_nothing_else(module, code, stdout, stderr, folder):
    (folder / 'tensorflow.py').write_text(module)
    done = shell(code=code, PYTHONPATH=f'{ROOT}{os.pathsep}{folder}')
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, stderr)


@pytest.mark.skipif(sys.platform != 'linux', reason='MuJoCo chooses its own renderer elsewhere')
@pytest.mark.parametrize(
    ('given', 'found'),
    [
        ('', '1 1 3 egl'),
        ('DISPLAY=:0', '1 1 3 -'),
        ('OPENBLAS_NUM_THREADS=4 OMP_NUM_THREADS=2 TF_CPP_MIN_LOG_LEVEL=0 MUJOCO_GL=osmesa', '4 2 0 osmesa'),
    ],
)
def test_the_environment_is_set_where_the_user_has_not(given, found, monkeypatch):
    names = ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'TF_CPP_MIN_LOG_LEVEL', 'MUJOCO_GL')
    for name in (*names, 'DISPLAY', 'WAYLAND_DISPLAY'):
        monkeypatch.setenv(name, '')  # is given back by the test's end
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, 'meta_path', [*sys.meta_path])
    for pair in given.split():
        monkeypatch.setenv(*pair.split('='))
    prepare_process()
    assert ' '.join(os.environ.get(name, '-') for name in names) == found


# ------------------------------------------------------------------------------------------------------ any line at all

WORDS = [
    *commands, *agents, *('tune', '', '-', '--', '-1e-3', '-x', '0', '1', '1e400', 'nan', 'a=1', 'é\n', 'X' * 300),
    *{flag for c in commands.values() for a in (None, *agents) for o in c.options(a if c.takes_agent else None).values()
      for flag in o.flags}, '--gamma=', '--gamma=0.5', '--quiet=1', '--net=1', '--=', '--no-', '-h', '--debug=',
]  # fmt: skip


@given(
    st.one_of(st.just([]), st.sampled_from([[c, a] for c in commands for a in agents])),
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=8),
)
def test_any_line_runs_or_is_refused_on_one_line(start, words):
    ran = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Command, 'run', lambda self, *what: ran.append(what))
        code, stdout, stderr = execute(*start, *words)
    if code == 0:
        assert stderr == ''
        assert bool(stdout) != bool(ran)  # a page, or a run
    else:
        assert (code, stdout, ran) == (2, '', [])
        assert stderr.splitlines()[-1].startswith('xagents')
        assert '--debug' in words or stderr.count('\n') == 1
