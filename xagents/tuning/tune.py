"""`xagents tune`: the parent asks a study for trials, lets workers run them, and tells the study how they ended."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xagents.options.declaration import flags_of
from xagents.options.errors import OptionError
from xagents.system.interruption import Interruption
from xagents.tuning.plan import Plan, plan
from xagents.tuning.worker import REPORTS

if TYPE_CHECKING:
    import optuna

    from xagents.tuning.processes import Message, WorkerProcess, Workers
    from xagents.tuning.table import TrialTable

TICK_SECONDS = 0.25
# workers that die in a row before they are ready
STILLBORN = 5


class SettingsError(ValueError):
    """Settings that a worker refuses without naming one option."""


class TuningError(RuntimeError):
    """A study that cannot go on, or has nothing to show."""


def tune(agent_id: str, env: str | None = None, **options: Any) -> optuna.Study:
    """Search the settings with which an agent learns best.

    Args:
        agent_id: as `xagents.agents` names it.
        env: an environment's id.
        options: those of `xagents tune` by name. An option with a search type takes one value, which is fixed, or a
            list: of two bounds where it is searched as `int` or `log_uniform`, of choices where as `categorical`.

    Returns:
        The study, as Optuna knows it: `best_params`, `best_value`, `trials`.

    Raises:
        OptionError, SettingsError: for what is wrong with the input.
        TuningError: where no trial could be completed.
        KeyboardInterrupt: after a Ctrl-C; what was finished is kept.
    """
    given = dict(options) if env is None else {'env': env, **options}
    if not isinstance(given.get('env'), str):
        raise OptionError(
            'env', f"got {given.get('env')!r}, admits an id of Gymnasium's: trials run in other processes"
        )
    if 'print_search' in given:
        raise OptionError('print_search', 'is for the command line; in Python see xagents.tuning_plan.search_page')
    return run(plan(agent_id, given))


def run(planned: Plan, command: str = '') -> optuna.Study:
    """Do what was planned; `command` is what was typed, for the line that says how to go on."""
    from xagents.tuning import studies
    from xagents.tuning.processes import Workers
    from xagents.tuning.report import check_out
    from xagents.tuning.storages import check_storage, open_storage
    from xagents.tuning.table import TrialTable

    settings = planned.tune
    studies.hush_optuna()
    check_storage(settings.storage)
    if settings.out:
        check_out(settings.out)
    quiet = bool(planned.aside.get('quiet'))
    seed = planned.aside.get('seed')
    sampler = studies.make_sampler(settings.sampler, studies.new_seed() if seed is None else seed)
    pruner = studies.make_pruner(settings.pruner, settings.warmup_trials, REPORTS * settings.trial_seeds)
    total = settings.n_trials if planned.limited else None
    count = min(settings.n_jobs, total or settings.n_jobs)
    deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
    workers = Workers(count, planned.aside.get('threads'), silent=not settings.non_silent)
    with Interruption.guard() as interruption, contextlib.ExitStack() as stack:
        stack.callback(workers.end)
        check_settings(planned, workers, interruption, deadline)
        stack.enter_context(one_line_errors(settings.storage))
        storage = open_storage(settings.storage)
        study = studies.open_study(
            planned.study_name, storage, planned.facts, planned.ranges, planned.first, sampler, pruner
        )
        table = TrialTable(total, count, quiet, live=False if settings.non_silent else None)
        stack.callback(table.close)
        table.say(planned.said)
        table.say(planned.warning)
        table.say(opening_line(planned, study))
        call = Call(planned, study, workers, table, total, deadline, seed)
        try:
            call.go_on()
        finally:
            call.leave()
    conclude(planned, study, call, command)
    interruption.exit()
    return study


@contextlib.contextmanager
def one_line_errors(storage: str | None) -> Iterator[None]:
    """Turn what a storage raises, now or in the midst of a study, into one line that names it."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    from xagents.tuning.storages import storage_error

    try:
        yield
    except (StorageInternalError, SQLAlchemyError, OSError) as error:
        raise storage_error(storage, error) from error


def check_settings(planned: Plan, workers: Workers, interruption: Interruption, deadline: float | None = None) -> None:
    """Let a worker make the first trial's agent, before anything is written.

    Raises:
        OptionError, SettingsError: for what is wrong with the settings.
        TuningError: where that could not be found out.
    """
    checked, deaths = False, 0
    while not checked:
        if interruption.signal:
            print('Interrupted before the first trial')
            interruption.exit()
        if deadline is not None and time.monotonic() >= deadline:
            raise TuningError('time was over before the first trial: give more --timeout')
        answer = workers.receive(TICK_SECONDS)
        if answer is None:
            continue
        worker, message = answer
        if message is None:
            reason, deaths = worker.why_it_died(), deaths + 1
            workers.replace(worker)
            if deaths >= STILLBORN:
                raise TuningError(reason)
        elif message['kind'] == 'ready' and not any(other.job for other in workers.all):
            worker.start('check', planned.job(0, planned.first, planned.aside.get('seed') or 0))
        elif message['kind'] == 'refused':
            if message['name']:
                raise OptionError(message['name'], message['reason'])
            raise SettingsError(message['reason'])
        elif message['kind'] == 'broken':
            raise TuningError(message['reason'])
        elif message['kind'] == 'checked':
            worker.job, checked = None, True


def opening_line(planned: Plan, study: optuna.Study) -> str:
    """Return what a call says first."""
    from xagents.tuning.storages import masked

    ended = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    where = f' in {masked(planned.tune.storage)}' if planned.tune.storage else ', in memory'
    begun = f'continued after {ended} trial{"s" * (ended != 1)}' if ended else 'new'
    nothing = '' if planned.ranges else '; nothing is searched: give an option several values, or --search'
    return f'Study {study.study_name}{where}: {begun}{nothing}'


@dataclass
class Call:
    """One call of `tune` on its study.

    Args:
        plan: what is to be done.
        study: where it is written.
        workers: who does it.
        table: where it is shown.
        total: trials to finish; None for as many as there is time for.
        deadline: when it ends, on the monotonic clock.
        seed: of every trial; each has its own when not given.
    """

    plan: Plan
    study: optuna.Study
    workers: Workers
    table: TrialTable
    total: int | None
    deadline: float | None
    seed: int | None
    finished: int = 0
    running: dict[int, optuna.Trial] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    beaten: float = 0.0
    best: tuple[int, float] | None = None
    ending: str = 'Finished'

    def go_on(self) -> None:
        """Run trials until there are enough, the time is over or somebody interrupts."""
        from xagents.tuning import studies

        best = studies.best_trial(self.study)
        self.best = None if best is None else (best.number, float(best.value))  # type: ignore[arg-type]
        while self.wanted or self.running:
            if Interruption.requested() or self.time_is_over:
                self.ending = 'Interrupted' if Interruption.requested() else 'Time is over'
                break
            self.keep_alive()
            for worker in self.workers.idle:
                if self.wanted:
                    self.begin(worker)
            answer = self.workers.receive(TICK_SECONDS)
            if answer is not None:
                self.hear(*answer)

    @property
    def wanted(self) -> bool:
        """Whether another trial is to be begun."""
        return self.total is None or self.finished + len(self.running) < self.total

    @property
    def time_is_over(self) -> bool:
        """Whether --timeout has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def keep_alive(self) -> None:
        """Say every ten seconds that the trials go on, and take over what dead processes have left."""
        from xagents.tuning import studies

        if time.monotonic() - self.beaten < studies.BEAT_SECONDS:
            return
        for trial in list(self.running.values()):
            with self.unless_lost(trial.number):
                studies.beat(trial)
        studies.reap(self.study, self.running)
        self.beaten = time.monotonic()

    def begin(self, worker: WorkerProcess) -> None:
        """Ask the study for a trial and give it to a worker."""
        from optuna.exceptions import UpdateFinishedTrialError

        from xagents.tuning import studies

        try:
            trial = self.study.ask({name: r.distribution() for name, r in self.plan.ranges.items()})
            seed = studies.claim(trial, self.seed)
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
        elif message['kind'] in ('done', 'pruned', 'failed'):
            self.end(worker, message)
        elif message['kind'] == 'broken':
            raise TuningError(message['reason'])

    def report(self, worker: WorkerProcess, message: Message) -> bool:
        """Note how a trial stands; returns whether it is to stop."""
        assert worker.job is not None
        trial, value = self.running[worker.job.number], message['value']
        self.table.progressed(trial.number, message['done'], value)
        if value is None:
            return False
        with self.unless_lost(trial.number):
            trial.report(value, message['part'])
            return bool(trial.should_prune())  # NumPy's bool is none for JSON
        return True

    def end(self, worker: WorkerProcess, message: Message) -> None:
        """Write how a trial ended."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        assert worker.job is not None
        trial, kind, reason = self.running[worker.job.number], message['kind'], message.get('reason', '')
        self.workers.relieve(worker)
        state = {'done': TrialState.COMPLETE, 'pruned': TrialState.PRUNED, 'failed': TrialState.FAIL}[kind]
        with self.unless_lost(trial.number):
            if kind == 'failed':
                trial.set_user_attr('reason', reason)
            # of a pruned one Optuna takes the last value that was reported
            told = self.study.tell(trial, message.get('value'), state=state, skip_if_finished=True)
            if told.state != state:
                raise UpdateFinishedTrialError
        if trial.number not in self.running:
            return
        value = told.value
        if kind == 'done' and value is not None and (self.best is None or value > self.best[1]):
            self.best = (trial.number, value)
        self.finished += 1
        self.close(trial.number, state.name.lower().replace('fail', 'failed'), value, reason)

    def bury(self, worker: WorkerProcess) -> None:
        """Fail the trial of a dead worker, try it again, and start another worker."""
        from xagents.tuning import studies

        reason, job = worker.why_it_died(), worker.job
        self.workers.replace(worker)
        if self.workers.stillborn >= STILLBORN:
            raise TuningError(reason)
        if job is None:
            return
        trial = self.running[job.number]
        with self.unless_lost(trial.number):
            trial.set_user_attr('killed', reason)
        if trial.number not in self.running:
            return
        # one that has been tried often enough is a finished one
        last = trial.user_attrs.get('attempt', 1) >= studies.ATTEMPTS
        studies.break_off(self.study, trial.number)
        self.close(trial.number, 'failed' if last else 'killed', None, reason)
        self.finished += last

    @contextlib.contextmanager
    def unless_lost(self, number: int) -> Iterator[None]:
        """Give a trial up that another call has taken over, because this machine was not seen for a while."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            yield
        except UpdateFinishedTrialError:
            for worker in [w for w in self.workers.all if w.job is not None and w.job.number == number]:
                self.workers.replace(worker)
            self.close(number, 'killed', None, 'another call has taken it over')

    def close(self, number: int, state: str, value: float | None, reason: str) -> None:
        """Show how a trial ended, which runs no more."""
        del self.running[number]
        seconds = time.monotonic() - self.started.pop(number)
        self.table.finished(number, state, value, self.best, seconds, reason)

    def leave(self) -> None:
        """Fail what still runs, to be tried again by another call, and what a dead process has left."""
        from xagents.tuning import studies

        for number in list(self.running):
            with self.unless_lost(number):
                self.running[number].set_user_attr('killed', 'the call ended')
                studies.break_off(self.study, number)
                self.close(number, 'killed', None, 'the call ended')
        studies.reap(self.study, ())


def conclude(planned: Plan, study: optuna.Study, call: Call, command: str) -> None:
    """Say what was found, write it where that was asked for, and say how to go on.

    Raises:
        TuningError: where no trial was completed and none was stopped by choice.
    """
    from xagents.tuning import studies
    from xagents.tuning.report import train_command, write_report

    best = studies.best_trial(study)
    settings, quiet = planned.tune, bool(planned.aside.get('quiet'))
    options = {} if best is None else studies.options_of(study, best)
    line = '' if best is None else train_command(planned.entry.id, options)
    lines = [counted(study, call)]
    if settings.out:
        lines += write_report(settings.out, study, options or None, line)
    if best is not None:
        of_seeds = f', the mean of {settings.trial_seeds} seeds' if settings.trial_seeds > 1 else ''
        lines += [f'Best: trial {best.number}, {best.value:.6g}{of_seeds}. To train with it:', line]
    if settings.storage is None:
        name = planned.study_name
        words = flags_of({'study': name, 'storage': f'sqlite:///{name.replace("/", "-")}.db'})
        lines.append(f'The study was kept in memory only. To keep the next one: {" ".join(words)}')
    elif call.ending == 'Interrupted' and command:
        lines.append(f'To go on: {going_on(command, call)}')
    print('\n'.join([line] if quiet and line else lines))
    if best is None and call.ending == 'Finished':
        said = [trial.user_attrs.get('reason') or trial.user_attrs.get('killed') for trial in study.trials]
        reasons = [reason for reason in said if reason]
        raise TuningError(f'no trial was completed; the last one said: {reasons[-1] if reasons else "nothing"}')


def counted(study: optuna.Study, call: Call) -> str:
    """Return how the call ended, and how many trials the study has of each kind."""
    trials = study.get_trials(deepcopy=False)
    failed = [trial for trial in trials if trial.state.name == 'FAIL']
    counts = {
        'complete': sum(trial.state.name == 'COMPLETE' for trial in trials),
        'pruned': sum(trial.state.name == 'PRUNED' for trial in trials),
        'failed': sum('reason' in trial.user_attrs for trial in failed),
        'broken off': sum('reason' not in trial.user_attrs for trial in failed),
    }
    said = ', '.join(f'{count} {word}' for word, count in counts.items() if count or word != 'broken off')
    plural = 's' * (call.finished != 1)
    return f'{call.ending}: {call.finished} trial{plural} in this call; the study has {said}'


def going_on(command: str, call: Call) -> str:
    """Return the command that finishes what an interrupted one had left."""
    words = shlex.split(command)
    for index, word in enumerate(words[:-1]):
        if word == '--n-trials' and call.total is not None:
            words[index + 1] = str(call.total - call.finished)
    return shlex.join(words)
