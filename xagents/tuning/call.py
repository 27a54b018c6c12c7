"""The loop of a call of `xagents tune`: ask the study for trials, let workers run them, and tell it how they ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from xagents.system.interruption import Interruption
from xagents.tuning import ownership
from xagents.tuning.plan import Plan
from xagents.tuning.processes import STILLBORN, Message, TuningError, WorkerProcess, Workers
from xagents.tuning.studies import best_trial
from xagents.tuning.table import TrialTable

TICK_SECONDS = 0.25
STATES = {'done': TrialState.COMPLETE, 'pruned': TrialState.PRUNED, 'failed': TrialState.FAIL}


@dataclass
class Call:
    """One call of `tune` on its study."""

    plan: Plan
    study: optuna.Study
    workers: Workers
    table: TrialTable
    total: int | None  # trials to finish; None for as many as there is time for
    deadline: float | None  # when the call ends, on the monotonic clock
    seed: int | None  # of every trial; each has its own when not given
    finished: int = 0
    running: dict[int, optuna.Trial] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    beaten: float = 0.0
    ending: str = 'Finished'

    def go_on(self) -> None:
        """Run trials until there are enough, the time is over or a signal comes."""
        while self.wanted or self.running:
            if Interruption.requested():
                self.ending = 'Interrupted'
                return
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.ending = 'Time is over'
                return
            self.keep_alive()
            for worker in self.workers.idle:
                if self.wanted:
                    self.begin(worker)
            answer = self.workers.receive(TICK_SECONDS)
            if answer is not None:
                self.hear(*answer)

    @property
    def wanted(self) -> bool:
        """Whether to begin another trial."""
        return self.total is None or self.finished + len(self.running) < self.total

    def keep_alive(self) -> None:
        """Every ten seconds, mark the trials as alive, and take over those that dead processes have left."""
        if time.monotonic() - self.beaten < ownership.BEAT_SECONDS:
            return
        for trial in list(self.running.values()):
            with self.unless_lost(trial.number):
                trial.set_user_attr('beat', time.time())
        ownership.reap(self.study, self.running)
        self.beaten = time.monotonic()

    def begin(self, worker: WorkerProcess) -> None:
        """Ask the study for a trial and give it to a worker."""
        try:
            trial = self.study.ask({name: r.distribution() for name, r in self.plan.ranges.items()})
            seed = ownership.claim(trial, self.seed)
        except UpdateFinishedTrialError:  # choosing took so long that another call has taken it over
            return
        self.running[trial.number], self.started[trial.number] = trial, time.monotonic()
        self.table.started(trial.number, trial.params)
        worker.start('trial', self.plan.job(trial.number, trial.params, seed))

    def hear(self, worker: WorkerProcess, message: Message | None) -> None:
        """Take an answer of a worker, or its death."""
        if message is None:
            self.bury(worker)
        elif message['kind'] == 'report':
            worker.send({'prune': self.report(worker, message)})
        elif message['kind'] in STATES:
            self.end(worker, message)

    def report(self, worker: WorkerProcess, message: Message) -> bool:
        """Note how a trial stands; returns whether it is to stop."""
        assert worker.job is not None
        trial, value = self.running[worker.job.number], message['value']
        self.table.progressed(trial.number, message['done'], value)
        if value is None:
            return False
        with self.unless_lost(trial.number):
            trial.report(value, message['part'])
            return bool(trial.should_prune())  # JSON does not know NumPy's bool
        return True

    def end(self, worker: WorkerProcess, message: Message) -> None:
        """Tell the study how a trial ended."""
        assert worker.job is not None
        trial, reason = self.running[worker.job.number], message.get('reason', '')
        self.workers.relieve(worker)
        state = STATES[message['kind']]
        with self.unless_lost(trial.number):
            if reason:
                trial.set_user_attr('reason', reason)
            # the value of a pruned trial is the last that it reported: Optuna takes care of that
            told = self.study.tell(trial, message.get('value'), state=state, skip_if_finished=True)
            if told.state != state:
                raise UpdateFinishedTrialError
            self.finished += 1
            self.close(trial.number, state.name.lower().replace('fail', 'failed'), told.value, reason)

    def bury(self, worker: WorkerProcess) -> None:
        """Fail the trial of a dead worker, let it be tried again, and start another worker."""
        reason, job = worker.why_it_died(), worker.job
        self.workers.replace(worker)
        if self.workers.stillborn >= STILLBORN:
            raise TuningError(reason)
        if job is None:
            return
        trial = self.running[job.number]
        with self.unless_lost(trial.number):
            trial.set_user_attr('killed', reason)
            # after the last attempt it is a finished trial
            last = trial.user_attrs.get('attempt', 1) >= ownership.ATTEMPTS
            ownership.break_off(self.study, trial.number)
            self.finished += last
            self.close(trial.number, 'failed' if last else 'killed', None, reason)

    @contextlib.contextmanager
    def unless_lost(self, number: int) -> Iterator[None]:
        """Give a trial up if another call has taken it over, because this machine was not seen for a while."""
        try:
            yield
        except UpdateFinishedTrialError:
            for worker in [w for w in self.workers.all if w.job is not None and w.job.number == number]:
                self.workers.replace(worker)
            self.close(number, 'killed', None, 'another call has taken it over')

    def close(self, number: int, state: str, value: float | None, reason: str) -> None:
        """Take a trial off those that run, and show how it ended."""
        del self.running[number]
        seconds = time.monotonic() - self.started.pop(number)
        best = best_trial(self.study)
        shown = None if best is None or best.value is None else (best.number, best.value)
        self.table.finished(number, state, value, shown, seconds, reason)

    def leave(self) -> None:
        """Fail the trials that still run, for another call to try again, and those that a dead process has left."""
        for number in list(self.running):
            with self.unless_lost(number):
                self.running[number].set_user_attr('killed', 'the call ended')
                ownership.break_off(self.study, number)
                self.close(number, 'killed', None, 'the call ended')
        ownership.reap(self.study, ())
