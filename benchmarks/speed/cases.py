"""The cases of the speed benchmark: what is measured, the rows of each table, and the required ratios."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from benchmarks.workers.settings import AnySettings, OffPolicySettings, Settings
from xagents.options.errors import did_you_mean

Named = TypeVar('Named', bound=Any)
BASELINE = 'Stable-Baselines3'


@dataclass(frozen=True)
class Run:
    """One row of a table: a library, and its settings that differ.

    Args:
        label: name of the row.
        peer: name of its virtual environment, `peers/<peer>.txt`.
        worker: its module in `workers/`.
        settings: fields of the settings that differ from those of the case.
        required: smallest required ratio to the first baseline; MB for the task `memory`.
        goal: intended ratio.
        second_required: smallest required ratio to the second baseline.
        repeats: largest number of repeats, for a slow library.
        compiles: whether compiled programs of earlier processes are removed first.
        options: of `xagents.make`.
        gymnasium: whether xagents steps the environments of Gymnasium: their native vector if there is one, otherwise
            a loop. By default it compiles environments that have functions.
    """

    label: str
    peer: str
    worker: str
    settings: dict = dataclasses.field(default_factory=dict)
    required: float | None = None
    goal: float | None = None
    second_required: float | None = None
    repeats: int | None = None
    compiles: bool = False
    options: dict = dataclasses.field(default_factory=dict)
    gymnasium: bool = False


@dataclass(frozen=True)
class Case:
    """One table.

    Args:
        name: value of `--only`, and name of the section in the page.
        title: heading.
        task: `speed` (steps/s), `target` (seconds from the command to a mean of 250) or `memory` (resident MB during
            a run).
        settings: of every library.
        runs: rows; they are measured in turn, repeat after repeat.
        warmup: steps before the clock starts, for tracing, compiling and first allocations.
        steps: timed steps.
        quick: `warmup` and `steps` with `--quick`.
        seed_step: added to the seed at each repeat; 0 repeats the same run.
        note: text below the table.
        baselines: labels of the rows to which the others are compared.
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
    baselines: tuple[str, ...] = (BASELINE,)


SB3 = Run(BASELINE, 'sb3', 'sb3_worker')
SBX = Run('SBX', 'sbx', 'sbx_worker')
CLEANRL = Run('CleanRL', 'cleanrl', 'cleanrl_worker')
CLEANRL_JAX = Run('CleanRL in JAX, with its network of 120-84 units', 'cleanrl-jax', 'cleanrl_worker')
XAGENTS = Run('xagents', 'xagents', 'xagents_worker')
SHARED = replace(XAGENTS, label='xagents, shared network', settings={'shared_network': True})
GYMNASIUM, GYMNASIUM_SHARED = replace(XAGENTS, gymnasium=True), replace(SHARED, gymnasium=True)
OVERLAP = {'options': {'overlap': True}}
BFLOAT16 = replace(GYMNASIUM, label='xagents, bfloat16', settings={'precision': 'bfloat16'})
EVERY_32 = {'settings': {'train_frequency': 32}}

PPO = Settings()
A2C = replace(
    PPO, algorithm='a2c', n_steps=5, epochs=1, minibatches=1, lam=1.0, optimizer='rmsprop', normalize_advantage=False
)
# 16 minibatches of 128, the default size of Stable-Baselines3; `epochs` are those of the critic
TRPO = replace(PPO, algorithm='trpo', epochs=10, minibatches=16, lr=1e-3)
# ACER with the defaults of xagents; it is compared with A2C of Stable-Baselines3
ACER = {'algorithm': 'acer', 'n_steps': 20}
ENVS_256 = {'n_envs': 256, 'minibatches': 32}
PONG = replace(
    PPO, env='PongNoFrameskip-v4', n_envs=8, lr=2.5e-4, units=(512,), activation='relu', atari=True, threads=0
)
DQN = OffPolicySettings()
TD3 = replace(DQN, algorithm='td3', env='Pendulum-v1', learning_starts=304, batch_size=256, units=(400, 300))
DDPG = replace(TD3, algorithm='ddpg')
SAC = replace(TD3, algorithm='sac', lr=3e-4, units=(256, 256))
TQC = replace(SAC, algorithm='tqc')
CROSSQ = replace(SAC, algorithm='crossq', lr=1e-3, policy_delay=3)
# the learning rate and the factors of CleanRL, and epsilon of its RAdam
PQN = replace(
    PPO,
    algorithm='pqn',
    n_steps=32,
    lam=0.65,
    lr=2.5e-4,
    grad_norm=10.0,
    optimizer_epsilon=1e-8,
    units=(120, 84),
    activation='relu',
)
SAC_NOTE = (
    'All libraries learn the temperature, with the learning rate of the networks. Two parts of the work are not equal: '
    'xagents draws the noise of updates with NumPy, and computes more metrics in each update, for example the norms of '
    'gradients.'
)
TQC_NOTE = 'Each critic has 25 quantiles. Targets leave out the 2 largest for each critic.'
CROSSQ_NOTE = (
    'Networks have batch renormalisation, and critics are as wide as the actor. The beta1 of the temperature is 0.5 in '
    'xagents, as that of the networks, and 0.9 in the other libraries.'
)
PQN_NOTE = (
    'The networks are equal. The optimiser of CleanRL is RAdam, that of xagents is Adam. For the returns, CleanRL uses '
    'the values that it computed to act, and xagents computes them a second time.'
)


EIGHT = "8 of Gymnasium's environments, 8 updates every 8 steps"
SHARE_NOTE = (
    'The update of xagents, with minibatches of 512, has to reach 55 % of the speed of the matrix product; '
    'the goal is 70 %.'
)
BOTH_CORES_NOTE = (
    'Required are 250 000 steps/s, goal 400 000, on a machine on which Stable-Baselines3 reaches 13 400 with 16 x 128. '
    'The column has these numbers as ratios. Minibatches have 1024 transitions in xagents and 512 in Stable-Baselines3.'
)


def speed(
    name: str, title: str, settings: AnySettings, runs: tuple[Run, ...], *steps: int, note: str = '',
    baselines: tuple[str, ...] = (BASELINE,),
) -> Case:  # fmt: skip
    """Return a case that times steps: its warm-up, its timed steps, and both again with `--quick`."""
    return Case(name, title, 'speed', settings, runs, *steps[:2], (steps[2], steps[3]), note=note, baselines=baselines)


CASES = (
    speed(
        'ppo-cartpole', "PPO, CartPole-v1, 16 environments x 128 steps, Gymnasium's environments", PPO,
        (
            SB3, SBX, CLEANRL,
            replace(GYMNASIUM, required=5.5, goal=10), replace(GYMNASIUM_SHARED, required=5, goal=10),
            replace(GYMNASIUM, label='xagents, --overlap', required=7, goal=10, **OVERLAP),
        ),
        40_960, 204_800, 4_096, 8_192, note=SHARE_NOTE,
    ),
    *(
        speed(
            name, f'PPO, {env}, 16 environments x 128 steps, compiled environments',
            replace(PPO, env=env), (SB3, SBX, replace(XAGENTS, required=required, goal=goal)),
            40_960, 204_800, 4_096, 8_192, note=SHARE_NOTE,
        )
        for name, env, required, goal in (
            ('ppo-compiled', 'CartPole-v1', 10, 15), ('ppo-compiled-acrobot', 'Acrobot-v1', 12, 20),
            ('ppo-compiled-pendulum', 'Pendulum-v1', 12, 20), ('ppo-compiled-mountaincar', 'MountainCar-v0', 12, 20),
        )
    ),
    speed(
        'ppo-compiled-256',
        'PPO, CartPole-v1, 256 environments x 128 steps, compiled environments, both cores, compared with 16 x 128',
        PPO,
        (
            SB3,
            replace(XAGENTS, label='xagents, --overlap', settings=ENVS_256, required=18.7, goal=29.9, **OVERLAP),
            replace(XAGENTS, label='xagents, --threads 2', settings={**ENVS_256, 'threads': 2}),
            replace(XAGENTS, label='xagents, one core', settings=ENVS_256),
        ),
        65_536, 524_288, 32_768, 32_768, note=BOTH_CORES_NOTE,
    ),
    speed(
        'a2c-cartpole-compiled', 'A2C, CartPole-v1, 16 environments x 5 steps, compiled environments', A2C,
        (SB3, replace(XAGENTS, required=8, goal=12), SHARED), 16_000, 160_000, 800, 1_600,
    ),
    speed(
        'trpo-cartpole-compiled', 'TRPO, CartPole-v1, 16 environments x 128 steps, compiled environments', TRPO,
        (SB3, replace(XAGENTS, required=9, goal=12)), 40_960, 204_800, 4_096, 8_192,
    ),
    speed(
        'ppo-cartpole-long', "PPO, CartPole-v1, 16 environments x 1024 steps, Gymnasium's environments",
        replace(PPO, n_steps=1024), (SB3, SBX, CLEANRL, GYMNASIUM, GYMNASIUM_SHARED), 65_536, 262_144, 16_384, 16_384,
    ),
    speed(
        'a2c-cartpole', "A2C, CartPole-v1, 16 environments x 5 steps, Gymnasium's environments", A2C,
        (SB3, replace(GYMNASIUM, required=3, goal=4), GYMNASIUM_SHARED), 16_000, 160_000, 800, 1_600,
    ),
    speed(
        'trpo-cartpole', "TRPO, CartPole-v1, 16 environments x 128 steps, Gymnasium's environments", TRPO,
        (SB3, replace(GYMNASIUM, required=4)), 40_960, 204_800, 4_096, 8_192,
    ),
    # the buffer is full, and replays have begun, before the clock starts
    speed(
        'acer-cartpole',
        "ACER, CartPole-v1, 16 of Gymnasium's environments x 20 steps, 4 replays each, compared with "
        "Stable-Baselines3's A2C, 16 x 5",
        A2C, (SB3, replace(GYMNASIUM, label='xagents, ACER', settings=ACER, required=0.6)), 32_000, 96_000, 12_800,
        3_200,
        note='No maintained library has ACER. xagents 1.0 reached 1 036 steps/s with it on another machine, on which '
        "Stable-Baselines3's A2C reached 17 300: ten times 1 036, 10 360, is 0.6 of that.",
    ),
    speed(
        'ppo-pong', 'PPO, PongNoFrameskip-v4, 8 environments x 128 steps, Nature CNN', PONG,
        (
            SB3, replace(SBX, repeats=1), replace(CLEANRL, label='CleanRL with EnvPool', peer='cleanrl-atari'),
            replace(XAGENTS, required=1), BFLOAT16,
        ),
        2_048, 8_192, 1_024, 1_024,
    ),
    speed(
        'dqn-cartpole', 'DQN, CartPole-v1, one update a step: batch 64, networks 64-64', DQN,
        (SB3, SBX, CLEANRL_JAX, replace(XAGENTS, required=3, second_required=3.3)), 2_000, 6_000, 1_100, 400,
        baselines=(BASELINE, SBX.label),
    ),
    speed(
        'dqn-cartpole-4', 'DQN, CartPole-v1, 4 updates every 4 steps', replace(DQN, train_frequency=4),
        (
            SB3, SBX, replace(SBX, label='SBX, 32 updates every 32 steps', **EVERY_32), replace(XAGENTS, required=4),
            replace(XAGENTS, label='xagents, 32 updates every 32 steps', **EVERY_32),
        ),
        2_000, 6_000, 1_120, 400,
    ),
    *(
        speed(
            f'{settings.algorithm}-pendulum{ending}', f'{settings.algorithm.upper()}, Pendulum-v1, {title}',
            replace(settings, **more), (SB3, SBX, replace(GYMNASIUM, **required), BFLOAT16), 400, 800, 320, 40,
            baselines=(BASELINE, SBX.label),
        )
        for ending, title, more, required in (
            (
                '', 'one update a step: batch 256, networks 400-300', {},
                {'required': 1.2, 'goal': 1.4, 'second_required': 1.05},
            ),
            ('-8', EIGHT, {'n_envs': 8, 'train_frequency': 8}, {'required': 2}),
        )
        for settings in (TD3, DDPG)
    ),
    *(
        speed(
            f'{settings.algorithm}-pendulum{ending}', f'{name}, Pendulum-v1, {title}', replace(settings, **more),
            (SB3, SBX, GYMNASIUM), 400, 800, 320, 40,
            note=' '.join([SAC_NOTE, *notes]), baselines=(BASELINE, SBX.label),
        )
        for settings, name, *notes in (
            (SAC, 'SAC'),
            (TQC, 'TQC', TQC_NOTE),
            (CROSSQ, 'CrossQ', CROSSQ_NOTE),
        )
        for ending, title, more in (
            ('', 'one update a step: batch 256, networks 256-256', {}),
            ('-8', EIGHT, {'n_envs': 8, 'train_frequency': 8}),
        )
    ),
    speed(
        'pqn-cartpole',
        "PQN, CartPole-v1, 16 of Gymnasium's environments x 32 steps, networks 120-84 with layer normalisation", PQN,
        (CLEANRL, replace(GYMNASIUM, goal=5)), 20_480, 102_400, 1_024, 2_048,
        note=PQN_NOTE, baselines=(CLEANRL.label,),
    ),
    Case(
        'seed-command', 'From the command to a mean of 250, everything included: PPO, CartPole-v1, 16 x 1024, seed 123',
        'target', replace(PPO, n_steps=1024, seed=123),
        (
            SB3, SBX, replace(XAGENTS, label='xagents, the first time', compiles=True),
            replace(XAGENTS, required=4, goal=5),
        ),
    ),
    Case(
        'seed-command-seeds', 'The same with another seed each time: 124, 125, …', 'target',
        replace(PPO, n_steps=1024, seed=124), (SB3, SBX, XAGENTS, SHARED), seed_step=1,
    ),
    Case(
        'memory', 'Resident memory over 10 million steps: PPO, CartPole-v1, 16 x 128, compiled environments',
        'memory', PPO, (replace(XAGENTS, required=900),), 1_000_000, 10_000_000, (20_000, 100_000),
    ),
)  # fmt: skip


def find_cases(names: list[str] | None, memory: bool = False) -> list[Case]:
    """Return the cases with these names; without names all but the long case `memory`.

    A name also selects the cases that begin with it: `ppo` selects all cases of PPO.
    """
    if not names:
        return [case for case in CASES if (case.task == 'memory') == memory]
    return find_named(names, CASES, CASES)


def find_named(names: list[str], cases: Sequence[Named], by_beginning: Sequence[Named]) -> list[Named]:
    """Return the cases with these names, each once; those in `by_beginning` are also found by how they begin.

    Raises:
        ValueError: naming the unknown name and the known ones.
    """
    found: list[Named] = []
    for name in names:
        matches = [case for case in cases if case.name == name]
        matches = matches or [case for case in by_beginning if name and case.name.startswith(name)]
        if not matches:
            known = [case.name for case in cases]
            longer = [one for one in known if one.startswith(name)]
            # the case without a wrong ending, or one of the same agent rather than of the same environment
            related = [one for one in known if name.startswith(one)]
            related = related or [one for one in known if one.partition('-')[0] == name.lower().partition('-')[0]]
            hint = f', for example {longer[0]}' if longer else did_you_mean(name.lower(), related or known)
            raise ValueError(f'--only: got {name or "an empty name"}, expected a case that --help lists{hint}')
        found += [case for case in matches if case not in found]
    return found
