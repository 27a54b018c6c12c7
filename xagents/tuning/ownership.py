"""Ownership of trials: if the process of a trial is dead, the trial fails, and its settings are queued for a new trial.

The attributes of a trial name its process (`host`, `pid`, `process_started`) and the time of its last heartbeat
(`beat`). With them, any later call can detect that the process of a trial is dead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import optuna
import psutil
from optuna.trial import FrozenTrial, Trial, TrialState

HEARTBEAT_SECONDS = 10.0
# a trial of another host is abandoned if its last heartbeat is older
ABANDONED_SECONDS = 60.0
# a new trial gets the attributes of its process within this time
CLAIM_SECONDS = 5.0
# maximal number of trials of the same settings if the process dies each time
MAX_ATTEMPTS = 10


@functools.cache
def process_identity() -> dict[str, Any]:
    """Return the attributes that name this process as the owner of a trial."""
    pid = os.getpid()
    return {'host': socket.gethostname(), 'pid': pid, 'process_started': psutil.Process(pid).create_time()}


def claim(trial: Trial, seed: int | None) -> int:
    """Set the start time and the seed as attributes of a trial, and return the seed."""
    trial.set_user_attr('started', datetime.now().astimezone().isoformat(timespec='seconds'))
    if seed is None:
        # a retried trial already has a seed
        seed = trial.user_attrs.get('seed', secrets.randbits(32))
    trial.set_user_attr('seed', seed)
    return int(seed)


def is_abandoned(trial: FrozenTrial) -> bool:
    """Return whether the process of a RUNNING trial is dead.

    A trial of this host is abandoned if its process has ended. A trial of another host is abandoned if it has had no
    heartbeat for `ABANDONED_SECONDS`.
    """
    attributes = trial.user_attrs
    if attributes.get('host') == socket.gethostname() and 'process_started' in attributes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(attributes['pid'])
            # another process with a different start time may have the pid of a dead one
            same = abs(process.create_time() - attributes['process_started']) < 1.0
            return not same or process.status() == psutil.STATUS_ZOMBIE
        return True
    begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
    patience = ABANDONED_SECONDS if 'beat' in attributes else CLAIM_SECONDS
    return time.time() - attributes.get('beat', begun) > patience


def fail_and_requeue(study: optuna.Study, number: int) -> bool:
    """Fail an abandoned trial and queue its settings. If several callers try, one succeeds and gets True."""
    try:
        study.tell(number, state=TrialState.FAIL)
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
        return False
    _requeue(study, study.trials[number])
    return True


def requeue_abandoned(study: optuna.Study, own_trials: Iterable[int]) -> list[int]:
    """Fail and queue the RUNNING trials of dead processes, and return their numbers.

    Args:
        study: the study.
        own_trials: numbers of the trials that this process runs.
    """
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get('retry_of') for trial in trials}
    for trial in trials:
        # the process that failed the trial died before it queued it; a trial that raised an error has a reason
        broken_off = trial.state == TrialState.FAIL and 'host' in trial.user_attrs and 'reason' not in trial.user_attrs
        ended = trial.datetime_complete
        long_ago = ended is not None and time.time() - ended.timestamp() > ABANDONED_SECONDS
        if broken_off and long_ago and trial.number not in retried:
            _requeue(study, trial)
    running = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number not in own_trials]
    return [trial.number for trial in running if is_abandoned(trial) and fail_and_requeue(study, trial.number)]


def _requeue(study: optuna.Study, trial: FrozenTrial) -> None:
    attributes = trial.user_attrs
    attempt = attributes.get('attempt', 1)
    if attempt < MAX_ATTEMPTS:
        seed_attribute = {'seed': attributes['seed']} if 'seed' in attributes else {}
        # a trial that was interrupted during sampling has only its enqueued parameters
        parameters = {**trial.system_attrs.get('fixed_params', {}), **trial.params}
        study.enqueue_trial(parameters, {**seed_attribute, 'retry_of': trial.number, 'attempt': attempt + 1})
