"""Train an agent of d3rlpy on a data set in the format of Minari, and write its greedy policy as arrays."""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.workers.measure import report
from benchmarks.workers.settings import translate

PACKAGES = ('d3rlpy', 'torch', 'minari', 'numpy')
# updates between two readings of the clock; the first ones are warm-up
EPOCH = 500


BC = 'learning_rate=lr'
ACTOR_CRITIC = 'gamma tau actor_learning_rate=lr critic_learning_rate=lr'
TD3_BC = f"""{ACTOR_CRITIC} alpha update_actor_interval=policy_delay target_smoothing_sigma=policy_noise
    target_smoothing_clip=noise_clip"""
IQL = f'{ACTOR_CRITIC} expectile weight_temp=temperature max_weight'


def read(name: str) -> tuple[Any, Any]:
    """Return a data set for d3rlpy, and the action space.

    d3rlpy's `get_minari` (2.8.1) pairs the T + 1 observations of an episode with its T actions, so that later rows do
    not match; here each action has the observation before it.
    """
    import d3rlpy
    import minari

    source = minari.load_dataset(name)
    names = ('observations', 'actions', 'rewards', 'terminals', 'timeouts')
    columns: dict[str, list[np.ndarray]] = {key: [] for key in names}
    for episode in source:
        timeouts = episode.truncations & ~episode.terminations
        rows = (episode.observations[:-1], episode.actions, episode.rewards, episode.terminations, timeouts)
        for key, values in zip(names, rows, strict=True):
            # rewards and actions in double precision would make every batch double precision
            columns[key].append(np.asarray(values, np.float32))
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    return d3rlpy.dataset.MDPDataset(**joined), source.action_space


def make_agent(settings: dict[str, Any], low: np.ndarray, high: np.ndarray) -> Any:
    """Return the agent with the settings of both libraries."""
    from d3rlpy import algos
    from d3rlpy.models.encoders import VectorEncoderFactory
    from d3rlpy.optimizers import AdamFactory
    from d3rlpy.preprocessing import MinMaxActionScaler, StandardObservationScaler

    network = VectorEncoderFactory(hidden_units=list(settings['units']), activation='relu')
    adam = AdamFactory(eps=settings['optimizer_epsilon'])
    common: dict[str, Any] = {
        'batch_size': settings['batch_size'],
        'action_scaler': MinMaxActionScaler(minimum=low, maximum=high),
        'observation_scaler': StandardObservationScaler(eps=1e-3) if settings['standardise'] else None,
    }
    parts = {f'{part}_optim_factory': adam for part in ('actor', 'critic')}
    parts |= {f'{part}_encoder_factory': network for part in ('actor', 'critic')}
    if settings['algorithm'] == 'bc':
        one = translate(settings, BC)
        config: Any = algos.BCConfig(**one, optim_factory=adam, encoder_factory=network, **common)
    elif settings['algorithm'] == 'td3-bc':
        config = algos.TD3PlusBCConfig(**translate(settings, TD3_BC), **parts, **common)
    else:
        config = algos.IQLConfig(**translate(settings, IQL), value_encoder_factory=network, **parts, **common)
    return config.create(device=False)


def arrays(learned: Any, low: np.ndarray, high: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays of the greedy policy: statistics of observations, layers, and bounds of actions.

    Raises:
        SystemExit: if the arrays give other actions than the library.
    """
    import torch

    policy = learned.impl.policy
    last = policy._mu if hasattr(policy, '_mu') else policy._fc
    layers = [m for m in policy._encoder.modules() if isinstance(m, torch.nn.Linear)] + [last]
    found = {'low': low, 'high': high, 'mean': np.zeros(layers[0].in_features), 'deviation': np.ones(1)}
    scaler = learned.config.observation_scaler
    if scaler is not None:
        found |= {'mean': scaler.mean, 'deviation': scaler.std + scaler.eps}
    for k, layer in enumerate(layers):
        found |= {f'kernel_{k}': layer.weight.detach().numpy().T, f'bias_{k}': layer.bias.detach().numpy()}
    some = np.random.default_rng(0).normal(size=(64, layers[0].in_features)).astype(np.float32)
    if not np.allclose(policy_of(found)(some), learned.predict(some), atol=1e-4):
        raise SystemExit('the written policy gives other actions than its library')
    return found


def policy_of(policy: Any) -> Any:
    """Return the function from observations [N, …] to actions [N, …] of the arrays that `arrays` returns."""
    depth = sum(name.startswith('kernel') for name in policy)
    parts = {name: np.asarray(policy[name], np.float32) for name in policy}

    def act(observations: np.ndarray) -> np.ndarray:
        x = (observations.astype(np.float32) - parts['mean']) / parts['deviation']
        for k in range(depth):
            x = x @ parts[f'kernel_{k}'] + parts[f'bias_{k}']
            x = np.maximum(x, 0) if k + 1 < depth else np.tanh(x)
        return parts['low'] + (x + 1) / 2 * (parts['high'] - parts['low'])

    return act


def main() -> None:
    """Run the job: dataset, settings, updates, seed and policy as JSON in the first argument."""
    job = json.loads(sys.argv[1])
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    d3rlpy.seed(job['seed'])
    dataset, space = read(job['dataset'])
    learner = make_agent(job['settings'], space.low, space.high)
    quiet = {'logger_adapter': d3rlpy.logging.NoopAdapterFactory(), 'show_progress': False}
    epochs = learner.fitter(dataset, n_steps=job['updates'], n_steps_per_epoch=EPOCH, **quiet)
    next(epochs)
    start, spent = time.perf_counter(), time.process_time()
    timed = EPOCH * sum(1 for _ in epochs)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - spent
    np.savez(job['policy'], **arrays(learner, space.low, space.high))
    report({'updates': timed, 'seconds': seconds, 'cpu_seconds': cpu_seconds}, PACKAGES)


if __name__ == '__main__':
    main()
