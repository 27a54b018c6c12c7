"""The collector: environments, and the policies that act in them with their statistics and random generators.

The collector does not depend on algorithms, losses or runs. The same class collects training data (also in the thread
of `--overlap`), evaluates, plays and records videos. Does not load TensorFlow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xagents.collecting.acting_group import ActingGroup
from xagents.collecting.env_stepper import CollectStats, EnvStepper, LocalEnvStepper
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import MEMORY, OBSERVATIONS, ROW_STATES, Rollout, RowState
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import StepResult
from xagents.envs.snapshots.write import Snapshot
from xagents.networks.acting import PublishedWeights
from xagents.pipeline.context import EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.interruption import RunInterrupted

# name of the group of a single policy
ONLY = ''


def stepper_for(envs: Any) -> LocalEnvStepper:
    """Return the stepper of environments in this process."""
    if envs.functional_vector is None:
        return LocalEnvStepper(envs)
    from xagents.collecting.compiled_stepper import CompiledEnvStepper  # loads TensorFlow

    return CompiledEnvStepper(envs)


class Collector:
    """One or several policies that act in environments, each in its own rows.

    Args:
        envs: the environments, an `Envs` or `MultiPolicyEnvs`.
        groups: the policies with their rows, by the name of the group (`Envs.groups`). The name of a single one is ''.
        streams: random generators of the evaluations; each group has its own.

    Attributes:
        stepper: steps the environments for `collect`, in this process or in explorers.
        ended_episodes: episodes that ended with the last `step`.
        stats: counts of episodes, steps and seconds.
        recorder_state: state of the recorder in a loaded state; None if the state has none.
        env_params: parameters of the environments for the next rollouts, by name.
        evaluation_params: parameters of the environments of evaluations and videos.
    """

    def __init__(self, envs: Any, groups: Mapping[str, ActingGroup], streams: RandomStreams):
        self.envs, self.groups, self.streams = envs, dict(groups), streams
        self.stepper: EnvStepper = stepper_for(envs)
        self.ended_episodes: list[EpisodeEnd] = []
        self.stats = CollectStats()
        self.recorder_state: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None
        self.env_params: Mapping[str, Any] = {}
        self.evaluation_params: Mapping[str, Any] = {}
        self._evaluation_envs: dict[tuple[int, str | None], Any] = {}
        # of each group, the memory after the actions that the next step takes
        self._memories: list[RowState] = []

    @classmethod
    def of_policy(
        cls, envs: Any, policy: Policy, statistics: Statistics, streams: RandomStreams, raw_rollouts: bool = False
    ) -> Collector:
        """Return the collector of a single policy; see `ActingGroup` for the arguments."""
        return cls(envs, {ONLY: ActingGroup(envs, policy, statistics, streams, raw_rollouts)}, streams)

    @property
    def group(self) -> ActingGroup:
        """The group of a single policy."""
        if ONLY not in self.groups:
            raise TypeError(f'several policies collect here: use collect_groups and groups, {", ".join(self.groups)}')
        return self.groups[ONLY]

    @property
    def policy(self) -> Policy:
        """The single policy."""
        return self.group.policy

    @property
    def statistics(self) -> Statistics:
        """The statistics of a single policy."""
        return self.group.statistics

    @property
    def observations(self) -> list[np.ndarray] | None:
        """The current observations [N, *D] of each group; None if the environments are reset before the next step."""
        states = self.stepper.row_states
        return None if states is None else [own[OBSERVATIONS] for own in states]

    @observations.setter
    def observations(self, observations: list[np.ndarray] | None) -> None:
        states = None if observations is None else [{OBSERVATIONS: own} for own in observations]
        self.stepper.row_states = states

    # rollouts

    def collect(self, n_steps: int, schedule: Mapping[str, Any] | None = None) -> Rollout:
        """Take steps in every environment with a single policy.

        Args:
            n_steps: T, the number of steps in each environment.
            schedule: current values of the run's schedules; the policy uses the values that it supports.

        Returns:
            `observations` [T + 1, N, *D]; with memory, `memory` [T + 1, N, M]; the policy's columns, `rewards`,
            `terminated`, `truncated` and `valid` [T, N, …]. A row that is not valid only reset its environment. A raw
            rollout also has `restarted`, bool [N]: whether the environment was reset since the last rollout. A later
            call overwrites the arrays, by default the next one (see `ActingGroup.keep_rollouts`).

        Raises:
            NotFiniteError: if an observation or reward is not finite; the next call begins new episodes.
            RunInterrupted: if the run is stopped while it waits for explorers.
        """
        assert self.group
        return self.collect_groups(n_steps, {ONLY: schedule or {}})[ONLY]

    def collect_groups(self, n_steps: int, schedules: Mapping[str, Mapping[str, Any]]) -> dict[str, Rollout]:
        """Take steps in every environment, and return a rollout for each group; see `collect`.

        Args:
            n_steps: T, the number of steps in each environment.
            schedules: current values of the schedules of each group.
        """
        groups = self.groups.items()
        with self._restore_rngs_on_interrupt(), self._reset_if_not_finite():
            begun = [group.begin(n_steps, schedules[name], self.env_params) for name, group in groups]
            if self.observations is None:
                if isinstance(self.stepper, LocalEnvStepper):  # the first episodes begin with them
                    self.stepper.set_params(self.env_params)
                self.reset()
                for group in self.groups.values():
                    group.statistics.reset_returns(np.ones(group.envs.n_envs, bool))
            rollouts, requests = zip(*begun, strict=True)
            results = self.stepper.fill(rollouts, requests, self.stats)
        filled = zip(groups, rollouts, results, strict=True)
        return {name: group.finish(rollout, result) for (name, group), rollout, result in filled}

    @contextlib.contextmanager
    def _restore_rngs_on_interrupt(self) -> Iterator[None]:
        """If collecting is interrupted, restore the random generators so that a resumed run draws the same noise."""
        streams = [group.streams for group in self.groups.values()] if self.is_remote else []
        rngs = [own(purpose).bit_generator for own in streams for purpose in ('act', 'env')]
        saved_states = [rng.state for rng in rngs]
        try:
            yield
        except RunInterrupted:
            for rng, state in zip(rngs, saved_states, strict=True):
                rng.state = state
            raise

    @contextlib.contextmanager
    def _reset_if_not_finite(self) -> Iterator[None]:
        """If collected numbers are not finite, reset the environments, whose state may not be finite either."""
        try:
            yield
        except NotFiniteError:
            self.observations = None
            raise

    # single steps

    @property
    def is_remote(self) -> bool:
        """Whether explorers step the environments."""
        return not isinstance(self.stepper, LocalEnvStepper)

    def _check_local(self) -> None:
        """Raise TypeError if explorers step the environments."""
        if self.is_remote:
            raise TypeError('explorers have the environments: only `collect` can step them during a run with explorers')

    def current_observations(self) -> np.ndarray:
        """Return a copy of the current observations [N, *D] of a single policy; reset first if there are none."""
        self._check_local()
        if self.observations is None:
            self.reset()
        assert self.observations is not None
        return np.array(self.observations[0])

    def reset(self, seed: int | None = None) -> None:
        """Reset every environment; the default seed is drawn from the `env` generator of the first group."""
        first, *_ = self.groups.values()
        self.stepper.reset(int(first.streams('env').integers(2**31)) if seed is None else seed)
        for group in self.groups.values():
            group.restarted = True

    def act(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return the environment actions [N, …] of a single policy: sampled with `rng`, or greedy without it."""
        return self.act_groups(rng)[0]

    def act_groups(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Return the environment actions [N, …] of each group; see `act`.

        The next step stores the memory after these actions.
        """
        assert self.stepper.row_states is not None
        actions, states = [], self.stepper.row_states
        self._memories = []
        for i, group in enumerate(self.groups.values()):
            states[i] = group.policy.start(states[i])
            chosen, after = group.act(states[i], rng)
            actions.append(chosen)
            self._memories.append(after)
        return actions

    def step(self, actions: np.ndarray) -> StepResult:
        """Take one step in every environment with the environment actions [N, …] of a single policy, and count it.

        Returns:
            Observations, rewards, terminated, truncated, [N, …] each; the next step may overwrite these arrays.
        """
        return self._step([actions])[0]

    def step_groups(self, actions: Sequence[np.ndarray]) -> np.ndarray:
        """Take one step in every environment with the actions of each group, and return the rewards [N] of all rows."""
        rewards = np.zeros(self.envs.n_envs)
        for group, result in zip(self.groups.values(), self._step(actions), strict=True):
            rewards[list(group.envs.env_indices)] = result[1]
        return rewards

    def _step(self, actions: Sequence[np.ndarray]) -> list[StepResult]:
        self._check_local()
        valid = sum(int(np.count_nonzero(group.envs.valid)) for group in self.groups.values())
        assert self.stepper.row_states is not None
        if not self._memories:  # nobody has acted here: the memory stays as it is within episodes
            pairs = zip(self.groups.values(), self.stepper.row_states, strict=True)
            self._memories = [
                {MEMORY: own[MEMORY] * group.envs.valid[:, None]} if MEMORY in own else {} for group, own in pairs
            ]
        results = self.envs.step_groups(actions)
        memories, self._memories = self._memories, []
        self.stepper.row_states = [{OBSERVATIONS: r[0], **own} for r, own in zip(results, memories, strict=True)]
        self.ended_episodes = self.envs.pop_episodes()
        self.stats.steps += valid
        self.stats.add(self.ended_episodes, 0.0)
        return results

    # weights, state, further environments

    def sync(self, published: PublishedWeights) -> None:
        """Load published weights into a single policy, which must have its own network."""
        self.policy.sync(published)

    def with_envs(self, envs: Any, acting: Mapping[str, tuple[Policy, Statistics]]) -> Collector:
        """Return a collector in other environments, which uses the same random generators.

        Args:
            envs: environments with the same groups.
            acting: the policy and the statistics of each group.
        """
        own = self.groups.items()
        groups = {name: ActingGroup(envs.groups[name], *acting[name], group.streams) for name, group in own}
        return Collector(envs, groups, self.streams)

    def evaluation_envs(self, n_envs: int, render_mode: str | None = None) -> Any:
        """Return separate environments of the same kind, for evaluations and videos; later calls return the same."""
        key = n_envs, render_mode
        made = self._evaluation_envs.get(key)
        if made is not None and made.policy_mapping != self.envs.policy_mapping:
            made.close()
            del self._evaluation_envs[key]
        if key not in self._evaluation_envs:
            self._evaluation_envs[key] = self.envs.recreate(n_envs, render_mode=render_mode)
        if self.evaluation_params:
            self._evaluation_envs[key].set_params(**self.evaluation_params)
        return self._evaluation_envs[key]

    def close(self) -> None:
        """Close the environments, including those for evaluations."""
        self.envs.close()
        self.close_evaluation_envs()

    def close_evaluation_envs(self) -> None:
        """Close the environments for evaluations; the next request creates new ones."""
        for envs in self._evaluation_envs.values():
            envs.close()
        self._evaluation_envs.clear()

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of collecting: arrays by name, and a dict for JSON."""
        arrays: dict[str, np.ndarray] = {}
        snapshot = self.stepper.snapshot()
        record = {'environments': None, 'uncopied': self.envs.snapshot_problem, 'rngs': self.streams.state()}
        states = None if snapshot is None else self.stepper.row_states
        if snapshot is not None:
            arrays, record['environments'] = add_prefix('environments', snapshot.arrays), snapshot.record
        for i, (name, group) in enumerate(self.groups.items()):
            own, own_record = group.state()
            if states is not None:
                own |= {key: np.array(x) for key, x in states[i].items()}
            arrays |= add_prefix(name, own)
            if name:
                record.setdefault('collectors', {})[name] = own_record
            else:
                record |= own_record
        if self.envs.recorder is not None:
            seen, record['recorder'] = self.envs.recorder.state()
            arrays |= add_prefix('recorder', seen)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Load a state; parts without a saved state do not change.

        Args:
            arrays: arrays from `state`.
            record: dict from `state`.
            environments: whether to restore the environments; False if the state belongs to other environments.

        Returns:
            Whether the environments were restored; if not, the next step begins new episodes.
        """
        own = {name: strip_prefix(name, arrays) for name in self.groups}
        self.streams.load(record['rngs'])
        for name, group in self.groups.items():
            group.load(own[name], record['collectors'][name] if name else record)
        self.observations = None
        if 'recorder' in record:
            self.recorder_state = strip_prefix('recorder', arrays), record['recorder']
        if record['environments'] is None or not environments:
            return False
        try:
            self.envs.restore(Snapshot(strip_prefix('environments', arrays), record['environments']))
        except ValueError:  # the saved environments are different, or their number is
            return False
        self.stepper.row_states = [
            {key: np.array(of_group[key]) for key in ROW_STATES if key in of_group} for of_group in own.values()
        ]
        return True
