"""The script that compares two checkouts runs in this one."""

import json
import sys

import pytest

from tests import digests


@pytest.mark.slow
@pytest.mark.usefixtures('without_xla')
def test_digests_are_made_and_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('COLUMNS', '100')  # the script sets it
    tiny = {'env': 'CartPole-v1', 'n_envs': 2, 'n_steps': 8, 'mini_batches': 1, 'net': [4], 'steps': 32}
    monkeypatch.setitem(digests.CASES, 'ppo-tiny', tiny)

    def run(*words):
        monkeypatch.setattr(sys, 'argv', ['digests.py', *words])
        digests.main()

    one, other = (str(tmp_path / f'{name}.json') for name in ('one', 'other'))
    run('--only', 'ppo-tiny', 'pages', '--out', one)
    assert 'ppo-tiny exact' in capsys.readouterr().out
    found = json.loads((tmp_path / 'one.json').read_text())
    assert found['pages'].keys() >= {'usage', 'train', 'train ppo'}
    found['ppo-tiny']['2N']['arrays'] = 'other'
    (tmp_path / 'other.json').write_text(json.dumps(found))
    for path, n in ((one, 0), (other, 1)):
        with pytest.raises(SystemExit) as end:
            run('--compare', one, path)
        assert end.value.code == n and f'{n} differences' in capsys.readouterr().out
