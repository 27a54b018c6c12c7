"""A run whose evaluations are played beside it (`--eval-async`): asked for, and taken some iterations later.

When a result is taken is told in iterations, and it is waited for then: how fast it came changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context
from xagents.runs.asked import Asked
from xagents.runs.capture import policy_of, state_of, with_weights
from xagents.runs.evaluator import Evaluator
from xagents.runs.learner import Learner
from xagents.runs.run import Run
from xagents.system.interruption import Interruption

Taken = tuple[Asked, dict[str, float]]


def check_evaluating(agent: Learner, options: RunOptions) -> None:
    """Check, before a run, that an agent can be evaluated in another process.

    Raises:
        OptionError: naming `eval_async`, in one line.
    """
    if not options.eval_async:
        return
    try:
        agent.envs.to_send()
    except ValueError as error:
        raise OptionError('eval_async', str(error)) from error
    if policy_of(agent) is None:
        why = ', as it convolves in bfloat16 (--precision)' if agent.options.precision == 'bfloat16' else ''
        problem = f'the policy of {agent.id} has no plan (docs/policy.md), by which another process plays{why}'
        raise OptionError('eval_async', problem)


class Evaluations:
    """The evaluations of a run that are under way; the agent's progress keeps them beyond it.

    Args:
        run: whose they are.
        evaluator: plays them; those that are under way already are asked of it, too.
    """

    def __init__(self, run: Run, evaluator: Evaluator):
        self._run, self._evaluator = run, evaluator
        for asked in run.progress.evaluations:
            self._order(asked)

    def _order(self, asked: Asked) -> None:
        policy = asked.state.policy
        if policy is None:  # it comes out of a checkpoint
            with with_weights(self._run.agent, asked.state):
                policy = policy_of(self._run.agent)
        assert policy is not None  # `check_evaluating` has looked
        self._evaluator.ask(policy, asked.episodes, asked.seed)

    def turn(self, ctx: Context, due: bool) -> Taken | None:
        """Let an iteration pass: ask for an evaluation if one is `due`; return the one whose result is taken now."""
        if ctx.idle and ctx.stop:  # broken off while it was collected: a run that goes on collects it again
            return None
        under_way, delay = self._run.progress.evaluations, self._run.options.eval_delay
        for asked in under_way:
            asked.age += 1
        ready = bool(under_way) and (due if delay is None else under_way[0].age >= delay)
        if due:  # before the other one is waited for, so that the process need not wait
            asked = Asked(
                state_of(self._run.agent, ctx.kept()),
                self._run.evaluation_seed(ctx.steps),
                self._run.options.eval_episodes,
            )
            self._order(asked)
            under_way.append(asked)
        if not ready:
            return None
        start = time.perf_counter()
        result = self._evaluator.take(_Patience(self._run, under_way[0]))
        ctx.logs['seconds/evaluate'] = time.perf_counter() - start
        return under_way.pop(0), result

    def rest(self) -> Iterator[Taken]:
        """Give those that are still under way; a run that goes on takes them when it is their turn.

        Raises:
            Interrupted: where the run is to end.
        """
        for asked in self._run.progress.evaluations:
            yield asked, self._evaluator.take()


class _Patience:
    """Says once, after a Ctrl-C, what is waited for: the iteration is whole with it only."""

    def __init__(self, run: Run, asked: Asked):
        self._run, self._asked, self._said = run, asked, False

    def __call__(self) -> None:
        if Interruption.requested() and not self._said:
            self._said = True
            line = f'Waiting for the evaluation of step {self._asked.steps}; a second Ctrl-C quits without saving'
            self._run.console.say(line)


@contextlib.contextmanager
def evaluating(run: Run) -> Iterator[None]:
    """Let a process evaluate for a run, where it asks for that."""
    if not run.options.eval_async:
        if run.progress.evaluations:
            run.console.say('Evaluations that were under way are given up: this run has no --eval-async')
            run.progress.evaluations.clear()
        yield
        return
    with contextlib.closing(Evaluator(run.agent.envs.to_send(), run.console.say)) as evaluator:
        run.evaluations = Evaluations(run, evaluator)
        try:
            yield
        finally:
            run.evaluations = None
