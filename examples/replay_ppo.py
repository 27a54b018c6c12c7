"""An agent like PPO that learns from one of its last four rollouts instead of the newest.

    python replay_ppo.py train replay-ppo --env CartPole-v1 --n-envs 8 --n-steps 32 --max-steps 20000 --run-dir runs/a

All commands support the agent: `train --resume`, `play`, `evaluate`, `export`. docs/recipes.md explains the effect on
the mathematics.
"""

import functools
import sys

import xagents
from xagents import PPO
from xagents.pipeline import Context, Recipe
from xagents.replay import RolloutBuffer
from xagents.runs.stages import learn

ROLLOUTS = 4


@xagents.register('replay-ppo', help='learns from one of its last rollouts')
class ReplayPPO(PPO):
    """PPO on rollouts sampled from the last few. Its ratio uses the policy outputs that the rollouts contain."""

    @functools.cached_property
    def buffer(self) -> RolloutBuffer:
        """The last rollouts. A run directory saves the buffer because of this attribute name."""
        n_steps, stack = self.options.n_steps, self.envs.frame_stack
        size = n_steps * self.n_envs
        return RolloutBuffer(ROLLOUTS * size, size, n_steps=n_steps, stack=stack, columns=self.output_names)

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail."""
        return Recipe([('remember', self.store_rollout), ('replay', self.draw_rollout), ('learn', learn)])

    def store_rollout(self, ctx: Context) -> None:
        """Store the collected rollout."""
        if not ctx.idle:
            self.buffer.add(ctx.batch)

    def draw_rollout(self, ctx: Context) -> None:
        """Replace the batch by a stored rollout."""
        if not ctx.idle:
            ctx.batch = self.buffer.sample(self.rng('replay'))


if __name__ == '__main__':
    from xagents.cli import execute

    execute(sys.argv[1:])
