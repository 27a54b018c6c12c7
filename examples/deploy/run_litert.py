"""Runs a policy that `xagents export --format litert` wrote; needs ai-edge-litert or tensorflow.

    python run_litert.py FOLDER [OBSERVATIONS.npz]

The .npz holds a batch of raw observations, one array [N, …] for each input that policy.json names. Without one, two
observations of zeros show how it is called.
"""

import json
import sys
from pathlib import Path

import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError:
    import tensorflow

    Interpreter = tensorflow.lite.Interpreter


def load(folder):
    """Return a function from arrays [N, …] by name to actions [N, …], for any N."""
    runner = Interpreter(model_path=str(Path(folder) / 'policy.tflite')).get_signature_runner()

    def act(observations):
        # the runner makes room for another N by itself; what it returns is overwritten by the next call
        return runner(**observations)['actions'].copy()

    return act


def observations_for(folder, path=None):
    """Return a batch of observations by name, in the dtypes that the policy takes: a file's, or zeros."""
    inputs = json.loads((Path(folder) / 'policy.json').read_text())['inputs']
    given = np.load(path) if path else {part['name']: np.zeros((2, *part['shape'][1:])) for part in inputs}
    return {part['name']: given[part['name']].astype(part['dtype']) for part in inputs}


if __name__ == '__main__':
    policy = load(sys.argv[1])
    print(json.dumps(policy(observations_for(*sys.argv[1:])).tolist()))
