"""The examples of docs/functional.md run."""

import re
from pathlib import Path

import gymnasium

PAGE = Path(__file__).parents[2] / 'docs' / 'functional.md'


def test_the_examples_run_in_order():
    blocks = re.findall(r'^```python\n(.*?)^```', PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    names = {}
    try:
        for block in blocks:
            exec(block, names)
    finally:
        gymnasium.registry.pop('Line-v0', None)
    assert names['observation'].shape == (1,)
