"""The checks of a run name the cause in synthetic run data, and find nothing in data of a run that learned."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

from tests.commands import execute
from xagents.config.configuration import train_options
from xagents.doctor.page import run_page
from xagents.doctor.run import findings_of
from xagents.doctor.run_data import RunData, read_run_data
from xagents.doctor.sample import Sample

STEPS, ROWS, EPISODES = 100_000, 200, 400
RNG = np.random.default_rng(0)


def options_of(agent, **changed):
    known = {name: option.default for name, option in train_options(agent).items()}
    return {**known, 'agent': agent, 'env': 'Unknown-v0', 'n_envs': 8, 'gamma': 0.99, 'lr': 3e-4, **changed}


def sample(**changed):
    observations = RNG.normal(size=(500, 4)).astype(np.float32)
    units = {'layer 1': ('tanh', np.tanh(RNG.normal(size=(500, 64)))), 'layer 2': ('relu', RNG.normal(size=(500, 64)))}
    own = {
        'observations': observations,
        'rewards': RNG.normal(size=500),
        'learned_rewards': RNG.normal(size=500),
        'returns': RNG.normal(size=500),
    }
    others = {'first_reward': (1, 1), 'actions': RNG.integers(0, 2, 500), 'action_space': spaces.Discrete(2)}
    return Sample(**{**own, **others, 'is_image': False, 'units': units, **changed})


def metrics(**columns):
    steps = np.linspace(0, STEPS, ROWS).astype(int)
    own = {'steps': steps, 'updates': np.arange(ROWS) * 20, 'learning_rate': 3e-4, 'episode_length': 100.0}
    own |= {'loss/entropy': np.linspace(0.69, 0.4, ROWS), 'stats/kl': 0.01, 'stats/clip_fraction': 0.1}
    return pd.DataFrame({**own, 'stats/explained_variance': 0.8, 'seconds/env': 1.0, 'seconds/learn': 2.0, **columns})


def episodes(first, last, deviation=10.0):
    return np.linspace(first, last, EPISODES) + RNG.normal(size=EPISODES) * deviation


def run(agent='ppo', rewards=None, given=None, columns=None, seen=None, **changed):
    rewards = episodes(20, 300) if rewards is None else rewards
    values = {
        **{'folder': Path('run'), 'options': options_of(agent, **(given or {})), 'metrics': metrics(**(columns or {}))},
        **{'status': {'steps': STEPS, 'state': 'finished', 'why': 'steps'}, 'rewards': rewards},
        **{'ends': np.linspace(0, STEPS, len(rewards)), 'sample': sample(**(seen or {}))},
    }
    return RunData(**{**values, **changed})


def stuck(*arguments, **others):
    """A run whose mean reward did not rise."""
    return run(*arguments, **{'rewards': episodes(20, 20), **others})


REPLAY = {'replay/size': 5000.0, 'replay/fill': 0.5, 'stats/q': 5.0, 'stats/epsilon': np.linspace(1, 0.02, ROWS)}
DQN = {name: np.nan for name in ('loss/entropy', 'stats/kl', 'stats/clip_fraction', 'stats/explained_variance')}
DQN |= REPLAY
SAC = {**DQN, 'stats/epsilon': np.nan, 'stats/entropy': -1.0, 'stats/temperature': 0.1}
BOX = spaces.Box(-1, 1, (2,), np.float32)
CAUSES = {
    'rate too large': ('learning-rate', run(given={'lr': 1.0})),
    'rate too small': ('learning-rate', stuck(given={'lr': 1e-7}, columns={'learning_rate': 1e-7})),
    'rate ended': ('learning-rate', stuck(columns={'learning_rate': np.maximum(1e-3 - np.arange(ROWS) * 1e-5, 0)})),
    'large rewards': ('reward-scale', run(seen={'returns': RNG.normal(size=500) * 1e6})),
    'small rewards': ('reward-scale', stuck(seen={'returns': RNG.normal(size=500) * 1e-6})),
    'large observations': ('observation-scale', run(seen={'observations': RNG.normal(size=(500, 4)) * 1e3})),
    'small observations': ('observation-scale', run(seen={'observations': RNG.normal(size=(500, 4)) * 1e-5})),
    'equal episodes': ('sparse-reward', run(rewards=np.full(EPISODES, -200.0))),
    'no reward': ('sparse-reward', stuck(seen={'rewards': np.zeros(500)})),
    'small gamma': ('discount', run(given={'gamma': 0.5})),
    'late rewards': ('discount', stuck(given={'gamma': 0.9}, seen={'first_reward': (90, 100, 110)})),
    'not finite': ('not-finite', run(columns={'stats/refused': 1.0})),
    'no update': ('idle-buffer', stuck('dqn', columns={**DQN, 'updates': 0})),
    'late updates': (
        'idle-buffer',
        stuck('dqn', columns={**DQN, 'updates': np.maximum(np.arange(ROWS) - 150, 0) * 20}),
    ),
    'few updates': ('few-updates', stuck('dqn', columns={**DQN, 'updates': np.arange(ROWS)})),
    'no end': ('endless-episodes', run(rewards=np.zeros(0), status={'steps': STEPS, 'games': 0})),
    'an error': ('failed', run(status={'steps': 0, 'state': 'failed', 'why': 'ValueError: bad'})),
    'no target': ('target-network', stuck('dqn', given={'target_sync_steps': 10**6}, columns=DQN)),
    'slow target': ('target-network', stuck('sac', given={'tau': 1e-6}, columns=SAC, seen={'action_space': BOX})),
    'random actions': ('exploration', stuck('dqn', columns={**DQN, 'stats/epsilon': 0.9})),
    'no random actions': ('exploration', stuck('dqn', columns={**DQN, 'stats/epsilon': 0.0})),
    'no noise': ('exploration', stuck('td3', given={'step_noise_coef': 0.0}, seen={'action_space': BOX})),
    'tiny batches': ('batch-size', stuck('dqn', given={'buffer_batch_size': 1}, columns=DQN)),
    'tiny rollouts': ('batch-size', stuck('ppo', given={'n_envs': 1, 'n_steps': 8})),
    'small buffer': ('buffer-size', stuck('dqn', given={'buffer_max_size': 100}, columns=DQN)),
    'certain policy': ('entropy', stuck(columns={'loss/entropy': np.linspace(0.69, 0, ROWS) ** 9})),
    'random policy': ('entropy', stuck(columns={'loss/entropy': 0.693}, given={'entropy_coef': 5.0})),
    'narrow Gaussian': ('entropy', stuck(columns={'loss/entropy': -12.0}, seen={'action_space': BOX})),
    'hot policy': ('entropy', stuck('sac', columns={**SAC, 'stats/temperature': 100.0}, seen={'action_space': BOX})),
    'large steps': ('policy-change', stuck(columns={'stats/kl': 0.5, 'stats/clip_fraction': 0.7})),
    'no steps': ('policy-change', stuck(columns={'stats/kl': 1e-9})),
    'useless critic': ('critic', stuck(columns={'stats/explained_variance': -0.1})),
    'diverging values': ('q-values', run('dqn', columns={**DQN, 'stats/q': np.geomspace(1, 1e9, ROWS)})),
    'dead units': ('dead-units', stuck(seen={'units': {'layer 1': ('relu', np.zeros((500, 64)))}})),
    'saturated units': ('dead-units', stuck(seen={'units': {'layer 1': ('tanh', np.ones((500, 64)))}})),
    'clipped actions': ('action-scale', stuck(seen={'action_space': BOX, 'actions': np.full((500, 2), 9.0)})),
    'forgotten': ('collapse', run(rewards=np.concatenate([episodes(20, 300), episodes(20, 20)]))),
    'unknown': ('no-progress', stuck()),
}


@pytest.mark.parametrize(('cause', 'data'), CAUSES.values(), ids=CAUSES)
def test_the_cause_is_named(cause, data):
    assert cause in [finding.name for finding in findings_of(data)]


@pytest.mark.parametrize('data', [
    run(), run('dqn', columns=DQN), run('sac', columns=SAC, seen={'action_space': BOX}),
    run(columns={'loss/entropy': np.linspace(0.69, 0, ROWS) ** 3, 'stats/explained_variance': 0.0}),
    run(rewards=episodes(-1200, -150, 100), given={'gamma': 0.9}),
    # rare rewards that the agent finds; few episodes; images; constant rewards of episodes that become longer
    run(seen={'rewards': np.repeat([0.0, 1.0], [499, 1])}),
    run(rewards=episodes(20, 300)[::20]),
    run(seen={'observations': RNG.integers(0, 255, (50, 84, 84, 4)).astype(np.uint8), 'is_image': True, 'units': {}}),
    run(seen={'rewards': np.ones(500), 'learned_rewards': np.ones(500), 'first_reward': ()}),
    run(sample=None, sample_problem='no environment'),
    # a penalty that the agent avoids; an offline run, which takes no actions
    run(rewards=episodes(-5, 0, 0.1), seen={'rewards': np.zeros(500)}),
    run('dqn', rewards=episodes(20, 300)[::20], given={'dataset': 'a/b-v0'}, columns={**DQN, 'stats/epsilon': 1.0}),
])  # fmt: skip
def test_nothing_is_found_in_a_run_that_learned(data):
    assert findings_of(data) == []


def test_each_finding_has_one_line_with_a_remedy():
    for _, data in CAUSES.values():
        for finding in findings_of(data):
            assert '\n' not in str(finding) and finding.remedy and not str(finding).endswith('..')


def test_settings_of_the_environment_decide_whether_a_run_is_good():
    """A policy that is good from the start has not risen, but is as good as the preset."""
    data = run(rewards=episodes(500, 500, 0.0), given={'env': 'CartPole-v1', 'target_reward': None})
    assert not data.rose and data.is_good and findings_of(data) == []
    bad = dataclasses.replace(data, rewards=episodes(20, 20))
    assert not bad.is_good and [finding.name for finding in findings_of(bad)]
    # 70 is published for quantiles, 154 without them
    for distribution, good in (('quantile', True), (None, False)):
        given = {'env': 'LunarLander-v3', 'distribution': distribution}
        assert run('dqn', rewards=episodes(-200, 100, 0.0), given=given).is_good == good


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A run directory of a run whose learning rate is 1, and rewards are multiplied by a million."""
    folder = tmp_path_factory.mktemp('doctor') / 'run'
    words = ['--env', 'CartPole-v1', '--n-envs', '8', '--max-steps', '8000', '--lr', '1', '--reward-scale', '1e6']
    code, _, error = execute(
        'train', 'ppo', *words, '--run-dir', folder, '--quiet', '--seed', '1', '--final-episodes', '0'
    )
    assert code == 0, error
    return folder


def test_a_run_directory(trained):
    data = read_run_data(trained)
    assert data.sample is not None and data.sample_problem == ''
    assert data.sample.observations.shape[1:] == (4,) and len(data.sample.observations) >= 2048
    assert np.unique(data.sample.learned_rewards).tolist() == [1e6]
    assert [kind for kind, _ in data.sample.units.values()] == ['tanh', 'tanh']
    names = [finding.name for finding in findings_of(data)]
    assert {'learning-rate', 'reward-scale'} <= set(names)
    page = run_page(data, width=100)
    assert 'ppo on CartPole-v1, ' in page and '--lr is 1.' in page
    assert json.loads(run_page(data, as_json=True))['findings'][0]['name'] == names[0]


def test_the_command_line(trained):
    code, output, _ = execute('doctor', '--run-dir', trained.parent, '--json')
    (line,) = output.splitlines()
    assert code == 0 and json.loads(line)['run'] == str(trained)
    for words, expected in {
        ('CartPol-v1',): '--env: no environment \'CartPol-v1\' (did you mean CartPole-v1?)',
        (str(trained),): f'--env: got {trained}, a directory, expected an environment, or --run-dir {trained}',
        ('CartPole-v1', '--run-dir', trained): f'--run-dir: got {trained} with CartPole-v1, expected one of the two',
        ('--run-dir', trained, '--episodes', '3'): '--episodes: got 3 with --run-dir, whose runs are only read',
        ('--run-dir', trained, '--n-envs', '3'):
            '--n-envs: cannot be used with --run-dir, whose environments have their own options',
        ('CartPole-v1', 'Acrobot-v1'): 'got CartPole-v1 and Acrobot-v1, expected one environment',
        ('--json',): 'got nothing, expected an environment, such as CartPole-v1, or --run-dir and a run directory',
    }.items():  # fmt: skip
        code, output, error = execute('doctor', *map(str, words))
        assert (code, output, error) == (2, '', f'xagents doctor: {expected}\n')


def test_a_damaged_run_is_named(tmp_path):
    (tmp_path / 'config.yaml').write_text('agent: ppo\nenv: CartPole-v1\n')
    code, output, _ = execute('doctor', '--run-dir', tmp_path)
    assert code == 0 and 'status.json is not readable' in output
