"""A Python process of ours: what it prints, how it ends, and that it ends."""

import os
import queue
import signal

import pytest

from xagents.processes import child_process
from xagents.processes.child_process import ChildProcess

CHILD = """
import os, subprocess, sys, time
print('first', flush=True)
for line in sys.stdin:
    if line == 'exit\\n':
        sys.exit(3)
    if line == 'leave\\n':  # a process of its own holds the pipe
        subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'])
        sys.exit(0)
    print('heard', line, end='', flush=True)
if 'stays' in sys.argv:
    time.sleep(60)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a child that has said its first line; returns it and the queue."""
    (tmp_path / 'child.py').write_text(CHILD)
    monkeypatch.syspath_prepend(str(tmp_path))
    children = []

    def start(*words):
        said = queue.Queue()
        children.append(ChildProcess(['child', *words], said.put, 0.5))
        assert said.get(timeout=20) == (children[-1], 'first')
        return children[-1], said

    yield start
    for child in children:
        child.end()


def test_lines_arrive_in_order_and_its_end_after_them(start):
    child, said = start()
    for line in ('one', 'two', 'exit'):
        child.write(line)
    heard = [said.get(timeout=20) for _ in range(3)]
    assert heard == [(child, 'heard one'), (child, 'heard two'), (child, None)]
    assert (child.code, child.exit_status) == (3, 'exit code 3')
    child.write('nobody hears it')
    child.send_signal(signal.SIGTERM)


def test_a_process_that_is_killed_is_told_at_once(start):
    child, said = start()
    child.send_signal(signal.SIGKILL)
    assert said.get(timeout=20) == (child, None)
    assert child.exit_status == 'SIGKILL'


def test_its_end_is_told_also_where_somebody_else_holds_its_output(start, monkeypatch):
    monkeypatch.setattr(child_process, 'SECONDS_TO_DRAIN', 0.1)
    child, said = start()
    child.write('leave')
    assert said.get(timeout=4) == (child, None)


def test_it_ends_when_it_is_dismissed_and_is_killed_when_it_does_not(start):
    child, said = start()
    child.request_exit()
    assert said.get(timeout=20) == (child, None)
    assert child.code == 0
    child, said = start('stays')
    assert os.getsid(child._process.pid) == child._process.pid, 'a Ctrl-C in the terminal does not reach it'
    child.end()
    assert child.exit_status == 'SIGKILL'
