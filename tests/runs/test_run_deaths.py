"""Whatever happens to a folder while a run writes into it leaves a run that goes on."""

import copy
import errno
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.runs.folders import LINE, contents, names
from tests.small_agents import make
from xagents.checkpoints import run_directory as run_folder
from xagents.checkpoints import state_files
from xagents.checkpoints.agent_state import capture_run_state
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.state_files import read_state
from xagents.checkpoints.status import SaveError, is_locked, read_status
from xagents.config.configuration import read_config
from xagents.factory import load as runs
from xagents.factory.load import resume
from xagents.pipeline.context import Context
from xagents.replay.segments import SegmentStore
from xagents.runs import saving
from xagents.system.arrays import strip_prefix

pytestmark = pytest.mark.usefixtures('small_agents', 'disks_are_not_waited_for')
CALLS = [(os, name) for name in ('rename', 'replace', 'fsync', 'symlink', 'mkdir', 'unlink', 'rmdir')]
CALLS.append((np, 'savez'))
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Death(BaseException):
    """The process dies."""


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
    other.path, other._folder = path, path / 'checkpoints'
    other._lock, other._records = None, dict(folder._records)
    other.segments = copy.deepcopy(folder.segments)
    other.segments.folder = path / 'replay'
    return other


def everything(path, agent):
    """What a resume takes over from a folder, as bytes by name; nothing where nothing was saved."""
    checkpoint = runs.find_checkpoint(path, 'last')
    if checkpoint is None:
        return {}
    state = read_state(checkpoint, complete=True)
    agent.__dict__.pop('buffer', None)
    own = {name.removeprefix('replay/'): a for name, a in state.arrays.items() if name.startswith('replay/')}
    SegmentStore(path / 'replay').load(agent.buffer, own, state.record['replay'])
    found = {name: array.tobytes() for name, array in state.arrays.items()}
    found |= {f'weights {i}': v.tobytes() for i, v in enumerate(state.weights[0])}
    buffer = agent.buffer.sample(8, np.random.default_rng(0), max_batches=8)
    found |= {f'replayed {name}': np.asarray(array).tobytes() for name, array in buffer.items()}
    if state.record['best']:
        best = read_state(path / 'checkpoints' / state.record['best'])
        found |= {f'best {i}': v.tobytes() for i, v in enumerate(best.weights[0])}
    return found


@pytest.fixture(scope='module')
def saves(tmp_path_factory, small_agents):
    """For the first save of a run and for a later one: the folder before it, its keeper, context and whole state.

    The later one has a new best, a checkpoint that stays and one that stays no more, and a new segment.
    """
    path = tmp_path_factory.mktemp('saves') / 'run'
    agent, cases = make('small-replay', buffer_max_size=60), {}
    given = {'run_dir': str(path), 'save_seconds': 1e9, 'checkpoint_frequency': 40, 'keep': 1, 'final_episodes': 0}
    real = RunDirectory.save

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
            state = capture_run_state(agent, agent.collector, self._run.in_flight)
            cases[case] = before, moved(self, before), copy.copy(ctx), state
        real(self, ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, 'save', save)
        agent.fit(max_steps=130, recipe=agent.recipe().after('collect', rated), **given)
    return cases


@pytest.mark.parametrize('case', [pytest.param('first', marks=pytest.mark.slow), 'later'])
def test_a_folder_is_old_or_new_at_every_point_of_death_in_a_save(case, saves, tmp_path, monkeypatch):
    before, keeper, ctx, state = saves[case]
    other, third = make('small-replay', buffer_max_size=60), make('small-replay', buffer_max_size=60)
    run, agent = keeper._run, keeper._run.agent
    # the agent as it stood at that moment
    monkeypatch.setattr(run_folder, 'capture_run_state', lambda *_: copy.deepcopy(state))
    monkeypatch.setattr(run, 'writers', [])
    monkeypatch.setitem(agent.__dict__, 'buffer', copy.deepcopy(agent.buffer))

    def attempt(n):
        path = tmp_path / str(n)
        shutil.copytree(before, path, symlinks=True)
        with monkeypatch.context() as patch:
            dying_at(patch, n)
            try:
                moved(keeper, path).save(ctx)
                return path, True
            except Death:
                return path, False

    def kinds(found):
        return [sorted(name for name in found if name.startswith(f'checkpoints/{kind}')) for kind in ('step', 'last')]

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
            target = runs.find_checkpoint(path, link)
            assert target is None or read_state(target).weights
        read_status(path)
        if not finished:  # a run that goes on leaves no more than one that was never stopped
            checkpoint = runs.find_checkpoint(path, 'last')
            folder = RunDirectory(path, about={})
            known = None if checkpoint is None else read_state(checkpoint)
            if known is not None:
                third.__dict__.pop('buffer', None)
                folder.segments.load(third.buffer, strip_prefix('replay', known.arrays), known.record['replay'])
                name, steps = known.record['best'], known.record['counters']['steps']
                folder.resume(steps, name, run.progress.best if name and steps == ctx.steps else None)
            monkeypatch.setattr(run.progress, 'context', Context() if known is None else copy.copy(ctx))
            folder.begin(run)
            if folder.saved_steps != ctx.steps:
                folder.save(ctx)
            folder._prune()  # as the next save does
            folder.finish('finished', 'steps')
            assert everything(path, other) == new
            assert not {name for name in contents(path) if '.tmp' in name or '/.' in name}, f'call {n}'
            assert kinds(contents(path)) == kinds(final), f'call {n}'
        shutil.rmtree(path)
        n += 1
    assert n > 12 and seen == sorted(seen) and {True, False} == set(seen)  # once new, always new


@pytest.mark.parametrize('links', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_folder_is_whole_at_every_point_of_death_before_and_after_a_run(links, saves, tmp_path, monkeypatch):
    before, keeper, _, state = saves['later']
    other = make('small-replay', buffer_max_size=60)
    monkeypatch.setattr(keeper._run, 'writers', [])

    def best_of(path, name='best'):
        return [v.tobytes() for v in read_state(runs.find_checkpoint(path, name)).weights[0]]

    kept, wanted = everything(before, other), [v.tobytes() for v in state.weights[0]]
    # between a folder and the link in its place there is neither, and the last checkpoint stands in for the best
    others = [best_of(before, name) for name in (('best',) if links else ('best', 'last'))]
    n, finished, seen = 0, False, set()
    while not finished:
        path = tmp_path / str(n)
        shutil.copytree(before, path, symlinks=links)
        folder, config = moved(keeper, path), read_config(path)
        with monkeypatch.context() as patch:
            dying_at(patch, n)
            try:
                folder.begin(keeper._run)
                folder.set_best(state)
                finished = True
            except Death:
                folder.release()
        assert everything(path, other) == kept
        assert read_config(path) == config and read_status(path)['state'] in ('killed', 'running')
        chosen = best_of(path)
        seen.add(chosen == wanted)
        assert True in seen or chosen in others
        folder.finish('finished', 'steps')
        shutil.rmtree(path)
        n += 1
    assert n > 8 and seen == {True, False}


@pytest.mark.parametrize('call', range(0, 30, 8))
def test_a_full_disk_is_one_line_and_what_was_saved_stays(call, tmp_path, monkeypatch):
    folder, agent, message = tmp_path / 'run', make('small-replay'), ''
    agent.fit(max_steps=60, run_dir=str(folder), final_episodes=0)
    kept = everything(folder, make('small-replay'))
    agent.fit(max_steps=72, run_dir=None)
    keeper = RunDirectory(folder)
    keeper._run = agent.run
    monkeypatch.setattr(agent.run, 'writers', [])
    with monkeypatch.context() as patch:
        dying_at(patch, call, FULL)
        try:
            keeper.save(agent.context)
        except SaveError as error:
            message = str(error)
    if message:
        assert '\n' not in message and 'No space left on device' in message
        assert f'xagents train --resume {folder}' in message
        # the disk is full as it is
        assert not [name for name in names(folder) if name.startswith('.') and name.endswith('.new')]
    found = everything(folder, make('small-replay'))
    assert found == kept or not message or found['weights 0'] != kept['weights 0']
    again = resume(folder, max_steps=84)
    again.fit()
    assert again.steps >= 84


def test_a_file_that_may_grow_no_more_is_one_line_on_the_command_line(typed, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    assert typed(f'{LINE} --max-steps 60 --run-dir {folder}')[0] == 0
    before = names(folder)
    limits, real = resource.getrlimit(resource.RLIMIT_FSIZE), state_files.write_state

    def limited(path, state):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        try:
            real(path, state)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(state_files, 'write_state', limited)
        code, _, said = typed(f'train small --resume {folder} --max-steps 120')
    assert code == 1 and len(said) == 1, said
    assert said[0].startswith(f'xagents train: SaveError: {folder}') and 'File too large' in said[0]
    assert (names(folder), read_status(folder)['state']) == (before, 'failed')
    assert typed(f'train small --resume {folder} --max-steps 120')[::2] == (0, [])


def test_a_folder_that_cannot_be_written(typed, refused, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('mine')
    for path in (tmp_path / 'file', tmp_path / 'file' / 'run'):
        refused(f'{LINE} --max-steps 60 --run-dir {path}', 'xagents train: --run-dir: ', tmp_path / 'file')
    assert (tmp_path / 'file').read_text() == 'mine'
    # the superuser may write everywhere: what a file system without room for a file says
    real = os.mkdir

    def refuse(path, *arguments, **keywords):
        if Path(path) == tmp_path / 'run':
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        real(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, 'mkdir', refuse)
        code, _, said = typed(f'{LINE} --max-steps 60 --run-dir {tmp_path / "run"}')
    assert code in (1, 2) and len(said) == 1 and f'{tmp_path / "run"}' in said[0] and 'Permission denied' in said[0]


def test_a_folder_is_free_again_after_it_could_not_be_begun(tmp_path, monkeypatch):
    folder, agent = tmp_path / 'run', make()
    with monkeypatch.context() as patch, pytest.raises(SaveError, match='No space left'):
        dying_at(patch, 3, FULL)
        agent.fit(max_steps=30, run_dir=str(folder))
    assert not is_locked(folder)
    agent.fit(max_steps=30, run_dir=str(folder))
    assert read_status(folder)['state'] == 'finished'


def died(*_):
    raise Death


def test_a_run_that_was_killed_before_its_last_contest_holds_it(tmp_path, monkeypatch, capsys):
    folder, agent = tmp_path / 'run', make()
    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(saving, 'final_evaluation', died)
        agent.fit(max_steps=200, run_dir=str(folder), save_seconds=0, final_episodes=2)
    agent.close()
    status = folder / 'status.json'
    status.write_text(status.read_text().replace('failed', 'running'))
    assert read_status(folder)['state'] == 'killed'
    for contest in (True, False, False):  # once only
        capsys.readouterr()
        again = resume(folder)
        again.fit()
        assert ('Greedy mean of 2 episodes' in capsys.readouterr().out) == contest
        assert read_status(folder)['state'] == 'finished' and again.steps == agent.steps
