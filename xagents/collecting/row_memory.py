"""The memory of rows that a policy acts for, from one call to the next. Does not load TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import MEMORY


class RowMemory:
    """The memory of a policy for the rows of consecutive calls; a policy without memory needs none.

    Attributes:
        state: the memory [N, M] after the last call; None at the beginning of episodes.
    """

    def __init__(self) -> None:
        self.state: Any = None

    @contextlib.contextmanager
    def replaced(self, policy: Policy, state: Any, starts: Any) -> Iterator[Self]:
        """Use another memory within the block.

        Args:
            policy: the policy; `state` of one without memory stays unchanged.
            state: the memory [N, M]; None at the beginning of episodes.
            starts: bool [N], rows that begin an episode, whose memory is forgotten; None for none.

        Raises:
            ValueError: if `starts` has not one value for each row of `state`.
        """
        own, self.state = self.state, state
        try:
            if policy.memory_units and state is not None:
                self.state = np.array(state, np.float32)
                if starts is not None:
                    begins = np.asarray(starts, bool)
                    if begins.shape != self.state.shape[:1]:
                        expected = f'expected one for each of the {len(self.state)} rows of the state'
                        raise ValueError(f'episode_start: got {begins.size} values, {expected}')
                    self.reset(begins)
            yield self
        finally:
            self.state = own

    def act(self, policy: Policy, observations: np.ndarray, noise: np.ndarray | None) -> Mapping[str, np.ndarray]:
        """Return the columns of a policy for prepared observations [N, *D], and store the memory after the step.

        Raises:
            ValueError: if the policy has memory, and N is not that of the calls since the last reset.
        """
        if not policy.memory_units:
            return policy(observations, noise)
        n, units, state = len(observations), policy.memory_units, self.state
        state = np.zeros((n, units), np.float32) if state is None else state
        if state.shape != (n, units):
            if state.shape[1:] != (units,):
                raise ValueError(f'state: got memory of shape {list(state.shape)}, expected {[n, units]}')
            raise ValueError(
                f'observations: got {n} rows, expected the {len(state)} rows of the calls since the last reset'
            )
        columns = policy(observations, noise, memory=state)
        self.state = np.array(columns[MEMORY])
        return columns

    def reset(self, rows: Any = None) -> None:
        """Forget the memory of all rows, or of some: indices, or bool [N]."""
        if rows is None:
            self.state = None
        elif self.state is not None:
            self.state[rows] = 0
