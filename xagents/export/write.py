"""A trained agent's greedy policy as one file for other runtimes, checked against the agent before it is there."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xagents.envs.space_serialization import space_to_dict
from xagents.export.check import (
    BFLOAT16_TOLERANCE,
    N_OBSERVATIONS,
    TOLERANCE,
    Agreement,
    as_batch,
    check_agreement,
    collect_observations,
)
from xagents.export.formats import Format, PolicyFunction, find_format
from xagents.options.errors import OptionError, did_you_mean
from xagents.system.files import fsync
from xagents.system.paths import check_folder
from xagents.system.startup import quiet_stderr
from xagents.version import __version__

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.export.policy import ExportedPolicy

DESCRIPTION = 'policy.json'


def export_team_policy(team: Any, policy: str | None, format: str = 'savedmodel', out: str | Path = '') -> Path:
    """Write the policy of one member of a team, as `export` does; it is compared on observations of its space.

    Raises:
        OptionError: for a policy that the team has not, or none; else as `export`.
    """
    if policy not in team.members:
        known = team.members
        hint = '' if policy is None else did_you_mean(policy, known)
        raise OptionError('policy', f'got {policy or "nothing"}, expected one of {", ".join(known)}{hint}')
    member = team.members[policy]
    space = copy.deepcopy(member.envs.encoder.raw_space)
    space.seed(0)
    return export(member, format, out, [space.sample() for _ in range(N_OBSERVATIONS)])


def export(agent: BaseAgent, format: str = 'savedmodel', out: str | Path = '', observations: Any = None) -> Path:
    """Write an agent's greedy policy for another runtime: from raw observations, any number at once, to actions.

    Encoding, the observation normaliser, the scaling of frames, the network and the bounds of actions are inside. The
    folder is made under another name, and renamed once what was written has been read again and has acted as the agent
    does; then one line says so.

    Args:
        agent: whose present weights and statistics are written.
        format: `savedmodel` (a folder by nature), `litert` (`policy.tflite`) or `onnx` (`policy.onnx`; needs the extra
            `export`).
        out: a folder that does not exist yet, or is empty; `policy.json` in it says what the policy takes and gives.
        observations: what to compare on: raw [N, …] as the environment gives them (a dict of arrays for a Dict space, a
            tuple for a Tuple space), or a sequence of N. Collected in an environment of its own when not given.

    Returns:
        The path of the file; for a SavedModel, `out` itself.

    Raises:
        OptionError: for a format that does not exist, cannot be made here or cannot hold the policy, and for a folder
            that is taken or not writable.
        ValueError: where there is no environment to compare in, or no network to export.
        RuntimeError: where the exported policy acts otherwise than the agent; nothing is left at `out` then.
    """
    wanted, folder = find_format(format), check_out(out)
    network = getattr(agent.actor, 'model', None)
    if network is None:
        raise ValueError(f'export: {type(agent).__name__} acts by no Keras network, which is what can be exported')
    batch = (
        collect_observations(agent) if observations is None else as_batch(agent.envs.encoder.raw_space, observations)
    )
    if not len(agent.envs.encoder(batch)):
        raise ValueError('observations: got none, expected one at least')
    from xagents.export.policy import ExportedPolicy, to_float32

    # what acts by a plan acts in float32, whatever it learns in
    kept = wanted.keeps_precision and agent.actor.plan is None
    exact = kept or all(layer.compute_dtype == 'float32' for layer in network.layers)
    policy = ExportedPolicy(agent, network if exact else to_float32(network))
    arrays = {part.name: part.extract(batch) for part in policy.inputs}
    temporary = folder.parent / f'.{folder.name}.new'
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        run = _write_policy(format, wanted, policy, temporary / wanted.file)
        # a network that computes more precisely than the agent's own acts more precisely
        acting = (
            agent.acting_policy
            if exact
            else agent.acting_policy.with_network(type(agent.actor)(policy.network, agent.statistics.dtype))
        )
        agreement = check_agreement(agent, run, batch, arrays, TOLERANCE, acting)
        if not exact:  # what the agent itself does is rounded more coarsely
            agreement = check_agreement(agent, run, batch, arrays, BFLOAT16_TOLERANCE, agent.acting_policy)
        description = {'format': format, 'file': wanted.file or '.', **describe_policy(agent, policy, agreement)}
        (temporary / DESCRIPTION).write_text(json.dumps(description, indent=2, allow_nan=False) + '\n')
        for path in (*temporary.rglob('*'), temporary):
            fsync(path)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fsync(folder.parent)
    path = Path(out) / wanted.file
    print(f'{path}: {_size(path)}; {_agreement_line(agreement)}')
    return path


def check_out(out: str | Path) -> Path:
    """Return the absolute path of the folder to be made; OptionError where it holds something or cannot be made."""
    admits = 'expected a folder that does not exist yet, or is empty'
    if not str(out):
        raise OptionError('out', f'got nothing, {admits}')
    check_folder('out', out)
    folder = Path(os.path.abspath(out))
    if folder.is_symlink() or (folder.is_dir() and any(folder.iterdir())):
        raise OptionError('out', f'got {out}, which {"is a link" if folder.is_symlink() else "holds files"}, {admits}')
    return folder


def describe_policy(agent: BaseAgent, policy: ExportedPolicy, agreement: Agreement) -> dict[str, Any]:
    """Return what whoever receives a policy must know, as JSON holds it."""
    actions = policy.function.structured_outputs['actions']
    return {
        'xagents': __version__,
        'agent': agent.id,
        'env': agent.envs.id,
        'steps': agent.context.steps,
        'normalized': agent.statistics.observations is not None,
        'inputs': [
            {'name': part.name, 'path': list(part.path), 'shape': [None, *part.shape], 'dtype': str(part.dtype)}
            for part in policy.inputs
        ],
        'output': {'name': 'actions', 'shape': actions.shape.as_list(), 'dtype': actions.dtype.name},
        'observation_space': space_to_dict(agent.envs.encoder.raw_space),
        'action_space': space_to_dict(agent.envs.action_space),
        'checked': agreement._asdict(),
    }


def _write_policy(name: str, wanted: Format, policy: ExportedPolicy, path: Path) -> PolicyFunction:
    """Write a policy and return what calls the file that was written."""
    failure: Exception | None = None
    with quiet_stderr():  # converters say much that is of no use; it is shown if the body raises
        try:
            wanted.write(policy, path)
            return wanted.load(path)
        except OSError:
            raise
        except Exception as error:
            failure = error
    reason = str(failure).strip().partition('\n')[0][:200] or type(failure).__name__
    raise OptionError('format', f'{name} cannot hold this policy: {reason}') from failure


def _agreement_line(agreement: Agreement) -> str:
    observations, ties, difference, tolerance = agreement
    found = f'acts as the agent does on {observations - ties} of {observations} observations'
    if ties:
        found += f', on {ties} two actions are worth the same to it (within {tolerance:.2g})'
    return found + (f', with differences up to {difference:.1g}' if difference else '')


def _size(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob('*') if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return f'{size / 1e3:.1f} kB' if size < 1e6 else f'{size / 1e6:.1f} MB'
