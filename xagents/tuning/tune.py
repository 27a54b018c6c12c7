"""`xagents tune`: check the options, open the study, and run its trials with a `TrialRunner`."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import optuna

from xagents.options.errors import OptionError
from xagents.processes.launch import open_launch
from xagents.processes.process_pool import MAX_EARLY_EXITS, ProcessPool
from xagents.system.interruption import Interruption
from xagents.system.paths import check_folder
from xagents.tuning.plan import TuningError, TuningPlan, plan
from xagents.tuning.storages import check_storage, one_line_errors, open_storage, silence_optuna
from xagents.tuning.studies import make_pruner, make_sampler, open_study
from xagents.tuning.summary import opening_line, print_summary
from xagents.tuning.trial_runner import POLL_SECONDS, TrialRunner
from xagents.tuning.trial_table import TrialTable
from xagents.tuning.worker import REPORTS

if TYPE_CHECKING:
    from xagents.options.keywords import TuneKeywords


# the compiled programs of each trial take about 30 MB in a worker
MAX_JOBS_PER_WORKER = 50


class SettingsError(ValueError):
    """Settings that a worker cannot use, if the error names no option."""


def tune(agent_id: str, env: str | None = None, **options: Unpack[TuneKeywords]) -> optuna.Study:
    """Search for the settings with which an agent learns best.

    Args:
        agent_id: id of the agent, see `xagents.agents`.
        env: id of the environment.
        options: options of `xagents tune` by name. An option with a search type has one value, which is fixed, or a
            list of values: two bounds for the types `int` and `log_uniform`, choices for `categorical`.

    Returns:
        The study of Optuna, with `best_params`, `best_value` and `trials`.

    Raises:
        OptionError, SettingsError: if an option or a setting is not valid.
        TuningError: if no trial was completed.
        KeyboardInterrupt: after Ctrl-C; finished trials are saved.
    """
    given = with_env(env, options, 'trials run')
    if 'print_search' in given:
        raise OptionError('print_search', 'is only for the command line; in Python use xagents.tuning.plan.search_page')
    return run_study(plan(agent_id, given))


def with_env(env: str | None, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the options with the environment; raise OptionError unless it is an id, because workers create it."""
    given = dict(options) if env is None else {'env': env, **options}
    if not isinstance(given.get('env'), str):
        problem = f'got {given.get("env")!r}, expected a Gymnasium id: {what} in other processes'
        raise OptionError('env', problem)
    return given


def run_study(planned: TuningPlan, command: str = '') -> optuna.Study:
    """Run the planned trials and return the study. `command` is the shell command, for the line on how to resume."""
    settings, seed = planned.tune, planned.process_options.get('seed')
    silence_optuna()
    check_storage(settings.storage)
    if settings.out:
        check_folder('out', settings.out)
    sampler = make_sampler(settings.sampler, secrets.randbits(32) if seed is None else seed)
    pruner = make_pruner(settings.pruner, settings.warmup_trials, REPORTS * settings.trial_seeds)
    total = settings.n_trials if planned.has_trial_limit else None
    jobs = min(settings.n_jobs, total or settings.n_jobs)
    deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
    with Interruption.guard() as interruption, contextlib.ExitStack() as stack:
        workers = stack.enter_context(open_workers(planned, jobs))
        check_settings(planned, workers, interruption, deadline)
        stack.enter_context(one_line_errors(settings.storage))
        study = open_study(planned, open_storage(settings.storage), sampler, pruner)
        live = False if settings.non_silent else None
        table = TrialTable(total, jobs, bool(planned.process_options.get('quiet')), live)
        stack.callback(table.close)
        for line in (planned.source_line, planned.warning, opening_line(planned, study)):
            table.say(line)
        runner = TrialRunner(planned, study, workers, table, total, deadline, seed)
        try:
            runner.run_trials()
        finally:
            runner.release_trials()
    print_summary(runner, command)
    interruption.exit()
    return study


@contextlib.contextmanager
def open_workers(planned: TuningPlan, n: int) -> Iterator[ProcessPool]:
    """Start the worker processes of a call inside a `with` block. Ray starts them if `--cluster` names it."""
    settings, threads = planned.tune, planned.process_options.get('threads') or 1
    with open_launch(settings.cluster, threads) as launch:
        command = ['xagents.tuning.worker', str(threads)]
        stderr = None if settings.non_silent else subprocess.PIPE
        workers = ProcessPool(command, n, launch=launch, stderr=stderr, max_jobs=MAX_JOBS_PER_WORKER, error=TuningError)
        with contextlib.closing(workers):
            yield workers


def check_settings(
    planned: TuningPlan, workers: ProcessPool, interruption: Interruption, deadline: float | None = None
) -> None:
    """Check the settings in a worker before anything is written.

    The worker creates the agent of the first trial, and one agent with each searched switch turned on.

    Raises:
        OptionError, SettingsError: if the settings are not valid.
        TuningError: if the settings cannot be checked.
    """
    deaths, seed = 0, planned.process_options.get('seed') or 0
    waiting = [planned.job(0, settings, seed) for settings in planned.settings_to_check()]
    n_checks = len(waiting)
    while True:
        if interruption.signal:
            print('Interrupted before the first trial')
            interruption.exit()
        if deadline is not None and time.monotonic() >= deadline:
            raise TuningError('the time was over before the first trial: increase --timeout')
        answer = workers.receive(POLL_SECONDS)
        if answer is None:
            continue
        worker, message = answer
        if message is None:
            reason, deaths = workers.replace_ended(worker), deaths + 1
            if deaths >= MAX_EARLY_EXITS:
                raise TuningError(f'its worker died ({reason})')
        elif message['kind'] == 'ready' and not any(other.job for other in workers.processes):
            worker.start('check', waiting[0])
        elif message['kind'] == 'refused':
            if message['name']:
                raise OptionError(message['name'], message['reason'])
            raise SettingsError(message['reason'])
        elif message['kind'] == 'checked':
            worker.job = None
            if len(waiting) == n_checks:  # the settings of the first trial
                for line in message['notices']:
                    print(line, flush=True)
            waiting.pop(0)
            if not waiting:
                return
            worker.start('check', waiting[0])
