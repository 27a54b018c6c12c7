"""Compare two run directories that must be equal to the bit, except for times."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# metrics that depend on the clock
CLOCK = ('seconds/', 'steps_per_second')


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of what differs in the last checkpoints of two runs and in their best weights.

    Raises:
        ValueError: if a checkpoint cannot be read.
    """
    from xagents.checkpoints.state_files import read_state

    a, b = (read_state(Path(folder) / 'checkpoints' / 'last') for folder in (one, other))
    found = [*_weights(a, b, 'weights'), *_arrays(a.arrays, b.arrays)]
    found += [name for name in ('rewards', 'rngs', 'restarted') if a.record[name] != b.record[name]]
    if seeded(a.record['environments']) != seeded(b.record['environments']):
        found.append('environments')
    found += _counters(a, b)
    best = [Path(folder) / 'checkpoints' / 'best' for folder in (one, other)]
    if best[0].is_dir() != best[1].is_dir():
        return [*found, 'best: only one run has it']
    if best[0].is_dir():
        found += _weights(read_state(best[0]), read_state(best[1]), 'best')
    return found


def _weights(a: Any, b: Any, label: str) -> Iterator[str]:
    """Yield the names of unequal weights, which include the variables of optimisers."""
    sizes = [[len(model) for model in state.weights] for state in (a, b)]
    if sizes[0] != sizes[1]:
        yield f'{label}: {sizes[0]} and {sizes[1]} arrays'
        return
    for i, (ours, theirs) in enumerate(zip(a.weights, b.weights, strict=True)):
        for j, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if x.tobytes() != y.tobytes():
                yield f'{label} {i} {j}'


def _arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = sorted(a.keys() ^ b.keys())
    return found + sorted(name for name in a.keys() & b.keys() if a[name].tobytes() != b[name].tobytes())


def _counters(a: Any, b: Any) -> list[str]:
    # compared as text, because NaN differs from itself
    ours, theirs = ({n: repr(v) for n, v in s.record['counters'].items() if n != 'seconds'} for s in (a, b))
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def seeded(environments: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the record of environments without the random generators of their spaces.

    Gymnasium seeds these generators differently in every process, and nothing samples from them. They are equal in two
    runs of one process, and after a resume.
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


def rows(folder: Path) -> tuple[Any, Any]:
    """Return history and metrics of a run without columns that depend on the clock."""
    from xagents.logs.history import read_history
    from xagents.logs.metrics import read_metrics

    history = read_history(Path(folder) / 'history.parquet').drop(columns='time')
    metrics = read_metrics(Path(folder) / 'metrics.parquet')
    return history, metrics[[name for name in metrics if not str(name).startswith(CLOCK)]]


def row_differences(one: Path, other: Path) -> list[str]:
    """Return the names of what differs in the histories of two runs, and in the rows of metrics that both have.

    Metrics are written at most a few times a second, so that two runs have rows of different iterations.
    """
    (history, metrics), (other_history, other_metrics) = rows(one), rows(other)
    found = [] if history.equals(other_history) else [f'history: {_first_difference(history, other_history)}']
    found += [
        f'metrics: {label} has a step twice'
        for label, table in (('one', metrics), ('other', other_metrics))
        if not table['steps'].is_unique
    ]
    both = metrics.merge(other_metrics, on='steps', suffixes=('', ' of the other'))
    if both.empty:
        return [*found, 'metrics: no step is in both']
    shared = [name for name in metrics if name != 'steps' and name in other_metrics]
    return found + [f'metrics: {name}' for name in shared if not both[name].equals(both[f'{name} of the other'])]


def _first_difference(one: Any, other: Any) -> str:
    if len(one) != len(other):
        return f'{len(one)} and {len(other)} rows'
    unequal = ~((one == other) | (one.isna() & other.isna())).all(axis=1)
    return f'row {unequal.to_numpy().argmax()}'
