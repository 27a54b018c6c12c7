"""Stages that save a run: the best weights, checkpoints of its whole state, and the final evaluation."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from xagents.checkpoints import weight_files
from xagents.checkpoints.agent_state import capture_policy, capture_state, load_parts, temporary_weights
from xagents.checkpoints.protocols import LearningAgent
from xagents.checkpoints.run_directory import RunDirectory
from xagents.checkpoints.state_files import AgentState
from xagents.evaluation import playing
from xagents.logs.console import format_number
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import closed_by_consumer, for_run
from xagents.runs.run import Run
from xagents.system.interruption import Interruption, RunInterrupted

# prefix of the arrays that another agent loads together with the weights
SHARED_PREFIX = 'observation_statistics/'
# share of the mean of training by which greedy play is far below it
FAR_BELOW = 0.5
# reasons to end a run that do not depend on the last weights
BUDGET_ENDS = ('steps', 'time', 'early')


class WeightSaver:
    """Writer of `--checkpoints`: the best weights, one path per model; the last weights if there is no best mean."""

    def __init__(self, run: Run):
        self._run, self._written = run, run.progress.best

    def is_due(self, ctx: Context) -> bool:
        """Return False: the weights can be saved later."""
        return False

    def save(self, ctx: Context) -> None:
        """Write the best weights if they are new."""
        self.save_best()

    def save_best(self) -> None:
        """Write the best weights if they are new."""
        best = self._run.progress.best
        if best is not None and best is not self._written:
            self.set_best(best)

    def end(self, ctx: Context) -> None:
        """Write the best weights, or the last weights without a best mean, with the counters of the whole run."""
        self.set_best(self._run.progress.best or capture_state(self._run.agent))

    def set_best(self, state: AgentState) -> None:
        """Write the weights of `state` as the best weights."""
        write_weights(self._run.options.checkpoints or [], self._run.agent, state)
        self._written = state


def write_weights(paths: Sequence[str], agent: LearningAgent, state: AgentState) -> None:
    """Write `--checkpoints`: the weights and statistics of a state, and the counters of the whole run."""
    with temporary_weights(agent, state):
        record = {k: state.record[k] for k in ('agent', 'options', 'networks')}
        record['counters'] = agent.progress.context.carried_over()
        weight_files.write_weight_files(paths, agent.output_models, state.arrays, record, capture_policy(agent))


def read_weights(paths: Sequence[str], agent: LearningAgent) -> None:
    """Read weights and optimisers, and the state next to the first file if it exists.

    If another kind of agent wrote the files, only weights and observation statistics are read.

    Args:
        paths: weight files, one per model of the agent.
        agent: agent that receives the weights.

    Raises:
        ValueError: if a file is missing, damaged or does not fit the agent.
    """
    arrays, record = weight_files.read_saved_state(paths[0])
    saved_agent = record.get('agent', agent.id)
    own = saved_agent == agent.id
    for name in agent.options.forms if own else ():
        value = getattr(agent.options, name)
        if (trained := record.get('options', {}).get(name, value)) != value:
            raise OptionError(name, f'got {value} with {paths[0]}, which was trained with {trained}')
    weight_files.read_weight_files(paths, agent.output_models, optimizers=own)
    load_parts(agent, arrays if own else {n: x for n, x in arrays.items() if n.startswith(SHARED_PREFIX)})
    if own:
        agent.progress.load_counters(record)
    else:
        line = f'The weights were trained by {saved_agent}: optimisers and counters start from zero'
        agent.progress.startup_lines.append(line)
    agent.refresh()
    if math.isfinite(agent.progress.context.best_reward):
        agent.progress.best = capture_state(agent)  # worse weights must not replace them


def checkpoint_writers(run: Run) -> list[WeightSaver | RunDirectory]:
    """Return the writers of `--checkpoints` and of the run directory, if they are set."""
    kept: list[WeightSaver | RunDirectory] = [WeightSaver(run)] if run.options.checkpoints else []
    return kept if run.run_directory is None else [*kept, run.run_directory]


@for_run
def best(run: Run, ctx: Context) -> None:
    """Copy the weights if the mean is a new best, or has reached the target."""
    improved = ctx.checked and is_better(ctx.mean_reward, ctx.best_reward)
    if improved:
        ctx.new_best, ctx.best_reward = ctx.best_reward, ctx.mean_reward
    kept = run.options.checkpoints or run.run_directory is not None
    if kept and (improved or target_reached(run, ctx)):
        run.progress.best = _best_state(run, ctx)


def _best_state(run: Run, ctx: Context) -> AgentState:
    """Return the weights that reached the mean of this iteration, with their counters."""
    if ctx.evaluated_state is None:
        return capture_state(run.agent, ctx.carried_over())
    return with_means(ctx.evaluated_state, ctx.mean_reward, ctx.best_reward)


def with_means(state: AgentState, mean: float, best: float) -> AgentState:
    """Return a copy of a state with its mean and the best mean, which an evaluation measured later."""
    counters = {**state.record['counters'], 'mean_reward': mean, 'best_reward': best}
    return dataclasses.replace(state, record={**state.record, 'counters': counters})


def is_better(mean: float, best: float) -> bool:
    """Return whether a mean is a new best. NaN never is; any finite mean is better than a best of NaN."""
    return math.isfinite(mean) and not mean <= best


@for_run
def checkpoint(run: Run, stream: Stream) -> Iterator[Context]:
    """Save the run every `save_seconds` and at its end. Save nothing after an error."""
    if not (places := checkpoint_writers(run)):
        yield from stream
        return
    last, ctx = time.monotonic(), None
    whole, handled = False, sys.exception()
    try:
        for ctx in stream:
            yield ctx
            late = time.monotonic() - last >= run.options.save_seconds
            for place in places:
                if late or place.is_due(ctx):
                    place.save(ctx)
            if late:
                last = time.monotonic()
        whole = ctx is not None
    except GeneratorExit as exit:
        # the user left the loop, after an iteration that had passed every stage
        whole = closed_by_consumer(exit, handled) and ctx is not None and run.progress.context is ctx
        raise
    finally:
        if whole and ctx is not None and not Interruption.quit_requested():
            for place in places:
                place.end(ctx)
    if ctx is not None and ctx.stop in BUDGET_ENDS:
        final_evaluation(run, places)


def final_evaluation(run: Run, places: list[WeightSaver | RunDirectory]) -> None:
    """Evaluate the best and the last weights and keep the better ones, because the mean of training episodes lags.

    Args:
        run: run that ends.
        places: writers that receive the chosen weights.
    """
    agent, options, best = run.agent, run.options, run.progress.best
    if run.evaluations is not None:
        return _late_evaluations(run, places)
    if not compares_weights(run) or best is None:
        return
    if not agent.envs.can_recreate:
        run.summary.append(f'{agent.envs.id} cannot be created again for a final evaluation: the best weights stay')
        return
    p, present = options.display_precision, capture_state(agent)
    deadline = math.inf
    if options.max_time is not None and run.stop_reason in BUDGET_ENDS:
        deadline = time.monotonic() + max(options.max_time - run.progress.context.seconds, 0.0)
    head = f'Greedy mean of {options.final_episodes} episodes'
    try:
        last = _play_greedily(run, 'last', deadline)
        if _are_equal(present, best):
            run.summary.append(f'{head}: {format_number(last, p)}; the last weights are also the best')
            return _compare_with_training(run, last)
        with temporary_weights(agent, best):
            first = _play_greedily(run, 'best', deadline)
    except TimeoutError:
        run.summary.append('There was no time for the final evaluation (--max-time): the best weights stay')
        return
    except RunInterrupted:
        return
    # more training is no reason to prefer weights that are not better
    kept = 'last' if last > first else 'best'
    if kept == 'last':
        _set_best(places, present)
    means = f'best weights {format_number(first, p)}, last {format_number(last, p)}'
    run.summary.append(f'{head}: {means} ({kept} kept)')
    _compare_with_training(run, max(first, last))


def compares_weights(run: Run) -> bool:
    """Return whether the best and the last weights are compared by greedy episodes when the run ends."""
    options = run.options
    keeps = options.checkpoints is not None or run.run_directory is not None
    return keeps and options.final_episodes > 0 and not options.eval_frequency


def seconds_to_compare(run: Run, ctx: Context) -> float:
    """Return the estimated seconds of the final evaluation; 0 if they are more than a fifth of `--max-time`."""
    speed, limit = ctx.logs.get('steps_per_second', math.nan), run.options.max_time
    seconds = 2 * run.options.final_episodes * run.episode_length / speed if speed else math.nan
    if limit is None or not (compares_weights(run) and math.isfinite(seconds)):
        return 0.0
    return seconds if seconds <= limit / 5 else 0.0


def _play_greedily(run: Run, which: str, deadline: float) -> float:
    """Return the mean of the final episodes. Raise TimeoutError after the deadline of the monotonic clock."""
    n = run.options.final_episodes

    def on_step(done: int) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError
        run.console.activity(f'Final evaluation of the {which} weights: {done} of {n} greedy episodes')

    return playing.evaluate(run.agent, n, say=run.console.print_line, on_step=on_step)['mean']


def _compare_with_training(run: Run, greedy: float) -> None:
    """Say if the greedy mean is far below that of training, in which actions are sampled."""
    training = run.progress.context.mean_reward
    run.needs_sampling = greedy < training - FAR_BELOW * abs(training)
    if run.needs_sampling:
        mean = format_number(training, run.options.display_precision)
        run.summary.append(f'Sampled actions reached {mean} in training: evaluate and play with --stochastic')


def _are_equal(one: AgentState, other: AgentState) -> bool:
    """Return whether two states have equal weights and observation statistics."""
    names = [name for name in one.arrays if name.startswith(SHARED_PREFIX)]
    weights = zip(chain(*one.weights), chain(*other.weights), strict=True)
    return all(np.array_equal(a, b) for a, b in (*weights, *((one.arrays[name], other.arrays[name]) for name in names)))


def _late_evaluations(run: Run, places: list[WeightSaver | RunDirectory]) -> None:
    """Wait for pending evaluations, and keep the best of their weights.

    The evaluations stay pending in the checkpoint. A resumed run applies them as if it had not stopped.
    """
    best, chosen, p = run.progress.context.best_reward, None, run.options.display_precision
    try:
        for pending, result in run.evaluations.remaining():
            mean = result['mean']
            run.console.print_line(f'Evaluation of step {pending.steps}, after the end: {format_number(mean, p)}')
            if is_better(mean, best):
                best, chosen = mean, with_means(pending.state, mean, mean)
    except RunInterrupted:
        return
    if chosen is not None:
        _set_best(places, chosen)


def _set_best(places: list[WeightSaver | RunDirectory], state: AgentState) -> None:
    for place in places:
        place.set_best(state)


def _is_last_level(run: Run, ctx: Context) -> bool:
    plan = run.curriculum
    return plan is None or ctx.level >= plan.n_levels - 1


def target_reached(run: Run, ctx: Context) -> bool:
    """Return whether the mean of the last evaluation, or of a full window of episodes, has reached the target."""
    target, rewards = run.options.target_reward, run.progress.rewards
    if target is None or not ctx.mean_reward >= target or not _is_last_level(run, ctx):
        return False
    if run.options.eval_frequency:
        return True
    return ctx.checked_games == ctx.games and len(rewards) == rewards.maxlen
