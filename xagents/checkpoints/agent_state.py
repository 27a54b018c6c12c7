"""The state of an agent and its run: how it is captured, and how it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xagents.checkpoints.in_flight import InFlightIteration, PendingEvaluation
from xagents.checkpoints.protocols import LearningAgent, options_dict
from xagents.checkpoints.state_files import AgentState
from xagents.collecting.collector import Collector
from xagents.collecting.policy_files import PolicyData
from xagents.collecting.trained_policy import EnvSpaces, policy_data
from xagents.system.arrays import add_prefix, strip_prefix


def capture_state(agent: LearningAgent, counters: Mapping[str, Any] | None = None) -> AgentState:
    """Return a copy of the state of an agent, without its environments and its replay buffer.

    `counters` are those of the present iteration; the default is those of the last iteration.
    """
    about = {'agent': agent.id, 'options': options_dict(agent), 'networks': agent.origin.networks}
    record = {**about, **agent.progress.to_dict(counters), 'rngs': agent.streams.state()}
    return AgentState(_copy_weights(agent), _copy_parts(agent), record, capture_policy(agent))


def capture_policy(agent: LearningAgent) -> PolicyData | None:
    """Return the policy with an agent's present weights as data; None if the policy has no plan."""
    if not agent.acting_policy.self_contained:
        return None
    agent.refresh()
    env_spaces = EnvSpaces.of(agent.envs)
    return policy_data(agent.id, agent.acting_policy, agent.statistics, env_spaces)


def capture_run_state(agent: LearningAgent, collector: Collector, in_flight: InFlightIteration | None) -> AgentState:
    """Return the agent state with the state of its collector, the iteration in flight and pending evaluations."""
    state = capture_state(agent)
    arrays, record = collector.state()
    state.arrays |= arrays
    state.record |= {**record, 'in_flight': None}
    if in_flight is not None:
        arrays, state.record['in_flight'] = in_flight.state()
        state.arrays |= add_prefix('in_flight', arrays)
    for i, evaluation in enumerate(agent.progress.evaluations):
        arrays, record = evaluation.to_state()
        state.record.setdefault('evaluations', []).append(record)
        state.arrays |= add_prefix(f'evaluations/{i}', arrays)
    return state


def init_target_networks(agent: LearningAgent, loaded_names: Iterable[str] = ()) -> None:
    """Initialise target networks as copies, except those whose parameters are in `loaded_names`."""
    for name, part in agent.parts().items():
        if hasattr(part, 'soft_update') and f'{name}/parameters' not in loaded_names:
            part.copy()


def load_parts(agent: LearningAgent, arrays: Mapping[str, np.ndarray]) -> None:
    """Load the parts of an agent from arrays; target networks without arrays start as copies."""
    for name, part in agent.parts().items():
        if isinstance(part, np.ndarray):
            part[...] = arrays.get(name, part)
        elif saved := strip_prefix(name, arrays):
            part.load(saved)
    init_target_networks(agent, arrays)  # a weight file may contain no target networks


def load_state(agent: LearningAgent, state: AgentState) -> None:
    """Load a state; the environments do not change.

    Raises:
        ValueError: if the state belongs to another network.
    """
    _assign_weights(agent, state.weights)
    load_parts(agent, state.arrays)
    agent.progress.load(state.record)
    agent.streams.load(state.record['rngs'])
    agent.refresh()


def load_run_state(agent: LearningAgent, state: AgentState, environments: bool = True) -> bool:
    """Load a state of `capture_run_state`; for `environments` and the result see `Collector.load`.

    Raises:
        ValueError: if the state belongs to another network.
    """
    load_state(agent, state)
    arrays, record = state.arrays, state.record
    if record['in_flight'] is not None:
        agent.progress.in_flight = InFlightIteration.load(strip_prefix('in_flight', arrays), record['in_flight'])
    agent.progress.evaluations = []
    for i, entry in enumerate(record.get('evaluations', ())):
        agent.progress.evaluations.append(PendingEvaluation.load(strip_prefix(f'evaluations/{i}', arrays), entry))
    return agent.collector.load(arrays, record, environments)


@contextlib.contextmanager
def temporary_weights(agent: LearningAgent, state: AgentState) -> Iterator[None]:
    """Use the models and parts of a state within the context, except for exploration.

    With overlap, a thread explores at the same time.
    """
    present, exploring = AgentState(_copy_weights(agent), _copy_parts(agent)), agent.acting_policy.parts()

    def take(state: AgentState) -> None:
        _assign_weights(agent, state.weights)
        load_parts(agent, {name: x for name, x in state.arrays.items() if name.partition('/')[0] not in exploring})
        agent.refresh()

    try:
        take(state)
        yield
    finally:
        take(present)


def model_variables(model: Any) -> list[Any]:
    """Return the variables of a model and of its optimizer, if it has one."""
    # `model.variables` also contains the random seeds of layers
    return [*model.variables, *(model.optimizer.variables if getattr(model, 'optimizer', None) else ())]


def _copy_weights(agent: LearningAgent) -> list[list[np.ndarray]]:
    return [[v.numpy() for v in model_variables(model)] for model in agent.output_models]


def _copy_parts(agent: LearningAgent) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, part in agent.parts().items():
        arrays |= {name: part} if isinstance(part, np.ndarray) else add_prefix(name, part.state())
    return {name: np.array(array) for name, array in arrays.items()}


def _assign_weights(agent: LearningAgent, weights: list[list[np.ndarray]]) -> None:
    for model, values in zip(agent.output_models, weights, strict=True):
        for variable, value in zip(model_variables(model), values, strict=True):
            variable.assign(value)
