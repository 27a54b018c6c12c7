"""`xagents tune`: checks what was asked, opens the study, and lets a `TrialRunner` run its trials."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import Any

import optuna

from xagents.options.errors import OptionError
from xagents.system.interruption import Interruption
from xagents.system.paths import check_folder
from xagents.tuning.plan import TuningPlan, plan
from xagents.tuning.process_pool import MAX_EARLY_EXITS, ProcessPool, TuningError
from xagents.tuning.storages import check_storage, one_line_errors, open_storage, silence_optuna
from xagents.tuning.studies import make_pruner, make_sampler, open_study
from xagents.tuning.summary import opening_line, print_summary
from xagents.tuning.trial_runner import POLL_SECONDS, TrialRunner
from xagents.tuning.trial_table import TrialTable
from xagents.tuning.worker import REPORTS


class SettingsError(ValueError):
    """Settings that a worker refuses without naming one option."""


def tune(agent_id: str, env: str | None = None, **options: Any) -> optuna.Study:
    """Search the settings with which an agent learns best.

    Args:
        agent_id: as `xagents.agents` names it.
        env: an environment's id.
        options: those of `xagents tune` by name. An option with a search type takes one value, which is fixed, or a
            list: of two bounds where it is searched as `int` or `log_uniform`, of choices where as `categorical`.

    Returns:
        Optuna's study: `best_params`, `best_value`, `trials`.

    Raises:
        OptionError, SettingsError: for what is wrong with the input.
        TuningError: where no trial could be completed.
        KeyboardInterrupt: after a Ctrl-C; what was finished is kept.
    """
    given = with_env(env, options, 'trials run')
    if 'print_search' in given:
        raise OptionError('print_search', 'is for the command line; in Python see xagents.tuning.plan.search_page')
    return run_study(plan(agent_id, given))


def with_env(env: str | None, options: dict[str, Any], what: str) -> dict[str, Any]:
    """Return options with the environment, which other processes make; OptionError where it is no id."""
    given = dict(options) if env is None else {'env': env, **options}
    if not isinstance(given.get('env'), str):
        problem = f"got {given.get('env')!r}, expected an id of Gymnasium's: {what} in other processes"
        raise OptionError('env', problem)
    return given


def run_study(planned: TuningPlan, command: str = '') -> optuna.Study:
    """Do what was planned; `command` is what was typed, for the line that says how to go on."""
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
    workers = ProcessPool(jobs, planned.process_options.get('threads'), silent=not settings.non_silent)
    with Interruption.guard() as interruption, contextlib.ExitStack() as stack:
        stack.callback(workers.end)
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


def check_settings(
    planned: TuningPlan, workers: ProcessPool, interruption: Interruption, deadline: float | None = None
) -> None:
    """Let a worker make the first trial's agent, and one with each switch on, before anything is written.

    OptionError or SettingsError say what is wrong with the settings, TuningError why that could not be found out.
    """
    deaths, waiting = (
        0,
        [planned.job(0, each, planned.process_options.get('seed') or 0) for each in planned.settings_to_check()],
    )
    while True:
        if interruption.signal:
            print('Interrupted before the first trial')
            interruption.exit()
        if deadline is not None and time.monotonic() >= deadline:
            raise TuningError('time was over before the first trial: give more --timeout')
        answer = workers.receive(POLL_SECONDS)
        if answer is None:
            continue
        worker, message = answer
        if message is None:
            reason, deaths = worker.exit_reason(), deaths + 1
            workers.replace(worker)
            if deaths >= MAX_EARLY_EXITS:
                raise TuningError(reason)
        elif message['kind'] == 'ready' and not any(other.job for other in workers.processes):
            worker.start('check', waiting[0])
        elif message['kind'] == 'refused':
            if message['name']:
                raise OptionError(message['name'], message['reason'])
            raise SettingsError(message['reason'])
        elif message['kind'] == 'checked':
            worker.job = None
            waiting.pop(0)
            if not waiting:
                return
            worker.start('check', waiting[0])
