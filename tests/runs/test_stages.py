"""Each stage alone, on an agent that only counts what is asked of it."""

import math
from collections import deque
from types import SimpleNamespace

import pytest

from xagents.base.schedules import Schedule
from xagents.logs.console import Console
from xagents.options.agents import AgentOptions
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context, EndedEpisode
from xagents.pipeline.recipe import compose
from xagents.runs import reporting, stages


class Stub:
    """What stages ask of an agent."""

    def __init__(self, **run):
        self.options, self.run = AgentOptions(reward_buffer_size=20), RunOptions(**run)
        self.total_rewards = deque(maxlen=20)
        self.n_envs, self.best, self.stopped, self.context = 2, None, '', Context()
        self.console = Console(quiet=False)
        self.collected, self.collected_steps, self.seconds = [], 0, {'env': 0.0, 'act': 0.0}
        self.written, self.asked, self.paused = [], [], 0.0
        self.envs = SimpleNamespace(can_be_made_again=True, id='Stub-v0')
        self.collector, self.folder, self.resumed_at, self.writers, self.NO_OVERLAP = self, None, None, [], ''

    def state(self):
        return SimpleNamespace(record={'options': {}}, at=len(self.asked))

    def write_checkpoints(self, state):
        self.written.append(state)

    def evaluation_seed(self, steps):
        return steps

    def evaluate(self, episodes, seed=None):
        self.asked.append((episodes, seed))
        return {'mean': 7.0, 'std': 1.0, 'length': 9.0, 'min': 1.0, 'max': 8.0}

    def schedules(self):
        return {'learning_rate': Schedule(0.1, 'linear'), 'noise': Schedule(2.0)}

    schedule_steps = 100


def once(stage, ctx):
    """Pass one context through one stage; the rest of the stage runs, too."""
    list(compose(iter([ctx]), [stage]))
    return ctx


def episode(reward, step=1, success=None):
    return EndedEpisode(reward, int(reward), success, step, 0.5)


def test_schedule_is_base_times_schedule_times_plateau():
    ctx = once(stages.schedule(Stub()), Context(steps=25, plateau_factor=0.5))
    assert ctx.schedule == {'learning_rate': pytest.approx(0.1 * 0.75 * 0.5), 'noise': 2.0}
    assert ctx.logs['learning_rate'] == ctx.schedule['learning_rate']


def test_collect_counts_steps_and_dates_episodes():
    agent = Stub()

    def collect():
        agent.collected.append(EndedEpisode(5.0, 5, None, 3, 0.25))
        agent.collected_steps += 8
        agent.seconds['env'] += 1.5
        return {'rewards': 1}

    agent.collect = collect
    ctx = once(stages.collect(agent), Context(steps=100, seconds=10.0))
    assert ctx.steps == 108 and ctx.batch == {'rewards': 1} and ctx.logs['seconds/env'] == 1.5
    assert (ctx.episodes[0].step, ctx.episodes[0].time) == (103, 10.25)
    assert ctx.seconds > 10.0
    again = once(stages.collect(agent), Context())
    assert again.steps == 8 and len(again.episodes) == 1, 'nothing is left over from the last iteration'


def test_episodes_decide_when_the_mean_is_looked_at():
    agent = Stub()
    agent.total_rewards.extend([6.0] * 8)
    ctx = once(stages.episodes(agent), Context(games=8, episodes=[episode(6.0)]))
    assert ctx.games == 9 and ctx.mean_reward == 6.0 and not ctx.checked, 'a mean needs ten episodes'
    ctx = Context(games=9, episodes=[episode(16.0, success=True)])
    assert once(stages.episodes(agent), ctx).checked and ctx.mean_reward == 7.0
    assert ctx.logs == {'episode_length': 16.0, 'success_rate': 1.0} and ctx.checked_games == 10
    assert not once(stages.episodes(agent), Context(games=10, checked_games=10)).checked
    ctx = Context(games=10, checked_games=10, episodes=[episode(4.0)])
    assert not once(stages.episodes(agent), ctx).checked, 'two environments: two episodes a check'


def test_evaluations_decide_instead_of_episodes():
    agent = Stub(eval_frequency=50, eval_episodes=3)
    ctx = once(stages.episodes(agent), Context(episodes=[episode(4.0)] * 5))
    assert math.isnan(ctx.mean_reward) and not ctx.checked
    assert once(stages.evaluate(agent), Context(steps=49)).logs == {}
    ctx = once(stages.evaluate(agent), Context(steps=70, evaluated_steps=20))
    assert ctx.mean_reward == 7.0 and ctx.checked and ctx.evaluated_steps == 70 and agent.asked == [(3, 70)]
    assert ctx.logs == {'evaluate/mean': 7.0, 'evaluate/std': 1.0, 'evaluate/length': 9.0}


def test_a_new_best_copies_the_weights():
    agent = Stub(checkpoints=['a.tf'])
    ctx = once(stages.best(agent), Context(checked=True, mean_reward=1.0))
    assert math.isnan(ctx.new_best) and ctx.best_reward == 1.0 and agent.best is not None
    agent.best = None
    once(stages.best(agent), Context(checked=True, mean_reward=1.0, best_reward=1.0))
    once(stages.best(agent), Context(checked=False, mean_reward=2.0, best_reward=1.0))
    once(stages.best(agent), Context(checked=True, mean_reward=math.nan, best_reward=1.0))
    assert agent.best is None, 'equal and NaN are not better, and what is not checked does not count'


def test_the_target_needs_a_full_buffer_and_its_weights_are_copied_even_below_the_best():
    agent = Stub(checkpoints=['a.tf'], target_reward=5.0)
    agent.total_rewards.extend([6.0] * 19)
    ctx = Context(checked=True, mean_reward=6.0, best_reward=9.0, games=19, checked_games=19)
    assert stages.why_stop(agent, once(stages.best(agent), ctx)) == '' and agent.best is None
    agent.total_rewards.append(6.0)
    assert stages.why_stop(agent, once(stages.best(agent), ctx)) == 'target' and agent.best is not None
    assert ctx.best_reward == 9.0


def test_checkpoint_writes_after_later_stages_at_intervals_and_on_the_way_out():
    agent = Stub(checkpoints=['a.tf'], save_seconds=0.0)
    contexts = [Context(iteration=i) for i in range(3)]

    def improve(ctx):
        if ctx.iteration != 1:
            agent.best = SimpleNamespace(of=ctx.iteration)

    def publish(ctx):
        agent.context = ctx

    list(compose(iter(contexts), [stages.checkpoint(agent), improve, publish]))
    assert [state.of for state in agent.written] == [0, 2, 2]


def before(ctx):
    if ctx.iteration == 2:
        raise RuntimeError


def behind_a_yield(ctx):
    yield
    if ctx.iteration == 1:
        raise RuntimeError


@pytest.mark.parametrize('where', ['upstream', 'downstream'])
@pytest.mark.parametrize('fails', [before, behind_a_yield])
def test_checkpoint_writes_nothing_after_an_error(where, fails):
    agent = Stub(checkpoints=['a.tf'], save_seconds=1e9)

    def publish(ctx):
        agent.context, agent.best = ctx, SimpleNamespace()

    chain = [stages.checkpoint(agent), publish]
    chain.insert(0 if where == 'upstream' else 1, fails)
    with pytest.raises(RuntimeError):
        list(compose(iter([Context(iteration=1), Context(iteration=2)]), chain))
    assert agent.written == []


def test_checkpoint_writes_when_a_loop_is_left():
    agent = Stub(checkpoints=['a.tf'], save_seconds=1e9)

    def publish(ctx):
        agent.context = ctx

    stream = compose(iter([Context(iteration=1), Context(iteration=2)]), [stages.checkpoint(agent), publish])
    next(stream)
    stream.close()
    assert len(agent.written) == 1


def test_learn_gets_the_values_that_it_takes():
    agent = Stub()
    agent.learn = lambda batch, noise: {'updates': 3, 'loss/policy': batch + noise}
    ctx = once(stages.learn(agent), Context(batch=1, schedule={'learning_rate': 0.1, 'noise': 2.0}, updates=4))
    assert ctx.updates == 7 and ctx.logs['loss/policy'] == 3.0 and ctx.logs['seconds/learn'] >= 0
    assert 'updates' not in ctx.logs
    agent.learn = lambda batch: None
    assert once(stages.learn(agent), Context()).updates == 1


def test_plateau():
    agent = Stub(divergence_monitoring_steps=10, plateau_reduce_patience=2, plateau_reduce_factor=0.5)
    assert once(stages.plateau(agent), Context(steps=9, checked=True, plateau_count=5)).plateau_count == 5
    assert once(stages.plateau(agent), Context(steps=10, plateau_count=1)).plateau_count == 1
    assert (
        once(stages.plateau(agent), Context(steps=10, checked=True, plateau_count=1, new_best=1.0)).plateau_count == 0
    )
    ctx = once(stages.plateau(agent), Context(steps=10, checked=True, plateau_count=1))
    assert (ctx.plateau_count, ctx.early_stop_count, ctx.plateau_factor) == (0, 1, 0.5)
    assert ctx.messages == ['Learning rate reduced 0.0007 -> 0.00035']


def test_history_continues_the_mean_and_never_goes_back(tmp_path):
    from xagents.logs.history import read_history

    agent = Stub(history_checkpoint=str(tmp_path / 'h.parquet'))
    once(reporting.history(agent), Context(episodes=[episode(2.0, 10), episode(4.0, 20)], best_reward=9.0))
    agent.context, agent.total_rewards = Context(iteration=1, steps=5), deque([2.0, 4.0])
    once(reporting.history(agent), Context(episodes=[episode(6.0, 7)]))
    rows = read_history(tmp_path / 'h.parquet')
    assert rows['mean_reward'].tolist() == [2.0, 3.0, 4.0] and rows['best_reward'].tolist()[:2] == [9.0, 9.0]
    assert rows['step'].tolist() == [10, 20, 22], 'counters older than the history go on from it'


def test_metrics_complete_the_log():
    ctx = once(reporting.metrics(Stub()), Context(steps=10, games=2, updates=3, mean_reward=4.0, best_reward=5.0))
    assert {k: v for k, v in ctx.logs.items() if k != 'steps_per_second'} == {
        'steps': 10, 'games': 2, 'updates': 3, 'mean_reward': 4.0, 'best_reward': 5.0,
    }  # fmt: skip
    assert ctx.logs['steps_per_second'] > 0


def test_console_prints_at_most_two_lines_a_second(capsys):
    agent = Stub()
    contexts = [Context(iteration=i, checked=True, new_best=float(i), best_reward=i + 1.0) for i in range(50)]
    list(compose(iter(contexts), [reporting.console(agent)]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'Best reward updated: 0 -> 1' and len(lines) <= 3
    quiet = Stub(quiet=True)
    quiet.console = Console(quiet=True)
    list(compose(iter(contexts), [reporting.console(quiet)]))
    assert capsys.readouterr().out == ''


def test_monitors_get_the_log_and_always_the_last_one(tmp_path):
    written = []

    class Monitor:
        def write(self, step, metrics):
            written.append((step, metrics['x']))

        def close(self):
            written.append('closed')

    contexts = [Context(steps=i, logs={'x': float(i)}) for i in range(100)]
    list(compose(iter(contexts), [reporting._monitor(lambda: True, Monitor)]))
    assert written[0] == (0, 0.0) and written[-2:] == [(99, 99.0), 'closed'] and len(written) < 20
    list(compose(iter([Context()]), [reporting.tensorboard(Stub(tensorboard=str(tmp_path)))]))
    assert [p.name.split('.')[0] for p in tmp_path.iterdir()] == ['events']


@pytest.mark.parametrize(
    'run, ctx, reason',
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
def test_until(run, ctx, reason):
    ctx = once(stages.until(Stub(**run)), Context(**ctx))
    assert ctx.stop == reason
