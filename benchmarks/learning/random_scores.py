"""Measure the scores of a random policy: `python -m benchmarks.learning.random_scores`.

Writes xagents/reports/reference_scores.yaml; its comments stay. The reference score of an environment is the best
published score of the presets, or the best measured median if none is published. `--quick` writes nothing.
"""

import argparse
import sys

import gymnasium as gym
import numpy as np
import yaml

from xagents.factory.presets import ATARI, Preset, find_score, list_presets
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.reports.reference_scores import FILE

EPISODES = 100
# Wang et al. (2016), arXiv:1511.06581: a random policy and a human tester; the games with published scores of presets
GAMES = {
    **{'Asteroids': (719.1, 47388.7), 'BeamRider': (363.9, 16926.5), 'Breakout': (1.7, 30.5), 'Enduro': (0.0, 860.5)},
    **{'MsPacman': (307.3, 6951.6), 'Pong': (-20.7, 14.6), 'Qbert': (163.9, 13455.0), 'RoadRunner': (11.5, 7845.0)},
    **{'Seaquest': (68.4, 42054.7), 'SpaceInvaders': (148.0, 1668.7)},
}


def random_return(env_id: str, episodes: int) -> float:
    """Return the mean return of uniformly random actions."""
    env = gym.make(env_id)
    env.action_space.seed(0)
    returns = []
    for episode in range(episodes):
        env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return float(np.mean(returns))


def reference_score(presets: list[Preset]) -> tuple[float, str] | None:
    """Return the reference score of an environment and its source: a preset and `published` or `measured`."""
    published = [
        (preset.published, f'published for {preset.agent}') for preset in presets if preset.published is not None
    ]
    measured = [(score.median, f'measured for {p.agent}') for p in presets if (score := find_score(p)) is not None]
    return max(published or measured, default=None)


def main() -> None:
    """Measure all environments of the presets and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true', help='10 episodes; print the table and write nothing')
    quick = parser.parse_args().quick
    by_env: dict[str, list[Preset]] = {}
    for agent_id in BUILTIN_AGENTS:
        for preset in list_presets(agent_id):
            if preset.env != ATARI:
                by_env.setdefault(preset.env, []).append(preset)
    entries = {}
    for env_id, presets in sorted(by_env.items()):
        found = reference_score(presets)
        if found is None:
            continue
        score = round(random_return(env_id, 10 if quick else EPISODES), 2)
        entries[env_id] = {'random': score, 'reference': round(found[0], 2), 'source': found[1]}
        print(env_id, entries[env_id], file=sys.stderr, flush=True)
    entries |= {game: {'random': low, 'reference': high, 'source': 'human'} for game, (low, high) in GAMES.items()}
    lines = [
        f'{name}: {yaml.safe_dump(entry, default_flow_style=True, sort_keys=False)}' for name, entry in entries.items()
    ]
    if quick:
        print(''.join(lines))
        return
    comments = [line for line in FILE.read_text().splitlines(keepends=True) if line.startswith('#')]
    FILE.write_text(''.join([*comments, *lines]))


if __name__ == '__main__':
    main()
