"""Read what is known of the runs with published scores: `python -m benchmarks.learning.published_runs CLONE`.

CLONE is a clone of https://github.com/DLR-RM/rl-trained-agents, with or without a work tree. Writes published_runs.yaml
in this folder, which the lines below the learning table show. An entry has

* `steps`: the steps of all episodes in the monitor files: some runs ended before the steps of their configuration.
* `last`: the mean rewards of the last five evaluations, of 5 to 20 greedy episodes each.
* `early`: those from 250 000 to 350 000 steps, if the preset has a row *early*.
"""

import argparse
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import tables
from xagents.factory.presets import Preset, list_presets
from xagents.registry.agents import BUILTIN_AGENTS

FILE = Path(__file__).with_suffix('.yaml')
# the steps whose evaluations count for rows *early*
EARLY_STEPS = 250_000, 350_000
N_LAST = 5


def name_of_run(one: Any) -> str:
    """Return the name of the run with the published score of a preset or a case: its folder, without its number."""
    return f'{"qrdqn" if "quantile" in one.form else one.agent}/{one.scored_on or one.env}'


def read_blob(clone: Path, path: str) -> bytes:
    """Return the content of a file of the newest commit."""
    return subprocess.run(['git', '-C', clone, 'show', f'HEAD:{path}'], check=True, capture_output=True).stdout


def read_run(clone: Path, files: Sequence[str], early: bool) -> dict[str, Any]:
    """Return the entry of one run from its files, `*.monitor.csv` and `evaluations.npz`.

    Raises:
        ValueError: if there is not exactly one `evaluations.npz`.
    """
    monitors = [read_blob(clone, path).decode() for path in files if path.endswith('.monitor.csv')]
    # two lines of heading, then the reward, length and time of each episode
    lengths = [int(line.split(',')[1]) for text in monitors for line in text.splitlines()[2:]]
    (path,) = (path for path in files if path.endswith('/evaluations.npz'))
    with np.load(io.BytesIO(read_blob(clone, path))) as arrays:
        steps, rewards = arrays['timesteps'], arrays['results']
    means = rewards.reshape(len(steps), -1).mean(1)
    found = {'steps': sum(lengths), 'last': rounded(means[-N_LAST:])}
    if early:
        low, high = EARLY_STEPS
        found['early'] = rounded(means[(steps >= low) & (steps <= high)])
    return found


def rounded(means: np.ndarray) -> list[float]:
    """Return numbers with one digit, for YAML."""
    return [round(float(one), 1) for one in means]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs of all presets with a published score, and write the file."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.learning.published_runs', description=__doc__.partition('\n')[0]
    )
    source = 'a clone of https://github.com/DLR-RM/rl-trained-agents'
    parser.add_argument('clone', metavar='CLONE', type=Path, help=source)
    parser.add_argument('--out', type=Path, default=FILE, help='the file to write')
    options = parser.parse_args(arguments)
    command = ['git', '-C', options.clone, 'ls-tree', '-r', '--name-only', 'HEAD']
    listed = subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()
    wanted: dict[str, list[Preset]] = {}
    for preset in (one for agent in BUILTIN_AGENTS for one in list_presets(agent) if one.published is not None):
        wanted.setdefault(name_of_run(preset), []).append(preset)
    files = {name: [path for path in listed if path.startswith(f'{name}_1/')] for name in sorted(wanted)}
    if not any(files.values()):
        parser.error(f'CLONE: got {options.clone}, expected {source}')
    found = {}
    for name, paths in files.items():
        if paths:
            found[name] = read_run(options.clone, paths, any(preset.early for preset in wanted[name]))
        else:
            print(f'{name}: no run', file=sys.stderr)
    heading = f'# Written by {Path(__file__).name}, which describes the entries. Do not edit.\n'
    text = yaml.safe_dump(found, default_flow_style=None, width=120, sort_keys=False)
    tables.write_atomically(options.out, heading + text)


if __name__ == '__main__':
    main()
