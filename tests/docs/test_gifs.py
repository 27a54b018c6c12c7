"""Gifs of the README and the gallery: small, and at the episode's pace."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[2] / 'docs' / 'gifs.py'


@pytest.fixture(scope='module')
def gifs():
    specification = importlib.util.spec_from_file_location('gifs', SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize('fps, kept, seconds', [(50, 30, 1.2), (10, 60, 6.0)])
def test_a_gif_is_small_loops_and_keeps_the_pace(gifs, tmp_path, fps, kept, seconds):
    frames = np.zeros((60, 256, 640, 3), np.uint8)
    frames[..., 2] = 200
    for index, frame in enumerate(frames):  # a red square that moves over blue, one pixel a frame
        frame[20:36, index : index + 16] = (200, 0, 0)
    path = tmp_path / 'play.gif'
    gifs.write_gif(path, list(frames), fps)
    with Image.open(path) as gif:
        assert (gif.size, gif.info['loop'], gif.n_frames) == ((320, 128), 0, kept)
        lengths = []
        for index in range(gif.n_frames):
            gif.seek(index)
            lengths.append(gif.info['duration'])
        last = np.asarray(gif.convert('RGB'))
    assert min(lengths) >= 20  # browsers slow down what is shorter
    assert sum(lengths) / 1000 == pytest.approx(seconds, abs=0.02)
    assert last[14, (60 - 60 // kept) // 2 + 4].tolist() == pytest.approx([200, 0, 0], abs=25)
    assert last[60, 10].tolist() == pytest.approx([0, 0, 200], abs=25)
    assert path.stat().st_size < 60_000
