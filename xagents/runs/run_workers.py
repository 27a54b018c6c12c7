"""Explorers of a run: other processes step the environments of its collector while the run lasts."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.checkpoints.protocols import LearningAgent
from xagents.collecting.env_stepper import LocalEnvStepper
from xagents.explorers.assignments import Event
from xagents.explorers.launchers import check_cluster, open_launcher
from xagents.explorers.local_launcher import MAX_LOCAL_MESSAGE_BYTES
from xagents.explorers.versions import versions
from xagents.explorers.worker_pool import WorkerPool
from xagents.networks.plan import NetworkPlan
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError, requires
from xagents.options.runs import RunOptions
from xagents.runs.run import Run

# bytes of a message besides twice the observations: mostly snapshots of environments
MESSAGE_HEADROOM_BYTES = 256 * 2**20


def check_explorers(agent: LearningAgent, options: RunOptions) -> None:
    """Check before a run that explorers can collect for an agent.

    Raises:
        OptionError: if an option about explorers does not fit the agent, the environments or another option.
    """
    n_explorers = options.explorers
    check_cluster(options)
    _check_lag(agent, options)
    if n_explorers is None:
        return
    envs = agent.envs
    n_envs = envs.n_envs // envs.agents_per_env
    if n_explorers > n_envs:
        raise OptionError('explorers', f'got {n_explorers}, expected at most the {n_envs} of --n-envs')
    if not envs.can_snapshot_each:
        expected = "expected an environment's name, with vector='sync'"
        raise OptionError('explorers', f'{envs.id} is one vector of environments, {expected}')
    worker_spec(agent)


def _check_lag(agent: LearningAgent, options: RunOptions) -> None:
    """Check that an agent can learn from rollouts that explorers have collected with older weights."""
    lag, n_explorers, n_envs = options.max_lag, options.explorers, agent.envs.n_envs // agent.envs.agents_per_env
    if lag is None:
        return
    if n_explorers is None:
        raise requires('max_lag', lag, '--explorers')
    if options.overlap:
        raise OptionError('max_lag', f'got {lag} with --overlap, expected one of the two')
    if reason := agent.traits.no_overlap_reason:
        raise OptionError('max_lag', f'{type(agent).__name__} {reason}')
    if n_envs % n_explorers:
        admitted = ', '.join(str(n) for n in range(1, n_envs + 1) if not n_envs % n)
        raise OptionError('max_lag', f'got {n_explorers} explorers, expected {admitted} for {n_envs} environments')


def worker_spec(agent: LearningAgent) -> dict[str, Any]:
    """Return the specification that every explorer receives: environments, policy and network.

    Raises:
        OptionError: if the environments, an option or the policy cannot be sent to another process.
    """
    known = declared_options(EnvironmentOptions)
    created = {name: value for name, value in agent.origin.creation.items() if name in known}
    if not isinstance(created.get('env'), str):
        raise OptionError('explorers', f'{agent.envs.id} is an object, expected the name of an environment')
    sent = known.keys() - {'n_envs', 'vector'}
    if unsendable := ', '.join(name for name in agent.origin.unserialisable if name in sent):
        raise OptionError('explorers', f'{unsendable} cannot be sent to other processes, expected numbers and texts')
    policy, network = agent.acting_policy.to_dict(), agent.acting_policy.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if policy is None or plan is None or not agent.acting_policy.self_contained:
        why = ', as it convolves in bfloat16 (--precision)' if agent.options.precision == 'bfloat16' else ''
        problem = f'the policy of {agent.id} has no plan (docs/policy.md), by which explorers act{why}'
        raise OptionError('explorers', problem)
    return {
        'environment': EnvironmentOptions.resolve(created).create_envs_kwargs(),
        'together': agent.envs.agents_per_env,
        'versions': versions(created['env']),
        'policy': policy,
        'network': plan.to_dict(),
        'normalizes': agent.statistics.observations is not None,
    }


@contextlib.contextmanager
def collect_with_explorers(run: Run) -> Iterator[None]:
    """Let explorers collect for a run if `--explorers` is set. Copy the state of their environments back at the end."""
    n_explorers, agent = run.options.explorers, run.agent
    if n_explorers is None:
        yield
        return
    collector, n_envs = agent.collector, agent.envs.n_envs
    local_stepper = collector.stepper
    assert isinstance(local_stepper, LocalEnvStepper)
    row, n_steps = agent.envs.observation_space, getattr(agent, 'n_steps', 1)
    rollout_bytes = n_envs * (n_steps + 1) * int(np.prod(row.shape)) * row.dtype.itemsize
    largest = min(MESSAGE_HEADROOM_BYTES + 2 * rollout_bytes, MAX_LOCAL_MESSAGE_BYTES)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with open_launcher(run.options, events, largest, run.console.print_line) as launcher:
        lag = run.options.max_lag or 0
        pool = WorkerPool(worker_spec(agent), n_envs, n_explorers, local_stepper, agent.streams, events, launcher, lag)
        collector.stepper = pool
        try:
            yield
        finally:
            try:
                pool.restore_local_envs()
            finally:
                pool.release_workers()
                collector.stepper = local_stepper
