"""Explorers of a run: other processes step the environments of its collector while the run lasts."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.checkpoints.protocols import LearningAgent
from xagents.collecting.env_stepper import LocalEnvStepper
from xagents.envs.env_factory import EnvFactory
from xagents.explorers.assignments import Event
from xagents.explorers.launchers import check_cluster, open_launcher
from xagents.explorers.local_launcher import MAX_LOCAL_MESSAGE_BYTES
from xagents.explorers.versions import versions
from xagents.explorers.worker_pool import WorkerPool
from xagents.networks.plan import NetworkPlan
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.runs.run import Run

# bytes of a message besides twice the observations: mostly snapshots of environments
MESSAGE_HEADROOM_BYTES = 256 * 2**20


def check_explorers(agent: LearningAgent, options: RunOptions) -> None:
    """Check before a run that explorers can collect for an agent.

    Raises:
        OptionError: if an option about explorers does not fit the agent, the environments or another option.
    """
    check_cluster(options)
    if options.explorers is not None:
        worker_spec(agent)


def worker_spec(agent: LearningAgent) -> dict[str, Any]:
    """Return the specification that every explorer receives: environments, policy and network.

    Raises:
        OptionError: if the environments, an option or the policy cannot be sent to another process.
    """
    factory = agent.envs.factory
    if not (isinstance(factory, EnvFactory) and isinstance(factory.env, str)):
        raise OptionError('explorers', f'{agent.envs.id} is an object, expected the name of an environment')
    try:
        environment = dataclasses.replace(factory, vector='sync', render_mode=None).to_dict()
    except ValueError as error:
        raise OptionError('explorers', str(error)) from error
    return {
        'environment': environment,
        'policy_mapping': agent.envs.policy_mapping,
        'infos': list(agent.envs.infos.names),
        'versions': versions(factory.env),
        'policies': {name: _policy_spec(member) for name, member in agent.members.items()},
    }


def _policy_spec(agent: Any) -> dict[str, Any]:
    """Return the specification of one policy: how it acts, its network, and its number of rows in an environment."""
    policy, network = agent.acting_policy.to_dict(), agent.acting_policy.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if policy is None or plan is None or not agent.acting_policy.self_contained:
        why = ', as it convolves in bfloat16 (--precision)' if agent.options.precision == 'bfloat16' else ''
        problem = f'the policy of {agent.id} has no plan (docs/policy.md), by which explorers act{why}'
        raise OptionError('explorers', problem)
    return {
        'policy': policy,
        'network': plan.to_dict(),
        'normalizes': agent.statistics.observations is not None,
        'agents_per_env': agent.envs.agents_per_env,
    }


@contextlib.contextmanager
def collect_with_explorers(run: Run) -> Iterator[None]:
    """Let explorers collect for a run if `--explorers` is set. Copy the state of their environments back at the end."""
    n_explorers, agent = run.options.explorers, run.agent
    if n_explorers is None:
        yield
        return
    collector, envs = agent.collector, agent.envs
    local_stepper = collector.stepper
    assert isinstance(local_stepper, LocalEnvStepper)
    spaces = [(group.n_envs, group.observation_space) for group in envs.groups.values()]
    row_bytes = sum(n * int(np.prod(space.shape)) * space.dtype.itemsize for n, space in spaces)
    rollout_bytes = (getattr(agent, 'n_steps', 1) + 1) * row_bytes
    largest = min(MESSAGE_HEADROOM_BYTES + 2 * rollout_bytes, MAX_LOCAL_MESSAGE_BYTES)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with open_launcher(run.options, events, largest, run.console.print_line) as launcher:
        lag = run.options.max_lag or 0
        n_envs, streams = envs.n_whole_envs, {n: m.streams for n, m in agent.members.items()}
        pool = WorkerPool(worker_spec(agent), n_envs, n_explorers, local_stepper, streams, events, launcher, lag)
        collector.stepper = pool
        try:
            yield
        finally:
            try:
                pool.restore_local_envs()
            finally:
                pool.release_workers()
                collector.stepper = local_stepper
