"""Videos a browser plays, and frames; and nothing left behind when something fails."""

import os
import stat

import imageio_ffmpeg
import numpy as np
import psutil
import pytest
from PIL import Image

from xagents.logs.video import VideoWriter, write_frame


def frames(count, height=64, width=96):
    """A red square that moves over blue, one pixel a frame."""
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, :, 2] = 200
        frame[20:36, index : index + 16] = (200, 0, 0)
        yield frame


def read_video(path):
    try:
        reader = imageio_ffmpeg.read_frames(str(path))
        meta = next(reader)
    except OSError:  # on a busy machine the reader sometimes receives nothing from ffmpeg
        reader = imageio_ffmpeg.read_frames(str(path))
        meta = next(reader)
    width, height = meta['size']
    return meta, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]


def test_a_video_is_what_a_browser_plays(tmp_path):
    path = tmp_path / 'play.mp4'
    with VideoWriter(path, fps=50) as video:
        for frame in frames(40):
            video.write(frame)
        assert not path.exists()  # under another name until it is whole
    assert os.listdir(tmp_path) == ['play.mp4']
    meta, read = read_video(path)
    assert (meta['codec'], meta['fps'], meta['size']) == ('h264', 50.0, (96, 64))
    assert meta['pix_fmt'].startswith('yuv420p')
    assert len(read) == 40
    for got, frame in zip(read, frames(40), strict=True):
        assert np.abs(got.astype(int) - frame).mean() < 12  # lossy, but this frame and no other picture
    content = path.read_bytes()
    assert content.index(b'moov') < content.index(b'mdat')  # plays before it is loaded whole


def test_odd_sizes_are_padded_by_their_edge(tmp_path):
    path = tmp_path / 'odd.mp4'
    with VideoWriter(path, fps=30) as video:
        for frame in frames(5, 63, 95):
            video.write(frame[:, ::-1])  # a view, not contiguous
    meta, read = read_video(path)
    assert meta['size'] == (96, 64)
    assert read[0][63, 95].tolist() == pytest.approx([0, 0, 200], abs=25)


@pytest.mark.parametrize('error', [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_nothing_and_keeps_an_older_video(tmp_path, error):
    path = tmp_path / 'play.mp4'
    path.write_bytes(b'old')
    before = set(psutil.Process().children())
    with pytest.raises(error), VideoWriter(path) as video:
        for frame in frames(3):
            video.write(frame)
        (ffmpeg,) = set(psutil.Process().children()) - before
        raise error
    assert not ffmpeg.is_running()
    assert os.listdir(tmp_path) == ['play.mp4'] and path.read_bytes() == b'old'


def test_without_frames_there_is_no_video(tmp_path):
    with VideoWriter(tmp_path / 'play.mp4'):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == 'nt', reason='a shell script stands for ffmpeg')
@pytest.mark.parametrize('reads', [True, False])
def test_a_failing_ffmpeg_is_an_error_with_its_reason(tmp_path, monkeypatch, reads):
    ffmpeg = tmp_path / 'ffmpeg'
    ffmpeg.write_text(f'#!/bin/sh\n{"cat >/dev/null" if reads else ""}\necho No space left on device >&2\nexit 1\n')
    ffmpeg.chmod(ffmpeg.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(imageio_ffmpeg, 'get_ffmpeg_exe', lambda: str(ffmpeg))
    failure = pytest.raises(RuntimeError, match=r'play\.mp4.*No space left on device')
    with failure, VideoWriter(tmp_path / 'play.mp4') as video:
        for frame in frames(200, 200, 400):  # more than a pipe holds
            video.write(frame)
    assert os.listdir(tmp_path) == ['ffmpeg']


FRAMES = [((8, 8), 'uint8'), ((8, 8, 4), 'uint8'), ((8, 8, 3), 'float32'), ((0, 8, 3), 'uint8')]


@pytest.mark.parametrize('frame', [None, *(np.zeros(shape, dtype) for shape, dtype in FRAMES)])
def test_a_malformed_frame_is_refused(tmp_path, frame):
    for write in (VideoWriter(tmp_path / 'v.mp4').write, lambda frame: write_frame(tmp_path / 'f.jpg', frame)):
        with pytest.raises(ValueError, match='frame: got'):
            write(frame)
    assert os.listdir(tmp_path) == []


def test_frames_of_another_size_or_after_the_end_are_refused(tmp_path):
    with VideoWriter(tmp_path / 'v.mp4') as video:
        video.write(next(frames(1)))
        with pytest.raises(ValueError, match='a frame of shape'):
            video.write(next(frames(1, 32, 32)))
    with pytest.raises(ValueError, match='closed'):
        video.write(next(frames(1)))


@pytest.mark.parametrize(
    ('call', 'words'),
    [
        (lambda folder: VideoWriter(folder / 'v.avi'), '.mp4'),
        (lambda folder: VideoWriter(folder / 'missing' / 'v.mp4'), 'missing'),
        (lambda folder: VideoWriter(folder / 'v.mp4', fps=0), 'fps'),
        (lambda folder: VideoWriter(folder / 'v.mp4', fps=float('nan')), 'fps'),
        (lambda folder: write_frame(folder / 'f.gif', next(frames(1))), '.jpg'),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, call, words):
    with pytest.raises(ValueError) as error:
        call(tmp_path)
    assert words in str(error.value) and '\n' not in str(error.value)
    assert os.listdir(tmp_path) == []


def test_a_frame_is_close(tmp_path):
    picture = next(frames(1))
    write_frame(str(tmp_path / 'f.jpg'), picture)
    assert np.abs(np.asarray(Image.open(tmp_path / 'f.jpg')).astype(int) - picture).mean() < 12
    assert os.listdir(tmp_path) == ['f.jpg']
