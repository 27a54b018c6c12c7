"""The folder of a run: what stands in it, and that whatever happens to it leaves a run that goes on."""

import contextlib
import copy
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.small_agents import ENV, make, weights
from xagents.factory import load as runs
from xagents.factory.load import load, read_config, resume
from xagents.logs.metrics import read_metrics
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context
from xagents.replay.segments import Segments
from xagents.runs import folder as run_folder
from xagents.runs import saving
from xagents.runs.capture import whole_state
from xagents.runs.checkpoints import read_state
from xagents.runs.folder import RunFolder
from xagents.runs.status import SaveError, is_locked, read_status, take_lock
from xagents.system.arrays import without_prefix

pytestmark = pytest.mark.usefixtures('small_agents')
LINE = f'train small --env {ENV} --n-envs 3 --n-steps 4 --mini-batches 1 --net 4 --seed 1 --quiet'


def about_of(folder):
    return yaml.safe_load((folder / 'config.yaml').read_text())['about']


@pytest.fixture(scope='module', autouse=True)
def disks_are_not_waited_for():
    """What is in files is looked at here, and not what a power cut would leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda file: None)
        yield


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A run of 200 steps that has ended, and its agent."""
    folder = tmp_path_factory.mktemp('finished') / 'run'
    agent = make()
    agent.fit(max_steps=200, run_dir=str(folder), save_seconds=0, final_episodes=2)
    return folder, agent


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / 'copied', symlinks=True)


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


def one_line(error):
    assert '\n' not in str(error.value)
    return str(error.value)


# -------------------------------------------------------------------------------------------------- what stands in it


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
        assert sorted(p.name for p in (folder / 'checkpoints' / name).iterdir()) == ['state.json', 'state.npz']
    status = read_status(folder)
    assert (status['state'], status['why'], status['steps']) == ('finished', 'steps', agent.steps)
    assert status['games'] == agent.games and status['pid'] == os.getpid()
    assert status['best_reward'] == agent.best_reward and status['seconds'] > 0
    config = read_config(folder)
    assert (config['agent'], config['env'], config['seed'], config['n_steps']) == ('small', ENV, 1, 4)
    assert config['max_steps'] == 200 and 'run_dir' not in config
    about = about_of(folder)
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
    os.remove(folder / 'checkpoints' / 'last')
    os.symlink(stayed[1], folder / 'checkpoints' / 'last')
    again = resume(folder)
    assert again.steps == int(stayed[1].removeprefix('step-')) and weights(again) == after[again.steps]
    again.fit()
    assert weights(again) == weights(agent)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / 'history.parquet').drop(columns='time'), whole)
    # what was written anew takes the place of what was there
    assert [name for name in names(folder) if name.startswith('step-')] == stayed


# ------------------------------------------------------------------------------------------------------------- deaths


class Death(BaseException):
    """The process dies."""


CALLS = [(os, name) for name in ('rename', 'replace', 'fsync', 'symlink', 'mkdir', 'unlink', 'rmdir')]
CALLS.append((np, 'savez'))


def dying_at(patch, n, error=Death):
    """Let the n-th of all calls that change a folder fail."""
    count = iter(range(10**6))
    for module, name in CALLS:
        real = getattr(module, name)

        def dying(*arguments, _real=real, **keywords):
            if next(count) == n:
                raise error() if error is Death else error
            return _real(*arguments, **keywords)

        patch.setattr(module, name, dying)


def moved(folder, path):
    """A run folder's keeper as it stands, for a copy of the folder."""
    other = copy.copy(folder)
    other.path, other._lock, other._records = path, None, dict(folder._records)
    other.segments = copy.deepcopy(folder.segments)
    other.segments.folder = path / 'replay'
    return other


def everything(path, agent):
    """What a resume takes over from a folder, as bytes by name; nothing where nothing was saved."""
    checkpoint = runs._checkpoint(path, 'last')
    if checkpoint is None:
        return {}
    state = read_state(checkpoint, whole=True)
    agent.__dict__.pop('buffer', None)
    own = {name.removeprefix('replay/'): a for name, a in state.arrays.items() if name.startswith('replay/')}
    Segments(path / 'replay').load(agent.buffer, own, state.record['replay'])
    found = {name: array.tobytes() for name, array in state.arrays.items()}
    found |= {f'weights {i}': v.tobytes() for i, v in enumerate(state.weights[0])}
    buffer = agent.buffer.sample(8, np.random.default_rng(0), room=8)
    found |= {f'replayed {name}': np.asarray(array).tobytes() for name, array in buffer.items()}
    if state.record['best']:
        best = read_state(path / 'checkpoints' / state.record['best'])
        found |= {f'best {i}': v.tobytes() for i, v in enumerate(best.weights[0])}
    return found


@pytest.fixture(scope='module')
def saves(tmp_path_factory):
    """For the first save of a run and for a later one: the folder before it, and its keeper.

    The later one has a new best, a checkpoint that stays and one that stays no more, and a new segment.
    """
    path = tmp_path_factory.mktemp('saves') / 'run'
    agent, cases = make('small-replay', buffer_max_size=60), {}
    given = {'run_dir': str(path), 'save_seconds': 1e9, 'checkpoint_frequency': 40, 'keep': 1, 'final_episodes': 0}
    real = RunFolder.save

    def rated(ctx):
        for episode in ctx.episodes:
            episode.reward = float(ctx.iteration)  # every mean is a new best

    def save(self, ctx):
        case = 'first' if not cases else 'later' if ctx.steps > 110 else f'at {ctx.steps}'
        if case not in cases:
            before = tmp_path_factory.mktemp('before') / 'run'
            shutil.copytree(self.path, before, symlinks=True)
            for writer in self._run.writers:
                writer.flush()
            cases[case] = (
                before,
                moved(self, before),
                copy.copy(ctx),
                whole_state(agent, agent.collector, self._run.pending),
            )
        real(self, ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, 'save', save)
        agent.fit(max_steps=130, recipe=agent.recipe().after('collect', rated), **given)
    return cases


@pytest.mark.parametrize('case', ['first', 'later'])
def test_a_folder_is_old_or_new_at_every_point_of_death_in_a_save(case, saves, tmp_path, monkeypatch):
    before, keeper, ctx, state = saves[case]
    other, third = make('small-replay', buffer_max_size=60), make('small-replay', buffer_max_size=60)
    run, agent = keeper._run, keeper._run.agent
    # the agent as it stood at that moment
    monkeypatch.setattr(run_folder, 'whole_state', lambda *_: copy.deepcopy(state))
    monkeypatch.setattr(run, 'writers', [])
    monkeypatch.setitem(agent.__dict__, 'buffer', copy.deepcopy(agent.buffer))

    def attempt(n):
        path = tmp_path / str(n)
        shutil.copytree(before, path, symlinks=True)
        folder = moved(keeper, path)
        with monkeypatch.context() as patch:
            if n is not None:
                dying_at(patch, n)
            try:
                folder.save(ctx)
                return path, True
            except Death:
                return path, False

    old = everything(before, other)
    path, _ = attempt(None)
    new, final = everything(path, other), {*contents(path)}
    assert new and new != old and (old or case == 'first')
    seen, n, finished = [], 0, False
    while not finished:
        path, finished = attempt(n)
        found = everything(path, other)
        assert found in (old, new), f'call {n}: neither old nor new'
        seen.append(found == new)
        for link in ('best', 'last'):  # what a reader of the folder opens
            target = runs._checkpoint(path, link)
            assert target is None or read_state(target).weights
        read_status(path)
        if not finished:  # a run that goes on leaves no more than one that was never stopped
            checkpoint = runs._checkpoint(path, 'last')
            folder = RunFolder(path, about={})
            known = None if checkpoint is None else read_state(checkpoint)
            if known is not None:
                third.__dict__.pop('buffer', None)
                folder.segments.load(third.buffer, without_prefix('replay', known.arrays), known.record['replay'])
                name, steps = known.record['best'], known.record['counters']['steps']
                folder.resume(steps, name, run.progress.best if name and steps == ctx.steps else None)
            monkeypatch.setattr(run.progress, 'context', Context() if known is None else copy.copy(ctx))
            folder.begin(run)
            if folder.saved_steps != ctx.steps:
                folder.save(ctx)
            folder._prune()  # as the next save does
            folder.ended('finished', 'steps')
            assert everything(path, other) == new
            left = {name for name in contents(path) if '.tmp' in name or '/.' in name}
            assert left == set(), f'call {n}: {left}'
            kinds = [sorted(name for name in {*contents(path)} if name.startswith(f'checkpoints/{k}')) for k in KINDS]
            expected = [sorted(name for name in final if name.startswith(f'checkpoints/{k}')) for k in KINDS]
            assert kinds == expected, f'call {n}'
        shutil.rmtree(path)
        n += 1
    assert n > 12 and seen == sorted(seen) and {True, False} == set(seen)  # once new, always new


KINDS, LINKS = ('step', 'last'), ('best', 'last')


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize('links', [True, False])
def test_a_folder_is_whole_at_every_point_of_death_before_and_after_a_run(links, saves, tmp_path, monkeypatch):
    before, keeper, _, state = saves['later']
    other = make('small-replay', buffer_max_size=60)
    monkeypatch.setattr(keeper._run, 'writers', [])
    kept = everything(before, other)
    # between a folder and the link in its place there is neither, and the last checkpoint stands in for the best
    others = [read_state(runs._checkpoint(before, name)).weights[0] for name in (('best',) if links else LINKS)]
    n, finished, seen = 0, False, set()
    while not finished:
        path = tmp_path / str(n)
        shutil.copytree(before, path, symlinks=links)
        folder = moved(keeper, path)
        config = read_config(path)
        with monkeypatch.context() as patch:
            dying_at(patch, n)
            try:
                folder.begin(keeper._run)
                folder.choose(state)
                finished = True
            except Death:
                folder.let_go()
        assert everything(path, other) == kept
        assert read_config(path) == config and read_status(path)['state'] in ('killed', 'running')
        chosen = read_state(runs._checkpoint(path, 'best')).weights[0]
        seen.add(equal(chosen, state.weights[0]))
        assert True in seen or any(equal(chosen, other) for other in others)
        folder.ended('finished', 'steps')
        shutil.rmtree(path)
        n += 1
    assert n > 8 and seen == {True, False}


@pytest.mark.parametrize('n', [0, 3, 6, 9, 12, 15])
def test_a_run_that_died_in_its_first_save_goes_on(n, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    agent = make(n_steps=32)  # the first iteration has a best already
    real = RunFolder.save

    def save(self, ctx):
        with monkeypatch.context() as patch:
            dying_at(patch, n)
            real(self, ctx)

    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(RunFolder, 'save', save)
        agent.fit(max_steps=150, run_dir=str(folder))
    assert agent.progress.best is not None
    again = resume(folder, final_episodes=0)
    assert again.steps in (0, agent.steps or again.steps)
    again.fit()
    assert read_status(folder)['state'] == 'finished' and load(folder).steps <= load(folder, 'last').steps
    assert len(pd.read_parquet(folder / 'history.parquet')) == again.games
    assert [name for name in names(folder) if name.startswith('.')] == []


# ------------------------------------------------------------------------------------------------- disks and folders


@pytest.mark.parametrize('call', range(0, 30, 4))
def test_a_full_disk_is_one_line_and_what_was_saved_stays(call, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    agent = make('small-replay')
    agent.fit(max_steps=60, run_dir=str(folder), final_episodes=0)
    kept = everything(folder, make('small-replay'))
    agent.fit(max_steps=72, run_dir=None)
    keeper = RunFolder(folder)
    keeper._run = agent.run
    monkeypatch.setattr(agent.run, 'writers', [])
    with monkeypatch.context() as patch:
        dying_at(patch, call, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        try:
            keeper.save(agent.context)
            failed = False
        except SaveError as error:
            failed = True
            message = str(error)
    if failed:
        assert '\n' not in message and 'No space left on device' in message and str(folder) in message
        assert f'xagents train --resume {folder}' in message
        left = [name for name in names(folder) if name.startswith('.') and name.endswith('.new')]
        assert left == []  # the disk is full as it is
    found = everything(folder, make('small-replay'))
    assert found == kept or not failed or found['weights 0'] != kept['weights 0']
    again = resume(folder, max_steps=84)
    again.fit()
    assert again.steps >= 84


def test_a_file_that_may_grow_no_more_is_one_line_on_the_command_line(typed, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    code, _, _ = typed(f'{LINE} --max-steps 60 --run-dir {folder}')
    assert code == 0
    before = names(folder)
    limits, real = resource.getrlimit(resource.RLIMIT_FSIZE), run_folder.write_state

    def limited(path, state):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        try:
            real(path, state)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, 'write_state', limited)
        code, _, said = typed(f'train small --resume {folder} --max-steps 120')
    assert code == 1 and len(said) == 1, said
    assert said[0].startswith(f'xagents train: SaveError: {folder}') and 'File too large' in said[0]
    assert names(folder) == before
    assert read_status(folder)['state'] == 'failed'
    code, _, said = typed(f'train small --resume {folder} --max-steps 120')
    assert (code, said) == (0, [])


def test_a_folder_that_cannot_be_written(typed, refused, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('mine')
    for path in (tmp_path / 'file', tmp_path / 'file' / 'run'):
        refused(f'{LINE} --max-steps 60 --run-dir {path}', 'xagents train: --run-dir: ', tmp_path / 'file')
    assert (tmp_path / 'file').read_text() == 'mine'
    # the superuser may write everywhere: what a file system without room for a file says
    real = os.mkdir

    def forbidden(path, *arguments, **keywords):
        if str(path).startswith(str(tmp_path / 'run')):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, 'mkdir', forbidden)
        code, _, said = typed(f'{LINE} --max-steps 60 --run-dir {tmp_path / "run"}')
    assert code in (1, 2) and len(said) == 1 and f'{tmp_path / "run"}' in said[0] and 'Permission denied' in said[0]


def test_a_folder_is_free_again_after_it_could_not_be_begun(tmp_path, monkeypatch):
    folder, agent = tmp_path / 'run', make()
    with monkeypatch.context() as patch, pytest.raises(SaveError, match='No space left'):
        patch.setattr(os, 'replace', lambda *paths: full_disk())
        agent.fit(max_steps=30, run_dir=str(folder))
    assert not locked(folder)
    agent.fit(max_steps=30, run_dir=str(folder))
    assert read_status(folder)['state'] == 'finished'


def test_a_run_that_was_killed_before_its_last_contest_holds_it(tmp_path, monkeypatch, capsys):
    folder, agent = tmp_path / 'run', make()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(saving, 'final_evaluation', lambda *_: killed())
        agent.fit(max_steps=200, run_dir=str(folder), save_seconds=0, final_episodes=2)
    agent.close()
    (folder / 'status.json').write_text((folder / 'status.json').read_text().replace('failed', 'running'))
    assert read_status(folder)['state'] == 'killed'
    capsys.readouterr()
    again = resume(folder)
    again.fit()
    assert 'Greedy mean of 2 episodes' in capsys.readouterr().out
    assert read_status(folder)['state'] == 'finished' and again.steps == agent.steps
    for _ in range(2):  # once only
        resume(folder).fit()
        assert 'Greedy mean' not in capsys.readouterr().out


class Killed(BaseException):
    """Stands for a signal that nothing can catch."""


def killed():
    raise Killed


def full_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ------------------------------------------------------------------------------------------------ damage and foreigners


def cut(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


RECORDS = ('{}', '[1, 2]', '{"a": 1}', '{"agent": "small", "options": [], "counters": {}}', '3')
DAMAGES = {
    'npz empty': lambda c: cut(c / 'state.npz', 0),
    'npz half': lambda c: cut(c / 'state.npz', 0.5),
    'npz short': lambda c: cut(c / 'state.npz', 0.99),
    'npz gone': lambda c: (c / 'state.npz').unlink(),
    'npz other': lambda c: np.savez(c / 'state.npz', x=np.zeros(3)),
    'json empty': lambda c: cut(c / 'state.json', 0),
    'json half': lambda c: cut(c / 'state.json', 0.5),
    'json gone': lambda c: (c / 'state.json').unlink(),
    **{f'json {text}': lambda c, text=text: (c / 'state.json').write_text(text) for text in RECORDS},
}


@pytest.mark.parametrize('damage', DAMAGES)
def test_a_damaged_checkpoint_is_one_line_that_names_it(damage, copied, refused):
    checkpoint = (copied / 'checkpoints' / 'last').resolve()
    DAMAGES[damage](checkpoint)
    file = {'npz': 'state.npz', 'json': 'state.json'}[damage.split()[0]]
    problem = f'{checkpoint} is damaged' if damage == 'npz other' else f'{checkpoint / file} is damaged or not a'
    with untouched(copied):
        refused(f'train small --resume {copied} --max-steps 300', problem)
        with pytest.raises(ValueError, match=checkpoint.name) as error:
            load(copied, 'last')
    one_line(error)


def test_a_damaged_one_names_others_that_a_run_can_go_on_with(tmp_path):
    folder = tmp_path / 'run'
    agent = make()
    agent.fit(max_steps=100, run_dir=str(folder), checkpoint_frequency=40, final_episodes=0)
    cut((folder / 'checkpoints' / 'last' / 'state.npz').resolve(), 0.5)
    with pytest.raises(ValueError, match='let checkpoints/last be a link to another one') as error:
        resume(folder)
    named = one_line(error).rpartition('(')[2].partition(')')[0].split(', ')
    assert named
    for name in named:
        os.remove(folder / 'checkpoints' / 'last')
        os.symlink(name, folder / 'checkpoints' / 'last')
        again = resume(folder)
        assert again.steps == int(name.split('-')[1])
        again.close()


def test_where_everything_is_damaged_nothing_is_advised_but_to_train_anew(tmp_path):
    folder = tmp_path / 'run'
    make().fit(max_steps=100, run_dir=str(folder), checkpoint_frequency=40, final_episodes=0)
    for path in (folder / 'checkpoints').glob('*-*/state.json'):
        cut(path, 0.5)
    for checkpoint in ('best', 'last'):
        with pytest.raises(ValueError, match=r'train anew$') as error:
            load(folder, checkpoint)
        one_line(error)
    with pytest.raises(ValueError, match=r'train anew$'):
        resume(folder)


def test_damaged_best_weights_do_not_keep_a_run_from_going_on(copied):
    best = (copied / 'checkpoints' / 'best').resolve()
    record = json.loads((copied / 'checkpoints' / 'last' / 'state.json').read_text())
    for name in {best.name, record['best']}:
        cut(copied / 'checkpoints' / name / 'state.npz', 0.5)
    with pytest.raises(ValueError, match=r'use another one \(--checkpoint (step|last)-'):
        load(copied)
    agent = resume(copied, max_steps=400)
    assert 'The best weights are lost' in ' '.join(agent.progress.lines) and np.isnan(agent.context.best_reward)
    agent.fit()
    assert load(copied).steps <= agent.steps and np.isfinite(agent.best_reward)


def test_damaged_metrics_are_named_before_anything_is_written(copied, typed, refused):
    path, line = copied / 'metrics.parquet', f'train small --resume {copied} --max-steps 400'
    cut(path, 0.5)
    with untouched(copied):
        refused(line, f'--resume: got {path}, which cannot be continued', 'without that file the run goes on')
    path.unlink()
    assert typed(line)[0] == 0


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


def test_a_loop_that_is_left_within_the_handling_of_an_error_saves(tmp_path):
    agent = make()
    try:
        raise KeyError('an earlier one')
    except KeyError:
        for log in agent.train_iter(max_steps=500, run_dir=str(tmp_path / 'run'), save_seconds=1e6):
            if log['steps'] > 100:
                break
    assert load(tmp_path / 'run', 'last').steps == agent.steps > 100


def test_a_recipe_is_of_its_agent(tmp_path):
    agent, other = make(), make()
    with pytest.raises(ValueError, match='of another agent'):
        agent.fit(max_steps=100, recipe=other.recipe())
    with pytest.raises(TypeError, match='got list, takes a Recipe'):
        agent.fit(max_steps=100, recipe=[1, 2])


def test_a_call_without_the_folder_says_so(tmp_path, capsys):
    agent = make(quiet=False)
    agent.fit(max_steps=100, run_dir=str(tmp_path / 'run'), final_episodes=0)
    agent.fit(max_steps=200)
    assert f'Nothing more is kept in {tmp_path / "run"}: this call was given no run_dir' in capsys.readouterr().out
    agent.fit(max_steps=300)
    assert 'Nothing more' not in capsys.readouterr().out


def test_a_further_call_that_has_nothing_to_do_was_not_resumed(tmp_path, capsys):
    agent = make(quiet=False)
    agent.fit(max_steps=100, run_dir=str(tmp_path / 'run'), final_episodes=0)
    capsys.readouterr()
    agent.fit(max_steps=100)
    assert 'Maximum steps exceeded' in capsys.readouterr().out.splitlines()


def test_a_folder_of_a_run_that_never_began(tmp_path, typed, refused):
    folder = tmp_path / 'run'
    (folder / 'checkpoints').mkdir(parents=True)
    (folder / '.lock').touch()
    refused(f'train --resume {folder}', 'killed before it began, so begin it again')
    assert typed(f'{LINE} --max-steps 60 --run-dir {folder}')[0] == 0


@pytest.mark.parametrize('foreign', ['agent', 'network'])
def test_a_foreign_checkpoint_is_one_line_that_names_it(foreign, copied, tmp_path, refused):
    other = make('small-replay') if foreign == 'agent' else make(net=[7])
    other.fit(max_steps=60, run_dir=str(tmp_path / 'other'))
    checkpoint = (copied / 'checkpoints' / 'last').resolve()
    theirs = tmp_path / 'other' / 'checkpoints' / 'last'
    shutil.copy(theirs / 'state.npz', checkpoint / 'state.npz')
    if foreign == 'agent':
        shutil.copy(theirs / 'state.json', checkpoint / 'state.json')
    problem = 'is of small-replay, not of small' if foreign == 'agent' else 'is damaged or of another network'
    with untouched(copied):
        advice = f'{problem}: train anew; the best weights are whole'
        refused(f'train small --resume {copied} --max-steps 300', checkpoint, advice)
        with pytest.raises(ValueError, match=checkpoint.name) as error:
            load(copied, 'last')
    one_line(error)


@pytest.mark.parametrize('damage', ['torn', 'missing'])
def test_a_lost_replay_buffer_can_be_filled_anew(damage, tmp_path, typed, refused):
    folder = tmp_path / 'run'
    first = make('small-replay')
    first.fit(max_steps=90, run_dir=str(folder))
    segment = next((folder / 'replay').glob('*.npz'))
    segment.write_bytes(segment.read_bytes()[:100]) if damage == 'torn' else segment.unlink()
    line = f'train small-replay --resume {folder} --max-steps 180'
    with untouched(folder):
        said = refused(line, f'{segment}: ')
        assert said.endswith(f': move {folder}/replay away to go on with an empty replay buffer')
    shutil.move(folder / 'replay', tmp_path / 'away')
    code, shown, said = typed(line)
    assert (code, said) == (0, [])
    assert f'The replay buffer is filled anew: there is no {folder}/replay' in shown
    agent = resume(folder, quiet=True)
    assert agent.context.steps >= 180 and len(agent.buffer) == agent.context.steps - first.context.steps


@pytest.mark.parametrize(
    'text', [b'', b'a: [', b'agent: nobody', b'\xff\xfe\x00', b'agent: small\nbanana: 3', b'[1, 2]']
)
def test_nonsense_for_settings_is_one_line_that_names_the_file(text, copied, refused):
    (copied / 'config.yaml').write_bytes(text)
    with untouched(copied):
        refused(f'train small --resume {copied} --max-steps 201', 'config.yaml')
        with pytest.raises(ValueError, match=r'config\.yaml') as error:
            load(copied)
    one_line(error)


def test_settings_that_name_the_agent_alone_do(copied, typed):
    (copied / 'config.yaml').write_text('agent: small\n')  # the checkpoint knows the rest
    code, _, said = typed(f'train small --resume {copied} --max-steps 201')
    assert (code, said) == (0, [])


# ---------------------------------------------------------------------------------------------------------------- locks


HOLDER = 'import fcntl, sys; f = open(sys.argv[1], "wb"); fcntl.flock(f, fcntl.LOCK_EX); print("held", flush=True)'


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


def locked(folder):
    import fcntl

    with open(folder / '.lock', 'wb') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


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
    assert not locked(first)
    other.fit(max_steps=50, run_dir=str(second))
    agent.fit(max_steps=100, run_dir=str(first))  # its own folder again
    assert load(first, 'last').steps == agent.steps >= 100
    with pytest.raises(OptionError, match=f'{second} holds a run already'):
        agent.fit(max_steps=150, run_dir=str(second))
    agent.fit(max_steps=150, run_dir=str(tmp_path / 'third'))  # a new one begins with what it knows
    assert load(tmp_path / 'third', 'last').steps == agent.steps >= 150
    iterator = agent.train_iter(max_steps=500, run_dir=str(tmp_path / 'third'))
    next(iterator)
    assert locked(tmp_path / 'third')
    with pytest.raises(OptionError, match='another process'):
        resume(tmp_path / 'third')
    iterator.close()
    assert not locked(tmp_path / 'third')


# --------------------------------------------------------------------------------------------------------------- resume


def test_a_folder_may_be_moved_and_copied_without_links(copied, tmp_path, finished):
    shutil.move(copied, tmp_path / 'elsewhere')
    agent = resume(tmp_path / 'elsewhere', max_steps=250)
    assert weights(agent) == weights(finished[1])
    agent.fit()
    # some programs that copy follow links
    plain = shutil.copytree(tmp_path / 'elsewhere', tmp_path / 'plain', symlinks=False)
    assert not (plain / 'checkpoints' / 'last').is_symlink()
    assert weights(load(plain, 'last')) == weights(agent)
    again = resume(plain, max_steps=300)
    again.fit()
    assert (plain / 'checkpoints' / 'last').is_symlink()
    assert load(plain, 'last').steps == again.steps >= 300 and load(plain).steps > 0
    assert [name for name in names(plain) if name.startswith('.')] == []


def test_a_run_that_ended_before_its_first_checkpoint_begins_anew(tmp_path, capsys):
    folder = tmp_path / 'run'
    agent = make()

    def fails(ctx):
        raise RuntimeError('broken')

    with pytest.raises(RuntimeError):
        agent.fit(max_steps=60, recipe=agent.recipe().after('learn', fails), run_dir=str(folder))
    status = read_status(folder)
    assert (status['state'], status['why'], status['steps']) == ('failed', 'RuntimeError: broken', 0)
    with pytest.raises(OptionError, match='nothing was saved yet'):
        load(folder)
    again = resume(folder, quiet=False)
    capsys.readouterr()
    again.fit()
    assert f'Resumed {folder} at step 0: nothing was saved before' in capsys.readouterr().out
    whole = make()
    whole.fit(max_steps=60)
    assert weights(again) == weights(whole)  # the seed is that of the folder
    assert len(pd.read_parquet(folder / 'history.parquet')) == again.games


def test_the_best_weights_outlive_a_resume(tmp_path):
    folder = tmp_path / 'run'

    def worth(value):
        def rate(ctx):
            for episode in ctx.episodes:
                episode.reward = value

        return rate

    agent, at_best = make(reward_buffer_size=10), []

    def note(ctx):
        if ctx.new_best is not None:
            at_best[:] = weights(agent)

    given = {'run_dir': str(folder), 'final_episodes': 0}
    recipe = agent.recipe().after('collect', worth(10.0)).after('best', note)
    agent.fit(max_steps=100, recipe=recipe, **given)
    assert agent.best_reward == 10 and weights(load(folder)) == at_best != weights(agent)
    again = resume(folder, max_steps=200)
    again.fit(recipe=again.recipe().after('collect', worth(1.0)))
    assert again.best_reward == 10 and weights(load(folder)) == at_best != weights(load(folder, 'last'))
    third = resume(folder, max_steps=300)
    third.fit(recipe=third.recipe().after('collect', worth(20.0)))
    assert third.best_reward == 20 and weights(load(folder)) != at_best
    assert load(folder).best_reward == 20


def test_best_is_what_evaluated_best_and_last_is_the_last(tmp_path):
    folder = tmp_path / 'run'
    agent, means, after = make(lr=0.5), {}, {}

    def note(ctx):
        if 'evaluate/mean' in ctx.logs:
            means[ctx.steps] = ctx.logs['evaluate/mean']
            after[ctx.steps] = weights(agent)

    recipe = agent.recipe().after('evaluate', note)
    agent.fit(max_steps=200, recipe=recipe, run_dir=str(folder), eval_frequency=24, eval_episodes=4)
    assert len(means) > 5 and len(set(means.values())) > 1
    step = max(means, key=lambda s: (means[s], -s))  # the first one of the best
    assert weights(load(folder)) == after[step] and load(folder).steps == step
    assert weights(load(folder, 'last')) == weights(agent)
    best = load(folder)
    assert best.evaluate(4, seed=agent.streams.seed_of('evaluate', step))['mean'] == means[step]


def test_a_target_that_is_met_already_collects_and_writes_nothing(copied, typed):
    with untouched(copied):
        code, said, errors = typed(f'train small --resume {copied}')
        assert (code, errors, len(said)) == (0, [], 1)
        assert said[0].startswith(f'Maximum steps exceeded: {copied} had ended already')
        code, said, errors = typed(f'train small --resume {copied} --max-steps 100 --no-quiet')
        assert (code, errors) == (0, []) and said[-1].startswith('Maximum steps exceeded')


def test_flags_win_and_are_shown(copied, typed, finished):
    steps = finished[1].steps
    code, said, _ = typed(f'train small --resume {copied} --max-steps 230 --lr 0.002 --no-quiet --env {ENV}')
    assert code == 0
    line = next(line for line in said if line.startswith('Resumed'))
    assert line.startswith(f'Resumed {copied} at step {steps}; changed: ')
    for change in ('--max-steps 230 (was 200)', '--lr 0.002 (was 0.0007)'):
        assert change in line
    assert '--env' not in line and '--seed' not in line
    rates = read_metrics(copied / 'metrics.parquet').set_index('steps')['learning_rate']
    assert rates[rates.index <= steps].eq(0.0007).all() and rates[rates.index > steps].eq(0.002).all()
    config = read_config(copied)
    assert (config['lr'], config['max_steps']) == (0.002, 230)
    (resumed,) = about_of(copied)['resumed']
    assert resumed['step'] == steps and '--lr 0.002' in resumed['command']
    code, said, _ = typed(f'train small --resume {copied} --max-steps 260 --n-envs 2')
    assert code == 0
    agent = load(copied, 'last')
    assert agent.n_envs == 2 and agent.steps >= 260


@pytest.mark.parametrize(
    'flags, name',
    [
        ('--seed 2', '--seed'), ('--net 8', '--net'), ('--activation relu', '--activation'),
        ('--shared-network', '--shared-network'), ('--env CartPole-v1', '--env'), ('--run-dir x', '--run-dir'),
        ('--weights a.tf', '--weights'), ('--seeds 1 2', '--seeds'), ('--tuned', '--tuned'),
    ],
)  # fmt: skip
def test_what_is_fixed_is_refused(flags, name, copied, refused):
    with untouched(copied):
        said = refused(f'train small --resume {copied} --max-steps 300 {flags}')
        assert said.startswith(f'xagents train: {name}: '), said


def test_what_is_fixed_may_be_said_again(copied, typed):
    code, _, said = typed(f'train small --resume {copied} --max-steps 210 --seed 1 --net 4 --env {ENV}')
    assert (code, said) == (0, [])


def test_a_folder_that_holds_a_run_is_refused_and_one_that_does_not(copied, refused, tmp_path):
    with untouched(copied):
        refused(f'{LINE} --max-steps 60 --run-dir {copied}', f'go on with xagents train --resume {copied}')
        with pytest.raises(OptionError, match='holds a run already'):
            make().fit(max_steps=60, run_dir=str(copied))
    for missing in (tmp_path / 'nowhere', tmp_path):
        refused(f'train small --resume {missing} --max-steps 60', missing)


@pytest.mark.parametrize('missing', ['config.yaml', 'checkpoints'])
def test_half_a_run_is_neither_begun_anew_nor_overwritten(missing, copied, tmp_path, typed, refused):
    shutil.move(copied / missing, tmp_path / 'away')
    resumed = f'train small --resume {copied} --max-steps 300'
    gone = f'{copied}/checkpoints: what the run goes on from is gone'
    with untouched(copied):
        refused(resumed, 'put that back' if missing == 'config.yaml' else gone)
        refused(f'{LINE} --max-steps 60 --run-dir {copied}', copied)
    if missing == 'checkpoints':
        (copied / missing).mkdir()  # a copy that left all of them out
        refused(resumed, 'is gone: put it back')
        (copied / missing).rmdir()
    shutil.move(tmp_path / 'away', copied / missing)
    assert typed(resumed)[0] == 0


def test_a_run_in_a_run_is_refused(copied, typed, refused):
    with untouched(copied):
        for place in ('inner', 'checkpoints/inner'):
            refused(f'{LINE} --max-steps 60 --run-dir {copied}/{place}', f'is within the folder of a run, {copied}')
    (copied / 'status.json').unlink()  # the settings of something else
    assert typed(f'{LINE} --max-steps 60 --run-dir {copied}/inner')[0] == 0


def test_a_link_to_nowhere_is_no_folder_for_a_run(tmp_path, refused):
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    for folder in (tmp_path / 'link', tmp_path / 'link' / 'x'):
        refused(f'{LINE} --max-steps 60 --run-dir {folder}', 'is a link to what is not there')


def test_a_file_in_the_place_of_checkpoints_is_named(tmp_path, typed):
    folder = tmp_path / 'run'
    folder.mkdir()
    (folder / 'checkpoints').write_text('mine')
    code, _, said = typed(f'{LINE} --max-steps 60 --run-dir {folder}')
    assert code == 1 and f'{folder}/checkpoints: cannot be written (File exists); move it away' in said[-1]


def test_without_its_link_a_run_goes_on_from_the_newest_checkpoint(copied, typed):
    last = copied / 'checkpoints' / 'last'
    newest = last.resolve()
    last.unlink()
    last.symlink_to('gone')
    code, shown, said = typed(f'train small --resume {copied} --max-steps 300')
    assert (code, said) == (0, []) and f'Resumed {copied} at step {int(newest.name.split("-")[1])}' in shown[0]
    assert last.resolve().is_dir()


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
            OptionError, match=r'^checkpoint: got .*, admits one of best, last, (best-|last-|step-)'
        ) as error:
            load(folder, name)
        one_line(error)
    refused(f'evaluate small --run-dir {folder} --checkpoint {names[0]}0', f'did you mean {names[0]}?')


def test_environments_that_a_run_was_not_trained_on_are_told_from_damage(copied, refused):
    problem = f'got CartPole-v1, which the networks of {runs._checkpoint(copied, "best")} do not fit'
    said = refused(f'evaluate small --run-dir {copied} --env CartPole-v1')
    assert said == f'xagents evaluate: --env: {problem}'


@pytest.mark.parametrize('longer', [False, True])
def test_schedules_keep_their_length_unless_told_otherwise(longer, tmp_path):
    folder = str(tmp_path / 'run')
    agent = make(lr_schedule='linear')
    agent.fit(max_steps=200, run_dir=folder, recipe=stopping(agent, 100))
    again = resume(folder, max_steps=300, **({'schedule_steps': 400} if longer else {}))
    base, length = 7e-4, 400 if longer else 200
    previous = again.steps
    assert 100 <= previous < 150
    for log in again.train_iter():
        expected = base * max(1 - previous / length, 0)
        assert log['learning_rate'] == pytest.approx(expected)
        previous = int(log['steps'])
    assert previous >= 300


def stopping(agent, steps):
    """The default recipe, which says after so many steps that time is up."""

    def stop(ctx):
        if ctx.steps >= steps:
            ctx.stop = 'time'

    return agent.recipe().use(stop)


@pytest.mark.parametrize('agent_id', ['small', 'small-replay'])
def test_leaving_a_loop_and_going_on(agent_id, tmp_path):
    folder = tmp_path / 'run'
    agent = make(agent_id)
    for log in agent.train_iter(max_steps=1_000, run_dir=str(folder)):
        if log['steps'] > 60:
            break
    status = read_status(folder)
    assert (status['state'], status['steps']) == ('interrupted', agent.steps)
    again = resume(folder)
    assert again.steps == agent.steps and weights(again) == weights(agent)
    for log in again.train_iter():
        if log['steps'] > 120:
            break
    for log in agent.train_iter(max_steps=1_000, run_dir=None):
        if log['steps'] > 120:
            break
    assert again.steps == agent.steps and weights(again) == weights(agent)
    assert len(pd.read_parquet(folder / 'history.parquet')) == again.games


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
    one_line(error)
