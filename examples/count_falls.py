"""A counter of one's own that survives the end of a process: call it twice, and it goes on counting.

    python count_falls.py
    python count_falls.py

The first call trains 2000 steps and keeps the run in `runs/falls`; each further one resumes it there for 1000 more.
"""

import dataclasses
import sys

import xagents
from xagents.base import BaseAgent
from xagents.checkpoints.status import is_run
from xagents.pipeline import Context, Recipe, kept

FOLDER = 'runs/falls'


@dataclasses.dataclass(slots=True)
class Falls(Context):
    """A context that also counts how often the pole fell."""

    falls: int = kept(0)


def count(ctx: Falls) -> None:
    """Count the episodes that ended before the time limit."""
    ctx.falls += sum(episode.length < 500 for episode in ctx.episodes)
    ctx.logs['own/falls'] = ctx.falls


def recipe(agent: BaseAgent) -> Recipe:
    """Return the agent's recipe with the counter in it; it is code, and so has to be given again on a resume."""
    return agent.recipe().with_context(Falls).after('episodes', count)


def main(folder: str) -> None:
    """Begin the run, or go on with it."""
    if is_run(folder):
        agent = xagents.resume(folder)
        agent.fit(max_steps=agent.steps + 1000, recipe=recipe(agent))
    else:
        agent = xagents.make('ppo', 'CartPole-v1', n_envs=8, n_steps=32, seed=1)
        agent.fit(max_steps=2000, run_dir=folder, recipe=recipe(agent))
    assert isinstance(agent.context, Falls)
    print(f'{agent.context.falls} falls in {agent.steps} steps')


if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
