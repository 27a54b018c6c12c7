"""The protocol of recorders of environment steps, such as the recorder of a data set."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class StepRecorder(Protocol):
    """A recorder that receives all raw actions and results of a vector environment."""

    def reset(self, observations: Any) -> None:
        """Record a reset of all environments, with raw observations [N, …]."""

    def step(
        self,
        actions: Any,
        observations: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray,
    ) -> None:
        """Record a step of all environments, [N, …] each; rows that are not `valid` were only reset."""

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of the recorder, as arrays by name and a dict for JSON."""
