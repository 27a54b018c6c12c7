"""What tests of run folders share."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from tests.small_agents import ENV
from xagents.checkpoints.state_files import read_state
from xagents.logs.metrics import read_metrics

LINE = f'train small --env {ENV} --n-envs 3 --n-steps 4 --mini-batches 1 --net 4 --seed 1 --quiet'
# what the clock makes
CLOCK = ('seconds/', 'steps_per_second')
# means since the last row; the clock decides how many iterations a row follows
SINCE_LAST_ROW = ('episode_length', 'success_rate', 'info/')
HOLDER = 'import fcntl, sys; f = open(sys.argv[1], "wb"); fcntl.flock(f, fcntl.LOCK_EX); print("held", flush=True)'


def contents(folder):
    """Everything in a folder but its lock: bytes by path, and where links point."""
    paths = [path for path in sorted(folder.rglob('*')) if path.name != '.lock']
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
        for p in paths
    }


@contextlib.contextmanager
def untouched(folder):
    """Whatever happens, a folder holds the same afterwards."""
    before = contents(folder)
    yield
    assert contents(folder) == before


def names(folder):
    return sorted(path.name for path in (folder / 'checkpoints').iterdir())


def cut(path, share):
    """Lose the end of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def link(folder, name):
    """Let a run go on from one of its checkpoints."""
    os.remove(folder / 'checkpoints' / 'last')
    os.symlink(name, folder / 'checkpoints' / 'last')


def stopping(agent, steps):
    """The default recipe, which says after so many steps that time is up."""

    def stop(ctx):
        if ctx.steps >= steps:
            ctx.stop = 'time'

    return agent.recipe().use(stop)


@contextlib.contextmanager
def held(folder):
    """Let another process run in a folder for a while."""
    words = [sys.executable, '-c', f'{HOLDER}; input()', str(folder / '.lock')]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == 'held\n'
        try:
            yield
        finally:
            process.communicate('\n')


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
    return history, metrics[[name for name in metrics if not name.startswith(CLOCK + SINCE_LAST_ROW)]]


def assert_same_run(whole, killed):
    """The last checkpoints, histories and metrics of two runs are equal to the bit."""
    assert differences(whole, killed) == []
    (history, metrics), (history_again, metrics_again) = rows(whole), rows(killed)
    pd.testing.assert_frame_equal(history, history_again, check_exact=True)
    both = metrics.merge(metrics_again, on='steps', suffixes=('', '_again'))
    assert len(both) and both['steps'].is_unique and metrics_again['steps'].is_unique
    for name in metrics.columns.drop('steps'):
        np.testing.assert_array_equal(both[name], both[f'{name}_again'], name)
