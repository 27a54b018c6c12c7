"""Trains one agent in its run folder as a user would, or goes on with it, and plays with what training ended with."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.workers.measure import report

EVALUATION_SEED = 0
PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
# a kill loses no more than these
SAVE_SECONDS = 60.0


def main() -> None:
    """Do the job: one JSON object of agent, env, steps, seed, episodes, options and folder in the first argument."""
    job = json.loads(sys.argv[1])
    import xagents
    from xagents.runs.status import is_locked, is_run, read_status
    from xagents.system.orphans import follow_parent
    from xagents.system.threads import set_threads

    follow_parent()
    set_threads(1)
    folder = job['folder']
    # the worker of a driver that was ended a moment ago still saves
    while is_locked(folder):
        time.sleep(1)
    if is_run(folder):
        agent = xagents.resume(folder)
    else:
        kept = {'run_dir': folder, 'save_seconds': SAVE_SECONDS}
        agent = xagents.make(job['agent'], job['env'], seed=job['seed'], **kept, **job['options'])
    # what is measured are the last weights: none of them are compared with the best of the run, or replaced by them
    agent.fit(max_steps=job['steps'], final_episodes=0, quiet=True)
    # every seed is judged by the same starts: where Pendulum begins alone moves a mean of 100 episodes by 5
    played = agent.evaluate(job['episodes'], seed=EVALUATION_SEED)
    sampled = agent.evaluate(job['episodes'], stochastic=True, seed=EVALUATION_SEED)
    best = xagents.load(folder).evaluate(job['episodes'], seed=EVALUATION_SEED)
    others = {'sampled': sampled['mean'], 'best': best['mean']}
    report({'seconds': read_status(folder)['seconds'], 'steps': agent.steps, **played, **others}, PACKAGES)


if __name__ == '__main__':
    main()
