"""A worker of `xagents tune`: a process that runs one trial after another and says how they go.

Started as `python -m xagents.trials`. It reads one JSON object a line from its standard input and answers in the same
way on what was its standard output; it ends when its parent does, however that ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

# of a run: whenever it has made a twentieth of its steps
REPORTS = 20
Report = Callable[[int, float, float], bool]


class Pruned(Exception):
    """The parent has seen enough of a trial."""


@dataclass
class Job:
    """What a worker is told to do.

    Args:
        number: of the trial.
        agent: its id.
        options: of `xagents.make`, env included, seed and paths not.
        paths: `checkpoints` and `history_checkpoint`, where given, before they get the trial's number.
        steps: environment steps of each run.
        seeds: one run each.
        objective: 'reward', the mean of the last training episodes, or 'evaluation', of greedy ones.
        episodes: of an evaluation.
    """

    number: int
    agent: str
    options: dict[str, Any]
    steps: int
    seeds: list[int]
    objective: str = 'reward'
    episodes: int = 10
    paths: dict[str, Any] = field(default_factory=dict)


def run_trial(job: Job, report: Report) -> float:
    """Train with each seed and return the mean of what the runs are worth.

    Args:
        job: what is trained.
        report: called up to `REPORTS` times a run with the number of the report, the value so far (that of the runs
            that ended, and of this one as it stands) and the share of the trial's steps; says whether to go on.

    Raises:
        Pruned: where `report` says no.
        ValueError: where a run has no value, or its settings are wrong.
    """
    values: list[float] = []
    for index, seed in enumerate(job.seeds):

        def say(part: int, value: float, done: float, index: int = index) -> bool:
            so_far = (sum(values) + value) / (index + 1)
            return report(index * REPORTS + part, so_far, (index + done) / len(job.seeds))

        values.append(_run(job, seed, index, say))
    return sum(values) / len(values)


def _run(job: Job, seed: int, index: int, report: Report) -> float:
    """Train with one seed."""
    with _agent(job, seed, index) as agent:
        reported, value = 0, math.nan
        for log in agent.train_iter(max_steps=job.steps, final_episodes=0):
            part = min(int(log['steps'] * REPORTS / job.steps), REPORTS)
            if part == reported:
                continue
            value = _value(job, agent)
            # an iteration may pass several reports
            for number in range(reported + 1, part + 1):
                if not report(number, value, log['steps'] / job.steps):
                    raise Pruned
            reported = part
        value = _value(job, agent) if reported < REPORTS else value
    if not math.isfinite(value):
        raise ValueError(f'no episode ended within {job.steps} steps: give more --trial-steps')
    return value


def _value(job: Job, agent: Any) -> float:
    return agent.evaluate(job.episodes)['mean'] if job.objective == 'evaluation' else agent.mean_reward


@contextlib.contextmanager
def _agent(job: Job, seed: int, index: int) -> Iterator[Any]:
    """An agent with paths of its own; nothing of it stays behind."""
    import keras

    from xagents.factory.make import make

    options = {**job.options, 'seed': seed}
    mark = f'trial-{job.number}' + (f'-seed-{seed}' if len(job.seeds) > 1 else '')
    for name, paths in job.paths.items():
        options[name] = [numbered(path, mark) for path in paths] if isinstance(paths, list) else numbered(paths, mark)
    agent = make(job.agent, options.pop('env'), **options)
    try:
        yield agent
    finally:
        agent.close()
        del agent
        keras.backend.clear_session()
        gc.collect()


def numbered(path: str, mark: str) -> str:
    """Return a path of a trial's own: ppo.tf becomes ppo-trial-3.tf, and a.weights.h5 a-trial-3.weights.h5."""
    folder, name = os.path.split(path)
    stem, dot, suffixes = name.partition('.')
    return str(Path(folder) / f'{stem}-{mark}{dot}{suffixes}')


# the process


def main() -> None:
    """Do what the lines on standard input say until they end."""
    from xagents.system.startup import prepare_process

    prepare_process()
    answers = _own_output()
    lines: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, lines), daemon=True).start()
    setup = lines.get()
    Worker(answers, lines, setup.get('threads')).serve()


def _own_output() -> IO[str]:
    """Keep standard output for the answers: what else is printed goes where errors go."""
    answers = os.fdopen(os.dup(1), 'w', buffering=1, encoding='utf-8')
    os.dup2(2, 1)
    return answers


def _listen(source: IO[str], lines: queue.Queue[dict[str, Any]]) -> None:
    try:
        for line in source:
            lines.put(json.loads(line))
    finally:
        # the parent is gone, or wants no more: nobody waits for what is under way
        os._exit(0)


@dataclass
class Worker:
    """Answers jobs, one after another.

    Args:
        answers: where to.
        lines: what the parent says.
        threads: of TensorFlow; one when not given.
    """

    answers: IO[str]
    lines: queue.Queue[dict[str, Any]]
    threads: int | None = None

    def serve(self) -> None:
        """Load what every trial needs, then do one job after another."""
        try:
            from xagents.system.threads import set_threads

            set_threads(self.threads or 1)
        except Exception as error:
            return self.say(kind='broken', reason=describe_error(error))
        self.say(kind='ready')
        while True:
            message = self.lines.get()
            kind = message.pop('kind')
            job = Job(**message)
            self.check(job) if kind == 'check' else self.run(job)

    def say(self, **answer: Any) -> None:
        """Send one answer."""
        self.answers.write(json.dumps(answer) + '\n')
        self.answers.flush()

    def check(self, job: Job) -> None:
        """Make the agent of a job and say what is wrong with its settings."""
        from xagents.options.errors import OptionError

        try:
            with _agent(job, job.seeds[0], 0) as agent:
                agent.prepare_run(max_steps=job.steps)
            self.say(kind='checked')
        except OptionError as error:
            self.say(kind='refused', name=error.name, reason=error.problem)
        except (ValueError, OSError) as error:
            self.say(kind='refused', name='', reason=' '.join(str(error).split()))
        except Exception as error:
            self.say(kind='broken', reason=describe_error(error))

    def run(self, job: Job) -> None:
        """Run a trial and say how it ended."""
        start = time.perf_counter()
        try:
            value = run_trial(job, self.report)
            answer = {'kind': 'done', 'value': value}
        except Pruned:
            answer = {'kind': 'pruned'}
        except Exception as error:
            answer = {'kind': 'failed', 'reason': describe_error(error)}
        self.say(**answer, seconds=time.perf_counter() - start)

    def report(self, part: int, value: float, done: float) -> bool:
        """Tell the parent how a trial stands; returns whether it is to go on."""
        self.say(kind='report', part=part, value=value if math.isfinite(value) else None, done=done)
        return not self.lines.get()['prune']


def describe_error(error: BaseException) -> str:
    """Return what was raised, on one line."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:500]


if __name__ == '__main__':
    main()
