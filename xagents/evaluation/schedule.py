"""Asynchronous evaluations of a run (`--eval-async`): requested in one iteration, applied some iterations later.

The delay is counted in iterations. If a result is late, the run waits, so the evaluation speed changes no result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from xagents.checkpoints.agent_state import capture_policy, capture_state, temporary_weights
from xagents.checkpoints.in_flight import PendingEvaluation
from xagents.checkpoints.protocols import LearningAgent, RunProtocol
from xagents.envs.env_factory import factory_to_bytes
from xagents.evaluation.remote import EvaluationProcess
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context
from xagents.system.interruption import Interruption

EvaluationResult = tuple[PendingEvaluation, dict[str, float]]


def check_async_evaluation(agent: LearningAgent, options: RunOptions) -> None:
    """Check before a run that another process can evaluate the agent.

    Raises:
        OptionError: if `eval_async` is set, and the environments or the policy cannot be sent to another process.
    """
    if not options.eval_async:
        return
    try:
        factory_to_bytes(agent.envs)
    except ValueError as error:
        raise OptionError('eval_async', str(error)) from error
    if capture_policy(agent) is None:
        why = ', as it convolves in bfloat16 (--precision)' if agent.options.precision == 'bfloat16' else ''
        problem = f'the policy of {agent.id} has no plan (docs/policy.md), which the evaluation process needs{why}'
        raise OptionError('eval_async', problem)


class EvaluationSchedule:
    """The pending evaluations of a run. The agent's progress stores them beyond the run.

    Args:
        run: run that is evaluated.
        process: process that plays the episodes. Evaluations that are already pending are submitted to it.
    """

    def __init__(self, run: RunProtocol, process: EvaluationProcess):
        self._run, self._process = run, process
        for pending in run.progress.evaluations:
            self._submit(pending)

    def _submit(self, pending: PendingEvaluation) -> None:
        policy = pending.state.policy
        if policy is None:  # read from a checkpoint
            with temporary_weights(self._run.agent, pending.state):
                policy = capture_policy(self._run.agent)
        assert policy is not None  # `check_async_evaluation` has checked this
        self._process.submit(policy, pending.episodes, pending.seed)

    def advance(self, ctx: Context, due: bool) -> EvaluationResult | None:
        """Advance by one iteration. Submit an evaluation if one is `due`, and return the result that is applied now."""
        if ctx.idle and ctx.stop:  # interrupted while collecting: a resumed run collects this iteration from its start
            return None
        run = self._run
        under_way, delay = run.progress.evaluations, run.options.eval_delay
        for pending in under_way:
            pending.age += 1
        ready = bool(under_way) and (due if delay is None else under_way[0].age >= delay)
        if due:  # submit before waiting for a result, so that the process stays busy
            state, seed = capture_state(run.agent, ctx.carried_over()), run.evaluation_seed(ctx.steps)
            pending = PendingEvaluation(state, seed, run.options.eval_episodes)
            self._submit(pending)
            under_way.append(pending)
        if not ready:
            return None
        start = time.perf_counter()
        result = self._process.take_result(_WaitMessage(run, under_way[0]))
        ctx.logs['seconds/evaluate'] = time.perf_counter() - start
        return under_way.pop(0), result

    def remaining(self) -> Iterator[EvaluationResult]:
        """Yield the results of pending evaluations. They stay pending; a resumed run applies them when they are due.

        Raises:
            RunInterrupted: if the run is to end.
        """
        for pending in self._run.progress.evaluations:
            yield pending, self._process.take_result()


class _WaitMessage:
    """A line, printed once after a Ctrl-C: the iteration is complete only with the pending result."""

    def __init__(self, run: RunProtocol, pending: PendingEvaluation):
        self._run, self._pending, self._shown = run, pending, False

    def __call__(self) -> None:
        if Interruption.requested() and not self._shown:
            self._shown = True
            line = f'Waiting for the evaluation of step {self._pending.steps}; a second Ctrl-C quits without saving'
            self._run.console.print_line(line)


@contextlib.contextmanager
def async_evaluation(run: RunProtocol) -> Iterator[None]:
    """Start an evaluation process for a run if `--eval-async` is set."""
    if not run.options.eval_async:
        if run.progress.evaluations:
            run.console.print_line('Pending evaluations are dropped: this run has no --eval-async')
            run.progress.evaluations.clear()
        yield
        return
    with contextlib.closing(EvaluationProcess(factory_to_bytes(run.agent.envs), run.console.print_line)) as process:
        run.evaluations = EvaluationSchedule(run, process)
        try:
            yield
        finally:
            run.evaluations = None
