"""Train an agent of xagents on a data set, or read the policy of another library, and evaluate it."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workers.d3rlpy_worker import EPOCH, policy_of
from benchmarks.workers.measure import report
from benchmarks.workers.settings import translate

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
EVALUATION_SEED = 0


COMMON = 'lr opt_epsilon=optimizer_epsilon buffer_batch_size=batch_size normalize_obs=standardise'
NAMES = {
    'bc': COMMON,
    'td3-bc': f'{COMMON} gamma tau alpha policy_delay policy_noise_coef=policy_noise noise_clip',
    'iql': f'{COMMON} gamma tau expectile inverse_temperature=temperature max_weight',
}


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `xagents.make` for the settings of both libraries."""
    return {**translate(settings, NAMES[settings['algorithm']]), 'net': list(settings['units']), 'activation': 'relu'}


def play(act: Callable[[np.ndarray], np.ndarray], env: str, episodes: int) -> dict[str, float]:
    """Play one episode from each of so many starts, which are the same for every library and seed."""
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
    """Run the updates, and time those after the first, which include compiling; return times and the policy."""
    import xagents

    # xagents chooses one thread for dense networks
    settings = job['settings']
    keywords = {**arguments(settings), 'seed': job['seed'], 'quiet': True}
    agent = xagents.make(settings['algorithm'], dataset=job['dataset'], **keywords)
    start = spent = seconds = cpu_seconds = 0.0
    first = last = 0
    # no evaluations: the last weights are measured
    for log in agent.train_iter(max_steps=job['updates'], eval_frequency=10**9, final_episodes=0):
        last = int(log['updates'])
        if start:
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - spent
        elif last >= EPOCH:
            first, start, spent = last, time.perf_counter(), time.process_time()
    if last != job['updates']:
        raise SystemExit(f'{last} updates, expected {job["updates"]}')
    return {'updates': last - first, 'seconds': seconds, 'cpu_seconds': cpu_seconds}, agent.act


def main() -> None:
    """Run the job, JSON in the first argument; with `policy`, only evaluate that policy."""
    job = json.loads(sys.argv[1])
    if 'policy' in job:
        with np.load(job['policy']) as policy:
            report(play(policy_of(policy), job['env'], job['episodes']), PACKAGES)
        return
    timed, act = train(job)
    report({**timed, **play(act, job['env'], job['episodes'])}, PACKAGES)


if __name__ == '__main__':
    main()
