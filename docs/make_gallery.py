"""Makes the gallery, a page with a gif of each shipped policy and of finished runs of all kinds: `make gallery`.

The product's own players play the episodes: with memory, action masks, opponents or several policies, if the run has
them. All gifs show episodes with the same seeds, as many as fill some seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gifs import shrunk, stride_of, write_gif
from PIL import Image

# Python adds the folder of a script to the path, but not the root of the repository
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.learning.pretrained import (
    CAMERAS,
    EPISODES,
    SCORED,
    SHIPPED,
    best_of,
    played,
    record_of,
    runs_of,
)
from benchmarks.venvs import REPOSITORY
from xagents.checkpoints.protocols import ActingAgent
from xagents.checkpoints.state_files import find_checkpoint
from xagents.config.configuration import read_config
from xagents.evaluation.playing import evaluation_collector as collector_of
from xagents.evaluation.playing import play_episode
from xagents.factory import players
from xagents.factory.load import load
from xagents.factory.pretrained import find_pretrained, list_pretrained
from xagents.registry.agents import BUILTIN_AGENTS, TEAM_ENTRY
from xagents.system.startup import prepare_process

PAGE, PICTURES = REPOSITORY / 'docs' / 'gallery.md', REPOSITORY / 'img' / 'gallery'
# data of each picture; entries of runs stay when the runs are deleted. Without its gif, a picture is drawn anew
KNOWN = 'pictures.json'
SHORTEST, LONGEST = 6, 10  # seconds
FIRST = 4  # seed of the first episode; with this one, the pendulum starts low and must be swung up
LARGEST = 900_000  # bytes of a gif
COLOURS = 128  # with fewer, the ground takes all colours and the cheetah gets none
# widths and seconds in the order in which they are tried, until the gif is small enough
SIZES = ((320, LONGEST), (240, LONGEST), (240, SHORTEST), (200, SHORTEST), (160, SHORTEST), (120, SHORTEST))
# alternative texts of the pictures; other environments get one with their name
SEEN = {
    'CartPole': 'A pole is balanced on a cart',
    'Acrobot': 'Two links swing up to a line',
    'MountainCar': 'A car swings itself up a hill',
    'MountainCarContinuous': 'A car swings itself up a hill',
    'Pendulum': 'A pendulum is swung up and held there',
    'LunarLander': 'A lander comes down between two flags',
    'LunarLanderContinuous': 'A lander comes down between two flags',
    'BipedalWalker': 'Two legs walk over uneven ground',
    'HalfCheetah': 'Half a cheetah runs over a chequered ground',
    'Hopper': 'One leg hops over a chequered ground',
    'Walker2d': 'Two legs run over a chequered ground',
    'Taxi': 'A taxi picks up a passenger and drives to another stop',
    'tictactoe': 'Two players put crosses and circles on a board of nine fields',
    'simple_spread': 'Three agents move to three landmarks',
    'simple_tag': 'Three hunters chase a faster prey among obstacles',
}
INTRODUCTION = """\
Scores are mean and standard deviation of {} greedy episodes with the last weights. If several agents act in one
environment, the mean is that of all agents, and the mean of each agent follows. Games are played against random legal
moves. If several seeds were trained before the picture was made, it shows the best run, and its score is from other
episodes than the ones that selected it. [The benchmarks](benchmarks.md) list the results of all seeds. All pictures
begin with an episode of the same seed. Policies that ship with the package have the date of their training. Some agents
were changed later: the same command and seed then have another score, in the benchmarks and in your runs."""


def film(player: ActingAgent) -> tuple[list[np.ndarray], float]:
    """Play for some seconds, and return small frames and their number per second."""
    player.refresh()
    envs = player.envs.recreate(1, render_mode='rgb_array')
    with contextlib.closing(envs):
        stride, numbers, frames = stride_of(envs.frames_per_second), itertools.count(), list[np.ndarray]()
        fps = envs.frames_per_second / stride

        def keep(frame: np.ndarray) -> None:
            if next(numbers) % stride == 0:
                frames.append(np.array(shrunk(Image.fromarray(frame))))

        for seed in itertools.count(FIRST):
            left = round(stride * (LONGEST * fps - len(frames)))
            play_episode(collector_of(player, envs), seed, max_steps=left, sinks=[keep])
            if len(frames) >= SHORTEST * fps:
                return frames, fps
    raise AssertionError


def draw(player: ActingAgent, path: Path) -> None:
    """Write the largest gif of a policy that `LARGEST` allows."""
    frames, fps = film(player)
    path.parent.mkdir(parents=True, exist_ok=True)
    for width, seconds in SIZES:
        write_gif(path, frames[: round(seconds * fps)], fps, width, COLOURS)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f'{path} is too large: {path.stat().st_size} bytes')


class Picture(NamedTuple):
    """A picture of the page.

    Attributes:
        name: name of the file, without its ending.
        data: what the page says about the picture, as JSON values.
        load: returns the player that plays the episodes.
    """

    name: str
    data: dict[str, Any]
    load: Callable[[], Any]


def of_package(wanted: Iterable[str]) -> Iterator[Picture]:
    """Yield the pictures of the shipped policies."""
    for one in (one for agent_id in wanted for one in list_pretrained(agent_id)):
        data = {
            **{'agent': one.agent, 'env': one.env, 'steps': one.steps, 'score': one.score},
            **{'train': one.command, 'play': f'xagents play {one.agent} --pretrained {one.env} --render'},
        }
        load = functools.partial(players.load_pretrained_player, one.agent, one.env, {'seed': SCORED})
        yield Picture(f'{one.agent}-{one.env}', data, load)


def of_runs(runs: Sequence[Path], wanted: Sequence[str], episodes: int) -> Iterator[Picture]:
    """Yield a picture of the best run of each learner and environment for which no policy ships."""
    for (learner, env), some in (runs_of(runs) if runs else {}).items():
        config = read_config(some[0])
        if (learner, env) in SHIPPED or config['agent'] not in wanted:
            continue
        best = best_of(some, episodes, playing) if len(some) > 1 else some[0]
        checkpoint = None if best is None else find_checkpoint(best, 'last')
        assert best is not None and checkpoint is not None
        record, player = record_of(best, checkpoint), playing(best, SCORED)
        masked = any(group.n_mask for group in player.envs.groups.values())
        named = learner_name(learner, config.get('policies'), masked)
        game = {'opponent': 'random'} if player.envs.is_game else {}
        data = {
            **{'agent': config['agent'], 'learner': named, 'env': env, **game},
            **{'steps': record['counters']['steps'], 'score': {**played(player, episodes), 'episodes': episodes}},
            'train': record['trained']['command'],
        }
        yield Picture(re.sub(r'[^\w.]+', '-', f'{learner}-{env}'), data, functools.partial(playing, best, SCORED))


def playing(run: Path, seed: int) -> Any:
    """Return the policy of a run, or its agent if the policy is not self-contained, such as the policies of a team."""
    config = read_config(run)
    options: dict[str, Any] = {'seed': seed}
    if config['env'] in CAMERAS:
        options['env_kwargs'] = {**CAMERAS[config['env']], **(config.get('env_kwargs') or {})}
    return players.load_player(run, 'last', options) or load(run, 'last', quiet=True, **options)


def learner_name(learner: str, policies: Mapping[str, Mapping[str, Any]] | None, masked: bool) -> str:
    """Return who has learned: the agent, with memory and action masks, or the agents of the policies of a team."""
    if policies:
        return ', '.join(f'{one["agent"].upper()} as {name}' for name, one in policies.items())
    agent, *memory = learner.split(' with ')
    extras = ' and '.join([*memory, *(['action masks'] if masked else [])])
    return f'{agent.upper()}{extras and f" with {extras}"}'


def card(name: str, one: dict[str, Any], pictures: str) -> str:
    """Return one picture with its data, as Markdown."""
    game = re.split(r'NoFrameskip|[-_]v\d', re.split('[/:.]', one['env'])[-1])[0]
    parts = [
        f'![{SEEN.get(game, f"{game} is played")}]({pictures}/{name}.gif)',
        f'**{one.get("learner", one["agent"].upper())} on {one["env"]}**: {score_text(one)} '
        f'after {tables.number(one["steps"])} steps{trained_on(one)}',
        f'`{one["train"]}`',
        *([f'`{one["play"]}`'] if 'play' in one else []),
    ]
    return '-   ' + '\n\n    '.join(parts)


def trained_on(one: Mapping[str, Any]) -> str:
    """Return when a shipped policy was trained."""
    return f' ({find_pretrained(one["agent"], one["env"]).date[:10]})' if 'play' in one else ''


def score_text(one: Mapping[str, Any]) -> str:
    """Return a score: shares of won and lost games, or the mean return, with that of each of several agents."""
    score = one['score']
    if 'opponent' in one:  # a game is worth 1, 0 or -1
        lost = score['success'] - score['mean']
        return f'{tables.percent(score["success"])} of the games won, {tables.percent(lost)} lost,'
    agents = ', '.join(f'{n.partition("/")[2]} {mean:.1f}' for n, mean in score.items() if n.startswith('reward/'))
    return f'{score["mean"]:.1f} ± {score["std"]:.1f}{agents and f" ({agents})"}'


def page_of(known: dict[str, dict[str, Any]], pictures: str = '../img/gallery') -> str:
    """Return all pictures as Markdown: shipped policies in their order, then runs."""
    order = {pair: place for place, pair in enumerate(SHIPPED)}

    def place_of(name: str) -> tuple[int, str]:
        one = known[name]
        return order[one['agent'], one['env']] if 'play' in one else len(order), name

    sorted_names = sorted(known, key=place_of)
    cards = '\n\n'.join(card(name, known[name], pictures) for name in sorted_names)
    episodes = min((one['score']['episodes'] for one in known.values()), default=EPISODES)
    return f'{INTRODUCTION.format(episodes)}\n\n<div class="grid cards" markdown>\n\n{cards}\n\n</div>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw pictures that are new or whose data have changed, store their data, and write the page."""
    parser = argparse.ArgumentParser(prog='python docs/make_gallery.py', description=__doc__, allow_abbrev=False)
    parser.add_argument(
        '--runs', nargs='+', type=Path, default=[], metavar='DIR', help='run directories, or folders that contain them'
    )
    parser.add_argument(
        '--only',
        nargs='+',
        default=[*BUILTIN_AGENTS, TEAM_ENTRY.id],
        metavar='AGENT',
        help='agents whose pictures are made (default: all)',
    )
    parser.add_argument('--out', type=Path, default=PICTURES, help='folder of the pictures')
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    parser.add_argument('--episodes', type=int, default=EPISODES, help='episodes of a score of --runs')
    options = parser.parse_args(arguments)
    prepare_process()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / KNOWN
    known = json.loads(file.read_text()) if file.exists() else {}
    for one in itertools.chain(of_package(options.only), of_runs(options.runs, options.only, options.episodes)):
        path = options.out / f'{one.name}.gif'
        if known.get(one.name) != one.data or not path.exists():
            with contextlib.closing(one.load()) as player:
                draw(player, path)
        known[one.name] = one.data
    known = {name: one for name, one in known.items() if (options.out / f'{name}.gif').exists()}
    tables.write_atomically(file, json.dumps(known, indent=1, sort_keys=True) + '\n')
    tables.write_section(options.page, 'gallery', page_of(known))
    return 0


if __name__ == '__main__':
    sys.exit(main())
