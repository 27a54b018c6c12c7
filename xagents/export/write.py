"""Export of an agent's greedy policy for other runtimes. The export is compared with the agent before it is moved."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from xagents.checkpoints.status import EXPORT_DESCRIPTION
from xagents.envs.space_serialization import space_to_dict
from xagents.export import check
from xagents.export.check import Agreement, check_agreement
from xagents.export.contract import CONTRACT, describe_contract
from xagents.export.formats import Format, LoadedPolicy, find_format
from xagents.options.errors import OptionError, did_you_mean
from xagents.system.files import fsync
from xagents.system.paths import check_folder
from xagents.system.startup import quiet_stderr
from xagents.version import __version__

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent
    from xagents.export.policy import ExportedPolicy


def export_team_policy(team: Any, policy: str | None, format: str = 'savedmodel', out: str | Path = '') -> Path:
    """Export one policy of a team, as `export` does. The comparison uses random observations of its space.

    Args:
        team: the team.
        policy: the name of the policy.
        format: the format, as for `export`.
        out: the folder, as for `export`.

    Returns:
        The path, as from `export`.

    Raises:
        OptionError: for an unknown or missing name of a policy, and as for `export`.
    """
    if policy not in team.members:
        known = team.members
        hint = '' if policy is None else did_you_mean(policy, known)
        raise OptionError('policy', f'got {policy or "nothing"}, expected one of {", ".join(known)}{hint}')
    member = team.members[policy]
    space = copy.deepcopy(member.envs.encoder.raw_space)
    space.seed(0)
    return export(member, format, out, [space.sample() for _ in range(check.N_OBSERVATIONS)])


def export(agent: BaseAgent, format: str = 'savedmodel', out: str | Path = '', observations: Any = None) -> Path:
    """Export an agent's greedy policy, from a batch of raw observations of any size to actions.

    The export contains the encoding and normalisation of observations, the scaling of frames, the network and the
    bounds of actions. It is written to a temporary folder, loaded from there, and compared with the agent. If both act
    equally, the folder is renamed to `out`, and one line with the result is printed.

    Args:
        agent: the agent, whose present weights and statistics are exported.
        format: `savedmodel` (a folder), `litert` (`policy.tflite`), `onnx` (`policy.onnx`; requires the extra `export`)
            `numpy` (a folder with `policy.py`) or `c` (`policy.h`, for a C compiler).
        out: a folder that does not exist yet or is empty. `policy.json` in it describes the file,
            and `contract.json` the meaning of inputs and outputs.
        observations: raw observations for the comparison: a batch [N, …] of the environment (a dict of arrays for a
            Dict space, a tuple for a Tuple space), or a sequence of N observations; for a policy with memory, those of
            one episode. When not given, observations are collected in a new environment.

    Returns:
        The path of the file, or `out` if the policy is a folder.

    Raises:
        OptionError: for an unknown format, missing packages, a policy that the format does not support, or a folder
            that is not empty or not writable; for names or units in the metadata of the environment of another form
            than in `xagents.export.contract`.
        ValueError: if there is no environment for the comparison, or no network to export.
        RuntimeError: if the exported policy acts differently from the agent. Nothing is written to `out` then.
    """
    wanted, folder = find_format(format), check_out(out)
    if (network := getattr(agent.actor, 'model', None)) is None:
        raise ValueError(f'export: got {type(agent).__name__}, expected an agent that acts with a Keras network')
    encoder = agent.envs.encoder
    given = observations is not None
    if given:
        batch = check.as_batch(encoder.raw_space, observations)
        seen = check.Observations(batch, np.arange(len(encoder(batch))) == 0)
    else:
        seen = check.collect_observations(agent)
    batch = seen.batch
    if not len(encoder(batch)):
        raise ValueError('observations: got none, expected at least one')
    from xagents.export.policy import ExportedPolicy, to_float32

    # an agent that acts by a plan acts in float32, even if it learns in bfloat16
    kept = wanted.keeps_precision and agent.actor.plan is None
    exact = kept or all(layer.compute_dtype == 'float32' for layer in network.layers)
    network = network if exact else to_float32(network)
    policy = ExportedPolicy(agent, network, seen.batch, seen.starts)
    contract = describe_contract(agent, policy)
    temporary = folder.parent / f'.{folder.name}.new'
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        loaded = _write_policy(format, wanted, policy, temporary / wanted.file)
        # an export in float32 is first compared with the agent's network in float32
        acting = agent.acting_policy
        if not exact:
            acting = acting.with_network(type(agent.actor)(network, agent.statistics.dtype))
        agreement = check_agreement(agent, loaded.run, seen, policy.arrays, check.TOLERANCE, acting)
        if not exact:  # then with the agent's own, coarser actions
            acting = agent.acting_policy
            agreement = check_agreement(agent, loaded.run, seen, policy.arrays, check.BFLOAT16_TOLERANCE, acting)
        about = {**describe_policy(agent, policy, agreement), **loaded.details}
        description = {'format': format, 'file': wanted.file or '.', **about}
        for name, record in ((EXPORT_DESCRIPTION, description), (CONTRACT, contract)):
            (temporary / name).write_text(json.dumps(record, indent=2, allow_nan=False) + '\n')
        for path in (*temporary.rglob('*'), temporary):
            fsync(path)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fsync(folder.parent)
    path = Path(out) / wanted.file
    note = f'{loaded.note} ' if loaded.note else ''
    print(f'{path}: {_size(path)}; {note}{_agreement_line(agreement)}')
    return path


def check_out(out: str | Path) -> Path:
    """Return the absolute path of the folder for the export.

    Raises:
        OptionError: if the folder is not empty or cannot be created.
    """
    expected = 'expected a directory that does not exist yet, or is empty'
    if not str(out):
        raise OptionError('out', f'got nothing, {expected}')
    check_folder('out', out)
    folder = Path(os.path.abspath(out))
    if folder.is_symlink() or (folder.is_dir() and any(folder.iterdir())):
        what = 'is a link' if folder.is_symlink() else 'contains files'
        raise OptionError('out', f'got {out}, which {what}, {expected}')
    return folder


def describe_policy(agent: BaseAgent, policy: ExportedPolicy, agreement: Agreement) -> dict[str, Any]:
    """Return the description of an exported policy for `policy.json`."""
    actions = policy.function.structured_outputs
    observed: Any = agent.envs.encoder.raw_space
    if hidden := agent.envs.encoder.encoding.critic_only:
        observed = spaces.Dict({key: part for key, part in observed.spaces.items() if key not in hidden})
    outputs = [
        {'name': o.name, 'shape': actions[o.name].shape.as_list(), 'dtype': actions[o.name].dtype.name}
        for o in policy.outputs
    ]
    # a policy with one output is described as in earlier versions
    described: dict[str, Any] = {'output': outputs[0]}
    if isinstance(agent.envs.action_space, spaces.Dict | spaces.Tuple):
        described = {'outputs': [{**one, 'path': list(o.path)} for one, o in zip(outputs, policy.outputs, strict=True)]}
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
        **described,
        **({'memory': _describe_memory(policy.memory_units)} if policy.memory_units else {}),
        'observation_space': space_to_dict(observed),
        'action_space': space_to_dict(agent.envs.action_space),
        'checked': agreement._asdict(),
    }


def _describe_memory(units: int) -> dict[str, Any]:
    """Return the description of the memory of a policy."""
    from xagents.export.policy import MEMORY_INPUT as before
    from xagents.export.policy import MEMORY_OUTPUT as after

    rule = f'{before} is zeros at the first step of an episode, and otherwise {after} of the step before'
    return {'input': before, 'output': after, 'shape': [None, units], 'dtype': 'float32', 'rule': rule}


def _write_policy(name: str, wanted: Format, policy: ExportedPolicy, path: Path) -> LoadedPolicy:
    """Write a policy, and load the written file.

    Raises:
        OptionError: if the format does not support the policy.
    """
    failure: Exception | None = None
    with quiet_stderr():  # hides the output of converters, unless the block raises
        try:
            wanted.write(policy, path)
            return wanted.load(path, policy)
        except OSError:
            raise
        except Exception as error:
            failure = error
    reason = str(failure).strip().partition('\n')[0][:200] or type(failure).__name__
    raise OptionError('format', f'got {name}, which does not support this policy: {reason}') from failure


def _agreement_line(agreement: Agreement) -> str:
    observations, ties, difference, tolerance = agreement
    found = f'acts as the agent does on {observations - ties} of {observations} observations'
    if ties:
        found += f'; on the other {ties}, two actions have equal outputs (within {tolerance:.2g})'
    return found + (f', with differences up to {difference:.1g}' if difference else '')


def _size(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob('*') if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return f'{size / 1e3:.1f} kB' if size < 1e6 else f'{size / 1e6:.1f} MB'
