"""What every agent is tested for: one `Case` an agent, and the clauses that hold for all of them.

A new agent is a new entry of `CASES`. A clause is a test that `clause` parametrises over all cases. An agent that
cannot hold one has a `Refusal` of that name instead, whose message is tested.
`python -m tests.agents.contract` prints the table: the agents of each clause, and how the others refuse it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from xagents.registry.agents import find_agent

ENV = 'tests.problems:Anything-v0'
# clauses by their names, and the agents that each is tested for
CLAUSES: dict[str, list[str]] = {}


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Flags of `xagents train` that an agent refuses.

    Args:
        flags: what is typed after the environment, or the data set.
        message: how the one line on stderr begins, without the command.
        clause: the clause that cannot hold because of it.
        continuous: whether actions are; as the agent's first kind when not given.
        late: whether networks are built before it is refused.
    """

    flags: str
    message: str
    clause: str = ''
    continuous: bool | None = None
    late: bool = False

    def said(self, case, data='x-v0'):
        """Return the message for an agent, and a data set."""
        return self.message.format(id=case.id, name=find_agent(case.id).class_name, data=data)


@dataclasses.dataclass(frozen=True)
class Case:
    """What the clauses need to know of one agent.

    Args:
        id: of the agent.
        actions: the kinds that it admits; most clauses are tested with the first one.
        options: small ones, with as much state as possible.
        single: with these, an update is one step of each optimiser, made from the whole batch.
        learns_from: the columns of a batch in which a number that is not finite spoils an update.
        steps: of a short run.
        refusals: what it refuses.
        loss: the metric of the squared error of its values.
        deployed: observations and actions of an exported policy, and the options of its agent.
    """

    id: str
    actions: tuple[str, ...]
    options: dict
    single: dict = dataclasses.field(default_factory=dict)
    learns_from: tuple[str, ...] = ('rewards', 'observations')
    steps: int = 36
    refusals: tuple[Refusal, ...] = ()
    loss: str = 'loss/value'
    deployed: tuple = ()

    @property
    def offline(self):
        """Whether it learns from data sets only."""
        return find_agent(self.id).options.datasets == 'only'

    @property
    def refused(self):
        """The clauses that it refuses."""
        return {refusal.clause for refusal in self.refusals}

    def given(self, actions=None, shown='vector', **options):
        """Return the options of a small agent in the environment of the contract, or with a data set of it."""
        actions, dataset = actions or self.actions[0], options.pop('dataset', self.offline)
        given = {'net': [8], 'seed': 1, 'quiet': True, 'opt_epsilon': 1e-3, **self.options}
        kwargs = {'shown': shown, 'actions': actions, **options.pop('env_kwargs', {})}
        place = {'dataset': recorded(**kwargs), 'eval_frequency': 1000} if dataset else {'n_envs': 2, 'vector': 'sync'}
        return {'env': ENV, 'env_kwargs': kwargs, **place, **given, **options}

    def make(self, *arguments, **options):
        """Make a small agent; see `given`."""
        return xagents.make(self.id, **self.given(*arguments, **options))


@functools.cache
def recorded(**kwargs):
    """Return the name of a data set of an environment with these arguments."""
    pytest.importorskip('minari')
    name = '-'.join(str(value).replace('.', '') for value in kwargs.values()) + '-v0'
    actor = 'dqn' if kwargs['actions'] == 'discrete' else 'td3'
    agent = xagents.make(actor, ENV, env_kwargs=kwargs, net=[8], seed=1) if kwargs['shown'] == 'vector' else None
    agent = agent or xagents.make(actor, ENV, env_kwargs=kwargs, seed=1)
    xagents.record(agent, name, episodes=20, random_actions=0.5, seed=1, say=lambda line: None)
    return name


# ------------------------------------------------------------------------------------------------------------ clauses


def clause(name, kinds=False):
    """Parametrise a test over every agent that does not refuse the clause.

    Args:
        name: of the clause.
        kinds: whether it is tested with each kind of action that an agent admits, as the argument `actions`.
    """

    def decorate(test):
        held = [case for case in CASES.values() if name not in case.refused]
        CLAUSES[name] = [case.id for case in held]
        if not kinds:
            return pytest.mark.parametrize('case', held, ids=CLAUSES[name])(test)
        rows = [pytest.param(case, kind, id=f'{case.id}-{kind}') for case in held for kind in case.actions]
        return pytest.mark.parametrize(('case', 'actions'), rows)(test)

    return decorate


def table():
    """Return the table of clauses as lines: the agents that each is tested for, and how the others refuse it."""
    for path in sorted(Path(__file__).parents[1].glob('*/test_*.py')):
        if '@clause(' in path.read_text():
            importlib.import_module(f'tests.{path.parent.name}.{path.stem}')
    lines = []
    for name, held in CLAUSES.items():
        lines.append(f'{name}: {" ".join(held)}')
        refusals = [(case, refusal) for case in CASES.values() for refusal in case.refusals if refusal.clause == name]
        lines += [f'    not {case.id}: {refusal.said(case)}' for case, refusal in refusals]
    return lines


# --------------------------------------------------------------------------------------------- what clauses share


def lesson(agent):
    """Return what an agent is given to learn from first: the batch, and the other arguments of `learn`."""
    given, learn = [], agent.learn

    @functools.wraps(learn)
    def look(batch, **schedule):
        given.append(({name: np.array(x) for name, x in batch.items()}, schedule))
        return {'updates': 0}

    agent.learn = look
    stream = agent.train_iter(max_steps=10_000)
    while not given:
        next(stream)
    stream.close()
    del agent.learn
    return given[0]


def learn(agent, batch, schedule, **others):
    """Let an agent learn from a batch, with the arguments of `lesson` or others."""
    return agent.learn({**batch}, **{**schedule, **others})


def make_values_constant(agent, value):
    """Let every network of an agent return `value` for values, whatever it is shown, and 0 for anything else."""
    for model, role in zip(agent.output_models, find_agent(agent.id).networks, strict=True):
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])
        for name, output in zip(role.outputs, model.outputs, strict=False):
            if name != 'actor':
                kernel, _ = output._keras_history.operation.get_weights()
                output._keras_history.operation.set_weights([kernel, np.full(kernel.shape[-1], value)])


def everything(agent):
    """Return weights, optimisers and all other state of an agent as arrays by name."""
    state = agent.state()
    weights = {f'{i}/{j}': x for i, model in enumerate(state.weights) for j, x in enumerate(model)}
    return {**weights, **{name: np.array(x) for name, x in state.arrays.items()}}


def assert_same(one, other):
    """Two results of `everything` are equal to the bit."""
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []


def weights(agent):
    """Return the weights and optimisers of an agent, to be compared to the bit."""
    return [x.tobytes() for model in agent.state().weights for x in model]


def observations(agent, n=6):
    """Return raw observations of an agent's environment."""
    space = agent.envs.encoder.raw_space
    space.seed(3)
    return np.stack([space.sample() for _ in range(n)])


# -------------------------------------------------------------------------------------------------------------- cases

NORMAL = {'normalize_obs': True, 'normalize_reward': True}
OFF = {'buffer_max_size': 64, 'buffer_initial_size': 16, 'buffer_batch_size': 8, 'train_frequency': 8, 'lr': 0.01}
OFF |= {'gradient_steps': 1}
VECTOR = spaces.Box(-5, 5, (3,), np.float32)
NESTED = spaces.Dict(
    {
        'camera 1': spaces.Box(0, 255, (4, 3, 1), np.uint8),
        'inner': spaces.Tuple((spaces.Discrete(4, start=-2), spaces.Box(-9, 9, (2, 2), np.float64))),
        'actions': spaces.MultiDiscrete([2, 3]),
        'self': spaces.MultiBinary(3),
    }
)
SEVERAL = spaces.MultiDiscrete([[3, 4], [2, 5]], start=[[0, 7], [-1, 2]])
BOUNDED = spaces.Box(-3, 9, (2, 2), np.float32)

NO_LAG = Refusal(
    '--overlap', '--overlap: {name} learns from the rollouts of its present policy', 'one ahead', late=True
)
NO_DATA = Refusal(
    '--dataset {data}', '--dataset: got {data}, but {id} learns only from rollouts', 'data set', late=True
)
COLLECTING = (
    Refusal('--n-steps 0', '--n-steps: got 0, expected a whole number at least 1'),
    Refusal('--gamma 1.5', '--gamma: got 1.5, expected'),
)
SDE = (
    Refusal('--sde', '--sde: got true, but tests.problems:Anything-v0 has actions of Discrete(3), expected Box'),
    Refusal('--sde-sample-frequency 4', '--sde-sample-frequency: got 4, which requires --sde', continuous=True),
    Refusal('--sde-expln', '--sde-expln: requires --sde', continuous=True),
    Refusal('--sde --sde-sample-frequency 0', '--sde-sample-frequency: got 0, expected -1 (once', continuous=True),
)
BUFFER = (
    Refusal('--buffer-initial-size 11 --buffer-max-size 10 --buffer-batch-size 2', '--buffer-initial-size: got 11'),
    Refusal('--buffer-batch-size 11 --buffer-max-size 10', '--buffer-batch-size: got 11, expected at most the 10'),
    Refusal('--n-envs 9 --buffer-max-size 8 --buffer-batch-size 2', '--buffer-max-size: got 8, expected at least 9'),
    Refusal('--gradient-steps 0', '--gradient-steps: got 0, expected -1'),
    Refusal('--gradient-steps -2', '--gradient-steps: got -2, expected a whole number at least -1'),
    Refusal('--train-frequency 0', '--train-frequency: got 0, expected a whole number at least 1'),
    Refusal('--n-step 0', '--n-step: got 0, expected a whole number at least 1'),
)
BOX_ONLY = Refusal(
    '', '--env: tests.problems:Anything-v0 has Discrete actions, {id} accepts Box ones', continuous=False
)

_CASES = (
    Case(
        'a2c',
        ('continuous', 'discrete'),
        {'n_steps': 8, **NORMAL, 'optimizer': 'rmsprop'},
        refusals=(NO_LAG, NO_DATA, *COLLECTING, *SDE),
        deployed=(spaces.Discrete(5, start=2), SEVERAL, {}),
    ),
    Case(
        'acer',
        ('discrete',),
        {'n_steps': 6, 'buffer_max_size': 48, 'buffer_initial_size': 24, **NORMAL, 'replay_ratio': 1.0},
        # it normalises when it learns, and an infinite reward would be clipped
        single={'replay_ratio': 0.0, 'normalize_obs': False, 'normalize_reward': False},
        refusals=(
            NO_DATA,
            Refusal('', '--env: tests.problems:Anything-v0 has the actions Box(', continuous=True),
            Refusal(
                '--n-envs 3 --n-steps 10 --buffer-max-size 29 --buffer-initial-size 5', '--buffer-max-size: got 29'
            ),
            Refusal('--buffer-batch-size 32', '--buffer-batch-size: got 32, but a replay of ACER draws one stored'),
            Refusal(
                '--buffer-initial-size 101 --buffer-max-size 100', '--buffer-initial-size: got 101, expected at most'
            ),
            Refusal('--replay-ratio -1', '--replay-ratio: got -1, expected a number at least 0'),
            Refusal('--delta 0', '--delta: got 0, expected a number above 0'),
            Refusal('--ema-alpha 1.5', '--ema-alpha: got 1.5, expected a number at least 0 and at most 1'),
            Refusal('--importance-c 0', '--importance-c: got 0, expected a number above 0'),
            Refusal('--sde', '--sde: is no option of xagents train acer'),
        ),
        deployed=(spaces.Tuple((spaces.Discrete(3), VECTOR)), spaces.Discrete(3), {}),
    ),
    Case(
        'bc',
        ('discrete', 'continuous'),
        {'buffer_batch_size': 8, 'lr': 0.01, 'normalize_obs': True},
        learns_from=('observations',),
        steps=15,
        refusals=(
            Refusal('--gamma 0.5', 'without effect on BC: --gamma', 'time limits'),
            Refusal('--overlap', '--overlap: cannot be used with --dataset, which replaces collecting', 'one ahead'),
            Refusal('--explorers 2', '--explorers: got 2 with --dataset, which replaces collecting', 'explorers'),
        ),
        deployed=(spaces.Tuple((spaces.Discrete(3), VECTOR)), SEVERAL, {}),
    ),
    Case(
        'ddpg',
        ('continuous',),
        {**OFF, **NORMAL, 'noise': 'ornstein-uhlenbeck'},
        refusals=(
            *BUFFER,
            BOX_ONLY,
            Refusal(
                '--noise gausian', '--noise: got gausian, expected one of gaussian, ornstein-uhlenbeck (did you mean'
            ),
            Refusal('--tau 0', '--tau: got 0'),
        ),
        deployed=(VECTOR, spaces.Box(-3, 9, (2,), np.int16), {}),
    ),
    Case(
        'dqn',
        ('discrete',),
        {**OFF, 'normalize_obs': True, 'double': True, 'prioritized': True, 'n_step': 2, 'target_sync_steps': 20},
        refusals=(
            *BUFFER,
            Refusal(
                '', '--env: tests.problems:Anything-v0 has Box actions, dqn accepts Discrete ones', continuous=True
            ),
            Refusal('--epsilon-end 1.5', '--epsilon-end: got 1.5, expected a number at least 0 and at most 1'),
            Refusal('--sde', '--sde: is no option of xagents train dqn'),
        ),
        deployed=(NESTED, spaces.Discrete(3, start=-5), {'dueling': True}),
    ),
    Case(
        'iql',
        ('continuous',),
        {**OFF, 'normalize_obs': True},
        loss='loss/critic',
        refusals=(*BUFFER, BOX_ONLY, Refusal('--expectile 1', '--expectile: got 1, expected')),
        deployed=(VECTOR, BOUNDED, {}),
    ),
    Case(
        'ppo',
        ('discrete', 'continuous'),
        {'n_steps': 8, **NORMAL, 'ppo_epochs': 1, 'mini_batches': 2},
        single={'ppo_epochs': 1, 'mini_batches': 1},
        refusals=(NO_DATA, *COLLECTING, *SDE),
        deployed=(spaces.Box(-9, 9, (2, 3), np.int16), spaces.Box(-0.1, 0.7, (2, 2), np.float64), {'sde': True}),
    ),
    Case(
        'td3',
        ('continuous',),
        {**OFF, 'normalize_obs': True},
        single={'policy_delay': 1},
        refusals=(
            *BUFFER,
            BOX_ONLY,
            Refusal('--tau 0', '--tau: got 0'),
            Refusal('--sde', '--sde: is no option of xagents train td3'),
            Refusal('--checkpoints a.tf b.tf', '--checkpoints: got 2 paths, expected 3: actor, critic 1'),
        ),
        deployed=(spaces.Box(0, 255, (5,), np.uint8), spaces.Box(-1, 3, (), np.float32), {}),
    ),
    Case(
        'td3-bc',
        ('continuous',),
        OFF,
        single={'policy_delay': 1},
        refusals=(*BUFFER, BOX_ONLY, Refusal('--alpha -1', '--alpha: got -1, expected')),
        deployed=(NESTED, spaces.Box(-1, 3, (2,), np.float64), {}),
    ),
    Case(
        'trpo',
        ('continuous', 'discrete'),
        {'n_steps': 8, **NORMAL, 'mini_batches': 2, 'fvp_n_steps': 1, 'cg_iterations': 2, 'critic_iterations': 2},
        single={'mini_batches': 1, 'critic_iterations': 1},
        refusals=(
            Refusal('--overlap', '--overlap: TRPO bounds the divergence from the policy', 'one ahead', late=True),
            NO_DATA,
            *COLLECTING,
            *SDE,
            Refusal('--max-kl 0', '--max-kl: got 0, expected'),
            Refusal('--actor-iterations 0', '--actor-iterations: got 0, expected'),
            Refusal('--fvp-n-steps 0', '--fvp-n-steps: got 0, expected'),
            Refusal('--cg-damping -1', '--cg-damping: got -1, expected'),
            Refusal('--n-envs 2 --n-steps 8 --mini-batches 17', '--mini-batches: got 17, expected', late=True),
            Refusal('--n-envs 2 --n-steps 8 --fvp-n-steps 17', '--fvp-n-steps: got 17, expected', late=True),
        ),
        deployed=(SEVERAL, spaces.MultiBinary((2, 3)), {}),
    ),
)
CASES = {case.id: case for case in _CASES}


if __name__ == '__main__':
    contract = importlib.import_module('tests.agents.contract')
    print('\n'.join(contract.table()))
