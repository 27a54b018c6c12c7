"""A worker process of `xagents tune`: it trains with given settings and reports the results.

`python -m xagents.tuning.worker THREADS` answers the requests of its parent process; see `xagents.processes.serving`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xagents.checkpoints.status import SaveError
from xagents.options.errors import OptionError, error_line, one_line
from xagents.processes.serving import NoJobPossibleError, Parent, serve
from xagents.tuning.member import MemberTask, train_member
from xagents.tuning.temporary_agents import temporary_agent

# number of reports of a run: one after each twentieth of its steps
REPORTS = 20
ReportFunction = Callable[[int, float, float], bool]


class TrialPruned(Exception):
    """Raised when the parent process prunes a trial."""


@dataclass
class TrialJob:
    """A trial that a worker runs."""

    number: int  # number of the trial
    agent: str  # id of the agent
    options: dict[str, Any]  # options of `xagents.make`, including env, without seed and paths
    steps: int  # environment steps of each run
    seeds: list[int]  # one for each run
    objective: str = 'reward'  # mean of the last training episodes; or 'evaluation', mean of greedy episodes
    episodes: int = 10  # number of episodes of an evaluation
    # `checkpoints` and `history_checkpoint`, if given, without the number of the trial
    paths: dict[str, Any] = field(default_factory=dict)


def run_trial(job: TrialJob, report: ReportFunction) -> float:
    """Train with each seed and return the mean of the values of the runs.

    Args:
        job: the trial.
        report: function that is called up to `REPORTS` times per run and returns whether to continue. Its arguments
            are the number of the report, the mean of the values so far (of ended runs and the current one), and the
            fraction of the steps of the trial that is done.

    Raises:
        TrialPruned: if `report` returns False.
        ValueError: if a run has no value, or its settings are not valid.
    """
    values: list[float] = []
    for index, seed in enumerate(job.seeds):

        def say(part: int, value: float, done: float, index: int = index) -> bool:
            so_far = (sum(values) + value) / (index + 1)
            return report(index * REPORTS + part, so_far, (index + done) / len(job.seeds))

        values.append(_run(job, seed, say))
    return sum(values) / len(values)


def _run(job: TrialJob, seed: int, report: ReportFunction) -> float:
    reported, value = 0, math.nan
    # turn off the evaluations of a run on a data set
    never = {'eval_frequency': job.steps + 1} if 'dataset' in job.options else {}
    with _agent(job, seed) as agent:
        for log in agent.train_iter(max_steps=job.steps, final_episodes=0, **never):
            part = min(int(log['steps'] * REPORTS / job.steps), REPORTS)
            if part == reported:
                continue
            value = _value(job, agent)
            # several reports may be due after a long iteration
            for number in range(reported + 1, part + 1):
                if not report(number, value, log['steps'] / job.steps):
                    raise TrialPruned
            reported = part
        value = _value(job, agent) if reported < REPORTS else value
    if not math.isfinite(value):
        raise ValueError(f'no episode ended within {job.steps} steps: increase --trial-steps')
    return value


def _value(job: TrialJob, agent: Any) -> float:
    return agent.evaluate(job.episodes)['mean'] if job.objective == 'evaluation' else agent.mean_reward


def _agent(job: TrialJob, seed: int) -> contextlib.AbstractContextManager[Any]:
    """Return a context with an agent that writes to paths of this trial (see `temporary_agent`)."""
    from xagents.factory.make import make

    options = {**job.options, 'seed': seed}
    mark = f'trial-{job.number}' + (f'-seed-{seed}' if len(job.seeds) > 1 else '')
    for name, paths in job.paths.items():
        options[name] = [add_suffix(p, mark) for p in paths] if isinstance(paths, list) else add_suffix(paths, mark)
    return temporary_agent(lambda: make(job.agent, options.pop('env'), **options), job.options)


def add_suffix(path: str, mark: str) -> str:
    """Return a path with a mark in its name: ppo.tf gives ppo-trial-3.tf, a.weights.h5 gives a-trial-3.weights.h5."""
    folder, name = os.path.split(path)
    stem, dot, suffixes = name.partition('.')
    return str(Path(folder) / f'{stem}-{mark}{dot}{suffixes}')


# the process


def run(parent: Parent, /, **fields: Any) -> dict[str, Any]:
    """Run a trial. Report its progress to the parent process, which may prune it."""

    def report(part: int, value: float, done: float) -> bool:
        finite = value if math.isfinite(value) else None
        parent.send(kind='report', part=part, value=finite, done=done)
        return not parent.receive()['prune']

    try:
        return {'kind': 'done', 'value': run_trial(TrialJob(**fields), report)}
    except TrialPruned:
        return {'kind': 'pruned'}


def check(parent: Parent, /, **fields: Any) -> dict[str, Any]:
    """Create the agent of a job, and report whether its settings are valid, and what a user should know of them."""
    job = TrialJob(**fields)
    try:
        with _agent(job, job.seeds[0]) as agent:
            return {'kind': 'checked', 'notices': agent.begin(max_steps=job.steps).schedule_notices()}
    except OptionError as error:
        return {'kind': 'refused', 'name': error.name, 'reason': error.problem}
    except (ValueError, OSError) as error:
        return {'kind': 'refused', 'name': '', 'reason': one_line(error)}
    except Exception as error:
        raise NoJobPossibleError(error_line(error)) from error


def member(parent: Parent, /, **fields: Any) -> dict[str, Any]:
    """Train a member of a population for a round."""
    try:
        return {'kind': 'done', 'value': train_member(MemberTask(**fields))}
    except SaveError as error:  # a full disk is not the fault of a member: the population stops
        raise NoJobPossibleError(str(error)) from error


HANDLERS = {'trial': run, 'check': check, 'member': member}


def main(threads: int) -> None:
    """Run the jobs of the parent process with a number of threads of TensorFlow."""

    def prepare() -> None:
        from xagents.system.threads import set_threads

        set_threads(threads)

    serve(Parent(), HANDLERS, prepare)


if __name__ == '__main__':
    main(int(sys.argv[1]))
