"""Runs a policy that `xagents export --format onnx` wrote; needs onnxruntime and numpy, no xagents.

    python run_onnx.py FOLDER [OBSERVATIONS.npz]

The .npz holds a batch of raw observations, one array [N, …] for each input that policy.json names. Without one, two
observations of zeros show how it is called.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def load(folder):
    """Return a function from arrays [N, …] by name to actions [N, …], for any N."""
    session = onnxruntime.InferenceSession(Path(folder) / 'policy.onnx', providers=['CPUExecutionProvider'])

    def act(observations):
        (actions,) = session.run(['actions'], observations)
        return actions

    return act


def observations_for(folder, path=None):
    """Return a batch of observations by name, in the dtypes that the policy takes: a file's, or zeros."""
    inputs = json.loads((Path(folder) / 'policy.json').read_text())['inputs']
    given = np.load(path) if path else {part['name']: np.zeros((2, *part['shape'][1:])) for part in inputs}
    return {part['name']: given[part['name']].astype(part['dtype']) for part in inputs}


if __name__ == '__main__':
    policy = load(sys.argv[1])
    print(json.dumps(policy(observations_for(*sys.argv[1:])).tolist()))
