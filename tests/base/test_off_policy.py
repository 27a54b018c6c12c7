"""The run of agents that learn from a replay buffer: when they learn, from what, and what is refused beforehand."""

import types

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import xagents
from tests import environments  # noqa: F401
from tests.commands import refused
from tests.problems import Arbitrary
from xagents.checkpoints.agent_state import model_variables
from xagents.dqn.agent import DQN
from xagents.networks.models import ModelReader
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.options.errors import OptionError
from xagents.replay.transitions import ReplayBuffer
from xagents.runs.saving import write_weights

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
BOX = spaces.Box(np.float32([-2.0, 0.5]), np.float32([6.0, 1.25]))


# runs here make a few updates, which cost less than their compilation
pytestmark = pytest.mark.usefixtures('eager')


def make(name='dqn', env=None, **options):
    """A small agent that learns from its 8th transition on."""
    taken = spaces.Discrete(3) if name == 'dqn' else BOX
    options = {'seed': 1, 'net': [4], 'quiet': True, 'buffer_initial_size': 8, 'buffer_batch_size': 4, **options}
    return xagents.make(name, env or (lambda **_: Arbitrary(VECTOR, taken)), **options)


def counting(**options):
    """A DQN that counts the updates it is asked for; the observations are ages of episodes of 5 steps."""
    agent = make('dqn', 'tests.environments:Counter-v0', **options)
    agent.batches = []

    def learn(batch, schedule):
        agent.batches.append({k: np.array(v) for k, v in batch.items()})
        return {'updates': batch['n_updates']}

    agent.learn = learn
    return agent


def dqn_model():
    """For CartPole."""
    cfg = xagents.agents['dqn']['model']['ann'][0]
    return ModelReader(cfg, output_units=[2], input_shape=(4,), seed=1).build_model()


def variables(agent):
    targets = [agent.target] if isinstance(agent, DQN) else [agent.target_actor, *agent.target_critics]
    models = [v.numpy() for model in agent.output_models for v in model_variables(model)]
    return models + [target.state()['parameters'] for target in targets]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ----------------------------------------------------------------------------------------------- when, and how many


def test_the_recipe():
    assert make().recipe().names == (
        'schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'remember', 'replay', 'learn',
        'plateau', 'history', 'metrics', 'record', 'console', 'tensorboard', 'wandb', 'trackio', 'video', 'until',
    )  # fmt: skip


@pytest.mark.parametrize(
    'n_envs, train_frequency, gradient_steps',
    [(1, 1, -1), (1, 1, 1), (1, 1, 4), (1, 4, 1), (4, 1, -1), (4, 1, 1), (4, 4, 2), (2, 7, -1), (3, 7, 4)],
)
def test_the_number_of_updates(n_envs, train_frequency, gradient_steps):
    """As many as environment steps were taken, or as were asked for; none where environments were only reset."""
    agent = counting(n_envs=n_envs, train_frequency=train_frequency, gradient_steps=gradient_steps)
    rows = -(-train_frequency // n_envs) * n_envs
    steps = updates = 0
    for log in agent.train_iter(max_steps=90):
        taken, made = log['steps'] - steps, log['updates'] - updates
        steps, updates = log['steps'], log['updates']
        assert taken <= rows
        if steps >= 8 + rows:
            assert made == (0 if not taken else taken if gradient_steps < 0 else gradient_steps)
    room = rows if gradient_steps < 0 else gradient_steps
    assert updates and {batch['rewards'].shape for batch in agent.batches} == {(room, 4)}
    assert log['stats/updates_per_step'] > 0


@pytest.mark.parametrize(
    'n_envs, initial, batch_size, first',
    [(1, 10, 4, 10), (1, 0, 4, 4), (1, 4, 12, 12), (3, 10, 4, 12), (3, 10, 11, 12), (1, None, 4, 40), (3, None, 4, 39)],
)
def test_updates_start_when_enough_is_stored_and_not_before(n_envs, initial, batch_size, first):
    """The initial size rounds up to whole steps of all environments, the capacity down. Filling counts as steps."""
    agent = counting(n_envs=n_envs, buffer_max_size=40, buffer_initial_size=initial, buffer_batch_size=batch_size)
    seen = []

    def look(ctx):
        # environments that only reset add nothing that is stored
        seen.append((agent.buffer.stored, ctx.note, ctx.idle))
        assert ctx.steps == agent.buffer.stored
        assert ('observations' in ctx.batch and 'discounts' in ctx.batch) == (not ctx.idle)

    agent.fit(max_steps=60, recipe=agent.recipe().after('replay', look))
    filling = [note for _, note, _ in seen if note]
    assert filling[0] == f'replay buffer: {n_envs} of {first}'
    for stored, note, idle in seen:
        assert note.startswith('replay buffer: ') == (stored < first) and (idle or not note)
    assert agent.context.updates == sum(b['n_updates'] for b in agent.batches) > 0


# ------------------------------------------------------------------------------------------------------------ from what


@pytest.mark.parametrize('end', ['terminate', 'truncate'])
@pytest.mark.parametrize('n_step', [1, 3])
def test_what_is_replayed_is_what_happened(end, n_step):
    """Ages go up by one; never across an end, whose reset row is not sampled. Only a truncation bootstraps."""
    agent = counting(
        n_envs=3, env_kwargs={'length': 5, 'end': end, 'reward': 2.0}, n_step=n_step, gamma=0.5, buffer_max_size=60,
        train_frequency=30,
    )  # fmt: skip
    agent.fit(max_steps=300)
    batch = {k: np.concatenate([b[k][: b['n_updates']] for b in agent.batches]) for k in ('rewards', 'discounts')}
    ages, after = (
        np.concatenate([b[k][: b['n_updates']] for b in agent.batches])[..., 0]
        for k in ('observations', 'next_observations')
    )
    assert set(ages.ravel()) == set(range(5)), 'an age of 5 stands in a row that only resets'
    m = after - ages
    # the newest transitions have fewer steps behind them
    assert (m >= 1).all() and (m <= np.minimum(n_step, 5 - ages)).all()
    assert np.mean(m == np.minimum(n_step, 5 - ages)) > 0.8
    np.testing.assert_allclose(batch['rewards'], 2 * (2 - 0.5 ** (m - 1)))
    ended = (after == 5) & (end == 'terminate')
    assert ((after == 5) & (m > 0)).any()
    np.testing.assert_allclose(batch['discounts'], np.where(ended, 0, 0.5**m))


@pytest.mark.parametrize('n_step', [1, 3])
def test_normalisation_happens_when_transitions_are_drawn(n_step):
    """By the statistics of then; what is stored stays raw."""
    agent = make(
        'ddpg', n_envs=2, n_step=n_step, normalize_obs=True, normalize_reward=True, reward_scale=0.25,
        train_frequency=8,
    )  # fmt: skip
    seen = []

    def look(ctx):
        seen.append(ctx.batch['observations'][0].copy())

    def learn_nothing(ctx):
        ctx.idle = True

    agent.fit(max_steps=100, recipe=agent.recipe().after('collect', look).after('replay', learn_nothing))
    stored = agent.buffer._ring.arrays['observations']
    assert all(any(np.array_equal(row, other) for other in stored) for row in seen), 'as they came'
    generator, normalizers = agent.rng('replay'), (agent.statistics.observations, agent.statistics.rewards)
    state = generator.bit_generator.state
    replayed = {k: np.array(v) for k, v in agent.replay(6, {}).items()}

    generator.bit_generator.state = state
    raw = {k: v.copy() for k, v in agent.buffer.sample(6, generator, max_batches=7).items()}
    for name in ('observations', 'next_observations'):
        assert abs(raw[name][:6]).max() <= 1
        np.testing.assert_allclose(replayed[name][:6], normalizers[0](raw[name][:6]), rtol=1e-5)
        assert abs(replayed[name][:6]).max() > 1.2
    # scaled and clipped one by one before they are summed: linear where nothing is clipped
    factor = 0.25 / np.sqrt(normalizers[1].statistics.var + 1e-8)
    np.testing.assert_allclose(replayed['rewards'][:6], factor * raw['rewards'][:6], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(replayed['actions'][:6], raw['actions'][:6])


KINDS = {
    'float64': spaces.Box(-1, 1, (2, 2), np.float64),
    'bytes': spaces.Box(0, 255, (5,), np.uint8),
    'discrete': spaces.Discrete(4),
    'dict': spaces.Dict({'a': spaces.Discrete(3), 'b': VECTOR}),
}


@pytest.mark.parametrize('kind', KINDS)
def test_every_kind_of_observation(kind):
    env = lambda **_: Arbitrary(KINDS[kind], spaces.Discrete(3))  # noqa: E731
    agent = make('dqn', env, n_envs=2, buffer_initial_size=4, buffer_max_size=100, gradient_steps=1)
    before = variables(agent)
    logs = list(agent.train_iter(max_steps=6))
    assert logs[-1]['updates'] == 2 and not logs[-1]['stats/refused'] and not same(before, variables(agent))
    dtype = np.uint8 if kind == 'bytes' else np.float32
    assert agent.buffer._ring.arrays['observations'].dtype == dtype, 'bytes stay bytes'
    assert agent.act([KINDS[kind].sample() for _ in range(3)]).shape[0] == 3


@pytest.mark.parametrize(
    'name, options, names',
    [
        ('dqn', {'prioritized': True, 'dueling': True}, {'stats/epsilon', 'stats/beta'}),
        ('ddpg', {}, {'stats/noise', 'loss/policy'}),
        ('td3', {'policy_delay': 1}, {'stats/noise', 'loss/policy'}),
    ],
)
def test_the_metrics(name, options, names):
    agent = make(name, buffer_max_size=40, **options)
    logs = list(agent.train_iter(max_steps=10))
    always = {
        'steps', 'games', 'updates', 'mean_reward', 'best_reward', 'steps_per_second', 'learning_rate', 'seconds/env',
        'seconds/act', 'replay/size', 'replay/fill', 'stats/updates_per_step',
    }  # fmt: skip
    learned = {
        'loss/value', 'stats/q', 'stats/td_error', 'stats/grad_norm', 'stats/refused', 'seconds/learn',
        'seconds/replay',
    }  # fmt: skip
    for log in logs:
        assert all(isinstance(value, (int, float)) for value in log.values())
        assert always | (names - {'loss/policy'}) <= log.keys()
        assert (learned | names <= log.keys()) == (log['updates'] > 0) == bool(learned & log.keys())
        assert 'policy_updates' not in log
    assert logs[-1]['replay/size'] == len(agent.buffer) and logs[-1]['replay/fill'] == len(agent.buffer) / 40
    assert logs[-1]['stats/updates_per_step'] == logs[-2]['updates'] / logs[-1]['steps']


# ---------------------------------------------------------------------------------------------------------- prioritized


def test_priorities_follow_the_errors_of_what_was_learned():
    agent = make(prioritized=True, priority_alpha=0.5, train_frequency=4, n_envs=2, lr=0.05)
    told, prioritize = [], agent.buffer.prioritize
    agent.buffer.prioritize = lambda rows, errors: told.append((rows.copy(), errors)) or prioritize(rows, errors)
    checked = 0

    def look(ctx):
        nonlocal checked
        told.clear()
        before = None if ctx.idle else {k: np.array(v) for k, v in ctx.batch.items()}
        q = lambda x: agent.model(x).numpy()  # noqa: E731
        if before is not None:  # the first update's errors are those of the weights that were
            then = agent.target(before['next_observations'][0])[0].numpy().max(1)
            goal = before['rewards'][0] + before['discounts'][0] * then
            errors = goal - q(before['observations'][0])[np.arange(4), before['actions'][0]]
        yield
        if before is None:
            assert not told
            return
        ((rows, learned),) = told
        n = int(before['n_updates'])
        np.testing.assert_array_equal(rows, before['rows'][:n])
        assert learned.shape == (n, 4)
        np.testing.assert_allclose(learned[0], errors, rtol=1e-3, atol=1e-5)
        leaves = agent.buffer._ring.priorities.leaves
        last = {row: abs(error) for row, error in zip(rows.ravel(), learned.ravel(), strict=True)}
        for row, error in last.items():
            assert leaves[row] == pytest.approx((error + 1e-6) ** 0.5, rel=1e-4)
        checked += 1

    agent.fit(max_steps=24, recipe=agent.recipe().after('replay', look))
    assert checked > 2
    weights = agent.replay(4, {'beta': 1.0})['weights'][:4]
    assert weights.max() == 1 and weights.min() < 0.9


# ------------------------------------------------------------------------------------------------------- target of DQN


def test_a_target_network():
    model = dqn_model()
    target, x = TargetNetwork(model), np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    first, weights = model(x).numpy(), [w.copy() for w in model.get_weights()]
    np.testing.assert_allclose(target(x)[0], first, rtol=1e-5, atol=1e-6)
    model.set_weights([w + 1 for w in weights])
    np.testing.assert_allclose(target(x)[0], first, rtol=1e-5, atol=1e-6)
    state = target.state()
    target.copy_if(np.False_)
    np.testing.assert_array_equal(target.state()['parameters'], state['parameters'])
    target.soft_update(0.25)
    np.testing.assert_allclose(target.state()['parameters'], state['parameters'] + 0.25, atol=1e-6)
    assert not np.array_equal(state['parameters'], target.state()['parameters']), 'a state is a copy'
    target.copy_if(np.True_)
    np.testing.assert_allclose(target(x)[0], model(x), rtol=1e-5, atol=1e-5)
    target.load(state)
    np.testing.assert_array_equal(target.state()['parameters'], state['parameters'])
    # the network itself stays
    np.testing.assert_array_equal(model.get_weights()[0], weights[0] + 1)
    with pytest.raises(ValueError, match=r'has 3 parameters, not \d+'):
        target.load({'parameters': np.zeros(3)})


# ------------------------------------------------------------------------------------------------- buffers handed over


def test_a_buffer_that_is_handed_over_is_filled():
    buffer = ReplayBuffer(50, 8, 4)
    agent = DQN(xagents.create_envs('CartPole-v1', 2), dqn_model(), buffers=buffer, seed=1, quiet=True)
    assert agent.buffer is buffer
    agent.fit(max_steps=20)
    assert buffer.stored == agent.context.steps and agent.context.updates > 0


def test_sizes_of_several_buffers_are_added_up():
    buffers = [ReplayBuffer(50, 8, 4), ReplayBuffer(50, 8, 4)]
    agent = DQN(xagents.create_envs('CartPole-v1', 2), dqn_model(), buffers=buffers)
    assert (agent.buffer.max_size, agent.buffer.initial_size, agent.buffer.batch_size) == (100, 16, 8)


@pytest.mark.parametrize('options', [{'gamma': 0.5}, {'n_step': 3}, {'prioritized': True}])
def test_what_the_options_say_of_replay_holds_for_a_buffer_that_is_handed_over(options):
    """1.0's buffers knew nothing of it."""
    buffer = ReplayBuffer(50, 8, 4)
    agent = DQN(xagents.create_envs('CartPole-v1'), dqn_model(), buffers=buffer, seed=1, quiet=True, **options)
    agent.fit(max_steps=12)
    assert agent.context.updates > 0
    gamma, n_step = agent.options.gamma, agent.options.n_step
    assert agent.replay(1, {})['discounts'].min() == pytest.approx(gamma**n_step)


# --------------------------------------------------------------------------------------------------------- checkpoints


def test_fit_writes_what_make_restores(tmp_path):
    paths = [str(tmp_path / name) for name in ('actor.tf', 'critic1.tf', 'critic2.tf')]
    agent = make('td3', checkpoints=paths, reward_buffer_size=2)
    agent.fit(max_steps=22, final_episodes=1)
    other = make('td3', weights=paths, reward_buffer_size=2)
    best = agent.progress.best
    assert same([v for model in best.weights for v in model], variables(other)[:-3])
    targets = [target.state()['parameters'] for target in (other.target_actor, *other.target_critics)]
    assert same([best.arrays[f'target_{i}/parameters'] for i in range(3)], targets)


def test_an_agent_that_has_learned_fills_its_buffer_by_what_it_knows(tmp_path):
    paths = [str(tmp_path / name) for name in ('actor.tf', 'critic.tf')]
    agent = make('ddpg', step_noise_coef=0.0)
    agent.fit(max_steps=12)
    write_weights(paths, agent, agent.state())
    other = make('ddpg', weights=paths, step_noise_coef=0.0, buffer_initial_size=1000)
    seen = []

    def look(ctx):
        seen.append(ctx.batch['actions'].copy() - other.actor(ctx.batch['observations'][0])[0])

    other.fit(max_steps=other.steps + 10, recipe=other.recipe().after('collect', look))
    assert len(seen) >= 10 and abs(np.concatenate(seen)).max() < 1e-6, 'not at random'
    assert other.context.updates == agent.context.updates, 'the buffer starts empty'


# ------------------------------------------------------------------------------------------------------------- refusals

UNBOUNDED = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def test_actions_without_bounds_are_refused():
    with pytest.raises(OptionError, match=r'has actions without finite bounds, td3 accepts bounded ones \(try ppo\)'):
        xagents.make('td3', lambda **_: Arbitrary(VECTOR, UNBOUNDED))


def test_an_agent_of_ones_own_models_refuses_too():
    with pytest.raises(
        OptionError, match='buffer_max_size: got 3, expected at least 4, one transition per environment'
    ):
        DQN(xagents.create_envs('CartPole-v1', 4), dqn_model(), buffer_max_size=3, buffer_batch_size=1)
    with pytest.raises(OptionError, match='has Box actions, dqn accepts Discrete ones'):
        DQN(gymnasium.make('Pendulum-v1'), dqn_model())


def test_more_memory_than_there_is_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    agent = make(
        buffer_max_size=1000, checkpoints=[str(tmp_path / 'a.tf')], history_checkpoint=str(tmp_path / 'h.parquet')
    )
    needed = agent.buffer_bytes()
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=needed - 1))
    with pytest.raises(OptionError, match=r'buffer_max_size: got 1000, which needs .* MB of memory, but'):
        agent.fit(max_steps=10)
    assert not list(tmp_path.iterdir()) and agent.context.steps == 0
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=needed))
    agent.fit(max_steps=10)
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=0))
    agent.fit(max_steps=20)
    assert agent.context.steps >= 20, 'what it has, it need not find again'


# --------------------------------------------------------------------------------------------------------- command line


def test_both_names_of_learning_starts_are_refused_on_the_command_line(folder):
    line = refused('dqn', 'CartPole-v1', {'buffer_initial_size': 5, 'learning_starts': 6})
    assert line.startswith('xagents train: --') and 'is another name of' in line and not list(folder.iterdir())


def test_a_stage_may_change_observations_before_they_are_remembered():
    agent = make('td3', n_envs=2)

    def tremble(ctx):
        ctx.batch['observations'] = ctx.batch['observations'] + agent.rng('tremble').normal(size=3).astype(np.float32)

    agent.fit(max_steps=20, recipe=agent.recipe().before('remember', tremble))
    assert len(agent.buffer) == agent.buffer.stored == 20


def test_environments_that_were_reset_in_between_lose_their_newest_transition():
    agent = make('dqn', n_envs=2)
    for _ in agent.train_iter(max_steps=20):
        pass
    known = len(agent.buffer)
    agent.collector.reset()
    agent.fit(max_steps=22)
    assert len(agent.buffer) == known, 'two were forgotten, two came'


def test_no_two_networks_of_neighbouring_seeds_start_alike():
    kernels = [model.get_weights()[0].tobytes() for seed in (1, 2, 3) for model in make('td3', seed=seed).output_models]
    assert len(set(kernels)) == 9


def test_a_run_that_ends_before_it_learns_says_so(capsys):
    make('dqn', buffer_initial_size=100, quiet=False).fit(max_steps=20)
    assert 'Nothing will be learned: the buffer needs 100 transitions first' in capsys.readouterr().out


@pytest.mark.parametrize('decay, shown', [(40, True), (20, False)])
def test_a_run_whose_exploration_does_not_end_says_so(decay, shown, capsys):
    make('dqn', epsilon_start=0.9, epsilon_end=0.1, epsilon_decay_steps=decay, quiet=False).fit(max_steps=20)
    line = (
        'The epsilon will be 0.5 at step 20, the end of the run: it reaches 0.1 at step 40 (see --epsilon-decay-steps)'
    )
    assert (line in ' '.join(capsys.readouterr().out.split())) == shown


def test_a_container_with_less_memory_counts(tmp_path, monkeypatch):
    from xagents.system import memory

    monkeypatch.setattr(memory, 'CONTROL_GROUP', tmp_path)
    free = memory.free_memory()
    assert free > 1e6, 'without a control group, that of the machine'
    (tmp_path / 'memory.max').write_text('5000\n')
    (tmp_path / 'memory.current').write_text('2000\n')
    assert memory.free_memory() == 3000
    (tmp_path / 'memory.max').write_text('max\n')
    assert memory.free_memory() > 1e6


def test_a_dueling_network_is_not_restored_as_another(tmp_path):
    path = str(tmp_path / 'a.tf')
    make('dqn', dueling=True).fit(max_steps=10, checkpoints=[path])
    with pytest.raises(OptionError, match=r'dueling: got False, expected True, as in .*a.tf'):
        make('dqn', weights=[path], net=None, dueling=False)
    assert make('dqn', weights=[path], net=None).options.dueling
