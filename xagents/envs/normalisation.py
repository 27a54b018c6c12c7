"""Running statistics that scale observations and rewards.

Acting and learning must scale the observations of a rollout by the same statistics; otherwise the log-probabilities
of the actions would belong to other inputs. `update` is therefore called once a rollout, and `__call__` any number of
times. A replay buffer stores raw observations, which are scaled by the current statistics when they are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from xagents.envs.observations.composite import vector_of

EPSILON = 1e-8
LIMIT = 10.0


class RunningStatistics:
    """The running mean and variance of samples, float64 of the shape of one sample.

    Batches are merged by the parallel formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm
    for Computing Sample Variances" (1979), equations 1.5. The variance is the population variance; it is 1 before the
    first update.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = 0

    def update(self, batch: np.ndarray) -> None:
        """Add a batch [..., *shape]; samples that are not finite are skipped, as they would remain forever.

        Raises:
            ValueError: if the batch has a different shape.
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
        """Return the statistics as new arrays `mean`, `var`, `count`."""
        return {'mean': self.mean.copy(), 'var': self.var.copy(), 'count': np.array(self.count, np.int64)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the result of `state`, of the same shape."""
        mean, var, count = (_of_shape(state, name, self.mean.shape) for name in ('mean', 'var', 'count'))
        self.mean, self.var, self.count = mean, var, int(count)


class ObservationNormalizer:
    """A function that scales observations of shape D to mean 0 and variance 1, clipped to [-10, 10].

    Args:
        shape: D; for bytes of a vector and images, the shape of the vector.
        n_mask: the number of elements at the end of a vector, an action mask, that stay unchanged.
        has_images: whether observations are bytes of a vector and images, of which the vector is scaled.

    Attributes:
        statistics: the running statistics of observations, without the mask.
    """

    def __init__(self, shape: tuple[int, ...], n_mask: int = 0, has_images: bool = False) -> None:
        self._scaled = slice(shape[-1] - n_mask) if n_mask or has_images else None
        self._n_floats = shape[-1] if has_images else 0
        self.statistics = RunningStatistics((shape[0] - n_mask,) if n_mask else shape)
        self._refresh()

    def _refresh(self) -> None:
        # float32 copies avoid a conversion at every step.
        self._mean = self.statistics.mean.astype(np.float32)
        self._scale = (1 / np.sqrt(self.statistics.var + EPSILON)).astype(np.float32)

    @property
    def mean_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean, and the factor after its subtraction, float32 of the shape of `statistics`."""
        return self._mean, self._scale

    def update(self, observations: np.ndarray) -> None:
        """Add observations [..., *D]. Rows that only reset contain real observations and need no mask."""
        self.statistics.update(observations if self._scaled is None else self._vectors(observations)[..., self._scaled])
        self._refresh()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return scaled observations [..., *D] as a new array, float32 or bytes; unscaled before the first update."""
        if not self.statistics.count:
            return np.asarray(observations, np.int8 if self._n_floats else np.float32)
        if self._scaled is None:
            return self._scale_all(observations)
        scaled = np.array(observations, np.int8 if self._n_floats else np.float32)
        vectors = self._vectors(scaled)
        vectors[..., self._scaled] = self._scale_all(vectors[..., self._scaled])
        return scaled

    def _vectors(self, observations: np.ndarray) -> np.ndarray:
        return vector_of(observations, self._n_floats) if self._n_floats else observations

    def _scale_all(self, observations: np.ndarray) -> np.ndarray:
        scaled = np.subtract(observations, self._mean, dtype=np.float32)
        scaled *= self._scale
        return scaled.clip(-LIMIT, LIMIT, out=scaled)

    def state(self) -> dict[str, np.ndarray]:
        """Return the statistics as arrays."""
        return self.statistics.state()

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the result of `state`."""
        self.statistics.load(state)
        self._refresh()


class RewardNormalizer:
    """A function that divides rewards by the standard deviation of the discounted return, clipped to [-10, 10].

    The running return of each environment, float64 [N], is R = gamma R + r and restarts at 0 after an episode's end.
    Rewards are not centred, because that would change the optimal policy.

    Attributes:
        gamma: the discount factor.
        statistics: the running statistics of returns.
        returns: the running returns, float64 [N].
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.statistics = RunningStatistics(())
        self.returns = np.zeros(n_envs, np.float64)

    def update(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray, envs: slice = slice(None)) -> None:
        """Add a rollout.

        Args:
            rewards: rewards [T, n] of the environments `envs`.
            ended: bool [T, n], terminated or truncated.
            valid: bool [T, n]; rows that only reset are not valid and are skipped.
            envs: the n environments among the N.
        """
        valid = np.asarray(valid, bool)
        alive = ~(np.asarray(ended, bool) & valid)
        returns, running = np.empty(np.shape(rewards), np.float64), self.returns[envs]
        for t, row in enumerate(rewards):
            running = np.where(valid[t], self.gamma * running + row, running)
            returns[t] = running
            running = running * alive[t]
        # A reward that is not finite must not remain in the running return forever.
        self.returns[envs] = np.where(np.isfinite(running), running, 0.0)
        self.statistics.update(returns[valid])

    def __call__(self, rewards: np.ndarray) -> np.ndarray:
        """Return scaled rewards as a new float32 array; unscaled before the first update."""
        if not self.statistics.count:
            return np.asarray(rewards, np.float32)
        scaled = np.asarray(rewards) / np.sqrt(self.statistics.var + EPSILON)
        return scaled.clip(-LIMIT, LIMIT).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Return the statistics and running returns as arrays."""
        return {**self.statistics.state(), 'returns': self.returns.copy()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the result of `state`; for a different number of environments the running returns start at 0."""
        self.statistics.load(state)
        returns = np.asarray(state['returns'], np.float64)
        self.returns = returns.copy() if returns.shape == self.returns.shape else np.zeros_like(self.returns)


def _of_shape(state: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in state:
        raise ValueError(f'the saved statistics have no {name!r}; they have {sorted(state)}')
    shape = () if name == 'count' else shape
    array = np.array(state[name], np.int64 if name == 'count' else np.float64)
    if array.shape != shape:
        raise ValueError(f'the saved statistics contain a {name!r} of shape {array.shape}; expected {shape}')
    return array
