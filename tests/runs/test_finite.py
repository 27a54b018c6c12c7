"""NaN and infinities: named with step and environment, never learned from, never remembered, and what is saved then."""

import math
import re
import warnings

import gymnasium
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests.small_agents import ENV, Fault, Trouble, make, weights
from xagents.checkpoints.status import read_status
from xagents.collecting.finite import NotFiniteError, check_rollout
from xagents.factory.load import load, resume

pytestmark = [
    pytest.mark.usefixtures('small_agents'),
    # a network that sees an infinity may say so
    pytest.mark.filterwarnings('ignore:invalid value encountered in dot'),
]
inf, nan = math.inf, math.nan
AGENTS = ('small', 'small-replay')


@pytest.fixture(autouse=True)
def faults_are_forgotten():
    yield
    Trouble.faults = ()


def totals_of(agent):
    """The steps of all environments together after each call of `step`, and those of each one."""
    rows, step = [], agent.envs.step
    environments = [env.unwrapped for env in agent.envs._vector.envs]

    def counted(actions):
        result = step(actions)
        rows.append([env.taken for env in environments])
        return result

    agent.envs.step = counted
    return rows


# ---------------------------------------------------------------------------------------------------- what is looked at


@given(st.data())
def test_the_first_bad_number_is_named_as_a_loop_over_all_finds_it(data):
    steps, n_envs = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    written = data.draw(st.integers(0, steps))
    rollout = {
        'observations': np.ones((steps + 1, n_envs, 2), np.float32),
        'rewards': np.full((steps, n_envs), 3e38, np.float32),  # whose sum overflows
        'valid': np.array(data.draw(st.lists(st.booleans(), min_size=steps * n_envs, max_size=steps * n_envs))),
    }
    rollout['valid'] = rollout['valid'].reshape(steps, n_envs)
    for name in data.draw(st.lists(st.sampled_from(['observations', 'rewards']), max_size=3)):
        place = tuple(data.draw(st.integers(0, size - 1)) for size in rollout[name].shape)
        rollout[name][place] = data.draw(st.sampled_from([nan, inf, -inf]))
    expected = None
    for name, rows in (('observations', written + 1), ('rewards', written)):
        for t in range(rows):
            for env in range(n_envs):
                bad = [x for x in rollout[name][t, env].reshape(-1) if not math.isfinite(x)]
                # an observation stands before its step, a reward behind it
                taken = int(rollout['valid'][: t + (name == 'rewards')].sum())
                if bad and expected is None:
                    expected = name, repr(float(bad[0])), env, taken
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        try:
            check_rollout(rollout, written)
            found = None
        except NotFiniteError as error:
            found = error.quantity, repr(error.value), error.env, error.step
    assert found == expected


def test_bytes_are_not_even_looked_at():
    class Untouchable(np.ndarray):
        def look(self, *arguments, **keywords):
            raise AssertionError('looked at')

        __array_ufunc__ = __array_function__ = sum = look

    images = np.zeros((3, 2, 4, 4, 1), np.uint8).view(Untouchable)
    check_rollout({'observations': images, 'rewards': np.zeros((2, 2), np.float32), 'valid': np.ones((2, 2), bool)})
    with pytest.raises(AssertionError, match='looked at'):
        check_rollout({'observations': images.astype(np.float32).view(Untouchable), 'valid': np.ones((2, 2), bool)})


# ----------------------------------------------------------------------------------------------- what environments give


@pytest.mark.parametrize(
    ('agent_id', 'what', 'value', 'n_envs'),
    [
        *(('small', 'observation', nan, 1), ('small', 'reward', inf, 3), ('small', 'reward', nan, 3)),
        *(('small-replay', 'observation', -inf, 3), ('small-replay', 'reward', nan, 1)),
    ],
)
def test_the_message_names_what_and_where(agent_id, what, value, n_envs):
    agent = make(agent_id, Fault(n_envs - 1, 11, what, value), n_envs=n_envs)
    rows = totals_of(agent)
    with pytest.raises(NotFiniteError) as error:
        agent.fit(max_steps=1_000)
    step = next(sum(row) for row in rows if row[-1] == 11)
    expected = f'{what}s are not finite ({value}) at step {step} in environment {n_envs - 1} of {ENV}'
    assert str(error.value) == expected


@pytest.mark.parametrize('what', ['observation', 'reward'])
def test_a_vector_environment_that_was_handed_over(what):
    Trouble.made, Trouble.faults = 0, (Fault(1, 2, what, inf),)
    vector = gymnasium.vector.SyncVectorEnv([Trouble] * 2)
    indices = [env.unwrapped.index for env in vector.envs]
    Trouble.faults = (Fault(indices[1], 2, what, inf),)
    agent = xagents.make('small', vector, n_steps=4, mini_batches=1, net=[4], seed=1, quiet=True)
    with pytest.raises(NotFiniteError, match=rf'{what}s are not finite \(inf\) at step 4 in environment 1 of '):
        agent.fit(max_steps=100)


def test_an_error_after_a_bad_number_is_that_of_the_number():
    agent = make('small', Fault(0, 6, 'observation'), Fault(0, 7, 'raise'))
    with pytest.raises(NotFiniteError, match='observations are not finite') as error:
        agent.fit(max_steps=100)
    assert isinstance(error.value.__context__, ArithmeticError)
    agent = make('small', Fault(0, 7, 'raise'))
    with pytest.raises(ArithmeticError, match='broken at step 7'):
        agent.fit(max_steps=100)


@pytest.mark.parametrize('agent_id', AGENTS)
def test_nothing_is_learned_and_nothing_remembered_of_what_stops_a_run(agent_id):
    agent = make(agent_id, Fault(1, 14, 'reward'), normalize_obs=True, normalize_reward=True)
    known = []

    def note(ctx):
        known[:] = [v.tobytes() for v in agent.model.get_weights()], agent.state().arrays

    with pytest.raises(NotFiniteError):
        agent.fit(max_steps=1_000, recipe=agent.recipe().use(note))
    assert known[0] == [v.tobytes() for v in agent.model.get_weights()]
    parts = agent.state().arrays
    for name, array in known[1].items():
        np.testing.assert_array_equal(array, parts[name], name)
    # without the fault it goes on, with new episodes
    Trouble.faults = ()
    agent.fit(max_steps=300)
    assert agent.steps >= 300 and math.isfinite(agent.mean_reward)


@pytest.mark.parametrize('overlap', [False, True])
@pytest.mark.parametrize('agent_id', AGENTS)
def test_skipping_counts_and_goes_on_and_sees_none_of_it(agent_id, overlap, tmp_path, capsys):
    faults = (0, 9, 'reward', nan), (2, 10, 'observation', inf), (1, 40, 'observation', nan), (1, 61, 'reward', -inf)
    options = {'normalize_obs': True, 'normalize_reward': True, 'quiet': False}
    # episodes end behind a fault, in the same rollout
    options |= {'n_steps': 16} if agent_id == 'small' else {'buffer_max_size': 1_000}
    agent = make(agent_id, *(Fault(*fault) for fault in faults), **options)
    path = str(tmp_path / 'history.parquet')
    logs = list(agent.train_iter(max_steps=400, on_nan='skip', overlap=overlap, history_checkpoint=path))
    assert agent.run.stop_reason == 'steps' and agent.steps >= 400
    skipped = [log for log in logs if log.get('stats/refused')]
    said = re.findall(r'Skipped an iteration: (\w+) are not finite \((\S+)\)', capsys.readouterr().out)
    # two of the faults may have been in the same iteration, where the first observation is told of
    assert 3 <= len(skipped) == len(said) <= 4
    assert {'observations', 'rewards'} >= {what for what, _ in said}
    assert sum(log['stats/refused'] for log in skipped) == len(skipped)
    learned = [log for log in logs if 'loss/policy' in log]
    assert learned and all(math.isfinite(log['loss/policy']) for log in learned)
    assert not any('loss/policy' in log for log in skipped)
    assert all(np.isfinite(array).all() for array in agent.state().arrays.values())
    assert all(np.isfinite(v).all() for v in agent.model.get_weights())
    if agent_id == 'small-replay':
        arrays = agent.buffer.ring.arrays.values()
        assert len(agent.buffer) > 200 and all(np.isfinite(a).all() for a in arrays if a.dtype.kind == 'f')
    # an episode with a bad reward does not spoil the mean of the next hundred
    assert np.isfinite(agent.progress.rewards).all() and math.isfinite(agent.mean_reward)
    history = pd.read_parquet(path)
    assert len(history) == agent.games and np.isfinite(history['episode_reward']).all()


# ----------------------------------------------------------------------------------------------------- the command line


LINE = f'train small --env {ENV} --n-envs 3 --n-steps 4 --mini-batches 1 --net 4 --seed 1 --max-steps 200 --quiet'


@pytest.mark.parametrize('more', ['', ' --overlap'])
def test_the_command_line_stops_and_the_last_good_state_goes_on(typed, tmp_path, more):
    folder = tmp_path / 'run'
    words = f'{LINE} --run-dir {folder} --save-seconds 0{more}'
    code, _, said = typed(words, Fault(1, 22, 'reward'))
    assert code == 1 and len(said) == 1
    found = re.fullmatch(
        r'xagents train: NotFiniteError: rewards are not finite \(nan\) at step (\d+) in environment 1 of '
        rf'{ENV}; the last good state, of step (\d+), is in {folder} \(--debug shows the traceback\)',
        said[0],
    )
    assert found, said
    bad, good = int(found[1]), int(found[2])
    assert 0 < good < bad <= good + 24
    status = read_status(folder)
    assert status['state'] == 'failed' and status['why'].startswith('NotFiniteError: rewards are not finite (nan)')
    # an iteration whose successor fails in flight is not saved: the environments stand midway
    assert good <= status['steps'] < bad and (more or status['steps'] == good)
    assert load(folder, 'last').steps == good
    again = resume(folder)  # the environments have no more faults than they are told of
    assert again.steps == good
    Trouble.faults = ()
    again.fit()
    assert again.steps >= 200 and read_status(folder)['state'] == 'finished'


def test_bad_numbers_before_anything_was_saved(typed, tmp_path):
    folder = tmp_path / 'run'
    code, _, said = typed(f'{LINE} --run-dir {folder}', Fault(1, 2, 'observation'))
    assert code == 1 and len(said) == 1 and 'last good state' not in said[0] and 'step 6 in environment 1' in said[0]
    assert read_status(folder)['state'] == 'failed'
    faults = Fault(1, 22, 'reward'), Fault(0, 40, 'observation')
    code, _, said = typed(f'train small --resume {folder} --on-nan skip', *faults)
    assert (code, said) == (0, [])
    status = read_status(folder)
    assert (status['state'], status['why']) == ('finished', 'steps') and status['steps'] >= 200


# ------------------------------------------------------------------------------------------------- losses and gradients


def poisoned(name):
    """A stage that spoils one number of the third batch that is learned from."""
    seen = []

    def poison(ctx):
        if not ctx.idle:
            seen.append(ctx.steps)
            if len(seen) == 3:
                ctx.batch[name] = np.array(ctx.batch[name], np.float32)
                ctx.batch[name].flat[-1] = nan

    poison.seen = seen
    return poison


REAL = {
    'ppo': {'n_envs': 2, 'n_steps': 8, 'net': [8], 'ppo_epochs': 2, 'mini_batches': 2},
    'dqn': {'n_envs': 2, 'net': [8], 'train_frequency': 16, 'gradient_steps': 3, 'buffer_initial_size': 16},
}


@pytest.fixture(scope='module')
def real_agents(without_xla_in_module):
    """Agents as they ship, compiled as plain graphs; made once, because that takes seconds."""
    return {name: xagents.make(name, 'CartPole-v1', seed=1, quiet=True, **REAL[name]) for name in REAL}


@pytest.mark.parametrize('agent_id, where, suspect', [('ppo', 'collect', 'rewards'), ('dqn', 'replay', 'rewards')])
def test_a_poisoned_batch_stops_with_its_name_or_is_counted(agent_id, where, suspect, real_agents, tmp_path, capsys):
    agent = real_agents[agent_id]
    poison, path = poisoned('rewards'), str(tmp_path / f'{agent_id}.tf')
    before = []

    def keep(ctx):
        before[:] = weights(agent)

    recipe = agent.recipe().after(where, poison).before('learn', keep)
    with pytest.raises(NotFiniteError) as error:
        agent.fit(max_steps=agent.steps + 2_000, recipe=recipe, checkpoints=[path])
    place = f' in environment 1 of {agent.envs.id}' if where == 'collect' else ''  # a replayed one is of any
    message = f'{suspect} in the batch are not finite at step {poison.seen[-1]}{place}'
    saved = f'; the best weights so far are in {path}' if agent.progress.best is not None else ''
    names = f', after the stages {recipe.names[recipe.names.index(where) + 1]}, keep'
    assert str(error.value) == message + names + saved
    assert all(np.isfinite(v).all() for v in agent.model.get_weights())
    if agent_id == 'ppo':
        assert weights(agent) == before  # every minibatch knows the advantages of the whole rollout

    poison, updates = poisoned('rewards'), agent.context.updates
    recipe = agent.recipe().after(where, poison)
    capsys.readouterr()
    logs = list(agent.train_iter(max_steps=agent.steps + 200, recipe=recipe, on_nan='skip', quiet=False))
    refused = [log['stats/refused'] for log in logs if log.get('stats/refused')]
    assert len(refused) == 1 and f'Refused {refused[0]:.0f} updates that were not finite' in capsys.readouterr().out
    assert all(np.isfinite(v).all() for v in agent.model.get_weights())
    expected = {'ppo': 4, 'dqn': 3}[agent_id] * len(poison.seen)
    assert agent.context.updates - updates + sum(refused) == expected
    assert agent.actor(np.zeros((1, 4), np.float32))[0].shape[0] == 1


def test_a_learning_rate_that_explodes_stops_with_finite_weights(real_agents):
    agent = real_agents['ppo']

    def explode(ctx):
        ctx.schedule['learning_rate'] = 1e30

    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with pytest.raises(NotFiniteError, match=r'^losses or gradients are not finite at step \d+$') as error:
            agent.fit(max_steps=agent.steps + 5_000, recipe=agent.recipe().after('schedule', explode))
    assert error.value.step > 0
    assert all(np.isfinite(v).all() for v in agent.model.get_weights())
