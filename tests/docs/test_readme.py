"""The README: one sitting, and its session does what it says, in fewer steps."""

import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.speed import summary
from tests.commands import execute
from tests.docs.test_docs import ROOT, typed_commands
from tests.docs.test_recipes import blocks_of, execute_blocks  # noqa: F401
from xagents.datasets import dataset_names

README = ROOT / 'README.md'
# what takes long, and how little of it shows that a command works
SHORTER = {
    **{'--max-steps': {'200000': '2000', '400000': '4000', '100000': '2000', '20000': '200'}},
    **{'--trial-steps': {'50000': '1000'}, '--n-trials': {'20': '2'}, '--episodes': {'20': '2', '100': '2'}},
}
WRITTEN = [
    *('runs/cartpole/checkpoints/last', 'runs/cartpole/checkpoints/best', 'runs/seeds/seed=3/config.yaml', 'seeds.png'),
    *('ppo-tuned/best.yaml', 'tuned.tf.index', 'policy', 'video'),
    *('datasets/cartpole/mixed-v0/data', 'runs/imitation/checkpoints/last', 'runs/offline/checkpoints/last'),
]


def shortened(words):
    """A command in which the numbers of SHORTER are smaller; each number has to be known."""
    flags = [None, *words]
    shorter = [SHORTER[flag][word] if flag in SHORTER else word for flag, word in zip(flags, words, strict=False)]
    return [*shorter, '--max-steps', '2000'] if '--tuned' in words else shorter


def test_it_is_read_in_one_sitting():
    assert len(README.read_text().splitlines()) < 200


def test_what_it_says_of_speed_is_what_was_measured(tmp_path):
    copies = [tmp_path / path.name for path in (summary.PAGE, summary.README, summary.PICTURE)]
    for copy, path in zip(copies, (summary.PAGE, summary.README, summary.PICTURE), strict=True):
        shutil.copy(path, copy)
    summary.write(*copies)
    for copy, path in zip(copies[:2], (summary.PAGE, summary.README), strict=True):
        assert copy.read_text() == path.read_text(), f'{path.name} is not up to date: run `make docs`'
    assert '<!-- benchmark machines -->\n|' in copies[0].read_text()
    assert '<!-- benchmark speed -->\n|' in copies[1].read_text()
    # fonts may draw a picture otherwise elsewhere; the numbers in it are the same
    drawn, shown = (Image.open(path) for path in (copies[2], summary.PICTURE))
    assert drawn.text == shown.text and drawn.size == shown.size, 'img/speed.png is not up to date: run `make docs`'
    assert summary.PICTURE.stat().st_size < 100_000 and '(img/speed.png)' in README.read_text()


@pytest.mark.slow  # tests/docs/test_docs.py checks that each command is one
@pytest.mark.usefixtures('folder', 'without_xla')
def test_its_commands_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv(dataset_names.ROOT, str(tmp_path / 'datasets'))
    commands = typed_commands(README.read_text())
    assert len(commands) >= 10
    for words in commands:
        code, _, stderr = execute(*shortened(words)[1:])
        assert code == 0, f'{shlex.join(words)}\n{stderr}'
    assert not [path for path in WRITTEN if not (tmp_path / path).exists()]
    assert list((tmp_path / 'video').glob('*.mp4'))


def test_its_python_runs(execute_blocks):  # noqa: F811
    blocks = [(name, code.replace('=250', '=25').replace('20_000', '4096')) for name, code in blocks_of(README)]
    assert len(blocks) == 2
    said = execute_blocks(blocks)
    assert said.count('16 updates') >= 2 and Path('runs/python/checkpoints/best').exists()
