"""`xagents report`: a page about runs. The page is in `reports`; this module gives it what higher layers contain."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from xagents.options.commands import PlayOptions, ReportOptions
from xagents.options.errors import GivenOptions, OptionError, as_input_errors, did_you_mean, format_value
from xagents.options.runs import RunOptions
from xagents.reports.report_page import Recording, save_report
from xagents.reports.trials import StudyTrials

if TYPE_CHECKING:
    from xagents.doctor.finding import Finding


def report(folders: list[str], given: GivenOptions, line: str) -> None:
    """Write a page about runs."""
    options = ReportOptions.resolve(given)
    with as_input_errors():
        studies = [_read_study(options.storage, options.study)] if options.storage else []
        record = record_best if options.video else None
        out = save_report(folders, options.out, studies=studies, check=_check_run, record=record, command=line)
    print(f'Report saved to {out}')


def _check_run(folder: Path) -> tuple[list[Finding], str]:
    """Return the findings about a run, and why its policy was not checked; an empty text if it was."""
    from xagents.doctor.run import findings_of
    from xagents.doctor.run_data import read_run_data

    run = read_run_data(folder)
    return findings_of(run), run.sample_problem


def _read_study(url: str, name: str | None) -> StudyTrials:
    """Return a study in a storage; raise OptionError if it does not exist."""
    import optuna

    from xagents.tuning.storages import one_line_errors, open_storage
    from xagents.tuning.summary import study_trials

    storage = open_storage(url, create=False)
    with one_line_errors(url):
        names = optuna.get_all_study_names(storage)
        if name is None and len(names) != 1:
            got = 'got nothing, but the storage has ' + (f'the studies {", ".join(names)}' if names else 'no study')
            raise OptionError('study', f'{got}, expected one of them' if names else got)
        if name is not None and name not in names:
            admitted = ', '.join(names) or 'a study, but the storage has none'
            problem = f'got {format_value(name)}, expected {admitted}{did_you_mean(name, names)}'
            raise OptionError('study', problem)
        return study_trials(optuna.load_study(study_name=name or names[0], storage=storage))


def record_best(folder: Path) -> Recording:
    """Return a video of the best policy of a run: its newest video, or a greedy episode that is played now.

    Raises:
        ValueError: if the environment draws no pictures or cannot be made, or the run has no checkpoint.
        Exception: what the environment raises.
    """
    from xagents.evaluation.videos import MAX_VIDEO_STEPS

    recorded = sorted((folder / 'videos').glob('step-*.mp4'))
    if recorded:
        steps = int(recorded[-1].stem.partition('-')[2])
        return Recording(recorded[-1].read_bytes(), f'a greedy episode during training, at step {steps:,}')

    from xagents.cli.agent_commands import open_player
    from xagents.config.configuration import agent_in_file, settings_file

    agent_id = agent_in_file(settings_file(folder)) or ''
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        with open_player(agent_id, {'run_dir': str(folder)}, PlayOptions, RunOptions) as player:
            reward = player.play(video_dir=place, max_steps=MAX_VIDEO_STEPS)
        (video,) = Path(place).glob('*.mp4')
        return Recording(video.read_bytes(), f'a greedy episode with the reward {reward:.6g}')
