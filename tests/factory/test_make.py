"""What `make` says of the options that it was given."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.problems import Arbitrary
from xagents.factory import make as make_module
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('small_agents')


@pytest.mark.parametrize(
    ('given', 'flags'),
    [
        ({'sticky_actions': True}, '--sticky-actions'),
        (
            {'episodic_life': False, 'max_frame': True},
            '--max-frame, --no-episodic-life',
        ),
        ({'preprocess': False}, ''),
    ],
)
def test_atari_options_without_effect_are_named_on_one_line(given, flags, capsys):
    agent = xagents.make('small', 'CartPole-v1', seed=1, **given)
    agent.fit(max_steps=10, final_episodes=0)
    lines = [line for line in capsys.readouterr().out.splitlines() if 'without effect' in line]
    said = f'Warning: without effect on CartPole-v1, which is not a preprocessed Atari game: {flags}'
    assert lines == ([said] if flags else [])


def test_a_resume_says_nothing_of_options_that_were_given_before(tmp_path, capsys):
    folder = tmp_path / 'run'
    agent = xagents.make('small', 'CartPole-v1', seed=1, run_dir=str(folder), sticky_actions=True)
    agent.fit(max_steps=10, final_episodes=0)
    agent.close()
    assert 'without effect' in capsys.readouterr().out
    agent = xagents.resume(folder)
    agent.fit(max_steps=20, final_episodes=0)
    agent.close()
    assert 'without effect' not in capsys.readouterr().out


def test_images_become_vectors_in_a_run_and_in_its_policy(tmp_path):
    given = {'env_kwargs': {'shape': [3, 7, 8]}, 'n_steps': 8, 'seed': 1, 'final_episodes': 0}
    image = xagents.make('ppo', 'tests.environments:Image-v0', **given)
    assert image.envs.is_image and any('conv' in layer.name for layer in image.output_models[0].layers)
    folder = tmp_path / 'run'
    agent = xagents.make('ppo', 'tests.environments:Image-v0', **given, flatten=True, run_dir=str(folder))
    assert agent.input_shape == (168,) and agent.envs.frame_stack == 1
    agent.fit(max_steps=8, quiet=True)
    observations = np.random.default_rng(0).integers(0, 256, (64, 3, 7, 8), np.uint8)
    loaded, policy = xagents.load(folder, 'last'), xagents.policy(folder, 'last')
    assert loaded.envs.recreate(1).observation_space.shape == (168,)
    actions = loaded.act(observations)
    assert actions.tolist() == policy(observations).tolist() and policy(observations[3]) == actions[3]
    with pytest.raises(OptionError, match='flatten: got False, was True: this option cannot change'):
        xagents.resume(folder, flatten=False)
    for one in (image, agent, loaded):
        one.close()


def test_atari_options_have_an_effect_on_atari():
    pytest.importorskip('ale_py')
    agent = xagents.make('a2c', 'ALE/Pong-v5', seed=1, frame_stack=2, episodic_life=False)
    assert not [line for line in agent.progress.startup_lines if 'without effect' in line]
    agent.close()


@pytest.mark.parametrize(
    ('given', 'problem'),
    [
        ({'n_envs': 8}, 'n_envs: got 8 with 2 ready-made environments, expected 2'),
        ({'max_episode_steps': 5}, 'max_episode_steps: got 5 with ready-made environments, expected it where'),
        ({'n_envs': 2, 'frame_stack': 4}, 'frame_stack: got 4 with ready-made environments, expected it where'),
        ({'n_envs': 2, 'frame_stack': None}, None),
    ],
)
def test_options_of_environments_that_are_made_already_are_refused(given, problem):
    with xagents.create_envs('CartPole-v1', 2) as envs, contextlib.ExitStack() as stack:
        if problem is not None:
            stack.enter_context(pytest.raises(ValueError, match=problem))
        xagents.make('small', envs, seed=1, **given)


@pytest.mark.parametrize(('side', 'expected'), [(10, [1]), (40, [])])
def test_only_large_images_use_all_cores(side, expected, monkeypatch):
    chosen = []
    monkeypatch.setattr(make_module, 'threads_in_use', lambda: 0)
    monkeypatch.setattr(make_module, 'set_threads', chosen.append)
    image = spaces.Box(0, 255, (side, side, 1), np.uint8)
    xagents.make('pqn', lambda **_: Arbitrary(image, spaces.Discrete(2)), seed=1)
    assert chosen == expected
