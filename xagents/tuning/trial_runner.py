"""The main loop of `xagents tune`: get trials from the study, run them in workers, and report results to the study."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from xagents.processes.child_process import ManagedProcess
from xagents.processes.process_pool import ProcessMessage, ProcessPool
from xagents.system.interruption import Interruption
from xagents.tuning import ownership
from xagents.tuning.plan import TuningPlan
from xagents.tuning.studies import best_trial
from xagents.tuning.trial_table import TrialTable

POLL_SECONDS = 0.25
STATES = {'done': TrialState.COMPLETE, 'pruned': TrialState.PRUNED, 'failed': TrialState.FAIL}


@dataclass
class TrialRunner:
    """The trials of one call of `tune`."""

    plan: TuningPlan
    study: optuna.Study
    workers: ProcessPool
    table: TrialTable
    total: int | None  # trials to finish; None if only the time is limited
    deadline: float | None  # end of the call on the monotonic clock (s)
    seed: int | None  # seed of all trials; None for a random seed for each trial
    finished: int = 0
    running: dict[int, optuna.Trial] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    last_heartbeat: float = 0.0
    ending: str = 'Finished'

    def run_trials(self) -> None:
        """Run trials until enough are finished, the time is over or a signal arrives."""
        while self.needs_trial or self.running:
            if Interruption.requested():
                self.ending = 'Interrupted'
                return
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.ending = 'Time is over'
                return
            self.send_heartbeats()
            for worker in self.workers.idle:
                if self.needs_trial:
                    self.start_trial(worker)
            answer = self.workers.receive(POLL_SECONDS)
            if answer is not None:
                self.handle_message(*answer)

    @property
    def needs_trial(self) -> bool:
        """Whether to start another trial."""
        return self.total is None or self.finished + len(self.running) < self.total

    def send_heartbeats(self) -> None:
        """Every ten seconds, update the heartbeats of running trials, and queue the trials of dead processes."""
        if time.monotonic() - self.last_heartbeat < ownership.HEARTBEAT_SECONDS:
            return
        for trial in list(self.running.values()):
            with self.drop_if_taken_over(trial.number):
                trial.set_user_attr('beat', time.time())
        ownership.requeue_abandoned(self.study, self.running)
        self.last_heartbeat = time.monotonic()

    def start_trial(self, worker: ManagedProcess) -> None:
        """Get a trial from the study and start it in a worker."""
        try:
            trial = self.study.ask({name: r.distribution() for name, r in self.plan.ranges.items()})
            seed = ownership.claim(trial, self.seed)
        except UpdateFinishedTrialError:  # sampling took so long that another call has taken over the trial
            return
        self.running[trial.number], self.started[trial.number] = trial, time.monotonic()
        self.table.started(trial.number, trial.params)
        worker.start('trial', self.plan.job(trial.number, trial.params, seed))

    def handle_message(self, worker: ManagedProcess, message: ProcessMessage | None) -> None:
        """Handle a message of a worker, or its death."""
        if message is None:
            self.handle_death(worker)
        elif message['kind'] == 'report':
            worker.send(prune=self.report(worker, message))
        elif message['kind'] in STATES:
            self.finish_trial(worker, message)

    def report(self, worker: ManagedProcess, message: ProcessMessage) -> bool:
        """Report the value of a running trial to the study; return whether to prune the trial."""
        assert worker.job is not None
        trial, value = self.running[worker.job.number], message['value']
        self.table.progressed(trial.number, message['done'], value)
        if value is None:
            return False
        with self.drop_if_taken_over(trial.number):
            trial.report(value, message['part'])
            return bool(trial.should_prune())  # JSON has no bool of NumPy
        return True

    def finish_trial(self, worker: ManagedProcess, message: ProcessMessage) -> None:
        """Report the result of a trial to the study."""
        assert worker.job is not None
        trial, reason = self.running[worker.job.number], message.get('reason', '')
        self.workers.finish_job(worker)
        state = STATES[message['kind']]
        with self.drop_if_taken_over(trial.number):
            if reason:
                trial.set_user_attr('reason', reason)
            # Optuna sets the value of a pruned trial to its last report
            finished_trial = self.study.tell(trial, message.get('value'), state=state, skip_if_finished=True)
            if finished_trial.state != state:
                raise UpdateFinishedTrialError
            self.finished += 1
            self.remove_trial(trial.number, state.name.lower().replace('fail', 'failed'), finished_trial.value, reason)

    def handle_death(self, worker: ManagedProcess) -> None:
        """Fail the trial of a dead worker, queue its settings, and start another worker."""
        reason, job = f'its worker died ({self.workers.replace_ended(worker)})', worker.job
        if job is None:
            return
        trial = self.running[job.number]
        with self.drop_if_taken_over(trial.number):
            trial.set_user_attr('killed', reason)
            # after the last attempt the trial counts as finished
            last = trial.user_attrs.get('attempt', 1) >= ownership.MAX_ATTEMPTS
            ownership.fail_and_requeue(self.study, trial.number)
            self.finished += last
            self.remove_trial(trial.number, 'failed' if last else 'killed', None, reason)

    @contextlib.contextmanager
    def drop_if_taken_over(self, number: int) -> Iterator[None]:
        """Drop a trial if another call has taken it over because the heartbeats of this call were late."""
        try:
            yield
        except UpdateFinishedTrialError:
            for worker in [w for w in self.workers.processes if w.job is not None and w.job.number == number]:
                self.workers.replace(worker)
            self.remove_trial(number, 'killed', None, 'another call has taken it over')

    def remove_trial(self, number: int, state: str, value: float | None, reason: str) -> None:
        """Remove a trial from the running ones, and show its result."""
        del self.running[number]
        seconds = time.monotonic() - self.started.pop(number)
        best = best_trial(self.study)
        shown = None if best is None or best.value is None else (best.number, best.value)
        self.table.finished(number, state, value, shown, seconds, reason)

    def release_trials(self) -> None:
        """Fail and queue the running trials and the trials of dead processes, so that another call can run them."""
        for number in list(self.running):
            with self.drop_if_taken_over(number):
                self.running[number].set_user_attr('killed', 'the call ended')
                ownership.fail_and_requeue(self.study, number)
                self.remove_trial(number, 'killed', None, 'the call ended')
        ownership.requeue_abandoned(self.study, ())
