"""A window that shows the rendered frames of an environment."""

from __future__ import annotations

from typing import Any

import numpy as np


class Window:
    """A window that shows frames, uint8 [H, W, 3], at most `fps` per second."""

    def __init__(self, title: str, fps: float):
        import pygame

        self._pygame = pygame
        pygame.display.init()
        self._title, self._fps = title, fps
        self._screen: Any = None
        self._clock = pygame.time.Clock()

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pygame.display.quit()

    def show(self, frame: np.ndarray) -> None:
        """Show a frame; raise KeyboardInterrupt if the user closed the window."""
        pygame = self._pygame
        if self._screen is None:
            self._screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            pygame.display.set_caption(self._title)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise KeyboardInterrupt
        self._screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._fps)
