"""The reliability benchmark: comparisons of runs, losses, and some of its random lines."""

import pytest

from benchmarks.reliability.fuzz import Tally, count, make_files

# --------------------------------------------------------------------------------------------------------- comparisons


# --------------------------------------------------------------------------------------------------------------- kills


# --------------------------------------------------------------------------------------------------------------- tables


# ---------------------------------------------------------------------------------------------------------------- fuzz


@pytest.mark.slow
def test_random_lines_end_well(tmp_path, monkeypatch):
    from xagents.cli import dispatch as cli

    monkeypatch.setattr(cli, 'prepare_process', lambda: None)
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path, trained=False)
    tally = Tally()
    count(number := 250, 7, tally, 'xagents.factory.make.create_envs')
    assert sum(tally.codes.values()) == number and tally.problems == {}
    # some lines of each type must pass, and some must be refused
    for kind in ('line', 'cfg', 'yaml'):
        assert tally.codes.get(f'{kind} begun', 0) >= number / 100 and tally.codes[f'{kind} 2'] >= number / 20
