"""A catalog in a file of SQLite: many readers beside one writer, as the write-ahead log has it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

from accel.catalog.sql_database import Session, Tables, catalog_name
from accel.catalog.sql_home import DatabaseHome
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from accel.store.client import Connector
    from accel.store.location import Location

__all__ = ["SqliteDatabase", "SqliteHome"]

T = TypeVar("T")
_BUSY_SECONDS: Final = 30.0
"""Seconds that a writer waits for another."""
_IDLE: Final = 8
"""Connections to one file that stay open."""


class SqliteHome(DatabaseHome):
    """A catalog in a file of SQLite."""

    def __init__(self, database: SqliteDatabase, *, in_store: bool) -> None:
        super().__init__(database, in_store=in_store)
        self._path = database.path

    @classmethod
    def at(cls, index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> SqliteHome:
        """Return the home with the URL `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`."""
        return cls(SqliteDatabase.at(os.fspath(index)), in_store=in_store)

    def is_in(self, directory: Location) -> bool:
        """See `CatalogHome.is_in`: a scan of the directory would take the file for data."""
        if directory.scheme != "file":
            return False
        inside = Path(self._path).parts[1:]
        above = Path("/" + directory.path).parts[1:]
        below = inside[len(above) :]
        return inside[: len(above)] == above and not any(part.startswith(("_", ".")) for part in below)


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
                hint="sqlite:///index.db is relative, sqlite:////data/index.db absolute; ? and # are written %3F and %23",
            )
        return cls(os.path.abspath(path), catalog_name(fragment, shown=url))

    def read(self, work: Callable[[Session], T]) -> T:
        """See `Database.read`."""
        with self._connection(create=False) as connection, _transaction(connection, "BEGIN"):
            return work(_SqliteSession(connection))

    def write(self, work: Callable[[Session], T], *, create: bool = False) -> T:
        """See `Database.write`."""
        with self._connection(create=create) as connection:
            if create:
                # It stays so: readers go on while somebody writes.
                connection.execute("PRAGMA journal_mode = WAL")
            with _transaction(connection, "BEGIN IMMEDIATE"):
                if create:
                    for statement in self.tables.definitions():
                        connection.execute(statement)
                return work(_SqliteSession(connection))

    @contextlib.contextmanager
    def _connection(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else uses meanwhile; errors are those of `Database`."""
        try:
            place = _place_of(self.path)
            if place is None and not create:
                raise ObjectNotFoundError("there is no such file, and so no index", path=str(self))
            connection = None if place is None else _IDLE_CONNECTIONS.take(place)
            connection = self._connect(create=create) if connection is None else connection
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            place = _place_of(self.path)
            if place is None or not _IDLE_CONNECTIONS.give(place, connection):
                connection.close()
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            # In a damaged file even messages may not be text, and lengths may be of any size.
            raise self._refusal(error) from None

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        uri = f"file:{quote(self.path)}?mode={'rwc' if create else 'rw'}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # A commit is not lost with the process; the log may lose the last ones with the power.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

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


def _place_of(path: str) -> tuple[int, int] | None:
    """Which file is there, so that a connection to one that was replaced is not used; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the database cannot be reached: {error.strerror}", path=path) from None
    return found.st_dev, found.st_ino


class _Connections:
    """Open connections that nobody uses."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # What a fork inherits must not be used, nor closed: the locks of the file belong to the parent.
        self._inherited = getattr(self, "_idle", None)
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, int], list[sqlite3.Connection]] = {}

    def take(self, place: tuple[int, int]) -> sqlite3.Connection | None:
        """Return one to a file, if there is one."""
        with self._lock:
            waiting = self._idle.get(place)
            return waiting.pop() if waiting else None

    def give(self, place: tuple[int, int], connection: sqlite3.Connection) -> bool:
        """Take one back; False where there are enough."""
        with self._lock:
            waiting = self._idle.setdefault(place, [])
            if len(waiting) >= _IDLE:
                return False
            waiting.append(connection)
            return True


_IDLE_CONNECTIONS: Final = _Connections()
