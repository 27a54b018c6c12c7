"""The cases of the learning benchmark and their required scores.

Each preset of the package is a case. The first 300 000 steps of off-policy agents on MuJoCo are further cases. Games of
MinAtar, which need `pip install minatar`, and CarRacing are others.
"""

import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.learning.published_runs import FILE, name_of_run
from benchmarks.offline.cases import ALGORITHMS as OFFLINE
from benchmarks.offline.cases import DataSet
from benchmarks.speed.cases import find_named
from benchmarks.tables import each, number
from xagents.factory.presets import EARLY, Preset, find_preset, list_presets
from xagents.options.declaration import to_flags
from xagents.registry.agents import agents

PUBLISHED_RUNS: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding='utf-8'))


@dataclass(frozen=True)
class LearningCase:
    """One row of the table.

    Args:
        name: value of `--only`.
        agent: id of the agent.
        env: id of the environment.
        steps: number of steps.
        options: options of `xagents.make` that are not defaults; a `model` is a file in the repository.
        required: smallest median that the package requires of itself.
        published: mean that was published for these settings.
        scored_on: environment of the published mean, if it is another version.
        scored_with: settings of the run with the published mean, where they differ.
        changed: differences from the published settings, for the table.
        seeds: one run for each, without `--seeds`.
        listed: whether the case is run only if `--only` names it.
        digest: of the preset; empty if the case is not a preset.
        dataset: data set to learn from. `env` is then only for evaluation, and `steps` are updates. It is a name, or a
            data set that the benchmark records.
        form: form of the preset (`Preset.form`).
    """

    name: str
    agent: str
    env: str
    steps: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    required: float | None = None
    published: float | None = None
    scored_on: str = ''
    scored_with: str = ''
    changed: str = ''
    seeds: tuple[int, ...] = (1, 2, 3)
    listed: bool = False
    digest: str = ''
    dataset: str | DataSet = ''
    form: str = ''

    @property
    def key(self) -> str:
        """Key of the score."""
        return f'{self.env} {self.form}'.rstrip()

    @property
    def published_run(self) -> dict[str, Any]:
        """What is known of the run with the published mean, see `published_runs`; empty if nothing is."""
        return PUBLISHED_RUNS.get(name_of_run(self), {})

    @property
    def source(self) -> dict[str, str]:
        """The option that names the environment or the data set."""
        if not self.dataset:
            return {'env': self.env}
        return {'dataset': self.dataset if isinstance(self.dataset, str) else self.dataset.name}

    def command(self, seed: int) -> str:
        """Return the command that trains the case."""
        options = {**self.source, 'max_steps': self.steps, **self.options, 'seed': seed}
        return shlex.join(['xagents', 'train', self.agent, *to_flags(options)])


# cases that are run without `--only`, with what the presets do not contain
DEFAULT_CASES: dict[str, dict[str, Any]] = {
    'dqn-cartpole': {'required': 475}, 'dqn-mountaincar': {'required': -130}, 'dqn-lunarlander': {'required': 110},
    'td3-pendulum': {'required': -145}, 'ddpg-pendulum': {'required': -145}, 'trpo-cartpole': {'required': 475},
    'dqn-cartpole-quantile': {'required': 475}, 'dqn-mountaincar-quantile': {'required': -115},
    'dqn-lunarlander-quantile': {'required': 70}, 'rainbow-cartpole': {'required': 475},
    'pqn-cartpole': {'required': 480}, 'pqn-acrobot': {'required': -95}, 'pqn-lunarlander': {'required': 200},
    'crossq-pendulum': {'required': -155},
    'crossq-lunarlandercontinuous': {'required': 240, 'seeds': (1,)},
    'tqc-pendulum': {'required': -155}, 'tqc-lunarlandercontinuous': {'required': 240, 'seeds': (1,)},
    'sac-cartpole': {'required': 475},
    'sac-pendulum': {'required': -160}, 'sac-mountaincarcontinuous': {'required': 90},
    'sac-bipedalwalker': {'required': 270, 'seeds': (1,)}, 'tqc-bipedalwalker': {'required': 300, 'seeds': (1,)},
    'sac-lunarlandercontinuous': {'required': 220, 'seeds': (1,)},
    'trpo-mountaincarcontinuous': {'required': 88}, 'trpo-pendulum': {'required': -200},
    # single seeds end between -61 and 259, so three seeds are not enough
    'trpo-lunarlander': {'required': 120, 'seeds': tuple(range(1, 11))},
    'trpo-halfcheetah': {'required': 1500},
    'a2c-cartpole': {}, 'a2c-acrobot': {}, 'a2c-lunarlander': {'required': 120}, 'a2c-pendulum': {'required': -200},
    'a2c-halfcheetah': {'required': 2000}, 'ppo-pendulum': {'required': -180}, 'ppo-hopper': {'required': 2000},
    'ppo-ant': {'required': 1000}, 'trpo-walker2d': {'required': 4400},
    'trpo-ant': {'required': 607},  # Stable-Baselines3 with the published settings
    # there are no published settings of ACER; the published score is A2C's with as many steps
    'acer-cartpole': {'required': 475}, 'acer-acrobot': {'required': -90, 'published': -83.4}, 'acer-lunarlander': {},
}  # fmt: skip
# arguments of Ant-v5 and Humanoid-v5 that leave contact forces out of the observations
WITHOUT_FORCES = {'include_cfrc_ext_in_observation': False}
# what may explain medians below the published score, beyond `describe_published_run` and the peer
CAUSES: dict[str, str] = {
    'tqc-mountaincarcontinuous-published': (
        'The mean value of replayed actions rises above 100, the largest return; the preset has a smaller discount '
        'factor.'
    ),
}


def recorded(agent: str, env: str, name: str) -> DataSet:
    """Return a data set of a policy that ships with the package."""
    words = f'record {agent} --pretrained {env} --dataset {name} --episodes 100 --stochastic --seed 1'
    return DataSet(name, env, (words,), {})


# what the presets of agents that learn from data sets learn from
DATASETS = {
    data.env: data
    for data in (
        recorded('ppo', 'CartPole-v1', 'cartpole/shipped-v0'), recorded('tqc', 'Pendulum-v1', 'pendulum/shipped-v0'),
        recorded('ppo', 'HalfCheetah-v5', 'halfcheetah/shipped-v0'),
        recorded('trpo', 'Hopper-v5', 'hopper/shipped-v0'), recorded('ppo', 'Walker2d-v5', 'walker2d/shipped-v0'),
    )
}  # fmt: skip


def case_of(preset: Preset) -> LearningCase:
    """Return the case of a preset."""
    env = preset.env.split('-')[0].removesuffix('NoFrameskip').lower()
    name = '-'.join([preset.agent, env, *preset.form.split()])
    case = LearningCase(
        name, preset.agent, preset.env, preset.max_steps, preset.options, published=preset.published,
        scored_on=preset.scored_on, scored_with=preset.scored_with, changed=preset.changed,
        listed=name not in DEFAULT_CASES, digest=preset.digest, form=preset.form,
        dataset=DATASETS[preset.env] if preset.agent in OFFLINE else '',
        seeds=(1,) if preset.is_early else LearningCase.seeds,
    )  # fmt: skip
    return dataclasses.replace(case, **DEFAULT_CASES.get(name, {}))


def describe_published_run(case: LearningCase) -> str:
    """Return sentences on the run with the published score and its differences from a row; may be empty."""
    found, published = [], case.published_run
    if EARLY in case.form.split():
        if early := published.get('early'):
            found.append(f'The evaluations of the published run: {number(min(early), 1)} to {number(max(early), 1)}.')
    elif published:
        found.append(f'The last evaluations of the published run: {each(published["last"])}.')
        if abs(published['steps'] - case.steps) > 0.05 * case.steps:
            found.append(f'It ended after {number(published["steps"])} steps.')
    found += [f'The published run has {case.scored_with}.'] if case.scored_with else []
    old = case.env.replace('-v5', '-v3')
    with_forces = case.env in ('Ant-v5', 'Humanoid-v5') and case.options.get('env_kwargs') != WITHOUT_FORCES
    if with_forces and case.scored_on == old:  # openai/gym issue 1541
        found.append(f'The observations contain contact forces, which were 0 in {old}.')
    return ' '.join(found)


NETWORKS = 'benchmarks/learning/networks'
# agents with networks of one convolution, on games of MinAtar; PQN makes its steps in as many minutes as DQN
MINATAR_REPLAY = {
    **{'n_envs': 4, 'lr': 2.5e-4, 'buffer_max_size': 100_000, 'buffer_initial_size': 5000, 'buffer_batch_size': 32},
    **{'train_frequency': 4, 'gradient_steps': 1, 'target_sync_steps': 1000},
}
MINATAR: dict[str, tuple[int, dict[str, Any]]] = {
    'dqn': (1_000_000, {**MINATAR_REPLAY, 'epsilon_decay_steps': 100_000, 'epsilon_end': 0.05}),
    'pqn': (
        5_000_000,
        {
            **{'n_envs': 128, 'n_steps': 32, 'epochs': 2, 'mini_batches': 32, 'lr': 5e-4, 'lr_schedule': 'linear'},
            **{'lam': 0.65, 'epsilon_decay_steps': 500_000},
        },
    ),
    'rainbow': (1_000_000, {**MINATAR_REPLAY, 'opt_epsilon': 1.5e-4, 'epsilon_end': 0.05}),
}


# the published settings of CarRacing-v0; the library of these settings clips actions to the bounds without scaling
CAR_RACING: dict[str, Any] = {
    'wrapper': ['gymnasium.wrappers:ClipAction'],
    **{'frame_skip': 2, 'resize': [64], 'grey': True, 'frame_stack': 2, 'n_envs': 8, 'vector': 'async', 'n_steps': 512},
    **{'ppo_epochs': 10, 'minibatch_size': 128, 'lr': 1e-4, 'lr_schedule': 'linear', 'opt_epsilon': 1e-5},
    **{'gamma': 0.99, 'lam': 0.95, 'clip_norm': 0.2, 'entropy_coef': 0.0, 'value_loss_coef': 0.5, 'grad_norm': 0.5},
    **{'sde': True, 'sde_sample_frequency': 4, 'log_std_init': -2, 'normalize_reward': True},
    'model': f'{NETWORKS}/carracing-ppo.cfg',
}


def minatar_cases() -> Iterator[LearningCase]:
    """Yield the cases on games of MinAtar."""
    for agent, (steps, options) in MINATAR.items():
        whole = {**options, 'model': f'{NETWORKS}/minatar-{agent}.cfg'}
        for game in ('Breakout', 'SpaceInvaders'):
            name, env = f'{agent}-minatar-{game.lower()}', f'minatar:MinAtar/{game}-v1'
            yield LearningCase(name, agent, env, steps, whole, seeds=(1,), listed=True)


def cases_without_forces() -> Iterator[LearningCase]:
    """Yield cases that show what contact forces in the observations change: the rest is as published."""
    trpo = find_preset('trpo', 'Ant-v5', {'published': True})
    sac = find_preset('sac', 'Humanoid-v5').after_early_steps()
    assert sac is not None
    for published, seeds in ((trpo, LearningCase.seeds), (sac, (1,))):
        yield LearningCase(
            f'{published.agent}-{published.env.removesuffix("-v5").lower()}-without-forces', published.agent,
            published.env, published.max_steps, {'env_kwargs': WITHOUT_FORCES, **published.options},
            published=published.published, scored_on=published.scored_on,
            changed='published settings, no contact forces in the observations', listed=True, seeds=seeds,
            form=EARLY if published.is_early else '',
        )  # fmt: skip


# cases that are no presets: most of their networks are files of the benchmark
FURTHER = (
    *minatar_cases(),
    *cases_without_forces(),
    LearningCase('ppo-carracing', 'ppo', 'CarRacing-v3', 4_000_000, CAR_RACING, seeds=(1,), listed=True),
)


def all_cases() -> Iterator[LearningCase]:
    """Yield all cases, those of an agent together."""
    for agent_id in agents:
        for preset in list_presets(agent_id):
            whole = map(preset.for_game, preset.games) if preset.games else (preset,)
            yield from map(case_of, filter(None, (*whole, preset.after_early_steps())))
        yield from (case for case in FURTHER if case.agent == agent_id)


CASES = tuple(all_cases())


def find_cases(names: list[str] | None) -> list[LearningCase]:
    """Return the cases with these names; without names, all that are not only listed.

    A name also selects the cases that begin with it and are not only listed.
    """
    usual = [case for case in CASES if not case.listed]
    return find_named(names, CASES, usual) if names else usual
