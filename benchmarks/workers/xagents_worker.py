"""Measures xagents, from this checkout, through its public interface."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.workers.flops import peak_matters, update_share
from benchmarks.workers.measure import Clock, Job, check_updates, hold_to_one_core, matmul_peak, report, resident_mb
from benchmarks.workers.settings import AnySettings, OffPolicySettings, Settings

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy', 'ale-py')


def arguments(settings: AnySettings) -> dict[str, Any]:
    """The keywords of `xagents.make`; on-policy networks are 64-64 tanh for vectors, the Nature CNN for images."""
    if isinstance(settings, OffPolicySettings):
        return off_policy_arguments(settings)
    if settings.algorithm == 'acer':
        names = ('n_envs', 'n_steps', 'replay_ratio', 'seed')
        return {**{name: getattr(settings, name) for name in names}, 'quiet': True}
    keywords: dict[str, Any] = {
        'n_envs': settings.n_envs,
        'n_steps': settings.n_steps,
        'gamma': settings.gamma,
        'lam': settings.lam,
        'lr': settings.lr,
        'optimizer': settings.optimizer,
        'opt_epsilon': settings.optimizer_epsilon,
        'normalize_advantage': settings.normalize_advantage,
        'precision': settings.precision,
        'seed': settings.seed,
        'quiet': True,
    }
    if settings.algorithm == 'trpo':
        keywords |= {
            'critic_iterations': settings.epochs,
            'mini_batches': settings.minibatches,
            'max_kl': settings.max_kl,
            'cg_iterations': settings.cg_iterations,
            'cg_damping': settings.cg_damping,
            'actor_iterations': settings.line_search,
            'fvp_n_steps': settings.fisher_every,
        }
    else:
        keywords |= {
            'entropy_coef': settings.entropy_coef,
            'value_loss_coef': settings.value_coef,
            'grad_norm': settings.grad_norm,
            'shared_network': settings.shared_network,
        }
    if settings.algorithm == 'ppo':
        keywords |= {
            'ppo_epochs': settings.epochs,
            'mini_batches': settings.minibatches,
            'clip_norm': settings.clip,
        }
    if not settings.atari and (settings.units, settings.activation) != ((64, 64), 'tanh'):
        keywords |= {'net': list(settings.units), 'activation': settings.activation}
    return keywords


def off_policy_arguments(settings: OffPolicySettings) -> dict[str, Any]:
    """The keywords of `xagents.make` for DQN, DDPG and TD3; what is not set is the default of these agents."""
    keywords: dict[str, Any] = {
        'n_envs': settings.n_envs,
        'buffer_max_size': settings.buffer_size,
        'buffer_initial_size': settings.learning_starts,
        'buffer_batch_size': settings.batch_size,
        'train_frequency': settings.train_frequency,
        'gradient_steps': settings.gradient_steps,
        'gamma': settings.gamma,
        'lr': settings.lr,
        'opt_epsilon': settings.optimizer_epsilon,
        'precision': settings.precision,
        'net': list(settings.units),
        'activation': settings.activation,
        'seed': settings.seed,
        'quiet': True,
    }
    if settings.algorithm == 'dqn':
        return keywords | {
            'huber': True,
            'grad_norm': settings.grad_norm,
            'epsilon_start': settings.epsilon,
            'epsilon_end': settings.epsilon,
            'target_sync_steps': settings.target_sync_steps,
        }
    keywords |= {'tau': settings.tau, 'noise': 'gaussian', 'step_noise_coef': settings.noise}
    if settings.algorithm == 'td3':
        keywords |= {
            'policy_delay': settings.policy_delay,
            'policy_noise_coef': settings.policy_noise,
            'noise_clip': settings.noise_clip,
        }
    return keywords


def check_threads(settings: AnySettings) -> None:
    """Make sure that xagents chose the threads that the settings say: its default is what is measured."""
    import tensorflow as tf

    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    if chosen != settings.threads:
        raise SystemExit(f'xagents: {chosen} threads, and {settings.threads} (0: all cores) were to be measured')


def command(settings: Settings, target: float = 250) -> list[str]:
    """The arguments of `xagents` that train to a mean, with every other option at its default."""
    text = (
        f'train {settings.algorithm} --env {settings.env} --target-reward {target:g} --n-envs {settings.n_envs} '
        f'--n-steps {settings.n_steps} --checkpoints ppo-cartpole.tf --history-checkpoint ppo-cartpole.parquet '
        f'--seed {settings.seed}'
    )
    return text.split() + ['--shared-network'] * settings.shared_network


def traces(agent: Any) -> dict[str, int]:
    """How often each compiled function was traced that the agent, or what it holds, carries as an attribute."""
    held = dict(vars(agent))
    for name, value in list(held.items()):
        held |= {f'{name}.{inner}': one for inner, one in getattr(value, '__dict__', {}).items()}
    counts: dict[int, tuple[str, int]] = {}  # once each, whoever else holds it
    for name, value in held.items():
        count = getattr(value, 'traces', None)
        if isinstance(count, int):
            counts.setdefault(id(value), (name.lstrip('_'), count))
    return dict(counts.values())


def matrix_peak(precision: str) -> float:
    """The matrix-multiply peak of this machine in TensorFlow, operations a second."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.uniform((2048, 2048)), precision)
    return matmul_peak(lambda: (matrix @ matrix)[0, 0].numpy(), 2048)


def measure_speed(job: Job, agent: Any) -> dict[str, Any]:
    """Train `warmup` steps, then time `steps` more."""
    clock: Clock | None = None
    took = {'seconds': 0.0}
    first = last = first_update = updates = 0
    parts: dict[str, float] = {}
    for log in agent.train_iter(max_steps=job.warmup + job.steps):
        last = int(log['steps'])
        if clock:
            # the clock is read before the run's closing work, which is not training
            took = clock.read()
            updates = int(log['updates']) - first_update
            for name, value in log.items():
                if name.startswith('seconds/'):
                    parts[name.removeprefix('seconds/')] = parts.get(name.removeprefix('seconds/'), 0.0) + value
        elif last >= job.warmup:
            clock, first, first_update = Clock(), last, int(log['updates'])
    check_updates(job.settings, last - first, updates)
    result: dict[str, Any] = {'steps': last - first, **took, 'parts': parts, 'traces': traces(agent)}
    if peak_matters(job.settings) and parts.get('learn'):
        peak = matrix_peak('float32')
        shapes = int(agent.input_shape[0]), int(agent.n_actions)
        result['peak_gflops'] = peak / 1e9
        result['peak_share'] = update_share(
            job.settings, *shapes, job.settings.updates(last - first), parts['learn'] + parts.get('replay', 0.0), peak
        )
        if job.settings.precision == 'bfloat16':
            result['peak_gflops_bfloat16'] = matrix_peak('bfloat16') / 1e9
    return result


def measure_memory(job: Job, agent: Any) -> dict[str, Any]:
    """Resident MB at every `warmup` steps."""
    start, steps = time.perf_counter(), 0
    samples: list[tuple[int, float]] = []
    for log in agent.train_iter(max_steps=job.steps):
        steps = int(log['steps'])
        if steps >= job.warmup * (len(samples) + 1):
            samples.append((steps, resident_mb()))
    return {'steps': steps, 'seconds': time.perf_counter() - start, 'samples': samples, 'traces': traces(agent)}


def main() -> None:
    """Do the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    import xagents

    agent = xagents.make(job.settings.algorithm, job.settings.env, **arguments(job.settings))
    check_threads(job.settings)
    measure = {'speed': measure_speed, 'memory': measure_memory}[job.task]
    report(measure(job, agent), PACKAGES)


if __name__ == '__main__':
    main()
