"""What `xagents tune` searches: ranges from values, ready ranges of the agents, and where a study begins."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from xagents.cli import dispatch as cli
from xagents.factory.presets import list_presets
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.processes.process_pool import ProcessPool
from xagents.registry.agents import agents, find_agent
from xagents.tuning.plan import known_options, plan
from xagents.tuning.search import Bounds, Choices, default_ranges, split_searched
from xagents.tuning.tune import tune

KNOWN = {agent_id: known_options(find_agent(agent_id)) for agent_id in agents}


def planned(agent_id='ppo', **options):
    return plan(agent_id, {'env': 'CartPole-v1', **options})


def typed(line):
    """Returns the options of a line of `tune`, as the command gets them."""
    command = cli.find_command('tune')
    agent_id, *words = line.split()
    return agent_id, cli.parse(command, agent_id, words)[1]


def refusal(line, capsys):
    """Runs `xagents tune` with a line that is wrong, and returns the one line that says so."""
    with pytest.raises(SystemExit) as end:
        cli.execute(['tune', *line.split()])
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ''
    (line,) = printed.err.splitlines()
    return line.removeprefix('xagents tune: ')


@pytest.fixture(autouse=True)
def _no_files_and_no_workers(tmp_path, monkeypatch):
    """Nothing here may come so far that a worker starts or a file is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    monkeypatch.setattr(ProcessPool, '__init__', lambda *_, **__: pytest.fail('a worker was started'))
    yield
    assert not list(tmp_path.iterdir())


# one value, two, several


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('--lr 1e-3 --buffer-batch-size 64 --net 8 4', {'lr': 1e-3, 'buffer_batch_size': 64, 'net': [8, 4]}),
        ('--target-sync-steps 50 --double', {'target_sync_steps': 50, 'double': True}),
        ('--double true', {'double': True}),
    ],
)
def test_one_value_is_fixed_whatever_its_search_type(words, expected):
    agent_id, options = typed(f'dqn {words}')
    assert split_searched(options, KNOWN[agent_id]) == (expected, {})


@pytest.mark.parametrize(
    ('line', 'expected'),
    [
        ('ppo --lr 1e-5 1e-2', {'lr': Bounds(1e-5, 1e-2, True)}),
        ('ppo --n-steps 64 16 32 --n-envs 1 2', {'n_steps': Choices((64, 16, 32)), 'n_envs': Choices((1, 2))}),
        ('dqn --target-sync-steps 10 99', {'target_sync_steps': Bounds(10, 99, False)}),
        # from two orders of magnitude on, whole numbers are searched by them
        ('dqn --target-sync-steps 10 1000', {'target_sync_steps': Bounds(10, 1000, True)}),
        ('dqn --learning-starts 100 5000', {'buffer_initial_size': Bounds(100, 5000, False)}),
        ('dqn --double false true', {'double': Choices((False, True))}),
        ('ddpg --noise ornstein-uhlenbeck gaussian', {'noise': Choices(('ornstein-uhlenbeck', 'gaussian'))}),
    ],
)
def test_several_values_are_bounds_or_choices_by_the_search_type(line, expected):
    agent_id, options = typed(f'{line} --env CartPole-v1')
    assert plan(agent_id, options).ranges == expected


def test_python_takes_lists_tuples_and_arrays_as_ranges():
    call = planned(lr=np.array([1e-4, 1e-2]), n_steps=(16, np.int64(32)), gamma=0.9, normalize_obs=[False, True])
    expected = {'lr': Bounds(1e-4, 1e-2, True), 'n_steps': Choices((16, 32))}
    assert call.ranges == {**expected, 'normalize_obs': Choices((False, True))}
    assert call.fixed == {'env': 'CartPole-v1', 'gamma': 0.9}
    assert type(call.ranges['n_steps'].values[1]) is int  # NumPy's own are no JSON


def test_what_is_not_given_is_neither_fixed_nor_searched():
    call = planned('dqn', epsilon_decay_steps=[10, 20], quiet=True, seed=3, trial_seeds=3)
    assert (call.fixed, list(call.ranges)) == ({'env': 'CartPole-v1'}, ['epsilon_decay_steps'])
    assert call.job(0, call.first, 2**32 - 2).seeds == [2**32 - 2, 2**32 - 1, 0]


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('ppo --gamma 0 0.99', '--gamma: got 0.0 0.99, expected a lower bound above 0'),
        ('ppo --lr 1e-2 1e-5', '--lr: got 0.01 1e-05, expected the lower bound first'),
        ('dqn --target-sync-steps 1 2 3', '--target-sync-steps: got 1 2 3, expected one value, or two bounds'),
        ('dqn --target-sync-steps 1.5 4', '--target-sync-steps: got 1.5, expected a whole number'),
        ('ppo --n-steps 16 32 16', '--n-steps: got 16 32 16, expected one value, or at least two different choices'),
        # options without a search type take one value
        ('ppo --target-kl 0.01 0.02', '0.02: belongs to no option'),
        ('ppo --minibatch-size 32 64 --mini-batches 4', '--minibatch-size: cannot be used with --mini-batches'),
        ('dqn --buffer-max-size 50 --buffer-initial-size 60 90', '--buffer-initial-size: got .*--buffer-max-size'),
        ('dqn --learning-starts 1 5 --buffer-initial-size 3', '--.*: is another name of --'),
    ],
)
def test_wrong_ranges_and_flags_are_refused_by_name(line, said, capsys):
    line = refusal(f'{line} --env CartPole-v1', capsys)
    assert re.match(said, line), line


def test_an_environment_is_required_and_a_page_of_wrong_ranges_is_refused_too(capsys):
    assert refusal('ppo --lr 1e-4 1e-2', capsys).startswith('--env: got nothing')
    assert refusal('dqn --print-search --lr 1 2 3', capsys).startswith('--lr: got 1.0 2.0 3.0')


@pytest.mark.parametrize(
    ('agent_id', 'name', 'value'),
    [
        ('ppo', 'entropy_coeff', 0.1), ('ppo', 'max_steps', 100), ('ppo', 'lr', []), ('ppo', 'n_steps', []),
        ('ppo', 'lr', [1e-4, None]), ('ppo', 'lr', ['1e-4', '1e-2']), ('ppo', 'lr', {'low': 1e-4, 'high': 1e-2}),
        ('ppo', 'n_steps', [16, True]), ('dqn', 'buffer_initial_size', [None, 100]),
        # an environment that is no text reaches no other process
        ('ppo', 'env', None), ('ppo', 'env', lambda: None), ('ppo', 'env', 3),
    ],
)  # fmt: skip
def test_python_refuses_wrong_ranges_and_environments_by_name(agent_id, name, value):
    with pytest.raises(OptionError) as refused:
        tune(agent_id, **{'env': 'CartPole-v1', 'n_trials': 1, name: value})
    assert refused.value.name == name


# properties


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.one_of(st.none(), st.integers(-(10**7), 10**7)))
def test_the_nearest_of_bounds_is_admitted_and_nothing_admitted_is_nearer(low, width, value):
    bounds = Bounds(low, low + width, False)
    nearest = bounds.nearest(value)
    assert bounds.distribution()._contains(nearest)
    wanted = low + width if value is None else value
    assert abs(nearest - wanted) == max(low - wanted, wanted - (low + width), 0)


def test_ranges_are_what_optuna_draws_from():
    assert Bounds(1e-5, 1e-1, True).distribution() == FloatDistribution(1e-5, 1e-1, log=True)
    assert Bounds(10, 100_000, True).distribution() == IntDistribution(10, 100_000, log=True)
    assert Bounds(10, 20, False).distribution() == IntDistribution(10, 20)
    assert Choices((16, 'a')).distribution() == CategoricalDistribution((16, 'a'))


# the ready ranges of the agents


@pytest.mark.parametrize('agent_id', agents)
def test_the_ready_ranges_fit_the_options(agent_id):
    entry, known = find_agent(agent_id), KNOWN[agent_id]
    ranges = default_ranges(entry.options, known, {})
    wanted = {'lr'} if agent_id == 'bc' else {'lr', 'gamma'}  # imitation looks at no rewards
    assert wanted <= ranges.keys() <= known.keys()
    assert not [name for name in ranges if known[name].ignored]
    ends = {
        'low': {n: r.values[0] for n, r in ranges.items()},
        'high': {n: r.values[-1] for n, r in ranges.items()},
        'first': {n: r.nearest(known[n].default) for n, r in ranges.items()},
    }
    for which, values in ends.items():
        for group in (entry.options, EnvironmentOptions, NetworkOptions):
            mine = {n: v for n, v in values.items() if n in declared_options(group)}
            resolved = group.resolve(mine).asdict()
            assert {n: resolved[n] for n in mine} == mine, which


@pytest.mark.parametrize('agent_id', agents)
def test_a_study_of_the_ready_ranges_begins_with_the_defaults(agent_id):
    call = planned(agent_id, search=True)
    known = KNOWN[agent_id]
    defaults = {name: known[name].default for name in call.ranges}
    # a buffer that is to be full before learning starts: its size by name
    if 'buffer_initial_size' in defaults and defaults['buffer_initial_size'] is None:
        defaults['buffer_initial_size'] = known['buffer_max_size'].default
    assert call.first == defaults
    assert call.fixed == {'env': 'CartPole-v1'}
    for name, r in call.ranges.items():
        assert r.distribution()._contains(r.distribution().to_internal_repr(call.first[name])), name


@pytest.mark.parametrize('agent_id', [agent_id for agent_id in agents if agent_id != 'bc'])
def test_given_flags_overrule_the_ready_ranges(agent_id):
    everything = planned(agent_id, search=True).ranges
    call = planned(agent_id, search=True, lr=3e-4, gamma=[0.5, 0.6], n_envs=2)
    assert call.ranges['gamma'] == Bounds(0.5, 0.6, True)
    assert call.ranges.keys() == everything.keys() - {'lr', 'n_envs'}
    assert (call.fixed['lr'], call.fixed['n_envs'], call.first['gamma']) == (3e-4, 2, 0.6)


def test_the_size_of_a_minibatch_overrules_their_number():
    assert 'mini_batches' in planned('ppo', search=True).ranges
    for size in (64, [32, 64]):
        call = planned('ppo', search=True, minibatch_size=size)
        assert 'mini_batches' not in {**call.ranges, **call.fixed}
        assert ('minibatch_size' in call.ranges) == isinstance(size, list)


@pytest.mark.parametrize('agent_id', ['dqn', 'ddpg', 'td3', 'acer'])
def test_a_smaller_buffer_does_not_make_the_ready_ranges_refuse_themselves(agent_id):
    # nobody has given --buffer-initial-size, so nobody can be told to change it
    call = planned(agent_id, search=True, buffer_max_size=2000)
    initial = call.ranges.get('buffer_initial_size')
    assert initial is None or initial.high <= 2000


@pytest.mark.parametrize(
    'preset', [preset for agent_id in agents for preset in list_presets(agent_id)], ids=lambda p: f'{p.agent}-{p.name}'
)
def test_with_tuned_settings_a_study_begins_with_them_and_its_runs_have_them(preset):
    env = 'ALE/Pong-v5' if preset.env == 'atari' else preset.env
    form = {'published': preset.is_published, **({'distribution': preset.distribution} if preset.distribution else {})}
    call = planned(preset.agent, env=env, tuned=True, search=True, **form)
    began = call.job(0, call.first, seed=1).options
    for name, value in preset.options.items():
        if name in call.ranges:
            assert began[name] == call.ranges[name].nearest(value), name
        else:
            assert {**began, **call.process_options}[name] == value, name


def test_given_flags_win_over_tuned_settings():
    call = planned('ppo', env='CartPole-v1', tuned=True, lr=[1e-6, 1e-5], gamma=0.5)
    preset = next(p for p in list_presets('ppo') if p.env == 'CartPole-v1')
    assert call.fixed['gamma'] == 0.5
    assert call.first == {'lr': min(preset.options['lr'], 1e-5)}
    kept = {name: value for name, value in preset.options.items() if name not in ('lr', 'gamma')}
    assert call.fixed == {'env': 'CartPole-v1', 'gamma': 0.5, **kept}


# --print-search


def test_print_search_names_every_ready_range_and_where_it_begins(capsys):
    cli.execute(['tune', 'acer', '--print-search'])
    lines = capsys.readouterr().out.splitlines()
    call = planned('acer', search=True)
    assert [line.split()[0] for line in lines] == [KNOWN['acer'][name].flag for name in call.ranges]
    assert all('begins with' in line for line in lines)
