"""Names of other libraries are answered with ours."""

import re
from pathlib import Path

import numpy as np
import pytest

import xagents
from tests.commands import execute
from tests.environments import Counter
from tests.small_agents import Small, on_cartpole
from xagents.options.commands import TuneOptions
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.options.foreign_names import (
    FOREIGN_AGENTS,
    FOREIGN_ATTRIBUTES,
    FOREIGN_OPTIONS,
    agent_hint,
    option_hint,
)
from xagents.options.runs import ExplorerOptions, RunOptions
from xagents.registry.agents import agents

GROUPS = (EnvironmentOptions, NetworkOptions, RunOptions, ExplorerOptions, TuneOptions)


def test_every_name_leads_to_an_option_that_exists():
    groups = (*GROUPS, *(entry.options for entry in agents.values()))
    declared = [o for group in groups for o in declared_options(group).values()]
    known = {name for o in declared for name in (o.name, *o.aliases)} | {'episodes', 'greedy'}
    ours = {name for names in FOREIGN_OPTIONS.values() for name in names}
    assert ours <= known and not FOREIGN_OPTIONS.keys() & known
    for agent in FOREIGN_AGENTS.values():
        id, *flags = agent.partition(',')[0].split()
        options = agents[id].options_in()
        assert all(flag[2:].replace('-', '_') in options for flag in flags if flag.startswith('--'))
    assert not FOREIGN_AGENTS.keys() & agents.keys()


@pytest.mark.parametrize(
    ('agent_id', 'flag', 'ours'),
    [
        ('ppo', '--total-timesteps', '--max-steps'),
        ('ppo', '--learning-rate', '--lr'),
        ('ppo', '--gae_lambda', '--lam'),
        ('ppo', '--clip-range', '--clip-norm'),
        ('ppo', '--num-envs', '--n-envs'),
        ('ppo', '--batch-size', '--minibatch-size'),
        ('dqn', '--batch-size', '--buffer-batch-size'),
        ('trpo', '--ent-coeff', '--entropy-coef'),  # no name of a library: the most similar
    ],
)
def test_a_foreign_flag_is_answered_with_ours(agent_id, flag, ours, folder):
    code, stdout, stderr = execute('train', agent_id, '--env', 'CartPole-v1', '--max-steps', '10', flag, '1')
    assert (code, stdout) == (2, '')
    assert stderr == f'xagents train: {flag}: is no option of xagents train {agent_id} (did you mean {ours}?)\n'
    assert not list(folder.iterdir())


def test_all_foreign_flags_of_a_line_are_answered_at_once(folder):
    words = ['--env-id', 'CartPole-v1', '--total-timesteps', '10', '--num-envs=8', '--nothing', '1']
    stderr = execute('train', 'ppo', *words)[2]
    ours = [
        f'nor is --{theirs} (did you mean --{here}?)'
        for theirs, here in (('total-timesteps', 'max-steps'), ('num-envs', 'n-envs'))
    ]
    assert '(did you mean --env?); ' + '; '.join(ours) + '; nor is --nothing\n' in stderr
    assert '(runs show their progress, quiet turns it off)' in execute('train', 'ppo', '--verbose', '1')[2]


def test_python_names_and_keys_of_files_are_answered_as_well(folder):
    with pytest.raises(OptionError, match=r'learning_rate: is no option of .*\(did you mean lr\?\)'):
        xagents.make('ppo', 'CartPole-v1', learning_rate=1e-3)
    (folder / 'run.yaml').write_text('agent: ppo\nenv: CartPole-v1\nmax-steps: 10\nn_epochs: 3\n')
    code, _, stderr = execute('train', '--config', 'run.yaml')
    assert code == 2 and '(did you mean ppo-epochs?)' in stderr
    assert option_hint('quite_another', ['lr']) == ''


@pytest.mark.parametrize(
    ('name', 'nearest'),
    [
        ('C51', 'dqn --distribution categorical'),
        ('QR-DQN', 'dqn --distribution quantile'),
        ('RecurrentPPO', 'ppo --memory'),
    ],
)
def test_an_agent_of_others_is_answered_with_the_nearest_here(name, nearest, folder):
    code, _, stderr = execute('train', name, '--env', 'Pendulum-v1', '--max-steps', '10')
    assert code == 2 and stderr.endswith(f', trpo; the nearest to {name} is {nearest}\n') and stderr.count('\n') == 1
    assert agent_hint('pppo', ['a2c', 'ppo']) == ' (did you mean ppo?)'


def test_methods_and_classes_of_others_are_answered_with_ours(small_agents):
    agent = on_cartpole(n_envs=1)
    for call in (lambda: agent.learn(total_timesteps=10), lambda: agent.learn(1e4)):
        with pytest.raises(TypeError, match=r'expected agent\.fit\(max_steps=…\) to train'):
            call()
    with pytest.raises(TypeError, match=r'fit: got 10000 without a name, expected max_steps=… or target_reward=…'):
        agent.fit(10_000)
    with pytest.raises(TypeError, match=r"TD3: got 'MlpPolicy', expected .* xagents\.make\('td3', env\)"):
        xagents.TD3('MlpPolicy', 'Pendulum-v1', verbose=1)
    for owner, name in ((xagents.PPO, 'load'), (agent, 'load'), (agent, 'set_env')):
        with pytest.raises(AttributeError, match=rf'no attribute {name!r}, expected xagents\.load\(directory'):
            getattr(owner, name)
    assert not hasattr(agent, 'load') and not hasattr(agent, 'anything')
    with pytest.raises(ImportError, match='the nearest to RecurrentPPO is ppo --memory'):
        exec('from xagents import RecurrentPPO')
    with pytest.raises(ImportError, match=r'expected agent\.evaluate\(episodes=…\)'):
        exec('from xagents import evaluate_policy')
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = xagents.nothing


def test_each_replacement_of_an_attribute_exists(small_agents):
    agent = on_cartpole(n_envs=1)
    for ours in FOREIGN_ATTRIBUTES.values():
        owner, name = re.search(r'\b(agent|xagents)\.(\w+)', ours).groups()
        assert hasattr({'agent': agent, 'xagents': xagents}[owner], name), ours
        options = re.findall(r'(\w+)=', ours)
        known = agents['ppo'].options_in().keys() | {'episodes', 'her'}
        assert set(options) <= known, ours


PAGE = Path(xagents.__file__).parents[1] / 'docs' / 'coming_from.md'


def test_the_page_names_what_the_table_knows():
    rows = re.findall(r'^\| (.*?) \| (.*?) \|$', PAGE.read_text().partition('## Names of options')[2], re.MULTILINE)
    pairs = [(theirs, here) for theirs, here in rows if here.startswith('`--')]
    assert len(pairs) > 15
    for theirs, here in pairs:
        for name in re.findall('`(.*?)`', theirs):
            flags = {f'--{ours.replace("_", "-")}' for ours in FOREIGN_OPTIONS[name]}
            assert flags & set(re.findall('`(.*?)`', here)), name


def test_the_script_of_the_page_runs(folder, without_xla, capsys):
    (block,) = re.findall(r'^```python\n(.*?)^```', PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block.count('100_000') == 1
    names = {}
    exec(compile(block.replace('100_000', '300'), str(PAGE), 'exec'), names)
    assert names['actions'].shape == (3,) and names['state'] is None and names['result']['mean'] > 5
    assert type(names['trained']) is xagents.PPO


def test_the_page_lists_attributes_that_the_table_knows():
    section = PAGE.read_text().partition('## Attributes')[2].partition('## Agents')[0]
    named = set(re.findall(r'\w+', ' '.join(re.findall(r'^\| (.*?) \|', section, re.MULTILINE))))
    assert len(named & FOREIGN_ATTRIBUTES.keys()) > 15
    words = named - FOREIGN_ATTRIBUTES.keys()
    assert not {word for word in words if '_' in word} - {'other_libraries'} - {'total_timesteps', 'set_env'}, words


def test_keywords_of_others_are_answered_with_ours(small_agents):
    agent = on_cartpole(n_envs=1)
    calls = {
        'evaluate: n_eval_episodes is no argument (did you mean episodes?)': lambda: agent.evaluate(n_eval_episodes=2),
        'act: deterministic is no argument (act is greedy unless greedy=False': lambda: agent.act(
            np.zeros(4), deterministic=True
        ),
        'make: got CartPole-v1 as a third': lambda: xagents.make('ppo', 'MlpPolicy', 'CartPole-v1'),
        "make: got Small, expected a name: that of @xagents.register, or 'module:Small'": lambda: xagents.make(Small),
    }
    for message, call in calls.items():
        with pytest.raises(TypeError, match=re.escape(message)):
            call()
    with pytest.raises(ValueError, match=r'observations: got \(observation, info\) of reset\(\)'):
        agent.act((np.zeros(4, np.float32), {}))
    with pytest.raises(OptionError, match=r'the first argument is the agent'):
        xagents.make('MlpPolicy', 'CartPole-v1')
    assert getattr(xagents, 'VecNormalize', None) is None and not hasattr(xagents, 'RecurrentPPO')


@pytest.mark.parametrize(
    ('line', 'hint'),
    [
        (
            'tune ppo --env CartPole-v1 --max-steps 5000',
            'is no option of xagents tune ppo (did you mean --trial-steps?)',
        ),
        ('tune ppo --env CartPole-v1 --run-dir r', '(did you mean --out?)'),
        ('plot --x time', '(did you mean --by?)'),
        ('plot --metric loss/policy', '(did you mean --column?)'),
        ('train ppo --agent mine:NoClip', '(the agent is the first argument)'),
        ('train ppo --env CartPole-v1 --vec-env-cls SubprocVecEnv', '(did you mean --vector?)'),
        ('train ppo --env CartPole-v1 --model nets.mlp', 'expected a .cfg file or module:function, such as nets:mlp'),
        ('train ppo --env CartPole-v1 --model ./nets.py', 'a .cfg file or module:function, such as nets:FUNCTION'),
        ('train td3 --env Pendulum-v1 --model a.cfg', '(did you mean --actor-model and --critic-model?)'),
        ('train ppo --resume', '--resume: got nothing, expected text, as in --resume DIR'),
        ('train ppo --env ./hall.py:Hall', 'got ./hall.py, expected the name of a module, such as hall'),
        ('train ppo --env /tmp/hall.py:Hall', 'got /tmp/hall.py, expected the name of a module, such as hall'),
        ('train ppo --env ./hall:Hall', 'got ./hall, expected the name of a module, without a path'),
    ],
)
def test_flags_of_other_commands_lead_back(line, hint, folder):
    code, _, stderr = execute(*line.split())
    assert code == 2 and hint in stderr, stderr


class Hall(Counter):
    """An environment of a script."""


def test_a_run_in_an_environment_of_a_script_can_go_on(small_agents, tmp_path, capsys):
    def hall(**options):
        return Hall(**options)

    folder = str(tmp_path / 'run')
    agent = xagents.make('small', hall, n_envs=2, n_steps=8, net=[4], seed=1)
    agent.fit(max_steps=64, run_dir=folder)
    shown = capsys.readouterr().out
    assert f'Next, in Python: xagents.load({folder!r}, env=…)' in shown and 'xagents play' not in shown
    with pytest.raises(OptionError, match=r'an environment of a script needs env=… in Python'):
        xagents.resume(folder)
    resumed = xagents.resume(folder, env=hall)
    resumed.fit(max_steps=128)
    assert resumed.steps >= 128 and xagents.load(folder, 'last', env=hall).steps == resumed.steps
    with pytest.raises(OptionError, match=r'got CartPole-v1, was hall: this option cannot change'):
        xagents.resume(folder, env='CartPole-v1')
    with pytest.raises(TypeError, match=r'load: got a function as checkpoint, expected its name; env=… passes'):
        xagents.load(folder, hall)
    with pytest.raises(TypeError, match=r'evaluate: got a Hall as episodes, expected a number; envs=… passes'):
        agent.evaluate(Hall())
    with pytest.raises(TypeError, match=r'Small.evaluate: got a Hall and 3 as episodes, expected names: episodes, sto'):
        agent.evaluate(Hall(), episodes=3)
    with pytest.raises(ValueError, match=r'xagents.make\(agent, function, n_envs=N\) makes N of a function'):
        xagents.make('small', [hall, hall])
