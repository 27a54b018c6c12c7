"""Print the mean returns of simple rules for the queues of `queueing.py`.

    python queueing_rules.py
    python queueing_rules.py 1,4,1

The argument replaces the parameter `cost`.
"""

import sys

import numpy as np

import xagents


def served(values: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Return for each state [n, 3] the non-empty queue with the greatest value; values [3] or [n, 3]."""
    return np.argmax(np.where(state > 0, values, -1), 1)


def main(**params: object) -> None:
    """Print the mean return of each rule in 4096 episodes."""
    generator = np.random.default_rng(0)
    with xagents.create_envs('queueing:Queueing', 4096, env_kwargs=params, vector='compiled') as envs:
        values = envs.functional_vector.params
        cost, service = values['cost'], values['service']
        rules = {
            'a random queue': lambda state: generator.integers(3, size=len(state)),
            'the longest queue': lambda state: served(state, state),
            'the greatest cost': lambda state: served(cost, state),
            'the fastest service': lambda state: served(service, state),
            'the greatest cost x service': lambda state: served(cost * service, state),
        }
        for name, rule in rules.items():
            state = envs.reset(0)
            while not (episodes := envs.pop_episodes()):
                state, *_ = envs.step(rule(state))
            print(f'{name:30}{np.mean([episode.reward for episode in episodes]):8.0f}')


if __name__ == '__main__':
    main(**({'cost': [float(x) for x in sys.argv[1].split(',')]} if sys.argv[1:] else {}))
