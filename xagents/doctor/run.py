"""Checks of a run: why an agent may not learn, from the files of its run directory and a sample of transitions.

Findings are of two kinds. Causes, such as a learning rate of 1, count in every run. Symptoms, such as a policy without
entropy, also occur in runs that learned well, so they count only if the mean reward did not rise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.doctor.finding import Finding
from xagents.doctor.run_data import RunData
from xagents.doctor.sample import usual_value
from xagents.doctor.scales import MAX_RETURN, MIN_RETURN, large_returns, observation_scale, small_returns
from xagents.factory.presets import find_preset
from xagents.logs.console import bottleneck, phase_seconds
from xagents.logs.metrics import STEPS
from xagents.options.errors import OptionError, one_line

CONTINUE = 'Correct the cause, then continue it: xagents train --resume DIR'
LEARNED_REWARDS = 'rewards after --reward-scale and --normalize-reward'
MIN_COLLAPSE_EPISODES = 100  # the means of fewer episodes fall by chance
# Adam moves each weight by about the learning rate at an update, and weights are about 0.1; presets have up to 0.004
MAX_RATE, UNUSUAL_RATE, MIN_MOVE = 0.02, 0.005, 0.01
# Muon's updates are matrices of norm 1, so its learning rates are larger
MAX_MUON_RATE = 0.2
# shares of the largest entropy: below which a policy hardly explores, also if it has learned, and if it has not;
# above which it acts at random
LOW_ENTROPY, STUCK_ENTROPY, HIGH_ENTROPY = 0.02, 0.15, 0.98
LOW_DEVIATION = 0.01  # of a Gaussian policy, as part of the range of actions
MAX_KL, MAX_CLIP_FRACTION = 0.1, 0.5
STILL_KL = 1e-7
DEAD_SHARE = 0.8  # of the units of a layer
SATURATED = 0.99  # output of tanh


def findings_of(run: RunData) -> list[Finding]:
    """Return the findings of the content of a run directory, the likely causes first."""
    found = [finding for check in (*CAUSES, *SYMPTOMS) for finding in check(run)]
    if not found and not run.learned:
        # these follow from many causes, and explain a run only without another one
        found = [finding for check in UNEXPLAINED for finding in check(run)]
    if not found and not run.learned and run.has_episodes:
        found = list(_no_cause(run))
    return found


def time_lines(run: RunData) -> list[str]:
    """Return lines about the time of each phase, and an option that makes the run faster."""
    spent = phase_seconds(run.metrics)
    total = sum(seconds for name, seconds in spent.items() if 'wait' not in spent or name not in ('env', 'act'))
    return bottleneck(spent, total, explorers=run.options.get('explorers')).splitlines()


# causes


def _not_finite(run: RunData) -> Iterator[Finding]:
    refused, why = run.metric('stats/refused').sum(), str(run.status.get('why') or '')
    helps = (
        'Lower --lr or --grad-norm, scale rewards (--normalize-reward) and check the environment: xagents doctor ENV'
    )
    if 'NotFinite' in why and any(f'{name} are not finite' in why for name in ('observations', 'rewards')):
        fix = 'Correct the environment, and check it: xagents doctor ENV'
        yield Finding('not-finite', f'the run ended, because {_reason(why)}', 'The environment returned them', fix)
    elif 'NotFinite' in why:
        seen = f'the run ended, because {_reason(why)}'
        yield Finding('not-finite', seen, 'A number became NaN or infinite', helps)
    elif run.status.get('state') == 'failed':
        yield Finding(
            'failed', f'the run ended with an error: {one_line(why).rstrip(".")}', 'It is not complete', CONTINUE
        )
    elif refused:
        seen = f'{refused:.0f} of {run.updates + refused:.0f} updates were refused, because they were not finite'
        yield Finding('not-finite', seen, 'The agent did not learn from these batches', helps)


def _reason(why: str) -> str:
    """Return the message of an error from a status, which begins with the class of the error."""
    return one_line(why.partition(': ')[2]).rstrip('.')


def _no_updates(run: RunData) -> Iterator[Finding]:
    size, needed = run.metric('replay/size'), run.options.get('buffer_initial_size')
    if not len(size):
        return
    needed = run.options.get('buffer_max_size') if needed is None else needed
    if not run.updates:
        seen = f'no update after {run.steps} steps; the replay buffer holds {size[-1]:.0f} of {needed} transitions'
        yield Finding('idle-buffer', seen, 'Learning has not begun', 'Lower --learning-starts, or train longer')
        return
    began = run.metrics.loc[run.metrics['updates'] > 0, STEPS]
    first = float(began.iloc[0]) if len(began) else math.inf
    if first > 0.5 * run.steps and not run.learned:
        seen = f'the first update came after {first:.0f} of {run.steps} steps'
        yield Finding('idle-buffer', seen, 'Most of the run only filled the buffer', 'Lower --learning-starts')
    elif run.updates < 0.02 * run.steps and not run.learned:
        seen = f'{run.updates} updates in {run.steps} steps'
        meaning = 'The agent learns little from each transition'
        yield Finding('few-updates', seen, meaning, 'Lower --train-frequency, or set --gradient-steps -1')


def _learning_rate(run: RunData) -> Iterator[Finding]:
    rate, optimizer = run.options.get('lr'), run.options.get('optimizer')
    if rate is None:
        return
    limit = MAX_MUON_RATE if optimizer == 'muon' else MAX_RATE if run.learned else UNUSUAL_RATE
    if rate > limit:
        meaning = f'An update moves each weight by up to {rate:g}, and weights are about 0.1: networks hardly converge'
        yield Finding('learning-rate', f'--lr is {rate:g}', meaning, 'Set --lr to 3e-4, or use --tuned')
    used = run.metric('learning_rate')
    mean = float(used.mean()) if len(used) else float(rate)
    if run.updates >= 100 and mean * run.updates < MIN_MOVE and not run.learned:
        seen = f'--lr is {rate:g}, and there were {run.updates} updates'
        meaning = f'They can move a weight by at most about {mean * run.updates:.1g}: the networks are still untrained'
        yield Finding('learning-rate', seen, meaning, 'Raise --lr, for example to 3e-4')
    if len(used) >= 20 and not run.learned and (share := float((used < 0.01 * used.max()).mean())) > 0.3:
        seen = f'the learning rate was below 1 % of its first value for {100 * share:.0f} % of the run'
        remedy = 'Set --schedule-steps to the length of the run, or --lr-schedule constant'
        yield Finding('learning-rate', seen, 'The agent had stopped learning by then', remedy)


def _reward_scale(run: RunData) -> Iterator[Finding]:
    if run.sample is None or run.options.get('gamma') is None:
        return
    normalized = run.options.get('normalize_reward')
    bound, largest = (float(np.abs(x).max()) for x in (run.sample.returns, run.sample.learned_rewards))
    if not math.isfinite(bound):
        seen = 'rewards are not finite'
        yield Finding('reward-scale', seen, 'No update can use them', 'Correct the environment')
    elif bound > MAX_RETURN and not normalized:
        seen = f'{LEARNED_REWARDS} are up to {largest:.4g}, and discounted returns up to {bound:.4g}'
        yield large_returns(seen)
    elif 0 < bound < MIN_RETURN:
        seen = f'{LEARNED_REWARDS} are at most {largest:.1g}, and discounted returns at most {bound:.1g}'
        yield small_returns(seen)


def _observation_scale(run: RunData) -> Iterator[Finding]:
    if run.sample is not None:
        yield from observation_scale(
            run.sample.observations, run.sample.is_image, bool(run.options.get('normalize_obs'))
        )


def _sparse_reward(run: RunData) -> Iterator[Finding]:
    meaning = 'Nothing shows which actions are good until the agent finds another reward by chance'
    flags = run.flags('entropy_coef', 'epsilon_decay_steps', 'step_noise_coef')
    remedy = f'Explore more{f" ({flags})" if flags else ""}, or reward progress towards the goal'
    remedy += ', or use --her if the environment has goals' if run.flags('her') else ''
    if run.sample is not None and not run.sample.rewards.any() and not run.learned:
        seen = f'the rewards of {len(run.sample.rewards)} steps with the last weights are all 0'
        yield Finding('sparse-reward', seen, meaning, remedy)
        return
    if not run.has_episodes or run.rose:
        return
    usual = usual_value(run.rewards)
    share = float((run.rewards == usual).mean())
    if share > 0.98 and not run.is_good:
        seen = f'{_percent(share)} of {len(run.rewards)} episodes had the reward {usual:g}'
        yield Finding('sparse-reward', seen, meaning, remedy)


def _discount(run: RunData) -> Iterator[Finding]:
    gamma, sample = run.options.get('gamma'), run.sample
    if gamma is None or gamma >= 1:
        return
    horizon, length = 1 / (1 - gamma), run.episode_length
    delay = float(np.median(sample.first_reward)) if sample is not None and sample.first_reward else 1.0
    # at most 1 % of such a reward arrives at the start of the episode
    too_late = gamma**delay < 0.01
    too_short = horizon <= 5 and length > 4 * horizon
    if too_short or (too_late and not run.learned):
        what = f'rewards come after about {delay:.0f} steps' if too_late else f'episodes have about {length:.0f} steps'
        seen = f'--gamma {gamma:g} looks about {horizon:.0f} steps ahead, but {what}'
        wanted = 1 - 1 / max(min(delay if too_late else length, 1000), 100)
        meaning = 'The agent ignores later consequences of its actions'
        yield Finding('discount', seen, meaning, f'Raise --gamma, for example to {wanted:.3g}')
    elif gamma > 0.9999 and not run.learned and not run.options.get('max_episode_steps') and length > 1000:
        seen = f'--gamma is {gamma:g}, and episodes have about {length:.0f} steps'
        yield Finding('discount', seen, 'Returns are sums of that many rewards', 'Lower --gamma, for example to 0.99')


def _episodes(run: RunData) -> Iterator[Finding]:
    if not run.is_offline and run.status.get('games') == 0 and run.steps >= 10_000:
        seen = f'no episode ended in {run.steps} steps'
        meaning = 'So there is no mean reward and no best checkpoint, and the environment never starts anew'
        yield Finding('endless-episodes', seen, meaning, 'Set --max-episode-steps')


def _time_limit(run: RunData) -> Iterator[Finding]:
    limit = run.options.get('max_episode_steps')
    own = _own_limit(run.options.get('env'))
    if limit and own and limit < 0.25 * own and run.episode_length > 0.95 * limit and not run.is_good:
        seen = f'--max-episode-steps {limit} ends nearly all episodes; the limit of the environment is {own}'
        yield Finding('time-limit', seen, 'The agent never sees later states', f'Raise it towards {own}')


def _own_limit(env: Any) -> int | None:
    import gymnasium

    spec = gymnasium.registry.get(str(env).rpartition(':')[2])
    return None if spec is None else spec.max_episode_steps


def _target_network(run: RunData) -> Iterator[Finding]:
    period, tau = run.options.get('target_sync_steps'), run.options.get('tau')
    remedy = f'Set --target-sync-steps to a tenth of the run or less, for example to {max(run.steps // 100, 1)}'
    if period is not None and run.updates and period > 0.5 * run.steps and not run.learned:
        seen = f'--target-sync-steps is {period}, and the run had {run.steps} steps'
        yield Finding('target-network', seen, 'Targets stay those of the untrained network', remedy)
    if tau is not None and run.updates > 100 and tau * run.updates < 1 and not run.learned:
        seen = f'--tau is {tau:g}, and there were {run.updates} updates'
        yield Finding('target-network', seen, 'Targets stay those of the untrained networks', 'Set --tau to 0.005')


def _exploration(run: RunData) -> Iterator[Finding]:
    if run.learned or run.is_offline:
        return
    epsilon = run.metric('stats/epsilon')
    if len(epsilon) and epsilon[-1] > 0.5:
        seen = f'{_percent(epsilon[-1])} of the actions are random at the end of the run'
        remedy = 'Lower --epsilon-decay-steps below --max-steps, and --epsilon-end'
        yield Finding('exploration', seen, 'The agent has hardly acted by what it learned', remedy)
    elif len(epsilon) and epsilon.max() < 0.02 and not run.options.get('noisy'):
        seen = f'at most {_percent(float(epsilon.max()))} of the actions were random'
        yield Finding('exploration', seen, 'The agent repeats its first choices', 'Raise --epsilon-start and its decay')
    if run.options.get('step_noise_coef') == 0:
        yield Finding('exploration', '--step-noise-coef is 0', 'The agent repeats its first choices', 'Set it to 0.1')


def _budget(run: RunData) -> Iterator[Finding]:
    if run.learned or run.is_offline:
        return
    try:
        preset = find_preset(run.options['agent'], run.options['env'], run.options)
    except (OptionError, KeyError, AttributeError):
        return
    if run.steps < 0.05 * preset.max_steps:
        seen = f'the run had {run.steps} steps; the tuned settings were trained for {preset.max_steps}'
        yield Finding('budget', seen, 'That may be too few to see progress', 'Raise --max-steps, and use --tuned')


def _batch(run: RunData) -> Iterator[Finding]:
    if run.learned:
        return
    size, replayed = run.options.get('n_steps'), run.options.get('buffer_batch_size')
    n_envs = run.options.get('n_envs') or 1
    if replayed is not None and replayed < 8:
        seen = f'--buffer-batch-size is {replayed}'
        yield Finding('batch-size', seen, 'An update follows the noise of single transitions', 'Set it to 64 or more')
    elif size is not None and replayed is None and size * n_envs < 16:
        seen = f'a rollout has {size * n_envs} transitions (--n-envs {n_envs} x --n-steps {size})'
        yield Finding('batch-size', seen, 'An update follows the noise of a few steps', 'Raise --n-envs or --n-steps')
    capacity = run.options.get('buffer_max_size')
    if replayed is not None and capacity is not None and capacity < min(2 * run.episode_length, 1000) < run.steps:
        seen = f'the replay buffer holds {capacity} transitions; an episode has about {run.episode_length:.0f}'
        yield Finding('buffer-size', seen, 'The agent forgets what it learned before', 'Raise --buffer-max-size')


# symptoms


def _entropy(run: RunData) -> Iterator[Finding]:
    entropy, sample = run.metric('loss/entropy'), run.sample
    if not len(entropy) or sample is None or run.is_good:
        return
    low, high, text = _entropy_limits(sample.action_space, entropy[-1], LOW_ENTROPY if run.learned else STUCK_ENTROPY)
    if high is not None and entropy[-1] > high and (run.options.get('entropy_coef') or 0) > 0.05:
        seen = f'the policy is still random ({text}), and --entropy-coef is {run.options["entropy_coef"]:g}'
        yield Finding(
            'entropy', seen, 'The entropy bonus outweighs the rewards', 'Lower --entropy-coef, for example to 0.01'
        )
    if low is None or entropy[-1] >= low or not run.has_episodes:
        return
    fell = int(np.argmax(entropy < low))
    at = float(run.metrics.loc[run.metrics['loss/entropy'].notna(), STEPS].iloc[fell])
    known = run.rewards[run.ends <= at][-run.window :]
    before = float(known.mean()) if len(known) else run.baseline[0]
    mean, deviation = run.baseline
    best = float(run.means.max())
    # a policy that has learned may become certain; one that becomes certain before that has collapsed
    if before < mean + max(deviation, 0.5 * (best - mean)) or not run.learned:
        seen = (
            f'the policy became certain after {at:.0f} of {run.steps} steps ({text}), at a mean reward of {before:.4g}'
        )
        flags = ['raise --entropy-coef', 'lower --lr', *(['use --target-kl'] if run.flags('target_kl') else [])]
        narrow = isinstance(sample.action_space, spaces.Box) and (run.options.get('log_std_init') or 0) < -2
        text = ', or '.join(['raise --log-std-init', *flags] if narrow else flags)
        remedy = text[0].upper() + text[1:]
        yield Finding('entropy', seen, 'It takes nearly the same action in each state, and no longer explores', remedy)


def _entropy_limits(space: spaces.Space, entropy: float, share: float) -> tuple[float | None, float | None, str]:
    """Return entropies below which a policy has collapsed and above which it is random, and a description.

    Args:
        space: the action space.
        entropy: the last entropy.
        share: the part of the largest entropy below which a policy has collapsed.
    """
    n: float | None = None
    if isinstance(space, spaces.Discrete):
        n = float(np.log(space.n))
    elif isinstance(space, spaces.MultiDiscrete):
        n = float(np.log(space.nvec).sum())
    elif isinstance(space, spaces.MultiBinary):
        n = float(np.prod(space.shape) * np.log(2))
    if n:
        return share * n, HIGH_ENTROPY * n, f'its entropy is {_percent(entropy / n)} of the largest'
    if isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).all():
        size = int(np.prod(space.shape))
        half = np.maximum((space.high - space.low).astype(float) / 2, 1e-12)
        gaussian = 0.5 * math.log(2 * math.pi * math.e)
        deviation = math.exp(entropy / size - gaussian)
        low = size * (gaussian + math.log(LOW_DEVIATION * float(np.exp(np.log(half).mean()))))
        return low, None, f'standard deviation {deviation:.2g}'
    return None, None, ''


def _temperature(run: RunData) -> Iterator[Finding]:
    temperature, entropy = run.late('stats/temperature'), run.late('stats/entropy')
    if run.learned or run.sample is None or not math.isfinite(temperature * entropy):
        return
    typical = float(np.abs(run.sample.learned_rewards).mean())
    if temperature * max(abs(entropy), 0.1) > 10 * typical > 0:
        seen = (
            f'the bonus for entropy is about {temperature * abs(entropy):.3g} a step, rewards are about {typical:.3g}'
        )
        remedy = 'Set --entropy-coef auto or lower, or scale rewards up (--reward-scale)'
        yield Finding('entropy', seen, 'The agent is rewarded for random actions', remedy)


def _policy_change(run: RunData) -> Iterator[Finding]:
    if run.learned:
        return
    kl, clipped = run.late('stats/kl'), run.late('stats/clip_fraction')
    if kl > MAX_KL or clipped > MAX_CLIP_FRACTION:
        seen = (
            f'an update changes the policy by a KL divergence of {kl:.2g} and clips {_percent(clipped)} of the ratios'
        )
        wide = ' or --clip-norm' if (run.options.get('clip_norm') or 0) > 0.4 else ''
        remedy = f'Lower --lr or --ppo-epochs{wide}, or set --target-kl 0.02'
        yield Finding('policy-change', seen, 'The policy changes too much for the data of one rollout', remedy)


def _still_policy(run: RunData) -> Iterator[Finding]:
    kl = run.late('stats/kl')
    if 0 <= kl < STILL_KL and run.updates:
        seen = f'an update changes the policy by a KL divergence of only {kl:.1g}'
        yield Finding('policy-change', seen, 'The policy does not move', 'Raise --lr, --grad-norm or --clip-norm')


def _critic(run: RunData) -> Iterator[Finding]:
    explained = run.metric('stats/explained_variance')
    if run.learned or len(explained) < 10:
        return
    late = float(np.median(explained[-max(len(explained) // 4, 5) :]))
    if late < 0.05:
        seen = f'the critic explains {max(late, -9.99):.2f} of the variance of returns (1 is perfect, 0 is a constant)'
        remedy = 'Add --normalize-reward and --normalize-obs, or raise --value-loss-coef or --n-steps'
        yield Finding('critic', seen, 'Without a critic, it takes long to see which actions are good', remedy)


def _q_values(run: RunData) -> Iterator[Finding]:
    q = run.metric('stats/q')
    if len(q) < 10 or run.sample is None or not math.isfinite(run.return_bound):
        return
    largest, bound = float(np.abs(q[-max(len(q) // 10, 5) :]).max()), max(run.return_bound, 1e-6)
    bonus = abs(run.late('stats/temperature') * run.late('stats/entropy')) / max(1 - run.options['gamma'], 1e-6)
    bound += bonus if math.isfinite(bonus) else 0.0
    if largest > 3 * bound + 1:
        seen = f'mean action values reach {largest:.4g}, but returns are at most {bound:.4g}'
        others = {'target_sync_steps': 'raise --target-sync-steps', 'tau': 'lower --tau', 'double': 'use --double'}
        known = [text for name, text in others.items() if name in run.options]
        remedy = ', or '.join(['Lower --lr', *known, 'lower --gamma'])
        yield Finding('q-values', seen, 'Action values diverge', remedy)


def _dead_units(run: RunData) -> Iterator[Finding]:
    if run.learned or run.sample is None:
        return
    for name, (kind, outputs) in run.sample.units.items():
        if kind == 'relu':
            dead, what = float((outputs.max(0) <= 0).mean()), 'are 0 for every observation'
        else:
            dead, what = float((np.abs(outputs) > SATURATED).all(0).mean()), 'are saturated for every observation'
        if dead > DEAD_SHARE:
            seen = f'{_percent(dead)} of the units of {name} of the acting network {what}'
            remedy = 'Lower --lr, normalise observations (--normalize-obs), or train anew with another --activation'
            yield Finding('dead-units', seen, 'They no longer learn', remedy)
            return


def _actions(run: RunData) -> Iterator[Finding]:
    sample = run.sample
    if run.learned or sample is None or not isinstance(sample.action_space, spaces.Box):
        return
    if 'loss/entropy' not in run.metrics or sample.actions.ndim != 2:
        return
    beyond = float((np.abs(sample.actions) > np.maximum(np.abs(sample.action_space.high), 1e-12).reshape(-1)).mean())
    if beyond > 0.9:
        seen = f'{_percent(beyond)} of the sampled actions are beyond their bounds, and are clipped'
        remedy = 'Lower --log-std-init, or rescale actions (--wrapper gymnasium.wrappers:RescaleAction)'
        yield Finding('action-scale', seen, 'Actions that differ for the policy are equal for the environment', remedy)


def _collapse(run: RunData) -> Iterator[Finding]:
    if len(run.rewards) < MIN_COLLAPSE_EPISODES or not run.rose or run.is_good:
        return
    (first, deviation), best, last = run.baseline, float(run.means.max()), float(run.means[-1])
    if best - last > max(0.7 * (best - first), 2 * deviation):
        seen = f'the mean reward fell from {best:.4g} to {last:.4g}'
        kl = ' or --target-kl' if run.flags('target_kl') else ''
        remedy = f'Lower --lr, or use --lr-schedule linear{kl}; the best weights are in checkpoints/best'
        yield Finding('collapse', seen, 'The agent forgot what it had learned', remedy)


def _no_cause(run: RunData) -> Iterator[Finding]:
    mean, last = run.baseline[0], float(run.means[-1])
    seen = f'the mean reward is {last:.4g} at the end, and {mean:.4g} with random actions or at first'
    remedy = 'Train longer, use --tuned, search settings (xagents tune), and check the environment: xagents doctor ENV'
    yield Finding('no-progress', seen, 'None of the known causes was found', remedy)


def _percent(share: float) -> str:
    return f'{100 * share:.0f} %'


Check = Callable[[RunData], Iterator[Finding]]
CAUSES: tuple[Check, ...] = (
    *(_not_finite, _no_updates, _learning_rate, _reward_scale, _observation_scale, _sparse_reward, _discount),
    *(_episodes, _time_limit, _target_network, _exploration, _batch),
)
SYMPTOMS: tuple[Check, ...] = (*(_entropy, _temperature, _policy_change, _q_values, _dead_units, _actions, _collapse),)
UNEXPLAINED: tuple[Check, ...] = (_still_policy, _critic, _budget)
