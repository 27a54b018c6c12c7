"""The state of an agent and its run: how it is gathered, and how it is taken over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xagents.collecting.collector import Collector
from xagents.collecting.policy_files import PolicyData
from xagents.collecting.trained import Spaces, data_of
from xagents.runs.asked import Asked
from xagents.runs.checkpoints import State
from xagents.runs.learner import Learner, options_record
from xagents.runs.pending import Pending
from xagents.system.arrays import prefixed, without_prefix


def state_of(agent: Learner, counters: Mapping[str, Any] | None = None) -> State:
    """Return a copy of what an agent knows: all but its environments and its replay buffer.

    Counters are those of the present iteration; those of the last one when not given.
    """
    record = {
        'agent': agent.id,
        'options': options_record(agent),
        'networks': agent.origin.networks,
        **agent.progress.record(counters),
        'rngs': agent.streams.state(),
    }
    return State(_weights(agent), _parts(agent), record, policy_of(agent))


def policy_of(agent: Learner) -> PolicyData | None:
    """Return the policy by an agent's present weights as data; None where it has no plan."""
    if not agent.acting.alone:
        return None
    agent.refresh()
    shown = Spaces(agent.envs.encoder.raw_space, agent.envs.action_space)
    return data_of(agent.id, agent.acting, agent.statistics, shown)


def whole_state(agent: Learner, collector: Collector, pending: Pending | None) -> State:
    """Return also where the run stands: who collects for it now, and what was not learned from, or told, yet."""
    state = state_of(agent)
    arrays, record = collector.state()
    state.arrays |= arrays
    state.record |= {**record, 'in_flight': None}
    if pending is not None:
        arrays, state.record['in_flight'] = pending.state()
        state.arrays |= prefixed('in_flight', arrays)
    if agent.progress.evaluations:
        state.record['evaluations'] = []
    for i, asked in enumerate(agent.progress.evaluations):
        arrays, record = asked.whole()
        state.record['evaluations'].append(record)
        state.arrays |= prefixed(f'evaluations/{i}', arrays)
    return state


def start_targets(agent: Learner, known: Iterable[str] = ()) -> None:
    """Let what follows a network begin as its copy, but for that whose parameters are among those `known`."""
    for name, part in agent.parts().items():
        if hasattr(part, 'follow') and f'{name}/parameters' not in known:
            part.copy()


def load_parts(agent: Learner, arrays: Mapping[str, np.ndarray]) -> None:
    """Let the parts of an agent be those of a state; target networks that it lacks begin as copies."""
    for name, part in agent.parts().items():
        if isinstance(part, np.ndarray):
            part[...] = arrays.get(name, part)
        elif saved := without_prefix(name, arrays):
            part.load(saved)
    start_targets(agent, arrays)  # weights may have come alone


def load_state(agent: Learner, state: State) -> None:
    """Take over a state; the environments stand where they are.

    Raises:
        ValueError: where it is of another network.
    """
    _assign(agent, state.weights)
    load_parts(agent, state.arrays)
    agent.progress.load(state.record)
    agent.streams.load(state.record['rngs'])
    agent.refresh()


def load_whole_state(agent: Learner, state: State, environments: bool = True) -> bool:
    """Go on exactly where `whole_state` was taken; for `environments` and the result see `Collector.load`.

    Raises:
        ValueError: where it is of another network.
    """
    load_state(agent, state)
    arrays, record = state.arrays, state.record
    if record['in_flight'] is not None:
        agent.progress.pending = Pending.load(without_prefix('in_flight', arrays), record['in_flight'])
    asked = enumerate(record.get('evaluations', ()))
    agent.progress.evaluations = [Asked.load(without_prefix(f'evaluations/{i}', arrays), told) for i, told in asked]
    return agent.collector.load(arrays, record, environments)


@contextlib.contextmanager
def with_weights(agent: Learner, state: State) -> Iterator[None]:
    """Let an agent's models and parts be those of a state for a while, but not its exploration.

    Under overlap a thread explores meanwhile.
    """
    present, exploring = State(_weights(agent), _parts(agent)), agent.acting.parts()

    def take(held: State) -> None:
        _assign(agent, held.weights)
        load_parts(agent, {name: x for name, x in held.arrays.items() if name.partition('/')[0] not in exploring})
        agent.refresh()

    try:
        take(state)
        yield
    finally:
        take(present)


def variables_of(model: Any) -> list[Any]:
    """Return the variables of a model and of its optimizer, if it has one."""
    # what Keras calls variables has the random seeds of layers, too
    return [*model.variables, *(model.optimizer.variables if getattr(model, 'optimizer', None) else ())]


def _weights(agent: Learner) -> list[list[np.ndarray]]:
    return [[v.numpy() for v in variables_of(model)] for model in agent.output_models]


def _parts(agent: Learner) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, part in agent.parts().items():
        arrays |= {name: part} if isinstance(part, np.ndarray) else prefixed(name, part.state())
    return {name: np.array(array) for name, array in arrays.items()}


def _assign(agent: Learner, weights: list[list[np.ndarray]]) -> None:
    for model, values in zip(agent.output_models, weights, strict=True):
        for variable, value in zip(variables_of(model), values, strict=True):
            variable.assign(value)
