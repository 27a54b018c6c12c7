"""Parts of other packages: registered in a process, found by entry points, used like ours, and refused in one line."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf

import xagents
import xagents.factory.load
from tests.docs.test_docs import typed_commands
from tests.environments import Counter
from xagents import PPO
from xagents.a2c.cli import A2COptions
from xagents.cli import dispatch as cli
from xagents.cli.commands import commands
from xagents.envs.registry import env_registry as own_envs
from xagents.networks import registry as network_functions
from xagents.networks.registry import network_registry as own_networks
from xagents.options.declaration import option
from xagents.ppo.cli import PPOOptions
from xagents.registry import agents as registry
from xagents.registry.agents import BUILTIN_AGENTS, NetworkRole, agent_id_of, agents, find_agent
from xagents.registry.parts import REGISTERED_MODULES, modules_of
from xagents.runs.registry import find_stages
from xagents.runs.registry import stage_registry as own_stages

ROOT = Path(xagents.__file__).parents[1]
EXAMPLE = ROOT / 'examples' / 'own_parts'
PAGE = ROOT / 'docs' / 'extending.md'
KINDS = (registry.parts, own_networks, own_envs, own_stages)


@pytest.fixture(autouse=True)
def nothing_stays(empty_registries):
    """What a test registers is forgotten after it."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split('.')[0] in ('own_parts', 'foreign', 'helpful', 'my_module'):
            del sys.modules[name]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put a module and the metadata of a package on the path, as an installation does."""

    def install(code='', name='foreign', dist=None, **groups):
        folder = tmp_path / (dist or name)
        folder.mkdir()
        (folder / f'{name}.py').write_text(code)
        describe_distribution(folder, dist or name, 'what it is for', {f'xagents.{g}': e for g, e in groups.items()})
        monkeypatch.syspath_prepend(folder)
        importlib.invalidate_caches()
        return folder

    return install


def describe_distribution(folder, name, summary, groups):
    """Write what an installer writes of a package: its metadata and its entry points."""
    place = folder / f'{name.replace("-", "_")}-0.1.dist-info'
    place.mkdir()
    (place / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\nSummary: {summary}\n')
    sections = [f'[{group}]\n' + ''.join(f'{n} = {v}\n' for n, v in e.items()) for group, e in groups.items()]
    (place / 'entry_points.txt').write_text('\n'.join(sections))


def execute(*words):
    """The exit code of a command in this process."""
    try:
        cli.execute(words)
    except SystemExit as stop:
        return stop.code or 0
    return 0


def refused(problem, function, *arguments, **keywords):
    """The error is of one line and says `problem`."""
    with pytest.raises(ValueError) as error:
        function(*arguments, **keywords)
    assert '\n' not in str(error.value) and problem in str(error.value), str(error.value)


def make(agent_id, env=lambda: Counter(length=5), **options):
    return xagents.make(agent_id, env, **{'n_steps': 8, 'seed': 1, 'quiet': True, **options})


def gated(input_shape, output_units):
    observations = keras.Input(input_shape)
    gate = keras.layers.Dense(8, activation='sigmoid')(observations)
    hidden = keras.layers.Dense(8, activation='tanh')(observations) * gate
    return keras.Model(observations, [keras.layers.Dense(units)(hidden) for units in output_units])


# --------------------------------------------------------------------------------------------------------------- agents


def test_a_subclass_needs_nothing_but_a_name(without_xla, tmp_path):
    @xagents.register('my-ppo')
    class MyPPO(PPO):
        """PPO, and nothing else."""

    entry = find_agent('my-ppo')
    assert (entry.agent, entry.options, entry.networks) == (MyPPO, PPOOptions, BUILTIN_AGENTS['ppo'].networks)
    assert entry.help == 'PPO, and nothing else' and entry['model'] == BUILTIN_AGENTS['ppo']['model']
    assert 'my-ppo' in agents and list(agents)[-1] == 'my-ppo' and registry.help_lines()['my-ppo'] == entry.help
    weights = [str(tmp_path / 'my.tf')]
    agent = make('my-ppo', checkpoints=weights)
    assert type(agent) is MyPPO
    agent.fit(max_steps=40)
    agent.close()
    again = xagents.make('my-ppo', lambda: Counter(length=5), weights=weights)
    assert again.context.steps == 40 and again.n_steps == 8
    again.close()
    # networks of one kind are taken over, if they fit
    refused('my.tf is damaged or of another network', xagents.make, 'ppo', 'CartPole-v1', weights=weights)


def test_the_command_line_knows_what_was_registered(capsys):
    @dataclass
    class Options(PPOOptions):
        temper: float = option(0.5, 'how warm; larger is warmer', above=0, tune='log_uniform')

    @xagents.register('my-ppo', help='mine')
    class MyPPO(PPO):
        pass

    MyPPO.Options = Options  # an entry of the old options would know no --temper
    refused('has the options PPOOptions, its class Options', lambda: find_agent('my-ppo').agent)
    xagents.register('my-ppo', help='mine')(MyPPO)
    capsys.readouterr()
    assert execute('train', 'my-ppo') == 0
    page = capsys.readouterr().out
    assert page.startswith('my-ppo, mine\n') and '--temper ' in page and 'Only my-ppo' in page
    assert execute('tune', 'my-ppo', '--env', 'CartPole-v1', '--print-search', '--temper', '0.1', '1') == 0
    assert '--temper' in capsys.readouterr().out
    assert execute('train', 'my-pp', '--env', 'CartPole-v1') == 2
    assert capsys.readouterr().err.endswith('trpo, my-ppo (did you mean my-ppo?)\n')
    assert execute('train', 'my-ppo', '--env', 'CartPole-v1', '--max-steps', '1', '--temper', '0') == 2
    assert capsys.readouterr().err == 'xagents train: --temper: got 0, expected a number above 0\n'
    assert execute('train', 'my-ppo', '--env', 'CartPole-v1', '--tuned') == 2
    assert re.fullmatch(r'xagents train: --tuned: .*my-ppo has no presets.*\n', capsys.readouterr().err)
    assert execute('presets') == 0 and 'my-ppo' not in capsys.readouterr().out
    assert execute('presets', 'my-ppo') == 0
    assert 'no presets' in capsys.readouterr().out


@pytest.mark.parametrize('name', ['My', 'a_b', '-a', 'a--b', 'a-', '1a', '', 'é', '../a', 3])
def test_a_name_is_a_name(name):
    for register in (xagents.register, xagents.register_stage):
        refused('expected lowercase letters' if isinstance(name, str) else 'expected a name', register, name)
    for register in (xagents.register_env, xagents.register_network):
        refused('expected lowercase letters' if isinstance(name, str) else 'expected a name', register, name, gated)


def test_a_taken_name_is_refused_and_a_class_in_its_place_but_one_definition_may_come_again():
    refused('as in @register("my-name")', xagents.register, type('Mine', (PPO,), {}))
    refused('agent: ppo is a name of xagents itself', xagents.register, 'ppo')
    refused('stages: learn is a name of xagents itself', xagents.register_stage, 'learn')
    for version_ in (1, 2):  # a cell of a notebook is run again

        @xagents.register('mine')
        class Mine(PPO):
            number = version_

    assert find_agent('mine').agent.number == 2
    refused(
        'agent: mine is in use by tests.registry.test_extensions.', xagents.register('mine'), type('Other', (PPO,), {})
    )


def test_what_is_no_agent_is_refused():
    class Clashing(A2COptions):
        pass

    @dataclass
    class Taken(A2COptions):
        max_steps: int = option(1, 'more are more')

    Clashing.ranges = {'gama': (1, 2)}
    refused('got int, expected a subclass of BaseAgent', xagents.register('a'), int)
    refused('inherits no agent with networks', xagents.register('a'), type('Bare', (xagents.base.BaseAgent,), {}))
    refused('--max-steps is an option of the commands', xagents.register('a'), type('A', (PPO,), {'Options': Taken}))
    refused(
        'got gama, which is hidden or cannot be searched',
        xagents.register('a'),
        type('B', (PPO,), {'Options': Clashing}),
    )
    assert 'a' not in agents


def test_an_agent_may_bring_networks_of_its_own():
    networks = (NetworkRole('model', 'model', ('actor', 'critic')),)

    @xagents.register('own-nets', networks=networks)
    class OwnNets(PPO):
        pass

    refused('model: got nothing, expected a .cfg: own-nets has no default network for vectors', make, 'own-nets')
    agent = make('own-nets', net=[8])
    assert [output.shape[-1] for output in agent.model.outputs] == [2, 1]
    agent.close()


# --------------------------------------------------------------------------------------------------------- entry points

AGENT = 'from xagents import PPO\nclass Foreign(PPO):\n    """Of another package."""\n'
BROKEN = {
    'raise RuntimeError("two\\nlines")': 'RuntimeError: two lines',
    'class Foreign: pass': 'got Foreign, expected a subclass of BaseAgent',
    'from xagents.registry import Entry\nForeign = Entry.derived_from("ppo", "other", "a:F", "")': 'has the id other',
}


@pytest.mark.parametrize('code', BROKEN)
def test_a_broken_package_is_one_line_on_use_and_nothing_otherwise(package, capsys, code):
    package(code, agents={'theirs': 'foreign:Foreign'})
    goal = ('--env', 'CartPole-v1', '--max-steps', '10')
    assert execute('train', 'theirs', *goal) == 2
    error = capsys.readouterr().err
    assert error.startswith('xagents train: agent: theirs of foreign ') and error.count('\n') == 1
    assert BROKEN[code] in error
    assert 'theirs' not in agents and 'theirs' not in list(agents)
    assert find_agent('ppo') is BUILTIN_AGENTS['ppo']
    assert execute('train') == 0 and not capsys.readouterr().err


def test_names_of_packages_that_are_taken_or_none(package, capsys):
    package(
        AGENT, 'foreign', agents={'ppo': 'foreign:Foreign', 'Capital': 'foreign:Foreign', 'twice': 'foreign:Foreign'}
    )
    package(AGENT, 'helpful', agents={'twice': 'helpful:Foreign'})
    assert find_agent('ppo') is BUILTIN_AGENTS['ppo'] and registry.agent_names() == [*BUILTIN_AGENTS, 'twice']
    refused('agent: Capital of foreign is no name, expected lowercase letters', find_agent, 'Capital')
    refused('agent: twice is a name of helpful and foreign, expected one of them', find_agent, 'twice')
    lines = registry.help_lines()
    assert lines['ppo'] == BUILTIN_AGENTS['ppo'].help
    assert lines['ppo (foreign)'].startswith('refused: ppo of foreign is a name of xagents itself')
    assert lines['twice'].startswith('refused: ') and lines['Capital'].startswith('refused: ')


def test_a_class_of_a_package(package, without_xla):
    package(AGENT, agents={'theirs': 'foreign:Foreign'})
    assert registry.help_lines()['theirs'] == 'foreign: what it is for', 'loading a class would load TensorFlow'
    refused('theirs is in use by the installed package foreign', xagents.register('theirs'), type('Mine', (PPO,), {}))
    assert registry.agent_names()[-1] == 'theirs' and 'foreign' not in sys.modules
    # made by its class, nobody having looked its name up, it is still known by its name
    from foreign import Foreign

    assert agent_id_of(Foreign) == 'theirs'
    assert find_agent('theirs').agent is Foreign and find_agent('theirs').help == 'Of another package'
    refused('agent: theirs is in use by', xagents.register('theirs'), type('Mine', (PPO,), {}))
    assert agent_id_of(type('Unregistered', (Foreign,), {})) == 'unregistered'


def test_a_package_may_use_the_decorators_too(package):
    code = (
        'import xagents\n@xagents.register("theirs", help="theirs")\nclass Foreign(xagents.PPO): pass\n'
        '@xagents.register_stage("their-stage", before="learn")\ndef stage(ctx): pass\n'
    )
    package(code, agents={'theirs': 'foreign:Foreign'}, stages={'their-stage': 'foreign:stage'})
    assert find_agent('theirs').help == 'theirs'
    (part,) = find_stages(['their-stage'])
    assert (part.position, part.anchor) == ('before', 'learn')
    assert not os.environ[REGISTERED_MODULES], 'other processes find an installed package themselves'


HEAVY = {'tensorflow', 'keras', 'pandas', 'matplotlib'}


@pytest.mark.parametrize(('words', 'reads'), [(['train', 'ppo'], False), (['train', 'theirs'], True)])
def test_packages_are_read_late_and_an_entry_loads_nothing_heavy(package, words, reads):
    entry = 'from xagents.registry import Entry\nentry = Entry.derived_from("ppo", "theirs", "foreign:Heavy", "light")'
    folder = package(entry, agents={'theirs': 'foreign:entry'})
    code = (
        'import sys\nfrom xagents.registry import parts as entry_points\nread = []\n'
        'real = entry_points._read_entry_points\n'
        'entry_points._read_entry_points = lambda *a: (read.append(a), real(*a))[1]\n'
        f'from xagents.cli import execute\nexecute({words!r})\n'
        f'print(bool(read), sorted({HEAVY} & sys.modules.keys()), file=sys.stderr)'
    )
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, '-c', code], env={**os.environ, 'PYTHONPATH': path}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == f'{reads} []\n'
    assert not reads or 'light' in done.stdout


# ------------------------------------------------------------------------------------------------------------- networks


def test_a_run_folder_and_its_resume_know_the_function_and_the_stage(without_xla, tmp_path):
    xagents.register_network('gated', gated)
    xagents.register_env('counter', Counter)
    counted = []
    xagents.register_stage('count')(lambda ctx: counted.append(ctx.steps))
    agent = make('ppo', 'counter', model='gated', run_dir=str(tmp_path / 'run'), stages=['count'])
    agent.fit(max_steps=32, final_episodes=0)
    agent.close()
    again = xagents.load(tmp_path / 'run', checkpoint='last')
    assert (again.envs.id, again.origin.networks) == ('counter', ['gated'])
    assert all(map(np.array_equal, [w.numpy() for w in again.model.weights], [w.numpy() for w in agent.model.weights]))
    again.close()
    so_far = len(counted)
    resumed = xagents.resume(tmp_path / 'run', max_steps=64, quiet=True)
    resumed.fit()
    resumed.close()
    assert len(counted) > so_far > 0, 'a resumed run has the stages that it was started with'


def test_two_critics_of_one_function_share_nothing(without_xla):
    @xagents.register_network('critic')
    def critic(input_shape, output_units):
        seen.append((input_shape, output_units))
        joined = keras.Input(input_shape)
        return keras.Model(joined, keras.layers.Dense(output_units[0])(keras.layers.Dense(4)(joined)))

    seen = []
    agent = xagents.make('td3', 'Pendulum-v1', critic_model='critic', net=None, seed=1)
    assert seen == [((4,), [1])] * 2
    one, two = (model.weights[0].numpy() for model in agent.output_models[1:])
    assert not np.array_equal(one, two) and agent.origin.networks[1:] == ['critic', 'critic']
    agent.close()


def test_a_registered_cfg_is_its_file(tmp_path):
    cfg = tmp_path / 'small.cfg'
    cfg.write_text('[dense-trunk]\nunits=3\n[dense-a]\noutput=1\n[dense-b]\noutput=1\nfrom=dense-trunk\n')
    xagents.register_network('small', cfg)
    agent = make('ppo', model='small')
    assert agent.model.layers[1].units == 3 and 'dense-trunk' in agent.origin.networks[0], 'its text is kept'
    agent.close()
    cfg.write_text('[dense]\n')
    refused(f'model: {cfg}: [dense] units: is missing', make, 'ppo', model='small')


def test_what_is_no_network_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xagents.register_network('broken', lambda input_shape, output_units: 1 / 0)
    xagents.register_network('none', lambda input_shape, output_units: None)
    xagents.register_network('wide', lambda input_shape, output_units: gated(input_shape, [9, 9]))
    refused('network broken of tests cannot be built: ZeroDivisionError: ', make, 'ppo', model='broken')
    named = {'actor': keras.layers.Dense(2), 'critic': keras.layers.Dense(1)}

    def with_names(input_shape, output_units):
        entry = keras.Input(input_shape)
        return keras.Model(entry, {name: layer(entry) for name, layer in named.items()})

    xagents.register_network('named', with_names)
    refused(
        'network named of tests returned a model with a dict of outputs, expected a list', make, 'ppo', model='named'
    )
    refused('network none of tests returned a NoneType, expected a functional keras.Model', make, 'ppo', model='none')
    refused('model: got inputs [(1,)] and outputs [9, 9], expected', make, 'ppo', model='wide')
    refused('network: a got a int, expected a path', xagents.register_network, 'a', 3)
    refused('must have the arguments input_shape and output_units', xagents.register_network, 'a', lambda shape: None)
    known = 'expected a .cfg file or one of broken, named, none, wide, or module:function'
    refused(f'model: there is no file wid, {known}', make, 'ppo', model='wid')
    (tmp_path / 'wide').write_text('[nonsense]\n')
    refused('model: wide: section: got', make, 'ppo', model='wide')  # a file wins


# --------------------------------------------------------------------------------------------------------------- stages


def test_functions_instead_of_names_are_refused_with_the_ways_to_pass_them(without_xla):
    agent = make('ppo', 'CartPole-v1', n_envs=1)
    with pytest.raises(ValueError, match=r"stages: got a function, .*recipe\(\)\.after\('collect', _named\)"):
        agent.fit(max_steps=10, stages=[_named])
    with pytest.raises(ValueError, match=r'model: got a function, expected a \.cfg file, module:function, or a name'):
        make('ppo', 'CartPole-v1', model=_named)


def _named(ctx):
    """A stage without a decorator."""


def test_stages_stand_where_they_say_in_the_order_in_which_they_are_typed(without_xla):
    said = []

    @xagents.register_stage('one', after='collect')
    def one(ctx):
        said.append('one')
        yield
        said.append('after all')

    @xagents.register_stage('two')
    def two(agent):
        return lambda ctx: said.append(f'two of {agent.n_envs}')

    @xagents.register_stage('three', before='learn')
    def three(ctx):
        ctx.logs['own/mean'] = float(ctx.batch['rewards'].mean())

    agent = make('ppo', stages=['two', 'one', 'three'])
    names = agent.recipe().names
    place = names.index('collect')
    assert names[place + 1 : place + 3] == ('two', 'one') and names[names.index('learn') - 1] == 'three'
    log = next(agent.train_iter(max_steps=8))
    assert said[:2] == ['two of 1', 'one']
    assert log['own/mean'] == 7 / 8, 'one row of eight only resets'
    list(agent.train_iter(max_steps=24, stages=['one']))
    assert 'two' not in agent.recipe().names and said.count('two of 1') == 1 and 'after all' in said
    agent.close()


def test_what_is_no_stage_is_refused():
    xagents.register_stage('known', after='remember')(lambda ctx: None)
    refused('stages: got knwon, expected one of known (did you mean known?)', make, 'ppo', stages=['knwon'])
    refused('stages: got known twice', make, 'ppo', stages=['known', 'known'])
    agent = make('ppo', stages=['known'])
    refused('stages: got known, to insert after remember, expected a stage in the recipe of ppo', agent.recipe)
    agent.close()
    refused('expected one of the two', xagents.register_stage, 'a', after='collect', before='learn')
    refused('stages: a: got a int, expected a function', xagents.register_stage('a'), 3)


# --------------------------------------------------------------------------------------------------------- environments


def test_an_environment_by_its_name():
    @xagents.register_env('counter')
    def counter(length=4, render_mode=None):
        return Counter(length=length, render_mode=render_mode)

    xagents.register_env('counting', Counter)
    agent = make('ppo', 'counter', n_envs=2, env_kwargs={'length': 3})
    assert agent.envs.id == 'counter' and agent.evaluate(episodes=3)['length'] == 3
    agent.close()
    with xagents.create_envs('counting', max_episode_steps=2) as envs:
        assert envs.n_envs == 1
    refused("env: no environment 'countr' (did you mean counter?)", xagents.create_envs, 'countr')
    refused("env_kwargs: counter takes no 'lenght'", xagents.create_envs, 'counter', env_kwargs={'lenght': 3})
    refused('env: a got a int', xagents.register_env, 'a', 3)
    xagents.register_env('wrong', lambda: 3)
    refused('env: wrong made a int, expected a gymnasium.Env', xagents.create_envs, 'wrong')


def test_an_id_of_gymnasiums_stays_one(monkeypatch):
    gymnasium.register('plain-name', entry_point=lambda: Counter(length=2))
    try:
        xagents.register_env('plain-name', lambda: 3)
        with xagents.create_envs('plain-name') as envs:
            assert envs.spec.id == 'plain-name'
    finally:
        del gymnasium.registry['plain-name']


# ------------------------------------------------------------------------------------------------------ other processes


def test_other_processes_import_what_was_registered(package, tmp_path):
    code = (
        'import xagents\nfrom xagents import PPO\n@xagents.register("handed")\nclass Foreign(PPO): pass\n'
        f'xagents.register_network("small", {str(tmp_path / "small.cfg")!r})\n'
    )
    (tmp_path / 'small.cfg').write_text('[dense-a]\noutput=1\n[dense-b]\noutput=1\nfrom=input\n')
    package(code)
    importlib.import_module('foreign')
    handed = json.loads(os.environ[REGISTERED_MODULES])
    assert handed == {'agents': {'handed': 'foreign'}, 'networks': {'small': f'file:{tmp_path / "small.cfg"}'}}
    for parts in KINDS:  # a fresh process knows nothing but what it was handed
        parts.registered.clear()
        parts._objects.clear()
    del sys.modules['foreign']
    assert registry.agent_names()[-1] == 'handed' and find_agent('handed').class_name == 'Foreign'
    assert str(own_networks.find('small')) == str(tmp_path / 'small.cfg')
    registry.parts.registered.clear()
    os.environ[REGISTERED_MODULES] = json.dumps({'agents': {'handed': '__main__', 'gone': 'gone'}})
    refused('handed is registered in __main__, which other processes cannot import', find_agent, 'handed')
    refused('gone is registered in gone, which cannot be imported: ModuleNotFoundError', find_agent, 'gone')


# ------------------------------------------------------------------------------------- modules of the working directory

MINE = """
import gymnasium, keras, numpy as np, xagents
from xagents import PPO
from xagents.pipeline import stage

class Plain(PPO):
    pass

@xagents.register('named', help='with a name')
class Named(PPO):
    pass

def gated(input_shape, output_units):
    x = keras.Input(input_shape)
    return keras.Model(x, [keras.layers.Dense(units)(x) for units in output_units])

@xagents.register_stage('scaled', before='learn')
def scaled(ctx, scale: float = 1.0, clip=None):
    ctx.batch['rewards'] = ctx.batch['rewards'] * np.float32(scale)
    ctx.logs['own/scale'], ctx.logs['own/clip'] = scale, float(clip or 0)

class Counts:
    def __init__(self, every: int | None, name: str = ''):
        self.every, self.total, self.name = every or 0, 0, name
    def __call__(self, ctx):
        self.total += self.every
        ctx.logs['own/total'] = float(self.total)
        yield

@stage
def counted(contexts, first: int = 3):
    for number, ctx in enumerate(contexts, first):
        ctx.logs['own/number'] = float(number)
        yield ctx

def per_agent(agent, factor=2):
    return lambda ctx: ctx.logs.update({'own/envs': float(agent.n_envs * factor)})

def helper(x):
    pass

gymnasium.register('Mine-v0', entry_point='tests.environments:Counter', kwargs={'length': 5})
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module in the working directory, which is not on the path; a function that forgets it, as a new process."""
    (tmp_path / 'mine.py').write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [path for path in sys.path if path])

    def forget():
        sys.modules.pop('mine', None)
        gymnasium.registry.pop('Mine-v0', None)
        monkeypatch.setenv(REGISTERED_MODULES, '')
        for parts in KINDS:
            parts.registered.clear(), parts.located.clear(), parts._objects.clear()

    yield forget
    forget()


def test_parts_of_a_module_are_known_by_their_place_and_saved_with_the_run(mine, without_xla, capsys):
    words = 'CartPole-v1 --n-steps 8 --max-steps 16 --seed 1 --final-episodes 0 --quiet --run-dir run'
    own = 'mine:Counts every=3 mine:counted mine:per_agent factor=4 mine:scaled scale=0.5 clip=2'
    assert execute(*f'train mine:Plain --env {words} --model mine:gated --stages {own}'.split()) == 0, (
        capsys.readouterr()
    )
    mine()
    agent = xagents.load('run')
    assert agent.id == 'mine:Plain' and 'mine' in sys.modules and len(agent.model.layers) == 3
    agent.close()
    mine()
    agent = xagents.resume('run')
    names = agent.recipe().names
    assert names[names.index('learn') - 1] == 'mine:scaled' and names[names.index('collect') + 1] == 'mine:Counts'
    (log,) = agent.train_iter(max_steps=24, stages=own.split())
    agent.close()
    assert {n: log[f'own/{n}'] for n in ('total', 'number', 'envs', 'scale', 'clip')} == {
        'total': 3, 'number': 3, 'envs': 4, 'scale': 0.5, 'clip': 2
    }  # fmt: skip
    mine()
    assert execute('evaluate', '--run-dir', 'run', '--episodes', '1') == 0, capsys.readouterr()


def test_modules_are_imported_before_names_are_resolved(mine, without_xla, capsys):
    words = '--import mine --env Mine-v0 --n-steps 8 --max-steps 16 --seed 1 --quiet --run-dir run'
    assert execute('train', 'named', '--import', 'mine', '-h') == 0 and 'named, with a name' in capsys.readouterr().out
    mine()
    assert execute(*f'train named {words} --stages scaled scale=2'.split()) == 0, capsys.readouterr()
    mine()
    assert execute('evaluate', '--run-dir', 'run', '--episodes', '1') == 0, capsys.readouterr()
    mine()
    assert execute('train', 'named', '--import', 'mine') == 0 and 'named, with a name' in capsys.readouterr().out
    agent = xagents.load('run')
    assert agent.id == 'named' and agent.envs.id == 'Mine-v0'
    agent.close()
    mine()
    Path('config.yaml').write_text('imports: [mine]\nagent: named\nenv: Mine-v0\nmax-steps: 16\nrun-dir: other\n')
    assert execute('train', '--config', 'config.yaml', '--print-config') == 0
    assert find_agent('mine:Named').networks == find_agent('named').networks


@pytest.mark.parametrize(
    ('words', 'problem'),
    [
        ('--import nothing', "--import: cannot import 'nothing': ModuleNotFoundError: No module named 'nothing'"),
        ('--import', '--imports: got nothing, expected text'),
        ('--model mine:gate', '--model: got mine:gate, but mine has no gate (did you mean gated?)'),
        ('--model mine:helper', '--model: mine:helper: its function must have the arguments input_shape and output'),
        ('--stages mine:helper', '--stages: mine:helper: got a function, expected a function whose first parameter'),
        ('--stages subprocess:Popen args=x', '--stages: subprocess:Popen: got a type, expected a function whose'),
        ('--stages os:system command=x', '--stages: os:system: got a builtin_function_or_method, expected a function'),
        ('--stages mine:scaled scael=1', "takes no 'scael', expected scale, clip (did you mean scale?)"),
        ('--stages mine:scaled scale=x', '--stages: mine:scaled: scale: got x, expected a number'),
        ('--stages mine:scaled scale=1 scale=2', '--stages: mine:scaled: got scale twice, expected it once'),
        ('--stages mine:Counts', '--stages: mine:Counts lacks every, expected every=VALUE after the name'),
        ('--stages mine:scaled 0.5', '--stages: got 0.5 after mine:scaled, expected scale=VALUE clip=VALUE'),
        ('--stages absent', 'or module:function; --import MODULE registers'),
        ('--stages scale=1', '--stages: got scale=1 first, expected a name and then its key=value pairs'),
    ],
)
def test_what_is_not_at_its_place_is_one_line(mine, capsys, words, problem):
    assert execute('train', 'ppo', '--env', 'CartPole-v1', '--max-steps', '9', '--run-dir', 'r', *words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith('xagents train: ') and problem in error and error.count('\n') == 1, error


@pytest.mark.parametrize('name', ['mine:helper', 'mine:Absent', 'absent:Agent', 'os:system'])
def test_an_agent_that_is_not_at_its_place_is_one_line(mine, capsys, name):
    assert execute('train', name, '--env', 'CartPole-v1', '--max-steps', '9') == 2
    error = capsys.readouterr().err
    assert error.startswith('xagents train: agent: ') and name.split(':')[0] in error and error.count('\n') == 1


# -------------------------------------------------------------------------------------------------- the example package


@pytest.fixture(scope='session')
def installed(tmp_path_factory):
    """A folder that the example package is installed in, as pip does it."""
    folder = tmp_path_factory.mktemp('installed')
    shutil.copytree(EXAMPLE / 'own_parts', folder / 'own_parts')
    project = tomllib.loads((EXAMPLE / 'pyproject.toml').read_text())['project']
    describe_distribution(folder, project['name'], project['description'], project['entry-points'])
    return folder


def test_the_example_learns_its_corridor(installed, monkeypatch, without_xla):
    monkeypatch.syspath_prepend(installed)
    agent = xagents.make('own-awr', 'own-corridor', n_envs=8, temperature=0.5, model='own-gated', seed=1, quiet=True)
    logs = list(agent.train_iter(max_steps=15_000, stages=['own-sign', 'own-share'], final_episodes=0))
    assert agent.evaluate(episodes=10)['mean'] > 0.8, 'it walks straight to the end'
    assert {'own/positive', 'own/environments'} <= logs[0].keys()
    agent.close()


# ------------------------------------------------------------------------------------------------------------- the page


@pytest.mark.slow
def test_the_python_of_the_page_runs(without_xla, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r'^```python\n(.*?)^```', PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    names = {'__name__': 'notebook'}
    for block in blocks:
        exec(compile(block, str(PAGE), 'exec'), names)
    said = capsys.readouterr().out
    assert 'Episode reward' in said and '--temperature' in said
    assert {'awr', 'warm-awr'} <= registry.parts.registered.keys() and 'gated' in own_networks.registered


def test_agents_with_networks_of_their_own_do_as_the_page_says(without_xla, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    section = re.search(r'^#### Networks of its own$(.*?)^#### ', PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
    names = {'__name__': 'notebook', 'xagents': xagents, 'np': np, 'tf': tf}
    for block in re.findall(r'^```python\n(.*?)^```', section, re.DOTALL | re.MULTILINE):
        exec(compile(block.replace('max_steps=1_000', 'max_steps=100, quiet=True'), str(PAGE), 'exec'), names)
    for agent_id, options in (('reinforce', {}), ('small-dqn', {'learning_starts': 32, 'buffer_max_size': 64})):
        agent = xagents.make(agent_id, 'CartPole-v1', net=[4], seed=1, quiet=True, **options)
        before = agent.output_models[0].get_weights()
        logs = list(agent.train_iter(max_steps=60))
        assert np.isfinite(logs[-1]['loss/value'])
        assert any((a != b).any() for a, b in zip(before, agent.output_models[0].get_weights(), strict=True))
        agent.close()
    assert execute('train', 'reinforce') == 0 and '--policy-model' in capsys.readouterr().out


def test_a_class_variable_hides_an_option():
    @dataclass
    class Options(PPOOptions):
        ranges = {name: r for name, r in PPOOptions.ranges.items() if name not in ('gamma', 'entropy_coef')}
        gamma: ClassVar[float] = 0.5
        entropy_coef: ClassVar[float] = 0.0

    xagents.register('hides')(type('Hides', (PPO,), {'Options': Options}))
    assert not {'gamma', 'entropy_coef'} & set(commands['train'].options('hides'))
    refused('entropy_coef: is no option of hides', make, 'hides', entropy_coef=0.1)
    agent = make('hides')
    assert agent.gamma == agent.traced_options.gamma == 0.5
    agent.close()


@pytest.mark.parametrize('page', [PAGE, EXAMPLE / 'README.md'], ids=lambda page: page.name)
def test_commands_of_the_pages_are_admitted(page, installed, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(installed)
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in re.findall(r'^```python\n# (\w+\.py)\n(.*?)^```', page.read_text(), re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(code)
    found = [words for words in typed_commands(page.read_text()) if words[1] != 'completion' and len(words) > 3]
    assert len(found) >= 3
    for _, name, agent_id, *words in found:
        cli._import_modules(commands[name], words)
        _, given = cli.parse(commands[name], agent_id, words)
        commands[name].check(agent_id, given)
        find_stages(given.get('stages') or ())
        if 'model' in given:
            network_functions.read_network(given['model'], 'model')


def test_the_modules_of_registered_parts_are_known(monkeypatch):
    """A run directory names them, so that other processes find its parts."""
    registered = {'stages': {'shape': 'mine', 'own': '__main__'}, 'networks': {'net': 'mine', 'file': 'file:/a.cfg'}}
    monkeypatch.setenv(REGISTERED_MODULES, json.dumps({**registered, 'agents': {'neg': 'other.agents'}}))
    assert modules_of(['shape', 'scale=0.1', 'net', 'own', 'file', 'neg']) == ['mine', 'other.agents']
    assert modules_of(['ppo']) == []


def test_saved_weights_import_the_module_that_registers_their_environment(tmp_path, monkeypatch, without_xla):
    code = "import gymnasium\ngymnasium.register('Saved-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    (tmp_path / 'registers_saved.py').write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    path = str(tmp_path / 'a.tf')
    options = {'n_envs': 1, 'n_steps': 8, 'net': [4], 'quiet': True}
    xagents.make('ppo', 'Saved-v0', imports=['registers_saved'], checkpoints=[path], **options).fit(max_steps=8)
    monkeypatch.delitem(sys.modules, 'registers_saved')  # as in a new process
    monkeypatch.delitem(gymnasium.registry, 'Saved-v0')
    assert xagents.make('ppo', weights=[path]).envs.id == 'Saved-v0'
