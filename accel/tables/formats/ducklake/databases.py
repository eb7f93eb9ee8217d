"""The databases that hold a DuckLake: connections that only read, in one transaction, and what differs in
their SQL.

A transaction is open while its questions are asked, and no longer: a file of SQLite that somebody reads
cannot be written to, and a server keeps old rows for its oldest reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from accel.errors import AccelError, StoreError, TableFormatError
from accel.store.postgres_connection import POSTGRES_SCHEMES, PostgresAddress

__all__ = ["DuckLakeDatabase", "Session", "database_at"]

T = TypeVar("T")
_BUSY_SECONDS: Final = 30.0
"""Seconds that a reader of SQLite waits for a writer."""
_DEFAULTS: Final = {"connect_timeout": "10", "tcp_user_timeout": "30000", "application_name": "accel"}
_FORMS: Final = (
    "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host/database, and "
    "duckdb:///file.ducklake"
)
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL intervalstyle = 'postgres'; "
    "SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1"
)
"""One state for all questions, and texts of values as `values` reads them."""
_AWAY: Final = re.compile(
    r"refused|starting up|shutting down|recovery mode|too many clients|timeout|closed the connection|reset",
    re.IGNORECASE,
)
"""What a server says that is there soon."""
_AT_ONCE: Final = 10_000
"""Rows that come over the wire together."""


class Session(ABC):
    """A connection in a transaction. Statements have `?` for parameters and for nothing else, and no `%`."""

    dialect: str
    """"sqlite", "postgres" or "duckdb"."""
    utf8: bool
    """Whether texts compare by the bytes of UTF-8 in `binary_text`."""

    def __init__(self) -> None:
        self.queries = 0
        self.rows = 0
        """Rows that came so far."""

    @abstractmethod
    def _pages(self, statement: str, parameters: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        raise NotImplementedError

    @abstractmethod
    def tables_named(self, names: Sequence[str]) -> set[str]:
        """Return which tables of some names there are."""
        raise NotImplementedError

    def pages(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query, some at a time."""
        self.queries += 1
        for page in self._pages(statement, parameters):
            self.rows += len(page)
            yield page

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query that has few."""
        self.queries += 1
        found = self._rows(statement, parameters)
        self.rows += len(found)
        return found

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [row for page in self._pages(statement, parameters) for row in page]

    # -- what differs ----------------------------------------------------------------------------

    def binary_text(self, term: str) -> str:
        """Return a term for a text that compares by its bytes."""
        return f'{term} COLLATE "C"' if self.dialect == "postgres" else term

    def is_text(self, term: str) -> str:
        """Return the condition that a column of texts holds one, as SQLite's may hold anything."""
        return f"TYPEOF({term}) = 'text'" if self.dialect == "sqlite" else "TRUE"

    def matches(self, term: str, pattern: str) -> str:
        """Return the condition that a text is `pattern`: `0` is a digit, other characters are themselves, and
        a `*` at the end is anything."""
        if self.dialect == "sqlite":
            return f"{term} GLOB '{pattern.replace('0', '[0-9]')}'"
        end = ".*" if pattern.endswith("*") else ""
        regex = "^" + pattern.removesuffix("*").replace("0", "[0-9]") + end + "$"
        if self.dialect == "postgres":
            return f"{term} ~ '{regex}'"
        return f"regexp_full_match({term}, '{regex}')"

    def inlined(self, column: str, *, raw: bool) -> str:
        """Return the term for a column of inlined rows, as text; `raw` ones are texts or bytes already."""
        name = '"' + column.replace('"', '""') + '"'
        if raw or self.dialect == "sqlite":
            return name
        return f"CAST({name} AS {'TEXT' if self.dialect == 'postgres' else 'VARCHAR'})"

    def float_literal(self, value: float) -> str:
        """Return a finite number as a literal."""
        kind = {"sqlite": "REAL", "postgres": "NUMERIC", "duckdb": "DOUBLE"}[self.dialect]
        return f"CAST('{value!r}' AS {kind})"

    def integer(self, term: str) -> str:
        """Return a term for the whole number that a text is; NULL where it is none, or a long one."""
        if self.dialect == "duckdb":
            return f"TRY_CAST({term} AS BIGINT)"
        if self.dialect == "postgres":
            sound = f"LENGTH({term}) <= 18 AND {term} ~ '^-{{0,1}}[0-9]+$'"
            return f"CASE WHEN {sound} THEN CAST({term} AS BIGINT) END"
        digits = f"CASE WHEN SUBSTR({term}, 1, 1) = '-' THEN SUBSTR({term}, 2) ELSE {term} END"
        sound = f"{self.is_text(term)} AND LENGTH({term}) <= 18"
        sound += f" AND ({digits}) <> '' AND ({digits}) NOT GLOB '*[^0-9]*'"
        return f"CASE WHEN {sound} THEN CAST({term} AS INTEGER) END"

    def number(self, term: str) -> str:
        """Return a term for the finite number that a text is, perhaps the last digits off; NULL where it is
        none."""
        if self.dialect == "duckdb":
            return f"CASE WHEN isfinite(TRY_CAST({term} AS DOUBLE)) THEN TRY_CAST({term} AS DOUBLE) END"
        if self.dialect == "postgres":
            # Bounds on the number of digits would make the pattern a slow one.
            form = "^-{0,1}[0-9]+([.][0-9]+){0,1}([eE][-+]{0,1}[0-9]{1,3}){0,1}$"
            sound = f"LENGTH({term}) <= 400 AND {term} ~ '{form}'"
            return f"CASE WHEN {sound} THEN CAST({term} AS NUMERIC) END"
        sound = f"{self.is_text(term)} AND {term} GLOB '[-0-9]*' AND {term} GLOB '*[0-9]'"
        sound += f" AND {term} NOT GLOB '*[^-+.0-9eE]*'"
        sound += f" AND ABS(CAST({term} AS REAL)) < 1e308"
        return f"CASE WHEN {sound} THEN CAST({term} AS REAL) END"


class DuckLakeDatabase(ABC):
    """A database that holds a DuckLake. Its calls block: they run in threads. `str` shows no credentials."""

    key: str
    """What caches have for it: different for different credentials, and telling none."""

    @abstractmethod
    def read(self, work: Callable[[Session], T]) -> T:
        """Call `work` in a transaction that reads one state of the database.

        Raises
        ------
        StoreError
            It is not there, or does not answer.
        TableFormatError
            It is damaged, or holds no DuckLake.
        """
        raise NotImplementedError


def database_at(url: str) -> DuckLakeDatabase:
    """Return the database with a URL.

    Raises
    ------
    StoreError
        It is no such URL.
    """
    scheme = url.partition("://")[0].lower()
    if scheme in POSTGRES_SCHEMES:
        return _PostgresCatalog(url)
    if scheme == "sqlite":
        return _SqliteCatalog(_path_of(url))
    if scheme == "duckdb":
        return _DuckdbCatalog(_path_of(url))
    failure = StoreError("this names no database that may hold a DuckLake", hint=f"accel reads {_FORMS}")
    failure.hides = True
    raise failure


def _path_of(url: str) -> str:
    rest = url.partition("://")[2]
    path = unquote(rest[1:])
    if not rest.startswith("/") or not path or "?" in rest or "#" in rest or "\0" in path:
        raise StoreError(
            "not the URL of a file",
            path=url,
            hint=f"accel reads {_FORMS}; ? and # are written %3F and %23",
        )
    return os.path.abspath(path)


# -- SQLite --------------------------------------------------------------------------------------


class _SqliteCatalog(DuckLakeDatabase):
    def __init__(self, path: str) -> None:
        self._path = path
        self.key = f"ducklake:sqlite:{path}"

    def __str__(self) -> str:
        return f"sqlite:///{self._path}"

    def read(self, work: Callable[[Session], T]) -> T:
        if not os.path.isfile(self._path):
            raise StoreError("there is no such file, and so no catalog", path=str(self))
        try:
            uri = f"file:{quote(self._path)}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            with contextlib.closing(connection):
                connection.text_factory = _text_or_bytes
                connection.execute("BEGIN")
                return work(_SqliteSession(connection))
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            refusal = _refusal(str(error), str(self), gone=_is_busy(error))
            if isinstance(refusal, StoreError):
                refusal.transient = False  # it was waited for
            raise refusal from None


def _text_or_bytes(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _is_busy(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and ("locked" in text or "unable to open" in text)


class _SqliteSession(Session):
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self.utf8 = connection.execute("PRAGMA encoding").fetchone()[0] == "UTF-8"

    def _pages(self, statement: str, parameters: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._connection.execute(statement, tuple(parameters))
        while page := cursor.fetchmany(_AT_ONCE):
            yield page

    def tables_named(self, names: Sequence[str]) -> set[str]:
        marks = ", ".join("?" * len(names))
        return {
            name
            for (name,) in self.fetch(
                f"SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ({marks})", names
            )
        }


# -- PostgreSQL ----------------------------------------------------------------------------------


class _PostgresCatalog(DuckLakeDatabase):
    def __init__(self, url: str) -> None:
        self._address = PostgresAddress.parse(url)
        self.key = f"ducklake:postgresql:{hashlib.sha256(url.encode()).hexdigest()}"

    def __str__(self) -> str:
        return str(self._address)

    def read(self, work: Callable[[Session], T]) -> T:
        import psycopg

        is_connected = False
        try:
            connection = self._address.connect(**_DEFAULTS)
            with contextlib.closing(connection):
                is_connected = True
                connection.execute(_BEGIN)
                return work(_PostgresSession(connection))
        except (
            psycopg.errors.UndefinedTable,
            psycopg.errors.UndefinedColumn,
            psycopg.errors.InvalidSchemaName,
            psycopg.DataError,
        ) as error:
            refusal: AccelError = _refusal(self._address.text_of(error), str(self), gone=False)
        except (psycopg.Error, UnicodeError) as error:
            refusal = failure = self._address.failure(error)
            # Who was not let in is not let in the next time.
            failure.transient = is_connected or _AWAY.search(failure.message) is not None
        # Its frames, and those of its context, hold the address.
        refusal.hides = True
        raise refusal from None


class _PostgresSession(Session):
    dialect = "postgres"

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        self.utf8 = connection.info.parameter_status("server_encoding") == "UTF8"

    def _pages(self, statement: str, parameters: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        # A cursor of the server's: rows come as they are taken.
        with self._connection.cursor(f"accel_{self.queries}") as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(statement.replace("?", "%s"), tuple(parameters) or None)
            while page := cursor.fetchmany(_AT_ONCE):
                yield page

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.replace("?", "%s"), tuple(parameters) or None)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def tables_named(self, names: Sequence[str]) -> set[str]:
        found = self.fetch(
            "SELECT c.relname FROM pg_class c WHERE c.relname = ANY(?) AND pg_table_is_visible(c.oid)",
            [list(names)],
        )
        return {name for (name,) in found}


# -- DuckDB --------------------------------------------------------------------------------------


class _DuckdbCatalog(DuckLakeDatabase):
    def __init__(self, path: str) -> None:
        self._path = path
        self.key = f"ducklake:duckdb:{path}"

    def __str__(self) -> str:
        return f"duckdb:///{self._path}"

    def read(self, work: Callable[[Session], T]) -> T:
        try:
            import duckdb
        except ImportError:
            raise StoreError(
                "a catalog in a file of DuckDB is read through the package duckdb, which is not installed",
                path=str(self),
                hint="pip install duckdb",
            ) from None
        if not os.path.isfile(self._path):
            raise StoreError("there is no such file, and so no catalog", path=str(self))
        try:
            with contextlib.closing(duckdb.connect(self._path, read_only=True)) as connection:
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return work(_DuckdbSession(connection))
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.ConversionException) as error:
            raise _refusal(str(error), str(self), gone=False) from None
        except duckdb.Error as error:
            raise _refusal(str(error), str(self), gone=isinstance(error, duckdb.IOException)) from None


class _DuckdbSession(Session):
    dialect = "duckdb"
    utf8 = True

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection

    def _pages(self, statement: str, parameters: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._connection.execute(statement, list(parameters))
        while page := cursor.fetchmany(_AT_ONCE):
            yield page

    def tables_named(self, names: Sequence[str]) -> set[str]:
        marks = ", ".join("?" * len(names))
        found = self.fetch(f"SELECT table_name FROM duckdb_tables() WHERE table_name IN ({marks})", names)
        return {name for (name,) in found}


def _refusal(text: str, where: str, *, gone: bool) -> AccelError:
    text = re.sub(r"\s+", " ", text)[:300]
    if gone:
        return StoreError(f"the catalog cannot be read: {text}", path=where, transient=True)
    return TableFormatError(
        f"the database holds no DuckLake that accel can read: {text}",
        path=where,
        hint="is it the catalog of a DuckLake of version 1.0?",
    )
