"""Scores of a run's checkpoints that another process makes while the run goes on."""

import contextlib
import shutil
from pathlib import Path

import pandas as pd
import pytest

import xagents
from tests.commands import execute
from xagents.factory import checkpoint_scores


@pytest.fixture(scope='module')
def trained(tmp_path_factory, without_xla_in_module):
    """A run with four checkpoints."""
    folder = tmp_path_factory.mktemp('following') / 'run'
    options = {'n_envs': 4, 'n_steps': 16, 'net': [8], 'seed': 1, 'quiet': True, 'checkpoint_frequency': 200}
    with contextlib.closing(xagents.make('ppo', 'CartPole-v1', run_dir=str(folder), **options)) as agent:
        agent.fit(max_steps=800, final_episodes=0)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / 'run', symlinks=True)
    return tmp_path / 'run'


def steps_in(folder):
    names = [p.name for p in (folder / 'checkpoints').iterdir() if not p.is_symlink() and not p.name.startswith('best')]
    return sorted({int(name.partition('-')[2]) for name in names})


def test_each_checkpoint_is_scored_once_and_as_the_run_itself_would(run):
    scores = list(checkpoint_scores.score_checkpoints(run, None, {}, episodes=3))
    assert [score['steps'] for score in scores] == steps_in(run) and len(scores) >= 4
    table = pd.read_parquet(run / 'evaluations.parquet')
    assert table['mean'].tolist() == [score['mean'] for score in scores]
    with contextlib.closing(xagents.load(str(run), scores[1]['checkpoint'], seed=1, quiet=True)) as agent:
        assert agent.evaluate(3)['mean'] == scores[1]['mean'], 'the seed is that of the step'
    assert list(checkpoint_scores.score_checkpoints(run, None, {}, episodes=3)) == []


def test_what_comes_meanwhile_is_scored_until_the_run_ends(run, tmp_path, monkeypatch):
    checkpoints, aside = run / 'checkpoints', tmp_path / 'aside'
    first, *others = [path for path in sorted(checkpoints.glob('step-*')) if not path.is_symlink()]
    for path in checkpoints.iterdir():
        if path != first:
            path.unlink() if path.is_symlink() else shutil.move(path, aside / path.name)
    ended = iter([False, False, True])
    monkeypatch.setattr(checkpoint_scores, '_has_ended', lambda folder: next(ended))

    def saves(seconds):  # what the run does meanwhile
        path = others.pop(0)
        shutil.move(aside / path.name, path)

    monkeypatch.setattr(checkpoint_scores.time, 'sleep', saves)
    scores = list(checkpoint_scores.score_checkpoints(run, tmp_path / 'out.parquet', {}, episodes=2))
    assert [score['checkpoint'] for score in scores] == [first.name, *sorted(p.name for p in checkpoints.iterdir())[1:]]
    assert len(pd.read_parquet(tmp_path / 'out.parquet')) == 3 and not (run / 'evaluations.parquet').exists()


def test_a_checkpoint_that_the_run_replaces_meanwhile_is_left_out(run, monkeypatch):
    load = checkpoint_scores.load_player

    def late(folder, name, options):
        if name.startswith('step-000000000'):
            shutil.rmtree(Path(folder) / 'checkpoints' / name, ignore_errors=True)
        return load(folder, name, options)

    gone = sorted((run / 'checkpoints').glob('step-*'))[0].name
    monkeypatch.setattr(checkpoint_scores, 'load_player', lambda f, n, o: late(f, n, o) if n == gone else load(f, n, o))
    assert gone not in [score['checkpoint'] for score in checkpoint_scores.score_checkpoints(run, None, {}, episodes=1)]


def test_a_person_follows_a_run(run, tmp_path):
    code, stdout, stderr = execute('evaluate', '--follow', str(run), '--episodes', '2')
    lines = stdout.splitlines()
    assert (code, stderr) == (0, '') and [line.partition(':')[0] for line in lines] == [
        f'Step {n}' for n in steps_in(run)
    ]
    assert all(line.endswith(', 2 episodes') for line in lines)
    assert not (run / '.lock').exists() or (run / '.lock').stat().st_size == 0
    code, stdout, _ = execute('evaluate', 'ppo', '--follow', str(run), '--json', '--out', str(tmp_path / 'o.parquet'))
    assert code == 0 and '"checkpoint": "' in stdout.splitlines()[0]


@pytest.mark.parametrize(
    'words, expected',
    [
        (['--follow', 'nowhere'], '--follow: there is no directory nowhere'),
        (['ppo', '--follow', 'RUN', '--run-dir', 'RUN'], '--run-dir: cannot be used with --follow'),
        (['dqn', '--follow', 'RUN'], 'agent: got ppo, expected dqn, the agent of the command'),
        (['--run-dir', 'RUN', '--out', 'o.parquet'], '--out: got o.parquet, which requires --follow'),
        (['--follow', 'RUN', '--out', 'RUN/history.parquet'], 'expected a table of evaluations'),
        (['--follow', 'RUN', '--out', 'no/o.parquet'], '--out: '),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words, expected, trained):
    code, stdout, stderr = execute('evaluate', *[word.replace('RUN', str(trained)) for word in words])
    assert (code, stdout) == (2, '') and expected in stderr and len(stderr.splitlines()) == 1
