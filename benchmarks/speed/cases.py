"""What is measured: the cases, their rows, and the floors that xagents promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from benchmarks.workers.settings import AnySettings, OffPolicySettings, Settings
from xagents.options.errors import nearest


class HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar('Named', bound=HasName)
BASELINE = 'Stable-Baselines3'


@dataclass(frozen=True)
class Run:
    """One row of a table: a library, and what is set differently for it.

    Args:
        label: the row's name.
        peer: its virtual environment, `peers/<peer>.txt`.
        worker: its module in `workers/`.
        settings: fields of the settings that differ from the case's.
        floor: least ratio to the baseline that is promised; seconds for the task `target`.
        goal: the ratio that is aimed at.
        repeats: at most so many repeats, for a slow library.
        anew: whether nothing of what an earlier process has compiled is there.
    """

    label: str
    peer: str
    worker: str
    settings: dict = dataclasses.field(default_factory=dict)
    floor: float | None = None
    goal: float | None = None
    repeats: int | None = None
    anew: bool = False


@dataclass(frozen=True)
class Case:
    """One table.

    Args:
        name: what `--only` takes, and the marker in the docs.
        title: its heading.
        task: `speed` (steps/s), `target` (seconds from the command to a mean of 250) or `memory` (resident MB on the
            way).
        settings: what every library gets.
        runs: its rows; they are measured in turn, repeat after repeat.
        warmup: steps before the clock starts: tracing, compiling, first allocations.
        steps: steps that are timed.
        quick: `warmup` and `steps` of a smoke run.
        seed_step: added to the seed with each repeat; 0 repeats the same run.
        note: what a reader has to know of it, below the table.
    """

    name: str
    title: str
    task: Literal['speed', 'target', 'memory']
    settings: AnySettings
    runs: tuple[Run, ...]
    warmup: int = 0
    steps: int = 0
    quick: tuple[int, int] = (0, 0)
    seed_step: int = 0
    note: str = ''


SB3 = Run(BASELINE, 'sb3', 'sb3_worker')
SBX = Run('SBX', 'sbx', 'sbx_worker')
CLEANRL = Run('CleanRL', 'cleanrl', 'cleanrl_worker')
CLEANRL_JAX = Run('CleanRL in JAX, 120-84', 'cleanrl-jax', 'cleanrl_worker')
XAGENTS = Run('xagents', 'xagents', 'xagents_worker')
SHARED = replace(XAGENTS, label='xagents, shared network', settings={'shared_network': True})
BFLOAT16 = replace(XAGENTS, label='xagents, bfloat16', settings={'precision': 'bfloat16'})

PPO = Settings()
A2C = replace(
    PPO, algorithm='a2c', n_steps=5, epochs=1, minibatches=1, lam=1.0, optimizer='rmsprop', normalize_advantage=False
)
# 16 minibatches of 128, the size that Stable-Baselines3 has by default; its passes of the critic are `epochs`
TRPO = replace(PPO, algorithm='trpo', epochs=10, minibatches=16, lr=1e-3)
# of ACER, the defaults of xagents; its peer in the table is Stable-Baselines3's A2C
ACER = {'algorithm': 'acer', 'n_steps': 20}
PONG = replace(
    PPO, env='PongNoFrameskip-v4', n_envs=8, lr=2.5e-4, units=(512,), activation='relu', atari=True, threads=0
)
DQN = OffPolicySettings()
TD3 = replace(DQN, algorithm='td3', env='Pendulum-v1', learning_starts=304, batch_size=256, units=(400, 300))
DDPG = replace(TD3, algorithm='ddpg')

CASES = (
    Case(
        'ppo-cartpole',
        'PPO, CartPole-v1, 16 environments x 128 steps',
        'speed',
        PPO,
        (SB3, SBX, CLEANRL, replace(XAGENTS, floor=4, goal=10), replace(SHARED, floor=5, goal=10)),
        warmup=40_960,
        steps=204_800,
        quick=(4_096, 8_192),
    ),
    Case(
        'ppo-cartpole-long',
        'PPO, CartPole-v1, 16 environments x 1024 steps',
        'speed',
        replace(PPO, n_steps=1024),
        (SB3, SBX, CLEANRL, XAGENTS, SHARED),
        warmup=65_536,
        steps=262_144,
        quick=(16_384, 16_384),
    ),
    Case(
        'a2c-cartpole',
        'A2C, CartPole-v1, 16 environments x 5 steps',
        'speed',
        A2C,
        (SB3, replace(XAGENTS, floor=3, goal=4), SHARED),
        warmup=16_000,
        steps=160_000,
        quick=(800, 1_600),
    ),
    Case(
        'trpo-cartpole',
        'TRPO, CartPole-v1, 16 environments x 128 steps',
        'speed',
        TRPO,
        (SB3, replace(XAGENTS, floor=4)),
        warmup=40_960,
        steps=204_800,
        quick=(4_096, 8_192),
    ),
    Case(
        'acer-cartpole',
        "ACER, CartPole-v1, 16 environments x 20 steps, 4 replays each, beside Stable-Baselines3's A2C, 16 x 5",
        'speed',
        A2C,
        (SB3, replace(XAGENTS, label='xagents, ACER', settings=ACER, floor=0.6)),
        warmup=32_000,
        steps=96_000,
        # the buffer is full before the clock starts: replays begin then
        quick=(12_800, 3_200),
        note=(
            'No living library has ACER. xagents 1.0 made 1 036 steps/s with it on another machine, on which '
            "Stable-Baselines3's A2C made 17 300: ten times 1 036, 10 360, is 0.6 of that."
        ),
    ),
    Case(
        'ppo-pong',
        'PPO, PongNoFrameskip-v4, 8 environments x 128 steps, Nature CNN',
        'speed',
        PONG,
        (
            SB3,
            replace(SBX, repeats=1),
            replace(CLEANRL, label='CleanRL with EnvPool', peer='cleanrl-atari'),
            replace(XAGENTS, floor=1),
            BFLOAT16,
        ),
        warmup=2_048,
        steps=8_192,
        quick=(1_024, 1_024),
    ),
    Case(
        'dqn-cartpole',
        'DQN, CartPole-v1, one update a step: batch 64, networks 64-64',
        'speed',
        DQN,
        (SB3, SBX, CLEANRL_JAX, replace(XAGENTS, floor=2, goal=2.5)),
        warmup=2_000,
        steps=6_000,
        quick=(1_100, 400),
    ),
    Case(
        'dqn-cartpole-4',
        'DQN, CartPole-v1, 4 updates every 4 steps',
        'speed',
        replace(DQN, train_frequency=4),
        (
            SB3,
            SBX,
            replace(SBX, label='SBX, 32 updates every 32 steps', settings={'train_frequency': 32}),
            replace(XAGENTS, floor=4),
            replace(XAGENTS, label='xagents, 32 updates every 32 steps', settings={'train_frequency': 32}),
        ),
        warmup=2_000,
        steps=6_000,
        quick=(1_120, 400),
    ),
    *(
        Case(
            f'{settings.algorithm}-pendulum',
            f'{settings.algorithm.upper()}, Pendulum-v1, one update a step: batch 256, networks 400-300',
            'speed',
            settings,
            (SB3, SBX, replace(XAGENTS, floor=1.2, goal=1.4), BFLOAT16),
            warmup=400,
            steps=800,
            quick=(320, 40),
        )
        for settings in (TD3, DDPG)
    ),
    *(
        Case(
            f'{settings.algorithm}-pendulum-8',
            f'{settings.algorithm.upper()}, Pendulum-v1, 8 environments, 8 updates every 8 steps',
            'speed',
            replace(settings, n_envs=8, train_frequency=8),
            (SB3, SBX, replace(XAGENTS, floor=2), BFLOAT16),
            warmup=400,
            steps=800,
            quick=(320, 40),
        )
        for settings in (TD3, DDPG)
    ),
    Case(
        'seed-command',
        'From the command to a mean of 250, everything included: PPO, CartPole-v1, 16 x 1024, seed 123',
        'target',
        replace(PPO, n_steps=1024, seed=123),
        (SB3, SBX, replace(XAGENTS, label='xagents, the first time', anew=True), replace(XAGENTS, floor=15)),
    ),
    Case(
        'seed-command-seeds',
        'The same with another seed each time: 124, 125, …',
        'target',
        replace(PPO, n_steps=1024, seed=124),
        (SB3, SBX, XAGENTS, SHARED),
        seed_step=1,
    ),
    Case(
        'memory',
        'Resident memory over 10 million steps: PPO, CartPole-v1, 16 x 128',
        'memory',
        PPO,
        (replace(XAGENTS, floor=900),),
        warmup=1_000_000,
        steps=10_000_000,
        quick=(20_000, 100_000),
    ),
)


def find_cases(names: list[str] | None, memory: bool = False) -> list[Case]:
    """Return the cases of these names; all but the long `memory` one when there are none.

    A name also stands for the cases that begin with it: `ppo` for all of PPO's.
    """
    if not names:
        return [case for case in CASES if (case.task == 'memory') == memory]
    return named(names, CASES, CASES)


def named(names: list[str], cases: Sequence[Named], short: Sequence[Named]) -> list[Named]:
    """Return the cases of these names, each once; those in `short` are also found by how they begin.

    Raises:
        ValueError: naming what was not found, and what there is.
    """
    found: list[Named] = []
    for name in names:
        matches = [case for case in cases if case.name == name] or [c for c in short if c.name.startswith(name)]
        if not matches:
            known = [case.name for case in cases]
            raise ValueError(f'--only: got {name}, admits {", ".join(known)}{nearest(name, known)}')
        found += [case for case in matches if case not in found]
    return found
