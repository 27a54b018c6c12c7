"""Presets: that each fits its agent and environment, what --tuned takes of them, and what is listed."""

import contextlib
import dataclasses
import json
import re

import gymnasium
import pytest
import yaml

from tests.commands import execute
from xagents.base.minibatches import Minibatches
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.cli.presets_page import preset_source, presets_page
from xagents.cli.resolve import ResolvedOptions, resolve
from xagents.cli.train import preset_hint
from xagents.factory import defaults, presets
from xagents.factory.defaults import resolve_grid_point
from xagents.factory.make import make, plan_agent
from xagents.factory.presets import Preset, find_preset, find_score, list_presets
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.registry.agents import agents, find_agent
from xagents.tuning.plan import plan

EVERY = [preset for agent_id in agents for preset in list_presets(agent_id)]
NAMES = [f'{preset.agent} {preset.name}' for preset in EVERY]
DISCRETE = {'CartPole-v1', 'Acrobot-v1', 'MountainCar-v0', 'LunarLander-v3', 'atari'}


# what ships


@pytest.mark.parametrize('preset', EVERY, ids=NAMES)
def test_settings_fit_the_agent(preset):
    entry = find_agent(preset.agent)
    groups = {group: declared_options(group) for group in (EnvironmentOptions, NetworkOptions, entry.options)}
    resolved = {}
    for group, known in groups.items():
        given = {name: value for name, value in preset.options.items() if name in known}
        resolved |= {name: getattr(group.resolve(given), name) for name in given}
    # every option is somebody's, and none does nothing
    assert resolved == preset.options
    known = {name: option for options in groups.values() for name, option in options.items()}
    assert not [name for name in preset.options if known[name].ignored]
    assert preset.max_steps % 1000 == 0 and preset.max_steps >= 20_000
    zoo = r'rl-baselines3-zoo 22e3ff2 of 2026-04-23, hyperparams/\w+\.yml'
    assert re.match(rf'({zoo}|CleanRL \w{{8}} of |xagents|arXiv:\d{{4}}\.\d{{5}} )', preset.source)
    assert 'env' not in preset.options and 'max_steps' not in preset.options
    assert preset.source_name.isalnum() or preset.source_name.startswith(('rl-baselines3-zoo', 'arXiv:'))
    # the combination of the options is admitted, too
    plan_agent(preset.agent, {'env': 'ALE/Pong-v5' if preset.env == presets.ATARI else preset.env, **preset.options})


@pytest.mark.parametrize('preset', [p for p in EVERY if 'minibatch_size' in p.options], ids=lambda p: p.env)
def test_minibatches_divide_the_rollout(preset):
    own = {name: v for name, v in preset.options.items() if name in declared_options(find_agent(preset.agent).options)}
    minibatches = Minibatches(find_agent(preset.agent).options.resolve(own), preset.options['n_envs'])
    assert minibatches.per_pass * minibatches.size == minibatches.rows


@pytest.mark.parametrize('preset', [p for p in EVERY if p.env != presets.ATARI], ids=lambda p: f'{p.agent} {p.env}')
def test_environments_exist_and_take_the_actions_of_the_agent(preset):
    assert gymnasium.spec(preset.env).id == preset.env
    if preset.agent in ('dqn', 'acer', 'pqn', 'rainbow'):
        assert preset.env in DISCRETE
    if preset.agent in ('ddpg', 'td3'):
        assert preset.env not in DISCRETE


def test_entries_are_those_of_their_source():
    """Compared by hand with ppo.yml and benchmark.md."""
    cartpole = find_preset('ppo', 'CartPole-v1')
    assert (cartpole.max_steps, cartpole.published, cartpole.changed) == (100_000, 500.0, '')
    cheetah = find_preset('ppo', 'HalfCheetah-v5')
    expected = (5819.1, 'HalfCheetah-v3', 'orthogonal initial weights')
    assert (cheetah.published, cheetah.scored_on, cheetah.changed) == expected
    assert cheetah.options.items() >= {'activation': 'relu', 'log_std_init': -2}.items()
    assert cheetah.options['net'] == [256, 256]
    # theirs are of the mean divergence of the 8 elements of an action
    assert find_preset('trpo', 'Ant-v5').options.items() >= {'max_kl': 0.01 * 8, 'cg_damping': 0.1 * 8}.items()


# finding


def test_a_distribution_selects_its_own_settings():
    """Compared by hand with qrdqn.yml."""
    plain, quantile = (find_preset('dqn', 'CartPole-v1', given) for given in ({}, {'distribution': 'quantile'}))
    assert plain.options['huber'] and 'distribution' not in plain.options and plain.name == 'CartPole-v1'
    assert quantile.options.items() >= {'distribution': 'quantile', 'n_quantiles': 10, 'lr': 0.0023}.items()
    assert quantile.name == 'CartPole-v1 quantile' and 'huber' not in quantile.options
    published = find_preset('dqn', 'CartPole-v1', {'distribution': 'quantile', 'published': True})
    differing = {'opt_epsilon': 0.01 / 64, 'grad_norm': 1e9}
    assert published.options == {**quantile.options, **differing} and published.name == 'CartPole-v1 quantile published'
    assert taken('dqn', '--env CartPole-v1 --distribution quantile')['n_quantiles'] == 10
    for other in ('categorical', ['quantile', 'categorical']):
        assert find_preset('dqn', 'CartPole-v1', {'distribution': other}) == plain
    categorical = taken('dqn', '--env CartPole-v1 --distribution categorical')
    assert 'huber' not in categorical and categorical['lr'] == 0.0023, 'without what a given option excludes'


@pytest.mark.parametrize('env', ['PongNoFrameskip-v4', 'ALE/Pong-v5', 'ale_py:ALE/Pong-v5', 'ALE/Tetris-v5'])
def test_every_atari_game_has_the_settings_of_all(env):
    preset = find_preset('dqn', env)
    expected = (None, '') if 'Tetris' in env else (20.6, '' if env == 'PongNoFrameskip-v4' else 'PongNoFrameskip-v4')
    assert (preset.env, preset.published, preset.scored_on) == (env, *expected)
    assert preset.options['buffer_max_size'] == 100_000 and not preset.games


@pytest.mark.parametrize(
    ('agent_id', 'env', 'said'),
    [
        ('ppo', 'HalfCheetah-v4', r'expected CartPole-v1, .*, every Atari game \(did you mean HalfCheetah-v5\?\)$'),
        ('acer', 'Pendulum-v1', 'acer has no preset for Pendulum-v1, expected CartPole-v1, Acrobot'),
        ('trpo', 'ALE/Pong-v5', 'no preset for ALE/Pong-v5, .*Ant-v5$'),
        # names the entry, and is no environment
        ('dqn', 'atari', 'no preset for atari, .*every Atari game$'),
    ],
)
def test_an_environment_without_settings_is_refused_by_name(agent_id, env, said):
    with pytest.raises(OptionError, match=said) as error:
        find_preset(agent_id, env)
    assert error.value.name == 'tuned'


def test_published_settings_ship_where_better_ones_were_found():
    own = [one for one in EVERY if one.source_name == 'xagents']
    # others have no counterpart of their agent there
    own = [one for one in own if one.published is not None or one.source.endswith(f'/{one.agent}.yml')]
    better = {(one.agent, one.env, one.distribution) for one in own}
    published = {(one.agent, one.env, one.distribution): one for one in EVERY if one.is_published}
    assert published.keys() == better and len(better) > 10
    for (agent_id, env, distribution), one in published.items():
        preset = find_preset(agent_id, env, {'distribution': distribution})
        assert one.source_name == 'rl-baselines3-zoo' and one.published == preset.published
        assert (one.max_steps, one.options) != (preset.max_steps, preset.options) and preset.changed
        assert find_preset(agent_id, env, {'published': True, 'distribution': distribution}) == one
    # a preset with the settings of its source needs no second entry
    assert find_preset('ppo', 'CartPole-v1', {'published': True}) == find_preset('ppo', 'CartPole-v1')
    assert find_preset('pqn', 'ALE/Pong-v5', {'published': True}).source_name == 'CleanRL'
    assert find_preset('dqn', 'LunarLander-v3', {'distribution': 'published'}).form == ''
    quantile = {'distribution': 'quantile'}
    assert find_preset('dqn', 'ALE/Pong-v5', quantile).published == 20.6, "DQN's, if QR-DQN has none"
    with pytest.raises(OptionError, match='no published settings for ALE/Pong-v5 with distribution quantile, expected'):
        find_preset('dqn', 'ALE/Pong-v5', {**quantile, 'published': True})


@pytest.mark.parametrize(
    ('agent_id', 'env', 'said'),
    [
        ('pqn', 'LunarLander-v3', 'pqn has no published settings for LunarLander-v3, expected CartPole-v1, Acrobot-v1'),
        ('acer', 'CartPole-v1', 'acer has no published settings$'),
        ('ppo', 'Hopper-v4', r'no published settings for Hopper-v4, .*\(did you mean Hopper-v5\?\)'),
    ],
)
def test_missing_published_settings_are_refused(agent_id, env, said):
    with pytest.raises(OptionError, match=said) as error:
        find_preset(agent_id, env, {'published': True})
    assert error.value.name == 'published'


# --tuned


def typed(agent_id: str, line: str) -> dict:
    """What a command line gives, before anything stands in for what it lacks."""
    return parse(find_command('train'), agent_id, line.split())[1]


def taken(agent_id: str, line: str) -> dict:
    return defaults.apply_tuned_settings(agent_id, typed(agent_id, line))[0]


def test_tuned_takes_options_and_steps_and_says_them_as_one_would_type_them():
    options, said = defaults.apply_tuned_settings('ppo', {'env': 'CartPole-v1', 'seed': 3})
    preset = find_preset('ppo', 'CartPole-v1')
    assert options == {**preset.options, 'max_steps': 100_000, 'env': 'CartPole-v1', 'seed': 3}
    start, flags = said.split(': ')
    assert start == 'Preset (rl-baselines3-zoo)'
    assert typed('ppo', flags) == {**preset.options, 'max_steps': 100_000}


def test_published_selects_settings_and_is_no_option_of_the_run(folder):
    options, said = defaults.apply_tuned_settings('ppo', {'env': 'Hopper-v5', 'published': True, 'seed': 3})
    assert options == {**find_preset('ppo', 'Hopper-v5', {'published': True}).options, 'max_steps': 1_000_000} | {
        'env': 'Hopper-v5', 'seed': 3,
    }  # fmt: skip
    assert said.startswith('Preset (rl-baselines3-zoo): ') and '--ppo-epochs 5' in said
    assert 'published' not in defaults.apply_tuned_settings('ppo', {'env': 'Hopper-v5', 'published': False})[0]
    line = 'train ppo --env Hopper-v5 --tuned --published --print-config'
    code, out, _ = execute(*line.split())
    assert code == 0 and yaml.safe_load(out)['ppo-epochs'] == 5 and 'published' not in yaml.safe_load(out)
    (folder / 'a.yaml').write_text('agent: ppo\nenv: CartPole-v1\ntuned: true\npublished: true\nmax_steps: 64\n')
    assert resolve('ppo', {'config': str(folder / 'a.yaml')}).options['ppo_epochs'] == 20
    assert resolve_grid_point('ppo', {'env': 'Hopper-v5', 'tuned': True, 'published': True})['ppo_epochs'] == 5
    tuned = plan('ppo', {'env': 'Hopper-v5', 'tuned': True, 'published': True, 'lr': [1e-4, 1e-3], 'trial_steps': 9})
    assert tuned.fixed['ppo_epochs'] == 5 and 'published' not in tuned.fixed
    # the command line wins over the file
    found = resolve('ppo', {'config': str(folder / 'a.yaml'), 'tuned': False})
    assert found.options == {'env': 'CartPole-v1', 'max_steps': 64} and not found.messages
    (folder / 'grid.yaml').write_text('agent: ppo\nenv: CartPole-v1\ntuned: true\npublished: [true, false]\n')
    for line, said in (
        ('train ppo --env Hopper-v5 --max-steps 9 --published', '--published: requires --tuned'),
        ('tune ppo --env Hopper-v5 --published --search', '--published: requires --tuned'),
        (
            'train ppo --env Acrobot-v2 --tuned --published',
            '--published: ppo has no published settings for Acrobot-v2, e',
        ),
        ('train ppo --resume runs --tuned --published', '--tuned: cannot be used with --resume'),
        ('train ppo --resume runs --published', '--published: cannot be used with --resume'),
        ('train --config grid.yaml', 'published: got a list, which would make several runs'),
        ('train ppo --published --from-study s --storage journal:s.log', '--from-study: got s with --published'),
        ('train --config a.yaml --from-study s --storage journal:s.log', '--storage: there is no'),
    ):
        code, _, stderr = execute(*line.split())
        assert code == 2 and said in stderr, line
    assert sorted(path.name for path in folder.iterdir()) == ['a.yaml', 'grid.yaml']


@pytest.mark.parametrize('agent_id', ['ppo', 'trpo'])
def test_a_flag_also_wins_over_what_stands_instead_of_it(agent_id):
    options = taken(agent_id, '--env CartPole-v1 --mini-batches 2')
    assert options['mini_batches'] == 2 and 'minibatch_size' not in options
    assert taken(agent_id, '--env CartPole-v1 --minibatch-size 16')['minibatch_size'] == 16
    assert taken('td3', '--env Pendulum-v1 --learning-starts 300')['buffer_initial_size'] == 300


@pytest.mark.parametrize(
    ('agent_id', 'env', 'flag', 'left'),
    [
        ('ppo', 'CartPole-v1', '', {'net': [64, 64], 'activation': 'tanh'}),
        ('ppo', 'CartPole-v1', '--net 8', {'net': [8]}),
        ('a2c', 'Pendulum-v1', '', {'net': [64, 64], 'activation': 'tanh', 'initializer': 'fan_in_uniform'}),
        ('a2c', 'Pendulum-v1', '--model a.cfg', {'model': 'a.cfg'}),
        ('td3', 'Pendulum-v1', '--actor-model a.cfg', {'actor_model': 'a.cfg'}),
    ],
)
def test_a_network_that_is_given_stands_alone(agent_id, env, flag, left):
    options = taken(agent_id, f'--env {env} {flag}')
    network = {'net', 'activation', 'initializer', *find_agent(agent_id).models}
    assert {name: value for name, value in options.items() if name in network} == left


@pytest.mark.usefixtures('eager')
def test_an_initializer_is_that_of_the_network_without_a_file():
    kernels = {}
    for initializer in (None, 'orthogonal', 'fan_in_uniform'):
        with contextlib.closing(make('a2c', 'Pendulum-v1', net=[40], initializer=initializer, seed=1)) as agent:
            kernels[initializer] = agent.model.get_weights()
    assert all((a == b).all() for a, b in zip(kernels[None], kernels['orthogonal'], strict=True))
    bound = 1 / 40**0.5  # of kernel and bias of the heads, policy and critic alike
    heads = [w for w in kernels['fan_in_uniform'] if w.shape in ((40, 1), (1,)) and w.any()]
    assert len(heads) == 4 and all(abs(w).max() <= bound for w in heads) and abs(heads[0]).max() > 0.9 * bound
    with pytest.raises(OptionError, match='got orthogonal, which requires --net') as error:
        make('a2c', 'Pendulum-v1', initializer='orthogonal')
    assert error.value.name == 'initializer'


@pytest.mark.usefixtures('eager')
def test_with_weights_flags_win_over_tuned_settings_and_these_over_what_was_saved(tmp_path):
    path = str(tmp_path / 'a.tf')
    agent = make('a2c', 'CartPole-v1', net=[8], lr=0.5, gamma=0.5, beta1=0.8, n_steps=3, checkpoints=[path], seed=1)
    with contextlib.closing(agent):
        agent.fit(max_steps=30, quiet=True, final_episodes=0)
    # the environment is that of the weights, and their network is what it is
    options, _ = defaults.apply_tuned_settings('a2c', {'weights': [path], 'n_steps': 7})
    assert options['n_envs'] == 8 and 'net' not in options and 'activation' not in options
    del options['max_steps']
    with contextlib.closing(make('a2c', **options)) as again:
        found = again.options
        assert (found.n_steps, found.lr, found.gamma, found.beta1) == (7, 7e-4, 0.99, 0.8)
        assert again.envs.id == 'CartPole-v1' and again.envs.n_envs == 8


# the list


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """A file of scores of its own; writes it anew."""
    path = tmp_path / 'scores.yaml'
    monkeypatch.setattr(presets, 'SCORES', path)

    def write(preset: Preset, **fields: object) -> None:
        entry = {
            'median': 480.26, 'means': [480.26, 500.0, 9.5], 'episodes': 100, 'date': '2026-01-02', 'version': '2.0',
            'digest': preset.digest, **fields,
        }  # fmt: skip
        path.write_text(yaml.safe_dump({preset.agent: {preset.name: entry}}))
        presets._read_yaml.cache_clear()

    yield write
    presets._read_yaml.cache_clear()


def test_a_score_after_fewer_steps_is_a_line_of_its_own(scores):
    preset = find_preset('sac', 'HalfCheetah-v5')
    early = preset.after_early_steps()
    assert early.name == 'HalfCheetah-v5 early' and early.after_early_steps() is None and not early.distribution
    assert early.options == preset.options and early.max_steps == 300_000 < preset.max_steps
    assert early.published < preset.published and find_preset('ddpg', 'Ant-v5').after_early_steps().published is None
    assert find_preset('sac', 'Pendulum-v1').after_early_steps() is None
    scores(early, peer=471.28)
    assert find_score(preset) is None and find_score(early).median == 480.26
    cells = ['early', '300k', '7292.3', '480.3', '(3)', '2026-01-02']
    above, shown = presets_page('sac', 120).partition('HalfCheetah-v5 ')[2].splitlines()[:2]
    assert above.split()[:4] == ['1M', '9535.5', 'not', 'run']
    assert shown.split() == [*cells, 'Stable-Baselines3', 'here:', '471.3']
    scores(early)
    above, _, shown, *_ = presets_page('sac', 72).partition('HalfCheetah-v5 ')[2].splitlines()
    assert above.split() == ['1M', '9535.5', 'not', 'run'] and shown.split() == cells
    (hint,) = preset_hint('sac', ResolvedOptions({'env': 'HalfCheetah-v5'}, {}, []))
    assert hint == 'Default settings; --tuned reached 480.26 on HalfCheetah-v5 in 300000 steps'


def test_the_source_names_what_the_run_with_the_published_score_had(scores):
    """Compared by hand with config.yml of rl-trained-agents."""
    hopper, walker = find_preset('td3', 'Hopper-v5'), find_preset('td3', 'BipedalWalker-v3')
    after_each = 'published with batches of 100 and updates after each episode'
    assert preset_source(hopper) == (
        'rl-baselines3-zoo, published for Hopper-v3 with a learning rate of 0.0003 and no noise'
    )
    assert preset_source(walker) == f'rl-baselines3-zoo, {after_each}'
    assert preset_source(find_preset('ppo', 'CartPole-v1')) == 'rl-baselines3-zoo'


def row(page: str, start: str) -> str:
    return next(line for line in page.splitlines() if line.startswith(start))


def test_a_score_is_shown_with_seeds_and_date_until_the_settings_change(scores):
    preset = find_preset('ppo', 'CartPole-v1')
    assert find_score(preset) is None and 'not run' in row(presets_page('ppo'), 'CartPole-v1')
    scores(preset)
    assert find_score(preset).means == (480.26, 500.0, 9.5)
    assert row(presets_page('ppo', 72), 'CartPole-v1').split() == [
        'CartPole-v1', '*', '100k', '500.0', '480.3', '(3)', '2026-01-02'
    ]  # fmt: skip
    assert 'here: 471.3' not in presets_page('ppo', 72)
    scores(preset, peer=471.28)
    assert 'Stable-Baselines3 here: 471.3' in presets_page('ppo', 72)
    for other in (
        dataclasses.replace(preset, max_steps=1),
        dataclasses.replace(preset, options={**preset.options, 'lr': 0.5}),
    ):
        assert find_score(other) is None
    # what is only said of them is no setting
    assert find_score(dataclasses.replace(preset, published=1.0, changed='a word', source='else')) is not None
    scores(preset, digest='another')
    assert 'not run' in row(presets_page('ppo', 72), 'CartPole-v1')


def test_the_command_lists_with_and_without_an_agent(folder):
    page = execute('presets')[1]
    assert [line.split()[0] for line in page.splitlines() if ' Published ' in line] == list(agents)
    page = execute('presets', 'td3')[1]
    assert page.startswith('td3 ') and 'acer' not in page
    assert 'xagents presets [<agent>]' in execute('presets', '--help')[1]


def test_the_command_prints_presets_as_json(scores):
    preset = find_preset('ppo', 'CartPole-v1')
    scores(preset, peer=471.3)
    records = [json.loads(line) for line in execute('presets', 'ppo', '--json')[1].splitlines()]
    by_name = {f'{one["env"]} {one["form"]}'.rstrip(): one for one in records}
    assert len(by_name) == len(records)
    listed = [one for preset in list_presets('ppo') for one in (*map(preset.for_game, preset.games), preset)]
    assert list(by_name) == [one.name for one in listed]
    found = by_name['CartPole-v1']
    assert {**found['options'], 'max_steps': found['max_steps']} == {**preset.options, 'max_steps': preset.max_steps}
    assert found['published'] == preset.published and found['score']['peer'] == 471.3
    assert by_name['Ant-v5']['score'] is None and by_name['Ant-v5']['scored_on'] == 'Ant-v3'
    everything = [json.loads(line) for line in execute('presets', '--json')[1].splitlines()]
    assert list(dict.fromkeys(one['agent'] for one in everything)) == list(agents)


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('presets pppo', r'expected one of a2c, .* \(did you mean ppo\?\)'),
        ('presets ppo dqn', 'got ppo and dqn, expected one agent or none'),
    ],
)
def test_the_command_refuses_what_it_does_not_know(line, said, folder):
    code, _, stderr = execute(*line.split())
    assert code == 2 and re.search(said, stderr)
