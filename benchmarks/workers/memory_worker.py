"""Train PPO with memory in an environment that shows some elements of its observation, and evaluate it."""

import json
import sys
import time
from typing import Any

from benchmarks.workers.measure import report

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
# equal starts for all seeds and for both libraries
EVALUATION_SEED = 10_000
# iterations before the clock starts; the first ones compile
WARM_UP = 2


def keywords(job: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `xagents.make`."""
    shown = json.dumps(job['elements'], separators=(',', ':'))
    wrapper = ['examples.partial_observations:SelectElements', f'elements={shown}']
    return {'env': job['env'], 'wrapper': wrapper, 'seed': job['seed'], 'quiet': True, **job['settings']}


def main() -> None:
    """Run the job: env, elements, settings, steps, seed and episodes as JSON in the first argument."""
    job = json.loads(sys.argv[1])
    import xagents

    agent = xagents.make('ppo', **keywords(job))
    start, first, iterations = time.perf_counter(), 0, 0
    for log in agent.train_iter(max_steps=job['steps'], final_episodes=0, run_dir='none'):
        iterations, last = iterations + 1, int(log['steps'])
        if iterations == WARM_UP:
            start, first = time.perf_counter(), last
    timed = {'steps': last - first, 'seconds': time.perf_counter() - start}
    scores = {}
    if job['episodes']:
        scores = {'mean': agent.evaluate(job['episodes'], seed=EVALUATION_SEED)['mean']}
    agent.close()
    report({**timed, **scores}, PACKAGES)


if __name__ == '__main__':
    main()
