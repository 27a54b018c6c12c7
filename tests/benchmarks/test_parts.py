"""What the benchmarks of several parts share: each part is measured, kept and shown by itself."""

import pytest

from benchmarks import jobs as parts
from benchmarks.reliability import run as reliability
from benchmarks.speed.run import Failed
from benchmarks.tuning import run as tuning
from tests.benchmarks.common import MACHINE


def test_each_part_is_kept_and_written_beside_the_others(tmp_path, monkeypatch):
    page, asked = tmp_path / 'page.md', []
    empty = '<!-- benchmark reliability -->\n<!-- end of benchmark reliability -->\n'
    page.write_text(empty)
    arguments = ['--results', str(tmp_path / 'folder' / 'reliability.json'), '--page', str(page)]

    def part(name, result):
        def measure(folder, options, log):
            assert list(folder.iterdir()) == []
            asked.append((name, options.quick))
            if result is None:
                raise Failed('the reason')
            return {'value': options.steps or result}

        heeded = ('steps', 'agents') if name == 'exact' else ()
        return parts.Part(f'Part {name}', measure, lambda kept: f'{name} is {kept["value"]}', heeded)

    made = {name: part(name, result) for name, result in (('exact', 1), ('kills', 2), ('fuzz', None))}
    monkeypatch.setattr(reliability, 'PARTS', made)
    monkeypatch.setattr(parts.tables, 'machine', lambda: MACHINE)
    monkeypatch.setattr(parts.signal, 'signal', lambda *_: None)
    assert reliability.main(['--only', 'exact', '--quick', *arguments]) == 0
    assert 'exact' not in page.read_text() and not (tmp_path / 'folder').exists()
    assert reliability.main(['--only', 'kills', '--folder', str(tmp_path / 'kept'), *arguments]) == 0
    assert (tmp_path / 'kept' / 'kills').is_dir() and 'kills is 2' in page.read_text()
    # one that fails takes nothing away
    assert reliability.main(['--steps', '5', '--agents', 'ppo', 'dqn', *arguments]) == 1
    assert asked == [('exact', True), ('kills', False), ('exact', False), ('kills', False), ('fuzz', False)]
    text = page.read_text()
    assert '### Part exact\n\nexact is 5\n\n2026-01-02, a CPU, 2 cores, Linux x86_64, load 0.1' in text
    assert '`python -m benchmarks.reliability.run --only exact --steps 5 --agents ppo dqn`' in text
    assert '`python -m benchmarks.reliability.run --only kills`' in text
    assert text.index('kills is 5') > text.index('exact is 5') and 'fuzz' not in text
    page.write_text(empty)
    assert reliability.main(['--docs', *arguments]) == 0
    assert page.read_text() == text and len(asked) == 5
    # what others have measured stays beside what is measured here
    (tmp_path / 'folder' / 'reliability.json').unlink()
    assert reliability.main(['--only', 'kills', '--steps', '7', *arguments]) == 0
    text = page.read_text()
    assert 'exact is 5' in text and 'kills is 7' in text and 'kills is 5' not in text
    for main in (reliability.main, tuning.main):
        with pytest.raises(SystemExit, match='2'):
            main(['--only', 'speed'])
