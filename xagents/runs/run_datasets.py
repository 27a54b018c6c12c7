"""Experience of a run that is a data set, or becomes one: learned from, filled in before the first step, kept."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from xagents.checkpoints.protocols import DatasetAgent, LearningAgent
from xagents.datasets import dataset_names
from xagents.datasets.environments import check_fits
from xagents.datasets.minari import minari_module
from xagents.datasets.reading import Dataset, open_dataset
from xagents.datasets.recorder import DatasetRecorder
from xagents.datasets.writing import check_keys
from xagents.logs.console import format_number
from xagents.options.errors import OptionError
from xagents.options.runs import NO_DATASET, RunOptions
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.runs.record_dataset import dataset_writer, weights_version
from xagents.runs.run import Run
from xagents.system.memory import check_memory

# updates between two evaluations, where nothing else is said and the run is not shorter: no episode tells how it goes
EVAL_FREQUENCY = 5000


def with_default_evaluation(agent: LearningAgent, options: RunOptions) -> RunOptions:
    """Return the options of a run, which evaluates where a data set is learned from and an environment can be made."""
    if options.dataset is None or options.eval_frequency is not None or not agent.envs.can_recreate:
        return options
    options = copy.copy(options)
    options.eval_frequency = min(EVAL_FREQUENCY, options.max_steps or EVAL_FREQUENCY)
    return options


def check_datasets(run: Run) -> None:
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
            f'({_agent_ids("also", "only")} learn from data sets)',
        )
    if options.fill_from is not None and admitted != 'also':
        problem = f'got {options.fill_from}, but {agent.id} has no replay buffer to fill ({_agent_ids("also")} have)'
        raise OptionError('fill_from', problem)
    if options.record_dataset is not None:
        _check_recording(run)


def _agent_ids(*learning: str) -> str:
    """Return which agents learn from data sets in some ways."""
    return ', '.join(id for id, entry in BUILTIN_AGENTS.items() if entry.options.datasets in learning)


def _check_recording(run: Run) -> None:
    options, name = run.options, run.options.record_dataset
    assert name is not None
    if options.explorers is not None:
        raise OptionError('record_dataset', f'got {name} with --explorers, which step the environments')
    minari_module('serialization', 'record_dataset')  # or OptionError
    check_keys('record_dataset', run.agent.envs.encoder.raw_space)
    if _previous_recording(run) is None:
        dataset_names.check_new('record_dataset', name)


def _previous_recording(run: Run) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return where recording stood at the checkpoint that a run goes on from; None where it begins."""
    before = run.agent.collector.recorder_state
    return before if before and before[1].get('dataset') == run.options.record_dataset else None


def prepare_datasets(run: Run) -> list[str]:
    """Read the data sets that a run learns from or begins with; return what is to be said of them.

    Raises:
        OptionError: for one that is unknown, unfit, damaged, too large, or another one than the run began with.
    """
    options = run.options
    if run.agent.options.datasets == 'never':
        return []
    agent = cast(DatasetAgent, run.agent)
    if options.dataset is not None:
        return _load_dataset(run, agent, options.dataset)
    if agent.dataset_name:
        agent.clear_dataset()
    if options.fill_from is None or run.resumed_at is not None:
        return []
    if agent.buffer.stored:
        return [f'The replay buffer holds {len(agent.buffer)} transitions already: {options.fill_from} is not read']
    dataset = _open(agent, options.fill_from, 'fill_from', options.download)
    agent.fill_buffer(dataset)
    return [f'{_describe(dataset)}: {len(agent.buffer)} transitions are in the replay buffer']


def _load_dataset(run: Run, agent: DatasetAgent, name: str) -> list[str]:
    """Let an agent learn from a data set, which must be what a run that goes on has begun with."""
    dataset = _open(agent, name, 'dataset', run.options.download)
    if agent.dataset_name != dataset.name:
        check_memory('dataset', dataset.steps, agent.buffer_bytes_for(dataset.steps + dataset.episodes))
        digest = agent.load_dataset(dataset)
        if run.resumed_at is not None and run.progress.digest not in (None, digest):
            raise OptionError('dataset', f'got {dataset.name}, which is no longer what the run has begun with')
        run.progress.digest = digest
    return [f'{_describe(dataset)}: nothing is collected, and steps are updates']


def _open(agent: LearningAgent, name: str, option: str, download: bool) -> Dataset:
    dataset = open_dataset(name, option, download)
    check_fits(dataset, agent.envs, option)
    dataset.check_counts()
    return dataset


def _describe(dataset: Dataset) -> str:
    mean = format_number(dataset.mean_return, 2)
    return f'Data set {dataset.name}: {dataset.episodes} episodes, {dataset.steps} steps, mean return {mean}'


@contextlib.contextmanager
def record_episodes(run: Run) -> Iterator[None]:
    """Let every episode that a run collects be kept, where that is asked for."""
    name, agent = run.options.record_dataset, run.agent
    if name is None:
        yield
        return
    recorder = DatasetRecorder(
        dataset_writer(agent, name, 'record_dataset', run.command), agent.envs.n_envs, weights_version(agent)
    )
    before = _previous_recording(run)
    if before is not None:
        arrays, record = before
        recorder.load(arrays, record, agent.envs.encoder.raw_space, agent.envs.action_space)
        agent.collector.recorder_state = None
    agent.envs.recorder = recorder
    try:
        yield
    finally:
        agent.envs.recorder = None
        recorder.flush()
        recorder.writer.finish()
