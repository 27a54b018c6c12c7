"""Running statistics that scale observations and rewards.

A rollout's observations must be scaled by the same numbers when they are acted on and when they are learned from, or
the log-probabilities of acting would belong to other inputs. So `update` is called once a rollout, `__call__` as often
as one likes. A replay buffer keeps raw observations: they are scaled by the present numbers when they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

EPSILON = 1e-8
LIMIT = 10.0


class RunningStatistics:
    """Mean and variance of everything seen so far, float64 of the shape of one sample.

    Batches are merged by the parallel formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm
    for Computing Sample Variances" (1979), equations 1.5. The variance is the population's, 1 before the first update.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = 0

    def update(self, batch: np.ndarray) -> None:
        """Takes in a batch [..., *shape]; samples that are not finite, which would stay for ever, are left out.

        Raises:
            ValueError: if the batch has another shape.
        """
        shape = self.mean.shape
        batch = np.asarray(batch)
        if batch.shape[batch.ndim - len(shape) :] != shape or batch.ndim < len(shape):
            raise ValueError(f'the batch has the shape {batch.shape}; expected {shape} after any batch axes')
        samples = batch.reshape(-1, *shape)
        if not len(samples):
            return
        mean = samples.mean(axis=0, dtype=np.float64)
        if not np.isfinite(mean).all():
            samples = samples[np.isfinite(samples).reshape(len(samples), -1).all(axis=1)]
            if not len(samples):
                return
            mean = samples.mean(axis=0, dtype=np.float64)
        var = np.square(samples - mean).mean(axis=0)
        total = self.count + len(samples)
        difference = mean - self.mean
        squares = self.var * self.count + var * len(samples)
        squares += np.square(difference) * (self.count * len(samples) / total)
        self.mean = self.mean + difference * (len(samples) / total)
        self.var = squares / total
        self.count = total

    def state(self) -> dict[str, np.ndarray]:
        """Returns the statistics as new arrays `mean`, `var`, `count`."""
        return {'mean': self.mean.copy(), 'var': self.var.copy(), 'count': np.array(self.count, np.int64)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state` returned, of the same shape."""
        mean, var, count = (_of_shape(state, name, self.mean.shape) for name in ('mean', 'var', 'count'))
        self.mean, self.var, self.count = mean, var, int(count)


class ObservationNormalizer:
    """Scales observations of shape D to mean 0 and variance 1, clipped to [-10, 10], by its `statistics`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.statistics = RunningStatistics(shape)
        self._refresh()

    def _refresh(self) -> None:
        # float32 copies, so that scaling a batch at every step converts nothing.
        self._mean = self.statistics.mean.astype(np.float32)
        self._scale = (1 / np.sqrt(self.statistics.var + EPSILON)).astype(np.float32)

    def update(self, observations: np.ndarray) -> None:
        """Takes observations [..., *D] in. Rows that only reset need no mask: they are real observations."""
        self.statistics.update(observations)
        self._refresh()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Scales observations [..., *D] to a new float32 array; before the first update they stay as they are."""
        if not self.statistics.count:
            return np.asarray(observations, np.float32)
        scaled = np.subtract(observations, self._mean, dtype=np.float32)
        scaled *= self._scale
        return scaled.clip(-LIMIT, LIMIT, out=scaled)

    def state(self) -> dict[str, np.ndarray]:
        """Returns the statistics as arrays."""
        return self.statistics.state()

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state` returned."""
        self.statistics.load(state)
        self._refresh()


class RewardNormalizer:
    """Divides rewards by the standard deviation of the discounted return, clipped to [-10, 10].

    The return of each environment, float64 [N], runs forward, R = gamma R + r, and starts anew after its episode's end.
    Rewards are not centred: that would change which policy is best.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.statistics = RunningStatistics(())
        self.returns = np.zeros(n_envs, np.float64)

    def update(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray, envs: slice = slice(None)) -> None:
        """Takes in a rollout: rewards, bool `ended` (terminated or truncated) and bool `valid` [T, n] of `envs`.

        Rows that only reset are not valid and left out.
        """
        valid = np.asarray(valid, bool)
        alive = ~(np.asarray(ended, bool) & valid)
        returns, running = np.empty(np.shape(rewards), np.float64), self.returns[envs]
        for t, row in enumerate(rewards):
            running = np.where(valid[t], self.gamma * running + row, running)
            returns[t] = running
            running = running * alive[t]
        # A reward that is not finite must not stay in the running return for ever.
        self.returns[envs] = np.where(np.isfinite(running), running, 0.0)
        self.statistics.update(returns[valid])

    def __call__(self, rewards: np.ndarray) -> np.ndarray:
        """Scales rewards to a new float32 array; before the first update they stay as they are."""
        if not self.statistics.count:
            return np.asarray(rewards, np.float32)
        scaled = np.asarray(rewards) / np.sqrt(self.statistics.var + EPSILON)
        return scaled.clip(-LIMIT, LIMIT).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Returns statistics and running returns as arrays."""
        return {**self.statistics.state(), 'returns': self.returns.copy()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state` returned; the running returns start at 0 with another number of environments."""
        self.statistics.load(state)
        returns = np.asarray(state['returns'], np.float64)
        self.returns = returns.copy() if returns.shape == self.returns.shape else np.zeros_like(self.returns)


def _of_shape(state: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in state:
        raise ValueError(f'the saved statistics have no {name!r}; they have {sorted(state)}')
    shape = () if name == 'count' else shape
    array = np.array(state[name], np.int64 if name == 'count' else np.float64)
    if array.shape != shape:
        raise ValueError(f'the saved statistics hold a {name!r} of shape {array.shape}; expected {shape}')
    return array
