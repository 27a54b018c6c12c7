"""`xagents explore`: processes here collect for a training elsewhere. Loads no TensorFlow."""

from __future__ import annotations

import os
from types import FrameType

from xagents.explorers.keys import read_key
from xagents.explorers.machine import LostError, explore_here
from xagents.explorers.slots import ExplorerError
from xagents.options.commands import ExploreOptions
from xagents.options.errors import Given, InputError
from xagents.system.interruption import exit_after, handled_by


def explore(paths: list[str], given: Given, line: str) -> str:
    """Explore until the training ends; returns the line that says so."""
    options = ExploreOptions.resolve(given)
    assert options.cluster_key is not None
    n_explorers = options.explorers or os.cpu_count() or 1
    print(f'{n_explorers} explorers for {paths[0]}; Ctrl-C ends them', flush=True)
    try:
        with handled_by(_end):
            explore_here(paths[0], n_explorers, read_key(options.cluster_key).explorers_pass, options.wait)
    except (LostError, ExplorerError) as error:
        raise InputError(str(error)) from None
    return 'The training let them go'


def _end(number: int, frame: FrameType | None) -> None:
    exit_after(number)
