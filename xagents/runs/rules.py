"""Rules of a run: combinations of its options with the agent, the environments and each other that are refused."""

from __future__ import annotations

from typing import Any

from xagents.options.rules import Rule, Rules
from xagents.options.runs import NO_DATASET
from xagents.registry.agents import BUILTIN_AGENTS


def _ids(*learning: str) -> str:
    """Return the ids of the built-in agents whose use of data sets is one of `learning`, separated by commas."""
    return ', '.join(id for id, entry in BUILTIN_AGENTS.items() if entry.options.datasets in learning)


def _admitted_explorers(run: Any) -> str:
    n = run.agent.envs.n_whole_envs
    admitted = ', '.join(str(i) for i in range(1, n + 1) if not n % i)
    return f'got {run.options.explorers} explorers, expected {admitted} for {n} environments'


def _of_one_policy(name: str) -> Rule:
    """Return the rule that an option needs an agent with a single policy."""

    def problem(run: Any) -> str:
        value = getattr(run.options, name)
        shown = ' '.join(value) if isinstance(value, list) else str(value).lower()
        return f'got {shown}, but several policies learn here; expected runs of one policy'

    return Rule(name, lambda r: getattr(r.options, name) and '' not in r.agent.members, problem)


def _not_in_games(name: str) -> Rule:
    """Return the rule that an option cannot be used in games, whose opponents change between rollouts."""
    return Rule(
        name,
        lambda r: getattr(r.options, name) and r.agent.envs.is_game,
        lambda r: f'cannot be used with {r.agent.envs.id}, a game: its opponents change between two rollouts',
    )


# rules of a `Run`
RUN_RULES: Rules = (
    Rule(
        'dataset',
        lambda r: r.options.dataset is None and r.agent.options.datasets == 'only',
        lambda r: NO_DATASET.format(r.agent.id),
    ),
    Rule(
        'dataset',
        lambda r: r.options.dataset is not None and r.agent.options.datasets == 'never',
        'got {o.options.dataset}, but {o.agent.id} learns only from rollouts of its present policy; expected one of '
        + _ids('also', 'only'),
    ),
    Rule(
        'fill_from',
        lambda r: r.options.fill_from is not None and r.agent.options.datasets != 'also',
        f'got {{o.options.fill_from}}, but {{o.agent.id}} has no replay buffer; expected one of {_ids("also")}',
    ),
    *map(_of_one_policy, ('overlap', 'record_dataset', 'checkpoints', 'eval_async')),
    Rule(
        'self_play',
        lambda r: r.options.self_play and not r.agent.envs.is_game,
        'got true, but {o.agent.envs.id} is no game; expected an environment of PettingZoo whose agents take turns',
    ),
    *map(_not_in_games, ('overlap', 'max_lag')),
    Rule(
        'explorers',
        lambda r: r.options.explorers is not None and r.options.explorers > r.agent.envs.n_whole_envs,
        lambda r: f'got {r.options.explorers}, expected at most the {r.agent.envs.n_whole_envs} of --n-envs',
    ),
    Rule(
        'explorers',
        lambda r: r.options.explorers is not None and not r.agent.envs.can_snapshot_each,
        "{o.agent.envs.id} is one vector of environments, expected an environment's name, with vector='sync'",
    ),
    Rule(
        'max_lag',
        lambda r: r.options.max_lag is not None and r.agent.traits.no_overlap_reason,
        lambda r: f'{type(r.agent).__name__} {r.agent.traits.no_overlap_reason}',
    ),
    Rule(
        'max_lag',
        lambda r: r.options.max_lag is not None and r.agent.envs.n_whole_envs % r.options.explorers,
        _admitted_explorers,
    ),
    Rule(
        'curriculum',
        lambda r: r.options.curriculum and not r.options.curriculum_when and r.schedule_steps is None,
        'got nothing that begins levels, expected --max-steps or --curriculum-when',
    ),
    Rule(
        'eval_frequency',
        lambda r: r.options.eval_frequency and not r.agent.envs.can_recreate,
        '{o.agent.envs.id} cannot be created again, expected create_envs with a function',
    ),
)
