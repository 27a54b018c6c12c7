"""Makes the gallery: a gif of each policy that ships and of kept runs that see images, and the page: `make gallery`.

All gifs show the episodes of the same seeds, as many as fill some seconds.
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

# a script's own folder is on the path, not the repository's
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.learning.pretrained import EPISODES, SCORED, SHIPPED, best_of, played, record_of, runs_of
from benchmarks.venvs import REPOSITORY
from xagents.factory import players
from xagents.factory.load import load
from xagents.factory.pretrained import list_pretrained
from xagents.registry.agents import OURS
from xagents.runs.checkpoints import checkpoint_of
from xagents.runs.evaluation import episode
from xagents.runs.evaluation import player as collector_of
from xagents.system.startup import prepare_process

PAGE, PICTURES = REPOSITORY / 'docs' / 'gallery.md', REPOSITORY / 'img' / 'gallery'
# what is known of each picture: those of runs stay when the runs are gone
KNOWN = 'pictures.json'
SHORTEST, LONGEST = 6, 10  # seconds
FIRST = 4  # seed of the first episode: a pendulum has to be swung up then
LARGEST = 900_000  # bytes of a gif
COLOURS = 128  # fewer leave none for a cheetah before so much floor
# widths and seconds that are tried, until it is small enough
SIZES = ((320, LONGEST), (240, LONGEST), (240, SHORTEST), (200, SHORTEST), (160, SHORTEST), (120, SHORTEST))
# what there is to be seen, for those who cannot see it; games have their name
SEEN = {
    'CartPole': 'A pole is balanced on a cart',
    'Acrobot': 'Two links swing up to a line',
    'MountainCar': 'A car swings itself up a hill',
    'MountainCarContinuous': 'A car swings itself up a hill',
    'Pendulum': 'A pendulum is swung up and held there',
    'LunarLander': 'A lander comes down between two flags',
    'LunarLanderContinuous': 'A lander comes down between two flags',
    'BipedalWalker': 'Two legs walk over uneven ground',
    'HalfCheetah': 'Half a cheetah runs over a chequered floor',
    'Hopper': 'One leg hops over a chequered floor',
    'Walker2d': 'Two legs run over a chequered floor',
}
INTRODUCTION = """\
Scores are means of {} greedy episodes and their standard deviation, of the weights that training ended with. Where
several seeds were trained it is the best one, played again on other episodes: what to expect of one is on
[another page](benchmarks.md). All pictures begin with an episode of the same seed."""


def film(player: players.Player) -> tuple[list[np.ndarray], float]:
    """Play for some seconds; return small frames and how many there are a second."""
    envs = player.envs.another(1, render_mode='rgb_array')
    with contextlib.closing(envs):
        stride, numbers, frames = stride_of(envs.frames_per_second), itertools.count(), list[np.ndarray]()
        fps = envs.frames_per_second / stride

        def keep(frame: np.ndarray) -> None:
            if next(numbers) % stride == 0:
                frames.append(np.array(shrunk(Image.fromarray(frame))))

        for seed in itertools.count(FIRST):
            left = round(stride * (LONGEST * fps - len(frames)))
            episode(collector_of(player, envs), seed, max_steps=left, sinks=[keep])
            if len(frames) >= SHORTEST * fps:
                return frames, fps
    raise AssertionError


def draw(player: players.Player, path: Path) -> None:
    """Write a gif of a policy, as large as it may be."""
    frames, fps = film(player)
    path.parent.mkdir(parents=True, exist_ok=True)
    for width, seconds in SIZES:
        write_gif(path, frames[: round(seconds * fps)], fps, width, COLOURS)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f'{path} is too large: {path.stat().st_size} bytes')


def of_package(folder: Path, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Draw the policies that ship; return what is known of them."""
    known = {}
    for one in (one for agent_id in wanted for one in list_pretrained(agent_id)):
        with contextlib.closing(players.pretrained(one.agent, one.env, {'seed': SCORED})) as player:
            draw(player, folder / f'{one.agent}-{one.env}.gif')
        known[f'{one.agent}-{one.env}'] = {
            **{'agent': one.agent, 'env': one.env, 'steps': one.steps, 'score': one.score},
            **{'train': one.command, 'play': f'xagents play {one.agent} --pretrained {one.env} --render'},
        }
    return known


def of_runs(folder: Path, runs: Sequence[Path], wanted: Sequence[str], episodes: int) -> dict[str, dict[str, Any]]:
    """Draw the best run of each agent and environment that sees images; return what is known of them."""
    known = {}
    for (agent_id, env), some in (runs_of(runs) if runs else {}).items():
        if (agent_id, env) in SHIPPED or agent_id not in wanted:
            continue
        some = [run for run in some if sees_images(run)]
        best = best_of(some, episodes) if len(some) > 1 else next(iter(some), None)
        if best is None:
            continue
        checkpoint = checkpoint_of(best, 'last')
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
    """Who plays for a run: its policy, or its agent where it has none by itself, as with bfloat16."""
    return players.loaded(run, 'last', {'seed': SCORED}) or load(run, 'last', seed=SCORED, quiet=True)


def sees_images(run: Path) -> bool:
    """Whether the agent of a run sees images, for which no policy ships."""
    with contextlib.closing(playing(run)) as player:
        return len(player.envs.encoder.space.shape) == 3


def card(name: str, one: dict[str, Any], pictures: str) -> str:
    """One picture with what is known of it, as Markdown."""
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
    """All pictures, in the order in which policies ship, those of runs behind them."""
    order = {pair: place for place, pair in enumerate(SHIPPED)}
    sorted_names = sorted(known, key=lambda n: (order.get((known[n]['agent'], known[n]['env']), len(order)), n))
    cards = '\n\n'.join(card(name, known[name], pictures) for name in sorted_names)
    episodes = min((one['score']['episodes'] for one in known.values()), default=EPISODES)
    return f'{INTRODUCTION.format(episodes)}\n\n<div class="grid cards" markdown>\n\n{cards}\n\n</div>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, keep what is known, write the page."""
    parser = argparse.ArgumentParser(prog='python docs/make_gallery.py', description=__doc__, allow_abbrev=False)
    parser.add_argument('--runs', nargs='+', type=Path, default=[], metavar='DIR', help='runs, or folders of them')
    parser.add_argument('--only', nargs='+', default=list(OURS), metavar='AGENT', help='whose pictures are made (all)')
    parser.add_argument('--out', type=Path, default=PICTURES, help='folder of the pictures')
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    parser.add_argument('--episodes', type=int, default=EPISODES, help='of a score of --runs')
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
