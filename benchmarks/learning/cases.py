"""What is learned and how well it has to be: the tuned settings that ship, and some more.

Each of `xagents/presets` is a case, with the score that was published for its settings as its goal. Beside them stand
settings as they were published, where the preset is another that was found to be better.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.speed.cases import named
from xagents.factory.presets import Preset, list_presets
from xagents.options.declaration import flags_of
from xagents.registry.agents import agents


@dataclass(frozen=True)
class LearningCase:
    """One row of the table.

    Args:
        name: what `--only` takes.
        agent: whom to train.
        env: where.
        steps: how long.
        options: of `xagents.make`; those not given are defaults.
        floor: the median that is asked.
        goal: the mean that tuned agents are published with.
        scored_on: the environment of that score, where it is another version.
        changed: what is not as published, for the table.
        seeds: one run each, when `--seeds` names no others.
        listed: only its settings are given; it is run when it is named.
        digest: of the preset that it is, where it is one.
        dataset: what is learned from, instead of the environment, where it is evaluated; `steps` are updates then.
    """

    name: str
    agent: str
    env: str
    steps: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    floor: float | None = None
    goal: float | None = None
    scored_on: str = ''
    changed: str = ''
    seeds: tuple[int, ...] = (1, 2, 3)
    listed: bool = False
    digest: str = ''
    dataset: str = ''

    def command(self, seed: int) -> str:
        """The command that trains the same, as one types it."""
        where = {'dataset': self.dataset} if self.dataset else {'env': self.env}
        options = {**where, 'max_steps': self.steps, **self.options, 'seed': seed}
        return shlex.join(['xagents', 'train', self.agent, *flags_of(options)])


# what issues ask of a case, and what else is not the preset's; these are run when no case is named
ASKED: dict[str, dict[str, Any]] = {
    'dqn-cartpole': {'floor': 475},
    'dqn-mountaincar': {'floor': -130},
    'dqn-lunarlander': {'floor': 110},
    'td3-pendulum': {'floor': -145},
    'ddpg-pendulum': {'floor': -145},
    'trpo-cartpole': {'floor': 475},
    'trpo-mountaincarcontinuous': {'floor': 88},
    'trpo-pendulum': {'floor': -200},
    # three seeds say little here: single ones end from -61 to 259
    'trpo-lunarlander': {'floor': 120, 'seeds': tuple(range(1, 11))},
    'trpo-halfcheetah': {'floor': 1500, 'seeds': (1,)},
    'a2c-cartpole': {},
    'a2c-acrobot': {},
    'a2c-lunarlander': {},
    'a2c-pendulum': {'floor': -200},
    # nobody has published settings of ACER; A2C's scores with as many steps stand beside it
    'acer-cartpole': {'floor': 475},
    'acer-acrobot': {'floor': -90, 'goal': -83},
    'acer-lunarlander': {},
}
# options of settings as they were published, where the preset's are others; None: the default
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    'ppo-mountaincarcontinuous': (
        'as published',
        {
            'n_steps': 8,
            'gamma': 0.9999,
            'entropy_coef': 0.00429,
            'ppo_epochs': 10,
            'minibatch_size': 8,
            'lr': 7.77e-5,
            'sde': True,
            'log_std_init': -3.29,
            'initializer': 'fan_in_uniform',
        },
    ),
    'dqn-lunarlander': ('as published', {'lr_schedule': None}),
    'trpo-mountaincarcontinuous': (
        'as published',
        {'log_std_init': None, 'n_steps': 2048, 'sde': True, 'sde_sample_frequency': 4},
    ),
    'trpo-lunarlander': (
        'as published',
        {
            'n_envs': 2,
            'n_steps': 512,
            'gamma': 0.99,
            'lam': 0.98,
            'normalize_obs': None,
            'normalize_reward': None,
            'max_kl': 0.01,
        },
    ),
}


def case_of(preset: Preset) -> LearningCase:
    """The case of tuned settings; its name is made of the agent's and the environment's."""
    name = f'{preset.agent}-{preset.env.split("-")[0].removesuffix("NoFrameskip").lower()}'
    case = LearningCase(
        name,
        preset.agent,
        preset.env,
        preset.max_steps,
        preset.options,
        goal=preset.published,
        scored_on=preset.scored_on,
        changed=preset.changed,
        listed=name not in ASKED,
        digest=preset.digest,
    )
    return dataclasses.replace(case, **ASKED.get(name, {}))


def as_published(case: LearningCase) -> LearningCase:
    """The same with the options that were published."""
    changed, options = PUBLISHED[case.name]
    whole = {name: value for name, value in {**case.options, **options}.items() if value is not None}
    return dataclasses.replace(case, name=f'{case.name}-published', options=whole, changed=changed, digest='')


def all_cases() -> Iterator[LearningCase]:
    """Every preset's case, each Atari game's on its own, and the published settings beside those that are others."""
    for agent_id in agents:
        for preset in list_presets(agent_id):
            for one in map(preset.of_game, preset.games) if preset.games else (preset,):
                case = case_of(one)
                yield case
                if case.name in PUBLISHED:
                    yield as_published(case)


CASES = tuple(all_cases())


def find_cases(names: list[str] | None) -> list[LearningCase]:
    """Return the cases of these names; those that are not merely listed when there are none.

    A name also stands for the cases that begin with it and are not merely listed: `dqn` for three.
    """
    usual = [case for case in CASES if not case.listed]
    return named(names, CASES, usual) if names else usual
