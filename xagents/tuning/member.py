"""The worker's side of a population: one member's training in one round."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xagents.reports.population_files import MEMBER_FILE
from xagents.system.file_names import CHECKPOINTS
from xagents.system.files import replace_link
from xagents.tuning.temporary_agents import temporary_agent


@dataclass
class MemberTask:
    """The task of a worker for a member.

    Attributes:
        number: of the member.
        agent: its id.
        fixed: options of `xagents.make` that all members share, env included.
        settings: the searched options.
        seed: of its random streams, where they are to be its own; None where it goes on from itself.
        parent: the run folder that it goes on from; empty in the first round.
        folder: that its run is to be in; it appears when the round is done.
        steps: environment steps from the population's beginning to the end of the round.
        objective: 'reward' or 'evaluation'.
        episodes: of an evaluation.
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


def train_member(task: MemberTask) -> float | None:
    """Train a member for a round, in a folder that is whole or not there, and return what it is worth.

    What a killed process has left is begun anew from the round's beginning, so that kills change nothing.

    Returns:
        The mean of its last episodes, or of greedy ones; None where no episode ended.
    """
    folder = Path(task.folder)
    part_folder, start = folder.with_name(f'.{folder.name}'), time.monotonic()
    with _agent(task, part_folder) as agent:
        agent.fit(max_steps=task.steps, final_episodes=0)
        if agent.progress.context.steps < task.steps:
            raise RuntimeError(f'its run ended after {agent.progress.context.steps} steps: {agent.run.stopped}')
        value = agent.evaluate(task.episodes)['mean'] if task.objective == 'evaluation' else agent.mean_reward
    score = value if math.isfinite(value) else None
    (part_folder / MEMBER_FILE).write_text(json.dumps({'score': score, 'seconds': time.monotonic() - start}))
    _mark_last_as_best(part_folder)
    os.replace(part_folder, folder)
    return score


def _mark_last_as_best(folder: Path) -> None:
    """Let a run's last weights be those that are played: the score is theirs, and earlier ones had other settings."""
    checkpoints = folder / CHECKPOINTS
    replace_link(checkpoints / 'best', os.readlink(checkpoints / 'last'))


def _agent(task: MemberTask, part_folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Make the agent that goes on in a folder, for a while (see `temporary_agent`)."""
    from xagents.checkpoints.copying import copy_run
    from xagents.factory.load import resume
    from xagents.factory.make import make

    options = {**task.fixed, **task.settings}

    def made() -> Any:
        if not task.parent:
            shutil.rmtree(part_folder, ignore_errors=True)
            return make(task.agent, **options, seed=task.seed, run_dir=str(part_folder))
        copy_run(task.parent, part_folder)
        agent = resume(str(part_folder), **task.settings, max_steps=task.steps, quiet=True)
        if task.seed is not None:
            agent.options.seed = task.seed
            agent.streams.restart(task.seed)
            agent.collector.observations = None  # episodes begin anew
        return agent

    return temporary_agent(made, options)
