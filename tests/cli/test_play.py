"""Showing and recording an episode."""

import numpy as np
import pytest
from PIL import Image

import xagents
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('without_xla')


@pytest.fixture
def agent():
    return xagents.make('ppo', 'CartPole-v1', seed=1, n_steps=8)


def test_play_records_a_video_and_frames(agent, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    reward = agent.play(
        str(tmp_path / 'v'), render=True, frame_dir=str(tmp_path / 'f'), frame_frequency=2, max_steps=20
    )
    out = capsys.readouterr().out
    assert out.count('--render: there is no display') == 1
    (video,) = (tmp_path / 'v').iterdir()
    assert video.suffix == '.mp4' and f'Video: {video}' in out
    frames = sorted((tmp_path / 'f').iterdir())
    assert len(frames) == (reward + 1 + 1) // 2  # every second one of the first observation's and each step's
    picture = np.asarray(Image.open(frames[0]))
    assert picture.shape == (400, 600, 3) and picture.std() > 5


def test_play_ends_after_max_steps_and_repeats_with_its_seed(agent):
    assert agent.play(max_steps=3) == 3
    assert agent.play(seed=5) == agent.play(seed=5)


def test_play_takes_the_present_weights(agent):
    kept = agent.model.get_weights()
    agent.model.set_weights([np.zeros_like(w) for w in kept])
    assert agent.play() < 12  # always the same action
    agent.model.set_weights(kept)


def test_the_policy_may_be_another_output(agent):
    with pytest.raises(OptionError, match='action_idx: got 2, expected 0'):
        agent.play(action_idx=2)
    assert agent.play(action_idx=0, seed=1) == agent.play(seed=1)


def test_a_window_shows_frames(monkeypatch):
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    from xagents.logs.window import Window

    with Window('a window', 1000) as window:
        window.show(np.zeros((20, 30, 3), np.uint8))
        frame = np.zeros((20, 30, 3), np.uint8)
        frame[:, :15] = (250, 10, 20)
        window.show(frame)
        import pygame

        shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        np.testing.assert_array_equal(shown, frame)
