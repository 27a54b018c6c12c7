"""Going on with a run: what it takes over, what may be changed, and what the flags of a line do."""

import shutil

import pandas as pd
import pytest
import yaml

from tests.runs.folders import names, stopping, untouched
from tests.small_agents import ENV, make, weights
from xagents.checkpoints.status import read_status
from xagents.config.configuration import read_config
from xagents.factory.load import load, resume
from xagents.logs.metrics import read_metrics
from xagents.options.errors import OptionError

pytestmark = pytest.mark.usefixtures('small_agents', 'disks_are_not_waited_for')


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
    folder, at_best = tmp_path / 'run', []

    def go_on(agent, reward, **given):
        def rate(ctx):
            for episode in ctx.episodes:
                episode.reward = reward

        def note(ctx):
            if ctx.new_best is not None:
                at_best[:] = weights(agent)

        agent.fit(recipe=agent.recipe().after('collect', rate).after('best', note), **given)
        assert weights(load(folder)) == at_best != weights(load(folder, 'last'))
        return agent.best_reward

    first = make(reward_buffer_size=10)
    assert go_on(first, 10.0, max_steps=100, run_dir=str(folder), final_episodes=0) == 10
    before = [*at_best]
    assert go_on(resume(folder, max_steps=200), 1.0) == 10 and at_best == before
    assert go_on(resume(folder, max_steps=300), 20.0) == 20 and at_best != before
    assert load(folder).best_reward == 20


def test_a_target_that_is_met_already_collects_and_writes_nothing(copied, typed):
    with untouched(copied):
        code, said, errors = typed(f'train small --resume {copied}')
        assert (code, errors, len(said)) == (0, [], 5)
        assert said[-1].startswith(f'Maximum steps exceeded: {copied} already ended')
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
    (resumed,) = yaml.safe_load((copied / 'config.yaml').read_text())['about']['resumed']
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
    assert typed(f'train small --resume {copied} --max-steps 210 --seed 1 --net 4 --env {ENV}')[::2] == (0, [])


def test_without_its_link_a_run_goes_on_from_the_newest_checkpoint(copied, typed):
    last = copied / 'checkpoints' / 'last'
    newest = last.resolve()
    last.unlink()
    last.symlink_to('gone')
    code, shown, said = typed(f'train small --resume {copied} --max-steps 300')
    assert (code, said) == (0, []) and f'Resumed {copied} at step {int(newest.name.split("-")[1])}' in shown[4]
    assert last.resolve().is_dir()


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


@pytest.mark.parametrize('agent_id', ['small', 'small-replay'])
def test_leaving_a_loop_and_going_on(agent_id, tmp_path):
    folder = tmp_path / 'run'
    agent = make(agent_id)

    def leave(agent, after, **given):
        try:
            raise KeyError('within the handling of an error')
        except KeyError:
            for log in agent.train_iter(**given):
                if log['steps'] > after:
                    break

    leave(agent, 60, max_steps=1_000, run_dir=str(folder), save_seconds=1e6)
    status = read_status(folder)
    assert (status['state'], status['steps']) == ('interrupted', agent.steps)
    again = resume(folder)
    assert again.steps == agent.steps and weights(again) == weights(agent)
    leave(again, 120)
    leave(agent, 120, max_steps=1_000, run_dir=None)
    assert again.steps == agent.steps and weights(again) == weights(agent)
    assert len(pd.read_parquet(folder / 'history.parquet')) == again.games


def test_a_resumed_run_still_tells_what_its_networks_were_made_of(tmp_path):
    agent = make(net=[8, 4], run_dir=str(tmp_path / 'run'))
    agent.fit(max_steps=20)
    agent.close()
    made_of = read_config(tmp_path / 'run')['net']
    resumed = resume(tmp_path / 'run', max_steps=40)
    resumed.fit()
    resumed.close()
    assert read_config(tmp_path / 'run')['net'] == made_of == [8, 4]
