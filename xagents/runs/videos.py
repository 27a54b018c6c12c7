"""Videos of an agent while it learns: one greedy episode every `--video-frequency` steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xagents.logs.recording import VideoWriter
from xagents.options.errors import OptionError, one_line
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import stage
from xagents.runs.evaluation import episode
from xagents.system.interruption import Interrupted
from xagents.system.paths import check_folder

if TYPE_CHECKING:
    from xagents.envs.create import Envs
    from xagents.runs.learner import Learner

# steps of the longest video
LONGEST = 2000
_ENVIRONMENT = ('video', 1)


def video(agent: Learner) -> Stage:
    """Record a greedy episode whenever the steps pass a multiple of `video_frequency`.

    What is recorded, and when, depends on the weights, the seed and the steps alone: a resumed run records the same
    videos, and training is the same with and without.
    """

    @stage
    def video(stream: Stream) -> Iterator[Context]:
        frequency = agent.run.video_frequency
        if not frequency:
            yield from stream
            return
        before = agent.context.steps
        if agent.resumed_at is not None and _owed(agent, before, frequency):
            record_video(agent, before)
        for ctx in stream:
            if ctx.steps // frequency > before // frequency:
                record_video(agent, ctx.steps)
            before = ctx.steps
            yield ctx

    return video


def record_video(agent: Learner, steps: int) -> Path | None:
    """Record a greedy episode with the present weights.

    Args:
        agent: who plays, on an environment of its own that is kept for the next time.
        steps: those of the run so far: they name the file and give the episode's seed.

    Returns:
        The video; None where the run is to end, and nothing is left of it then.
    """
    path = _path(agent, steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    envs = _environment(agent)
    try:
        with VideoWriter(path, envs.frames_per_second) as writer:
            episode(agent, envs, agent.evaluation_seed(steps), max_steps=LONGEST, sinks=[writer.write])
    except Interrupted:
        return None
    agent.console.say(f'Video: {path}')
    return path


def check_video(agent: Learner) -> None:
    """Check, before a run, that it can record videos where it is to; the environment for them is made.

    Raises:
        OptionError: naming `video_frequency`, in one line.
    """
    if not agent.run.video_frequency:
        return
    check_folder('video_frequency', agent.run.video_folder)
    if not agent.envs.can_be_made_again:
        raise OptionError('video_frequency', f'{agent.envs.id} cannot be made afresh: give create_envs a function')
    problem = _undrawable(agent)
    if problem:
        made = agent._evaluation_envs.pop(_ENVIRONMENT, None)
        if made is not None:
            made.close()
        raise OptionError('video_frequency', f'{agent.envs.id} {problem}')


def _undrawable(agent: Learner) -> str:
    """Return why an agent's environment cannot be drawn; empty where it can."""
    if _ENVIRONMENT in agent._evaluation_envs:  # it was looked at before
        return ''
    try:
        envs = _environment(agent)
        envs.reset(0)
        frames = envs.render()
    except Exception as error:  # an environment's own, of any kind
        return f'cannot be drawn here ({one_line(error)})'
    shape: tuple[int, ...] = np.shape(frames[0]) if frames else ()
    return '' if len(shape) == 3 and shape[2] == 3 else 'draws no pictures, admits environments that do'


def _environment(agent: Learner) -> Envs:
    if _ENVIRONMENT not in agent._evaluation_envs:
        agent._evaluation_envs[_ENVIRONMENT] = agent.envs.another(1, render_mode='rgb_array')
    return agent._evaluation_envs[_ENVIRONMENT]


def _path(agent: Learner, steps: int) -> Path:
    return Path(agent.run.video_folder) / f'step-{steps:012d}.mp4'


def _owed(agent: Learner, steps: int, frequency: int) -> bool:
    """Return whether the last video that a resumed run should have is missing: it was interrupted in the midst."""
    due = steps // frequency * frequency
    names = (path.stem.removeprefix('step-') for path in Path(agent.run.video_folder).glob('step-*.mp4'))
    return due > 0 and not any(due <= int(name) <= steps for name in names if name.isdigit())
