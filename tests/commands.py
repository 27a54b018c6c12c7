"""The command line in this process."""

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from xagents.cli import dispatch

# the lines that are printed before the environments exist
HEADER = re.compile(r'\S+ on .*\n(?:(?:Run directory|Best weights|Nothing will|Stops at|Default settings).*\n)*')


def execute(*words):
    """Run `xagents`; return the exit code, stdout and stderr. Of wrong input, stdout has no header."""
    stdout, stderr, code = StringIO(), StringIO(), 0
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            dispatch.execute(words)
        except SystemExit as end:
            code = end.code
    shown = stdout.getvalue()
    return code, HEADER.sub('', shown, count=1) if code == 2 else shown, stderr.getvalue()


def refused(name, env, options, n_models=1):
    """Return the one line by which training is refused, after nothing else was printed."""
    words = []
    for option, value in options.items():  # a switch has no value
        words += ['--' + option.replace('_', '-'), *([] if value is True else [str(value)])]
    files = ['--checkpoints', *(f'{i}.tf' for i in range(n_models)), '--history-checkpoint', 'h.parquet']
    code, stdout, stderr = execute('train', name, '--env', env, '--max-steps', '10', *files, *words)
    (line,) = stderr.splitlines()
    assert (code, stdout) == (2, '')
    return line
