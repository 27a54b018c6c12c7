"""Run a policy that `xagents export --format onnx` wrote; needs onnxruntime and numpy, but not xagents.

    python run_onnx.py FOLDER [OBSERVATIONS.npz]

The .npz file contains a batch of raw observations, one array [N, …] for each input in policy.json. Without the file,
the script uses two observations of zeros.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def load(folder):
    """Return a function from arrays [N, …] by name to actions [N, …], for any N.

    Actions of a Dict or Tuple space are a dict of arrays, by the names of the outputs in policy.json. A policy with
    memory also takes `memory` [N, M], zeros at the beginning of an episode, and returns a dict with `next_memory`.
    """
    session = onnxruntime.InferenceSession(Path(folder) / 'policy.onnx', providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]

    def act(observations):
        outputs = dict(zip(names, session.run(names, observations), strict=True))
        return outputs['actions'] if outputs.keys() == {'actions'} else outputs

    return act


def observations_for(folder, path=None):
    """Return a batch of observations by name, from a file or zeros, in the dtypes of the policy; also the memory."""
    description = json.loads((Path(folder) / 'policy.json').read_text())
    inputs, memory = description['inputs'], description.get('memory')
    given = np.load(path) if path else {part['name']: np.zeros((2, *part['shape'][1:])) for part in inputs}
    batch = {part['name']: given[part['name']].astype(part['dtype']) for part in inputs}
    if memory is not None:  # zeros at the beginning of an episode
        shape = len(next(iter(batch.values()))), memory['shape'][1]
        batch['memory'] = given['memory'] if 'memory' in given else np.zeros(shape, np.float32)
    return batch


if __name__ == '__main__':
    policy = load(sys.argv[1])
    actions = policy(observations_for(*sys.argv[1:]))
    print(json.dumps(actions, default=lambda array: array.tolist()))
