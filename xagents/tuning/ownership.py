"""Who runs a trial. A trial that nobody runs any more is failed, and another one of the same settings takes its place.

A trial's attributes say who runs it (`host`, `pid`, `process_started`) and when that was last heard of (`beat`). So any
later call can tell a trial that goes on from one whose process is dead.
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
# without a beat for so long a trial of another host is abandoned
ABANDONED_SECONDS = 60.0
# within which a new trial says who runs it
CLAIM_SECONDS = 5.0
# how often the same settings are tried where their process dies each time
MAX_ATTEMPTS = 10


@functools.cache
def process_identity() -> dict[str, Any]:
    """Return the attributes that say who runs a trial, for this process."""
    pid = os.getpid()
    return {'host': socket.gethostname(), 'pid': pid, 'process_started': psutil.Process(pid).create_time()}


def claim(trial: Trial, seed: int | None) -> int:
    """Note on a trial when its runs began, and their seed, which is returned."""
    trial.set_user_attr('started', datetime.now().astimezone().isoformat(timespec='seconds'))
    if seed is None:
        # a trial that is tried again has its seed already
        seed = trial.user_attrs.get('seed', secrets.randbits(32))
    trial.set_user_attr('seed', seed)
    return int(seed)


def is_abandoned(trial: FrozenTrial) -> bool:
    """Return whether nobody runs a RUNNING trial any more.

    On this host we look whether its process lives; on another one it has to have a beat within `ABANDONED_SECONDS`.
    """
    attributes = trial.user_attrs
    if attributes.get('host') == socket.gethostname() and 'process_started' in attributes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(attributes['pid'])
            # a dead process's number may be given to another one, which began at another time
            same = abs(process.create_time() - attributes['process_started']) < 1.0
            return not same or process.status() == psutil.STATUS_ZOMBIE
        return True
    begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
    patience = ABANDONED_SECONDS if 'beat' in attributes else CLAIM_SECONDS
    return time.time() - attributes.get('beat', begun) > patience


def fail_and_requeue(study: optuna.Study, number: int) -> bool:
    """Fail a trial that nobody runs any more, and queue its settings; of several callers one does, and gets True."""
    try:
        study.tell(number, state=TrialState.FAIL)
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
        return False
    _requeue(study, study.trials[number])
    return True


def requeue_abandoned(study: optuna.Study, own_trials: Iterable[int]) -> list[int]:
    """End trials that dead processes left RUNNING and return their numbers; `own_trials` run in this process."""
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get('retry_of') for trial in trials}
    for trial in trials:
        # whoever failed it died before it could be tried again; a trial that failed by itself has a reason
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
        # a trial that was broken off while its settings were chosen has those that were fixed beforehand
        parameters = {**trial.system_attrs.get('fixed_params', {}), **trial.params}
        study.enqueue_trial(parameters, {**seed_attribute, 'retry_of': trial.number, 'attempt': attempt + 1})
