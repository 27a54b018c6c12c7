"""The stages that keep what a run has learned: the best so far, its whole state, and which of best and last stays."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Iterator, Sequence

from xagents.logs.console import number
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import for_run, left_by_choice
from xagents.runs import evaluation, weight_files
from xagents.runs.capture import load_parts, policy_of, state_of, with_weights
from xagents.runs.checkpoints import State
from xagents.runs.folder import RunFolder
from xagents.runs.learner import Learner
from xagents.runs.run import Run
from xagents.system.interruption import Interrupted, Interruption

# of a state, what another agent takes over with the weights
SHARED = 'observation_statistics/'
# ends of a run that say nothing of how good the last weights are
SPENT = ('steps', 'time', 'early')


class WeightFiles:
    """`--checkpoints`: the best weights, one path a model; the last ones where no mean was ever reached."""

    def __init__(self, run: Run):
        self._run, self._written = run, run.progress.best

    def due(self, ctx: Context) -> bool:
        """Return whether something must be saved now: it can wait."""
        return False

    def save(self, ctx: Context) -> None:
        """Write the best weights, where there are new ones."""
        self.save_best()

    def save_best(self) -> None:
        """Write the best weights, where there are new ones."""
        best = self._run.progress.best
        if best is not None and best is not self._written:
            self.choose(best)

    def end(self, ctx: Context) -> None:
        """Write the best weights with the counters of the whole run."""
        self.choose(self._run.progress.best or state_of(self._run.agent))

    def choose(self, state: State) -> None:
        """Write the weights of `state`."""
        write_weights(self._run.options.checkpoints or [], self._run.agent, state)
        self._written = state


def write_weights(paths: Sequence[str], agent: Learner, state: State) -> None:
    """Write `--checkpoints`: a state's weights and statistics, and the counters of the whole run."""
    with with_weights(agent, state):
        record = {k: state.record[k] for k in ('agent', 'options', 'networks')}
        record['counters'] = agent.progress.context.kept()
        weight_files.write_set(paths, agent.output_models, state.arrays, record, policy_of(agent))


def read_weights(paths: Sequence[str], agent: Learner) -> None:
    """Read weights and optimisers, and the state beside the first one where it is there.

    Of another agent's weights the optimisers, the counters and what only that agent has are left out.

    Raises:
        ValueError: in one line, naming the file.
    """
    arrays, record = weight_files.read_state(paths[0])
    theirs = record.get('agent', agent.id)
    own = theirs == agent.id
    weight_files.read_models(paths, agent.output_models, optimizers=own)
    load_parts(agent, arrays if own else {n: x for n, x in arrays.items() if n.startswith(SHARED)})
    if own:
        agent.progress.load_counters(record)
    else:
        agent.progress.lines.append(f'The network is that of {theirs}: its optimiser begins anew, and its counters')
    agent.refresh()
    if math.isfinite(agent.progress.context.best_reward):
        agent.progress.best = state_of(agent)  # nothing worse takes their place


def keepers(run: Run) -> list[WeightFiles | RunFolder]:
    """Return where a run is kept."""
    kept: list[WeightFiles | RunFolder] = [WeightFiles(run)] if run.options.checkpoints else []
    return kept if run.folder is None else [*kept, run.folder]


@for_run
def best(run: Run, ctx: Context) -> None:
    """Copy the weights of a new best mean, and those that reached the target."""
    improved = ctx.checked and is_better(ctx.mean_reward, ctx.best_reward)
    if improved:
        ctx.new_best, ctx.best_reward = ctx.best_reward, ctx.mean_reward
    kept = run.options.checkpoints or run.folder is not None
    if kept and (improved or target_reached(run, ctx)):
        run.progress.best = _measured(run, ctx)


def _measured(run: Run, ctx: Context) -> State:
    """Return the weights that the mean of an iteration is of, with the counters of then."""
    if ctx.measured is None:
        return state_of(run.agent, ctx.kept())
    return with_means(ctx.measured, ctx.mean_reward, ctx.best_reward)


def with_means(state: State, mean: float, best: float) -> State:
    """Return a state that knows its mean, which was learned later."""
    counters = {**state.record['counters'], 'mean_reward': mean, 'best_reward': best}
    return dataclasses.replace(state, record={**state.record, 'counters': counters})


def is_better(mean: float, best: float) -> bool:
    """Return whether a mean is a new best; NaN never is, and anything is better than none."""
    return math.isfinite(mean) and not mean <= best


@for_run
def checkpoint(run: Run, stream: Stream) -> Iterator[Context]:
    """Save the run every `save_seconds` and on the way out; nothing after an error."""
    places = keepers(run)
    if not places:
        yield from stream
        return
    last, ctx = time.monotonic(), None
    whole, handled = False, sys.exception()
    try:
        for ctx in stream:
            yield ctx
            late = time.monotonic() - last >= run.options.save_seconds
            for place in places:
                if late or place.due(ctx):
                    place.save(ctx)
            if late:
                last = time.monotonic()
        whole = ctx is not None
    except GeneratorExit as exit:
        # a loop was left: after an iteration that had passed every stage
        whole = left_by_choice(exit, handled) and ctx is not None and run.progress.context is ctx
        raise
    finally:
        if whole and ctx is not None and not Interruption.abandoned():
            for place in places:
                place.end(ctx)
    if ctx is not None and ctx.stop in SPENT:
        final_evaluation(run, places)


def final_evaluation(run: Run, places: list[WeightFiles | RunFolder]) -> None:
    """Let best and last play for the place of the best: the mean of training episodes lags behind."""
    agent, options, best = run.agent, run.options, run.progress.best
    if run.evaluations is not None:
        _late_evaluations(run, places)
        return
    if options.eval_frequency or not options.final_episodes or best is None:
        return
    if not agent.envs.can_be_made_again:
        run.console.say(f'{agent.envs.id} cannot be made afresh for a last evaluation: the best weights stay')
        return
    try:
        last = evaluation.evaluate(agent, options.final_episodes, say=run.console.say)['mean']
        with with_weights(agent, best):
            first = evaluation.evaluate(agent, options.final_episodes, say=run.console.say)['mean']
    except Interrupted:
        return
    kept = 'last' if last >= first else 'best'
    if kept == 'last':
        chosen = state_of(agent)
        for place in places:
            place.choose(chosen)
    p = options.display_precision
    run.console.say(
        f'Greedy mean of {options.final_episodes} episodes: best {number(first, p)}, last {number(last, p)}; '
        f'the {kept} weights are in {" ".join(options.checkpoints or [options.place("checkpoints/best") or ""])}'
    )


def _late_evaluations(run: Run, places: list[WeightFiles | RunFolder]) -> None:
    """Let weights whose evaluations are still under way play for the place of the best, too.

    A run that goes on takes them when it is their turn, as if it had never stopped.
    """
    best, chosen, p = run.progress.context.best_reward, None, run.options.display_precision
    try:
        for asked, result in run.evaluations.rest():
            run.console.say(f'Evaluation of step {asked.steps}, after the end: {number(result["mean"], p)}')
            if is_better(result['mean'], best):
                best = result['mean']
                chosen = with_means(asked.state, best, best)
    except Interrupted:
        return
    if chosen is not None:
        for place in places:
            place.choose(chosen)


def target_reached(run: Run, ctx: Context) -> bool:
    """Return whether the mean has reached the target: that of the last evaluation, or of enough episodes."""
    target, rewards = run.options.target_reward, run.progress.rewards
    if target is None or not ctx.mean_reward >= target:
        return False
    if run.options.eval_frequency:
        return True
    return ctx.checked_games == ctx.games and len(rewards) == rewards.maxlen
