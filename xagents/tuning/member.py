"""Training of one member of a population in one round, in a worker process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xagents.checkpoints.progress import Progress
from xagents.checkpoints.status import SaveError
from xagents.reports.population_files import MEMBER_FILE
from xagents.system.file_names import CHECKPOINTS
from xagents.system.files import atomic_write, name_file_in_errors, replace_link, write_problem
from xagents.tuning.temporary_agents import temporary_agent

# what to do after a full disk
REMEDY = 'free disk space, and the same command resumes the population'


@dataclass
class MemberTask:
    """The task of training a member for a round.

    Attributes:
        number: number of the member.
        agent: id of the agent.
        fixed: options of `xagents.make` that all members share, including env.
        settings: values of the searched options.
        seed: seed of new random streams; None if the member resumes its own run.
        parent: run directory that the member resumes; empty in the first round.
        folder: run directory of the member; it appears when the round is complete.
        steps: environment steps from the first round to the end of this round.
        objective: 'reward' or 'evaluation'.
        episodes: number of episodes of an evaluation.
        final_episodes: number of greedy episodes after the last round; 0 in other rounds.
    """

    number: int
    agent: str
    fixed: dict[str, Any]
    settings: dict[str, Any]
    seed: int | None
    parent: str
    folder: str
    steps: int
    objective: str = 'reward'
    episodes: int = 10
    final_episodes: int = 0


def train_member(task: MemberTask) -> float | None:
    """Train a member for a round, and return its score. Its run directory appears only when the round is complete.

    If the process is killed, the member starts the round from its beginning, so that kills do not change the result.

    Returns:
        The mean reward of its training episodes in this round or of evaluation episodes; None if no episode ended.

    Raises:
        SaveError: if its run directory cannot be written.
    """
    try:
        return _train(task)
    except SaveError as error:
        if isinstance(error.__cause__, OSError):
            # the error of a run names a remedy for a single run
            raise SaveError(f'{write_problem(error.__cause__, task.folder)}; {REMEDY}') from error.__cause__
        raise


def _train(task: MemberTask) -> float | None:
    folder = Path(task.folder)
    part_folder, start = folder.with_name(f'.{folder.name}'), time.monotonic()
    with _agent(task, part_folder) as agent:
        games = agent.progress.context.games
        agent.fit(max_steps=task.steps, final_episodes=0)
        if agent.progress.context.steps < task.steps:
            raise RuntimeError(f'its run ended after {agent.progress.context.steps} steps: {agent.run.stopped}')
        evaluated = task.objective == 'evaluation'
        value = agent.evaluate(task.episodes)['mean'] if evaluated else round_mean(agent.progress, games)
        final_mean = agent.evaluate(task.final_episodes)['mean'] if task.final_episodes else None
    score = value if math.isfinite(value) else None
    result = {'score': score, 'final_mean': final_mean, 'seconds': time.monotonic() - start}
    file = part_folder / MEMBER_FILE
    with _writing(part_folder):
        with name_file_in_errors(file), atomic_write(file) as temporary:
            temporary.write_text(json.dumps(result))
        _mark_last_as_best(part_folder)
        os.replace(part_folder, folder)
    return score


def round_mean(progress: Progress, games: int) -> float:
    """Return the mean reward of the episodes that ended in this round, or of earlier ones if none ended.

    Episodes of earlier rounds do not count: a copy would get the score of its parent, and a member that becomes worse
    would keep its place.

    Args:
        progress: progress of the member.
        games: number of episodes that had ended before this round.
    """
    rewards = list(progress.rewards)
    ended = progress.context.games - games
    return float(np.mean(rewards[-ended:] if ended else rewards)) if rewards else math.nan


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise SaveError if a file in a folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise SaveError(write_problem(error, folder)) from error


def _mark_last_as_best(folder: Path) -> None:
    """Mark the last checkpoint as the best: the score is that of its weights, and earlier ones had other settings."""
    checkpoints = folder / CHECKPOINTS
    replace_link(checkpoints / 'best', os.readlink(checkpoints / 'last'))


def _agent(task: MemberTask, part_folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Return a context with the agent that trains in a folder (see `temporary_agent`)."""
    from xagents.checkpoints.run_directory import copy_run
    from xagents.factory.load import resume
    from xagents.factory.make import make

    options = {**task.fixed, **task.settings}

    def made() -> Any:
        if not task.parent:
            shutil.rmtree(part_folder, ignore_errors=True)
            return make(task.agent, **options, seed=task.seed, run_dir=str(part_folder))
        with _writing(part_folder):
            copy_run(task.parent, part_folder)
        agent = resume(str(part_folder), **task.settings, max_steps=task.steps, quiet=True)
        if task.seed is not None:
            agent.options = agent.options.changed(seed=task.seed)
            agent.streams.restart(task.seed)
            agent.collector.observations = None  # start new episodes
        return agent

    return temporary_agent(made, options)
