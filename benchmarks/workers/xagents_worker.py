"""Measure xagents from this checkout through its public interface."""

import time
from typing import Any

from benchmarks.workers.flops import peak_matters, peak_size, update_share
from benchmarks.workers.measure import Clock, Job, check_updates, hold_to_one_core, matmul_peak, report, resident_mb
from benchmarks.workers.settings import NOISY, AnySettings, OffPolicySettings, Settings, translate

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy', 'ale-py')


ON_POLICY = """n_envs n_steps gamma lam lr optimizer opt_epsilon=optimizer_epsilon normalize_advantage precision seed"""
OFF_POLICY = """n_envs buffer_max_size=buffer_size buffer_initial_size=learning_starts buffer_batch_size=batch_size
    train_frequency gradient_steps gamma lr opt_epsilon=optimizer_epsilon precision activation seed"""
TRPO = """critic_iterations=epochs mini_batches=minibatches max_kl cg_iterations cg_damping actor_iterations=line_search
    fvp_n_steps=fisher_every"""
A2C = 'entropy_coef value_loss_coef=value_coef grad_norm shared_network'
PPO = f'{A2C} ppo_epochs=epochs mini_batches=minibatches clip_norm=clip'
DQN = 'grad_norm epsilon_start=epsilon epsilon_end=epsilon target_sync_steps'
DDPG = 'tau step_noise_coef=noise'
TD3 = f'{DDPG} policy_delay policy_noise_coef=policy_noise noise_clip'
SAC = 'tau target_entropy'
TQC = f'{SAC} n_quantiles dropped_quantiles'
CROSSQ = 'target_entropy policy_delay beta1'
PQN = """n_envs n_steps gamma lam lr opt_epsilon=optimizer_epsilon precision seed epochs mini_batches=minibatches
    grad_norm epsilon_start=epsilon epsilon_end=epsilon"""
NAMES = {
    'a2c': f'{ON_POLICY} {A2C}', 'ppo': f'{ON_POLICY} {PPO}', 'trpo': f'{ON_POLICY} {TRPO}',
    'acer': 'n_envs n_steps replay_ratio seed', 'pqn': PQN,
    'dqn': f'{OFF_POLICY} {DQN}', 'ddpg': f'{OFF_POLICY} {DDPG}', 'td3': f'{OFF_POLICY} {TD3}',
    'sac': f'{OFF_POLICY} {SAC}', 'tqc': f'{OFF_POLICY} {TQC}', 'crossq': f'{OFF_POLICY} {CROSSQ}',
}  # fmt: skip


def arguments(settings: AnySettings) -> dict[str, Any]:
    """Return the options of `xagents.make`; all others are defaults of the agents."""
    keywords = translate(settings, NAMES[settings.algorithm]) | {'quiet': True}
    if isinstance(settings, OffPolicySettings):
        keywords |= {'huber': True} if settings.algorithm == 'dqn' else {}
        keywords |= {'noise': 'gaussian'} if settings.algorithm in NOISY else {}
        return keywords | {'net': list(settings.units)}
    # the default networks are 64-64 tanh for vectors and the Nature CNN for images
    if (
        not settings.atari
        and settings.algorithm != 'acer'
        and (settings.units, settings.activation) != ((64, 64), 'tanh')
    ):
        keywords |= {'net': list(settings.units), 'activation': settings.activation}
    return keywords


def make_agent(job: Job) -> Any:
    """Return the agent; with `job.gymnasium`, the environments are not compiled."""
    import xagents

    keywords = arguments(job.settings) | job.options
    if job.gymnasium:
        import gymnasium

        native = not job.settings.atari and gymnasium.spec(job.settings.env).vector_entry_point is not None
        keywords['vector'] = 'native' if native else 'sync'
    return xagents.make(job.settings.algorithm, job.settings.env, **keywords)


def check_threads(settings: AnySettings) -> None:
    """Check that the number of threads of xagents is that of the settings."""
    import tensorflow as tf

    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    if chosen != settings.threads:
        raise SystemExit(f'xagents: {chosen} threads, expected {settings.threads} (0: all cores)')


def command(settings: Settings, target: float = 250) -> list[str]:
    """Return the arguments of `xagents` that train to a mean; all other options are defaults."""
    text = (
        f'train {settings.algorithm} --env {settings.env} --target-reward {target:g} --n-envs {settings.n_envs} '
        f'--n-steps {settings.n_steps} --checkpoints ppo-cartpole.tf --history-checkpoint ppo-cartpole.parquet '
        f'--seed {settings.seed}'
    )
    return text.split() + ['--shared-network'] * settings.shared_network


def traces(agent: Any) -> dict[str, int]:
    """Return the number of traces of each compiled function in the attributes of an agent and of their attributes."""
    attributes = dict(vars(agent))
    for name, value in list(attributes.items()):
        attributes |= {f'{name}.{inner}': one for inner, one in getattr(value, '__dict__', {}).items()}
    counts: dict[int, tuple[str, int]] = {}  # a function with several names counts once
    for name, value in attributes.items():
        count = getattr(value, 'traces', None)
        if isinstance(count, int):
            counts.setdefault(id(value), (name.lstrip('_'), count))
    return dict(counts.values())


def matrix_peak(precision: str, size: int) -> float:
    """Return the peak of matrix products in TensorFlow, in operations per second."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.uniform((size, size)), precision)
    return matmul_peak(lambda: (matrix @ matrix)[0, 0].numpy(), size)


def measure_speed(job: Job, agent: Any) -> dict[str, Any]:
    """Train `warmup` steps, then time `steps` more."""
    clock: Clock | None = None
    took = {'seconds': 0.0}
    first = last = first_update = updates = 0
    parts: dict[str, float] = {}
    for log in agent.train_iter(max_steps=job.warmup + job.steps):
        last = int(log['steps'])
        if clock:
            # the clock is read before the work at the end of a run, which is not training
            took = clock.read()
            updates = int(log['updates']) - first_update
            for name in (name for name in log if name.startswith('seconds/')):
                part = name.removeprefix('seconds/')
                parts[part] = parts.get(part, 0.0) + log[name]
        elif last >= job.warmup:
            clock, first, first_update = Clock(), last, int(log['updates'])
    check_updates(job.settings, last - first, updates)
    result: dict[str, Any] = {'steps': last - first, **took, 'parts': parts, 'traces': traces(agent)}
    if peak_matters(job.settings) and parts.get('learn'):
        size = peak_size(job.settings)
        peak = matrix_peak('float32', size)
        shapes = int(agent.input_shape[0]), int(agent.n_actions)
        result['peak_gflops'] = peak / 1e9
        seconds = parts['learn'] + parts.get('replay', 0.0)
        result['peak_share'] = update_share(job.settings, *shapes, job.settings.updates(last - first), seconds, peak)
        if job.settings.precision == 'bfloat16':
            result['peak_gflops_bfloat16'] = matrix_peak('bfloat16', size) / 1e9
    return result


def measure_memory(job: Job, agent: Any) -> dict[str, Any]:
    """Return resident MB after each `warmup` steps."""
    start, steps = time.perf_counter(), 0
    samples: list[tuple[int, float]] = []
    for log in agent.train_iter(max_steps=job.steps):
        steps = int(log['steps'])
        if steps >= job.warmup * (len(samples) + 1):
            samples.append((steps, resident_mb()))
    return {'steps': steps, 'seconds': time.perf_counter() - start, 'samples': samples, 'traces': traces(agent)}


def main() -> None:
    """Run the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    if job.settings.threads > 1:
        from xagents.system.threads import set_threads

        set_threads(job.settings.threads)
    agent = make_agent(job)
    check_threads(job.settings)
    measure = {'speed': measure_speed, 'memory': measure_memory}[job.task]
    report(measure(job, agent), PACKAGES)


if __name__ == '__main__':
    main()
