"""The choice of a launcher: workers on this machine, on a Ray cluster, or on machines that connect to an address."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from xagents.explorers.addresses import check_listening, parse_address
from xagents.explorers.assignments import Event, Launcher
from xagents.explorers.cluster_launcher import ClusterEndpoint, cluster_launcher
from xagents.explorers.keys import make_key, read_key
from xagents.explorers.local_launcher import local_launcher
from xagents.explorers.ray_launcher import ray_launcher
from xagents.options.errors import requires
from xagents.options.runs import RunOptions, is_elsewhere
from xagents.processes.launch import check_ray, is_ray


def check_cluster(options: RunOptions) -> None:
    """Check the address of the cluster, and that it has a key.

    Raises:
        OptionError: if the address cannot be used, or there is no key.
    """
    if not is_elsewhere(options):
        return
    cluster = str(options.cluster)
    if is_ray(cluster):
        check_ray(cluster)
    else:
        check_listening(*parse_address('cluster', cluster))
    if options.cluster_key is not None:
        read_key(options.cluster_key)
    elif options.run_dir is None:
        raise requires('cluster', options.cluster, '--cluster-key or --run-dir')


def open_launcher(
    options: RunOptions, events: queue.SimpleQueue[Event], largest: int, say: Callable[[str], Any]
) -> AbstractContextManager[Launcher]:
    """Return the launcher of a run's explorers for a `with` block. Create the cluster's key if none was given.

    Args:
        options: options of a run with explorers.
        events: queue of the events that the launcher reports.
        largest: size of the largest message in bytes.
        say: function that prints a line.
    """
    n_explorers, cluster = options.explorers, str(options.cluster)
    assert n_explorers is not None
    if not is_elsewhere(options):
        return local_launcher(n_explorers, events, largest)
    path = options.cluster_key or options.path_in_run_dir('cluster.pem')
    assert path is not None  # `check_cluster` has checked this
    if options.cluster_key is None:
        make_key(path)
    if is_ray(cluster):
        return ray_launcher(cluster, path, n_explorers, events, largest, say)
    return cluster_launcher(
        ClusterEndpoint(*parse_address('cluster', cluster), path), n_explorers, events, largest, say
    )
