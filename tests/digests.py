# ruff: noqa: E402 -- threads are set before NumPy is loaded
"""What must not change when the code is rearranged: digests of seeded runs and of help pages.

    python tests/digests.py --out after.json [--only ppo] [--quick]
    python tests/digests.py --compare before.json after.json

A run's digest is that of its newest checkpoint (weights, optimiser, statistics, random streams, counters, all but the
clock), its history and its metrics. Two checkouts give equal ones on the same machine with the same versions:
`PYTHONPATH=<checkout> python <this file> …` asks another one. Only the public interface is used.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

for variable in ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS'):
    os.environ.setdefault(variable, '1')
os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')

import gymnasium
import numpy as np
import pandas as pd
from gymnasium import spaces

import xagents

AGENTS = ('a2c', 'acer', 'ddpg', 'dqn', 'ppo', 'td3', 'trpo')
COMMANDS = ('train', 'play', 'tune', 'evaluate', 'record', 'explore', 'export', 'runs', 'plot', 'presets', 'completion')
CLOCKS = ('time', 'steps_per_second')


class Square(gymnasium.Env):
    """A white square in an image, to be pointed at."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self._show(), {}

    def step(self, action):
        reward, self.age = float(action == self.place), self.age + 1
        return self._show(), reward, False, self.age == 10, {}

    def _show(self):
        self.place = int(self.np_random.integers(3))
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[:, 12 * self.place : 12 * self.place + 12] = 255
        return picture


gymnasium.register('Square-v0', Square)

ON_POLICY = {'env': 'CartPole-v1', 'n_envs': 8, 'n_steps': 32, 'steps': 1024}
NORMAL = {'normalize_obs': True, 'normalize_reward': True}
DISCRETE = {'env': 'CartPole-v1', 'n_envs': 4, 'train_frequency': 16, 'buffer_initial_size': 128, 'steps': 640}
CONTINUOUS = {'env': 'Pendulum-v1', 'n_envs': 2, 'train_frequency': 16, 'buffer_initial_size': 96, 'steps': 480}
CONTINUOUS |= {'net': [32, 32], 'buffer_max_size': 400}
OVERLAP = {'overlap': True}
PICTURES = {'env': 'Square-v0', 'n_envs': 4, 'n_steps': 16, 'steps': 192, 'shared_network': False}
CASES = {
    'a2c': {**ON_POLICY, 'n_steps': 5, 'steps': 400},
    'a2c-pendulum': {**ON_POLICY, **NORMAL, 'env': 'Pendulum-v1', 'n_steps': 16},
    'ppo': {**ON_POLICY, 'eval_frequency': 600, 'eval_episodes': 3},
    'ppo-loop': {**ON_POLICY, 'n_envs': 3, 'vector': 'sync', 'net': [16], 'target_kl': 0.01, 'reward_scale': 0.5},
    'ppo-pendulum': {**ON_POLICY, **NORMAL, 'env': 'Pendulum-v1', 'final_episodes': 2, 'value_clip': 0.2},
    'ppo-overlap': {**ON_POLICY, **OVERLAP},
    'ppo-overlap-normal': {**ON_POLICY, **OVERLAP, **NORMAL, 'env': 'Pendulum-v1'},
    'ppo-pictures': PICTURES,
    'ppo-pictures-overlap': {**PICTURES, **OVERLAP},
    'trpo': {**ON_POLICY, **NORMAL},
    'trpo-pendulum': {**ON_POLICY, 'env': 'Pendulum-v1'},
    'acer': {**ON_POLICY, 'net': [32], 'buffer_initial_size': 512, 'trust_region': True},
    'acer-normal': {**ON_POLICY, **NORMAL, 'net': [32], 'buffer_initial_size': 512},
    'acer-overlap': {**ON_POLICY, **OVERLAP, 'net': [32], 'buffer_initial_size': 512},
    'acer-overlap-normal': {**ON_POLICY, **OVERLAP, **NORMAL, 'net': [32], 'buffer_initial_size': 512},
    'dqn': {**DISCRETE, 'checkpoint_frequency': 300, 'keep': 1},
    'dqn-all': {
        **DISCRETE,
        **NORMAL,
        'double': True,
        'dueling': True,
        'prioritized': True,
        'n_step': 3,
        'huber': True,
        'schedule_steps': 1280,
    },
    'dqn-overlap': {**DISCRETE, **OVERLAP},
    'dqn-overlap-normal': {**DISCRETE, **OVERLAP, **NORMAL, 'prioritized': True, 'schedule_steps': 1280},
    'ddpg': {**CONTINUOUS, 'noise': 'ornstein-uhlenbeck'},
    'ddpg-overlap': {**CONTINUOUS, **OVERLAP, **NORMAL, 'noise': 'ornstein-uhlenbeck'},
    'dqn-quantile': {**DISCRETE, 'distribution': 'quantile', 'noisy': True},
    'pqn': {**ON_POLICY, 'net': [32]},
    'sac': {**CONTINUOUS, 'n_step': 2},
    'sac-sde': {**CONTINUOUS, **NORMAL, 'sde': True},
    'tqc': CONTINUOUS,
    'crossq': CONTINUOUS,
    'td3': {**CONTINUOUS, **NORMAL},
    'td3-overlap': {**CONTINUOUS, **OVERLAP},
}
TEAM_PPO = {'agent': 'ppo', 'n_steps': 16, 'normalize_obs': True, 'normalize_reward': True}
TEAM_TD3 = {'agent': 'td3', 'fragment_steps': 16, 'buffer_max_size': 400, 'learning_starts': 100}
TEAM_TD3 |= {'buffer_batch_size': 8, 'train_frequency': 24, 'gradient_steps': 1}
TEAM = {'env': 'pettingzoo:tests.team_problems:Unlike', 'n_envs': 3, 'net': [8], 'steps': 600}
TEAM_POLICIES = {'walkers': {**TEAM_PPO, 'agents': 'a_*'}, 'last': {**TEAM_TD3, 'agents': 'z'}}
CASES['ppo-eval-async'] = {**CASES['ppo'], 'eval_async': True}
CASES['team'] = {**TEAM, 'policies': TEAM_POLICIES, 'eval_frequency': 400, 'eval_episodes': 2}
SEARCHED = {'lr': [1e-4, 1e-2], 'n_steps': [16, 32], 'n_envs': 4, 'net': [8], 'seed': 3, 'quiet': True}
# commands that train in processes of their own, for one and for two of them
SEARCHES = {'tune': {'n_trials': 4, 'trial_steps': 1024, 'warmup_trials': 1}, 'population': {'population': 3}}
SEARCHES['population'] |= {'trial_steps': 1024, 'exploit_steps': 512}
QUICK = ('ppo-loop',)


def of_arrays(arrays):
    """Return one digest of arrays by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f'{name} {array.dtype} {array.shape}\n'.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def of_record(record):
    """Return one digest of what JSON holds."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def of_table(path):
    """Return the digest of a parquet file without its clocks."""
    frame = pd.read_parquet(path)
    return of_arrays({name: frame[name].to_numpy() for name in frame.columns if name not in CLOCKS})


def of_logs(logs, beyond):
    """Return the digest of the logs of the iterations that ended beyond a step, without their clocks."""
    kept = [log for log in logs if log['steps'] > beyond]
    plain = [{k: v for k, v in log.items() if k not in CLOCKS and not k.startswith('seconds/')} for log in kept]
    return of_record([{k: float(v).hex() for k, v in log.items()} for log in plain])


def of_run(folder):
    """Return the digests of how a run in a folder stands."""
    last = folder / 'checkpoints' / 'last'
    with np.load(last / 'state.npz') as file:
        arrays = dict(file)
    record = json.loads((last / 'state.json').read_text())
    counters = {name: value for name, value in record['counters'].items() if name != 'seconds'}
    environments = {name: arrays.pop(name) for name in list(arrays) if name.startswith('environments/')}
    flight = {name: arrays.pop(name) for name in list(arrays) if name.startswith('in_flight/')}
    return {
        'arrays': of_arrays(arrays),
        'in_flight': of_arrays(flight),
        'environments': of_arrays(environments),
        'rngs': of_record(record['rngs']),
        'rewards': of_record(record['rewards']),
        'counters': of_record(counters),
        'steps': counters['steps'],
        'history': of_table(folder / 'history.parquet'),
    }


def of_case(name, folder):
    """Return the digests of a case after N, 2N and N + stop + N steps, and of what its agent does then."""
    options = dict(CASES[name])
    steps, env = options.pop('steps'), options.pop('env')
    # every iteration's metrics are wanted, and the history as the checkpoint has it
    options = {'final_episodes': 0, **options, 'seed': 7, 'quiet': True, 'save_seconds': 0}
    found = {}

    def run(agent, folder, n):
        with contextlib.closing(agent):
            logs = list(agent.train_iter(max_steps=n))
            found_here = of_run(folder)
            found_here['logs'] = of_logs(logs, found['N']['steps'] if found else 0)
            if n > steps:
                found_here['evaluate'] = of_record(agent.evaluate(3, seed=5))
                found_here['stochastic'] = of_record(agent.evaluate(3, stochastic=True, seed=5))
        return found_here

    agent_id, policies = name.partition('-')[0], options.pop('policies', {})

    def make(folder):
        if policies:
            return xagents.team(env, run_dir=str(folder), **policies, **options)
        return xagents.make(agent_id, env, run_dir=str(folder), **options)

    found['N'] = run(make(folder / 'a'), folder / 'a', steps)
    found['N+N'] = run(xagents.resume(folder / 'a'), folder / 'a', 2 * steps)
    found['2N'] = run(make(folder / 'b'), folder / 'b', 2 * steps)
    return found


def of_search(name, folder):
    """Return the digests of a study, or of a population, by the number of its worker processes."""
    found = {}
    for jobs in (1, 2):
        options = {**SEARCHED, **SEARCHES[name], 'n_jobs': jobs}
        if name == 'tune':
            # a sampler that ignores results, because two processes report them in any order
            trials = xagents.tune('ppo', 'CartPole-v1', sampler='random', pruner='none', **options).trials
            values = [[trial.number, trial.params, trial.value, trial.state.name] for trial in trials]
            found[str(jobs)] = of_record(values)
            continue
        best = Path(xagents.evolve('ppo', 'CartPole-v1', out=str(folder / str(jobs)), **options))
        found[str(jobs)] = {'best': best.resolve().name, **of_run(best)}
    return found


def of_pages():
    """Return the digests of the help pages."""
    from xagents.cli import execute

    pages = {}
    lines = [[], *([command, '--help'] for command in COMMANDS)]
    with_agent = ('train', 'play', 'tune', 'evaluate', 'record', 'export')
    lines += [[command, agent] for command in with_agent for agent in AGENTS]
    for line in lines:
        page = io.StringIO()
        with contextlib.redirect_stdout(page):
            execute(line)
        pages[' '.join(line) or 'usage'] = hashlib.sha256(page.getvalue().encode()).hexdigest()[:16]
    return pages


def compare(before, after):
    """Print where two files of digests differ; return how many places do."""
    old, new = (json.loads(Path(path).read_text()) for path in (before, after))
    differ = 0
    for case in sorted({*old, *new}):
        flat = [_flat(side.get(case, {})) for side in (old, new)]
        for key in sorted({*flat[0], *flat[1]}):
            if flat[0].get(key) != flat[1].get(key):
                differ += 1
                print(f'{case} {key}: {flat[0].get(key)} {flat[1].get(key)}')
    print(f'{differ} differences')
    return differ


def _flat(tree, prefix=''):
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, part in tree.items() for k, v in _flat(part, f'{prefix}/{name}'.strip('/')).items()}


def main():
    """Make digests, or compare two files of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--out')
    parser.add_argument('--only', nargs='*')
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--compare', nargs=2)
    typed = parser.parse_args()
    os.environ['COLUMNS'] = '100'  # of help pages
    if typed.compare:
        sys.exit(bool(compare(*typed.compare)))
    names = QUICK if typed.quick else typed.only or [*CASES, *SEARCHES, 'pages']
    found = {}
    for name in names:
        if name == 'pages':
            found[name] = of_pages()
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[name] = case = (of_search if name in SEARCHES else of_case)(name, Path(folder))
        if name in SEARCHES:
            print(name, 'same with two processes' if case['1'] == case['2'] else 'one and two processes differ')
            continue
        print(name, 'exact' if case['N+N'] == case['2N'] else 'RESUME DIFFERS', flush=True)
    text = json.dumps(found, indent=1)
    if typed.out:
        Path(typed.out).write_text(text + '\n')
    else:
        print(text)


if __name__ == '__main__':
    main()
