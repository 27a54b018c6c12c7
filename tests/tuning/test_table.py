"""What `xagents tune` shows: plain lines word for word, and the table as a terminal of a given size has it."""

import io
import sys

import pytest
from rich.console import Console as Terminal

from xagents.tuning.trial_table import TrialTable

SETTINGS = {'lr': 3.2e-4, 'n_steps': 64}


def terminal(width, height=20):
    return Terminal(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None, emoji=False)


def live(total, width, height=20, jobs=2):
    return TrialTable(total, jobs, quiet=False, live=True, terminal=terminal(width, height))


def show_one(table):
    """Uses every method."""
    table.started(0, SETTINGS)
    table.progressed(0, 0.5, 1.0)
    table.finished(0, 'complete', 1.0, (0, 1.0), 1.0)
    table.say('a line')
    table.close()


def test_a_trial_that_ends_is_one_line_with_all_that_is_known(capsys):
    table = TrialTable(8, 2, quiet=False)  # pytest's standard output is no terminal
    table.started(1, SETTINGS)
    table.progressed(1, 0.5, 250.0)
    assert capsys.readouterr().out == '', 'reports are not for a file'
    table.finished(1, 'complete', 300.1, (1, 300.1), 20.0)
    assert capsys.readouterr().out == (
        'trial 1: value 300.1, best 300.1 (trial 1), complete, lr=3.2e-4 n_steps=64, 20 s, ETA 0:01:10\n'
    )
    table.started(3, {'gamma': 0.9996, 'trust_region': True})
    table.finished(3, 'pruned', 245.3, (1, 300.1), 4.04)
    # 12 s the trial, six are left, two at a time
    assert capsys.readouterr().out == (
        'trial 3: value 245.3, best 300.1 (trial 1), pruned, gamma=0.9996 trust_region=true, 4 s, ETA 0:00:36\n'
    )
    table.close()


def test_quiet_shows_nothing(capsys):
    for drawn_in_place in (None, True, False):
        show_one(TrialTable(2, 1, quiet=True, live=drawn_in_place))
    assert capsys.readouterr() == ('', '')


@pytest.mark.parametrize('closed', [True, False])
def test_without_standard_output_nothing_is_shown_and_nothing_breaks(closed, monkeypatch):
    nowhere = io.StringIO()
    nowhere.close()
    monkeypatch.setattr(sys, 'stdout', nowhere if closed else None)
    show_one(TrialTable(2, 1, quiet=False))
