"""Learning from data sets: what is drawn, that nothing is stepped, how runs go on, and what is refused."""

import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import xagents
from tests.commands import execute
from tests.runs.folders import stopped_in_the_middle
from xagents.datasets import dataset_names
from xagents.datasets.environments import dataset_environment_options
from xagents.datasets.reading import open_dataset
from xagents.envs.create import create_envs
from xagents.factory.load import resume
from xagents.options import OptionError

pytest.importorskip('minari')
pytestmark = pytest.mark.usefixtures('without_xla_in_module')

SMALL = {'net': [16], 'buffer_batch_size': 16, 'seed': 5}
AGENTS = {
    'bc': {},
    'dqn': {'conservative': 0.5, 'prioritized': True, 'n_step': 2, 'target_sync_steps': 20},
    'iql': {'lr_schedule': 'cosine'},
}
DISCRETE = ('bc', 'dqn')
CART, PENDULUM = 'cart/x-v0', 'pendulum/x-v0'


@pytest.fixture(scope='module', autouse=True)
def place(tmp_path_factory):
    """Two data sets of agents that have learned nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(dataset_names.ROOT, str(tmp_path_factory.mktemp('datasets')))
        cart = xagents.make('dqn', 'CartPole-v1', n_envs=2, **SMALL)
        xagents.record(cart, CART, episodes=12, random_actions=0.5, seed=1, say=lambda line: None)
        # with a time limit, so that both ends are there
        pendulum = xagents.make('td3', 'Pendulum-v1', max_episode_steps=30, **SMALL)
        xagents.record(pendulum, PENDULUM, episodes=7, stochastic=True, seed=1, say=lambda line: None)
        yield


def made(name, **options):
    given = {'agent_id': name, **AGENTS[name], **SMALL, **options}
    return xagents.make(dataset=CART if name in DISCRETE else PENDULUM, **given)


def transitions(name, envs):
    """Every transition of a data set: observation, action, reward, next observation, discount (γ = 0.9)."""
    decode = xagents.make('td3', 'Pendulum-v1', **SMALL).collector.group.decode if name == PENDULUM else None
    found = []
    for e in open_dataset(name):
        actions = e.actions if decode is None else decode.inverse(e.actions)
        shown = envs.encoder(e.observations)
        for t in range(len(e)):
            discount = 0.0 if e.terminated[t] else np.float32(0.9)
            found.append((shown[t], np.ravel(actions[t]), np.float32(e.rewards[t]), shown[t + 1], discount))
    return found


def key(*parts):
    return b''.join(np.asarray(part, np.float32).tobytes() for part in parts)


@pytest.mark.parametrize('name', [CART, PENDULUM])
@pytest.mark.parametrize('filled', [False, True])
def test_every_transition_drawn_is_one_of_the_files_and_each_is_drawn(name, filled):
    id, env = ('dqn', 'CartPole-v1') if name == CART else ('td3', 'Pendulum-v1')
    known = {key(*one) for one in transitions(name, create_envs(env))}
    size = len(known)
    if filled:
        agent = xagents.make(id, env, n_envs=3, gamma=0.9, buffer_max_size=4 * size, **SMALL)
        agent.begin(max_steps=3, fill_from=name)
    else:
        agent = xagents.make(id, dataset=name, gamma=0.9, **SMALL)
        agent.begin(max_steps=1)
    assert len(agent.buffer) == agent.buffer.stored == size
    batch = agent.buffer.sample(200, np.random.default_rng(0))
    flat = {n: x.reshape(-1, *x.shape[2:]) for n, x in batch.items()}
    columns = ('observations', 'actions', 'rewards', 'next_observations', 'discounts')
    drawn = {key(*(flat[column][i] for column in columns)) for i in range(len(flat['rewards']))}
    assert drawn <= known and len(drawn) > 0.95 * size


def test_a_small_buffer_is_filled_with_the_newest():
    agent = xagents.make('td3', 'Pendulum-v1', n_envs=2, gamma=0.9, buffer_max_size=64, **SMALL)
    agent.begin(max_steps=2, fill_from=PENDULUM)
    known = transitions(PENDULUM, agent.envs)
    newest = {key(*one) for one in known[-4 * 30 :]}
    batch = agent.buffer.sample(50, np.random.default_rng(0))
    assert 30 <= len(agent.buffer) <= 64
    for i in np.ndindex(*batch['rewards'].shape):
        columns = ('observations', 'actions', 'rewards', 'next_observations', 'discounts')
        assert key(*(batch[column][i] for column in columns)) in newest


class Forbidden(gymnasium.Wrapper):
    """Raises when somebody steps it."""

    def reset(self, **keywords):
        raise AssertionError('reset')

    def step(self, action):
        raise AssertionError('step')


@pytest.mark.parametrize('name', ['bc', 'dqn'])
def test_no_environment_is_stepped(name):
    given = {'agent_id': name, **AGENTS[name], **SMALL}
    env = Forbidden(gymnasium.make('CartPole-v1' if name in DISCRETE else 'Pendulum-v1'))
    agent = xagents.make(env=[env], dataset=CART if name in DISCRETE else PENDULUM, **given)
    before = [v.copy() for v in agent.output_models[0].get_weights()]
    logs = list(agent.train_iter(max_steps=120, eval_frequency=1000))
    assert [log['steps'] for log in logs] == [log['updates'] for log in logs] == [50, 100, 120]
    after = agent.output_models[0].get_weights()
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_data_set_of_no_environment_keeps_the_last_weights(tmp_path, capsys, monkeypatch):
    folder = dataset_names.data_folder(CART).parent
    shutil.copytree(folder, dataset_names.data_folder('cart/alone-v0').parent)
    metadata = dataset_names.data_folder('cart/alone-v0') / dataset_names.METADATA
    text = metadata.read_text().replace('CartPole-v1', 'Gone-v1').replace(CART, 'cart/alone-v0')
    metadata.write_text(text)
    agent = xagents.make('bc', dataset='cart/alone-v0', **SMALL)
    assert not agent.envs.can_recreate
    agent.fit(max_steps=60, run_dir=str(tmp_path / 'run'))
    said = ' '.join(capsys.readouterr().out.split())
    assert "no environment 'Gone-v1'" in said and '; nothing is evaluated, and the last weights are saved' in said
    assert (tmp_path / 'run' / 'checkpoints' / 'last').exists()
    agent = resume(tmp_path / 'run')
    agent.fit(max_steps=100, quiet=True)
    assert agent.steps == 100
    monkeypatch.chdir(tmp_path)
    code, _, stderr = execute('evaluate', '--run-dir', 'run')
    assert code == 2 and stderr.startswith('xagents evaluate: --env: got nothing, and run')
    assert execute('evaluate', '--run-dir', 'run', '--env', 'CartPole-v1', '--episodes', '1')[0] == 0
    assert xagents.load('run').act(np.zeros((2, 4), np.float32)).shape == (2,)
    metadata.write_text(text.replace('"Gone-v1"', '"somewhere:Gone-v1"'))
    assert (
        dataset_environment_options(open_dataset('cart/alone-v0'))[0] == {}
    )  # a file does not choose what is imported


def test_a_changed_data_set_is_refused_when_a_run_goes_on(tmp_path):
    agent = made('bc', run_dir=str(tmp_path / 'run'))
    agent.fit(max_steps=50, quiet=True)
    data = dataset_names.data_folder(CART)
    kept = data.parent.with_name('kept')
    shutil.copytree(data.parent, kept)
    try:
        shutil.rmtree(data.parent)
        other = xagents.make('dqn', 'CartPole-v1', **{**SMALL, 'seed': 9})
        xagents.record(other, CART, episodes=3, seed=2, say=lambda line: None)
        with pytest.raises(OptionError, match='expected the data that the run began with'):
            resume(tmp_path / 'run').fit(max_steps=100, quiet=True)
    finally:
        shutil.rmtree(data.parent)
        kept.rename(data.parent)


@pytest.mark.parametrize('overlap', [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_a_resumed_run_records_is_what_an_unstopped_one_records(overlap, tmp_path):
    def run(folder, name):
        agent = xagents.make('td3', 'Pendulum-v1', max_episode_steps=17, n_envs=2, **SMALL, buffer_initial_size=100)
        agent.fit(
            **{'max_steps': 120, 'checkpoint_frequency': 60, 'save_seconds': 0.0, 'quiet': True, 'overlap': overlap},
            **{'run_dir': str(folder), 'record_dataset': name},
        )

    name = f'replay/x{overlap}-v0'
    run(tmp_path / 'whole', name)
    whole = list(open_dataset(name))
    assert len(whole) == 6
    stopped_in_the_middle(tmp_path / 'whole', tmp_path / 'stopped')
    resume(tmp_path / 'stopped').fit(quiet=True)
    repeat = list(open_dataset(name))
    assert len(repeat) == len(whole)
    for one, other in zip(whole, repeat, strict=True):
        for field in ('observations', 'actions', 'rewards', 'terminated', 'truncated'):
            assert np.array_equal(getattr(one, field), getattr(other, field))


# -------------------------------------------------------------------------------------------------- weights of others


@pytest.mark.parametrize('ending', ['tf', pytest.param('keras', marks=pytest.mark.slow)])
def test_ppo_goes_on_from_imitation(ending, tmp_path):
    path = str(tmp_path / f'bc.{ending}')
    taught = made('bc', checkpoints=[path], normalize_obs=True)
    taught.fit(max_steps=100, eval_frequency=1000, quiet=True)
    agent = xagents.make('ppo', 'CartPole-v1', weights=[path], n_envs=2, seed=1)
    for one, other in zip(taught.model.get_weights(), agent.model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    assert agent.options.normalize_obs  # what the network sees is part of it
    seen = taught.statistics.observations.state()
    assert all(np.array_equal(seen[n], x) for n, x in agent.statistics.observations.state().items())
    assert agent.options.lr == xagents.PPO.Options.lr and agent.progress.context.steps == 0
    assert int(agent.model.optimizer.iterations.value) == 0
    assert any('optimisers and counters start from zero' in line for line in agent.progress.startup_lines)
    shown = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert np.array_equal(taught.act(shown), agent.act(shown))
    agent.collect({})


# ---------------------------------------------------------------------------------------------------------- the lines


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        (f'ppo --dataset {CART}', f'--dataset: got {CART}, but ppo learns only from rollouts of its present policy'),
        (
            f'bc --dataset {CART} --fill-from {CART}',
            f'--fill-from: got {CART} with --dataset, which replaces collecting',
        ),
        (f'dqn --dataset {CART} --overlap', '--overlap: cannot be used with --dataset, which replaces collecting'),
        (f'dqn --dataset {CART} --explorers 2', '--explorers: got 2 with --dataset, which replaces collecting'),
        (f'dqn --dataset {CART} --record-dataset a-v0', '--record-dataset: got a-v0 with --dataset'),
        ('bc --env CartPole-v1', '--dataset: got nothing: bc learns only from a data set'),
        (f'td3 --dataset {CART}', '--env: CartPole-v1 has Discrete actions, td3 accepts Box ones'),
        (f'dqn --dataset {CART} --env Acrobot-v1', f'--dataset: got {CART} with observations in Box('),
        (f'bc --dataset {PENDULUM} --env MountainCarContinuous-v0', f'--dataset: got {PENDULUM} with observations in'),
        (f'ppo --env CartPole-v1 --fill-from {CART}', f'--fill-from: got {CART}, but ppo has no replay buffer'),
        (
            f'dqn --env CartPole-v1 --record-dataset {CART}',
            f'--record-dataset: got {CART}, which exists already, expected a new',
        ),
        ('dqn --env CartPole-v1 --record-dataset x', '--record-dataset: got x, expected a name with a version'),
        ('dqn --env CartPole-v1 --download', '--download: requires --dataset or --fill-from'),
        (f'bc --dataset {CART} --env-kwargs nope=1', '--env-kwargs: CartPole-v1 takes no'),
        ('dqn --env CartPole-v1 --seeds 1 2 --record-dataset a-v0', '--record-dataset: got a-v0 for several runs'),
        ('dqn --env CartPole-v1 --n-envs 2 --explorers 2 --record-dataset a-v0', '--record-dataset: got a-v0 with'),
    ],
)
def test_what_does_not_go_together_is_refused_and_nothing_is_written(line, message, folder):
    code, _, stderr = execute('train', *line.split(), '--max-steps', '100', '--run-dir', 'run')
    assert (code, stderr.count('\n')) == (2, 1)
    assert stderr.startswith(f'xagents train: {message}')
    assert list(Path().iterdir()) == [] and not dataset_names.dataset_exists('a-v0')


def test_the_session_of_the_commands(folder):
    """Record, list, learn, evaluate and go on, as the README tells it, with small numbers."""
    assert execute(*f'train dqn --env CartPole-v1 --max-steps 200 --run-dir dqn --seed 1 {small()}'.split())[0] == 0
    record = '--run-dir dqn --episodes 6 --stochastic --random-actions 0.2 --dataset cart/session-v0 --seed 3'
    code, stdout, stderr = execute('record', *record.split())
    assert (code, stderr) == (0, '') and stdout.startswith('Recorded 6 episodes, ')
    assert execute('record', *record.split())[0] == 2
    command = open_dataset('cart/session-v0').metadata['xagents']['command']
    assert command == f'xagents record {record}'
    # the same seed, the same data
    assert execute('record', *record.replace('session-v0', 'session-v1').split())[0] == 0
    one, other = (list(open_dataset(f'cart/session-v{i}')) for i in (0, 1))
    assert all(np.array_equal(a.observations, b.observations) for a, b in zip(one, other, strict=True))
    train = 'train bc --dataset cart/session-v0 --max-steps 100 --run-dir bc --seed 1'
    code, stdout, _ = execute(*train.split())
    assert code == 0
    assert '\nData set cart/session-v0: 6 episodes, ' in stdout
    assert 'nothing is collected, and steps are updates' in stdout
    assert execute(*['evaluate', '--run-dir', 'bc', '--episodes', '2'])[0] == 0
    code, stdout, _ = execute(*['train', '--resume', 'bc', '--max-steps', '150'])
    assert code == 0 and 'Resumed bc at step 100' in stdout
    code, stdout, _ = execute(*f'train dqn --dataset cart/session-v0 --max-steps 50 --n-envs 3 {small()}'.split())
    assert code == 0 and 'without effect on a data set: --n-envs, --buffer-initial-size' in ' '.join(stdout.split())
    tune = 'tune bc --dataset cart/session-v0 --n-trials 1 --trial-steps 50 --lr 1e-4 1e-2 --objective reward'
    code, _, stderr = execute(*tune.split())
    assert code == 2 and '--objective: got reward, expected evaluation' in stderr


def small():
    return '--buffer-initial-size 50 --buffer-batch-size 16 --net 16 --final-episodes 0'
