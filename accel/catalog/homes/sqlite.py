"""A catalog in a file of SQLite: many readers beside one writer, as the write-ahead log has it.

Nothing stays open between transactions: the last connection that is closed moves the log into the file and
removes it. So the file can be copied, or replaced by another, like any file. A connection that is open
meanwhile would have SQLite read the new file by the log of the old one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from accel.catalog.homes.sql_database import Session, Tables, catalog_name
from accel.catalog.homes.sql_home import DatabaseHome
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.runtime.threads import DATABASES

if TYPE_CHECKING:
    from accel.store.clients import Connector
    from accel.store.location import Location

__all__ = ["SqliteDatabase", "SqliteHome"]

T = TypeVar("T")
_BUSY_SECONDS: Final = 30.0
"""Seconds that a writer waits for another."""
_PAUSES: Final = (0.02, 0.2)
"""Seconds before a file is read again that seemed damaged, or that was replaced meanwhile: whoever had the
old one open has closed it by then."""


class SqliteHome(DatabaseHome):
    """A catalog in a file of SQLite."""

    def __init__(self, database: SqliteDatabase, *, in_store: bool) -> None:
        super().__init__(database, in_store=in_store)
        self._file = database

    @classmethod
    def at(cls, index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> SqliteHome:
        """Return the home with the URL `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`."""
        return cls(SqliteDatabase.at(os.fspath(index)), in_store=in_store)

    def is_in(self, directory: Location) -> bool:
        """Return whether a scan of that directory would take the file for data; see `CatalogHome.is_in`."""
        if directory.scheme != "file":
            return False
        inside = Path(self._file.path).parts[1:]
        above = Path("/" + directory.path).parts[1:]
        below = inside[len(above) :]
        return inside[: len(above)] == above and not any(part.startswith(("_", ".")) for part in below)

    async def _file_state(self) -> object:
        return await DATABASES.run(self._file.state)


class SqliteDatabase:
    """A `Database` in a file.

    Parameters
    ----------
    path : str
        Absolute.
    name : str
        The name of the index in it.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.key = f"sqlite:///{path}#{name}"
        self.tables = Tables(name, binary="BLOB", identity="INTEGER PRIMARY KEY AUTOINCREMENT")
        self._name = name

    def __str__(self) -> str:
        return f"sqlite:///{self.path}" + ("" if self._name == "accel" else f"#{self._name}")

    @classmethod
    def at(cls, url: str) -> SqliteDatabase:
        """Return the database with a URL.

        Raises
        ------
        StoreError
            The URL names no file.
        """
        rest, _, fragment = url.partition("://")[2].partition("#")
        path = unquote(rest[1:])
        if not rest.startswith("/") or not path or "?" in rest or "\0" in path:
            raise StoreError(
                "not the URL of a file of SQLite",
                path=url,
                hint=(
                    "sqlite:///index.db is relative, sqlite:////data/index.db absolute; ? and # are "
                    "written %3F and %23"
                ),
            )
        return cls(os.path.abspath(path), catalog_name(fragment, shown=url))

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction that reads one state of the database; see `Database.read`."""
        for pause in _PAUSES:
            before = self.state()
            try:
                return self._read(work)
            except ObjectNotFoundError:
                raise
            except IndexFormatError:
                pass
            except StoreError:
                if self.state() == before:
                    raise
            time.sleep(pause)
        return self._read(work)

    def _read(self, work: Callable[[Session], T]) -> T:
        with self._connection(create=False) as connection, _transaction(connection, "BEGIN"):
            return work(_SqliteSession(connection))

    def write(self, work: Callable[[Session], T], *, create: bool = False) -> T:
        """Run `work` in a transaction that is committed unless it raises; see `Database.write`."""
        with self._connection(create=create) as connection:
            # A commit is not lost with the process; the log may lose the last ones with the power.
            connection.execute("PRAGMA synchronous = NORMAL")
            if create:
                # It stays so: readers go on while somebody writes.
                connection.execute("PRAGMA journal_mode = WAL")
            with _transaction(connection, "BEGIN IMMEDIATE"):
                if create:
                    for statement in self.tables.definitions():
                        connection.execute(statement)
                return work(_SqliteSession(connection))

    def state(self) -> tuple[object, ...]:
        """Return what differs once the file was written to, or replaced.

        Raises
        ------
        StoreError
            The file cannot be reached.
        """
        file, log = _state_of(self.path), _state_of(f"{self.path}-wal")
        # Whoever reads makes an empty log.
        return file, log if log is not None and log.st_size else None

    @contextlib.contextmanager
    def _connection(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction; errors are those of `Database`."""
        try:
            if not create and _state_of(self.path) is None:
                raise ObjectNotFoundError("there is no such file, and so no index", path=str(self))
            with contextlib.closing(self._connect(create=create)) as connection:
                yield connection
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            # In a damaged file even messages may not be text, and lengths may be of any size.
            raise self._refusal(error) from None

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        uri = f"file:{quote(self.path)}?mode={'rwc' if create else 'rw'}"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    def _refusal(self, error: Exception) -> AccelError:
        text = str(error)
        if "no such table" in text:
            return ObjectNotFoundError("there is no index in the database", path=str(self))
        if isinstance(error, sqlite3.OperationalError) and "decode" not in text:
            return StoreError(f"the database failed: {text}", path=str(self))
        return IndexFormatError(f"the database is damaged: {text}", path=str(self))


class _SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, tuple(parameters)).fetchall()

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self._connection.execute(statement, tuple(parameters)).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class _FileState(NamedTuple):
    """What differs for another file, or another content."""

    st_dev: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


def _state_of(path: str) -> _FileState | None:
    """Return the state of a file; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the database cannot be reached: {error.strerror}", path=path) from None
    return _FileState(*(getattr(found, name) for name in _FileState._fields))
