"""Where studies are kept: in memory, SQLite, PostgreSQL, MySQL, or a journal that several processes append to."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from xagents.options.errors import OptionError, nearest, shown
from xagents.system.paths import check_parent

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import optuna
    import sqlalchemy

__all__ = ['JournalLock', 'check_storage', 'masked', 'open_storage', 'storage_error']

# what reaches which database: driver, its module, and what to install; the first one that is there is taken
_DRIVERS = {
    'sqlite': {'pysqlite': ('sqlite3', 'a Python with sqlite3')},
    'postgresql': {
        'psycopg2': ('psycopg2', "'xagents[postgresql]'"),
        'psycopg': ('psycopg', "'psycopg[binary]'"),
    },
    'mysql': {'pymysql': ('pymysql', "'xagents[mysql]'"), 'mysqldb': ('MySQLdb', 'mysqlclient')},
}
_ADMITTED = 'sqlite:///FILE, postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, journal:FILE'

CONNECT_SECONDS = 10
"""How long a database server may take to answer."""
BUSY_SECONDS = 60
"""How long to wait for other processes that write to the same SQLite file."""
RACE_SECONDS = 30
"""How long to try again where other processes make the same tables at the same time."""

# what a database says when somebody else makes the same tables right now
_RACE = re.compile('already exists|duplicate|unique constraint|database is locked|deadlock|concurrently', re.IGNORECASE)
# what it says otherwise, and what to do about it
_REMEDIES = {
    'database "?[^"]*"? does not exist|unknown database': 'make the database first',
    'password|access denied|authentication|role .* does not exist': 'check the user and the password',
    'refused|timed? ?out|translate host|name or service|not known|resolve|no such file|unreachable|no route|'
    "can't connect": 'is the server running, and reachable from here?',
    'permission denied|command denied': 'the user needs the right to make tables',
    'not a database|malformed': 'it admits a database of SQLite, or a new file',
    'disk is full|no space': 'make room',
}


def open_storage(url: str | None, create: bool = True) -> optuna.storages.BaseStorage:
    """Open the place where studies are kept; several processes and machines may open the same one.

    Args:
        url: `sqlite:///FILE`, `postgresql://…`, `mysql://…` (also with a driver: `postgresql+psycopg://…`),
            `journal:FILE`, or None for one that lives in this process only.
        create: make a file that does not exist. Otherwise it has to be there, and may be read-only.

    Raises:
        OptionError: naming `storage`, on one line, with what to do; a password in the URL is shown as `***`.
    """
    import optuna

    # what goes wrong is raised; what is well goes without saying
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    logging.getLogger('sqlalchemy').setLevel(logging.CRITICAL)
    place = _place(url, create)
    if place is None:
        return optuna.storages.InMemoryStorage()
    if isinstance(place, Path):
        return _open_journal(place, create)
    return _open_database(cast(str, url), place)


def check_storage(url: str | None, create: bool = True) -> None:
    """Check all of `open_storage` that can be told at once, without writing a file or asking a server.

    Raises:
        OptionError: naming `storage`, on one line, with what to do.
    """
    _place(url, create)


def masked(url: str) -> str:
    """Return a URL with its password shown as `***`."""
    if not url.startswith('journal:'):
        # also where the scheme was forgotten, and whatever else a password holds
        url = re.sub(r'^([^:@]*://[^:@]*|[^:@]*(?=:(?!//))):.*@', r'\1:***@', url, flags=re.DOTALL)
    return re.sub(r'([?&][^=&]*(?:password|passwd)=)[^&]*', r'\1***', url, flags=re.IGNORECASE)


def storage_error(url: str | None, error: BaseException) -> OptionError:
    """Return what a storage said on one line, with what to do, whatever stood between it and us."""
    from optuna.exceptions import StorageInternalError

    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    said = getattr(error, 'orig', None) or error  # the driver's own words, without the statement
    lines = str(said.args[-1] if said.args else said).strip().splitlines() or [type(said).__name__]
    # a server with several addresses: what matters is what the one said that answered
    text = ' '.join(next((line for line in lines if 'FATAL' in line), lines[0]).split())[:400]
    remedies = (remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, text, re.IGNORECASE))
    remedy = next(remedies, '')
    return OptionError('storage', f'{shown(masked(url or "memory"))}: {text}{remedy and f" ({remedy})"}')


def _place(url: str | None, create: bool) -> sqlalchemy.URL | Path | None:
    """Return what a URL stands for: a database, the path of a journal, or memory."""
    if url is None:
        return None
    scheme, colon, rest = url.partition(':')
    kind, _, driver = scheme.partition('+')
    if not colon:
        example = f'sqlite:///{url}' if url.strip() and url not in (*_DRIVERS, 'journal') else 'sqlite:///study.db'
        raise OptionError('storage', f'got {shown(url)}, admits a URL such as {shown(example)}')
    if scheme == 'journal':
        if not rest.strip() or (rest.startswith('//') and not rest.startswith('///')):
            raise OptionError('storage', f'got {shown(url)}, admits journal:FILE')
        _check_file(Path(rest), create)
        if Path(rest).exists():
            _check_journal(Path(rest))
        return Path(rest)
    if kind not in _DRIVERS:
        near = nearest(kind.lower(), [*_DRIVERS, 'journal'])
        raise OptionError('storage', f'got {shown(masked(url))}, admits {_ADMITTED}{near}')
    parts = _parsed(url, kind, driver)
    if kind == 'sqlite':
        _check_file(Path(cast(str, parts.database)), create)
    return parts


def _parsed(url: str, kind: str, driver: str) -> sqlalchemy.URL:
    """Return a URL in its parts, with a driver that is there."""
    import sqlalchemy

    got = f'got {shown(masked(url))}'
    server = url.partition('://')[2].partition('/')[0]
    if server.count('@') > 1:
        raise OptionError('storage', f'{got}, with more than one @: in a user or a password it is written %40')
    try:
        parts = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise OptionError('storage', f'{got}, which is no URL, admits {_ADMITTED}') from error
    if kind == 'sqlite':
        if parts.host:
            raise OptionError('storage', f'{got}, admits sqlite:///FILE, with three slashes (four before /tmp)')
        if parts.database in (None, '', ':memory:'):
            raise OptionError('storage', f'{got}, which keeps nothing, admits sqlite:///FILE')
    elif not parts.database:
        raise OptionError('storage', f'{got} without a database, admits {kind}://USER@HOST/DATABASE')
    known = _DRIVERS[kind]
    if driver and driver not in known:
        admitted = ', '.join(f'{kind}+{name}' for name in known)
        raise OptionError('storage', f'{got}, admits the drivers {admitted}{nearest(driver, known)}')
    wanted = [driver] if driver else list(known)
    there = next((name for name in wanted if importlib.util.find_spec(known[name][0])), None)
    if there is None:
        raise OptionError('storage', f'{got}, which needs a driver: pip install {known[wanted[0]][1]}')
    return parts.set(drivername=f'{kind}+{there}')


def _open_database(typed: str, url: sqlalchemy.URL) -> optuna.storages.BaseStorage:
    """Open a database, with Optuna's tables made where they are missing."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    text = url.render_as_string(hide_password=False)
    if url.get_backend_name() == 'sqlite':
        limits = {'timeout': BUSY_SECONDS}
    else:
        limits = {'connect_timeout': CONNECT_SECONDS}
        if url.get_backend_name() == 'mysql':  # connecting ends before the server has said anything
            limits |= {'read_timeout': BUSY_SECONDS, 'write_timeout': BUSY_SECONDS}
    limits = {name: seconds for name, seconds in limits.items() if name not in url.query}
    end = time.monotonic() + RACE_SECONDS
    while True:
        try:
            # Optuna fills in {…}; it adds to the options it is given
            options: dict[str, Any] = {'pool_pre_ping': True, 'connect_args': dict(limits)}
            return optuna.storages.RDBStorage(text.replace('{', '{{').replace('}', '}}'), engine_kwargs=options)
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError, RuntimeError, ValueError) as error:
            said = f'{error} {error.__cause__}'
            if not _RACE.search(said) or time.monotonic() > end:
                raise storage_error(typed, error) from error
        time.sleep(random.uniform(0.01, 0.2))


def _open_journal(path: Path, create: bool) -> optuna.storages.BaseStorage:
    """Open a journal; one that was torn by the death of its writer is mended."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # Optuna's base class of locks is not needed, only its two methods
    lock = cast(Any, JournalLock(path) if fcntl else JournalFileOpenLock(str(path)))
    try:
        backend = JournalFileBackend(str(path), lock_obj=lock)
        if create:
            lock.acquire()
            lock.release()
        return JournalStorage(backend)
    except OSError as error:
        raise OptionError('storage', f'{path} cannot be locked or read: {error.strerror}') from error
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise OptionError(
            'storage', f"{path} is no journal of Optuna's that fits together, admits a new file"
        ) from error


class JournalLock:
    """A lock on a journal that can never be stale: the kernel lets go of it when its holder dies.

    It also cuts off the part of a line that a writer left who died while writing, into which the next entry would run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file = -1

    def acquire(self) -> bool:
        """Wait for the lock, and mend the journal."""
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
        """Let go of the lock."""
        file, self._file = self._file, -1
        os.close(file)


def _check_file(path: Path, create: bool) -> None:
    """Check that a file is there or can be made, without opening it: closing it would drop SQLite's locks on it."""
    if path.is_dir() or (create and not path.exists()):
        check_parent('storage', path)
        return
    if not path.exists():
        near = nearest(path.name, [one.name for one in path.absolute().parent.glob('*')])
        raise OptionError('storage', f'there is no file {path}{near}')
    if not path.is_file():
        raise OptionError('storage', f'got {path}, which is no file')
    effective = {'effective_ids': True} if os.access in os.supports_effective_ids else {}
    if not os.access(path, os.W_OK if create else os.R_OK, **effective):
        raise OptionError('storage', f'the file {path} is not {"writable" if create else "readable"}')
    if create:
        check_parent('storage', path)  # SQLite writes beside it


def _check_journal(path: Path) -> None:
    """Check each line of a journal, before anything is written to it; the last one may be torn or still growing."""
    start = b'{"op_code":'
    with open(path, 'rb') as file:
        left = os.fstat(file.fileno()).st_size
        for number, line in enumerate(file, 1):
            left -= len(line)
            if left < 0:  # it was written meanwhile
                return
            if not line.endswith(b'\n'):
                fits = number > 1 or line.startswith(start) or start.startswith(line)
            else:
                try:
                    fits = 'op_code' in dict(json.loads(line))
                except (ValueError, TypeError):
                    fits = False
            if not fits:
                raise OptionError('storage', f"{path} is no journal of Optuna's: see its line {number}")
