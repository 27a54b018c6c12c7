"""Makes the gallery, a page with a gif of each shipped policy and of kept runs with image observations: `make gallery`.

All gifs show episodes with the same seeds, as many as fill some seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gifs import shrunk, stride_of, write_gif
from PIL import Image

# Python adds the folder of a script to the path, but not the root of the repository
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.learning.pretrained import EPISODES, SCORED, SHIPPED, best_of, played, record_of, runs_of
from benchmarks.venvs import REPOSITORY
from xagents.checkpoints.state_files import find_checkpoint
from xagents.evaluation.playing import evaluation_collector as collector_of
from xagents.evaluation.playing import play_episode
from xagents.factory import players
from xagents.factory.load import load
from xagents.factory.pretrained import list_pretrained
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.system.startup import prepare_process

PAGE, PICTURES = REPOSITORY / 'docs' / 'gallery.md', REPOSITORY / 'img' / 'gallery'
# data of each picture; entries of runs stay when the runs are deleted
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
}
INTRODUCTION = """\
Scores are mean and standard deviation of {} greedy episodes with the last weights. If several seeds were trained, the
picture shows the best run, and its score is from other episodes than the ones that selected it.
[The benchmarks](benchmarks.md) list the results of all seeds. All pictures begin with an episode of the same seed."""


def film(player: players.PolicyPlayer) -> tuple[list[np.ndarray], float]:
    """Play for some seconds, and return small frames and their number per second."""
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


def draw(player: players.PolicyPlayer, path: Path) -> None:
    """Write the largest gif of a policy that `LARGEST` allows."""
    frames, fps = film(player)
    path.parent.mkdir(parents=True, exist_ok=True)
    for width, seconds in SIZES:
        write_gif(path, frames[: round(seconds * fps)], fps, width, COLOURS)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f'{path} is too large: {path.stat().st_size} bytes')


def of_package(folder: Path, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Draw the shipped policies, and return the data of their pictures."""
    known = {}
    for one in (one for agent_id in wanted for one in list_pretrained(agent_id)):
        with contextlib.closing(players.load_pretrained_player(one.agent, one.env, {'seed': SCORED})) as player:
            draw(player, folder / f'{one.agent}-{one.env}.gif')
        known[f'{one.agent}-{one.env}'] = {
            **{'agent': one.agent, 'env': one.env, 'steps': one.steps, 'score': one.score},
            **{'train': one.command, 'play': f'xagents play {one.agent} --pretrained {one.env} --render'},
        }
    return known


def of_runs(folder: Path, runs: Sequence[Path], wanted: Sequence[str], episodes: int) -> dict[str, dict[str, Any]]:
    """Draw the best run of each agent and image environment, and return the data of the pictures."""
    known = {}
    for (agent_id, env), some in (runs_of(runs) if runs else {}).items():
        if (agent_id, env) in SHIPPED or agent_id not in wanted:
            continue
        some = [run for run in some if sees_images(run)]
        best = best_of(some, episodes) if len(some) > 1 else next(iter(some), None)
        if best is None:
            continue
        checkpoint = find_checkpoint(best, 'last')
        player, scored = (playing(best) for _ in range(2))
        assert checkpoint is not None
        name = f'{agent_id}-{env}'.replace('/', '-')
        with contextlib.closing(player):
            draw(player, folder / f'{name}.gif')
        record = record_of(best, checkpoint)
        known[name] = {
            **{'agent': agent_id, 'env': env, 'steps': record['counters']['steps']},
            **{'score': {**played(scored, episodes), 'episodes': episodes}, 'train': record['trained']['command']},
        }
    return known


def playing(run: Path) -> Any:
    """Return the policy of a run, or its agent if the policy is not self-contained, for example with bfloat16."""
    return players.load_player(run, 'last', {'seed': SCORED}) or load(run, 'last', seed=SCORED, quiet=True)


def sees_images(run: Path) -> bool:
    """Return whether the observations of a run are images, for which no policy ships."""
    with contextlib.closing(playing(run)) as player:
        return len(player.envs.encoder.space.shape) == 3


def card(name: str, one: dict[str, Any], pictures: str) -> str:
    """Return one picture with its data, as Markdown."""
    game = one['env'].rpartition('/')[2].partition('NoFrameskip')[0].rpartition('-v')[0] or one['env']
    score = one['score']
    parts = [
        f'![{SEEN.get(game, f"{game} is played")}]({pictures}/{name}.gif)',
        f'**{one["agent"].upper()} on {one["env"]}**: {score["mean"]:.1f} ± {score["std"]:.1f} '
        f'after {tables.number(one["steps"])} steps',
        f'`{one["train"]}`',
        *([f'`{one["play"]}`'] if 'play' in one else []),
    ]
    return '-   ' + '\n\n    '.join(parts)


def page_of(known: dict[str, dict[str, Any]], pictures: str = '../img/gallery') -> str:
    """Return all pictures as Markdown: shipped policies in their order, then runs."""
    order = {pair: place for place, pair in enumerate(SHIPPED)}
    sorted_names = sorted(known, key=lambda n: (order.get((known[n]['agent'], known[n]['env']), len(order)), n))
    cards = '\n\n'.join(card(name, known[name], pictures) for name in sorted_names)
    episodes = min((one['score']['episodes'] for one in known.values()), default=EPISODES)
    return f'{INTRODUCTION.format(episodes)}\n\n<div class="grid cards" markdown>\n\n{cards}\n\n</div>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the pictures, store their data, and write the page."""
    parser = argparse.ArgumentParser(prog='python docs/make_gallery.py', description=__doc__, allow_abbrev=False)
    parser.add_argument(
        '--runs', nargs='+', type=Path, default=[], metavar='DIR', help='run directories, or folders that contain them'
    )
    parser.add_argument(
        '--only',
        nargs='+',
        default=list(BUILTIN_AGENTS),
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
    known |= of_package(options.out, options.only)
    known |= of_runs(options.out, options.runs, options.only, options.episodes)
    known = {name: one for name, one in known.items() if (options.out / f'{name}.gif').exists()}
    tables.write_atomically(file, json.dumps(known, indent=1, sort_keys=True) + '\n')
    tables.write_section(options.page, 'gallery', page_of(known))
    return 0


if __name__ == '__main__':
    sys.exit(main())
