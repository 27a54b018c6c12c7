"""Videos of an agent while it learns: one greedy episode every `--video-frequency` steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xagents.checkpoints.protocols import RunProtocol
from xagents.evaluation.playing import evaluation_collector, play_episode
from xagents.logs.video import VideoWriter
from xagents.options.errors import OptionError, one_line
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import for_run
from xagents.system.interruption import RunInterrupted
from xagents.system.paths import check_folder

# steps of the longest video
MAX_VIDEO_STEPS = 2000


@for_run
def video(run: RunProtocol, stream: Stream) -> Iterator[Context]:
    """Record a greedy episode whenever the steps pass a multiple of `video_frequency`.

    Videos depend only on the weights, the seed and the steps. A resumed run records the same videos, and videos do not
    change training.
    """
    if not (frequency := run.options.video_frequency):
        yield from stream
        return
    before = run.progress.context.steps
    if run.resumed_at is not None and _video_missing(run, before, frequency):
        record_video(run, before)
    for ctx in stream:
        if ctx.steps // frequency > before // frequency:
            record_video(run, ctx.steps)
        before = ctx.steps
        yield ctx


def record_video(run: RunProtocol, steps: int) -> Path | None:
    """Record a greedy episode with the present weights; `steps` name the file and give the episode's seed.

    Returns:
        The path of the video; None if the run was interrupted, in which case no file remains.
    """
    path = Path(run.options.video_folder) / f'step-{steps:012d}.mp4'
    path.parent.mkdir(parents=True, exist_ok=True)
    agent = run.agent
    envs = agent.collector.evaluation_envs(1, 'rgb_array')
    agent.refresh()
    try:
        with VideoWriter(path, envs.frames_per_second) as writer:
            collector, seed = evaluation_collector(agent, envs), run.evaluation_seed(steps)
            play_episode(collector, seed, MAX_VIDEO_STEPS, sinks=[writer.write])
    except RunInterrupted:
        return None
    run.console.print_line(f'Video: {path}')
    return path


def check_video(run: RunProtocol) -> None:
    """Check, before a run with videos, that it can record them. This creates the environment for videos.

    Raises:
        OptionError: naming `video_frequency`, in one line.
    """
    if not run.options.video_frequency:
        return
    check_folder('video_frequency', run.options.video_folder)
    envs = run.agent.envs
    if not envs.can_recreate:
        raise OptionError('video_frequency', f'{envs.id} cannot be created again: give create_envs a function')
    if problem := _render_problem(run):
        run.agent.collector.close_evaluation_envs()
        raise OptionError('video_frequency', f'{envs.id} {problem}')


def _render_problem(run: RunProtocol) -> str:
    """Return why the environment cannot be rendered; empty if it can."""
    try:
        envs = run.agent.collector.evaluation_envs(1, 'rgb_array')
        envs.reset(0)
        frames = envs.render()
    except Exception as error:  # an environment's own, of any kind
        return f'cannot be drawn here ({one_line(error)})'
    shape: tuple[int, ...] = np.shape(frames[0]) if frames else ()
    return '' if len(shape) == 3 and shape[2] == 3 else 'draws no pictures, expected environments that do'


def _video_missing(run: RunProtocol, steps: int, frequency: int) -> bool:
    """Return whether the last due video of a resumed run is missing because recording was interrupted."""
    due = steps // frequency * frequency
    names = (path.stem.removeprefix('step-') for path in Path(run.options.video_folder).glob('step-*.mp4'))
    return due > 0 and not any(due <= int(name) <= steps for name in names if name.isdigit())
