"""A run: equal seeds, going on, targets, evaluation, history, interruption, the whole state."""

import dataclasses
import math
import os
import signal

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import xagents
from tests.problems import Arbitrary, Constant, Identity
from tests.small_agents import on_cartpole as make
from tests.small_agents import weights
from xagents.base import BaseAgent
from xagents.evaluation import playing
from xagents.logs.history import read_history
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, kept

pytestmark = pytest.mark.usefixtures('small_agents', 'without_xla')


def test_a_seed_that_was_not_given_is_drawn_shown_and_recorded(capsys):
    agent = xagents.make('small', 'CartPole-v1', n_steps=8)
    agent.fit(max_steps=8)
    assert f', seed {agent.options.seed}\n' in capsys.readouterr().out
    assert agent.state().record['options']['seed'] == agent.options.seed


def test_the_budget_counts_whole_iterations_and_steps_leave_reset_rows_out():
    agent = make()
    logs = list(agent.train_iter(max_steps=300))
    assert agent.steps >= 300 > logs[-2]['steps']
    rows = len(logs) * 4 * 32
    # each ended episode cost one reset row, but those that ended in the very last rows
    assert rows - agent.games <= agent.steps <= rows - agent.games + 4


def test_how_often_one_evaluates_changes_nothing_else():
    plain, often = make(), make()
    plain.fit(max_steps=1_000)
    often.fit(max_steps=1_000, eval_frequency=200, eval_episodes=3)
    assert weights(plain) == weights(often)
    assert not math.isnan(often.mean_reward)


@pytest.mark.usefixtures('eager')
def test_logs_are_flat_floats_with_the_fixed_names():
    (log,) = make('ppo').train_iter(max_steps=1)
    assert {
        'steps', 'games', 'updates', 'mean_reward', 'best_reward', 'steps_per_second', 'learning_rate', 'seconds/env',
        'seconds/act', 'seconds/learn', 'loss/policy', 'loss/value', 'loss/entropy', 'stats/kl', 'stats/clip_fraction',
        'stats/explained_variance', 'stats/grad_norm', 'stats/refused', 'episode_length',
    } <= log.keys()  # fmt: skip
    assert all(isinstance(value, (int, float)) for value in log.values())
    assert math.isnan(next(make(n_steps=2).train_iter(max_steps=1))['mean_reward'])


def test_the_target_ends_a_run_and_its_weights_are_on_disk(tmp_path):
    """The weights that earned the mean play; those of the next update are not saved."""
    path = str(tmp_path / 'a.tf')
    agent = make(checkpoints=[path])
    before = {}

    def remember(ctx):
        before['now'] = weights(agent)

    agent.fit(target_reward=8, max_steps=100_000, recipe=agent.recipe().before('collect', remember))
    assert agent.run.stop_reason == 'target'
    other = xagents.make('small', 'CartPole-v1', weights=[path])
    assert weights(other) == before['now'] and weights(agent) != before['now']


def test_fit_again_goes_on_with_a_larger_budget_and_iterators_close_each_other():
    agent = make()
    first = agent.train_iter(max_steps=10_000)
    next(first)
    second = agent.train_iter(max_steps=10_000)
    next(second)
    assert list(first) == [] and agent.context.iteration == 2


def test_own_stages_see_and_change_the_run():
    agent = make()
    seen = []

    def double(ctx):
        ctx.batch['rewards'] = ctx.batch['rewards'] * 2
        yield
        seen.append(ctx.logs['loss/policy'])

    agent.fit(max_steps=400, recipe=agent.recipe().after('collect', double))
    losses = [log['loss/policy'] for log in make().train_iter(max_steps=400)]
    assert len(seen) == len(losses) and seen[0] > losses[0]


def test_history_has_one_row_an_episode_and_goes_on(tmp_path):
    path = tmp_path / 'h.parquet'
    agent = make(history_checkpoint=str(path))
    rewards = []

    def remember(ctx):
        rewards.extend(e.reward for e in ctx.episodes)

    agent.fit(max_steps=1_500, recipe=agent.recipe().after('collect', remember))
    agent.fit(max_steps=3_000, recipe=agent.recipe().after('collect', remember))
    rows = pd.read_parquet(path)
    assert list(rows.columns) == ['mean_reward', 'best_reward', 'episode_reward', 'step', 'time']
    assert rows['episode_reward'].tolist() == rewards and len(rows) == agent.games
    expected = [np.mean(rewards[max(0, i - 99) : i + 1]) for i in range(len(rewards))]
    np.testing.assert_allclose(rows['mean_reward'], expected)
    assert rows['step'].is_monotonic_increasing and rows['time'].is_monotonic_increasing
    assert rows['step'].iloc[-1] <= agent.steps
    # CartPole earns 1 a step: with one environment the step of a row is the sum of rewards until then
    alone = make(n_envs=1, history_checkpoint=str(tmp_path / 'one.parquet'))
    alone.fit(max_steps=500)
    rows = read_history(tmp_path / 'one.parquet')
    assert rows['step'].tolist() == rows['episode_reward'].cumsum().tolist()


def test_a_history_that_exists_is_renamed_aside(tmp_path, capsys):
    path = tmp_path / 'h.parquet'
    for _ in range(2):
        make(history_checkpoint=str(path), quiet=False).fit(max_steps=500)
    assert (tmp_path / 'h.1.parquet').exists() and 'h.1.parquet' in capsys.readouterr().out
    pd.testing.assert_series_equal(
        read_history(path)['episode_reward'], read_history(tmp_path / 'h.1.parquet')['episode_reward']
    )


def test_plateau_and_early_stop(capsys):
    agent = make(
        n_envs=2, divergence_monitoring_steps=0, plateau_reduce_patience=2, plateau_reduce_factor=0.5,
        early_stop_patience=2, log_frequency=1, quiet=False, lr=1e-8,
    )  # fmt: skip
    rates = [log['learning_rate'] for log in agent.train_iter(max_steps=100_000)]
    out = capsys.readouterr().out
    assert agent.run.stop_reason == 'early' and agent.context.early_stop_count == 2
    assert 'Learning rate reduced 1e-08 -> 5e-09' in out and out.strip().endswith('Early stopping')
    assert set(rates) <= {1e-8, 5e-9, 2.5e-9} and len(set(rates)) >= 2
    assert 'inf' not in out


def test_a_schedule_needs_a_number_of_steps():
    with pytest.raises(OptionError, match='lr_schedule: got linear without a length'):
        make(lr_schedule='linear').fit(target_reward=10)


@pytest.mark.parametrize('winner', ['best', 'last', 'tie'])
def test_best_and_last_play_for_the_place_at_the_end(tmp_path, capsys, monkeypatch, winner):
    path = str(tmp_path / 'a.tf')
    agent = make(checkpoints=[path], quiet=False)
    asked = []

    def evaluate(agent, episodes, **_):
        asked.append((episodes, weights(agent)))
        # the last ones play first
        return {'mean': {'best': len(asked), 'last': -len(asked), 'tie': 3}[winner]}

    monkeypatch.setattr(playing, 'evaluate', evaluate)
    agent.fit(max_steps=2_000)
    means = {'best': (2, 1), 'last': (-2, -1), 'tie': (3, 3)}[winner]
    kept = 'last' if winner == 'last' else 'best'
    said = 'Greedy mean of 10 episodes: best weights {}, last {} ({} kept)'
    assert said.format(*means, kept) in capsys.readouterr().out
    assert [episodes for episodes, _ in asked] == [10, 10]
    assert asked[0][1] == weights(agent) and asked[1][1] != weights(agent)
    assert weights(xagents.make('small', weights=[path])) == asked[kept == 'best'][1]


def test_equal_weights_play_once_at_the_end(capsys, tmp_path):
    agent = make(checkpoints=[str(tmp_path / 'a.tf')], quiet=False)

    def stay(ctx):
        ctx.idle = True  # nothing is learned, so that the best weights are the last

    agent.fit(max_steps=600, recipe=agent.recipe().before('learn', stay))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith('Greedy mean of 10 episodes: ')]
    assert len(said) == 1 and '; the last weights are also the best' in said[0]


@pytest.mark.parametrize('share, said', [(0.4, True), (0.6, False)])
def test_greedy_play_far_below_training_is_named(share, said, tmp_path, capsys, monkeypatch):
    agent = make(checkpoints=[str(tmp_path / 'a.tf')], quiet=False)
    monkeypatch.setattr(playing, 'evaluate', lambda agent, *_, **__: {'mean': share * agent.mean_reward})
    agent.fit(max_steps=2_000)
    assert ('in training: evaluate and play with --stochastic' in ' '.join(capsys.readouterr().out.split())) == said


def test_evaluate_plays_equal_quotas_and_uses_the_present_weights():
    agent = make()
    result = agent.evaluate(episodes=7)
    assert set(result) == {'mean', 'std', 'min', 'max', 'length'}
    assert result == agent.evaluate(episodes=7), 'the same weights and step give the same episodes'
    assert result['min'] <= result['mean'] <= result['max'] and result['length'] == result['mean']
    agent.model.set_weights([np.zeros_like(w) for w in agent.model.get_weights()])
    changed = agent.evaluate(episodes=7)
    assert changed['mean'] < 12, 'always the same action'
    with pytest.raises(ValueError, match='episodes'):
        agent.evaluate(episodes=0)


def test_act_takes_raw_observations_of_any_number():
    agent = make(normalize_obs=True)
    agent.fit(max_steps=300)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    greedy = agent.act(observations)
    logits = agent.model(agent.statistics.prepare(observations))[0].numpy()
    np.testing.assert_array_equal(greedy, logits.argmax(-1))
    assert agent.act(observations[:1], greedy=False).shape == (1,)
    # the observation of one environment gives one action
    assert agent.act(observations[0]) == greedy[0] and agent.act(observations[0]).shape == ()
    actions, state = agent.predict(observations, state='unchanged', deterministic=True)
    np.testing.assert_array_equal(actions, greedy)
    assert state == 'unchanged' and agent.predict(observations[0])[0].shape == ()
    parts = spaces.Dict({'a': spaces.Discrete(3), 'b': spaces.Box(-1, 1, (2,), np.float32)})
    nested = xagents.make('small', lambda: Arbitrary(parts, spaces.Discrete(2)), n_steps=8)
    one = {'a': 2, 'b': np.zeros(2, np.float32)}
    assert nested.act(one) == nested.act([one])[0]
    box = xagents.make('small', 'Pendulum-v1', n_steps=8)
    actions = box.act(np.zeros((3, 3), np.float32), greedy=False)
    assert actions.shape == (3, 1) and (np.abs(actions) <= 2).all()


def test_acting_on_the_side_changes_nothing():
    plain, busy = make(), make()
    plain.fit(max_steps=600)
    for _ in busy.train_iter(max_steps=600):
        busy.act(np.zeros((3, 4), np.float32), greedy=False)
    assert weights(plain) == weights(busy)


def test_kept_fields_go_over_to_the_next_call():
    @dataclasses.dataclass(slots=True)
    class Own(Context):
        count: int = kept(0)
        note: str = ''

    agent, seen = make(), []

    def count(ctx):
        seen.append((ctx.count, ctx.note))
        ctx.count, ctx.note = ctx.count + 1, 'noted'
        ctx.keep('note')

    for steps in (300, 600):
        agent.fit(max_steps=steps, recipe=agent.recipe().use(count).with_context(Own))
    assert seen == [(0, '')] + [(i, 'noted') for i in range(1, len(seen))]


def test_a_reward_that_is_not_finite_is_no_best(capsys):
    agent = make(quiet=False)

    def spoil(ctx):
        if ctx.iteration == 3 and ctx.episodes:
            ctx.episodes[0].reward = float('nan')

    agent.fit(max_steps=3_000, recipe=agent.recipe().after('collect', spoil))
    assert math.isfinite(agent.best_reward) and 'nan' not in capsys.readouterr().out


def test_a_stage_may_make_float64_of_the_rewards():
    agent = make()

    def sign(ctx):
        ctx.batch['rewards'] = np.where(ctx.batch['rewards'] > 0, 1.0, -1.0)

    agent.fit(max_steps=100, recipe=agent.recipe().after('collect', sign))
    assert agent.context.updates > 0


def test_the_means_of_episodes_and_of_evaluations_are_not_compared():
    agent = make()
    agent.fit(max_steps=1_000)
    assert agent.mean_reward > 5
    agent.fit(target_reward=1.0, max_steps=100_000, eval_frequency=500, eval_episodes=2)
    assert agent.steps > 1_000, 'the old mean reached nothing'


def test_an_agent_is_saved_after_training(tmp_path, capsys):
    agent = make(quiet=False)
    for steps in (100, 200):
        agent.fit(max_steps=steps)
    assert capsys.readouterr().out.count('Nothing was saved: agent.save(directory) saves') == 1
    folder = tmp_path / 'saved'
    agent.save(folder)
    loaded, resumed = xagents.load(folder), xagents.resume(folder, max_steps=300)
    assert weights(loaded) == weights(resumed) == weights(agent) and resumed.steps == agent.steps
    agent.fit(max_steps=300)
    resumed.fit()
    assert weights(resumed) == weights(agent), 'the whole state is saved'
    with pytest.raises(OptionError, match='already contains a run'):
        agent.save(folder)


def test_an_agent_stays_small():
    assert len(vars(BaseAgent(xagents.create_envs('CartPole-v1', 1)))) <= 11
    assert sum(not name.startswith('_') and hasattr(xagents.PPO, name) for name in dir(xagents.PPO)) <= 55


def test_options_are_fixed_once_the_agent_is_made():
    with pytest.raises(AttributeError, match='gamma is fixed'):
        make().gamma = 0.5


def test_one_of_two_options_that_exclude_each_other_replaces_a_saved_one(tmp_path):
    path = str(tmp_path / 'a.tf')
    make(minibatch_size=16, checkpoints=[path]).fit(max_steps=100)
    agent = xagents.make('small', weights=[path], mini_batches=2)
    assert agent.options.minibatch_size is None and agent.minibatches.per_pass == 2
    for given, size in (({}, 16), ({'minibatch_size': 8}, 8)):
        assert xagents.make('small', weights=[path], **given).options.minibatch_size == size
    with pytest.raises(OptionError, match='cannot be used with --mini-batches'):
        make(minibatch_size=16, mini_batches=2)
    # the settings of a run have both, one of them with its default
    folder = str(tmp_path / 'run')
    make(minibatch_size=16, run_dir=folder).fit(max_steps=100)
    assert xagents.resume(folder).options.minibatch_size == xagents.load(folder).options.minibatch_size == 16
    agent = xagents.resume(folder, mini_batches=2)
    assert agent.options.minibatch_size is None and agent.minibatches.per_pass == 2


def test_ready_made_environments_that_cannot_be_made_again(tmp_path, capsys):
    path = str(tmp_path / 'a.tf')
    agent = xagents.make('small', [Identity() for _ in range(2)], n_steps=32, seed=1, net=[8], checkpoints=[path])
    agent.fit(max_steps=500)
    assert 'cannot be created again' in capsys.readouterr().out and (tmp_path / 'a.tf.index').exists()
    with pytest.raises(OptionError, match='eval_frequency'):
        agent.fit(max_steps=1_000, eval_frequency=10)
    assert agent.evaluate(4, envs=[Identity()])['length'] == 10


def test_episodes_that_environments_do_not_divide_are_played_as_well():
    agent = xagents.make('small', Constant, n_steps=8, seed=1, net=[4])
    result = agent.evaluate(5, envs=[Constant(length=1), Constant(length=3)])
    assert result['length'] == (3 * 1 + 2 * 3) / 5, 'the first ones play the rest'


def test_an_episode_that_does_not_end_counts_as_it_stands(monkeypatch):
    monkeypatch.setattr(playing, 'MAX_EPISODE_STEPS', 50)
    agent = xagents.make('small', lambda: Constant(length=10**9), n_steps=8, seed=1, net=[4])
    result = agent.evaluate(12)
    assert (result['mean'], result['length'], result['std']) == (50, 50, 0)


@pytest.mark.parametrize(
    ('number', 'times', 'kind', 'code'),
    [
        (signal.SIGINT, 1, KeyboardInterrupt, None),
        (signal.SIGTERM, 1, SystemExit, 143),
        (signal.SIGINT, 2, KeyboardInterrupt, None),  # a second one quits without saving
    ],
)
def test_a_signal_in_a_loop_of_ones_own_is_not_swallowed(tmp_path, number, times, kind, code):
    agent = make(checkpoints=[str(tmp_path / 'a.tf')])

    def signalled(ctx):
        if ctx.iteration == 2:
            for _ in range(times):
                os.kill(os.getpid(), number)

    with pytest.raises(kind) as end:
        for _ in agent.train_iter(max_steps=10**6, save_seconds=1e6, recipe=agent.recipe().before('learn', signalled)):
            pass
    assert getattr(end.value, 'code', None) == code
    assert (agent.context.iteration, (tmp_path / 'a.tf.index').exists()) == ((2, True) if times == 1 else (1, False))


def test_counters_and_shapes_are_attributes():
    agent = make()
    assert (agent.n_envs, agent.n_actions, agent.input_shape) == (4, 2, (4,))
    agent.fit(max_steps=300)
    context = agent.progress.context
    counted = agent.steps, agent.games, agent.mean_reward, agent.best_reward
    assert counted == (context.steps, context.games, context.mean_reward, context.best_reward)
    shown = f'{agent.steps} steps, mean reward {agent.mean_reward:.2f}'.rstrip('0').rstrip('.')
    assert repr(agent) == f'<Small in 4 environments of CartPole-v1: {shown}>'
    with pytest.raises(AttributeError, match='steps is a counter of the run'):
        agent.steps = 0


class Random(BaseAgent):
    """1.0's way: one method that does it all."""

    def train_step(self):
        self.at += 1
        self.collector.current_observations()  # resets what was never reset
        for _ in range(10):
            self.collector.step(np.random.default_rng(self.at).integers(0, self.n_actions, self.n_envs))

    at = 0


def test_an_agent_with_only_train_step_runs():
    agent = Random(xagents.create_envs('CartPole-v1', 4), seed=1)
    agent.fit(max_steps=2_000, quiet=True)
    assert agent.steps >= 2_000 and agent.games > 20 and 10 < agent.mean_reward < 40
    with pytest.raises(TypeError, match='implements neither'):
        BaseAgent(xagents.create_envs('CartPole-v1', 1)).fit(max_steps=10)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'gama': 0.9}, r'gama.*did you mean gamma'),
        ({'gamma': 2}, 'gamma: got 2'),
        ({'mini_batches': 1000}, 'mini_batches: got 1000'),
        ({'checkpoints': ['a.tf', 'b.tf']}, 'expected 1: model'),
    ],
)
def test_wrong_options_are_named_with_the_nearest(given, message):
    with pytest.raises(ValueError, match=message):
        make(**given)


def test_wrong_options_of_fit_are_named_and_without_any_end_it_refuses():
    agent = make()
    for given, message in (({'max_step': 10}, r'max_step.*did you mean max_steps'), ({}, 'target_reward, max_steps')):
        with pytest.raises(OptionError, match=message):
            agent.fit(**given)
