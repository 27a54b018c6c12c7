"""Runs that were written before the modules had rooms open, and go on as the code of then let them go on.

`data/` holds a few, each with what that code did next; `PYTHONPATH=<its checkout> python <this file>` made them.
"""

import contextlib
import importlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import xagents

with contextlib.suppress(ImportError):  # the code of then
    from xagents.envs.snapshots.read import present_name

DATA = Path(__file__).parent / 'data'
REPLAY = {'n_envs': 2, 'train_frequency': 8, 'buffer_initial_size': 32, 'buffer_max_size': 80, 'buffer_batch_size': 8}
NORMAL = {'normalize_obs': True, 'normalize_reward': True}
CASES = {
    'dqn': {**REPLAY, 'env': 'CartPole-v1', 'prioritized': True, 'n_step': 2, 'reward_buffer_size': 3},
    # what is in flight is a part of the last checkpoint
    'ddpg': {**REPLAY, **NORMAL, 'env': 'Pendulum-v1', 'noise': 'ornstein-uhlenbeck', 'overlap': True},
    'ppo': {**NORMAL, 'env': 'CartPole-v1', 'n_envs': 3, 'n_steps': 16, 'mini_batches': 2, 'lr_schedule': 'linear'},
}
STEPS = 96
COLLECTED = ('observations', 'actions', 'rewards', 'terminated', 'valid')


def go_on(folder):
    """Let a run go on; return what it collects and where it ends as arrays by name, and its counters and streams."""
    arrays = {}

    def collected(ctx):
        arrays.update({f'collected/{ctx.iteration}/{name}': np.array(ctx.batch[name]) for name in COLLECTED})

    with contextlib.closing(xagents.resume(folder, max_steps=STEPS + 48)) as agent:
        agent.fit(recipe=agent.recipe().after('collect', collected))
        state = agent.state()
    arrays |= {f'weights/{i}/{j}': w for i, model in enumerate(state.weights) for j, w in enumerate(model)}
    arrays |= {f'parts/{name}': array for name, array in state.arrays.items()}
    arrays['rewards'] = np.array(state.record['rewards'])
    counters = {name: value for name, value in state.record['counters'].items() if name != 'seconds'}
    return arrays, json.dumps({'counters': counters, 'rngs': state.record['rngs']}, sort_keys=True)


def make_all():
    """Write the runs and what comes next."""
    for name, options in CASES.items():
        shutil.rmtree(DATA / name, ignore_errors=True)
        (DATA / name).mkdir(parents=True)
        run, given = DATA / name / 'run', {'net': [6], 'seed': 5, 'final_episodes': 0, 'schedule_steps': 2 * STEPS}
        with contextlib.closing(xagents.make(name, run_dir=str(run), quiet=True, **{**given, **options})) as agent:
            agent.fit(max_steps=STEPS)
        (run / '.lock').unlink()
        shutil.rmtree(run / 'tensorboard')
        with tempfile.TemporaryDirectory() as folder:
            arrays, record = go_on(shutil.copytree(run, Path(folder) / 'run', symlinks=True))
        np.savez_compressed(DATA / name / 'next.npz', **arrays, record=np.array(record))


@pytest.mark.usefixtures('without_xla')
@pytest.mark.parametrize('name', CASES)
def test_an_old_run_goes_on_as_it_did(name, tmp_path, capsys):
    folder = shutil.copytree(DATA / name / 'run', tmp_path / 'run', symlinks=True)
    with np.load(DATA / name / 'next.npz') as file:
        expected = dict(file)
    arrays, record = go_on(folder)
    said = capsys.readouterr().out
    assert f'Resumed {folder} at step' in said and 'New episodes begin' not in said
    assert record == str(expected.pop('record'))
    assert arrays.keys() == expected.keys()
    for key, array in arrays.items():
        np.testing.assert_allclose(array, expected[key], rtol=1e-3, atol=1e-5, err_msg=key)  # machines round otherwise


# what snapshots of then name, of every module that has moved since
NAMES = (
    *('envpool_vector.EnvPoolVectorEnv', 'face.Envs', 'making.EnvMaker', 'spaces.Encoder', 'spaces.ActionDecoder'),
    *(f'vectors.{name}' for name in ('LoopVectorEnv', 'WorkerVectorEnv', 'WorkerMaker')),
    *(f'wrappers.{name}' for name in ('RawReward', 'EpisodicLife', 'FireReset', 'StickyActions', 'FrameStack')),
    *(f'wrappers.{name}' for name in ('ClipReward', 'EpisodeReport')),
)


@pytest.mark.parametrize('name', NAMES)
def test_what_an_old_snapshot_names_is_known(name):
    module, _, attribute = present_name(f'xagents.{name}').rpartition('.')
    assert getattr(importlib.import_module(module), attribute).__module__ == module


if __name__ == '__main__':
    make_all()
