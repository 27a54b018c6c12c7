"""Video files (H.264) and single frames of an agent that acts in its environment."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, NoReturn

import numpy as np

from xagents.system.files import atomic_write


class VideoWriter:
    """A writer of .mp4 videos that browsers can play: H.264, yuv420p, with the index at the front.

    The file appears under its name at the end of a `with` block. If the block raises or writes no frame, no file is
    left.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float = 30) -> None:
        """Prepare a video. The first frame sets the size and starts ffmpeg.

        Args:
            path: the file; its name ends in .mp4.
            fps: frames per second.

        Raises:
            ValueError: if the path does not end in .mp4, its folder does not exist, or `fps` is not positive.
        """
        self.path = Path(path)
        _check_target('video', self.path, '.mp4')
        if not (fps > 0 and math.isfinite(fps)):
            raise ValueError(f'fps: got {fps}, expected a positive number')
        self._fps = fps
        self._shape: tuple[int, ...] = ()
        self._encoder = contextlib.ExitStack()

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._encoder.__exit__(*exception)

    def write(self, frame: np.ndarray) -> None:
        """Add a frame.

        Args:
            frame: RGB image, uint8 [H, W, 3]. All frames of a video have the same size.

        Raises:
            ValueError: if the frame has another type or size, or the `with` block is over.
            RuntimeError: if ffmpeg fails.
        """
        _check_frame(frame)
        height, width = frame.shape[:2]
        odd = height % 2, width % 2
        if not self._shape:
            self._shape = frame.shape
            size = width + odd[1], height + odd[0]
            self._write = self._encoder.enter_context(_encoder(self.path, size, self._fps))
        elif frame.shape != self._shape:
            raise ValueError(f'got a frame of shape {frame.shape}, expected {self._shape} as before')
        if any(odd):  # yuv420p halves the resolution of colours, so it needs even sizes
            frame = np.pad(frame, ((0, odd[0]), (0, odd[1]), (0, 0)), mode='edge')
        self._write(np.ascontiguousarray(frame))


@contextlib.contextmanager
def _encoder(path: Path, size: tuple[int, int], fps: float) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that writes a frame. The video appears at `path` only if the block succeeds."""
    # `imageio_ffmpeg.write_frames` ignores the exit code of ffmpeg: if the disk is full, it leaves half a video
    import imageio_ffmpeg

    with atomic_write(path) as temporary, tempfile.TemporaryFile() as messages:
        command = [imageio_ffmpeg.get_ffmpeg_exe(), '-y', '-v', 'error', '-nostdin', '-f', 'rawvideo']
        command += ['-pix_fmt', 'rgb24', '-s', f'{size[0]}x{size[1]}', '-r', f'{fps:g}', '-i', '-', '-an']
        command += ['-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p']
        command += ['-movflags', '+faststart', '-f', 'mp4', str(temporary)]
        # a new session, so that Ctrl-C does not stop ffmpeg before it has finished the file
        process = Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=messages, start_new_session=True)
        pipe = process.stdin
        assert pipe is not None

        def fail() -> NoReturn:
            process.kill()
            process.wait()
            messages.seek(0)
            lines = messages.read().decode(errors='replace').strip().splitlines()
            raise RuntimeError(f"ffmpeg could not write '{path}': {lines[-1] if lines else 'it gave no reason'}")

        def write(frame: np.ndarray) -> None:
            try:
                pipe.write(frame.data)
            except OSError:
                fail()

        try:
            yield write
            with contextlib.suppress(OSError):  # the exit code reports a broken pipe
                pipe.close()
            if process.wait() != 0:
                fail()
        finally:
            process.kill()  # no effect if it has ended
            process.wait()
            with contextlib.suppress(OSError):
                pipe.close()


def write_frame(path: str | os.PathLike[str], frame: np.ndarray) -> None:
    """Write one frame to a .jpg file, atomically.

    Args:
        path: the file; its name ends in .jpg.
        frame: RGB image, uint8 [H, W, 3].

    Raises:
        ValueError: if the path or the frame is not valid.
    """
    from PIL import Image

    path = Path(path)
    _check_target('frame', path, '.jpg')
    _check_frame(frame)
    with atomic_write(path) as temporary:
        Image.fromarray(frame).save(temporary, 'JPEG', quality=90)


def has_display() -> bool:
    """Return whether a window can be opened. On Linux, an environment variable must name an X or Wayland display."""
    if sys.platform in ('darwin', 'win32'):
        return True
    return bool(os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY'))


def _check_frame(frame: np.ndarray) -> None:
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        got = f'{frame.dtype} {frame.shape}' if isinstance(frame, np.ndarray) else type(frame).__name__
        raise ValueError(f'frame: got {got}, expected a uint8 array of shape (height, width, 3)')
    if frame.size == 0:
        raise ValueError(f'frame: got the shape {frame.shape}, expected at least one pixel')


def _check_target(what: str, path: Path, ending: str) -> None:
    if path.suffix.lower() != ending:
        raise ValueError(f"{what}: got '{path}', expected a path that ends in {ending}")
    if not path.parent.is_dir():
        raise ValueError(f'{what}: got {path}, but there is no directory {path.parent}')
