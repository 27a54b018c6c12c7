"""Who looks on while environments are stepped, as a recording does."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class StepRecorder(Protocol):
    """A recorder that receives all raw actions and results of a vector of environments."""

    def reset(self, observations: Any) -> None:
        """All environments began anew and show [N, …]."""

    def step(
        self,
        actions: Any,
        observations: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray,
    ) -> None:
        """All environments took a step, [N, …] each; those that were not valid before it only reset."""

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where it stands, as arrays by name and a record for JSON."""
