"""The worker's side of `xagents tune`: a process that trains with the settings it is given and says how that goes.

`python -m xagents.tuning.worker` reads a JSON object a line from standard input, and answers in the same way on what
was its standard output. It ends with its parent, whatever ends that. The parent's side is `processes.py`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from xagents.options.errors import OptionError, error_line, one_line
from xagents.system.answering import Orders, answering
from xagents.tuning.member import MemberTask, train_member
from xagents.tuning.temporary_agents import temporary_agent

# of a run: one after each twentieth of its steps
REPORTS = 20
ReportFunction = Callable[[int, float, float], bool]


class TrialPruned(Exception):
    """The parent has stopped a trial."""


@dataclass
class TrialJob:
    """The job of a worker."""

    number: int  # of the trial
    agent: str  # its id
    options: dict[str, Any]  # of `xagents.make`, env included, without seed and paths
    steps: int  # environment steps of each run
    seeds: list[int]  # one for each run
    objective: str = 'reward'  # the mean of the last training episodes; or 'evaluation', that of greedy ones
    episodes: int = 10  # of an evaluation
    # `checkpoints` and `history_checkpoint`, where given, without the trial's number
    paths: dict[str, Any] = field(default_factory=dict)


def run_trial(job: TrialJob, report: ReportFunction) -> float:
    """Train with each seed and return the mean of the runs' values.

    `report` is called up to `REPORTS` times a run with the number of the report, the mean of the values so far (of the
    runs that ended and of this one) and the part of the trial's steps that is done. It returns whether to go on.

    Raises:
        Pruned: where `report` returns False.
        ValueError: where a run has no value, or its settings are wrong.
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
    # with a data set it would evaluate by itself, too
    never = {'eval_frequency': job.steps + 1} if 'dataset' in job.options else {}
    with _agent(job, seed) as agent:
        for log in agent.train_iter(max_steps=job.steps, final_episodes=0, **never):
            part = min(int(log['steps'] * REPORTS / job.steps), REPORTS)
            if part == reported:
                continue
            value = _value(job, agent)
            # a long iteration makes several reports due
            for number in range(reported + 1, part + 1):
                if not report(number, value, log['steps'] / job.steps):
                    raise TrialPruned
            reported = part
        value = _value(job, agent) if reported < REPORTS else value
    if not math.isfinite(value):
        raise ValueError(f'no episode ended within {job.steps} steps: give more --trial-steps')
    return value


def _value(job: TrialJob, agent: Any) -> float:
    return agent.evaluate(job.episodes)['mean'] if job.objective == 'evaluation' else agent.mean_reward


def _agent(job: TrialJob, seed: int) -> contextlib.AbstractContextManager[Any]:
    """Make an agent that writes to paths of its own, for a while (see `temporary_agent`)."""
    from xagents.factory.make import make

    options = {**job.options, 'seed': seed}
    mark = f'trial-{job.number}' + (f'-seed-{seed}' if len(job.seeds) > 1 else '')
    for name, paths in job.paths.items():
        options[name] = (
            [add_suffix(path, mark) for path in paths] if isinstance(paths, list) else add_suffix(paths, mark)
        )
    return temporary_agent(lambda: make(job.agent, options.pop('env'), **options), job.options)


def add_suffix(path: str, mark: str) -> str:
    """Return a path with a mark in its name: ppo.tf becomes ppo-trial-3.tf, and a.weights.h5 a-trial-3.weights.h5."""
    folder, name = os.path.split(path)
    stem, dot, suffixes = name.partition('.')
    return str(Path(folder) / f'{stem}-{mark}{dot}{suffixes}')


# the process


def main() -> None:
    """Do what the lines on standard input say, until they end."""
    answers, lines = answering()
    TrialWorker(answers, lines, lines.get()['threads']).serve()


@dataclass
class TrialWorker:
    """Does the jobs in `lines`, which the parent sent, one after another, with one thread of TensorFlow or more."""

    answers: IO[str]
    lines: Orders
    threads: int | None = None

    def serve(self) -> None:
        """Load what every trial needs, then do one job after another."""
        try:
            from xagents.system.threads import set_threads

            set_threads(self.threads or 1)
        except Exception as error:
            return self.send(kind='broken', reason=error_line(error))
        self.send(kind='ready')
        while True:
            message = self.lines.get()
            kind = message.pop('kind')
            if kind == 'member':
                self.train(MemberTask(**message))
            else:
                (self.check if kind == 'check' else self.run)(TrialJob(**message))

    def send(self, **answer: Any) -> None:
        """Answer the parent."""
        self.answers.write(json.dumps(answer) + '\n')
        self.answers.flush()

    def check(self, job: TrialJob) -> None:
        """Make the agent of a job, and say what is wrong with its settings."""
        try:
            with _agent(job, job.seeds[0]) as agent:
                agent.begin(max_steps=job.steps)
            self.send(kind='checked')
        except OptionError as error:
            self.send(kind='refused', name=error.name, reason=error.problem)
        except (ValueError, OSError) as error:
            self.send(kind='refused', name='', reason=one_line(error))
        except Exception as error:
            self.send(kind='broken', reason=error_line(error))

    def run(self, job: TrialJob) -> None:
        """Run a trial, and say how it ended."""
        try:
            answer = {'kind': 'done', 'value': run_trial(job, self.report)}
        except TrialPruned:
            answer = {'kind': 'pruned'}
        except Exception as error:
            answer = {'kind': 'failed', 'reason': error_line(error)}
        self.send(**answer)

    def train(self, task: MemberTask) -> None:
        """Train a member of a population for a round, and say how that ended."""
        try:
            answer = {'kind': 'done', 'value': train_member(task)}
        except Exception as error:
            answer = {'kind': 'failed', 'reason': error_line(error)}
        self.send(**answer)

    def report(self, part: int, value: float, done: float) -> bool:
        """Tell the parent how a trial stands, and return whether it goes on."""
        self.send(kind='report', part=part, value=value if math.isfinite(value) else None, done=done)
        return not self.lines.get()['prune']


if __name__ == '__main__':
    main()
