"""The contents of a report on runs: runs by setting, evaluations, differing options, times, versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.config.configuration import read_about, train_options
from xagents.logs.console import PHASES, phase_seconds
from xagents.logs.metrics import STEPS, read_metrics
from xagents.options.errors import one_line
from xagents.reports.curves import EVALUATED, METRICS
from xagents.reports.population_files import is_population
from xagents.reports.runs_page import RunSummary, finite_number, group_settings, read_run
from xagents.reports.search import FoundRuns, find_runs
from xagents.reports.statistics import PER_RUN_OPTIONS, Summary, summarise, varying_options
from xagents.system.file_names import CONFIG
from xagents.system.pages import format_option_value
from xagents.system.values import to_plain_value

if TYPE_CHECKING:
    import pandas as pd

# phases of an iteration whose seconds are metrics, in the order of the console
MEASURED_PHASES = {name: title for name, title in PHASES.items() if name != 'rest'}
MAX_EVALUATIONS = 40  # longer lists of evaluations of a run are thinned


class Evaluation(NamedTuple):
    """One evaluation of a run: environment steps, mean and standard deviation of the rewards, mean episode length."""

    steps: int
    mean: float
    std: float
    length: float


class RunReport(NamedTuple):
    """A run in a report.

    Attributes:
        summary: its options and status.
        evaluations: its evaluations in the order of their steps.
        phases: seconds of each measured phase, over the iterations in the metrics, by the names of `MEASURED_PHASES`.
        speed: median of the metric `steps_per_second`; None if unknown.
        about: command, time and versions of the run.
        problem: why the metrics cannot be read; empty if they can.
    """

    summary: RunSummary
    evaluations: Sequence[Evaluation]
    phases: Mapping[str, float]
    speed: float | None
    about: Mapping[str, Any]
    problem: str = ''

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self.summary.folder

    @property
    def score(self) -> float | None:
        """The best mean reward."""
        return finite_number(self.summary, 'best_reward')

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The evaluation with the best mean."""
        return max(self.evaluations, key=lambda one: one.mean, default=None)

    @property
    def shown_evaluations(self) -> list[Evaluation]:
        """At most `MAX_EVALUATIONS` evaluations, always with the first, the best and the last."""
        n = len(self.evaluations)
        if n <= MAX_EVALUATIONS:
            return list(self.evaluations)
        chosen = {*np.linspace(0, n - 1, MAX_EVALUATIONS - 1).round().astype(int).tolist()}
        chosen.add(int(np.argmax([one.mean for one in self.evaluations])))
        return [self.evaluations[index] for index in sorted(chosen)]

    @property
    def total_speed(self) -> float | None:
        """Steps per second of the whole run; None if unknown."""
        steps, seconds = (finite_number(self.summary, name) for name in ('steps', 'seconds'))
        return steps / seconds if steps and seconds else None


class SettingReport(NamedTuple):
    """The runs of one setting: a single run, or the runs of a group that differ only in their seeds.

    Attributes:
        label: name of the setting in the report.
        runs: its runs.
    """

    label: str
    runs: Sequence[RunReport]

    def summarise(self, scores: Iterable[float | None]) -> Summary | None:
        """Return the statistics of the known scores; None if there is none."""
        known = [score for score in scores if score is not None and np.isfinite(score)]
        return summarise(known) if known else None

    @property
    def best_reward(self) -> Summary | None:
        """The statistics of the best mean rewards."""
        return self.summarise(run.score for run in self.runs)

    @property
    def mean_reward(self) -> Summary | None:
        """The statistics of the last mean rewards."""
        return self.summarise(finite_number(run.summary, 'mean_reward') for run in self.runs)

    @property
    def best_evaluation(self) -> Summary | None:
        """The statistics of the means of the best evaluations."""
        return self.summarise(None if one is None else one.mean for one in (r.best_evaluation for r in self.runs))

    @property
    def last_evaluation(self) -> Summary | None:
        """The statistics of the means of the last evaluations."""
        return self.summarise(run.evaluations[-1].mean if run.evaluations else None for run in self.runs)

    @property
    def shares(self) -> dict[str, float]:
        """The share of each measured phase in percent, over all runs; empty if nothing is known."""
        seconds = {name: sum(run.phases.get(name, 0.0) for run in self.runs) for name in MEASURED_PHASES}
        total = sum(seconds.values())
        return {name: 100 * spent / total for name, spent in seconds.items() if spent} if total else {}

    def mean_of(self, attribute: str) -> float | None:
        """Return the mean of a number of the runs, `speed` or `total_speed`; None if no run has it."""
        known = [value for run in self.runs if (value := getattr(run, attribute)) is not None]
        return sum(known) / len(known) if known else None


class ReportGroup(NamedTuple):
    """A group of runs, the members of a population, or a single run.

    Attributes:
        found: its folder and runs.
        is_population: whether the runs are the members of a population.
        settings: its settings.
    """

    found: FoundRuns
    is_population: bool
    settings: Sequence[SettingReport]

    @property
    def runs(self) -> list[RunReport]:
        """All runs in the order of their folders."""
        known = {run.folder: run for setting in self.settings for run in setting.runs}
        return [known[folder] for folder in self.found.runs if folder in known]


def read_groups(folders: Sequence[Any]) -> list[ReportGroup]:
    """Read the runs in some folders.

    Raises:
        ValueError: if a folder is missing or contains no run.
    """
    found = _join_members(find_runs(folders))
    several = len(found) > 1
    groups = []
    for one, is_members in found:
        runs = {run: _read(run) for run in one.runs}
        settings: dict[str, list[RunReport]] = {}
        if one.is_group and not is_members:
            for label, members in group_settings([run.summary for run in runs.values()]).items():
                settings[label] = [runs[summary.folder] for summary in members]
        else:
            settings = {folder.name if is_members else '': [run] for folder, run in runs.items()}
        unreadable = [run for run in runs.values() if not any(run in members for members in settings.values())]
        settings |= {run.folder.name: [run] for run in unreadable}
        named = [
            SettingReport(_label(one.folder, label, several or not one.is_group), members)
            for label, members in settings.items()
        ]
        groups.append(ReportGroup(one, is_members, named))
    return groups


def _label(folder: Path, label: str, needs_folder: bool) -> str:
    return ', '.join(filter(None, [str(folder) if needs_folder else '', label])) or 'all seeds'


def _join_members(found: Sequence[FoundRuns]) -> list[tuple[FoundRuns, bool]]:
    """Join the members of each population, which are single runs, to a group; the flag marks such a group."""
    joined: list[tuple[FoundRuns, bool]] = []
    for population, runs in itertools.groupby(found, _population_of):
        if population is None:
            joined += [(one, False) for one in runs]
        else:
            members = tuple(run for one in runs for run in one.runs)
            joined.append((FoundRuns(population, members, True), True))
    return joined


def _population_of(found: FoundRuns) -> Path | None:
    """Return the folder of the population to which a single run belongs, or None."""
    above = found.folder.parent.parent
    return above if not found.is_group and found.folder.parent != above and is_population(above) else None


def _read(folder: Path) -> RunReport:
    """Read a run; what cannot be read is left out."""
    summary, about, problem = read_run(folder), {}, ''
    frame: pd.DataFrame | None = None
    try:
        about = read_about(folder / CONFIG)
        if (folder / METRICS).exists():
            frame = read_metrics(folder / METRICS)
    except (OSError, ValueError) as error:
        problem = one_line(error)
    if frame is None or not len(frame):
        return RunReport(summary, (), {}, None, about, problem)
    speeds = _finite(frame, 'steps_per_second')
    return RunReport(
        summary,
        _evaluations(frame),
        phase_seconds(frame),
        float(np.median(speeds)) if len(speeds) else None,
        about,
        problem,
    )


def _finite(frame: pd.DataFrame, column: str) -> np.ndarray:
    values = frame[column].to_numpy(float) if column in frame.columns else np.empty(0)
    return values[np.isfinite(values)]


def _evaluations(frame: pd.DataFrame) -> list[Evaluation]:
    if EVALUATED not in frame.columns:
        return []
    rows = frame[np.isfinite(frame[EVALUATED])]
    # the results of --eval-async are applied later than the step of their weights
    steps = rows['evaluate/steps'].fillna(rows[STEPS]) if 'evaluate/steps' in rows.columns else rows[STEPS]
    columns = [
        rows[name] if name in rows.columns else rows[STEPS] * np.nan for name in ('evaluate/std', 'evaluate/length')
    ]
    values = zip(steps, rows[EVALUATED], *columns, strict=True)
    return [Evaluation(int(step), float(mean), float(std), float(length)) for step, mean, std, length in values]


def best_runs(runs: Sequence[RunReport]) -> list[RunReport]:
    """Return the run with the best mean reward in each environment; scores of two environments are not compared."""
    best: dict[str, RunReport] = {}
    for run in runs:
        env = str(run.summary.config.get('env'))
        if run.summary.config and (env not in best or _rank(run) > _rank(best[env])):
            best[env] = run
    return list(best.values())


def _rank(run: RunReport) -> float:
    return -np.inf if run.score is None else run.score


class OptionTable(NamedTuple):
    """Options and their values: one row per option.

    Attributes:
        columns: titles of the columns.
        rows: the option and its value in each column, as text.
        note: what the table compares, or why it is empty.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    note: str


def compare_options(settings: Sequence[SettingReport]) -> OptionTable:
    """Return the options in which settings differ; for one setting, those that differ from the defaults."""
    known = [(one.label, one.runs[0].summary.config) for one in settings if one.runs[0].summary.config]
    if not known:
        return OptionTable((), (), 'No settings can be read.')
    if len(known) == 1:
        return _changed_options(*known[0])
    names = varying_options([config for _, config in known])
    rows = [(_flag(name), [format_option_value(config.get(name)) for _, config in known]) for name in names]
    note = 'The settings differ in these options.' if rows else 'The settings differ only in seeds and paths.'
    return OptionTable([label for label, _ in known], rows, note)


def _changed_options(label: str, config: Mapping[str, Any]) -> OptionTable:
    """Return the options of a run that differ from the defaults of its agent."""
    agent = config.get('agent')
    try:
        defaults = {name: to_plain_value(option.default) for name, option in train_options(str(agent)).items()}
    except Exception as error:  # an agent of the user, whose module may raise any exception
        return OptionTable((), (), f'The defaults of the agent {agent} are unknown here ({one_line(error)}).')
    # the environment is in the table of the runs; the number of threads is chosen by the process
    skipped = {*PER_RUN_OPTIONS, 'agent', 'env', 'threads'}
    changed = [name for name, value in config.items() if name not in skipped and value != defaults.get(name)]
    values = [(name, config.get(name), defaults.get(name)) for name in changed]
    rows = [(_flag(name), [format_option_value(own), format_option_value(default)]) for name, own, default in values]
    return OptionTable([label, 'default'], rows, f'Options that differ from the defaults of {agent}.')


def _flag(name: str) -> str:
    return f'--{name.replace("_", "-")}'


def run_versions(runs: Sequence[RunReport]) -> list[tuple[Mapping[str, str], list[RunReport]]]:
    """Return the distinct sets of versions that runs have recorded at their last start, and the runs of each set."""
    sets: list[tuple[Mapping[str, str], list[RunReport]]] = []
    for run in runs:
        recorded = _last_versions(run.about)
        for versions, members in sets:
            if versions == recorded:
                members.append(run)
                break
        else:
            sets.append((recorded, [run]))
    return sets


def _last_versions(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the last start in the section `about`."""
    resumed = about.get('resumed')
    last = resumed[-1] if isinstance(resumed, list) and resumed and isinstance(resumed[-1], dict) else about
    versions = last.get('versions')
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}
