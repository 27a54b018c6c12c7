"""Checkpoints: every ending, sets that are old or new at any point of death, and what beside them is used again."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import xagents
from tests.small_agents import on_cartpole as make
from tests.small_agents import weights
from xagents.checkpoints import weight_files as checkpoints
from xagents.checkpoints.agent_state import capture_policy, model_variables
from xagents.collecting.policy_files import read_policy_data

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla')


def variables(agent):
    return [v.numpy() for v in model_variables(agent.model)]


def test_flags_win_over_what_was_saved(tmp_path):
    path = str(tmp_path / 'a.tf')
    make(lr=1e-3, gamma=0.9, checkpoints=[path]).fit(max_steps=100)
    same = xagents.make('small', weights=[path])
    assert (same.options.lr, same.options.gamma, same.envs.id) == (1e-3, 0.9, 'CartPole-v1')
    changed = xagents.make('small', weights=[path], lr=2e-3, quiet=True, n_steps=8)
    (log,) = changed.train_iter(max_steps=changed.steps + 1)
    assert log['learning_rate'] == 2e-3


def test_a_rate_that_is_given_is_not_reduced_by_plateaus_of_before(tmp_path):
    path = str(tmp_path / 'a.tf')
    agent = make(checkpoints=[path])
    agent.context.plateau_factor = 0.5
    agent.fit(max_steps=200)
    factors = [xagents.make('small', weights=[path], **given).context.plateau_factor for given in ({}, {'lr': 1e-3})]
    assert factors == [0.5, 1.0]


def test_the_history_goes_on_with_weights(tmp_path):
    import pandas as pd

    path, history = str(tmp_path / 'a.tf'), str(tmp_path / 'h.parquet')
    make(checkpoints=[path], history_checkpoint=history).fit(max_steps=600)
    rows = len(pd.read_parquet(history))
    agent = xagents.make('small', weights=[path], history_checkpoint=history, quiet=True)
    agent.fit(max_steps=1_500)
    more = pd.read_parquet(history)
    assert len(more) > rows and more['time'].is_monotonic_increasing
    assert not (tmp_path / 'h.1.parquet').exists()


def test_the_policy_of_equal_runs_is_equal_however_often_they_are_saved(tmp_path):
    for name, seconds in {'often': 0.0, 'once': 1000.0}.items():
        make().fit(max_steps=300, run_dir=str(tmp_path / name), save_seconds=seconds, final_episodes=0)
    saved = [tmp_path / name / 'checkpoints' / 'last' / 'policy.npz' for name in ('often', 'once')]
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_a_set_is_old_or_new_at_every_point_of_death(tmp_path, monkeypatch):
    """The process dies before its n-th call that changes the folder, for every n."""

    class Death(BaseException):
        pass

    first, second = (make(net=[4], seed=seed) for seed in (1, 2))
    paths = [str(tmp_path / 'a.tf'), str(tmp_path / 'b.weights.h5')]
    twice = lambda agent: [agent.model, agent.model]  # noqa: E731
    policies = {1: capture_policy(first), 2: capture_policy(second)}
    checkpoints.write_weight_files(paths, twice(first), {}, {'save': 1}, policies[1])
    values = {1: first.model.get_weights(), 2: second.model.get_weights()}
    readers = [make(net=[4], seed=3).model for _ in range(2)]
    n, deaths, seen = 0, 0, set()
    while True:
        count = iter(range(10**6))
        with monkeypatch.context() as patch:
            for name in ('rename', 'replace', 'link', 'mkdir', 'fsync', 'unlink', 'rmdir'):
                real = getattr(os, name) if name != 'fsync' else lambda file: None

                def dying(*arguments, _real=real, **keywords):
                    if next(count) == n:  # noqa: B023
                        raise Death
                    return _real(*arguments, **keywords)

                patch.setattr(os, name, dying)
            try:
                checkpoints.write_weight_files(paths, twice(second), {}, {'save': 2}, policies[2])
                finished = True
            except Death:
                finished = False
        save = checkpoints.read_saved_state(paths[0])[1]['save']
        seen.add(save)
        policy = read_policy_data(*checkpoints.saved_policy_files(paths[0]))
        np.testing.assert_array_equal(policy.arrays['weights'], policies[save].arrays['weights'])
        checkpoints.read_weight_files(paths, readers)
        for target in readers:
            for mine, saved in zip(target.get_weights(), values[save], strict=True):
                np.testing.assert_array_equal(mine, saved)
        if finished:
            break
        deaths += 1
        checkpoints.write_weight_files(paths, twice(first), {}, {'save': 1}, policies[1])  # finishes what it finds
        assert checkpoints.read_saved_state(paths[0])[1]['save'] == 1
        n += 1
    assert deaths >= 8 and seen == {1, 2}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *('a.tf.data-00000-of-00001', 'a.tf.index', 'a.tf.plan.json', 'a.tf.policy.npz', 'a.tf.state.npz'),
        'b.weights.h5',
    ]


@pytest.mark.parametrize(
    'damage, message',
    [
        (lambda p: (p / 'a.tf.index').write_bytes(b''), 'damaged'),
        (lambda p: (p / 'a.tf.data-00000-of-00001').write_bytes(b'xx'), 'damaged'),
        (lambda p: (p / 'a.tf.index').unlink(), 'no weight file'),
        (lambda p: (p / 'a.tf.state.npz').write_bytes(b'xx'), 'not readable'),
    ],
)
def test_damaged_files_are_one_line_that_names_them(tmp_path, damage, message):
    path = str(tmp_path / 'a.tf')
    agent = make(checkpoints=[path])
    agent.fit(max_steps=200)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        xagents.make('small', 'CartPole-v1', weights=[path])
    assert 'a.tf' in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'weights': ['a.tf'], 'net': [7]}, 'damaged or of another network'),
        (
            {'weights': ['a.tf'], 'agent_id': 'dqn'},
            r'got a.tf of small with .*, expected the networks of dqn: model \(q\)',
        ),
        ({'weights': ['b.tf']}, r'no weight file .*did you mean a.tf'),
        ({'checkpoints': ['a.h5']}, r'did you mean .*a.weights.h5'),
        ({'checkpoints': ['nowhere/a.tf']}, 'there is no directory'),
    ],
)
def test_foreign_and_missing_checkpoints(given, message, folder):
    make(checkpoints=['a.tf']).fit(max_steps=200)
    with pytest.raises(ValueError, match=message):
        make(**given)


def test_after_an_error_the_last_whole_checkpoint_stays(tmp_path):
    path = tmp_path / 'a.tf'
    agent = make(checkpoints=[str(path)])
    agent.fit(max_steps=500)
    before = (tmp_path / 'a.tf.index').stat().st_mtime_ns

    def fails(ctx):
        raise RuntimeError('broken')

    with pytest.raises(RuntimeError, match='broken'):
        agent.fit(max_steps=10_000, recipe=agent.recipe().after('learn', fails))
    assert (tmp_path / 'a.tf.index').stat().st_mtime_ns == before


def test_a_continued_run_never_puts_worse_weights_in_the_place_of_better_ones(tmp_path):
    path = str(tmp_path / 'a.tf')

    def worthless(ctx):
        for episode in ctx.episodes:
            episode.reward = 0.0

    make(checkpoints=[path]).fit(max_steps=1_000, final_episodes=0)
    best = weights(xagents.make('small', weights=[path]))
    worse = xagents.make('small', weights=[path], checkpoints=[path], quiet=True)
    worse.fit(max_steps=2_000, final_episodes=0, recipe=worse.recipe().after('collect', worthless))
    assert weights(worse) != best == weights(xagents.make('small', weights=[path]))


def test_an_own_network_needs_no_file_afterwards(tmp_path, monkeypatch):
    (tmp_path / 'there').mkdir()
    monkeypatch.chdir(tmp_path / 'there')
    (tmp_path / 'there' / 'own.cfg').write_text(
        '[dense-a]\nunits=5\nactivation=relu\n[dense-actor]\noutput=1\n[dense-critic]\nfrom=dense-a\noutput=1\n'
    )
    agent = make(model='own.cfg', checkpoints=['a.tf'])
    agent.fit(max_steps=200)
    (tmp_path / 'there' / 'own.cfg').unlink()
    monkeypatch.chdir(tmp_path)
    other = xagents.make('small', weights=['there/a.tf'])
    agent.load_weights(['there/a.tf'])
    assert [v.shape for v in other.model.weights] == [v.shape for v in agent.model.weights]
    assert other.evaluate(3, seed=1) == agent.evaluate(3, seed=1)


def test_a_set_that_was_not_finished_may_be_moved(tmp_path, monkeypatch):
    old, new = tmp_path / 'old', tmp_path / 'new'
    old.mkdir()
    agent = make(net=[4])
    checkpoints.write_weight_files([str(old / 'a.tf')], [agent.model], {}, {'save': 1})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, 'complete_write', lambda first: None)
        checkpoints.write_weight_files([str(old / 'a.tf')], [agent.model], {}, {'save': 2})
    old.rename(new)
    assert checkpoints.read_saved_state(str(new / 'a.tf'))[1]['save'] == 2
    checkpoints.complete_write(new / 'a.tf')
    assert checkpoints.read_saved_state(str(new / 'a.tf'))[1]['save'] == 2 and not old.exists()


def test_what_json_cannot_hold_does_not_prevent_saving(tmp_path):
    import gymnasium

    agent = make(
        checkpoints=[str(tmp_path / 'a.tf')],
        wrapper=[gymnasium.wrappers.TimeAwareObservation],
        env_kwargs={'sutton_barto_reward': np.bool_(False)},
    )
    agent.fit(max_steps=200)
    options = checkpoints.read_saved_state(str(tmp_path / 'a.tf'))[1]['options']
    assert options['env_kwargs'] == {'sutton_barto_reward': False} and 'wrapper' not in options


@pytest.mark.parametrize('name', ['folder.keras', 'missing/a.tf', 'a.txt', '.tf', 'file/a.tf'])
def test_where_nothing_can_be_written_is_found_before_anything_is_built(tmp_path, name):
    (tmp_path / 'folder.keras').mkdir()
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='checkpoints'):
        make(checkpoints=[str(tmp_path / name)])


@pytest.mark.slow
def test_killed_while_training_leaves_a_checkpoint_that_loads(tmp_path):
    script = (
        'from tests.small_agents import on_cartpole, registered\n'
        "with registered(): on_cartpole(n_steps=8, save_seconds=0.0, checkpoints=['a.tf']).fit(max_steps=10**7)"
    )
    with subprocess.Popen([sys.executable, '-c', script], cwd=tmp_path) as process:
        while process.poll() is None and not (tmp_path / 'a.tf.index').exists():
            time.sleep(0.05)
        process.kill()
    assert xagents.make('small', weights=[str(tmp_path / 'a.tf')]).steps > 0
