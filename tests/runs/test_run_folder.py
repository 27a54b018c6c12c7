"""The folder of a run: what stands in it, who may write there, and which checkpoints can be named."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pandas as pd
import pytest
import yaml

from tests.runs.folders import LINE, held, link, names, untouched
from tests.small_agents import ENV, make, weights
from xagents.checkpoints.state_files import read_state
from xagents.checkpoints.status import is_locked, read_status, take_lock
from xagents.config.configuration import read_config
from xagents.factory.load import load, resume
from xagents.logs.metrics import read_metrics
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('small_agents', 'disks_are_not_waited_for')


def test_what_stands_in_a_folder_after_a_short_run(finished):
    folder, agent = finished
    top = {path.name for path in folder.iterdir()}
    assert top - {'tensorboard', '.lock'} == {
        'checkpoints', 'config.yaml', 'history.parquet', 'metrics.parquet', 'status.json',
    }  # fmt: skip
    links = {link: os.readlink(folder / 'checkpoints' / link) for link in ('best', 'last')}
    assert not any(os.path.isabs(target) for target in links.values())  # the folder may be moved
    # the newest state names the best weights it goes on with; the last evaluation may have chosen others
    named = read_state(folder / 'checkpoints' / 'last').record['best']
    assert set(names(folder)) == {'best', 'last', *links.values(), named}
    for name in {*links.values(), named}:
        files = {p.name for p in (folder / 'checkpoints' / name).iterdir()}
        assert files == {'state.json', 'state.npz', 'plan.json', 'policy.npz'}
    status = read_status(folder)
    assert (status['state'], status['why'], status['steps']) == ('finished', 'steps', agent.steps)
    assert status['games'] == agent.games and status['pid'] == os.getpid()
    assert status['best_reward'] == agent.best_reward and status['seconds'] > 0
    config = read_config(folder)
    assert (config['agent'], config['env'], config['seed'], config['n_steps']) == ('small', ENV, 1, 4)
    assert config['max_steps'] == 200 and 'run_dir' not in config
    about = yaml.safe_load((folder / 'config.yaml').read_text())['about']
    assert {'command', 'started', 'versions'} == about.keys()
    assert {'xagents', 'python', 'tensorflow', 'numpy'} <= about['versions'].keys()
    history = pd.read_parquet(folder / 'history.parquet')
    assert len(history) == agent.games and read_metrics(folder / 'metrics.parquet')['steps'].iloc[-1] == agent.steps


@pytest.mark.parametrize('frequency, keep', [(40, None), (40, 2), (7, 3), (1_000, None)])
def test_checkpoints_that_stay(frequency, keep, tmp_path):
    agent = make()
    given = {'run_dir': str(tmp_path / 'run'), 'checkpoint_frequency': frequency, 'final_episodes': 0}
    steps = [int(log['steps']) for log in agent.train_iter(max_steps=150, keep=keep, **given)]
    before = [0, *steps[:-1]]
    crossing = [after for first, after in zip(before, steps, strict=True) if after // frequency > first // frequency]
    expected = [f'step-{step:012d}' for step in (crossing if keep is None else crossing[-keep:])]
    staying = [name for name in names(tmp_path / 'run') if name.startswith('step-')]
    assert staying == expected
    last = os.readlink(tmp_path / 'run' / 'checkpoints' / 'last')
    assert last == (expected[-1] if crossing and crossing[-1] == steps[-1] else f'last-{steps[-1]:012d}')
    for name in staying:
        assert load(tmp_path / 'run', name).steps == int(name.removeprefix('step-'))


def test_going_on_from_a_checkpoint_that_stayed(tmp_path):
    folder = tmp_path / 'run'
    agent = make()
    after = {}
    recipe = agent.recipe().use(lambda ctx: after.update({ctx.steps: weights(agent)}))
    given = {'run_dir': str(folder), 'checkpoint_frequency': 40, 'final_episodes': 0}
    agent.fit(max_steps=150, recipe=recipe, **given)
    stayed = [name for name in names(folder) if name.startswith('step-')]
    whole = pd.read_parquet(folder / 'history.parquet').drop(columns='time')
    link(folder, stayed[1])
    again = resume(folder)
    assert again.steps == int(stayed[1].removeprefix('step-')) and weights(again) == after[again.steps]
    again.fit()
    assert weights(again) == weights(agent)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / 'history.parquet').drop(columns='time'), whole)
    # what was written anew takes the place of what was there
    assert [name for name in names(folder) if name.startswith('step-')] == stayed


def test_any_checkpoint_can_be_named(tmp_path, typed, refused):
    folder = tmp_path / 'run'
    make().fit(max_steps=200, run_dir=str(folder), checkpoint_frequency=60, final_episodes=0)
    names = [path.name for path in (folder / 'checkpoints').glob('step-*')]
    assert len(names) > 1
    for name in names:
        assert load(folder, name).context.steps == int(name.split('-')[1])
        assert typed(f'evaluate small --run-dir {folder} --checkpoint {name} --episodes 1')[0] == 0
    for name in ('', '.', '..', '../checkpoints/last', 'step-1'):
        with pytest.raises(
            OptionError, match=r'^checkpoint: got .*, expected one of best, last, (best-|last-|step-)'
        ) as error:
            load(folder, name)
        assert '\n' not in str(error.value)
    refused(f'evaluate small --run-dir {folder} --checkpoint {names[0]}0', f'did you mean {names[0]}?')


def test_best_is_what_evaluated_best_and_last_is_the_last(tmp_path):
    folder = tmp_path / 'run'
    agent, means, after = make(lr=0.5), {}, {}

    def note(ctx):
        if 'evaluate/mean' in ctx.logs:
            means[ctx.steps], after[ctx.steps] = ctx.logs['evaluate/mean'], weights(agent)

    recipe = agent.recipe().after('evaluate', note)
    agent.fit(max_steps=200, recipe=recipe, run_dir=str(folder), eval_frequency=24, eval_episodes=4)
    assert len(means) > 5 and len(set(means.values())) > 1
    step = max(means, key=lambda s: (means[s], -s))  # the first one of the best
    best = load(folder)
    assert weights(best) == after[step] and best.steps == step
    assert weights(load(folder, 'last')) == weights(agent)
    assert best.evaluate(4, seed=agent.streams.derive_seed('evaluate', step))['mean'] == means[step]


# ------------------------------------------------------------------------------------------------- who may write there


def test_a_second_process_is_refused(copied, typed, refused):
    line = f'train small --resume {copied} --max-steps 300'
    with held(copied), untouched(copied):
        refused(line, f'{copied}: another process is running')
        assert load(copied).steps > 0  # who only reads needs no lock
    code, _, said = typed(line)
    assert (code, said) == (0, [])


def test_runs_one_after_another_in_one_process(tmp_path):
    first, second = tmp_path / 'first', tmp_path / 'second'
    agent, other = make(), make()
    agent.fit(max_steps=50, run_dir=str(first))
    assert not is_locked(first)
    other.fit(max_steps=50, run_dir=str(second))
    agent.fit(max_steps=100, run_dir=str(first))  # its own folder again
    assert load(first, 'last').steps == agent.steps >= 100
    with pytest.raises(OptionError, match=f'{second} already contains a run'):
        agent.fit(max_steps=150, run_dir=str(second))
    agent.fit(max_steps=150, run_dir=str(tmp_path / 'third'))  # a new one begins with what it knows
    assert load(tmp_path / 'third', 'last').steps == agent.steps >= 150
    iterator = agent.train_iter(max_steps=500, run_dir=str(tmp_path / 'third'))
    next(iterator)
    assert is_locked(tmp_path / 'third')
    with pytest.raises(OptionError, match='another process'):
        resume(tmp_path / 'third')
    iterator.close()
    assert not is_locked(tmp_path / 'third')


def test_a_run_that_no_process_holds_was_killed(copied):
    status = json.loads((copied / 'status.json').read_text())
    with subprocess.Popen([sys.executable, '-c', '']) as gone:
        gone.wait()
    (copied / 'status.json').write_text(json.dumps({**status, 'state': 'running', 'pid': gone.pid}))
    assert read_status(copied)['state'] == 'killed'
    (copied / 'status.json').write_text(json.dumps({**status, 'state': 'running'}))
    with held(copied):
        assert read_status(copied)['state'] == 'running'
    (copied / 'status.json').write_text('{')
    with pytest.raises(ValueError, match=r'status\.json is not readable') as error:
        read_status(copied)
    assert '\n' not in str(error.value)


def test_who_only_looks_keeps_nobody_out(tmp_path):
    looking = threading.Event()

    def look():
        while not looking.is_set():
            is_locked(tmp_path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(200):
            take_lock(tmp_path).close()
    finally:
        looking.set()
        watcher.join()


def test_a_folder_that_holds_a_run_is_refused_and_one_that_does_not(copied, refused, tmp_path):
    with untouched(copied):
        refused(f'{LINE} --max-steps 60 --run-dir {copied}', f'resume with xagents train --resume {copied}')
        with pytest.raises(OptionError, match='already contains a run'):
            make().fit(max_steps=60, run_dir=str(copied))
    for missing in (tmp_path / 'nowhere', tmp_path):
        refused(f'train small --resume {missing} --max-steps 60', missing)


@pytest.mark.parametrize('missing', ['config.yaml', 'checkpoints'])
def test_half_a_run_is_neither_begun_anew_nor_overwritten(missing, copied, tmp_path, typed, refused):
    shutil.move(copied / missing, tmp_path / 'away')
    resumed = f'train small --resume {copied} --max-steps 300'
    gone = f'{copied}/checkpoints: the checkpoints of the run are missing'
    with untouched(copied):
        refused(resumed, 'restore this file' if missing == 'config.yaml' else gone)
        refused(f'{LINE} --max-steps 60 --run-dir {copied}', copied)
    if missing == 'checkpoints':
        (copied / missing).mkdir()  # a copy that left all of them out
        refused(resumed, 'are missing: restore them')
        (copied / missing).rmdir()
    shutil.move(tmp_path / 'away', copied / missing)
    assert typed(resumed)[0] == 0


def test_a_run_in_a_run_or_where_something_else_is_is_refused(copied, typed, refused, tmp_path):
    with untouched(copied):
        for place in ('inner', 'checkpoints/inner'):
            refused(f'{LINE} --max-steps 60 --run-dir {copied}/{place}', f'is within a run directory, {copied}')
    (copied / 'status.json').unlink()  # the settings of something else
    assert typed(f'{LINE} --max-steps 60 --run-dir {copied}/inner')[0] == 0
    link, folder = tmp_path / 'link', tmp_path / 'run'
    link.symlink_to(tmp_path / 'nowhere')
    for place in (link, link / 'x'):
        refused(f'{LINE} --max-steps 60 --run-dir {place}', 'is a link to a missing file')
    folder.mkdir()
    (folder / 'checkpoints').write_text('mine')
    code, _, said = typed(f'{LINE} --max-steps 60 --run-dir {folder}')
    assert code == 1 and f'{folder}/checkpoints: cannot be written (File exists); move it away' in said[-1]


def test_a_folder_of_a_run_that_never_began(tmp_path, typed, refused):
    folder = tmp_path / 'run'
    (folder / 'checkpoints').mkdir(parents=True)
    (folder / '.lock').touch()
    refused(f'train --resume {folder}', 'killed before it began; repeat the first command')
    assert typed(f'{LINE} --max-steps 60 --run-dir {folder}')[0] == 0


def test_a_recipe_is_of_its_agent(tmp_path):
    agent, other = make(), make()
    with pytest.raises(ValueError, match='of another agent'):
        agent.fit(max_steps=100, recipe=other.recipe())
    with pytest.raises(TypeError, match='got list, expected a Recipe'):
        agent.fit(max_steps=100, recipe=[1, 2])
