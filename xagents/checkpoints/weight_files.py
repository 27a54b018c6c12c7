"""Weight files (`--checkpoints`): one path per model, written as a set, so that old and new files never mix.

A set is written into `.<first>.new/` and committed by renaming this directory to `.<first>.whole/`. Its files are then
hard-linked to their final names, and the directory is removed. A reader prefers `.whole`. A writer first completes the
`.whole` of a killed process. `<first>.state.npz`, named after the first path, contains arrays, and a JSON record of
counters and options.
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
# key in a plan: digest of the weights from which the plan was made
WEIGHTS_DIGEST = 'weights'
WEIGHT_SUFFIXES = ('.tf', '.weights.h5', '.keras')


def check_paths(name: str, paths: Sequence[str], models: Sequence[str]) -> None:
    """Check the paths of a set before anything is written.

    Args:
        name: option of the paths, `checkpoints` or `weights`.
        paths: paths to check.
        models: names of the agent's models.

    Raises:
        ValueError: if the number of paths, a suffix or a directory is wrong.
    """
    flag = '--' + name
    if not models:
        raise ValueError(f'{flag}: got {" ".join(paths)}, but the agent has no network, expected --run-dir')
    if len(paths) != len(models):
        raise ValueError(f'{flag}: got {len(paths)} paths, expected {len(models)}: {", ".join(models)}')
    if len(set(paths)) != len(paths):
        raise ValueError(f'{flag}: got {" ".join(paths)}, expected different paths')
    if name == 'weights':
        return
    for path in paths:
        stem = next((path.removesuffix(end) for end in WEIGHT_SUFFIXES if path.endswith(end)), None)
        if not (stem and os.path.basename(stem)):
            near = f'{os.path.splitext(path)[0] or path}{".weights.h5" if path.endswith(".h5") else ".tf"}'
            expected = f'the suffix {", ".join(WEIGHT_SUFFIXES)} (did you mean {near}?)'
            raise ValueError(f'{flag}: got {path}, expected {expected}')
        check_parent(name, path)


def check_weights_exist(paths: Sequence[str]) -> None:
    """Check that the weight files to read exist.

    Raises:
        ValueError: if a path does not exist or names a part of a checkpoint. The message has the nearest name.
    """
    for path in paths:
        if Path(path).suffix == '.index' or '.data-' in Path(path).name:
            hint = f'(did you mean {path.split(".index")[0].split(".data-")[0]}?)'
            raise ValueError(f'--weights: got {path}, a part of a checkpoint, expected its prefix {hint}')
        if not weights_exist(path, paths[0]):
            folder = Path(path).parent
            names = {p.name.removesuffix('.index') for p in folder.glob('*')} if folder.is_dir() else set()
            raise ValueError(f'--weights: there is no weight file {path}{did_you_mean(Path(path).name, names)}')


def weights_exist(path: str, first: str | None = None) -> bool:
    """Return whether the weights at `path` exist, in the set whose first path is `first`."""
    return _model_file(_actual_path(path if first is None else first, path)).is_file()


def _model_file(model: Path) -> Path:
    """Return the file that identifies a model's weights. The index of a TensorFlow checkpoint has their checksums."""
    index = Path(f'{model}.index')
    return index if index.is_file() else model


def write_weight_files(
    paths: Sequence[str], models: list[Any], arrays: dict[str, Any], record: Any, policy: PolicyData | None = None
) -> None:
    """Write Keras models with their optimisers, and the state next to the first path.

    Args:
        paths: one path per model: the prefix of a TensorFlow checkpoint, .weights.h5 or .keras.
        models: models with built optimisers.
        arrays: arrays of the state file, by name.
        record: record of the state file, JSON values.
        policy: policy data that act without the agent, or None.
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
    np.savez(new / 'state.npz', record=np.array(json.dumps(record)), **arrays)
    targets['state.npz'] = f'{first.name}.state.npz'
    if policy is not None:
        plan = {**policy.plan, WEIGHTS_DIGEST: digest(_model_file(new / f'0.{first.name}'))}
        write_policy(PolicyData(plan, policy.arrays), new / POLICY_PLAN, new / POLICY_ARRAYS)
        targets |= {name: f'{first.name}.{name}' for name in (POLICY_PLAN, POLICY_ARRAYS)}
    else:  # files left by another agent do not fit these weights
        for name in (POLICY_PLAN, POLICY_ARRAYS):
            Path(f'{first}.{name}').unlink(missing_ok=True)
    (new / MANIFEST).write_text(json.dumps(targets))
    for file in (*new.iterdir(), new):
        fsync(file)
    os.rename(new, whole)
    fsync(first.parent)
    complete_write(paths[0])


def complete_write(first: str | Path) -> None:
    """Move a committed set to its final names. Do nothing if there is none."""
    first = Path(first).absolute()
    whole = first.parent / f'.{first.name}.whole'
    if not whole.is_dir():
        return
    for name, target in json.loads((whole / MANIFEST).read_text()).items():
        target = os.path.join(first.parent, target)  # the directory may have moved since
        temporary = f'{target}.new'
        Path(temporary).unlink(missing_ok=True)
        try:
            os.link(whole / name, temporary)
        except OSError:  # another file system, or a file system without links
            shutil.copy(whole / name, temporary)
        os.replace(temporary, target)
    # rename first: while files are removed one by one, a reader would take the directory for complete
    new = whole.with_suffix('.new')
    shutil.rmtree(new, ignore_errors=True)
    os.rename(whole, new)
    shutil.rmtree(new)


def read_weight_files(paths: Sequence[str], models: Sequence[Any], optimizers: bool = True) -> None:
    """Read weights, and optimisers if `optimizers` is true, into built models.

    Raises:
        ValueError: if a file is missing, damaged or from another network.
    """
    import keras

    check_weights_exist(paths)
    for path, model in zip(paths, models, strict=True):
        # another model with the same layers has no optimizer
        readable = model if optimizers else keras.Model(model.inputs, model.outputs)
        _read_model(_actual_path(paths[0], path), readable, path)


def read_saved_state(first: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the record of the state file. Both are empty if there is no state file.

    Raises:
        ValueError: if the file is damaged or from another program.
    """
    path = _actual_path(first, f'{first}.state.npz')
    if not path.is_file():
        return {}, {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, json.loads(str(arrays.pop('record')))
    except Exception as error:
        problem = f'{path} is not readable ({error}); remove it to read only the weights'.replace('\n', ' ')
        raise ValueError(f'--weights: {problem}') from error


def saved_policy_files(first: str) -> tuple[Path, Path] | None:
    """Return the plan and the arrays of the policy next to the weights. Return None without one for these weights."""
    plan, arrays = (_actual_path(first, f'{first}.{name}') for name in (POLICY_PLAN, POLICY_ARRAYS))
    if not plan.is_file():
        return None
    with contextlib.suppress(ValueError, AttributeError, OSError):  # reading a damaged plan raises later
        written = json.loads(plan.read_text()).get(WEIGHTS_DIGEST)
        if written is not None and written != digest(_model_file(_actual_path(first, first))):
            return None
    return plan, arrays


def _actual_path(first: str, path: str) -> Path:
    """Return the present path of a file of a set: in `.whole` if a process was killed, or else its final name."""
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
                status.expect_partial()  # else TensorFlow prints it in fifty lines at exit
                raise
    # a damaged index raises OpError, damaged data IndexError, an index of other data DataLossError;
    # the other errors come from another network
    except (tf.errors.OpError, IndexError, ValueError, AssertionError, OSError, TypeError, KeyError) as error:
        tf.get_logger().setLevel('ERROR')  # else TensorFlow lists unread variables at exit
        reason = str(error).strip().split('\n')[0].partition(' Example error')[0][:160]
        raise ValueError(f'--weights: {shown} is damaged or of another network or optimizer ({reason})') from error


def _tracked(model: Any) -> dict[str, Any]:
    """Return a model and its optimizer, if it has one, by name."""
    optimizer = getattr(model, 'optimizer', None)
    return {'model': model} if optimizer is None else {'model': model, 'optimizer': optimizer}
