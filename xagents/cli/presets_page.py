"""The page of `xagents presets`: a table of presets per agent, with published and measured scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xagents.factory.presets import Preset, find_score, list_presets
from xagents.factory.pretrained import list_pretrained
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.system.pages import COLUMN_GAP, MAX_WIDTH, console_width, make_table, render_page

if TYPE_CHECKING:
    from rich.console import RenderableType

# columns after the environment, their widths, and the indices of numeric columns
HEADER, WIDTHS, NUMERIC_COLUMNS = ('Steps', 'Published', 'Seen', 'When'), (5, 9, 11, 10), (1, 2, 3)
# the source is a column if it has at least this width, otherwise a separate line
MIN_SOURCE_WIDTH = 28
# mark after an environment with a pretrained policy
PRETRAINED_MARK = '*'
DEFAULT_SOURCE = 'rl-baselines3-zoo'
PEER = 'Stable-Baselines3'
# name of the row of published settings, below the row of the preset that differs from them
PUBLISHED_NAME = '  as published'
# name of the row after fewer steps, below the row of the preset
EARLY_NAME = '  early'
LEGEND = (
    f'Settings are those of {DEFAULT_SOURCE} if no source is given. '
    f'Published: the mean reward that {DEFAULT_SOURCE} published, or CleanRL for PQN. '
    'Seen: the median of the mean rewards of one or more seeds (their number), acting greedily with the '
    'last weights; not run: no training of all steps was measured. '
    f'When: the date of these runs. {PEER} here: its median with the same settings and versions of environments. '
    'xagents train <agent> --env <environment> --tuned uses the settings; its other flags override them. '
    'As published: the published settings of the environment above, from which its preset differs; --tuned --published '
    'uses them. Quantile: needs --distribution quantile. '
    'Early: the preset above after fewer steps, and the published mean reward there. '
    f'{PRETRAINED_MARK} xagents play <agent> --pretrained <environment> plays a trained policy.'
)


def presets_page(agent_id: str | None = None, width: int | None = None, as_json: bool = False) -> str:
    """Return the list of presets of an agent, or of all agents with one line for all Atari games.

    Args:
        agent_id: id of an agent; None for all.
        width: width in characters. The default is the width of the console.
        as_json: whether to return one JSON object per line.
    """
    width = min(console_width(width), MAX_WIDTH)
    presets = {name: list_presets(name) for name in (BUILTIN_AGENTS if agent_id is None else [agent_id])}
    if agent_id is not None:
        if not presets[agent_id] and not as_json:
            return f'{agent_id} has no presets.'
        # one line for each game with a published score, then one line for all other games
        presets = {agent_id: [one for p in presets[agent_id] for one in (*map(p.for_game, p.games), p)]}
    if as_json:
        found = (one for group in presets.values() for preset in group for one in _with_early(preset))
        return '\n'.join(json.dumps(_record(one)) for one in found)
    rows = {name: [row for preset in group for row in _rows(preset)] for name, group in presets.items()}
    widths = (max(len(cells[0]) for group in rows.values() for cells, _ in group), *WIDTHS)
    parts: list[RenderableType] = []
    for name, group in rows.items():
        parts += [*_table([((name, *HEADER), 'Source'), *group], widths, width), '']
    return render_page([*parts, LEGEND], width)


def preset_source(preset: Preset) -> str:
    """Return the source of the settings, the changes, what differs for the published score, and the peer's score."""
    scored_on = f' for {preset.scored_on}' if preset.scored_on else ''
    scored_with = f' with {preset.scored_with}' if preset.scored_with else ''
    scored = f'published{scored_on}{scored_with}' if scored_on or scored_with else ''
    return ', '.join(filter(None, [preset.source_name, preset.changed, scored, _peer(preset)]))


def format_steps(steps: int) -> str:
    """Return a number of steps with M or k if it is a multiple of a million or a thousand."""
    for unit, letter in ((1_000_000, 'M'), (1_000, 'k')):
        if steps % unit == 0:
            return f'{steps // unit}{letter}'
    return str(steps)


def _peer(preset: Preset) -> str:
    score = find_score(preset)
    return '' if score is None or score.peer is None else f'{PEER} here: {score.peer:.1f}'


def _rows(preset: Preset) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the cells and the source of a preset, then those after its early steps if they have a score."""
    yield _cells(preset), preset_source(preset)
    for early in _with_early(preset)[1:]:
        yield _cells(early), _peer(early)


def _with_early(preset: Preset) -> list[Preset]:
    """Return a preset, and the same settings for its early steps if they have a score."""
    early = preset.after_early_steps()
    return [preset] if early is None or find_score(early) is None else [preset, early]


def _record(preset: Preset) -> dict[str, Any]:
    """Return the fields of a preset and of its score."""
    fields, score = dataclasses.asdict(preset), find_score(preset)
    del fields['early'], fields['games']
    return {**fields, 'score': None if score is None else dataclasses.asdict(score)}


def _cells(preset: Preset) -> tuple[str, ...]:
    score = find_score(preset)
    if preset.games:
        published, seen, when = 'by game', *_games_seen(preset)
    else:
        published = '' if preset.published is None else f'{preset.published:.1f}'
        seen = 'not run' if score is None else f'{score.median:.1f} ({len(score.means)})'
        when = '' if score is None else score.date
    ships = preset.env in {one.env for one in list_pretrained(preset.agent)}
    mark = f' {PRETRAINED_MARK}' if ships and not preset.form else ''
    env = EARLY_NAME if preset.is_early else PUBLISHED_NAME if preset.is_published else preset.name + mark
    return env, format_steps(preset.max_steps), published, seen, when


def _games_seen(preset: Preset) -> tuple[str, str]:
    scores = [score for game in preset.games if (score := find_score(preset.for_game(game)))]
    return (f'{len(scores)} of {len(preset.games)}', max(score.date for score in scores)) if scores else ('not run', '')


def _table(rows: list[tuple[tuple[str, ...], str]], widths: Sequence[int], width: int) -> Iterator[RenderableType]:
    """Yield the presets of an agent, each with its source in a column or on the next line."""
    from rich.padding import Padding

    source_width = width - sum(widths) - COLUMN_GAP * len(widths)
    if source_width >= MIN_SOURCE_WIDTH:
        yield make_table([(*cells, source) for cells, source in rows], (*widths, source_width), right=NUMERIC_COLUMNS)
        return
    for cells, source in rows:
        yield make_table([cells], widths, right=NUMERIC_COLUMNS)
        if source not in ('', 'Source', DEFAULT_SOURCE):
            yield Padding(source, (0, 0, 0, 4))
