"""`--curriculum`: levels of environment parameters, equal for every way to collect."""

import contextlib

import numpy as np
import pandas as pd
import pytest

import xagents
from tests.agents.contract import assert_same, everything
from tests.commands import execute
from tests.envs.test_infos import CostlyFunctions
from tests.info_problems import Levels, Picky
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.envs.create import as_envs, create_envs
from xagents.options.errors import OptionError
from xagents.runs import saving

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla_in_module')
ENV = 'tests.info_problems:Levels-v0'
PICKY = 'tests.info_problems:Picky-v0'
SMALL = {'env': ENV, 'n_envs': 3, 'n_steps': 4, 'net': [8], 'seed': 1, 'quiet': True, 'vector': 'sync'}
SMALL |= {'reward_buffer_size': 6, 'log_info': ['level']}
BY_REWARD = {'curriculum': {'level': '0..3'}, 'curriculum_when': 'mean_reward>-1'}


def logs_of(steps=150, fit=None, **options):
    """Return the levels, and the metrics of infos, of each iteration; and the state of the agent."""
    rows = []
    with contextlib.closing(xagents.make('small', **{**SMALL, **BY_REWARD, **options})) as agent:
        for log in agent.train_iter(max_steps=steps, **(fit or {})):
            rows.append((log['curriculum/level'], log.get('info/level'), log.get('info/level/episode')))
        assert agent.context.level == 3
        return rows, everything(agent)


def test_levels_follow_the_mean_reward():
    """The first 6 episodes of a level take 18 steps of 3 environments, two rollouts."""
    rows, _ = logs_of()
    assert [row[0] for row in rows][:8] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(level == seen for level, seen, _ in rows)


@pytest.mark.parametrize('explorers', [1, 3])
def test_explorers_lead_to_the_same_run(explorers):
    (rows, state), (others, other_state) = logs_of(), logs_of(fit={'explorers': explorers})
    assert rows == others
    assert_same(state, other_state)


def test_worker_processes_lead_to_the_same_run():
    (rows, state), (others, other_state) = logs_of(steps=80), logs_of(steps=80, vector='async')
    assert rows == others
    assert_same(state, other_state)


def test_one_iteration_ahead_begins_levels_one_iteration_later():
    rows, _ = logs_of(fit={'overlap': True})
    assert [row[0] for row in rows][:9] == [0, 0, 0, 1, 1, 1, 2, 2, 2] and rows == logs_of(fit={'overlap': True})[0]
    assert all(level == seen for level, seen, _ in rows)


@pytest.mark.parametrize('overlap', [False, True])
def test_a_run_stopped_within_a_level_goes_on(tmp_path, overlap):
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    with contextlib.closing(xagents.make('small', **SMALL, **BY_REWARD, schedule_steps=120)) as agent:
        options = {'checkpoint_frequency': 40, 'save_seconds': 1.0, 'overlap': overlap}
        agent.fit(max_steps=120, run_dir=str(whole), **options)
    step = stopped_in_the_middle(whole, killed)
    with contextlib.closing(xagents.resume(killed)) as agent:
        assert agent.steps == step < 120 and agent.context.level in (1, 2, 3)
        agent.fit()
    assert_same_run(whole, killed)
    history = pd.read_parquet(whole / 'history.parquet')
    assert history['mean_reward'].isin([0, 3, 6, 9]).all()  # no window has episodes of two levels


def test_levels_follow_the_steps():
    rows = []
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        for log in agent.train_iter(max_steps=120, curriculum={'level': '3..0'}):
            rows.append((log['steps'], log['curriculum/level']))
        assert agent.context.level == 3
    before = [0, *[steps for steps, _ in rows[:-1]]]
    assert [level for _, level in rows] == [3 - min(4 * steps // 120, 3) for steps in before]


def test_other_metrics():
    """A level of 2 is a success, in one metric per iteration whose mean is kept; evaluations have the present level."""
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        agent.fit(max_steps=100, curriculum={'level': [2, 5]}, curriculum_when='success_rate>0.9', final_episodes=0)
        assert agent.context.level == 1
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        agent.fit(max_steps=100, curriculum={'level': '0..2'}, curriculum_when='success_rate>0.9', final_episodes=0)
        assert agent.context.level == 0
    found = []
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        options = {'curriculum': {'level': '1..3'}, 'curriculum_when': 'evaluate/mean>2', 'eval_frequency': 20}
        for log in agent.train_iter(max_steps=100, eval_episodes=2, **options):
            found += [(log['curriculum/level'], log['evaluate/mean'])] if 'evaluate/mean' in log else []
        assert found[:3] == [(1, 3.0), (2, 6.0), (3, 9.0)]
        assert agent.evaluate(2)['mean'] == 0.0  # after the run, the environment is that of env_kwargs


def test_a_target_counts_at_the_last_level_only():
    with contextlib.closing(xagents.make('small', **SMALL, **BY_REWARD)) as agent:
        agent.fit(target_reward=-1, max_steps=300, final_episodes=0)
        assert agent.context.level == 3 and agent.steps < 300 and agent.run.stop_reason == 'target'
        assert agent.best_reward == 9.0


@pytest.mark.parametrize('vector', ['compiled', 'sync'])
def test_parameters_of_functions(vector):
    costs = []
    options = {**SMALL, 'env': CostlyFunctions, 'vector': vector, 'n_steps': 5, 'log_info': ['cost']}
    with contextlib.closing(xagents.make('ppo', **options)) as agent:
        for log in agent.train_iter(max_steps=90, curriculum={'scale': '1..3'}):
            costs.append(log.get('info/cost/episode'))
    assert costs[0] == 15.0 and costs[-1] == 45.0


def test_auto_selects_environments_that_have_the_parameter():
    options = {'n_envs': 8, 'n_steps': 4, 'net': [8], 'quiet': True}
    with contextlib.closing(xagents.make('ppo', 'CartPole-v1', curriculum={'gravity': '8..10'}, **options)) as agent:
        assert agent.envs.functional_vector is None
        agent.envs.check_params({'gravity': (8,)})
    with contextlib.closing(xagents.make('ppo', 'Pendulum-v1', curriculum={'g': '8..10'}, **options)) as agent:
        assert agent.envs.functional_vector is not None


def test_a_stage_of_your_own_sets_parameters():
    def harder(ctx):
        ctx.env_params['level'] = 1 + ctx.steps // 40

    found = []
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        for log in agent.train_iter(max_steps=90, recipe=agent.recipe().before('collect', harder)):
            found.append(log['info/level'])
    assert found[0] == 1.0 and found[-1] == 3.0 and sorted(found) == found


def test_methods_are_called_when_the_value_changes():
    """A method without an attribute of its name is called for each rollout."""
    with create_envs(ENV, 2, vector='sync') as envs:
        envs.set_params(limit=7, level=4)
        envs.set_params(level=4.0)
        inner = envs._base_vector.envs[0].unwrapped
        assert (inner._limit, inner.n_set, inner.level) == (7, 1, 4)


@pytest.mark.parametrize(
    'make',
    [
        lambda: create_envs(ENV, 1, vector='sync'),
        lambda: create_envs(ENV, 1, vector='async'),
        lambda: as_envs([Levels()]),
        lambda: create_envs(CostlyFunctions, 1, vector='compiled'),
    ],
)
def test_an_unknown_parameter_is_one_line_with_the_nearest_name(make):
    with make() as envs:
        name = 'scael' if envs.functional_vector is not None else 'levle'
        with pytest.raises(
            OptionError, match=rf'curriculum: .* has no attribute {name} .*\(did you mean (level|scale)\?'
        ):
            envs.check_params({name: (1,)})


@pytest.mark.parametrize('make', [lambda v: create_envs(PICKY, 1, vector=v), lambda v: as_envs([Picky()])])
@pytest.mark.parametrize('vector', ['sync', 'async'])
@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('step', 'step is a method, expected a number, or a method set_step'),
        ('name', 'name is str, expected a number'),
        ('observation_space', 'observation_space is Box of shape \\[2\\], expected a number'),
        ('state', 'state is ndarray of shape \\[3\\], expected a number'),
        ('flag', 'flag is bool, expected a number'),
        ('whole', 'whole is the int 1, got 0.5, expected whole numbers'),
    ],
)
def test_attributes_that_are_no_numbers(make, vector, name, message):
    with make(vector) as envs, pytest.raises(OptionError, match=f'curriculum: .*: {message}'):
        envs.check_params({name: (0, 0.5)})


@pytest.mark.parametrize('vector', ['sync', 'async'])
def test_a_value_that_the_environment_does_not_accept(vector):
    with create_envs(PICKY, 2, vector=vector) as envs:
        envs.check_params({'speed': (0, 0.5), 'whole': (1, 2.0), 'text': (1, 2), 'hard': (0, 2)})
        envs.set_params(speed=0.5, whole=2, text=1, hard=1)
        for name, value in (('hard', 2), ('text', 3)):
            with pytest.raises(OptionError, match=f'curriculum: {name}={value}: ValueError: {name} is at most 1'):
                envs.set_params(**{name: value})


def test_the_command_line_names_the_level_that_the_environment_does_not_accept(folder):
    line = 'train ppo --import tests.info_problems --env Picky-v0 --n-steps 8 --net 8 --max-steps 60'
    code, stdout, stderr = execute(*line.split(), '--curriculum', 'hard=0..3')
    assert 'Best reward: none' not in stdout
    assert code == 2 and '--curriculum: hard=2: ValueError: hard is at most 1' in stderr and stderr.count('\n') == 1


def test_a_first_best_of_a_level_has_no_best_of_before(folder):
    line = 'train ppo --import tests.info_problems --env Levels-v0 --n-steps 8 --net 8 --max-steps 160'
    code, stdout, _ = execute(*line.split(), '--curriculum', 'level=0..3', '--final-episodes', '0')
    assert code == 0 and '\nBest reward: ' in stdout and 'none ->' not in stdout
    assert '-> none' not in stdout and '\nBest reward: none' not in stdout


class Death(BaseException):
    pass


def died(*_):
    raise Death


def test_a_run_killed_in_its_final_evaluation_plays_the_last_level(tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    agent = xagents.make('small', **SMALL, **BY_REWARD)
    with contextlib.closing(agent), monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(saving, 'final_evaluation', died)
        agent.fit(max_steps=150, run_dir=str(folder), final_episodes=2)
    status = folder / 'status.json'
    status.write_text(status.read_text().replace('failed', 'running'))
    with contextlib.closing(xagents.resume(folder)) as agent:
        agent.fit()
        assert agent.run.summary and all('2 episodes' in line and ' 9' in line for line in agent.run.summary)


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ('--curriculum levle=0..5 --max-steps 20', '--curriculum: Levels-v0 has no attribute levle and no method'),
        ('--curriculum level=0-5 --max-steps 20', '--curriculum: level: got 0-5, expected A..B'),
        ('--curriculum level=0..5 --max-time 5', '--curriculum: got nothing that begins levels, expected --max-steps'),
        ('--curriculum level=0..5 --curriculum-when meen>5 --max-steps 20', '--curriculum-when: got meen, which this'),
        ('--curriculum-when mean_reward>5 --max-steps 20', '--curriculum-when: got mean_reward>5, which requires'),
    ],
)
def test_wrong_input_of_the_command_line(folder, flags, message):
    line = f'train ppo --import tests.info_problems --env Levels-v0 {flags} --n-steps 8 --net 8'
    code, _, stderr = execute(*line.split())
    assert code == 2 and message in stderr and stderr.count('\n') == 1


def test_the_command_line_and_the_message_of_a_level(folder):
    line = 'train ppo --import tests.info_problems --env Levels-v0 --n-steps 8 --net 8 --max-steps 60 --run-dir run'
    code, stdout, stderr = execute(*line.split(), '--curriculum', 'level=0..1', '--final-episodes', '0')
    assert (code, stderr) == (0, '') and 'Curriculum: level 2 of 2 from step ' in stdout and ': level=1' in stdout
    table = pd.read_parquet(folder / 'run' / 'metrics.parquet')
    assert {0.0, 1.0} >= {*table['curriculum/level']} and np.isfinite(table['curriculum/level']).all()


def test_a_recipe_without_the_stage_is_refused():
    with contextlib.closing(xagents.make('small', **SMALL)) as agent:
        recipe = agent.recipe()
        with pytest.raises(OptionError, match='curriculum: got a recipe without this stage'):
            agent.fit(max_steps=20, recipe=recipe, curriculum={'level': '0..3'})
