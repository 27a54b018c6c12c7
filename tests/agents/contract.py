"""The contract of agents: the clauses (`CLAUSES`), one `Case` for each agent, and helpers of the tests.

To add an agent, add a `Case`. The decorator `clause` runs the test of a clause for every agent. An agent that does not
support a clause has a `Refusal` with the name of the clause, and its error message is tested instead.
`python -m tests.agents.contract` prints the clauses, the agents of each clause, and the messages of the other agents.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from xagents.registry.agents import find_agent

ENV = 'tests.problems:Anything-v0'
CLAUSES = {
    'equal seeds': 'Equal seeds give equal runs. Another seed changes the environments and every random generator.',
    'resumes': 'A killed run resumes exactly: its files and state equal those of an uninterrupted run.',
    'one ahead': 'A killed run that collects one iteration ahead (`--overlap`) resumes exactly.',
    'data set': 'A killed run that learns from a data set resumes exactly.',
    'weight files': 'Weight files of every format restore the agent. They also load without the rest of its state.',
    'command line': 'The command line trains, evaluates and resumes the agent.',
    'compiled equals eager': 'A compiled update equals an eager one. Other numbers do not compile it again.',
    'shares programs': 'Agents that differ only in numbers share compiled programs.',
    'not finite': 'An update that is not finite changes nothing and is counted.',
    'on_nan': '`--on-nan skip` skips an update that is not finite, and `--on-nan stop` stops the run.',
    'acts': 'Acting uses the weights of the last update and equals the Keras model.',
    'time limits': 'Values are bootstrapped after truncation and not after termination.',
    'images': 'Agents learn from images of bytes. Networks receive the bytes divided by 255.',
    'exports': 'Exported policies of every format, with observation scaling, act as the agent does.',
    'explorers': 'Training with an explorer gives the same weights as training without one.',
    'acts from a plan': 'A policy that is loaded without TensorFlow chooses the same actions, bit for bit.',
}
# clauses that hold for an agent if they hold for another one with the same networks and the same run (`runs_like`)
SAME_RUN = {'equal seeds', 'resumes', 'weight files', 'command line', 'images', 'exports', 'explorers'}
# agents whose tests of a clause are fast; those of the others are slow tests
FAST = {'one ahead': ('ppo', 'dqn'), 'data set': ('bc', 'iql'), 'shares programs': ('ppo', 'td3')}
# agents that each clause is tested for; `clause` fills this
TESTED: dict[str, list[str]] = {}


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Flags of `xagents train` that an agent refuses.

    Args:
        flags: flags that follow the environment or the data set on the command line.
        message: beginning of the line on stderr, without the command. It includes the expected value.
        clause: name of the clause that the agent does not support; empty for a plain error.
        continuous: whether actions are continuous. By default, the first kind of action of the agent is used.
        late: whether the error occurs after networks are built.
    """

    flags: str
    message: str
    clause: str = ''
    continuous: bool | None = None
    late: bool = False

    def expected_message(self, case, data='x-v0'):
        """Return the message for an agent and a data set."""
        return self.message.format(id=case.id, name=find_agent(case.id).class_name, data=data)


@dataclasses.dataclass(frozen=True)
class Case:
    """One agent, with the options and spaces that the clauses test.

    Args:
        id: id of the agent.
        actions: kinds of actions that the agent supports. Most clauses are tested with the first one.
        options: options of a small agent with as much state as possible.
        single: options with which an update is one step of each optimiser, computed from the whole batch.
        learns_from: columns of a batch in which a number that is not finite makes the update not finite.
        steps: number of environment steps of a short run.
        refusals: options and clauses that the agent does not support.
        loss: name of the metric that is the squared error of the values.
        loss_of: loss of one TD error, for agents whose loss is not the square.
        deployed: observation space, action space and options of the agent whose policy is exported.
        runs_like: agent whose class runs the same code around its updates, or ''. The clauses `SAME_RUN` are then slow
            tests.
    """

    id: str
    actions: tuple[str, ...]
    options: dict
    single: dict = dataclasses.field(default_factory=dict)
    learns_from: tuple[str, ...] = ('rewards', 'observations')
    steps: int = 36
    refusals: tuple[Refusal, ...] = ()
    loss: str = 'loss/value'
    loss_of: Callable[[float], float] = lambda error: error**2
    deployed: tuple = ()
    runs_like: str = ''

    @property
    def offline(self):
        """Whether the agent learns only from data sets."""
        return find_agent(self.id).options.datasets == 'only'

    @property
    def refused(self):
        """Names of the clauses that the agent does not support."""
        return {refusal.clause for refusal in self.refusals}

    def small_options(self, actions=None, observations='vector', **options):
        """Return the options of a small agent in the environment `ENV`, or with a data set from this environment."""
        actions, dataset = actions or self.actions[0], options.pop('dataset', self.offline)
        defaults = {'net': [8], 'seed': 1, 'quiet': True, 'opt_epsilon': 1e-3, **self.options}
        kwargs = {'shown': observations, 'actions': actions, **options.pop('env_kwargs', {})}
        source = {'dataset': recorded(**kwargs), 'eval_frequency': 1000} if dataset else {'n_envs': 2, 'vector': 'sync'}
        return {'env': ENV, 'env_kwargs': kwargs, **source, **defaults, **options}

    def make(self, *arguments, **options):
        """Make a small agent; see `small_options`."""
        return xagents.make(self.id, **self.small_options(*arguments, **options))


@functools.cache
def recorded(**kwargs):
    """Record a data set from the environment with these arguments and return its name."""
    pytest.importorskip('minari')
    name = '-'.join(str(value).replace('.', '') for value in kwargs.values()) + '-v0'
    actor = 'dqn' if kwargs['actions'] == 'discrete' else 'td3'
    agent = xagents.make(actor, ENV, env_kwargs=kwargs, net=[8], seed=1) if kwargs['shown'] == 'vector' else None
    agent = agent or xagents.make(actor, ENV, env_kwargs=kwargs, seed=1)
    xagents.record(agent, name, episodes=20, random_actions=0.5, seed=1, say=lambda line: None)
    return name


# ------------------------------------------------------------------------------------------------------------ clauses


def clause(name, kinds=False):
    """Parametrise a test over every agent that supports a clause.

    Args:
        name: name of the clause in `CLAUSES`.
        kinds: whether to test each kind of action that an agent supports, as the argument `actions`.
    """
    assert name in CLAUSES, f'{name} is not a clause of the contract'

    def decorate(test):
        cases = [case for case in CASES.values() if name not in case.refused]
        TESTED[name] = [case.id for case in cases]
        slow = {case.id for case in cases if case.runs_like and name in SAME_RUN}
        slow |= set(TESTED[name]) - set(FAST.get(name, TESTED[name]))
        marks = {case.id: [pytest.mark.slow] if case.id in slow else [] for case in cases}
        if not kinds:
            rows = [pytest.param(case, id=case.id, marks=marks[case.id]) for case in cases]
            return pytest.mark.parametrize('case', rows)(test)
        pairs = [(case, kind) for case in cases for kind in case.actions]
        rows = [pytest.param(case, kind, id=f'{case.id}-{kind}', marks=marks[case.id]) for case, kind in pairs]
        return pytest.mark.parametrize(('case', 'actions'), rows)(test)

    return decorate


def table():
    """Return the contract as lines: each clause, the agents that it is tested for, and the messages of the others.

    Raises:
        AssertionError: a clause without a test.
    """
    for path in sorted(Path(__file__).parents[1].glob('*/test_*.py')):
        if '@clause(' in path.read_text():
            importlib.import_module(f'tests.{path.parent.name}.{path.stem}')
    assert TESTED.keys() == CLAUSES.keys(), f'no test of {", ".join(CLAUSES.keys() - TESTED.keys())}'
    lines = []
    for name, requirement in CLAUSES.items():
        lines += [f'{name}: {requirement}', f'    {" ".join(TESTED[name])}']
        refusals = [(case, refusal) for case in CASES.values() for refusal in case.refusals if refusal.clause == name]
        lines += [f'    not {case.id}: {refusal.expected_message(case)}' for case, refusal in refusals]
    return lines


# --------------------------------------------------------------------------------------------- helpers of the tests


def lesson(agent):
    """Return the arguments of the first call of `learn`: the batch, and the schedule as a dict. Nothing is learned."""
    calls = []

    def record_call(batch, schedule):
        calls.append(({name: np.array(x) for name, x in batch.items()}, schedule))
        return {'updates': 0}

    agent.learn = record_call
    stream = agent.train_iter(max_steps=10_000)
    while not calls:
        next(stream)
    stream.close()
    del agent.learn
    return calls[0]


def learn(agent, batch, schedule, **others):
    """Update an agent from a batch, with a schedule from `lesson`, some of whose arguments `others` replaces."""
    return agent.learn({**batch}, {**schedule, **others})


def make_values_constant(agent, value):
    """Set the weights of an agent so that every value is `value`, and every other output is 0."""
    roles = find_agent(agent.id).form_for(agent.envs.action_space).networks
    for model, role in zip(agent.output_models, roles, strict=True):
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])
        for name, output in zip(role.outputs, model.outputs, strict=False):
            if name not in ('actor', 'log_std'):
                kernel, _ = output._keras_history.operation.get_weights()
                output._keras_history.operation.set_weights([kernel, np.full(kernel.shape[-1], value)])


def everything(agent):
    """Return weights, optimisers and all other state of an agent as arrays by name."""
    state = agent.state()
    weights = {f'{i}/{j}': x for i, model in enumerate(state.weights) for j, x in enumerate(model)}
    return {**weights, **{name: np.array(x) for name, x in state.arrays.items()}}


def assert_same(one, other):
    """Assert that two results of `everything` are equal, bit for bit."""
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []


def weights(agent):
    """Return the weights of the networks and optimisers of an agent as bytes, for exact comparisons."""
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
    '--dataset {data}',
    '--dataset: got {data}, but {id} learns only from rollouts of its present policy; expected one of',
    'data set',
    late=True,
)
COLLECTING = (
    Refusal('--n-steps 0', '--n-steps: got 0, expected a whole number at least 1'),
    Refusal('--gamma 1.5', '--gamma: got 1.5, expected a number at least 0 and at most 1'),
)
SDE = (
    Refusal('--sde', '--sde: got true, but tests.problems:Anything-v0 has actions of Discrete(3), expected Box'),
    Refusal('--sde-sample-frequency 4', '--sde-sample-frequency: got 4, which requires --sde', continuous=True),
    Refusal('--sde-expln', '--sde-expln: requires --sde', continuous=True),
    Refusal(
        '--sde --sde-sample-frequency 0', '--sde-sample-frequency: got 0, expected -1 (once a rollout)', continuous=True
    ),
)
BUFFER = (
    Refusal(
        '--buffer-initial-size 11 --buffer-max-size 10 --buffer-batch-size 2',
        '--buffer-initial-size: got 11, expected at most the 10 of --buffer-max-size',
    ),
    Refusal(
        '--buffer-batch-size 11 --buffer-max-size 10',
        '--buffer-batch-size: got 11, expected at most the 10 of --buffer-max-size',
    ),
    Refusal(
        '--n-envs 9 --buffer-max-size 8 --buffer-batch-size 2',
        '--buffer-max-size: got 8, expected at least 9, one transition',
    ),
    Refusal(
        '--gradient-steps 0', '--gradient-steps: got 0, expected -1 (as many as steps taken) or a whole number from 1'
    ),
    Refusal('--gradient-steps -2', '--gradient-steps: got -2, expected a whole number at least -1'),
    Refusal('--train-frequency 0', '--train-frequency: got 0, expected a whole number at least 1'),
    Refusal('--n-step 0', '--n-step: got 0, expected a whole number at least 1'),
)
BOX_ONLY = Refusal(
    '', '--env: tests.problems:Anything-v0 has Discrete actions, {id} accepts Box ones', continuous=False
)
DATA_BOX_ONLY = dataclasses.replace(BOX_ONLY, message=f'{BOX_ONLY.message} (try dqn --conservative or bc)')

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
        {
            'n_steps': 6,
            'buffer_max_size': 48,
            'buffer_initial_size': 24,
            **NORMAL,
            'replay_ratio': 1.0,
            'optimizer': 'adamw',
        },
        # ACER normalises rewards when it learns, which clips an infinite reward
        single={'replay_ratio': 0.0, 'normalize_obs': False, 'normalize_reward': False},
        refusals=(
            NO_DATA,
            Refusal(
                '',
                '--env: tests.problems:Anything-v0 has the actions Box([-2. 0.5], [6. 1.25], (2,), float32), '
                'ACER accepts Discrete',
                continuous=True,
            ),
            Refusal(
                '--n-envs 3 --n-steps 10 --buffer-max-size 29 --buffer-initial-size 5',
                '--buffer-max-size: got 29, expected at least 30, one rollout',
            ),
            Refusal('--buffer-batch-size 32', '--buffer-batch-size: got 32, but a replay of ACER draws one stored'),
            Refusal(
                '--buffer-initial-size 101 --buffer-max-size 100',
                '--buffer-initial-size: got 101, expected at most the 100 of --buffer-max-size',
            ),
            Refusal('--replay-ratio -1', '--replay-ratio: got -1, expected a number at least 0 and at most 1000'),
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
        runs_like='td3',
        steps=24,
        refusals=(
            *BUFFER,
            BOX_ONLY,
            Refusal(
                '--noise gausian',
                '--noise: got gausian, expected one of gaussian, ornstein-uhlenbeck (did you mean gaussian?)',
            ),
            Refusal('--tau 0', '--tau: got 0, expected a number above 0 and at most 1'),
        ),
        deployed=(VECTOR, spaces.Box(-3, 9, (2,), np.int16), {}),
    ),
    Case(
        'dqn',
        ('discrete',),
        {**OFF, 'normalize_obs': True, 'double': True, 'prioritized': True, 'n_step': 2, 'target_sync_steps': 20},
        steps=24,
        refusals=(
            *BUFFER,
            Refusal(
                '', '--env: tests.problems:Anything-v0 has Box actions, dqn accepts Discrete ones', continuous=True
            ),
            Refusal('--munchausen --double', '--munchausen: cannot be used with --double, expected one of the two'),
            Refusal('--munchausen --n-step 3', '--n-step: got 3 with --munchausen, expected 1'),
            Refusal('--munchausen-alpha 0.5', '--munchausen-alpha: got 0.5, which requires --munchausen'),
            Refusal('--epsilon-end 1.5', '--epsilon-end: got 1.5, expected a number at least 0 and at most 1'),
            Refusal('--sde', '--sde: is no option of xagents train dqn'),
        ),
        deployed=(NESTED, spaces.Discrete(3, start=-5), {'dueling': True, 'flatten': True}),
    ),
    Case(
        'iql',
        ('continuous',),
        {**OFF, 'normalize_obs': True},
        loss='loss/critic',
        steps=24,
        refusals=(
            *BUFFER,
            DATA_BOX_ONLY,
            Refusal('--expectile 1', '--expectile: got 1, expected a number above 0 and below 1'),
        ),
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
        'pqn',
        ('discrete',),
        {'n_steps': 8, **NORMAL, 'epochs': 1, 'mini_batches': 2},
        single={'epochs': 1, 'mini_batches': 1},
        refusals=(
            dataclasses.replace(NO_LAG, message='--overlap: PQN learns from the returns of its present policy'),
            NO_DATA,
            *COLLECTING,
            Refusal(
                '', '--env: tests.problems:Anything-v0 has Box actions, pqn accepts Discrete ones', continuous=True
            ),
            Refusal('--epochs 0', '--epochs: got 0, expected a whole number at least 1'),
            Refusal(
                '--n-envs 2 --n-steps 8 --mini-batches 17',
                '--mini-batches: got 17, expected at most the 16 transitions',
                late=True,
            ),
        ),
        deployed=(NESTED, spaces.Discrete(3, start=-5), {'flatten': True}),
    ),
    Case(
        'rainbow',
        ('discrete',),
        {
            **{**OFF, 'normalize_obs': True, 'n_step': 2, 'target_sync_steps': 20},
            **{'distribution': 'categorical', 'n_atoms': 5, 'value_max': 20.0},
        },
        single={
            **{'distribution': 'quantile', 'n_quantiles': 1, 'n_atoms': 51, 'value_max': 10.0},
            **{'noisy': False, 'dueling': False},
        },
        loss_of=lambda error: 0.5 * (0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5),
        runs_like='dqn',
        steps=24,
        refusals=(
            *BUFFER,
            Refusal(
                '', '--env: tests.problems:Anything-v0 has Box actions, rainbow accepts Discrete ones', continuous=True
            ),
            Refusal(
                '--epsilon-decay-steps 9', '--epsilon-decay-steps: got 9, which requires --no-noisy or --epsilon-start'
            ),
            Refusal('--n-atoms 11', '--n-atoms: got 11, which requires --distribution categorical'),
            Refusal('--distribution categorical --value-min 20', '--value-min: got 20, expected less than the 10 of'),
            Refusal('--huber', '--huber: cannot be used with --distribution quantile'),
        ),
        deployed=(NESTED, spaces.Discrete(3, start=-5), {'distribution': 'categorical', 'n_atoms': 5, 'flatten': True}),
    ),
    Case(
        'sac',
        ('continuous', 'discrete'),
        {**OFF, 'normalize_obs': True, 'n_step': 2},
        single={'entropy_coef': 0.0},
        steps=24,
        refusals=(
            *BUFFER,
            Refusal('--tau 0', '--tau: got 0, expected a number above 0 and at most 1'),
            Refusal('--entropy-coef -1', '--entropy-coef: got -1, expected a number at least 0 or auto'),
            Refusal('--entropy-coef aut', '--entropy-coef: got aut, expected a number at least 0 or auto'),
            Refusal('--entropy-coef 0.1 --target-entropy -1', '--target-entropy: got -1 with a fixed temperature'),
            Refusal('--checkpoints a.tf b.tf', '--checkpoints: got 2 paths, expected 3: actor, critic 1'),
        ),
        deployed=(NESTED, spaces.Box(-1, 3, (2, 2), np.float32), {'flatten': True}),
    ),
    Case(
        'tqc',
        ('continuous',),
        {**OFF, 'n_quantiles': 5, 'normalize_obs': True},
        single={'entropy_coef': 0.0, 'n_quantiles': 1, 'dropped_quantiles': 0},
        loss_of=lambda error: 0.5 * (0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5),
        runs_like='sac',
        steps=24,
        refusals=(
            *BUFFER,
            BOX_ONLY,
            Refusal('--n-quantiles 5 --dropped-quantiles 5', '--dropped-quantiles: got 5, expected less than the 5 of'),
        ),
        deployed=(VECTOR, BOUNDED, {}),
    ),
    Case(
        'crossq',
        ('continuous',),
        {**OFF, 'policy_delay': 2},
        single={'entropy_coef': 0.0, 'policy_delay': 1},
        runs_like='sac',
        steps=24,
        refusals=(*BUFFER, BOX_ONLY, Refusal('--tau 0.1', 'without effect on CrossQ: --tau')),
        deployed=(VECTOR, spaces.Box(-3, 9, (2,), np.float64), {}),
    ),
    Case(
        'td3',
        ('continuous',),
        {**OFF, 'normalize_obs': True, 'optimizer': 'muon', 'net': [8, 8]},
        single={'policy_delay': 1},
        steps=24,
        refusals=(
            *BUFFER,
            BOX_ONLY,
            Refusal('--tau 0', '--tau: got 0, expected a number above 0 and at most 1'),
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
        runs_like='td3',
        steps=24,
        refusals=(*BUFFER, DATA_BOX_ONLY, Refusal('--alpha -1', '--alpha: got -1, expected a number at least 0')),
        deployed=(NESTED, spaces.Box(-1, 3, (2,), np.float64), {'flatten': True}),
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
            Refusal('--max-kl 0', '--max-kl: got 0, expected a number above 0'),
            Refusal('--actor-iterations 0', '--actor-iterations: got 0, expected a whole number at least 1'),
            Refusal('--fvp-n-steps 0', '--fvp-n-steps: got 0, expected a whole number at least 1'),
            Refusal('--cg-damping -1', '--cg-damping: got -1, expected a number at least 0'),
            Refusal(
                '--n-envs 2 --n-steps 8 --mini-batches 17',
                '--mini-batches: got 17, expected at most the 16 transitions',
                late=True,
            ),
            Refusal(
                '--n-envs 2 --n-steps 8 --fvp-n-steps 17',
                '--fvp-n-steps: got 17, expected at most the 16 transitions',
                late=True,
            ),
        ),
        deployed=(SEVERAL, spaces.MultiBinary((2, 3)), {}),
    ),
)
CASES = {case.id: case for case in _CASES}


if __name__ == '__main__':
    contract = importlib.import_module('tests.agents.contract')
    print('\n'.join(contract.table()))
