"""PPO that learns from one of its last rollouts instead of the very last, as an agent of its own.

    python replay_ppo.py train replay-ppo --env CartPole-v1 --n-envs 8 --n-steps 32 --max-steps 20000 --run-dir runs/a

Everything of the command line works with it: `train --resume`, `play`, `evaluate`, `export`. docs/recipes.md says what
the mathematics of this is worth.
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
    """PPO on rollouts that are drawn from the last few, whose stored policy outputs its ratio is to."""

    @functools.cached_property
    def buffer(self) -> RolloutBuffer:
        """The last rollouts; under this name a run folder keeps them."""
        n_steps, stack = self.options.n_steps, self.envs.frame_stack
        size = n_steps * self.n_envs
        return RolloutBuffer(ROLLOUTS * size, size, n_steps=n_steps, stack=stack, columns=self.output_names)

    def learning(self) -> Recipe:
        """Return the stages between a recipe's head and its tail."""
        return Recipe([('remember', self.remember), ('replay', self.replay), ('learn', learn)])

    def remember(self, ctx: Context) -> None:
        """Store what was collected."""
        if not ctx.idle:
            self.buffer.add(ctx.batch)

    def replay(self, ctx: Context) -> None:
        """Let a stored rollout be learned from."""
        if not ctx.idle:
            ctx.batch = self.buffer.sample(self.rng('replay'))


if __name__ == '__main__':
    from xagents.cli import execute

    execute(sys.argv[1:])
