"""Games in which agents take turns: one seat as an environment, opponents, ratings, and play in the terminal."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip('pettingzoo')

import xagents
from tests.agents.contract import assert_same, everything
from tests.commands import execute
from tests.game_problems import PILE, Nim
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.collecting.opponents import STEP_SIZE, OpponentPool, policy_form, snapshot_of
from xagents.envs.create import as_envs, create_envs
from xagents.envs.games import Opponents, RandomOpponents, SeatEnv
from xagents.evaluation.games import HumanOpponents, board_text
from xagents.options.errors import OptionError

NIM = 'pettingzoo:tests.game_problems:Nim'
SMALL = {'n_envs': 3, 'n_steps': 8, 'net': [8], 'seed': 1, 'quiet': True}
POOL = {'self_play': True, 'snapshot_frequency': 40, 'pool': 3, 'latest': 0.3}


class Takes(Opponents):
    """Takes the same number of stones, or all that are left."""

    def __init__(self, n):
        self.n = n

    def choose(self, rng):
        return 7

    def act(self, name, observation, rng):
        return min(self.n, int(observation['observation'].argmax())) - 1


def perfect(pile):
    """Return the best number of stones to take."""
    return pile % 4 or 1


@pytest.mark.parametrize('seat', [0, 1])
def test_a_step_is_a_move_and_the_moves_of_the_opponents(seat):
    env = SeatEnv(Nim(), 'nim')
    env.opponents, env.fixed_seat = Takes(1), seat
    observation, _ = env.reset(seed=1)
    assert observation['observation'].argmax() == PILE - seat  # the opponent has moved first
    moves, total, terminated = 0, 0.0, False
    while not terminated:
        pile = int(observation['observation'].argmax())
        observation, reward, terminated, truncated, info = env.step(perfect(pile) - 1)
        moves, total = moves + 1, total + reward
        assert not truncated
    assert total == 1 and info == {'xagents_opponent': 7, 'is_success': True}
    names = [name for name, _ in env.env.moves]
    assert names == [['first', 'second'][i % 2] for i in range(len(names))] and names.count(env.agents[seat]) == moves


def test_a_lost_game_ends_with_the_reward_of_the_opponents_last_move():
    env = SeatEnv(Nim(pile=4), 'nim')
    env.opponents, env.fixed_seat = Takes(3), 0
    env.reset(seed=1)
    _, reward, terminated, _, info = env.step(0)  # 3 are left, which the opponent takes
    assert (reward, terminated, info['is_success']) == (-1, True, False)


@pytest.mark.parametrize('seat', [0, 1])
def test_rewards_of_moves_before_the_first_one_belong_to_the_first_step(seat):
    env = SeatEnv(Nim(toll=-0.25), 'nim')
    env.opponents, env.fixed_seat, total, terminated = Takes(1), seat, 0.0, False
    env.reset(seed=1)
    while not terminated:
        _, reward, terminated, *_ = env.step(0)
        total += reward
    *moves, (last, _) = env.env.moves
    others = sum(name != env.agents[seat] for name, _ in moves)
    assert total == (1 if last == env.agents[seat] else -1) - 0.25 * others


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('masked', [True, False])
def test_masks_of_another_key_limit_all_players(masked):
    kwargs = {'key': 'legal', 'masked': masked}
    with create_envs(NIM, 2, mask_key='legal', env_kwargs=kwargs) as envs:  # an illegal move of an opponent raises
        observations = envs.reset(1)
        for _ in range(60):
            observations, *_ = envs.step(np.where(envs.valid, observations[:, -3:].argmax(1), 0))
        assert len(envs.pop_episodes()) > 10
    agent = xagents.make('ppo', NIM, mask_key='legal', env_kwargs=kwargs, n_envs=2, n_steps=8, net=[4], seed=1)
    with contextlib.closing(agent):
        assert agent.envs.n_mask == 3
        agent.fit(max_steps=60, self_play=True, snapshot_frequency=20, pool=2, quiet=True)
        for opponent in ('random', 'policy'):
            assert agent.evaluate(episodes=6, opponent=opponent)['length'] >= 1


def test_seats_are_drawn_at_random_and_games_are_those_of_the_seed():
    def played(seed):
        with create_envs(NIM, 4) as envs:
            seen, seats = [envs.reset(seed).copy()], []
            for _ in range(60):
                masks = seen[-1][:, -3:]
                actions = np.where(envs.valid, masks.argmax(1), 0)
                seen.append(envs.step(actions)[0].copy())
                seats.append([env.seat for env in envs.seat_envs])
            return np.stack(seen), np.array(seats), [(e.reward, e.length, e.success) for e in envs.pop_episodes()]

    (seen, seats, episodes), (again, _, same), (other, *_) = played(1), played(1), played(2)
    np.testing.assert_array_equal(seen, again)
    assert episodes == same and not np.array_equal(seen, other)
    assert 0.3 < seats.mean() < 0.7
    assert {reward for reward, *_ in episodes} == {1, -1}
    assert all(success == (reward > 0) for reward, _, success in episodes)


def test_infos_give_masks_too_and_ready_made_games_are_taken():
    with create_envs(NIM, 2, env_kwargs={'masked': False}) as envs:
        assert envs.n_mask == 3 and envs.is_game
        envs.reset(1)
    with as_envs(Nim()) as envs:
        assert envs.is_game and envs.reset(1).shape == (1, PILE + 4)
    with create_envs('CartPole-v1', 1) as envs:
        assert not envs.is_game


def test_random_opponents_choose_legal_actions():
    env = Nim(pile=2)
    env.reset()
    opponents, rng = RandomOpponents(env.action_space('first')), np.random.default_rng(0)
    chosen = {int(opponents.act(-1, env.observe('first'), rng)) for _ in range(60)}
    assert chosen == {0, 1}


# ---------------------------------------------------------------------------------------------------------- self-play


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('options', [{}, POOL], ids=['present policy', 'pool'])
def test_games_resume_exactly_and_do_not_depend_on_explorers(options, tmp_path):
    given = {**SMALL, 'normalize_obs': True}
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    run = {'max_steps': 240, 'final_episodes': 0, **options}
    with contextlib.closing(xagents.make('ppo', NIM, **given, run_dir=str(whole))) as agent:
        agent.fit(**run, checkpoint_frequency=120, save_seconds=0.0)
        state, pool = everything(agent), agent.opponents
        assert len(pool.snapshots) == (3 if options else 1)
        assert (pool.rating != 1000) == bool(options)
    stopped_in_the_middle(whole, killed)
    with contextlib.closing(xagents.resume(killed)) as agent:
        agent.fit()
        assert_same(everything(agent), state)
    assert_same_run(whole, killed)
    for explorers in (1, 3):
        with contextlib.closing(xagents.make('ppo', NIM, **given)) as agent:
            agent.fit(**run, explorers=explorers)
            assert_same(everything(agent), state)


def test_a_pool_keeps_the_newest_snapshots_and_draws_the_latest_with_its_share():
    agent = xagents.make('ppo', NIM, **SMALL)
    pool = OpponentPool(agent.envs, policy_form(agent), agent.statistics)
    rng = np.random.default_rng(0)
    assert pool.choose(rng) == -1
    for name in (10, 20, 30, 40):
        pool.add(snapshot_of(agent.acting_policy, agent.statistics, name), 3)
    assert [snapshot.name for snapshot in pool.snapshots] == [20, 30, 40]
    pool.latest = 0.6
    counts = np.bincount([pool.choose(rng) for _ in range(4000)], minlength=41) / 4000
    np.testing.assert_allclose(counts[[20, 30, 40]], [0.2, 0.2, 0.6], atol=0.03)
    other = OpponentPool(agent.envs, policy_form(agent), agent.statistics)
    pool.record_game(20, 1.0)
    other.load(pool.state())
    np.testing.assert_equal(other.state(), pool.state())
    agent.close()


def test_opponents_act_as_the_policy_at_their_creation():
    agent = xagents.make('ppo', NIM, **SMALL)
    pool = OpponentPool(agent.envs, policy_form(agent), agent.statistics)
    pool.add(snapshot_of(agent.acting_policy, agent.statistics, 0), 2)
    env = Nim()
    env.reset()
    observation = env.observe('first')
    logits = np.array(agent.actor(agent.envs.encoder([observation]))[0][0], np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    for model in agent.output_models:  # the opponent does not change with the policy
        model.set_weights([w + 1 for w in model.get_weights()])
    agent.refresh()
    rng = np.random.default_rng(0)
    counts = np.bincount([int(pool.act(0, observation, rng)) for _ in range(3000)], minlength=3) / 3000
    np.testing.assert_allclose(counts, expected, atol=0.04)
    agent.close()


def test_ratings_are_those_of_elo():
    agent = xagents.make('ppo', NIM, **SMALL)
    pool = OpponentPool(agent.envs, policy_form(agent), agent.statistics)
    pool.add(snapshot_of(agent.acting_policy, agent.statistics, 5), 2)
    pool.rating = 1200.0
    pool.record_game(5, 0.0)
    expected = 1 / (1 + 10 ** (-200 / 400))
    assert pool.rating == pytest.approx(1200 - STEP_SIZE * expected)
    assert pool.ratings[5] == pytest.approx(1000 + STEP_SIZE * expected)
    pool.record_game(99, 1.0)  # of a snapshot that has left the pool
    assert pool.rating == pytest.approx(1200 - STEP_SIZE * expected)
    agent.close()


def test_ratings_are_logged_and_drawn(tmp_path, folder):
    words = f'train ppo --env {NIM} --n-envs 3 --n-steps 8 --net 8 --max-steps 400 --self-play --snapshot-frequency 50'
    code, _, stderr = execute(*words.split(), '--run-dir', 'nim', '--final-episodes', '0')
    assert (code, stderr) == (0, '')
    import pandas as pd

    metrics = pd.read_parquet('nim/metrics.parquet')
    assert metrics['elo'].notna().all() and metrics['elo/opponents'].iloc[-1] > 5
    code, _, stderr = execute('plot', '--run-dir', 'nim', '--column', 'elo', '--out', 'elo.png')
    assert (code, stderr) == (0, '') and (tmp_path / 'elo.png').exists()


def test_ppo_learns_to_win_nim():
    options = {'n_envs': 8, 'n_steps': 32, 'net': [32], 'lr': 3e-3, 'seed': 1, 'quiet': True}
    with contextlib.closing(xagents.make('ppo', NIM, **options)) as agent:
        agent.fit(max_steps=12_000, final_episodes=0, **{**POOL, 'snapshot_frequency': 2000})
        envs = agent.envs.recreate(2)
        for env in envs.seat_envs:
            env.fixed_seat = 0  # a pile of 7 is won by who begins
        assert agent.evaluate(episodes=40, envs=envs)['success'] == 1
        assert agent.evaluate(episodes=20, opponent='policy')['length'] > 0


def test_evaluations_leave_the_opponents_of_games_as_they_were():
    with contextlib.closing(xagents.make('ppo', NIM, **SMALL)) as agent, agent.envs.recreate(2) as envs:
        taking = Takes(1)
        envs.set_opponents(taking)
        for opponent in (None, 'random', 'policy'):
            agent.evaluate(episodes=4, envs=envs, opponent=opponent)
            assert all(game.opponents is taking for game in envs.seat_envs)
        with pytest.raises(OptionError, match=r'^opponent: got polcy, expected random, policy, human \(did you mean p'):
            agent.evaluate(episodes=4, envs=envs, opponent='polcy')
        with pytest.raises(OptionError, match='CartPole-v1 is no game'), create_envs('CartPole-v1', 1) as other:
            agent.evaluate(episodes=4, envs=other, opponent='random')


def test_random_opponents_are_others_than_those_of_the_games():
    with contextlib.closing(xagents.make('ppo', NIM, **SMALL)) as agent, agent.envs.recreate(2) as envs:
        envs.set_opponents(Takes(1))
        for game in envs.seat_envs:
            game.fixed_seat = 0
        own, drawn = (agent.evaluate(episodes=60, envs=envs, seed=3, opponent=one) for one in (None, 'random'))
        assert own['length'] != drawn['length']


# ------------------------------------------------------------------------------------------------------------ terminal


def test_boards_have_the_numbers_of_actions():
    board = np.zeros((2, 3, 2), np.int8)
    board[0, 1, 0] = board[1, 2, 1] = 1
    fields = {'observation': board, 'action_mask': np.ones(6, np.int8)}
    assert board_text(fields, range(6)) == '0 X 2\n3 4 O'
    assert board_text(fields, range(1, 7)) == '1 X 3\n4 5 O'
    assert board_text(fields, range(6), 'X: you') == '0 X 2\n3 4 O\nX: you'
    assert board_text(fields, range(3)) == '0 1 2\n. X .\n. . O'
    assert board_text({'board': board, 'legal': np.ones(6, np.int8)}, range(6), mask_key='legal') == '0 X 2\n3 4 O'
    assert board_text({'hand': np.array([1]), 'pile': 2, 'action_mask': 1}, legend='You') == 'hand: [1]\npile: 2\nYou'
    assert board_text(np.array([1, 0])) == '[1 0]'


def test_a_person_types_numbers_of_legal_actions():
    typed, said = iter(['0', '99', '7', '6']), []
    person = HumanOpponents(spaces.Discrete(3, start=5), 'legal', lambda prompt: next(typed), said.append)
    assert person.act(0, {'hand': 1, 'legal': np.array([1, 1, 0])}, np.random.default_rng(0)) == 6
    assert [line for line in said if line.startswith('got')] == [f'got {x}, expected one of 5, 6' for x in (0, 99, 7)]


def test_a_person_plays_in_the_terminal(folder, monkeypatch):
    words = f'train ppo --env {NIM} --n-envs 3 --n-steps 8 --net 8 --max-steps 50 --final-episodes 0 --run-dir nim'
    assert execute(*words.split())[0] == 0
    typed = iter(['x', '5', *['0'] * 20])
    monkeypatch.setattr('builtins.input', lambda prompt: next(typed))
    code, stdout, _ = execute('play', '--run-dir', 'nim', '--opponent', 'human')
    assert code == 0 and 'got x, expected one of 0' in stdout and 'Episode reward: ' in stdout
    code, stdout, _ = execute('play', '--run-dir', 'nim')
    assert code == 0 and 'Episode reward: ' in stdout
    code, stdout, stderr = execute('evaluate', '--run-dir', 'nim', '--opponent', 'policy', '--episodes', '4')
    assert (code, stderr) == (0, '')


def test_a_person_can_end_the_game():
    for line in ('q', EOFError):

        def ask(prompt, line=line):
            if line is EOFError:
                raise EOFError
            return line

        with pytest.raises(KeyboardInterrupt):
            HumanOpponents(spaces.Discrete(2), None, ask, lambda line: None).act(0, 1, np.random.default_rng(0))


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('--env CartPole-v1 --self-play', '--self-play: got true, but CartPole-v1 is no game; expected an environment'),
        (f'--env {NIM} --pool 3', '--pool: got 3, which requires --self-play'),
        (f'--env {NIM} --self-play --latest 1.5', '--latest: got 1.5, expected a number at least 0 and at most 1'),
        (f'--env {NIM} --overlap', f'--overlap: cannot be used with {NIM}, a game: its opponents change between'),
        (f'--env {NIM} --agent-index', f'--agent-index: {NIM} is a game, whose agents take turns, expected none: one'),
        (f'--env {NIM} --frame-skip 2', f'--frame-skip: {NIM} is a game: it would change observations or moves, which'),
        (
            f'--env {NIM} --wrapper gymnasium.wrappers:FlattenObservation',
            f'--wrapper: got FlattenObservation, but {NIM} is a game: it may change observations, which its opponents',
        ),
        (f'--env {NIM} --vector async', f'--vector: got a vector of processes for {NIM}, a game, expected sync or'),
        (
            f'--env {NIM} --env-kwargs unequal=true',
            f'--env: {NIM} has an action_space of Discrete(3) for first, and of',
        ),
    ],
)
def test_wrong_options_are_one_line(words, expected, folder):
    code, _, stderr = execute('train', 'ppo', *words.split(), '--max-steps', '100')
    assert code == 2 and stderr.startswith(f'xagents train: {expected}') and stderr.count('\n') == 1, stderr


def test_an_opponent_needs_a_game(folder):
    agent, message = xagents.make('ppo', 'CartPole-v1', net=[4]), 'opponent: got policy, but CartPole-v1 is no game'
    with contextlib.closing(agent), pytest.raises(OptionError, match=message):
        agent.evaluate(episodes=1, opponent='policy')


def test_agents_of_continuous_actions_refuse_games(folder):
    code, _, stderr = execute(*f'train td3 --env {NIM} --max-steps 100'.split())
    assert code == 2 and 'has Discrete actions, td3 accepts Box ones' in stderr
