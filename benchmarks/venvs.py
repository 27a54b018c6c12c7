"""A virtual environment for each library, made once and kept in a cache folder."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
XAGENTS = (sys.executable, '-m', 'xagents')
PAGE = REPOSITORY / 'docs' / 'benchmarks.md'
# virtual environments and kept results
CACHE = REPOSITORY / 'benchmarks' / '.venvs'
REQUIREMENTS = Path(__file__).resolve().parent / 'peers'


class NotInstalled(Exception):
    """A library that does not install on this machine; the message gives the reason in one line."""


def prepare(peer: str, cache: Path) -> Path:
    """Return the Python of a library's virtual environment. Create it and install its packages if needed.

    Args:
        peer: name of the requirement file in `peers/`.
        cache: folder of all virtual environments.

    Raises:
        NotInstalled: if the packages do not install.
    """
    folder = (cache / peer).absolute()
    python = folder / ('Scripts/python.exe' if os.name == 'nt' else 'bin/python')
    requirements = REQUIREMENTS / f'{peer}.txt'
    stamp, wanted = folder / '.installed', fingerprint(requirements)
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    print(f'installing {peer} into {folder}', file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    # git ignores the folder, wherever it is
    (cache / '.gitignore').write_text('*\n')
    if not python.exists():
        run([sys.executable, '-m', 'venv', str(folder)])
    run([str(python), '-m', 'pip', 'install', '--quiet', '--requirement', str(requirements)])
    stamp.write_text(wanted)
    return python


def fingerprint(requirements: Path) -> str:
    """Return a digest of the Python version and of a requirement file with the files that it includes."""
    lines = [sys.version, *requirements.read_text().splitlines()]
    for line in list(lines):
        included = requirements.parent / line.removeprefix('-r ').strip()
        if line.startswith('-r ') and included.exists():
            lines.append(included.read_text())
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()


def run(command: list[str]) -> None:
    """Run an installation step.

    Raises:
        NotInstalled: with the last error that the command prints.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ['no message']
        errors = [line for line in lines if line.startswith('ERROR')]
        raise NotInstalled((errors or lines)[-1].removeprefix('ERROR: '))
