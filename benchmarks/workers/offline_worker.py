"""Trains one of our agents on a data set, or takes a policy that another library has written, and plays with it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workers.d3rlpy_worker import EPOCH, acting
from benchmarks.workers.measure import report

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
EVALUATION_SEED = 0


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `xagents.make` for the settings that both libraries get."""
    keywords: dict[str, Any] = {
        'net': list(settings['units']),
        'activation': 'relu',
        'lr': settings['lr'],
        'opt_epsilon': settings['optimizer_epsilon'],
        'buffer_batch_size': settings['batch_size'],
        'normalize_obs': settings['standardise'],
    }
    if settings['algorithm'] == 'bc':
        return keywords
    keywords |= {'gamma': settings['gamma'], 'tau': settings['tau']}
    if settings['algorithm'] == 'td3-bc':
        return keywords | {
            'alpha': settings['alpha'],
            'policy_delay': settings['policy_delay'],
            'policy_noise_coef': settings['policy_noise'],
            'noise_clip': settings['noise_clip'],
        }
    return keywords | {
        'expectile': settings['expectile'],
        'inverse_temperature': settings['temperature'],
        'max_weight': settings['max_weight'],
    }


def play(act: Callable[[np.ndarray], np.ndarray], env: str, episodes: int) -> dict[str, float]:
    """Play one episode from each of so many starts, the same ones for every library and seed."""
    import gymnasium as gym

    envs = gym.make_vec(env, num_envs=episodes, vectorization_mode='sync')
    low, high = envs.single_action_space.low, envs.single_action_space.high
    observations, _ = envs.reset(seed=[EVALUATION_SEED + k for k in range(episodes)])
    returns, playing = np.zeros(episodes), np.ones(episodes, bool)
    while playing.any():
        actions = np.clip(act(observations), low, high).astype(low.dtype)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += np.where(playing, rewards, 0)
        playing &= ~(terminated | truncated)
    envs.close()
    return {'mean': float(returns.mean()), 'std': float(returns.std()), 'episodes': episodes}


def train(job: dict[str, Any]) -> tuple[dict[str, float], Callable[[np.ndarray], np.ndarray]]:
    """Make the updates, and time those after the first, which are compiled meanwhile; return how the agent acts."""
    import xagents

    # threads are those that it chooses for dense networks: one
    settings = job['settings']
    keywords = {**arguments(settings), 'seed': job['seed'], 'quiet': True}
    agent = xagents.make(settings['algorithm'], dataset=job['dataset'], **keywords)
    start = spent = seconds = cpu_seconds = 0.0
    first = last = 0
    # neither played nor compared meanwhile: what is measured are the last weights
    for log in agent.train_iter(max_steps=job['updates'], eval_frequency=10**9, final_episodes=0):
        last = int(log['updates'])
        if start:
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - spent
        elif last >= EPOCH:
            first, start, spent = last, time.perf_counter(), time.process_time()
    if last != job['updates']:
        raise SystemExit(f'{last} updates, and {job["updates"]} were asked for')
    return {'updates': last - first, 'seconds': seconds, 'cpu_seconds': cpu_seconds}, agent.act


def main() -> None:
    """Do the job: one JSON object in the first argument; with `policy`, only play with that one."""
    job = json.loads(sys.argv[1])
    if 'policy' in job:
        with np.load(job['policy']) as policy:
            report(play(acting(policy), job['env'], job['episodes']), PACKAGES)
        return
    timed, act = train(job)
    report({**timed, **play(act, job['env'], job['episodes'])}, PACKAGES)


if __name__ == '__main__':
    main()
