"""A run with explorers: its collector lets other processes step the environments, as long as the run lasts."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.collecting.explorer import Explorer
from xagents.explorers.addresses import check_listening, parse_address
from xagents.explorers.cluster import Place, cluster_crew
from xagents.explorers.fleet import Fleet
from xagents.explorers.keys import make_key, read_key
from xagents.explorers.local import UNBOUNDED, local_crew
from xagents.explorers.placed import check_ray, ray_crew
from xagents.explorers.slots import Crew, Event
from xagents.explorers.versions import versions
from xagents.networks.plan import NetworkPlan
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.runs.learner import Learner
from xagents.runs.run import Run

# bytes of a message beside twice those of observations: copies of environments, mostly
ROOM = 256 * 2**20
# where explorers are when nothing is said
HERE = 'here'


def check_explorers(agent: Learner, options: RunOptions) -> None:
    """Check, before a run, that an agent's collecting can be divided among explorers.

    Raises:
        OptionError: naming `explorers`, or what goes with them, in one line.
    """
    n_explorers = options.explorers
    _check_elsewhere(options)
    _check_lag(agent, options)
    if n_explorers is None:
        return
    n_envs = agent.envs.n_envs // agent.envs.together
    if n_explorers > n_envs:
        raise OptionError('explorers', f'got {n_explorers}, admits 1 to {n_envs}, one for each environment')
    if not agent.envs.can_be_divided:
        raise OptionError(
            'explorers', f"{agent.envs.id} is one vector of environments: make them by their name, with vector='sync'"
        )
    specification(agent)


def _check_lag(agent: Learner, options: RunOptions) -> None:
    """Check that an agent may learn from what explorers have collected with older weights."""
    lag, n_explorers, n_envs = options.max_lag, options.explorers, agent.envs.n_envs // agent.envs.together
    if lag is None:
        return
    if n_explorers is None:
        raise OptionError('max_lag', f'got {lag} without --explorers, whose fragments it is about')
    if options.overlap:
        raise OptionError('max_lag', f'got {lag} beside --overlap, which collects exactly one iteration ahead')
    if agent.NO_OVERLAP:
        raise OptionError('max_lag', f'{type(agent).__name__} {agent.NO_OVERLAP}')
    if n_envs % n_explorers:
        admitted = ', '.join(str(n) for n in range(1, n_envs + 1) if not n_envs % n)
        raise OptionError(
            'max_lag', f'got {n_explorers} explorers beside it, admits {admitted} for {n_envs} environments'
        )


def specification(agent: Learner) -> dict[str, Any]:
    """Return what every explorer of an agent is told: environments, policy and network; see `explorers.work`.

    Raises:
        OptionError: where they cannot be told.
    """
    created = {name: value for name, value in agent.origin.creation.items() if name in describe(EnvironmentOptions)}
    if not isinstance(created.get('env'), str):
        raise OptionError('explorers', f'{agent.envs.id} was handed over: explorers make environments by their name')
    known = describe(EnvironmentOptions).keys() - {'n_envs', 'vector'}
    untold = [name for name in agent.origin.untold if name in known]
    if untold:
        raise OptionError('explorers', f'{", ".join(untold)} cannot be told to other processes: numbers and texts can')
    policy, network = agent.acting.record(), agent.acting.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if policy is None or plan is None or not agent.acting.alone:
        why = ', as it convolves in bfloat16 (--precision)' if agent.options.precision == 'bfloat16' else ''
        raise OptionError(
            'explorers', f'the policy of {agent.id} has no plan (docs/policy.md), by which explorers act{why}'
        )
    return {
        'environment': EnvironmentOptions.resolve(created).creation(),
        'together': agent.envs.together,
        'versions': versions(created['env']),
        'policy': policy,
        'network': plan.record(),
        'normalizes': agent.statistics.observations is not None,
    }


def _check_elsewhere(options: RunOptions) -> None:
    """Check where explorers are to come from, and that there is a key for them."""
    where = options.cluster or HERE
    if where == HERE:
        if options.cluster_key is not None and options.cluster is None:
            raise OptionError('cluster_key', f'got {options.cluster_key} without --cluster, whose key it is')
        return
    if options.explorers is None:
        raise OptionError('cluster', f'got {options.cluster} without --explorers, how many are to come')
    if is_ray(where):
        check_ray(where)
    else:
        check_listening(*parse_address('cluster', where))
    if options.cluster_key is not None:
        read_key(options.cluster_key)
    elif options.run_dir is None:
        raise OptionError('cluster', f'got {options.cluster} without a key: --cluster-key, or --run-dir to make one in')


def is_ray(cluster: str) -> bool:
    """Return whether Ray is to place explorers."""
    return cluster == 'ray' or cluster.startswith('ray://')


def _key_of(options: RunOptions) -> str:
    """Return the path of the cluster's key, which is made where none was given."""
    path = options.cluster_key or options.place('cluster.pem')
    assert path is not None
    if options.cluster_key is None:
        make_key(path)
    return path


@contextlib.contextmanager
def _crew(run: Run, events: queue.SimpleQueue[Event], largest: int) -> Iterator[Crew]:
    """Bring the explorers of a run, from where its options say."""
    options = run.options
    assert options.explorers is not None
    say = run.console.say
    where = options.cluster or HERE
    if where == HERE:
        with local_crew(options.explorers, events, largest) as local:
            yield local
    elif is_ray(where):
        with ray_crew(where, _key_of(options), options.explorers, events, largest, say) as placed:
            yield placed
    else:
        place = Place(*parse_address('cluster', where), _key_of(options))
        with cluster_crew(place, options.explorers, events, largest, say) as crew:
            yield crew


@contextlib.contextmanager
def exploring(run: Run) -> Iterator[None]:
    """Let explorers collect for a run, where it asks for some; afterwards the environments stand where theirs did."""
    n_explorers, agent = run.options.explorers, run.agent
    if n_explorers is None:
        yield
        return
    collector, n_envs = agent.collector, agent.envs.n_envs
    home = collector.explorer
    assert isinstance(home, Explorer)
    row = agent.envs.observation_space
    largest = ROOM + 2 * n_envs * (getattr(agent, 'n_steps', 1) + 1) * int(np.prod(row.shape)) * row.dtype.itemsize
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with _crew(run, events, min(largest, UNBOUNDED)) as crew:
        lag = run.options.max_lag or 0
        fleet = Fleet(specification(agent), n_envs, n_explorers, home, agent.streams, events, crew, lag)
        collector.explorer = fleet
        try:
            yield
        finally:
            try:
                fleet.hand_back()
            finally:
                fleet.dismiss()
                collector.explorer = home
