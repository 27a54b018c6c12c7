"""Action masks: acting, losses, errors, and the environments that give them."""

import contextlib
import itertools

import gymnasium
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from tests.commands import execute
from tests.masked_problems import STEPS, TwoLegal
from tests.team_problems import Walks
from xagents.collecting.policies import choose_legal, uniform_logits
from xagents.datasets.reading import Dataset
from xagents.envs.create import as_envs, create_envs
from xagents.envs.observations.action_masks import NoLegalActionError, are_legal, sample_legal
from xagents.networks.acting import ILLEGAL
from xagents.networks.layers import mask_illegal
from xagents.options.errors import OptionError

MASKED = 'tests.masked_problems:TwoLegal-v0'
SMALL = {'n_envs': 2, 'net': [8], 'seed': 1, 'quiet': True}
OFF = {'buffer_max_size': 500, 'buffer_initial_size': 60, 'buffer_batch_size': 8, 'train_frequency': 8}
OFF |= {'gradient_steps': 1}
OPTIONS = {
    **{name: {'n_steps': 8} for name in ('a2c', 'ppo', 'trpo', 'pqn')},
    'acer': {'n_steps': 8, 'buffer_max_size': 160, 'buffer_initial_size': 32},
    **{name: OFF for name in ('dqn', 'sac', 'rainbow')},
}


def make(agent_id, env_kwargs=None, **options):
    """Make a small agent in `TwoLegal`."""
    return xagents.make(
        agent_id, MASKED, env_kwargs=env_kwargs or {'n': 6}, **{**SMALL, **OPTIONS[agent_id], **options}
    )


# ------------------------------------------------------------------------------------------------------------ actions


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('where', ['observation', 'info'])
@pytest.mark.parametrize('agent_id', OPTIONS)
def test_no_action_is_illegal_in_warm_up_exploration_evaluation_and_play(agent_id, where):
    explores = {'epsilon_start': 1.0, 'epsilon_end': 1.0} if agent_id in ('dqn', 'pqn') else {}
    with contextlib.closing(make(agent_id, {'n': 6, 'where': where}, **explores)) as agent:
        agent.fit(max_steps=160, final_episodes=0)  # an illegal action raises an error
        assert agent.context.updates > 0
        assert agent.evaluate(episodes=3)['length'] == agent.evaluate(episodes=3, stochastic=True)['length'] == STEPS
        agent.play()


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('agent_id', ['a2c', 'ppo', 'trpo'])
def test_masks_of_several_choices_are_concatenated(agent_id):
    with contextlib.closing(make(agent_id, {'n': 4, 'several': True})) as agent:
        assert agent.envs.n_mask == 8
        agent.fit(max_steps=80, final_episodes=0)
        assert agent.evaluate(episodes=3, stochastic=True)['length'] == STEPS


def test_random_actions_while_recording_are_legal(tmp_path, monkeypatch):
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    pytest.importorskip('minari')
    for agent_id in ('ppo', 'dqn', 'rainbow'):
        with contextlib.closing(make(agent_id)) as agent:
            xagents.record(
                agent, f'masked-{agent_id}-v0', episodes=4, random_actions=1.0, seed=1, say=lambda line: None
            )


def test_recorded_actions_that_masks_forbid_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    pytest.importorskip('minari')
    with contextlib.closing(make('ppo')) as agent:
        xagents.record(agent, 'legal-v0', episodes=3, seed=1, say=lambda line: None)
    read = Dataset._parse_episode

    def changed(dataset, stored):
        episode = read(dataset, stored)
        episode.actions[4] = np.argmin(episode.observations['action_mask'][4])
        return episode

    monkeypatch.setattr(Dataset, '_parse_episode', changed)
    agent = xagents.make('bc', dataset='legal-v0', net=[4])
    with pytest.raises(
        OptionError, match=r'^dataset: legal-v0: its action mask forbids .* of step 4 of episode 0; --m'
    ):
        agent.begin(max_steps=5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_an_action_is_legal_if_each_of_its_elements_is(seed, nvec):
    rng = np.random.default_rng(seed)
    masks, actions = rng.integers(0, 2, (6, sum(nvec))), rng.integers(0, nvec, (6, len(nvec)))
    ends = np.cumsum(nvec)[:-1]
    pairs = [zip(np.split(mask, ends), action, strict=True) for mask, action in zip(masks, actions, strict=True)]
    expected = [all(part[i] for part, i in elements) for elements in pairs]
    np.testing.assert_array_equal(are_legal(actions, masks, ends), expected)
    if len(nvec) == 1:
        np.testing.assert_array_equal(are_legal(actions[:, 0], masks, ends), expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 7))
def test_random_choices_are_uniform_over_the_legal_actions(seed, n):
    rng = np.random.default_rng(seed)
    legal = rng.random((1, n)) < 0.5
    legal[0, rng.integers(n)] = True
    values = np.where(legal, rng.normal(size=(1, n)), ILLEGAL).astype(np.float32)
    uniform = (np.arange(4000, dtype=np.float32) + 0.5) / 4000
    chosen = choose_legal(values.repeat(4000, 0), uniform)
    counts = np.bincount(chosen, minlength=n)
    assert counts[~legal[0]].sum() == 0
    assert np.ptp(counts[legal[0]]) <= 1
    assert choose_legal(values, np.ones(1, np.float32))[0] in np.flatnonzero(legal)  # a number that is rounded up
    np.testing.assert_array_equal(uniform_logits(values) == 0, legal)


def test_a_random_action_of_a_space_is_legal():
    single, several = spaces.Discrete(5, start=3, seed=1), spaces.MultiDiscrete([3, 2], seed=1)
    assert {int(sample_legal(single, np.array([0, 1, 0, 0, 1]))) for _ in range(50)} == {4, 7}
    mask = np.array([1, 0, 1, 0, 1])
    assert {tuple(sample_legal(several, mask)) for _ in range(50)} == {(0, 1), (2, 1)}
    assert 3 <= sample_legal(single, None) < 8


# ------------------------------------------------------------------------------------------------------------- losses


def masked_batch(agent, n=40):
    """Return network inputs [n, D] with random masks, and the masks as bool."""
    rng = np.random.default_rng(0)
    n_mask = agent.envs.n_mask
    legal = rng.random((n, n_mask)) < 0.4
    legal[np.arange(n), rng.integers(n_mask, size=n)] = True
    observations = np.concatenate([rng.random((n, agent.input_shape[0])), legal], 1).astype(np.float32)
    return observations, legal


def test_log_probabilities_entropy_and_divergence_are_those_of_the_legal_actions():
    agents = [make('ppo', seed=seed, activation='tanh') for seed in (1, 2)]
    observations, legal = masked_batch(agents[0])
    logits = []
    for agent in agents:
        layers = [agent.model.get_layer(name).get_weights() for name in ('dense-actor-0', 'dense-actor')]
        (inner, inner_bias), (outer, bias) = layers
        logits.append(np.tanh(observations[:, :1] @ inner + inner_bias) @ outer + bias)
    outputs = [agent.evaluate_actions(tf.constant(observations))[0] for agent in agents]
    distribution = agents[0].distribution
    entropies, divergences = distribution.entropy(outputs[0]).numpy(), distribution.kl(*outputs).numpy()
    for row, own in enumerate(legal):
        p, q = (scipy.special.softmax(values[row][own].astype(np.float64)) for values in logits)
        np.testing.assert_allclose(entropies[row], -(p * np.log(p)).sum(), atol=1e-5)
        np.testing.assert_allclose(divergences[row], (p * np.log(p / q)).sum(), atol=1e-5)
        for action, probability in zip(np.flatnonzero(own), p, strict=True):
            log_prob = distribution.log_prob([x[row : row + 1] for x in outputs[0]], tf.constant([action]))
            np.testing.assert_allclose(log_prob, np.log(probability), atol=1e-5)
    np.testing.assert_allclose(agents[0].actor(observations)[0], outputs[0][0], atol=1e-5)  # NumPy as TensorFlow


DQN_FORMS = {
    'plain': {},
    'double': {'double': True},
    'dueling': {'dueling': True},
    'dueling double': {'dueling': True, 'double': True},
    'quantile': {'distribution': 'quantile', 'n_quantiles': 5},
    'categorical': {'distribution': 'categorical', 'n_atoms': 5, 'value_min': -3.0, 'value_max': 3.0},
    'rainbow': {'distribution': 'quantile', 'n_quantiles': 5, 'dueling': True, 'double': True},
    'munchausen': {'munchausen': True},
}


@pytest.mark.parametrize('form', DQN_FORMS)
def test_targets_use_the_best_legal_action(form):
    agent = make('dqn', **DQN_FORMS[form])
    agent.target._vector.assign(agent.target._vector * 1.5 + 0.1)  # another network than the online one
    observations, legal = masked_batch(agent)
    x = tf.constant(observations)
    agent.envs.n_mask, n_mask = 0, agent.envs.n_mask
    target, online = (
        agent.q_values(outputs, x).numpy() for outputs in (agent.target_outputs(x, None), agent.outputs(x))
    )
    agent.envs.n_mask = n_mask
    temperature = agent.options.munchausen_temperature or 0.03
    for row, own in enumerate(legal):
        best = (online if agent.options.double else target)[row]
        best = max(np.flatnonzero(own), key=lambda action, best=best: best[action])
        value = target[row][best]
        if form == 'munchausen':
            z = target[row][own].astype(np.float64) / temperature
            value = temperature * scipy.special.logsumexp(z)
        one = x[row : row + 1]
        if agent.return_distribution is None:
            np.testing.assert_allclose(agent.next_values(one), value, atol=1e-4)
        else:
            np.testing.assert_allclose(agent.return_distribution.means(agent.next_atoms(one)), value, atol=1e-4)
        assert agent.actor(observations[row : row + 1])[0].argmax() == max(
            np.flatnonzero(own), key=lambda action, row=row: online[row][action]
        )


def test_the_entropy_that_discrete_sac_aims_at_counts_legal_actions():
    agent = make('sac')
    observations, legal = masked_batch(agent)
    expected = 0.5 * np.log(legal.sum(1)).mean()
    np.testing.assert_allclose(agent.wanted_entropy(tf.constant(observations)), expected, rtol=1e-5)
    assert make('sac', target_entropy=0.3).wanted_entropy(observations) == pytest.approx(0.3)


def test_values_stay_unchanged_if_no_action_is_legal():
    values, mask = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(mask_illegal(values, mask), [[1.0, 2.0], [ILLEGAL, 4.0]])


def test_masks_are_no_input_of_the_layers_and_are_not_normalised():
    agent = make('ppo', {'n': 6, 'where': 'info'}, normalize_obs=True)
    assert agent.input_shape == (1,) and agent.model.input_shape == (None, 7)
    assert agent.model.get_layer('dense-actor-0').kernel.shape[0] == 1
    agent.collector.collect(8)
    assert agent.statistics.observations.statistics.mean.shape == (1,)
    raw = np.array([[0.7, *[1, 0, 1, 0, 0, 0]]], np.float32)
    prepared = agent.statistics.prepare(raw)
    np.testing.assert_array_equal(prepared[:, 1:], raw[:, 1:])
    assert prepared[0, 0] != raw[0, 0]


# ------------------------------------------------------------------------------------------------------- environments


class Wide(gymnasium.Env):
    """Observations in several parts, whose mask stands in the middle of them."""

    observation_space = spaces.Dict(
        a=spaces.Box(0, 255, (4,), np.uint8),
        legal=spaces.MultiBinary(3),
        z=spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32))),
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample() | {'legal': np.array([0, 1, 1], np.int8)}, {}

    def step(self, action):
        assert action > 0
        return self.reset()[0], 1.0, False, True, {}


def test_the_mask_is_the_last_part_whatever_its_key():
    with create_envs(Wide, 2, mask_key='legal') as envs:
        observations = envs.reset(1)
        assert observations.shape == (2, 11) and envs.n_mask == 3 and envs.network_shape == (8,)
        np.testing.assert_array_equal(observations[:, -3:], [[0, 1, 1]] * 2)
        assert envs.encoder.slices() == {'a': slice(0, 4), 'z': slice(4, 8), 'legal': slice(8, 11)}
    with create_envs(Wide, 2) as envs:
        assert envs.n_mask == 0 and envs.network_shape == (11,)


def test_infos_give_masks_to_environments_that_are_made_and_to_ready_made_ones():
    for envs in (
        create_envs(MASKED, 2, env_kwargs={'where': 'info', 'n': 4}),
        create_envs(MASKED, 2, env_kwargs={'where': 'info', 'n': 4}, vector='async'),
        as_envs([TwoLegal(n=4, where='info') for _ in range(2)]),
        create_envs(MASKED, 2, env_kwargs={'where': 'info', 'n': 4, 'key': 'legal'}, mask_key='legal'),
    ):
        with envs:
            observations = envs.reset(1)
            assert envs.n_mask == 4 and observations.shape == (2, 5)
            assert (observations[:, 1:].sum(1) == 2).all()
    with create_envs('Taxi-v4', 2) as envs:
        assert envs.n_mask == 6 and envs.reset(1).shape == (2, 506)
    for key in ('none', None):
        with create_envs('Taxi-v4', 2, mask_key=key) as envs:
            assert envs.n_mask == 0 and envs.reset(1).shape == (2, 500)


class MaskedWalks(Walks):
    """Several agents, of which each may only take one of its actions."""

    def __init__(self, where='observation', **options):
        super().__init__(**options)
        self.where = where

    def observation_space(self, agent):
        space = super().observation_space(agent)
        if self.where == 'info':
            return space
        n = int(super().action_space(agent).n)
        return spaces.Dict({'observation': space, 'action_mask': spaces.Box(0, 1, (n,), np.int8)})

    def masks(self, agents):
        masks = {}
        for agent in agents:
            masks[agent] = np.zeros(int(self.action_space(agent).n), np.int8)
            masks[agent][1] = 1
        return masks

    def given(self, observations, infos):
        masks = self.masks(observations)
        if self.where == 'info':
            return observations, {
                agent: {**infos.get(agent, {}), 'action_mask': masks[agent]} for agent in observations
            }
        parts = {agent: {'observation': x, 'action_mask': masks[agent]} for agent, x in observations.items()}
        return parts, infos

    def reset(self, seed=None, options=None):
        return self.given(*super().reset(seed=seed, options=options))

    def step(self, actions):
        assert all(int(action) == 1 for action in actions.values()), 'an illegal action'
        observations, *others, infos = super().step(actions)
        observations, infos = self.given(observations, infos)
        return (observations, *others, infos)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(('where', 'index'), itertools.product(['observation', 'info'], [False, True]))
def test_several_agents_have_masks(where, index):
    agent = xagents.make('ppo', lambda: MaskedWalks(where), n_steps=8, agent_index=index, **SMALL)
    with contextlib.closing(agent):
        size = agent.envs.observation_space.shape[0]
        assert agent.envs.n_mask == 2 and agent.input_shape == (size - 2,)
        agent.fit(max_steps=100, final_episodes=0)
        observations = agent.collector.current_observations()
        np.testing.assert_array_equal(observations[agent.envs.valid][:, -2:], [[0, 1]] * agent.envs.valid.sum())


# ------------------------------------------------------------------------------------------------------------- errors


def test_a_state_without_a_legal_action_names_the_environment_and_the_step(folder):
    message = 'TwoLegal-v0 has no legal action in environment 0 after step 4'
    with contextlib.closing(make('ppo', {'n': 6, 'none_at': 4})) as agent, pytest.raises(ValueError, match=message):
        agent.fit(max_steps=100)
    line = f'train ppo --env {MASKED} --env-kwargs n=6 none_at=4 --max-steps 100 --final-episodes 0'
    for explorers in ('', ' --explorers 1'):
        code, _, stderr = execute(*f'{line}{explorers}'.split())
        assert code == 1 and stderr.count('\n') == 1
        assert 'has no legal action in environment 0 after step 4: its action mask is 0' in stderr
    mask = np.array([1, 0, 0, 0], np.int8)
    with create_envs(lambda: TwoLegal(n=2, several=True), 1) as envs:
        envs._vector.envs[0].unwrapped.state = lambda: ({'action_mask': mask, 'bit': np.zeros(2, np.float32)}, {})
        with pytest.raises(NoLegalActionError):  # of the second choice
            envs.reset(1)


class Odd(TwoLegal):
    """A mask of another form than the actions."""

    def __init__(self, mask=None, actions=None, only=False):
        super().__init__(n=4)
        parts = {'action_mask': mask or self.observation_space['action_mask']}
        self.observation_space = spaces.Dict(parts if only else {**parts, 'bit': spaces.Box(0, 1, (1,))})
        self.action_space = actions or self.action_space


@pytest.mark.parametrize(
    ('made', 'message'),
    [
        ({'mask': spaces.MultiBinary(3)}, 'has an action mask of 3 elements, expected 4, one for each action'),
        ({'mask': spaces.Box(0, 1, (4,), np.float32)}, 'expected a vector of 0 and 1, in MultiBinary or in a Box of'),
        ({'mask': spaces.Box(0, 255, (4,), np.uint8)}, 'expected a vector of 0 and 1'),
        ({'mask': spaces.MultiBinary([2, 2])}, 'expected a vector of 0 and 1'),
        ({'mask': spaces.Discrete(4)}, 'expected a vector of 0 and 1'),
        ({'only': True}, "the observation has only the action mask 'action_mask', expected more parts"),
        ({'actions': spaces.Box(-1, 1, (4,))}, 'expected Discrete or MultiDiscrete ones'),
        ({'actions': spaces.MultiBinary(4)}, 'expected Discrete or MultiDiscrete ones'),
        ({'actions': spaces.MultiDiscrete([2, 3])}, 'expected 5, one for each value of each element of an action'),
    ],
)
def test_masks_that_do_not_fit_are_refused(made, message):
    with pytest.raises(ValueError, match=r'.') as error:
        xagents.make('ppo', lambda: Odd(**made), net=[4])
    assert message in str(error.value) and '--mask-key none' in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize('actions', [spaces.Box(-1, 1, (4,)), spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1)])])
def test_masks_in_infos_of_other_actions_are_refused(actions):
    class InInfo(TwoLegal):
        def __init__(self):
            super().__init__(n=4, where='info')
            self.action_space = actions

    with pytest.raises(ValueError, match=r'expected Discrete or MultiDiscrete ones; --mask-key none turns masks off'):
        xagents.make('ppo', InInfo, net=[4])
    assert xagents.make('ppo', InInfo, net=[4], mask_key='none').envs.n_mask == 0


def test_a_key_that_no_environment_has_is_refused():
    with pytest.raises(
        OptionError, match=r'^mask_key: got legl, but .*TwoLegal-v0 has no .*, expected one of action_mask, bit'
    ):
        create_envs(MASKED, 2, mask_key='legl')


def test_an_info_without_its_mask_is_an_error_within_an_episode():
    env = TwoLegal(n=4, where='info')
    state, calls = env.state, itertools.count()
    env.state = lambda: (state()[0], {}) if next(calls) == 4 else state()
    with as_envs(env) as envs:
        envs.reset(1)
        with pytest.raises(ValueError, match=r'gives an info without action_mask, expected one in each info'):
            for _ in range(4):
                legal = env.legal[0][0]
                envs.step(np.array([legal]))


# ----------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize('agent_id', ['ppo', 'dqn'])
def test_agents_learn_the_better_of_two_legal_actions(agent_id):
    options = {'ppo': {'n_steps': 64}, 'dqn': {**OFF, 'buffer_max_size': 20_000, 'buffer_batch_size': 64}}[agent_id]
    options |= {'train_frequency': 32, 'gradient_steps': 8, 'epsilon_decay_steps': 3000} if agent_id == 'dqn' else {}
    options |= {'n_envs': 8, 'net': [64], 'lr': 1e-3, 'gamma': 0.5}
    with contextlib.closing(make(agent_id, {'n': 10}, **options)) as agent:
        agent.fit(max_steps=8000, final_episodes=0)
        assert agent.evaluate(episodes=20)['mean'] > 9


class InfoMasks(gymnasium.Env):
    """Gives the mask that it is made with in each info."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def __init__(self, mask, actions):
        self.mask, self.action_space = mask, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {'action_mask': self.mask}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {'action_mask': self.mask}


@pytest.mark.parametrize(
    'mask', [np.array([0.5, 0, 1]), np.array([1.0, 0, 1]), np.array([2, 0, 1]), np.ones((1, 3), int), 'legal']
)
def test_masks_of_infos_are_vectors_of_0_and_1(mask):
    with pytest.raises(OptionError, match=r'^env: InfoMasks gives an info with action_mask=.*; expected a vector') as e:
        create_envs(lambda: InfoMasks(mask, gymnasium.spaces.Discrete(3)), 1)
    assert '\n' not in str(e.value)


def test_an_info_may_have_a_tuple_of_masks():
    mask = (np.array([1, 0], np.int8), np.array([0, 1, 0], np.int8))
    with create_envs(lambda: InfoMasks(mask, gymnasium.spaces.MultiDiscrete([2, 3])), 2) as envs:
        assert envs.n_mask == 5 and envs.reset(0)[0, -5:].tolist() == [1, 0, 0, 1, 0]


def test_repeated_actions_are_refused_with_masks():
    with pytest.raises(OptionError, match=r'^frame_skip: got 2, but .* has action masks, which a repeated action may'):
        create_envs('tests.masked_problems:TwoLegal-v0', 2, frame_skip=2)


def test_policies_refuse_masks_without_a_legal_action(tmp_path):
    agent = xagents.make('ppo', 'tests.masked_problems:TwoLegal-v0', env_kwargs={'n': 4}, net=[8], n_envs=2, seed=1)
    agent.save(tmp_path / 'run')
    for act in (agent.act, xagents.policy(tmp_path / 'run')):
        assert act({'bit': np.ones(1, np.float32), 'action_mask': np.array([0, 0, 1, 0], np.int8)}) == 2
        for mask, problem in [
            (np.zeros(4, np.int8), 'got an action mask of 0, expected at least one legal action'),
            (np.array([0, -1, 0, 0], np.int8), 'other values than 0 and 1'),
            (np.array([0, 0.5, 0, 0]), 'other values than 0 and 1'),
            (np.ones(3, np.int8), r"observation\['action_mask'\] has the shape \[3\], expected \[4\]"),
        ]:
            with pytest.raises(ValueError, match=problem):
                act({'bit': np.ones(1, np.float32), 'action_mask': mask})
    agent.close()
