"""The worked examples of docs/architecture.md: each patch applies to a copy of the package, and the commands run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'architecture.md').read_text(encoding='utf-8').partition('## Three worked examples')[2]
EXAMPLES = {title: text for title, text in re.findall(r'^### ([^\n]*)\n(.*?)(?=^### |^## |\Z)', PAGE, re.S | re.M)}
# the largest number of files, except new ones, that an example may change
FILES = {'Add an algorithm': 1, 'Add an option of a run': 2, 'Add a kind of environment': 8}
CATCH = """
import types
import numpy as np


class Step(types.SimpleNamespace):
    def last(self):
        return self.age == 5


class Catch:
    def observation_spec(self):
        return types.SimpleNamespace(shape=(2,), dtype=np.float32, minimum=0.0, maximum=5.0)

    def action_spec(self):
        return types.SimpleNamespace(num_values=3)

    def reset(self):
        self.age = 0
        return self._step(None)

    def step(self, action):
        self.age += 1
        return self._step(float(action == 1))

    def _step(self, reward):
        seen = np.array([self.age, 1], np.float32)
        return Step(observation=seen, reward=reward, discount=float(self.age < 5), age=self.age)
"""


def apply_patch(text, root):
    """Apply a patch, whose hunks are found by their lines, below a folder; return the paths of changed old files."""
    changed = []
    for before, path, body in re.findall(r'^--- ([^\n]*)\n\+\+\+ b/([^\n]*)\n(.*?)(?=^--- |\Z)', text, re.S | re.M):
        file = root / path
        for hunk in re.split(r'^@@\n', body, flags=re.M)[1:]:
            lines = hunk.splitlines(keepends=True)
            new = ''.join(line[1:] for line in lines if not line.startswith('-'))
            if before == '/dev/null':
                file.parent.mkdir(exist_ok=True)
                file.write_text(new)
                continue
            old, whole = ''.join(line[1:] for line in lines if not line.startswith('+')), file.read_text()
            assert whole.count(old) == 1, f'{path} has other lines than the page:\n{old}'
            file.write_text(whole.replace(old, new))
            changed.append(path)
    return changed


@pytest.mark.parametrize('title', FILES)
def test_an_example_runs_as_the_page_says(title, tmp_path):
    shutil.copytree(ROOT / 'xagents', tmp_path / 'xagents', ignore=shutil.ignore_patterns('__pycache__'))
    (tmp_path / 'catch.py').write_text(CATCH)
    blocks = re.findall(r'^```(\w*)\n(.*?)^```$', EXAMPLES[title], re.S | re.M)
    changed = {path for language, text in blocks if language == 'diff' for path in apply_patch(text, tmp_path)}
    assert 0 < len(changed) <= FILES[title]
    commands = [line.split() for language, text in blocks if not language for line in text.splitlines()]
    assert commands
    for command in commands:
        environment = {**os.environ, 'PYTHONPATH': str(tmp_path)}
        words = [sys.executable, '-m', *command]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert 'Maximum steps exceeded' in done.stdout
