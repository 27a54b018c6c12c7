"""The page of `xagents compare`: scores by environment, aggregates with intervals, verdicts and notes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from xagents.reports.aggregates import Interval
from xagents.reports.comparison import Comparison, Improvement
from xagents.reports.score_groups import SCORE_NAMES
from xagents.reports.statistics import LEVEL
from xagents.system.pages import column_widths, console_width, make_table, render_page
from xagents.system.values import to_plain_value

STATISTICS = {'iqm': 'IQM', 'median': 'Median', 'mean': 'Mean', 'gap': 'Optimality gap'}
LEGEND = (
    'Brackets: 95 % confidence interval, by a bootstrap over the runs of each environment. IQM: interquartile mean of '
    'all runs. Median, Mean: of the means of the environments. P(A > B): probability that a run of A has a higher '
    'score than a run of B in the same environment.'
)
GAP_LEGEND = ' Optimality gap: mean distance below the reference score; smaller is better.'


def comparison_json(comparison: Comparison) -> str:
    """Return a comparison as one JSON object on one line; unknown numbers are null."""
    verdicts = [verdict_sentence(comparison, one) for one in comparison.improvements] if comparison.versus else []
    return json.dumps(to_plain_value({**comparison.to_dict(), 'verdicts': verdicts}, finite=True))


def comparison_page(comparison: Comparison, width: int | None = None) -> str:
    """Return the page of a comparison.

    Args:
        comparison: the comparison.
        width: width in characters; that of the console by default.
    """
    from rich.text import Text

    parts = [f'Score: {score_line(comparison)}.', '', *_table(_env_rows(comparison), right=range(2, 8))]
    parts += ['', *_table(_group_rows(comparison), right=(2,)), '']
    if comparison.versus is None:
        parts += [
            f'P({one.group} > {one.versus}) = {format_interval(one.probability)}' for one in comparison.improvements
        ]
    else:
        parts += [verdict_sentence(comparison, one) for one in comparison.improvements]
    if comparison.notes:
        parts += ['', *(f'Note: {note}' for note in comparison.notes)]
    legend = LEGEND + (GAP_LEGEND if comparison.bounds is not None else '')
    return render_page([*parts, '', Text(legend, style='dim')], console_width(width))


def score_line(comparison: Comparison) -> str:
    """Return the meaning of a score in words."""
    scale = 'not normalised' if comparison.bounds is None else '0 is a random policy, 1 the reference score'
    return f'{SCORE_NAMES[comparison.score]}; {scale}'


def verdict_sentence(comparison: Comparison, one: Improvement) -> str:
    """Return whether one group is better than another one, and how sure that is, in a sentence."""
    envs = comparison.envs
    place = envs[0] if len(envs) == 1 else f'these {len(envs)} environments'
    iqm = {summary.group.label: summary.iqm.value for summary in comparison.groups}
    verdict = one.verdict
    start = f'{one.group} is {verdict} than {one.versus} on {place}'
    if verdict == 'unknown':
        direction = 'better' if one.difference.value >= 0 else 'worse'
        start = f'Whether {one.group} is {direction} than {one.versus} on {place} cannot be said ({_why_unknown(one)})'
    return (
        f'{start}: IQM {iqm[one.group]:.2f} vs {iqm[one.versus]:.2f}, difference {format_interval(one.difference)}; '
        f'P({one.group} > {one.versus}) = {format_interval(one.probability)}; permutation test p = {_format_p(one)}.'
    )


def format_interval(interval: Interval) -> str:
    """Return a statistic with its interval, such as `0.91 [0.85, 0.95]`, or the statistic if there is no interval."""
    if not math.isfinite(interval.low):
        return f'{interval.value:.2f}'
    return f'{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]'


def _why_unknown(one: Improvement) -> str:
    if one.least_p_value > 1 - LEVEL:
        return f'too few runs: even if all runs of one group were better, p would be {one.least_p_value:.2f}'
    if not math.isfinite(one.difference.low):
        return 'too few runs: a group has 1 run of an environment, and no confidence interval'
    return 'chance alone can give such a difference'


def _format_p(one: Improvement) -> str:
    return f'{one.p_value:.3f}' if one.p_value >= 0.001 else '< 0.001'


def _env_rows(comparison: Comparison) -> list[Sequence[str]]:
    """Return the raw scores of each group in each environment, after a header."""
    header = ('Environment', 'Group', 'Runs', 'Mean', 'Lowest', 'Highest')
    rows: list[Sequence[str]] = [header if comparison.bounds is None else (*header, 'Random', 'Reference')]
    for env in comparison.envs:
        for number, one in enumerate(comparison.groups):
            (raw,) = one.group.scores([env])
            bounds = () if comparison.bounds is None else comparison.bounds[env]
            ends = [f'{value:.1f}' if number == 0 else '' for value in bounds]
            numbers = (f'{value:.1f}' for value in (raw.mean(), raw.min(), raw.max()))
            rows.append((env if number == 0 else '', one.group.label, str(len(raw)), *numbers, *ends))
    return rows


def _group_rows(comparison: Comparison) -> list[Sequence[str]]:
    """Return each aggregate score of each group with its interval, after a header."""
    rows: list[Sequence[str]] = [('Statistic', 'Group', 'Value', '95 % interval')]
    for name, title in STATISTICS.items():
        for number, one in enumerate(comparison.groups):
            if (interval := getattr(one, name)) is not None:
                value, _, bounds = format_interval(interval).partition(' ')
                rows.append((title if number == 0 else '', one.group.label, value, bounds or 'unknown'))
    return rows


def _table(rows: list[Sequence[str]], right: Sequence[int]) -> list:
    widths = column_widths(rows)
    return [make_table(rows[:1], widths, ['bold'] * len(widths), right), make_table(rows[1:], widths, right=right)]
