"""Storages of studies: memory, SQLite, PostgreSQL, MySQL, or a journal file that several processes append to."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.system.paths import check_parent

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import optuna
    import sqlalchemy


SCHEMES = ('sqlite', 'postgresql', 'mysql', 'journal')
ADMITTED_URLS = 'sqlite:///FILE, postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, journal:FILE'
# drivers for URLs that name none; the extras of xagents install them
DRIVERS = {'postgresql': 'postgresql+psycopg2', 'mysql': 'mysql+pymysql'}
EXTRAS = {'psycopg2': "'.[postgresql]'", 'pymysql': "'.[mysql]'"}
# first bytes of each line of a journal
ENTRY = b'{"op_code":'
# timeouts: for connecting to a server, for a locked SQLite file, and for processes that create the same tables
CONNECT_SECONDS, BUSY_SECONDS, RACE_SECONDS = 10, 60, 30
# errors of a database if another process creates the same tables at the same time
RACE = re.compile('already exists|duplicate|unique constraint|database is locked|deadlock|concurrently', re.IGNORECASE)
# other errors of a database, and what the user can do
REMEDIES = {
    'database "?[^"]*"? does not exist|unknown database': 'create the database first',
    'password|access denied|authentication|role .* does not exist': 'check the user and the password',
    'refused|timed? ?out|translate host|name or service|not known|resolve|no such file|unreachable|no route|'
    "can't connect": 'check that the server runs and can be reached from this machine',
    'permission denied|command denied': 'the user needs the right to create tables',
    'not a database|malformed|no journal': 'expected a file of this kind, or a new file',
    'locked': 'another process is writing to it: try again later',
}


def silence_optuna() -> None:
    """Hide log lines and warnings of Optuna and SQLAlchemy, because errors are raised as exceptions."""
    import optuna

    optuna.logging.set_verbosity(logging.CRITICAL)
    logging.getLogger('sqlalchemy').setLevel(logging.CRITICAL)
    warnings.filterwarnings('ignore', module=r'optuna\..*')
    warnings.filterwarnings('ignore', category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str | None, create: bool = True) -> optuna.storages.BaseStorage:
    """Open a storage of studies. Several processes and machines may open the same storage.

    Args:
        url: one of `ADMITTED_URLS`, optionally with a driver (`postgresql+psycopg://…`); None for memory.
        create: create a file or its tables if they do not exist. If false, the file must exist and may be read-only.

    Raises:
        OptionError: for `storage`, with advice. A password in the URL is shown as `***`.
    """
    import optuna

    silence_optuna()
    place = check_storage(url, create)
    if place is None:
        return optuna.storages.InMemoryStorage()
    with one_line_errors(url, opening=True):
        return _open_journal(place, create) if isinstance(place, Path) else _open_database(place)


def check_storage(url: str | None, create: bool = True) -> sqlalchemy.URL | Path | None:
    """Check a URL without connecting to a server.

    Returns:
        The URL of a database, the path of a journal, or None for memory.

    Raises:
        OptionError: if the URL is not valid, or its file or driver is missing.
    """
    if url is None:
        return None
    scheme, colon, rest = url.partition(':')
    kind = scheme.partition('+')[0]
    if not colon:
        example = f'sqlite:///{url}' if url.strip() and url not in SCHEMES else 'sqlite:///study.db'
        raise OptionError('storage', f'got {format_value(url)}, expected a URL such as {format_value(example)}')
    if kind not in SCHEMES:
        got, hint = format_value(mask_password(url)), did_you_mean(kind.lower(), SCHEMES)
        raise OptionError('storage', f'got {got}, expected {ADMITTED_URLS}{hint}')
    if kind != 'journal':
        return _database(url, kind, create)
    if not rest.strip() or (rest.startswith('//') and not rest.startswith('///')):
        raise OptionError('storage', f'got {format_value(url)}, expected journal:FILE')
    _check_file(Path(rest), create)
    _check_journal(Path(rest))
    return Path(rest)


def mask_password(url: str) -> str:
    """Return a URL with its password replaced by `***`."""
    if not url.startswith('journal:'):
        # also if the scheme is missing, and for any characters in the password
        url = re.sub(r'^([^:@]*://[^:@]*|[^:@]*(?=:(?!//))):.*@', r'\1:***@', url, flags=re.DOTALL)
    return re.sub(r'([?&][^=&]*(?:password|passwd)=)[^&]*', r'\1***', url, flags=re.IGNORECASE)


@contextlib.contextmanager
def one_line_errors(url: str | None, opening: bool = False) -> Iterator[None]:
    """Raise the errors of a storage as a one-line OptionError with its URL and advice.

    Args:
        url: URL of the storage; None for memory.
        opening: convert all exceptions, not only those of Optuna, SQLAlchemy and the operating system.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except Exception as error:
        if isinstance(error, OptionError) or not (
            opening or isinstance(error, StorageInternalError | SQLAlchemyError | OSError)
        ):
            raise
        raise _storage_error(url, error) from error


def _storage_error(url: str | None, error: BaseException) -> OptionError:
    said = error
    while said.__cause__ is not None:  # the message of the driver, without the SQL statement
        said = said.__cause__
    if isinstance(said, LookupError | TypeError | AttributeError | AssertionError):
        said = ValueError(f'it is a damaged journal of Optuna ({type(said).__name__})')
    lines = str(said.args[-1] if said.args else said).strip().splitlines() or [type(said).__name__]
    # for a server with several addresses, use the message of the address that answered
    text = ' '.join(next((line for line in lines if 'FATAL' in line), lines[0]).split())[:400]
    remedy = next((f' ({what})' for words, what in REMEDIES.items() if re.search(words, text, re.IGNORECASE)), '')
    return OptionError('storage', f'{format_value(mask_password(url or "memory"))}: {text}{remedy}')


def _database(url: str, kind: str, create: bool) -> sqlalchemy.URL:
    """Parse the URL of a database, and check that its driver is installed."""
    import sqlalchemy

    got = f'got {format_value(mask_password(url))}'
    if url.partition('://')[2].partition('/')[0].count('@') > 1:
        raise OptionError('storage', f'{got}, expected one @: write %40 for an @ in a user or a password')
    try:
        parts = sqlalchemy.make_url(url)
        parts = parts.set(drivername=DRIVERS.get(parts.drivername, parts.drivername))
        parts.get_dialect().import_dbapi()
    except ImportError as error:
        needed = EXTRAS.get(error.name or '', error.name)
        raise OptionError('storage', f'{got}, which needs a driver: pip install {needed}') from error
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise OptionError('storage', f'{got}, which is not the URL of a database, expected {ADMITTED_URLS}') from error
    if kind == 'sqlite':
        if parts.host or parts.database in (None, '', ':memory:'):
            raise OptionError('storage', f'{got}, expected sqlite:///FILE, with three slashes (four before /tmp)')
        _check_file(Path(cast(str, parts.database)), create)
    elif not parts.database:
        raise OptionError('storage', f'{got} without a database, expected {kind}://USER@HOST/DATABASE')
    return parts


def _open_database(url: sqlalchemy.URL) -> optuna.storages.BaseStorage:
    """Open a database, and create the tables of Optuna if they are missing."""
    import optuna

    text = url.render_as_string(hide_password=False).replace('{', '{{').replace('}', '}}')  # Optuna formats the URL
    limits = {'timeout': BUSY_SECONDS} if url.get_backend_name() == 'sqlite' else {'connect_timeout': CONNECT_SECONDS}
    if url.get_backend_name() == 'mysql':  # its connect timeout does not limit the first answer
        limits |= {'read_timeout': BUSY_SECONDS, 'write_timeout': BUSY_SECONDS}
    limits = {name: seconds for name, seconds in limits.items() if name not in url.query}
    end = time.monotonic() + RACE_SECONDS
    while True:
        try:
            # Optuna modifies the dict of options
            return optuna.storages.RDBStorage(text, {'pool_pre_ping': True, 'connect_args': dict(limits)})
        except Exception as error:
            if not RACE.search(f'{error} {error.__cause__}') or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0.01, 0.2))


def _open_journal(path: Path, create: bool) -> optuna.storages.BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # Optuna calls only the methods acquire and release of a lock
    lock = cast(Any, JournalLock(path) if fcntl else JournalFileOpenLock(str(path)))
    backend = JournalFileBackend(str(path), lock_obj=lock)
    if create:
        lock.acquire()
        lock.release()
    return JournalStorage(backend)


class JournalLock:
    """A lock on a journal that the kernel releases if the process dies."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file = -1

    def acquire(self) -> bool:
        """Wait for the lock, then remove the incomplete last line of a killed process."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b'\n':
                os.ftruncate(file, os.pread(file, size, 0).rfind(b'\n') + 1)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Release the lock."""
        file, self._file = self._file, -1
        os.close(file)


def _check_file(path: Path, create: bool) -> None:
    """Check that a file exists or can be created. Do not open it: closing it would release the locks of SQLite."""
    if not create and not path.exists():
        near = did_you_mean(path.name, [one.name for one in path.absolute().parent.glob('*')])
        raise OptionError('storage', f'there is no file {path}{near}')
    effective = {'effective_ids': True} if os.access in os.supports_effective_ids else {}
    if path.is_file() and not os.access(path, os.W_OK if create else os.R_OK, **effective):
        raise OptionError('storage', f'the file {path} is not {"writable" if create else "readable"}')
    if create or path.is_dir():
        check_parent('storage', path)  # SQLite writes files next to it


def _check_journal(path: Path) -> None:
    """Check that an existing file is a journal. Its last line may be incomplete."""
    if not path.exists():
        return
    *lines, torn = path.read_bytes().split(b'\n')
    fits = [line.startswith(ENTRY) and line.endswith(b'}') for line in lines]
    fits.append(torn.startswith(ENTRY) or ENTRY.startswith(torn))
    if not all(fits):
        raise OptionError('storage', f'{path} is not a journal of Optuna: see its line {fits.index(False) + 1}')
