"""What `make` says of the options that it was given."""

import contextlib

import pytest

import xagents

pytestmark = pytest.mark.usefixtures('small_agents')


@pytest.mark.parametrize(
    ('given', 'flags'),
    [
        ({'sticky_actions': True}, '--sticky-actions'),
        (
            {'episodic_life': False, 'frame_stack': 4, 'max_frame': True},
            '--max-frame, --frame-stack, --no-episodic-life',
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
        ({'n_envs': 2, 'frame_stack': 4}, None),
    ],
)
def test_options_of_environments_that_are_made_already_are_refused(given, problem):
    with xagents.create_envs('CartPole-v1', 2) as envs, contextlib.ExitStack() as stack:
        if problem is not None:
            stack.enter_context(pytest.raises(ValueError, match=problem))
        xagents.make('small', envs, seed=1, **given)
