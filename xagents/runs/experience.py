"""Experience of a run that is a data set, or becomes one: learned from, filled in before the first step, kept."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from xagents.datasets import names
from xagents.datasets.environments import check_fits
from xagents.datasets.minari import minari_module
from xagents.datasets.reading import Dataset, open_dataset
from xagents.datasets.recorder import Recorder
from xagents.datasets.writing import check_keys
from xagents.logs.console import number
from xagents.options.errors import OptionError
from xagents.options.runs import NO_DATASET, RunOptions
from xagents.registry.agents import OURS
from xagents.runs.learner import Drawer, Learner
from xagents.runs.recording import version_of, writer_of
from xagents.runs.run import Run
from xagents.system.memory import check_memory

# updates between two evaluations, where nothing else is said and the run is not shorter: no episode tells how it goes
EVAL_FREQUENCY = 5000


def settled(agent: Learner, options: RunOptions) -> RunOptions:
    """Return the options of a run, which evaluates where a data set is learned from and an environment can be made."""
    if options.dataset is None or options.eval_frequency is not None or not agent.envs.can_be_made_again:
        return options
    options = copy.copy(options)
    options.eval_frequency = min(EVAL_FREQUENCY, options.max_steps or EVAL_FREQUENCY)
    return options


def check_experience(run: Run) -> None:
    """Check, before anything is read or written, what a run wants of data sets.

    Raises:
        OptionError: naming the option, in one line.
    """
    agent, options = run.agent, run.options
    admitted = agent.options.datasets
    if options.dataset is None and admitted == 'only':
        raise OptionError('dataset', NO_DATASET.format(agent.id))
    if options.dataset is not None and admitted == 'never':
        raise OptionError(
            'dataset',
            f'got {options.dataset}, but {agent.id} learns from what its own policy has just collected '
            f'({_those("also", "only")} learn from data sets)',
        )
    if options.fill_from is not None and admitted != 'also':
        problem = f'got {options.fill_from}, but {agent.id} has no replay buffer to fill ({_those("also")} have)'
        raise OptionError('fill_from', problem)
    if options.record_dataset is not None:
        _check_recording(run)


def _those(*learning: str) -> str:
    """Return which agents learn from data sets in some ways."""
    return ', '.join(id for id, entry in OURS.items() if entry.options.datasets in learning)


def _check_recording(run: Run) -> None:
    options, name = run.options, run.options.record_dataset
    assert name is not None
    if options.explorers is not None:
        raise OptionError('record_dataset', f'got {name} beside --explorers, which have the environments')
    minari_module('serialization', 'record_dataset')  # or OptionError
    check_keys('record_dataset', run.agent.envs.encoder.raw_space)
    if _recorded_before(run) is None:
        names.check_new('record_dataset', name)


def _recorded_before(run: Run) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return where recording stood at the checkpoint that a run goes on from; None where it begins."""
    before = run.agent.collector.witnessed
    return before if before and before[1].get('dataset') == run.options.record_dataset else None


def prepare(run: Run) -> list[str]:
    """Read the data sets that a run learns from or begins with; return what is to be said of them.

    Raises:
        OptionError: for one that is unknown, unfit, damaged, too large, or another one than the run began with.
    """
    options = run.options
    if run.agent.options.datasets == 'never':
        return []
    agent = cast(Drawer, run.agent)
    if options.dataset is not None:
        return _learned_from(run, agent, options.dataset)
    if agent.from_dataset:
        agent.leave_dataset()
    if options.fill_from is None or run.resumed_at is not None:
        return []
    if agent.buffer.stored:
        return [f'The replay buffer holds {len(agent.buffer)} transitions already: {options.fill_from} is not read']
    dataset = _opened(agent, options.fill_from, 'fill_from', options.download)
    agent.fill_from(dataset)
    return [f'{_about(dataset)}: {len(agent.buffer)} transitions are in the replay buffer']


def _learned_from(run: Run, agent: Drawer, name: str) -> list[str]:
    """Let an agent learn from a data set, which must be what a run that goes on has begun with."""
    dataset = _opened(agent, name, 'dataset', run.options.download)
    if agent.from_dataset != dataset.name:
        check_memory('dataset', dataset.steps, agent.bytes_of(dataset.steps + dataset.episodes))
        digest = agent.learn_from(dataset)
        if run.resumed_at is not None and run.progress.digest not in (None, digest):
            raise OptionError('dataset', f'got {dataset.name}, which is no longer what the run has begun with')
        run.progress.digest = digest
    return [f'{_about(dataset)}: nothing is collected, and steps are updates']


def _opened(agent: Learner, name: str, option: str, download: bool) -> Dataset:
    dataset = open_dataset(name, option, download)
    check_fits(dataset, agent.envs, option)
    dataset.check_counts()
    return dataset


def _about(dataset: Dataset) -> str:
    mean = number(dataset.mean_return, 2)
    return f'Data set {dataset.name}: {dataset.episodes} episodes, {dataset.steps} steps, mean return {mean}'


@contextlib.contextmanager
def recording(run: Run) -> Iterator[None]:
    """Let every episode that a run collects be kept, where that is asked for."""
    name, agent = run.options.record_dataset, run.agent
    if name is None:
        yield
        return
    recorder = Recorder(writer_of(agent, name, 'record_dataset', run.command), agent.envs.n_envs, version_of(agent))
    before = _recorded_before(run)
    if before is not None:
        arrays, stood = before
        recorder.load(arrays, stood, agent.envs.encoder.raw_space, agent.envs.action_space)
        agent.collector.witnessed = None
    agent.envs.witness = recorder
    try:
        yield
    finally:
        agent.envs.witness = None
        recorder.flush()
        recorder.writer.finish()
