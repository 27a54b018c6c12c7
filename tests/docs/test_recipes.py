"""What docs/recipes.md, docs/runs.md and the examples show is so: their Python is executed, in processes of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

import xagents

ROOT = Path(xagents.__file__).parents[1]
EXAMPLES = ROOT / 'examples'
# compiles updates as plain graphs, and executes blocks of code in one namespace
RUNNER = """
import json, sys
from xagents.networks.compiled import Program
real = Program.__init__
Program.__init__ = lambda self, function, jit: real(self, function, False)
namespace = {'__name__': '__main__'}
for name, block in json.load(open(sys.argv[1])):
    exec(compile(block, name, 'exec'), namespace)
"""


def execute_blocks(folder, blocks, timeout=240):
    """Execute `(name, code)` pairs in order and return what was printed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'blocks.json').write_text(json.dumps(blocks))
    environment = {**os.environ, 'MPLBACKEND': 'Agg', 'PYTHONPATH': f'{ROOT}{os.pathsep}{EXAMPLES}'}
    made = subprocess.run(
        [sys.executable, '-c', RUNNER, 'blocks.json'],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    return made.stdout


def blocks_of(page):
    text = page.read_text()
    found = list(re.finditer(r'^```python\n(.*?)^```', text, re.DOTALL | re.MULTILINE))
    # the line of the page stands in a traceback
    return [(f'{page.name}:{text[: block.start()].count(chr(10)) + 2}', block[1]) for block in found]


def test_the_recipes_run(tmp_path):
    page = ROOT / 'docs' / 'recipes.md'
    blocks = blocks_of(page)
    assert len(blocks) >= 12
    said = execute_blocks(tmp_path, blocks)
    shown = re.search(r'^Recipe\(.*\)$', page.read_text(), re.MULTILINE)[0]
    assert shown in said.splitlines(), 'the page shows other stages than PPO has'
    assert 'overlap: A2C learns from what its present policy has collected' in said
    assert (tmp_path / 'lengths.txt').read_text()


def test_the_page_of_runs_does_what_it_says(tmp_path):
    blocks = blocks_of(ROOT / 'docs' / 'runs.md')
    assert blocks
    execute_blocks(tmp_path, blocks)
    config = (tmp_path / 'runs' / 'cartpole' / 'config.yaml').read_text()
    assert 'max-steps: 3000' in config and 'resumed:' in config


def test_a_field_of_ones_own_is_resumed_in_another_process(tmp_path):
    call = [('call', "import count_falls\ncount_falls.main('falls')")]
    first, second = (
        re.search(r'^(\d+) falls in (\d+) steps$', execute_blocks(tmp_path, call), re.MULTILINE) for _ in range(2)
    )
    assert 0 < int(first[1]) < int(second[1])
    assert int(second[2]) >= int(first[2]) + 1000
    # no episode of an agent so young lasts until the time limit, so each is a fall; none is counted twice
    assert int(second[1]) == len(pd.read_parquet(tmp_path / 'falls' / 'history.parquet'))


def test_an_agent_of_the_examples_resumes_with_its_buffer(tmp_path):
    """Stopped and resumed, it is the run that was never stopped; with another buffer it would learn otherwise."""
    options = '--env CartPole-v1 --n-envs 4 --n-steps 16 --seed 1 --quiet --final-episodes 0 --overlap'
    lines = [
        f'train replay-ppo {options} --max-steps 1600 --run-dir whole',
        f'train replay-ppo {options} --max-steps 800 --run-dir stopped',
        'train --resume stopped --max-steps 1600',
        'evaluate --run-dir stopped --episodes 1',
    ]
    compare = """
from pathlib import Path
from xagents.runs.checkpoints import read_state

whole, stopped = (read_state(Path(name, 'checkpoints', 'last')) for name in ('whole', 'stopped'))
assert whole.record['counters']['updates'] == stopped.record['counters']['updates'] > 0
for one, other in zip(whole.weights[0], stopped.weights[0], strict=True):
    assert one.tobytes() == other.tobytes()
"""
    blocks = [('import', 'import replay_ppo\nfrom xagents.cli import execute')]
    blocks += [(line, f'execute({line.split()!r})') for line in lines] + [('compare', compare)]
    execute_blocks(tmp_path, blocks)
    assert list((tmp_path / 'stopped' / 'replay').iterdir()), 'the buffer was not saved'


def test_what_the_architecture_shows_runs(tmp_path):
    blocks = blocks_of(ROOT / 'docs' / 'architecture.md')
    assert len(blocks) == 3
    execute_blocks(tmp_path, blocks)
