"""A run as a YAML file: what it may hold, how it is refused, and that nothing is lost between options and text."""

import functools
import math
import os
import string
import threading

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.test_cli import SEED_LINE
from tests.cli.test_cli import factory as factory  # a fixture
from tests.commands import execute
from xagents.cli import dispatch as cli
from xagents.cli.resolve import resolve
from xagents.config.configuration import (
    COMMAND_LINE_ONLY,
    Configuration,
    agent_in_file,
    read_config_file,
    to_yaml,
    train_options,
)
from xagents.factory import defaults
from xagents.options.errors import OptionError, format_value
from xagents.registry.agents import agents

HEAD = 'agent: ppo\nenv: CartPole-v1\nmax-steps: 100\n'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(folder):
    """In which the command line runs in this process."""


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(text, name='run.yaml'):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(path, agent_id=None):
    """Why a file is refused, which stands on one line and begins with its name."""
    with pytest.raises(ValueError) as refused:
        read_config_file(path, agent_id)
    assert not isinstance(refused.value, OptionError), 'it names the file, not a flag'
    message = str(refused.value)
    assert '\n' not in message
    return message.removeprefix(f'{path}: ')


# --------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ('line', 'name', 'value'),
    [
        # a text in YAML 1.1
        ('lr: 1e-3', 'lr', 1e-3),
        ('lr: "0.5"', 'lr', 0.5),
        ('max-time: .5', 'max_time', 0.5),
        # a float where a whole number belongs
        ('max-steps: 1e6', 'max_steps', 1_000_000),
        # sixty-odd in YAML 1.1, and eight
        ('seed: 010', 'seed', 10),
        *((f'normalize-obs: {word}', 'normalize_obs', True) for word in ('true', 'yes', 'on', 'On', 'TRUE')),
        *((f'max-frame: {word}', 'max_frame', False) for word in ('false', 'no', 'off')),
        # a switch and nothing for YAML, but a text is a text
        ('monitor-session: no', 'monitor_session', 'no'),
        ('monitor-session: "null"', 'monitor_session', 'null'),
        ('net: [64, 6.4e1]', 'net', [64, 64]),
        ('net: 32', 'net', [32]),
        ('checkpoints:\n  - a.tf\n', 'checkpoints', ['a.tf']),
        ('env-kwargs: {gravity: -9.5, on: true, name: "1", wide: 1e-3, deep: [1, {a: ~}]}', 'env_kwargs',
         {'gravity': -9.5, 'on': True, 'name': '1', 'wide': 1e-3, 'deep': [1, {'a': None}]}),
        ('env-kwargs: {a: oN, b: .INF, c: 010, d: 0x10, e: 1:30, f: !!int one, g: !!null x}', 'env_kwargs',
         {'a': True, 'b': math.inf, 'c': 10, 'd': '0x10', 'e': '1:30', 'f': 'one', 'g': None}),
    ],
)  # fmt: skip
def test_a_value_has_the_type_that_its_option_declares(line, name, value, file):
    options = read_config_file(file(f'agent: ppo\n{line}\n')).options
    assert options == {name: value}
    assert type(options[name]) is type(value)


def test_what_is_null_was_not_given(file):
    assert read_config_file(file('agent: ppo\nseed: null\nnet: ~\nmax-time:\nenv-kwargs: {}\n')).options == {}


def test_what_made_a_file_is_ignored(file):
    path = file(f'{HEAD}about: {{command: [1, {{}}], lr: !!python/name:os.system ""}}\n')
    assert read_config_file(path) == Configuration('ppo', {'env': 'CartPole-v1', 'max_steps': 100}, {})


def test_the_agent_may_stand_on_the_line(file):
    path = file('lr: 0.1\n')
    assert read_config_file(path, 'dqn') == Configuration(None, {'lr': 0.1}, {})
    assert agent_in_file(path) is None
    assert 'agent: got nothing, expected one of a2c, ' in refusal(path)


def test_lists_are_a_grid_where_one_value_belongs(file):
    path = file(f'{HEAD}lr: [1e-3, 1]\nnet: [[64, 64], [8]]\nenv-kwargs: [{{a: 1}}, {{a: 2}}]\nquiet: [yes]\n')
    grid = {'lr': [1e-3, 1.0], 'net': [[64, 64], [8]], 'env_kwargs': [{'a': 1}, {'a': 2}], 'quiet': [True]}
    assert read_config_file(path).grid == grid


# ---------------------------------------------------------------------------------------------------------- wrong files


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('gama: 0.9', 'gama: is no option of xagents train ppo (did you mean gamma?)'),
        ('dueling: true', 'dueling: is no option of xagents train ppo, but of dqn and rainbow'),
        ('lr: -1', 'lr: got -1, expected a number above 0'),
        ('n-envs: ~', 'n-envs: got nothing, expected a whole number at least 1 and at most 16384'),
        ('quiet: 1', 'quiet: got 1, expected true or false'),
        ('lr: {a: 1}', 'lr: got a mapping, expected a number above 0'),
        ('lr: []', 'lr: got an empty list, expected a number above 0, or a list of them'),
        ('lr: [1, 1.0]', 'lr: got 1.0 twice, expected different values'),
        ('seed: [1, ~]', 'seed: got nothing in a list, expected a whole number at least 0 and at most 4294967295'),
        ('net: [[64], 8, [[]]]', 'net: got a list, expected a whole number at least 1'),
        ('env-kwargs: a=1', 'env-kwargs: got a=1, expected key: value pairs'),
        ('env-kwargs: {a-b: 1}', 'env-kwargs: got the name a-b, expected letters, digits and _'),
        ('env-kwargs: {a: 1, a: 2}', 'env-kwargs: got a twice as a key, expected names, each of them once'),
        ('run-dir: [a, b]', 'run-dir: got a list, which would make several runs, expected text'),
        ('config: a.yaml', 'config: is no setting of a run, expected only on the command line'),
        ('agent: poo', 'agent: got the key twice, the second time in line 2'),
        ('lr: 1\nlr: 1', 'lr: got the key twice, the second time in line 3'),
        ('n-envs: 1\nn_envs: 2', 'n_envs: got the key twice, the second time in line 3'),
        ('[1]: 2', 'line 2: got a key of several parts, expected a flag'),
        ('<<: {lr: 1}', '<<: is no option of xagents train ppo'),
        ('lr: !!python/object/apply:os.getcwd []',
         'lr: got the tag tag:yaml.org,2002:python/object/apply:os.getcwd, expected plain values'),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_refused_by_name(text, message, file):
    assert refusal(file(f'agent: ppo\n{text}\n')) == message


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'is empty, expected the flags of xagents train as keys, such as lr: 0.001'),
        ('- lr\n', 'has no keys, expected the flags of xagents train as keys, such as lr: 0.001'),
        ('agent: ppo\nnet: [64, 6', "is no YAML: expected ',' or ']', but got '<stream end>', line 2"),
        (b'\xff\xfe\x00', 'is no text in UTF-8'),
        ('agent: poo\n', f'agent: got poo, expected one of {", ".join(agents)} (did you mean ppo?)'),
        ('agent: [ppo]\n', f'agent: got a sequence, expected one of {", ".join(agents)}'),
        ('a: ' + '[' * 600, 'is nested too deep, expected keys and their values'),
    ],
)
def test_a_torn_or_foreign_file_is_refused(text, message, file):
    assert refusal(file(text)) == message


def test_a_file_that_is_none(tmp_path, file):
    file('lr: 1')
    assert refusal('runs.yaml') == 'there is no file runs.yaml (did you mean run.yaml?)'
    assert refusal('no/such.yaml') == 'there is no file no/such.yaml'
    (tmp_path / 'folder').mkdir()
    assert refusal('folder') == 'is a directory, expected a YAML file'
    assert refusal('run.yaml/x.yaml') == 'cannot be read (Not a directory)'
    file('lr: 1', 'folder/config.yaml')
    assert refusal('folder').endswith(f'(did you mean {os.path.join("folder", "config.yaml")}?)')


def test_a_file_that_refers_to_itself_or_means_billions_is_refused(file):
    assert refusal(file('agent: ppo\nenv-kwargs: {a: &a [*a]}\n')) == 'env-kwargs: is nested too deep'
    lines = ['a: &a0 [0, 0]', *(f'k{i}: &a{i} [{", ".join([f"*a{i - 1}"] * 9)}]' for i in range(1, 30))]
    bomb = 'agent: ppo\nenv-kwargs:\n  ' + '\n  '.join(lines) + '\n'
    assert refusal(file(bomb)) == 'env-kwargs: got more than 10000 values, expected fewer'


pieces = st.sampled_from([
    *('agent: ppo', 'lr: ', 'net: ', 'about: ', 'seeds: ', 'env-kwargs: ', '<<: ', '[', ']', '{', '}', ': ', '- '),
    *('\n', ' ', ',', '&a ', '*a', '1e3', '"', "'", '!!', '|', '~', '? ', '%', '\t', '\x00', 'é', '#', '---', '...'),
    '\ufeff',
])  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(pieces, max_size=25).map(''.join) | st.binary(max_size=30), agent_id=st.sampled_from([None, 'ppo'])
)
def test_any_file_is_read_or_refused_on_one_line(text, agent_id, file):
    path = file(text)
    try:
        read_config_file(path, agent_id)
    except ValueError as refused:
        assert str(refused).startswith(f'{path}: ') and '\n' not in str(refused)


# ------------------------------------------------------------------------------------------------------- there and back

texts = st.text(min_size=1, max_size=8) | st.sampled_from(
    ['1e5', 'yes', 'oN', 'null', '0x10', '010', '~', '1:30', '- a', '\x85', '.inf', '<<', '=']
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.text(string.ascii_letters, min_size=1, max_size=5)


def values_of(option):
    """Values that an option admits."""
    if option.choices:
        one = st.sampled_from(option.choices)
    elif option.type is bool:
        one = st.booleans()
    elif option.type is dict:
        return st.dictionaries(names, plain, min_size=1, max_size=3)
    elif option.type is str:
        one = texts
    else:
        numbers = st.integers(-5, 10**6) if option.type is int else st.floats(-30, 30) | st.floats(allow_nan=False)
        one = numbers.filter(lambda value: admitted(option, value))
    return st.lists(one, min_size=1, max_size=3) if option.is_list else one


def admitted(option, value):
    try:
        return option._check_one(value) == value
    except OptionError:
        return False


@st.composite
def given_options(draw):
    agent_id = draw(st.sampled_from(list(agents)))
    known = {name: o for name, o in train_options(agent_id).items() if name not in (*COMMAND_LINE_ONLY, 'imports')}
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=6, unique=True))
    return agent_id, {name: draw(values_of(known[name])) for name in chosen}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chosen=given_options(), about=st.dictionaries(texts, plain, max_size=3))
def test_options_are_read_back_as_they_were(chosen, about, file):
    agent_id, options = chosen
    text = to_yaml(agent_id, options, about)
    assert text.isascii() and text.startswith(f'agent: {agent_id}\n')
    read = read_config_file(file(text))
    assert read == (agent_id, options, {})
    assert all(type(read.options[name]) is type(value) for name, value in options.items())
    others = yaml.safe_load(text)  # somebody else's reader
    assert others.pop('about', {}) == about
    assert others == {'agent': agent_id, **{name.replace('_', '-'): value for name, value in options.items()}}


def test_what_only_python_holds_is_named_in_a_comment(file):
    text = to_yaml('ppo', {'env': len, 'lr': 0.5})
    assert '# env was given in Python: <built-in function len>\n' in text
    assert read_config_file(file(text)).options == {'lr': 0.5}


# ------------------------------------------------------------------------------------------------------- on the command


def test_a_file_stands_for_a_line(file, factory):
    file(f'{HEAD}n_envs: 4\nlr: 1e-3\n')
    assert execute('train', '--config', 'run.yaml') == (0, '', '')
    assert factory.made == ('ppo', 'CartPole-v1', {'max_steps': 100, 'n_envs': 4, 'lr': 1e-3})
    assert factory.agent.command == 'xagents train --config run.yaml'
    file('env: CartPole-v1\nmax-steps: 100\n', 'b.yaml')
    assert execute('train', 'a2c', '--config=b.yaml', '--lr', '1')[0] == 0
    assert factory.made == ('a2c', 'CartPole-v1', {'max_steps': 100, 'lr': 1.0})


def test_the_line_wins_over_the_file_and_the_file_over_tuned_settings(file, factory):
    file('agent: ppo\nenv: CartPole-v1\ntuned: true\nn-steps: 7\nmini-batches: 2\ngamma: 0.5\nquiet: on\n')
    assert execute('train', '--config', 'run.yaml', '--gamma', '0.25')[0] == 0
    _, env, made = factory.made
    tuned, _ = defaults.apply_tuned_settings('ppo', {'env': 'CartPole-v1'})
    taken = {name: value for name, value in tuned.items() if name not in ('env', 'minibatch_size')}
    assert env == 'CartPole-v1'
    assert made == {**taken, 'n_steps': 7, 'mini_batches': 2, 'gamma': 0.25, 'quiet': True}


@pytest.mark.parametrize(
    ('text', 'words', 'left'),
    [
        # an option that replaces another option overrides it
        ('mini-batches: 4', '--minibatch-size 32', {'minibatch_size': 32}),
        ('net: [64]\nactivation: relu', '--model a.cfg', {'model': 'a.cfg'}),
        ('net: [64]\nactivation: relu', '--net 8', {'net': [8], 'activation': 'relu'}),
        ('seeds: [1, 2]', '--seed 3', {'seed': 3}),
        ('lr: [1, 2]', '--lr 3', {'lr': 3.0}),
        ('tuned: yes', '--no-tuned', {}),
    ],
)
def test_what_the_line_says_leaves_no_room_for_what_contradicts_it(text, words, left, file):
    path = file(f'{HEAD}{text}\n')
    given_on_the_line = cli.parse(cli.commands['train'], 'ppo', ['--config', str(path), *words.split()])[1]
    resolved = resolve('ppo', given_on_the_line)
    assert resolved.options == {'env': 'CartPole-v1', 'max_steps': 100, **left}
    assert resolved.grid == {}


@pytest.mark.parametrize(
    ('text', 'words', 'message'),
    [
        ('mini-batches: 4\nminibatch-size: 4', '',
         '--minibatch-size: cannot be used with --mini-batches, expected one of the two'),
        ('keep: 3', '', '--keep: got 3, which requires --checkpoint-frequency'),
        ('grid-jobs: 2', '', '--grid-jobs: got 2 for one run, expected several runs, by --seeds or lists in --config'),
        ('seeds: [1]\nseed: 2', '', '--seeds: got 1 with --seed, expected one of the two'),
        ('seeds: [1, 1]', '', '--seeds: got 1 1, expected different values'),
        ('lr: [1, 2]\nseeds: [1]', '--run-dir none',
         '--run-dir: got none, expected a directory for the runs of a grid over --lr and --seed'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_and_nothing_is_written(text, words, message, file, tmp_path):
    file(f'{HEAD}{text}\n')
    config = () if '--resume' in words else ('--config', 'run.yaml')
    code, stdout, stderr = execute('train', *config, *words.split())
    assert (code, stdout, stderr) == (2, '', f'xagents train: {message}\n')
    assert [path.name for path in tmp_path.iterdir()] == ['run.yaml']


@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='needs a pipe with a name')
def test_a_file_may_be_a_pipe_that_is_read_once(tmp_path, factory):
    """As a shell's `<(...)` is."""
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(HEAD,))
    writer.start()
    code, _, stderr = execute('train', 'ppo', '--config', str(pipe), '--lr', '0.5')
    writer.join()
    assert (code, stderr) == (0, '') and factory.made[2]['lr'] == 0.5


def test_a_file_may_leave_out_what_is_required_only_where_the_line_has_it(file, factory):
    file('agent: ppo\nlr: 1\n')
    assert '--env: got nothing, expected a Gymnasium id' in execute('train', '--config', 'run.yaml')[2]
    assert '--target-reward, --max-steps and --max-time' in execute('train', '--config', 'run.yaml', '--env', 'A-v0')[2]
    assert execute('train', '--config', 'run.yaml', '--env', 'A-v0', '--max-time', '5')[0] == 0
    assert factory.made == ('ppo', 'A-v0', {'lr': 1.0, 'max_time': 5.0})


# --------------------------------------------------------------------------------------------------------- print-config


def test_the_present_command_as_a_file(file, factory):
    words = [*SEED_LINE, '--lr', '1e-5', '--net', '64', '32', '--env-kwargs', 'a=yes', 'b=1', '--no-max-frame']
    code, page, _ = execute(*words, '--print-config')
    assert code == 0
    assert yaml.safe_load(page) == {
        'agent': 'ppo', 'env': 'CartPole-v1', 'max-frame': False, 'env-kwargs': {'a': 'yes', 'b': 1},
        'target-reward': 250.0, 'net': [64, 32], 'lr': 1e-5,
    }  # fmt: skip
    file(page)
    assert execute('train', '--config', 'run.yaml', '--print-config') == (0, page, '')
    execute(*words)
    typed = factory.made
    execute('train', '--config', 'run.yaml')
    assert factory.made == typed


def test_lists_tuned_settings_and_flags_come_together_in_one_file(file):
    file('agent: ppo\ntuned: true\nlr: [1e-3, 1e-4]\n')
    line = 'train --config run.yaml --env CartPole-v1 --seeds 1 2 --print-config'
    code, page, _ = execute(*line.split())
    assert code == 0
    tuned, _ = defaults.apply_tuned_settings('ppo', {'env': 'CartPole-v1'})
    read = read_config_file(file(page))
    assert read.grid == {'lr': [1e-3, 1e-4], 'seed': [1, 2]}
    assert read.options == {name: value for name, value in tuned.items() if name != 'lr'}
    assert execute('train', '--config', 'run.yaml', '--print-config')[1] == page


@pytest.mark.parametrize(('env', 'code'), [('Acrobot-v1', 0), ('NoSuch-v1', 2)])
def test_settings_that_are_tuned_for_an_environment_wait_for_it(env, code, file):
    file(f'agent: ppo\ntuned: true\nenv: [CartPole-v1, {env}]\n')
    found, page, _ = execute('train', '--config', 'run.yaml', '--print-config')
    assert found == code
    assert code or yaml.safe_load(page) == {'agent': 'ppo', 'env': ['CartPole-v1', env], 'tuned': True}


@pytest.mark.parametrize('agent_id', agents)
def test_what_was_not_given_stands_at_its_default(agent_id, file):
    page = execute('train', agent_id, '--print-config')[1]
    comments = [line.removeprefix('# ') for line in page.splitlines() if ':' in line and line.startswith('# ')]
    known = train_options(agent_id)
    assert len(comments) == len(known) - len(COMMAND_LINE_ONLY)
    for line in comments:
        name = line.partition(':')[0].replace('-', '_')
        read = read_config_file(file(f'{line}\n'), agent_id)
        assert read.options.get(name) == known[name].default
        assert line.endswith(f'  # {known[name].help}')


# ---------------------------------------------------------------------------------------------------------- run folders


LONG = 'x' * 400


@pytest.fixture
def folders(monkeypatch, factory, file, tmp_path):
    """A run folder runs/x and a group runs/g beside it; returns what `xagents.factory.load` was asked for."""
    for folder in ('runs/x', 'runs/g/lr=1', 'runs/g/lr=2', 'runs/empty'):
        (tmp_path / folder).mkdir(parents=True)
    file(HEAD + 'seed: 1\n', 'runs/x/config.yaml')
    file(HEAD + 'lr: [1, 2]\n', 'runs/g/group.yaml')
    file(HEAD + 'lr: 2\n', 'runs/g/lr=2/config.yaml')
    calls = []

    def load(name, *folder, **options):
        calls.append((name, *folder, options))
        return factory.agent

    def plan_resume(folder, **options):
        return factory.plan_of(lambda: load('resume', folder, **options))

    monkeypatch.setattr('xagents.cli.train.plan_resume', plan_resume)
    monkeypatch.setattr('xagents.cli.agent_commands.load', functools.partial(load, 'load'))
    return calls


@pytest.mark.parametrize('words', ['train --resume runs/x', 'train ppo --resume runs/x --env CartPole-v1'])
def test_a_run_goes_on(words, folders, factory):
    assert execute(*words.split(), '--lr', '0.5', '--max-steps', '9') == (0, '', '')
    line = f'xagents {words} --lr 0.5 --max-steps 9'
    assert folders == [('resume', 'runs/x', {'lr': 0.5, 'max_steps': 9})]
    assert factory.agent.calls == ['fit', 'close'] and factory.agent.command == line


def test_a_run_folder_is_played_and_evaluated(folders, factory):
    assert execute('play', '--run-dir', 'runs/x', '--render', '--seed', '3')[0] == 0
    line = 'evaluate ppo --run-dir runs/x --checkpoint last --episodes 3 --n-envs 2 --quiet'
    assert execute(*line.split())[0] == 0
    assert folders == [('load', 'runs/x', 'best', {'seed': 3}), ('load', 'runs/x', 'last', {'n_envs': 2})]
    played, evaluated = ('play', {'render': True}), ('evaluate', {'episodes': 3, 'n_envs': 2})
    assert factory.agent.calls == [played, 'close', evaluated, 'close']


def test_a_run_folder_is_exported(folders, factory, monkeypatch):
    calls = []
    exporting = 'xagents.cli.agent_commands.exporting'
    monkeypatch.setattr(f'{exporting}.export', lambda agent, **arguments: calls.append((agent, arguments)))
    monkeypatch.setattr(f'{exporting}.check_out', calls.append)
    monkeypatch.setattr('xagents.cli.agent_commands.find_format', calls.append)
    assert execute('export', '--run-dir', 'runs/x', '--format', 'onnx', '--out', 'policy') == (0, '', '')
    assert calls == ['onnx', 'policy', (factory.agent, {'format': 'onnx', 'out': 'policy'})]
    assert execute('export', 'ppo', '--weights', 'a.tf', '--out', 'policy')[0] == 0
    assert calls[-1][1] == {'format': 'savedmodel', 'out': 'policy'}


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        (' '.join([*SEED_LINE, '--run-dir runs/x']),
         '--run-dir: runs/x already contains a run: resume '
         'with xagents train --resume runs/x, or choose another directory'),
        ('train dqn --resume runs/x', 'runs/x/config.yaml: agent: got ppo, expected dqn, the agent of the command'),
        ('train --config runs/x/confg.yaml',
         '--config: there is no file runs/x/confg.yaml (did you mean config.yaml?)'),
        ('train --resume runs/emty', '--resume: there is no directory runs/emty (did you mean runs/empty?)'),
        ('train --resume runs/empty', '--resume: runs/empty contains no run, expected the --run-dir of a training run'),
        ('train --resume runs/x/config.yaml',
         '--resume: runs/x/config.yaml is a file, expected the --run-dir of a training run'),
        ('train --resume runs/x --env A-v0', '--env: got A-v0, but runs/x was trained on CartPole-v1'),
        ('train --resume runs/g --lr 3', '--lr: got 3.0, but it varies among the runs of runs/g'),
        ('play --run-dir runs/g',
         '--run-dir: runs/g is a group of runs (group.yaml), expected one of them, such as runs/g/lr=2'),
        ('play ppo --run-dir runs/x --weights a', '--run-dir: got runs/x with --weights, expected one of the two'),
        ('evaluate ppo --weights a --checkpoint last',
         '--checkpoint: got last, which requires --run-dir'),
        ('evaluate --run-dir runs/x --checkpoint lost',
         '--checkpoint: got lost, expected one of best, last (did you mean last?)'),
        ('export --run-dir runs/x', '--out: got nothing, expected a directory for the policy'),
        (f'train --resume {LONG}', f'{format_value(LONG)}: File name too long'),
        ('completion fisch', 'shell: got fisch, expected one of bash, zsh, fish (did you mean fish?)'),
        ('plot --run-dir runs/x --labels a b', '--labels: got 2, expected 1, one for each history'),
    ],
)  # fmt: skip
def test_what_does_not_suit_a_run_folder_is_one_line(line, message, folders, tmp_path):
    before = sorted(tmp_path.rglob('*'))
    code, stdout, stderr = execute(*line.split())
    assert (code, stdout, stderr) == (2, '', f'xagents {line.split()[0]}: {message}\n')
    assert folders == [] and sorted(tmp_path.rglob('*')) == before
