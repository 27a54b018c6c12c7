"""One update of every agent: compilation, numbers that are not finite, acting, time limits and images."""

import copy

import keras
import numpy as np
import pytest

from tests.agents.contract import (
    assert_same,
    clause,
    everything,
    learn,
    lesson,
    make_values_constant,
    observations,
    weights,
)
from xagents.collecting.finite import NotFiniteError


@clause('compiled equals eager')
def test_a_compiled_update_equals_an_eager_one_and_is_traced_once(case, request):
    """Learning rate, clip range and number of batches are arguments, so that other values do not trace it again."""
    compiled, other = case.make(), case.make()
    batch, schedule = lesson(compiled)
    np.testing.assert_equal(lesson(other), (batch, schedule))

    def logs_of(agent):
        logs = []
        for rate, count in ((0.01, 2), (0.02, 1)):
            some = {'n_updates': count} if 'n_updates' in batch else {}
            rates = {name: schedule[name] / (3 - count) for name in {'clip_norm'} & schedule.keys()}
            logs.append(learn(agent, {**batch, **some}, schedule, learning_rate=rate, **rates))
        return logs

    logs = logs_of(compiled)
    assert compiled._update.traces == 1 and compiled._update._jit and compiled.actor.traces == 0
    request.getfixturevalue('eager')
    for log, expected in zip(logs, logs_of(other), strict=True):
        assert log == {name: pytest.approx(x, rel=5e-3, abs=1e-4) for name, x in expected.items()}
    state, expected = everything(compiled), everything(other)
    assert state.keys() == expected.keys()
    for name, array in state.items():
        np.testing.assert_allclose(array, expected[name], rtol=2e-3, atol=1e-4, err_msg=name)


@pytest.mark.usefixtures('eager')
@clause('not finite', kinds=True)
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(case, actions):
    agent = case.make(actions, **case.single)
    batch, schedule = lesson(agent)
    batch['n_updates'] = 1
    assert learn(agent, batch, schedule)['updates'] >= 1
    before, inputs = everything(agent), observations(agent)
    acted = agent.act(inputs)
    for column in case.learns_from:
        for wrong in (np.nan, np.inf) if column == 'rewards' else (np.nan,):
            spoiled = batch[column].copy()
            spoiled[0, 1] = wrong
            log = learn(agent, {**batch, column: spoiled}, schedule)
            assert log['updates'] == 0 and log['stats/refused'] >= 1
            assert_same(before, everything(agent))
            np.testing.assert_array_equal(agent.act(inputs), acted)
    assert learn(agent, batch, schedule)['updates'] >= 1, 'the next update succeeds'
    assert any(not np.array_equal(before[name], array) for name, array in everything(agent).items())


@pytest.mark.usefixtures('eager')
@clause('on_nan')
def test_a_run_skips_an_update_that_is_not_finite_or_stops_at_it(case, capsys):
    agent = case.make(quiet=False, **case.single)

    def spoil(ctx):
        for column in {*case.learns_from} & ctx.batch.keys():
            ctx.batch[column] = np.full(ctx.batch[column].shape, np.nan, np.float32)

    def run(**options):
        return agent.train_iter(max_steps=10_000, recipe=agent.recipe().before('learn', spoil), **options)

    before = weights(agent)
    log = next(log for log in run(on_nan='skip') if 'stats/refused' in log)
    assert log['updates'] == 0 and log['stats/refused'] >= 1 and weights(agent) == before
    assert 'updates that were not finite' in capsys.readouterr().out
    with pytest.raises(NotFiniteError):
        list(run(on_nan='stop'))
    assert weights(agent) == before


@pytest.mark.usefixtures('eager')
@clause('acts', kinds=True)
def test_acting_uses_the_new_weights(case, actions):
    agent, other = case.make(actions, lr=0.1, **case.single), case.make(actions, **case.single, seed=2)
    batch, schedule = lesson(agent)
    prepared = agent.statistics.prepare(agent.envs.encoder(observations(agent)))
    before = agent.actor(prepared)[0].copy()
    learn(agent, batch, schedule, learning_rate=0.1)
    after = agent.actor(prepared)
    assert abs(after[0] - before).max() > 1e-4
    for part, expected in zip(after, keras.tree.flatten(agent.actor.model(prepared)), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)
    other.load_state(agent.state())
    np.testing.assert_array_equal(agent.act(observations(agent)), other.act(observations(agent)))
    agent.actor.model.set_weights([w + 1 for w in agent.actor.model.get_weights()])
    agent.act(observations(agent))
    expected = keras.tree.flatten(agent.actor.model(prepared))[0]
    np.testing.assert_allclose(agent.actor(prepared)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures('eager')
@clause('time limits')
@pytest.mark.parametrize('end', ['truncate', 'terminate'])
def test_values_are_bootstrapped_after_truncation_and_not_after_termination(end, case):
    """Every episode has one step with reward 1. All values are 5 and γ is 0.9, so targets are 1 + 0.9 · 5 or 1."""
    plain = {'normalize_obs': False, 'normalize_reward': False, 'gamma': 0.9}
    agent = case.make(env_kwargs={'length': 1, 'end': end, 'noise': 0.0}, **{**case.single, **plain})
    make_values_constant(agent, 5.0)
    batch, schedule = lesson(agent)
    log = learn(agent, {**batch, 'n_updates': 1}, schedule)
    target = 5.5 if end == 'truncate' else 1.0
    assert log[case.loss] == pytest.approx(case.loss_of(target - 5), rel=1e-4)


@pytest.mark.usefixtures('eager')
@clause('images', kinds=True)
def test_an_update_from_images(case, actions):
    """Default networks learn from batches of bytes, and receive bytes / 255 when they learn and when they act."""
    agent = case.make(actions, 'image', **{'net': None, 'normalize_obs': False, **case.single})
    before = [w.copy() for w in agent.actor.model.get_weights()]
    batch, schedule = lesson(agent)
    assert batch['observations'].dtype == batch.get('next_observations', batch['observations']).dtype == np.uint8
    start = copy.deepcopy(agent.state())
    log = learn(agent, {**batch, 'n_updates': 1}, schedule)
    assert log['updates'] >= 1 and not log['stats/refused']
    assert not np.array_equal(before[0], agent.actor.model.get_weights()[0]), 'the first layer learns'
    agent.load_state(start)
    scaled = {name: x / np.float32(255) for name, x in batch.items() if x.dtype == np.uint8 and x.ndim > 3}
    expected = learn(agent, {**batch, **scaled, 'n_updates': 1}, schedule)
    assert scaled and log == {name: pytest.approx(x, rel=1e-3, abs=1e-5) for name, x in expected.items()}
    images = agent.statistics.prepare(agent.envs.encoder(observations(agent, 3)))
    assert images.dtype == np.uint8
    expected = keras.tree.flatten(agent.actor.model(images / np.float32(255)))
    for part, same in zip(agent.actor(images), expected, strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-4, atol=1e-5)
    assert len(agent.act(observations(agent, 3))) == 3
