"""Writes small gifs of episodes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH = 320  # wider frames are scaled down
MAX_FPS = 25  # frames above this rate are dropped
COLOURS = 32


def write_gif(path: Path, frames: list[np.ndarray], fps: float, width: int = WIDTH, colours: int = COLOURS) -> None:
    """Write frames to a small looping gif that plays at the speed of the episode.

    All frames share one palette, without dithering. Parts of the picture that do not move then compress to almost
    nothing: a ten-second CartPole episode takes about 100 KB.

    Args:
        path: file of the gif.
        frames: arrays uint8 [H, W, 3].
        fps: frames per second of the episode.
        width: largest width; wider frames are scaled down.
        colours: size of the palette.
    """
    stride = stride_of(fps)
    pictures = [shrunk(Image.fromarray(frame), width) for frame in frames[::stride]]
    chosen = pictures[:: math.ceil(len(pictures) / 16)]
    palette = Image.fromarray(np.concatenate([np.asarray(picture) for picture in chosen])).quantize(colours)
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    # Gifs count in hundredths of a second. Rounding each frame's end instead of its length keeps the speed.
    ends = [round(100 * stride * (index + 1) / fps) for index in range(len(pictures))]
    lengths = [10 * max(2, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    first.save(path, save_all=True, append_images=others, duration=lengths, loop=0, optimize=True, disposal=1)


def stride_of(fps: float) -> int:
    """Return n, if one of n frames is kept."""
    return max(1, math.ceil(fps / MAX_FPS))


def shrunk(picture: Image.Image, width: int = WIDTH) -> Image.Image:
    """Return a picture scaled down to at most `width`."""
    if picture.width <= width:
        return picture
    return picture.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS)
