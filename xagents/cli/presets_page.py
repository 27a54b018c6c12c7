"""What `xagents presets` shows: a table an agent of its tuned settings, with the scores published and seen."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

from xagents.factory.presets import Preset, find_score, list_presets
from xagents.registry.agents import OURS

MIN_WIDTH, MAX_WIDTH = 72, 140
# columns of steps, published score, seen score with its seeds, and date, and what is between them
WIDTHS = (5, 9, 11, 10)
GAP = '  '
# a source has a column of its own where that leaves it so many columns, and a line otherwise
ROOM = 28
USUAL = 'rl-baselines3-zoo'
LEGEND = (
    f'Settings are those of {USUAL} where nothing else is said. '
    'Published: the mean reward of one trained agent, as the source gives it. Seen: the median of the means of so '
    'many seeds, greedy, with the weights that training ended with, and when. '
    'xagents train <agent> --env <environment> --tuned takes the settings, and its other flags win.'
)


def presets_page(agent_id: str | None = None, width: int | None = None) -> str:
    """Return the list of tuned settings, as wide as the console.

    Args:
        agent_id: whose; of all agents when not given, where Atari games are one line.
        width: columns, instead of the console's.
    """
    width = min(max(width or shutil.get_terminal_size().columns, MIN_WIDTH), MAX_WIDTH)
    presets = {name: list_presets(name) for name in (OURS if agent_id is None else [agent_id])}
    if agent_id is not None and not presets[agent_id]:
        return f'{agent_id} has no tuned settings.'
    if agent_id is not None:
        presets = {agent_id: [one for preset in presets[agent_id] for one in _expanded(preset)]}
    widths = (max(len(preset.env) for group in presets.values() for preset in group), *WIDTHS)
    lines: list[str] = []
    for name, group in presets.items():
        lines += _line((name, 'Steps', 'Published', 'Seen', 'When'), 'Source', widths, width)
        for preset in group:
            lines += _line(_cells(preset), source_of(preset), widths, width)
        lines.append('')
    return '\n'.join([*lines, *textwrap.wrap(LEGEND, width)])


def source_of(preset: Preset) -> str:
    """Return who tuned the settings, what was changed, and the environment of the published score where it differs."""
    scored_on = f'published for {preset.scored_on}' if preset.scored_on else ''
    return ', '.join(filter(None, [preset.origin, preset.changed, scored_on]))


def steps_of(steps: int) -> str:
    """Return a number of steps in short, where that loses nothing."""
    for unit, letter in ((1_000_000, 'M'), (1_000, 'k')):
        if steps % unit == 0:
            return f'{steps // unit}{letter}'
    return str(steps)


def _expanded(preset: Preset) -> Iterator[Preset]:
    """The games with a published score one by one, then all others as one."""
    yield from map(preset.of_game, preset.games)
    yield preset


def _cells(preset: Preset) -> tuple[str, ...]:
    score = find_score(preset)
    if preset.games:
        published, seen, when = 'by game', *_games_seen(preset)
    else:
        published = '' if preset.published is None else f'{preset.published:.1f}'
        seen = 'not run' if score is None else f'{score.median:.1f} ({len(score.means)})'
        when = '' if score is None else score.date
    return preset.env, steps_of(preset.max_steps), published, seen, when


def _games_seen(preset: Preset) -> tuple[str, str]:
    scores = [score for game in preset.games if (score := find_score(preset.of_game(game)))]
    return (f'{len(scores)} of {len(preset.games)}', max(score.date for score in scores)) if scores else ('not run', '')


def _line(cells: tuple[str, ...], source: str, widths: tuple[int, ...], width: int) -> list[str]:
    """The lines of one row: names to the left, numbers to the right, the source behind them or below."""
    columns = enumerate(zip(cells, widths, strict=True))
    start = GAP.join(text.rjust(n) if 0 < i < 4 else text.ljust(n) for i, (text, n) in columns) + GAP
    room = width - len(start)
    if room >= ROOM:
        first, *others = textwrap.wrap(source, room)
        return [start + first, *(' ' * len(start) + other for other in others)]
    below = [] if source in ('Source', USUAL) else [source]
    return [start.rstrip(), *textwrap.wrap(''.join(below), width, initial_indent='    ', subsequent_indent='    ')]
