"""Trains one of d3rlpy's agents on a data set in Minari's form, and writes its greedy policy as arrays."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.workers.measure import report

PACKAGES = ('d3rlpy', 'torch', 'minari', 'numpy')
# updates between two looks at the clock, the first of which is warm-up
EPOCH = 500


def read(name: str) -> tuple[Any, Any]:
    """Return a data set as d3rlpy takes it, and the action space.

    Its own `get_minari` (2.8.1) joins the T + 1 observations of each episode beside the T actions, so that they fall
    apart by a row an episode; here each action stands beside the observation that it was taken in.
    """
    import d3rlpy
    import minari

    source = minari.load_dataset(name)
    columns: dict[str, list[np.ndarray]] = {
        key: [] for key in ('observations', 'actions', 'rewards', 'terminals', 'timeouts')
    }
    for episode in source:
        # kept in double precision, rewards and actions would make every batch so
        columns['observations'].append(np.asarray(episode.observations[:-1], np.float32))
        columns['actions'].append(np.asarray(episode.actions, np.float32))
        columns['rewards'].append(np.asarray(episode.rewards, np.float32))
        columns['terminals'].append(np.asarray(episode.terminations, np.float32))
        columns['timeouts'].append(np.asarray(episode.truncations & ~episode.terminations, np.float32))
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    return d3rlpy.dataset.MDPDataset(**joined), source.action_space


def agent(settings: dict[str, Any], low: np.ndarray, high: np.ndarray) -> Any:
    """Make the agent by the settings that both libraries get."""
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
    if settings['algorithm'] == 'bc':
        config: Any = algos.BCConfig(
            learning_rate=settings['lr'], optim_factory=adam, encoder_factory=network, **common
        )
        return config.create(device=False)
    common |= {
        'gamma': settings['gamma'],
        'tau': settings['tau'],
        'actor_learning_rate': settings['lr'],
        'critic_learning_rate': settings['lr'],
        'actor_optim_factory': adam,
        'critic_optim_factory': adam,
        'actor_encoder_factory': network,
        'critic_encoder_factory': network,
    }
    if settings['algorithm'] == 'td3-bc':
        config = algos.TD3PlusBCConfig(
            alpha=settings['alpha'],
            update_actor_interval=settings['policy_delay'],
            target_smoothing_sigma=settings['policy_noise'],
            target_smoothing_clip=settings['noise_clip'],
            **common,
        )
    else:
        config = algos.IQLConfig(
            value_encoder_factory=network,
            expectile=settings['expectile'],
            weight_temp=settings['temperature'],
            max_weight=settings['max_weight'],
            **common,
        )
    return config.create(device=False)


def arrays(learned: Any, low: np.ndarray, high: np.ndarray) -> dict[str, np.ndarray]:
    """Return the greedy policy: what stands before its layers, the layers, the bounds of its actions.

    Raises:
        SystemExit: where these do not act as the library does.
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
    if not np.allclose(acting(found)(some), learned.predict(some), atol=1e-4):
        raise SystemExit('the policy that was written acts otherwise than its library')
    return found


def acting(policy: Any) -> Any:
    """Return a function from observations [N, …] to actions [N, …], of the arrays that `arrays` returned."""
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
    """Do the job: one JSON object of dataset, settings, updates, seed and policy in the first argument."""
    job = json.loads(sys.argv[1])
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    d3rlpy.seed(job['seed'])
    dataset, space = read(job['dataset'])
    learner = agent(job['settings'], space.low, space.high)
    epochs = learner.fitter(
        dataset,
        n_steps=job['updates'],
        n_steps_per_epoch=EPOCH,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    next(epochs)
    start, spent = time.perf_counter(), time.process_time()
    timed = EPOCH * sum(1 for _ in epochs)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - spent
    np.savez(job['policy'], **arrays(learner, space.low, space.high))
    report({'updates': timed, 'seconds': seconds, 'cpu_seconds': cpu_seconds}, PACKAGES)


if __name__ == '__main__':
    main()
