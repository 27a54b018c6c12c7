"""The page of `xagents report`: one HTML file about runs, which loads nothing from elsewhere.

The template escapes every text. Only the charts are inserted as they are; `svg_charts` writes them with an XML library.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xagents.options.errors import OptionError, error_line, one_line
from xagents.reports.curves import EVALUATED, run_curves
from xagents.reports.lineage import draw_lineage
from xagents.reports.population_files import Population, read_population
from xagents.reports.report_data import (
    MEASURED_PHASES,
    ReportGroup,
    RunReport,
    SettingReport,
    best_runs,
    compare_options,
    read_groups,
    run_versions,
)
from xagents.reports.runs_page import COLOURS, count_line, finite_number, local_time, n_requested_runs
from xagents.reports.svg_charts import Chart, curve_chart, make_chart
from xagents.reports.trials import StudyTrials, draw_trials, finite_values, has_trials, read_trials
from xagents.system.files import atomic_write, name_file_in_errors
from xagents.system.pages import format_option_value
from xagents.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name('report.html')
MAX_VIDEO_BYTES = 5_000_000
MAX_TRIALS = 30  # rows of the table of trials
MANY_SETTINGS = 6  # a page with more settings, or with several folders, begins with a table of contents


class FindingLike(Protocol):
    """A finding of a check of a run: what it is about, what was seen, what it means, and what helps."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def seen(self) -> str: ...  # noqa: D102
    @property
    def meaning(self) -> str: ...  # noqa: D102
    @property
    def remedy(self) -> str: ...  # noqa: D102


class Recording(NamedTuple):
    """A video of a policy: the content of an .mp4 file, and what it shows."""

    content: bytes
    caption: str


# functions of higher layers: the checks of a run, and the video of its best policy
CheckRun = Callable[[Path], tuple[Sequence[FindingLike], str]]
RecordRun = Callable[[Path], Recording]


class VideoOfRun(NamedTuple):
    """The video of a run on the page.

    Attributes:
        run: the run.
        data: the video as the address of an HTML element; empty without a video.
        text: what the video shows, or why there is none.
    """

    run: RunReport
    data: str
    text: str


class FindingOfRuns(NamedTuple):
    """Equal findings about several runs: the finding, and what was seen in each run."""

    finding: FindingLike
    seen: list[tuple[RunReport, str]]


class StudyReport(NamedTuple):
    """A study on the page: its trials, its chart, and why there is no chart."""

    trials: StudyTrials
    rows: Sequence[Mapping[str, Any]]
    counts: str
    chart: Chart | None
    problem: str


class PopulationReport(NamedTuple):
    """A population on the page: its folder, its rounds, its chart, and a problem of its files."""

    folder: Path
    population: Population | None
    chart: Chart | None
    problem: str

    @property
    def settings(self) -> list[str]:
        """The names of the searched options."""
        return list(self.population.rounds[-1][0].settings) if self.population and self.population.rounds else []


def save_report(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    studies: Sequence[StudyTrials] = (),
    check: CheckRun | None = None,
    record: RecordRun | None = None,
    command: str = '',
) -> Path:
    """Write a page about runs, groups of runs, populations and studies, atomically, and return its path.

    Args:
        folders: run directories, groups, populations, directories of `xagents tune --out`, or directories above runs.
        out: path of the page.
        studies: studies in addition to those in `folders`.
        check: function that returns the findings about a run, and why a part of it was not checked, or an empty text;
            None leaves both out.
        record: function that returns the video of the best policy of a run, or raises an exception that says why there
            is none; None leaves videos out.
        command: command line that writes the page, shown at its end.

    Raises:
        ValueError: if a folder is missing, or contains neither a run nor trials. What cannot be read of a run is left
            out, with a line on the page.
    """
    of_trials = [folder for folder in folders if has_trials(folder)]
    of_runs = [folder for folder in folders if folder not in of_trials]
    groups = read_groups(of_runs) if of_runs else []
    shown = [*map(read_trials, of_trials), *studies]
    text = _render(groups, shown, check, record, command)
    with name_file_in_errors(out), atomic_write(out) as temporary:
        temporary.write_text(text, encoding='utf-8')
    return Path(out)


def _render(
    groups: Sequence[ReportGroup],
    studies: Sequence[StudyTrials],
    check: CheckRun | None,
    record: RecordRun | None,
    command: str,
) -> str:
    from jinja2 import Environment, StrictUndefined

    settings = [setting for group in groups for setting in group.settings]
    runs = [run for group in groups for run in group.runs]
    best = best_runs(runs)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {'value': format_option_value, 'duration': _duration, 'when': local_time}
    environment.filters['count'] = '{:,}'.format
    charts, problems = _curves(groups)
    subjects = [str(group.found.folder) for group in groups] + [study.name for study in studies]
    content = {
        'title': subjects[0] if len(subjects) == 1 else f'{len(subjects)} results',
        'version': __version__,
        'now': datetime.now().strftime('%Y-%m-%d %H:%M'),
        'command': command,
        'groups': groups,
        'settings': settings,
        'runs': runs,
        'best': best,
        'counts': count_line([run.summary for run in runs], sum(map(_missing, groups))),
        'steps': sum(finite_number(run.summary, 'steps') or 0 for run in runs),
        'seconds': sum(finite_number(run.summary, 'seconds') or 0 for run in runs),
        'finite': finite_number,
        'states': (*COLOURS, 'killed', 'failed', 'unreadable'),
        'charts': charts,
        'problems': problems,
        'evaluated': any(run.evaluations for run in runs),
        'options': compare_options(settings) if settings else None,
        'phases': _used_phases(settings),
        'parallel': any('wait' in run.phases for run in runs),
        'populations': [_population(one.found.folder, n) for n, one in enumerate(groups) if one.is_population],
        'studies': [_study(study, index) for index, study in enumerate(studies)],
        'findings': None if check is None else _findings(runs, check),
        'videos': None if record is None else [_video(run, record) for run in best],
        'versions': run_versions(runs),
        'is_long': len(settings) > MANY_SETTINGS or len(subjects) > 1,
    }
    return environment.from_string(TEMPLATE.read_text(encoding='utf-8')).render(content)


def _used_phases(settings: Sequence[SettingReport]) -> list[tuple[int, str, str]]:
    """Return number, name and title of the phases that at least one setting has measured."""
    used = {name for setting in settings for name in setting.shares}
    return [(n, name, title) for n, (name, title) in enumerate(MEASURED_PHASES.items()) if name in used]


def _missing(group: ReportGroup) -> int:
    """Return the number of runs of a group that have not begun."""
    if group.is_population or not group.found.is_group:
        return 0
    return max(n_requested_runs(group.found.folder) - len(group.found.runs), 0)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _curves(groups: Sequence[ReportGroup]) -> tuple[list[Chart], list[str]]:
    """Return the charts of the mean reward and of the evaluations in each environment, and lines about missing ones."""
    if not groups:
        return [], []
    charts: list[Chart] = []
    problems: dict[str, None] = {}
    colours: dict[str, dict[str, int]] = {}  # by environment
    evaluated = any(run.evaluations for group in groups for run in group.runs)
    columns = {
        'mean_reward': 'Mean reward of training episodes',
        **({EVALUATED: 'Mean reward of evaluations'} if evaluated else {}),
    }
    for column, title in columns.items():
        missing: list[tuple[Path, str]] = []
        # the mean rewards of runs on data sets are those of their evaluations
        drawn = [one.found.folder for one in groups if column == EVALUATED or not (evaluated and _is_offline(one))]
        curves = run_curves(drawn, column, on_problem=lambda *problem, to=missing: to.append(problem))
        if column == 'mean_reward':
            problems |= dict.fromkeys(f'{folder}: {problem}' for folder, problem in missing)
        for index, env in enumerate(dict.fromkeys(curves.envs)):
            chosen = [number for number, one in enumerate(curves.envs) if one == env]
            frames, labels = [curves.frames[n] for n in chosen], [curves.labels[n] for n in chosen]
            name = f'{column.replace("/", "-").replace("_", "-")}-{index}'
            full = title if curves.env else f'{title}, {env}'
            try:
                charts.append(curve_chart(frames, labels, column, name, full, colours.setdefault(env, {})))
            except ValueError as error:
                problems[f'{full}: {one_line(error)}'] = None
    return charts, list(problems)


def _is_offline(group: ReportGroup) -> bool:
    """Return whether runs of a group learn from a data set."""
    return any(run.summary.config.get('dataset') for run in group.runs)


def _findings(runs: Sequence[RunReport], check: CheckRun) -> tuple[list[FindingOfRuns], list[str]]:
    """Return the findings about runs, equal ones together, and lines about runs that are not or not fully checked."""
    found: dict[tuple[str, str, str], FindingOfRuns] = {}
    problems = []
    for run in runs:
        try:
            findings, reason = check(run.folder)
        except (OSError, ValueError) as error:
            problems.append(f'{run.folder} cannot be checked: {one_line(error)}')
            continue
        if reason:
            problems.append(f'{run.folder}: Not checked: {reason}')
        for one in findings:
            key = (one.name, one.meaning, one.remedy)
            found.setdefault(key, FindingOfRuns(one, [])).seen.append((run, one.seen))
    return list(found.values()), problems


def _video(run: RunReport, record: RecordRun) -> VideoOfRun:
    """Return the video of a run, or the reason why there is none."""
    try:
        recording = record(run.folder)
    except Exception as error:  # an environment may raise any exception
        # the user has not typed the option of an OptionError
        text = error.problem if isinstance(error, OptionError) else error
        reason = one_line(text) if isinstance(error, ValueError) else error_line(error)
        return VideoOfRun(run, '', f'No video: {reason}')
    size = len(recording.content)
    if size > MAX_VIDEO_BYTES:
        limit = f'{MAX_VIDEO_BYTES / 1e6:.0f} MB'
        return VideoOfRun(run, '', f'The video is left out: it has {size / 1e6:.1f} MB, and the limit is {limit}.')
    data = base64.b64encode(recording.content).decode()
    return VideoOfRun(run, f'data:video/mp4;base64,{data}', recording.caption)


def _population(folder: Path, index: int) -> PopulationReport:
    """Return a population with the chart of its lineage."""
    try:
        population = read_population(folder)
        if not population.rounds:
            return PopulationReport(folder, population, None, 'No round is complete yet.')
        n_settings = min(len(population.rounds[-1][0].settings), 3)

        def describe() -> str:
            members, best = population.rounds[-1], population.best()
            score = '' if members[best].score is None else f', with a score of {members[best].score:.2f}'
            return f'Scores and settings of {len(members)} members over the rounds. The best is member {best}{score}.'

        def draw(figure: Figure) -> None:
            draw_lineage(folder, '', figure)

        chart = make_chart(draw, f'lineage-{index}', 'Lineage', describe, 0.8 + 0.4 * n_settings)
        return PopulationReport(folder, population, chart, '')
    except (ValueError, KeyError, TypeError) as error:
        return PopulationReport(folder, None, None, one_line(error))


def _study(trials: StudyTrials, index: int) -> StudyReport:
    """Return a study with the chart of its trials."""
    rows = trials.ranked()
    states: dict[str, int] = {}
    for row in rows:
        states[row['state']] = states.get(row['state'], 0) + 1
    counts = ', '.join(f'{n} {state}' for state, n in states.items())
    values, pruned = finite_values(rows, 'complete'), finite_values(rows, 'pruned')
    if not values:
        return StudyReport(trials, rows[:MAX_TRIALS], counts, None, 'No trial is complete.')
    last = max(row['number'] for row in rows if row['state'] in ('complete', 'pruned', 'failed'))

    def describe() -> str:
        best = max(values, key=lambda number: values[number])
        return f'Value of each trial. The best is trial {best} with {values[best]:.6g}.'

    def draw(figure: Figure) -> None:
        draw_trials(figure.subplots(), values, pruned, last, trials.objective)

    chart = make_chart(draw, f'trials-{index}', 'Trials', describe)
    return StudyReport(trials, rows[:MAX_TRIALS], counts, chart, '')
