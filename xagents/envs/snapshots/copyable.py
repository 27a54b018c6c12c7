"""Environments whose state can be copied and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from xagents.envs.snapshots.read import MissingStateError, restore_snapshot
from xagents.envs.snapshots.write import Snapshot, SnapshotError, take_snapshot


class Copyable(Protocol):
    """Environments with a state that can be copied and restored.

    Attributes:
        n_envs: N, the number of rows: environments times agents per environment.
        agents_per_env: the number of agents in an environment.
        can_snapshot_each: whether each environment can be copied individually.
        snapshot_problem: the reason why the last copy failed; '' if it succeeded.
    """

    n_envs: int
    agents_per_env: int
    can_snapshot_each: bool
    snapshot_problem: str = ''

    @property
    def n_whole_envs(self) -> int:
        """The number of environments, each of which has `agents_per_env` rows."""
        return self.n_envs // self.agents_per_env

    def _take(self, states: Iterable[Any]) -> list[Snapshot] | None:
        """Return copies of states, or None if one of them cannot be copied."""
        self.snapshot_problem = ''
        try:
            return [take_snapshot(state) for state in states]
        except SnapshotError as reason:
            self.snapshot_problem = str(reason)
        return None

    def _assign(self, states: Callable[[], list[Any]], copies: Sequence[Snapshot]) -> list[Any]:
        """Restore copies into the present states, and return the restored states."""
        try:
            return list(map(restore_snapshot, states(), copies))
        except MissingStateError:
            # Some environments create parts of their state only at a reset.
            self.reset(0)
            return list(map(restore_snapshot, states(), copies))

    def snapshot(self) -> Snapshot | None:
        """Return an exact copy of the environments' state, including random generators and unfinished episodes.

        Returns:
            the copy, or None if a part of the state cannot be copied; `snapshot_problem` then contains the reason.
        """
        copies = self._take([self.state()])
        if copies is None:
            return None
        copies[0].record['kind'] = self.compatibility_key()
        return copies[0]

    def snapshot_each(self) -> list[Snapshot] | None:
        """Return a copy of each environment; any of the copies can be restored individually.

        Returns:
            the copies, or None if an environment cannot be copied or the environments do not run in a plain loop;
            `snapshot_problem` then contains the reason.
        """
        if not self.can_snapshot_each:
            self.snapshot_problem = 'the environments cannot be copied one by one'
            return None
        return self._take(map(self._state_of, range(self.n_whole_envs)))

    def restore_each(self, copies: Sequence[Snapshot]) -> None:
        """Restore copies of single environments of the same kind, one for each environment.

        Raises:
            ValueError: as for `restore`.
        """
        for i, state in enumerate(self._assign(lambda: list(map(self._state_of, range(len(copies)))), copies)):
            self.load_counters_of(i, state)
            self._base_vector.ended[i] = state['ended']

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of environments of the same kind; later steps equal those after the snapshot.

        The environments' arguments are part of their state; a time limit is restored, too.

        Raises:
            ValueError: if the snapshot is damaged or of other environments, in one line. The environments may have been
                reset by then: reset them before the next step.
        """
        kind, own = snapshot.record.get('kind'), self.compatibility_key()
        if kind != own:
            raise ValueError(f'snapshot: got {_describe(kind)}, expected {_describe(own)}')
        (state,) = self._assign(lambda: [self.state()], [snapshot])
        self.load_counters(state)

    def _state_of(self, i: int) -> dict[str, Any]:
        """Return the state of environment `i` of a loop, with the state of its agents as lists."""
        inner = self._base_vector
        return {'env': inner.envs[i], 'ended': bool(inner.ended[i]), **self.counters_of(i)}

    @property
    def _base_vector(self) -> Any:
        """The vector of whole environments."""

    def load_counters(self, state: Mapping[str, Any]) -> None:
        """Restore the counters of a restored state."""

    def counters_of(self, i: int) -> dict[str, Any]:
        """Return the counters of the agents of environment `i`."""

    def load_counters_of(self, i: int, state: Mapping[str, Any]) -> None:
        """Restore the counters of the agents of environment `i`, and forget ended episodes."""

    def state(self) -> dict[str, Any]:
        """Return the state that changes."""

    def compatibility_key(self) -> list[Any]:
        """Return the properties that must be equal in environments that exchange snapshots."""

    def reset(self, seed: int | None = None) -> Any:
        """Reset all environments."""

    def close(self) -> None:
        """Close the environments."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _describe(kind: Any) -> str:
    """Return a snapshot's description of its environments, on one line."""
    if isinstance(kind, list) and kind and all(isinstance(part, list) and len(part) == 3 for part in kind):
        return '; '.join(f'policy {policy} of {", ".join(agents)}: {_describe(key)}' for policy, agents, key in kind)
    if not (isinstance(kind, list) and len(kind) == 4):
        return 'a snapshot of something else'
    name, n_envs, observation, action = (' '.join(str(part).split()) for part in kind)
    return f'{n_envs} x {name} with observations {observation} and actions {action}'
