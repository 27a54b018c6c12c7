"""Pictures of an agent at play: H.264 videos, gifs and single frames."""

from __future__ import annotations

import contextlib
import io
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

import numpy as np

from xagents.system.files import replacing

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ['VideoWriter', 'has_display', 'write_frame', 'write_gif']

FRAME_FORMATS = {'.png': 'PNG', '.jpg': 'JPEG', '.jpeg': 'JPEG'}


class VideoWriter:
    """Writes frames to an .mp4 that browsers play: H.264, yuv420p, its index at the front.

    The video is written under a temporary name and takes its own when it is closed. When a `with` block raises, or no
    frame was written, nothing is left behind.

        with VideoWriter('play.mp4', fps=50) as video:
            video.write(frame)

    Attributes:
        path: The video.
        n_frames: How many frames were written so far.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float = 30) -> None:
        """Prepare a video; ffmpeg starts with the first frame, which sets the size.

        Args:
            path: An .mp4 file; its folder must exist.
            fps: Frames per second.

        Raises:
            ValueError: If the path does not end in .mp4, its folder does not exist, or `fps` is not positive.
        """
        self.path = Path(path)
        _check_target('video', self.path, ('.mp4',))
        _check_fps(fps)
        self.n_frames = 0
        self._fps = fps
        self._shape: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: IO[bytes] | None = None
        self._replacing = contextlib.ExitStack()
        self._closed = False

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def write(self, frame: np.ndarray) -> None:
        """Add a frame: uint8 [H, W, 3], red, green, blue, the same size every time.

        Raises:
            ValueError: If it is of another type or shape, or the video is closed.
            RuntimeError: If ffmpeg fails; nothing is left of the video then.
        """
        if self._closed:
            raise ValueError(f"the video '{self.path}' is closed")
        _check_frame(frame)
        if self._process is None:
            self._start(frame.shape)
        elif frame.shape != self._shape:
            raise ValueError(f'frames of one video must have one size: got {frame.shape} after {self._shape}')
        height, width = frame.shape[:2]
        if height % 2 or width % 2:  # yuv420p halves the colours' resolution, so it needs even sizes
            frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode='edge')
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(np.ascontiguousarray(frame).data)
        except OSError:
            self._fail()
        self.n_frames += 1

    def close(self) -> None:
        """Finish the video and give it its name. Closing again does nothing.

        Raises:
            RuntimeError: If ffmpeg fails; nothing is left of the video then.
        """
        if self._closed:
            return
        if self._process is None:
            self._closed = True
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a broken pipe shows in the exit code
            self._process.stdin.close()
        try:
            exit_code = self._process.wait()
        except BaseException:
            self.abort()
            raise
        if exit_code != 0:
            self._fail()
        self._closed = True
        self._close_messages()
        self._replacing.close()

    def abort(self) -> None:
        """Stop without a video: ends ffmpeg and removes the temporary file."""
        if self._closed:
            return
        self._closed = True
        if self._process is not None:
            self._process.kill()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._close_messages()
            with contextlib.suppress(_AbandonedError), self._replacing:
                raise _AbandonedError  # makes `replacing` remove its temporary file

    def _start(self, shape: tuple[int, ...]) -> None:
        import imageio_ffmpeg

        height, width = (size + size % 2 for size in shape[:2])
        self._shape = shape
        temporary = self._replacing.enter_context(replacing(self.path))
        command = [imageio_ffmpeg.get_ffmpeg_exe(), '-y', '-v', 'error', '-nostdin']
        command += ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{width}x{height}', '-r', f'{self._fps:g}', '-i', '-']
        command += ['-an', '-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p']
        command += ['-movflags', '+faststart', '-f', 'mp4', str(temporary)]
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process lives)
        # A session of its own: Ctrl-C is for us to handle, ffmpeg must live to finish the file.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,
        )

    def _fail(self) -> None:
        assert self._process is not None and self._messages is not None
        self._process.kill()
        self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors='replace').strip().splitlines()
        self.abort()
        raise RuntimeError(f"ffmpeg could not write '{self.path}': {lines[-1] if lines else 'it gave no reason'}")

    def _close_messages(self) -> None:
        if self._messages is not None:
            self._messages.close()


class _AbandonedError(Exception):
    pass


def write_gif(
    path: str | os.PathLike[str],
    frames: Iterable[np.ndarray],
    fps: float,
    *,
    width: int = 320,
    max_fps: float = 25,
    colours: int = 32,
) -> None:
    """Write frames to a small animated gif that loops, at their own pace.

    One palette serves all frames and nothing is dithered, so that what does not move costs nothing: a ten-second
    CartPole episode takes about 100 KB.

    Args:
        path: A .gif file; its folder must exist.
        frames: uint8 [H, W, 3] each.
        fps: Frames per second of `frames`.
        width: Wider frames are scaled down to this many pixels.
        max_fps: Frames are left out when there are more than this many a second.
        colours: Size of the palette, at most 256.

    Raises:
        ValueError: If the path is not a .gif in an existing folder, there are no frames, or one is malformed.
    """
    from PIL import Image

    path = Path(path)
    _check_target('gif', path, ('.gif',))
    _check_fps(fps)
    if not 2 <= colours <= 256:
        raise ValueError(f'colours must be from 2 to 256, got {colours}')
    stride = max(1, math.ceil(fps / max_fps))
    pictures: list[Image.Image] = []
    for index, frame in enumerate(frames):
        if index % stride == 0:
            _check_frame(frame)
            pictures.append(_shrunk(Image.fromarray(frame), width))
    if not pictures:
        raise ValueError(f"the gif '{path}' needs at least one frame, got none")
    palette = _common_palette(pictures, colours)
    indexed = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    # A gif counts in hundredths of a second; rounding each frame's end, not its length, keeps the pace.
    ends = [round(100 * stride * (index + 1) / fps) for index in range(len(indexed))]
    lengths = [10 * max(2, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    content = io.BytesIO()
    indexed[0].save(
        content, 'GIF', save_all=True, append_images=indexed[1:], duration=lengths, loop=0, optimize=True, disposal=1
    )
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())


def write_frame(path: str | os.PathLike[str], frame: np.ndarray) -> None:
    """Write one frame, uint8 [H, W, 3], to a .png or .jpg file, atomically.

    Raises:
        ValueError: If the ending is not one of them, the folder does not exist, or the frame is malformed.
    """
    from PIL import Image

    path = Path(path)
    _check_target('frame', path, tuple(FRAME_FORMATS))
    _check_frame(frame)
    content = io.BytesIO()
    # The lowest compression is several times faster and costs little on drawn pictures.
    Image.fromarray(frame).save(content, FRAME_FORMATS[path.suffix.lower()], compress_level=1, quality=90)
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())


def has_display() -> bool:
    """Whether a window can be opened here: on Linux, whether an X or Wayland display is named."""
    if sys.platform in ('darwin', 'win32'):
        return True
    return bool(os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY'))


def _shrunk(picture: Image, width: int) -> Image:
    from PIL.Image import Resampling

    if picture.width <= width:
        return picture
    return picture.resize((width, max(1, round(picture.height * width / picture.width))), Resampling.LANCZOS)


def _common_palette(pictures: list[Image], colours: int) -> Image:
    """A palette for all pictures, from up to sixteen of them, evenly spread."""
    from PIL import Image

    chosen = pictures[:: max(1, math.ceil(len(pictures) / 16))]
    column = np.concatenate([np.asarray(picture) for picture in chosen])
    return Image.fromarray(column).quantize(colours)


def _check_frame(frame: np.ndarray) -> None:
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        got = f'{frame.dtype} {frame.shape}' if isinstance(frame, np.ndarray) else type(frame).__name__
        raise ValueError(f'a frame must be a uint8 array of shape (height, width, 3), got {got}')
    if frame.size == 0:
        raise ValueError(f'a frame must have pixels, got shape {frame.shape}')


def _check_target(what: str, path: Path, endings: tuple[str, ...]) -> None:
    if path.suffix.lower() not in endings:
        raise ValueError(f"the {what} '{path}' must end in {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise ValueError(f"the {what} '{path}': the folder '{path.parent}' does not exist")


def _check_fps(fps: float) -> None:
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f'fps must be a positive number, got {fps}')
