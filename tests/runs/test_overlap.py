"""Collecting one iteration ahead in a thread: the lag, errors, endings, counters, and what is in flight."""

import dataclasses
import gc
import itertools
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest

import xagents
from tests.runs.test_runs import Random
from tests.small_agents import Fault, make, weights
from xagents.collecting.finite import NotFiniteError
from xagents.factory.load import resume
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, kept
from xagents.pipeline.recipe import stage

pytestmark = pytest.mark.usefixtures('small_agents')
AGENTS = ('small', 'small-replay')


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    left = collectors()
    for thread in left:
        thread.name = 'left over'  # by one test, not by those that follow
    assert left == []


def collectors():
    return [thread for thread in threading.enumerate() if thread.name == 'collector']


def overlapped(agent, **stages):
    """The recipe with stages of one's own, each hung on the stage that it is named after."""
    recipe = agent.recipe(overlap=True)
    for name, function in stages.items():
        recipe = recipe.after(name, function, name=f'own {name}')
    return recipe


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


# ------------------------------------------------------------------------------------------------------------------ lag


@pytest.mark.parametrize('agent_id', AGENTS)
def test_it_collects_exactly_one_iteration_ahead(agent_id):
    agent = make(agent_id)
    collected, learned, threads = [], [], set()

    def collecting(ctx):
        collected.append(ctx.iteration)
        threads.add(threading.current_thread().name)

    def learning(ctx):
        assert threading.current_thread() is threading.main_thread()
        assert wait_for(lambda: collected[-1] > ctx.iteration)  # never none: the next one comes while this one waits
        time.sleep(0.02)
        assert collected[-1] == ctx.iteration + 1  # never two
        learned.append(ctx.iteration)

    agent.fit(max_steps=200, recipe=overlapped(agent, collect=collecting, overlap=learning))
    assert learned == list(range(1, len(learned) + 1)) and len(learned) > 10
    assert collected == [*learned, learned[-1] + 1]
    assert threads == {'collector'}


def test_each_iteration_acts_by_the_weights_of_the_one_before_the_last():
    agent = make()
    acting, after = {}, {0: agent.actor.published_weights.weights.copy()}

    def collecting(ctx):
        acting[ctx.iteration] = agent.collector.policy.network.published_weights.weights.copy()

    def learned(ctx):
        after[ctx.iteration] = agent.actor.published_weights.weights.copy()

    agent.fit(max_steps=120, recipe=overlapped(agent, collect=collecting, learn=learned))
    assert len(after) > 8
    for iteration, seen in acting.items():
        np.testing.assert_array_equal(seen, after[max(iteration - 2, 0)])


@pytest.mark.parametrize('agent_id', AGENTS)
def test_equal_seeds_give_equal_runs_whichever_side_is_slow(agent_id):
    ends = []
    for slow in ('collect', 'overlap', 'none'):
        agent = make(agent_id, normalize_obs=True)
        delays = {slow: lambda ctx: time.sleep(0.005)} if slow != 'none' else {}
        logs = list(agent.train_iter(max_steps=150, recipe=overlapped(agent, **delays), eval_frequency=60))
        clock = ('seconds/', 'steps_per_second')
        ends.append((weights(agent), [{k: repr(v) for k, v in log.items() if not k.startswith(clock)} for log in logs]))
    assert ends[0] == ends[1] == ends[2]


def test_what_is_learned_from_is_normalised_by_what_was_known_when_it_was_collected():
    agent = make('small-replay', normalize_obs=True)
    known, used = {}, {}

    def collecting(ctx):
        known[ctx.iteration] = agent.collector.statistics.observations.statistics.count

    def learning(ctx):
        used[ctx.iteration] = agent.statistics.observations.statistics.count

    agent.fit(max_steps=120, recipe=overlapped(agent, collect=collecting, overlap=learning))
    assert len(used) > 8 and used == {iteration: known[iteration] for iteration in used}
    assert len(set(used.values())) == len(used)


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize('what', ['raise', 'observation'])
@pytest.mark.parametrize('agent_id', AGENTS)
def test_what_an_environment_does_wrong_is_raised_where_the_user_is(agent_id, what):
    agent = make(agent_id, Fault(1, 10, what))
    error, message = ArithmeticError, 'broken at step 10'
    if what == 'observation':
        error, message = NotFiniteError, r'observations are not finite \(nan\) at step \d+ in environment 1'
    with pytest.raises(error, match=message):
        agent.fit(max_steps=1_000, overlap=True)
    # step 10 is in the third iteration of four steps; the two before it were learned from
    assert agent.context.iteration == 2 and collectors() == []


@pytest.mark.parametrize('where', ['collect', 'overlap', 'learn', 'until'])
def test_an_error_of_a_stage_on_either_side_ends_the_thread(where):
    agent = make()

    def fails(ctx):
        if ctx.iteration == 3:
            raise RuntimeError('broken')

    with pytest.raises(RuntimeError, match='broken'):
        agent.fit(max_steps=1_000, recipe=overlapped(agent, **{where: fails}))
    assert collectors() == [] and agent.context.iteration == 2
    assert agent.run.overlap is None and agent.collector.policy is agent.acting_policy
    assert agent.collector.statistics is agent.statistics
    agent.fit(max_steps=200)  # it is usable
    assert agent.steps >= 200


def test_an_error_of_the_iteration_in_flight_does_not_spoil_the_end_of_a_run(tmp_path):
    # the budget ends the run at its third iteration, and the fourth raises meanwhile
    agent = make('small', Fault(0, 13, 'raise'))
    agent.fit(max_steps=30, recipe=overlapped(agent), run_dir=str(tmp_path / 'run'))
    assert agent.run.stop_reason == 'steps' and agent.context.iteration == 3
    again = resume(tmp_path / 'run', max_steps=60)
    assert again.progress.in_flight is None
    assert again.collector.observations is None  # what the environments stood at is not known: they begin anew
    again.fit()
    agent.fit(max_steps=60)
    assert again.steps >= 60 and agent.steps >= 60


# ------------------------------------------------------------------------------------------------------------- endings


def test_every_ending_leaves_no_thread():
    agent = make()

    def begun():
        iterator = agent.train_iter(max_steps=1_000, overlap=True)
        next(iterator)
        assert len(collectors()) == 1
        return iterator

    agent.fit(max_steps=30, overlap=True)  # a budget
    assert collectors() == []
    begun().close()  # a break
    assert collectors() == []
    begun()  # forgotten
    assert collectors() == []
    cycle = [begun()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert collectors() == []
    first = begun()
    second = agent.train_iter(max_steps=1_000, overlap=True)  # closes the first one
    assert collectors() == [] and list(first) == []
    next(second)
    agent.close()
    assert collectors() == []
    agent.train_iter(max_steps=1_000, overlap=True)  # never begun
    assert collectors() == []


@pytest.mark.parametrize('where', ['collect', 'learn'])
@pytest.mark.parametrize('times', [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_in_a_stage_on_either_side(where, times, tmp_path):
    agent = make()

    def interrupts(ctx):
        if ctx.iteration == 4:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.3)  # so that each is seen by itself

    recipe = overlapped(agent, **{where: interrupts})
    with pytest.raises(KeyboardInterrupt):
        agent.fit(max_steps=10_000, recipe=recipe, run_dir=str(tmp_path / 'run'), save_seconds=1e6)
    assert collectors() == []
    saved = resume(tmp_path / 'run')
    # the first one lets the iteration finish, and saves it; the second one quits with what was saved before
    assert saved.context.iteration in ((3, 4) if times == 1 else (1,))
    if times == 1:
        assert agent.context.iteration == saved.context.iteration and weights(agent) == weights(saved)
        assert saved.progress.in_flight.context.batch.keys() == agent.progress.in_flight.context.batch.keys()
        assert saved.progress.in_flight.changed_counters == agent.progress.in_flight.changed_counters


# ------------------------------------------------------------------------------------------------------------- refusals


def test_an_agent_that_does_both_in_train_step_and_a_recipe_without_the_stage_are_refused():
    with pytest.raises(OptionError, match=r'Random collects and learns in train_step\(\)'):
        Random(xagents.create_envs('CartPole-v1', 2), seed=1).recipe(overlap=True)
    agent = make()
    with pytest.raises(OptionError, match=r'recipe\(overlap=True\)'):
        agent.fit(max_steps=10, recipe=agent.recipe(), overlap=True)


# ---------------------------------------------------------------------------------------------------- what is in flight


@pytest.mark.parametrize('agent_id', AGENTS)
@pytest.mark.parametrize('overlap', [False, True])
def test_fit_goes_on_with_what_is_in_flight(agent_id, overlap):
    agent = make(agent_id)
    collected, learned = [], []

    def stages(recipe):
        recipe = recipe.after('collect', lambda ctx: collected.append((ctx.iteration, ctx.steps)), name='one')
        return recipe.after('learn', lambda ctx: learned.append((ctx.iteration, ctx.steps)), name='two')

    agent.fit(max_steps=60, recipe=stages(agent.recipe(overlap=True)))
    assert agent.progress.in_flight is not None and len(collected) == len(learned) + 1
    agent.fit(max_steps=120, recipe=stages(agent.recipe(overlap=overlap)))
    assert [iteration for iteration, _ in learned] == list(range(1, len(learned) + 1))
    assert collected[: len(learned)] == learned  # each once, with the same count of steps
    assert len(collected) == len(learned) + overlap
    assert (agent.progress.in_flight is not None) == overlap
    assert sum(env.unwrapped.taken for env in agent.envs._vector.envs) == collected[-1][1]


@dataclasses.dataclass(slots=True)
class Own(Context):
    """Counts on either side."""

    rows: int = kept(0)
    lessons: int = kept(0)
    mood: str = ''
    noted: float = 0.0
    marks: np.ndarray | None = None


def in_two_sessions(recipe, overlap, folder):
    """Run 60 steps with overlap, and 60 more with or without by the agent that resumes; return both."""
    agent = make()
    agent.fit(max_steps=60, recipe=recipe(agent, True), run_dir=str(folder))
    again = resume(folder, max_steps=120)
    again.fit(recipe=recipe(again, overlap))
    return agent, again


@pytest.mark.parametrize('overlap', [False, True])
def test_own_fields_live_on_on_either_side_also_across_a_resume(overlap, tmp_path):
    seen = []

    def collecting(ctx):
        ctx.rows += 1
        ctx.mood, ctx.marks = f'good {ctx.iteration}', np.full((2, 3), ctx.iteration)
        ctx.keep('mood')

    def learning(ctx):
        assert (ctx.marks == np.full((2, 3), ctx.iteration)).all()  # set by collecting, and not kept
        ctx.lessons += 1
        ctx.noted = ctx.lessons / 2
        ctx.keep('noted')
        seen.append((ctx.iteration, ctx.rows, ctx.lessons, ctx.mood, ctx.noted))

    def recipe(agent, ahead):
        stages = agent.recipe(overlap=ahead).after('collect', collecting).after('learn', learning)
        return stages.with_context(Own)

    agent, again = in_two_sessions(recipe, overlap, tmp_path / 'run')
    agent.fit(max_steps=120, recipe=recipe(agent, overlap))
    half = seen.index(seen[-1])
    resumed, same_process = seen[: half + 1], [*seen[: seen[half + 1][0] - 1], *seen[half + 1 :]]
    assert resumed == same_process == [(i, i, i, f'good {i}', i / 2) for i in range(1, len(resumed) + 1)]
    assert again.context.rows == again.context.lessons == len(resumed) > 8


def test_what_a_checkpoint_cannot_hold_of_a_batch_is_named(tmp_path):
    agent = make()

    def wrong(ctx):
        ctx.batch['notes'] = [{'a': 1}]

    with pytest.raises(TypeError, match=r'batch/notes: a checkpoint takes arrays of numbers, got list'):
        agent.fit(max_steps=60, recipe=overlapped(agent, collect=wrong), run_dir=str(tmp_path / 'run'))


def test_a_stage_on_collect_may_end_the_run():
    agent, learned = make(), []
    three = stage(lambda stream: itertools.islice(stream, 3))
    recipe = overlapped(agent, collect=three, learn=lambda ctx: learned.append(ctx.iteration))
    agent.fit(max_steps=10_000, recipe=recipe)
    assert learned == [1, 2, 3] and collectors() == []


# ------------------------------------------------------------------------------------------------------------- counters


def test_counters_add_up_as_without_overlap(tmp_path):
    # weights that never change act alike, however old they are
    counts, histories = [], []
    for overlap in (False, True):
        agent = make(lr=1e-30, normalize_reward=True)
        path = str(tmp_path / f'{overlap}.parquet')
        logs = list(agent.train_iter(max_steps=400, overlap=overlap, history_checkpoint=path))
        names = ('steps', 'games', 'updates', 'mean_reward', 'best_reward', 'episode_length')
        counts.append([[repr(log.get(name)) for name in names] for log in logs])
        histories.append(pd.read_parquet(path))
        assert agent.games == len(histories[-1]) > 30 and agent.context.updates == len(logs)
        assert histories[-1]['time'].is_monotonic_increasing and histories[-1]['step'].is_monotonic_increasing
    assert counts[0] == counts[1]
    pd.testing.assert_frame_equal(*(history.drop(columns='time') for history in histories), check_exact=True)


@pytest.mark.parametrize('ends_with', ['budget', 'break'])
def test_seconds_are_those_of_the_clock(ends_with):
    agent = make(env_kwargs={'sleep': 0.002})  # twelve steps in turn: 24 ms an iteration
    agent.fit(max_steps=12)
    before = agent.context.seconds
    start, paused, n = time.perf_counter(), 0.0, 0
    recipe = overlapped(agent, learn=lambda ctx: time.sleep(0.02))
    for log in agent.train_iter(max_steps=150, recipe=recipe):
        time.sleep(0.005)  # a user's own loop is no training time
        paused += 0.005
        n += 1
        assert log['seconds/wait'] >= 0
        if ends_with == 'break' and n == 10:
            break
    elapsed = time.perf_counter() - start - paused
    measured = agent.context.seconds - before
    assert n > 8 and measured <= elapsed * 1.05
    # of an iteration that was left midway, what it waited for is not counted
    assert measured >= 0.7 * elapsed - 0.1, (measured, elapsed)


def test_evaluations_and_best_weights_during_overlap(tmp_path):
    runs = []
    for path in (str(tmp_path / 'a.tf'), str(tmp_path / 'b.tf')):
        agent = make()
        logs = agent.train_iter(max_steps=300, overlap=True, eval_frequency=50, eval_episodes=3, checkpoints=[path])
        means = [log['evaluate/mean'] for log in logs if 'evaluate/mean' in log]
        assert len(means) >= 4 and agent.best_reward == max(means)
        assert agent.evaluate(3) == agent.evaluate(3)
        runs.append((means, weights(agent), weights(xagents.make('small', weights=[path]))))
    assert runs[0] == runs[1]
