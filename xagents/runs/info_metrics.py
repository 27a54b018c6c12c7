"""Metrics of the numbers of infos that `--log-info` selects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from xagents.envs.interface import info_column
from xagents.envs.values.infos import missing_message
from xagents.pipeline.context import Context
from xagents.runs.run import Run


def log_infos(run: Run, ctx: Context, names: Iterable[str]) -> None:
    """Log the mean of each number over the steps of the rollout, and the mean of its sums over ended episodes.

    When the first episode has ended, add a warning for each name that has not appeared.
    """
    rollouts = [part for part in ctx.batch.values() if isinstance(part, dict)] or [ctx.batch]
    for name in names:
        metric = info_column(name)
        columns = [rollout[metric].astype(np.float64).ravel() for rollout in rollouts if metric in rollout]
        numbers = np.concatenate(columns) if columns else np.zeros(0)
        numbers = numbers[~np.isnan(numbers)]
        sums = [episode.info[name] for episode in ctx.episodes if episode.info and name in episode.info]
        if numbers.size:
            ctx.logs[metric], ctx.counts[metric] = float(numbers.mean()), numbers.size
        if sums:
            ctx.logs[f'{metric}/episode'], ctx.counts[f'{metric}/episode'] = float(np.mean(sums)), len(sums)
        if numbers.size or sums:
            run.missing_infos.discard(name)
    if ctx.episodes and run.missing_infos:
        envs = run.agent.envs
        ctx.messages += [missing_message(name, envs.id, envs.seen_infos) for name in sorted(run.missing_infos)]
        run.missing_infos.clear()
