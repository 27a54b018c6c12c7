"""The live table of the runs of a grid."""

import io
import json

from rich.console import Console

from xagents.cli.run_table import RunTable


def test_the_table_shows_the_last_numbers_and_the_end_of_each_run():
    out = io.StringIO()
    terminal = Console(file=out, width=100, height=12, force_terminal=True)
    table = RunTable(['seed=1', 'seed=2', 'seed=3', 'seed=4'], terminal=terminal)
    for name in ('seed=1', 'seed=2', 'seed=3'):
        table.started(name, 'xagents train')
    table.print_line('seed=1', 'ppo on CartPole-v1, seed 1')  # the header is text
    status = {'event': 'status', 'steps': 1234, 'mean_reward': 20.5, 'best_reward': 19.0, 'steps_per_second': 321.4}
    table.print_line('seed=1', json.dumps({**status, 'eta': 61.2}))
    table.print_line('seed=2', json.dumps({**status, 'best_reward': None}))
    table.ended('seed=2', 0)
    table.print_line('seed=3', 'xagents train: RuntimeError: lost it')
    table.ended('seed=3', 1)
    rendered = Console(width=100, file=io.StringIO(), record=True)
    rendered.print(table._render())
    header, *rows, footer = rendered.export_text().splitlines()
    assert header.split() == ['run', 'state', 'steps', 'mean', 'reward', 'best', 'reward', 'steps/s', 'ETA']
    assert [row.split() for row in rows[:2]] == [
        ['seed=1', 'running', '1234', '20.5', '20.5', '321', '0:01:01'], ['seed=2', 'finished', '1234', '20.5', 'none'],
    ]  # fmt: skip
    assert (
        rows[2].startswith('seed=3') and 'failed: RuntimeError' in rows[2] and rows[3].split() == ['seed=4', 'waiting']
    )
    assert footer.startswith('finished 1 of 4, running 1, elapsed ')
    table.close()
    assert 'seed=3: xagents train: RuntimeError: lost it' in out.getvalue()


def test_an_error_that_all_runs_have_is_left_to_the_command():
    out = io.StringIO()
    table = RunTable(['a', 'b'], terminal=Console(file=out, width=80, force_terminal=True))
    for name in ('a', 'b'):
        table.print_line(name, 'xagents train: --env: got X')
        table.ended(name, 2)
    table.close()
    assert f'a: {table.last["a"]}' not in out.getvalue()
