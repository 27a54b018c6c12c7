"""What is not equal in the folders of two runs that should be the same to the bit; times are no part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from xagents.runs.checkpoints import State

# of the metrics, what the clock makes
CLOCK = ('seconds/', 'steps_per_second')


def differences(one: Path, other: Path) -> list[str]:
    """Return what is not equal in the last checkpoints of two runs, and in the best weights; empty where all is.

    Raises:
        ValueError: where a checkpoint cannot be read.
    """
    from xagents.runs.checkpoints import read_state

    a, b = (read_state(Path(folder) / 'checkpoints' / 'last') for folder in (one, other))
    found = [*_weights(a, b, 'weights'), *_arrays(a.arrays, b.arrays)]
    found += [name for name in ('rewards', 'rngs', 'restarted') if a.record[name] != b.record[name]]
    if seeded(a.record['environments']) != seeded(b.record['environments']):
        found.append('environments')
    found += _counters(a, b)
    best = [Path(folder) / 'checkpoints' / 'best' for folder in (one, other)]
    if best[0].is_dir() != best[1].is_dir():
        return [*found, 'best: only one of them has it']
    if best[0].is_dir():
        found += _weights(read_state(best[0]), read_state(best[1]), 'best')
    return found


def _weights(a: State, b: State, label: str) -> Iterator[str]:
    """Name models' weights, optimisers' variables included, that are not equal."""
    sizes = [[len(model) for model in state.weights] for state in (a, b)]
    if sizes[0] != sizes[1]:
        yield f'{label}: {sizes[0]} arrays beside {sizes[1]}'
        return
    for i, (ours, theirs) in enumerate(zip(a.weights, b.weights, strict=True)):
        for j, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if x.tobytes() != y.tobytes():
                yield f'{label} {i} {j}'


def _arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = sorted(a.keys() ^ b.keys())
    return found + sorted(name for name in a.keys() & b.keys() if a[name].tobytes() != b[name].tobytes())


def _counters(a: State, b: State) -> list[str]:
    # as text, because NaN is not equal to itself
    ours, theirs = ({n: repr(v) for n, v in s.record['counters'].items() if n != 'seconds'} for s in (a, b))
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def seeded(environments: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the record of environments without the generators of their spaces.

    Gymnasium draws those afresh in every process, whatever the seed; nothing draws from them. Two runs of one process,
    and a run and what it resumed from, have equal ones.
    """
    if environments is None:
        return None
    nodes = list(environments['nodes'])
    left_out = [number for number, node in enumerate(nodes) if node[0] == 'space']
    while left_out:
        number = left_out.pop()
        node, nodes[number] = nodes[number], None
        left_out += [part[1] for part in node or () if isinstance(part, list) and part[:1] == ['node']]
    return {**environments, 'nodes': nodes}


def rows(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return history and metrics of a run without what the clock makes."""
    from xagents.logs.history import read_history
    from xagents.logs.metrics import read_metrics

    history = read_history(Path(folder) / 'history.parquet').drop(columns='time')
    metrics = read_metrics(Path(folder) / 'metrics.parquet')
    return history, metrics[[name for name in metrics if not str(name).startswith(CLOCK)]]


def row_differences(one: Path, other: Path) -> list[str]:
    """Return what is not equal in the histories of two runs, and in those rows of metrics that both have.

    Metrics are written at most some times a second, so that two runs have others of the same iterations.
    """
    (history, metrics), (history_again, metrics_again) = rows(one), rows(other)
    found = [] if history.equals(history_again) else [f'history: {_first_difference(history, history_again)}']
    found += [
        f'metrics: {label} has a step twice'
        for label, table in (('one', metrics), ('other', metrics_again))
        if not table['steps'].is_unique
    ]
    both = metrics.merge(metrics_again, on='steps', suffixes=('', ' again'))
    if both.empty:
        return [*found, 'metrics: no step is in both']
    shared = [name for name in metrics if name != 'steps' and name in metrics_again]
    return found + [f'metrics: {name}' for name in shared if not both[name].equals(both[f'{name} again'])]


def _first_difference(one: pd.DataFrame, other: pd.DataFrame) -> str:
    if len(one) != len(other):
        return f'{len(one)} rows beside {len(other)}'
    unequal = ~((one == other) | (one.isna() & other.isna())).all(axis=1)
    return f'row {unequal.to_numpy().argmax()}'
