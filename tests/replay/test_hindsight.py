"""Hindsight against lists that keep every step, and goals against calls one by one."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import xagents
from benchmarks.envs.bits import BitFlip
from tests.commands import execute
from xagents.envs.create import as_envs, create_envs
from xagents.envs.spaces import ObservationEncoder
from xagents.options.errors import OptionError
from xagents.replay.hindsight import STRATEGIES, EpisodeIndex, HindsightBuffer
from xagents.replay.transitions import ReplayBuffer

GO, TERMINATE, TRUNCATE = range(3)
GAMMA = 0.5
NOBODYS = -1.0


class Numbers:
    """Goals that are numbers, in observations of a goal achieved, one desired, and a number that all differ in."""

    achieved, desired = slice(0, 1), slice(1, 2)

    def __init__(self, ends=True):
        self.ends = ends

    def compute_rewards(self, achieved, desired):
        return (1000 * achieved + desired)[:, 0], (achieved == desired)[:, 0] if self.ends else None


class ScriptedEnv:
    """An environment that ends episodes when told, and a list of all steps; every observation achieves another goal."""

    def __init__(self, goals):
        self.goals, self.rows, self.episode = goals, [], 0
        self.begin()

    def begin(self):
        self.shown, self.valid = next(self.goals), True
        self.episode += 1

    def restart(self):
        if self.rows:
            self.rows[-1]['kept'] = False  # what it led to is overwritten
        self.begin()

    def step(self, event):
        row = {'before': self.shown, 'valid': self.valid, 'kept': True, 'episode': self.episode}
        row['terminated'], row['truncated'] = (self.valid and event == kind for kind in (TERMINATE, TRUNCATE))
        if self.valid:
            self.shown = next(self.goals)
            self.valid = event == GO
        else:
            self.begin()
        self.rows.append({**row, 'after': self.shown})

    def held(self, capacity):
        """The rows that can be drawn, with what a goal may be drawn from: the rows of the same episode."""
        newest = list(enumerate(self.rows))[-capacity:]
        can = [(i, row) for i, row in newest if row['valid'] and row['kept']]
        return [(i, row, [j for j, other in can if other['episode'] == row['episode']]) for i, row in can]


def shown(goals):
    """Observations [N, 3] that achieve goals."""
    goals = np.array(goals, np.float32)
    return np.stack([goals, np.full_like(goals, NOBODYS), goals], axis=-1)


def collect(scripted, events):
    """Let each environment take a step for each row of events [T, N]; return the batch."""
    first = len(scripted[0].rows)
    observations = [shown([one.shown for one in scripted])]
    for now in events:
        for one, event in zip(scripted, now, strict=True):
            one.step(event)
        observations.append(shown([one.shown for one in scripted]))
    rows = [[one.rows[t] for one in scripted] for t in range(first, len(scripted[0].rows))]
    flags = {name: np.array([[row[name] for row in t] for t in rows]) for name in ('terminated', 'truncated', 'valid')}
    shape = flags['valid'].shape
    actions, rewards = np.zeros(shape, np.int32), np.random.default_rng(first).random(shape, dtype=np.float32)
    return {'observations': np.array(observations), 'actions': actions, 'rewards': rewards, **flags}


def bounds(episodes, scripted, capacity):
    """Compare what is known of each row that can be drawn with the lists; a ring holds `capacity` rows and the head."""
    for n, one in enumerate(scripted):
        for i, _, same in one.held(capacity):
            flat = np.array([i % (capacity + 1) * len(scripted) + n])
            got = [int(f(flat)[0]) for f in (episodes.rows, episodes.first, episodes.last)]
            assert got == [i, same[0], same[-1]]


@st.composite
def additions(draw):
    """Events [T, N] of some additions, and who is restarted from outside before each."""
    n_envs = draw(st.integers(1, 3))
    event = st.sampled_from([GO] * draw(st.integers(1, 8)) + [TERMINATE, TRUNCATE])
    plan_agent = []
    for _ in range(draw(st.integers(1, 10))):
        steps = draw(st.one_of(st.integers(1, 4), st.integers(1, 25)))
        outside = [draw(st.integers(0, 5)) == 0 for _ in range(n_envs)]
        plan_agent.append((np.array([[draw(event) for _ in range(n_envs)] for _ in range(steps)]), outside))
    return n_envs, plan_agent


@settings(max_examples=12)
@given(plan_agent=additions(), capacity=st.integers(1, 14), strategy=st.sampled_from(STRATEGIES), said=st.booleans())
def test_every_goal_is_one_of_the_same_episode(plan_agent, capacity, strategy, said):
    n_envs, additions = plan_agent
    goals, rng = itertools.count(), np.random.default_rng(0)
    scripted = [ScriptedEnv(goals) for _ in range(n_envs)]
    buffer = HindsightBuffer(capacity * n_envs, 1, 1, gamma=GAMMA, goals=Numbers(), strategy=strategy, ratio=1.0)
    for events, outside in additions:
        for one, restarted in zip(scripted, outside, strict=True):
            if restarted:
                one.restart()
        batch = collect(scripted, events)
        buffer.add({**batch, 'restarted': np.array(outside)} if said else batch)
        bounds(buffer._episodes, scripted, capacity)
        bounds(EpisodeIndex(buffer.ring), scripted, capacity)  # as after a resume
        check(buffer, scripted, capacity, strategy, rng)


def check(buffer, scripted, capacity, strategy, rng):
    """Draw so often that every goal must come."""
    expected = {}
    for one in scripted:
        for i, row, same in one.held(capacity):
            chosen = {'final': same[-1:], 'episode': same, 'future': [j for j in same if j >= i]}[strategy]
            expected[row['before']] = row['after'], {one.rows[j]['after'] for j in chosen}
    assert len(buffer) == len(expected)
    if not expected:
        return
    pairs = sum(len(goals) for _, goals in expected.values())
    batch = {name: a[:, 0] for name, a in buffer.sample(20 * pairs * len(expected), rng).items()}
    drawn = {}
    for before, after in zip(batch['observations'].tolist(), batch['next_observations'].tolist(), strict=True):
        assert before[1] == after[1] and before[0] == before[2] and after[0] == after[2]
        assert after[0] == expected[before[0]][0]
        drawn.setdefault(before[0], set()).add(before[1])
    assert drawn == {before: goals for before, (_, goals) in expected.items()}
    achieved, desired = batch['next_observations'][:, 0], batch['next_observations'][:, 1]
    np.testing.assert_array_equal(batch['rewards'], 1000 * achieved + desired)
    np.testing.assert_array_equal(batch['discounts'], np.where(achieved == desired, 0, GAMMA))


def filled(batch_size=1, **options):
    """A buffer that holds an episode that terminated after ten steps, and one of five that goes on."""
    scripted = [ScriptedEnv(itertools.count())]
    buffer = HindsightBuffer(100, 1, batch_size, **{'gamma': GAMMA, 'goals': Numbers(), **options})
    buffer.add(collect(scripted, np.array([GO] * 9 + [TERMINATE] + [GO] * 6)[:, None]))
    return buffer


@pytest.mark.parametrize(('strategy', 'first'), [('future', 1), ('episode', 1), ('future', 4), ('episode', 4)])
def test_goals_are_drawn_uniformly(strategy, first):
    buffer = filled(strategy=strategy, ratio=1.0)
    observations = buffer.sample(40_000, np.random.default_rng(1))['observations'][:, 0]
    goals, counts = np.unique(observations[observations[:, 0] == first - 1, 1], return_counts=True)
    assert goals.tolist() == list(range(first if strategy == 'future' else 1, 11))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_final_goal_is_the_last_one():
    observations = filled(strategy='final', ratio=1.0).sample(500, np.random.default_rng(1))['observations'][:, 0]
    ends = {(before < 10, goal) for before, goal in observations[:, :2].tolist()}
    assert ends == {(True, 10), (False, 16)}, 'of the running episode it is the newest'


def test_without_a_share_it_is_the_plain_buffer_to_the_bit():
    scripted, plain = [ScriptedEnv(itertools.count()) for _ in range(3)], ReplayBuffer(60, 1, 32, gamma=GAMMA)
    hindsight = HindsightBuffer(60, 1, 32, gamma=GAMMA, goals=Numbers(), ratio=0.0)
    rngs = [np.random.default_rng(3) for _ in range(2)]
    for seed in range(5):
        batch = collect(scripted, np.random.default_rng(seed).choice(3, (9, 3), p=[0.8, 0.1, 0.1]))
        drawn = []
        for buffer, rng in zip((plain, hindsight), rngs, strict=True):
            buffer.add(batch)
            drawn.append(buffer.sample(4, rng, max_batches=6, scale=lambda rewards: 3 * rewards))
        assert list(drawn[0]) == list(drawn[1])
        assert all(drawn[0][name].tobytes() == drawn[1][name].tobytes() for name in drawn[0])
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_a_share_of_each_batch_gets_a_goal_and_the_rest_stays():
    buffer = filled(batch_size=50, ratio=0.8)
    plain = ReplayBuffer(100, 1, 50, gamma=GAMMA)
    plain.adopt_ring(buffer.ring)
    one, other = (b.sample(30, np.random.default_rng(0), scale=lambda rewards: 2 * rewards) for b in (buffer, plain))
    relabelled = one['observations'][..., 1] != NOBODYS
    assert (relabelled.sum(axis=1) == 40).all() and not (other['observations'][..., 1] != NOBODYS).any()
    for name, array in one.items():
        np.testing.assert_array_equal(array[~relabelled], other[name][~relabelled])
    after = one['next_observations'][relabelled]
    np.testing.assert_array_equal(one['rewards'][relabelled], 2 * (1000 * after[:, 0] + after[:, 1]))
    for name in ('observations', 'next_observations'):
        np.testing.assert_array_equal(one[name][..., [0, 2]], other[name][..., [0, 2]])


def test_discounts_stay_where_nothing_says_whether_other_goals_end_the_episode():
    batch = filled(goals=Numbers(ends=False), ratio=1.0).sample(500, np.random.default_rng(0))
    np.testing.assert_array_equal(batch['discounts'], np.where(batch['observations'][..., 0] == 9, 0, GAMMA))


def test_what_is_stored_stays():
    buffer = filled(ratio=1.0)
    buffer.sample(100, np.random.default_rng(0))
    assert (buffer.ring.arrays['observations'][:17, :, 1] == NOBODYS).all()


def test_it_fills_from_the_ring_of_a_plain_buffer():
    scripted, plain = [ScriptedEnv(itertools.count()) for _ in range(2)], ReplayBuffer(30, 1, 1)
    for seed in range(4):
        plain.add(collect(scripted, np.random.default_rng(seed).choice(3, (9, 2), p=[0.8, 0.1, 0.1])))
    buffer = HindsightBuffer(30, 1, 1, goals=Numbers())
    buffer.adopt_ring(plain.ring)
    bounds(buffer._episodes, scripted, 15)
    buffer.add(collect(scripted, np.zeros((3, 2), int)))
    bounds(buffer._episodes, scripted, 15)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'n_step': 2}, 'n_step: got 2'),
        ({'alpha': 0.5}, 'her: got priorities'),
        ({'stack': 4}, 'her: got stacks of frames'),
        ({'strategy': 'last'}, 'her_strategy: got last, expected one of future, final, episode'),
        ({'ratio': 1.5}, 'her_ratio: got 1.5'),
    ],
)
def test_what_the_buffer_does_not_admit(options, words):
    with pytest.raises(OptionError, match=words):
        HindsightBuffer(10, 1, 1, goals=Numbers(), **options)


# goals of environments


GOAL = spaces.Box(0, 1, (2, 3), np.float64)


class Grid(BitFlip):
    """A BitFlip with goals of another space; it has a distance for a reward, and says nothing of ends."""

    compute_terminated = property()  # no such attribute

    def __init__(self, goal=GOAL, **functions):
        super().__init__(6)
        self.goal_space = goal
        parts = {'achieved_goal': goal, 'desired_goal': goal, 'observation': spaces.Discrete(3)}
        self.observation_space = spaces.Dict(parts)
        self.calls = []
        self.__dict__.update(functions)

    def observation(self):
        achieved, desired = (
            g.reshape(self.goal_space.shape).astype(self.goal_space.dtype) for g in (self.state, self.goal)
        )
        return {'achieved_goal': achieved, 'desired_goal': desired, 'observation': 1}

    def step(self, action):
        self.state[action] = 1 - self.state[action]
        self.age += 1
        return self.observation(), -1.0, False, self.age == 3, {}

    def compute_reward(self, achieved, desired, info):
        self.calls.append(achieved.shape)
        assert achieved.dtype == desired.dtype == self.goal_space.dtype
        return -np.abs(achieved * 1.0 - desired).sum(axis=(-2, -1))


def pairs(goals, n=50):
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, (2, n, goals.achieved.stop - goals.achieved.start)).astype(np.float32)


@pytest.mark.parametrize(
    'space', [spaces.Box(0, 1, (2, 3), np.float64), spaces.MultiBinary((2, 3)), spaces.Box(0, 9, (2, 3), np.int64)]
)
def test_goal_functions_get_batches_as_the_environment_has_them(space):
    with create_envs(lambda **_: Grid(space), 2) as envs:
        goals, grid = envs.goals, envs.goals.env.unwrapped
        assert (goals.achieved, goals.desired) == (slice(0, 6), slice(6, 12)), 'ordered by their names'
        achieved, desired = pairs(goals)
        grid.calls.clear()
        rewards, terminated = goals.compute_rewards(achieved, desired)
        assert grid.calls == [(50, 2, 3)] and terminated is None and rewards.dtype == np.float32
        np.testing.assert_array_equal(rewards, -np.abs(achieved - desired).sum(axis=1))
        assert envs.goals is goals


def one_pair(achieved, desired, info):
    """Take single goals only."""
    return -float(np.array_equal(achieved, desired))


def wrong(achieved, desired, info):
    """Give a batch something else than its parts."""
    return -np.abs(achieved - desired).reshape(len(achieved), -1).sum(axis=1) + len(achieved)


def failing(achieved, desired, info):
    """Take single goals only, and say so."""
    assert achieved.shape == (2, 3)
    return -1.0


@pytest.mark.parametrize('function', [one_pair, failing])
def test_what_takes_no_batches_is_called_one_by_one(function):
    with create_envs(lambda **_: Grid(compute_reward=function)) as envs:
        achieved, desired = pairs(envs.goals)
        expected = [function(a.reshape(2, 3), d.reshape(2, 3), {}) for a, d in zip(achieved, desired, strict=True)]
        np.testing.assert_array_equal(envs.goals.compute_rewards(achieved, desired)[0], expected)


def test_batches_that_differ_from_single_calls_are_not_trusted():
    function = lambda a, d, info: wrong(a[None] if a.ndim == 2 else a, d[None] if d.ndim == 2 else d, info).squeeze()  # noqa: E731
    with create_envs(lambda **_: Grid(compute_reward=function)) as envs:
        achieved, desired = pairs(envs.goals)
        np.testing.assert_array_equal(
            envs.goals.compute_rewards(achieved, desired)[0], 1 - np.abs(achieved - desired).sum(axis=1)
        )


@pytest.mark.parametrize('always', [False, True])
def test_one_answer_for_all_stands_for_each(always):
    class Always(Grid):
        def compute_terminated(self, achieved, desired, info):
            return always

    with create_envs(lambda **_: Always()) as envs:
        assert envs.goals.compute_rewards(*pairs(envs.goals))[1].tolist() == [always] * 50


def test_rewards_and_ends_are_those_of_the_environment_one_by_one():
    agent = make(her_ratio=1.0, buffer_batch_size=128, buffer_initial_size=128, reward_scale=2.0)
    for _ in range(70):
        agent.remember(agent.collect({'epsilon': 1.0}))
    batch, env = agent.replay(2, {}), agent.envs.goals.env
    after = batch['next_observations'].reshape(-1, 3, 6)  # achieved, desired, observation
    one_by_one = [env.get_wrapper_attr('compute_reward')(*both[:2], {}) for both in after]
    ends = [env.get_wrapper_attr('compute_terminated')(*both[:2], {}) for both in after]
    np.testing.assert_array_equal(batch['rewards'].ravel(), 2 * np.array(one_by_one))
    np.testing.assert_array_equal(batch['discounts'].ravel() == 0, ends)
    assert 0.1 < np.mean(ends) < 0.9
    agent.close()


def test_the_environment_of_the_goals_is_closed_with_the_others():
    closed = []

    class Closing(BitFlip):
        def close(self):
            closed.append(self)

    agent = make(env=lambda **_: Closing())
    assert len(agent.buffer.ring.arrays if agent.buffer.ring else []) == 0
    agent.close()
    assert agent.envs.goals.env.unwrapped in closed and len(closed) == 3


def test_goals_of_worker_processes_are_asked_here():
    with create_envs('benchmarks.envs.bits:BitFlip-v0', 2, vector='async') as envs:
        assert envs.goals.env.unwrapped.bits == 6


def test_where_the_parts_of_an_observation_stand():
    one = spaces.Box(0, 1, (2, 2), np.float32)
    inner = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(4)))
    encoder = ObservationEncoder(spaces.Dict({'b': one, 'a': inner, 'c': spaces.MultiDiscrete([2, 3])}))
    assert encoder.slices() == {'a': slice(0, 7), 'b': slice(7, 11), 'c': slice(11, 16)}
    assert (
        ObservationEncoder(inner).slices() == {0: slice(0, 3), 1: slice(3, 7)}
        and ObservationEncoder(one).slices() == {}
    )


# agents


def make(env='benchmarks.envs.bits:BitFlip-v0', agent_id='dqn', **options):
    given = {'n_envs': 2, 'seed': 1, 'net': [8], 'quiet': True, 'her': True, 'buffer_initial_size': 8, **options}
    return xagents.make(agent_id, env, **given)


def part(**changed):
    """A BitFlip with other parts; those that are None are left out."""
    env = BitFlip()
    parts = {**env.observation_space.spaces, **changed}
    env.observation_space = spaces.Dict({name: space for name, space in parts.items() if space is not None})
    return lambda **_: env


class NoReward(BitFlip):
    compute_reward = property()


class Informed(BitFlip):
    def compute_reward(self, achieved, desired, info):
        return info['distance']

    def step(self, action):
        return self.observation(), -1.0, False, False, {}


@pytest.mark.parametrize(
    ('env', 'options', 'line'),
    [
        (
            'CartPole-v1',
            {},
            'her: CartPole-v1 has observations of a Box, expected a Dict of observation, achieved_goal, desired_goal',
        ),
        (part(desired_goal=None), {}, 'has observations of a Dict of achieved_goal, observation, expected'),
        (
            part(observation=spaces.Box(0, 255, (8, 8, 3), np.uint8)),
            {'net': None},
            r'has an image, observation \[8, 8, 3\], expected',
        ),
        (part(achieved_goal=spaces.Discrete(3)), {}, r'has goals of Discrete\(3\), expected Box'),
        (part(achieved_goal=spaces.Box(0, 1, (2,), np.float32)), {}, r'and desires Box.*, expected equal spaces'),
        (lambda **_: NoReward(), {}, 'has no compute_reward'),
        (lambda **_: Informed(), {}, "compute_reward of .* fails without an info: KeyError: 'distance'"),
        (BitFlip, {'n_step': 3}, 'n_step: got 3 with --her, expected 1'),
        (BitFlip, {'prioritized': True}, 'prioritized: cannot be used with --her'),
        (BitFlip, {'her': False, 'her_ratio': 0.5}, 'her_ratio: got 0.5, which requires --her'),
        (BitFlip, {'her': False, 'her_strategy': 'final'}, 'her_strategy: got final, which requires --her'),
        (BitFlip, {'her_strategy': 'last'}, 'her_strategy: got last, expected one of future, final, episode'),
    ],
)
def test_refusals(env, options, line, monkeypatch):
    monkeypatch.setattr('xagents.factory.networks._build_network', None)  # no network is built
    with pytest.raises(OptionError, match=line) as error:
        make(env, **options)
    assert '\n' not in str(error.value)


def test_environments_that_cannot_be_made_again_are_refused():
    with pytest.raises(OptionError, match='her: BitFlip was passed ready-made, expected an environment that can'):
        make([BitFlip()], n_envs=1)
    repeat = make(as_envs(gymnasium.make('benchmarks.envs.bits:BitFlip-v0')), n_envs=1)
    assert repeat.buffer.goals is repeat.envs.goals
    repeat.close()


def test_buffers_are_handed_over_with_goals_or_not_at_all():
    model = make().model
    with pytest.raises(OptionError, match='her: got true with buffers'):
        xagents.DQN(create_envs(BitFlip), model, her=True, buffers=ReplayBuffer(100))
    with create_envs(BitFlip) as envs:
        buffer = HindsightBuffer(100, goals=envs.goals)
        assert xagents.DQN(envs, model, buffers=buffer).buffer is buffer


def test_it_is_refused_on_the_command_line_in_one_line(folder):
    code, stdout, stderr = execute(*['train', 'dqn', '--env', 'CartPole-v1', '--her', '--max-steps', '10'])
    expected = 'expected a Dict of observation, achieved_goal, desired_goal'
    assert (code, stdout, stderr) == (
        2,
        '',
        f'xagents train: --her: CartPole-v1 has observations of a Box, {expected}\n',
    )


def test_the_memory_of_episodes_is_counted():
    bytes_of = {}
    for her in (True, False):
        agent = make(her=her, buffer_max_size=1000)
        bytes_of[her] = agent.buffer_needs().n_bytes
        agent.close()
    assert bytes_of[True] - bytes_of[False] == 501 * 2 * 20


@pytest.mark.parametrize(
    'strategy', ['future', *(pytest.param(s, marks=pytest.mark.slow) for s in ('final', 'episode'))]
)
def test_six_bits_are_learned(strategy, without_xla):
    options = {'train_frequency': 16, 'gradient_steps': 8, 'buffer_batch_size': 64, 'buffer_initial_size': 500}
    options |= {'lr': 1e-3, 'gamma': 0.9, 'double': True, 'target_sync_steps': 200, 'epsilon_decay_steps': 3000}
    agent = make(net=[64], n_envs=4, epsilon_end=0.1, her_strategy=strategy, **options)
    agent.fit(max_steps=8000)
    result = agent.evaluate(100)
    assert result['success'] > 0.9 and list(result)[-1] == 'success'
    agent.close()
