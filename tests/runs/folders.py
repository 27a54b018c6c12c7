"""What tests of run folders share."""

import contextlib
import os
import subprocess
import sys

from tests.small_agents import ENV

LINE = f'train small --env {ENV} --n-envs 3 --n-steps 4 --mini-batches 1 --net 4 --seed 1 --quiet'
HOLDER = 'import fcntl, sys; f = open(sys.argv[1], "wb"); fcntl.flock(f, fcntl.LOCK_EX); print("held", flush=True)'


def contents(folder):
    """Everything in a folder but its lock: bytes by path, and where links point."""
    paths = [path for path in sorted(folder.rglob('*')) if path.name != '.lock']
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
        for p in paths
    }


@contextlib.contextmanager
def untouched(folder):
    """Whatever happens, a folder holds the same afterwards."""
    before = contents(folder)
    yield
    assert contents(folder) == before


def names(folder):
    return sorted(path.name for path in (folder / 'checkpoints').iterdir())


def cut(path, share):
    """Lose the end of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def link(folder, name):
    """Let a run go on from one of its checkpoints."""
    os.remove(folder / 'checkpoints' / 'last')
    os.symlink(name, folder / 'checkpoints' / 'last')


def stopping(agent, steps):
    """The default recipe, which says after so many steps that time is up."""

    def stop(ctx):
        if ctx.steps >= steps:
            ctx.stop = 'time'

    return agent.recipe().use(stop)


@contextlib.contextmanager
def held(folder):
    """Let another process run in a folder for a while."""
    words = [sys.executable, '-c', f'{HOLDER}; input()', str(folder / '.lock')]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == 'held\n'
        try:
            yield
        finally:
            process.communicate('\n')
