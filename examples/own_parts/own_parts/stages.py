"""Two stages: a function of a context, and a function that makes a stage for an agent."""

import numpy as np

from xagents import register_stage


@register_stage('own-sign', after='collect')
def sign_rewards(ctx):
    """Replace the rewards in the batch by their signs. The returns of episodes do not change."""
    ctx.batch['rewards'] = np.sign(ctx.batch['rewards'])


@register_stage('own-share', before='learn')
def share_of_positive(agent):
    """Log the share of steps with a positive reward, and the number of environments."""

    def share(ctx):
        ctx.logs['own/positive'] = float((ctx.batch['rewards'] > 0).mean())
        ctx.logs['own/environments'] = float(agent.n_envs)

    return share
