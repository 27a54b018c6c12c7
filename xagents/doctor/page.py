"""The pages of `xagents doctor`: facts and findings of an environment, and findings of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.doctor.environment import EnvReport
from xagents.doctor.finding import Finding
from xagents.doctor.run import findings_of, time_lines
from xagents.doctor.run_data import RunData
from xagents.system.pages import MAX_WIDTH, column_widths, console_width, make_table, render_page
from xagents.system.values import to_plain_value

if TYPE_CHECKING:
    from rich.console import RenderableType

NO_FINDING = 'No findings.'


def environment_page(env: str, report: EnvReport, as_json: bool = False, width: int | None = None) -> str:
    """Return the page of an environment.

    Args:
        env: the name of the environment.
        report: the result of the checks.
        as_json: whether to return one JSON object.
        width: width in characters; that of the console by default.
    """
    if as_json:
        record = {'env': env, **report.numbers, 'facts': report.facts, 'findings': _records(report.findings)}
        return json.dumps(to_plain_value(record, finite=True))
    return _page(env, report.facts, report.findings, width)


def run_page(run: RunData, as_json: bool = False, width: int | None = None) -> str:
    """Return the page of a run; the arguments are those of `environment_page`."""
    findings = findings_of(run)
    about = {name: run.options.get(name) for name in ('agent', 'env', 'seed')}
    if as_json:
        record = {'run': str(run.folder), **about, 'steps': run.steps, 'state': run.status.get('state')}
        record |= {'not_checked': run.sample_problem or None, 'findings': _records(findings)}
        return json.dumps(to_plain_value(record, finite=True))
    facts = [('Run', f'{about["agent"]} on {about["env"]}, {run.steps} steps, {run.status.get("state")}')]
    if len(run.rewards):
        first, last = run.first[0], float(np.mean(run.rewards[-run.window :]))
        facts.append(('Mean reward', f'{first:.4g} at first, {last:.4g} at the end, of {len(run.rewards)} episodes'))
        if len(run.random_rewards):
            facts.append(('', f'{run.random_rewards.mean():.4g} with random actions'))
    facts += [('Time' if not i else '', line.removeprefix('Time: ')) for i, line in enumerate(time_lines(run))]
    if run.sample_problem:
        skipped = 'observations, rewards and units of the last policy'
        facts.append(('Not checked', f'{skipped}: {run.sample_problem}'))
    nothing = f'{NO_FINDING[:-1]} in what was checked.' if run.sample_problem else NO_FINDING
    return _page(str(run.folder), facts, findings, width, nothing)


def runs_pages(runs: Sequence[tuple[Path, RunData | str]], as_json: bool = False) -> str:
    """Return the pages of several runs, each with its data or with the reason why they cannot be read."""
    if as_json:
        return '\n'.join(
            json.dumps({'run': str(folder), 'problem': run}) if isinstance(run, str) else run_page(run, True)
            for folder, run in runs
        )
    return '\n\n'.join(f'{folder}\n  {run}' if isinstance(run, str) else run_page(run) for folder, run in runs)


def _records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [finding._asdict() for finding in findings]


def _page(
    title: str,
    facts: Sequence[tuple[str, str]],
    findings: Sequence[Finding],
    width: int | None,
    nothing: str = NO_FINDING,
) -> str:
    from rich.padding import Padding
    from rich.text import Text

    width = min(console_width(width), MAX_WIDTH)
    rows = [(f'  {name}', text) for name, text in facts]
    first = column_widths(rows)[0] if rows else 0
    parts: list[RenderableType] = [Text(title, style='bold')]
    if rows:
        parts.append(make_table(rows, (first, width - first - 4)))
    parts.append('')
    if not findings:
        parts.append(Text(nothing, style='green'))
    for finding in findings:
        line = Text(f'{finding.name}: ', style='bold yellow').append(
            Text(str(finding).partition(': ')[2], style='default')
        )
        parts.append(Padding(line, (0, 0, 0, 0)))
    return render_page(parts, width)
