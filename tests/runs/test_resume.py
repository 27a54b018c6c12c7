"""A run that was stopped and goes on is, to the bit, the run that was never stopped."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import xagents
from xagents.factory.load import resume
from xagents.logs.metrics import read_metrics
from xagents.runs.checkpoints import read_state

# whatever has a state: normalisers, noise, priorities, schedules, replays, plateaus
CARTPOLE, PENDULUM = {'env': 'CartPole-v1'}, {'env': 'Pendulum-v1', 'buffer_initial_size': 100, 'train_frequency': 20}
NORMAL = {'normalize_obs': True}
SETTINGS = {
    'a2c': {**CARTPOLE, 'n_envs': 8, 'normalize_reward': True, 'optimizer': 'rmsprop'},
    'acer': {**CARTPOLE, **NORMAL, 'n_envs': 4, 'n_steps': 10, 'buffer_initial_size': 80},
    'ddpg': {**PENDULUM, **NORMAL, 'net': [16], 'noise': 'ornstein-uhlenbeck'},
    'dqn': {
        **{**CARTPOLE, 'n_envs': 2, 'buffer_initial_size': 100, 'buffer_max_size': 150, 'prioritized': True},
        **{'train_frequency': 16, 'target_sync_steps': 50, 'n_step': 3},
    },
    'hindsight': {
        **{'agent_id': 'dqn', 'env': 'benchmarks.envs.bits:BitFlip-v0', 'her': True, 'n_envs': 2, 'net': [16]},
        **{'buffer_initial_size': 50, 'buffer_max_size': 150, 'train_frequency': 16},
    },
    'ppo': {
        **{**CARTPOLE, **NORMAL, 'n_envs': 8, 'n_steps': 8, 'normalize_reward': True, 'lr_schedule': 'linear'},
        **{'divergence_monitoring_steps': 1, 'plateau_reduce_patience': 1, 'early_stop_patience': 1000},
    },
    'state-dependent': {
        **{'agent_id': 'ppo', 'env': 'Pendulum-v1', **NORMAL, 'n_envs': 4, 'n_steps': 8, 'net': [16]},
        **{'sde': True, 'sde_sample_frequency': 3, 'max_episode_steps': 30},
    },
    'td3': {**PENDULUM, 'net': [16], 'n_envs': 2},
    'trpo': {'env': 'MountainCarContinuous-v0', 'n_envs': 8, 'n_steps': 16, 'max_episode_steps': 40},
}
STEPS = 200
# what the clock makes
CLOCK = ('seconds/', 'steps_per_second')


def train(folder, agent_id, **run):
    agent = xagents.make(**{'agent_id': agent_id, 'schedule_steps': 2 * STEPS, 'seed': 7, **SETTINGS[agent_id]})
    agent.fit(max_steps=2 * STEPS, run_dir=str(folder), checkpoint_frequency=STEPS, quiet=True, save_seconds=1.0, **run)
    agent.close()
    return agent


def stopped_in_the_middle(folder, copy):
    """A copy of a finished run's folder as a kill in its middle would have left it: the files are ahead."""
    shutil.copytree(folder, copy, symlinks=True)
    middle = sorted(path.name for path in (copy / 'checkpoints').glob('step-*'))[0]
    os.remove(copy / 'checkpoints' / 'last')
    os.symlink(middle, copy / 'checkpoints' / 'last')
    return int(middle.removeprefix('step-'))


def differences(one, other):
    """Return what is not equal in the last checkpoints of two runs; times are no part of it."""
    a, b = (read_state(Path(folder) / 'checkpoints' / 'last') for folder in (one, other))
    found = [
        f'weights {i} {j}'
        for i, (m, n) in enumerate(zip(a.weights, b.weights, strict=True))
        for j, (x, y) in enumerate(zip(m, n, strict=True))
        if x.tobytes() != y.tobytes()
    ]
    found += sorted(a.arrays.keys() ^ b.arrays.keys())
    found += [
        name for name in a.arrays.keys() & b.arrays.keys() if a.arrays[name].tobytes() != b.arrays[name].tobytes()
    ]
    found += [name for name in ('rewards', 'rngs', 'environments', 'restarted') if a.record[name] != b.record[name]]
    counters = [{k: repr(v) for k, v in s.record['counters'].items() if k != 'seconds'} for s in (a, b)]
    return found + [k for k in counters[0] if counters[0][k] != counters[1][k]]


def rows(folder):
    history = pd.read_parquet(folder / 'history.parquet').drop(columns='time')
    metrics = read_metrics(folder / 'metrics.parquet')
    return history, metrics[[name for name in metrics if not name.startswith(CLOCK)]]


# every agent once, and one each way; what is in flight is more to save, not less
CASES = [('ppo', False), *((agent_id, agent_id in ('acer', 'dqn', 'ppo', 'td3')) for agent_id in SETTINGS)]


@pytest.mark.parametrize(('agent_id', 'overlap'), CASES)
def test_a_run_killed_in_the_middle_goes_on_as_if_it_had_never_stopped(agent_id, overlap, tmp_path, request):
    if (agent_id, overlap) != ('ppo', False):
        request.getfixturevalue('without_xla')  # compiling takes most of the time
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    train(whole, agent_id, overlap=overlap)
    step = stopped_in_the_middle(whole, killed)
    agent = resume(killed)
    assert agent.steps == step < 2 * STEPS
    agent.fit()
    agent.close()
    assert agent.steps >= 2 * STEPS
    assert differences(whole, killed) == []
    (history, metrics), (history_again, metrics_again) = rows(whole), rows(killed)
    pd.testing.assert_frame_equal(history, history_again, check_exact=True)
    both = metrics.merge(metrics_again, on='steps', suffixes=('', '_again'))
    assert len(both) and both['steps'].is_unique and metrics_again['steps'].is_unique
    for name in metrics:
        if name != 'steps':
            np.testing.assert_array_equal(both[name], both[f'{name}_again'], name)
