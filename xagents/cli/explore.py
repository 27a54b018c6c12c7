"""`xagents explore`: local processes collect for a training run on another machine. TensorFlow is not loaded."""

from __future__ import annotations

import os
from types import FrameType

from xagents.explorers.assignments import ExplorerError
from xagents.explorers.keys import read_key
from xagents.explorers.relay import LearnerLostError, run_explorers
from xagents.options.commands import ExploreOptions
from xagents.options.errors import GivenOptions, InputError
from xagents.system.interruption import exit_by_signal, handle_signals


def explore(paths: list[str], given: GivenOptions, line: str) -> str:
    """Run explorers until the training run ends, and return the closing line."""
    options = ExploreOptions.resolve(given)
    assert options.cluster_key is not None
    n_explorers = options.explorers or os.cpu_count() or 1
    print(f'{n_explorers} explorers for {paths[0]}; Ctrl-C ends them', flush=True)
    try:
        with handle_signals(_end):
            run_explorers(paths[0], n_explorers, read_key(options.cluster_key).explorer_credentials, options.wait)
    except (LearnerLostError, ExplorerError) as error:
        raise InputError(str(error)) from None
    return 'The training has released its explorers'


def _end(number: int, frame: FrameType | None) -> None:
    exit_by_signal(number)
