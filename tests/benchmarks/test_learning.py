"""The learning benchmark's cases and the scores of kept results."""

import itertools
import json
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import yaml

from benchmarks.learning import run as learning
from benchmarks.learning.cases import CASES, CAUSES, DEFAULT_CASES, LearningCase, find_cases
from benchmarks.processes import Failed
from benchmarks.tables import sections
from benchmarks.venvs import PAGE
from benchmarks.workers import peer_worker
from tests.benchmarks.common import trial_options
from xagents.factory import presets
from xagents.registry.agents import agents
from xagents.reports.reference_scores import known_bounds

BY_NAME = {case.name: case for case in CASES}
RUN = {
    'mean': 100.0, 'seconds': 120.0, 'date': '2026-01-02', 'cpu': 'a CPU', 'cores': '2', 'jobs': 2,
    'versions': {'xagents': '2.0'},
}  # fmt: skip


def test_every_preset_is_a_case_whose_command_trains_it():
    found = {(case.agent, case.key): case for case in CASES if case.digest}
    for agent_id in agents:
        for preset in presets.list_presets(agent_id):
            whole = map(preset.for_game, preset.games) if preset.games else [preset]
            for one in filter(None, [*whole, preset.after_early_steps()]):
                case = found.pop((agent_id, one.name))
                assert (case.steps, case.options) == (one.max_steps, one.options)
                assert case.published == one.published or case.name == 'acer-acrobot'
    assert not found
    for case in (*CASES, LearningCase('a', 'dqn', 'CartPole-v1', 1, {'huber': False})):
        given = trial_options(case.command(3).split()[1:])
        assert given == {**case.options, **case.source, 'max_steps': case.steps, 'seed': 3}, case.name
        short = learning.shorten(case)  # still makes updates
        assert short.steps > short.options.get('buffer_initial_size', 0) and short.options.keys() == case.options.keys()


def kept(case: LearningCase, **means: float) -> dict:
    runs = {seed.removeprefix('seed'): {**RUN, 'mean': mean} for seed, mean in means.items()}
    return {case.name: {'settings': learning.settings_of(case), 'runs': runs}}


def test_scores_are_written_from_kept_results_of_the_same_settings(tmp_path):
    case, other = BY_NAME['dqn-lunarlander'], BY_NAME['dqn-lunarlander-published']
    results = {**kept(case, seed10=200, seed2=260.125, seed1=240), **kept(other, seed4=1)}
    results[case.name]['runs']['2'] |= {'date': '2026-03-04', 'episodes': 50}

    def written(results, name='scores.yaml'):
        learning.write_scores(tmp_path / name, json.loads(json.dumps(results)))
        return yaml.safe_load((tmp_path / name).read_text())

    expected = {
        'median': 240.0, 'means': [240.0, 260.1, 200.0], 'episodes': 50, 'date': '2026-03-04', 'version': '2.0',
        'digest': presets.find_preset('dqn', 'LunarLander-v3').digest,
    }  # fmt: skip
    found = written(results)['dqn']
    assert found.keys() == {'LunarLander-v3', 'LunarLander-v3 published'} and found['LunarLander-v3'] == expected
    assert found['LunarLander-v3 published']['means'] == [1.0]
    results[case.name]['settings']['options']['lr'] = 1.0
    assert written({})['dqn']['LunarLander-v3'] == expected
    assert written(results, 'others.yaml')['dqn'].keys() == {'LunarLander-v3 published'}


def test_the_peer_has_its_own_results_a_column_and_a_score(tmp_path):
    case, path = BY_NAME['dqn-lunarlander'], tmp_path / 'learning.json'
    for seed, mean in (('1', 10.0), ('3', 30.0), ('2', 80.0)):
        learning.keep(path, case, seed, {**RUN, 'mean': mean, 'sampled': mean - 5}, peer=True)
    learning.keep(path, case, 1, {**RUN, 'mean': 200.0, 'sampled': 190.0})
    results = json.loads(path.read_text())
    assert learning.runs_of(case, results).keys() == {'1'}
    runs = [learning.runs_of(case, results, peer) for peer in (False, True)]
    cells = dict(zip(learning.HEADING, learning.row(case, *runs), strict=True))
    assert cells['peer here'] == '10.0 (5.0), 80.0 (75.0), 30.0 (25.0)' and cells['sampled'] == '190.0'
    greedy_only = learning.row(case, runs[0], {'1': {**RUN, 'mean': -1234.5}})
    assert greedy_only[learning.HEADING.index('peer here')] == '-1 234.5'
    learning.write_scores(tmp_path / 'scores.yaml', results)
    entry = yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['LunarLander-v3']
    assert (entry['median'], entry['peer']) == (200.0, 30.0)
    # another machine, which knows the peer only from the page, adds a seed
    learning.write_scores(tmp_path / 'scores.yaml', kept(case, seed2=100.0))
    entry = yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['LunarLander-v3']
    assert (entry['median'], entry['peer']) == (100.0, 30.0)
    learning.write_scores(path := tmp_path / 'old.yaml', results)
    path.write_text(path.read_text().replace(case.digest, 'other'))
    learning.write_scores(path, kept(case, seed2=100.0))
    assert 'peer' not in yaml.safe_load(path.read_text())['dqn']['LunarLander-v3'], 'of other settings'
    names = {learning.Training(case, 1, tmp_path, peer=peer).folder.name for peer in (False, True)}
    assert len(names) == 2


def test_results_of_other_machines_stay_in_the_table(tmp_path):
    case, other = BY_NAME['ppo-ant'], BY_NAME['bc-pendulum']
    first, second = tmp_path / 'first.json', tmp_path / 'second.json'
    for seed, mean in ((1, 1000.0), (2, -20.5)):
        learning.keep(first, case, seed, {**RUN, 'mean': mean, 'sampled': mean - 5})
    for seed, sampled in ((1, {'sampled': 245.0}), (3, {})):
        learning.keep(first, case, seed, {**RUN, 'mean': 255.0 - 5 * seed, **sampled}, peer=True)
    learning.keep(first, other, 3, {**RUN, 'mean': -150.0, 'sampled': -160.0})
    for seed, mean in ((2, 7.0), (10, 2000.0)):
        sampled = {'sampled': mean + 1} if seed == 10 else {}
        learning.keep(second, case, seed, {**RUN, 'mean': mean, **sampled, 'date': '2026-05-06'})
    learning.keep(second, case, 2, {**RUN, 'mean': 4000.0, 'sampled': -1234.5}, peer=True)
    page = learning.render(json.loads(first.read_text()))
    merged = learning.render(json.loads(second.read_text()), page)
    line = next(line for line in merged.splitlines() if case.key in line)
    peers = '250.0 (245.0), 4 000.0 (-1 234.5), 240.0'
    assert f'| 1 000.0, 7.0, 2 000.0 | 1 000.0 | 995.0, –, 2 001.0 | {peers} |' in line
    assert f'`{case.command(1)}`, and with --seed 2, 10; peer: --seed 1, 2, 3' in merged and other.command(3) in merged
    assert '2026-01-02' in merged and '2026-05-06' in merged
    assert learning.render({}, merged) == merged
    old = '- 2025-12-31, a CPU, 2 cores, 1 run at a time'
    assert learning.render({}, f'{merged}\n{old}') == merged, 'of no row'
    slower = json.loads(json.dumps(kept(other, seed4=-150.0)))
    slower[other.name]['runs']['4']['seconds'] = 480.0
    added = learning.render(slower, merged)
    assert learning.render(slower, added) == added and '| -150.0, -150.0 |' in added
    (line,) = (line for line in added.splitlines() if line.startswith(f'| BC | {other.key}'))
    assert line.endswith(' 8.0 | 2026-01-02 |'), 'the minutes are those of the last machine'

    results = learning.merge(json.loads(second.read_text()), page)
    learning.write_scores(tmp_path / 'scores.yaml', results)
    scores = yaml.safe_load((tmp_path / 'scores.yaml').read_text())
    assert scores['ppo']['Ant-v5']['means'] == [1000.0, 7.0, 2000.0] and scores['ppo']['Ant-v5']['peer'] == 250.0
    assert 'bc' not in scores
    # a result of other settings is not shown
    assert learning.render({}, merged.replace('--clip-norm 0.2', '--clip-norm 0.3')).count('| PPO |') == 0


def test_the_peer_refuses_options_without_a_counterpart():
    without = {case.name for case in CASES if peer_worker.differences(case.agent, case.options)}
    offline = {case.name for case in CASES if case.agent in ('bc', 'iql', 'td3-bc')}
    compared = {'ppo-ant', 'a2c-hopper', 'trpo-ant', 'dqn-acrobot-quantile-published'}
    assert without >= offline and compared.isdisjoint(without)
    given = {'net': [64], 'activation': 'tanh', 'opt_epsilon': 1e-5}

    def differences(agent, **options):
        return peer_worker.differences(agent, {**given, **options})

    assert not differences('ppo', env_kwargs={'gravity': -4})
    assert not differences('td3', noise='gaussian', step_noise_coef=0.1, lr_schedule='linear')
    assert differences('ppo', n_steps=1, memory=64, optimizer='muon') == ['memory', 'optimizer']
    wrong = (
        ('a2c', 'optimizer', 'adam'), ('dqn', 'huber', False), ('dqn', 'distribution', 'categorical'),
        ('sac', 'normalize_layers', 'layer'), ('sac', 'beta1', 0.5), ('td3', 'initializer', 'orthogonal'),
        ('ppo', 'initializer', 'glorot_uniform'), ('trpo', 'fvp_n_steps', 5), ('ppo', 'lr_schedule', 'cosine'),
        ('ddpg', 'noise', 'pink'),
    )  # fmt: skip
    for agent, name, value in wrong:
        assert differences(agent, **{name: value}) == [name]
    assert differences('dqn', distribution='quantile', n_quantiles=10) == ['the default of grad_norm']
    assert peer_worker.differences('acer', given) == ['the agent acer']
    assert peer_worker.differences('ppo', {'activation': 'relu'}) == [
        'the default of net',
        'the default of opt_epsilon',
    ]


def arguments_of(name: str, n_envs: int = 1) -> dict:
    case = BY_NAME[name]
    envs = SimpleNamespace(action_space=SimpleNamespace(shape=(3,)), num_envs=n_envs)
    return peer_worker.model_arguments(case.agent, case.options, case.steps, envs)


def test_the_peer_gets_the_settings_under_its_own_names():
    a2c = arguments_of('a2c-hopper-published', 4)
    assert (a2c['rms_prop_eps'], a2c['vf_coef'], a2c['gamma'], a2c['gae_lambda']) == (1e-5, 0.5, 0.99, 1.0)
    trpo = arguments_of('trpo-hopper-published', 2)
    # per element of an action there
    np.testing.assert_allclose([trpo['target_kl'], trpo['cg_damping']], [0.01, 0.1])
    assert (trpo['n_critic_updates'], trpo['cg_max_steps'], trpo['batch_size']) == (20, 25, 128)
    ppo = arguments_of('ppo-pendulum', 4)
    assert (ppo['use_sde'], ppo['sde_sample_freq'], ppo['n_epochs'], ppo['clip_range']) == (True, 4, 10, 0.2)
    falling = arguments_of('ppo-ant')['learning_rate']
    assert BY_NAME['ppo-ant'].options['lr_schedule'] == 'linear' and trpo['learning_rate'] == 1e-3
    assert falling(0.25) == BY_NAME['ppo-ant'].options['lr'] / 4
    dqn = arguments_of('dqn-lunarlander-published')
    assert dqn['exploration_fraction'] * 100_000 == BY_NAME['dqn-lunarlander-published'].options['epsilon_decay_steps']
    assert arguments_of('dqn-mountaincar')['train_freq'] == 16
    options = {'train_frequency': 16, 'lr': 1e-3, 'buffer_max_size': 5000}
    found = peer_worker.model_arguments('dqn', options, 1000, SimpleNamespace(num_envs=8))
    assert (found['train_freq'], found['buffer_size']) == (2, 1000)


def test_the_peer_gets_the_noise_in_units_of_the_environment():
    published = {'a2c-pendulum': -2, 'ppo-pendulum': 0, 'trpo-pendulum': 0, 'ppo-hopper-published': -2}
    for name, log_std_init in published.items():
        case = BY_NAME[name]
        with gym.make(case.env) as env:
            found = peer_worker.initial_noise(case.agent, case.options, env.action_space)
        assert found == {'log_std_init': pytest.approx(log_std_init, abs=1e-6)}
    torque = gym.spaces.Box(-2, 2, (1,))
    assert peer_worker.initial_noise('ppo', {}, torque) == {'log_std_init': pytest.approx(math.log(2))}
    # off-policy agents scale actions there, too
    assert peer_worker.initial_noise('sac', {'log_std_init': -3}, torque) == {'log_std_init': -3}
    assert peer_worker.initial_noise('td3', {}, torque) == peer_worker.initial_noise('ppo', {}, gym.spaces.Discrete(2))
    with pytest.raises(ValueError):
        peer_worker.initial_noise('ppo', {}, gym.spaces.Box(np.float32([-1, -2]), np.float32([1, 2])))


class FakeModel:
    use_sde, sde_sample_freq = True, 4

    def __init__(self):
        self.policy, self.calls = self, []

    def reset_noise(self, n):
        self.calls.append(('noise', n))

    def predict(self, observations, deterministic):
        assert not deterministic
        self.calls.append(np.shape(observations))
        return np.zeros(len(observations)) if np.ndim(observations) == 2 else 0, None


def test_the_peer_samples_new_noise_and_each_environment_alone():
    observations = np.zeros((3, 2))
    model = FakeModel()
    sampler = peer_worker.Sampler(model)
    for _ in range(5):
        actions, _ = sampler.predict(observations, state=None, episode_start=None, deterministic=True)
        assert actions.shape == (3,)
    assert model.calls == [('noise', 3), (3, 2)] * 5, 'new noise in each step'
    model = FakeModel()
    model.use_sde, model.exploration_rate = False, 0.1
    assert peer_worker.Sampler(model).predict(observations)[0].shape == (3,) and model.calls == [(2,)] * 3


class FakeTraining:
    """A model without a replay buffer and without normalised environments, which can fail to save."""

    num_timesteps, full = 0, False

    def save(self, path):
        path.write_text('weights')
        if self.full:
            raise OSError('no space left')

    def get_vec_normalize_env(self):
        return None


def test_a_killed_peer_continues_from_its_last_complete_save(tmp_path, monkeypatch):
    folder, model = tmp_path / 'saves', FakeTraining()
    assert peer_worker.newest_save(folder) is None
    saver = peer_worker.Saver(model, folder)
    assert saver() and not folder.exists(), 'a save takes its time, so there are few'
    monkeypatch.setattr(peer_worker, 'SAVE_SECONDS', 0.0)
    for model.num_timesteps in (900, 1000):
        assert saver()
        assert [one.name for one in folder.iterdir()] == [str(model.num_timesteps)]
    model.num_timesteps, model.full = 1100, True
    with pytest.raises(OSError):
        saver()
    assert peer_worker.newest_save(folder) == folder / '1000', 'half a save is none'
    (folder / '1000' / 'seconds').write_text('50')
    assert 50 <= peer_worker.Saver(model, folder).seconds < 60


def runs_with(*means: float) -> dict:
    return {str(seed): {**RUN, 'mean': mean, 'sampled': mean} for seed, mean in enumerate(means, 1)}


def test_scores_far_below_the_published_ones_are_listed_beside_the_peer_and_the_preset():
    # a tenth of the score, and of its distance from random actions: each is the smaller one once
    case, further = BY_NAME['a2c-lunarlander-published'], BY_NAME['a2c-cartpole']
    distance = further.published - known_bounds(further.env).random
    assert known_bounds(case.env).random < 0 < known_bounds(further.env).random
    for one, limit in ((case, 0.9 * case.published), (further, further.published - 0.1 * distance)):
        assert not learning.gap(one, runs_with(limit + 0.1), {}, {})
        assert learning.gap(one, runs_with(limit - 0.1), {}, {})
    assert not learning.gap(BY_NAME['pqn-lunarlander'], runs_with(-500.0), {}, {}), 'without a published score'
    start = '* A2C, LunarLander-v3 published: 2.0 of 155.8'
    end = 'The last evaluations of the published run: 95.8, 148.2, 183.6, 153.1, 177.8.'
    assert learning.gap(case, runs_with(1, 2, 30), {}, {}) == [f'{start}. No peer was trained here. {end}']
    (line,) = learning.gap(case, runs_with(1, 2, 30), runs_with(1.5, 40), runs_with(1234, 5))
    # of the ten orders of two and three seeds, four have as many pairs
    assert line == (
        f'{start}; Stable-Baselines3 here 20.8, better in 4 of 6 pairs of seeds (p = 0.4, with sampled actions 0.4); '
        'the preset 619.5. There are too few seeds to show a difference. The peer is below by more than a tenth, too. '
        f'{end}'
    )
    theirs = {seed: {'mean': run['mean']} for seed, run in runs_with(1.5, 40).items()}
    assert 'pairs of seeds (p = 0.4). ' in learning.gap(case, runs_with(1, 2, 30), theirs, {})[0]
    found = [
        learning.gap(case, ours, theirs, {})[0].partition('; Stable-Baselines3 here ')[2].removesuffix(f' {end}')
        for ours, theirs in (
            (runs_with(1, 2, 3, 4), runs_with(151, 152, 153)), (runs_with(1, 2, 3), runs_with(151, 152, 153)),
            (runs_with(1, 2, 3), runs_with(151, 152, 0)), (runs_with(2.0), runs_with(1.0)),
            (runs_with(2.0), runs_with(153.0)),
        )
    ]  # fmt: skip
    assert found == [
        '152.0, better in 12 of 12 pairs of seeds (p = 0.029, with sampled actions 0.029). The peer learns more.',
        '152.0, better in 9 of 9 pairs of seeds (p = 0.05, with sampled actions 0.05). The peer learns more.',
        '151.0, better in 6 of 9 pairs of seeds (p = 0.35, with sampled actions 0.35). '
        'Chance may explain the difference from the peer.',
        '1.0, better in 0 of 1 pairs of seeds (p = 1, with sampled actions 1). '
        'The peer is not better. The peer is below by more than a tenth, too.',
        '153.0, better in 1 of 1 pairs of seeds (p = 0.5, with sampled actions 0.5). '
        'There are too few seeds to show a difference.',
    ]
    for name, causes in (
        ('trpo-ant-published', '4 997.2. The observations contain contact forces, which were 0 in Ant-v3.'),
        ('trpo-ant', '4 314.0, 4 679.3, 4 819.6, 4 772.9, 4 997.2.'),
        (
            'ppo-ant-published',
            '1 251.9. The published run has the remaining time in the observations. '
            'The observations contain contact forces, which were 0 in Ant-v3.',
        ),
        (
            'sac-humanoid-early',
            'The evaluations of the published run: 2 205.0 to 4 372.8. '
            'The observations contain contact forces, which were 0 in Humanoid-v3.',
        ),
        ('sac-humanoid-without-forces', 'The evaluations of the published run: 2 205.0 to 4 372.8.'),
        ('td3-hopper-early', 'The published run has a learning rate of 0.0003 and no noise.'),
        ('sac-lunarlandercontinuous-published', '241.1, 279.6. It ended after 169 635 steps.'),
        ('tqc-mountaincarcontinuous-published', f'72.8. {CAUSES["tqc-mountaincarcontinuous-published"]}'),
    ):
        (line,) = learning.gap(BY_NAME[name], runs_with(-100), {}, {})
        assert line.endswith(causes)
    assert learning.preset_of(case).name == 'a2c-lunarlander' and learning.preset_of(BY_NAME['a2c-ant']) is None
    assert learning.preset_of(BY_NAME['td3-ant-published-early']).name == 'td3-ant-early'


def test_p_values_are_exact():
    ours, theirs = list(range(2, 11)), [0.0, 1.0, *range(11, 19)]
    # the ranks of the peer's seeds give the pairs in which they are better
    placements = itertools.combinations(range(len(ours) + len(theirs)), len(theirs))
    better = [sum(ranks) - math.comb(len(theirs), 2) for ranks in placements]
    exact = np.mean([pairs >= 8 * len(ours) for pairs in better])
    assert learning.compare_with_peer(ours, theirs, [], [])[0] == f'better in 72 of 90 pairs of seeds (p = {exact:.2g})'


def test_training_keeps_results_and_skips_what_is_kept(tmp_path, monkeypatch, capsys):
    page, results, trained = tmp_path / 'page.md', tmp_path / 'learning.json', []
    page.write_text('<!-- benchmark learning -->\n<!-- end of benchmark learning -->\n')

    def run(training, python):
        trained.append((training.case.name, training.seed, training.peer, training.folder.exists()))
        if training.seed == 7:
            raise Failed('no memory')
        training.folder.mkdir(parents=True, exist_ok=True)
        return {'mean': 499.96 if training.peer else 500.0, 'seconds': 60.0, 'versions': {}}

    def main(line):
        trained.clear()
        files = {'results': results, 'page': page, 'scores': tmp_path / 'scores.yaml', 'runs': tmp_path / 'runs'}
        words = [word for name, path in files.items() for word in (f'--{name}', str(path))]
        return learning.main([*f'--only dqn-cartpole --jobs 1 {line}'.split(), *words])

    monkeypatch.setattr(learning.Training, 'run', run)
    monkeypatch.setattr(learning, 'find_peer', lambda library, options: tmp_path)
    assert main('--seeds 1 2') == 0 and trained == [('dqn-cartpole', seed, False, False) for seed in (1, 2)]
    assert main('--seeds 1 2 3') == 0 and trained == [('dqn-cartpole', 3, False, False)]
    assert main('--seeds 3 --peer') == 0 and trained == [('dqn-cartpole', 3, True, False)]
    cells = '| 500.0, 500.0, 500.0 | 500.0 |  | 500.0 | 475 | 500 | required yes, published yes | 1.0 |'
    assert cells in page.read_text() and cells in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / 'scores.yaml').read_text())['dqn']['CartPole-v1']['means'] == [500.0] * 3
    assert main('--seeds 3 --again') == 0 and trained == [('dqn-cartpole', 3, False, False)], 'in a new run directory'
    assert main('--seeds 4 --quick') == 0 and len(trained) == 1
    assert main('--seeds 7') == 1 and len(trained) == 1 and 'no memory' in capsys.readouterr().err
    kept = results.read_text()
    assert main('--docs') == 0 and trained == [] and cells in capsys.readouterr().out

    def fail(library, options):
        raise Failed('not installed')

    monkeypatch.setattr(learning, 'find_peer', fail)
    assert main('--seeds 3 --peer --again') == 1 and results.read_text() == kept
    files = (f'--page {tmp_path / "none.md"}', f'--page {results}', '--results .')
    for line in ('--seeds 1.5', '--jobs 0', '--only cartpole', *files):
        with pytest.raises(SystemExit, match='2'):
            learning.main(['--only', 'dqn-cartpole', '--docs', *line.split()])
        assert line.split()[1] in capsys.readouterr().err


def test_a_wrong_case_gets_the_nearest_name():
    hints = {
        'bc': ', for example bc-cartpole', 'ppo-cratpole': 'did you mean ppo-cartpole', 'x': 'lists$',
        'PPO-Hopper': 'did you mean ppo-hopper', 'trpo-walker2d-published': 'did you mean trpo-walker2d\\?',
        'ppo-hoper': 'did you mean ppo-hopper',
    }  # fmt: skip
    with pytest.raises(ValueError, match='--only: got an empty name, expected'):
        find_cases([''])
    for name, hint in hints.items():
        with pytest.raises(ValueError, match=f'--only: got {name}, expected .*{hint}'):
            find_cases([name])
    assert [case.name for case in find_cases(['ddpg', 'ddpg-pendulum'])] == ['ddpg-pendulum']


def test_listed_commands_train_cases_or_peers():
    recorded, trained = learning.list_commands(BY_NAME['bc-pendulum'], (1,), peer=False)
    assert recorded.startswith('xagents record tqc --pretrained Pendulum-v1 ') and trained.startswith(
        'xagents train bc '
    )
    name = BY_NAME['bc-pendulum'].dataset.name
    assert f'--dataset {name} ' in recorded and f'--dataset {name} ' in trained
    case = BY_NAME['ddpg-pendulum']
    assert learning.list_commands(case, (1, 4), peer=False) == [case.command(1), case.command(4)]
    (command,) = learning.list_commands(case, (1, 4), peer=True)
    given = learning.make_parser().parse_args(command.partition('benchmarks.learning.run ')[2].split())
    assert (given.peer, given.only, given.seeds) == (True, [case.name], [1, 4])


def test_changes_name_cases():
    presets_by_name = {case.name for case in CASES if case.digest}
    assert DEFAULT_CASES.keys() <= presets_by_name
    assert 'critics 256 wide' in BY_NAME['crossq-halfcheetah-early'].changed


def test_causes_name_rows_of_the_page_below_their_published_score():
    page = sections(PAGE.read_text())['learning']
    shown = learning.merge({}, page)
    listed = [line for line in page.splitlines() if line.startswith('* ')]
    for name, cause in CAUSES.items():
        case = BY_NAME[name]
        runs, peers = (learning.runs_of(case, shown, peer) for peer in (False, True))
        preset = learning.preset_of(case)
        found = learning.gap(case, runs, peers, learning.runs_of(preset, shown) if preset else {})
        assert found, f'{name} is not below its published score'
        assert found[0] in listed and found[0].endswith(f' {cause}')


def test_the_help_names_each_case_on_one_line(monkeypatch):
    monkeypatch.setenv('COLUMNS', '80')
    words = learning.make_parser().format_help().replace(',', ' ').replace(';', ' ').split()
    assert {case.name for case in CASES} <= set(words)
