"""The collector: environments, a policy that acts in them, and all that belongs to acting. Loads no TensorFlow.

It knows no algorithm, no loss and no run. The same class collects for learning, in the thread of `--overlap` as well,
evaluates, plays and records videos; what differs is where it stands and whose weights it acts by.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xagents.collecting.finite import check_rollout
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import Rollout, allocate
from xagents.collecting.statistics import Statistics
from xagents.collecting.streams import Streams
from xagents.envs.face import Envs, Episode
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import Published
from xagents.pipeline.context import EndedEpisode
from xagents.system.arrays import prefixed, without_prefix

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Tally:
    """What collecting counts, until somebody begins a new tally.

    Attributes:
        episodes: that ended; `step` and `time` are those since the tally began.
        steps: environment steps, all environments together, without rows that only reset.
        seconds: that environments and acting took.
    """

    episodes: list[EndedEpisode] = field(default_factory=list)
    steps: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {'env': 0.0, 'act': 0.0})

    def add(self, episodes: list[Episode], seconds: float) -> None:
        """Add episodes that ended, at the present step and after `seconds`."""
        self.episodes += [EndedEpisode(e.reward, e.length, e.success, self.steps, seconds) for e in episodes]


class Collector:
    """Lets a policy act in environments.

    Args:
        envs: to act in.
        policy: chooses the actions.
        statistics: of observations and rewards; `collect` lets them learn.
        streams: random generators by purpose; those of `env` and `act` are asked for.
        raw: whether rollouts are given as the environments gave them, to be normalised when they are learned from; else
            observations are normalised by the statistics that acting saw.

    Attributes:
        observations: [N, *D], what the environments show now; None where they begin anew with the next step.
        ended: the episodes that ended with the last `step`.
        tally: counts episodes, steps and seconds.
    """

    def __init__(
        self,
        envs: Envs,
        policy: Policy,
        statistics: Statistics,
        streams: Streams,
        raw: bool = False,
    ):
        self.envs, self.policy, self.statistics, self.streams, self.raw = envs, policy, statistics, streams, raw
        self.decode = ActionDecoder(envs.action_space)
        self.observations: np.ndarray | None = None
        self.ended: list[Episode] = []
        self.tally = Tally()
        self._restarted = False
        self._beside: dict[tuple[int, str | None], Envs] = {}
        self._rollouts: list[Rollout | None] = [None]

    def collect(self, n_steps: int, **schedule: Any) -> Rollout:
        """Take steps in every environment.

        Args:
            n_steps: T, in each environment.
            schedule: the values that a run's schedules have now; the policy takes those that it knows.

        Returns:
            `observations` [T + 1, N, *D]; the policy's columns, `rewards`, `terminated`, `truncated` and `valid`
            [T, N, …]. A row that is not valid only reset its environment. A raw one also has `restarted` [N]: which
            environments were reset since the last rollout. The arrays are overwritten by the next call, or the one
            after it (see `keep`).

        Raises:
            NotFiniteError: where observations or rewards are not finite.
        """
        rollout = self._next(n_steps)
        noise = self.policy.draw_exploration(self.streams('act'), rollout['valid'].shape)
        self._fill(rollout, noise, schedule)
        statistics = self.statistics
        statistics.observe_rewards(rollout)
        if self.raw:
            batch = {**rollout, 'restarted': np.full(self.envs.n_envs, self._restarted)}
            self._restarted = False
        else:
            prepared = statistics.prepare(rollout['observations'])
            batch = {**rollout, 'observations': prepared, 'rewards': statistics.scale_rewards(rollout['rewards'])}
        statistics.observe(rollout)
        return batch

    def keep(self, n: int) -> None:
        """Let the arrays of the last `n` rollouts stay as they are."""
        self._rollouts = [*[None] * (n - 1), self._rollouts[-1]]

    def _next(self, n_steps: int) -> Rollout:
        """Return the arrays whose rollout is the oldest."""
        oldest = self._rollouts.pop(0)
        if oldest is None or len(oldest['valid']) != n_steps:
            oldest = allocate(self.envs, n_steps, self.policy.columns)
        self._rollouts.append(oldest)
        return oldest

    def _fill(self, rollout: Rollout, noise: np.ndarray | None, schedule: Mapping[str, Any]) -> None:
        envs, tally, clock = self.envs, self.tally, time.perf_counter
        observations, self.observations = self.standing(), None  # after an error they begin anew
        acting, start = 0.0, clock()
        t = 0
        try:
            for t in range(len(rollout['valid'])):
                rollout['observations'][t] = observations
                before = clock()
                prepared = self.statistics.prepare(observations)
                row = None if noise is None else noise[t]
                chosen = self.policy(prepared, row, valid=envs.valid, **schedule)
                for name in self.policy.columns:
                    rollout[name][t] = chosen[name]
                actions = self.decode(chosen['actions'])
                acting += clock() - before
                rollout['valid'][t] = envs.valid
                observations, *given = envs.step(actions)
                rollout['rewards'][t], rollout['terminated'][t], rollout['truncated'][t] = given
                tally.steps += int(np.count_nonzero(rollout['valid'][t]))
                episodes = envs.pop_episodes()
                if episodes:
                    tally.add(episodes, clock() - start)
        except Exception:
            check_rollout(rollout, t)  # an error after a NaN is the NaN's
            raise
        self.observations = rollout['observations'][-1] = observations
        tally.seconds['act'] += acting
        tally.seconds['env'] += clock() - start - acting
        check_rollout(rollout)

    # steps by themselves

    def standing(self) -> np.ndarray:
        """Return a copy of the observations [N, *D] that the environments stand at, which are reset where need be."""
        if self.observations is None:
            self.reset()
        return np.array(self.observations)

    def reset(self, seed: int | None = None) -> None:
        """Begin a new episode in every environment; the seed is drawn when not given."""
        seed = int(self.streams('env').integers(2**31)) if seed is None else seed
        self.observations = self.envs.reset(seed)
        self._restarted = True

    def step(self, actions: np.ndarray) -> Step:
        """Take one step in every environment by environment actions [N, …], and count it.

        Returns:
            Observations, rewards, terminated, truncated, [N, …] each; the arrays may be those of the next step.
        """
        valid = int(np.count_nonzero(self.envs.valid))
        result = self.envs.step(actions)
        self.observations, self.ended = result[0], self.envs.pop_episodes()
        self.tally.steps += valid
        self.tally.add(self.ended, 0.0)
        return result

    def act(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return environment actions [N, …] where the environments stand: drawn by `rng`, greedy without."""
        observations = self.observations
        assert observations is not None
        noise = None if rng is None else self.policy.draw_noise(rng, (len(observations),))
        return self.decode(self.policy(self.statistics.prepare(observations), noise)['actions'])

    def beside(self, n_envs: int, render_mode: str | None = None) -> Envs:
        """Return other environments of the same kind, to evaluate or record in; they are kept for the next time."""
        key = n_envs, render_mode
        if key not in self._beside:
            self._beside[key] = self.envs.another(n_envs, render_mode=render_mode)
        return self._beside[key]

    # weights and state

    def sync(self, published: Published) -> None:
        """Act by what was published from now on; the policy's network must be its own."""
        self.policy.sync(published)

    def parts(self) -> dict[str, Any]:
        """Return what has a state, by the names that it has in checkpoints."""
        return {**self.statistics.parts(), **self.policy.parts()}

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where collecting stands, as arrays by name and a record for JSON."""
        arrays = {
            k: np.array(v) for name, part in self.parts().items() for k, v in prefixed(name, part.state()).items()
        }
        snapshot = None if self.observations is None else self.envs.snapshot()
        record: dict[str, Any] = {'restarted': self._restarted, 'environments': None, 'uncopied': self.envs.uncopied}
        record['rngs'] = self.streams.state()
        if snapshot is not None:
            record['environments'] = snapshot.record
            arrays |= prefixed('environments', snapshot.arrays)
            arrays['observations'] = np.array(self.observations)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Go on where `state` was taken; parts that it does not have stay as they are.

        Args:
            arrays: of `state`.
            record: of `state`.
            environments: whether the environments are those of then, and shall stand where they stood.

        Returns:
            Whether the environments stand where they stood; new episodes begin otherwise.
        """
        for name, part in self.parts().items():
            saved = without_prefix(name, arrays)
            if saved:
                part.load(saved)
        self.streams.load(record['rngs'])
        self._restarted, self.observations = record['restarted'], None
        if record['environments'] is None or not environments:
            return False
        try:
            self.envs.restore(Snapshot(without_prefix('environments', arrays), record['environments']))
        except ValueError:  # other environments than those that were saved, or more of them
            return False
        self.observations = np.array(arrays['observations'])
        return True

    def close(self) -> None:
        """Close the environments, also those beside."""
        self.envs.close()
        self.close_beside()

    def close_beside(self) -> None:
        """Close the environments beside; the next who asks for some gets new ones."""
        for envs in self._beside.values():
            envs.close()
        self._beside.clear()
