"""Small gifs of episodes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH = 320  # wider frames are scaled down
MAX_FPS = 25  # frames are left out where there are more
COLOURS = 32


def write_gif(path: Path, frames: list[np.ndarray], fps: float, width: int = WIDTH, colours: int = COLOURS) -> None:
    """Write frames, uint8 [H, W, 3] each and at most so wide, to a small gif that loops, at their own pace.

    One palette serves all frames and nothing is dithered, so that what does not move costs nothing: a ten-second
    CartPole episode takes about 100 KB.
    """
    stride = stride_of(fps)
    pictures = [shrunk(Image.fromarray(frame), width) for frame in frames[::stride]]
    chosen = pictures[:: math.ceil(len(pictures) / 16)]
    palette = Image.fromarray(np.concatenate([np.asarray(picture) for picture in chosen])).quantize(colours)
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    # A gif counts in hundredths of a second; rounding each frame's end, not its length, keeps the pace.
    ends = [round(100 * stride * (index + 1) / fps) for index in range(len(pictures))]
    lengths = [10 * max(2, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    first.save(path, save_all=True, append_images=others, duration=lengths, loop=0, optimize=True, disposal=1)


def stride_of(fps: float) -> int:
    """Return of how many frames one is kept."""
    return max(1, math.ceil(fps / MAX_FPS))


def shrunk(picture: Image.Image, width: int = WIDTH) -> Image.Image:
    """Return a picture that is not wider than `width`."""
    if picture.width <= width:
        return picture
    return picture.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS)
