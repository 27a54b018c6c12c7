"""Each stage alone, in a run of an agent that only counts what is asked of it."""

import math
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from xagents.checkpoints.progress import Progress
from xagents.checkpoints.protocols import AgentOrigin
from xagents.collecting.random_streams import RandomStreams
from xagents.logs.console import Console
from xagents.logs.history import read_history
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context, EpisodeEnd
from xagents.pipeline.recipe import Recipe, compose, stage
from xagents.pipeline.schedules import Schedule
from xagents.registry.traits import Traits
from xagents.runs import reporting, saving, stages
from xagents.runs.run import Run
from xagents.runs.stage_checks import MAX_KEPT, own_stages, with_stage_checks


class Stub:
    """What a run asks of an agent."""

    id, traits, output_models = 'stub', Traits(), ()

    def __init__(self):
        self.options, self.origin, self.streams = AgentOptions(reward_buffer_size=20), AgentOrigin(), RandomStreams(0)
        self.progress = Progress(deque(maxlen=20))
        self.envs = SimpleNamespace(can_recreate=True, id='Stub-v0', n_envs=2, n_whole_envs=2, agents=())
        self.statistics, self.acting_policy = None, SimpleNamespace(network=None, self_contained=False)
        self.collector = SimpleNamespace(groups={}, stats=None)

    def parts(self):
        return {}

    def schedules(self):
        return {'learning_rate': Schedule(0.1, 'linear'), 'noise': Schedule(2.0)}


def run_of(agent=None, **options):
    run = Run(agent or Stub(), RunOptions(**options))
    run.console = Console(quiet=run.options.quiet)
    return run


def stream(run, contexts, *chain):
    """Pass contexts through stages."""
    return compose(iter(contexts), Recipe((str(i), s) for i, s in enumerate(chain)).bind(run).stages)


def once(stage, run, **fields):
    """Pass one context through one stage; the rest of the stage runs, too."""
    ctx = Context(**fields)
    list(stream(run, [ctx], stage))
    return ctx


def episode(reward, step=1, success=None):
    return EpisodeEnd(reward, int(reward), 0, success, step=step, time=0.5)


def test_schedule_is_base_times_schedule_times_plateau():
    ctx = once(stages.schedule, run_of(max_steps=100), steps=25, plateau_factor=0.5)
    assert ctx.schedule == {'learning_rate': pytest.approx(0.1 * 0.75 * 0.5), 'noise': 2.0}
    assert ctx.logs['learning_rate'] == ctx.schedule['learning_rate']


def test_collect_counts_steps_and_dates_episodes():
    run = run_of()

    def collect(schedule):
        stats = run.agent.collector.stats
        stats.episodes.append(EpisodeEnd(5.0, 5, 0, None, step=3, time=0.25))
        stats.steps += 8
        stats.seconds['env'] += 1.5
        return {'rewards': 1}

    run.agent.collect = collect
    ctx = once(stages.collect, run, steps=100, seconds=10.0)
    assert ctx.steps == 108 and ctx.batch == {'rewards': 1} and ctx.logs['seconds/env'] == 1.5
    assert (ctx.episodes[0].step, ctx.episodes[0].time) == (103, 10.25)
    assert ctx.seconds > 10.0
    again = once(stages.collect, run)
    assert again.steps == 8 and len(again.episodes) == 1, 'nothing is left over from the last iteration'


def test_episodes_decide_when_the_mean_is_looked_at():
    run = run_of()
    run.progress.rewards.extend([6.0] * 8)
    ctx = once(stages.episodes, run, games=8, episodes=[episode(6.0)])
    assert ctx.games == 9 and ctx.mean_reward == 6.0 and not ctx.checked, 'a mean needs ten episodes'
    ctx = once(stages.episodes, run, games=9, episodes=[episode(16.0, success=True)])
    assert ctx.checked and ctx.mean_reward == 7.0
    assert ctx.logs == {'episode_length': 16.0, 'success_rate': 1.0} and ctx.checked_games == 10
    assert not once(stages.episodes, run, games=10, checked_games=10).checked
    ctx = once(stages.episodes, run, games=10, checked_games=10, episodes=[episode(4.0)])
    assert not ctx.checked, 'two environments: two episodes a check'


def test_evaluations_decide_instead_of_episodes(monkeypatch):
    asked, result = [], {'mean': 7.0, 'std': 1.0, 'length': 9.0, 'min': 1.0, 'max': 8.0}
    run = run_of(eval_frequency=50, eval_episodes=3)
    monkeypatch.setattr(
        stages.playing, 'evaluate', lambda agent, n, seed, say: asked.append((agent, n, seed)) or result
    )
    ctx = once(stages.episodes, run, episodes=[episode(4.0)] * 5)
    assert math.isnan(ctx.mean_reward) and not ctx.checked
    assert once(stages.evaluate, run, steps=49).logs == {}
    ctx = once(stages.evaluate, run, steps=70, evaluated_steps=20)
    assert ctx.mean_reward == 7.0 and ctx.checked and ctx.evaluated_steps == 70
    assert asked == [(run.agent, 3, run.evaluation_seed(70))]
    assert ctx.logs == {'evaluate/mean': 7.0, 'evaluate/std': 1.0, 'evaluate/length': 9.0}
    result['success'] = 0.5
    assert once(stages.evaluate, run, steps=70).logs['evaluate/success'] == 0.5


def test_a_new_best_copies_the_weights():
    run = run_of(checkpoints=['a.tf'])
    ctx = once(saving.best, run, checked=True, mean_reward=1.0, iteration=4)
    assert math.isnan(ctx.new_best) and ctx.best_reward == 1.0
    assert run.progress.best.record['counters']['iteration'] == 4
    run.progress.best = None
    for checked, mean in ((True, 1.0), (False, 2.0), (True, math.nan)):
        once(saving.best, run, checked=checked, mean_reward=mean, best_reward=1.0)
    assert run.progress.best is None, 'equal and NaN are not better, and what is not checked does not count'


def test_the_target_needs_a_full_buffer_and_its_weights_are_copied_even_below_the_best():
    run = run_of(checkpoints=['a.tf'], target_reward=5.0)
    run.progress.rewards.extend([6.0] * 19)
    fields = {'checked': True, 'mean_reward': 6.0, 'best_reward': 9.0, 'games': 19, 'checked_games': 19}
    assert stages.why_stop(run, once(saving.best, run, **fields)) == '' and run.progress.best is None
    run.progress.rewards.append(6.0)
    ctx = once(saving.best, run, **fields)
    assert stages.why_stop(run, ctx) == 'target' and run.progress.best is not None and ctx.best_reward == 9.0


@pytest.fixture
def written(monkeypatch):
    """The states that `--checkpoints` got."""
    states = []
    monkeypatch.setattr(saving, 'write_weights', lambda paths, agent, state: states.append(state))
    return states


def test_checkpoint_writes_after_later_stages_at_intervals_and_on_the_way_out(written):
    run = run_of(checkpoints=['a.tf'], save_seconds=0.0)

    def improve(ctx):
        run.progress.context = ctx
        if ctx.iteration != 1:
            run.progress.best = SimpleNamespace(of=ctx.iteration)

    list(stream(run, [Context(iteration=i) for i in range(3)], saving.checkpoint, improve))
    assert [state.of for state in written] == [0, 2, 2]


def before(ctx):
    if ctx.iteration == 2:
        raise RuntimeError


def behind_a_yield(ctx):
    yield
    if ctx.iteration == 1:
        raise RuntimeError


@pytest.mark.parametrize('place', [0, 1])
@pytest.mark.parametrize('fails', [before, behind_a_yield, None])
def test_checkpoint_writes_nothing_after_an_error_and_writes_when_a_loop_is_left(fails, place, written):
    run = run_of(checkpoints=['a.tf'], save_seconds=1e9)

    def publish(ctx):
        run.progress.context, run.progress.best = ctx, SimpleNamespace()

    chain = [saving.checkpoint, publish]
    chain.insert(place, fails or (lambda ctx: None))
    running = stream(run, [Context(iteration=1), Context(iteration=2)], *chain)
    if fails is None:
        next(running)
        running.close()
    else:
        with pytest.raises(RuntimeError):
            list(running)
    assert len(written) == (fails is None)


def test_learn_gets_the_values_that_it_takes():
    run = run_of()
    run.agent.learn = lambda batch, schedule: {'updates': 3, 'loss/policy': batch + schedule['noise']}
    ctx = once(stages.learn, run, batch=1, schedule={'learning_rate': 0.1, 'noise': 2.0}, updates=4)
    assert ctx.updates == 7 and ctx.logs['loss/policy'] == 3.0 and ctx.logs['seconds/learn'] >= 0
    assert 'updates' not in ctx.logs
    run.agent.learn = lambda batch, schedule: None
    assert once(stages.learn, run, batch=1).updates == 1


@pytest.mark.parametrize('stage', [stages.learn, stages.remember])
def test_a_recipe_that_lacks_what_collects_is_told_so(stage):
    with pytest.raises(ValueError, match=rf'recipe: {stage.__name__} got an empty batch, expected a stage before it'):
        once(stage, run_of())


def test_plateau():
    run = run_of(divergence_monitoring_steps=10, plateau_reduce_patience=2, plateau_reduce_factor=0.5)
    assert once(stages.plateau, run, steps=9, checked=True, plateau_count=5).plateau_count == 5
    assert once(stages.plateau, run, steps=10, plateau_count=1).plateau_count == 1
    assert once(stages.plateau, run, steps=10, checked=True, plateau_count=1, new_best=1.0).plateau_count == 0
    ctx = once(stages.plateau, run, steps=10, checked=True, plateau_count=1)
    assert (ctx.plateau_count, ctx.early_stop_count, ctx.plateau_factor) == (0, 1, 0.5)
    assert ctx.messages == ['Learning rate reduced 0.0007 -> 0.00035']


def test_history_continues_the_mean_and_never_goes_back(tmp_path):
    run = run_of(history_checkpoint=str(tmp_path / 'h.parquet'))
    once(reporting.history, run, episodes=[episode(2.0, 10), episode(4.0, 20)], best_reward=9.0)
    run.progress.context, run.progress.rewards = Context(iteration=1, steps=5), deque([2.0, 4.0])
    once(reporting.history, run, episodes=[episode(6.0, 7)])
    rows = read_history(tmp_path / 'h.parquet')
    assert rows['mean_reward'].tolist() == [2.0, 3.0, 4.0] and rows['best_reward'].tolist()[:2] == [9.0, 9.0]
    assert rows['step'].tolist() == [10, 20, 22], 'counters older than the history go on from it'


@pytest.mark.parametrize(
    'options, fields, reason',
    [
        ({}, {}, ''),
        ({'max_steps': 10}, {'steps': 9}, ''),
        ({'max_steps': 10}, {'steps': 10}, 'steps'),
        ({'max_time': 5.0}, {'seconds': 5.0}, 'time'),
        ({'divergence_monitoring_steps': 0, 'early_stop_patience': 2}, {'early_stop_count': 2}, 'early'),
        ({'early_stop_patience': 2}, {'early_stop_count': 2}, ''),
        ({'target_reward': 5.0, 'eval_frequency': 1}, {'mean_reward': 5.0}, 'target'),
        ({'target_reward': 5.0, 'eval_frequency': 1}, {}, ''),
    ],
)
def test_until(options, fields, reason):
    assert once(stages.until, run_of(**options), **fields).stop == reason


def checked_recipe(recipe):
    return with_stage_checks(recipe, own_stages(recipe))


def rollout(n_steps=3, n_envs=4):
    columns = {name: np.zeros((n_steps, n_envs)) for name in ('rewards', 'terminated', 'valid')}
    return {'observations': np.zeros((n_steps + 1, n_envs, 2)), **columns, 'actions': np.zeros((n_steps, n_envs, 1))}


@pytest.mark.parametrize('column', ['rewards', 'terminated', 'valid', 'observations'])
@pytest.mark.parametrize('policy', [None, 'prey'])
def test_a_stage_that_changes_a_shape_is_named(column, policy):
    def shape(ctx):
        part = ctx.batch if policy is None else ctx.batch[policy]
        part[column] = part[column][:, :1]

    batch = rollout() if policy is None else {policy: rollout()}
    checked = checked_recipe(Recipe([('collect', lambda ctx: None), ('shape', shape)]))
    expected = r'\[4, 4, 2\]' if column == 'observations' else r'\[3, 4\]'
    with pytest.raises(OptionError, match=rf'stage shape: got {column} of shape \[\d, 1(, 2)?\], expected {expected}'):
        list(compose(iter([Context(batch=batch)]), checked.stages))


@pytest.mark.parametrize('value', ['abc', None, np.zeros(2)])
def test_a_stage_that_logs_no_number_is_named(value):
    checked = checked_recipe(Recipe([('mine', lambda ctx: ctx.logs.update(own=value))]))
    with pytest.raises(OptionError, match=r"stages: stage mine: got ctx.logs\['own'\] = .*, expected a number"):
        list(compose(iter([Context()]), checked.stages))
    for number in (1, True, np.float32(2.0), np.array(3)):
        checked = checked_recipe(Recipe([('mine', lambda ctx, number=number: ctx.logs.update(own=number))]))
        list(compose(iter([Context()]), checked.stages))


def test_a_stage_may_replace_the_batch_by_another_one_and_add_columns():
    others = [rollout(5, 2), {'observations': np.zeros((2, 3)), 'rows': np.zeros(1)}, {**rollout(), 'own': 3}, {}]
    for other in others:
        checked = checked_recipe(Recipe([('replace', lambda ctx, other=other: setattr(ctx, 'batch', other))]))
        list(compose(iter([Context(batch=rollout())]), checked.stages))
    assert own_stages(Recipe([('learn', stages.learn), ('mine', len)])) == ['mine']


def test_a_stage_that_yields_nothing_ends_the_run_with_an_error():
    @stage
    def swallow(stream):
        for _ in stream:
            pass

    taken = []
    recipe = checked_recipe(Recipe([('collect', taken.append), ('swallow', swallow)]))
    with pytest.raises(OptionError, match=r'stages: swallow yields no context, expected `yield ctx` for each'):
        next(recipe.stream(Context()))
    assert len(taken) == MAX_KEPT + 1
