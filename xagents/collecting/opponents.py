"""Frozen policies as opponents in games: a pool of snapshots with Elo ratings. Does not load TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from xagents.collecting.policies import Policy, policy_from_dict
from xagents.collecting.statistics import Statistics
from xagents.envs.games import Opponents, RandomOpponents
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.options.errors import OptionError
from xagents.system.trees import map_tree

# prefix of the state of opponents in messages to explorers
OPPONENTS = 'opponents'
# Elo ratings: of the first policy, and how far one game moves them (Elo 1978)
FIRST_RATING, STEP_SIZE, SCALE = 1000.0, 8.0, 400.0


class PolicyForm(NamedTuple):
    """What all snapshots of a policy share.

    Attributes:
        policy: the arguments of `policy_from_dict`.
        network: the plan of the network.
    """

    policy: Mapping[str, Any]
    network: NetworkPlan


class PolicySnapshot(NamedTuple):
    """A frozen policy.

    Attributes:
        name: number of environment steps at its creation.
        weights: weights of its network, float32 [P].
        statistics: statistics that normalise its observations, arrays by name; empty without.
    """

    name: int
    weights: np.ndarray
    statistics: Mapping[str, np.ndarray]


class OpponentPool(Opponents):
    """Snapshots of a policy that play the other seats of games.

    Args:
        envs: the environments, whose spaces the opponents share.
        form: the form of the policies.
        statistics: empty statistics of observations, of the kind that the policy has.

    Attributes:
        snapshots: the snapshots, oldest first.
        version: a number that changes with the snapshots.
        latest: the probability that the newest snapshot is the opponent of a game; otherwise it is any of the others.
        ratings: the Elo ratings of snapshots, by name.
        rating: the Elo rating of the present policy.
    """

    def __init__(self, envs: Envs, form: PolicyForm, statistics: Statistics):
        self._encoder, self._space = envs.encoder, envs.action_space
        self._decode = ActionDecoder(envs.action_space)
        self._form, self._statistics = form, statistics
        self.snapshots: list[PolicySnapshot] = []
        self.version, self.latest = 0, 1.0
        self.ratings: dict[int, float] = {}
        self.rating = FIRST_RATING
        self._players: dict[int, tuple[Policy, Statistics]] = {}
        self._random = RandomOpponents(envs.action_space, envs.encoder.encoding.mask_key)

    def choose(self, rng: np.random.Generator) -> int:
        """Return the name of the opponent of a new game; -1, random actions, if there is no snapshot."""
        if not self.snapshots:
            return self._random.choose(rng)
        is_latest, index = rng.random() < self.latest, rng.random()
        others = len(self.snapshots) - 1
        if is_latest or not others:
            return self.snapshots[-1].name
        return self.snapshots[min(int(index * others), others - 1)].name

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> Any:
        """Return a sampled action; the newest snapshot acts for one that has left the pool."""
        if not self.snapshots:
            return self._random.act(name, observation, rng)
        policy, statistics = self._player(name)
        encoded = self._encoder([observation])
        noise = policy.draw_noise(rng, (1,))
        actions = self._decode(policy(statistics.prepare(encoded), noise)['actions'])
        return map_tree(lambda leaf: np.array(leaf)[0], actions)

    def _player(self, name: int) -> tuple[Policy, Statistics]:
        if name not in self._players:
            snapshot = next((one for one in self.snapshots if one.name == name), self.snapshots[-1])
            network = NumpyNetwork(self._form.network, snapshot.weights)
            statistics = self._statistics.copy()
            if statistics.observations is not None:
                statistics.observations.load(snapshot.statistics)
            self._players[name] = policy_from_dict(self._form.policy, network, self._space), statistics
        return self._players[name]

    def add(self, snapshot: PolicySnapshot, size: int) -> None:
        """Add a snapshot with the rating of the present policy, and remove the oldest ones beyond `size`."""
        self.snapshots = [*self.snapshots, snapshot][-size:]
        self.ratings[snapshot.name] = self.rating
        self.ratings = {one.name: self.ratings[one.name] for one in self.snapshots}
        self.version += 1
        self._players.clear()

    def record_game(self, name: int, score: float) -> None:
        """Update the ratings after a game.

        Args:
            name: name of the opponent; of snapshots that have left the pool, nothing is recorded.
            score: 1 for a win of the present policy, 0.5 for a draw, 0 for a loss.
        """
        if name in self.ratings:
            expected = 1 / (1 + 10 ** ((self.ratings[name] - self.rating) / SCALE))
            self.rating += STEP_SIZE * (score - expected)
            self.ratings[name] -= STEP_SIZE * (score - expected)

    # state, also for explorers

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays by name."""
        names = [snapshot.name for snapshot in self.snapshots]
        numbers = [self.version, self.latest, self.rating, *(self.ratings.get(name, FIRST_RATING) for name in names)]
        state = {'names': np.array(names, np.int64), 'numbers': np.array(numbers, np.float64)}
        if self.snapshots:
            state['weights'] = np.stack([snapshot.weights for snapshot in self.snapshots])
            for key in self.snapshots[0].statistics:
                state[f'statistics/{key}'] = np.stack([np.asarray(s.statistics[key]) for s in self.snapshots])
        return state

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state` returned."""
        keys = [key.removeprefix('statistics/') for key in state if key.startswith('statistics/')]
        self.snapshots = [
            PolicySnapshot(
                int(name), np.array(state['weights'][i]), {key: state[f'statistics/{key}'][i] for key in keys}
            )
            for i, name in enumerate(state['names'])
        ]
        version, self.latest, self.rating, *ratings = (float(number) for number in state['numbers'])
        self.version = int(version)
        self.ratings = {s.name: rating for s, rating in zip(self.snapshots, ratings, strict=True)}
        self._players.clear()


def policy_form(agent: Any) -> PolicyForm:
    """Return the form of the policy of an agent or of a player.

    Raises:
        OptionError: if the policy cannot act without the agent.
    """
    policy = agent.acting_policy.to_dict()
    plan: NetworkPlan | None = getattr(agent.acting_policy.network, 'plan', None)
    if policy is None or plan is None:
        problem = (
            f'the policy of {agent.id} has no plan (docs/policy.md), by which its opponents in {agent.envs.id} act'
        )
        raise OptionError('env', problem)
    if plan.memory_units:
        problem = f'{agent.envs.id} is a game, whose opponents have no memory: expected no recurrent layers'
        raise OptionError('memory', problem)
    return PolicyForm(policy, plan)


def snapshot_of(policy: Policy, statistics: Statistics, name: int) -> PolicySnapshot:
    """Return a copy of the weights of a policy and of its statistics."""
    seen = statistics.observations
    return PolicySnapshot(name, np.array(policy.published_weights.weights), {} if seen is None else seen.state())
