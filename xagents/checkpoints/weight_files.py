"""Loose checkpoints: one path a model, written as a set that is old or new, never mixed.

A set is written into `.<first>.new/`, committed by one rename to `.<first>.whole/`, hard-linked onto its plain names,
and the folder is removed. A reader prefers `.whole`; a writer first finishes one that a killed process left.
`<first>.state.npz`, named after the first path, contains arrays, and a JSON record of counters and options.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN, PolicyData, write_policy
from xagents.options.errors import did_you_mean
from xagents.system.files import digest, fsync
from xagents.system.paths import check_parent

MANIFEST = 'files.json'
# in a plan: the digest of the weights that it is of
WEIGHTS_DIGEST = 'weights'
WEIGHT_SUFFIXES = ('.tf', '.weights.h5', '.keras')


def check_paths(name: str, paths: Sequence[str], models: Sequence[str]) -> None:
    """Check the paths of a set before anything is written.

    Raises:
        ValueError: for a wrong number of paths, an ending nobody can write, or a folder that does not exist.
    """
    flag = '--' + name
    if not models:
        raise ValueError(f'{flag}: got {" ".join(paths)}, but the agent has no network: see --run-dir')
    if len(paths) != len(models):
        raise ValueError(f'{flag}: got {len(paths)} paths, takes {len(models)}: one for each of {", ".join(models)}')
    if len(set(paths)) != len(paths):
        raise ValueError(f'{flag}: got the same path twice: {" ".join(paths)}')
    if name == 'weights':
        return
    for path in paths:
        stem = next((path.removesuffix(end) for end in WEIGHT_SUFFIXES if path.endswith(end)), None)
        if not (stem and os.path.basename(stem)):
            near = f'{os.path.splitext(path)[0] or path}{".weights.h5" if path.endswith(".h5") else ".tf"}'
            raise ValueError(
                f'{flag}: got {path}, expected {", ".join(WEIGHT_SUFFIXES)} as its ending (did you mean {near}?)'
            )
        check_parent(name, path)


def check_weights_exist(paths: Sequence[str]) -> None:
    """Check that checkpoints to be read are there.

    Raises:
        ValueError: naming the path, and the nearest one in its folder.
    """
    for path in paths:
        if Path(path).suffix == '.index' or '.data-' in Path(path).name:
            prefix = path.split('.index')[0].split('.data-')[0]
            raise ValueError(f'--weights: got {path}, a part of a checkpoint (did you mean {prefix}?)')
        if not weights_exist(path, paths[0]):
            folder = Path(path).parent
            names = {p.name.removesuffix('.index') for p in folder.glob('*')} if folder.is_dir() else set()
            raise ValueError(f'--weights: there is no checkpoint {path}{did_you_mean(Path(path).name, names)}')


def weights_exist(path: str, first: str | None = None) -> bool:
    """Return whether there is a checkpoint, of the set that begins with `first`."""
    return _model_file(_actual_path(path if first is None else first, path)).is_file()


def _model_file(model: Path) -> Path:
    """Return the file that tells what a model's weights are: the index of a TensorFlow checkpoint has their sums."""
    index = Path(f'{model}.index')
    return index if index.is_file() else model


def write_weight_files(
    paths: Sequence[str],
    models: Sequence[Any],
    arrays: dict[str, np.ndarray],
    record: dict[str, Any],
    policy: PolicyData | None = None,
) -> None:
    """Write Keras models with their optimisers, which must be built, and the state next to the first one.

    Each model has a path: a TensorFlow checkpoint's prefix, .weights.h5 or .keras.
    """
    complete_write(paths[0])
    first = Path(paths[0]).absolute()
    new, whole = (first.parent / f'.{first.name}.{kind}' for kind in ('new', 'whole'))
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    targets: dict[str, str] = {}
    for i, (path, model) in enumerate(zip(paths, models, strict=True)):
        name = f'{i}.{Path(path).name}'
        _write_model(new / name, model)
        for file in sorted(new.glob(f'{name}*')):
            target = Path(path).absolute().parent / file.name.removeprefix(f'{i}.')
            targets[file.name] = os.path.relpath(target, first.parent)
    held: dict[str, Any] = {'record': np.array(json.dumps(record)), **arrays}
    np.savez(new / 'state.npz', **held)
    targets['state.npz'] = f'{first.name}.state.npz'
    if policy is not None:
        plan = {**policy.plan, WEIGHTS_DIGEST: digest(_model_file(new / f'0.{first.name}'))}
        write_policy(PolicyData(plan, policy.arrays), new / POLICY_PLAN, new / POLICY_ARRAYS)
    for name in (POLICY_PLAN, POLICY_ARRAYS):
        if policy is None:
            Path(f'{first}.{name}').unlink(missing_ok=True)  # of another agent, which these weights are not of
        else:
            targets[name] = f'{first.name}.{name}'
    (new / MANIFEST).write_text(json.dumps(targets))
    for file in (*new.iterdir(), new):
        fsync(file)
    os.rename(new, whole)
    fsync(first.parent)
    complete_write(paths[0])


def complete_write(first: str | Path) -> None:
    """Put a committed set onto its plain names, where a process was killed before it could."""
    first = Path(first).absolute()
    whole = first.parent / f'.{first.name}.whole'
    if not whole.is_dir():
        return
    for name, target in json.loads((whole / MANIFEST).read_text()).items():
        target = os.path.join(first.parent, target)  # a folder may have been moved since
        temporary = f'{target}.new'
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        try:
            os.link(whole / name, temporary)
        except OSError:  # another file system, or one without links
            shutil.copy(whole / name, temporary)
        os.replace(temporary, target)
    # renamed first: a folder that is removed file by file would look whole to a reader
    new = whole.with_suffix('.new')
    shutil.rmtree(new, ignore_errors=True)
    os.rename(whole, new)
    shutil.rmtree(new)


def read_weight_files(paths: Sequence[str], models: Sequence[Any], optimizers: bool = True) -> None:
    """Read weights and, where they are wanted, optimisers into models that are built.

    Raises:
        ValueError: in one line, for a file that is missing, torn, or of another network.
    """
    check_weights_exist(paths)
    for path, model in zip(paths, models, strict=True):
        _read_model(_actual_path(paths[0], path), model if optimizers else _without_optimizer(model), path)


def _without_optimizer(model: Any) -> Any:
    """Return a model of the same layers without an optimizer."""
    import keras

    return keras.Model(model.inputs, model.outputs)


def read_saved_state(first: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the record of a checkpoint; both are empty if it has none.

    Raises:
        ValueError: in one line, for a file that is torn or foreign.
    """
    path = _actual_path(first, f'{first}.state.npz')
    if not path.is_file():
        return {}, {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, json.loads(str(arrays.pop('record')))
    except Exception as error:
        raise ValueError(
            f'--weights: {path} is not readable ({error}); remove it to read the weights alone'.replace('\n', ' ')
        ) from error


def saved_policy_files(first: str) -> tuple[Path, Path] | None:
    """Return the two files of the policy of a checkpoint; None if there is none, or one of other weights."""
    plan, arrays = (_actual_path(first, f'{first}.{name}') for name in (POLICY_PLAN, POLICY_ARRAYS))
    if not plan.is_file():
        return None
    with contextlib.suppress(ValueError, AttributeError, OSError):  # of what is damaged its reader tells
        written = json.loads(plan.read_text()).get(WEIGHTS_DIGEST)
        if written is not None and written != digest(_model_file(_actual_path(first, first))):
            return None
    return plan, arrays


def _actual_path(first: str, path: str) -> Path:
    """Return where a file of a set is: in a committed folder that was not finished, or under its plain name."""
    whole = Path(first).absolute().parent / f'.{Path(first).name}.whole'
    manifest = whole / MANIFEST
    if manifest.is_file():
        for name, target in json.loads(manifest.read_text()).items():
            plain = os.path.normpath(whole.parent / target.removesuffix('.index'))
            if plain == os.path.abspath(path):
                return whole / name.removesuffix('.index')
    return Path(path)


def _write_model(path: Path, model: Any) -> None:
    if path.name.endswith('.keras'):
        model.save(path)
    elif path.name.endswith('.weights.h5'):
        model.save_weights(path)
    else:
        import tensorflow as tf

        tf.train.Checkpoint(**_tracked(model)).write(str(path))


def _read_model(path: Path, model: Any, shown: str) -> None:
    import tensorflow as tf

    try:
        if path.name.endswith(('.keras', '.weights.h5')):
            model.load_weights(path)
        else:
            tracked = _tracked(model)
            status = tf.train.Checkpoint(**tracked).read(str(path))
            try:
                status.assert_consumed() if 'optimizer' in tracked else status.assert_existing_objects_matched()
                if 'optimizer' not in tracked:
                    status.expect_partial()
            except AssertionError:
                status.expect_partial()  # else TensorFlow says it again in fifty lines at exit
                raise
    # a torn index raises OpError, torn data IndexError, an index with other data DataLossError,
    # another network the rest
    except (tf.errors.OpError, IndexError, ValueError, AssertionError, OSError, TypeError, KeyError) as error:
        tf.get_logger().setLevel('ERROR')  # else TensorFlow tells at exit what it has not read
        reason = str(error).strip().split('\n')[0][:160]
        raise ValueError(f'--weights: {shown} is damaged or of another network or optimizer ({reason})') from error


def _tracked(model: Any) -> dict[str, Any]:
    """Return a model and, where it learns by one, its optimizer."""
    optimizer = getattr(model, 'optimizer', None)
    return {'model': model} if optimizer is None else {'model': model, 'optimizer': optimizer}
