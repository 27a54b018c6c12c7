"""Train or resume one agent in its run directory as a user would, and evaluate its last weights."""

import json
import sys
import time

from benchmarks.workers.measure import report

EVALUATION_SEED = 0
PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
# a kill loses at most these seconds
SAVE_SECONDS = 60.0


def main() -> None:
    """Run the job: agent, env, source, steps, seed, episodes, options and folder as JSON in the first argument."""
    job = json.loads(sys.argv[1])
    import xagents
    from xagents.checkpoints.status import is_locked, is_run, read_status
    from xagents.processes.parent_exit import exit_with_parent
    from xagents.system.threads import set_threads

    exit_with_parent()
    set_threads(1)
    folder = job['folder']
    # a worker whose parent has just ended may still save
    while is_locked(folder):
        time.sleep(1)
    if is_run(folder):
        agent = xagents.resume(folder)
    else:
        kept = {'run_dir': folder, 'save_seconds': SAVE_SECONDS}
        agent = xagents.make(job['agent'], **job['source'], seed=job['seed'], **kept, **job['options'])
    # the last weights are measured, so there is no final evaluation that replaces them by the best ones
    agent.fit(max_steps=job['steps'], final_episodes=0, quiet=True)
    # equal starts for all seeds: different starts change a mean of 100 episodes of Pendulum by up to 5
    played = agent.evaluate(job['episodes'], seed=EVALUATION_SEED)
    sampled = agent.evaluate(job['episodes'], stochastic=True, seed=EVALUATION_SEED)
    result = {'seconds': read_status(folder)['seconds'], 'steps': agent.steps, **played}
    report({**result, 'sampled': sampled['mean']}, PACKAGES)


if __name__ == '__main__':
    main()
