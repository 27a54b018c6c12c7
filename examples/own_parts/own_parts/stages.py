"""Two stages: one of a context, and one that is made for an agent."""

import numpy as np

from xagents import register_stage


@register_stage('own-sign', after='collect')
def sign_rewards(ctx):
    """Let the agent learn from the sign of its rewards; episodes are still counted by the real ones."""
    ctx.batch['rewards'] = np.sign(ctx.batch['rewards'])


@register_stage('own-share', before='learn')
def share_of_positive(agent):
    """Log the share of steps with a positive reward, and how many environments it is taken over."""

    def share(ctx):
        ctx.logs['own/positive'] = float((ctx.batch['rewards'] > 0).mean())
        ctx.logs['own/environments'] = float(agent.n_envs)

    return share
