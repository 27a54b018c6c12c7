"""The reliability benchmark: comparisons of runs, losses, and some of its random lines."""

import json
import os
import random

import numpy as np
import pytest

from benchmarks.processes import Process
from benchmarks.reliability.compare import differences, row_differences
from benchmarks.reliability.fuzz import Tally, count, make_files
from benchmarks.reliability.kills import Kill, measure_loss
from xagents.checkpoints.state_files import AgentState, write_state
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter

# --------------------------------------------------------------------------------------------------------- comparisons


def state(weights=(1.0, 1.0), arrays=None, steps=100, **others):
    """Return a checkpoint with random times."""
    counters = {'steps': steps, 'mean_reward': float('nan'), 'seconds': random.random()}
    record = {'agent': 'ppo', 'options': {}, 'counters': counters, 'rewards': [1.0], 'rngs': {'a': 1}}
    arrays = {'replay/rows': np.arange(4)} if arrays is None else arrays
    models = [[np.arange(3.0)], [np.array(weights)]] if weights else [[np.arange(3.0)]]
    return AgentState(models, arrays, {**record, 'restarted': False, 'environments': None, **others})


def write_history(run_dir, values):
    with HistoryWriter(run_dir / 'history.parquet') as history:
        history.append([(float(i), 0.0, float(value), 10 * i, random.random()) for i, value in enumerate(values)])


@pytest.fixture
def folder(tmp_path):
    """A function that makes a run directory as a training does."""

    def make(name, steps=100, rows=3, **changes):
        run_dir = tmp_path / name
        (run_dir / 'checkpoints').mkdir(parents=True)
        (run_dir / 'config.yaml').write_text('agent: ppo\nenv: CartPole-v1\n')
        status = {'state': 'finished', 'pid': 1, 'host': 'x', 'updated': '2026-01-02T00:00:00+00:00'}
        (run_dir / 'status.json').write_text(json.dumps(status))
        write_state(run_dir / 'checkpoints' / f'last-{steps}', state(**{'steps': steps, **changes}))
        (run_dir / 'checkpoints' / 'last').symlink_to(f'last-{steps}')
        write_history(run_dir, range(rows))
        metrics = MetricsWriter(run_dir / 'metrics.parquet')
        for i in range(rows):
            metrics.write(10 * i, {'loss': i / 3, 'seconds/env': random.random()})
        metrics.close()
        return run_dir

    return make


def test_equal_runs_have_no_differences(folder):
    one, other = folder('one'), folder('other')
    assert differences(one, other) == [] and row_differences(one, other) == []
    assert row_differences(one, folder('longer', rows=4)) == ['history: 3 and 4 rows']
    write_history(one, [0, 1, 3])
    metrics = MetricsWriter(one / 'metrics.parquet', resume=True)
    metrics.truncate_after(10)
    metrics.write(20, {'loss': 0.6667})
    metrics.close()
    assert row_differences(one, other) == ['history: row 2', 'metrics: loss']
    assert differences(one, folder('third', weights=(1.0, np.nextafter(1.0, 2.0)))) == ['weights 1 0']
    (one / 'checkpoints' / 'best').symlink_to('last-100')
    assert differences(one, other) == ['best: only one run has it']
    write_state(other / 'checkpoints' / 'best-9', state(weights=(1.0, 0.0)))
    (other / 'checkpoints' / 'best').symlink_to('best-9')
    assert differences(one, other) == ['best 1 0']


# --------------------------------------------------------------------------------------------------------------- kills


def process(*moments, start=1000.0):
    run = Process(None, None)
    run.lines = [(start, {'event': 'start'}), *((when, {'event': 'status', 'steps': n}) for when, n in moments)]
    return run


def test_the_loss_is_what_was_reported_since_the_last_checkpoint(folder):
    run_dir = folder('run', steps=500)
    os.utime(run_dir / 'checkpoints' / 'last' / 'state.npz', (1010.0, 1010.0))
    kill = Kill('ppo', 'any')
    measure_loss(run_dir, kill, process((1005.0, 300), (1006.0, 400), (1012.5, 900)), 1000.0, 1013.0)
    assert (kill.saved, kill.reported, kill.lost, kill.seconds, kill.silence) == (500, 900, 400, 3.0, 6.5)
    assert kill.beyond(2.0) == 0.0 and kill.shown == 2.5
    kill.silence = 0.25
    assert kill.beyond(2.0) == 0.75
    # the first iteration, which compiles, counts if nothing was saved after it
    measure_loss(run_dir, kill := Kill('ppo', 'first save'), process((1035.0, 700)), 1015.0, 1035.5)
    assert (kill.seconds, kill.shown, kill.silence) == (20.5, 20.0, 20.0) and kill.beyond(2.0) == 0.0
    # without training nothing can be lost
    kill = Kill('ppo', 'start', reported=700)
    measure_loss(run_dir, kill, process(), None, 1013.0)
    assert kill.lost == 0 and kill.beyond(0.0) == 0.0


# --------------------------------------------------------------------------------------------------------------- tables


# ---------------------------------------------------------------------------------------------------------------- fuzz


@pytest.mark.slow
def test_random_lines_end_well(tmp_path, monkeypatch):
    from xagents.cli import dispatch as cli

    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path, trained=False)
    tally = Tally()
    count(number := 250, 7, tally, 'xagents.factory.make.create_envs')
    assert sum(tally.codes.values()) == number and tally.problems == {}
    # some lines of each type must pass, and some must be refused
    for kind in ('line', 'cfg', 'yaml'):
        assert tally.codes.get(f'{kind} begun', 0) >= number / 100 and tally.codes[f'{kind} 2'] >= number / 20
