"""What `xagents tune` shows: plain lines word for word, and the table as a terminal of a given size has it."""

import io
import re
import sys

import pytest
from rich.console import Console as Terminal

from xagents.tuning.trial_table import TrialTable

SETTINGS = {'lr': 3.2e-4, 'n_steps': 64}


def terminal(width, height=20):
    return Terminal(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None, emoji=False)


def drawn(table, width, height=20):
    """The lines of the last frame that a table left on a terminal."""
    table.close()
    frame = table._terminal.file.getvalue().split('\x1b[2K')[-1]
    lines = re.sub(r'\x1b\[[?0-9;]*[A-Za-z]|\r', '', frame).rstrip('\n').split('\n')
    assert all(len(line) <= width for line in lines)
    assert len(lines) < height
    return [line.rstrip() for line in lines]


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


def test_a_failed_trial_says_why_on_one_line(capsys):
    table = TrialTable(2, 1, quiet=False, live=False)
    table.started(0, {})
    reason = 'ValueError: \x1b[1mdense\x1b[0m\n\tgot [bold]no[/bold] :smile: \x07' + 'x' * 500
    table.finished(0, 'failed', None, None, 0.26, reason)
    line = capsys.readouterr().out
    assert line.startswith('trial 0: value none, best none, failed (ValueError: dense got [bold]no[/bold] :smile: xxx')
    assert line.endswith('…), 0.3 s, ETA 0:00:00\n')
    assert len(line) < 200 and line.count('\n') == 1 and line[:-1].isprintable()


def test_quiet_shows_nothing(capsys):
    for drawn_in_place in (None, True, False):
        show_one(TrialTable(2, 1, quiet=True, live=drawn_in_place))
    assert capsys.readouterr() == ('', '')


def test_the_table_shows_every_trial_and_how_the_call_stands():
    table = live(12, 140)
    table.started(0, SETTINGS | {'gamma': 0.9996})
    table.finished(0, 'complete', 300.125, (0, 300.125), 80.0)
    table.started(1, SETTINGS)
    table.finished(1, 'failed', None, (0, 300.125), 40.0, 'ValueError: the [reason] is longer than the column for it')
    table.started(2, SETTINGS)
    table.finished(2, 'pruned', -3.0, (0, 300.125), 60.0)
    table.started(3, SETTINGS)
    table.progressed(3, 0.454, 12.0)
    header, *rows, summary = drawn(table, 140)
    assert header.split() == ['trial', 'value', 'best', 'state', 'parameters']
    assert re.match(r' *0\* +300\.1[23] +300\.1[23] +complete +lr=3\.2e-4 n_steps=64 gamma=0\.9996', rows[0])
    assert re.match(r' *1 +none +300\.1[23] +failed: V.*… +lr=3\.2e-4 n_steps=64$', rows[1])
    assert re.match(r' *2 +-3 +300\.1[23] +pruned +lr=3\.2e-4 n_steps=64$', rows[2])
    assert re.match(r' *3 +12 +running 45 % +lr=3\.2e-4 n_steps=64$', rows[3])
    pattern = r'finished 3 of 12, running 1, best 300\.1[23] \(trial 0\), elapsed 0:00:0\d, ETA 0:0\d:\d\d'
    assert re.fullmatch(pattern, summary)


@pytest.mark.parametrize('closed', [True, False])
def test_without_standard_output_nothing_is_shown_and_nothing_breaks(closed, monkeypatch):
    nowhere = io.StringIO()
    nowhere.close()
    monkeypatch.setattr(sys, 'stdout', nowhere if closed else None)
    show_one(TrialTable(2, 1, quiet=False))
