"""An agent's whole state, gathered in one place."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from xagents.envs.snapshots.write import Snapshot
from xagents.networks.targets import TargetNetwork
from xagents.pipeline.context import Context
from xagents.registry.agents import id_of
from xagents.runs import weight_files as checkpoints
from xagents.runs.overlap import InFlight, Overlap
from xagents.runs.state import State
from xagents.system.arrays import prefixed, without_prefix

if TYPE_CHECKING:
    from xagents.envs.create import Envs
    from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer
    from xagents.options.agents import AgentOptions
    from xagents.options.runs import RunOptions


class Stateful:
    """What an agent's state is made of, and how it is read and written."""

    options: AgentOptions
    run: RunOptions
    envs: Envs
    output_models: list[keras.Model]
    actor: Any
    best: State | None
    context: Context
    observations: np.ndarray | None
    creation: dict[str, Any]
    networks: list[str]
    total_rewards: deque[float]
    restarted: bool
    overlapping: Overlap | None
    in_flight: InFlight | None
    own_counters: dict[str, Any]
    own_kept: frozenset[str]
    normalize_observations: ObservationNormalizer | None
    normalize_rewards: RewardNormalizer | None
    _rngs: dict[str, np.random.Generator]

    if TYPE_CHECKING:

        def rng(self, purpose: str) -> np.random.Generator:
            """Return the generator of one purpose."""

        @property
        def collector(self) -> Self:
            """Who collects."""

    def refresh(self) -> None:
        """Let acting use the models' present weights."""
        if self.actor is not None:
            self.actor.refresh()

    def state(self) -> State:
        """Return a copy of what the agent knows: all but its environments and its replay buffer."""
        record = {
            'agent': self.id,
            'options': self.options_record(),
            'networks': self.networks,
            'counters': self.context.kept(),
            'kept_names': sorted(self.context.kept_names),
            'rewards': list(self.total_rewards),
            'rngs': {purpose: _plain(rng.bit_generator.state) for purpose, rng in [*self._rngs.items()]},
        }
        return State(
            [[v.numpy() for v in self._variables(m)] for m in self.output_models], self._parts_arrays(), record
        )

    def whole_state(self) -> State:
        """Return also where the run stands: the environments, and what was collected and not learned from yet."""
        flight = self.in_flight if self.overlapping is None else self.overlapping.in_flight()
        broken = self.overlapping is not None and flight is None  # collecting has failed midway
        state, collector = self.state(), self.collector
        state.arrays |= collector._parts_arrays()
        state.record |= {'restarted': collector.restarted, 'environments': None, 'in_flight': None}
        if flight is not None:
            arrays, state.record['in_flight'] = flight.state()
            state.arrays |= prefixed('in_flight', arrays)
        snapshot = None if broken or collector.observations is None else self.envs.snapshot()
        state.record['uncopied'] = 'collecting had failed' if broken else self.envs.uncopied
        if snapshot is not None:
            state.record['environments'] = snapshot.record
            state.arrays |= prefixed('environments', snapshot.arrays)
            state.arrays['observations'] = np.array(collector.observations)
        return state

    def load_whole_state(self, state: State, environments: bool = True) -> bool:
        """Go on exactly where `whole_state` was taken.

        Args:
            state: to take over.
            environments: whether the environments are those of then, and shall stand where they stood.

        Returns:
            Whether the environments stand where they stood; new episodes begin otherwise.

        Raises:
            ValueError: where it is of another network.
        """
        self.load_state(state)
        record, arrays = state.record, state.arrays
        self.restarted, self.observations, self.in_flight = record['restarted'], None, None
        if record['in_flight'] is not None:
            batch = without_prefix('in_flight', arrays)
            self.in_flight = InFlight.load(batch, record['in_flight'], Context)
        if record['environments'] is None or not environments:
            return False
        try:
            self.envs.restore(Snapshot(without_prefix('environments', arrays), record['environments']))
        except ValueError:  # other environments than those that were saved, or more of them
            return False
        self.observations = np.array(arrays['observations'])
        return True

    @property
    def id(self) -> str:
        """The agent's name on the command line."""
        return id_of(type(self))

    def options_record(self) -> dict[str, Any]:
        """Return every option as JSON holds it: what makes an equal agent."""
        return {**self.options.asdict(), **self.creation}

    def load_state(self, state: State) -> None:
        """Take over a whole state; the environments stand where they are.

        Raises:
            ValueError: where it is of another network.
        """
        self._assign(state.weights)
        self.load_record(state.arrays, state.record)
        self.total_rewards.clear()
        self.total_rewards.extend(state.record['rewards'])
        self.context.mean_reward = state.record['counters']['mean_reward']
        for purpose, saved in state.record['rngs'].items():
            self.rng(purpose).bit_generator.state = _arrays(saved)
        self.refresh()

    def start_targets(self, known: Mapping[str, np.ndarray] | None = None) -> None:
        """Let target networks begin as copies of what they follow, those whose parameters are `known` excepted."""
        for name, part in self.parts().items():
            if isinstance(part, TargetNetwork) and f'{name}/parameters' not in (known or {}):
                part.copy()

    def load_record(self, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        """Take over the agent's parts and the counters; the mean starts anew."""
        self._load_parts(arrays)
        self.start_targets(known=arrays)  # weights may have come alone
        fields, counters = Context.__dataclass_fields__, record.get('counters', {})
        known = {name: value for name, value in counters.items() if name in fields}
        self.context = Context(**{**known, 'mean_reward': float('nan')})
        # those of a context of the user's own, and what was kept by name: for the recipe that has them again
        self.own_counters = {name: value for name, value in counters.items() if name not in fields}
        self.own_kept = frozenset(record.get('kept_names', ()))

    def load_weights(self, paths: list[str]) -> None:
        """Read weights and optimisers, and the state beside the first one where it is there.

        Raises:
            ValueError: in one line, naming the file.
        """
        checkpoints.read_models(paths, self.output_models)
        self.load_record(*checkpoints.read_state(paths[0]))
        self.refresh()
        if math.isfinite(self.context.best_reward):
            self.best = self.state()  # nothing worse takes their place

    def write_checkpoints(self, state: State) -> None:
        """Write `--checkpoints`: a state's weights and normalisers, and the counters of the whole run."""
        assert self.run.checkpoints is not None
        with self.with_weights(state):
            record = {k: state.record[k] for k in ('agent', 'options', 'networks')}
            record['counters'] = self.context.kept()
            checkpoints.write_set(self.run.checkpoints, self.output_models, state.arrays, record)

    @contextlib.contextmanager
    def with_weights(self, state: State) -> Iterator[None]:
        """Let the models, acting and the agent's parts be those of a state for a while."""
        present = [[v.numpy() for v in self._variables(model)] for model in self.output_models], self._parts_arrays()
        try:
            self._load_parts(state.arrays)
            self._assign(state.weights)
            yield
        finally:
            self._load_parts(present[1])
            self._assign(present[0])

    def _parts_arrays(self) -> dict[str, np.ndarray]:
        parts = self.parts().items()
        return {k: np.array(v) for name, part in parts for k, v in prefixed(name, part.state()).items()}

    def _load_parts(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, part in self.parts().items():
            saved = without_prefix(name, arrays)
            if saved:
                part.load(saved)

    def _assign(self, weights: list[list[np.ndarray]]) -> None:
        for model, values in zip(self.output_models, weights, strict=True):
            for variable, value in zip(self._variables(model), values, strict=True):
                variable.assign(value)
        self.refresh()

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own, by name: objects with `state()`, arrays by name, and `load(state)`."""
        pairs = {'observation_statistics': self.normalize_observations, 'reward_statistics': self.normalize_rewards}
        return {name: part for name, part in pairs.items() if part is not None}

    @staticmethod
    def _variables(model: keras.Model) -> list[Any]:
        # what Keras calls variables has the random seeds of layers, too
        return [*model.variables, *(model.optimizer.variables if getattr(model, 'optimizer', None) else ())]


def _plain(state: Any) -> Any:
    """Return a generator's state as JSON holds it."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return {'uint64': [int(x) for x in state]} if isinstance(state, np.ndarray) else state


def _arrays(state: Any) -> Any:
    """Undo `_plain`."""
    if isinstance(state, dict) and set(state) == {'uint64'}:
        return np.array(state['uint64'], np.uint64)
    return {key: _arrays(value) for key, value in state.items()} if isinstance(state, dict) else state
