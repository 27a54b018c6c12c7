"""Trains one agent as a user would and plays with the weights that training ended with."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.workers.measure import report

EVALUATION_SEED = 0
PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')


def main() -> None:
    """Do the job: one JSON object of agent, env, steps, seed, episodes and options in the first argument."""
    job = json.loads(sys.argv[1])
    import xagents

    agent = xagents.make(job['agent'], job['env'], seed=job['seed'], **job['options'])
    start = time.perf_counter()
    # what is measured are the last weights: none of them are compared with the best of the run, or replaced by them
    agent.fit(max_steps=job['steps'], final_episodes=0, quiet=True)
    seconds = time.perf_counter() - start
    # every seed is judged by the same starts: where Pendulum begins alone moves a mean of 100 episodes by 5
    played = agent.evaluate(job['episodes'], seed=EVALUATION_SEED)
    report({'seconds': seconds, 'steps': agent.steps, **played}, PACKAGES)


if __name__ == '__main__':
    main()
