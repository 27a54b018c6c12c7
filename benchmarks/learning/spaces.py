"""Train on masks, mixed actions, images with vectors and games: `python -m benchmarks.learning.spaces`."""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import jobs
from benchmarks.jobs import Part
from benchmarks.learning.players import Perfect, TwoSteps
from benchmarks.learning.trainings import EPISODES, Case, draw, measure_cases, play_greedily, render_cases
from benchmarks.venvs import REPOSITORY

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'pettingzoo')
GAMES = 1000
PICTURE = REPOSITORY / 'img' / 'spaces.png'

ROLLOUTS = {'n_envs': 8, 'n_steps': 64, 'net': [64], 'lr': 1e-3, 'lr_schedule': 'linear'}
# the network does not see the mask, so the values of actions are means over the legal sets in which they were chosen:
# only random actions make these means comparable, and the buffer holds all steps, because the means of neighbouring
# actions differ by 1/39 only
VALUES = {
    **{'n_envs': 8, 'net': [64], 'lr': 1e-3, 'lr_schedule': 'linear', 'double': True, 'epsilon_end': 1.0},
    **{'buffer_max_size': 300_000, 'buffer_initial_size': 1000, 'buffer_batch_size': 128},
    **{'train_frequency': 32, 'gradient_steps': 16, 'target_sync_steps': 500},
}
MASKED = {'env': 'tests.masked_problems:TwoLegal-v0', 'gamma': 0.1}
LEGAL = 'mean ≥ 9.98'
MASKS = {
    'PPO, 2 of 40 actions are legal': Case(LEGAL, {'agent_id': 'ppo', **MASKED, **ROLLOUTS}, 60_000),
    'DQN, 2 of 40 actions are legal': Case(LEGAL, {'agent_id': 'dqn', **MASKED, **VALUES}, 300_000),
}
TAXI = {'agent_id': 'ppo', 'env': 'Taxi-v4', **ROLLOUTS, 'n_steps': 128, 'gamma': 0.98, 'entropy_coef': 0.02}
TAXIS = {
    'with masks': Case('', TAXI, 200_000, points=20),
    'without masks': Case('', {**TAXI, 'mask_key': 'none'}, 200_000, points=20),
}
TOOLS = {'agent_id': 'ppo', 'env': 'tests.mixed_problems:Tools-v0', **ROLLOUTS, 'gamma': 0.5}
MIXED = {
    'tool and angle': Case('mean ≥ 9.5', TOOLS, 100_000),
    'tool only': Case('', {**TOOLS, 'env_kwargs': {'angle': False}}, 100_000),
    'angle only': Case('', {**TOOLS, 'env_kwargs': {'tool': False}}, 100_000),
}
CLUES = {'agent_id': 'ppo', 'env': 'tests.picture_problems:TwoClues-v0', 'n_envs': 8, 'n_steps': 32, 'gamma': 0.5}
FILTER = 'gymnasium.wrappers:FilterObservation'
IMAGES = {
    'image and vector': Case('mean ≥ 9.9', {**CLUES, 'lr': 1e-3}, 10_000),
    'image only': Case('', {**CLUES, 'lr': 1e-3, 'wrapper': [FILTER, 'filter_keys=["camera"]']}, 10_000),
    'vector only': Case('', {**CLUES, 'lr': 1e-3, 'wrapper': [FILTER, 'filter_keys=["number","which"]']}, 10_000),
}
HIDDEN = {
    **{'agent_id': 'ppo', 'env': 'tests.privileged_problems:HiddenBonus-v0', 'env_kwargs': {'size': 2.0}},
    **{'n_envs': 8, 'n_steps': 64, 'net': [64], 'lr': 1e-3, 'gamma': 0.8, 'log_std_init': -1.0},
}
WITHOUT_BONUS = functools.partial(play_greedily, size=0.0)
CRITICS = {
    'the critic sees the bonus': Case('', {**HIDDEN, 'critic_only': ['bonus']}, 40_000, {}, 20, WITHOUT_BONUS),
    'nobody sees the bonus': Case(
        '', {**HIDDEN, 'wrapper': ['tests.privileged_problems:Blind']}, 40_000, {}, 20, WITHOUT_BONUS
    ),
}


def play_games(agent: Any, seed: int, opponents: dict[str, Any]) -> dict[str, float]:
    """Return the shares of won and not lost games of each seat against each opponent; None plays randomly."""
    from xagents.evaluation import playing

    found = {}
    for name, opponent in opponents.items():
        for seat in (0, 1):
            with agent.envs.recreate(10) as envs:
                if opponent is not None:
                    envs.set_opponents(opponent)
                for env in envs.seat_envs:
                    env.fixed_seat = seat
                collector = playing.evaluation_collector(agent, envs)
                ends = playing.play_episodes(collector, playing.episode_quotas(GAMES, envs), seed, False, print)
            rewards = np.array([end.reward for end in ends])
            place = f'{name}, {("first", "second")[seat]}'
            found[f'{place} won'], found[f'{place} not lost'] = (
                float((rewards > 0).mean()),
                float((rewards >= 0).mean()),
            )
    return found


GAME = {
    'agent_id': 'ppo',
    'n_envs': 32,
    'lr': 1e-3,
    'lr_schedule': 'linear',
    'entropy_coef': 0.15,
    'activation': 'relu',
}
SELF_PLAY = {'self_play': True, 'snapshot_frequency': 5_000, 'pool': 100, 'latest': 0.2}
TIC_TAC_TOE = {
    'tic-tac-toe': Case(
        'not lost ≥ 0.95',
        {**GAME, 'env': 'pettingzoo:classic.tictactoe_v3', 'n_steps': 16, 'net': [128, 128]},
        500_000,
        SELF_PLAY,
        score=functools.partial(play_games, opponents={'perfect': Perfect()}),
    )
}
CONNECT_FOUR = {
    'connect four': Case(
        'random ≥ 0.95, two steps ≥ 0.6',
        {
            **{**GAME, 'env': 'pettingzoo:classic.connect_four_v3', 'n_steps': 64, 'net': [256, 256]},
            **{'entropy_coef': 0.1, 'lam': 0.9},
        },
        4_500_000,
        # many games against the newest policy: a share of 0.2 gave 0.43 and 0.41 of games won after 1.5 million steps
        {**SELF_PLAY, 'snapshot_frequency': 20_000, 'latest': 0.6},
        score=functools.partial(play_games, opponents={'random': None, 'two steps': TwoSteps()}),
    )
}

MEAN = {'mean': 'mean reward'}
BELOW = f'One number for each seed: {EPISODES} greedy episodes with the last weights. Seconds: median of a training.'
WHERE = f'One number for each seed: {GAMES} greedy games with the last weights for each seat. Seconds: of a training.'
SHARES = {
    'tictactoe': {'perfect, first not lost': 'not lost, first', 'perfect, second not lost': 'not lost, second'},
    'connect-four': {
        'random, first won': 'won against random, first',
        'random, second won': 'second',
        'two steps, first won': 'won against two steps, first',
        'two steps, second won': 'second',
    },
}
RANDOM = """\
The network does not see the mask, so a value is the mean over the legal sets in which an action was chosen. DQN
explores with random actions only, which makes these means comparable, and keeps all steps: values of neighbouring
actions differ by 1/39, and a buffer of 100 000 steps gave 9.96."""
CASES = {
    'masks': ('Action masks', MASKS, MEAN, f'{BELOW} {RANDOM}'),
    'taxi': ('Taxi with and without masks', TAXIS, MEAN, BELOW),
    'mixed': ('Mixed actions: choose a tool and its angle', MIXED, MEAN, f'{BELOW} The best possible mean is 10.'),
    'images': ('Images with vectors', IMAGES, MEAN, f'{BELOW} With one part alone, 5 is the best possible mean.'),
    'critic-only': ('A part for the critic', CRITICS, MEAN, f'{BELOW} The scores are those without the hidden bonus.'),
    'tictactoe': ('Tic-tac-toe against a perfect player', TIC_TAC_TOE, SHARES['tictactoe'], WHERE),
    'connect-four': ('Connect four', CONNECT_FOUR, SHARES['connect-four'], WHERE),
}
PARTS = {
    name: Part(
        title, functools.partial(measure_cases, cases), functools.partial(render_cases, columns, below), ('seeds',)
    )
    for name, (title, cases, columns, below) in CASES.items()
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page = REPOSITORY / 'docs' / 'spaces.md'
    parser = jobs.make_parts_parser('learning.spaces', __doc__, PARTS, page, 'spaces')
    parser.add_argument('--seeds', nargs='+', type=jobs.seed, default=[1, 2, 3], help='seeds of the trainings')
    parser.add_argument('--picture', type=Path, default=PICTURE, help='file of the curves')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names, and draw the curves."""
    parser = make_parser()
    code = jobs.run_parts(parser, arguments, PARTS, PACKAGES)
    options = parser.parse_args(arguments)
    kept = jobs.read(options.results)
    if not options.quick and {'taxi', 'critic-only'} <= kept.keys():
        panels = [
            ('Taxi-v4: PPO', 'mean reward', kept['taxi']['result']),
            ('A hidden bonus: PPO', 'mean reward without the bonus', kept['critic-only']['result']),
        ]
        draw(options.picture, panels)
    return code


if __name__ == '__main__':
    sys.exit(main())
