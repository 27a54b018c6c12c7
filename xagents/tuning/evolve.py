"""`xagents tune --population` and `xagents.evolve`: population-based training.

All members train for a round. Then the worst members are replaced by copies of the best, with changed settings. The
random numbers after a round depend only on the seed and the round, so neither the number of jobs nor a kill changes the
result. In each round a member resumes a copy of the run of its parent in a new folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from xagents.options.errors import OptionError
from xagents.processes.process_pool import ProcessPool
from xagents.reports.population_files import Member, Population, lock_population, open_population
from xagents.system.files import DISK_ERRORS, write_problem
from xagents.system.interruption import Interruption
from xagents.system.paths import check_folder
from xagents.tuning.evolution import PERTURB, Evolution
from xagents.tuning.member import REMEDY, MemberTask
from xagents.tuning.plan import TuningError, TuningPlan, plan
from xagents.tuning.report import train_command
from xagents.tuning.trial_runner import POLL_SECONDS
from xagents.tuning.tune import check_settings, open_workers, with_env

if TYPE_CHECKING:
    from xagents.options.keywords import TuneKeywords

MAX_ATTEMPTS = 3


def evolve(agent_id: str, env: str | None = None, **options: Unpack[TuneKeywords]) -> str:
    """Train a population. After each round, its worst members are replaced by changed copies of the best ones.

    Args:
        agent_id: id of the agent, see `xagents.agents`.
        env: id of the environment.
        options: options of `xagents tune --population` by name. The default of `population` is 8. An option has one
            value, or a list of values as in `xagents.tune`.

    Returns:
        The run directory of the best member. `xagents.load` returns its agent, `xagents.policy` its policy.

    Raises:
        OptionError, SettingsError: if an option or a setting is not valid.
        TuningError: if no member could be trained, or the disk is full; the same call then resumes the population.
        KeyboardInterrupt: after Ctrl-C; the same call resumes the population.
    """
    return run_population(plan(agent_id, {'population': 8, **with_env(env, options, 'members train')}))


def run_population(planned: TuningPlan) -> str:
    """Train or resume the planned population, and return the run directory of the best member."""
    settings, process_options = planned.tune, planned.process_options
    assert settings.population is not None and settings.out is not None
    check_folder('out', settings.out)
    jobs = min(settings.n_jobs, settings.population)
    with Interruption.guard() as interruption, contextlib.ExitStack() as stack:
        workers = stack.enter_context(open_workers(planned, jobs))
        check_settings(planned, workers, interruption)
        lock = lock_population(settings.out)
        if lock is not None:
            stack.enter_context(contextlib.closing(lock))
        seed = process_options.get('seed')
        free: dict[str, Any] = {'seed': secrets.randbits(32) if seed is None else seed}
        free |= {'schedule_steps': settings.trial_steps, 'exploit_steps': settings.exploit_steps}
        population = open_population(settings.out, {**_shared(planned), 'free': free})
        given_steps = settings.exploit_steps if 'exploit_steps' in settings.given_names else None
        for name, value in (('seed', seed), ('exploit_steps', given_steps)):
            saved = population.shared['free'][name]
            if value not in (None, saved):
                raise OptionError(name, f'got {value}, expected {saved} as in {settings.out}')
        runner = PopulationRunner(planned, population, workers)
        for line in filter(None, (planned.source_line, planned.warning)):
            runner.say(line)
        try:
            finished = runner.run_rounds()
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            raise TuningError(f'{write_problem(error, settings.out)}; {REMEDY}') from error
    if not finished:
        print(f'Interrupted in round {len(population.rounds) + 1} of {runner.n_rounds}; the same command resumes')
        interruption.exit()
    return runner.conclude()


def _shared(planned: TuningPlan) -> dict[str, Any]:
    """Return the options that must be equal when a population is resumed."""
    settings = planned.tune
    study_attributes = {n: v for n, v in planned.study_attributes.items() if n not in ('trial_steps', 'trial_seeds')}
    how = {n: getattr(settings, n) for n in ('population', 'exploit', 'perturb', 'resample')}
    return {**study_attributes, **how, 'searched': {name: str(r) for name, r in planned.ranges.items()}}


class PopulationRunner:
    """One call that trains the rounds of a population.

    Args:
        planned: the checked options of the call.
        population: the population, with its complete rounds.
        workers: processes that train members.
    """

    def __init__(self, planned: TuningPlan, population: Population, workers: ProcessPool):
        settings = planned.tune
        assert settings.population is not None
        self.planned, self.population, self.workers = planned, population, workers
        self.size = settings.population
        self.steps: int = population.shared['free']['exploit_steps']
        self.n_rounds = math.ceil(settings.trial_steps / self.steps)  # rounds are whole
        self.seed: int = population.shared['free']['seed']
        perturb = settings.perturb or PERTURB
        self.evolution = Evolution(planned.ranges, settings.exploit, perturb, settings.resample)

    def run_rounds(self) -> bool:
        """Train the remaining rounds; return True if all are complete, and False after a signal."""
        self.say(f'Population of {self.size} in {self.population.path}: {self._opening_text()}')
        while len(self.population.rounds) < self.n_rounds:
            number = len(self.population.rounds) + 1
            members = self.next_members(number)
            trained = self.train_round(number, members)
            if trained is None:
                return False
            if all(member.score is None for member in trained):
                why = trained[0].reason or 'no episode ended: increase --exploit-steps, in a new directory'
                raise TuningError(f'no member has a score after round {number}: {why}')
            self.population.add_round(trained)
            self.say(self._round_text(number, trained))
        return True

    def next_members(self, number: int) -> list[Member]:
        """Return the members of a round before they are trained."""
        rng = np.random.default_rng([self.seed, number])
        if number == 1:
            return self.evolution.first(self.size, self.planned.first, rng)
        return self.evolution.next(self.population.rounds[-1], rng)

    def train_round(self, number: int, members: list[Member]) -> list[Member] | None:
        """Train the members of a round in workers and return them with their scores, or None after a signal."""
        found = {i: self.population.member_result(number, i) for i in range(self.size)}
        results = {i: result for i, result in found.items() if result is not None}
        waiting, deaths = [i for i in range(self.size) if i not in results], Counter[int]()
        self.population.folder(number, 0).parent.mkdir(exist_ok=True)
        while len(results) < self.size:
            if Interruption.requested():
                return None
            for worker in self.workers.idle:
                if waiting:
                    i = waiting.pop(0)
                    worker.start('member', self.make_task(number, i, members[i]))
            answer = self.workers.receive(POLL_SECONDS)
            if answer is None:
                continue
            worker, message = answer
            job = worker.job
            if message is None:
                reason = f'its worker died ({self.workers.replace_ended(worker)})'
                if job is not None:
                    deaths[job.number] += 1
                    if deaths[job.number] < MAX_ATTEMPTS:
                        waiting.insert(0, job.number)
                    else:
                        results[job.number] = {'reason': reason}
            elif job is not None and message['kind'] in ('done', 'failed'):
                self.workers.finish_job(worker)
                result = self.population.member_result(number, job.number)
                unseen = f'its run is not in {self.population.path}: --out must be a directory that all machines see'
                results[job.number] = result or {'reason': message.get('reason', unseen)}
        return [dataclasses.replace(member, **results[i]) for i, member in enumerate(members)]

    def make_task(self, number: int, i: int, member: Member) -> MemberTask:
        """Return the task that trains a member in a round."""
        settings = self.planned.tune
        own = np.random.SeedSequence([self.seed, number, i]).generate_state(1)
        parent = '' if member.parent is None else str(self.population.folder(number - 1, member.parent).absolute())
        timed = {'schedule_steps': self.population.shared['free']['schedule_steps']}
        return MemberTask(
            number=i,
            agent=self.planned.entry.id,
            fixed={**timed, **self.planned.fixed, 'quiet': not settings.non_silent},
            settings=dict(member.settings),
            seed=None if member.parent == i else int(own[0]),
            parent=parent,
            folder=str(self.population.folder(number, i).absolute()),
            steps=number * self.steps,
            objective=settings.objective,
            episodes=settings.eval_episodes,
            final_episodes=settings.final_episodes if number == self.n_rounds else 0,
        )

    def conclude(self) -> str:
        """Print the best member, and return its run directory."""
        folder = self.population.link_best()
        best = self.population.rounds[-1][self.population.best()]
        steps = len(self.population.rounds) * self.steps
        options = {**self.planned.fixed, **best.settings, 'max_steps': steps}
        lineage = f'Its lineage: xagents plot --run-dir {self.population.path}'
        final = '' if best.final_mean is None else f', greedy mean {best.final_mean:.6g}'
        name = folder.name.partition('-')[2]
        self.say(f'Best: member {name}, score {best.score:.6g}{final}, in {folder}. {lineage}')
        self.say('To train from the beginning with its last settings:')
        self.say(train_command(self.planned.entry.id, options))
        return str(folder)

    def say(self, line: str) -> None:
        """Print a line unless the call is quiet."""
        if not self.planned.process_options.get('quiet'):
            print(line, flush=True)

    def _opening_text(self) -> str:
        over = len(self.population.rounds)
        whole = f'{max(self.n_rounds, over)} rounds of {self.steps} steps'
        return f'resumes after round {over} of {whole}' if over else whole

    def _round_text(self, number: int, members: list[Member]) -> str:
        scores = [member.score for member in members if member.score is not None]
        copied = ', '.join(f'{i} from {m.parent}' for i, m in enumerate(members) if m.parent not in (None, i))
        reasons = [member.reason or 'no episode ended' for member in members if member.score is None]
        failed = f', {len(reasons)} without a score ({reasons[0]})' if reasons else ''
        middle = f'median {np.median(scores):.6g}, worst {min(scores):.6g}{failed}'
        ended = f'Round {number} of {self.n_rounds}, {number * self.steps} steps: best {max(scores):.6g}, {middle}'
        return ended + (f'; copied: {copied}' if copied else '')
