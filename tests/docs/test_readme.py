"""The README: one sitting, and its session does what it says, in fewer steps."""

import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.test_docs import ROOT, typed_commands, writer
from tests.docs.test_recipes import blocks_of, execute_blocks  # noqa: F401
from xagents.datasets import names

README = ROOT / 'README.md'
# what takes long, and how little of it shows that a command works
SHORTER = {
    **{'--max-steps': {'200000': '2000', '400000': '4000', '100000': '2000', '20000': '200'}},
    **{'--trial-steps': {'50000': '1000'}, '--n-trials': {'20': '2'}, '--episodes': {'20': '2', '100': '2'}},
}
WRITTEN = [
    *('runs/cartpole/checkpoints/last', 'runs/cartpole/checkpoints/best', 'runs/seeds/seed=3/config.yaml', 'seeds.png'),
    *('ppo-tuned/best.yaml', 'tuned.tf.index', 'policy', 'video'),
    *('datasets/cartpole/medium-v0/data', 'runs/imitation/checkpoints/last', 'runs/offline/checkpoints/last'),
]


def shortened(words):
    """A command in which the numbers of SHORTER are smaller; each number has to be known."""
    flags = [None, *words]
    shorter = [SHORTER[flag][word] if flag in SHORTER else word for flag, word in zip(flags, words, strict=False)]
    return [*shorter, '--max-steps', '2000'] if '--tuned' in words else shorter


def test_it_is_read_in_one_sitting():
    assert len(README.read_text().splitlines()) < 200


def test_its_table_of_speed_is_that_of_the_benchmarks(tmp_path):
    page = tmp_path / 'README.md'
    page.write_text(README.read_text())
    writer.write_readme(page)
    assert page.read_text() == README.read_text(), 'the README is not up to date: run `make docs`'
    table = writer.ratios(writer.BENCHMARKS.read_text())
    assert len(table.splitlines()) >= 12


def test_a_row_of_the_table_is_a_ratio_of_what_was_measured():
    page = (
        '<!-- benchmark a -->\n### A, B-v0\n\n|  | steps/s | times Stable-Baselines3 |\n|---|---|---|\n'
        '| Stable-Baselines3 | 1 000 | |\n| SBX | 2 000 (1 to 2) | 2.00 |\n| SBX, other | 9 | 9 |\n'
        '| xagents | 5 000 (4 to 6) | 5.00 (4.00 to 6.00) |\n| xagents, x | 9 | 9 |\n<!-- end of benchmark a -->\n'
        '<!-- benchmark b -->\n<!-- end of benchmark b -->\n'
    )
    assert writer.ratios(page).splitlines()[2:] == ["| A, B-v0 | 5.00 | 2.50 | `make bench CASES='--only a'` |"]


def test_its_commands_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv(names.ROOT, str(tmp_path / 'datasets'))
    commands = typed_commands(README.read_text())
    assert len(commands) >= 10
    for words in commands:
        done = subprocess.run(
            [sys.executable, '-m', *shortened(words)], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f'{shlex.join(words)}\n{done.stderr}'
    assert not [path for path in WRITTEN if not (tmp_path / path).exists()]
    assert list((tmp_path / 'video').glob('*.mp4'))


def test_its_python_runs(execute_blocks):  # noqa: F811
    blocks = [(name, code.replace('=250', '=25').replace('20_000', '4096')) for name, code in blocks_of(README)]
    assert len(blocks) == 2
    said = execute_blocks(blocks)
    assert said.count('16 updates') >= 2 and Path('runs/python/checkpoints/best').exists()
