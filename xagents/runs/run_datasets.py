"""Data sets of a run: learning from a data set, filling the replay buffer from one, and recording one."""

from __future__ import annotations

import contextlib
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
from xagents.options.runs import RunOptions
from xagents.runs.record_dataset import dataset_writer, weights_version
from xagents.runs.run import Run
from xagents.system.memory import check_memory

# default updates between evaluations, at most the length of the run: without episodes only evaluations measure progress
EVAL_FREQUENCY = 5000


def with_default_evaluation(agent: LearningAgent, options: RunOptions) -> RunOptions:
    """Return the options of a run, with evaluation enabled if it learns from a data set and can create environments."""
    if options.dataset is None or options.eval_frequency is not None or not agent.envs.can_recreate:
        return options
    return options.changed(eval_frequency=min(EVAL_FREQUENCY, options.max_steps or EVAL_FREQUENCY))


def check_datasets(run: Run) -> None:
    """Check the data set options of a run before anything is read or written.

    Raises:
        OptionError: if the agent, the environments or the machine do not support an option.
    """
    if run.options.record_dataset is not None:
        _check_recording(run)


def _check_recording(run: Run) -> None:
    name = run.options.record_dataset
    assert name is not None
    minari_module('serialization', 'record_dataset')  # or OptionError
    check_keys('record_dataset', run.agent.envs.encoder.raw_space)
    if _previous_recording(run) is None:
        dataset_names.check_new('record_dataset', name)


def _previous_recording(run: Run) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return the recorder's state in the checkpoint from which the run resumes, or None for a new recording."""
    before = run.agent.collector.recorder_state
    return before if before and before[1].get('dataset') == run.options.record_dataset else None


def prepare_datasets(run: Run) -> list[str]:
    """Read the data sets from which a run learns or fills its replay buffer. Return lines for the console.

    Raises:
        OptionError: if a data set is unknown, does not fit the environments, is damaged or too large, or differs from
            the data set at the start of the run.
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
        return [f'The replay buffer already contains {len(agent.buffer)} transitions: {options.fill_from} is not read']
    dataset = _open(agent, options.fill_from, 'fill_from', options.download)
    agent.fill_buffer(dataset)
    return [f'{_describe(dataset)}: {len(agent.buffer)} transitions are in the replay buffer']


def _load_dataset(run: Run, agent: DatasetAgent, name: str) -> list[str]:
    """Load a data set into an agent and return console lines. A resumed run must use the same data set as before."""
    dataset = _open(agent, name, 'dataset', run.options.download)
    if agent.dataset_name != dataset.name:
        check_memory('dataset', dataset.steps, agent.buffer_bytes_for(dataset.steps + dataset.episodes))
        digest = agent.load_dataset(dataset)
        if run.resumed_at is not None and run.progress.digest not in (None, digest):
            raise OptionError('dataset', f'got {dataset.name}, expected the data that the run began with')
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
    """Record every episode that a run collects if `--record-dataset` is set."""
    name, agent = run.options.record_dataset, run.agent
    if name is None:
        yield
        return
    writer = dataset_writer(agent, name, 'record_dataset', run.command)
    recorder = DatasetRecorder(writer, agent.envs.n_envs, weights_version(agent))
    if before := _previous_recording(run):
        recorder.load(*before)
        agent.collector.recorder_state = None
    agent.envs.recorder = recorder
    try:
        yield
    finally:
        agent.envs.recorder = None
        recorder.flush()
        recorder.writer.finish()
