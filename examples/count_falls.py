"""A custom counter that is saved with the run: call this script twice, and the count continues.

    python count_falls.py
    python count_falls.py

The first call trains 2000 steps and saves the run in `runs/falls`. Each further call resumes it for 1000 steps.
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
    """Return the agent's recipe with the counter. Recipes are not saved, so a resumed run needs it too."""
    return agent.recipe().with_context(Falls).after('episodes', count)


def main(folder: str) -> None:
    """Start the run, or resume it."""
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
