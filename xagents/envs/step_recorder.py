"""The protocol of recorders of environment steps, such as the recorder of a data set."""

from __future__ import annotations

from typing import Any, Protocol

from numpy import ndarray


class StepRecorder(Protocol):
    """A recorder that receives all raw actions and results of a vector environment."""

    def reset(self, observations: Any) -> None:
        """Record a reset of all environments, with raw observations [N, …]."""

    def step(
        self, actions: Any, observations: Any, rewards: ndarray, terminated: ndarray, truncated: ndarray, valid: ndarray
    ) -> None:
        """Record a step of all environments, [N, …] each; rows that are not `valid` were only reset."""

    def state(self) -> tuple[dict[str, ndarray], dict[str, Any]]:
        """Return the state of the recorder, as arrays by name and a dict for JSON."""
