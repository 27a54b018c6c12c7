"""Train PPO of xagents with several agents in an environment, and evaluate it."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workers.measure import Clock, report
from benchmarks.workers.teams import TeamJob, binned, evaluate
from benchmarks.workers.xagents_worker import arguments, check_threads

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'pettingzoo', 'mpe2', 'numpy')
HISTORY = Path('history.parquet')


def keywords(job: TeamJob) -> dict[str, Any]:
    """Return the options of `xagents.make`."""
    given = {'env_kwargs': job.env_kwargs, 'history_checkpoint': str(HISTORY)}
    return {**arguments(job.settings), **given, **job.options}


def train(job: TeamJob, agent: Any) -> dict[str, Any]:
    """Train `warmup` steps, then time `steps` more."""
    clock, took, parts = (None if job.warmup else Clock()), {}, dict[str, float]()
    first = last = 0
    # no evaluations: the last weights are measured
    for log in agent.train_iter(max_steps=job.warmup + job.steps, final_episodes=0):
        last = int(log['steps'])
        if clock:
            took = clock.read()
            for name in ('env', 'act', 'learn', 'wait'):
                parts[name] = parts.get(name, 0.0) + log.get(f'seconds/{name}', 0.0)
        elif last >= job.warmup:
            clock, first = Clock(), last
    return {'steps': last - first, **took, 'parts': parts}


def curve(job: TeamJob) -> list[float | None]:
    """Return the mean returns of the episodes of agents in each bin."""
    from xagents.logs.history import read_history

    history = read_history(HISTORY)
    return binned(history['step'].to_numpy(), history['episode_reward'].to_numpy(), job.width)


def main() -> None:
    """Run the job."""
    job = TeamJob.from_command_line()
    import xagents

    agent = xagents.make(job.settings.algorithm, f'pettingzoo:{job.env}', **keywords(job))
    check_threads(job.settings)
    result = train(job, agent)

    def act(observations: np.ndarray, greedy: bool) -> np.ndarray:
        return agent.act(observations, greedy)

    report({**result, 'curve': curve(job), **evaluate(job, act)}, PACKAGES)


if __name__ == '__main__':
    main()
